#include "fluid.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fluid_state.h"
#include "grow.h"
#include "lp.h"
#include "simulate.h"

struct entry {
    uint32_t row, column;
    double value;
};

/* For copies of `batch` pages, which share the fixed cost of one. While both directions are busy each is
 * slower. Whatever the copies do at an instant, in_ms and out_ms weigh it at most 1 (each direction either
 * idle, paying its fixed cost, or carrying bytes at the speed that the other leaves it). */
static void find_facets(const struct vm_page_units *u, const struct vm_machine *m, uint32_t batch,
                        struct vm_fluid_facet *f)
{
    double page = (double)u->page_bytes, fixed = m->copy_latency_ns / batch * 1e-6;
    double in = m->in_bps * 1e-3, out = m->out_bps * 1e-3; /* bytes a millisecond */
    double both_in = m->in_duplex_bps > 0 ? m->in_duplex_bps * 1e-3 : in;
    double both_out = m->out_duplex_bps > 0 ? m->out_duplex_bps * 1e-3 : out;
    double a = both_in / in, b = both_out / out;

    a = a < 1 ? a : 1;
    b = b < 1 ? b : 1;
    if (a + b < 1) { /* one after the other is better */
        f[0] = f[1] = (struct vm_fluid_facet){page / in, page / out};
        return;
    }
    f[0] = (struct vm_fluid_facet){page / in + fixed * a, (1 - a) * (page / (b * out) + fixed)};
    f[1] = (struct vm_fluid_facet){(1 - b) * (page / (a * in) + fixed), page / out + fixed * b};
}

/* ---- groups of gaps ----------------------------------------------------------------------------*/

static int find_groups(struct fluid *f)
{
    const struct vm_fluid_gaps *gaps = &f->gaps;
    uint32_t n = (uint32_t)f->ev.n;

    f->g = malloc((gaps->n + 1) * sizeof *f->g);
    if (!f->g)
        return VM_ENOMEM;
    for (size_t i = 0; i < gaps->n;) {
        const struct vm_fluid_gap *a = &gaps->g[i];
        struct vm_fluid_group *g = &f->g[f->ng++];
        *g = (struct vm_fluid_group){.gap = i, .kind = a->kind, .batch = vm_fluid_batch(a)};
        if (a->kind == VM_FLUID_CHAIN) {
            g->ngaps = a->more + 1;
            g->pages = a->npages;
            g->from = (a->first + n - a->lead % n) % n;
            for (size_t k = 0; k < g->ngaps; k++)
                g->steps += a[k].lead + a[k].steps;
        } else {
            g->from = a->first;
            g->steps = a->steps;
            while (i + g->ngaps < gaps->n && vm_fluid_alike(a, &a[g->ngaps]))
                g->pages += a[g->ngaps++].npages;
        }
        i += g->ngaps;
    }
    return VM_OK;
}

/* Is group i of time all between event e[i] and the one before it? */
static bool stands_alone(const struct fluid *f, size_t i)
{
    const uint32_t *e = f->ev.event;

    return i ? e[i - 1] + 1 == e[i] : !e[0] && e[f->ev.n - 1] + 1 == 2 * f->u->nops;
}

/* Steps from..end of g are the lead of `gap`: back over the uses of its unit, from the one that the gap follows. */
static void mark_lead(struct fluid *f, const struct vm_fluid_group *g, const struct vm_fluid_gap *gap, size_t from,
                      size_t end)
{
    const struct vm_page_unit *un = &f->u->units[gap->unit];
    const struct vm_page_use *uses = f->u->uses;
    uint32_t n = (uint32_t)f->u->nops, use = gap->use, at = 2 * uses[use].op + 2;
    uint8_t *place = f->places + g->place;
    uint64_t back = 0, start = 2; /* events from here, and from the start of the use's op, to the end of the lead */

    for (size_t t = end; t-- > from;) {
        size_t i = vm_fluid_event_at(f, g, t);
        uint32_t d = (at + 2 * n - f->ev.event[i]) % (2 * n);
        back += d ? d : 2 * n;
        at = f->ev.event[i];
        while (start < back) {
            uint32_t before = vm_page_use_before(un, use);
            uint32_t ops = (uses[use].op + n - uses[before].op) % n;
            start += 2 * (ops ? ops : n);
            use = before;
        }
        place[t] = BETWEEN;
        if (stands_alone(f, i) && back + 1 == start)
            place[t] = HELD;
        else if (stands_alone(f, i) && back == start && f->crossing < INFINITY)
            place[t] = ASKED;
    }
}

