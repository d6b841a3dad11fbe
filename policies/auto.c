/* auto: the cheapest schedule found. What fits stays; what must go is chosen by Belady's rule and timed
 * against the links. Never another sum: it only moves bytes. */
#include "common.h"

static int plan_auto(const struct vm_policy_input *in, struct vm_plan *plan, struct vm_error *why)
{
    struct vm_schedule_options opt = {.effort = 1};
    struct vm_schedule s;
    struct vm_paged p;
    int rc = vm_paged_init(in, &p, why);

    if (rc)
        return rc;
    opt.capacity_pages = p.capacity;
    rc = vm_schedule_build(&p.units, p.machine, &opt, &s, why);
    if (!rc) {
        rc = vm_paged_plan("auto", in, &p, &s, plan);
        vm_schedule_fini(&s);
    }
    vm_paged_fini(&p);
    return rc;
}

const struct vm_policy vm_policy_auto = {
    .name = "auto",
    .summary = "the fastest schedule found under the budget (default)",
    .plan = plan_auto,
    .uses_plan = 1,
    .may_page = 1,
    .changes_sum = 0,
};
