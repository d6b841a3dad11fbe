/* pool: blocks are packed into the smallest contiguous pool; nothing ever moves. */
#include "common.h"

#include <stdio.h>
#include <stdlib.h>

#include "pack.h"

#define SEARCH_NODES 20000 /* of the packer, when the fast packing misses its bound */

static int plan_pool(const struct vm_policy_input *in, struct vm_plan *plan, struct vm_error *why)
{
    const struct vm_iteration *it = in->iteration;
    uint64_t pool, *offsets = malloc((it->nblocks + 1) * sizeof *offsets);

    if (!offsets)
        return VM_ENOMEM;
    int rc = vm_place_contiguous(it, in->pool_offset, SEARCH_NODES, offsets, &pool, why);
    uint64_t live = vm_iteration_max_live(it);
    if (!rc && pool > in->machine->device_bytes) {
        if (why)
            snprintf(why->text, sizeof why->text,
                     "the pool takes %llu MiB (%llu MiB live at once), the budget has %llu MiB: "
                     "raise the budget or take a policy that pages (auto)",
                     (unsigned long long)(pool >> 20), (unsigned long long)(live >> 20),
                     (unsigned long long)(in->machine->device_bytes >> 20));
        rc = VM_UNFIT;
    }
    if (!rc)
        rc = vm_plan_begin("pool", it, in->machine, offsets, in->pool_offset, pool, plan);
    free(offsets);
    return rc;
}

const struct vm_policy vm_policy_pool = {
    .name = "pool",
    .summary = "a packed pool, no paging: for programs that fit",
    .plan = plan_pool,
    .uses_plan = 1,
    .may_page = 0,
    .changes_sum = 0,
};
