#include "schedule.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "belady.h"
#include "slack_tree.h"
#include "use_heap.h"

#define LARGE_USES 200000 /* above it a simulation takes long: fewer are made */

struct work {
    const struct vm_page_units *u;
    const struct vm_machine *m;
    uint64_t capacity; /* what the ops may fill */
    double window_ns;
    struct vm_belady_wishes wishes;
    struct vm_eviction *ev;
    size_t nev;
    struct vm_move *moves;
    size_t n, cap;
};

/* Pages that move as one: fine enough that a part can go while the rest has no room yet. */
static uint32_t grain_of(const struct work *w)
{
    uint64_t n = w->capacity / (w->u->nuses < LARGE_USES ? 512 : 64);

    return (uint32_t)(n > 1 ? n : 1);
}

static int add_move(struct work *w, struct vm_move mv)
{
    if (w->n == w->cap) {
        size_t n = w->cap ? 2 * w->cap : 256;
        struct vm_move *p = realloc(w->moves, n * sizeof *p);
        if (!p)
            return VM_ENOMEM;
        w->moves = p;
        w->cap = n;
    }
    w->moves[w->n++] = mv;
    return VM_OK;
}

/* ---- order and page numbers -----------------------------------------------------------------*/

static int cmp_moves(const void *a, const void *b)
{
    const struct vm_move *x = a, *y = b;
    if (x->op != y->op)
        return x->op < y->op ? -1 : 1;
    int xi = x->kind == VM_ACT_IN, yi = y->kind == VM_ACT_IN;
    if (xi != yi)
        return xi - yi;
    if (x->need_op != y->need_op)
        return x->need_op < y->need_op ? -1 : 1;
    if (x->unit != y->unit)
        return x->unit < y->unit ? -1 : 1;
    return x->npages < y->npages ? -1 : x->npages > y->npages;
}

/* Of each unit and gap: pages leave from the end downwards in the order of the moves, and come back
 * upwards. Moves are in queue order; gaps that wrap have their IN before their OUT in the list. */
int vm_schedule_finish(const struct vm_page_units *u, struct vm_move *moves, size_t nmoves)
{
    uint32_t *gone = calloc(u->nuses + u->nunits + 1, sizeof *gone); /* by gap: pages gone so far */
    uint32_t *back = calloc(u->nuses + u->nunits + 1, sizeof *back);

    if (!gone || !back) {
        free(gone);
        free(back);
        return VM_ENOMEM;
    }
    if (nmoves)
        qsort(moves, nmoves, sizeof *moves, cmp_moves);
    for (size_t i = 0; i < nmoves; i++) {
        struct vm_move *mv = &moves[i];
        size_t gap = mv->use == VM_NONE ? u->nuses + mv->unit : mv->use;
        if (mv->kind != VM_ACT_IN) {
            mv->first = u->units[mv->unit].npages - gone[gap] - mv->npages;
            gone[gap] += mv->npages;
        }
    }
    for (size_t i = 0; i < nmoves; i++) {
        struct vm_move *mv = &moves[i];
        const struct vm_page_unit *un = &u->units[mv->unit];
        if (mv->kind != VM_ACT_IN)
            continue;
        uint32_t gap = mv->use > un->use ? mv->use - 1 : un->use + un->nuses - 1;
        mv->first = un->npages - gone[gap] + back[gap];
        back[gap] += mv->npages;
    }
    free(gone);
    free(back);
    return VM_OK;
}

/* ---- occupancy ------------------------------------------------------------------------------*/

static void add_cyclic(int64_t *delta, int64_t *at_start, uint32_t n, uint64_t lo, uint64_t hi,
                       int64_t v)
{
    if (lo >= hi)
        return;
    if (hi - lo >= n) { /* all the time */
        *at_start += v;
        return;
    }
    lo %= n;
    hi %= n;
    delta[lo] += v;
    delta[hi] -= v;
    if (hi <= lo)
        *at_start += v;
}

static uint32_t lead_of(const struct work *w, uint32_t use)
{
    return w->wishes.lead ? w->wishes.lead[use] : 0;
}

