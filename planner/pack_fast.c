/* The fast packing: a few one-pass heuristics, the best of which is kept. The cheap ones always run;
 * the thorough ones while what they would look at is bounded. */
#include "pack_passes.h"

#include <stdlib.h>
#include <string.h>

/* Placed items the thorough passes may look at in all: less than half a second. */
#define ORDERED_WORK 1e8

struct best {
    uint64_t *offsets; /* the caller's */
    uint64_t *trial;
    uint64_t height; /* over the items that are free to move; UINT64_MAX = nothing packed yet */
    uint64_t enough; /* no packing can be lower than this */
};

static uint64_t height_of(const struct vm_pack_problem *p, const uint64_t *offsets, int with_fixed)
{
    uint64_t top = 0;
    for (size_t i = 0; i < p->nitems; i++)
        if ((with_fixed || p->items[i].fixed == VM_UNPLACED) && offsets[i] + p->items[i].size > top)
            top = offsets[i] + p->items[i].size;
    return top;
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

static void keep_better(const struct vm_pack_problem *p, struct best *b)
{
    uint64_t h = height_of(p, b->trial, 0);
    if (h < b->height) {
        b->height = h;
        memcpy(b->offsets, b->trial, p->nitems * sizeof *b->offsets);
    }
}

static int run_passes(const struct vm_pass *ps, struct best *b)
{
    static const enum vm_pass_order orders[] = {VM_ORDER_PEAK_LIFETIME, VM_ORDER_LIFETIME,
                                                VM_ORDER_SIZE};
    for (int reverse = 0; reverse < 2 && b->height > b->enough; reverse++) {
        int status = vm_pass_online(ps, reverse, b->trial);
        if (status)
            return status;
        keep_better(ps->p, b);
    }
    if (b->height <= b->enough)
        return VM_OK;
    double spent = 0;
    for (size_t k = 0; k < sizeof orders / sizeof *orders && b->height > b->enough; k++) {
        double work = vm_pass_ordered_work(ps, orders[k]);
        if (spent + work > ORDERED_WORK)
            continue;
        spent += work;
        int status = vm_pass_ordered(ps, orders[k], b->trial);
        if (status)
            return status;
        keep_better(ps->p, b);
    }
    return VM_OK;
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
    struct best b = {.offsets = offsets, .height = UINT64_MAX};
    uint64_t bound = 0;
    uint32_t *fixed = NULL;
    status = list_fixed(p, &s, &fixed, &ps.nfixed, why);
    if (status == VM_OK) {
        ps.fixed = fixed;
        lower_bounds(&ps, &bound, &b.enough);
        b.trial = malloc((p->nitems + 1) * sizeof *b.trial);
        status = b.trial ? VM_OK : VM_ENOMEM;
    }
    if (status == VM_OK) {
        for (size_t i = 0; i < p->nitems; i++)
            b.trial[i] = p->items[i].fixed != VM_UNPLACED ? p->items[i].fixed : 0;
        status = run_passes(&ps, &b);
    }
    if (status == VM_OK) {
        *res = (struct vm_pack_result){.height = height_of(p, offsets, 1), .max_live = s.max_live,
                                       .bound = bound};
        if (opt->capacity && res->height > opt->capacity)
            status = VM_UNFIT;
    } else if (status == VM_ENOMEM) {
        vm_pack_refuse(why, status, "no memory to pack %zu items", p->nitems);
    }
    free(b.trial);
    free(fixed);
    vm_sections_fini(&s);
    return status;
}
