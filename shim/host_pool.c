#include "host_pool.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "config.h"
#include "driver.h"
#include "grow.h"
#include "log.h"

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

/* n more slots of pinned memory. */
static bool add_registered(struct vm_device *d, uint32_t n)
{
    struct vm_host_pool *h = &d->host;
    size_t bytes = (size_t)n * d->page_bytes;
    if (VM_GROW(h->arenas, h->cap_arenas, h->narenas + (size_t)1) != 0)
        return false;
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED)
        return false;
    if (vm_drv.p_cuMemHostRegister_v2(p, bytes, CU_MEMHOSTREGISTER_PORTABLE) != CUDA_SUCCESS) {
        munmap(p, bytes);
        return false;
    }
    h->arenas[h->narenas++] = (struct vm_arena){.base = p, .first = h->nslots};
    return true;
}

/* n more slots of host-NUMA handles, each mapped for good beside the last. */
static bool add_numa(struct vm_device *d, uint32_t n)
{
    struct vm_host_pool *h = &d->host;
    CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = h->numa_node}};
    CUmemAccessDesc desc[2] = {
        {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d->ordinal},
         .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
        {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    CUmemGenericAllocationHandle *more = realloc(h->handles, (h->nslots + n) * sizeof *more);
    if (!more)
        return false;
    h->handles = more;
    CUdeviceptr first = h->numa_base + (CUdeviceptr)h->nslots * d->page_bytes;
    uint32_t made = 0;
    for (; made < n; made++) {
        CUmemGenericAllocationHandle *x = &more[h->nslots + made];
        if (vm_drv.p_cuMemCreate(x, d->page_bytes, &prop, 0) != CUDA_SUCCESS)
            break;
        if (vm_drv.p_cuMemMap(first + (CUdeviceptr)made * d->page_bytes, d->page_bytes, 0, *x, 0) !=
            CUDA_SUCCESS) {
            vm_drv.p_cuMemRelease(*x);
            break;
        }
    }
    if (made == n && vm_drv.p_cuMemSetAccess(first, n * d->page_bytes, desc, 2) == CUDA_SUCCESS)
        return true;
    if (made > 0)
        vm_drv.p_cuMemUnmap(first, made * d->page_bytes);
    while (made > 0)
        vm_drv.p_cuMemRelease(more[h->nslots + --made]);
    return false;
}

static int grow(struct vm_device *d)
{
    struct vm_host_pool *h = &d->host;
    uint32_t n = arena_slots(d);
    if (h->failed || n == 0)
        return VM_NOTFOUND;
    if (h->nslots + n > h->cap_free) {
        uint32_t *f = realloc(h->free_slots, (h->nslots + n) * sizeof *f);
        if (!f)
            return VM_NOTFOUND;
        h->free_slots = f;
        h->cap_free = h->nslots + n;
    }
    h->failed = !(h->numa ? add_numa(d, n) : add_registered(d, n));
    if (h->failed)
        return VM_NOTFOUND;
    /* Pushed in reverse, so that slots come out in ascending order: neighbours share copies. */
    for (uint32_t i = n; i-- > 0;)
        h->free_slots[h->nfree++] = h->nslots + i;
    h->nslots += n;
    return 0;
}

void vm_host_pool_init(struct vm_device *d)
{
    struct vm_host_pool *h = &d->host;
    int node = -1;
    if (vm_config()->backend != VM_BACKEND_NUMA || h->limit_slots == 0)
        return;
    if (vm_drv.p_cuDeviceGetAttribute &&
        vm_drv.p_cuDeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, d->ordinal) !=
            CUDA_SUCCESS)
        node = -1;
    h->numa_node = node < 0 ? 0 : node;
    CUresult r = vm_drv.p_cuMemAddressReserve(&h->numa_base, h->limit_slots << d->page_shift,
                                              d->page_bytes, 0, 0);
    h->numa = r == CUDA_SUCCESS;
    /* One arena now: containers may refuse such memory, and that should be known at the start. */
    if (h->numa && grow(d) != 0) {
        h->numa = h->failed = false;
        vm_drv.p_cuMemAddressFree(h->numa_base, h->limit_slots << d->page_shift);
    }
    if (!h->numa)
        vm_log(BACKEND_REFUSED);
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

CUmemGenericAllocationHandle vm_host_slot_handle(const struct vm_device *d, uint32_t slot)
{
    return d->host.handles[slot];
}

char *vm_host_slot_addr(const struct vm_device *d, uint32_t slot)
{
    const struct vm_host_pool *h = &d->host;
    if (h->numa)
        return (char *)(h->numa_base + (CUdeviceptr)slot * d->page_bytes);
    unsigned low = 0, high = h->narenas; /* the last arena that begins at or before it */
    while (high - low > 1) {
        unsigned middle = low + (high - low) / 2;
        if (h->arenas[middle].first <= slot)
            low = middle;
        else
            high = middle;
    }
    return h->arenas[low].base + (size_t)(slot - h->arenas[low].first) * d->page_bytes;
}

bool vm_host_slots_adjacent(const struct vm_device *d, uint32_t a, uint32_t b)
{
    return b == a + 1 && vm_host_slot_addr(d, b) == vm_host_slot_addr(d, a) + d->page_bytes;
}
