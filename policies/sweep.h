/* The curve of budget against predicted slowdown, for every policy. */
#ifndef VM_POLICIES_SWEEP_H
#define VM_POLICIES_SWEEP_H

#include "policy.h"

struct vm_sweep_row {
    uint64_t budget_bytes;
    double fraction; /* of the peak                                                     */
    const struct vm_policy *policy;
    int rc;          /* of the policy's plan(); VM_UNFIT rows are reported, not left out */
    uint64_t predicted_ns, compute_ns;
    uint64_t bound_ns; /* no schedule under this budget is faster; 0 = nothing fits     */
    uint64_t out_bytes, in_bytes;
    struct vm_error why; /* where rc != 0 */
};

/* Calls row(arg, &r) for every policy that may page or plans a pool, at each fraction of `peak_bytes`
 * (0 = the most bytes live at once, rounded up to pages as placed). A non-zero result of row ends the
 * sweep and is returned. VM_OK, VM_EINVAL (machine not known; *why says what), VM_ENOMEM. */
int vm_sweep(const struct vm_iteration *it, const struct vm_machine *machine, uint64_t peak_bytes,
             const double *fractions, size_t n, int (*row)(void *arg, const struct vm_sweep_row *r),
             void *arg, struct vm_error *why);

#endif
