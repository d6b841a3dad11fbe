/* One iteration as data: a stretch of a trace, one period long, turned into blocks, ops and the
 * order of allocations (model.h, struct vm_iteration). */
#ifndef VM_PLANNER_ITERATION_H
#define VM_PLANNER_ITERATION_H

#include "model.h"
#include "period.h"

/* Builds *it from the last repeats of the period. The boundary is put where the live bytes are
 * least (the first such place), so few blocks wrap. Op times are medians over the repeats (at most
 * 15 of them); an op that was measured in none takes the median of its signature elsewhere. Accesses of one op to one block are merged. *it is the caller's (vm_iteration_fini).
 * 0, VM_ENOMEM, or VM_EINVAL if the period does not lie in the trace. Thread-safe. */
int vm_iteration_build(const struct vm_trace *t, const struct vm_period *p, struct vm_iteration *it,
                       struct vm_error *why);

/* A trace that holds exactly one iteration (an imported op log): the whole of it is the iteration,
 * blocks that existed before and are never freed are persistent, blocks allocated and never freed
 * live to its end. */
int vm_iteration_whole(const struct vm_trace *t, struct vm_iteration *it, struct vm_error *why);

/* A copy of its own (vm_iteration_fini). 0 or VM_ENOMEM. */
int vm_iteration_copy(const struct vm_iteration *it, struct vm_iteration *out);

#endif