/* Pages that are resident during each op if every eviction happens at the op that needs the room
 * and every return at the op that needs the pages. */
static int64_t *occupancy(const struct work *w)
{
    uint32_t n = (uint32_t)w->u->nops;
    int64_t *occ = calloc(n + 2, sizeof *occ), now = 0;

    if (!occ)
        return NULL;
    for (size_t i = 0; i < w->u->nunits; i++) {
        const struct vm_page_unit *un = &w->u->units[i];
        if (!un->nuses && (un->flags & VM_UNIT_PINNED))
            now += un->npages;
        for (uint32_t j = 0; j < un->nuses; j++) {
            unsigned wraps;
            uint32_t use = un->use + j, next = vm_page_next_use(w->u, un, use, &wraps);
            uint64_t from = w->u->uses[use].op, to = from + 1;
            if (next != VM_NONE &&
                ((w->u->uses[use].flags & VM_PU_LIVE_AFTER) || (un->flags & VM_UNIT_PINNED)))
                to = w->u->uses[next].op + (wraps ? n : 0);
            add_cyclic(occ, &now, n, from, to, un->npages);
        }
    }
    for (size_t i = 0; i < w->nev; i++) {
        const struct vm_eviction *e = &w->ev[i];
        unsigned wraps;
        if (e->dead || e->use == VM_NONE)
            continue;
        uint32_t next = vm_page_next_use(w->u, &w->u->units[e->unit], e->use, &wraps);
        uint64_t to = w->u->uses[next].op + (wraps ? n : 0) - lead_of(w, next);
        add_cyclic(occ, &now, n, e->need_op, to, -(int64_t)e->npages);
    }
    for (uint32_t k = 0; k < n; k++) {
        now += occ[k];
        occ[k] = now;
    }
    return occ;
}

/* ---- returns --------------------------------------------------------------------------------*/

struct fetch {
    uint32_t unit, use, gap_op; /* use that needs the pages; op of the use before */
    uint32_t npages;
    uint32_t lead;
    uint64_t need; /* op at which the pages should be back */
};

static int cmp_fetch(const void *a, const void *b)
{
    const struct fetch *x = a, *y = b;
    uint64_t kx = x->need, ky = y->need;
    if (kx != ky)
        return kx < ky ? -1 : 1;
    return x->unit < y->unit ? -1 : x->unit > y->unit;
}

static int collect_fetches(const struct work *w, struct fetch **out, size_t *count)
{
    uint32_t *away = calloc(w->u->nuses + 1, sizeof *away);
    struct fetch *f = malloc((w->nev + 1) * sizeof *f);
    size_t n = 0;

    if (!away || !f) {
        free(away);
        free(f);
        return VM_ENOMEM;
    }
    for (size_t i = 0; i < w->nev; i++)
        if (!w->ev[i].dead && w->ev[i].use != VM_NONE)
            away[w->ev[i].use] += w->ev[i].npages;
    for (size_t i = 0; i < w->nev; i++) {
        const struct vm_eviction *e = &w->ev[i];
        if (e->dead || e->use == VM_NONE || !away[e->use])
            continue;
        unsigned wraps;
        const struct vm_page_unit *un = &w->u->units[e->unit];
        uint32_t next = vm_page_next_use(w->u, un, e->use, &wraps);
        uint32_t pages = away[e->use] < un->npages ? away[e->use] : un->npages;
        uint32_t lead = lead_of(w, next);
        f[n++] = (struct fetch){e->unit, next, w->u->uses[e->use].op, pages, lead,
                                (w->u->uses[next].op + w->u->nops - lead) % w->u->nops};
        away[e->use] = 0;
    }
    free(away);
    qsort(f, n, sizeof *f, cmp_fetch);
    *out = f;
    *count = n;
    return VM_OK;
}

/* The first op (counted back into the iteration before: negative) from which `m` more pages fit up to
 * the op that needs them. */
