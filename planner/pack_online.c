/* Best fit in the order of birth: an allocator's view of the problem. Walks the sections, frees what
 * has died and puts each newcomer into the smallest free gap that holds it, the longest-lived first
 * among those born together. O(n log n) for any number of items live at once.
 *
 * The address space is a doubly linked list of segments; free ones between live ones are also in a
 * treap ordered by (size, start). The last segment is the endless one above everything. */
#include "pack_passes.h"

#include <stdlib.h>

#define NIL UINT32_MAX

struct segment {
    uint64_t start, size;
    uint32_t prev, next;  /* by address; `next` also links unused records */
    uint32_t left, right; /* in the treap, while free                      */
    uint32_t priority;
    uint32_t live;
};

struct space {
    struct segment *seg;
    uint32_t nseg, cap;
    uint32_t unused; /* list of free records */
    uint32_t root;   /* treap of free segments */
    uint32_t last;   /* the endless one */
    uint32_t draw;   /* state of the priorities' generator */
};

static uint32_t new_segment(struct space *sp)
{
    uint32_t x = sp->unused;
    if (x != NIL) {
        sp->unused = sp->seg[x].next;
        return x;
    }
    if (sp->nseg == sp->cap) {
        uint32_t cap = sp->cap ? sp->cap * 2 : 256;
        struct segment *grown = realloc(sp->seg, cap * sizeof *grown);
        if (!grown)
            return NIL;
        sp->seg = grown;
        sp->cap = cap;
    }
    return sp->nseg++;
}

static int smaller(const struct segment *a, const struct segment *b)
{
    return a->size != b->size ? a->size < b->size : a->start < b->start;
}

static void tree_insert(struct space *sp, uint32_t x)
{
    struct segment *s = sp->seg;
    sp->draw = sp->draw * 1664525u + 1013904223u;
    s[x].priority = sp->draw ^ (sp->draw >> 15);
    uint32_t *at = &sp->root;
    while (*at != NIL && s[*at].priority >= s[x].priority)
        at = smaller(&s[x], &s[*at]) ? &s[*at].left : &s[*at].right;
    uint32_t below = *at, *lo = &s[x].left, *hi = &s[x].right;
    *at = x;
    while (below != NIL) {
        if (smaller(&s[below], &s[x])) {
            *lo = below;
            lo = &s[below].right;
            below = s[below].right;
        } else {
            *hi = below;
            hi = &s[below].left;
            below = s[below].left;
        }
    }
    *lo = *hi = NIL;
}

static void tree_erase(struct space *sp, uint32_t x)
{
    struct segment *s = sp->seg;
    uint32_t *at = &sp->root;
    while (*at != x)
        at = smaller(&s[x], &s[*at]) ? &s[*at].left : &s[*at].right;
    uint32_t a = s[x].left, b = s[x].right;
    while (a != NIL && b != NIL) {
        if (s[a].priority > s[b].priority) {
            *at = a;
            at = &s[a].right;
            a = s[a].right;
        } else {
            *at = b;
            at = &s[b].left;
            b = s[b].left;
        }
    }
    *at = a != NIL ? a : b;
}

/* The smallest free segment of at least `size`, NIL if none. */
static uint32_t tree_fit(const struct space *sp, uint64_t size)
{
    uint32_t best = NIL;
    for (uint32_t x = sp->root; x != NIL;) {
        if (sp->seg[x].size >= size) {
            best = x;
            x = sp->seg[x].left;
        } else {
            x = sp->seg[x].right;
        }
    }
    return best;
}

/* Cuts `bytes` off the front of segment x (which is in no tree) into a new one; returns the front. */
static uint32_t cut_front(struct space *sp, uint32_t x, uint64_t bytes)
{
    uint32_t f = new_segment(sp);
    if (f == NIL)
        return NIL;
    struct segment *s = sp->seg;
    s[f] = (struct segment){.start = s[x].start, .size = bytes, .prev = s[x].prev, .next = x,
                            .left = NIL, .right = NIL};
    if (s[x].prev != NIL)
        s[s[x].prev].next = f;
    s[x].prev = f;
    s[x].start += bytes;
    s[x].size -= bytes;
    return f;
}

/* Makes [start, start + size) of the free segment x live; returns its record, NIL without memory. */
static uint32_t occupy(struct space *sp, uint32_t x, uint64_t start, uint64_t size)
{
    if (x != sp->last)
        tree_erase(sp, x);
    if (start > sp->seg[x].start) {
        uint32_t before = cut_front(sp, x, start - sp->seg[x].start);
        if (before == NIL)
            return NIL;
        tree_insert(sp, before);
    }
    uint32_t live = x;
    if (x == sp->last || sp->seg[x].size > size) {
        live = cut_front(sp, x, size);
        if (live == NIL)
            return NIL;
        if (x != sp->last)
            tree_insert(sp, x);
    }
    sp->seg[live].live = 1;
    return live;
}

static void release(struct space *sp, uint32_t x)
{
    struct segment *s = sp->seg;
    s[x].live = 0;
    uint32_t before = s[x].prev, after = s[x].next;
    if (before != NIL && !s[before].live) { /* swallow it */
        tree_erase(sp, before);
        s[x].start = s[before].start;
        s[x].size += s[before].size;
        s[x].prev = s[before].prev;
        if (s[x].prev != NIL)
            s[s[x].prev].next = x;
        s[before].next = sp->unused;
        sp->unused = before;
    }
    if (after == sp->last) { /* melt into the endless one */
        s[after].start = s[x].start;
        s[after].size += s[x].size;
        s[after].prev = s[x].prev;
        if (s[x].prev != NIL)
            s[s[x].prev].next = after;
        s[x].next = sp->unused;
        sp->unused = x;
        return;
    }
    if (!s[after].live) {
        tree_erase(sp, after);
        s[x].size += s[after].size;
        s[x].next = s[after].next;
        s[s[x].next].prev = x;
        s[after].next = sp->unused;
        sp->unused = after;
    }
    tree_insert(sp, x);
}

