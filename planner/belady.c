#include "belady.h"

#include <stdlib.h>
#include <string.h>

#include "use_heap.h"

#define DEAD_KEY (UINT64_C(1) << 62) /* dead pages leave before all others */
#define IDLE_TRIES 64

struct bel_unit {
    uint32_t res, use, stamp;
    uint32_t clean;  /* pages [npages - clean, npages) have a valid host copy */
    uint64_t in_use; /* absolute op plus 1 */
    uint64_t held;   /* absolute op before which it must not leave */
    uint64_t next;   /* absolute op of its next use; DEAD_KEY more where it is dead */
};

/* A unit that is to be back before its use. */
struct hold {
    uint32_t unit, use, lead, from; /* from: the op at which it is back */
};

struct belady {
    const struct vm_page_units *u;
    struct bel_unit *bu;
    struct vm_use_heap heap;  /* all units that may leave                           */
    struct vm_use_heap clean; /* those of them whose last pages need no copy out    */
    struct vm_use_heap idle;  /* all again, those used first on top                 */
    enum vm_belady_rule rule;
    uint32_t *relief;         /* per op: ops until less room is lacking than at it  */
    uint64_t resident, capacity;
    uint64_t pass;
    struct vm_eviction *list;
    size_t n, cap;
    struct vm_use_entry *kept;
    size_t nkept, cap_kept;
    const struct vm_belady_wishes *wishes;
    struct hold *holds; /* by op */
    uint32_t *hold_at;  /* nops + 1 */
};

/* The wish for the use that ends the gap after `use`. */
static uint32_t lead_after(const struct belady *b, uint32_t unit, uint32_t use)
{
    unsigned wraps;
    uint32_t next;

    if (use == VM_NONE || !b->wishes || !b->wishes->lead)
        return 0;
    next = vm_page_next_use(b->u, &b->u->units[unit], use, &wraps);
    return next == VM_NONE ? 0 : b->wishes->lead[next];
}

static int note(struct belady *b, uint32_t unit, uint32_t npages, uint32_t k, bool dead)
{
    if (b->n == b->cap) {
        size_t n = b->cap ? 2 * b->cap : 256;
        struct vm_eviction *p = realloc(b->list, n * sizeof *p);
        if (!p)
            return VM_ENOMEM;
        b->list = p;
        b->cap = n;
    }
    uint32_t use = b->bu[unit].use;
    bool before = use == VM_NONE || b->u->uses[use].op >= k; /* used last in the iteration before */
    uint32_t need = before ? k + (uint32_t)b->u->nops : k;
    if (b->n) { /* grows the eviction made just before for the same gap and op */
        struct vm_eviction *l = &b->list[b->n - 1];
        if (l->unit == unit && l->use == use && l->need_op == need) {
            l->npages += npages;
            return VM_OK;
        }
    }
    b->list[b->n++] = (struct vm_eviction){.unit = unit, .use = use, .npages = npages, .need_op = need,
                                           .dead = dead, .lead = lead_after(b, unit, use)};
    return VM_OK;
}

static int keep(struct belady *b, struct vm_use_entry e)
{
    if (b->nkept == b->cap_kept) {
        size_t n = b->cap_kept ? 2 * b->cap_kept : 64;
        struct vm_use_entry *p = realloc(b->kept, n * sizeof *p);
        if (!p)
            return VM_ENOMEM;
        b->kept = p;
        b->cap_kept = n;
    }
    b->kept[b->nkept++] = e;
    return VM_OK;
}

/* Of the units that need not be back before op `until`, the one used longest ago; looks at IDLE_TRIES of
 * them at most. Dead pages are left to the caller: they go first whatever the rule. */
static bool longest_idle(struct belady *b, uint64_t abs, uint64_t until, struct vm_use_entry *e)
{
    struct vm_use_entry passed[IDLE_TRIES], top;
    size_t n = 0;
    bool found = false;

    if (b->heap.n && b->heap.e[0].key >= DEAD_KEY)
        return false;
    while (!found && n < IDLE_TRIES && vm_use_heap_pop(&b->idle, &top)) {
        struct bel_unit *x = &b->bu[top.unit];
        if (top.stamp != x->stamp || !x->res)
            continue;
        passed[n++] = top;
        found = x->in_use != abs + 1 && x->held <= abs && x->next >= until && x->next < DEAD_KEY;
    }
    if (found)
        *e = (struct vm_use_entry){b->bu[top.unit].next, top.unit, top.stamp};
    for (size_t i = 0; i < n; i++)
        if (vm_use_heap_push(&b->idle, passed[i].key, passed[i].unit, passed[i].stamp))
            return false;
    return found;
}

