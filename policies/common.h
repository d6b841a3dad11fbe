/* What policies that move pages share: places, units, and the last step from moves to a plan. */
#ifndef VM_POLICIES_COMMON_H
#define VM_POLICIES_COMMON_H

#include "plan_build.h"
#include "policy.h"

/* Everything a paging policy works on; made once per plan() call. */
struct vm_paged {
    const struct vm_iteration *it;
    const struct vm_machine *machine;
    uint64_t *offsets; /* nblocks */
    uint64_t pool_bytes;
    struct vm_page_units units;
    uint64_t capacity; /* pages */
};

/* Places the blocks on pages and builds the units. VM_OK, VM_EINVAL, VM_ENOMEM (reason in *why). */
int vm_paged_init(const struct vm_policy_input *in, struct vm_paged *p, struct vm_error *why);
void vm_paged_fini(struct vm_paged *p);

/* Turns a schedule into the plan. VM_OK or VM_ENOMEM; *plan is set only on success. */
int vm_paged_plan(const char *policy, const struct vm_policy_input *in, const struct vm_paged *p,
                  const struct vm_schedule *s, struct vm_plan *plan);

/* Machine values that must be there before anything can be planned: page size, budget, link speeds.
 * VM_OK or VM_EINVAL with the missing one named. */
int vm_machine_check(const struct vm_machine *m, struct vm_error *why);

#endif
