/* The search from outside: parts, ways to branch, node limits, and the descent to lower heights. */
#include "pack_search.h"

#include <stdlib.h>
#include <string.h>

/* Nodes of the first try in one way, for each item; doubled after each round. */
#define FIRST_TRY_NODES 6

/* Tried in turn; on the published hard instances each of them is quick where others are lost. */
static const struct {
    enum vm_branching branching;
    const char *order;
} ways[] = {
    {VM_BRANCH_LOWEST_TIGHT, "TWA"}, {VM_BRANCH_LOWEST_TIGHT, "AWT"}, {VM_BRANCH_LOWEST, "TCA"},
    {VM_BRANCH_LOWEST_TIGHT, "ZT"},  {VM_BRANCH_LOWEST_TIGHT, "WAT"}, {VM_BRANCH_LOWEST, "CT"},
    {VM_BRANCH_TIGHTEST, "WAT"},     {VM_BRANCH_LOWEST, "TWA"},
};
enum { NWAYS = sizeof ways / sizeof *ways };

/* One run of items that no other item meets in time. */
struct span_part {
    uint32_t lo, hi;
};

struct driver {
    const struct vm_pack_problem *p;
    const struct vm_sections *sec;
    const struct vm_pack_options *opt;
    struct vm_search search[NWAYS]; /* built when first used */
    int built[NWAYS];
    uint64_t nodes;
    uint64_t *offsets;
};

static uint64_t count_cuts(const struct vm_search *s, struct span_part *parts)
{
    uint32_t n = 0, from = 0;
    for (uint32_t t = 0; t < s->nsections; t++)
        if (t + 1 == s->nsections || s->crossing[t] == 0) {
            parts[n++] = (struct span_part){from, t + 1};
            from = t + 1;
        }
    return n;
}

static int build(struct driver *d, unsigned k, struct vm_error *why)
{
    if (d->built[k])
        return VM_OK;
    int status = vm_search_init(&d->search[k], d->p, d->sec, d->opt->capacity, ways[k].order,
                                d->opt->seed, why);
    d->built[k] = status == VM_OK;
    d->search[k].branching = ways[k].branching;
    d->search[k].expired = d->opt->expired;
    d->search[k].expired_arg = d->opt->expired_arg;
    return status;
}

/* One try at one part in way k with at most `limit` nodes. */
static int try_part(struct driver *d, unsigned k, struct span_part part, uint64_t limit, uint32_t *items)
{
    struct vm_search *s = &d->search[k];
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->hull_lo[i] >= part.lo && s->hull_hi[i] <= part.hi)
            items[n++] = i;
    s->nodes = 0;
    s->node_limit = limit;
    s->ntrail = 0;
    s->arena_used = 0;
    int status = vm_search_part(s, items, n, part.lo, part.hi);
    d->nodes += s->nodes;
    if (status == VM_OK)
        for (uint32_t i = 0; i < n; i++)
            d->offsets[s->original[items[i]]] = s->offset[items[i]];
    return status;
}

/* The ways in turn, with node limits that double, until one of them decides the part. */
static int solve_part(struct driver *d, struct span_part part, uint32_t *items, struct vm_error *why)
{
    uint64_t limit = (uint64_t)d->search[0].n * FIRST_TRY_NODES + 64;
    for (;; limit *= 2) {
        for (unsigned k = 0; k < NWAYS; k++) {
            int status = build(d, k, why);
            if (status)
                return status;
            uint64_t left = d->opt->max_nodes ? d->opt->max_nodes - d->nodes : UINT64_MAX;
            status = try_part(d, k, part, limit < left ? limit : left, items);
            if (status != VM_TIMEOUT || d->search[k].stop)
                return status;
            if (d->opt->max_nodes && d->nodes >= d->opt->max_nodes)
                return VM_TIMEOUT;
        }
    }
}

static int solve_all(struct driver *d, struct vm_error *why)
{
    int status = build(d, 0, why);
    if (status)
        return status;
    struct vm_search *s = &d->search[0];
    struct span_part *parts = malloc((s->nsections + (size_t)1) * sizeof *parts);
    uint32_t *items = malloc((s->n + (size_t)1) * sizeof *items);
    status = parts && items ? VM_OK : VM_ENOMEM;
    if (status == VM_OK) {
        uint64_t nparts = count_cuts(s, parts);
        for (uint64_t k = 0; k < nparts && status == VM_OK; k++)
            status = solve_part(d, parts[k], items, why);
    }
    free(parts);
    free(items);
    return status;
}