/* The unit to take pages from at op `abs`, and how many at most without a copy (0: copies needed).
 * A clean one costs half as much link time; it does as well as any other if it stays away until less
 * room is lacking than now. VM_UNFIT when there is none. */
static int choose(struct belady *b, uint32_t k, uint64_t abs, struct vm_use_entry *e, bool *clean)
{
    while (vm_use_heap_pop(&b->clean, e)) {
        struct bel_unit *x = &b->bu[e->unit];
        if (e->stamp != x->stamp || x->in_use == abs + 1 || x->held > abs || !x->res)
            continue;
        uint32_t gone = b->u->units[e->unit].npages - x->res;
        if (x->clean <= gone)
            continue;
        if (e->key >= abs + b->relief[k]) {
            *clean = true;
            return VM_OK;
        }
        if (vm_use_heap_push(&b->clean, e->key, e->unit, e->stamp))
            return VM_ENOMEM;
        break;
    }
    *clean = false;
    if (b->rule == VM_BELADY_IDLE && longest_idle(b, abs, abs + b->relief[k], e))
        return VM_OK;
    return vm_use_heap_pop(&b->heap, e) ? VM_OK : VM_UNFIT;
}

static int make_room(struct belady *b, uint64_t need, uint32_t k, uint64_t abs)
{
    struct vm_use_entry e;
    bool clean;
    int rc = VM_OK;

    b->nkept = 0;
    while (!rc && b->resident + need > b->capacity) {
        rc = choose(b, k, abs, &e, &clean);
        if (rc)
            break;
        struct bel_unit *x = &b->bu[e.unit];
        if (e.stamp != x->stamp || !x->res)
            continue;
        if (x->in_use == abs + 1 || x->held > abs) {
            rc = keep(b, e);
            continue;
        }
        uint64_t over = b->resident + need - b->capacity;
        uint32_t n = x->res < over ? x->res : (uint32_t)over;
        uint32_t free_of_copy = x->clean - (b->u->units[e.unit].npages - x->res);
        if (clean && n > free_of_copy)
            n = free_of_copy;
        x->res -= n;
        b->resident -= n;
        if (x->clean < b->u->units[e.unit].npages - x->res)
            x->clean = b->u->units[e.unit].npages - x->res;
        rc = note(b, e.unit, n, k, e.key >= DEAD_KEY);
        if (!rc && x->res && !clean)
            rc = keep(b, e); /* twice in the heap does no harm */
    }
    for (size_t i = 0; i < b->nkept; i++)
        if (vm_use_heap_push(&b->heap, b->kept[i].key, b->kept[i].unit, b->kept[i].stamp))
            rc = VM_ENOMEM;
    return rc;
}

static bool is_current(void *arg, const struct vm_use_entry *e)
{
    const struct belady *b = arg;
    return b->bu[e->unit].stamp == e->stamp && b->bu[e->unit].res;
}

/* Entries are left behind at every use; they must not outgrow the units. */
static void tidy(struct belady *b, struct vm_use_heap *h)
{
    if (h->n > 2 * b->u->nunits + 1024)
        vm_use_heap_filter(h, is_current, b);
}

