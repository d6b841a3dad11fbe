/* Places the blocks of one iteration. Time is the order of allocations and frees; it is cyclic, so a
 * block that wraps is live at both ends and cold in the middle, with one place.
 *
 * For paging, what a page holds should be live and cold at the same times. Large blocks own their
 * pages. Small ones are put together: persistent ones in the order of their longest idle stretch;
 * lasting ones into the open page whose lifetime theirs fits best; short-lived ones share pages in
 * turn. The page runs so made are then packed like large blocks. */
#include "pack_sections.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { BYTE_ALIGN = 512 };

/* A block's life in positions of the iteration's list of allocations and frees (or ops). */
struct life {
    uint64_t lower, upper; /* [lower, upper); when it wraps: [0, upper) and [lower, end) */
    int wraps;
};

struct place {
    const struct vm_iteration *it;
    uint64_t pool_offset, unit; /* everything here is counted from pool_offset in `unit` bytes */
    uint64_t end;               /* of time */
    struct life *life;          /* for each block */
};

/* ---- lives ----*/

static int lives_from_mem(struct place *pl, struct vm_error *why)
{
    const struct vm_iteration *it = pl->it;
    pl->end = it->nmem;
    for (size_t b = 0; b < it->nblocks; b++)
        pl->life[b] = (struct life){UINT64_MAX, UINT64_MAX, 0};
    for (size_t k = 0; k < it->nmem; k++) {
        const struct vm_iter_mem *m = &it->mem[k];
        if (m->block >= it->nblocks)
            return vm_pack_refuse(why, VM_EINVAL, "memory event %zu names block %u of %zu", k,
                                  m->block, it->nblocks);
        uint64_t *at = m->is_free ? &pl->life[m->block].upper : &pl->life[m->block].lower;
        if (*at != UINT64_MAX)
            return vm_pack_refuse(why, VM_EINVAL, "block %u is %s twice in one iteration", m->block,
                                  m->is_free ? "freed" : "allocated");
        *at = k;
    }
    for (size_t b = 0; b < it->nblocks; b++) {
        struct life *l = &pl->life[b];
        int born = l->lower != UINT64_MAX, died = l->upper != UINT64_MAX;
        l->wraps = born && died && l->upper < l->lower;
        bool meets = born && died && !l->wraps && (it->blocks[b].flags & VM_BLK_WRAPS);
        if (!born || meets) /* the older instance goes after the younger came: alive at every moment */
            l->lower = 0;
        if (!died || meets)
            l->upper = pl->end;
    }
    return VM_OK;
}

static int lives_from_ops(struct place *pl, struct vm_error *why)
{
    const struct vm_iteration *it = pl->it;
    pl->end = it->nops;
    for (size_t b = 0; b < it->nblocks; b++) {
        const struct vm_iter_block *x = &it->blocks[b];
        if (x->alloc_op > it->nops || x->free_op < x->alloc_op)
            return vm_pack_refuse(why, VM_EINVAL, "block %zu lives from op %u to op %u of %zu", b,
                                  x->alloc_op, x->free_op, it->nops);
        pl->life[b] = (struct life){x->alloc_op, x->free_op, 0};
        if (x->free_op > it->nops) {
            pl->life[b].upper = x->free_op - it->nops;
            pl->life[b].wraps = pl->life[b].upper < x->alloc_op;
            if (!pl->life[b].wraps)
                pl->life[b] = (struct life){0, it->nops, 0}; /* live at every moment */
        }
    }
    return VM_OK;
}

static int find_lives(struct place *pl, struct vm_error *why)
{
    pl->life = malloc((pl->it->nblocks + 1) * sizeof *pl->life);
    if (!pl->life)
        return vm_pack_refuse(why, VM_ENOMEM, "no memory to place %zu blocks", pl->it->nblocks);
    int status = pl->it->nmem ? lives_from_mem(pl, why) : lives_from_ops(pl, why);
    if (pl->end == 0)
        pl->end = 1;
    for (size_t b = 0; status == VM_OK && b < pl->it->nblocks; b++) {
        struct life *l = &pl->life[b];
        if (l->wraps && l->upper == 0) /* gone before anything else happens: only its first part */
            *l = (struct life){l->lower, pl->end, 0};
        if (l->wraps && l->lower >= pl->end)
            *l = (struct life){0, l->upper, 0};
        if (!l->wraps && l->lower >= pl->end)
            l->lower = pl->end - 1;
        if (!l->wraps && l->upper <= l->lower)
            l->upper = l->lower + 1;
    }
    return status;
}

