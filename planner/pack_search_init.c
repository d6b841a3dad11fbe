/* Builds the state of a search: numbering, conflicts, sections. */
#include "pack_search.h"

#include <stdlib.h>
#include <string.h>

/* Problems beyond these are not searched: they are for the fast packing. The search recurses once an
 * item, and about 300 bytes of stack a level must fit a small thread's. */
#define MOST_NEIGHBOURS (UINT32_C(1) << 25)
#define MOST_ITEMS      8192

static void *array(size_t n, size_t size, int *failed)
{
    void *out = calloc(n + 1, size);
    if (!out)
        *failed = 1;
    return out;
}

/* Greatest load among the sections of an item. */
static uint64_t peak_of(const struct vm_sections *sec, size_t i)
{
    uint64_t peak = 0;
    for (uint32_t r = sec->first[i]; r < sec->first[i + 1]; r++)
        for (uint32_t t = sec->ranges[r].lo; t < sec->ranges[r].hi; t++)
            peak = sec->load[t] > peak ? sec->load[t] : peak;
    return peak;
}

static uint64_t criterion(const struct vm_pack_problem *p, const struct vm_sections *sec, size_t i, char c)
{
    const struct vm_pack_item *it = &p->items[i];
    uint64_t width = it->upper - it->lower;
    switch (c) {
    case 'W':
        return width;
    case 'A':
        return it->size && width > UINT64_MAX / it->size ? UINT64_MAX : width * it->size;
    case 'T':
        return peak_of(sec, i);
    case 'Z':
        return it->size;
    default:
        return sec->ranges[sec->first[i + 1] - 1].hi - sec->ranges[sec->first[i]].lo;
    }
}

static uint64_t scramble(uint64_t x)
{
    x = (x ^ (x >> 31)) * 0x7fb5d329728ea185u;
    x = (x ^ (x >> 27)) * 0x81dadef4bc2dd44du;
    return x ^ (x >> 33);
}

/* Numbers the non-empty items by the criteria: stable sorts, the least important first. */
static int number_items(struct vm_search *s, const struct vm_pack_problem *p,
                        const struct vm_sections *sec, const char *order, uint64_t seed)
{
    struct vm_sort_pair *pairs = malloc((2 * p->nitems + 1) * sizeof *pairs);
    if (!pairs)
        return VM_ENOMEM;
    uint32_t n = 0;
    for (size_t i = 0; i < p->nitems; i++)
        if (p->items[i].size)
            pairs[n++] = (struct vm_sort_pair){seed ? scramble(seed + i) : 0, (uint32_t)i};
    vm_sort_pairs(pairs, pairs + n, n);
    for (size_t c = strlen(order); c-- > 0;) {
        for (uint32_t k = 0; k < n; k++)
            pairs[k].key = ~criterion(p, sec, pairs[k].value, order[c]);
        vm_sort_pairs(pairs, pairs + n, n);
    }
    for (uint32_t k = 0; k < n; k++)
        s->original[k] = pairs[k].value;
    s->n = n;
    free(pairs);
    return VM_OK;
}

static void copy_items(struct vm_search *s, const struct vm_pack_problem *p, const struct vm_sections *sec)
{
    uint32_t at = 0;
    for (uint32_t k = 0; k < s->n; k++) {
        uint32_t i = s->original[k];
        s->size[k] = p->items[i].size;
        s->align[k] = p->items[i].align;
        s->fixed[k] = p->items[i].fixed;
        s->support[k] = s->least[k] = s->fixed[k] != VM_UNPLACED ? s->fixed[k] : 0;
        s->rng_first[k] = at;
        for (uint32_t r = sec->first[i]; r < sec->first[i + 1]; r++)
            s->rng[at++] = sec->ranges[r];
        s->hull_lo[k] = s->rng[s->rng_first[k]].lo;
        s->hull_hi[k] = s->rng[at - 1].hi;
        for (uint32_t b = s->hull_lo[k]; b + 1 < s->hull_hi[k]; b++)
            s->crossing[b]++;
    }
    s->rng_first[s->n] = at;
}

