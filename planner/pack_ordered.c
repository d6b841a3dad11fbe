/* Gap-filling best fit in a chosen order (longest lifetime first, and the like).
 *
 * Placed items are kept sorted by offset, so one scan sees the gaps between those that are live
 * together with the newcomer. Time is covered by windows that begin every `width` sections, about an
 * average lifetime, and are twice as long: an item of at most `width` lies within the window in
 * whose first half it begins and scans that window's list only. Longer items scan one list of all
 * that was placed before them; the order is by lifetime, so the others come later. */
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
    struct list *window; /* window k covers sections [k * width, (k + 2) * width) */
    uint32_t nwindows, width;
    int first_fit;
};

static struct vm_section_range hull(const struct vm_sections *s, size_t i)
{
    return (struct vm_section_range){s->ranges[s->first[i]].lo, s->ranges[s->first[i + 1] - 1].hi};
}

/* Wide enough that the windows' lists hold about five records an item. */
static uint32_t window_width(const struct vm_pass *ps)
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
    uint32_t width = window_width(ps), nwindows = ps->s->nsections / width + 1;
    uint32_t *change = calloc((size_t)nwindows + 1, sizeof *change); /* of a window's list */
    uint32_t *small = calloc((size_t)nwindows + 1, sizeof *small);  /* items that scan it */
    double work = 0, nlong = 0;
    if (!change || !small) {
        free(change);
        free(small);
        return 1e300; /* no memory for the estimate: certainly none for the pass */
    }
    for (size_t i = 0; i < ps->p->nitems; i++) {
        struct vm_section_range h = hull(ps->s, i);
        change[h.lo < width ? 0 : h.lo / width - 1]++;
        change[(h.hi - 1) / width + 1]--; /* wraps back when summed */
        if (h.hi - h.lo > width)
            nlong++;
        else
            small[h.lo / width]++;
    }
    for (uint32_t b = 0, here = 0; b < nwindows; b++) {
        here += change[b];
        work += (double)here * small[b];
    }
    free(change);
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

/* The windows that an item lies in, at least in part: from the one that it ends the second half of. */
static uint32_t first_window(const struct shelf *sh, uint32_t lo)
{
    return lo < sh->width ? 0 : lo / sh->width - 1;
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

/* Is the record, whose hull meets the newcomer's, really live together with it? */
static int truly_together(const struct scan *sc, const struct placed *r)
{
    return (r->spans == 1 && sc->x->spans == 1) ||
           vm_sections_conflict(sc->s, r->item, sc->x->item) != 0;
}

/* The gap between the cursor and `end`, where a live record begins; the newcomer fits into it but for
 * its alignment. */
static void consider_gap(struct scan *sc, uint64_t cursor, uint64_t end)
{
    uint64_t at = vm_align_up(cursor, sc->align), waste = end - cursor - sc->size;
    if (at <= end - sc->size && waste < sc->best_waste) {
        sc->best = at;
        sc->best_waste = sc->first_fit ? 0 : waste;
    }
}

/* The loop is where the time goes: what depends on the data is computed, not branched on, but for
 * two rare cases (a gap that is large enough, an item with gaps). */
static void scan_list(struct scan *sc, const struct list *l)
{
    const struct placed *r = l->at, *end = l->n ? l->at + l->n : r;
    const uint32_t lo = sc->x->lo, hi = sc->x->hi;
    const int simple = sc->x->spans == 1;
    const uint64_t size = sc->size;
    uint64_t cursor = 0;
    for (; r < end; r++) {
        int live = (r->lo < hi) & (lo < r->hi);
        if (__builtin_expect(live & ((r->spans > 1) | !simple), 0))
            live = truly_together(sc, r);
        if (__builtin_expect(r->start >= cursor + size, 0) && live) {
            consider_gap(sc, cursor, r->start);
            if (sc->best_waste == 0)
                break;
        }
        uint64_t top = r->end & (0 - (uint64_t)live);
        cursor = top > cursor ? top : cursor;
    }
    sc->cursor = cursor;
}

static struct placed record(const struct vm_pass *ps, size_t i)
{
    struct vm_section_range h = hull(ps->s, i);
    return (struct placed){.lo = h.lo, .hi = h.hi, .item = (uint32_t)i,
                           .spans = ps->s->first[i + 1] - ps->s->first[i]};
}

static void choose(const struct shelf *sh, struct placed *x, const struct list *among, uint64_t *offsets)
{
    const struct vm_pack_item *it = &sh->ps->p->items[x->item];
    struct scan sc = {.s = sh->ps->s, .x = x, .size = it->size, .align = it->align,
                      .best = VM_UNPLACED, .best_waste = UINT64_MAX, .first_fit = sh->first_fit};
    scan_list(&sc, among);
    x->start = sc.best != VM_UNPLACED ? sc.best : vm_align_up(sc.cursor, it->align);
    x->end = x->start + it->size;
    offsets[x->item] = x->start;
}

/* Hands the records of the list of all to the windows, in order. */
static int fill_windows(struct shelf *sh)
{
    sh->window = calloc(sh->nwindows, sizeof *sh->window);
    if (!sh->window)
        return VM_ENOMEM;
    for (uint32_t k = 0; k < sh->all.n; k++) {
        const struct placed *x = &sh->all.at[k];
        for (uint32_t b = first_window(sh, x->lo); b <= (x->hi - 1) / sh->width; b++)
            if (list_insert(&sh->window[b], sh->window[b].n, x))
                return VM_ENOMEM;
    }
    free(sh->all.at);
    sh->all = (struct list){0};
    return VM_OK;
}

static int place_short(struct shelf *sh, size_t i, uint64_t *offsets)
{
    struct placed x = record(sh->ps, i);
    choose(sh, &x, &sh->window[x.lo / sh->width], offsets);
    int status = VM_OK;
    for (uint32_t b = first_window(sh, x.lo); b <= (x.hi - 1) / sh->width && status == VM_OK; b++)
        status = insert_by_start(&sh->window[b], &x);
    return status;
}

static int place_long(struct shelf *sh, size_t i, uint64_t *offsets)
{
    struct placed x = record(sh->ps, i);
    choose(sh, &x, &sh->all, offsets);
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
            status = fill_windows(sh);
        if (status == VM_OK)
            status = k < nfirst ? place_long(sh, pairs[k].value, offsets)
                                : place_short(sh, pairs[k].value, offsets);
    }
    return status;
}

int vm_pass_ordered(const struct vm_pass *ps, enum vm_pass_order order, uint64_t *offsets)
{
    struct shelf sh = {.ps = ps, .width = window_width(ps), .first_fit = order == VM_ORDER_SIZE};
    sh.nwindows = ps->s->nsections / sh.width + 1;
    struct vm_sort_pair *pairs = malloc((2 * ps->p->nitems + 1) * sizeof *pairs);
    int status = pairs ? place_all(&sh, order, pairs, offsets) : VM_ENOMEM;
    for (uint32_t b = 0; sh.window && b < sh.nwindows; b++)
        free(sh.window[b].at);
    free(sh.window);
    free(sh.all.at);
    free(pairs);
    return status;
}
