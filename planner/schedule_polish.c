#include "schedule_polish.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "grow.h"
#include "schedule_moves.h"

#define SEED UINT64_C(88172645463325252)
#define LOOKS 16 /* moves of which the one nearest to a wait is taken, at most */
#define FEW 8u   /* pages that a small part has at most */
#define FAR_BITS 5
#define FAR (1u << FAR_BITS) /* ops that a move is shifted at a time, at most */
#define UNSTEADY 1.001 /* an iteration that takes so much longer than the best will not settle below it */
#define WALKS 3u /* from where it starts, each by other random numbers: one alone may end in a poor corner */
#define SCOUT 0.5 /* share of the tries that they have together */
#define MORE 32u /* pages that are sent away besides, at most */

struct moves {
    struct vm_move *m;
    size_t n, cap;
};

struct polish {
    const struct vm_page_units *u;
    const struct vm_machine *m;
    struct vm_sim_options so;
    struct moves now, trial;
    struct vm_sim_result sim;
    double *start, *trial_start; /* nops: of the ops */
    double *waited;              /* nops: waits up to and with each op's */
    uint64_t random;
};

/* Below n; 0 if n is. */
static uint32_t chance(struct polish *p, uint32_t n)
{
    p->random ^= p->random << 13;
    p->random ^= p->random >> 7;
    p->random ^= p->random << 17;
    return (uint32_t)((p->random >> 32) * n >> 32);
}

/* ---- where it waits ---------------------------------------------------------------------------*/

static void add_waits(struct polish *p)
{
    double end = 0, sum = 0;

    for (size_t k = 0; k < p->u->nops; k++) {
        sum += p->start[k] > end ? p->start[k] - end : 0;
        p->waited[k] = sum;
        end = p->start[k] + (double)p->u->dur_ns[k];
    }
}