/* Sets the places of all groups. */
static int find_places(struct fluid *f)
{
    size_t all = 0;

    for (size_t i = 0; i < f->ng; i++) {
        f->g[i].place = all;
        all += f->g[i].steps;
    }
    f->places = malloc(all + 1);
    if (!f->places)
        return VM_ENOMEM;
    memset(f->places, INSIDE, all);
    for (size_t i = 0; i < f->ng; i++) {
        const struct vm_fluid_group *g = &f->g[i];
        size_t t = 0;
        for (size_t k = 0; k < g->ngaps && g->kind == VM_FLUID_CHAIN; k++) {
            const struct vm_fluid_gap *gap = &f->gaps.g[g->gap + k];
            mark_lead(f, g, gap, t, t + gap->lead);
            t += gap->lead + gap->steps;
        }
    }
    return VM_OK;
}

/* ---- the program -------------------------------------------------------------------------------
 * Columns: the wait of each group of time (n), then by group of gaps and step: pages away and, one after
 * the other, what its kind needs besides (see add_*). Rows: room at each chosen event (n), the link's
 * facets in each group of time (FACETS x n), what is copied while the op waits that uses it (n), then what ties the
 * columns of a group together. */

static int put(struct fluid *f, size_t row, size_t column, double v)
{
    if (VM_GROW(f->e, f->cap_e, f->ne + 1))
        return VM_ENOMEM;
    f->e[f->ne++] = (struct entry){(uint32_t)row, (uint32_t)column, v};
    return VM_OK;
}

/* Pages that pass the link in the group of time before step `step`: column x value pages. */
static int put_link(struct fluid *f, const struct vm_fluid_group *g, size_t step, size_t column, double value,
                    bool out)
{
    size_t at = vm_fluid_event_at(f, g, step);
    int rc = VM_OK;

    for (size_t k = 0; k < FACETS && !rc; k++) {
        const struct vm_fluid_facet *c = &f->facet[g->batch][k];
        double ms = out ? c->out_ms : c->in_ms;
        if (ms > 0)
            rc = put(f, f->ev.n * (1 + k) + at, column, value * ms);
    }
    return rc;
}

static int new_row(struct fluid *f, double lo, double hi, size_t *row)
{
    if (f->nrows == f->cap_rows) {
        size_t cap = f->cap_rows ? 2 * f->cap_rows : 1024;
        double *l = realloc(f->lo, cap * sizeof *l);
        f->lo = l ? l : f->lo;
        double *h = realloc(f->hi, cap * sizeof *h);
        f->hi = h ? h : f->hi;
        if (!l || !h)
            return VM_ENOMEM;
        f->cap_rows = cap;
    }
    f->lo[f->nrows] = lo;
    f->hi[f->nrows] = hi;
    *row = f->nrows++;
    return VM_OK;
}

/* Single: away, out, in at each step; away grows by out and shrinks by in. */
static int add_single(struct fluid *f, const struct vm_fluid_group *g)
{
    int rc = VM_OK;

    for (size_t t = 0; t < g->steps && !rc; t++) {
        size_t away = g->var + 3 * t, row;
        rc = put(f, vm_fluid_event_at(f, g, t), away, 1);
        if (t == 0) {
            rc = rc ? rc : put_link(f, g, t, away, 1, true);
            continue;
        }
        rc = rc ? rc : new_row(f, 0, 0, &row);
        rc = rc ? rc : put(f, row, away, 1);
        rc = rc ? rc : put(f, row, away - 3, -1);
        rc = rc ? rc : put(f, row, away + 1, -1);
        rc = rc ? rc : put(f, row, away + 2, 1);
        rc = rc ? rc : put_link(f, g, t, away + 1, 1, true);
        rc = rc ? rc : put_link(f, g, t, away + 2, 1, false);
    }
    return rc ? rc : put_link(f, g, g->steps, g->var + 3 * ((size_t)g->steps - 1), 1, false);
}