static int64_t room_from(const struct vm_slack_tree *t, uint32_t n, const struct fetch *f,
                         int64_t limit)
{
    int64_t need = (int64_t)f->need;
    bool wraps = f->gap_op >= f->need;
    int64_t lo = wraps ? (int64_t)f->gap_op - n + 1 : (int64_t)f->gap_op + 1;
    size_t from = vm_slack_tree_room_from(t, lo > 0 ? (size_t)lo : 0, (size_t)need, limit);

    if (from > 0 || lo >= 0)
        return (int64_t)from;
    return (int64_t)vm_slack_tree_room_from(t, (size_t)(lo + n), n, limit) - n;
}

static void occupy(struct vm_slack_tree *t, uint32_t n, int64_t from, int64_t to, int64_t pages)
{
    if (from < 0) {
        vm_slack_tree_add(t, (size_t)(from + n), n, pages);
        from = 0;
    }
    vm_slack_tree_add(t, (size_t)from, (size_t)to, pages);
}

static int place_fetches(struct work *w, const int64_t *occ)
{
    uint32_t n = (uint32_t)w->u->nops;
    struct vm_slack_tree t;
    struct fetch *f;
    size_t nf;
    int rc = collect_fetches(w, &f, &nf);

    if (rc)
        return rc;
    if (vm_slack_tree_init(&t, occ, n)) {
        free(f);
        return VM_ENOMEM;
    }
    uint32_t grain = grain_of(w);
    int64_t front = -(int64_t)n;
    for (size_t i = 0; i < nf && !rc; i++)
        for (uint32_t left = f[i].npages; left && !rc;) {
            uint32_t m = left < grain ? left : grain;
            int64_t from = room_from(&t, n, &f[i], (int64_t)w->capacity - m);
            if (from < front)
                from = front;
            front = from;
            occupy(&t, n, from, (int64_t)f[i].need, m);
            int64_t op = from - 1;
            bool early = op < 0;
            if (op < 0)
                op += n;
            if (op < 0)
                op = 0;
            rc = add_move(w, (struct vm_move){.op = (uint32_t)op,
                                              .need_op = (uint32_t)f[i].need + f[i].lead +
                                                         (early ? n : 0),
                                              .unit = f[i].unit, .use = f[i].use, .npages = m,
                                              .kind = VM_ACT_IN, .reason = VM_WHY_CAPACITY});
            left -= m;
        }
    vm_slack_tree_fini(&t);
    free(f);
    return rc;
}

/* ---- departures -----------------------------------------------------------------------------*/

static struct vm_move departure(const struct vm_eviction *e, uint32_t op, uint32_t npages)
{
    return (struct vm_move){.op = op, .need_op = e->need_op, .unit = e->unit, .use = e->use,
                            .npages = npages, .kind = e->dead ? VM_ACT_DROP : VM_ACT_OUT,
                            .reason = e->dead ? VM_WHY_DEAD : VM_WHY_CAPACITY};
}

/* Evictions in the order in which they may begin. */
static int cmp_release(const void *a, const void *b)
{
    const struct vm_eviction *x = a, *y = b;
    uint32_t xo = x->release, yo = y->release;
    if (xo != yo)
        return xo < yo ? -1 : 1;
    return x->need_op < y->need_op ? -1 : x->need_op > y->need_op;
}

/* Plays the link out over the op times of the last simulation, always sending the pages whose room is
 * needed first (earliest deadline first). A piece hangs on the op that releases it, or on a later one that
 * a piece before it hangs on, so that the queue keeps this order and never waits without need.
 * end_ns: when each op ends; NULL: each hangs on the op that releases it. */
