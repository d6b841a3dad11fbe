/* Gap-filling best fit in a chosen order (longest lifetime first, and the like).
 *
 * Placed items are kept sorted by offset, so one scan sees the gaps between those that are live
 * together with the newcomer. Time is cut into buckets about as wide as an average lifetime: items
 * longer than a bucket scan one list of all that was placed before them; the others come later (the
 * order is by lifetime) and scan the lists of the one or two buckets they touch. */
#include "pack_passes.h"

#include <stdlib.h>
#include <string.h>

struct placed {
    uint64_t start, end;
    uint32_t lo, hi; /* hull in sections */
    uint32_t item;
    uint32_t spans;
};

struct list {
    struct placed *at;
    uint32_t n, cap;
};

struct shelf {
    const struct vm_pass *ps;
    struct list all;
    struct list *bucket;
    uint32_t nbuckets, width; /* sections a bucket */
    int first_fit;
};

static struct vm_section_range hull(const struct vm_sections *s, size_t i)
{
    return (struct vm_section_range){s->ranges[s->first[i]].lo, s->ranges[s->first[i + 1] - 1].hi};
}

/* Wide enough that the bucket lists hold about four records an item. */
static uint32_t bucket_width(const struct vm_pass *ps)
{
    double length = 0;
    for (size_t i = 0; i < ps->p->nitems; i++) {
        struct vm_section_range h = hull(ps->s, i);
        length += h.hi - h.lo;
    }
    double width = length / (3.0 * (double)ps->p->nitems + 1.0) + 1.0;
    return width < ps->s->nsections ? (uint32_t)width : ps->s->nsections + 1;
}

double vm_pass_ordered_work(const struct vm_pass *ps, enum vm_pass_order order)
{
    if (order == VM_ORDER_SIZE)
        return (double)ps->p->nitems * (double)ps->p->nitems / 2;
    uint32_t width = bucket_width(ps), nbuckets = ps->s->nsections / width + 1;
    uint32_t *all = calloc((size_t)nbuckets + 1, sizeof *all);
    uint32_t *small = calloc((size_t)nbuckets + 1, sizeof *small);
    double work = 0, nlong = 0;
    if (!all || !small) {
        free(all);
        free(small);
        return 1e300; /* no memory for the estimate: certainly none for the pass */
    }
    for (size_t i = 0; i < ps->p->nitems; i++) {
        struct vm_section_range h = hull(ps->s, i);
        uint32_t from = h.lo / width, to = (h.hi - 1) / width;
        all[from]++;
        all[to + 1]--; /* wraps back when summed */
        if (h.hi - h.lo > width) {
            nlong++;
        } else {
            small[from]++;
            small[to] += to > from;
        }
    }
    for (uint32_t b = 0, here = 0; b < nbuckets; b++) {
        here += all[b];
        work += (double)here * small[b];
    }
    free(all);
    free(small);
    return work + nlong * nlong / 2;
}

static int list_insert(struct list *l, uint32_t pos, const struct placed *x)
{
    if (l->n == l->cap) {
        uint32_t cap = l->cap ? l->cap + l->cap / 2 : 16;
        struct placed *grown = realloc(l->at, cap * sizeof *grown);
        if (!grown)
            return VM_ENOMEM;
        l->at = grown;
        l->cap = cap;
    }
    memmove(l->at + pos + 1, l->at + pos, (l->n - pos) * sizeof *l->at);
    l->at[pos] = *x;
    l->n++;
    return VM_OK;
}

static int insert_by_start(struct list *l, const struct placed *x)
{
    uint32_t lo = 0, hi = l->n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (l->at[mid].start < x->start)
            lo = mid + 1;
        else
            hi = mid;
    }
    return list_insert(l, lo, x);
}

/* One scan over records ascending by start: remembers the tightest gap seen. */
struct scan {
    const struct vm_sections *s;
    const struct placed *x; /* the newcomer; start and end not yet set */
    uint64_t size, align;
    uint64_t cursor; /* everything live with x seen so far ends at or below it */
    uint64_t best, best_waste;
    int first_fit; /* any gap will do */
};

static void scan_one(struct scan *sc, const struct placed *r)
{
    if (r->lo >= sc->x->hi || sc->x->lo >= r->hi)
        return;
    if ((r->spans > 1 || sc->x->spans > 1) && !vm_sections_conflict(sc->s, r->item, sc->x->item))
        return;
    if (r->start > sc->cursor && r->start - sc->cursor >= sc->size) {
        uint64_t at = vm_align_up(sc->cursor, sc->align);
        uint64_t waste = r->start - sc->cursor - sc->size;
        if (at <= r->start - sc->size && waste < sc->best_waste) {
            sc->best = at;
            sc->best_waste = sc->first_fit ? 0 : waste;
        }
    }
    if (r->end > sc->cursor)
        sc->cursor = r->end;
}

static void scan_lists(struct scan *sc, const struct list *a, const struct list *b)
{
    uint32_t i = 0, j = 0, nb = b ? b->n : 0;
    while (i < a->n || j < nb) {
        if (sc->best_waste == 0)
            return;
        if (j == nb || (i < a->n && a->at[i].start <= b->at[j].start))
            scan_one(sc, &a->at[i++]);
        else
            scan_one(sc, &b->at[j++]);
    }
}

static struct placed record(const struct vm_pass *ps, size_t i)
{
    struct vm_section_range h = hull(ps->s, i);
    return (struct placed){.lo = h.lo, .hi = h.hi, .item = (uint32_t)i,
                           .spans = ps->s->first[i + 1] - ps->s->first[i]};
}