static uint64_t life_length(const struct place *pl, size_t b)
{
    const struct life *l = &pl->life[b];
    return l->wraps ? pl->end - l->lower + l->upper : l->upper - l->lower;
}

/* ---- the problem handed to the packer ----*/

struct box {
    struct vm_pack_item *items;
    struct vm_pack_span *gaps;
    uint64_t *offsets;
    size_t nitems, ngaps;
};

static int box_init(struct box *x, size_t n)
{
    *x = (struct box){.items = malloc((n + 1) * sizeof *x->items),
                      .gaps = malloc((n + 1) * sizeof *x->gaps),
                      .offsets = malloc((n + 1) * sizeof *x->offsets)};
    return x->items && x->gaps && x->offsets ? VM_OK : VM_ENOMEM;
}

static void box_fini(struct box *x)
{
    free(x->items);
    free(x->gaps);
    free(x->offsets);
}

/* Appends an item of `size` units with the given life; returns its index. */
static size_t box_add(struct box *x, const struct place *pl, const struct life *l, uint64_t size,
                      uint64_t fixed)
{
    struct vm_pack_item *it = &x->items[x->nitems];
    *it = (struct vm_pack_item){.size = size, .lower = l->lower, .upper = l->upper, .align = 1,
                                .fixed = fixed};
    if (l->wraps) {
        it->lower = 0;
        it->upper = pl->end;
        it->gap = (uint32_t)x->ngaps;
        it->ngaps = 1;
        x->gaps[x->ngaps++] = (struct vm_pack_span){l->upper, l->lower};
    }
    return x->nitems++;
}

/* Adds the fixed blocks that reach into the pool, rounded outwards to units: as one obstacle for
 * each stretch, live for all time of the blocks in it. */
static void box_add_obstacle(struct box *x, const struct place *pl, size_t b)
{
    const struct vm_iter_block *blk = &pl->it->blocks[b];
    uint64_t end = blk->fixed_offset + blk->size;
    if (blk->size == 0 || end <= pl->pool_offset)
        return;
    uint64_t from = blk->fixed_offset > pl->pool_offset ? blk->fixed_offset - pl->pool_offset : 0;
    uint64_t first = from / pl->unit;
    uint64_t past = (end - pl->pool_offset + pl->unit - 1) / pl->unit;
    const struct life always = {0, pl->end, 0};
    /* Neighbours may round onto one unit: overlapping obstacles are merged by the caller's order. */
    if (x->nitems && x->items[x->nitems - 1].fixed != VM_UNPLACED) {
        struct vm_pack_item *last = &x->items[x->nitems - 1];
        if (first < last->fixed + last->size) {
            if (past > last->fixed + last->size)
                last->size = past - last->fixed;
            return;
        }
    }
    box_add(x, pl, &always, past - first, first);
}

static int add_obstacles(struct box *x, const struct place *pl)
{
    size_t n = pl->it->nblocks, k = 0;
    struct vm_sort_pair *pairs = malloc((2 * n + 1) * sizeof *pairs);
    if (!pairs)
        return VM_ENOMEM;
    for (size_t b = 0; b < n; b++)
        if (pl->it->blocks[b].fixed_offset != VM_UNPLACED)
            pairs[k++] = (struct vm_sort_pair){pl->it->blocks[b].fixed_offset, (uint32_t)b};
    vm_sort_pairs(pairs, pairs + k, k);
    for (size_t i = 0; i < k; i++)
        box_add_obstacle(x, pl, pairs[i].value);
    free(pairs);
    return VM_OK;
}

static int check_blocks(const struct vm_iteration *it, uint64_t pool_offset, struct vm_error *why)
{
    for (size_t b = 0; b < it->nblocks; b++) {
        const struct vm_iter_block *x = &it->blocks[b];
        if (x->size > INT64_MAX ||
            (x->fixed_offset != VM_UNPLACED && x->fixed_offset > INT64_MAX - x->size))
            return vm_pack_refuse(why, VM_EINVAL, "block %zu of %llu bytes does not fit any memory",
                                  b, (unsigned long long)x->size);
    }
    if (pool_offset > INT64_MAX)
        return vm_pack_refuse(why, VM_EINVAL, "the pool begins at %llu, above 2^63 - 1",
                              (unsigned long long)pool_offset);
    return VM_OK;
}

