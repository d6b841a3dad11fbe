#include "pager.h"

#include <stdlib.h>

#include "block.h"
#include "chunk_pool.h"
#include "driver.h"
#include "host_pool.h"
#include "hosted.h"
#include "stream.h"

/* Copies in flight a direction: enough to keep the engine busy, few enough that an operation's own
 * pages, which go last, are not far behind. */
#define VM_FLIGHTS_MAX 6u
/* Bytes that share one event. */
#define VM_RUN_BYTES (UINT64_C(32) << 20)

/* ---- queues ---------------------------------------------------------------------------------- */

static int queue_push(struct vm_queue *q, uint64_t page)
{
    if (q->count == q->cap) {
        size_t cap = q->cap ? q->cap * 2 : 256;
        uint64_t *p = malloc(cap * sizeof *p);
        if (!p)
            return VM_ENOMEM;
        for (size_t i = 0; i < q->count; i++)
            p[i] = q->items[(q->head + i) % q->cap];
        free(q->items);
        q->items = p;
        q->head = 0;
        q->cap = cap;
    }
    q->items[(q->head + q->count++) % q->cap] = page;
    return 0;
}

static void queue_pop(struct vm_queue *q)
{
    q->head = (q->head + 1) % q->cap;
    q->count--;
}

static bool earlier(const struct vm_waiter *a, const struct vm_waiter *b)
{
    return a->g != b->g ? a->g < b->g : a->seq < b->seq;
}

static int wait_push(struct vm_waiting *w, uint64_t page, uint64_t g)
{
    if (w->count == w->cap) {
        size_t cap = w->cap ? w->cap * 2 : 256;
        struct vm_waiter *p = realloc(w->items, cap * sizeof *p);
        if (!p)
            return VM_ENOMEM;
        w->items = p;
        w->cap = cap;
    }
    struct vm_waiter n = {g, w->seq++, page};
    size_t i = w->count++;
    for (; i > 0 && earlier(&n, &w->items[(i - 1) / 2]); i = (i - 1) / 2)
        w->items[i] = w->items[(i - 1) / 2];
    w->items[i] = n;
    return 0;
}

static void wait_pop(struct vm_waiting *w)
{
    struct vm_waiter last = w->items[--w->count];
    size_t i = 0;
    for (size_t c; (c = 2 * i + 1) < w->count; i = c) {
        if (c + 1 < w->count && earlier(&w->items[c + 1], &w->items[c]))
            c++;
        if (!earlier(&w->items[c], &last))
            break;
        w->items[i] = w->items[c];
    }
    w->items[i] = last;
}

static int flight_push(struct vm_flights *f, CUevent event, uint64_t page, uint32_t npages,
                       uint64_t g)
{
    if (f->count == f->cap) {
        size_t cap = f->cap ? f->cap * 2 : 32;
        struct vm_flight *p = malloc(cap * sizeof *p);
        if (!p)
            return VM_ENOMEM;
        for (size_t i = 0; i < f->count; i++)
            p[i] = f->items[(f->head + i) % f->cap];
        free(f->items);
        f->items = p;
        f->head = 0;
        f->cap = cap;
    }
    f->items[(f->head + f->count++) % f->cap] = (struct vm_flight){event, page, npages, g};
    return 0;
}

static uint32_t run_limit(const struct vm_device *d)
{
    uint64_t n = VM_RUN_BYTES >> d->page_shift;
    return n < 1 ? 1 : n > 64 ? 64 : (uint32_t)n;
}

/* ---- mapping --------------------------------------------------------------------------------- */

static CUresult set_access(struct vm_device *d, uint64_t page, uint64_t n, CUmemAccess_flags flags)
{
    CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d->ordinal},
                            .flags = flags};
    return vm_drv.p_cuMemSetAccess(vm_page_addr(d, page), n << d->page_shift, &desc, 1);
}