/* Clean and chains: away, copied (chains: pages with a valid copy, at least those away, never fewer), in
 * at each step. What is less away than before has come in. */
static int add_copied(struct fluid *f, const struct vm_fluid_group *g)
{
    bool chain = g->kind == VM_FLUID_CHAIN;
    const uint8_t *place = f->places + g->place;
    int rc = VM_OK;

    for (size_t t = 0; t < g->steps && !rc; t++) {
        size_t away = g->var + 3 * t, row;
        bool here = place[t] == INSIDE, before = t > 0 && place[t - 1] == INSIDE;
        if (here)
            rc = put(f, vm_fluid_event_at(f, g, t), away, 1);
        if (!rc && before) {
            rc = new_row(f, 0, INFINITY, &row);
            rc = rc ? rc : put(f, row, away + 2, 1);
            rc = rc ? rc : put_link(f, g, t, away + 2, 1, false);
            if (here)
                rc = rc ? rc : put(f, row, away, 1);
            rc = rc ? rc : put(f, row, away - 3, -1);
        }
        if (!chain)
            continue;
        rc = rc ? rc : put_link(f, g, t, away + 1, 1, true);
        if (place[t] == ASKED) {
            row = vm_fluid_asked_at(f, vm_fluid_event_at(f, g, t));
            rc = rc ? rc : put(f, row, away + 1, 1);
            rc = rc || !t ? rc : put(f, row, away - 2, -1);
        }
        if (t > 0) {
            rc = rc ? rc : put_link(f, g, t, away - 2, -1, true);
            rc = rc ? rc : new_row(f, 0, place[t] == HELD ? 0 : INFINITY, &row);
            rc = rc ? rc : put(f, row, away + 1, 1);
            rc = rc ? rc : put(f, row, away - 2, -1);
        }
        if (here) {
            rc = rc ? rc : new_row(f, 0, INFINITY, &row);
            rc = rc ? rc : put(f, row, away + 1, 1);
            rc = rc ? rc : put(f, row, away, -1);
        }
    }
    return rc ? rc : put_link(f, g, g->steps, g->var + 3 * ((size_t)g->steps - 1), 1, false);
}

static int add_time(struct fluid *f)
{
    size_t n = f->ev.n, row;
    int rc = VM_OK;

    for (size_t i = 0; i < n && !rc; i++)
        rc = new_row(f, f->ev.over[i] > 0 ? (double)f->ev.over[i] : -INFINITY, INFINITY, &row);
    for (size_t k = 0; k < FACETS && !rc; k++)
        for (size_t i = 0; i < n && !rc; i++) {
            rc = new_row(f, -INFINITY, f->ev.run_ms[i], &row);
            if (!rc && f->ev.waits[i])
                rc = put(f, row, i, -1);
        }
    for (size_t i = 0; i < n && !rc; i++)
        rc = new_row(f, -INFINITY, f->crossing, &row);
    return rc;
}

static int columns(struct fluid *f)
{
    size_t n = f->ev.n;

    f->nvars = n;
    for (size_t i = 0; i < f->ng; i++) {
        f->g[i].var = (uint32_t)f->nvars;
        f->nvars += 3 * (size_t)f->g[i].steps;
    }
    f->cost = calloc(f->nvars, sizeof *f->cost);
    f->upper = calloc(f->nvars, sizeof *f->upper);
    f->lower = calloc(f->nvars, sizeof *f->lower);
    f->x = calloc(f->nvars, sizeof *f->x);
    if (!f->cost || !f->upper || !f->lower || !f->x)
        return VM_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        f->cost[i] = 1;
        f->upper[i] = INFINITY;
    }
    for (size_t i = 0; i < f->ng; i++)
        for (size_t j = 0; j < 3 * (size_t)f->g[i].steps; j++)
            f->upper[f->g[i].var + j] = f->g[i].pages;
    return VM_OK;
}

