#include "bound.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "fluid.h"
#include "use_heap.h"

#define PERIODS 4 /* iterations that the longest chain may run through */
#define FLUID_USES 200000 /* iterations with more uses are left to the chain */
#define ASCENT_TERMS 400000
#define FULL_ITERATIONS 40000 /* of the solver, where nothing can be gained on a finer grid */
#define DEAD_KEY (UINT64_C(1) << 62)

struct bunit {
    uint32_t res, stamp; /* forward: pages on the device. backward: pages kept */
    uint32_t stored;     /* backward: pages of the version given up            */
    uint32_t in_use;     /* step in which it is in use, plus 1                 */
};

struct run {
    const struct vm_page_units *u;
    const struct vm_machine *m;
    uint64_t capacity;
    uint32_t n;
    uint32_t *version; /* per use: the use that wrote what this use finds; VM_NONE: nobody */
    struct bunit *bu;
    struct vm_use_heap heap;
    struct vm_use_entry *kept;
    size_t nkept, cap_kept;
    uint32_t *point; /* ops that are ends of stretches, ascending */
    size_t npoints;
    uint32_t *point_at; /* nops: index into point or VM_NONE */
    uint32_t *loads, *stores; /* npoints x npoints: [from][to], to is cyclically after from */
    double *prefix;           /* nops + 1: op time before op k */
};

static bool finds_contents(const struct vm_page_units *u, const struct vm_page_unit *un,
                           uint32_t use)
{
    if (use > un->use)
        return (u->uses[use - 1].flags & VM_PU_LIVE_AFTER) != 0;
    return (un->flags & VM_UNIT_CYCLIC) &&
           (u->uses[un->use + un->nuses - 1].flags & VM_PU_LIVE_AFTER);
}

/* Who wrote what a use finds, by walking each unit's uses twice round. */
static void find_versions(struct run *r)
{
    const struct vm_page_units *u = r->u;

    for (size_t i = 0; i < u->nunits; i++) {
        const struct vm_page_unit *un = &u->units[i];
        uint32_t writer = VM_NONE;
        for (uint32_t j = 0; j < 2 * un->nuses; j++) {
            uint32_t use = un->use + j % un->nuses;
            r->version[use] = finds_contents(u, un, use) ? writer : VM_NONE;
            if (u->uses[use].flags & VM_PU_WRITE)
                writer = use;
        }
    }
}

static int keep_entry(struct run *r, struct vm_use_entry e)
{
    if (r->nkept == r->cap_kept) {
        size_t n = r->cap_kept ? 2 * r->cap_kept : 64;
        struct vm_use_entry *p = realloc(r->kept, n * sizeof *p);
        if (!p)
            return VM_ENOMEM;
        r->kept = p;
        r->cap_kept = n;
    }
    r->kept[r->nkept++] = e;
    return VM_OK;
}

static int give_back(struct run *r, int rc)
{
    for (size_t i = 0; i < r->nkept; i++)
        if (vm_use_heap_push(&r->heap, r->kept[i].key, r->kept[i].unit, r->kept[i].stamp))
            rc = VM_ENOMEM;
    r->nkept = 0;
    return rc;
}

/* Takes `over` pages from the units with the largest keys that are not in use in this step. Running
 * out is no error where what remains cannot be moved (pinned). */
static int give_up(struct run *r, uint64_t over, uint32_t step, uint64_t *taken, bool storing)
{
    struct vm_use_entry e;
    int rc = VM_OK;

    *taken = 0;
    while (!rc && over && vm_use_heap_pop(&r->heap, &e)) {
        struct bunit *x = &r->bu[e.unit];
        if (e.stamp != x->stamp || !x->res)
            continue;
        if (x->in_use == step + 1) {
            rc = keep_entry(r, e);
            continue;
        }
        uint32_t n = x->res < over ? x->res : (uint32_t)over;
        x->res -= n;
        x->stored += storing ? n : 0;
        over -= n;
        *taken += n;
        if (x->res)
            rc = keep_entry(r, e);
    }
    return give_back(r, rc);
}

/* The use of a unit (it has some) that is last at or before op `a`, going back round the iteration if
 * it must. */
