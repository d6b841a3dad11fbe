/* Inside fluid.c and fluid_dual.c: the liquid schedule's program and its groups of gaps. */
#ifndef VM_PLANNER_FLUID_STATE_H
#define VM_PLANNER_FLUID_STATE_H

#include "fluid.h"
#include "fluid_model.h"

/* A facet of what the link can carry: in x pages in + out x pages out take that many milliseconds. */
struct vm_fluid_facet {
    double in_ms, out_ms;
};

#define FACETS 2
/* Rows, or prices, of a kind for each chosen event: room, the facets, and what may be copied while an op waits. */
#define EVENT_ROWS (2 + FACETS)

/* Gaps that count as one, or those of one chain; a walk over the chosen events that concern them. */
struct vm_fluid_group {
    size_t gap, ngaps;   /* into gaps.g */
    size_t place;        /* into places */
    double pages;
    uint32_t from, steps; /* chosen events: from (below n) on */
    uint32_t var;         /* its first column */
    uint32_t batch;       /* pages that one copy carries at most: none spans two units */
    enum vm_fluid_kind kind;
};

/* Where a step lies. */
enum place {
    BETWEEN, /* two gaps of a chain                                        */
    INSIDE,  /* a gap: pages may be away                                   */
    HELD,    /* between, and an op uses the pages since the step before it */
    ASKED    /* between, and the op that waits since the step before uses them */
};

struct fluid {
    const struct vm_page_units *u;
    uint64_t capacity;
    double crossing; /* pages that may be copied while the op waits that uses them; INFINITY: any */
    struct vm_fluid_facet facet[VM_COPY_PAGES + 1][FACETS]; /* by the pages that one copy carries */
    struct vm_fluid_events ev;
    struct vm_fluid_gaps gaps;
    struct vm_fluid_group *g;
    size_t ng;
    uint8_t *places; /* enum place by step, of one group after the other */
    /* the program; absent where only the dual function is asked for */
    struct entry *e;
    size_t ne, cap_e;
    double *cost, *upper, *lower, *lo, *hi, *x, *y;
    size_t nvars, nrows, cap_rows;
    uint32_t *start, *column;
    double *value;
};

/* The row, and the price, of what is copied in the group of time i while the op waits that uses it. */
static inline size_t vm_fluid_asked_at(const struct fluid *f, size_t i)
{
    return (1 + FACETS) * f->ev.n + i;
}

static inline size_t vm_fluid_event_at(const struct fluid *f, const struct vm_fluid_group *g, size_t step)
{
    return (g->from + step) % f->ev.n;
}

/* The dual function at f->y, made feasible: no schedule waits less (ms). VM_OK or VM_ENOMEM. */
int vm_fluid_dual_bound(struct fluid *f, double *ms);

/* Raises *ms, if it can, by ascent of the dual function of `fine` (groups found, no program) from the prices
 * of `coarse`. Time: up to 20000 steps of about fine->gaps.terms each, fewer on large grids. VM_OK or
 * VM_ENOMEM. */
int vm_fluid_ascend(const struct fluid *coarse, struct fluid *fine, double *ms);

#endif