static int place_evictions(struct work *w, const double *end_ns)
{
    uint32_t last = 0, grain = grain_of(w);
    double page_ns = (double)w->u->page_bytes / w->m->out_bps * 1e9, t = 0;
    struct vm_use_heap ready = {0};
    struct vm_use_entry top;
    size_t next = 0;
    int rc = VM_OK;

    for (size_t i = 0; i < w->nev; i++)
        w->ev[i].release = w->ev[i].use == VM_NONE ? 0 : w->u->uses[w->ev[i].use].op;
    if (w->nev)
        qsort(w->ev, w->nev, sizeof *w->ev, cmp_release);
    while (!rc && (next < w->nev || ready.n)) {
        if (end_ns && !ready.n && next < w->nev && t < end_ns[w->ev[next].release])
            t = end_ns[w->ev[next].release];
        while (!rc && next < w->nev && (!end_ns || end_ns[w->ev[next].release] <= t)) {
            struct vm_eviction *e = &w->ev[next];
            if (!end_ns || e->dead || e->use == VM_NONE)
                rc = add_move(w, departure(e, e->release, e->npages));
            else
                rc = vm_use_heap_push(&ready, UINT64_MAX - e->need_op, (uint32_t)next, e->npages);
            next++;
        }
        if (rc || !vm_use_heap_pop(&ready, &top))
            continue;
        const struct vm_eviction *e = &w->ev[top.unit];
        uint32_t m = top.stamp < grain ? top.stamp : grain;
        last = e->release > last ? e->release : last;
        rc = add_move(w, departure(e, last, m));
        t += m * page_ns;
        if (!rc && top.stamp > m)
            rc = vm_use_heap_push(&ready, top.key, top.unit, top.stamp - m);
    }
    vm_use_heap_fini(&ready);
    return rc;
}

/* ---- one schedule, and the best of several ----------------------------------------------------*/

static int simulate(const struct work *w, uint64_t total, struct vm_schedule *s, double *start_ns)
{
    struct vm_sim_options so = {.capacity_pages = total, .knows_dead = 1,
                                .window_ns = w->window_ns};

    s->window_ns = w->window_ns;
    s->moves = w->moves;
    s->nmoves = w->n;
    s->out_pages = s->in_pages = 0;
    for (size_t i = 0; i < w->n; i++) {
        s->out_pages += w->moves[i].kind == VM_ACT_OUT ? w->moves[i].npages : 0;
        s->in_pages += w->moves[i].kind == VM_ACT_IN ? w->moves[i].npages : 0;
    }
    return vm_simulate(w->u, w->m, s->moves, s->nmoves, &so, &s->sim, start_ns, NULL);
}

/* Moves for the evictions in *w, timed by end_ns (may be NULL), and what they give. */
static int time_moves(struct work *w, const int64_t *occ, const double *end_ns, uint64_t total,
                      struct vm_schedule *s, double *start_ns)
{
    w->moves = NULL;
    w->n = w->cap = 0;
    int rc = place_evictions(w, end_ns);
    if (!rc)
        rc = place_fetches(w, occ);
    if (!rc)
        rc = vm_schedule_finish(w->u, w->moves, w->n);
    if (!rc)
        rc = simulate(w, total, s, start_ns);
    if (rc)
        free(w->moves);
    return rc;
}

static bool better(const struct vm_schedule *a, const struct vm_schedule *b)
{
    return a->sim.iteration_ns < b->sim.iteration_ns;
}

/* What a set of evictions is made from. */
struct choice {
    uint64_t usable; /* pages */
    enum vm_belady_rule rule;
    struct vm_belady_wishes wishes;
};

/* One set of evictions, timed, and timed again by what the simulation says. start_ns (nops, the caller's)
 * receives the op times of the schedule given. */
static int make(const struct vm_page_units *u, const struct vm_machine *m, uint64_t total,
                const struct choice *c, unsigned rounds, struct vm_schedule *out, double *start_ns)
{
    struct work w = {.u = u, .m = m, .capacity = c->usable, .window_ns = vm_schedule_window(u, m),
                     .wishes = c->wishes};
    struct vm_schedule best = {0}, s;
    double *start = malloc((u->nops + 1) * sizeof *start);
    int rc = vm_belady(u, c->usable, c->rule, &c->wishes, &w.ev, &w.nev);
    int64_t *occ = rc ? NULL : occupancy(&w);

    if (!rc && (!occ || !start))
        rc = VM_ENOMEM;
    if (!rc)
        rc = time_moves(&w, occ, NULL, total, &best, start);
    if (!rc)
        memcpy(start_ns, start, u->nops * sizeof *start);
    for (unsigned i = 0; i < rounds && !rc; i++) {
        if (best.sim.iteration_ns <= 1.0005 * best.sim.compute_ns)
            break;
        for (size_t k = 0; k < u->nops; k++)
            start[k] += (double)u->dur_ns[k];
        if (time_moves(&w, occ, start, total, &s, start))
            break;
        if (better(&s, &best)) {
            vm_schedule_fini(&best);
            best = s;
            memcpy(start_ns, start, u->nops * sizeof *start);
        } else {
            vm_schedule_fini(&s);
        }
    }
    free(start);
    free(occ);
    free(w.ev);
    if (!rc)
        *out = best;
    return rc;
}

