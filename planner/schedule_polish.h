/* Makes a schedule shorter by trial: changes a few moves at a time, simulates, keeps what is no longer than before and
 * pages no more on demand.
 *
 * What changes is chosen by chance, oftener near ops that wait: moves (or some of their pages) hang on an op
 * before or after their own; pages that leave for one op leave earlier or later in the queue; moves of one gap become
 * one; pages of a gap stay, leave, or others of another gap leave in their stead. Chance comes from a fixed seed: the
 * same schedule gives the same result.
 */
#ifndef VM_PLANNER_SCHEDULE_POLISH_H
#define VM_PLANNER_SCHEDULE_POLISH_H

#include <stdbool.h>

#include "schedule.h"

/* Up to `tries` changes of *s, which is simulated and stays the caller's; fewer once its iteration takes no
 * longer than enough_ns. `walks`: half of them are spent on several walks from *s, and the other half goes on from the
 * best; worth it where there are many. start_ns (nops): its op starts, in and out. On an error *s is as it was. VM_OK,
 * VM_EINVAL (not a schedule of *u) or VM_ENOMEM. Thread-safe. Each try costs a simulation. */
int vm_schedule_polish(const struct vm_page_units *u, const struct vm_machine *m, uint64_t capacity,
                       unsigned tries, bool walks, double enough_ns, struct vm_schedule *s, double *start_ns);

#endif
