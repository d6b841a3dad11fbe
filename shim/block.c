#include "block.h"

#include <stdlib.h>
#include <string.h>

#include "chunk_pool.h"
#include "grow.h"
#include "host_pool.h"
#include "pager.h"

static size_t granules(const struct vm_device *d)
{
    return d->page_bytes / VM_GRANULE;
}

/* ---- lookup ---------------------------------------------------------------------------------- */

uint32_t vm_block_find(const struct vm_device *d, CUdeviceptr p)
{
    if (!vm_device_holds(d, p))
        return VM_NO;
    const struct vm_page *pg = &d->pages[vm_page_of(d, p)];
    if (pg->live == 0)
        return VM_NO;
    uint32_t i = pg->owner;
    if (vm_page_is_shared(pg))
        i = vm_share_find(&d->shares[i], granules(d),
                          ((p - d->base) & (d->page_bytes - 1)) / VM_GRANULE);
    if (i == VM_NO || p - d->blocks[i].addr >= d->blocks[i].size)
        return VM_NO;
    return i;
}

/* ---- arrays that grow ------------------------------------------------------------------------ */

static uint32_t block_slot(struct vm_device *d)
{
    if (d->nfree_blocks > 0)
        return d->free_blocks[--d->nfree_blocks];
    size_t cap = d->cap_blocks, cap_free = cap;
    if (VM_GROW(d->blocks, cap, d->nblocks + (size_t)1) != 0 ||
        VM_GROW(d->free_blocks, cap_free, d->nblocks + (size_t)1) != 0)
        return VM_NO;
    d->cap_blocks = (uint32_t)cap;
    return d->nblocks++;
}

static uint32_t share_new(struct vm_device *d)
{
    if (d->nspare_shares > 0) /* empty since its last block went */
        return d->spare_shares[--d->nspare_shares];
    size_t cap = d->cap_shares, cap_spare = cap;
    if (VM_GROW(d->shares, cap, d->nshares + (size_t)1) != 0 ||
        VM_GROW(d->spare_shares, cap_spare, d->nshares + (size_t)1) != 0)
        return VM_NO;
    d->cap_shares = (uint32_t)cap;
    return vm_share_new(&d->shares[d->nshares], granules(d)) == 0 ? d->nshares++ : VM_NO;
}

/* ---- what a page holds ----------------------------------------------------------------------- */

bool vm_block_written(const struct vm_device *d, const struct vm_block *b)
{
    return b->write_g != 0 || d->opaque_g > b->born_g;
}

static bool block_matters(const struct vm_device *d, const struct vm_block *b)
{
    return b->live && vm_block_written(d, b) && !b->dead;
}

bool vm_page_matters(const struct vm_device *d, uint64_t page)
{
    const struct vm_page *pg = &d->pages[page];
    if (pg->live == 0)
        return false;
    if (vm_page_is_shared(pg))
        return pg->write_g != 0 || d->opaque_g != 0;
    return block_matters(d, &d->blocks[pg->owner]);
}

uint64_t vm_page_touched(const struct vm_device *d, uint64_t page)
{
    const struct vm_page *pg = &d->pages[page];
    if (pg->live == 0)
        return pg->fence_g;
    uint64_t g = vm_page_is_shared(pg) ? pg->touch_g : d->blocks[pg->owner].touch_g;
    return g > pg->fence_g ? g : pg->fence_g;
}

uint64_t vm_page_written(const struct vm_device *d, uint64_t page)
{
    const struct vm_page *pg = &d->pages[page];
    if (pg->live == 0)
        return 0;
    return vm_page_is_shared(pg) ? pg->write_g : d->blocks[pg->owner].write_g;
}

bool vm_page_pinned(const struct vm_device *d, uint64_t page)
{
    const struct vm_page *pg = &d->pages[page];
    if (pg->live == 0)
        return false;
    if (vm_page_is_shared(pg))
        return pg->pins > 0;
    const struct vm_block *b = &d->blocks[pg->owner];
    return b->pins > 0 || b->sticky > 0;
}

void vm_page_stays_not(struct vm_device *d, uint64_t page)
{
    d->staying -= d->pages[page].stays;
    d->pages[page].stays = 0;
}

