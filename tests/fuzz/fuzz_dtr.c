/* The reader of operator logs, and the iteration made of what it takes. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "import_dtr.h"
#include "iteration.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct vm_trace t = {0};
    struct vm_iteration it = {0};
    struct vm_error why = {""};
    FILE *f = n ? fmemopen((void *)(uintptr_t)data, n, "r") : NULL;
    if (!f)
        return 0;
    int status = vm_import_dtr(f, "fuzz", &t, &why);
    fclose(f);
    if (status) {
        if (!why.text[0] || t.nevents)
            abort();
        return 0;
    }
    for (size_t e = 0; e < t.nevents; e++)
        for (uint32_t k = 0; k < t.events[e].nacc; k++)
            if (t.accesses[t.events[e].acc + k].block >= t.nblocks)
                abort();
    if (vm_iteration_whole(&t, &it, &why) == VM_OK)
        vm_iteration_fini(&it);
    vm_trace_fini(&t);
    return 0;
}
