#include "fluid_model.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "grow.h"

/* ---- how full the device is at every event --------------------------------------------------------*/

/* Adds v to the events lo .. hi (inclusive, hi - lo below a round; both may lie in the next one). */
static void add_range(int64_t *delta, uint32_t round, uint64_t lo, uint64_t hi, int64_t v)
{
    if (hi < lo)
        return;
    if (hi - lo + 1 >= round) {
        lo = 0;
        hi = round - 1;
    }
    lo %= round;
    hi %= round;
    delta[lo] += v;
    delta[hi + 1] -= v;
    if (hi < lo) {
        delta[0] += v;
        delta[round] -= v;
    }
}

/* Ops from use j of a unit to the next one; 0 if there is none. */
static uint32_t gap_ops(const struct vm_page_units *u, const struct vm_page_unit *un, uint32_t use)
{
    unsigned wraps;
    uint32_t next = vm_page_next_use(u, un, use, &wraps), n = (uint32_t)u->nops;

    if (next == VM_NONE)
        return 0;
    uint32_t d = (u->uses[next].op + n - u->uses[use].op) % n;
    return d ? d : n;
}

/* full[e]: pages at event e if nothing that lives were away. */
static int64_t *fullness(const struct vm_page_units *u)
{
    uint32_t round = 2 * (uint32_t)u->nops;
    int64_t *full = calloc(round + 2, sizeof *full), now = 0;

    if (!full)
        return NULL;
    for (size_t i = 0; i < u->nunits; i++) {
        const struct vm_page_unit *un = &u->units[i];
        bool pinned = un->flags & VM_UNIT_PINNED;
        if (!un->nuses && pinned)
            add_range(full, round, 0, round - 1, un->npages);
        for (uint32_t use = un->use; use < un->use + un->nuses; use++) {
            uint64_t e = 2 * (uint64_t)u->uses[use].op;
            uint32_t d = gap_ops(u, un, use);
            bool stays = d && (pinned || (u->uses[use].flags & VM_PU_LIVE_AFTER));
            add_range(full, round, e, stays ? e + 2 * (uint64_t)d - 1 : e + 1, un->npages);
        }
    }
    for (uint32_t e = 0; e < round; e++) {
        now += full[e];
        full[e] = now;
    }
    return full;
}

/* ---- which events count -----------------------------------------------------------------------*/

/* What happens between an event and the one before it, as a share of the iteration: of op time, or of the
 * pages that ops name. */
static double *shares(const struct vm_page_units *u)
{
    uint32_t n = (uint32_t)u->nops;
    double *share = calloc(2 * (size_t)n + 1, sizeof *share), time = 0, pages = 0;

    for (uint32_t k = 0; k < n && share; k++) {
        for (uint32_t r = u->op_first[k]; r < u->op_first[k + 1]; r++)
            share[2 * k] += u->units[u->refs[r].unit].npages;
        share[2 * k + 1] = (double)u->dur_ns[k];
        pages += share[2 * k];
        time += share[2 * k + 1];
    }
    for (uint32_t k = 0; k < n && share; k++) {
        share[2 * k] /= pages > 0 ? 2 * pages : 1;
        share[2 * k + 1] /= time > 0 ? 2 * time : 1;
    }
    return share;
}

/* Of events within a share of `grain` of the first of them the fullest is chosen; with grain 0 all are. */
static void choose_events(const struct vm_page_units *u, const int64_t *full, const double *share,
                          uint64_t capacity, double grain, struct vm_fluid_events *ev)
{
    uint32_t round = 2 * (uint32_t)u->nops;
    double since = 0;

    ev->n = 0;
    for (uint32_t e = 0; e < round; e++) {
        since += share[e];
        if (!ev->n || since >= grain) {
            ev->event[ev->n++] = e;
            since = 0;
        } else if (full[e] > full[ev->event[ev->n - 1]]) {
            ev->event[ev->n - 1] = e;
        }
    }
    for (uint32_t e = 0, i = 0; e < 2 * round + 2; e++) {
        ev->pos[e] = i;
        i += i < ev->n ? ev->event[i] == e : i < 2 * ev->n && ev->event[i - ev->n] + round == e;
    }
    memset(ev->run_ms, 0, ev->n * sizeof *ev->run_ms);
    memset(ev->waits, 0, ev->n);
    for (uint32_t e = 0; e < round; e++) {
        size_t group = ev->pos[e + 1] % ev->n; /* between e and e + 1 */
        if (e % 2)
            ev->waits[group] = 1;
        else
            ev->run_ms[group] += (double)u->dur_ns[e / 2] * 1e-6;
    }
    for (size_t i = 0; i < ev->n; i++)
        ev->over[i] = full[ev->event[i]] - (int64_t)capacity;
    ev->overs[0] = 0;
    for (size_t i = 0; i < 2 * ev->n; i++)
        ev->overs[i + 1] = ev->overs[i] + (ev->over[i % ev->n] > 0);
}