void vm_page_set_state(struct vm_device *d, uint64_t page, enum vm_page_state state)
{
    struct vm_page *pg = &d->pages[page];
    if (state != VM_PG_WAIT_OUT && state != VM_PG_LEAVING)
        vm_page_stays_not(d, page);
    bool was = pg->state == VM_PG_RESIDENT, is = state == VM_PG_RESIDENT;
    if (was != is && pg->live > 0 && !vm_page_is_shared(pg)) {
        if (is)
            d->blocks[pg->owner].nonresident--;
        else
            d->blocks[pg->owner].nonresident++;
    }
    if (pg->live == 0)
        d->dead_pages += (uint64_t)is - (uint64_t)was;
    pg->state = (uint8_t)state;
}

void vm_page_set_sealed(struct vm_device *d, uint64_t page, bool sealed)
{
    struct vm_page *pg = &d->pages[page];
    if (pg->sealed == sealed)
        return;
    pg->sealed = sealed;
    if (pg->live > 0 && !vm_page_is_shared(pg))
        d->blocks[pg->owner].sealed += sealed ? 1u : -1u;
}

/* A block's shared pages are at its ends only. */
static bool end_resident(const struct vm_device *d, uint64_t page)
{
    const struct vm_page *pg = &d->pages[page];
    return !vm_page_is_shared(pg) || pg->state == VM_PG_RESIDENT;
}

bool vm_block_resident(const struct vm_device *d, const struct vm_block *b)
{
    return b->nonresident == 0 && end_resident(d, b->first) && end_resident(d, b->last);
}

static bool end_sealed(const struct vm_device *d, uint64_t page)
{
    const struct vm_page *pg = &d->pages[page];
    return vm_page_is_shared(pg) && pg->sealed;
}

bool vm_block_sealed(const struct vm_device *d, const struct vm_block *b)
{
    return b->sealed > 0 || end_sealed(d, b->first) || end_sealed(d, b->last);
}

bool vm_block_ready(const struct vm_device *d, const struct vm_block *b, bool write)
{
    return vm_block_resident(d, b) && !(write && vm_block_sealed(d, b));
}

/* Calls are made for the one or two shared pages of a block. */
#define FOR_SHARED_ENDS(d, b, pg)                                                                  \
    for (uint64_t end_ = (b)->first, once_ = 0; once_ < ((b)->first == (b)->last ? 1u : 2u);       \
         once_++, end_ = (b)->last)                                                                \
        for (struct vm_page *pg = &(d)->pages[end_]; pg && vm_page_is_shared(pg); pg = NULL)

void vm_block_pin(struct vm_device *d, struct vm_block *b, bool sticky)
{
    if (sticky)
        b->sticky++;
    else
        b->pins++;
    FOR_SHARED_ENDS(d, b, pg)
    {
        pg->pins++;
    }
}

void vm_block_unpin(struct vm_device *d, struct vm_block *b, bool sticky)
{
    if (!b->live) { /* freed meanwhile: the last operation lets the slot go */
        if (--b->pins == 0)
            d->free_blocks[d->nfree_blocks++] = (uint32_t)(b - d->blocks);
        return;
    }
    if (sticky)
        b->sticky--;
    else
        b->pins--;
    FOR_SHARED_ENDS(d, b, pg)
    {
        pg->pins--;
    }
}

void vm_block_touch(struct vm_device *d, struct vm_block *b, uint64_t g, bool write)
{
    b->touch_g = g;
    if (write) {
        b->write_g = g;
        b->dead = false;
    }
    FOR_SHARED_ENDS(d, b, pg)
    {
        pg->touch_g = g;
        if (write)
            pg->write_g = g;
    }
}

/* ---- placing --------------------------------------------------------------------------------- */

struct span {
    uint64_t first, last; /* pages */
    uint64_t lo, hi;      /* bytes from the base */
};

/* Does [lo, hi) cover the page, or does the block own the rest of it anyway (own_tail)? */
static bool covers(const struct vm_device *d, const struct span *s, uint64_t page, bool own_tail)
{
    uint64_t a = page << d->page_shift, b = a + d->page_bytes;
    return s->lo <= a && (s->hi >= b || own_tail);
}

static void granules_of(const struct vm_device *d, const struct span *s, uint64_t page,
                        size_t *from, size_t *to)
{
    uint64_t a = page << d->page_shift, b = a + d->page_bytes;
    uint64_t lo = s->lo > a ? s->lo : a, hi = s->hi < b ? s->hi : b;
    *from = (size_t)((lo - a) / VM_GRANULE);
    *to = (size_t)((hi - a + VM_GRANULE - 1) / VM_GRANULE);
}

