#include "pager.h"

#include "block.h"
#include "chunk_pool.h"
#include "driver.h"
#include "host_pool.h"
#include "hosted.h"
#include "learn.h"
#include "pager_queues.h"
#include "simulate.h"
#include "stream.h"

/* ---- in -------------------------------------------------------------------------------------- */

int vm_pager_in(struct vm_device *d, uint64_t page, bool to_write)
{
    struct vm_page *pg = &d->pages[page];
    pg->to_write = to_write;
    if ((pg->flags & VM_PGF_WANT_IN) && vm_page_touched(d, page) <= pg->in_g)
        return 0;
    if (vm_queue_push(&d->in_wait, page, d->g) != 0)
        return VM_ENOMEM;
    pg->flags |= VM_PGF_WANT_IN;
    pg->in_g = d->g;
    return 0;
}

/* The page is away: its copy starts if there is a chunk. */
static int start_in(struct vm_device *d, uint64_t page, CUresult *error)
{
    struct vm_page *pg = &d->pages[page];
    /* What was written into the host slot where it lies must be there before it is copied. */
    if ((pg->flags & VM_PGF_HOSTED) && !vm_streams_reached(d, vm_page_touched(d, page)))
        return VM_PAGE_WAIT;
    if (vm_page_take_chunk(d, page) != 0)
        return VM_NOTFOUND;
    vm_unhost_page(d, page);
    struct vm_flight f = {.page = page, .npages = 1};
    CUresult r = CUDA_ERROR_OUT_OF_MEMORY;
    bool begun = vm_learn_copy_begins(d, false, &f);
    if (begun)
        r = vm_drv.p_cuMemcpyHtoDAsync_v2(d->chunks[pg->chunk].alias,
                                          vm_host_slot_addr(d, pg->host), d->page_bytes,
                                          d->in_stream);
    if (r == CUDA_SUCCESS)
        r = vm_drv.p_cuEventRecord(f.event, d->in_stream);
    if (r == CUDA_SUCCESS && vm_flight_push(&d->in_flight, &f) != 0)
        r = CUDA_ERROR_OUT_OF_MEMORY;
    if (r != CUDA_SUCCESS) {
        if (begun)
            vm_learn_copied(d, false, 0, &f);
        vm_page_return_chunk(d, page);
        d->failed_moves++;
        *error = r;
        return VM_EIO;
    }
    vm_page_set_state(d, page, VM_PG_COMING);
    d->in_bytes += d->page_bytes;
    vm_copy_begun(d, false, 1);
    return 0;
}

/* Pages wait to come back and no chunk is free: dead pages give theirs up, as soon as their last
 * operation is done, those first whose place the plan needs last. */
static void recycle(struct vm_device *d, size_t wanted)
{
    uint64_t coming = vm_pager_leaving(d);
    if (wanted > VM_RECYCLE_MOST)
        wanted = VM_RECYCLE_MOST;
    if (coming < wanted)
        vm_pager_recycle(d, wanted - coming);
}

/* Is it still wanted? Not once an operation has used the page since: that brought it back itself,
 * and what sends it away after that does not know of the wish. */
static bool is_wanted(const struct vm_device *d, const struct vm_wanted *w)
{
    const struct vm_page *pg = &d->pages[w->page];
    bool leaves = (pg->state == VM_PG_LEAVING || pg->state == VM_PG_WAIT_OUT) && !pg->stays;
    if (!leaves && pg->state != VM_PG_AWAY)
        return false;
    return (pg->flags & VM_PGF_WANT_IN) && pg->in_g == w->g && vm_page_touched(d, w->page) <= w->g;
}

/* The first wish is fulfilled, or void. */
static void in_wait_pop(struct vm_device *d)
{
    const struct vm_wanted *w = &d->in_wait.items[d->in_wait.head];
    if (d->pages[w->page].in_g == w->g)
        d->pages[w->page].flags &= (uint8_t)~VM_PGF_WANT_IN;
    vm_queue_pop(&d->in_wait);
}

static bool pump_in_wait(struct vm_device *d)
{
    bool moved = false;
    struct vm_queue *q = &d->in_wait;
    for (; q->count > 0; moved = true) {
        const struct vm_wanted *w = &q->items[q->head];
        if (!is_wanted(d, w)) {
            in_wait_pop(d);
            continue;
        }
        if (d->in_flight.count >= vm_flights_max(d) || d->pages[w->page].state != VM_PG_AWAY)
            break; /* not gone yet: its turn comes when it is */
        if (vm_chunks_available(d) == 0) {
            recycle(d, q->count);
            break;
        }
        CUresult ignored;
        if (!vm_copy_may_begin(d, false, 1) || start_in(d, w->page, &ignored) != 0)
            break;
        in_wait_pop(d);
    }
    return moved;
}

static bool is_sealed_back(const struct vm_page *pg)
{
    return pg->reseal && !pg->to_write;
}

