/* From a schedule over units to a plan over pages: what every policy that moves pages ends with. */
#ifndef VM_PLANNER_PLAN_BUILD_H
#define VM_PLANNER_PLAN_BUILD_H

#include "schedule.h"

/* Fills the parts of *plan that do not depend on moves: signatures, blocks with their places, the
 * order of allocations, sizes. VM_OK or VM_ENOMEM (plan left as it was). */
int vm_plan_begin(const char *policy, const struct vm_iteration *it, const struct vm_machine *m,
                  const uint64_t *offsets, uint64_t pool_offset, uint64_t pool_bytes,
                  struct vm_plan *plan);

/* Adds the actions, the predictions and each block's reason. `rule` is the reason of every move made
 * by a fixed rule (VM_WHY_RULE), VM_WHY_NONE to take each move's own. VM_OK or VM_ENOMEM. */
int vm_plan_add_schedule(const struct vm_iteration *it, const struct vm_page_units *u,
                         const struct vm_schedule *s, struct vm_plan *plan);

/* Sum over the blocks alive at once, the most of it over the iteration, in bytes. */
uint64_t vm_iteration_max_live(const struct vm_iteration *it);

#endif
