#include "page_units.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A block's accesses, merged for each op, in the order of its life. */
struct touch {
    uint32_t block;
    uint32_t key; /* op, plus nops where a wrapping block is already in the next iteration */
    uint32_t flags;
};

/* A block lies on a page that it does not fill. */
struct part {
    uint64_t page;
    uint32_t block;
    uint32_t birth, length; /* in ops: [birth, birth + length), may reach into the next iteration */
    bool persistent;
};

struct builder {
    const struct vm_iteration *it;
    const uint64_t *offsets;
    uint64_t page_bytes;
    struct touch *touches;
    size_t ntouches;
    uint32_t *first; /* nblocks + 1 into touches */
    struct part *parts;
    size_t nparts, cap_parts;
    struct vm_page_units *out;
    size_t cap_units, cap_uses;
};

static bool mode_reads(uint8_t m)
{
    return (m & (VM_READ | VM_UNKNOWN)) || !(m & VM_TOTAL);
}

static bool mode_writes(uint8_t m)
{
    return (m & (VM_WRITE | VM_UNKNOWN)) != 0;
}

/* While collecting, flags hold: 1 = writes, 4 = reads. */
enum { T_WRITE = VM_PU_WRITE, T_LIVE = VM_PU_LIVE_AFTER, T_READ = 4 };

static int cmp_touch(const void *a, const void *b)
{
    const struct touch *x = a, *y = b;
    return x->key < y->key ? -1 : x->key > y->key;
}

static bool block_cyclic(const struct vm_iter_block *b)
{
    return (b->flags & VM_BLK_PERSISTENT) != 0;
}

static int count_touches(struct builder *b, struct vm_error *why)
{
    const struct vm_iteration *it = b->it;

    for (size_t i = 0; i < it->naccesses; i++)
        if (it->accesses[i].block >= it->nblocks) {
            snprintf(why->text, sizeof why->text, "access %zu names block %u of %zu", i,
                     it->accesses[i].block, it->nblocks);
            return VM_EINVAL;
        }
    b->first = calloc(it->nblocks + 2, sizeof *b->first);
    b->touches = malloc((it->naccesses + 1) * sizeof *b->touches);
    if (!b->first || !b->touches)
        return VM_ENOMEM;
    for (size_t i = 0; i < it->naccesses; i++)
        b->first[it->accesses[i].block + 2]++;
    for (size_t i = 0; i < it->nblocks; i++)
        b->first[i + 2] += b->first[i + 1];
    return VM_OK;
}

static void fill_touches(struct builder *b)
{
    const struct vm_iteration *it = b->it;

    for (uint32_t k = 0; k < it->nops; k++)
        for (uint32_t j = 0; j < it->ops[k].nacc; j++) {
            const struct vm_access *a = &it->accesses[it->ops[k].acc + j];
            const struct vm_iter_block *blk = &it->blocks[a->block];
            struct touch *t = &b->touches[b->first[a->block + 1]++];
            t->block = a->block;
            t->key = k;
            if (!block_cyclic(blk) && k < blk->alloc_op)
                t->key += (uint32_t)it->nops;
            t->flags = (mode_writes(a->mode) ? (uint32_t)T_WRITE : 0) |
                       (mode_reads(a->mode) ? (uint32_t)T_READ : 0);
        }
}

/* Sorts each block's touches, merges those of one op, and marks after which of them the contents are
 * still wanted. */
