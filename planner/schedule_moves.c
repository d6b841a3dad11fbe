#include "schedule_moves.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "grow.h"
#include "slack_tree.h"
#include "use_heap.h"

#define EARLY_GAPS 16 /* gaps before its own in which an eviction's pages may be copied early */

/* Pages of an eviction that have left before op `op` (plus nops if in the next iteration). */
struct leave {
    uint32_t ev, npages, op;
};

struct work {
    const struct vm_page_units *u;
    const struct vm_machine *m;
    uint64_t capacity; /* what the ops may fill */
    double window_ns;
    struct vm_eviction *ev;
    size_t nev;
    struct vm_move *moves;
    size_t n, cap;
    bool as_placed; /* pages come back as soon as those before them have left, not only when they must have */
    struct leave *leaves; /* of the departures just placed, if so */
    size_t nleaves, cap_leaves;
};

/* Pages that move as one: fine enough that a part can go while the rest has no room yet. */
static uint32_t grain_of(const struct work *w)
{
    uint64_t n = w->capacity / (w->u->nuses < VM_LARGE_USES ? 512 : 64);

    return (uint32_t)(n > 1 ? n : 1);
}

static int add_move(struct work *w, struct vm_move mv)
{
    if (VM_GROW(w->moves, w->cap, w->n + 1))
        return VM_ENOMEM;
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

/* The use that wrote what a unit holds after `use`; VM_NONE: nobody. */
static uint32_t writer_of(const struct vm_page_units *u, const struct vm_page_unit *un, uint32_t use)
{
    for (uint32_t j = 0; j < un->nuses; j++) {
        if (u->uses[use].flags & VM_PU_WRITE)
            return use;
        use = vm_page_use_before(un, use);
    }
    return VM_NONE;
}

/* Which pages the copies take that stay: those before the pages whose copies are valid by then. clean[]: these,
 * by the use that wrote them; since[]: the op after which that was last (of two iterations), plus 1. */
static void number_copies(const struct vm_page_units *u, struct vm_move *moves, size_t nmoves,
                          uint32_t *clean, uint32_t *since)
{
    uint32_t n = (uint32_t)u->nops;

    for (size_t i = 0; i < 2 * nmoves; i++) {
        struct vm_move *mv = &moves[i % nmoves];
        const struct vm_page_unit *un = &u->units[mv->unit];
        uint32_t at = mv->op + (i < nmoves ? n : 2 * n);
        uint32_t w = mv->kind == VM_ACT_IN || mv->use == VM_NONE ? VM_NONE : writer_of(u, un, mv->use);
        if (w == VM_NONE)
            continue;
        uint32_t wrote = at - (mv->op + n - u->uses[w].op) % n + 1;
        if (since[w] != wrote)
            clean[w] = 0;
        since[w] = wrote;
        uint32_t left = un->npages - clean[w];
        if (mv->kind == VM_ACT_COPY) {
            mv->npages = mv->npages < left ? mv->npages : left;
            mv->first = left - mv->npages;
        }
        clean[w] = un->npages - mv->first > clean[w] ? un->npages - mv->first : clean[w];
    }
}

static int finish_copies(const struct vm_page_units *u, struct vm_move *moves, size_t nmoves)
{
    bool any = false;

    for (size_t i = 0; i < nmoves; i++)
        any |= moves[i].kind == VM_ACT_COPY;
    if (!any)
        return VM_OK;
    uint32_t *clean = calloc(2 * (u->nuses + 1), sizeof *clean);
    if (!clean)
        return VM_ENOMEM;
    number_copies(u, moves, nmoves, clean, clean + u->nuses + 1);
    free(clean);
    return VM_OK;
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
        if (mv->kind != VM_ACT_IN && mv->kind != VM_ACT_COPY) {
            mv->first = u->units[mv->unit].npages - gone[gap] - mv->npages;
            gone[gap] += mv->npages;
        }
    }
    for (size_t i = 0; i < nmoves; i++) {
        struct vm_move *mv = &moves[i];
        const struct vm_page_unit *un = &u->units[mv->unit];
        if (mv->kind != VM_ACT_IN)
            continue;
        uint32_t gap = vm_page_use_before(un, mv->use);
        mv->first = un->npages - gone[gap] + back[gap];
        back[gap] += mv->npages;
    }
    free(gone);
    free(back);
    return finish_copies(u, moves, nmoves);
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

/* Pages that are resident during each op if every return happens at the op that needs the pages, and every
 * eviction at the op that needs the room, or (as_placed) when the departures just placed have them gone. */
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
    for (size_t i = 0; i < (w->as_placed ? w->nleaves : w->nev); i++) {
        const struct vm_eviction *e = &w->ev[w->as_placed ? w->leaves[i].ev : i];
        unsigned wraps;
        if (e->dead || e->use == VM_NONE)
            continue;
        uint32_t next = vm_page_next_use(w->u, &w->u->units[e->unit], e->use, &wraps);
        uint64_t to = w->u->uses[next].op + (wraps ? n : 0) - e->lead;
        add_cyclic(occ, &now, n, w->as_placed ? w->leaves[i].op : e->need_op, to,
                   -(int64_t)(w->as_placed ? w->leaves[i].npages : e->npages));
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

/* A time at which pages of an eviction may begin to leave, or to be copied while they stay. */
struct chance {
    double at, until; /* ns from the start of the iteration; until: copies that stay must be done */
    uint32_t ev;
    uint32_t use;     /* that it follows; the eviction's own: they may leave */
    uint32_t ahead;   /* 1: the eviction is the next iteration's             */
};

/* The link out, played over two iterations: the second shows what repeats. */
struct play {
    struct work *w;
    const double *end_ns;
    struct chance *c;
    size_t nc, cap;
    uint32_t *dirty; /* per eviction: pages that have no copy unless one was made early */
    uint32_t *early; /* per eviction: pages copied early                                */
    struct vm_use_heap ready; /* unit: round x nc + the chance, stamp: pages left, key: need */
    double page_ns, t;
    uint32_t round, last[2]; /* last, by round: no move may hang on an op before it */
};

static uint32_t use_before(const struct vm_page_unit *un, uint32_t use)
{
    return use == un->use && !(un->flags & VM_UNIT_CYCLIC) ? VM_NONE : vm_page_use_before(un, use);
}

static int cmp_chance(const void *a, const void *b)
{
    const struct chance *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->ev < y->ev ? -1 : x->ev > y->ev;
}

/* Of each eviction: the pages that no eviction before it has left a valid copy of. gone[use]: pages that leave
 * in the gap after the use. The evictions are in order of release and need. */
static void find_dirty(struct play *p, uint32_t *gone, uint32_t *before)
{
    const struct vm_page_units *u = p->w->u;

    for (size_t i = 0; i < p->w->nev; i++)
        if (p->w->ev[i].use != VM_NONE)
            gone[p->w->ev[i].use] += p->w->ev[i].npages;
    for (size_t i = 0; i < p->w->nev; i++) {
        const struct vm_eviction *e = &p->w->ev[i];
        const struct vm_page_unit *un = &u->units[e->unit];
        uint32_t clean = un->npages, most = 0, use = e->use;
        p->dirty[i] = e->npages;
        if (e->dead || use == VM_NONE)
            continue;
        for (uint32_t j = 0; j < un->nuses && use != VM_NONE; j++) {
            most = use != e->use && gone[use] > most ? gone[use] : most;
            if (u->uses[use].flags & VM_PU_WRITE) {
                clean = most;
                break;
            }
            use = use_before(un, use);
        }
        clean = clean > before[e->use] ? clean - before[e->use] : 0;
        p->dirty[i] = e->npages > clean ? e->npages - clean : 0;
        before[e->use] += e->npages;
    }
}

static int add_chance(struct play *p, struct chance c)
{
    if (VM_GROW(p->c, p->cap, p->nc + 1))
        return VM_ENOMEM;
    p->c[p->nc++] = c;
    return VM_OK;
}

/* When op k is issued: ahead of its start, unless the host waits for something then. */
static double issue_ns(const struct play *p, uint32_t k)
{
    double start = p->end_ns[k] - (double)p->w->u->dur_ns[k], before = k ? p->end_ns[k - 1] : 0;

    return start > before + 1 ? start : start - p->w->window_ns;
}

/* The gaps between the op that wrote what eviction i sends away and its own gap: there the link may be idle. */
static int early_chances(struct play *p, uint32_t i)
{
    const struct vm_page_units *u = p->w->u;
    const struct vm_eviction *e = &p->w->ev[i];
    const struct vm_page_unit *un = &u->units[e->unit];
    double all = p->end_ns[u->nops - 1];
    uint32_t use = e->use, after;
    int rc = VM_OK;

    for (uint32_t j = 1; j < un->nuses && j <= EARLY_GAPS && !rc; j++) {
        if (u->uses[use].flags & VM_PU_WRITE)
            break;
        after = use;
        use = use_before(un, use);
        if (use == VM_NONE)
            break;
        uint32_t op = u->uses[use].op, to = u->uses[after].op;
        double until = issue_ns(p, to) + (to <= op ? all : 0);
        if (until > p->end_ns[op])
            rc = add_chance(p, (struct chance){p->end_ns[op], until, i, use,
                                               op > u->uses[e->use].op});
    }
    return rc;
}

static int find_chances(struct play *p, bool early)
{
    const struct vm_page_units *u = p->w->u;
    uint32_t *count = early ? calloc(2 * (u->nuses + 1), sizeof *count) : NULL;
    int rc = count || !early ? VM_OK : VM_ENOMEM;

    if (count)
        find_dirty(p, count, count + u->nuses + 1);
    else
        for (size_t i = 0; i < p->w->nev; i++)
            p->dirty[i] = p->w->ev[i].npages;
    free(count);
    for (size_t i = 0; i < p->w->nev && !rc; i++) {
        const struct vm_eviction *e = &p->w->ev[i];
        rc = add_chance(p, (struct chance){p->end_ns[e->release], INFINITY, (uint32_t)i, e->use, 0});
        if (!rc && early && p->dirty[i] && !e->dead && e->use != VM_NONE)
            rc = early_chances(p, (uint32_t)i);
    }
    if (!rc && p->nc)
        qsort(p->c, p->nc, sizeof *p->c, cmp_chance);
    return rc;
}

/* Only the second round's moves count. */
static int play_move(struct play *p, uint32_t round, struct vm_move mv)
{
    return round ? add_move(p->w, mv) : VM_OK;
}

/* m pages of eviction `ev` have left by the time `ns` of the iteration in which its gap begins. */
static int note_leave(struct play *p, uint32_t round, uint32_t ev, uint32_t m, double ns)
{
    const struct work *w = p->w;
    const struct vm_eviction *e = &w->ev[ev];
    uint32_t n = (uint32_t)w->u->nops, lo = e->release + 1, hi = e->need_op;

    while (lo < hi) { /* the first op that starts after it */
        uint32_t mid = lo + (hi - lo) / 2, k = mid % n;
        double start = p->end_ns[k] - (double)w->u->dur_ns[k] + (mid < n ? 0 : p->end_ns[n - 1]);
        if (start >= ns)
            hi = mid;
        else
            lo = mid + 1;
    }
    if (!round || !m || !w->as_placed)
        return VM_OK;
    if (VM_GROW(p->w->leaves, p->w->cap_leaves, w->nleaves + 1))
        return VM_ENOMEM;
    p->w->leaves[p->w->nleaves++] = (struct leave){ev, m, hi};
    return VM_OK;
}

/* A chance has come. */
static int take_chance(struct play *p, uint32_t chance)
{
    const struct chance *c = &p->c[chance];
    const struct vm_eviction *e = &p->w->ev[c->ev];
    uint32_t rounds = p->round + c->ahead, pages = p->dirty[c->ev];
    uint64_t need = e->need_op + (uint64_t)rounds * p->w->u->nops;
    int rc = VM_OK;

    if (e->dead || e->use == VM_NONE)
        return play_move(p, p->round, departure(e, e->release, e->npages));
    if (c->use == e->use) { /* what has its copy goes at once */
        pages -= p->early[c->ev];
        p->early[c->ev] = 0;
        if (pages < e->npages)
            rc = play_move(p, p->round, departure(e, e->release, e->npages - pages));
        if (!rc)
            rc = note_leave(p, p->round, c->ev, e->npages - pages, 0);
    }
    return rc || !pages ? rc : vm_use_heap_push(&p->ready, UINT64_MAX - need,
                                               chance + p->round * (uint32_t)p->nc, pages);
}

/* Copies up to a grain of what `top` says; what stays must be done before its chance ends. */
static int play_copy(struct play *p, struct vm_use_entry top, uint32_t grain)
{
    uint32_t round = top.unit / (uint32_t)p->nc, n = (uint32_t)p->w->u->nops;
    const struct chance *c = &p->c[top.unit % p->nc];
    const struct vm_eviction *e = &p->w->ev[c->ev];
    uint32_t m = top.stamp < grain ? top.stamp : grain, op = e->release;

    if (c->use != e->use) {
        uint32_t left = p->dirty[c->ev] - p->early[c->ev];
        double pages = (round * p->end_ns[n - 1] + c->until - p->t) / p->page_ns;
        m = m < left ? m : left;
        m = pages < m ? (uint32_t)(pages > 0 ? pages : 0) : m;
        if (!m)
            return VM_OK;
        p->early[c->ev] += m;
        op = p->w->u->uses[c->use].op;
    }
    p->last[round] = op > p->last[round] ? op : p->last[round];
    struct vm_move mv = departure(e, p->last[round], m);
    if (c->use != e->use) {
        mv.use = c->use;
        mv.kind = VM_ACT_COPY;
        mv.need_op += c->ahead * n;
    }
    p->t += m * p->page_ns;
    int rc = play_move(p, round, mv);
    if (!rc && c->use == e->use)
        rc = note_leave(p, round, c->ev, m, p->t - round * p->end_ns[n - 1]);
    return rc || top.stamp <= m ? rc : vm_use_heap_push(&p->ready, top.key, top.unit, top.stamp - m);
}

/* One iteration, from what the one before left. */
static int play_round(struct play *p, uint32_t grain)
{
    double from = p->round * p->end_ns[p->w->u->nops - 1];
    struct vm_use_entry top;
    size_t next = 0;
    int rc = VM_OK;

    while (!rc && (next < p->nc || p->ready.n)) {
        if (!p->ready.n && p->t < from + p->c[next].at)
            p->t = from + p->c[next].at;
        for (; !rc && next < p->nc && from + p->c[next].at <= p->t; next++)
            rc = take_chance(p, (uint32_t)next);
        if (!rc && vm_use_heap_pop(&p->ready, &top))
            rc = play_copy(p, top, grain);
        if (!p->round && next == p->nc)
            break; /* the rest goes on in the second */
    }
    return rc;
}

/* Plays the link out over the op times of the last simulation, always sending the pages whose room is
 * needed first (earliest deadline first). A piece hangs on the op that releases it, or on a later one that
 * a piece before it hangs on, so that the queue keeps this order and never waits without need. `early`: the
 * link's idle times are used to copy pages that stay, and are to leave after later uses. */
static int play_evictions(struct work *w, const double *end_ns, bool early)
{
    struct play p = {.w = w, .end_ns = end_ns,
                     .page_ns = (double)w->u->page_bytes / w->m->out_bps * 1e9};
    int rc = VM_ENOMEM;

    p.dirty = malloc((w->nev + 1) * sizeof *p.dirty);
    p.early = calloc(w->nev + 1, sizeof *p.early);
    if (p.dirty && p.early)
        rc = find_chances(&p, early);
    for (p.round = early ? 0 : 1; p.round < 2 && !rc; p.round++)
        rc = play_round(&p, grain_of(w));
    vm_use_heap_fini(&p.ready);
    free(p.c);
    free(p.dirty);
    free(p.early);
    return rc;
}

/* end_ns: when each op ends; NULL: each piece hangs on the op that releases it. */
static int place_evictions(struct work *w, const double *end_ns, bool early)
{
    int rc = VM_OK;

    for (size_t i = 0; i < w->nev; i++)
        w->ev[i].release = w->ev[i].use == VM_NONE ? 0 : w->u->uses[w->ev[i].use].op;
    if (w->nev)
        qsort(w->ev, w->nev, sizeof *w->ev, cmp_release);
    if (end_ns)
        return play_evictions(w, end_ns, early);
    for (size_t i = 0; i < w->nev && !rc; i++)
        rc = add_move(w, departure(&w->ev[i], w->ev[i].release, w->ev[i].npages));
    return rc;
}

/* ---- one schedule, and the best of several ----------------------------------------------------*/

void vm_schedule_count(struct vm_schedule *s)
{
    s->out_pages = s->in_pages = 0;
    for (size_t i = 0; i < s->nmoves; i++) {
        s->out_pages += s->moves[i].kind == VM_ACT_OUT ? s->moves[i].npages : 0;
        s->in_pages += s->moves[i].kind == VM_ACT_IN ? s->moves[i].npages : 0;
    }
}

static int simulate(const struct work *w, uint64_t total, struct vm_schedule *s, double *start_ns)
{
    struct vm_sim_options so = {.capacity_pages = total, .knows_dead = 1,
                                .window_ns = w->window_ns};

    s->window_ns = w->window_ns;
    s->moves = w->moves;
    s->nmoves = w->n;
    vm_schedule_count(s);
    return vm_simulate(w->u, w->m, s->moves, s->nmoves, &so, &s->sim, start_ns, NULL);
}

size_t vm_schedule_join(struct vm_move *moves, size_t n)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        struct vm_move *a = kept ? &moves[kept - 1] : NULL, *b = &moves[i];
        if (!b->npages)
            continue;
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
static int time_moves(struct work *w, const double *end_ns, uint64_t total, struct vm_schedule *s,
                      double *start_ns)
{
    int64_t *occ = NULL;

    w->moves = NULL;
    w->n = w->cap = w->nleaves = 0;
    int rc = place_evictions(w, end_ns, w->u->nuses <= VM_LARGE_USES);
    if (!rc)
        occ = occupancy(w);
    if (!rc)
        rc = occ ? place_fetches(w, occ) : VM_ENOMEM;
    free(occ);
    if (!rc)
        rc = vm_schedule_finish(w->u, w->moves, w->n);
    if (!rc) {
        w->n = vm_schedule_join(w->moves, w->n);
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
    int rc = start ? time_moves(w, NULL, total, &best, start) : VM_ENOMEM;

    if (!rc)
        memcpy(start_ns, start, nops * sizeof *start);
    for (unsigned i = 0; i < rounds && !rc; i++) {
        if (best.sim.iteration_ns <= 1.0005 * best.sim.compute_ns)
            break;
        for (size_t k = 0; k < nops; k++)
            start[k] += (double)u->dur_ns[k];
        w->as_placed = i % 2;
        if (time_moves(w, start, total, &s, start))
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
    free(work.leaves);
    if (!rc)
        *out = best;
    return rc;
}

void vm_schedule_fini(struct vm_schedule *s)
{
    free(s->moves);
    memset(s, 0, sizeof *s);
}