static int is_free(const struct vm_iter_block *b)
{
    return b->fixed_offset == VM_UNPLACED && b->size != 0;
}

static uint64_t units(uint64_t bytes, uint64_t unit)
{
    return bytes / unit + (bytes % unit != 0);
}

/* Blocks that are fixed keep their place, empty ones get the pool's start. */
static void preset_offsets(const struct place *pl, uint64_t *offsets)
{
    for (size_t b = 0; b < pl->it->nblocks; b++)
        offsets[b] = pl->it->blocks[b].fixed_offset != VM_UNPLACED ? pl->it->blocks[b].fixed_offset
                                                                    : pl->pool_offset;
}

/* ---- contiguous ----*/

static int pack_blocks(struct place *pl, struct box *x, uint64_t search_nodes, uint64_t *offsets,
                       uint64_t *pool_bytes, struct vm_error *why)
{
    size_t nobstacles = x->nitems;
    for (size_t b = 0; b < pl->it->nblocks; b++)
        if (is_free(&pl->it->blocks[b]))
            box_add(x, pl, &pl->life[b], units(pl->it->blocks[b].size, pl->unit), VM_UNPLACED);
    struct vm_pack_problem p = {x->items, x->nitems, x->gaps, x->ngaps};
    struct vm_pack_options opt = {.max_nodes = search_nodes};
    struct vm_pack_result res;
    int status = search_nodes ? vm_pack(&p, &opt, x->offsets, &res, why)
                              : vm_pack_fast(&p, &opt, x->offsets, &res, why);
    if (status < 0)
        return status;
    uint64_t top = 0;
    size_t i = nobstacles;
    preset_offsets(pl, offsets);
    for (size_t b = 0; b < pl->it->nblocks; b++) {
        if (!is_free(&pl->it->blocks[b]))
            continue;
        uint64_t at = x->offsets[i++] * pl->unit;
        offsets[b] = pl->pool_offset + at;
        if (at + pl->it->blocks[b].size > top)
            top = at + pl->it->blocks[b].size;
    }
    *pool_bytes = top;
    return VM_OK;
}

int vm_place_contiguous(const struct vm_iteration *it, uint64_t pool_offset, uint64_t search_nodes,
                        uint64_t *offsets, uint64_t *pool_bytes, struct vm_error *why)
{
    struct place pl = {.it = it, .pool_offset = pool_offset, .unit = BYTE_ALIGN};
    struct box x = {0};
    if (pool_offset % BYTE_ALIGN)
        return vm_pack_refuse(why, VM_EINVAL, "the pool begins at %llu, not a multiple of %d",
                              (unsigned long long)pool_offset, BYTE_ALIGN);
    int status = check_blocks(it, pool_offset, why);
    if (status == VM_OK)
        status = find_lives(&pl, why);
    if (status == VM_OK) {
        status = box_init(&x, it->nblocks);
        if (status == VM_OK)
            status = add_obstacles(&x, &pl);
        if (status)
            vm_pack_refuse(why, status, "no memory to place %zu blocks", it->nblocks);
    }
    if (status == VM_OK)
        status = pack_blocks(&pl, &x, search_nodes, offsets, pool_bytes, why);
    box_fini(&x);
    free(pl.life);
    return status;
}

/* ---- paged ----*/

/* The longest stretch of ops in which a block is not touched, time taken as cyclic. */
struct idle {
    uint32_t first, last, from, length; /* first and last touch; the stretch's start and length */
};

static struct idle *find_idle(const struct vm_iteration *it)
{
    struct idle *idle = malloc((it->nblocks + 1) * sizeof *idle);
    if (!idle)
        return NULL;
    for (size_t b = 0; b < it->nblocks; b++)
        idle[b] = (struct idle){VM_NONE, 0, 0, 0};
    for (uint32_t op = 0; op < it->nops; op++)
        for (uint32_t k = 0; k < it->ops[op].nacc; k++) {
            uint32_t b = it->accesses[it->ops[op].acc + k].block;
            if (b >= it->nblocks)
                continue;
            struct idle *d = &idle[b];
            if (d->first == VM_NONE)
                d->first = op;
            else if (op - d->last > d->length) {
                d->from = d->last;
                d->length = op - d->last;
            }
            d->last = op;
        }
    for (size_t b = 0; b < it->nblocks; b++) {
        struct idle *d = &idle[b];
        uint32_t around = d->first == VM_NONE ? (uint32_t)it->nops : d->first + (uint32_t)it->nops - d->last;
        if (around >= d->length) {
            d->from = d->last;
            d->length = around;
        }
    }
    return idle;
}