static void finish_touches(struct builder *b)
{
    size_t w = 0;

    for (size_t i = 0; i < b->it->nblocks; i++) {
        uint32_t lo = b->first[i], hi = b->first[i + 1];
        size_t w0 = w;
        bool sorted = true;

        for (uint32_t j = lo + 1; j < hi && sorted; j++)
            sorted = b->touches[j - 1].key <= b->touches[j].key;
        if (!sorted)
            qsort(b->touches + lo, hi - lo, sizeof *b->touches, cmp_touch);
        for (uint32_t j = lo; j < hi; j++) {
            if (w > w0 && b->touches[w - 1].key == b->touches[j].key)
                b->touches[w - 1].flags |= b->touches[j].flags;
            else
                b->touches[w++] = b->touches[j];
        }
        for (size_t j = w0; j < w; j++) {
            size_t next = j + 1 < w ? j + 1 : w0;
            bool exists = j + 1 < w || block_cyclic(&b->it->blocks[i]);
            if (exists && (b->touches[next].flags & T_READ))
                b->touches[j].flags |= T_LIVE;
        }
        b->first[i] = (uint32_t)w0;
    }
    b->first[b->it->nblocks] = (uint32_t)w;
    b->ntouches = w;
}

static int grow(void **p, size_t *cap, size_t need, size_t elem)
{
    if (need <= *cap)
        return VM_OK;
    size_t n = *cap ? *cap * 2 : 256;
    if (n < need)
        n = need;
    void *q = realloc(*p, n * elem);
    if (!q)
        return VM_ENOMEM;
    *p = q;
    *cap = n;
    return VM_OK;
}

static void *shrink(void *p, size_t n, size_t elem)
{
    void *q = n ? realloc(p, n * elem) : NULL;
    return q ? q : p;
}

static struct vm_page_unit *add_unit(struct builder *b, uint64_t page, uint32_t npages,
                                     uint32_t block)
{
    struct vm_page_units *o = b->out;

    if (grow((void **)&o->units, &b->cap_units, o->nunits + 1, sizeof *o->units))
        return NULL;
    struct vm_page_unit *u = &o->units[o->nunits++];
    memset(u, 0, sizeof *u);
    u->page = page;
    u->npages = npages;
    u->block = block;
    u->use = (uint32_t)o->nuses;
    return u;
}

static int add_use(struct builder *b, uint32_t key, uint32_t flags)
{
    struct vm_page_units *o = b->out;

    if (grow((void **)&o->uses, &b->cap_uses, o->nuses + 1, sizeof *o->uses))
        return VM_ENOMEM;
    uint32_t n = (uint32_t)b->it->nops;
    o->uses[o->nuses++] = (struct vm_page_use){key >= n ? key - n : key,
                                               flags & (VM_PU_WRITE | VM_PU_LIVE_AFTER)};
    return VM_OK;
}

static void unit_flags(struct vm_page_unit *u, const struct vm_iter_block *blk)
{
    if (block_cyclic(blk))
        u->flags |= VM_UNIT_CYCLIC;
    if (blk->flags & (VM_BLK_PINNED | VM_BLK_KEEP))
        u->flags |= VM_UNIT_PINNED;
}

/* Ops between the last that uses the block and its end. */
static uint32_t linger_of(const struct builder *b, uint32_t block)
{
    const struct vm_iter_block *blk = &b->it->blocks[block];
    uint32_t last = b->touches[b->first[block + 1] - 1].key;

    if (block_cyclic(blk) || blk->free_op <= last || blk->free_op - last > b->it->nops)
        return 0;
    return blk->free_op - last - 1;
}

/* The unit of one block alone. */
static int emit_block(struct builder *b, uint32_t block, uint64_t page, uint32_t npages)
{
    struct vm_page_unit *u = add_unit(b, page, npages, block);

    if (!u)
        return VM_ENOMEM;
    unit_flags(u, &b->it->blocks[block]);
    for (uint32_t j = b->first[block]; j < b->first[block + 1]; j++)
        if (add_use(b, b->touches[j].key, b->touches[j].flags))
            return VM_ENOMEM;
    u = &b->out->units[b->out->nunits - 1];
    u->nuses = (uint32_t)b->out->nuses - u->use;
    if (u->nuses)
        u->linger = linger_of(b, block);
    return VM_OK;
}

