/* The plan simulator: how long an iteration takes when the runtime follows a schedule.
 *
 * It plays the executor in virtual time: one compute engine that works ops off in order, one copy
 * engine out and one in (each first come, first served; slower while both are busy), and the host
 * thread that issues the ops, maps and unmaps pages and cannot issue an op before all its pages are
 * on the device. What no move provides is fetched on demand, evicting what is needed last (or what
 * was used last, for least-recently-used). So any schedule gives a time; a bad one a long time.
 * Where unmapping waits for the device (machine.unmap_waits) it is done only while the device rests
 * before an op, waits for the copies in flight, and what has left or is dead gives no room earlier.
 * What an op itself fetches is issued at once, and unmapping comes after it; of the schedule's fetches
 * VM_FLIGHTS pages are in flight. A call that blocks holds the host, which then starts no copies; a
 * block's contents count until it is freed.
 * The schedule's fetches take chunks before what an op makes does, unless the device waits for that op
 * and there are enough for it, or nothing leaves any more.
 *
 * Iterations repeat until the period is steady. Times are nanoseconds, memory is counted in pages.
 */
#ifndef VM_PLANNER_SIMULATE_H
#define VM_PLANNER_SIMULATE_H

#include "model.h"
#include "page_units.h"

/* What the executor does and the simulator does after it.
 * Work that is issued ahead while pages wait to be moved, at most, unless one op is longer: */
#define VM_AHEAD_NS UINT64_C(5000000)
/* Dead pages that are unmapped at a time for pages that wait to come back. */
#define VM_RECYCLE_MOST 64u
/* Copies in flight each way where unmapping waits for them. */
#define VM_FLIGHTS 2u
/* Bytes and pages of one copy out, at most; half the bytes where unmapping waits for it. */
#define VM_RUN_BYTES (UINT64_C(32) << 20)
#define VM_RUN_MOST  64u

/* Pages of one copy out at most; page_bytes > 0. Thread-safe. */
static inline uint32_t vm_run_pages(uint64_t page_bytes, bool unmap_waits)
{
    uint64_t n = (unmap_waits ? VM_RUN_BYTES / 2 : VM_RUN_BYTES) / page_bytes;

    return n < 1 ? 1 : n > VM_RUN_MOST ? VM_RUN_MOST : (uint32_t)n;
}

/* A dead page on which a block appears within so many ops is unmapped last. */
#define VM_BORN_SOON 6u

/* One step of a schedule. A unit's pages leave from its end downwards and come back upwards. */
struct vm_move {
    uint32_t op;      /* OUT, DROP: after this op; IN: from the issue of this op on            */
    uint32_t need_op; /* OUT, DROP: op that needs the room; IN: op that needs the pages;       */
                      /* plus nops where that is in the next iteration                          */
    uint32_t unit;
    uint32_t use;     /* OUT, DROP: index of the use that the gap follows; IN: that it precedes */
    uint32_t first;   /* first page, counted within the unit                                   */
    uint32_t npages;
    uint8_t kind;     /* enum vm_action_kind */
    uint8_t reason;   /* enum vm_reason      */
    uint16_t reserved;
};

enum vm_demand_rule { VM_DEMAND_FARTHEST = 0, VM_DEMAND_LRU };

struct vm_sim_options {
    uint64_t capacity_pages; /* device pages; 0 = machine.device_bytes / page_bytes          */
    enum vm_demand_rule rule;
    unsigned knows_dead : 1; /* the runtime knows which contents are dead (there is a plan)   */
    unsigned max_iterations; /* 0 = 8                                                         */
    uint64_t float_pages;    /* demand paging keeps so many free or leaving; 0 = none              */
    uint32_t batch_pages;    /* pages of one copy at most; 0 = VM_COPY_PAGES, or as many as the executor's
                              * where unmapping waits                                           */
    double window_ns;        /* the host issues an op only when the ops issued before it and not   */
                             /* finished take no longer than this; 0 = as far ahead as it can       */
    double limit_ns;         /* an iteration, after the first, that takes longer ends the simulation    */
                             /* and is its result, steady or not; 0 = none does                        */
};

struct vm_sim_result {
    double iteration_ns; /* of the last iterations, once steady                                 */
    double compute_ns;   /* sum of the op times: no iteration is shorter                        */
    uint64_t out_pages, in_pages; /* copied in the last iteration                              */
    uint64_t demand_pages;        /* of those, moved because no move of the schedule did it    */
    uint64_t peak_pages;          /* most pages in use at once (dead ones not counted)          */
    double avg_pages;             /* time average of the same over the last iteration           */
    unsigned iterations;          /* simulated until steady, or max_iterations                  */
};

/* Simulates moves[] (sorted by op; OUT and DROP of an op before its INs). start_ns, if not NULL,
 * receives for each op of the last iteration its start, and out_done_ns, if not NULL, for each move
 * of kind OUT the end of its last copy in that iteration (0 if it copied nothing), both counted
 * from the start of that iteration. VM_OK, VM_UNFIT (an op needs more pages than there are; nothing set),
 * VM_EINVAL or VM_ENOMEM. Thread-safe. Time about linear in moves, pages moved and uses. */
int vm_simulate(const struct vm_page_units *u, const struct vm_machine *m,
                const struct vm_move *moves, size_t nmoves, const struct vm_sim_options *opt,
                struct vm_sim_result *res, double *start_ns, double *out_done_ns);

#endif
