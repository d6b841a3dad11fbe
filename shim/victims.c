/* Which pages leave when nobody named any (pager.h). */
#include <stdlib.h>

#include "block.h"
#include "hints.h"
#include "pager.h"
#include "pager_queues.h"
#include "simulate.h"

uint64_t vm_pager_leaving(const struct vm_device *d)
{
    uint64_t n = d->out_wait.count + d->dead_wait.count + d->unmap_wait.count - d->staying;
    for (size_t i = 0; i < d->out_flight.count; i++)
        n += d->out_flight.items[(d->out_flight.head + i) % d->out_flight.cap].npages;
    return n;
}

struct victim {
    uint64_t rank, page; /* lower leaves first */
};

static int by_rank(const void *a, const void *b)
{
    const struct victim *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->page < y->page ? -1 : x->page > y->page;
}

/* Dead pages first, those that are free first before the others, but last those whose place a
 * planned block takes next; then contents, farthest next use first; what the plan does not know by
 * age. */
static uint64_t rank_of(struct vm_device *d, uint64_t page)
{
    const uint64_t content = UINT64_C(1) << 62, unknown = UINT64_C(1) << 61;
    uint64_t next;
    bool known = d->next_use && d->next_use(d, page, &next);
    if (d->pages[page].live == 0)
        return vm_page_touched(d, page) + (known && next < VM_BORN_SOON ? unknown : 0);
    if (known)
        return content + (next < unknown ? unknown - 1 - next : 0);
    return content + unknown + vm_page_touched(d, page);
}

/* The page, or all of a block that can be made anew: with one page of it lost the rest is of no
 * use. */
static uint64_t send(struct vm_device *d, uint64_t page)
{
    struct vm_page *pg = &d->pages[page];
    uint64_t first = page, last = page, sent = 0;
    bool drop =
        pg->live > 0 && !vm_page_is_shared(pg) && vm_block_droppable(d, &d->blocks[pg->owner]);
    if (drop) {
        first = d->blocks[pg->owner].first;
        last = d->blocks[pg->owner].last;
    }
    for (uint64_t p = first; p <= last; p++) {
        if (d->pages[p].state != VM_PG_RESIDENT)
            continue;
        d->demand_moves += vm_page_matters(d, p);
        sent += vm_pager_out(d, p, vm_page_touched(d, p),
                             drop && !vm_page_is_shared(&d->pages[p])) == 0;
    }
    return sent;
}

/* Host slots that contents on their way out can still get: free ones, those of arenas to come, and those
 * of clean pages, less what waits for one already. */
static uint64_t slots_left(const struct vm_device *d)
{
    const struct vm_host_pool *h = &d->host;
    uint64_t n = h->nfree + (h->failed ? 0 : h->limit_slots - h->nslots);
    for (uint32_t c = 0; c < d->nchunks && n < d->out_wait.count + d->nchunks; c++) {
        uint64_t p = d->chunks[c].page;
        n += p != UINT64_MAX && d->pages[p].state == VM_PG_RESIDENT && d->pages[p].host != VM_NO &&
             !(d->pages[p].flags & VM_PGF_UNSURE);
    }
    return n > d->out_wait.count ? n - d->out_wait.count : 0;
}

/* Can it leave without a host slot of its own, or does it have one? */
static bool needs_slot(const struct vm_device *d, uint64_t page)
{
    const struct vm_page *pg = &d->pages[page];
    bool remade = pg->live > 0 && !vm_page_is_shared(pg) &&
                  vm_block_droppable(d, &d->blocks[pg->owner]);
    return vm_page_matters(d, page) && pg->host == VM_NO && !remade;
}

/* Sends up to n pages away; only dead ones if `dead`. The number sent. */
static uint64_t choose(struct vm_device *d, uint64_t n, bool dead)
{
    if (d->cap_scratch < d->nchunks) {
        struct victim *p = realloc(d->scratch, d->cap_chunks * sizeof *p);
        if (!p)
            return 0;
        d->scratch = p;
        d->cap_scratch = d->cap_chunks;
    }
    struct victim *v = d->scratch;
    uint64_t nv = 0, sent = 0;
    for (uint32_t c = 0; c < d->nchunks; c++) {
        uint64_t p = d->chunks[c].page;
        if (p == UINT64_MAX || d->pages[p].state != VM_PG_RESIDENT || vm_page_pinned(d, p) ||
            (dead && d->pages[p].live > 0))
            continue;
        v[nv++] = (struct victim){rank_of(d, p), p};
    }
    if (nv > n)
        qsort(v, nv, sizeof *v, by_rank);
    uint64_t slots = dead ? 0 : slots_left(d);
    for (uint64_t i = 0; i < nv && sent < n; i++) {
        if (needs_slot(d, v[i].page)) {
            if (slots == 0)
                continue; /* it would come back from the queue, to be chosen again for ever */
            slots--;
        }
        sent += send(d, v[i].page);
    }
    return sent;
}

void vm_pager_bury(struct vm_device *d, uint64_t page)
{
    vm_wait_push(&d->dead_wait, page,
                 d->pages[page].fence_g); /* else it stays until a block is born on it */
}

uint64_t vm_pager_recycle(struct vm_device *d, uint64_t n)
{
    return d->dead_pages > 0 ? choose(d, n, true) : 0;
}

uint64_t vm_pager_wanted(const struct vm_device *d)
{
    return d->in_wait.count;
}

uint64_t vm_pager_evict(struct vm_device *d, uint64_t n)
{
    uint64_t sent = choose(d, n, false);
    if (sent > 0)
        d->pressure = true;
    return sent;
}
