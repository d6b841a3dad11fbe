#include "range.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct vm_range {
    uint64_t base, units;
    struct vm_range *before, *after; /* neighbours by address, within one added range */
    struct vm_range *prev, *next;    /* bin or spare list                             */
    bool free;
};

#define VM_RANGE_BINS (64 * 4)

/* Class of a size: two bits below the leading one. */
static unsigned bin_floor(uint64_t units)
{
    if (units < 4)
        return (unsigned)units;
    unsigned lead = 63u - (unsigned)__builtin_clzll(units);
    return lead * 4 + (unsigned)((units >> (lead - 2)) & 3);
}

/* Smallest class all of whose members hold `units`. */
static unsigned bin_ceil(uint64_t units)
{
    unsigned b = bin_floor(units);
    if (units < 4)
        return b;
    unsigned lead = b / 4;
    uint64_t least = (uint64_t)(4 + b % 4) << (lead - 2);
    return least == units ? b : b + 1;
}

static void bin_insert(struct vm_ranges *r, struct vm_range *n)
{
    unsigned b = bin_floor(n->units);
    n->prev = NULL;
    n->next = r->bins[b];
    if (n->next)
        n->next->prev = n;
    r->bins[b] = n;
    r->nonempty[b / 64] |= UINT64_C(1) << (b % 64);
}

static void bin_remove(struct vm_ranges *r, struct vm_range *n)
{
    unsigned b = bin_floor(n->units);
    if (n->prev)
        n->prev->next = n->next;
    else
        r->bins[b] = n->next;
    if (n->next)
        n->next->prev = n->prev;
    if (!r->bins[b])
        r->nonempty[b / 64] &= ~(UINT64_C(1) << (b % 64));
}

static struct vm_range *node_new(struct vm_ranges *r)
{
    struct vm_range *n = r->pool;
    if (n) {
        r->pool = n->next;
        memset(n, 0, sizeof *n);
        return n;
    }
    return calloc(1, sizeof *n);
}

static void node_spare(struct vm_ranges *r, struct vm_range *n)
{
    n->next = r->pool;
    r->pool = n;
}

int vm_ranges_add(struct vm_ranges *r, uint64_t base, uint64_t units)
{
    struct vm_range *n = node_new(r);
    if (!n)
        return -1;
    n->base = base;
    n->units = units;
    n->free = true;
    bin_insert(r, n);
    return 0;
}

/* An exact fit, else any member of the first bin all of whose members fit, else a lucky one below
 * it. */
static struct vm_range *find(struct vm_ranges *r, uint64_t units)
{
    for (struct vm_range *n = r->bins[bin_floor(units)]; n; n = n->next)
        if (n->units == units)
            return n;
    unsigned b = bin_ceil(units);
    for (unsigned w = b / 64; w < 4; w++) {
        uint64_t bits = r->nonempty[w];
        if (w == b / 64)
            bits &= ~UINT64_C(0) << (b % 64);
        if (bits)
            return r->bins[w * 64 + (unsigned)__builtin_ctzll(bits)];
    }
    for (struct vm_range *n = r->bins[bin_floor(units)]; n; n = n->next)
        if (n->units >= units)
            return n;
    return NULL;
}

struct vm_range *vm_ranges_take(struct vm_ranges *r, uint64_t units, uint64_t *offset)
{
    struct vm_range *n = find(r, units);
    if (!n)
        return NULL;
    bin_remove(r, n);
    if (n->units > units) {
        struct vm_range *rest = node_new(r);
        if (!rest) {
            bin_insert(r, n);
            return NULL;
        }
        rest->base = n->base + units;
        rest->units = n->units - units;
        rest->free = true;
        rest->before = n;
        rest->after = n->after;
        if (rest->after)
            rest->after->before = rest;
        n->after = rest;
        n->units = units;
        bin_insert(r, rest);
    }
    n->free = false;
    r->used += units;
    *offset = n->base;
    return n;
}

void vm_ranges_give(struct vm_ranges *r, struct vm_range *n)
{
    r->used -= n->units;
    n->free = true;
    struct vm_range *a = n->after, *b = n->before;
    if (a && a->free) {
        bin_remove(r, a);
        n->units += a->units;
        n->after = a->after;
        if (n->after)
            n->after->before = n;
        node_spare(r, a);
    }
    if (b && b->free) {
        bin_remove(r, b);
        b->units += n->units;
        b->after = n->after;
        if (b->after)
            b->after->before = b;
        node_spare(r, n);
        n = b;
    }
    bin_insert(r, n);
}

void vm_ranges_fini(struct vm_ranges *r)
{
    /* Every node is reachable from a bin or is in use; used ones belong to their holders, who gave
     * them back before this is called. */
    for (unsigned b = 0; b < VM_RANGE_BINS; b++)
        while (r->bins[b]) {
            struct vm_range *n = r->bins[b];
            r->bins[b] = n->next;
            free(n);
        }
    while (r->pool) {
        struct vm_range *n = r->pool;
        r->pool = n->next;
        free(n);
    }
    memset(r, 0, sizeof *r);
}
