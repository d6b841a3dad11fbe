/* none: the runtime records and forwards; blocks stay where the program put them. */
#include "common.h"

#include <stdlib.h>

static int plan_none(const struct vm_policy_input *in, struct vm_plan *plan, struct vm_error *why)
{
    const struct vm_iteration *it = in->iteration;
    uint64_t *offsets = malloc((it->nblocks + 1) * sizeof *offsets), at = in->pool_offset;
    int rc = VM_ENOMEM;

    (void)why;
    if (offsets) { /* one after the other: what a program without any reuse would take */
        for (size_t i = 0; i < it->nblocks; i++) {
            if (it->blocks[i].fixed_offset != VM_UNPLACED) {
                offsets[i] = it->blocks[i].fixed_offset;
                continue;
            }
            offsets[i] = at;
            at += (it->blocks[i].size + 511) & ~UINT64_C(511);
        }
        rc = vm_plan_begin("none", it, in->machine, offsets, in->pool_offset, at - in->pool_offset,
                           plan);
    }
    free(offsets);
    return rc;
}

const struct vm_policy vm_policy_none = {
    .name = "none",
    .summary = "record only: nothing is placed and nothing moves",
    .plan = plan_none,
    .uses_plan = 0,
    .may_page = 0,
    .changes_sum = 0,
};