static int same_but_number(const struct vm_search *s, uint32_t a, uint32_t b)
{
    uint32_t nr = s->rng_first[a + 1] - s->rng_first[a];
    return s->size[a] == s->size[b] && s->align[a] == s->align[b] && s->fixed[a] == VM_UNPLACED &&
           s->fixed[b] == VM_UNPLACED && nr == s->rng_first[b + 1] - s->rng_first[b] &&
           memcmp(&s->rng[s->rng_first[a]], &s->rng[s->rng_first[b]], nr * sizeof *s->rng) == 0;
}

/* Links equal items into rings; looks a few numbers back only, where the static order puts them. */
static void find_twins(struct vm_search *s)
{
    for (uint32_t k = 0; k < s->n; k++) {
        s->twin[k] = k;
        for (uint32_t j = k; j-- > 0 && k - j < 16;)
            if (same_but_number(s, j, k)) {
                s->twin[k] = s->twin[j];
                s->twin[j] = k;
                break;
            }
    }
}

static int list_sections(struct vm_search *s)
{
    uint64_t total = 0;
    int failed = 0;
    for (uint32_t r = 0; r < s->rng_first[s->n]; r++)
        total += s->rng[r].hi - s->rng[r].lo;
    if (total > MOST_NEIGHBOURS)
        return VM_TIMEOUT;
    s->sec_item = array(total, sizeof *s->sec_item, &failed);
    if (failed)
        return VM_ENOMEM;
    for (uint32_t r = 0; r < s->rng_first[s->n]; r++)
        for (uint32_t t = s->rng[r].lo; t < s->rng[r].hi; t++)
            s->sec_first[t + 1]++;
    for (uint32_t t = 0; t < s->nsections; t++)
        s->sec_first[t + 1] += s->sec_first[t];
    /* In two turns, so that each list has the older items first and then those born in it. */
    uint32_t *end = s->sec_born;
    memcpy(end, s->sec_first, s->nsections * sizeof *end);
    for (uint32_t k = 0; k < s->n; k++)
        for (uint32_t r = s->rng_first[k]; r < s->rng_first[k + 1]; r++)
            for (uint32_t t = s->rng[r].lo + 1; t < s->rng[r].hi; t++)
                s->sec_item[end[t]++] = k;
    uint32_t *next = array(s->nsections, sizeof *next, &failed);
    if (failed)
        return VM_ENOMEM;
    memcpy(next, end, s->nsections * sizeof *next);
    for (uint32_t k = 0; k < s->n; k++)
        for (uint32_t r = s->rng_first[k]; r < s->rng_first[k + 1]; r++) {
            s->sec_item[next[s->rng[r].lo]++] = k;
            for (uint32_t t = s->rng[r].lo; t < s->rng[r].hi; t++)
                s->remaining[t] += s->size[k];
        }
    free(next);
    return VM_OK;
}

/* Calls are counted (fill = 0) or written: the neighbours of k in range r are what is live in the
 * range's first section and what is born in the others. */
static void neighbours_in(struct vm_search *s, uint32_t k, struct vm_section_range r, uint32_t *seen,
                          int fill, uint64_t *at)
{
    uint32_t stamp = 2 * k + 1 + (uint32_t)fill;
    seen[k] = stamp;
    for (uint32_t t = r.lo; t < r.hi; t++) {
        uint32_t x = t == r.lo ? s->sec_first[t] : s->sec_born[t];
        for (; x < s->sec_first[t + 1]; x++) {
            uint32_t j = s->sec_item[x];
            if (seen[j] == stamp)
                continue;
            seen[j] = stamp;
            if (fill)
                s->adj[*at] = j;
            ++*at;
        }
    }
}

static int list_neighbours(struct vm_search *s)
{
    int failed = 0;
    uint32_t *seen = array(s->n, sizeof *seen, &failed);
    if (failed)
        return VM_ENOMEM;
    for (int fill = 0; fill < 2 && !failed; fill++) {
        uint64_t at = 0;
        for (uint32_t k = 0; k < s->n; k++) {
            s->adj_first[k] = (uint32_t)at;
            for (uint32_t r = s->rng_first[k]; r < s->rng_first[k + 1]; r++)
                neighbours_in(s, k, s->rng[r], seen, fill, &at);
            if (at > MOST_NEIGHBOURS) {
                free(seen);
                return VM_TIMEOUT;
            }
        }
        s->adj_first[s->n] = (uint32_t)at;
        if (!fill)
            s->adj = array(at, sizeof *s->adj, &failed);
    }
    free(seen);
    return failed ? VM_ENOMEM : VM_OK;
}