/* The entries by row. */
static int gather(struct fluid *f)
{
    f->start = calloc(f->nrows + 2, sizeof *f->start);
    f->column = malloc((f->ne + 1) * sizeof *f->column);
    f->value = malloc((f->ne + 1) * sizeof *f->value);
    f->y = calloc(f->nrows + 1, sizeof *f->y);
    if (!f->start || !f->column || !f->value || !f->y)
        return VM_ENOMEM;
    for (size_t i = 0; i < f->ne; i++)
        f->start[f->e[i].row + 2]++;
    for (size_t i = 0; i < f->nrows; i++)
        f->start[i + 2] += f->start[i + 1];
    for (size_t i = 0; i < f->ne; i++) {
        uint32_t at = f->start[f->e[i].row + 1]++;
        f->column[at] = f->e[i].column;
        f->value[at] = f->e[i].value;
    }
    free(f->e);
    f->e = NULL;
    return VM_OK;
}

/* Where fewer pages than may be copied wait to be used, the row says nothing and would only slow the solver. */
static void loosen(struct fluid *f)
{
    for (size_t i = vm_fluid_asked_at(f, 0); i < vm_fluid_asked_at(f, f->ev.n); i++) {
        double most = 0;
        for (uint32_t k = f->start[i]; k < f->start[i + 1]; k++)
            if (f->value[k] > 0)
                most += f->value[k] * f->upper[f->column[k]];
        if (most <= f->hi[i])
            f->hi[i] = INFINITY;
    }
}

static int build(struct fluid *f)
{
    int rc = find_groups(f);

    rc = rc ? rc : find_places(f);
    rc = rc ? rc : columns(f);
    rc = rc ? rc : add_time(f);
    for (size_t i = 0; i < f->ng && !rc; i++)
        rc = f->g[i].kind == VM_FLUID_SINGLE ? add_single(f, &f->g[i]) : add_copied(f, &f->g[i]);
    rc = rc ? rc : gather(f);
    if (!rc)
        loosen(f);
    return rc;
}

/* ---- whole pages -------------------------------------------------------------------------------*/

/* The solution in whole pages: away[] by group of gaps and step, and how many are away at each event. */
struct whole {
    uint32_t *away;
    size_t *at;     /* by group: its first in away[] */
    int64_t *sum;   /* by chosen event */
    uint32_t *first, *group, *step; /* by chosen event: the groups that may be away there, CSR */
};

static int whole_init(struct fluid *f, struct whole *w)
{
    size_t n = f->ev.n, terms = 0;

    w->at = malloc((f->ng + 1) * sizeof *w->at);
    w->sum = calloc(n + 1, sizeof *w->sum);
    w->first = calloc(n + 2, sizeof *w->first);
    if (!w->at || !w->sum || !w->first)
        return VM_ENOMEM;
    for (size_t i = 0; i < f->ng; i++) {
        w->at[i] = terms;
        terms += f->g[i].steps;
    }
    w->away = calloc(terms + 1, sizeof *w->away);
    w->group = malloc((terms + 1) * sizeof *w->group);
    w->step = malloc((terms + 1) * sizeof *w->step);
    if (!w->away || !w->group || !w->step)
        return VM_ENOMEM;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < f->ng; i++) {
            const uint8_t *place = f->places + f->g[i].place;
            for (uint32_t t = 0; t < f->g[i].steps; t++) {
                size_t at = vm_fluid_event_at(f, &f->g[i], t);
                if (place[t] != INSIDE)
                    continue;
                if (!pass) {
                    w->first[at + 2]++;
                    continue;
                }
                w->group[w->first[at + 1]] = (uint32_t)i;
                w->step[w->first[at + 1]++] = t;
            }
        }
        for (size_t i = 0; i < n && !pass; i++)
            w->first[i + 2] += w->first[i + 1];
    }
    return VM_OK;
}