/* Does a block of the shared page reach into the granules [from, to)? */
static bool reaches_into(const struct vm_device *d, uint64_t page, size_t from, size_t to)
{
    uint32_t i = vm_share_find(&d->shares[d->pages[page].owner], granules(d), to - 1);
    if (i == VM_NO)
        return false;
    uint64_t at = d->blocks[i].addr - d->base;
    const struct span s = {.lo = at, .hi = at + d->blocks[i].size};
    size_t begin, end;
    granules_of(d, &s, page, &begin, &end);
    return end > from;
}

static bool place_is_free(const struct vm_device *d, const struct span *s)
{
    if (s->last >= d->npages)
        return false;
    for (uint64_t p = s->first; p <= s->last; p++) {
        const struct vm_page *pg = &d->pages[p];
        if (pg->live == 0)
            continue;
        if (!vm_page_is_shared(pg) || covers(d, s, p, false))
            return false;
        size_t from, to;
        granules_of(d, s, p, &from, &to);
        if (reaches_into(d, p, from, to))
            return false;
    }
    return true;
}

/* The page had no live block: nothing of its past but the chunk, the fence and a copy in flight. */
static void page_reset(struct vm_device *d, uint64_t page)
{
    struct vm_page *pg = &d->pages[page];
    if (!(pg->flags & VM_PGF_KNOWN)) { /* the table comes zeroed, and zero is a chunk */
        pg->chunk = pg->host = VM_NO;
        pg->flags |= VM_PGF_KNOWN;
    }
    pg->touch_g = pg->write_g = pg->copied_g = 0;
    pg->pins = 0;
    pg->flags &= (uint8_t) ~(VM_PGF_LOST | VM_PGF_WANT_IN | VM_PGF_UNSURE);
    if (pg->state == VM_PG_WAIT_OUT)
        vm_page_set_state(d, page, VM_PG_RESIDENT);
    d->dead_pages -= pg->state == VM_PG_RESIDENT;
}

static void attach_pages(struct vm_device *d, uint32_t index, const struct span *s, bool own_tail)
{
    struct vm_block *b = &d->blocks[index];
    for (uint64_t p = s->first; p <= s->last; p++) {
        struct vm_page *pg = &d->pages[p];
        if (pg->live == 0)
            page_reset(d, p);
        if (pg->fence_g > b->fence_g)
            b->fence_g = pg->fence_g;
        if (covers(d, s, p, own_tail)) {
            pg->owner = index;
            if (pg->state != VM_PG_RESIDENT)
                b->nonresident++;
            b->sealed += pg->sealed;
        } else {
            size_t from, to;
            granules_of(d, s, p, &from, &to);
            vm_share_put(&d->shares[pg->owner], granules(d), from, index);
        }
        pg->live++;
    }
}

/* Shares for the ends first: the only step that can fail. */
static int make_shares(struct vm_device *d, const struct span *s, bool own_tail)
{
    for (uint64_t p = s->first;; p = s->last) {
        struct vm_page *pg = &d->pages[p];
        if (!covers(d, s, p, own_tail) && !vm_page_is_shared(pg)) {
            uint32_t i = share_new(d);
            if (i == VM_NO)
                return VM_ENOMEM;
            pg->owner = i;
            pg->flags |= VM_PGF_SHARED;
        }
        if (p == s->last)
            return 0;
    }
}

static void drop_share(struct vm_device *d, uint64_t page)
{
    struct vm_page *pg = &d->pages[page];
    if (!vm_page_is_shared(pg) || pg->live > 0)
        return;
    d->spare_shares[d->nspare_shares++] = pg->owner;
    pg->flags &= (uint8_t)~VM_PGF_SHARED;
    pg->owner = VM_NO;
}