static int events_init(const struct vm_page_units *u, struct vm_fluid_events *ev)
{
    size_t round = 2 * u->nops;

    ev->event = malloc(round * sizeof *ev->event);
    ev->over = malloc(round * sizeof *ev->over);
    ev->run_ms = malloc(round * sizeof *ev->run_ms);
    ev->waits = malloc(round);
    ev->pos = malloc((2 * round + 2) * sizeof *ev->pos);
    ev->overs = malloc((2 * round + 1) * sizeof *ev->overs);
    return ev->event && ev->over && ev->run_ms && ev->waits && ev->pos && ev->overs ? VM_OK : VM_ENOMEM;
}

/* ---- gaps --------------------------------------------------------------------------------------*/

/* Contents as they were written at one use, while its unit's uses are walked. */
struct version {
    uint32_t written; /* event after which they are what they are, or of the end of the last gap taken */
    size_t from;      /* its first gap in the list                                                 */
    bool clean;
};

static void end_version(struct vm_fluid_gaps *gaps, const struct version *v)
{
    size_t n = gaps->n - v->from;
    struct vm_fluid_gap *g = &gaps->g[v->from];

    for (size_t i = 0; i < n; i++) {
        g[i].kind = v->clean ? VM_FLUID_CLEAN : n == 1 && !g->lead ? VM_FLUID_SINGLE : VM_FLUID_CHAIN;
        g[i].more = g[i].kind == VM_FLUID_CHAIN ? (uint32_t)(n - 1 - i) : 0;
        g[i].lead = v->clean ? 0 : g[i].lead;
    }
}

/* The gap of `ops` ops after the use at op `at` (absolute): taken if room lacks meanwhile. */
static int take_gap(const struct vm_fluid_events *ev, struct vm_fluid_gaps *gaps, struct version *v,
                    const struct vm_page_unit *un, struct vm_fluid_gap gap, uint32_t at, uint32_t ops,
                    uint32_t round)
{
    uint32_t lo = (2 * at + 2) % round, first = ev->pos[lo], end = ev->pos[lo + 2 * ops - 2];

    if (ops < 2 || ev->overs[end] == ev->overs[first])
        return VM_OK;
    if (VM_GROW(gaps->g, gaps->cap, gaps->n + 1))
        return VM_ENOMEM;
    /* chosen events between what made the copy possible and this gap */
    uint32_t since = 2 * at + 2 - v->written, from = v->written % round;
    uint32_t before = ev->pos[from + since % round] - ev->pos[from];
    if (since >= round)
        before += (uint32_t)ev->n;
    gap.npages = un->npages;
    gap.first = first % (uint32_t)ev->n;
    gap.steps = end - first;
    gap.lead = before;
    gaps->g[gaps->n++] = gap;
    v->written = 2 * (at + ops); /* the lead of the next gap is counted from the end of this one */
    return VM_OK;
}

static int unit_gaps(const struct vm_page_units *u, const struct vm_fluid_events *ev, uint32_t unit,
                     struct vm_fluid_gaps *gaps)
{
    const struct vm_page_unit *un = &u->units[unit];
    bool cyclic = un->flags & VM_UNIT_CYCLIC;
    uint32_t m = un->nuses, start = 0, round = 2 * (uint32_t)u->nops;