/* An op, the likelier the longer it waits. */
static uint32_t waiting_op(struct polish *p)
{
    uint32_t lo = 0, hi = (uint32_t)p->u->nops - 1;
    double at = p->waited[hi] * chance(p, 1u << 20) / (1u << 20);

    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (p->waited[mid] > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

static uint32_t apart(const struct polish *p, uint32_t a, uint32_t b)
{
    uint32_t n = (uint32_t)p->u->nops, d = (a % n + n - b) % n;

    return d < n - d ? d : n - d;
}

/* A move that copies something and belongs to a gap; trial.n if none was met. */
static size_t pick(struct polish *p)
{
    uint32_t k = waiting_op(p), looks = 1 + chance(p, LOOKS), least = UINT32_MAX;
    size_t best = p->trial.n;

    for (uint32_t i = 0; i < looks; i++) {
        size_t at = chance(p, (uint32_t)p->trial.n);
        const struct vm_move *mv = &p->trial.m[at];
        if (mv->use == VM_NONE || mv->kind == VM_ACT_DROP)
            continue;
        uint32_t d = apart(p, mv->op, k), need = apart(p, mv->need_op, k);
        d = need < d ? need : d;
        if (d < least) {
            least = d;
            best = at;
        }
    }
    return best;
}

/* ---- gaps ---------------------------------------------------------------------------------------*/

/* From the use before it to the next one. */
struct gap {
    uint32_t unit, use, next;
    uint32_t op, ops; /* op of the use before; ops from there to the next use; 0: it does not come */
};

static struct gap gap_after(const struct polish *p, uint32_t unit, uint32_t use)
{
    struct gap g = {.unit = unit, .use = use, .op = p->u->uses[use].op};
    uint32_t n = (uint32_t)p->u->nops;
    unsigned wraps;

    g.next = vm_page_next_use(p->u, &p->u->units[unit], use, &wraps);
    if (g.next != VM_NONE) {
        uint32_t d = (p->u->uses[g.next].op + n - g.op) % n;
        g.ops = d ? d : n;
    }
    return g;
}

static struct gap gap_of(const struct polish *p, const struct vm_move *mv)
{
    const struct vm_page_unit *un = &p->u->units[mv->unit];
    uint32_t use = mv->use;

    if (mv->kind == VM_ACT_IN)
        use = vm_page_use_before(un, use);
    return gap_after(p, mv->unit, use);
}

/* Hangs a move on the op that comes `off` ops into its gap. */
static void hang(const struct polish *p, struct vm_move *mv, const struct gap *g, uint32_t off)
{
    uint32_t n = (uint32_t)p->u->nops;

    mv->op = (g->op + off) % n;
    if (mv->kind == VM_ACT_IN) {
        uint32_t need = p->u->uses[mv->use].op;
        mv->need_op = need + (mv->op >= need ? n : 0);
    }
}

static uint32_t pages_out(const struct polish *p, uint32_t use)
{
    uint32_t n = 0;

    for (size_t i = 0; i < p->trial.n; i++)
        if (p->trial.m[i].kind == VM_ACT_OUT && p->trial.m[i].use == use)
            n += p->trial.m[i].npages;
    return n;
}

/* ---- changes --------------------------------------------------------------------------------------
 * Each changes the trial and returns whether it did; negative: VM_ENOMEM. */

static uint32_t some_pages(struct polish *p, uint32_t most)
{
    uint32_t how = chance(p, 4);

    if (most <= 1 || how == 0)
        return most;
    if (how == 1)
        return 1;
    return 1 + chance(p, how == 2 && most > FEW ? FEW : most);
}

static uint32_t some_ops(struct polish *p)
{
    return 1 + chance(p, 1u << chance(p, FAR_BITS + 1));
}

static int add(struct polish *p, struct vm_move mv)
{
    if (VM_GROW(p->trial.m, p->trial.cap, p->trial.n + 1))
        return VM_ENOMEM;
    p->trial.m[p->trial.n++] = mv;
    return VM_OK;
}

static void take_away(struct polish *p, size_t i)
{
    p->trial.m[i] = p->trial.m[--p->trial.n];
}

/* Some of its pages hang on another op of the gap. */
static int shift(struct polish *p, size_t i)
{
    struct vm_move part = p->trial.m[i];
    struct gap g = gap_of(p, &part);
    uint32_t n = (uint32_t)p->u->nops, off = (part.op + n - g.op) % n, to = off, step = some_ops(p);

    if (!g.ops)
        return 0;
    uint32_t last = g.ops - 1;
    if (part.kind != VM_ACT_IN && g.op + last >= n)
        last = n - 1 - g.op;
    if (chance(p, 2))
        to = off + step < last ? off + step : last;
    else
        to = off > step ? off - step : 0;
    if (to == off)
        return 0;
    part.npages = some_pages(p, part.npages);
    hang(p, &part, &g, to);
    p->trial.m[i].npages -= part.npages;
    if (p->trial.m[i].npages)
        return add(p, part) ? VM_ENOMEM : 1;
    p->trial.m[i] = part;
    return 1;
}

/* Its pages leave earlier or later in the queue. */
static int reorder(struct polish *p, size_t i)
{
    struct vm_move *mv = &p->trial.m[i];
    uint32_t step = some_ops(p);

    if (mv->kind == VM_ACT_IN)
        return shift(p, i);
    if (chance(p, 2))
        mv->need_op += step;
    else
        mv->need_op = mv->need_op > mv->op + step ? mv->need_op - step : mv->op + 1;
    return 1;
}

/* m pages of a gap stay. */
static void keep(struct polish *p, const struct gap *g, uint32_t m)
{
    for (int in = 0; in < 2; in++) {
        uint32_t left = m;
        for (size_t i = p->trial.n; i-- > 0 && left;) {
            struct vm_move *mv = &p->trial.m[i];
            if (mv->kind != (in ? VM_ACT_IN : VM_ACT_OUT) || mv->use != (in ? g->next : g->use))
                continue;
            uint32_t n = mv->npages < left ? mv->npages : left;
            mv->npages -= n;
            left -= n;
            if (!mv->npages)
                take_away(p, i);
        }
    }
}

/* Up to m more pages leave in gap g, which holds the op `at` ops into it. Returns how many, or VM_ENOMEM. */
static int send(struct polish *p, const struct gap *g, uint32_t at, uint32_t m)
{
    uint32_t n = (uint32_t)p->u->nops, room = g->ops - at;
    uint32_t left = p->u->units[g->unit].npages - pages_out(p, g->use);
    struct vm_move out = {.unit = g->unit, .use = g->use, .need_op = g->op + at, .kind = VM_ACT_OUT,
                          .reason = VM_WHY_CAPACITY};
    struct vm_move in = {.unit = g->unit, .use = g->next, .kind = VM_ACT_IN, .reason = VM_WHY_CAPACITY};

    m = m < left ? m : left;
    if (!m)
        return 0;
    out.npages = in.npages = m;
    out.op = g->op + (chance(p, 2) ? chance(p, at) : 0);
    out.op = out.op < n ? out.op : n - 1;
    hang(p, &in, g, g->ops - 1 - chance(p, room < FAR ? room : FAR));
    return add(p, out) || add(p, in) ? VM_ENOMEM : (int)m;
}

/* The largest of some units: its pages share copies. */
static uint32_t large_unit(struct polish *p)
{
    uint32_t n = (uint32_t)p->u->nunits, best = chance(p, n);

    for (uint32_t more = chance(p, 4); more; more--) {
        uint32_t unit = chance(p, n);
        best = p->u->units[unit].npages > p->u->units[best].npages ? unit : best;
    }
    return best;
}

/* Up to m pages of some gap around op k, but not of `except` (a use), leave. How many; or VM_ENOMEM. */
static int send_some(struct polish *p, uint32_t k, uint32_t m, uint32_t except)
{
    uint32_t n = (uint32_t)p->u->nops;

    for (unsigned looks = 0; looks < 2 * LOOKS; looks++) {
        uint32_t unit = large_unit(p);
        const struct vm_page_unit *un = &p->u->units[unit];
        for (uint32_t use = un->use; use < un->use + un->nuses && !(un->flags & VM_UNIT_PINNED); use++) {
            struct gap g = gap_after(p, unit, use);
            uint32_t at = (k + n - g.op) % n;
            if (use == except || !(p->u->uses[use].flags & VM_PU_LIVE_AFTER) || !at || at >= g.ops)
                continue;
            int sent = send(p, &g, at, m);
            if (sent)
                return sent;
        }
    }
    return 0;
}

/* It goes together with another move of the same pages' gap: one copy carries more. */
static int join(struct polish *p, size_t i)
{
    struct vm_move *mv = &p->trial.m[i];
    size_t n = p->trial.n, from = chance(p, (uint32_t)n);

    for (size_t k = 0; k < n; k++) {
        const struct vm_move *to = &p->trial.m[(from + k) % n];
        if (to == mv || to->use != mv->use || to->kind != mv->kind || to->unit != mv->unit)
            continue;
        mv->op = to->op;
        mv->need_op = to->need_op;
        return 1;
    }
    return 0;
}

/* Some of its pages stay; others leave instead, if they are to. */
static int stay(struct polish *p, size_t i, bool instead)
{
    struct vm_move mv = p->trial.m[i];
    struct gap g = gap_of(p, &mv);
    uint32_t n = (uint32_t)p->u->nops, m = some_pages(p, mv.npages);

    if (mv.kind == VM_ACT_COPY) {
        take_away(p, i);
        return 1;
    }
    if (instead) {
        int sent = send_some(p, mv.need_op % n, m, g.use);
        if (sent <= 0)
            return sent;
        m = (uint32_t)sent;
    }
    keep(p, &g, m);
    return 1;
}

static int change(struct polish *p)
{
    size_t i = p->trial.n ? pick(p) : 0;
    uint32_t how = chance(p, 9);

    if (i == p->trial.n)
        return 0;
    if (how == 8)
        return join(p, i);
    if (how < 4)
        return shift(p, i);
    if (how == 4)
        return reorder(p, i);
    if (how < 7)
        return stay(p, i, how == 5);
    return send_some(p, waiting_op(p), 1 + chance(p, MORE), VM_NONE);
}

/* ---- trials -------------------------------------------------------------------------------------*/

/* One to three changes; positive if there was any. */
static int change_some(struct polish *p)
{
    unsigned times = 1u + (chance(p, 3) == 0 ? 1u : 0u) + (chance(p, 4) == 0 ? 1u : 0u);
    int any = 0;

    if (VM_GROW(p->trial.m, p->trial.cap, p->now.n + 1))
        return VM_ENOMEM;
    if (p->now.n)
        memcpy(p->trial.m, p->now.m, p->now.n * sizeof *p->now.m);
    p->trial.n = p->now.n;
    while (times--) {
        int rc = change(p);
        if (rc < 0)
            return rc;
        any |= rc;
    }
    return any;
}

static void keep_trial(struct polish *p, const struct vm_sim_result *r)
{
    struct moves moves = p->now;
    double *start = p->start;

    p->now = p->trial;
    p->trial = moves;
    p->start = p->trial_start;
    p->trial_start = start;
    p->sim = *r;
    add_waits(p);
}

static int attempt(struct polish *p)
{
    struct vm_sim_result r;
    int rc = change_some(p);

    if (rc <= 0)
        return rc;
    rc = vm_schedule_finish(p->u, p->trial.m, p->trial.n);
    if (rc)
        return rc;
    p->trial.n = vm_schedule_join(p->trial.m, p->trial.n);
    p->so.limit_ns = UNSTEADY * p->sim.iteration_ns;
    rc = vm_simulate(p->u, p->m, p->trial.m, p->trial.n, &p->so, &r, p->trial_start, NULL);
    if (!rc && r.iteration_ns <= p->sim.iteration_ns && r.demand_pages <= p->sim.demand_pages)
        keep_trial(p, &r);
    return rc == VM_UNFIT ? VM_OK : rc;
}

static int polish_init(struct polish *p, const struct vm_schedule *s, const double *start_ns)
{
    size_t n = p->u->nops;

    p->start = malloc((n + 1) * sizeof *p->start);
    p->trial_start = malloc((n + 1) * sizeof *p->trial_start);
    p->waited = malloc((n + 1) * sizeof *p->waited);
    if (!p->start || !p->trial_start || !p->waited || VM_GROW(p->now.m, p->now.cap, s->nmoves + 1))
        return VM_ENOMEM;
    if (s->nmoves)
        memcpy(p->now.m, s->moves, s->nmoves * sizeof *s->moves);
    p->now.n = s->nmoves;
    memcpy(p->start, start_ns, n * sizeof *p->start);
    add_waits(p);
    return VM_OK;
}

/* Hands what was found over to *s. */
static void take_result(struct polish *p, struct vm_schedule *s, double *start_ns)
{
    struct vm_move *before = s->moves;

    s->moves = p->now.m;
    s->nmoves = p->now.n;
    s->sim = p->sim;
    p->now.m = before;
    vm_schedule_count(s);
    memcpy(start_ns, p->start, p->u->nops * sizeof *start_ns);
}

static void polish_fini(struct polish *p)
{
    free(p->now.m);
    free(p->trial.m);
    free(p->start);
    free(p->trial_start);
    free(p->waited);
}

static int walk(struct polish *p, unsigned tries, double enough_ns)
{
    int rc = VM_OK;

    for (; tries && !rc && p->sim.iteration_ns > enough_ns; tries--)
        rc = attempt(p);
    return rc;
}

/* The best of WALKS walks from *s, of which *p is at the start of the first. */
static int best_walk(const struct vm_schedule *s, const double *start_ns, unsigned tries, double enough_ns,
                     struct polish *p)
{
    int rc = walk(p, tries, enough_ns);

    for (unsigned i = 1; i < WALKS && !rc && p->sim.iteration_ns > enough_ns; i++) {
        struct polish other = {.u = p->u, .m = p->m, .sim = s->sim, .random = SEED * (2 * i + 1), .so = p->so};
        rc = polish_init(&other, s, start_ns);
        rc = rc ? rc : walk(&other, tries, enough_ns);
        if (!rc && other.sim.iteration_ns < p->sim.iteration_ns) {
            struct polish worse = *p;
            *p = other;
            other = worse;
        }
        polish_fini(&other);
    }
    return rc;
}

int vm_schedule_polish(const struct vm_page_units *u, const struct vm_machine *m, uint64_t capacity,
                       unsigned tries, bool walks, double enough_ns, struct vm_schedule *s, double *start_ns)
{
    struct polish p = {.u = u, .m = m, .sim = s->sim, .random = SEED,
                       .so = {.capacity_pages = capacity, .knows_dead = 1, .window_ns = s->window_ns}};
    unsigned each = walks ? (unsigned)(SCOUT * tries / WALKS) : 0;
    int rc = u->nops ? polish_init(&p, s, start_ns) : VM_OK;

    if (u->nops && walks)
        rc = rc ? rc : best_walk(s, start_ns, each, enough_ns, &p);
    if (u->nops)
        rc = rc ? rc : walk(&p, tries - each * WALKS, enough_ns);
    if (!rc && u->nops)
        take_result(&p, s, start_ns);
    polish_fini(&p);
    return rc;
}
