/* The plan simulator's state and its account of chunks; internal to simulate.c and sim_*.c. One
 * simulation has one owner; nothing here is thread-safe. Out of memory sets `failed`. */
#ifndef VM_PLANNER_SIM_STATE_H
#define VM_PLANNER_SIM_STATE_H

#include <float.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim_queue.h"
#include "simulate.h"
#include "use_heap.h"

/* Ops a host may have issued that the device has not finished. */
#define VM_SIM_RUN_AHEAD 1024u
/* A time that does not come. */
#define VM_SIM_NEVER DBL_MAX

struct vm_sim_unit {
    uint32_t res;    /* pages [0, res) are on the device, those on their way out included */
    uint32_t leaving, coming; /* pages of the copies in flight                           */
    uint32_t clean;  /* pages [npages - clean, npages) have a valid host copy             */
    uint32_t copying; /* pages from the end that have one once the copy in flight is done; 0: none */
    uint32_t use;    /* last use issued, VM_NONE before the first                         */
    uint32_t stamp;  /* of its entry in the victims' heap                                 */
    uint32_t queued; /* pages asked to leave whose copies have not begun                  */
    uint32_t asked;  /* pages that queued moves will fetch                                */
    uint32_t busy;   /* absolute op after which it is idle, plus 1                         */
    uint32_t freed;  /* absolute op before which its lingering block was freed                */
    uint32_t wanted; /* absolute op that the host stands before and that uses it, plus 1   */
    bool dead;       /* contents dead; pages still attached are the pool's to reclaim      */
    bool reseals;    /* it has left without a copy: it comes back read-only                */
    bool sealed;     /* its pages here that have a copy are read-only                      */
    bool buried;     /* it is in the graveyard                                              */
    uint32_t before, after; /* its neighbours there, plus 1; 0: none                        */
};

struct vm_sim_engine {
    bool busy;
    double rem_bytes, fixed_ns; /* what is left of the copy in flight */
    double begun, ended;        /* when it began; when the one before ended */
    unsigned queued;            /* copies behind it that the host has issued already */
    bool urgent;                /* the copy in flight is of pages that the op the host stands before needs */
    struct vm_sim_request job;         /* npages = pages of this copy        */
};

struct vm_sim {
    const struct vm_page_units *u;
    const struct vm_machine *m;
    const struct vm_move *moves;
    size_t nmoves;
    struct vm_sim_options opt;
    uint32_t *move_first; /* nops + 1 */
    uint32_t *end_first, *ends; /* units that linger and are freed after op k: ends[end_first[k]] .. */
    uint32_t nops;
    struct vm_sim_unit *su;
    uint32_t *owner; /* per page: dead unit whose chunk is still attached, or VM_NONE */
    uint32_t grave_first, grave_last; /* dead units, the first buried first: units plus 1, 0: none */
    uint32_t *birth_at; /* per page: first of its births, npages + 1 */
    uint32_t *births;   /* ops with which a unit begins on the page, ascending */
    uint64_t free_pages, dead_pages, capacity;
    uint64_t let_go;      /* pages whose blocks are freed and whose last op is not done */
    uint64_t parked;      /* pages that have left and wait to be unmapped */
    uint32_t parked_runs; /* runs of neighbours among them: calls          */
    uint32_t parked_unit; /* whose pages came last                         */
    uint64_t out_soon;    /* pages that are to leave once their op is done  */
    uint64_t moves_soon;  /* moves that wait for that                       */
    uint64_t dead_due;    /* dead pages to be unmapped next                 */
    double now, host;
    double *end_at; /* ring over VM_SIM_RUN_AHEAD ops */
    uint64_t issued, finished; /* absolute ops */
    double last_end;
    struct vm_sim_requests out, in, urgent;
    struct vm_sim_dones out_done, in_done;
    struct vm_sim_engine eo, ei;
    struct vm_use_heap heap;
    struct vm_use_entry *kept; /* entries passed over in one search */
    size_t nkept, cap_kept;
    uint64_t waiting_op; /* the op the host stands before */
    bool waiting_room;   /* it lacks chunks for new contents */
    bool stuck;          /* it comes before the schedule's fetches: nothing leaves, or there are chunks enough */
    bool held;           /* fetches of the schedule begin only after unmapping, and after the op has taken */
    bool blocked;        /* the host stands in a call that waits for the copies */
    uint64_t room;       /* chunks for new contents that it needs */
    uint64_t own_dead;   /* chunks that it inherits at its places     */
    double ahead_ns;     /* issued since the device last rested */
    bool failed;
    /* measured */
    uint64_t out_pages, in_pages, demand_pages, peak;
    double area, area_at;
    double iter_start;
    double *start_ns, *out_done_ns;
};

