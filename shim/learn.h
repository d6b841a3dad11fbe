/* Learning what things cost from what they cost (planner/cost.h): while a plan that moves pages is
 * followed, the time of each iteration is compared with the plan's prediction, and copies and maps are
 * timed now and then. A few events an iteration, nothing an operation. The device's lock is held. */
#ifndef VM_SHIM_LEARN_H
#define VM_SHIM_LEARN_H

#include "device.h"

struct vm_learn;

int vm_learn_new(struct vm_device *d);
/* A plan is in force; it was made for this machine, with op times multiplied by `op_scale`. */
void vm_learn_plan(struct vm_device *d, const struct vm_plan *p, const struct vm_machine *m,
                   double op_scale);
/* The plan is not followed any more: what is under way counts for nothing. */
void vm_learn_stop(struct vm_device *d);
/* The first operation of an iteration was issued on s; so many deviations were counted so far. */
void vm_learn_iteration(struct vm_device *d, struct vm_stream *s, uint64_t deviations);

/* Has the plan been wrong for a while, for a reason that is known now? */
bool vm_learn_wants_plan(const struct vm_device *d);
/* What a new plan is to be made for. */
void vm_learn_belief(const struct vm_device *d, struct vm_machine *m, double *op_scale);
/* Would this plan, made for the present belief, be better than the one in force was? Logs what comes of
 * it, once for each attempt; the belief counts as used from now on, whatever the answer. */
bool vm_learn_better(struct vm_device *d, const struct vm_plan *p, const struct vm_machine *m,
                     double op_scale);

/* The plan taken last proved worse than the one before: that one is to come back. Then, once it is in force
 * again: */
bool vm_learn_wants_back(const struct vm_device *d);
void vm_learn_went_back(struct vm_device *d);

/* The events of a copy of the pager's on its stream: f->event, to be recorded behind it, and, if this one
 * is timed, f->begin, which is recorded here. False: no event is to be had. */
bool vm_learn_copy_begins(struct vm_device *d, bool out, struct vm_flight *f);
/* The copy is done (or was not made: bytes 0). Takes the events back. */
void vm_learn_copied(struct vm_device *d, bool out, uint64_t bytes, const struct vm_flight *f);
/* Around mapping or unmapping: begins may answer NULL, ends takes what it answered. */
CUevent vm_learn_map_begins(struct vm_device *d, bool unmap);
void vm_learn_map_ends(struct vm_device *d, bool unmap, uint64_t pages, CUevent begin);

/* For the statistics file: whole microseconds, and the last error in parts of a million. */
struct vm_learn_figures {
    uint64_t compared, plan_us, expected_us, measured_us, error_ppm, revised, kept;
};
struct vm_learn_figures vm_learn_figures(const struct vm_device *d);

#endif