/* Where an op lies in the life of a shared unit that begins at op `origin`. */
static uint32_t place_in_life(uint32_t op, uint32_t origin, uint32_t n)
{
    op = op >= n ? op - n : op;
    return op >= origin ? op - origin : op + n - origin;
}

/* Marks the uses of a shared unit during which this block's contents matter. `slot` holds the unit's
 * uses sorted by their place in its life; they were made from the very touches that are looked up. */
static void mark_live(struct builder *b, struct touch *slot, size_t nslots, uint32_t block,
                      uint32_t origin)
{
    uint32_t n = (uint32_t)b->it->nops;
    uint32_t lo = b->first[block], hi = b->first[block + 1];

    for (uint32_t j = lo; j < hi; j++) {
        if (!(b->touches[j].flags & T_LIVE))
            continue;
        uint32_t key = place_in_life(b->touches[j].key, origin, n);
        uint32_t next = place_in_life(b->touches[j + 1 < hi ? j + 1 : lo].key, origin, n);
        next += next <= key ? n : 0;
        size_t a = 0, z = nslots;
        while (a < z) {
            size_t mid = (a + z) / 2;
            if (slot[mid].key < key)
                a = mid + 1;
            else
                z = mid;
        }
        uint32_t at = key;
        while (at < next && nslots) {
            slot[a].flags |= T_LIVE;
            uint32_t step = a + 1 < nslots ? slot[a + 1].key - slot[a].key
                                           : slot[0].key + n - slot[a].key;
            at += step ? step : n;
            a = a + 1 < nslots ? a + 1 : 0;
        }
    }
}

/* The unit of one page that the blocks of parts[lo..hi) share, its life beginning at op `origin`. */
static int emit_shared(struct builder *b, size_t lo, size_t hi, uint32_t origin, bool cyclic)
{
    uint32_t n = (uint32_t)b->it->nops;
    size_t total = 0, w = 0, m = 0;

    for (size_t i = lo; i < hi; i++)
        total += b->first[b->parts[i].block + 1] - b->first[b->parts[i].block];
    struct touch *slot = malloc((total + 1) * sizeof *slot);
    if (!slot)
        return VM_ENOMEM;
    for (size_t i = lo; i < hi; i++)
        for (uint32_t j = b->first[b->parts[i].block]; j < b->first[b->parts[i].block + 1]; j++) {
            slot[w] = b->touches[j];
            slot[w].key = place_in_life(slot[w].key, origin, n);
            slot[w++].flags &= T_WRITE;
        }
    if (w)
        qsort(slot, w, sizeof *slot, cmp_touch);
    for (size_t i = 0; i < w; i++) {
        if (m && slot[m - 1].key == slot[i].key)
            slot[m - 1].flags |= slot[i].flags;
        else
            slot[m++] = slot[i];
    }
    struct vm_page_unit *u = add_unit(b, b->parts[lo].page, 1, b->parts[lo].block);
    int rc = u ? VM_OK : VM_ENOMEM;
    for (size_t i = lo; i < hi && !rc; i++) {
        unit_flags(u, &b->it->blocks[b->parts[i].block]);
        mark_live(b, slot, m, b->parts[i].block, origin);
    }
    if (!rc) {
        u->flags |= VM_UNIT_SHARED | (cyclic ? (uint32_t)VM_UNIT_CYCLIC : 0);
        u->nuses = (uint32_t)m;
    }
    for (size_t i = 0; i < m && !rc; i++)
        rc = add_use(b, slot[i].key + origin, slot[i].flags);
    free(slot);
    return rc;
}

static int cmp_part(const void *a, const void *b)
{
    const struct part *x = a, *y = b;
    if (x->page != y->page)
        return x->page < y->page ? -1 : 1;
    if (x->birth != y->birth)
        return x->birth < y->birth ? -1 : 1;
    return x->block < y->block ? -1 : x->block > y->block;
}

