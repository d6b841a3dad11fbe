#include "belady.h"

#include <stdlib.h>
#include <string.h>

#include "use_heap.h"

#define DEAD_KEY (UINT64_C(1) << 62) /* dead pages leave before all others */

struct bel_unit {
    uint32_t res, use, stamp;
    uint64_t in_use; /* absolute op plus 1 */
};

struct belady {
    const struct vm_page_units *u;
    struct bel_unit *bu;
    struct vm_use_heap heap;
    uint64_t resident, capacity;
    uint64_t pass;
    struct vm_eviction *list;
    size_t n, cap;
    struct vm_use_entry *kept;
    size_t nkept, cap_kept;
};

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
    b->list[b->n++] = (struct vm_eviction){unit, use, npages, need, dead};
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

static int make_room(struct belady *b, uint64_t need, uint32_t k, uint64_t abs)
{
    struct vm_use_entry e;
    int rc = VM_OK;

    b->nkept = 0;
    while (!rc && b->resident + need > b->capacity) {
        if (!vm_use_heap_pop(&b->heap, &e)) {
            rc = VM_UNFIT;
            break;
        }
        struct bel_unit *x = &b->bu[e.unit];
        if (e.stamp != x->stamp || !x->res)
            continue;
        if (x->in_use == abs + 1) {
            rc = keep(b, e);
            continue;
        }
        uint64_t over = b->resident + need - b->capacity;
        uint32_t n = x->res < over ? x->res : (uint32_t)over;
        x->res -= n;
        b->resident -= n;
        rc = note(b, e.unit, n, k, e.key >= DEAD_KEY);
        if (!rc && x->res)
            rc = keep(b, e);
    }
    for (size_t i = 0; i < b->nkept; i++)
        if (vm_use_heap_push(&b->heap, b->kept[i].key, b->kept[i].unit, b->kept[i].stamp))
            rc = VM_ENOMEM;
    return rc;
}

static int settle(struct belady *b, struct vm_page_ref ref, uint32_t k, uint64_t abs)
{
    const struct vm_page_unit *un = &b->u->units[ref.unit];
    struct bel_unit *x = &b->bu[ref.unit];
    unsigned wraps;
    uint32_t next = vm_page_next_use(b->u, un, ref.use, &wraps);

    x->use = ref.use;
    x->stamp++;
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
    return vm_use_heap_push(&b->heap, key, ref.unit, x->stamp);
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
        if (need)
            rc = make_room(b, need, k, abs);
        b->resident += need;
        for (uint32_t r = lo; r < hi && !rc; r++)
            b->bu[b->u->refs[r].unit].res = b->u->units[b->u->refs[r].unit].npages;
        for (uint32_t r = lo; r < hi && !rc; r++)
            rc = settle(b, b->u->refs[r], k, abs);
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

int vm_belady(const struct vm_page_units *u, uint64_t capacity, struct vm_eviction **list,
              size_t *count)
{
    struct belady b = {.u = u, .capacity = capacity};
    uint32_t *snapshot = calloc(u->nunits + 1, sizeof *snapshot);
    int rc = VM_ENOMEM;

    b.bu = calloc(u->nunits + 1, sizeof *b.bu);
    if (snapshot && b.bu) {
        for (size_t i = 0; i < u->nunits; i++)
            b.bu[i].use = VM_NONE;
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
    vm_use_heap_fini(&b.heap);
    if (rc) {
        free(b.list);
        return rc;
    }
    *list = b.list;
    *count = b.n;
    return VM_OK;
}