static void whole_fini(struct whole *w)
{
    free(w->away);
    free(w->at);
    free(w->sum);
    free(w->first);
    free(w->group);
    free(w->step);
}

/* The steps [*lo, *hi) around `step` that lie in the same gap. */
static void gap_around(const struct fluid *f, const struct vm_fluid_group *g, uint32_t step, uint32_t *lo,
                       uint32_t *hi)
{
    uint32_t at = 0;

    *lo = 0;
    *hi = g->steps;
    for (size_t k = 0; k < g->ngaps && g->kind == VM_FLUID_CHAIN; k++) {
        const struct vm_fluid_gap *gap = &f->gaps.g[g->gap + k];
        *lo = at + gap->lead;
        *hi = at = *lo + gap->steps;
        if (step < *hi)
            return;
    }
}

/* Pages go once and come back once in a gap: raises what lies between two higher values. */
static void go_once(const struct fluid *f, struct whole *w, size_t group, uint32_t lo, uint32_t hi)
{
    uint32_t *a = &w->away[w->at[group]], top = lo;

    for (uint32_t t = lo; t < hi; t++)
        top = a[t] > a[top] ? t : top;
    for (uint32_t t = lo + 1; t < top; t++)
        if (a[t] < a[t - 1]) {
            w->sum[vm_fluid_event_at(f, &f->g[group], t)] += a[t - 1] - a[t];
            a[t] = a[t - 1];
        }
    for (uint32_t t = hi - 1; t-- > top + 1;)
        if (a[t] < a[t + 1]) {
            w->sum[vm_fluid_event_at(f, &f->g[group], t)] += a[t + 1] - a[t];
            a[t] = a[t + 1];
        }
}

static double away_in_x(const struct fluid *f, size_t group, uint32_t step)
{
    return f->x[f->g[group].var + 3 * (size_t)step];
}

static void round_all(struct fluid *f, struct whole *w)
{
    for (size_t i = 0; i < f->ev.n; i++)
        for (uint32_t k = w->first[i]; k < w->first[i + 1]; k++) {
            uint32_t n = (uint32_t)(away_in_x(f, w->group[k], w->step[k]) + 0.5);
            w->away[w->at[w->group[k]] + w->step[k]] = n;
            w->sum[i] += n;
        }
    for (size_t i = 0; i < f->ng; i++) {
        const struct vm_fluid_group *g = &f->g[i];
        uint32_t lo = 0, hi = 0;
        for (uint32_t t = 0; t < g->steps; t = hi) {
            gap_around(f, g, t, &lo, &hi);
            go_once(f, w, i, lo, hi);
        }
    }
}

/* Where pages are still lacking at event i, those go that the solution has away more than was rounded to. */
static void repair(struct fluid *f, struct whole *w, size_t i)
{
    while (w->sum[i] < f->ev.over[i]) {
        double most = -INFINITY;
        uint32_t best = VM_NONE, lo, hi;
        for (uint32_t k = w->first[i]; k < w->first[i + 1]; k++) {
            uint32_t have = w->away[w->at[w->group[k]] + w->step[k]];
            double less = away_in_x(f, w->group[k], w->step[k]) - have;
            if (have < f->g[w->group[k]].pages && less > most) {
                most = less;
                best = k;
            }
        }
        if (best == VM_NONE)
            return;
        w->away[w->at[w->group[best]] + w->step[best]]++;
        w->sum[i]++;
        gap_around(f, &f->g[w->group[best]], w->step[best], &lo, &hi);
        go_once(f, w, w->group[best], lo, hi);
    }
}

/* ---- evictions ---------------------------------------------------------------------------------*/

/* The first op, counted from the start of the iteration in which the gap begins, that finds pages moved
 * by the gap's event `step`. */
