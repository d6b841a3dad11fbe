#include "pager_queues.h"

#include <stdlib.h>

#include "block.h"
#include "chunk_pool.h"
#include "driver.h"
#include "executor.h"
#include "host_pool.h"
#include "learn.h"

/* An operation this many times as long as a copy is long: copies keep clear of its end. Before shorter
 * ones they do not, or the link would stand still too often. */
#define VM_LONG 4

static uint64_t copy_ns(const struct vm_device *d, bool out, uint64_t n)
{
    double bps = out ? d->link.out_bps : d->link.in_bps;
    return bps > 0 ? (uint64_t)((double)(n << d->page_shift) / bps * 1e9) : 0;
}

bool vm_copy_may_begin(const struct vm_device *d, bool out, uint64_t n)
{
    uint64_t ns = copy_ns(d, out, n);
    if (!d->unmap_waits || d->patience_ns == VM_FOR_EVER || !vm_executor_spares_link(d))
        return true;
    if (d->patience_ns == VM_UNTIL_IDLE) /* the host waits: perhaps only for pages to be unmapped */
        return !out || d->missing == 0 || d->missing > d->unmap_wait.count + d->dead_wait.count;
    if (d->rest_ns >= VM_LONG * ns)
        return false;
    return d->ahead_ns < VM_LONG * ns || d->copied_ns[out] + ns <= d->ahead_ns;
}

void vm_copy_begun(struct vm_device *d, bool out, uint64_t n)
{
    d->copied_ns[out] += copy_ns(d, out, n);
}

int vm_queue_push(struct vm_queue *q, uint64_t page, uint64_t g)
{
    if (q->count == q->cap) {
        size_t cap = q->cap ? q->cap * 2 : 256;
        struct vm_wanted *p = malloc(cap * sizeof *p);
        if (!p)
            return VM_ENOMEM;
        for (size_t i = 0; i < q->count; i++)
            p[i] = q->items[(q->head + i) % q->cap];
        free(q->items);
        q->items = p;
        q->head = 0;
        q->cap = cap;
    }
    q->items[(q->head + q->count++) % q->cap] = (struct vm_wanted){page, g};
    return 0;
}

void vm_queue_pop(struct vm_queue *q)
{
    q->head = (q->head + 1) % q->cap;
    q->count--;
}

static bool earlier(const struct vm_waiter *a, const struct vm_waiter *b)
{
    return a->g != b->g ? a->g < b->g : a->seq < b->seq;
}

int vm_wait_push(struct vm_waiting *w, uint64_t page, uint64_t g)
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

void vm_wait_pop(struct vm_waiting *w)
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

int vm_flight_push(struct vm_flights *f, const struct vm_flight *flight)
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
    f->items[(f->head + f->count++) % f->cap] = *flight;
    return 0;
}

CUresult vm_pages_access(struct vm_device *d, uint64_t page, uint64_t n, CUmemAccess_flags flags)
{
    CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d->ordinal},
                            .flags = flags};
    CUresult r = vm_drv.p_cuMemSetAccess(vm_page_addr(d, page), n << d->page_shift, &desc, 1);
    for (uint64_t p = page; p < page + n; p++) {
        /* refused, it may have been done in part: neither written as it is nor trusted to be
         * unwritten */
        vm_page_set_sealed(d, p, flags == CU_MEM_ACCESS_FLAGS_PROT_READ || r != CUDA_SUCCESS);
        if (r != CUDA_SUCCESS)
            d->pages[p].copied_g = 0;
    }
    return r;
}

/* Maps the chunks that n adjacent pages hold and makes them accessible; all or nothing. */
CUresult vm_pages_map(struct vm_device *d, uint64_t page, uint64_t n, CUmemAccess_flags flags)
{
    CUevent begin = vm_learn_map_begins(d, false);
    CUresult r = CUDA_SUCCESS;
    uint64_t i;
    for (i = 0; i < n; i++) {
        struct vm_chunk *c = &d->chunks[d->pages[page + i].chunk];
        r = vm_drv.p_cuMemMap(vm_page_addr(d, page + i), d->page_bytes, 0, c->handle, 0);
        if (r != CUDA_SUCCESS)
            break;
    }
    if (r == CUDA_SUCCESS)
        r = vm_pages_access(d, page, n, flags);
    if (r != CUDA_SUCCESS) {
        if (i > 0)
            vm_drv.p_cuMemUnmap(vm_page_addr(d, page), i << d->page_shift);
        d->failed_moves++;
    }
    vm_learn_map_ends(d, false, n, begin);
    return r;
}

int vm_page_take_chunk(struct vm_device *d, uint64_t page)
{
    uint32_t c;
    if (vm_chunk_take(d, &c) != 0)
        return VM_NOTFOUND;
    d->chunks[c].page = page;
    d->pages[page].chunk = c;
    return 0;
}

void vm_page_return_chunk(struct vm_device *d, uint64_t page)
{
    vm_chunk_give(d, d->pages[page].chunk);
    d->pages[page].chunk = VM_NO;
    vm_page_set_sealed(d, page, false);
}

void vm_page_forget_host(struct vm_device *d, uint64_t page)
{
    struct vm_page *pg = &d->pages[page];
    if (pg->host != VM_NO)
        vm_host_slot_give(d, pg->host);
    pg->host = VM_NO;
    pg->copied_g = 0;
}

void vm_page_restore(struct vm_device *d, uint64_t page)
{
    CUresult r = vm_pages_access(d, page, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    d->failed_moves += r == CUDA_SUCCESS ? 0 : 1;
    vm_page_set_state(d, page, VM_PG_RESIDENT);
}