static int settle(struct belady *b, struct vm_page_ref ref, uint32_t k, uint64_t abs)
{
    const struct vm_page_unit *un = &b->u->units[ref.unit];
    struct bel_unit *x = &b->bu[ref.unit];
    unsigned wraps;
    uint32_t next = vm_page_next_use(b->u, un, ref.use, &wraps);

    x->use = ref.use;
    x->stamp++;
    if (b->u->uses[ref.use].flags & VM_PU_WRITE)
        x->clean = 0;
    if (next == VM_NONE) { /* the blocks are freed: their pages are free without a move */
        b->resident -= x->res;
        x->res = 0;
        return VM_OK;
    }
    if (un->flags & VM_UNIT_PINNED)
        return VM_OK;
    uint64_t key = abs - k + b->u->uses[next].op + (wraps ? b->u->nops : 0);
    if (!(b->u->uses[ref.use].flags & VM_PU_LIVE_AFTER))
        key += DEAD_KEY;
    x->next = key;
    if (b->rule == VM_BELADY_IDLE &&
        vm_use_heap_push(&b->idle, UINT64_MAX - abs, ref.unit, x->stamp))
        return VM_ENOMEM;
    if (key < DEAD_KEY && x->clean && vm_use_heap_push(&b->clean, key, ref.unit, x->stamp))
        return VM_ENOMEM;
    return vm_use_heap_push(&b->heap, key, ref.unit, x->stamp);
}

/* Units that the wishes want back at op k: their pages count as needed, and stay until their use. */
static uint64_t begin_holds(struct belady *b, uint32_t k, uint64_t abs)
{
    uint64_t need = 0;

    for (uint32_t i = b->hold_at[k]; i < b->hold_at[k + 1]; i++) {
        const struct hold *h = &b->holds[i];
        const struct vm_page_unit *un = &b->u->units[h->unit];
        struct bel_unit *x = &b->bu[h->unit];
        uint32_t before = vm_page_use_before(un, h->use);
        if (x->use != before)
            continue; /* the first pass: it is not there yet */
        x->held = abs + h->lead;
        x->in_use = abs + 1;
        need += un->npages - x->res;
    }
    return need;
}

static void end_holds(struct belady *b, uint32_t k, uint64_t abs)
{
    for (uint32_t i = b->hold_at[k]; i < b->hold_at[k + 1]; i++)
        if (b->bu[b->holds[i].unit].held == abs + b->holds[i].lead)
            b->bu[b->holds[i].unit].res = b->u->units[b->holds[i].unit].npages;
}

static int find_holds(struct belady *b)
{
    uint32_t n = (uint32_t)b->u->nops;
    const uint32_t *lead = b->wishes ? b->wishes->lead : NULL;
    size_t count = 0;

    for (size_t i = 0; i < b->u->nuses && lead; i++)
        count += lead[i] > 0;
    b->hold_at = calloc(n + 2, sizeof *b->hold_at);
    b->holds = malloc((count + 1) * sizeof *b->holds);
    if (!b->hold_at || !b->holds)
        return VM_ENOMEM;
    for (uint32_t pass = 0; pass < 2 && lead; pass++) {
        for (uint32_t i = 0; i < b->u->nunits; i++)
            for (uint32_t j = 0; j < b->u->units[i].nuses; j++) {
                uint32_t use = b->u->units[i].use + j;
                if (!lead[use])
                    continue;
                uint32_t from = (b->u->uses[use].op + n - lead[use]) % n;
                if (!pass)
                    b->hold_at[from + 2]++;
                else
                    b->holds[b->hold_at[from + 1]++] = (struct hold){i, use, lead[use], from};
            }
        for (uint32_t k = 0; k < n && !pass; k++)
            b->hold_at[k + 2] += b->hold_at[k + 1];
    }
    return VM_OK;
}

static int one_pass(struct belady *b)
{
    int rc = VM_OK;

    for (uint32_t k = 0; k < b->u->nops && !rc; k++) {
        uint64_t abs = b->pass * b->u->nops + k, need = 0;
        uint32_t lo = b->u->op_first[k], hi = b->u->op_first[k + 1];
        for (uint32_t r = lo; r < hi; r++) {
            struct bel_unit *x = &b->bu[b->u->refs[r].unit];
            x->in_use = abs + 1;
            need += b->u->units[b->u->refs[r].unit].npages - x->res;
        }
        need += begin_holds(b, k, abs);
        uint64_t extra = b->wishes && b->wishes->extra ? b->wishes->extra[k] : 0;
        if (need || extra)
            rc = make_room(b, need + extra, k, abs);
        b->resident += need;
        end_holds(b, k, abs);
        for (uint32_t r = lo; r < hi && !rc; r++)
            b->bu[b->u->refs[r].unit].res = b->u->units[b->u->refs[r].unit].npages;
        for (uint32_t r = lo; r < hi && !rc; r++)
            rc = settle(b, b->u->refs[r], k, abs);
        tidy(b, &b->heap);
        tidy(b, &b->clean);
        tidy(b, &b->idle);
    }
    b->pass++;
    return rc;
}