/* A run of pages that small blocks share. */
struct group {
    struct life life; /* hull of its blocks' */
    uint64_t used;    /* bytes, up to the last block */
    uint64_t limit;   /* bytes it may hold           */
    size_t item;      /* in the page problem         */
};

enum { OPEN_GROUPS = 64 };

struct paged {
    struct place pl;
    uint64_t page;
    uint64_t *inner;     /* for each small block: byte offset in its group */
    uint32_t *group_of;  /* for each block: its group, VM_NONE = owns its pages */
    struct group *group; /* at most one for each block */
    uint32_t ngroups;
    uint32_t open[OPEN_GROUPS];
    unsigned nopen;
};

/* Where in the group a block of `size` bytes would begin. Tiny blocks do not straddle pages. */
static uint64_t spot(const struct paged *pg, const struct group *g, uint64_t size)
{
    uint64_t at = vm_align_up(g->used, BYTE_ALIGN);
    if (size <= pg->page / 16 && at % pg->page + size > pg->page)
        at = vm_align_up(at, pg->page);
    return at;
}

static void join(struct paged *pg, uint32_t g, size_t b, const struct life *l)
{
    struct group *gr = &pg->group[g];
    uint64_t size = pg->pl.it->blocks[b].size;
    pg->inner[b] = spot(pg, gr, size);
    gr->used = pg->inner[b] + size;
    pg->group_of[b] = g;
    if (l->lower < gr->life.lower)
        gr->life.lower = l->lower;
    if (l->upper > gr->life.upper)
        gr->life.upper = l->upper;
}

static uint32_t start_group(struct paged *pg, const struct life *l, uint64_t limit)
{
    pg->group[pg->ngroups] = (struct group){.life = *l, .limit = limit};
    return pg->ngroups++;
}

static int is_small(const struct paged *pg, size_t b)
{
    return is_free(&pg->pl.it->blocks[b]) && pg->pl.it->blocks[b].size < pg->page;
}

/* Live at the iteration's end (there for good, or wrapping: these are few): fills pages in the order of
 * the longest idle stretch, so that what is idle together shares pages. Pinned blocks, which never
 * leave, come first. */