/* Does this use find undefined or dead contents? */
static bool is_fresh(const struct vm_page_units *u, const struct vm_page_unit *un, uint32_t use)
{
    if (use == un->use && !(un->flags & VM_UNIT_CYCLIC))
        return true;
    uint32_t before = use > un->use ? use - 1 : un->use + un->nuses - 1;
    return !(u->uses[before].flags & VM_PU_LIVE_AFTER);
}

double vm_schedule_window(const struct vm_page_units *u, const struct vm_machine *m)
{
    uint64_t most = 0;

    for (uint32_t k = 0; k < u->nops; k++) {
        uint64_t fresh = 0;
        for (uint32_t r = u->op_first[k]; r < u->op_first[k + 1]; r++) {
            const struct vm_page_unit *un = &u->units[u->refs[r].unit];
            if (is_fresh(u, un, u->refs[r].use))
                fresh += un->npages;
        }
        most = fresh > most ? fresh : most;
    }
    return VM_SCHEDULE_WINDOW_NS + (double)most * (m->map_ns + m->access_ns + m->unmap_ns);
}

void vm_unfit_text(const struct vm_page_units *u, uint64_t capacity, struct vm_error *why)
{
    uint32_t op = 0;
    uint64_t work = vm_page_units_work(u, &op);

    if (why)
        snprintf(why->text, sizeof why->text,
                 "op %u alone needs %llu pages (%llu MiB), the budget has %llu (%llu MiB): "
                 "raise the budget or lower the batch size",
                 op, (unsigned long long)work, (unsigned long long)(work * u->page_bytes >> 20),
                 (unsigned long long)capacity,
                 (unsigned long long)(capacity * u->page_bytes >> 20));
}

/* ---- search -----------------------------------------------------------------------------------*/

/* The best schedule so far and what it came from. */
struct best {
    struct vm_schedule s;
    struct choice from;
    double *start_ns;
    bool have;
};

static bool good_enough(const struct best *b)
{
    return b->have && b->s.sim.iteration_ns <= 1.001 * b->s.sim.compute_ns;
}

/* Makes a schedule from *c and keeps it if it beats the best. */
static int try_choice(const struct vm_page_units *u, const struct vm_machine *m, uint64_t total,
                      const struct choice *c, unsigned rounds, struct best *b, bool *improved)
{
    double *start = malloc((u->nops + 1) * sizeof *start);
    struct vm_schedule s;

    *improved = false;
    if (!start)
        return VM_ENOMEM;
    int rc = make(u, m, total, c, rounds, &s, start);
    if (rc) {
        free(start);
        return rc;
    }
    if (b->have && !better(&s, &b->s)) {
        vm_schedule_fini(&s);
        free(start);
        return VM_OK;
    }
    if (b->have)
        vm_schedule_fini(&b->s);
    free(b->start_ns);
    *b = (struct best){s, *c, start, true};
    *improved = true;
    return VM_OK;
}

/* The rules, with more and more pages kept free. */
static int try_rules(const struct vm_page_units *u, const struct vm_machine *m, uint64_t total,
                     const struct vm_schedule_options *opt, struct best *b)
{
    static const double floats[] = {0, 0.005, 0.01, 0.02, 0.04, 0.08};
    uint64_t work = vm_page_units_work(u, NULL), last = UINT64_MAX;
    bool large = u->nuses > LARGE_USES;
    size_t n = !opt->effort ? 1 : large ? 2 : sizeof floats / sizeof floats[0];
    unsigned rounds = opt->effort && !large ? 3 : 1;

    for (size_t i = 0; i < n; i++) {
        uint64_t fl = opt->float_pages + (uint64_t)(floats[i] * (double)total);
        uint64_t usable = total > fl && total - fl > work ? total - fl : work;
        if (usable == last)
            continue;
        last = usable;
        for (int rule = VM_BELADY_FARTHEST; rule <= VM_BELADY_IDLE; rule++) {
            struct choice c = {.usable = usable, .rule = (enum vm_belady_rule)rule};
            bool improved;
            int rc = try_choice(u, m, total, &c, rounds, b, &improved);
            if (rc && !b->have)
                return rc;
            if (!opt->effort || good_enough(b))
                return VM_OK;
        }
    }
    return VM_OK;
}

