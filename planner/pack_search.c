/* Branch and bound over canonical packings for one capacity, after Moffitt (ASPLOS 2023).
 *
 * A packing is canonical when its items, taken by ascending offset (ties by number), each lie as low
 * as those before them allow. Any packing can be pushed down to a canonical one, so the search adds
 * items in that order and never looks back below the offset it has reached. It prunes a node when
 *  - a section cannot hold what is still to come above its floor, the lowest place at which any of
 *    its remaining items can begin (section inference);
 *  - the next item would begin where another remaining item could already have ended (dominance);
 *  - an item that was passed over has nothing left to rest on. A passed-over item must be lifted by
 *    a neighbour that is still to come, so its floor is the least end of those neighbours: this
 *    sharpens the section inference for the siblings that follow.
 * Where no remaining item crosses a moment the two sides are solved apart (decomposition).
 * Several static orders of the items are tried in turn with growing node limits. */
#include "pack_search.h"

#include <stdlib.h>
#include <string.h>

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
static int refresh_floor(struct vm_search *s, uint32_t t, uint64_t reached)
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
    if (arg == NONE)
        return 1;
    if (floor < reached)
        floor = reached;
    return floor <= s->capacity && s->remaining[t] <= s->capacity - floor;
}

/* Item j now begins at `least` or above. 0 when a section of it cannot hold that. */
static int lift(struct vm_search *s, uint32_t j, uint64_t least, uint64_t reached)
{
    set(s, &s->least[j], least);
    if (s->fixed[j] != VM_UNPLACED && least > s->fixed[j])
        return 0;
    if (least > s->capacity || s->size[j] > s->capacity - least)
        return 0;
    for (uint32_t r = s->rng_first[j]; r < s->rng_first[j + 1]; r++)
        for (uint32_t t = s->rng[r].lo; t < s->rng[r].hi; t++)
            if (s->arg[t] == j && !refresh_floor(s, t, reached))
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
    for (uint32_t r = s->rng_first[i]; r < s->rng_first[i + 1]; r++)
        for (uint32_t t = s->rng[r].lo; t < s->rng[r].hi; t++)
            if (s->arg[t] == i && !refresh_floor(s, t, at))
                return 0;
    for (uint32_t k = s->adj_first[i]; k < s->adj_first[i + 1]; k++) {
        uint32_t j = s->adj[k];
        if (s->placed[j] || s->support[j] >= top)
            continue;
        uint64_t begin = vm_align_up(top, s->align[j]);
        set(s, &s->support[j], begin);
        if (begin > s->least[j] && !lift(s, j, begin, at))
            return 0;
    }
    return 1;
}

/* Item c was passed over: somebody who is still to come must lift it. 0 when nobody can. */
static int pass_over(struct vm_search *s, uint32_t c, uint64_t reached)
{
    uint64_t least = UINT64_MAX;
    if (s->fixed[c] != VM_UNPLACED)
        return 0;
    for (uint32_t k = s->adj_first[c]; k < s->adj_first[c + 1]; k++) {
        uint32_t j = s->adj[k];
        if (s->placed[j])
            continue;
        uint64_t from = s->least[j] > reached ? s->least[j] : reached;
        if (from + s->size[j] < least)
            least = from + s->size[j];
    }
    if (least == UINT64_MAX)
        return 0;
    least = vm_align_up(least, s->align[c]);
    return least <= s->least[c] || lift(s, c, least, reached);
}

/* ---- the tree ----*/

struct part {
    const uint32_t *items; /* some of them placed by now */
    uint32_t n, lo, hi;    /* sections [lo, hi)          */
};

static int explore(struct vm_search *s, struct part part, uint64_t reached);

static uint32_t *arena_take(struct vm_search *s, uint32_t n)
{
    if (n > s->arena_cap - s->arena_used) {
        s->no_memory = 1;
        return NULL;
    }
    uint32_t *out = s->arena + s->arena_used;
    s->arena_used += n;
    return out;
}

/* Every section must hold what remains of it above the offset reached. */
static int sections_hold(const struct vm_search *s, uint32_t lo, uint32_t hi, uint64_t reached)
{
    if (reached > s->capacity)
        return 0;
    uint64_t room = s->capacity - reached, most = 0;
    for (uint32_t t = lo; t < hi; t++)
        most = s->remaining[t] > most ? s->remaining[t] : most;
    return most <= room;
}