static int add_part(struct builder *b, uint64_t page, uint32_t block)
{
    const struct vm_iter_block *blk = &b->it->blocks[block];

    if (grow((void **)&b->parts, &b->cap_parts, b->nparts + 1, sizeof *b->parts))
        return VM_ENOMEM;
    b->parts[b->nparts++] =
        (struct part){page, block, blk->alloc_op, blk->free_op - blk->alloc_op, block_cyclic(blk)};
    return VM_OK;
}

/* Whole pages become units at once; pages filled in part are kept for emit_parts. */
static int emit_whole(struct builder *b)
{
    for (uint32_t i = 0; i < b->it->nblocks; i++) {
        const struct vm_iter_block *blk = &b->it->blocks[i];
        uint64_t lo = b->offsets[i], hi = lo + blk->size, pb = b->page_bytes;
        if (!blk->size)
            continue;
        uint64_t first = (lo + pb - 1) / pb, end = hi / pb;
        if (end > first && emit_block(b, i, first, (uint32_t)(end - first)))
            return VM_ENOMEM;
        if (lo % pb && add_part(b, lo / pb, i))
            return VM_ENOMEM;
        if (hi % pb && (hi / pb != lo / pb || lo % pb == 0) && add_part(b, hi / pb, i))
            return VM_ENOMEM;
    }
    return VM_OK;
}

/* An op before which nothing lives on the page of parts[lo..hi) (sorted by birth): where its history
 * can be cut open. False if something always does. */
static bool find_cut(const struct builder *b, size_t lo, size_t hi, uint32_t *cut)
{
    uint32_t n = (uint32_t)b->it->nops, covered = 0, first_wrap = n;

    for (size_t i = lo; i < hi; i++) {
        const struct part *p = &b->parts[i];
        if (p->persistent || p->length >= n)
            return false;
        if (p->birth + p->length > n) {
            covered = p->birth + p->length - n > covered ? p->birth + p->length - n : covered;
            first_wrap = p->birth < first_wrap ? p->birth : first_wrap;
        }
    }
    for (size_t i = lo; i < hi && b->parts[i].birth <= covered; i++)
        if (b->parts[i].birth + b->parts[i].length <= n &&
            b->parts[i].birth + b->parts[i].length > covered)
            covered = b->parts[i].birth + b->parts[i].length;
    *cut = covered < n ? covered : 0;
    return first_wrap == n || covered < first_wrap;
}

/* The units of one page: one for each stretch in which something lives on it all the time. */
static int emit_page(struct builder *b, size_t lo, size_t hi)
{
    uint32_t n = (uint32_t)b->it->nops, cut = 0;

    if (!find_cut(b, lo, hi, &cut))
        return hi - lo == 1 ? emit_block(b, b->parts[lo].block, b->parts[lo].page, 1)
                            : emit_shared(b, lo, hi, 0, true);
    for (size_t i = lo; i < hi; i++)
        b->parts[i].birth = place_in_life(b->parts[i].birth, cut, n);
    qsort(b->parts + lo, hi - lo, sizeof *b->parts, cmp_part);
    for (size_t i = lo, j; i < hi; i = j) {
        uint32_t death = b->parts[i].birth + b->parts[i].length;
        for (j = i + 1; j < hi && b->parts[j].birth < death; j++)
            if (b->parts[j].birth + b->parts[j].length > death)
                death = b->parts[j].birth + b->parts[j].length;
        int rc = j == i + 1 ? emit_block(b, b->parts[i].block, b->parts[i].page, 1)
                            : emit_shared(b, i, j, cut, false);
        if (rc)
            return rc;
    }
    return VM_OK;
}

static int emit_parts(struct builder *b)
{
    if (b->nparts)
        qsort(b->parts, b->nparts, sizeof *b->parts, cmp_part);
    for (size_t i = 0, j; i < b->nparts; i = j) {
        for (j = i + 1; j < b->nparts && b->parts[j].page == b->parts[i].page; j++)
            ;
        int rc = emit_page(b, i, j);
        if (rc)
            return rc;
    }
    return VM_OK;
}

