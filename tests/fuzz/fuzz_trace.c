/* The trace reader, and all that is made of what it takes: periods, iteration, liveness, the
 * writer. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "iteration.h"
#include "liveness.h"
#include "period.h"
#include "trace_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int count_bytes(void *ctx, const char *text, size_t n)
{
    (void)text;
    *(size_t *)ctx += n;
    return 0;
}

static void use(const struct vm_trace *t)
{
    struct vm_trace_cursor at = {0};
    struct vm_period *runs;
    struct vm_iteration it = {0};
    struct vm_liveness live;
    struct vm_error why;
    size_t nruns, written = 0;
    if (vm_trace_write(t, &at, SIZE_MAX, count_bytes, &written) < 0 || written == 0)
        abort();
    if (vm_period_runs(t, &runs, &nruns) < 0)
        return;
    int rc = nruns ? vm_iteration_build(t, &runs[nruns - 1], &it, &why)
                   : vm_iteration_whole(t, &it, &why);
    free(runs);
    if (rc == VM_OK && vm_liveness_build(&it, &live) == VM_OK) {
        if (live.peak_work > live.peak_live || live.peak_work > live.peak_alloc)
            abort();
        vm_liveness_fini(&live);
    }
    vm_iteration_fini(&it);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct vm_trace t = {0};
    struct vm_error why = {""};
    FILE *f = n ? fmemopen((void *)(uintptr_t)data, n, "r") : NULL;
    if (!f)
        return 0;
    int rc = vm_trace_read(f, "fuzz", &t, &why);
    fclose(f);
    if (rc == VM_OK)
        use(&t);
    else if (!why.text[0] || t.events || t.blocks)
        abort(); /* a refusal has a reason and leaves nothing */
    vm_trace_fini(&t);
    return 0;
}