/* Room for `bytes` in pages of its own, or among the small ones. */
static struct vm_range *find_room(struct vm_device *d, uint64_t bytes, bool small, uint64_t *offset)
{
    uint64_t at;
    struct vm_range *n;
    if (!small) {
        n = vm_ranges_take(&d->page_space, (bytes + d->page_bytes - 1) >> d->page_shift, &at);
        *offset = at << d->page_shift;
        return n;
    }
    uint64_t units = (bytes + VM_GRANULE - 1) / VM_GRANULE;
    n = vm_ranges_take(&d->small_space, units, &at);
    if (!n) {
        uint64_t page;
        if (!vm_ranges_take(&d->page_space, 1, &page))
            return NULL;
        uint64_t per_page = d->page_bytes / VM_GRANULE;
        if (vm_ranges_add(&d->small_space, page * per_page, per_page) != 0)
            return NULL;
        n = vm_ranges_take(&d->small_space, units, &at);
    }
    *offset = at * VM_GRANULE;
    return n;
}

int vm_block_new(struct vm_device *d, uint64_t bytes, uint64_t offset, uint32_t *index)
{
    bool planned = offset != VM_UNPLACED;
    /* More than half a page gets pages of its own. */
    bool small = bytes <= d->page_bytes / 2;
    struct vm_range *node = NULL;
    if (!planned) {
        node = find_room(d, bytes, small, &offset);
        if (!node)
            return VM_NOTFOUND;
    }
    struct span s = {offset >> d->page_shift, (offset + bytes - 1) >> d->page_shift, offset,
                     offset + bytes};
    bool own_tail = !planned && !small;
    int r = VM_NOTFOUND;
    uint32_t i = VM_NO;
    if (planned && !place_is_free(d, &s))
        goto fail;
    r = VM_ENOMEM;
    i = block_slot(d);
    if (i == VM_NO || make_shares(d, &s, own_tail) != 0)
        goto fail;
    d->blocks[i] = (struct vm_block){
        .addr = d->base + offset,
        .size = bytes,
        .first = s.first,
        .last = s.last,
        .id = ++d->next_id,
        .node = node,
        .small = small && !planned,
        .trace = VM_NONE,
        .plan_block = VM_NONE,
        .born_g = d->g,
        .live = true,
    };
    attach_pages(d, i, &s, own_tail);
    d->block_bytes += bytes;
    if (d->block_bytes > d->peak_block_bytes)
        d->peak_block_bytes = d->block_bytes;
    *index = i;
    return 0;
fail:
    if (node)
        vm_ranges_give(small ? &d->small_space : &d->page_space, node);
    if (i != VM_NO) {
        drop_share(d, s.first);
        drop_share(d, s.last);
        d->free_blocks[d->nfree_blocks++] = i;
    }
    return r;
}

/* Nothing lives on the page any more. A copy in flight is left to end by itself. */
static void page_died(struct vm_device *d, uint64_t page)
{
    struct vm_page *pg = &d->pages[page];
    drop_share(d, page);
    vm_page_stays_not(d, page);
    pg->fence_g = d->g;
    pg->copied_g = 0;
    if (pg->state == VM_PG_LEAVING || pg->state == VM_PG_COMING) {
        pg->flags |= VM_PGF_ORPHAN;
        return;
    }
    if (pg->flags & VM_PGF_HOSTED) {
        vm_pager_bury(d, page);
        return;
    }
    if (pg->host != VM_NO) {
        vm_host_slot_give(d, pg->host);
        pg->host = VM_NO;
    }
    if (pg->state == VM_PG_AWAY)
        pg->state = VM_PG_EMPTY;
    if (pg->state == VM_PG_WAIT_OUT)
        pg->state = VM_PG_RESIDENT;
    d->dead_pages += pg->state == VM_PG_RESIDENT;
}

void vm_block_free(struct vm_device *d, uint32_t index)
{
    struct vm_block *b = &d->blocks[index];
    struct span s = {b->first, b->last, b->addr - d->base, b->addr - d->base + b->size};
    for (uint64_t p = s.first; p <= s.last; p++) {
        struct vm_page *pg = &d->pages[p];
        if (vm_page_is_shared(pg)) {
            size_t from, to;
            granules_of(d, &s, p, &from, &to);
            vm_share_remove(&d->shares[pg->owner], granules(d), from);
            pg->pins -= b->pins + b->sticky;
        }
        pg->fence_g = d->g;
        if (--pg->live == 0)
            page_died(d, p);
    }
    d->block_bytes -= b->size;
    b->live = false;
    if (b->node)
        vm_ranges_give(b->small ? &d->small_space : &d->page_space, b->node);
    b->node = NULL;
    if (b->pins == 0)
        d->free_blocks[d->nfree_blocks++] = index;
}