static uint32_t op_of_step(const struct fluid *f, const struct vm_fluid_gap *gap, uint32_t step)
{
    uint32_t round = 2 * (uint32_t)f->u->nops, op = f->u->uses[gap->use].op;
    uint32_t e = f->ev.event[(gap->first + step) % f->ev.n];
    uint32_t after = (e + 2 * round - 2 * op - 2) % round;

    return op + 1 + (after + 1) / 2;
}

static int emit(const struct fluid *f, const struct vm_fluid_gap *gap, uint32_t npages, uint32_t from,
                uint32_t to, struct vm_fluid *out, size_t *cap)
{
    const struct vm_page_use *use = &f->u->uses[gap->use];
    unsigned wraps;
    uint32_t n = (uint32_t)f->u->nops;
    uint32_t next = vm_page_next_use(f->u, &f->u->units[gap->unit], gap->use, &wraps);
    uint32_t ops = (f->u->uses[next].op + n - use->op) % n, end = use->op + (ops ? ops : n);
    uint32_t need = op_of_step(f, gap, from), back = to < gap->steps ? op_of_step(f, gap, to) : end;

    need = need < end ? need : end - 1;
    back = back <= need ? need + 1 : back < end ? back : end;
    if (VM_GROW(out->list, *cap, out->count + 1))
        return VM_ENOMEM;
    out->list[out->count++] = (struct vm_eviction){.unit = gap->unit, .use = gap->use, .npages = npages,
                                                   .need_op = need, .lead = end - back};
    return VM_OK;
}

/* Of gaps that count as one, `before` pages of others go first. */
static int emit_gap(const struct fluid *f, const struct vm_fluid_gap *gap, const uint32_t *away,
                    uint64_t before, uint32_t *stack, struct vm_fluid *out, size_t *cap)
{
    uint32_t depth = 0, now = 0; /* stack: pairs of a step and the pages that went there */
    int rc = VM_OK;

    for (uint32_t t = 0; t <= gap->steps && !rc; t++) {
        uint64_t all = t < gap->steps && away[t] > before ? away[t] - before : 0;
        uint32_t want = all < gap->npages ? (uint32_t)all : gap->npages;
        if (want > now) {
            stack[2 * depth] = t;
            stack[2 * depth++ + 1] = want - now;
        }
        while (want < now && !rc) { /* the last that went come back first */
            uint32_t *top = &stack[2 * (depth - 1)];
            uint32_t m = now - want < top[1] ? now - want : top[1];
            rc = emit(f, gap, m, top[0], t, out, cap);
            now -= m;
            top[1] -= m;
            depth -= !top[1];
        }
        now = want;
    }
    return rc;
}

static int emit_all(struct fluid *f, const struct whole *w, struct vm_fluid *out)
{
    size_t cap = 0;
    uint32_t *stack = malloc((2 * f->ev.n + 2) * sizeof *stack);
    int rc = stack ? VM_OK : VM_ENOMEM;

    for (size_t i = 0; i < f->ng && !rc; i++) {
        const struct vm_fluid_group *g = &f->g[i];
        const uint32_t *away = &w->away[w->at[i]];
        uint64_t before = 0;
        for (size_t k = 0; k < g->ngaps && !rc; k++) {
            const struct vm_fluid_gap *gap = &f->gaps.g[g->gap + k];
            away += gap->lead;
            rc = emit_gap(f, gap, away, before, stack, out, &cap);
            if (g->kind == VM_FLUID_CHAIN)
                away += gap->steps;
            else
                before += gap->npages;
        }
    }
    for (uint32_t i = 0; i < f->u->nunits && !rc; i++) { /* what nobody uses goes for good */
        const struct vm_page_unit *un = &f->u->units[i];
        if (un->nuses || !(un->flags & VM_UNIT_CYCLIC) || (un->flags & VM_UNIT_PINNED))
            continue;
        if (VM_GROW(out->list, cap, out->count + 1))
            rc = VM_ENOMEM;
        else
            out->list[out->count++] = (struct vm_eviction){
                .unit = i, .use = VM_NONE, .npages = un->npages, .need_op = (uint32_t)f->u->nops};
    }
    free(stack);
    return rc;
}