/* Ops that wait, longest first. */
struct wait {
    double ns;
    uint32_t op;
};

static int cmp_wait(const void *a, const void *b)
{
    const struct wait *x = a, *y = b;
    if (x->ns != y->ns)
        return x->ns > y->ns ? -1 : 1;
    return x->op < y->op ? -1 : x->op > y->op;
}

static size_t find_waits(const struct vm_page_units *u, const double *start, struct wait *w)
{
    size_t n = 0;
    double end = 0;

    for (uint32_t k = 0; k < u->nops; k++) {
        double ns = start[k] - end;
        if (ns > 1e-4 * (start[u->nops - 1] + (double)u->dur_ns[u->nops - 1]))
            w[n++] = (struct wait){ns, k};
        end = start[k] + (double)u->dur_ns[k];
    }
    qsort(w, n, sizeof *w, cmp_wait);
    return n;
}

/* Two ways to shorten the wait before op k: what it needs comes back `ops` ops earlier; or its room is
 * made so much earlier. Changes the wishes in lead[] or extra[]; false if nothing can be changed. */
static bool ask_earlier(const struct vm_page_units *u, uint32_t k, uint32_t ops, uint32_t *lead)
{
    bool any = false;

    for (uint32_t r = u->op_first[k]; r < u->op_first[k + 1]; r++) {
        const struct vm_page_unit *un = &u->units[u->refs[r].unit];
        uint32_t use = u->refs[r].use, n = (uint32_t)u->nops;
        if (use == un->use && !(un->flags & VM_UNIT_CYCLIC))
            continue;
        uint32_t before = use > un->use ? use - 1 : un->use + un->nuses - 1;
        uint32_t gap = (k + n - u->uses[before].op) % n;
        uint32_t most = gap ? gap - 1 : n - 1;
        if (!(u->uses[before].flags & VM_PU_LIVE_AFTER) || most < 2)
            continue;
        uint32_t want = ops < most ? ops : most;
        any |= want > lead[use];
        lead[use] = want > lead[use] ? want : lead[use];
    }
    return any;
}

static bool make_room_earlier(const struct vm_page_units *u, uint32_t k, uint32_t ops,
                              uint32_t *extra)
{
    uint32_t n = (uint32_t)u->nops, fresh = 0;
    bool any = false;

    for (uint32_t r = u->op_first[k]; r < u->op_first[k + 1]; r++) {
        const struct vm_page_unit *un = &u->units[u->refs[r].unit];
        if (is_fresh(u, un, u->refs[r].use))
            fresh += un->npages;
    }
    for (uint32_t i = 1; i <= ops && i < n && fresh; i++) {
        uint32_t j = (k + n - i) % n;
        any |= extra[j] < fresh;
        extra[j] = extra[j] > fresh ? extra[j] : fresh;
    }
    return any;
}

/* As many tries as take about a second or two on traces of any size. */
static unsigned refine_tries(const struct vm_page_units *u, unsigned effort)
{
    size_t n = 500000 / (u->nuses + 1000);

    n = n < 4 ? 4 : n > 150 ? 150 : n;
    return (unsigned)(effort > 1 ? 10 * n : n);
}

/* Local search: takes the longest waits one after the other, wishes for what they wait for earlier, and
 * keeps what makes the iteration shorter. */
