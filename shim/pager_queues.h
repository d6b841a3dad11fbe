/* The pager's queues: pages that wait for their frontier, pages to bring back, copies in flight.
 * And the steps by which a page gets and loses a chunk. Lock held; internal to pager*.c and
 * victims.c. */
#ifndef VM_SHIM_PAGER_QUEUES_H
#define VM_SHIM_PAGER_QUEUES_H

#include "device.h"

/* Copies in flight a direction: enough to keep the engine busy, few enough that an operation's own
 * pages, which go last, are not far behind. Where unmapping waits for the device it waits for these. */
static inline size_t vm_flights_max(const struct vm_device *d)
{
    return d->unmap_waits ? 2 : 6;
}

/* May a copy of n pages begin? Where unmapping waits for the device, copies in flight included, and
 * the link has time to spare, copies are begun only if they end before the device is to rest. */
bool vm_copy_may_begin(const struct vm_device *d, bool out, uint64_t n);
/* It has begun. */
void vm_copy_begun(struct vm_device *d, bool out, uint64_t n);

/* 0 or VM_ENOMEM, the queue as it was. */
int vm_queue_push(struct vm_queue *q, uint64_t page, uint64_t g);
void vm_queue_pop(struct vm_queue *q);
int vm_wait_push(struct vm_waiting *w, uint64_t page, uint64_t g);
void vm_wait_pop(struct vm_waiting *w);
int vm_flight_push(struct vm_flights *f, const struct vm_flight *flight);

/* Makes n adjacent mapped pages accessible as `flags` says: sealed where that is to read only. */
CUresult vm_pages_access(struct vm_device *d, uint64_t page, uint64_t n, CUmemAccess_flags flags);
/* Maps the chunks that n adjacent pages hold and makes them accessible; all or nothing. */
CUresult vm_pages_map(struct vm_device *d, uint64_t page, uint64_t n, CUmemAccess_flags flags);
/* A chunk for the page, which is not mapped yet: 0 or VM_NOTFOUND. */
int vm_page_take_chunk(struct vm_device *d, uint64_t page);
void vm_page_return_chunk(struct vm_device *d, uint64_t page);
/* A page with its chunk is resident and may be written again; if the driver refuses that it stays sealed, and
 * the next operation that writes it tries once more. */
void vm_page_restore(struct vm_device *d, uint64_t page);
/* The page's host slot, if it has one, is free again. */
void vm_page_forget_host(struct vm_device *d, uint64_t page);

/* Parts of the pump; true if anything moved on. */
bool vm_pager_pump_waiting(struct vm_device *d, struct vm_waiting *w);
bool vm_pager_pump_dead(struct vm_device *d);
bool vm_pager_pump_unmap(struct vm_device *d);
/* The copies of a flight to the host are done. */
void vm_pager_landed_out(struct vm_device *d, const struct vm_flight *f);

#endif