static void choose(const struct shelf *sh, struct placed *x, const struct list *a,
                   const struct list *b, uint64_t *offsets)
{
    const struct vm_pack_item *it = &sh->ps->p->items[x->item];
    struct scan sc = {.s = sh->ps->s, .x = x, .size = it->size, .align = it->align,
                      .best = VM_UNPLACED, .best_waste = UINT64_MAX, .first_fit = sh->first_fit};
    scan_lists(&sc, a, b);
    x->start = sc.best != VM_UNPLACED ? sc.best : vm_align_up(sc.cursor, it->align);
    x->end = x->start + it->size;
    offsets[x->item] = x->start;
}

/* Hands the records of the list of all to the buckets, in order. */
static int fill_buckets(struct shelf *sh)
{
    sh->bucket = calloc(sh->nbuckets, sizeof *sh->bucket);
    if (!sh->bucket)
        return VM_ENOMEM;
    for (uint32_t k = 0; k < sh->all.n; k++) {
        const struct placed *x = &sh->all.at[k];
        for (uint32_t b = x->lo / sh->width; b <= (x->hi - 1) / sh->width; b++)
            if (list_insert(&sh->bucket[b], sh->bucket[b].n, x))
                return VM_ENOMEM;
    }
    free(sh->all.at);
    sh->all = (struct list){0};
    return VM_OK;
}

static int place_short(struct shelf *sh, size_t i, uint64_t *offsets)
{
    struct placed x = record(sh->ps, i);
    uint32_t from = x.lo / sh->width, to = (x.hi - 1) / sh->width;
    choose(sh, &x, &sh->bucket[from], to > from ? &sh->bucket[to] : NULL, offsets);
    int status = insert_by_start(&sh->bucket[from], &x);
    if (status == VM_OK && to > from)
        status = insert_by_start(&sh->bucket[to], &x);
    return status;
}

static int place_long(struct shelf *sh, size_t i, uint64_t *offsets)
{
    struct placed x = record(sh->ps, i);
    choose(sh, &x, &sh->all, NULL, offsets);
    return insert_by_start(&sh->all, &x);
}

/* near[t + 1] - near[0..t] counts sections up to t whose load is within 1 % of the maximum. */
static uint32_t *count_near(const struct vm_sections *s)
{
    uint32_t *near = malloc(((size_t)s->nsections + 1) * sizeof *near);
    if (!near)
        return NULL;
    near[0] = 0;
    for (uint32_t t = 0; t < s->nsections; t++)
        near[t + 1] = near[t] + (s->load[t] >= s->max_live - s->max_live / 100);
    return near;
}

/* The order, and in *nfirst how many of it must see the list of all. Keys: class (0 first) over
 * lifetime, after a stable sort by size. */
static int sort_items(const struct vm_pass *ps, enum vm_pass_order order, uint32_t width,
                      struct vm_sort_pair *pairs, size_t *nall, size_t *nfirst)
{
    uint32_t *near = order == VM_ORDER_PEAK_LIFETIME ? count_near(ps->s) : NULL;
    if (order == VM_ORDER_PEAK_LIFETIME && !near)
        return VM_ENOMEM;
    size_t n = 0, first = 0;
    for (size_t i = 0; i < ps->p->nitems; i++)
        if (ps->p->items[i].fixed == VM_UNPLACED && ps->p->items[i].size)
            pairs[n++] = (struct vm_sort_pair){~ps->p->items[i].size, (uint32_t)i};
    vm_sort_pairs(pairs, pairs + n, n);
    for (size_t k = 0; k < n; k++) {
        struct vm_section_range h = hull(ps->s, pairs[k].value);
        uint32_t length = h.hi - h.lo;
        uint64_t class = near && near[h.hi] > near[h.lo] ? 0 : length > width ? 1 : 2;
        first += class < 2;
        pairs[k].key = class << 32 | (uint32_t)~length;
    }
    if (order == VM_ORDER_SIZE)
        first = n;
    else
        vm_sort_pairs(pairs, pairs + n, n);
    free(near);
    *nall = n;
    *nfirst = first;
    return VM_OK;
}

static int place_all(struct shelf *sh, enum vm_pass_order order, struct vm_sort_pair *pairs,
                     uint64_t *offsets)
{
    size_t n = 0, nfirst = 0;
    int status = VM_OK;
    for (size_t k = 0; k < sh->ps->nfixed && status == VM_OK; k++) {
        struct placed x = record(sh->ps, sh->ps->fixed[k]);
        x.start = sh->ps->p->items[x.item].fixed;
        x.end = x.start + sh->ps->p->items[x.item].size;
        status = list_insert(&sh->all, sh->all.n, &x);
    }
    if (status == VM_OK)
        status = sort_items(sh->ps, order, sh->width, pairs, &n, &nfirst);
    for (size_t k = 0; k < n && status == VM_OK; k++) {
        if (k == nfirst)
            status = fill_buckets(sh);
        if (status == VM_OK)
            status = k < nfirst ? place_long(sh, pairs[k].value, offsets)
                                : place_short(sh, pairs[k].value, offsets);
    }
    return status;
}

int vm_pass_ordered(const struct vm_pass *ps, enum vm_pass_order order, uint64_t *offsets)
{
    struct shelf sh = {.ps = ps, .width = bucket_width(ps), .first_fit = order == VM_ORDER_SIZE};
    sh.nbuckets = ps->s->nsections / sh.width + 1;
    struct vm_sort_pair *pairs = malloc((2 * ps->p->nitems + 1) * sizeof *pairs);
    int status = pairs ? place_all(&sh, order, pairs, offsets) : VM_ENOMEM;
    for (uint32_t b = 0; sh.bucket && b < sh.nbuckets; b++)
        free(sh.bucket[b].at);
    free(sh.bucket);
    free(sh.all.at);
    free(pairs);
    return status;
}
