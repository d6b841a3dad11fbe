#include "host_pool.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "driver.h"

/* An arena is at most 1 GiB (registering holds a driver lock that slows the program's own calls:
 * facts on pinned memory say to go in steps), and small where pages are small. */
static uint32_t arena_slots(const struct vm_device *d)
{
    uint64_t bytes = UINT64_C(1) << 30;
    uint64_t n = bytes / d->page_bytes;
    uint64_t left = d->host.limit_slots - d->host.nslots;
    uint64_t first = d->host.nslots ? d->host.nslots : 32; /* doubles until 1 GiB */
    if (n > first)
        n = first;
    return (uint32_t)(n < left ? n : left);
}

static int grow(struct vm_device *d)
{
    struct vm_host_pool *h = &d->host;
    uint32_t n = arena_slots(d);
    if (h->failed || n == 0 || h->narenas == sizeof h->arenas / sizeof *h->arenas)
        return VM_NOTFOUND;
    if (h->nslots + n > h->cap_free) {
        uint32_t *f = realloc(h->free_slots, (h->nslots + n) * sizeof *f);
        if (!f)
            return VM_NOTFOUND;
        h->free_slots = f;
        h->cap_free = h->nslots + n;
    }
    size_t bytes = (size_t)n * d->page_bytes;
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED) {
        h->failed = true;
        return VM_NOTFOUND;
    }
    if (vm_drv.p_cuMemHostRegister_v2(p, bytes, CU_MEMHOSTREGISTER_PORTABLE) != CUDA_SUCCESS) {
        munmap(p, bytes);
        h->failed = true;
        return VM_NOTFOUND;
    }
    h->arenas[h->narenas].base = p;
    h->arenas[h->narenas].slots = n;
    h->narenas++;
    /* Pushed in reverse, so that slots come out in ascending order: neighbours share copies. */
    for (uint32_t i = n; i-- > 0;)
        h->free_slots[h->nfree++] = h->nslots + i;
    h->nslots += n;
    return 0;
}

int vm_host_slot_take(struct vm_device *d, uint32_t *slot)
{
    struct vm_host_pool *h = &d->host;
    if (h->nfree == 0 && grow(d) != 0)
        return VM_NOTFOUND;
    *slot = h->free_slots[--h->nfree];
    if (++h->in_use > h->peak)
        h->peak = h->in_use;
    return 0;
}

void vm_host_slot_give(struct vm_device *d, uint32_t slot)
{
    d->host.free_slots[d->host.nfree++] = slot;
    d->host.in_use--;
}

char *vm_host_slot_addr(const struct vm_device *d, uint32_t slot)
{
    for (unsigned i = 0;; i++) {
        if (slot < d->host.arenas[i].slots)
            return d->host.arenas[i].base + (size_t)slot * d->page_bytes;
        slot -= d->host.arenas[i].slots;
    }
}

bool vm_host_slots_adjacent(const struct vm_device *d, uint32_t a, uint32_t b)
{
    return b == a + 1 && vm_host_slot_addr(d, b) == vm_host_slot_addr(d, a) + d->page_bytes;
}
