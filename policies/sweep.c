#include "sweep.h"

#include <string.h>

#include "bound.h"
#include "common.h"

static int one_budget(const struct vm_policy_input *in, struct vm_sweep_row *r,
                      int (*row)(void *arg, const struct vm_sweep_row *r), void *arg)
{
    for (size_t i = 0; vm_policy_all()[i]; i++) {
        const struct vm_policy *policy = vm_policy_all()[i];
        struct vm_plan plan;
        if (!policy->uses_plan && !policy->may_page)
            continue;
        r->policy = policy;
        r->predicted_ns = r->out_bytes = r->in_bytes = 0;
        r->why.text[0] = '\0';
        r->rc = policy->plan(in, &plan, &r->why);
        if (r->rc < 0 && r->rc != VM_EINVAL)
            return r->rc;
        if (!r->rc) {
            r->predicted_ns = plan.predicted_ns;
            r->compute_ns = plan.compute_ns;
            r->out_bytes = plan.out_bytes;
            r->in_bytes = plan.in_bytes;
            vm_plan_fini(&plan);
        }
        int rc = row(arg, r);
        if (rc)
            return rc;
    }
    return VM_OK;
}

int vm_sweep(const struct vm_iteration *it, const struct vm_machine *machine, uint64_t peak_bytes,
             const double *fractions, size_t n, int (*row)(void *arg, const struct vm_sweep_row *r),
             void *arg, struct vm_error *why)
{
    struct vm_machine m = *machine;
    struct vm_policy_input in = {.iteration = it, .machine = &m};
    struct vm_paged p;

    m.device_bytes = m.page_bytes; /* any: places do not depend on the budget */
    int rc = vm_paged_init(&in, &p, why);
    if (rc)
        return rc;
    if (!peak_bytes)
        peak_bytes = vm_page_units_peak(&p.units) * m.page_bytes;
    for (size_t i = 0; i < n && !rc; i++) {
        struct vm_sweep_row r;
        struct vm_bound b;
        memset(&r, 0, sizeof r);
        r.fraction = fractions[i];
        r.budget_bytes = (uint64_t)(fractions[i] * (double)peak_bytes);
        r.budget_bytes -= r.budget_bytes % m.page_bytes;
        m.device_bytes = r.budget_bytes;
        if (!vm_bound_build(&p.units, &m, r.budget_bytes / m.page_bytes,
                            vm_bound_points(&p.units), &b)) {
            r.bound_ns = (uint64_t)b.ns;
            r.compute_ns = (uint64_t)b.compute_ns;
        }
        rc = one_budget(&in, &r, row, arg);
    }
    vm_paged_fini(&p);
    return rc;
}