/* Makes the state from u, m, moves, capacity, which are set; vm_sim_fini in any case. VM_OK, VM_UNFIT (what is pinned
 * exceeds the capacity), VM_EINVAL (moves that are not in order) or VM_ENOMEM. */
int vm_sim_init(struct vm_sim *s);
void vm_sim_fini(struct vm_sim *s);
/* Does the unit's block outlive its last op? Counted only where unmapping waits: the choice of what leaves knows of no
 * such block yet, and schedules for the other machines are held to a bound that does not either. */
bool vm_sim_lingers(const struct vm_sim *s, const struct vm_page_unit *un);

/* ---- sim_events.c ---- */

/* Host time to make pages read-only, or not any more. */
double vm_sim_protect_ns(const struct vm_sim *s, uint32_t npages);
/* Append a request. */
void vm_sim_push(struct vm_sim *s, struct vm_sim_requests *q, struct vm_sim_request r);
/* Is that a copy whose pages stay? move: of a request, may be VM_NONE. */
bool vm_sim_stays(const struct vm_sim *s, uint32_t move);
/* Asks for a unit's last pages to leave. Those that have a valid copy go at once: they do not wait for the
 * copies of others. */
void vm_sim_ask_out(struct vm_sim *s, uint32_t unit, uint32_t npages, uint32_t move);
/* Starts what copies may start now. */
void vm_sim_kick(struct vm_sim *s);
/* Fetches that were planned are issued page by page, VM_FLIGHTS ahead: what the copy in flight holds beyond that goes
 * back to its request. Is that anything? */
bool vm_sim_cut_in(struct vm_sim *s);
/* The copy in flight that ends first is done. False: there is none that ends by `until` ns. */
bool vm_sim_end_copy(struct vm_sim *s, double until);
/* Lets the next event happen. False when there is none by `until` ns. */
bool vm_sim_step(struct vm_sim *s, double until);
/* The host unmaps the pages that have left: their chunks are free. */
void vm_sim_unmap_parked(struct vm_sim *s);

/* ---- sim_chunks.c ---- */

/* Brings the time average and the peak of used pages up to now: before and after each change. */
void vm_sim_account(struct vm_sim *s);
/* Chunks that can be had at once. */
uint64_t vm_sim_at_hand(const struct vm_sim *s);
/* When units begin on each page. VM_OK or VM_ENOMEM. */
int vm_sim_index_births(struct vm_sim *s);
/* Unmaps up to n dead pages: their chunks are free. Those first that died first, but last those on whose
 * page a unit begins soon, and those on whose page one begins with the next op only if `all`. */
void vm_sim_reclaim(struct vm_sim *s, uint64_t n, bool all);
/* Takes n chunks from the free ones, then from dead pages. The caller has checked. */
void vm_sim_take(struct vm_sim *s, uint64_t n);
/* The blocks of a unit are freed once its last op is issued: whoever comes to the same place next, in
 * stream order, takes over the chunks at once; anybody else must wait until the op is done. */
void vm_sim_let_go(struct vm_sim *s, uint32_t unit);
/* The unit's last op is done: the chunks still at its place are dead. */
void vm_sim_bury(struct vm_sim *s, uint32_t unit);
/* Chunks at the unit's place that its predecessor there has let go, and that at_hand does not count. */
uint32_t vm_sim_inherited(const struct vm_sim *s, uint32_t unit);
/* Gives the unit the pages it lacks, contents undefined. */
void vm_sim_provide(struct vm_sim *s, uint32_t unit);
/* A page that comes back finds its place held by an earlier unit only before the first whole iteration:
 * then that chunk is let go. */
void vm_sim_clear_place(struct vm_sim *s, uint32_t unit);

#endif