/* Did the pass end with every unit as far on the device as it began? */
static bool returned(const struct belady *b, uint32_t *snapshot)
{
    bool same = true;

    for (size_t i = 0; i < b->u->nunits; i++) {
        same &= snapshot[i] == b->bu[i].res;
        snapshot[i] = b->bu[i].res;
    }
    return same;
}

static int unused_units(struct belady *b)
{
    int rc = VM_OK;

    for (uint32_t i = 0; i < b->u->nunits && !rc; i++) {
        const struct vm_page_unit *un = &b->u->units[i];
        if (un->nuses || !(un->flags & VM_UNIT_CYCLIC))
            continue;
        if (un->flags & VM_UNIT_PINNED)
            b->resident += un->npages;
        else if (vm_page_units_peak(b->u) > b->capacity)
            rc = note(b, i, un->npages, 0, false);
    }
    return rc;
}

/* For each op k: how many ops until, for the rest of the stretch in which room is lacking, less of it is
 * lacking than at k. A page that stays away so long has been of use all the while. */
static int find_relief(struct belady *b)
{
    uint32_t n = (uint32_t)b->u->nops, depth = 0, origin = 0;
    uint32_t *pages = malloc((n + 1) * sizeof *pages), *stack = malloc((n + 1) * sizeof *stack);

    b->relief = malloc((n + 1) * sizeof *b->relief);
    if (!pages || !stack || !b->relief || vm_page_units_curve(b->u, pages)) {
        free(pages);
        free(stack);
        return VM_ENOMEM;
    }
    for (uint32_t k = 0; k < n; k++)
        if (pages[k] < pages[origin])
            origin = k;
    /* from the emptiest op backwards once round: stack = positions of the maxima of what follows */
    for (uint32_t i = n; i-- > 0;) {
        uint32_t k = (origin + i) % n;
        if (pages[k] <= b->capacity) { /* the stretch begins after it */
            depth = 0;
            b->relief[k] = 1;
            continue;
        }
        uint32_t lo = 0, hi = depth; /* heights on the stack rise towards its top */
        while (lo < hi) {
            uint32_t mid = (lo + hi) / 2;
            if (pages[(origin + stack[mid]) % n] < pages[k])
                lo = mid + 1;
            else
                hi = mid;
        }
        b->relief[k] = lo < depth ? stack[lo] - i + 1 : 1;
        if (!depth || pages[(origin + stack[depth - 1]) % n] < pages[k])
            stack[depth++] = i;
    }
    free(pages);
    free(stack);
    return VM_OK;
}

int vm_belady(const struct vm_page_units *u, uint64_t capacity, enum vm_belady_rule rule,
              const struct vm_belady_wishes *wishes, struct vm_eviction **list, size_t *count)
{
    struct belady b = {.u = u, .capacity = capacity, .rule = rule, .wishes = wishes};
    uint32_t *snapshot = calloc(u->nunits + 1, sizeof *snapshot);
    int rc = VM_ENOMEM;

    b.bu = calloc(u->nunits + 1, sizeof *b.bu);
    if (snapshot && b.bu) {
        for (size_t i = 0; i < u->nunits; i++) {
            b.bu[i].use = VM_NONE;
            b.bu[i].clean = u->units[i].npages; /* what is never written has its copy for good */
        }
        rc = find_relief(&b);
        if (!rc)
            rc = find_holds(&b);
        if (!rc)
            rc = unused_units(&b);
        size_t keep_n = b.n;
        for (int pass = 0; pass < 8 && !rc; pass++) {
            b.n = keep_n;
            rc = one_pass(&b);
            if (returned(&b, snapshot) && pass)
                break;
        }
    }
    free(snapshot);
    free(b.bu);
    free(b.kept);
    free(b.relief);
    free(b.holds);
    free(b.hold_at);
    vm_use_heap_fini(&b.heap);
    vm_use_heap_fini(&b.clean);
    vm_use_heap_fini(&b.idle);
    if (rc) {
        free(b.list);
        return rc;
    }
    *list = b.list;
    *count = b.n;
    return VM_OK;
}
