/* The checker sweeps time and keeps what is live in a search tree ordered by offset: a newcomer may
 * not reach into its successor, nor its predecessor into it. Live items never overlap, so
 * neighbours suffice. The tree is a treap whose priorities are a hash of the span's number. */
#include "verify.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct span {
    uint64_t time_in, time_out, start, end; /* bytes [start, end) */
    size_t item;
    size_t left, right;
    uint64_t priority;
};

#define NIL SIZE_MAX

struct moment {
    uint64_t time;
    size_t span;
    int birth;
};

static int refuse(struct vm_error *why, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static int refuse(struct vm_error *why, const char *format, ...)
{
    if (why) {
        va_list ap;
        va_start(ap, format);
        vsnprintf(why->text, sizeof why->text, format, ap);
        va_end(ap);
    }
    return VM_EINVAL;
}

static int by_time(const void *a, const void *b)
{
    const struct moment *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    if (x->birth != y->birth)
        return x->birth - y->birth; /* deaths first: lifetimes are half-open */
    return x->span < y->span ? -1 : x->span > y->span;
}

static uint64_t scramble(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Splits the tree at `start`: *lo gets what begins before it, *hi the rest. */
static void split(struct span *s, size_t root, uint64_t start, size_t *lo, size_t *hi)
{
    while (root != NIL) {
        if (s[root].start < start) {
            *lo = root;
            lo = &s[root].right;
            root = s[root].right;
        } else {
            *hi = root;
            hi = &s[root].left;
            root = s[root].left;
        }
    }
    *lo = *hi = NIL;
}

static void insert(struct span *s, size_t *root, size_t x)
{
    while (*root != NIL && s[*root].priority >= s[x].priority)
        root = s[x].start < s[*root].start ? &s[*root].left : &s[*root].right;
    size_t below = *root;
    *root = x;
    split(s, below, s[x].start, &s[x].left, &s[x].right);
}

static void erase(struct span *s, size_t *root, size_t x)
{
    while (*root != NIL && *root != x)
        root = s[x].start < s[*root].start ? &s[*root].left : &s[*root].right;
    if (*root == NIL)
        return;
    size_t a = s[x].left, b = s[x].right;
    while (a != NIL && b != NIL) {
        if (s[a].priority > s[b].priority) {
            *root = a;
            root = &s[a].right;
            a = s[a].right;
        } else {
            *root = b;
            root = &s[b].left;
            b = s[b].left;
        }
    }
    *root = a != NIL ? a : b;
}

/* The live span that shares a byte with x, or NIL. */
static size_t clash(const struct span *s, size_t root, size_t x)
{
    size_t before = NIL, after = NIL;
    while (root != NIL) {
        if (s[root].start <= s[x].start) {
            before = root;
            root = s[root].right;
        } else {
            after = root;
            root = s[root].left;
        }
    }
    if (before != NIL && s[before].end > s[x].start)
        return before;
    if (after != NIL && s[x].end > s[after].start)
        return after;
    return NIL;
}

static int sweep(struct span *s, struct moment *m, size_t nmoments, struct vm_error *why)
{
    qsort(m, nmoments, sizeof *m, by_time);
    size_t root = NIL;
    for (size_t k = 0; k < nmoments; k++) {
        size_t x = m[k].span;
        if (!m[k].birth) {
            erase(s, &root, x);
            continue;
        }
        size_t y = clash(s, root, x);
        if (y != NIL)
            return refuse(why,
                          "items %zu at [%llu, %llu) and %zu at [%llu, %llu) overlap at time %llu",
                          s[y].item, (unsigned long long)s[y].start, (unsigned long long)s[y].end,
                          s[x].item, (unsigned long long)s[x].start, (unsigned long long)s[x].end,
                          (unsigned long long)m[k].time);
        insert(s, &root, x);
    }
    return VM_OK;
}

static int check_places(const struct vm_pack_problem *p, const uint64_t *offsets, uint64_t capacity,
                        uint64_t *height, size_t *nspans, struct vm_error *why)
{
    uint64_t top = 0;
    size_t spans = 0;
    for (size_t i = 0; i < p->nitems; i++) {
        const struct vm_pack_item *it = &p->items[i];
        uint64_t at = offsets[i];
        if (at == VM_UNPLACED || at > UINT64_MAX - it->size)
            return refuse(why, "item %zu has no place", i);
        if (it->fixed != VM_UNPLACED && at != it->fixed)
            return refuse(why, "item %zu was fixed at %llu and is at %llu", i,
                          (unsigned long long)it->fixed, (unsigned long long)at);
        if (it->align > 1 && at % it->align != 0)
            return refuse(why, "item %zu at %llu is not aligned to %llu", i, (unsigned long long)at,
                          (unsigned long long)it->align);
        if (capacity && at + it->size > capacity)
            return refuse(why, "item %zu ends at %llu, above the capacity %llu", i,
                          (unsigned long long)(at + it->size), (unsigned long long)capacity);
        if (at + it->size > top)
            top = at + it->size;
        spans += (size_t)it->ngaps + 1;
    }
    *height = top;
    *nspans = spans;
    return VM_OK;
}

static size_t lay_spans(const struct vm_pack_problem *p, const uint64_t *offsets, struct span *s,
                        struct moment *m)
{
    size_t k = 0;
    for (size_t i = 0; i < p->nitems; i++) {
        const struct vm_pack_item *it = &p->items[i];
        if (it->size == 0)
            continue; /* shares no byte with anything */
        uint64_t from = it->lower;
        for (uint32_t g = 0; g <= it->ngaps; g++) {
            uint64_t to = g < it->ngaps ? p->gaps[it->gap + g].lower : it->upper;
            s[k] = (struct span){.time_in = from, .time_out = to, .start = offsets[i],
                                 .end = offsets[i] + it->size, .item = i, .left = NIL, .right = NIL,
                                 .priority = scramble(k + 1)};
            m[2 * k] = (struct moment){from, k, 1};
            m[2 * k + 1] = (struct moment){to, k, 0};
            k++;
            if (g < it->ngaps)
                from = p->gaps[it->gap + g].upper;
        }
    }
    return k;
}

int vm_verify_packing(const struct vm_pack_problem *p, const uint64_t *offsets, uint64_t capacity,
                      uint64_t *height, struct vm_error *why)
{
    uint64_t top = 0;
    size_t nspans = 0;
    int status = check_places(p, offsets, capacity, &top, &nspans, why);
    if (status)
        return status;
    struct span *s = malloc((nspans + 1) * sizeof *s);
    struct moment *m = malloc((2 * nspans + 1) * sizeof *m);
    if (s && m) {
        size_t k = lay_spans(p, offsets, s, m);
        status = sweep(s, m, 2 * k, why);
    } else {
        status = VM_ENOMEM;
        refuse(why, "no memory to check %zu items", p->nitems);
    }
    free(s);
    free(m);
    if (status == VM_OK && height)
        *height = top;
    return status;
}
