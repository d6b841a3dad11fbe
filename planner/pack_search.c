/* Branch and bound over pushed-down packings for one capacity.
 *
 * Any packing can be pushed down until every item rests on another or on the ground; among those the
 * one with the least sum of offsets cannot be improved by moving any single item lower. The search
 * looks for that one. It decides one item at a time: either the item begins at its support, the
 * lowest offset above what is placed, or it is passed over and somebody who is still to come must
 * lie beneath it, which lifts the least offset it can have to the least end of its neighbours. An
 * item is ripe for the decision when no neighbour can come to lie beneath it any more. A node fails
 *  - when a section cannot hold what is still to come above its floor, the lowest offset at which any
 *    of its remaining items can begin (section inference);
 *  - when nobody is left to lift an item that was passed over, or nothing is ripe (dominance: what
 *    fits lower must lie lower).
 * Where no remaining item crosses a moment the two sides are solved apart (decomposition). Section
 * inference, dominance and decomposition are those of Moffitt, "MiniMalloc" (ASPLOS 2023); deciding
 * items one by one instead of in the order of their offsets, and weighing sections by the failures
 * they have caused (Boussemart, Hemery, Lecoutre and Sais, "Boosting systematic search by weighting
 * constraints", ECAI 2004), is what makes it need few nodes. */
#include "pack_search.h"

#include <math.h>
#include <stdlib.h>

#define NONE UINT32_MAX

/* ---- undo ----*/

static void set(struct vm_search *s, uint64_t *at, uint64_t value)
{
    if (s->ntrail == s->captrail) {
        size_t cap = s->captrail ? s->captrail * 2 : 4096;
        struct vm_search_undo *grown = realloc(s->trail, cap * sizeof *grown);
        if (!grown) {
            s->no_memory = 1; /* noticed at the next node; the state is thrown away then */
            *at = value;
            return;
        }
        s->trail = grown;
        s->captrail = cap;
    }
    s->trail[s->ntrail++] = (struct vm_search_undo){at, *at};
    *at = value;
}

static void undo_to(struct vm_search *s, size_t mark)
{
    while (s->ntrail > mark) {
        s->ntrail--;
        *s->trail[s->ntrail].at = s->trail[s->ntrail].old;
    }
}

/* ---- floors ----*/

/* Finds section t's floor again. 0 when what remains cannot fit above it. */
static int refresh_floor(struct vm_search *s, uint32_t t)
{
    uint64_t floor = UINT64_MAX;
    uint32_t arg = NONE;
    for (uint32_t k = s->sec_first[t]; k < s->sec_first[t + 1]; k++) {
        uint32_t j = s->sec_item[k];
        if (!s->placed[j] && s->least[j] < floor) {
            floor = s->least[j];
            arg = j;
        }
    }
    if (floor != s->floor[t])
        set(s, &s->floor[t], floor);
    if (arg != s->arg[t])
        set(s, &s->arg[t], arg);
    if (arg == NONE || (floor <= s->capacity && s->remaining[t] <= s->capacity - floor))
        return 1;
    s->weight[t] += 1;
    return 0;
}

/* Item j now begins at `least` or above. 0 when a section of it cannot hold that. */
static int lift(struct vm_search *s, uint32_t j, uint64_t least)
{
    set(s, &s->least[j], least);
    if (s->fixed[j] != VM_UNPLACED && least > s->fixed[j])
        return 0;
    if (least > s->capacity || s->size[j] > s->capacity - least)
        return 0;
    for (uint32_t r = s->rng_first[j]; r < s->rng_first[j + 1]; r++)
        for (uint32_t t = s->rng[r].lo; t < s->rng[r].hi; t++)
            if (s->arg[t] == j && !refresh_floor(s, t))
                return 0;
    return 1;
}

static int place(struct vm_search *s, uint32_t i, uint64_t at)
{
    uint64_t top = at + s->size[i];
    set(s, &s->placed[i], 1);
    s->offset[i] = at;
    for (uint32_t r = s->rng_first[i]; r < s->rng_first[i + 1]; r++)
        for (uint32_t t = s->rng[r].lo; t < s->rng[r].hi; t++)
            set(s, &s->remaining[t], s->remaining[t] - s->size[i]);
    for (uint32_t b = s->hull_lo[i]; b + 1 < s->hull_hi[i]; b++)
        set(s, &s->crossing[b], s->crossing[b] - 1);
    for (uint32_t k = s->adj_first[i]; k < s->adj_first[i + 1]; k++) {
        uint32_t j = s->adj[k];
        if (s->placed[j] || s->support[j] >= top)
            continue;
        uint64_t begin = vm_align_up(top, s->align[j]);
        set(s, &s->support[j], begin);
        if (begin > s->least[j] && !lift(s, j, begin))
            return 0;
    }
    for (uint32_t r = s->rng_first[i]; r < s->rng_first[i + 1]; r++)
        for (uint32_t t = s->rng[r].lo; t < s->rng[r].hi; t++)
            if (s->arg[t] == i && !refresh_floor(s, t))
                return 0;
    return 1;
}

