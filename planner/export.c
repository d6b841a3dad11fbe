#include "export.h"

#include <stdio.h>

static int put_row(vm_put_fn put, void *ctx, size_t id, uint32_t lower, uint32_t upper, uint64_t size)
{
    char row[96];
    if (lower >= upper || size == 0)
        return VM_OK; /* solvers take no empty buffers */
    int n = snprintf(row, sizeof row, "%zu,%u,%u,%llu\n", id, lower, upper, (unsigned long long)size);
    return put(ctx, row, (size_t)n);
}

int vm_export_buffers(const struct vm_iteration *it, vm_put_fn put, void *ctx)
{
    uint32_t nops = (uint32_t)it->nops;
    int rc = put(ctx, "id,lower,upper,size\n", 20);
    for (size_t i = 0; i < it->nblocks && rc == 0; i++) {
        const struct vm_iter_block *b = &it->blocks[i];
        if (!(b->flags & VM_BLK_WRAPS)) {
            rc = put_row(put, ctx, i, b->alloc_op, b->free_op, b->size);
            continue;
        }
        rc = put_row(put, ctx, i, b->alloc_op, nops, b->size);
        if (rc == 0)
            rc = put_row(put, ctx, i + it->nblocks, 0, b->free_op - nops, b->size);
    }
    return rc;
}