static int group_persistent(struct paged *pg, const struct idle *idle)
{
    size_t n = pg->pl.it->nblocks, k = 0;
    struct vm_sort_pair *pairs = malloc((2 * n + 1) * sizeof *pairs);
    if (!pairs)
        return VM_ENOMEM;
    for (size_t b = 0; b < n; b++)
        if (is_small(pg, b) && (pg->pl.life[b].wraps || life_length(&pg->pl, b) >= pg->pl.end))
            pairs[k++] = (struct vm_sort_pair){
                (pg->pl.it->blocks[b].flags & VM_BLK_PINNED)
                    ? 0
                    : ((uint64_t)idle[b].from + 1) << 32 | idle[b].length,
                (uint32_t)b};
    vm_sort_pairs(pairs, pairs + k, k);
    const struct life always = {0, pg->pl.end, 0};
    uint32_t g = VM_NONE;
    int pinned = 0;
    for (size_t i = 0; i < k; i++) {
        uint32_t b = pairs[i].value;
        int pin = pairs[i].key == 0;
        if (g == VM_NONE || pin != pinned)
            g = start_group(pg, &always, UINT64_MAX);
        pinned = pin;
        join(pg, g, b, &always);
    }
    free(pairs);
    return VM_OK;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Byte-moments wasted if a block joined: what the group's pages would be live longer for its sake, and
 * its own bytes while only others live. */
static double waste_of_joining(const struct paged *pg, const struct group *g, const struct life *l,
                               uint64_t size)
{
    uint64_t lower = l->lower < g->life.lower ? l->lower : g->life.lower;
    uint64_t upper = l->upper > g->life.upper ? l->upper : g->life.upper;
    double hull = (double)(upper - lower), life = (double)(l->upper - l->lower);
    double before = larger((double)g->used, (double)pg->page);
    double after = larger((double)(g->used + size), (double)pg->page);
    return after * hull - before * (double)(g->life.upper - g->life.lower) - (after - before) * life +
           (hull - life) * (double)size;
}

/* Puts a lasting block into the open group that it fits best, or into a new one: while there are few
 * open, one that does not fit well is not worth spoiling; later, all that costs less than half of
 * the page a new one would take. */
static void group_lasting(struct paged *pg, size_t b)
{
    const struct life *l = &pg->pl.life[b];
    uint64_t size = pg->pl.it->blocks[b].size;
    double life = (double)(l->upper - l->lower), page = (double)pg->page;
    double least = pg->nopen < OPEN_GROUPS ? (0.2 * (double)size + page / 32) * life : page / 2 * life;
    unsigned best = OPEN_GROUPS, oldest = 0;
    for (unsigned k = 0; k < pg->nopen; k++) {
        const struct group *g = &pg->group[pg->open[k]];
        if (pg->open[k] < pg->open[oldest])
            oldest = k;
        if (spot(pg, g, size) + size > g->limit)
            continue;
        double waste = waste_of_joining(pg, g, l, size);
        if (waste < least) {
            least = waste;
            best = k;
        }
    }
    if (best == OPEN_GROUPS) {
        best = pg->nopen < OPEN_GROUPS ? pg->nopen++ : oldest;
        /* Room for about 32 such blocks, so that the last one cut off costs about 3 %. */
        pg->open[best] = start_group(pg, l, vm_align_up(32 * size, pg->page));
    }
    join(pg, pg->open[best], b, l);
}

/* Short-lived small blocks time-share pages, packed contiguously: one run of pages for each stretch of
 * time that they cover without a break, so that others may use the room in between. */
static int group_fleeting(struct paged *pg, const struct vm_sort_pair *by_birth, size_t n,
                          struct vm_error *why)
{
    const struct vm_iteration *it = pg->pl.it;
    struct box x;
    int status = box_init(&x, n);
    if (status == VM_OK && n) {
        for (size_t k = 0; k < n; k++) {
            uint32_t b = by_birth[k].value;
            box_add(&x, &pg->pl, &pg->pl.life[b], units(it->blocks[b].size, BYTE_ALIGN), VM_UNPLACED);
        }
        struct vm_pack_problem p = {x.items, x.nitems, x.gaps, x.ngaps};
        struct vm_pack_options opt = {0};
        struct vm_pack_result res;
        status = vm_pack_fast(&p, &opt, x.offsets, &res, why);
    }
    uint32_t g = VM_NONE;
    for (size_t k = 0; status == VM_OK && k < n; k++) {
        uint32_t b = by_birth[k].value;
        const struct life *l = &pg->pl.life[b];
        if (g == VM_NONE || l->lower >= pg->group[g].life.upper)
            g = start_group(pg, l, UINT64_MAX);
        struct group *gr = &pg->group[g];
        pg->inner[b] = x.offsets[k] * BYTE_ALIGN;
        pg->group_of[b] = g;
        if (pg->inner[b] + it->blocks[b].size > gr->used)
            gr->used = pg->inner[b] + it->blocks[b].size;
        if (l->upper > gr->life.upper)
            gr->life.upper = l->upper;
    }
    box_fini(&x);
    return status;
}

/* Lives this short, in allocations and frees, are fleeting. */
static uint64_t brief_life(const struct place *pl)
{
    uint64_t part = pl->end / 32;
    return part < 16 ? 16 : part > 64 ? 64 : part;
}

static int make_groups(struct paged *pg, struct vm_error *why)
{
    const struct vm_iteration *it = pg->pl.it;
    struct idle *idle = find_idle(it);
    struct vm_sort_pair *pairs = malloc((2 * it->nblocks + 1) * sizeof *pairs);
    int status = idle && pairs ? group_persistent(pg, idle) : VM_ENOMEM;
    uint64_t brief = brief_life(&pg->pl);
    for (int fleeting = 0; fleeting < 2 && status == VM_OK; fleeting++) {
        size_t n = 0;
        for (size_t b = 0; b < it->nblocks; b++)
            if (is_small(pg, b) && pg->group_of[b] == VM_NONE &&
                (life_length(&pg->pl, b) <= brief) == fleeting)
                pairs[n++] = (struct vm_sort_pair){pg->pl.life[b].lower, (uint32_t)b};
        vm_sort_pairs(pairs, pairs + n, n);
        for (size_t k = 0; k < n && !fleeting; k++)
            group_lasting(pg, pairs[k].value);
        if (fleeting)
            status = group_fleeting(pg, pairs, n, why);
    }
    free(idle);
    free(pairs);
    return status;
}

/* Packs groups and large blocks in units of pages and writes the blocks' offsets. */
static int pack_runs(struct paged *pg, struct box *x, uint64_t *offsets, uint64_t *pool_bytes,
                     struct vm_error *why)
{
    struct place *pl = &pg->pl;
    const struct vm_iteration *it = pl->it;
    for (uint32_t g = 0; g < pg->ngroups; g++)
        pg->group[g].item = box_add(x, pl, &pg->group[g].life, units(pg->group[g].used, pg->page),
                                    VM_UNPLACED);
    size_t large = x->nitems;
    for (size_t b = 0; b < it->nblocks; b++)
        if (is_free(&it->blocks[b]) && pg->group_of[b] == VM_NONE)
            box_add(x, pl, &pl->life[b], units(it->blocks[b].size, pg->page), VM_UNPLACED);
    struct vm_pack_problem p = {x->items, x->nitems, x->gaps, x->ngaps};
    struct vm_pack_options opt = {0};
    struct vm_pack_result res;
    int status = vm_pack_fast(&p, &opt, x->offsets, &res, why);
    if (status < 0)
        return status;
    uint64_t top = 0;
    preset_offsets(pl, offsets);
    for (size_t b = 0; b < it->nblocks; b++) {
        if (!is_free(&it->blocks[b]))
            continue;
        size_t item = pg->group_of[b] == VM_NONE ? large++ : pg->group[pg->group_of[b]].item;
        uint64_t at = x->offsets[item] * pg->page;
        offsets[b] = pl->pool_offset + at + (pg->group_of[b] == VM_NONE ? 0 : pg->inner[b]);
        uint64_t end = at + x->items[item].size * pg->page;
        if (end > top)
            top = end;
    }
    *pool_bytes = top;
    return VM_OK;
}

int vm_place(const struct vm_iteration *it, const struct vm_machine *m, uint64_t pool_offset,
             uint64_t *offsets, uint64_t *pool_bytes, struct vm_error *why)
{
    uint64_t page = m->page_bytes;
    if (page < BYTE_ALIGN || (page & (page - 1)) || pool_offset % page)
        return vm_pack_refuse(why, VM_EINVAL,
                              "pages of %llu bytes with a pool at %llu: the page must be a power of "
                              "two of at least %d bytes and the pool begin on one",
                              (unsigned long long)page, (unsigned long long)pool_offset, BYTE_ALIGN);
    int status = check_blocks(it, pool_offset, why);
    if (status)
        return status;
    struct paged pg = {.pl = {.it = it, .pool_offset = pool_offset, .unit = page}, .page = page};
    struct box x = {0};
    status = find_lives(&pg.pl, why);
    if (status == VM_OK) {
        pg.inner = calloc(it->nblocks + 1, sizeof *pg.inner);
        pg.group_of = malloc((it->nblocks + 1) * sizeof *pg.group_of);
        pg.group = malloc((it->nblocks + 1) * sizeof *pg.group);
        status = pg.inner && pg.group_of && pg.group ? box_init(&x, it->nblocks) : VM_ENOMEM;
        for (size_t b = 0; status == VM_OK && b < it->nblocks; b++)
            pg.group_of[b] = VM_NONE;
        if (status == VM_OK)
            status = add_obstacles(&x, &pg.pl);
        if (status == VM_OK)
            status = make_groups(&pg, why);
        if (status == VM_ENOMEM)
            vm_pack_refuse(why, status, "no memory to place %zu blocks", it->nblocks);
    }
    if (status == VM_OK)
        status = pack_runs(&pg, &x, offsets, pool_bytes, why);
    box_fini(&x);
    free(pg.pl.life);
    free(pg.inner);
    free(pg.group_of);
    free(pg.group);
    return status;
}