int vm_pack_search(const struct vm_pack_problem *p, const struct vm_pack_options *opt,
                   uint64_t *offsets, struct vm_pack_result *res, struct vm_error *why)
{
    if (opt->capacity == 0 || opt->capacity > INT64_MAX)
        return vm_pack_refuse(why, VM_EINVAL, "a search needs a capacity between 1 and 2^63 - 1");
    struct vm_sections sec;
    int status = vm_sections_init(&sec, p, why);
    if (status)
        return status;
    struct driver d = {.p = p, .sec = &sec, .opt = opt};
    d.offsets = malloc((p->nitems + 1) * sizeof *d.offsets);
    if (!d.offsets)
        status = vm_pack_refuse(why, VM_ENOMEM, "no memory to pack %zu items", p->nitems);
    for (size_t i = 0; i < p->nitems && status == VM_OK; i++)
        d.offsets[i] = p->items[i].fixed != VM_UNPLACED ? p->items[i].fixed : 0;
    if (status == VM_OK)
        status = sec.max_live > opt->capacity ? VM_UNFIT : solve_all(&d, why);
    if (status >= 0) {
        *res = (struct vm_pack_result){.max_live = sec.max_live, .bound = sec.max_live, .nodes = d.nodes};
        if (status == VM_UNFIT && res->bound <= opt->capacity)
            res->bound = opt->capacity + 1;
    }
    if (status == VM_OK) {
        for (size_t i = 0; i < p->nitems; i++)
            if (d.offsets[i] + p->items[i].size > res->height)
                res->height = d.offsets[i] + p->items[i].size;
        memcpy(offsets, d.offsets, p->nitems * sizeof *offsets);
    }
    for (unsigned k = 0; k < NWAYS; k++)
        if (d.built[k])
            vm_search_fini(&d.search[k]);
    free(d.offsets);
    vm_sections_fini(&sec);
    return status;
}

/* Nodes of one search in the first round of a descent, for each item. */
#define ROUND_NODES 2

/* What a descent needs to know from one search to the next. */
struct descent {
    const struct vm_pack_problem *p;
    const struct vm_pack_options *opt;
    uint64_t *offsets;
    struct vm_pack_result *res;
    uint64_t round_nodes;
    int over; /* nothing is left to spend, or the problem is too large to search */
};

/* One search at `target`. Lowers res->height or raises res->bound, or returns VM_TIMEOUT. */
static int step_down(struct descent *d, uint64_t target, struct vm_error *why)
{
    struct vm_pack_options sub = *d->opt;
    struct vm_pack_result found;
    uint64_t left = d->opt->max_nodes ? d->opt->max_nodes - d->res->nodes : UINT64_MAX;
    sub.capacity = target;
    sub.max_nodes = d->round_nodes < left ? d->round_nodes : left;
    int status = vm_pack_search(d->p, &sub, d->offsets, &found, why);
    if (status < 0)
        return status;
    d->res->nodes += found.nodes;
    if (status == VM_OK)
        d->res->height = found.height;
    if (status == VM_UNFIT && found.bound > d->res->bound)
        d->res->bound = found.bound;
    d->over = (status == VM_TIMEOUT && found.nodes == 0) ||
              (d->opt->max_nodes && d->res->nodes >= d->opt->max_nodes) ||
              (d->opt->expired && d->opt->expired(d->opt->expired_arg));
    return status;
}

/* Searches between the proved bound and the best height: at the bound, then at half the distance to
 * what is too hard for this round, to within a thousandth; then again with four times the nodes. */
static int descend(struct descent *d, struct vm_error *why)
{
    struct vm_pack_result *res = d->res;
    while (res->height > res->bound && !d->over) {
        uint64_t hard = res->bound, target = res->bound;
        while (res->height > target && !d->over) {
            int status = step_down(d, target, why);
            if (status < 0)
                return status;
            hard = status == VM_TIMEOUT ? target : hard > res->bound ? hard : res->bound;
            if (status == VM_TIMEOUT && res->height - hard <= res->height / 1000)
                break;
            target = hard + (res->height - hard) / 2;
            if (status == VM_TIMEOUT && target == hard)
                break;
        }
        d->round_nodes *= 4;
    }
    return VM_OK;
}

