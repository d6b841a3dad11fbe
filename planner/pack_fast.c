/* The fast packing: a few one-pass heuristics. Where nothing lives across a moment the parts before
 * and after it are independent: for each part the best packing is kept, and only parts that stick
 * out above the bound of the whole are worth more work. The cheap heuristics always run; the
 * thorough ones while what they would look at is bounded. */
#include "pack_passes.h"

#include <stdlib.h>
#include <string.h>

/* Placed items the thorough passes may look at in all: about half a second. */
#define ORDERED_WORK 2e8

struct best {
    const struct vm_pass *ps;
    uint64_t *offsets; /* the caller's */
    uint64_t *trial;
    uint32_t *part_of;          /* for each section */
    uint64_t *height, *trial_height; /* for each part, over the items that are free to move */
    uint32_t nparts;
    uint64_t enough; /* no packing of the whole can be lower than this */
};

static uint32_t part_of_item(const struct best *b, size_t i)
{
    return b->part_of[b->ps->s->ranges[b->ps->s->first[i]].lo];
}

/* Numbers the parts: a new one begins where no item's hull crosses. */
static int find_parts(struct best *b)
{
    const struct vm_sections *s = b->ps->s;
    b->part_of = calloc((size_t)s->nsections + 2, sizeof *b->part_of);
    if (!b->part_of)
        return VM_ENOMEM;
    uint32_t *change = b->part_of; /* first: how many more hulls cross into section t than into t - 1 */
    for (size_t i = 0; i < s->nitems; i++) {
        change[s->ranges[s->first[i]].lo + 1]++;
        change[s->ranges[s->first[i + 1] - 1].hi]--; /* wraps back when summed */
    }
    uint32_t crossing = 0, part = 0;
    for (uint32_t t = 0; t < s->nsections; t++) {
        crossing += change[t];
        part += t > 0 && crossing == 0;
        b->part_of[t] = part;
    }
    b->nparts = part + 1;
    b->height = malloc(b->nparts * sizeof *b->height);
    b->trial_height = malloc(b->nparts * sizeof *b->trial_height);
    if (!b->height || !b->trial_height)
        return VM_ENOMEM;
    for (uint32_t k = 0; k < b->nparts; k++)
        b->height[k] = UINT64_MAX;
    return VM_OK;
}

/* Takes from trial[] the parts that are lower there. */
static void keep_better(struct best *b)
{
    const struct vm_pack_problem *p = b->ps->p;
    for (uint32_t k = 0; k < b->nparts; k++)
        b->trial_height[k] = 0;
    for (size_t i = 0; i < p->nitems; i++) {
        uint64_t end = b->trial[i] + p->items[i].size;
        uint64_t *h = &b->trial_height[part_of_item(b, i)];
        if (p->items[i].fixed == VM_UNPLACED && end > *h)
            *h = end;
    }
    for (size_t i = 0; i < p->nitems; i++) {
        uint32_t k = part_of_item(b, i);
        if (b->trial_height[k] < b->height[k])
            b->offsets[i] = b->trial[i];
    }
    for (uint32_t k = 0; k < b->nparts; k++)
        if (b->trial_height[k] < b->height[k])
            b->height[k] = b->trial_height[k];
}

/* The part that sticks out most; its height in *height. */
static uint32_t worst_part(const struct best *b, uint64_t *height)
{
    uint32_t worst = 0;
    for (uint32_t k = 1; k < b->nparts; k++)
        if (b->height[k] > b->height[worst])
            worst = k;
    *height = b->height[worst];
    return worst;
}