static int index_ops(struct vm_page_units *u, const struct vm_iteration *it)
{
    u->nops = it->nops;
    u->op_first = calloc(it->nops + 2, sizeof *u->op_first);
    u->refs = malloc((u->nuses + 1) * sizeof *u->refs);
    u->dur_store = malloc((it->nops + 1) * sizeof *u->dur_store);
    u->op_flags = malloc(it->nops + 1);
    if (!u->op_first || !u->refs || !u->dur_store || !u->op_flags)
        return VM_ENOMEM;
    u->dur_ns = u->dur_store;
    for (size_t k = 0; k < it->nops; k++)
        u->dur_store[k] = it->ops[k].dur_ns;
    for (size_t k = 0; k < it->nops; k++)
        u->op_flags[k] = it->ops[k].flags & (VM_OPF_BLOCKS | VM_OPF_WAITED);
    for (size_t i = 0; i < u->nuses; i++)
        u->op_first[u->uses[i].op + 1]++;
    for (size_t k = 0; k < it->nops; k++)
        u->op_first[k + 1] += u->op_first[k];
    uint32_t *at = malloc((it->nops + 1) * sizeof *at);
    if (!at)
        return VM_ENOMEM;
    memcpy(at, u->op_first, (it->nops + 1) * sizeof *at);
    for (uint32_t i = 0; i < u->nunits; i++)
        for (uint32_t j = 0; j < u->units[i].nuses; j++) {
            uint32_t use = u->units[i].use + j;
            u->refs[at[u->uses[use].op]++] = (struct vm_page_ref){i, use};
        }
    free(at);
    return VM_OK;
}

struct standing {
    uint64_t page;
    uint32_t unit;
};

static int cmp_standing(const void *x, const void *y)
{
    const struct standing *a = x, *b = y;

    return (a->page > b->page) - (a->page < b->page);
}

/* Numbers the pages in use: a pool and what existed before it may lie millions of pages apart. */
static int number_slots(struct vm_page_units *u)
{
    struct standing *s = malloc((u->nunits + 1) * sizeof *s);
    uint64_t unused = 0, end = 0;

    if (!s)
        return VM_ENOMEM;
    for (uint32_t i = 0; i < u->nunits; i++)
        s[i] = (struct standing){u->units[i].page, i};
    qsort(s, u->nunits, sizeof *s, cmp_standing);
    for (size_t i = 0; i < u->nunits; i++) {
        struct vm_page_unit *unit = &u->units[s[i].unit];
        if (unit->page > end)
            unused += unit->page - end;
        unit->slot = (uint32_t)(unit->page - unused);
        if (unit->page + unit->npages > end)
            end = unit->page + unit->npages;
    }
    u->nslots = end - unused;
    free(s);
    return VM_OK;
}

static int check_input(const struct vm_iteration *it, const uint64_t *offsets, uint64_t page_bytes,
                       struct vm_error *why)
{
    if (!page_bytes) {
        snprintf(why->text, sizeof why->text, "the page size is 0: give machine.page_bytes");
        return VM_EINVAL;
    }
    for (size_t i = 0; i < it->nblocks; i++)
        if (offsets[i] == VM_UNPLACED || offsets[i] + it->blocks[i].size < offsets[i]) {
            snprintf(why->text, sizeof why->text, "block %zu (%llu bytes) has no place", i,
                     (unsigned long long)it->blocks[i].size);
            return VM_EINVAL;
        }
    for (size_t k = 0; k < it->nops; k++)
        if ((size_t)it->ops[k].acc + it->ops[k].nacc > it->naccesses) {
            snprintf(why->text, sizeof why->text, "op %zu names accesses beyond the %zu there are",
                     k, it->naccesses);
            return VM_EINVAL;
        }
    return VM_OK;
}