/* Adjacent pages that came together are mapped one by one and made accessible in one call. */
static void landed_in(struct vm_device *d, uint64_t page, uint64_t n)
{
    for (uint64_t p = page; p < page + n; p++)
        if (d->pages[p].flags & VM_PGF_ORPHAN) {
            d->pages[p].flags &= (uint8_t)~VM_PGF_ORPHAN;
            vm_page_return_chunk(d, p);
            vm_page_set_state(d, p, VM_PG_EMPTY);
            vm_page_forget_host(d, p);
        }
    for (uint64_t p = page, k; p < page + n; p += k) {
        bool seal = is_sealed_back(&d->pages[p]);
        CUmemAccess_flags access =
            seal ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        for (k = 0; p + k < page + n && d->pages[p + k].state == VM_PG_COMING; k++)
            if (is_sealed_back(&d->pages[p + k]) != seal)
                break;
        if (k == 0) {
            k = 1;
            continue;
        }
        bool ok = vm_pages_map(d, p, k, access) == CUDA_SUCCESS;
        for (uint64_t i = p; i < p + k; i++) {
            d->pages[i].to_write = false;
            if (!ok)
                vm_page_return_chunk(d, i);
            vm_page_set_state(d, i, ok ? VM_PG_RESIDENT : VM_PG_AWAY);
        }
    }
}

/* ---- the pump -------------------------------------------------------------------------------- */

static bool flight_done(struct vm_device *d, const struct vm_flights *f)
{
    if (f->count == 0)
        return false;
    CUresult r = vm_drv.p_cuEventQuery(f->items[f->head].event);
    if (r != CUDA_SUCCESS && r != CUDA_ERROR_NOT_READY)
        d->broken = r;
    return r == CUDA_SUCCESS;
}

static struct vm_flight flight_pop(struct vm_device *d, struct vm_flights *f)
{
    struct vm_flight fl = f->items[f->head];
    f->head = (f->head + 1) % f->cap;
    f->count--;
    vm_learn_copied(d, f == &d->out_flight, (uint64_t)fl.npages << d->page_shift, &fl);
    return fl;
}

static bool pump_flights(struct vm_device *d)
{
    bool moved = false;
    while (flight_done(d, &d->out_flight)) {
        struct vm_flight f = flight_pop(d, &d->out_flight);
        vm_pager_landed_out(d, &f);
        moved = true;
    }
    while (flight_done(d, &d->in_flight)) {
        struct vm_flight f = flight_pop(d, &d->in_flight);
        uint64_t n = f.npages;
        while (d->in_flight.count > 0 && d->in_flight.items[d->in_flight.head].page == f.page + n &&
               flight_done(d, &d->in_flight)) {
            f.npages = flight_pop(d, &d->in_flight).npages;
            n += f.npages;
        }
        landed_in(d, f.page, n);
        moved = true;
    }
    return moved;
}

bool vm_pager_busy(const struct vm_device *d)
{
    return d->out_wait.count > 0 || d->dead_wait.count > 0 || d->unmap_wait.count > 0 ||
           d->out_flight.count > 0 || d->in_flight.count > 0 || d->in_wait.count > 0;
}

bool vm_pager_pump(struct vm_device *d)
{
    if (!vm_pager_busy(d) || d->broken != CUDA_SUCCESS)
        return false;
    bool moved = pump_flights(d);
    moved |= vm_pager_pump_dead(d);
    moved |= vm_pager_pump_unmap(d); /* before new copies start, which it might have to wait for */
    moved |= vm_pager_pump_waiting(d, &d->out_wait);
    moved |= pump_in_wait(d);
    return moved;
}

/* ---- one page for an operation --------------------------------------------------------------- */

/* Every stream waits, on the device, for the copy out that `event` ends: the page will be found
 * resident and nobody asks again, neither the next writer of the block nor those of its neighbours
 * on the page or of whoever lives there next. Streams that come later wait when they are first
 * seen. */
static CUresult wait_everywhere(struct vm_device *d, CUevent event)
{
    CUresult r = CUDA_SUCCESS;
    for (unsigned i = 0; i < d->nstreams && r == CUDA_SUCCESS; i++) {
        struct vm_stream *t = d->streams[i];
        if (!t->gone && !vm_stream_is_capturing(d, t))
            r = vm_drv.p_cuStreamWaitEvent(t->handle, event, 0);
    }
    return r;
}

/* Its copy out is in flight: it stays, and the streams wait for the copy on the device. Where a
 * default stream of another thread is known, which cannot be named from here, the page leaves
 * first. */