static int pack_rest(const struct vm_pack_problem *p, const struct vm_pack_options *opt, uint64_t *offsets,
                     struct vm_pack_result *res, struct vm_error *why)
{
    struct vm_pack_options sub = *opt;
    struct vm_pack_result out, found;
    int status = vm_pack_fast(p, opt, offsets, &out, why);
    if (status < 0)
        return status;
    if (opt->capacity && out.height > opt->capacity) {
        if (out.bound > opt->capacity) {
            *res = out;
            return VM_UNFIT;
        }
        status = vm_pack_search(p, &sub, offsets, &found, why);
        if (status < 0)
            return status;
        out.nodes = found.nodes;
        if (status == VM_OK)
            out.height = found.height;
        if (found.bound > out.bound)
            out.bound = found.bound;
        *res = out;
        return status;
    }
    if (!opt->capacity && out.height > out.bound) {
        struct descent d = {.p = p, .opt = opt, .offsets = offsets, .res = &out,
                            .round_nodes = ROUND_NODES * (uint64_t)p->nitems + 1000};
        status = descend(&d, why);
        if (status < 0)
            return status;
    }
    *res = out;
    return VM_OK;
}

/* Items that are live from the first moment to the last conflict with all others: they may as well lie
 * at the bottom, and the rest is a smaller problem. rest[] and original[] get what remains; *base the
 * bytes at the bottom. Not where offsets are constrained (fixed items, alignments): *base is 0 then. */
static size_t set_aside(const struct vm_pack_problem *p, uint64_t *offsets, struct vm_pack_item *rest,
                        uint32_t *original, uint64_t *base)
{
    uint64_t first = UINT64_MAX, last = 0;
    size_t n = 0;
    int free_to_move = 1;
    *base = 0;
    for (size_t i = 0; i < p->nitems; i++) {
        const struct vm_pack_item *it = &p->items[i];
        first = it->lower < first ? it->lower : first;
        last = it->upper > last ? it->upper : last;
        free_to_move &= it->fixed == VM_UNPLACED && it->align <= 1;
    }
    for (size_t i = 0; i < p->nitems; i++) {
        const struct vm_pack_item *it = &p->items[i];
        if (free_to_move && it->lower == first && it->upper == last && it->ngaps == 0) {
            offsets[i] = *base;
            *base += it->size;
            continue;
        }
        original[n] = (uint32_t)i;
        rest[n++] = *it;
    }
    return n;
}

int vm_pack(const struct vm_pack_problem *p, const struct vm_pack_options *opt, uint64_t *offsets,
            struct vm_pack_result *res, struct vm_error *why)
{
    uint64_t live = 0, base = 0;
    int status = vm_pack_max_live(p, &live, why); /* refuses bad problems */
    if (status)
        return status;
    struct vm_pack_item *rest = malloc((p->nitems + 1) * sizeof *rest);
    uint32_t *original = malloc((p->nitems + 1) * sizeof *original);
    uint64_t *inner = malloc((p->nitems + 1) * sizeof *inner);
    if (!rest || !original || !inner) {
        status = vm_pack_refuse(why, VM_ENOMEM, "no memory to pack %zu items", p->nitems);
    } else {
        struct vm_pack_problem sub = {rest, set_aside(p, offsets, rest, original, &base), p->gaps, p->ngaps};
        struct vm_pack_options above = *opt;
        struct vm_pack_result out;
        above.capacity = opt->capacity > base ? opt->capacity - base : 0;
        if (base == 0 || (opt->capacity && opt->capacity <= base)) {
            status = pack_rest(p, opt, offsets, res, why);
        } else {
            status = pack_rest(&sub, &above, inner, &out, why);
            for (size_t k = 0; k < sub.nitems && status >= 0; k++)
                offsets[original[k]] = inner[k] + base;
            if (status >= 0)
                *res = (struct vm_pack_result){out.height + base, out.max_live + base, out.bound + base,
                                               out.nodes};
        }
    }
    free(rest);
    free(original);
    free(inner);
    return status;
}
