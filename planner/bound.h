/* No schedule is faster than this: a lower bound of the iteration time under a budget, the higher of two.
 *
 * The chain. For two ops a < b, the pages that must come in between the end of a and the start of b are at least
 * those that Belady's rule fetches there when it may choose what is on the device at a; it fetches
 * the fewest of all schedules (Belady 1966). In the same stretch at least so many pages must go out
 * as a greedy interval cover says: contents written in it and needed after it, of which the device can
 * hold only so many at b (the fewest intervals to give up, taking first what reaches back farthest, is
 * optimal for interval graphs: Carlisle & Lloyd 1995). Either direction of the link needs its time for
 * them, both together the duplex time. The bound is the longest chain of ops and such stretches
 * through several iterations, per iteration. It leaves out what one stretch does to the next.
 *
 * The liquid (fluid.h). The dual of a linear program over the whole iteration, for schedules that
 * repeat and that the executor can follow: no page is copied out while an op uses it, no copy carries more than
 * VM_COPY_PAGES pages or those of two units, and, where unmapping does not wait for the device, none begins of the
 * pages of an op before which the host stands.
 *
 * Both leave out map costs.
 */
#ifndef VM_PLANNER_BOUND_H
#define VM_PLANNER_BOUND_H

#include "page_units.h"

struct vm_bound {
    double ns;         /* per iteration that repeats; at least compute_ns                 */
    double compute_ns; /* sum of op times                                                 */
    uint64_t in_pages; /* an iteration of any schedule fetches at least so many pages     */
    /* of the chain: the stretch that costs most: after op `from`, before op `to` (plus nops if in the next
     * iteration), and what must pass the link in it; VM_NONE where the ops alone bind */
    uint32_t from, to;
    uint64_t stretch_in, stretch_out;
    double stretch_ns; /* its link time */
};

/* Bound for `capacity` pages. `points` ops are looked at as ends of stretches (0: all, up to 1024, or 256, and
 * a large program for the liquid: seconds); more make the bound higher, never wrong: time is about
 * points x uses, and that of a small linear program. VM_OK, VM_UNFIT (an op needs more pages),
 * VM_EINVAL (link speed missing), VM_ENOMEM. Thread-safe. */
int vm_bound_build(const struct vm_page_units *u, const struct vm_machine *m, uint64_t capacity,
                   unsigned points, struct vm_bound *out);

/* How many points a caller in a hurry should ask for: about 4 million uses are walked. */
unsigned vm_bound_points(const struct vm_page_units *u);

#endif
