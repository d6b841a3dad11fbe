/* The plan reader; what it takes must hold together and survive a round trip. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "plan_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int count_bytes(void *ctx, const char *text, size_t n)
{
    (void)text;
    *(size_t *)ctx += n;
    return 0;
}

static void check(const struct vm_plan *p)
{
    size_t written = 0;
    for (size_t i = 0; i < p->nactions; i++)
        if (p->actions[i].op >= p->nops || p->actions[i].need_op > 2 * p->nops ||
            (i && p->actions[i].op < p->actions[i - 1].op))
            abort();
    for (size_t i = 0; i < p->nmem; i++)
        if (p->mem[i].block >= p->nblocks || p->mem[i].op > p->nops)
            abort();
    for (size_t i = 0; i < p->nblocks; i++)
        if (p->blocks[i].free_op < p->blocks[i].alloc_op || p->blocks[i].free_op > 2 * p->nops)
            abort();
    if (vm_plan_write(p, count_bytes, &written) < 0 || written == 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct vm_plan p;
    struct vm_error why = {""};
    FILE *f = n ? fmemopen((void *)(uintptr_t)data, n, "r") : NULL;
    if (!f)
        return 0;
    int rc = vm_plan_read(f, "fuzz", &p, &why);
    fclose(f);
    if (rc == VM_OK)
        check(&p);
    else if (!why.text[0] || p.blocks || p.sigs)
        abort();
    vm_plan_fini(&p);
    return 0;
}
