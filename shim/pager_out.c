/* How pages leave: the wait for their frontier, the copy, and unmapping (pager.h). */
#include <stdlib.h>

#include "block.h"
#include "chunk_pool.h"
#include "driver.h"
#include "host_pool.h"
#include "hosted.h"
#include "learn.h"
#include "pager.h"
#include "pager_queues.h"
#include "simulate.h"
#include "stream.h"

/* Does the host slot hold the contents as the last write that was seen left them? */
static bool slot_fits(const struct vm_device *d, uint64_t page)
{
    const struct vm_page *pg = &d->pages[page];
    return pg->host != VM_NO && pg->copied_g != 0 && pg->copied_g >= vm_page_written(d, page);
}

/* Does the host slot hold what the page holds? Not if it could have been written since: an
 * operation may write through an address that nobody saw, which only a sealed page stops. */
static bool host_holds(const struct vm_device *d, uint64_t page)
{
    const struct vm_page *pg = &d->pages[page];
    return pg->sealed && slot_fits(d, page);
}

int vm_pager_out(struct vm_device *d, uint64_t page, uint64_t g, bool drop)
{
    struct vm_page *pg = &d->pages[page];
    vm_page_stays_not(d, page); /* its copy is on the way already */
    if (pg->state != VM_PG_RESIDENT)
        return 0;
    /* What needs no copy does not stand behind what does. */
    bool bare = pg->live == 0 || host_holds(d, page);
    if (vm_wait_push(bare ? &d->dead_wait : &d->out_wait, page, g) != 0)
        return VM_ENOMEM;
    pg->out_g = g;
    if (drop)
        pg->flags |= VM_PGF_DROP;
    else
        pg->flags &= (uint8_t)~VM_PGF_DROP;
    vm_page_set_state(d, page, VM_PG_WAIT_OUT);
    return 0;
}

int vm_pager_copy(struct vm_device *d, uint64_t page, uint64_t g)
{
    struct vm_page *pg = &d->pages[page];
    if (pg->state != VM_PG_RESIDENT || !vm_page_matters(d, page) || host_holds(d, page))
        return 0;
    if (vm_wait_push(&d->out_wait, page, g) != 0)
        return VM_ENOMEM;
    pg->out_g = g;
    pg->flags &= (uint8_t)~VM_PGF_DROP;
    pg->stays = 1;
    d->staying++;
    vm_page_set_state(d, page, VM_PG_WAIT_OUT);
    return 0;
}

/* A clean page that is resident can do without its host copy. */
static bool steal_host_slot(struct vm_device *d, uint32_t *slot)
{
    for (uint32_t c = 0; c < d->nchunks; c++) {
        uint64_t p = d->chunks[c].page;
        if (p == UINT64_MAX || d->pages[p].host == VM_NO || d->pages[p].state != VM_PG_RESIDENT ||
            (d->pages[p].flags & VM_PGF_UNSURE))
            continue;
        *slot = d->pages[p].host;
        d->pages[p].host = VM_NO;
        d->pages[p].copied_g = 0;
        return true;
    }
    return false;
}

static bool get_host_slot(struct vm_device *d, uint64_t page)
{
    struct vm_page *pg = &d->pages[page];
    if (pg->host != VM_NO)
        return true;
    uint32_t slot;
    if (vm_host_slot_take(d, &slot) != 0 && (pg->stays || !steal_host_slot(d, &slot)))
        return false;
    pg->host = slot;
    return true;
}

enum leaving { LEAVE_STALE, LEAVE_CANCEL, LEAVE_BARE, LEAVE_COPY };

/* What the head of the queue comes to, now that its frontier is reached. */
static enum leaving judge(struct vm_device *d, uint64_t page, uint64_t g)
{
    struct vm_page *pg = &d->pages[page];
    if (pg->state != VM_PG_WAIT_OUT || pg->out_g != g)
        return LEAVE_STALE;
    /* An operation of another thread may have been on its way when the page was told to leave. */
    if (vm_page_pinned(d, page) || vm_page_touched(d, page) > g)
        return LEAVE_CANCEL;
    if (!vm_page_matters(d, page) || (pg->flags & VM_PGF_DROP))
        return LEAVE_BARE;
    if (host_holds(d, page))
        return LEAVE_BARE;
    pg->reseal |= slot_fits(d, page);
    return get_host_slot(d, page) ? LEAVE_COPY : LEAVE_CANCEL;
}

/* The page may be unmapped, unless it is to stay: no copy is needed, or it is done. */
static void ready(struct vm_device *d, uint64_t page, uint64_t g)
{
    if (d->pages[page].stays)
        vm_page_set_state(d, page, VM_PG_RESIDENT); /* sealed */
    else if (vm_wait_push(&d->unmap_wait, page, g) != 0)
        vm_page_set_state(d, page, VM_PG_RESIDENT); /* out of host memory: it stays */
}