/* Item c was passed over: somebody who is still to come must lift it. 0 when nobody can. */
static int pass_over(struct vm_search *s, uint32_t c)
{
    uint64_t least = UINT64_MAX;
    if (s->fixed[c] != VM_UNPLACED)
        return 0;
    for (uint32_t k = s->adj_first[c]; k < s->adj_first[c + 1]; k++) {
        uint32_t j = s->adj[k];
        if (!s->placed[j] && s->least[j] + s->size[j] < least)
            least = s->least[j] + s->size[j];
    }
    if (least == UINT64_MAX)
        return 0;
    return lift(s, c, vm_align_up(least, s->align[c]));
}

/* Items that differ from c in their number only are passed over with it: the packing in which one of
 * them takes c's place is the one that was refuted, with two names exchanged. */
static int pass_over_twins(struct vm_search *s, uint32_t c)
{
    uint64_t at = s->support[c];
    if (!pass_over(s, c))
        return 0;
    for (uint32_t j = s->twin[c]; j != c; j = s->twin[j])
        if (!s->placed[j] && s->support[j] == at && s->least[j] == at && !pass_over(s, j))
            return 0;
    return 1;
}

/* ---- the tree ----*/

struct part {
    const uint32_t *items; /* numbers ascending; those placed or outside [lo, hi) do not count */
    uint32_t n, lo, hi;    /* sections [lo, hi)                                                */
};

static int explore(struct vm_search *s, struct part part);

static int open_item(const struct vm_search *s, const struct part *part, uint32_t j)
{
    return !s->placed[j] && s->hull_lo[j] >= part->lo && s->hull_hi[j] <= part->hi;
}

/* Solves what remains of the part after item c was placed: apart where nothing crosses any more. */
static int explore_parts(struct vm_search *s, struct part part, uint32_t c)
{
    uint32_t from = part.lo;
    for (uint32_t b = s->hull_lo[c]; b < s->hull_hi[c]; b++) {
        int last = b + 1 == s->hull_hi[c];
        if (!last && s->crossing[b] != 0)
            continue;
        uint32_t next = last ? part.hi : b + 1;
        int status = explore(s, (struct part){part.items, part.n, from, next});
        if (status)
            return status;
        from = next;
    }
    return VM_OK;
}

/* ---- which item to decide next ----*/

/* May c be decided now? Not while a neighbour might still come to lie beneath it. */
static int ripe(const struct vm_search *s, uint32_t c)
{
    uint64_t at = s->support[c];
    if (at != s->least[c])
        return 0; /* passed over, and not lifted far enough yet */
    for (uint32_t k = s->adj_first[c]; k < s->adj_first[c + 1]; k++) {
        uint32_t j = s->adj[k];
        if (!s->placed[j] && s->least[j] + s->size[j] <= at)
            return 0;
    }
    return 1;
}

/* How little room a section has to spare, counting how often it has failed: smaller is tighter. */
static double section_slack(const struct vm_search *s, uint32_t t)
{
    double slack = (double)(s->capacity - s->floor[t] - s->remaining[t]);
    return (slack + s->slack_bias) / s->weight[t];
}

/* The least slack over sections [lo, hi), from the table made for this node. */
static double least_slack(const struct vm_search *s, uint32_t lo, uint32_t hi)
{
    unsigned level = 31u - (unsigned)__builtin_clz(hi - lo);
    const double *row = s->slack + (size_t)level * s->nsections;
    double a = row[lo], b = row[hi - (1u << level)];
    return a < b ? a : b;
}

static double item_slack(const struct vm_search *s, uint32_t j)
{
    double least = HUGE_VAL;
    for (uint32_t r = s->rng_first[j]; r < s->rng_first[j + 1]; r++) {
        double slack = least_slack(s, s->rng[r].lo, s->rng[r].hi);
        least = slack < least ? slack : least;
    }
    return least;
}

/* Range minima of the sections' slack: row k has the least of 2^k neighbours. */
static void table_slack(const struct vm_search *s, const struct part *part)
{
    double *row = s->slack;
    for (uint32_t t = part->lo; t < part->hi; t++)
        row[t] = s->arg[t] == NONE ? HUGE_VAL : section_slack(s, t);
    for (uint32_t width = 1; 2 * width <= part->hi - part->lo; width *= 2) {
        double *next = row + s->nsections;
        for (uint32_t t = part->lo; t + 2 * width <= part->hi; t++)
            next[t] = row[t] < row[t + width] ? row[t] : row[t + width];
        row = next;
    }
}

