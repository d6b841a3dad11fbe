/* From evictions to moves: when pages leave and when their return starts, in queue order. */
#ifndef VM_PLANNER_SCHEDULE_MOVES_H
#define VM_PLANNER_SCHEDULE_MOVES_H

#include "belady.h"
#include "schedule.h"

#define VM_LARGE_USES 200000 /* above it a simulation takes long: fewer are made, and moves are larger */

/* Times the `count` evictions of list (reordered) for `usable` of `total` pages, simulates the schedule, and
 * does both again up to `rounds` times with the op times that the simulation gave, as long as they differ
 * from the sum of the ops; *out is the best (the caller's, vm_schedule_fini), start_ns (nops) its op starts.
 * VM_OK, or what vm_simulate returns. Thread-safe. */
int vm_schedule_time(const struct vm_page_units *u, const struct vm_machine *m, uint64_t total,
                     uint64_t usable, struct vm_eviction *list, size_t count, unsigned rounds,
                     struct vm_schedule *out, double *start_ns);

/* Neighbours in the queue that move pages of one gap become one: fewer and larger copies. Those without pages go.
 * `moves` are as vm_schedule_finish leaves them. Returns how many are left. */
size_t vm_schedule_join(struct vm_move *moves, size_t n);

/* Fills out_pages and in_pages from the moves. */
void vm_schedule_count(struct vm_schedule *s);

#endif
