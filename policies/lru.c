/* lru: no plan; when room is short the pages used least recently leave, on demand. The plan it gives
 * has places and a prediction but no action. */
#include "common.h"

#define FLOAT_SHARE 32 /* of the budget is kept free, as demand paging does unless told otherwise */

static int plan_lru(const struct vm_policy_input *in, struct vm_plan *plan, struct vm_error *why)
{
    struct vm_paged p;
    int rc = vm_paged_init(in, &p, why);

    if (rc)
        return rc;
    struct vm_schedule s = {0};
    struct vm_sim_options so = {.capacity_pages = p.capacity,
                                .rule = VM_DEMAND_LRU,
                                .float_pages = p.capacity / FLOAT_SHARE};
    rc = vm_simulate(&p.units, p.machine, NULL, 0, &so, &s.sim, NULL, NULL);
    if (rc == VM_UNFIT)
        vm_unfit_text(&p.units, p.capacity, why);
    if (!rc)
        rc = vm_paged_plan("lru", in, &p, &s, plan);
    vm_paged_fini(&p);
    return rc;
}

const struct vm_policy vm_policy_lru = {
    .name = "lru",
    .summary = "demand paging only, least recently used pages first",
    .plan = plan_lru,
    .uses_plan = 0,
    .may_page = 1,
    .changes_sum = 0,
};
