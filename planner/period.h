/* Finding the iteration without hints: the repeating period of the op sequence.
 *
 * A repeat counts only if the same long-lived blocks are used at the same places, the live set
 * comes back, and the weights are updated in it. So neither one time step of an unrolled network
 * nor one micro-batch of an accumulated gradient is taken for the iteration: both leave the weights
 * as they found them. What is known of modes decides how many repeats are asked for
 * (docs/architecture.md). Once VM_EV_STEP marks appear, the program's word counts instead.
 *
 * Cost: a few hash look-ups an op, O(log n) where a candidate appears; about 100 bytes an op of
 * history.
 */
#ifndef VM_PLANNER_PERIOD_H
#define VM_PLANNER_PERIOD_H

#include <stdbool.h>

#include "model.h"

/* Positions are op ordinals: the k-th VM_EV_OP event of the trace has position k, from 0. */
struct vm_period {
    size_t ops;     /* length of one iteration                                              */
    size_t end;     /* position just after the last whole repeat seen                       */
    size_t repeats; /* consecutive whole repeats ending there, 2 or more                    */
    size_t found;   /* position just after the op at which it was found                     */
    bool by_step;   /* the program's marks gave it                                          */
};

struct vm_period_finder;

/* 0 or VM_ENOMEM. */
int vm_period_finder_new(struct vm_period_finder **out);
void vm_period_finder_free(struct vm_period_finder *f);

/* Looks at the events of *t that it has not seen yet (always the same trace, which only grew).
 * VM_OK: the ops seen last repeat with *found (set); VM_NOTFOUND: no period now; VM_ENOMEM.
 * A period once found stays, with `repeats` and `end` moving on, until the sequence leaves it. */
int vm_period_feed(struct vm_period_finder *f, const struct vm_trace *t, struct vm_period *found);

/* A period that was believed and then left after so many repeats, in an earlier recording: where
 * modes are unknown it is now believed only after more. A micro-batch is not taken for the
 * iteration twice. */
void vm_period_distrust(struct vm_period_finder *f, size_t ops, size_t repeats);

/* Has an op been a layer with weights, in this recording or, if that was said, in an earlier one? Then
 * ops that repeat without one are hardly the iteration. */
bool vm_period_has_layers(const struct vm_period_finder *f);
void vm_period_expect_layers(struct vm_period_finder *f);

/* The event index of an op position < the number of ops fed. */
uint32_t vm_period_event(const struct vm_period_finder *f, size_t position);

/* Offline: every run of a period in a trace, in order. The caller frees *runs with free(). */
int vm_period_runs(const struct vm_trace *t, struct vm_period **runs, size_t *nruns);

#endif
