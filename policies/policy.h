/* The one interface between policies and the rest: a policy turns one iteration and a machine into
 * the actions of a plan. A policy is one file that defines one `const struct vm_policy`, plus one
 * line in policies/registry.c. It sees no CUDA handle, reads no environment and keeps no state. */
#ifndef VM_POLICIES_POLICY_H
#define VM_POLICIES_POLICY_H

#include "model.h"

struct vm_policy_input {
    const struct vm_iteration *iteration;
    const struct vm_machine *machine;
    uint64_t pool_offset; /* where planned blocks may be placed, bytes from the reservation's base */
};

struct vm_policy {
    const char *name;
    const char *summary; /* one line for --help and docs */
    /* Fills *plan (placement and actions). 0, VM_UNFIT, or negative; why[] says what and the way out.
     * On success it may hold a note for the reader of the plan, else it is left as it was.
     * Thread-safe: works only on its arguments. */
    int (*plan)(const struct vm_policy_input *in, struct vm_plan *plan, struct vm_error *why);
    unsigned uses_plan : 1;   /* 0: the runtime only records ("none") or pages on demand ("lru") */
    unsigned may_page : 1;    /* contents may leave the device                                   */
    unsigned changes_sum : 1; /* may choose another algorithm (vdnn only, never auto)            */
};

/* NULL if there is no such policy. */
const struct vm_policy *vm_policy_find(const char *name);
/* All policies, NULL-terminated, in the order in which --help lists them. */
const struct vm_policy *const *vm_policy_all(void);

#endif