/* The lowest; among equals the first in number or, if `tightest`, the one in the tightest section. */
static uint32_t lowest_item(const struct vm_search *s, const struct part *part, int tightest)
{
    uint32_t best = NONE;
    double best_slack = 0;
    if (tightest)
        table_slack(s, part);
    for (uint32_t k = 0; k < part->n; k++) {
        uint32_t j = part->items[k];
        if (!open_item(s, part, j) || (best != NONE && s->support[j] > s->support[best]))
            continue;
        int level = best != NONE && s->support[j] == s->support[best];
        if (level && !tightest)
            continue;
        double slack = tightest ? item_slack(s, j) : 0;
        if ((level && slack >= best_slack) || !ripe(s, j))
            continue;
        best = j;
        best_slack = slack;
    }
    return best;
}

/* The first item, in number, that could begin at the floor of section t now. */
static uint32_t floor_item(const struct vm_search *s, uint32_t t)
{
    for (uint32_t k = s->sec_first[t]; k < s->sec_first[t + 1]; k++) {
        uint32_t j = s->sec_item[k];
        if (!s->placed[j] && s->support[j] == s->floor[t] && ripe(s, j))
            return j;
    }
    return NONE;
}

/* One that can lie on the floor of the tightest section. */
static uint32_t tightest_item(const struct vm_search *s, const struct part *part)
{
    double least = HUGE_VAL;
    uint32_t best = NONE;
    for (uint32_t t = part->lo; t < part->hi; t++) {
        double slack = s->arg[t] == NONE ? HUGE_VAL : section_slack(s, t);
        if (slack >= least)
            continue;
        uint32_t j = floor_item(s, t);
        if (j == NONE)
            continue;
        least = slack;
        best = j;
    }
    return best != NONE ? best : lowest_item(s, part, 0);
}

static uint32_t next_item(const struct vm_search *s, const struct part *part)
{
    switch (s->branching) {
    case VM_BRANCH_TIGHTEST:
        return tightest_item(s, part);
    case VM_BRANCH_LOWEST_TIGHT:
        return lowest_item(s, part, 1);
    default:
        return lowest_item(s, part, 0);
    }
}

/* ---- nodes ----*/

static int out_of_budget(struct vm_search *s)
{
    s->nodes++;
    if (s->no_memory)
        return VM_ENOMEM;
    if (s->nodes >= s->node_limit)
        return VM_TIMEOUT;
    if (s->expired && s->nodes % s->expired_every == 1 % s->expired_every &&
        s->expired(s->expired_arg)) {
        s->stop = 1;
        return VM_TIMEOUT;
    }
    return VM_OK;
}

/* Counts what is open in the part and, when most of its list is not, makes a shorter list. */
static uint32_t tidy(struct vm_search *s, struct part *part)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < part->n; k++)
        n += (uint32_t)open_item(s, part, part->items[k]);
    if (n > part->n / 2 || n == 0)
        return n;
    uint32_t *items = s->arena + s->arena_used; /* halving lists: never more than 2 n cells in all */
    uint32_t m = 0;
    for (uint32_t k = 0; k < part->n; k++)
        if (open_item(s, part, part->items[k]))
            items[m++] = part->items[k];
    s->arena_used += n;
    part->items = items;
    part->n = n;
    return n;
}

static int explore(struct vm_search *s, struct part part)
{
    int status = out_of_budget(s);
    if (status)
        return status;
    size_t mark = s->arena_used, entry = s->ntrail;
    if (tidy(s, &part) == 0)
        return VM_OK;
    for (status = VM_UNFIT; status == VM_UNFIT;) {
        uint32_t c = next_item(s, &part);
        if (c == NONE)
            break;
        size_t before = s->ntrail;
        if (place(s, c, s->support[c]))
            status = explore_parts(s, part, c);
        if (status == VM_OK)
            break;
        undo_to(s, before);
        if (status == VM_UNFIT && !pass_over_twins(s, c))
            break;
    }
    if (status != VM_OK)
        undo_to(s, entry);
    s->arena_used = mark;
    return status;
}

int vm_search_part(struct vm_search *s, const uint32_t *items, uint32_t n, uint32_t lo, uint32_t hi)
{
    for (uint32_t t = lo; t < hi; t++)
        if (!refresh_floor(s, t))
            return VM_UNFIT;
    return explore(s, (struct part){items, n, lo, hi});
}