static uint32_t last_use_at(const struct vm_page_units *u, const struct vm_page_unit *un, uint32_t a)
{
    /* uses are ascending in op from some rotation on */
    uint32_t lo = un->use, hi = un->use + un->nuses;
    uint32_t rot = lo;
    if (u->uses[lo].op > u->uses[hi - 1].op) { /* find the wrap */
        uint32_t x = lo, y = hi - 1;
        while (y - x > 1) {
            uint32_t mid = (x + y) / 2;
            if (u->uses[mid].op >= u->uses[lo].op)
                x = mid;
            else
                y = mid;
        }
        rot = y;
    }
    uint32_t len = un->nuses, x = 0, y = len; /* over uses in op order: lo + (rot - lo + i) % len */
    while (x < y) {
        uint32_t mid = (x + y) / 2;
        if (u->uses[lo + (rot - lo + mid) % len].op <= a)
            x = mid + 1;
        else
            y = mid;
    }
    return lo + (rot - lo + (x ? x - 1 : len - 1)) % len;
}

/* ---- what must come in ------------------------------------------------------------------------*/

static int forward_settle(struct run *r, struct vm_page_ref ref, uint32_t abs, uint32_t k,
                          uint64_t *resident)
{
    const struct vm_page_unit *un = &r->u->units[ref.unit];
    struct bunit *x = &r->bu[ref.unit];
    unsigned wraps;
    uint32_t next = vm_page_next_use(r->u, un, ref.use, &wraps);

    x->stamp++;
    if (un->flags & VM_UNIT_PINNED) {
        if (next == VM_NONE) {
            *resident -= x->res;
            x->res = 0;
        }
        return VM_OK;
    }
    if (next == VM_NONE || !(r->u->uses[ref.use].flags & VM_PU_LIVE_AFTER)) {
        *resident -= x->res; /* dead: it needs no room until its next use, and no fetch then */
        x->res = 0;
        return VM_OK;
    }
    uint64_t key = (uint64_t)abs - k + r->u->uses[next].op + (wraps ? r->n : 0);
    return vm_use_heap_push(&r->heap, key, ref.unit, x->stamp);
}

/* What is on the device at op a if everything that lives then were. */
static int forward_start(struct run *r, uint32_t a, uint64_t *resident)
{
    const struct vm_page_units *u = r->u;
    int rc = VM_OK;

    *resident = 0;
    r->heap.n = 0;
    for (uint32_t i = 0; i < u->nunits && !rc; i++) {
        const struct vm_page_unit *un = &u->units[i];
        struct bunit *x = &r->bu[i];
        x->res = x->stored = x->in_use = 0;
        x->stamp = 0;
        if (!un->nuses) {
            if (un->flags & VM_UNIT_PINNED)
                *resident += un->npages;
            continue;
        }
        uint32_t use = last_use_at(u, un, a);
        unsigned wraps;
        if (u->uses[use].op == a)
            continue; /* the op itself is walked below */
        uint32_t next = vm_page_next_use(u, un, use, &wraps);
        bool pinned = un->flags & VM_UNIT_PINNED;
        if (next == VM_NONE || (!pinned && !(u->uses[use].flags & VM_PU_LIVE_AFTER)))
            continue;
        /* the gap must reach over a */
        uint32_t gap = u->uses[next].op > u->uses[use].op
                           ? u->uses[next].op - u->uses[use].op
                           : u->uses[next].op + r->n - u->uses[use].op;
        uint32_t ago = a > u->uses[use].op ? a - u->uses[use].op : a + r->n - u->uses[use].op;
        if (ago >= gap)
            continue;
        x->res = un->npages;
        *resident += un->npages;
        if (!pinned)
            rc = vm_use_heap_push(&r->heap, (uint64_t)a + gap - ago, i, x->stamp);
    }
    return rc;
}

static int forward(struct run *r, size_t from)
{
    const struct vm_page_units *u = r->u;
    uint32_t a = r->point[from];
    uint64_t resident, loads = 0, taken;
    int rc = forward_start(r, a, &resident);

    for (uint32_t abs = a; abs <= a + r->n && !rc; abs++) {
        uint32_t k = abs % r->n, lo = u->op_first[k], hi = u->op_first[k + 1];
        for (uint32_t i = lo; i < hi; i++) {
            struct vm_page_ref ref = u->refs[i];
            struct bunit *x = &r->bu[ref.unit];
            uint32_t lack = u->units[ref.unit].npages - x->res;
            if (abs > a && finds_contents(u, &u->units[ref.unit], ref.use))
                loads += lack;
            x->in_use = abs + 1;
            x->res += lack;
            resident += lack;
        }
        if (resident > r->capacity) {
            rc = give_up(r, resident - r->capacity, abs, &taken, false);
            resident -= taken;
        }
        for (uint32_t i = lo; i < hi && !rc; i++)
            rc = forward_settle(r, u->refs[i], abs, k, &resident);
        if (abs > a && r->point_at[k] != VM_NONE)
            r->loads[from * r->npoints + r->point_at[k]] =
                loads < UINT32_MAX ? (uint32_t)loads : UINT32_MAX;
    }
    return rc;
}