/* Lists the fixed items by offset, and refuses two that are live together on the same bytes. */
static int list_fixed(const struct vm_pack_problem *p, const struct vm_sections *s, uint32_t **fixed,
                      size_t *nfixed, struct vm_error *why)
{
    size_t n = 0;
    for (size_t i = 0; i < p->nitems; i++)
        n += p->items[i].fixed != VM_UNPLACED && p->items[i].size;
    struct vm_sort_pair *pairs = malloc((2 * n + 1) * sizeof *pairs);
    uint32_t *out = malloc((n + 1) * sizeof *out);
    if (!pairs || !out) {
        free(pairs);
        free(out);
        return vm_pack_refuse(why, VM_ENOMEM, "no memory to pack %zu items", p->nitems);
    }
    n = 0;
    for (size_t i = 0; i < p->nitems; i++)
        if (p->items[i].fixed != VM_UNPLACED && p->items[i].size)
            pairs[n++] = (struct vm_sort_pair){p->items[i].fixed, (uint32_t)i};
    vm_sort_pairs(pairs, pairs + n, n);
    int status = VM_OK;
    for (size_t a = 0; a < n && status == VM_OK; a++) {
        const struct vm_pack_item *x = &p->items[pairs[a].value];
        out[a] = pairs[a].value;
        for (size_t b = a + 1; b < n && pairs[b].key < x->fixed + x->size; b++)
            if (vm_sections_conflict(s, pairs[a].value, pairs[b].value)) {
                status = vm_pack_refuse(why, VM_EINVAL,
                                        "items %u and %u are fixed on the same bytes at the same time",
                                        pairs[a].value, pairs[b].value);
                break;
            }
    }
    free(pairs);
    if (status) {
        free(out);
        return status;
    }
    *fixed = out;
    *nfixed = n;
    return VM_OK;
}

static int run_thorough(const struct vm_pass *ps, struct best *b, double *work_left)
{
    static const enum vm_pass_order orders[] = {VM_ORDER_PEAK_LIFETIME, VM_ORDER_LIFETIME,
                                                VM_ORDER_SIZE};
    uint64_t height = UINT64_MAX;
    for (size_t k = 0; k < sizeof orders / sizeof *orders && height > b->enough; k++) {
        double work = vm_pass_ordered_work(ps, orders[k]);
        if (work > *work_left)
            continue;
        *work_left -= work;
        int status = vm_pass_ordered(ps, orders[k], b->trial);
        if (status)
            return status;
        keep_better(b);
        worst_part(b, &height);
    }
    return VM_OK;
}

/* Packs one part as a problem of its own (there are no fixed items). */
static int improve_part(struct best *b, uint32_t part, double *work_left)
{
    const struct vm_pack_problem *p = b->ps->p;
    size_t n = 0;
    for (size_t i = 0; i < p->nitems; i++)
        n += part_of_item(b, i) == part;
    struct vm_pack_item *items = malloc((n + 1) * sizeof *items);
    uint32_t *original = malloc((n + 1) * sizeof *original);
    uint64_t *offsets = malloc(2 * (n + 1) * sizeof *offsets);
    struct vm_pack_problem sub = {items, n, p->gaps, p->ngaps};
    struct vm_sections s = {0};
    struct vm_pass ps = {.p = &sub, .s = &s};
    struct best inner = {.ps = &ps, .offsets = offsets, .trial = offsets + n + 1, .enough = b->enough};
    int status = items && original && offsets ? VM_OK : VM_ENOMEM;
    if (status == VM_OK) {
        n = 0;
        for (size_t i = 0; i < p->nitems; i++)
            if (part_of_item(b, i) == part) {
                original[n] = (uint32_t)i;
                offsets[n] = b->offsets[i];
                inner.trial[n] = 0;
                items[n++] = p->items[i];
            }
        status = vm_sections_init(&s, &sub, NULL);
    }
    if (status == VM_OK)
        status = find_parts(&inner);
    if (status == VM_OK) {
        for (uint32_t k = 0; k < inner.nparts; k++)
            inner.height[k] = b->height[part];
        status = run_thorough(&ps, &inner, work_left);
    }
    if (status == VM_OK) {
        worst_part(&inner, &b->height[part]);
        for (size_t k = 0; k < n; k++)
            b->offsets[original[k]] = offsets[k];
    }
    vm_sections_fini(&s);
    free(inner.part_of);
    free(inner.height);
    free(inner.trial_height);
    free(items);
    free(original);
    free(offsets);
    return status;
}

