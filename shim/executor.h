/* The executor: follows the program along its plan. A plan is advice: an allocation gets its
 * planned place if that is free, pages leave and come at the operations the plan names, and
 * whatever does not match is a deviation that the demand path serves. The device's lock is held. */
#ifndef VM_SHIM_EXECUTOR_H
#define VM_SHIM_EXECUTOR_H

#include "device.h"

int vm_executor_new(struct vm_device *d);
/* Where the plan wants this allocation: offset from the base, or VM_UNPLACED; *plan_block is set
 * then. */
uint64_t vm_executor_place(struct vm_device *d, uint64_t bytes, uint32_t *plan_block);
void vm_executor_freed(struct vm_device *d, const struct vm_block *b);
/* An operation was issued: moves on and fires its actions. True while the program is on its plan.
 */
bool vm_executor_op(struct vm_device *d, const struct vm_op *op);
/* A plan made from an iteration; `offset` operations of the period lie between the plan's first
 * operation and the next one the program will issue. Takes both over. */
void vm_executor_adopt(struct vm_device *d, struct vm_plan *plan, struct vm_iteration *it,
                       uint64_t offset);
/* A copy of the iteration that the plan in force was made from, its blocks fixed at their places: what a
 * better plan is made from. 0, VM_NOTFOUND when no plan is followed, or VM_ENOMEM. */
int vm_executor_iteration(const struct vm_device *d, struct vm_iteration *out);
/* Another plan for that iteration: only its moves and times are new. Between two iterations. Takes
 * `plan` over; 0, VM_EINVAL when it is not for that iteration, VM_ENOMEM (the old one stays). */
int vm_executor_revise(struct vm_device *d, struct vm_plan *plan, const struct vm_iteration *it);
/* The plan before the last revision comes back. Between two iterations. 0, VM_NOTFOUND, VM_ENOMEM. */
int vm_executor_restore(struct vm_device *d);
/* Operation time that the plan lets the host run ahead while pages move; 0: no limit. */
uint64_t vm_executor_window(const struct vm_device *d);
/* How long the plan expects this operation to take, if it is the next one and pages are being
 * moved; 0 otherwise. */
uint64_t vm_executor_duration(const struct vm_device *d, uint64_t sig);
/* Does the plan that is being followed expect the copies to cost next to nothing? */
bool vm_executor_spares_link(const struct vm_device *d);
/* Is a plan being followed? */
bool vm_executor_on_plan(const struct vm_device *d);
/* Is a plan that moves pages being followed? */
bool vm_executor_pages(const struct vm_device *d);
/* Adds this device's figures to *s. */
void vm_device_stats(struct vm_device *d, struct vmem_stats *s);

#endif
