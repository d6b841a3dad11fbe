#include "small.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

uint64_t small_random(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint32_t below(uint64_t *s, uint32_t n)
{
    return (uint32_t)(small_random(s) % n);
}

static void small_blocks(uint64_t *s, const struct small_shape *h, struct vm_iteration *it,
                         uint64_t *offsets)
{
    uint64_t at = 0;

    for (uint32_t i = 0; i < h->blocks; i++) {
        struct vm_iter_block *b = &it->blocks[i];
        bool persistent = below(s, 2) == 0;
        uint32_t pages = 1 + below(s, h->max_pages);
        b->size = (uint64_t)pages * SMALL_PAGE;
        b->fixed_offset = VM_UNPLACED;
        b->alloc_op = persistent ? 0 : below(s, h->ops);
        b->free_op = persistent ? h->ops : b->alloc_op + 1 + below(s, h->ops - b->alloc_op);
        b->flags = persistent ? VM_BLK_PERSISTENT : 0;
        offsets[i] = at;
        at += b->size;
    }
}

void small_iteration(uint64_t seed, const struct small_shape *h, struct vm_iteration *it,
                     uint64_t **offsets)
{
    static const uint8_t modes[] = {VM_READ, VM_READ, VM_RW, VM_WRITE | VM_TOTAL};
    uint64_t s = seed;

    memset(it, 0, sizeof *it);
    it->nops = h->ops;
    it->nblocks = h->blocks;
    it->ops = calloc(h->ops, sizeof *it->ops);
    it->blocks = calloc(h->blocks, sizeof *it->blocks);
    it->accesses = calloc((size_t)h->ops * h->max_accesses, sizeof *it->accesses);
    *offsets = calloc(h->blocks, sizeof **offsets);
    small_blocks(&s, h, it, *offsets);
    for (uint32_t k = 0; k < h->ops; k++) {
        struct vm_iter_op *op = &it->ops[k];
        op->dur_ns = (uint64_t)(1 + below(&s, h->max_ticks)) * SMALL_TICK;
        op->acc = (uint32_t)it->naccesses;
        for (uint32_t j = 0; j < h->max_accesses; j++) {
            uint32_t b = below(&s, h->blocks);
            if (it->blocks[b].alloc_op > k || it->blocks[b].free_op <= k)
                continue;
            it->accesses[it->naccesses++] =
                (struct vm_access){.block = b, .mode = modes[below(&s, 4)]};
            op->nacc++;
        }
    }
}

struct vm_machine small_machine(uint32_t ticks)
{
    double bps = (double)SMALL_PAGE / ((double)ticks * SMALL_TICK) * 1e9;

    return (struct vm_machine){.page_bytes = SMALL_PAGE, .device_bytes = SMALL_PAGE,
                               .out_bps = bps, .in_bps = bps};
}

/* ---- exhaustive search ------------------------------------------------------------------------*/

/* One state, packed: op that runs or is next, whether it runs, ticks left, iterations done, resident and
 * copied pages, what is in flight each way. */
struct state {
    uint32_t op, running, left, iteration;
    uint32_t res, host; /* bit sets over units */
    uint32_t out, out_left, in, in_left; /* unit + 1, 0 = idle */
};

struct search {
    const struct vm_page_units *u;
    const struct state *home; /* NULL: any state ends the search; else only this one */
    uint32_t capacity, copy, iterations, max_states;
    uint32_t live[SMALL_OPS], used[SMALL_OPS]; /* by op, bit sets over units */
    uint64_t *table; /* open addressing, 0 = empty */
    size_t mask, count;
    struct state *now, *next;
    size_t nnow, nnext, cap_now, cap_next;
    bool done, overflow;
};

static uint64_t packed(const struct state *s)
{
    uint64_t x = s->op;
    x = x * 2 + s->running;
    x = x * 8 + s->left;
    x = x * 8 + s->iteration;
    x = x * 64 + s->res;
    x = x * 64 + s->host;
    x = x * 8 + s->out;
    x = x * 8 + s->out_left;
    x = x * 8 + s->in;
    return x * 8 + s->in_left + 1;
}

static bool insert(struct search *q, uint64_t key)
{
    size_t i = (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 20) & q->mask;

    while (q->table[i]) {
        if (q->table[i] == key)
            return false;
        i = (i + 1) & q->mask;
    }
    if (q->count * 2 > q->mask || q->count > q->max_states) {
        q->overflow = true;
        return false;
    }
    q->table[i] = key;
    q->count++;
    return true;
}

static void emit(struct search *q, const struct state *s)
{
    if (!insert(q, packed(s)))
        return;
    if (q->nnext == q->cap_next) {
        q->cap_next = q->cap_next ? 2 * q->cap_next : 1024;
        q->next = realloc(q->next, q->cap_next * sizeof *q->next);
    }
    q->next[q->nnext++] = *s;
}

static uint32_t find_uses(const struct search *q, uint32_t op)
{
    uint32_t set = 0;
    for (uint32_t r = q->u->op_first[op]; r < q->u->op_first[op + 1]; r++)
        set |= 1u << q->u->refs[r].unit;
    return set;
}

/* Units whose contents matter just before op `op` (of those that exist). */
static uint32_t find_live(const struct search *q, uint32_t op)
{
    uint32_t set = 0, n = (uint32_t)q->u->nops;

    for (uint32_t i = 0; i < q->u->nunits; i++) {
        const struct vm_page_unit *un = &q->u->units[i];
        bool live = !un->nuses; /* nobody uses it: it need not be anywhere */
        if (!un->nuses)
            continue;
        for (uint32_t j = 0; j < un->nuses; j++) {
            unsigned wraps;
            uint32_t use = un->use + j, next = vm_page_next_use(q->u, un, use, &wraps);
            if (next == VM_NONE || !(q->u->uses[use].flags & VM_PU_LIVE_AFTER))
                continue;
            uint32_t from = q->u->uses[use].op, to = q->u->uses[next].op + (wraps ? n : 0);
            live |= (op > from && op <= to) || (op + n > from && op + n <= to);
        }
        set |= live ? 1u << i : 0;
    }
    return set;
}

static uint32_t live_before(const struct search *q, uint32_t op)
{
    return q->live[op];
}

static uint32_t uses_of(const struct search *q, uint32_t op)
{
    return q->used[op];
}

static uint32_t bits(uint32_t x)
{
    uint32_t n = 0;
    for (; x; x &= x - 1)
        n++;
    return n;
}

static void advance(struct search *q, struct state s)
{
    if (s.running && --s.left == 0) {
        s.running = 0;
        if (++s.op == q->u->nops) {
            s.op = 0;
            s.iteration++;
        }
        s.res &= live_before(q, s.op);
    }
    if (s.out && --s.out_left == 0) {
        s.host |= 1u << (s.out - 1); /* it may stay, or be dropped at once: expand() */
        s.out = 0;
    }
    if (s.in && --s.in_left == 0) {
        s.res |= 1u << (s.in - 1);
        s.in = 0;
    }
    emit(q, &s);
}

static void copies(struct search *q, struct state s)
{
    uint32_t n = (uint32_t)q->u->nunits, live = live_before(q, s.op);
    uint32_t held = s.running ? uses_of(q, s.op) : 0;

    for (uint32_t o = 0; o <= n; o++) {
        struct state t = s;
        if (o) {
            if (s.out || !(s.res >> (o - 1) & 1) || (s.host >> (o - 1) & 1) || (held >> (o - 1) & 1))
                continue;
            t.out = o;
            t.out_left = q->copy;
        }
        advance(q, t);
        for (uint32_t i = 1; i <= n && !t.in; i++) {
            if ((t.res >> (i - 1) & 1) || !(t.host >> (i - 1) & 1) || (held >> (i - 1) & 1) ||
                !(live >> (i - 1) & 1) || bits(t.res) + 1 > q->capacity)
                continue;
            struct state w = t;
            w.in = i;
            w.in_left = q->copy;
            advance(q, w);
        }
    }
}

/* Is all as it was at the start: on the device, copied, nothing in flight? */
static bool at_home(const struct search *q, const struct state *s)
{
    return s->res == q->home->res && s->host == q->home->host && !s->out && !s->in;
}

/* Every set of droppable pages may go; then the op may start; then copies may. */
static void expand(struct search *q, const struct state *s)
{
    uint32_t held = s->running ? uses_of(q, s->op) : 0;
    uint32_t flight = s->out ? 1u << (s->out - 1) : 0;
    uint32_t drop = s->res & s->host & ~held & ~flight;

    for (uint32_t sub = drop;; sub = (sub - 1) & drop) {
        struct state t = *s;
        t.res &= ~sub;
        uint32_t space = bits(t.res) + (t.in != 0);
        if (!t.running) {
            uint32_t set = uses_of(q, t.op), need = set & live_before(q, t.op);
            uint32_t fresh = set & ~t.res;
            bool coming = t.in && (set >> (t.in - 1) & 1);
            if (!(need & ~t.res) && !(need & flight) && !coming && space + bits(fresh) <= q->capacity) {
                struct state w = t;
                w.res |= set;
                for (uint32_t r = q->u->op_first[t.op]; r < q->u->op_first[t.op + 1]; r++)
                    if (q->u->uses[q->u->refs[r].use].flags & VM_PU_WRITE) {
                        uint32_t unit = q->u->refs[r].unit;
                        w.host &= ~(1u << unit);
                        if (w.out == unit + 1)
                            w.out = w.out_left = 0;
                    }
                w.running = 1;
                w.left = (uint32_t)(q->u->dur_ns[t.op] / SMALL_TICK);
                if (w.iteration == q->iterations && (!q->home || at_home(q, s))) {
                    q->done = true;
                    return;
                }
                if (w.iteration < q->iterations)
                    copies(q, w);
            }
        }
        copies(q, t);
        if (!sub)
            break;
    }
}

/* At the start of op 0: any set of pages that matter may be there, every one may have its copy. */
static void first_states(struct search *q)
{
    uint32_t set = uses_of(q, 0), live = live_before(q, 0);

    for (uint32_t sub = live;; sub = (sub - 1) & live) {
        struct state s = {.res = sub, .host = (1u << q->u->nunits) - 1};
        if (bits(sub | set) <= q->capacity)
            emit(q, &s);
        if (!sub)
            break;
    }
}

/* Ticks to the end of the search, if below `limit`. */
static uint32_t search(struct search *q, uint32_t limit)
{
    uint32_t t = 0;

    for (; q->nnext && !q->done && !q->overflow && t < limit; t++) {
        struct state *swap = q->now;
        size_t cap = q->cap_now;
        q->now = q->next;
        q->cap_now = q->cap_next;
        q->nnow = q->nnext;
        q->next = swap;
        q->cap_next = cap;
        q->nnext = 0;
        for (size_t i = 0; i < q->nnow && !q->done && !q->overflow; i++)
            expand(q, &q->now[i]);
        if (q->done)
            break;
    }
    return q->done ? t : UINT32_MAX;
}

static void search_init(struct search *q)
{
    size_t size = 1024;

    while (size < 4 * (size_t)q->max_states)
        size *= 2;
    q->mask = size - 1;
    q->table = calloc(size, sizeof *q->table);
    for (uint32_t k = 0; k < q->u->nops && k < SMALL_OPS; k++) {
        q->live[k] = find_live(q, k);
        q->used[k] = find_uses(q, k);
    }
}

static void search_fini(struct search *q)
{
    free(q->table);
    free(q->now);
    free(q->next);
}

uint32_t small_optimum(const struct vm_page_units *u, uint32_t capacity, uint32_t copy_ticks,
                       uint32_t iterations, uint32_t max_states)
{
    struct search q = {.u = u, .capacity = capacity, .copy = copy_ticks, .iterations = iterations,
                       .max_states = max_states};

    search_init(&q);
    first_states(&q);
    uint32_t t = search(&q, UINT32_MAX);
    search_fini(&q);
    return t;
}

uint32_t small_cycle(const struct vm_page_units *u, uint32_t capacity, uint32_t copy_ticks,
                     uint32_t iterations, uint32_t max_states)
{
    struct search q = {.u = u, .capacity = capacity, .copy = copy_ticks, .iterations = iterations,
                       .max_states = max_states};
    uint32_t all = (1u << u->nunits) - 1, limit = 1, best, live;

    for (size_t k = 0; k < u->nops; k++) /* every page of every op out and in before it */
        limit += iterations * (uint32_t)(u->dur_ns[k] / SMALL_TICK +
                                         2 * copy_ticks * (u->op_first[k + 1] - u->op_first[k]));
    best = limit;

    search_init(&q);
    live = live_before(&q, 0);
    for (uint32_t res = live;; res = (res - 1) & live) {
        for (uint32_t dirty = res; bits(res | uses_of(&q, 0)) <= capacity; dirty = (dirty - 1) & res) {
            struct state home = {.res = res, .host = all & ~dirty};
            memset(q.table, 0, (q.mask + 1) * sizeof *q.table);
            q.count = q.nnext = 0;
            q.done = q.overflow = false;
            q.home = &home;
            emit(&q, &home);
            uint32_t t = search(&q, best);
            if (q.overflow) {
                search_fini(&q);
                return UINT32_MAX;
            }
            best = t < best ? t : best;
            if (!dirty)
                break;
        }
        if (!res)
            break;
    }
    search_fini(&q);
    return best < limit ? best : UINT32_MAX;
}