/* Solves what remains of the part after item c was placed: apart where nothing crosses any more. */
static int explore_parts(struct vm_search *s, struct part part, uint32_t c, uint64_t reached)
{
    uint32_t from = part.lo;
    int status = VM_OK;
    for (uint32_t b = s->hull_lo[c]; b < s->hull_hi[c] && status == VM_OK; b++) {
        uint32_t next = b + 1;
        if (b + 1 < s->hull_hi[c] ? s->crossing[b] != 0 : part.hi == from)
            continue;
        if (b + 1 == s->hull_hi[c])
            next = part.hi;
        struct part sub = {.lo = from, .hi = next};
        if (from == part.lo && next == part.hi)
            return explore(s, part, reached);
        size_t mark = s->arena_used;
        uint32_t *items = arena_take(s, part.n);
        if (!items)
            return VM_ENOMEM;
        for (uint32_t k = 0; k < part.n; k++) {
            uint32_t j = part.items[k];
            if (!s->placed[j] && s->hull_lo[j] >= from && s->hull_hi[j] <= next)
                items[sub.n++] = j;
        }
        sub.items = items;
        s->arena_used = mark + sub.n;
        status = explore(s, sub, reached);
        s->arena_used = mark;
        from = next;
    }
    return status;
}

/* Gathers the remaining items into live[] and the candidates, by (offset, number), into cand[]. */
static uint32_t gather(const struct vm_search *s, struct part part, uint64_t reached, uint32_t *live,
                       uint32_t *nlive, uint32_t *cand)
{
    uint32_t n = 0, nc = 0;
    uint64_t least_end = UINT64_MAX;
    for (uint32_t k = 0; k < part.n; k++) {
        uint32_t j = part.items[k];
        if (s->placed[j])
            continue;
        live[n++] = j;
        uint64_t from = s->least[j] > reached ? s->least[j] : reached;
        if (from + s->size[j] < least_end)
            least_end = from + s->size[j];
    }
    for (uint32_t k = 0; k < n; k++) {
        uint32_t j = live[k];
        if (s->support[j] != s->least[j] || s->least[j] < reached || s->least[j] >= least_end)
            continue;
        uint32_t at = nc++;
        while (at > 0 && (s->least[cand[at - 1]] > s->least[j] ||
                          (s->least[cand[at - 1]] == s->least[j] && cand[at - 1] > j))) {
            cand[at] = cand[at - 1];
            at--;
        }
        cand[at] = j;
    }
    *nlive = n;
    return nc;
}

static int out_of_budget(struct vm_search *s)
{
    s->nodes++;
    if (s->no_memory)
        return VM_ENOMEM;
    if (s->nodes >= s->node_limit)
        return VM_TIMEOUT;
    if (s->expired && (s->nodes & 1023) == 0 && s->expired(s->expired_arg)) {
        s->stop = 1;
        return VM_TIMEOUT;
    }
    return VM_OK;
}

static int is_twin(const struct vm_search *s, uint32_t a, uint32_t b)
{
    return s->twin[a] == s->twin[b] && s->support[a] == s->support[b];
}

static int explore(struct vm_search *s, struct part part, uint64_t reached)
{
    int status = out_of_budget(s);
    if (status)
        return status;
    size_t mark = s->arena_used, entry = s->ntrail;
    uint32_t *live = arena_take(s, part.n), *cand = arena_take(s, part.n), nlive = 0;
    if (!live || !cand)
        return VM_ENOMEM;
    uint32_t nc = gather(s, part, reached, live, &nlive, cand);
    s->arena_used = (size_t)(cand - s->arena) + nc;
    if (nlive == 0) {
        s->arena_used = mark;
        return VM_OK;
    }
    struct part rest = {live, nlive, part.lo, part.hi};
    status = VM_UNFIT;
    for (uint32_t k = 0; k < nc && status == VM_UNFIT; k++) {
        uint32_t c = cand[k];
        uint64_t at = s->support[c];
        if (k > 0 && is_twin(s, cand[k - 1], c))
            continue; /* the same packing with two names exchanged */
        if (!sections_hold(s, part.lo, part.hi, at))
            break;
        size_t before = s->ntrail;
        if (place(s, c, at))
            status = explore_parts(s, rest, c, at);
        if (status == VM_OK)
            break;
        undo_to(s, before);
        if (status == VM_UNFIT && !pass_over(s, c, at))
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
        if (!refresh_floor(s, t, 0))
            return VM_UNFIT;
    return explore(s, (struct part){items, n, lo, hi}, 0);
}
