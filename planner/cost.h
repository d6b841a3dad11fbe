/* The cost model: what copies, maps and iterations cost on this machine, learnt from what they cost.
 *
 * Copies: time = fixed + bytes / speed, fitted by least squares with old samples fading (half of their
 * weight goes in 16 copies), for each direction alone and while the other is busy. Iterations: what
 * was predicted is compared with what was measured; the difference corrects the op times where the plan had
 * no stall, the stall where it had one. Nothing here reads a clock: callers bring the times. One owner; not
 * thread-safe.
 */
#ifndef VM_PLANNER_COST_H
#define VM_PLANNER_COST_H

#include <stdbool.h>

#include "model.h"

/* Sums of a fading least-squares line. */
struct vm_cost_line {
    double n, x, y, xx, xy, yy;
};

struct vm_cost {
    struct vm_machine machine; /* as given at first, unit of every correction below     */
    struct vm_cost_line out, in, out_duplex, in_duplex, map, unmap;
    double op_scale;    /* measured over recorded op time                                 */
    double stall_scale; /* measured over predicted stall                                  */
    double last_error;  /* of the last iteration: |predicted - measured| / measured       */
    unsigned iterations;
};

void vm_cost_init(struct vm_cost *c, const struct vm_machine *m);

/* A copy of `bytes` took `ns` on its engine while the other engine was idle, or busy all along. Ignored
 * unless both are positive. */
void vm_cost_copy(struct vm_cost *c, bool out, bool duplex, uint64_t bytes, double ns);
/* Mapping and making accessible (or unmapping) `pages` pages took the host `ns`. */
void vm_cost_map(struct vm_cost *c, bool unmap, uint64_t pages, double ns);

/* An iteration that was predicted to take predicted_ns, compute_ns of it op time, took measured_ns. VM_OK;
 * VM_EINVAL when a time is not positive and finite or predicted < compute (nothing changes). */
int vm_cost_correct(struct vm_cost *c, double predicted_ns, double compute_ns, double measured_ns);

/* What a plan's prediction becomes after what was learnt. */
double vm_cost_predict(const struct vm_cost *c, double predicted_ns, double compute_ns);

/* The machine as it now seems: fitted speeds and costs where there were samples, the given ones elsewhere.
 * What iterations took beyond their prediction is no property of the links and stays out of it. */
void vm_cost_machine(const struct vm_cost *c, struct vm_machine *m);

/* Does the machine as it now seems differ from `used` by more than `share` in a link's speed (twice that while
 * both directions are busy: few copies have the other one busy all along)? Whatever was predicted with
 * `used` is then wrong for a reason that is known. */
bool vm_cost_strays(const struct vm_cost *c, const struct vm_machine *used, double share);

#endif
