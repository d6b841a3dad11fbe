#include "instances.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t random_next(struct random *r)
{
    r->state += 0x9e3779b97f4a7c15u;
    uint64_t x = r->state;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t random_below(struct random *r, uint64_t n)
{
    return random_next(r) % n;
}

uint64_t test_seed(void)
{
    const char *text = getenv("VM_TEST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : 20240607;
    printf("seed %llu (VM_TEST_SEED)\n", (unsigned long long)seed);
    return seed;
}

static int live_at(const struct instance *in, size_t i, uint64_t t)
{
    const struct vm_pack_item *x = &in->items[i];
    if (t < x->lower || t >= x->upper)
        return 0;
    for (uint32_t g = 0; g < x->ngaps; g++)
        if (t >= in->gaps[x->gap + g].lower && t < in->gaps[x->gap + g].upper)
            return 0;
    return 1;
}

static int live_together(const struct instance *in, size_t a, size_t b)
{
    for (uint64_t t = in->items[a].lower; t < in->items[a].upper; t++)
        if (live_at(in, a, t) && live_at(in, b, t))
            return 1;
    return 0;
}

static void cut_gaps(struct random *r, struct instance *in, size_t i)
{
    struct vm_pack_item *x = &in->items[i];
    uint64_t at = x->lower + 1;
    x->gap = (uint32_t)in->p.ngaps;
    while (x->ngaps < 2 && at + 2 < x->upper && random_below(r, 2)) {
        uint64_t lower = at + random_below(r, x->upper - at - 1);
        uint64_t upper = lower + 1 + random_below(r, x->upper - lower - 1);
        if (upper >= x->upper)
            break;
        in->gaps[in->p.ngaps++] = (struct vm_pack_span){lower, upper};
        x->ngaps++;
        at = upper + 1;
    }
}

static void fix_some(struct random *r, struct instance *in)
{
    for (size_t i = 0; i < in->p.nitems; i++) {
        struct vm_pack_item *x = &in->items[i];
        if (random_below(r, 8))
            continue;
        uint64_t align = x->align ? x->align : 1;
        uint64_t at = random_below(r, 400) / align * align;
        int free_there = 1;
        for (size_t j = 0; j < i && free_there; j++)
            free_there = in->items[j].fixed == VM_UNPLACED || !live_together(in, i, j) ||
                         in->items[j].fixed >= at + x->size ||
                         at >= in->items[j].fixed + in->items[j].size;
        if (free_there)
            x->fixed = at;
    }
}

static struct instance blank(size_t n)
{
    struct instance in = {0};
    in.items = calloc(n + 1, sizeof *in.items);
    in.gaps = calloc(2 * n + 1, sizeof *in.gaps);
    in.offsets = calloc(n + 1, sizeof *in.offsets);
    in.p = (struct vm_pack_problem){in.items, n, in.gaps, 0};
    return in;
}

struct instance random_instance(struct random *r, size_t n, uint64_t times, uint64_t max_size,
                                unsigned kinds)
{
    struct instance in = blank(n);
    for (size_t i = 0; i < n; i++) {
        uint64_t lower = random_below(r, times - 1);
        uint64_t most = random_below(r, 4) ? times / 8 + 1 : times;
        uint64_t upper = lower + 1 + random_below(r, most);
        in.items[i] = (struct vm_pack_item){.size = 1 + random_below(r, max_size), .lower = lower,
                                            .upper = upper < times ? upper : times,
                                            .fixed = VM_UNPLACED};
        if (kinds & WITH_ALIGN)
            in.items[i].align = (uint64_t)1 << random_below(r, 5);
        if (kinds & WITH_GAPS)
            cut_gaps(r, &in, i);
    }
    if (kinds & WITH_FIXED)
        fix_some(r, &in);
    return in;
}

/* Splits a random piece that is large enough, n - 1 times; then forgets where the pieces lay. */
struct instance guillotine_instance(struct random *r, size_t n, uint64_t times, uint64_t height)
{
    struct instance in = blank(n);
    size_t k = 1;
    in.items[0] = (struct vm_pack_item){.size = height, .upper = times, .fixed = VM_UNPLACED};
    for (int idle = 0; k < n && idle < 10000; idle++) {
        struct vm_pack_item *x = &in.items[random_below(r, k)], *y = &in.items[k];
        *y = *x;
        if (random_below(r, 2) && x->upper - x->lower > 1) {
            x->upper = y->lower = x->lower + 1 + random_below(r, x->upper - x->lower - 1);
        } else if (x->size > 1) {
            y->size = 1 + random_below(r, x->size - 1);
            x->size -= y->size;
        } else {
            continue;
        }
        k++;
    }
    in.p.nitems = k;
    return in;
}

void free_instance(struct instance *in)
{
    free(in->items);
    free(in->gaps);
    free(in->offsets);
}

struct brute {
    const struct vm_pack_problem *p;
    struct instance view;
    uint64_t at[8];
    uint64_t best;
};

/* Items placed in some order, each as low as those before it allow when it must not go below the one
 * placed before: every packing can be pushed down to such a one. */
static void place_next(struct brute *b, unsigned placed, uint64_t floor, uint64_t height)
{
    if (height >= b->best)
        return;
    if (placed == (1u << b->p->nitems) - 1) {
        b->best = height;
        return;
    }
    for (size_t i = 0; i < b->p->nitems; i++) {
        if (placed & 1u << i)
            continue;
        uint64_t at = floor, align = b->p->items[i].align > 1 ? b->p->items[i].align : 1;
        for (int moved = 1; moved;) {
            moved = 0;
            at = (at + align - 1) / align * align;
            for (size_t j = 0; j < b->p->nitems; j++)
                if ((placed & 1u << j) && b->at[j] < at + b->p->items[i].size &&
                    at < b->at[j] + b->p->items[j].size && live_together(&b->view, i, j)) {
                    at = b->at[j] + b->p->items[j].size;
                    moved = 1;
                }
        }
        uint64_t end = at + b->p->items[i].size;
        b->at[i] = at;
        place_next(b, placed | 1u << i, at, end > height ? end : height);
    }
}

uint64_t brute_force_height(const struct vm_pack_problem *p)
{
    struct brute b = {.p = p, .best = UINT64_MAX};
    b.view.items = malloc((p->nitems + 1) * sizeof *b.view.items);
    b.view.gaps = malloc((p->ngaps + 1) * sizeof *b.view.gaps);
    memcpy(b.view.items, p->items, p->nitems * sizeof *p->items);
    if (p->ngaps)
        memcpy(b.view.gaps, p->gaps, p->ngaps * sizeof *p->gaps);
    place_next(&b, 0, 0, 0);
    free(b.view.items);
    free(b.view.gaps);
    return b.best;
}
