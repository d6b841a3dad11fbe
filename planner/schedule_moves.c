#include "schedule_moves.h"

#include <stdlib.h>
#include <string.h>

#include "slack_tree.h"
#include "use_heap.h"

struct work {
    const struct vm_page_units *u;
    const struct vm_machine *m;
    uint64_t capacity; /* what the ops may fill */
    double window_ns;
    struct vm_eviction *ev;
    size_t nev;
    struct vm_move *moves;
    size_t n, cap;
};

/* Pages that move as one: fine enough that a part can go while the rest has no room yet. */
static uint32_t grain_of(const struct work *w)
{
    uint64_t n = w->capacity / (w->u->nuses < VM_LARGE_USES ? 512 : 64);

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
        uint64_t to = w->u->uses[next].op + (wraps ? n : 0) - e->lead;
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
    if (x->unit != y->unit)
        return x->unit < y->unit ? -1 : 1;
    return x->use < y->use ? -1 : x->use > y->use;
}

/* What comes back, in order of need; what is to be back at one time for one use is one. */
static int collect_fetches(const struct work *w, struct fetch **out, size_t *count)
{
    struct fetch *f = malloc((w->nev + 1) * sizeof *f);
    size_t n = 0, kept = 0;

    if (!f)
        return VM_ENOMEM;
    for (size_t i = 0; i < w->nev; i++) {
        const struct vm_eviction *e = &w->ev[i];
        if (e->dead || e->use == VM_NONE)
            continue;
        unsigned wraps;
        uint32_t next = vm_page_next_use(w->u, &w->u->units[e->unit], e->use, &wraps);
        f[n++] = (struct fetch){e->unit, next, w->u->uses[e->use].op, e->npages, e->lead,
                                (w->u->uses[next].op + w->u->nops - e->lead) % w->u->nops};
    }
    qsort(f, n, sizeof *f, cmp_fetch);
    for (size_t i = 0; i < n; i++) {
        if (kept && !cmp_fetch(&f[kept - 1], &f[i]))
            f[kept - 1].npages += f[i].npages;
        else
            f[kept++] = f[i];
        uint32_t most = w->u->units[f[kept - 1].unit].npages;
        if (f[kept - 1].npages > most)
            f[kept - 1].npages = most;
    }
    *out = f;
    *count = kept;
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

/* Neighbours in the queue that move pages of one gap are one: fewer and larger copies. */
static size_t join_moves(struct vm_move *moves, size_t n)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        struct vm_move *a = kept ? &moves[kept - 1] : NULL, *b = &moves[i];
        if (a && a->op == b->op && a->kind == b->kind && a->unit == b->unit && a->use == b->use &&
            (b->kind == VM_ACT_IN ? a->first + a->npages == b->first
                                  : b->first + b->npages == a->first)) {
            a->first = a->first < b->first ? a->first : b->first;
            a->npages += b->npages;
        } else {
            moves[kept++] = *b;
        }
    }
    return kept;
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
    if (!rc) {
        w->n = join_moves(w->moves, w->n);
        rc = simulate(w, total, s, start_ns);
    }
    if (rc)
        free(w->moves);
    return rc;
}

int vm_schedule_time(const struct vm_page_units *u, const struct vm_machine *m, uint64_t total,
                     uint64_t usable, struct vm_eviction *list, size_t count, unsigned rounds,
                     struct vm_schedule *out, double *start_ns)
{
    struct work work = {.u = u, .m = m, .capacity = usable, .window_ns = vm_schedule_window(u, m),
                        .ev = list, .nev = count}, *w = &work;
    size_t nops = u->nops;
    struct vm_schedule best = {0}, s;
    double *start = malloc((nops + 1) * sizeof *start);
    int64_t *occ = occupancy(w);
    int rc = start && occ ? time_moves(w, occ, NULL, total, &best, start) : VM_ENOMEM;

    if (!rc)
        memcpy(start_ns, start, nops * sizeof *start);
    for (unsigned i = 0; i < rounds && !rc; i++) {
        if (best.sim.iteration_ns <= 1.0005 * best.sim.compute_ns)
            break;
        for (size_t k = 0; k < nops; k++)
            start[k] += (double)u->dur_ns[k];
        if (time_moves(w, occ, start, total, &s, start))
            break;
        if (s.sim.iteration_ns < best.sim.iteration_ns) {
            vm_schedule_fini(&best);
            best = s;
            memcpy(start_ns, start, nops * sizeof *start);
        } else {
            vm_schedule_fini(&s);
        }
    }
    free(start);
    free(occ);
    if (!rc)
        *out = best;
    return rc;
}

void vm_schedule_fini(struct vm_schedule *s)
{
    free(s->moves);
    memset(s, 0, sizeof *s);
}