static int take_solution(struct fluid *f, struct vm_fluid *out)
{
    struct whole w = {0};
    int rc = whole_init(f, &w);

    if (!rc) {
        round_all(f, &w);
        for (size_t i = 0; i < f->ev.n; i++)
            repair(f, &w, i);
        rc = emit_all(f, &w, out);
    }
    whole_fini(&w);
    return rc;
}

static void fluid_fini(struct fluid *f)
{
    vm_fluid_model_fini(&f->ev, &f->gaps);
    free(f->g);
    free(f->places);
    free(f->e);
    free(f->cost);
    free(f->upper);
    free(f->lower);
    free(f->lo);
    free(f->hi);
    free(f->x);
    free(f->y);
    free(f->start);
    free(f->column);
    free(f->value);
}

/* Ascent of the dual function on a finer grid, without the program. */
static int ascend(struct fluid *f, size_t terms, double *ms)
{
    struct fluid fine = {.u = f->u, .capacity = f->capacity, .crossing = f->crossing};

    memcpy(fine.facet, f->facet, sizeof fine.facet);
    int rc = vm_fluid_model(f->u, f->capacity, terms, &fine.ev, &fine.gaps);
    rc = rc ? rc : find_groups(&fine);
    rc = rc ? rc : find_places(&fine);
    rc = rc ? rc : vm_fluid_ascend(f, &fine, ms);
    fluid_fini(&fine);
    return rc;
}

static int solve(struct fluid *f, const struct vm_fluid_options *opt, struct vm_fluid *out)
{
    struct vm_lp lp = {f->nvars, f->nrows, f->cost, f->lower, f->upper, f->lo, f->hi,
                       f->start, f->column, f->value};
    struct vm_lp_result r;
    double ms, ops_ms = 0;
    bool full = f->ev.n == 2 * f->u->nops;
    unsigned most = full && opt->full_iterations ? opt->full_iterations : opt->iterations;

    for (size_t i = 0; i < f->ev.n; i++)
        ops_ms += f->ev.run_ms[i];
    int rc = vm_lp_solve(&lp, most, opt->tolerance, ops_ms, f->x, f->y, &r);

    rc = rc ? rc : vm_fluid_dual_bound(f, &ms);
    if (!rc && opt->ascent_terms && (!full || r.iterations == most))
        rc = ascend(f, opt->ascent_terms, &ms);
    if (!rc && !opt->bound_only)
        rc = take_solution(f, out);
    if (!rc) {
        out->stall_ns = ms > 0 ? ms * 1e6 : 0;
        out->found_ns = r.objective * 1e6;
        out->full = full;
        out->done = full && r.iterations < most;
    }
    return rc;
}

/* Once the host stands before an op no copy out of the op's pages begins; one may be in flight and, if the host comes
 * late, one behind it. Where unmapping waits for the device the host comes later still. */
static double crossing_pages(const struct vm_machine *m)
{
    return m->unmap_waits ? INFINITY : (double)(VM_FLIGHTS * VM_COPY_PAGES);
}

int vm_fluid_solve(const struct vm_page_units *u, const struct vm_machine *m, uint64_t capacity,
                   const struct vm_fluid_options *opt, struct vm_fluid *out)
{
    struct fluid f = {.u = u, .capacity = capacity, .crossing = crossing_pages(m)};
    struct vm_fluid made = {0};

    if (!(m->in_bps > 0) || !(m->out_bps > 0))
        return VM_EINVAL;
    for (uint32_t b = 1; b <= VM_COPY_PAGES; b++)
        find_facets(u, m, b, f.facet[b]);
    int rc = vm_fluid_model(u, capacity, opt->terms, &f.ev, &f.gaps);
    if (!rc && f.gaps.n) {
        rc = build(&f);
        rc = rc ? rc : solve(&f, opt, &made);
    }
    fluid_fini(&f);
    if (rc)
        vm_fluid_fini(&made);
    else
        *out = made;
    return rc;
}

void vm_fluid_fini(struct vm_fluid *f)
{
    free(f->list);
    memset(f, 0, sizeof *f);
}