static int refine(const struct vm_page_units *u, const struct vm_machine *m, uint64_t total,
                  unsigned tries, struct best *b)
{
    static const uint32_t steps[] = {2, 4, 8, 16, 32};
    uint32_t *lead = calloc(2 * (u->nuses + 1), sizeof *lead);
    uint32_t *extra = calloc(2 * (u->nops + 1), sizeof *extra);
    uint32_t *lead2 = lead ? lead + u->nuses + 1 : NULL, *extra2 = extra ? extra + u->nops + 1 : NULL;
    struct wait *w = malloc((u->nops + 1) * sizeof *w);
    int rc = lead && extra && w ? VM_OK : VM_ENOMEM;
    size_t n = rc ? 0 : find_waits(u, b->start_ns, w);

    for (size_t i = 0, moves = 0; !rc && tries && i < n && !good_enough(b); moves++) {
        size_t kind = moves / (sizeof steps / sizeof *steps) % 2;
        uint32_t ops = steps[moves % (sizeof steps / sizeof *steps)];
        bool improved = false;
        memcpy(lead2, lead, (u->nuses + 1) * sizeof *lead);
        memcpy(extra2, extra, (u->nops + 1) * sizeof *extra);
        if (kind ? make_room_earlier(u, w[i].op, ops, extra2) : ask_earlier(u, w[i].op, ops, lead2)) {
            struct choice c = b->from;
            c.wishes = (struct vm_belady_wishes){lead2, extra2};
            tries--;
            rc = try_choice(u, m, total, &c, 0, b, &improved);
            rc = rc == VM_UNFIT ? VM_OK : rc; /* the wish does not fit: not this way */
        }
        if (improved) {
            memcpy(lead, lead2, (u->nuses + 1) * sizeof *lead);
            memcpy(extra, extra2, (u->nops + 1) * sizeof *extra);
            n = find_waits(u, b->start_ns, w);
            i = 0;
            moves = SIZE_MAX; /* the loop makes it 0 */
        } else if (moves + 1 == 2 * sizeof steps / sizeof *steps) {
            i++;
            moves = SIZE_MAX;
        }
    }
    b->from.wishes = (struct vm_belady_wishes){NULL, NULL};
    free(lead);
    free(extra);
    free(w);
    return rc;
}

/* Refines the best, and both rules with nothing kept free: there a wish is likelier to fit. */
static int refine_all(const struct vm_page_units *u, const struct vm_machine *m, uint64_t total,
                      unsigned tries, struct best *b)
{
    int rc = refine(u, m, total, tries, b);

    for (int rule = VM_BELADY_FARTHEST; rule <= VM_BELADY_IDLE && !rc && !good_enough(b); rule++) {
        struct choice c = {.usable = total, .rule = (enum vm_belady_rule)rule};
        struct best other = {.have = false};
        bool improved;
        if (b->from.usable == total && b->from.rule == c.rule)
            continue;
        rc = try_choice(u, m, total, &c, 1, &other, &improved);
        if (!rc)
            rc = refine(u, m, total, tries, &other);
        if (other.have && !rc && better(&other.s, &b->s)) {
            struct best swap = *b;
            *b = other;
            other = swap;
        }
        if (other.have)
            vm_schedule_fini(&other.s);
        free(other.start_ns);
    }
    return rc;
}

int vm_schedule_build(const struct vm_page_units *u, const struct vm_machine *m,
                      const struct vm_schedule_options *opt, struct vm_schedule *out,
                      struct vm_error *why)
{
    uint64_t total = opt->capacity_pages ? opt->capacity_pages : m->device_bytes / u->page_bytes;
    struct best b = {.have = false};

    if (vm_page_units_work(u, NULL) > total) {
        vm_unfit_text(u, total, why);
        return VM_UNFIT;
    }
    int rc = try_rules(u, m, total, opt, &b);
    if (!rc && opt->effort && !good_enough(&b))
        rc = refine_all(u, m, total, refine_tries(u, opt->effort), &b);
    free(b.start_ns);
    if (rc) {
        if (b.have)
            vm_schedule_fini(&b.s);
        return rc;
    }
    *out = b.s;
    return VM_OK;
}

void vm_schedule_fini(struct vm_schedule *s)
{
    free(s->moves);
    memset(s, 0, sizeof *s);
}
