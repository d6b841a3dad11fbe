/* Which pages leave when, and when their return starts.
 *
 * 1. Which: Belady's rule over the op sequence, cyclic, page by page: when an op's pages do not fit,
 *    the pages needed farthest in the future go first, dead ones before all. This moves the fewest
 *    bytes of any schedule (Belady 1966; Mattson et al. 1970).
 * 2. When out: as soon as the last use before the gap is over, on the link in order of the op that will need
 *    the room (earliest deadline first). What is used again before it leaves is copied in advance, and stays, where
 *    the link is idle.
 * 3. When in: in order of need, as early as the room left over by everything needed before allows.
 *
 * The simulator then says how long an iteration takes. Where waits are left, evictions come from a liquid
 * schedule too (fluid.h), and the simulator decides between them.
 */
#ifndef VM_PLANNER_SCHEDULE_H
#define VM_PLANNER_SCHEDULE_H

#include "simulate.h"

/* How far the host may run ahead of the device under a plan, in op time, beside what the largest mapping
 * takes. Farther, contents of later ops take room that returning pages need sooner; nearer, the device
 * would wait for the host. */
#define VM_SCHEDULE_WINDOW_NS 1e6

struct vm_schedule {
    struct vm_move *moves; /* sorted by op, OUT and DROP of an op before its INs, each in queue order */
    size_t nmoves;
    uint64_t out_pages, in_pages; /* what the moves name; clean pages among out_pages need no copy */
    double window_ns;             /* run-ahead it was simulated with; 0 = as far as it can */
    struct vm_sim_result sim;
};

struct vm_schedule_options {
    uint64_t capacity_pages; /* 0 = machine.device_bytes / page_bytes                          */
    uint64_t float_pages;    /* kept free beside what the ops need                             */
    unsigned effort;         /* 0: one pass; 1: several floats tried by simulation; 2: searches */
};

/* Makes and simulates a schedule; *out is the caller's (vm_schedule_fini). VM_OK; VM_UNFIT when one
 * op needs more pages than there are (*why has the numbers); VM_EINVAL; VM_ENOMEM. Thread-safe. */
int vm_schedule_build(const struct vm_page_units *u, const struct vm_machine *m,
                      const struct vm_schedule_options *opt, struct vm_schedule *out,
                      struct vm_error *why);
void vm_schedule_fini(struct vm_schedule *s);

/* Writes into *why (may be NULL) which op needs more pages than `capacity`, and the way out. */
void vm_unfit_text(const struct vm_page_units *u, uint64_t capacity, struct vm_error *why);

/* Sorts moves into the order the executor expects and fills vm_move.first. Used by policies that make
 * their own moves. VM_OK or VM_ENOMEM. */
int vm_schedule_finish(const struct vm_page_units *u, struct vm_move *moves, size_t nmoves);

/* VM_SCHEDULE_WINDOW_NS plus the time to map the largest contents that an op finds undefined. */
double vm_schedule_window(const struct vm_page_units *u, const struct vm_machine *m);

#endif