/* ---- what must go out -------------------------------------------------------------------------*/

/* A version whose last use in the stretch is at op k (absolute `abs`) becomes a candidate. */
static int enter(struct run *r, uint32_t unit, uint32_t writer, uint32_t abs, uint32_t k,
                 uint64_t *kept)
{
    struct bunit *x = &r->bu[unit];
    uint32_t w = r->u->uses[writer].op;
    uint32_t back = k > w ? k - w : k + r->n - w;

    x->res = r->u->units[unit].npages;
    x->stored = 0;
    x->stamp++;
    *kept += x->res;
    if (r->u->units[unit].flags & VM_UNIT_PINNED)
        return VM_OK;
    return vm_use_heap_push(&r->heap, DEAD_KEY - (abs - back), unit, x->stamp);
}

static int backward_start(struct run *r, uint32_t b, uint32_t abs, uint64_t *kept)
{
    const struct vm_page_units *u = r->u;
    uint32_t before = b ? b - 1 : r->n - 1;
    int rc = VM_OK;

    *kept = 0;
    r->heap.n = 0;
    memset(r->bu, 0, u->nunits * sizeof *r->bu);
    for (uint32_t i = 0; i < u->nunits && !rc; i++) {
        const struct vm_page_unit *un = &u->units[i];
        unsigned wraps;
        if (!un->nuses)
            continue;
        uint32_t use = last_use_at(u, un, before);
        uint32_t next = vm_page_next_use(u, un, use, &wraps);
        if (next == VM_NONE || !(u->uses[use].flags & VM_PU_LIVE_AFTER) ||
            r->version[next] == VM_NONE)
            continue;
        uint32_t gap = u->uses[next].op > u->uses[use].op
                           ? u->uses[next].op - u->uses[use].op
                           : u->uses[next].op + r->n - u->uses[use].op;
        uint32_t ago = b > u->uses[use].op ? b - u->uses[use].op : b + r->n - u->uses[use].op;
        if (ago > gap)
            continue;
        rc = enter(r, i, r->version[next], abs, b, kept);
    }
    return rc;
}

/* Pages that op k uses and no candidate stands for: they are there whatever is given up. */
static uint64_t other_pages(struct run *r, uint32_t k, uint32_t abs, bool at_end)
{
    uint64_t n = 0;

    for (uint32_t i = r->u->op_first[k]; i < r->u->op_first[k + 1]; i++) {
        struct vm_page_ref ref = r->u->refs[i];
        struct bunit *x = &r->bu[ref.unit];
        if (!x->res && !x->stored)
            n += r->u->units[ref.unit].npages;
        else if (at_end)
            x->in_use = abs + 1; /* kept or not, it is there */
    }
    return n;
}

/* Walks back over op k: versions written here leave the picture, those last used here come in. */
static int backward_op(struct run *r, uint32_t k, uint32_t abs, uint64_t *kept, uint64_t *stores)
{
    const struct vm_page_units *u = r->u;
    int rc = VM_OK;

    for (uint32_t i = u->op_first[k]; i < u->op_first[k + 1] && !rc; i++) {
        struct vm_page_ref ref = u->refs[i];
        struct bunit *x = &r->bu[ref.unit];
        uint32_t flags = u->uses[ref.use].flags;
        if ((flags & VM_PU_WRITE) && (x->res || x->stored)) {
            *stores += x->stored;
            *kept -= x->res;
            x->res = x->stored = 0;
            x->stamp++;
        }
        if (!x->res && !x->stored && r->version[ref.use] != VM_NONE) {
            rc = enter(r, ref.unit, r->version[ref.use], abs, k, kept);
            x->in_use = abs + 1; /* its last use: it is there in this op whatever happens */
        }
    }
    return rc;
}

static int backward(struct run *r, size_t to)
{
    uint32_t b = r->point[to], top = b + 3 * r->n;
    uint64_t kept, stores = 0, taken;
    int rc = backward_start(r, b, top, &kept);

    for (uint32_t abs = top; abs + r->n >= top && !rc; abs--) {
        uint32_t k = abs % r->n;
        if (abs < top)
            rc = backward_op(r, k, abs, &kept, &stores);
        uint64_t all = kept + other_pages(r, k, abs, abs == top);
        if (!rc && all > r->capacity) {
            rc = give_up(r, all - r->capacity, abs, &taken, true);
            kept -= taken;
        }
        if (abs < top && r->point_at[k] != VM_NONE)
            r->stores[r->point_at[k] * r->npoints + to] =
                stores < UINT32_MAX ? (uint32_t)stores : UINT32_MAX;
    }
    return rc;
}

