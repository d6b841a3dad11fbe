/* The schedule as a liquid: pages may be split at will, moves take any share of a stretch of time.
 *
 * A linear program over the events of an iteration (start and end of each op): how many pages of each
 * gap are away at an event, what passes the link each way between two events, and how long each op
 * waits. Room binds at events, the link (both directions share it) between them; contents written are
 * copied out once, in order to leave or in advance; copies that are still valid come for nothing. While an op uses
 * pages they are not copied out, and while it waits for others only as many as VM_FLIGHTS copies hold: the executor
 * starts none once the host stands before the op (unless unmapping waits for the device, and so holds the host).
 * Any real schedule that repeats is a
 * solution, so no schedule waits less than the optimum; every dual point bounds that from below, by a
 * sum of shortest paths, one for each gap. Solved nearly (lp.h): the bound is evaluated at the dual
 * point and holds whatever the solver's error; the primal point says which pages to send away when. From the
 * dual point on a coarse grid the bound is raised further by subgradient steps on a fine one: each costs
 * the shortest paths only (Polyak's step with an estimated optimum, and momentum).
 *
 * Large iterations are made coarser: of events that follow each other closely only the fullest counts.
 * That leaves constraints out, so the bound stays one.
 */
#ifndef VM_PLANNER_FLUID_H
#define VM_PLANNER_FLUID_H

#include <stdbool.h>

#include "belady.h"

struct vm_fluid_options {
    size_t terms;        /* size aimed at: pairs of a gap and an event; memory is about 300 bytes each */
    unsigned iterations; /* of the solver, at most                                                     */
    unsigned full_iterations; /* likewise where every event is chosen; 0: the same                     */
    double tolerance;    /* relative, at which it may stop                                             */
    size_t ascent_terms; /* raise the bound on a grid of that size afterwards; 0: do not               */
    unsigned bound_only : 1; /* leave `list` empty                                                     */
};

struct vm_fluid {
    double stall_ns; /* no schedule that repeats waits less in an iteration, on the average */
    double found_ns; /* what the solution found waits; near the bound if the solver got there */
    bool full;       /* every event was chosen: there is no finer grid */
    bool done;       /* no finer grid and no more iterations would change it                  */
    struct vm_eviction *list; /* the solution in whole pages, room kept at every event that counts */
    size_t count;
};

/* VM_OK, VM_UNFIT (an op needs more pages), VM_EINVAL (link speed missing), VM_ENOMEM. *out is the
 * caller's (vm_fluid_fini). Time: iterations x terms. Thread-safe. */
int vm_fluid_solve(const struct vm_page_units *u, const struct vm_machine *m, uint64_t capacity,
                   const struct vm_fluid_options *opt, struct vm_fluid *out);
void vm_fluid_fini(struct vm_fluid *f);

#endif
