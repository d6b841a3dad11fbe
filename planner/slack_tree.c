#include "slack_tree.h"

#include <stdlib.h>

#include "model.h"

static void build(struct vm_slack_tree *t, const int64_t *values)
{
    for (size_t i = 0; i < t->leaves; i++)
        t->max[t->leaves + i] = i < t->n ? values[i] : INT64_MIN / 2;
    for (size_t i = t->leaves - 1; i > 0; i--)
        t->max[i] = t->max[2 * i] > t->max[2 * i + 1] ? t->max[2 * i] : t->max[2 * i + 1];
}

int vm_slack_tree_init(struct vm_slack_tree *t, const int64_t *values, size_t n)
{
    t->n = n;
    for (t->leaves = 1; t->leaves < n; t->leaves *= 2)
        ;
    t->max = malloc(2 * t->leaves * sizeof *t->max);
    t->add = calloc(2 * t->leaves, sizeof *t->add);
    if (!t->max || !t->add) {
        vm_slack_tree_fini(t);
        return VM_ENOMEM;
    }
    build(t, values);
    return VM_OK;
}

void vm_slack_tree_fini(struct vm_slack_tree *t)
{
    free(t->max);
    free(t->add);
    t->max = t->add = NULL;
}

/* max[i] holds the maximum of i's leaves with every addition at i and below, none from above. */
static void add_rec(struct vm_slack_tree *t, size_t node, size_t nlo, size_t nhi, size_t lo,
                    size_t hi, int64_t v)
{
    if (hi <= nlo || nhi <= lo)
        return;
    if (lo <= nlo && nhi <= hi) {
        t->max[node] += v;
        t->add[node] += v;
        return;
    }
    size_t mid = (nlo + nhi) / 2;
    add_rec(t, 2 * node, nlo, mid, lo, hi, v);
    add_rec(t, 2 * node + 1, mid, nhi, lo, hi, v);
    int64_t a = t->max[2 * node], b = t->max[2 * node + 1];
    t->max[node] = (a > b ? a : b) + t->add[node];
}

void vm_slack_tree_add(struct vm_slack_tree *t, size_t lo, size_t hi, int64_t v)
{
    if (lo < hi)
        add_rec(t, 1, 0, t->leaves, lo, hi, v);
}

static int64_t max_rec(const struct vm_slack_tree *t, size_t node, size_t nlo, size_t nhi, size_t lo,
                       size_t hi)
{
    if (hi <= nlo || nhi <= lo)
        return INT64_MIN / 4;
    if (lo <= nlo && nhi <= hi)
        return t->max[node];
    size_t mid = (nlo + nhi) / 2;
    int64_t a = max_rec(t, 2 * node, nlo, mid, lo, hi);
    int64_t b = max_rec(t, 2 * node + 1, mid, nhi, lo, hi);
    return (a > b ? a : b) + t->add[node];
}

int64_t vm_slack_tree_max(const struct vm_slack_tree *t, size_t lo, size_t hi)
{
    return lo < hi ? max_rec(t, 1, 0, t->leaves, lo, hi) : INT64_MIN;
}

static size_t last_rec(const struct vm_slack_tree *t, size_t node, size_t nlo, size_t nhi, size_t lo,
                       size_t hi, int64_t limit)
{
    if (hi <= nlo || nhi <= lo || t->max[node] <= limit)
        return 0;
    if (nhi - nlo == 1)
        return nlo + 1;
    size_t mid = (nlo + nhi) / 2;
    int64_t below = limit - t->add[node];
    size_t r = last_rec(t, 2 * node + 1, mid, nhi, lo, hi, below);
    return r ? r : last_rec(t, 2 * node, nlo, mid, lo, hi, below);
}

size_t vm_slack_tree_room_from(const struct vm_slack_tree *t, size_t lo, size_t hi, int64_t limit)
{
    size_t r = lo < hi ? last_rec(t, 1, 0, t->leaves, lo, hi, limit) : 0;
    return r > lo ? r : lo;
}