/* ---- the chain --------------------------------------------------------------------------------*/

static double link_ns(const struct run *r, uint64_t in, uint64_t out)
{
    const struct vm_machine *m = r->m;
    double pb = (double)r->u->page_bytes, i = (double)in * pb, o = (double)out * pb;
    double id = m->in_duplex_bps > 0 ? m->in_duplex_bps : m->in_bps;
    double od = m->out_duplex_bps > 0 ? m->out_duplex_bps : m->out_bps;

    if (id / m->in_bps + od / m->out_bps < 1) { /* better one after the other */
        id = m->in_bps;
        od = 0;
    }
    double both = od > 0 && o / od < i / id ? o / od : i / id;
    double ns = (both + (i - both * id) / m->in_bps + (o - both * od) / m->out_bps) * 1e9;
    /* one direction alone, with the fixed cost of its copies */
    double per_page = m->copy_latency_ns / VM_COPY_PAGES;
    double in_ns = i / m->in_bps * 1e9 + (double)in * per_page;
    double out_ns = o / m->out_bps * 1e9 + (double)out * per_page;
    ns = in_ns > ns ? in_ns : ns;
    return out_ns > ns ? out_ns : ns;
}

/* Longest chain over PERIODS iterations that begins and ends at point 0's place in the iteration. A
 * node is the start of a point's op; weights are op times and stretches. */
static int chain(const struct run *r, double *per_iteration, size_t *from, size_t *to)
{
    size_t p = r->npoints, nodes = PERIODS * p + 1;
    double *f = calloc(nodes, sizeof *f);
    size_t *via = calloc(nodes, sizeof *via);
    double total = r->prefix[r->n];

    if (!f || !via) {
        free(f);
        free(via);
        return VM_ENOMEM;
    }
    for (size_t j = 1; j < nodes; j++) {
        double at = r->prefix[r->point[j % p]] + total * (double)(j / p);
        for (size_t i = j > p ? j - p : 0; i < j; i++) {
            double op = (double)r->u->dur_ns[r->point[i % p]];
            double before = r->prefix[r->point[i % p]] + total * (double)(i / p);
            double w = link_ns(r, r->loads[(i % p) * p + j % p], r->stores[(i % p) * p + j % p]);
            if (at - before > op + w)
                w = at - before - op;
            if (f[i] + op + w > f[j]) {
                f[j] = f[i] + op + w;
                via[j] = i;
            }
        }
    }
    *per_iteration = f[nodes - 1] / PERIODS;
    *from = *to = SIZE_MAX;
    double most = 0;
    for (size_t j = nodes - 1; j > 0; j = via[j]) {
        size_t i = via[j];
        double excess = f[j] - f[i] - (r->prefix[r->point[j % p]] + total * (double)(j / p) -
                                       r->prefix[r->point[i % p]] - total * (double)(i / p));
        if (excess > most) {
            most = excess;
            *from = i % p;
            *to = j % p;
        }
    }
    free(f);
    free(via);
    return VM_OK;
}

/* ---- points -----------------------------------------------------------------------------------*/

static void pick_points(struct run *r, unsigned want)
{
    double total = r->prefix[r->n], next = 0;
    uint32_t work_op = 0;

    vm_page_units_work(r->u, &work_op);
    memset(r->point_at, 0xff, r->n * sizeof *r->point_at);
    r->npoints = 0;
    for (uint32_t k = 0; k < r->n; k++) {
        /* evenly by time and by number, half each */
        bool by_time = r->prefix[k + 1] > next;
        bool by_count = (uint64_t)k * (want / 2 + 1) / r->n !=
                        (uint64_t)(k ? k - 1 : 0) * (want / 2 + 1) / r->n;
        if (!(by_time || by_count || !k || k == work_op || want >= r->n))
            continue;
        while (next < r->prefix[k + 1])
            next += 2 * total / want + 1;
        r->point_at[k] = (uint32_t)r->npoints;
        r->point[r->npoints++] = k;
    }
}