static uint32_t place(struct space *sp, uint64_t size, uint64_t align, uint64_t *offset)
{
    uint32_t x = tree_fit(sp, size);
    uint64_t at = x == NIL ? 0 : vm_align_up(sp->seg[x].start, align);
    if (x != NIL && at + size > sp->seg[x].start + sp->seg[x].size) {
        x = tree_fit(sp, size + align - 1); /* holds it whatever its start */
        at = x == NIL ? 0 : vm_align_up(sp->seg[x].start, align);
    }
    if (x == NIL) {
        x = sp->last;
        at = vm_align_up(sp->seg[x].start, align);
    }
    *offset = at;
    return occupy(sp, x, at, size);
}

/* Fixed items take their bytes for all time here; the caller has sorted them by offset. */
static int carve_fixed(struct space *sp, const struct vm_pass *ps)
{
    uint64_t top = 0;
    for (size_t k = 0; k < ps->nfixed; k++) {
        const struct vm_pack_item *it = &ps->p->items[ps->fixed[k]];
        uint64_t from = it->fixed > top ? it->fixed : top, to = it->fixed + it->size;
        if (to <= from)
            continue;
        if (occupy(sp, sp->last, from, to - from) == NIL)
            return VM_ENOMEM;
        top = to;
    }
    return VM_OK;
}

static uint32_t first_section(const struct vm_pass *ps, size_t i, int reverse)
{
    const struct vm_sections *s = ps->s;
    return reverse ? s->nsections - s->ranges[s->first[i + 1] - 1].hi : s->ranges[s->first[i]].lo;
}

static uint32_t end_section(const struct vm_pass *ps, size_t i, int reverse)
{
    const struct vm_sections *s = ps->s;
    return reverse ? s->nsections - s->ranges[s->first[i]].lo : s->ranges[s->first[i + 1] - 1].hi;
}

/* Birth order: by first section, the longest first, then the largest. */
static size_t sort_births(const struct vm_pass *ps, int reverse, struct vm_sort_pair *pairs)
{
    size_t n = 0;
    for (size_t i = 0; i < ps->p->nitems; i++)
        if (ps->p->items[i].fixed == VM_UNPLACED && ps->p->items[i].size)
            pairs[n++] = (struct vm_sort_pair){~ps->p->items[i].size, (uint32_t)i};
    vm_sort_pairs(pairs, pairs + n, n);
    for (size_t k = 0; k < n; k++) {
        uint32_t lo = first_section(ps, pairs[k].value, reverse);
        uint32_t len = end_section(ps, pairs[k].value, reverse) - lo;
        pairs[k].key = (uint64_t)lo << 32 | (uint32_t)~len;
    }
    vm_sort_pairs(pairs, pairs + n, n);
    return n;
}

static int walk(const struct vm_pass *ps, int reverse, struct space *sp, const struct vm_sort_pair *births,
                size_t n, uint32_t *dying, uint32_t *next, uint32_t *where, uint64_t *offsets)
{
    uint32_t now = 0;
    for (size_t k = 0; k < n; k++) {
        uint32_t i = births[k].value, born = (uint32_t)(births[k].key >> 32);
        for (; now <= born; now++)
            for (uint32_t d = dying[now]; d != NIL; d = next[d])
                release(sp, where[d]);
        const struct vm_pack_item *it = &ps->p->items[i];
        where[i] = place(sp, it->size, it->align, &offsets[i]);
        if (where[i] == NIL)
            return VM_ENOMEM;
        uint32_t end = end_section(ps, i, reverse);
        next[i] = dying[end];
        dying[end] = i;
    }
    return VM_OK;
}

int vm_pass_online(const struct vm_pass *ps, int reverse, uint64_t *offsets)
{
    size_t n = ps->p->nitems;
    struct space sp = {.unused = NIL, .root = NIL, .draw = 12345};
    struct vm_sort_pair *births = malloc((2 * n + 1) * sizeof *births);
    uint32_t *dying = malloc(((size_t)ps->s->nsections + 1) * sizeof *dying);
    uint32_t *next = malloc((n + 1) * sizeof *next), *where = malloc((n + 1) * sizeof *where);
    sp.last = new_segment(&sp);
    int status = births && dying && next && where && sp.last != NIL ? VM_OK : VM_ENOMEM;
    if (status == VM_OK) {
        sp.seg[sp.last] = (struct segment){.size = UINT64_MAX / 2, .prev = NIL, .next = NIL,
                                           .left = NIL, .right = NIL};
        for (uint32_t t = 0; t <= ps->s->nsections; t++)
            dying[t] = NIL;
        status = carve_fixed(&sp, ps);
    }
    if (status == VM_OK) {
        size_t nbirths = sort_births(ps, reverse, births);
        status = walk(ps, reverse, &sp, births, nbirths, dying, next, where, offsets);
    }
    free(sp.seg);
    free(births);
    free(dying);
    free(next);
    free(where);
    return status;
}