static CUresult copy_out(struct vm_device *d, uint64_t page, uint64_t n)
{
    CUresult r = CUDA_SUCCESS;
    for (uint64_t i = 0, k; i < n && r == CUDA_SUCCESS; i += k) {
        for (k = 1; i + k < n; k++)
            if (!vm_host_slots_adjacent(d, d->pages[page + i + k - 1].host,
                                        d->pages[page + i + k].host))
                break;
        r = vm_drv.p_cuMemcpyDtoHAsync_v2(vm_host_slot_addr(d, d->pages[page + i].host),
                                          vm_page_addr(d, page + i), k << d->page_shift,
                                          d->out_stream);
    }
    return r;
}

/* A copy was issued that nothing tells the end of: the host waits for the stream itself. */
static void drain_out(struct vm_device *d)
{
    for (unsigned times = 0; vm_drv.p_cuStreamQuery(d->out_stream) == CUDA_ERROR_NOT_READY; times++)
        vm_nap(times);
}

/* Starts the copies of n adjacent pages whose frontier is reached. */
static void leave_copy(struct vm_device *d, uint64_t page, uint32_t n, uint64_t g)
{
    struct vm_flight f = {.page = page, .npages = n, .g = g};
    bool touched = vm_learn_copy_begins(d, true, &f);
    CUresult r =
        touched ? vm_pages_access(d, page, n, CU_MEM_ACCESS_FLAGS_PROT_READ) : CUDA_ERROR_UNKNOWN;
    bool copying = r == CUDA_SUCCESS;
    if (r == CUDA_SUCCESS)
        r = copy_out(d, page, n);
    if (r == CUDA_SUCCESS)
        r = vm_drv.p_cuEventRecord(f.event, d->out_stream);
    if (r == CUDA_SUCCESS && vm_flight_push(&d->out_flight, &f) != 0)
        r = CUDA_ERROR_UNKNOWN;
    if (r == CUDA_SUCCESS) {
        for (uint64_t p = page; p < page + n; p++) {
            uint64_t written = vm_page_written(d, p);
            vm_page_set_state(d, p, VM_PG_LEAVING);
            d->pages[p].copied_g = written ? written : 1;
        }
        d->out_bytes += (uint64_t)n << d->page_shift;
        vm_copy_begun(d, true, n);
        return;
    }
    d->failed_moves++;
    if (copying)
        drain_out(d);
    for (uint64_t p = page; p < page + n; p++) {
        d->pages[p].copied_g = 0; /* the slot may be half written */
        if (touched) /* a refused change of access may have been made in part */
            vm_page_restore(d, p);
        else
            vm_page_set_state(d, p, VM_PG_RESIDENT);
    }
    if (touched)
        vm_learn_copied(d, true, 0, &f);
}

/* The first page whose turn it is: its frontier is reached, or its wait came to nothing. */
static bool due(struct vm_device *d, const struct vm_waiting *w, uint64_t *page, uint64_t *g)
{
    if (w->count == 0)
        return false;
    *page = w->items[0].page;
    *g = w->items[0].g;
    const struct vm_page *pg = &d->pages[*page];
    return pg->state != VM_PG_WAIT_OUT || pg->out_g != *g || vm_streams_reached(d, *g);
}

/* More pages of the same wait that follow this one and need a copy too. */
static uint32_t run_of_copies(struct vm_device *d, uint64_t page, uint64_t g)
{
    struct vm_waiting *w = &d->out_wait;
    uint32_t n = 1, most = vm_run_pages(d->page_bytes, d->unmap_waits); /* they share one event */
    while (n < most && w->count > 0 && w->items[0].page == page + n && w->items[0].g == g &&
           judge(d, page + n, g) == LEAVE_COPY) {
        vm_wait_pop(w);
        n++;
    }
    return n;
}

bool vm_pager_pump_waiting(struct vm_device *d, struct vm_waiting *w)
{
    bool moved = false;
    uint64_t page, g;
    while (d->out_flight.count < vm_flights_max(d) && due(d, w, &page, &g)) {
        enum leaving how = judge(d, page, g);
        if (how == LEAVE_COPY && !vm_copy_may_begin(d, true, 1))
            break;
        vm_wait_pop(w);
        moved = true;
        if (how == LEAVE_CANCEL)
            vm_page_set_state(d, page, VM_PG_RESIDENT);
        if (how == LEAVE_BARE)
            ready(d, page, g);
        if (how == LEAVE_COPY)
            leave_copy(d, page, run_of_copies(d, page, g), g);
    }
    return moved;
}

/* Dead pages need no copy and so do not wait for one. */
bool vm_pager_pump_dead(struct vm_device *d)
{
    bool moved = false;
    uint64_t page, g;
    while (due(d, &d->dead_wait, &page, &g)) {
        if (d->pages[page].live == 0 && (d->pages[page].flags & VM_PGF_HOSTED)) {
            if (!vm_streams_reached(d, g))
                break;
            vm_unhost_page(d, page);
            vm_page_set_state(d, page, VM_PG_EMPTY);
            vm_page_forget_host(d, page);
        }
        enum leaving how = judge(d, page, g);
        if (how ==
            LEAVE_COPY) /* a block moved in meanwhile, and was written: its turn, not this wait's */
            how = LEAVE_CANCEL;
        vm_wait_pop(&d->dead_wait);
        moved = true;
        if (how == LEAVE_CANCEL)
            vm_page_set_state(d, page, VM_PG_RESIDENT);
        if (how == LEAVE_BARE)
            ready(d, page, g);
    }
    return moved;
}