static int run_init(struct run *r)
{
    uint32_t n = r->n;

    r->version = malloc((r->u->nuses + 1) * sizeof *r->version);
    r->bu = calloc(r->u->nunits + 1, sizeof *r->bu);
    r->point = malloc((n + 1) * sizeof *r->point);
    r->point_at = malloc((n + 1) * sizeof *r->point_at);
    r->prefix = calloc(n + 2, sizeof *r->prefix);
    if (!r->version || !r->bu || !r->point || !r->point_at || !r->prefix)
        return VM_ENOMEM;
    for (uint32_t k = 0; k < n; k++)
        r->prefix[k + 1] = r->prefix[k] + (double)r->u->dur_ns[k];
    find_versions(r);
    return VM_OK;
}

static void run_fini(struct run *r)
{
    free(r->version);
    free(r->bu);
    free(r->point);
    free(r->point_at);
    free(r->prefix);
    free(r->loads);
    free(r->stores);
    free(r->kept);
    vm_use_heap_fini(&r->heap);
}

static int run_all(struct run *r, struct vm_bound *b)
{
    size_t from = SIZE_MAX, to = SIZE_MAX;
    int rc = VM_OK;

    r->loads = calloc(r->npoints * r->npoints, sizeof *r->loads);
    r->stores = calloc(r->npoints * r->npoints, sizeof *r->stores);
    if (!r->loads || !r->stores)
        return VM_ENOMEM;
    for (size_t i = 0; i < r->npoints && !rc; i++) {
        rc = forward(r, i);
        if (!rc)
            rc = backward(r, i);
    }
    if (!rc)
        rc = chain(r, &b->ns, &from, &to);
    if (rc)
        return rc;
    b->from = b->to = VM_NONE;
    b->compute_ns = r->prefix[r->n];
    if (b->ns < b->compute_ns)
        b->ns = b->compute_ns;
    for (size_t i = 0; i < r->npoints; i++)
        if (r->loads[i * r->npoints + i] > b->in_pages)
            b->in_pages = r->loads[i * r->npoints + i];
    if (from != SIZE_MAX) {
        b->from = r->point[from];
        b->to = r->point[to] + (to <= from ? r->n : 0);
        b->stretch_in = r->loads[from * r->npoints + to];
        b->stretch_out = r->stores[from * r->npoints + to];
        b->stretch_ns = link_ns(r, b->stretch_in, b->stretch_out);
    }
    return VM_OK;
}

/* The liquid schedule's bound, where it is higher. */
static int add_fluid(const struct vm_page_units *u, const struct vm_machine *m, uint64_t capacity,
                     bool hurry, struct vm_bound *b)
{
    struct vm_fluid_options opt = {.terms = hurry ? 1200 : 8000, .iterations = hurry ? 1000 : 8000,
                                   .full_iterations = hurry ? 0 : FULL_ITERATIONS,
                                   .tolerance = hurry ? 1e-4 : 1e-5, .ascent_terms = hurry ? 0 : ASCENT_TERMS,
                                   .bound_only = 1};
    struct vm_fluid f;

    if (u->nuses > FLUID_USES)
        return VM_OK;
    int rc = vm_fluid_solve(u, m, capacity, &opt, &f);
    if (rc)
        return rc;
    if (b->compute_ns + f.stall_ns > b->ns)
        b->ns = b->compute_ns + f.stall_ns;
    vm_fluid_fini(&f);
    return VM_OK;
}

int vm_bound_build(const struct vm_page_units *u, const struct vm_machine *m, uint64_t capacity,
                   unsigned points, struct vm_bound *out)
{
    struct run r = {.u = u, .m = m, .capacity = capacity, .n = (uint32_t)u->nops};
    struct vm_bound b = {0};

    if (!(m->in_bps > 0) || !(m->out_bps > 0))
        return VM_EINVAL;
    if (vm_page_units_work(u, NULL) > capacity)
        return VM_UNFIT;
    b.from = b.to = VM_NONE;
    int rc = u->nops ? run_init(&r) : VM_OK;
    if (!rc && u->nops) {
        pick_points(&r, points ? points : r.n <= 1024 ? 1024 : 256);
        rc = run_all(&r, &b);
    }
    if (!rc && u->nops)
        rc = add_fluid(u, m, capacity, points > 0, &b);
    run_fini(&r);
    if (!rc)
        *out = b;
    return rc;
}

unsigned vm_bound_points(const struct vm_page_units *u)
{
    size_t n = 4000000 / (u->nuses + 1);

    return n < 4 ? 4 : n > 256 ? 256 : (unsigned)n;
}