    while (cyclic && start < m && !(u->uses[un->use + start].flags & VM_PU_WRITE))
        start++;
    struct version v = {.from = gaps->n};
    start = start < m ? start : 0;
    uint32_t at = u->uses[un->use + start].op;
    bool fresh = true;
    for (uint32_t j = 0; j < m; j++) {
        uint32_t use = un->use + (start + j) % m, ops = gap_ops(u, un, use);
        if (fresh || (u->uses[use].flags & VM_PU_WRITE)) {
            end_version(gaps, &v);
            /* what nobody wrote is undefined, or never changes: no copy out */
            v = (struct version){.written = 2 * at + 2, .from = gaps->n,
                                 .clean = !(u->uses[use].flags & VM_PU_WRITE)};
        }
        fresh = !(u->uses[use].flags & VM_PU_LIVE_AFTER) || !ops;
        if (!fresh && take_gap(ev, gaps, &v, un, (struct vm_fluid_gap){.unit = unit, .use = use}, at,
                               ops, round))
            return VM_ENOMEM;
        at += ops;
    }
    end_version(gaps, &v);
    return VM_OK;
}

static int cmp_gaps(const void *a, const void *b)
{
    const struct vm_fluid_gap *x = a, *y = b;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    if (x->steps != y->steps)
        return x->steps < y->steps ? -1 : 1;
    if (vm_fluid_batch(x) != vm_fluid_batch(y))
        return vm_fluid_batch(x) < vm_fluid_batch(y) ? -1 : 1;
    return x->use < y->use ? -1 : x->use > y->use;
}

uint32_t vm_fluid_batch(const struct vm_fluid_gap *g)
{
    return g->npages < VM_COPY_PAGES ? g->npages : VM_COPY_PAGES;
}

bool vm_fluid_alike(const struct vm_fluid_gap *a, const struct vm_fluid_gap *b)
{
    return a->kind != VM_FLUID_CHAIN && a->kind == b->kind && a->first == b->first &&
           a->steps == b->steps && vm_fluid_batch(a) == vm_fluid_batch(b);
}

/* Chains first, as they are; then the others, those that count as one beside each other. */
static int sort_gaps(struct vm_fluid_gaps *gaps)
{
    struct vm_fluid_gap *to = malloc((gaps->n + 1) * sizeof *to);
    size_t chains = 0, others = gaps->n;

    if (!to)
        return VM_ENOMEM;
    for (size_t i = 0; i < gaps->n; i++)
        if (gaps->g[i].kind == VM_FLUID_CHAIN)
            to[chains++] = gaps->g[i];
        else
            to[--others] = gaps->g[i];
    qsort(to + chains, gaps->n - chains, sizeof *to, cmp_gaps);
    free(gaps->g);
    gaps->g = to;
    gaps->cap = gaps->n + 1;
    gaps->terms = 0;
    for (size_t i = 0; i < gaps->n; i++)
        if (!i || !vm_fluid_alike(&to[i - 1], &to[i]))
            gaps->terms += to[i].lead + to[i].steps;
    return VM_OK;
}

static int find_gaps(const struct vm_page_units *u, const struct vm_fluid_events *ev,
                     struct vm_fluid_gaps *gaps)
{
    gaps->n = 0;
    for (uint32_t i = 0; i < u->nunits; i++)
        if (u->units[i].nuses && !(u->units[i].flags & VM_UNIT_PINNED) && unit_gaps(u, ev, i, gaps))
            return VM_ENOMEM;
    return sort_gaps(gaps);
}

int vm_fluid_model(const struct vm_page_units *u, uint64_t capacity, size_t terms,
                   struct vm_fluid_events *ev, struct vm_fluid_gaps *gaps)
{
    memset(ev, 0, sizeof *ev);
    memset(gaps, 0, sizeof *gaps);
    if (vm_page_units_work(u, NULL) > capacity)
        return VM_UNFIT;
    if (!u->nops)
        return VM_OK;
    int64_t *full = fullness(u);
    double *share = shares(u), grain = 0;
    int rc = full && share ? events_init(u, ev) : VM_ENOMEM;
    while (!rc) {
        choose_events(u, full, share, capacity, grain, ev);
        rc = find_gaps(u, ev, gaps);
        if (gaps->terms <= terms || grain > 1)
            break;
        grain = grain > 0 ? 1.25 * grain : 1e-5;
    }
    free(full);
    free(share);
    return rc;
}

void vm_fluid_model_fini(struct vm_fluid_events *ev, struct vm_fluid_gaps *gaps)
{
    free(ev->event);
    free(ev->over);
    free(ev->run_ms);
    free(ev->waits);
    free(ev->pos);
    free(ev->overs);
    free(gaps->g);
    memset(ev, 0, sizeof *ev);
    memset(gaps, 0, sizeof *gaps);
}