static int run_passes(struct best *b)
{
    uint64_t height = UINT64_MAX;
    double work_left = ORDERED_WORK;
    for (int reverse = 0; reverse < 2 && height > b->enough; reverse++) {
        int status = vm_pass_online(b->ps, reverse, b->trial);
        if (status)
            return status;
        keep_better(b);
        worst_part(b, &height);
    }
    if (height <= b->enough)
        return VM_OK;
    if (b->nparts == 1 || b->ps->nfixed)
        return run_thorough(b->ps, b, &work_left);
    /* The worst parts one by one, until one of them cannot be made lower. */
    for (uint32_t tries = 0; tries < b->nparts; tries++) {
        uint64_t before;
        uint32_t part = worst_part(b, &before);
        if (before <= b->enough)
            break;
        int status = improve_part(b, part, &work_left);
        if (status)
            return status;
        if (b->height[part] == before)
            break;
    }
    return VM_OK;
}

static uint64_t whole_height(const struct vm_pack_problem *p, const uint64_t *offsets)
{
    uint64_t top = 0;
    for (size_t i = 0; i < p->nitems; i++)
        if (offsets[i] + p->items[i].size > top)
            top = offsets[i] + p->items[i].size;
    return top;
}

/* No packing of all items is lower than *bound, none of the movable ones lower than *enough. With
 * fixed items far up the first says nothing about the second. */
static void lower_bounds(const struct vm_pass *ps, uint64_t *bound, uint64_t *enough)
{
    uint64_t fixed_bytes = 0, fixed_top = 0;
    for (size_t k = 0; k < ps->nfixed; k++) {
        const struct vm_pack_item *it = &ps->p->items[ps->fixed[k]];
        fixed_bytes += it->size;
        if (it->fixed + it->size > fixed_top)
            fixed_top = it->fixed + it->size;
    }
    *bound = ps->s->max_live > fixed_top ? ps->s->max_live : fixed_top;
    *enough = ps->s->max_live - (fixed_bytes < ps->s->max_live ? fixed_bytes : ps->s->max_live);
    if (fixed_top <= ps->s->max_live)
        *enough = ps->s->max_live; /* what is lower than the load is a movable item's end */
}

int vm_pack_fast(const struct vm_pack_problem *p, const struct vm_pack_options *opt,
                 uint64_t *offsets, struct vm_pack_result *res, struct vm_error *why)
{
    struct vm_sections s;
    int status = vm_sections_init(&s, p, why);
    if (status)
        return status;
    struct vm_pass ps = {.p = p, .s = &s};
    struct best b = {.ps = &ps, .offsets = offsets};
    uint64_t bound = 0;
    uint32_t *fixed = NULL;
    status = list_fixed(p, &s, &fixed, &ps.nfixed, why);
    if (status == VM_OK) {
        ps.fixed = fixed;
        lower_bounds(&ps, &bound, &b.enough);
        b.trial = malloc((p->nitems + 1) * sizeof *b.trial);
        status = b.trial ? find_parts(&b) : VM_ENOMEM;
    }
    if (status == VM_OK) {
        for (size_t i = 0; i < p->nitems; i++)
            b.offsets[i] = b.trial[i] = p->items[i].fixed != VM_UNPLACED ? p->items[i].fixed : 0;
        status = run_passes(&b);
    }
    if (status == VM_OK) {
        *res = (struct vm_pack_result){.height = whole_height(p, offsets), .max_live = s.max_live,
                                       .bound = bound};
        if (opt->capacity && res->height > opt->capacity)
            status = VM_UNFIT;
    } else if (status == VM_ENOMEM) {
        vm_pack_refuse(why, status, "no memory to pack %zu items", p->nitems);
    }
    free(b.trial);
    free(b.part_of);
    free(b.height);
    free(b.trial_height);
    free(fixed);
    vm_sections_fini(&s);
    return status;
}