static int call_back(struct vm_device *d, uint64_t page, struct vm_stream *s, CUresult *error)
{
    CUresult r = CUDA_SUCCESS;
    for (size_t i = 0; i < d->out_flight.count && r == CUDA_SUCCESS; i++) {
        const struct vm_flight *f =
            &d->out_flight.items[(d->out_flight.head + i) % d->out_flight.cap];
        if (page < f->page || page >= f->page + f->npages)
            continue;
        if (d->captures > 0) /* a wait would go into the graph */
            return VM_PAGE_WAIT;
        for (unsigned k = 0; k < d->nstreams; k++)
            if (d->streams[k]->thread && d->streams[k]->thread != s->thread)
                return VM_PAGE_WAIT;
        r = wait_everywhere(d, f->event);
    }
    if (r != CUDA_SUCCESS) {
        *error = r;
        return VM_EIO;
    }
    d->pages[page].flags &= (uint8_t)~VM_PGF_ORPHAN; /* its slot stays with the page */
    vm_page_set_state(d, page, VM_PG_RESIDENT);
    return 0;
}

static int fill_empty(struct vm_device *d, uint64_t page, uint64_t *most, CUresult *error)
{
    if (*most == 0 || vm_page_take_chunk(d, page) != 0)
        return VM_NOTFOUND;
    (*most)--;
    CUresult r = vm_pages_map(d, page, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (r != CUDA_SUCCESS) {
        vm_page_return_chunk(d, page);
        *error = r;
        return VM_EIO;
    }
    vm_page_set_state(d, page, VM_PG_RESIDENT);
    return 0;
}

uint64_t vm_pager_fill(struct vm_device *d, uint64_t page, uint64_t n, uint64_t *most)
{
    uint64_t without = 0;
    for (uint64_t p = page, k; p < page + n; p += k ? k : 1) {
        for (k = 0; p + k < page + n; k++) {
            struct vm_page *pg = &d->pages[p + k];
            if (pg->state != VM_PG_EMPTY || (pg->flags & VM_PGF_LOST))
                break;
            if (*most == 0 || vm_page_take_chunk(d, p + k) != 0)
                break;
            (*most)--;
        }
        if (k == 0) {
            without += d->pages[p].state != VM_PG_RESIDENT;
            continue;
        }
        bool ok = vm_pages_map(d, p, k, CU_MEM_ACCESS_FLAGS_PROT_READWRITE) == CUDA_SUCCESS;
        for (uint64_t i = p; i < p + k; i++) {
            if (ok)
                vm_page_set_state(d, i, VM_PG_RESIDENT);
            else
                vm_page_return_chunk(d, i);
        }
        without += ok ? 0 : k;
    }
    return without;
}

/* The operation was not issued: the page goes back to its host slot. */
static void take_back(struct vm_device *d, uint64_t page)
{
    struct vm_page *pg = &d->pages[page];
    if (pg->state == VM_PG_RESIDENT) {
        CUresult r = vm_drv.p_cuMemUnmap(vm_page_addr(d, page), d->page_bytes);
        if (r != CUDA_SUCCESS) {
            d->broken = r; /* what the program would read there is not what it wrote */
            return;
        }
        vm_page_return_chunk(d, page);
    }
    vm_page_set_state(d, page, VM_PG_AWAY);
    vm_host_page(d, page);
}

void vm_pager_settle(struct vm_device *d, struct vm_block *b, bool issued)
{
    for (uint64_t page = b->first; b->live && page <= b->last; page++) {
        struct vm_page *pg = &d->pages[page];
        if (vm_page_is_shared(pg) || !(pg->flags & VM_PGF_UNSURE))
            continue;
        pg->flags &= (uint8_t)~VM_PGF_UNSURE;
        if (pg->state == VM_PG_AWAY) /* no chunk was left: the operation uses the host slot itself */
            continue;
        if (issued)
            vm_page_forget_host(d, page);
        else
            take_back(d, page);
    }
    b->unsure = false;
}

int vm_pager_step(struct vm_device *d, uint64_t page, struct vm_stream *s, bool overwritten,
                  uint64_t *most, CUresult *error)
{
    struct vm_page *pg = &d->pages[page];
    int r;
    switch ((enum vm_page_state)pg->state) {
    case VM_PG_RESIDENT:
        return 0;
    case VM_PG_WAIT_OUT:
        vm_page_set_state(d, page, VM_PG_RESIDENT);
        return 0;
    case VM_PG_LEAVING:
        return call_back(d, page, s, error);
    case VM_PG_COMING:
        return VM_PAGE_WAIT;
    case VM_PG_AWAY:
        if (!overwritten) {
            r = start_in(d, page, error);
            return r == 0 ? VM_PAGE_WAIT : r;
        }
        if ((pg->flags & VM_PGF_HOSTED) && !vm_streams_reached(d, vm_page_touched(d, page)))
            return VM_PAGE_WAIT;
        vm_unhost_page(d, page);
        vm_page_set_state(d, page, VM_PG_EMPTY);
        pg->flags |= VM_PGF_UNSURE;
        d->blocks[pg->owner].unsure = true;
        return fill_empty(d, page, most, error);
    case VM_PG_EMPTY:
        if ((pg->flags & VM_PGF_LOST) && !overwritten)
            return VM_PAGE_LOST;
        r = fill_empty(d, page, most, error);
        if (r == 0)
            pg->flags &= (uint8_t)~VM_PGF_LOST;
        return r;
    }
    return VM_EINVAL;
}