int vm_page_units_build(const struct vm_iteration *it, const uint64_t *offsets, uint64_t page_bytes,
                        struct vm_page_units *out, struct vm_error *why)
{
    struct vm_error scratch;
    struct vm_page_units u = {.page_bytes = page_bytes};
    struct builder b = {.it = it, .offsets = offsets, .page_bytes = page_bytes, .out = &u};
    int rc = check_input(it, offsets, page_bytes, why ? why : &scratch);

    if (!rc)
        rc = count_touches(&b, why ? why : &scratch);
    if (!rc) {
        fill_touches(&b);
        finish_touches(&b);
        rc = emit_whole(&b);
    }
    if (!rc)
        rc = emit_parts(&b);
    free(b.parts);
    free(b.touches);
    free(b.first);
    if (!rc) {
        u.units = shrink(u.units, u.nunits, sizeof *u.units);
        u.uses = shrink(u.uses, u.nuses, sizeof *u.uses);
        rc = index_ops(&u, it);
    }
    if (!rc)
        rc = number_slots(&u);
    if (rc)
        vm_page_units_fini(&u);
    else
        *out = u;
    return rc;
}

void vm_page_units_fini(struct vm_page_units *u)
{
    free(u->units);
    free(u->uses);
    free(u->op_first);
    free(u->refs);
    free(u->dur_store);
    free(u->op_flags);
    memset(u, 0, sizeof *u);
}

uint32_t vm_page_next_use(const struct vm_page_units *u, const struct vm_page_unit *unit,
                          uint32_t use, unsigned *wraps)
{
    uint32_t last = unit->use + unit->nuses - 1, next = use + 1;

    *wraps = 0;
    if (use == last) {
        if (!(unit->flags & VM_UNIT_CYCLIC))
            return VM_NONE;
        next = unit->use;
    }
    *wraps = u->uses[next].op <= u->uses[use].op;
    return next;
}

uint64_t vm_page_units_work(const struct vm_page_units *u, uint32_t *op)
{
    uint64_t most = 0;

    for (uint32_t k = 0; k < u->nops; k++) {
        uint64_t n = 0;
        for (uint32_t r = u->op_first[k]; r < u->op_first[k + 1]; r++)
            n += u->units[u->refs[r].unit].npages;
        if (n > most) {
            most = n;
            if (op)
                *op = k;
        }
    }
    return most;
}

int vm_page_units_curve(const struct vm_page_units *u, uint32_t *pages)
{
    int64_t *delta = calloc(u->nops + 2, sizeof *delta), now = 0;

    if (!delta)
        return VM_ENOMEM;
    for (size_t i = 0; i < u->nunits; i++) {
        const struct vm_page_unit *un = &u->units[i];
        int64_t n = un->npages;
        if (!un->nuses && (un->flags & VM_UNIT_CYCLIC))
            now += n;
        for (uint32_t j = 0; j < un->nuses; j++) {
            unsigned wraps;
            uint32_t use = un->use + j, next = vm_page_next_use(u, un, use, &wraps);
            uint32_t from = u->uses[use].op;
            bool live = next != VM_NONE && (u->uses[use].flags & VM_PU_LIVE_AFTER);
            delta[from] += n;
            delta[live ? u->uses[next].op : from + 1] -= n;
            if (live && wraps)
                now += n;
        }
    }
    for (size_t k = 0; k < u->nops; k++) {
        now += delta[k];
        pages[k] = now < UINT32_MAX ? (uint32_t)now : UINT32_MAX;
    }
    free(delta);
    return VM_OK;
}

uint64_t vm_page_units_peak(const struct vm_page_units *u)
{
    uint32_t *pages = malloc((u->nops + 1) * sizeof *pages);
    uint64_t most = 0;

    if (!pages || vm_page_units_curve(u, pages))
        most = UINT64_MAX;
    for (size_t k = 0; k < u->nops && most != UINT64_MAX; k++)
        if (pages[k] > most)
            most = pages[k];
    free(pages);
    return most;
}