/* Maps the chunks that n adjacent pages hold and makes them accessible; all or nothing. */
static CUresult map(struct vm_device *d, uint64_t page, uint64_t n)
{
    CUresult r = CUDA_SUCCESS;
    uint64_t i;
    for (i = 0; i < n; i++) {
        struct vm_chunk *c = &d->chunks[d->pages[page + i].chunk];
        r = vm_drv.p_cuMemMap(vm_page_addr(d, page + i), d->page_bytes, 0, c->handle, 0);
        if (r != CUDA_SUCCESS)
            break;
    }
    if (r == CUDA_SUCCESS)
        r = set_access(d, page, n, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (r != CUDA_SUCCESS) {
        if (i > 0)
            vm_drv.p_cuMemUnmap(vm_page_addr(d, page), i << d->page_shift);
        d->failed_moves++;
    }
    return r;
}

static int take_chunk(struct vm_device *d, uint64_t page)
{
    uint32_t c;
    if (vm_chunk_take(d, &c) != 0)
        return VM_NOTFOUND;
    d->chunks[c].page = page;
    d->pages[page].chunk = c;
    return 0;
}

static void return_chunk(struct vm_device *d, uint64_t page)
{
    vm_chunk_give(d, d->pages[page].chunk);
    d->pages[page].chunk = VM_NO;
}

static void forget_host(struct vm_device *d, uint64_t page)
{
    struct vm_page *pg = &d->pages[page];
    if (pg->host != VM_NO)
        vm_host_slot_give(d, pg->host);
    pg->host = VM_NO;
    pg->copied_g = 0;
}

/* ---- out ------------------------------------------------------------------------------------- */

int vm_pager_out(struct vm_device *d, uint64_t page, uint64_t g, bool drop)
{
    struct vm_page *pg = &d->pages[page];
    if (pg->state != VM_PG_RESIDENT)
        return 0;
    if (wait_push(pg->live == 0 ? &d->dead_wait : &d->out_wait, page, g) != 0)
        return VM_ENOMEM;
    pg->out_g = g;
    if (drop)
        pg->flags |= VM_PGF_DROP;
    else
        pg->flags &= (uint8_t)~VM_PGF_DROP;
    vm_page_set_state(d, page, VM_PG_WAIT_OUT);
    return 0;
}

/* A clean page that is resident can do without its host copy. */
static bool steal_host_slot(struct vm_device *d, uint32_t *slot)
{
    for (uint32_t c = 0; c < d->nchunks; c++) {
        uint64_t p = d->chunks[c].page;
        if (p == UINT64_MAX || d->pages[p].host == VM_NO || d->pages[p].state != VM_PG_RESIDENT)
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
    if (vm_host_slot_take(d, &slot) != 0 && !steal_host_slot(d, &slot))
        return false;
    pg->host = slot;
    return true;
}

static bool host_holds(const struct vm_device *d, uint64_t page)
{
    const struct vm_page *pg = &d->pages[page];
    return pg->host != VM_NO && pg->copied_g >= vm_page_written(d, page);
}

enum leaving { LEAVE_STALE, LEAVE_CANCEL, LEAVE_BARE, LEAVE_COPY };

/* What the head of the queue comes to, now that its frontier is reached. */
static enum leaving judge(struct vm_device *d, uint64_t page, uint64_t g)
{
    struct vm_page *pg = &d->pages[page];
    if (pg->state != VM_PG_WAIT_OUT || pg->out_g != g)
        return LEAVE_STALE;
    if (vm_page_pinned(d, page))
        return LEAVE_CANCEL;
    if (!vm_page_matters(d, page) || (pg->flags & VM_PGF_DROP))
        return LEAVE_BARE;
    if (host_holds(d, page))
        return LEAVE_BARE;
    return get_host_slot(d, page) ? LEAVE_COPY : LEAVE_CANCEL;
}

/* The page may be unmapped: no copy is needed, or it is done. */
static void ready(struct vm_device *d, uint64_t page, uint64_t g)
{
    if (wait_push(&d->unmap_wait, page, g) != 0)
        vm_page_set_state(d, page, VM_PG_RESIDENT); /* out of host memory: it stays */
}

static CUresult copy_out(struct vm_device *d, uint64_t page, uint64_t n)
{
    CUresult r = CUDA_SUCCESS;
    for (uint64_t i = 0, k; i < n && r == CUDA_SUCCESS; i += k) {
        for (k = 1; i + k < n; k++)
            if (!vm_host_slots_adjacent(d, d->pages[page + i + k - 1].host, d->pages[page + i + k].host))
                break;
        r = vm_drv.p_cuMemcpyDtoHAsync_v2(vm_host_slot_addr(d, d->pages[page + i].host),
                                          vm_page_addr(d, page + i), k << d->page_shift,
                                          d->out_stream);
    }
    return r;
}

/* Starts the copies of n adjacent pages whose frontier is reached. */
static void leave_copy(struct vm_device *d, uint64_t page, uint32_t n, uint64_t g)
{
    CUevent e = vm_event_take(d);
    CUresult r = e ? set_access(d, page, n, CU_MEM_ACCESS_FLAGS_PROT_READ) : CUDA_ERROR_UNKNOWN;
    if (r == CUDA_SUCCESS)
        r = copy_out(d, page, n);
    if (r == CUDA_SUCCESS)
        r = vm_drv.p_cuEventRecord(e, d->out_stream);
    if (r == CUDA_SUCCESS && flight_push(&d->out_flight, e, page, n, g) != 0)
        r = CUDA_ERROR_UNKNOWN;
    for (uint64_t p = page; p < page + n; p++) {
        struct vm_page *pg = &d->pages[p];
        if (r == CUDA_SUCCESS) {
            vm_page_set_state(d, p, VM_PG_LEAVING);
            pg->copied_g = vm_page_written(d, p);
        } else {
            vm_page_set_state(d, p, VM_PG_RESIDENT);
            pg->copied_g = 0; /* the slot may be half written */
        }
    }
    if (r == CUDA_SUCCESS) {
        d->out_bytes += (uint64_t)n << d->page_shift;
        return;
    }
    d->failed_moves++;
    set_access(d, page, n, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    vm_event_give(d, e);
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
    uint32_t n = 1;
    while (n < run_limit(d) && w->count > 0 && w->items[0].page == page + n && w->items[0].g == g &&
           judge(d, page + n, g) == LEAVE_COPY) {
        wait_pop(w);
        n++;
    }
    return n;
}

static bool pump_waiting(struct vm_device *d, struct vm_waiting *w)
{
    bool moved = false;
    uint64_t page, g;
    while (d->out_flight.count < VM_FLIGHTS_MAX && due(d, w, &page, &g)) {
        enum leaving how = judge(d, page, g);
        wait_pop(w);
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
static bool pump_dead(struct vm_device *d)
{
    bool moved = false;
    uint64_t page, g;
    while (due(d, &d->dead_wait, &page, &g)) {
        if (d->pages[page].live == 0 && (d->pages[page].flags & VM_PGF_HOSTED)) {
            if (!vm_streams_reached(d, g))
                break;
            vm_unhost_page(d, page);
            vm_page_set_state(d, page, VM_PG_EMPTY);
            forget_host(d, page);
        }
        enum leaving how = judge(d, page, g);
        if (how == LEAVE_COPY) /* a block moved in meanwhile, and was written: its turn, not this wait's */
            how = LEAVE_CANCEL;
        wait_pop(&d->dead_wait);
        moved = true;
        if (how == LEAVE_CANCEL)
            vm_page_set_state(d, page, VM_PG_RESIDENT);
        if (how == LEAVE_BARE)
            ready(d, page, g);
    }
    return moved;
}

/* The copies of a flight are done. */
static void landed_out(struct vm_device *d, const struct vm_flight *f)
{
    for (uint64_t p = f->page; p < f->page + f->npages; p++) {
        struct vm_page *pg = &d->pages[p];
        if (pg->state != VM_PG_LEAVING || pg->out_g != f->g)
            continue; /* it was called back meanwhile, or is leaving anew */
        if (pg->flags & VM_PGF_ORPHAN) {
            pg->flags &= (uint8_t)~VM_PGF_ORPHAN;
            forget_host(d, p);
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
    vm_chunk_give(d, pg->chunk);
    pg->chunk = VM_NO;
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
    forget_host(d, page);
}

/* It stays after all: an operation wants it, or the driver refused. */
static void stay(struct vm_device *d, uint64_t page)
{
    if (d->pages[page].state == VM_PG_LEAVING)
        set_access(d, page, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    vm_page_set_state(d, page, VM_PG_RESIDENT);
}

/* Unmapping may wait for all work of the device, copies included (facts on synchronisation), so it is
 * done in one go, when the device has nothing to do that matters: d->patience_ns is what an idle device
 * may wait for copies in flight. Where unmapping was seen not to wait, it is done at once. */
static bool may_unmap(struct vm_device *d)
{
    if (!d->unmap_waits || d->patience_ns == UINT64_MAX)
        return true;
    if (d->missing > d->unmap_wait.count + d->nfree_chunks && d->out_flight.count > 0)
        return false; /* an operation needs more than that: once is better than twice */
    if (!vm_streams_reached(d, d->g))
        return false;
    uint64_t pages = d->in_flight.count;
    for (size_t i = 0; i < d->out_flight.count; i++)
        pages += d->out_flight.items[(d->out_flight.head + i) % d->out_flight.cap].npages;
    double bps = d->link.in_bps > 0 ? d->link.in_bps : 12e9;
    return (double)(pages << d->page_shift) / bps * 1e9 <= (double)d->patience_ns;
}

static bool pump_unmap(struct vm_device *d)
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
            stay(d, page);
            continue;
        }
        while (i + n < w->count && w->items[i + n].page == page + n &&
               still_leaving(d, &w->items[i + n]) && may_go(d, page + n))
            n++;
        bool ok = vm_drv.p_cuMemUnmap(vm_page_addr(d, page), n << d->page_shift) == CUDA_SUCCESS;
        d->failed_moves += ok ? 0 : 1;
        for (uint64_t p = page; p < page + n; p++) {
            if (ok)
                gone(d, p);
            else
                stay(d, p);
        }
    }
    w->count = 0;
    return true;
}

/* ---- choosing what leaves -------------------------------------------------------------------- */

uint64_t vm_pager_leaving(const struct vm_device *d)
{
    uint64_t n = d->out_wait.count + d->dead_wait.count + d->unmap_wait.count;
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

/* Operations ahead in which a block that is about to be born makes a dead page worth keeping. */
#define VM_BORN_SOON 6u

/* Dead pages first, those that are free first before the others, but last those whose place a planned
 * block takes next; then contents, farthest next use first; what the plan does not know by age. */
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
    for (uint64_t i = 0; i < nv && sent < n; i++) {
        d->demand_moves += vm_page_matters(d, v[i].page);
        if (vm_pager_out(d, v[i].page, vm_page_touched(d, v[i].page), false) == 0)
            sent++;
    }
    return sent;
}

void vm_pager_bury(struct vm_device *d, uint64_t page)
{
    wait_push(&d->dead_wait, page, d->pages[page].fence_g); /* else it stays until a block is born on it */
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

/* ---- in -------------------------------------------------------------------------------------- */

int vm_pager_in(struct vm_device *d, uint64_t page)
{
    struct vm_page *pg = &d->pages[page];
    if (pg->flags & VM_PGF_WANT_IN)
        return 0;
    if (queue_push(&d->in_wait, page) != 0)
        return VM_ENOMEM;
    pg->flags |= VM_PGF_WANT_IN;
    return 0;
}

/* The page is away: its copy starts if there is a chunk. */
static int start_in(struct vm_device *d, uint64_t page, CUresult *error)
{
    struct vm_page *pg = &d->pages[page];
    /* What was written into the host slot where it lies must be there before it is copied. */
    if ((pg->flags & VM_PGF_HOSTED) && !vm_streams_reached(d, vm_page_touched(d, page)))
        return VM_PAGE_WAIT;
    if (take_chunk(d, page) != 0)
        return VM_NOTFOUND;
    vm_unhost_page(d, page);
    CUevent e = vm_event_take(d);
    CUresult r = e ? vm_drv.p_cuMemcpyHtoDAsync_v2(d->chunks[pg->chunk].alias,
                                                   vm_host_slot_addr(d, pg->host), d->page_bytes,
                                                   d->in_stream)
                   : CUDA_ERROR_OUT_OF_MEMORY;
    if (r == CUDA_SUCCESS)
        r = vm_drv.p_cuEventRecord(e, d->in_stream);
    if (r == CUDA_SUCCESS && flight_push(&d->in_flight, e, page, 1, 0) != 0)
        r = CUDA_ERROR_OUT_OF_MEMORY;
    if (r != CUDA_SUCCESS) {
        vm_event_give(d, e);
        return_chunk(d, page);
        d->failed_moves++;
        *error = r;
        return VM_EIO;
    }
    vm_page_set_state(d, page, VM_PG_COMING);
    d->in_bytes += d->page_bytes;
    return 0;
}

/* Pages wait to come back and no chunk is free: dead pages give theirs up, as soon as their last
 * operation is done, those first whose place the plan needs last. */
static void recycle(struct vm_device *d, size_t wanted)
{
    uint64_t coming = vm_pager_leaving(d);
    if (wanted > VM_FLIGHTS_MAX * 4)
        wanted = VM_FLIGHTS_MAX * 4;
    if (coming < wanted)
        vm_pager_recycle(d, wanted - coming);
}

static bool pump_in_wait(struct vm_device *d)
{
    bool moved = false;
    struct vm_queue *q = &d->in_wait;
    while (q->count > 0 && d->in_flight.count < VM_FLIGHTS_MAX) {
        uint64_t page = q->items[q->head];
        struct vm_page *pg = &d->pages[page];
        if ((pg->flags & VM_PGF_WANT_IN) && pg->state == VM_PG_AWAY) {
            if (vm_chunks_available(d) == 0) {
                recycle(d, q->count);
                break;
            }
            CUresult ignored;
            if (start_in(d, page, &ignored) != 0)
                break;
        } else if ((pg->flags & VM_PGF_WANT_IN) &&
                   (pg->state == VM_PG_LEAVING || pg->state == VM_PG_WAIT_OUT)) {
            break; /* not gone yet: its turn comes when it is */
        }
        pg->flags &= (uint8_t)~VM_PGF_WANT_IN;
        queue_pop(q);
        moved = true;
    }
    return moved;
}

/* Adjacent pages that came together are mapped one by one and made accessible in one call. */
static void landed_in(struct vm_device *d, uint64_t page, uint64_t n)
{
    for (uint64_t p = page; p < page + n; p++)
        if (d->pages[p].flags & VM_PGF_ORPHAN) {
            d->pages[p].flags &= (uint8_t)~VM_PGF_ORPHAN;
            return_chunk(d, p);
            vm_page_set_state(d, p, VM_PG_EMPTY);
            forget_host(d, p);
        }
    for (uint64_t p = page, k; p < page + n; p += k) {
        for (k = 0; p + k < page + n && d->pages[p + k].state == VM_PG_COMING; k++)
            ;
        if (k == 0) {
            k = 1;
            continue;
        }
        bool ok = map(d, p, k) == CUDA_SUCCESS;
        for (uint64_t i = p; i < p + k; i++) {
            if (!ok)
                return_chunk(d, i);
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
    vm_event_give(d, fl.event);
    return fl;
}

static bool pump_flights(struct vm_device *d)
{
    bool moved = false;
    while (flight_done(d, &d->out_flight)) {
        struct vm_flight f = flight_pop(d, &d->out_flight);
        landed_out(d, &f);
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
           d->out_flight.count > 0 ||
           d->in_flight.count > 0 || d->in_wait.count > 0;
}

bool vm_pager_pump(struct vm_device *d)
{
    if (!vm_pager_busy(d) || d->broken != CUDA_SUCCESS)
        return false;
    bool moved = pump_flights(d);
    moved |= pump_dead(d);
    moved |= pump_waiting(d, &d->out_wait);
    moved |= pump_unmap(d);
    moved |= pump_in_wait(d);
    return moved;
}

/* ---- one page for an operation --------------------------------------------------------------- */

/* Every stream waits, on the device, for the copy out that `event` ends: the page will be found resident
 * and nobody asks again, neither the next writer of the block nor those of its neighbours on the page or
 * of whoever lives there next. Streams that come later wait when they are first seen. */
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

/* Its copy out is in flight: it stays, and the streams wait for the copy on the device. Where a default
 * stream of another thread is known, which cannot be named from here, the page leaves first. */
static int call_back(struct vm_device *d, uint64_t page, struct vm_stream *s, CUresult *error)
{
    CUresult r = CUDA_SUCCESS;
    for (size_t i = 0; i < d->out_flight.count && r == CUDA_SUCCESS; i++) {
        const struct vm_flight *f = &d->out_flight.items[(d->out_flight.head + i) % d->out_flight.cap];
        if (page < f->page || page >= f->page + f->npages)
            continue;
        if (d->captures > 0) /* a wait would go into the graph */
            return VM_PAGE_WAIT;
        for (unsigned k = 0; k < d->nstreams; k++)
            if (d->streams[k]->thread && d->streams[k]->thread != s->thread)
                return VM_PAGE_WAIT;
        r = wait_everywhere(d, f->event);
    }
    if (r == CUDA_SUCCESS)
        r = set_access(d, page, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
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
    if (*most == 0 || take_chunk(d, page) != 0)
        return VM_NOTFOUND;
    (*most)--;
    CUresult r = map(d, page, 1);
    if (r != CUDA_SUCCESS) {
        return_chunk(d, page);
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
            if (*most == 0 || take_chunk(d, p + k) != 0)
                break;
            (*most)--;
        }
        if (k == 0) {
            without += d->pages[p].state != VM_PG_RESIDENT;
            continue;
        }
        bool ok = map(d, p, k) == CUDA_SUCCESS;
        for (uint64_t i = p; i < p + k; i++) {
            if (ok)
                vm_page_set_state(d, i, VM_PG_RESIDENT);
            else
                return_chunk(d, i);
        }
        without += ok ? 0 : k;
    }
    return without;
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
        forget_host(d, page);
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