/* The copies of a flight are done. */
void vm_pager_landed_out(struct vm_device *d, const struct vm_flight *f)
{
    for (uint64_t p = f->page; p < f->page + f->npages; p++) {
        struct vm_page *pg = &d->pages[p];
        if (pg->state != VM_PG_LEAVING || pg->out_g != f->g)
            continue; /* it was called back meanwhile, or is leaving anew */
        if (pg->flags & VM_PGF_ORPHAN) {
            pg->flags &= (uint8_t)~VM_PGF_ORPHAN;
            vm_page_forget_host(d, p);
        }
        ready(d, p, f->g);
    }
}

/* ---- unmapping ------------------------------------------------------------------------------- */

static int by_page(const void *a, const void *b)
{
    const struct vm_waiter *x = a, *y = b;
    return x->page < y->page ? -1 : x->page > y->page;
}

static bool still_leaving(const struct vm_device *d, const struct vm_waiter *w)
{
    const struct vm_page *pg = &d->pages[w->page];
    return (pg->state == VM_PG_WAIT_OUT || pg->state == VM_PG_LEAVING) && pg->out_g == w->g;
}

/* Nothing that matters is lost with its chunk. */
static bool may_go(const struct vm_device *d, uint64_t page)
{
    if (vm_page_pinned(d, page))
        return false;
    return !vm_page_matters(d, page) || (d->pages[page].flags & VM_PGF_DROP) || host_holds(d, page);
}

/* What is left of an unmapped page: contents on the host, or nothing. */
static void gone(struct vm_device *d, uint64_t page)
{
    struct vm_page *pg = &d->pages[page];
    bool matters = vm_page_matters(d, page), drop = (pg->flags & VM_PGF_DROP) != 0;
    vm_page_return_chunk(d, page);
    pg->flags &= (uint8_t)~VM_PGF_ORPHAN;
    if (matters && !drop) {
        vm_page_set_state(d, page, VM_PG_AWAY);
        vm_host_page(d, page);
        return;
    }
    if (matters && drop) {
        pg->flags |= VM_PGF_LOST;
        d->dropped_bytes += d->page_bytes;
    }
    vm_page_set_state(d, page, VM_PG_EMPTY);
    vm_page_forget_host(d, page);
}

/* Unmapping may wait for all work of the device, copies included (facts on synchronisation), so it
 * is done in one go, when the device has nothing to do that matters: d->patience_ns is what an idle
 * device may wait for copies in flight. Where unmapping was seen not to wait, it is done at once.
 */
static bool may_unmap(struct vm_device *d)
{
    if (!d->unmap_waits || d->patience_ns == VM_FOR_EVER)
        return true;
    bool more = d->out_flight.count > 0 || d->out_wait.count > 0;
    if (d->missing > d->unmap_wait.count + d->nfree_chunks && more)
        return false; /* an operation needs more than that: once is better than twice */
    if (d->patience_ns == VM_UNTIL_IDLE && d->in_flight.count > VM_FLIGHTS)
        return false; /* it would wait for what the operation fetches: the host maps what comes of that meanwhile */
    if (!vm_streams_reached(d, d->g))
        return false;
    uint64_t pages = d->in_flight.count;
    for (size_t i = 0; i < d->out_flight.count; i++)
        pages += d->out_flight.items[(d->out_flight.head + i) % d->out_flight.cap].npages;
    double bps = d->link.in_bps > 0 ? d->link.in_bps : 12e9;
    return (double)(pages << d->page_shift) / bps * 1e9 <= (double)d->patience_ns;
}

bool vm_pager_pump_unmap(struct vm_device *d)
{
    struct vm_waiting *w = &d->unmap_wait;
    if (w->count == 0 || !may_unmap(d))
        return false;
    qsort(w->items, w->count, sizeof *w->items, by_page);
    for (size_t i = 0, n; i < w->count; i += n) {
        uint64_t page = w->items[i].page;
        n = 1;
        if (!still_leaving(d, &w->items[i]))
            continue;
        if (!may_go(d, page)) {
            vm_page_set_state(d, page, VM_PG_RESIDENT); /* an operation wants it: it stays after all */
            continue;
        }
        while (i + n < w->count && w->items[i + n].page == page + n &&
               still_leaving(d, &w->items[i + n]) && may_go(d, page + n))
            n++;
        CUevent begin = vm_learn_map_begins(d, true);
        bool ok = vm_drv.p_cuMemUnmap(vm_page_addr(d, page), n << d->page_shift) == CUDA_SUCCESS;
        vm_learn_map_ends(d, true, n, begin);
        d->failed_moves += ok ? 0 : 1;
        for (uint64_t p = page; p < page + n; p++) {
            if (ok)
                gone(d, p);
            else
                vm_page_set_state(d, p, VM_PG_RESIDENT);
        }
    }
    w->count = 0;
    return true;
}
