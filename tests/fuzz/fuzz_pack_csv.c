/* The reader of packing problems; what it takes must be packable or refused, verified, and survive
 * being written and read again. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "pack_csv.h"
#include "verify.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void round_trip(const struct vm_pack_csv *csv, const uint64_t *offsets)
{
    struct vm_pack_csv again;
    struct vm_error why;
    char *text = NULL;
    size_t length = 0;
    FILE *f = open_memstream(&text, &length);
    if (!f || vm_pack_csv_write(f, csv, offsets) != VM_OK || fclose(f) != 0)
        abort();
    f = fmemopen(text, length, "r");
    if (!f || vm_pack_csv_read(f, "again", &again, &why) != VM_OK)
        abort();
    fclose(f);
    if (again.problem.nitems != csv->problem.nitems)
        abort();
    for (size_t i = 0; i < again.problem.nitems; i++)
        if (again.items[i].size != csv->items[i].size || again.items[i].fixed != offsets[i])
            abort();
    vm_pack_csv_fini(&again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct vm_pack_csv csv;
    struct vm_error why = {""};
    FILE *f = n ? fmemopen((void *)(uintptr_t)data, n, "r") : NULL;
    if (!f)
        return 0;
    int status = vm_pack_csv_read(f, "fuzz", &csv, &why);
    fclose(f);
    if (status) {
        if (!why.text[0])
            abort();
        return 0;
    }
    uint64_t *offsets = malloc((csv.problem.nitems + 1) * sizeof *offsets);
    struct vm_pack_options opt = {.max_nodes = 200};
    struct vm_pack_result res;
    status = vm_pack(&csv.problem, &opt, offsets, &res, &why);
    if (status == VM_OK) {
        if (vm_verify_packing(&csv.problem, offsets, 0, NULL, &why))
            abort();
        round_trip(&csv, offsets);
    } else if (status > 0 || !why.text[0]) {
        abort();
    }
    free(offsets);
    vm_pack_csv_fini(&csv);
    return 0;
}