static int allocate(struct vm_search *s, size_t n, size_t nranges, uint32_t nsections)
{
    int failed = 0;
    s->original = array(n, sizeof *s->original, &failed);
    s->size = array(n, sizeof *s->size, &failed);
    s->align = array(n, sizeof *s->align, &failed);
    s->fixed = array(n, sizeof *s->fixed, &failed);
    s->twin = array(n, sizeof *s->twin, &failed);
    s->hull_lo = array(n, sizeof *s->hull_lo, &failed);
    s->hull_hi = array(n, sizeof *s->hull_hi, &failed);
    s->rng_first = array(n, sizeof *s->rng_first, &failed);
    s->rng = array(nranges, sizeof *s->rng, &failed);
    s->adj_first = array(n, sizeof *s->adj_first, &failed);
    s->sec_first = array((size_t)nsections + 1, sizeof *s->sec_first, &failed);
    s->sec_born = array(nsections, sizeof *s->sec_born, &failed);
    s->placed = array(n, sizeof *s->placed, &failed);
    s->offset = array(n, sizeof *s->offset, &failed);
    s->support = array(n, sizeof *s->support, &failed);
    s->least = array(n, sizeof *s->least, &failed);
    s->remaining = array(nsections, sizeof *s->remaining, &failed);
    s->floor = array(nsections, sizeof *s->floor, &failed);
    s->arg = array(nsections, sizeof *s->arg, &failed);
    s->weight = array(nsections, sizeof *s->weight, &failed);
    unsigned levels = 1;
    while (nsections >> levels)
        levels++;
    s->slack = array((size_t)levels * nsections, sizeof *s->slack, &failed);
    s->crossing = array(nsections, sizeof *s->crossing, &failed);
    return failed ? VM_ENOMEM : VM_OK;
}

int vm_search_init(struct vm_search *s, const struct vm_pack_problem *p, const struct vm_sections *sec,
                   uint64_t capacity, const char *order, uint64_t seed, struct vm_error *why)
{
    *s = (struct vm_search){.capacity = capacity, .nsections = sec->nsections};
    if (p->nitems > MOST_ITEMS)
        return VM_TIMEOUT;
    int status = allocate(s, p->nitems, sec->first[p->nitems], sec->nsections);
    if (status == VM_OK)
        status = number_items(s, p, sec, order, seed);
    if (status == VM_OK) {
        copy_items(s, p, sec);
        find_twins(s);
        status = list_sections(s);
    }
    if (status == VM_OK)
        status = list_neighbours(s);
    if (status == VM_OK) {
        for (uint32_t t = 0; t < s->nsections; t++)
            s->weight[t] = 1;
        s->slack_bias = (double)capacity / 10;
        s->expired_every = 20000 / (s->n + 1) + 1;
        s->arena = malloc((2 * (size_t)s->n + 1) * sizeof *s->arena);
        status = s->arena ? VM_OK : VM_ENOMEM;
    }
    if (status) {
        vm_search_fini(s);
        if (status == VM_ENOMEM)
            vm_pack_refuse(why, status, "no memory to search a packing of %zu items", p->nitems);
    }
    return status;
}

void vm_search_fini(struct vm_search *s)
{
    void *all[] = {s->original, s->size,   s->align,     s->fixed,    s->twin,   s->hull_lo,
                   s->hull_hi,  s->rng_first, s->rng,    s->adj_first, s->adj,   s->sec_first,
                   s->sec_item, s->sec_born, s->placed, s->offset,    s->support,  s->least,  s->remaining,
                   s->floor,    s->arg,    s->weight,    s->slack,    s->crossing, s->trail,  s->arena};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        free(all[k]);
    *s = (struct vm_search){0};
}
