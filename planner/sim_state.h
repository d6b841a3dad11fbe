/* The plan simulator's state and its account of chunks; internal to simulate.c and sim_chunks.c. One
 * simulation has one owner; nothing here is thread-safe. Out of memory sets `failed`. */
#ifndef VM_PLANNER_SIM_STATE_H
#define VM_PLANNER_SIM_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim_queue.h"
#include "simulate.h"
#include "use_heap.h"

struct vm_sim_unit {
    uint32_t res;    /* pages [0, res) are on the device, those on their way out included */
    uint32_t leaving, coming; /* pages of the copies in flight                           */
    uint32_t clean;  /* pages [npages - clean, npages) have a valid host copy             */
    uint32_t copying; /* pages from the end that have one once the copy in flight is done; 0: none */
    uint32_t use;    /* last use issued, VM_NONE before the first                         */
    uint32_t stamp;  /* of its entry in the victims' heap                                 */
    uint32_t queued; /* pages asked to leave whose copies have not begun                  */
    uint32_t asked;  /* pages that queued moves will fetch                                */
    uint64_t busy;   /* absolute op after which it is idle, plus 1                         */
    uint64_t wanted; /* absolute op that the host stands before and that uses it, plus 1   */
    bool dead;       /* contents dead; pages still attached are the pool's to reclaim      */
};

struct vm_sim_engine {
    bool busy;
    double rem_bytes, fixed_ns; /* what is left of the copy in flight */
    struct vm_sim_request job;         /* npages = pages of this copy        */
};

struct vm_sim {
    const struct vm_page_units *u;
    const struct vm_machine *m;
    const struct vm_move *moves;
    size_t nmoves;
    struct vm_sim_options opt;
    uint32_t *move_first; /* nops + 1 */
    uint32_t nops;
    struct vm_sim_unit *su;
    uint32_t *owner; /* per page: dead unit whose chunk is still attached, or VM_NONE */
    uint32_t *graveyard; /* dead units, oldest first (ring) */
    size_t grave_head, grave_tail, grave_cap;
    uint64_t free_pages, dead_pages, capacity;
    uint64_t parked; /* pages that have left and wait to be unmapped */
    double now, host;
    double *end_at; /* ring over RUN_AHEAD ops */
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
    uint64_t room;       /* chunks for new contents that it needs */
    bool failed;
    /* measured */
    uint64_t out_pages, in_pages, demand_pages, peak;
    double area, area_at;
    double iter_start;
    double *start_ns, *out_done_ns;
};

/* Brings the time average and the peak of used pages up to now: before and after each change. */
void vm_sim_account(struct vm_sim *s);
/* Chunks that can be had at once. */
uint64_t vm_sim_at_hand(const struct vm_sim *s);
/* Unmaps up to n dead pages, oldest first: their chunks are free. */
void vm_sim_reclaim(struct vm_sim *s, uint64_t n);
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
