/* Planning off the hot path: a worker thread turns a recorded iteration into a plan. Lock held. */
#ifndef VM_SHIM_REPLAN_H
#define VM_SHIM_REPLAN_H

#include "device.h"
#include "period.h"

/* Begins a plan for the iteration that just ended, if the policy makes plans and none is under way;
 * with VMEM_PLAN_WAIT it is in force on return. 0; positive: this policy makes none. */
int vm_replan_begin(struct vm_device *d, const struct vm_trace *t, const struct vm_period *p);
/* Another operation was issued while a plan is being made (d->replan): takes it over once it is
 * ready, and says whether it did. */
bool vm_replan_poll(struct vm_device *d);
/* An iteration of the plan ended. If the plan was wrong for a while and it is known why, a new one is made
 * for the same iteration; once it is ready it is taken if it is better. */
void vm_replan_between(struct vm_device *d);
/* The policy in force, from VMEM_POLICY; a name that is none was logged and "auto" serves. */
const char *vm_policy_name(void);
/* Does it plan iterations? */
bool vm_policy_plans(void);
/* May contents leave the device under it? */
bool vm_policy_pages(void);

#endif
