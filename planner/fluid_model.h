/* Inside fluid.h: events, and the gaps whose pages may be away at some of them. */
#ifndef VM_PLANNER_FLUID_MODEL_H
#define VM_PLANNER_FLUID_MODEL_H

#include <stdbool.h>

#include "page_units.h"

/* Event 2k is the start of op k, 2k + 1 its end. Group i is the time from chosen event i - 1 to i. */
struct vm_fluid_events {
    size_t n;        /* chosen */
    uint32_t *event; /* ascending */
    int64_t *over;   /* pages lacking there if nothing were away; below 0: room to spare */
    double *run_ms;  /* op time within group i */
    uint8_t *waits;  /* does an op begin in group i, so that it may wait there? */
    uint32_t *pos;   /* 4 nops + 2: chosen events before event e */
    uint32_t *overs; /* 2 n + 1: of the first i chosen events (twice round), how many lack room */
};

enum vm_fluid_kind {
    VM_FLUID_CLEAN,  /* the host copy is valid already                          */
    VM_FLUID_SINGLE, /* copied out on the way into the one gap                  */
    VM_FLUID_CHAIN   /* copied out once, then of use to several gaps            */
};

/* One gap between two uses. Those of a chain follow each other. */
struct vm_fluid_gap {
    uint32_t unit, use;
    uint32_t npages;
    uint32_t first, steps; /* chosen events inside: first (below n), and how many */
    uint32_t lead;         /* chain: chosen events from the write to `first` (first gap) or from the end
                              of the gap before                                  */
    uint32_t kind;         /* enum vm_fluid_kind */
    uint32_t more;         /* chain: gaps that follow in it */
};

struct vm_fluid_gaps {
    struct vm_fluid_gap *g;
    size_t n, cap;
    size_t terms; /* steps with their leads, equal ones counted once */
};

/* Pages of the gap's unit that one copy carries at most. */
uint32_t vm_fluid_batch(const struct vm_fluid_gap *g);
/* Do two gaps count as one? */
bool vm_fluid_alike(const struct vm_fluid_gap *a, const struct vm_fluid_gap *b);

/* Chooses events and finds the gaps so that terms <= `terms` if possible. VM_OK, VM_UNFIT or VM_ENOMEM;
 * both outputs are freed with vm_fluid_model_fini in any case. */
int vm_fluid_model(const struct vm_page_units *u, uint64_t capacity, size_t terms,
                   struct vm_fluid_events *ev, struct vm_fluid_gaps *gaps);
void vm_fluid_model_fini(struct vm_fluid_events *ev, struct vm_fluid_gaps *gaps);

#endif
