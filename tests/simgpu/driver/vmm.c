/* Virtual memory management: the rules of the real calls, without the kindnesses that programs come
 * to rely on. A mapping starts without access, covers a whole handle, and is undone as a whole; a
 * range with a hole is refused. */
#include "sg.h"

#include <stdlib.h>
#include <string.h>

static bool location_ok(const CUmemLocation *l)
{
    switch ((int)l->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return l->id >= 0 && l->id < sg.cfg.ndevices;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return sg.cfg.host_numa;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        return sg.cfg.host_numa && l->id == 0;
    }
    return false;
}

SG_CALL(cuMemGetAllocationGranularity,
        (size_t * granularity, const CUmemAllocationProp *prop,
         CUmemAllocationGranularity_flags option),
        (granularity, prop, option))
{
    SG_CHECK(granularity && prop, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(option == CU_MEM_ALLOC_GRANULARITY_MINIMUM ||
                 option == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED,
             CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(prop->type == CU_MEM_ALLOCATION_TYPE_PINNED && location_ok(&prop->location),
             prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? CUDA_ERROR_INVALID_DEVICE
                                                                : CUDA_ERROR_NOT_SUPPORTED);
    *granularity = sg.cfg.granularity;
    return CUDA_SUCCESS;
}

SG_CALL(cuMemAddressReserve,
        (CUdeviceptr * out, size_t size, size_t align, CUdeviceptr addr, unsigned long long flags),
        (out, size, align, addr, flags))
{
    struct sg_range *r;
    SG_CHECK(out && size && size % 4096 == 0 && flags == 0, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK((align & (align - 1)) == 0, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(addr % 4096 == 0, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(size <= (size_t)1 << 46, CUDA_ERROR_OUT_OF_MEMORY);
    if (align < sg.cfg.granularity)
        align = sg.cfg.granularity;
    SG_TRY(sg_range_new(SG_VMM, size, align, addr, SG_HOST, &r));
    *out = r->va;
    return CUDA_SUCCESS;
}

SG_CALL(cuMemAddressFree, (CUdeviceptr ptr, size_t size), (ptr, size))
{
    struct sg_range *r = sg_range_find(ptr);
    SG_CHECK(r && r->kind == SG_VMM && r->va == ptr && r->bytes == size, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < r->npages; i++)
        SG_CHECK(!r->page[i], CUDA_ERROR_INVALID_VALUE);
    sg_range_free(r);
    return CUDA_SUCCESS;
}

SG_CALL(cuMemCreate,
        (CUmemGenericAllocationHandle * out, size_t size, const CUmemAllocationProp *prop,
         unsigned long long flags),
        (out, size, prop, flags))
{
    struct sg_phys *p;
    SG_CHECK(out && prop && flags == 0, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(size && size % sg.cfg.granularity == 0, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(prop->type == CU_MEM_ALLOCATION_TYPE_PINNED, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(!((unsigned)prop->requestedHandleTypes &
               ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
             CUDA_ERROR_NOT_SUPPORTED);
    bool dev = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    SG_CHECK(location_ok(&prop->location),
             dev ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_NOT_PERMITTED);
    int where = dev ? prop->location.id : SG_HOST;
    CUresult r = sg_phys_new(where, size, false, &p);
    if (r != CUDA_SUCCESS && dev && sg_pool_release_some(where))
        r = sg_phys_new(where, size, false, &p);
    SG_TRY(r);
    p->prop = *prop;
    if (!dev)
        sg_host_spend((uint64_t)((double)size * sg_prices.host_alloc_per_byte));
    sg_handle_add(SG_H_PHYS, p);
    *out = (CUmemGenericAllocationHandle)(uintptr_t)p;
    return CUDA_SUCCESS;
}

static struct sg_phys *phys_of(CUmemGenericAllocationHandle h)
{
    struct sg_phys *p = (struct sg_phys *)(uintptr_t)h;
    return sg_handle_is(SG_H_PHYS, p) ? p : NULL;
}

SG_CALL(cuMemRelease, (CUmemGenericAllocationHandle handle), (handle))
{
    struct sg_phys *p = phys_of(handle);
    SG_CHECK(p, CUDA_ERROR_INVALID_VALUE);
    if (p->refs == 1)
        sg_handle_drop(SG_H_PHYS, p); /* it may live on in mappings */
    sg_phys_unref(p);
    return CUDA_SUCCESS;
}

SG_CALL(cuMemRetainAllocationHandle, (CUmemGenericAllocationHandle * out, void *addr), (out, addr))
{
    SG_CHECK(out, CUDA_ERROR_INVALID_VALUE);
    const struct sg_range *r = sg_range_find((uint64_t)addr);
    const struct sg_map *m = r && r->kind == SG_VMM ? sg_map_at(r, (uint64_t)addr) : NULL;
    SG_CHECK(m, CUDA_ERROR_INVALID_VALUE);
    if (m->phys->refs++ == 0)
        sg_handle_add(SG_H_PHYS, m->phys);
    *out = (CUmemGenericAllocationHandle)(uintptr_t)m->phys;
    return CUDA_SUCCESS;
}

SG_CALL(cuMemGetAllocationPropertiesFromHandle,
        (CUmemAllocationProp * prop, CUmemGenericAllocationHandle handle), (prop, handle))
{
    const struct sg_phys *p = phys_of(handle);
    SG_CHECK(prop && p, CUDA_ERROR_INVALID_VALUE);
    *prop = p->prop;
    return CUDA_SUCCESS;
}

/* The reservation that holds [ptr, ptr+size) whole, aligned to granules; else NULL. */
static struct sg_range *reservation(CUdeviceptr ptr, size_t size)
{
    struct sg_range *r = sg_range_find(ptr);
    if (!r || r->kind != SG_VMM || !size || size > r->bytes || ptr + size > r->va + r->bytes)
        return NULL;
    return (ptr - r->va) % r->page_bytes == 0 && size % r->page_bytes == 0 ? r : NULL;
}

SG_CALL(cuMemMap,
        (CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
         unsigned long long flags),
        (ptr, size, offset, handle, flags))
{
    struct sg_phys *p = phys_of(handle);
    struct sg_range *r = reservation(ptr, size);
    SG_CHECK(r && p && flags == 0 && offset == 0, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(size == p->bytes, CUDA_ERROR_INVALID_VALUE); /* no slice of a handle can be mapped */
    size_t first = (ptr - r->va) / r->page_bytes, n = size / r->page_bytes;
    for (size_t i = 0; i < n; i++)
        SG_CHECK(!r->page[first + i], CUDA_ERROR_INVALID_VALUE);
    struct sg_map *m = calloc(1, sizeof *m);
    SG_CHECK(m, CUDA_ERROR_OUT_OF_MEMORY);
    m->va = ptr;
    m->bytes = size;
    m->after = sg.seq;
    if (sg_map_attach(m, p, false) != CUDA_SUCCESS) {
        free(m);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < n; i++)
        r->page[first + i] = m;
    sg_host_spend(sg_prices.map_chunk);
    return CUDA_SUCCESS;
}

/* Every mapping of the range lies inside it whole, and there is no hole. Counts the mappings. */
static bool whole_mappings(const struct sg_range *r, CUdeviceptr ptr, size_t size, unsigned *count)
{
    CUdeviceptr at = ptr;
    *count = 0;
    while (at < ptr + size) {
        const struct sg_map *m = sg_map_at(r, at);
        if (!m || m->va != at || at + m->bytes > ptr + size)
            return false;
        at += m->bytes;
        ++*count;
    }
    return true;
}

SG_CALL(cuMemUnmap, (CUdeviceptr ptr, size_t size), (ptr, size))
{
    unsigned count;
    struct sg_range *r = reservation(ptr, size);
    SG_CHECK(r && whole_mappings(r, ptr, size, &count), CUDA_ERROR_INVALID_VALUE);
    if (sg.cfg.unmap_sync) {
        struct sg_ctx *c = sg_current_raw();
        if (c && sg_handle_is(SG_H_CTX, c)) {
            sg_wait_ctx(c);
            r = reservation(ptr, size); /* the lock was given back while waiting */
            SG_CHECK(r && whole_mappings(r, ptr, size, &count), CUDA_ERROR_INVALID_VALUE);
        }
    }
    for (CUdeviceptr at = ptr; at < ptr + size;) {
        struct sg_map *m = sg_map_at(r, at);
        size_t first = (at - r->va) / r->page_bytes, n = m->bytes / r->page_bytes;
        for (size_t i = 0; i < n; i++)
            r->page[first + i] = NULL;
        at += m->bytes;
        if (sg.cfg.racecheck)
            sg_race_free(m->phys, 0, m->bytes, m->va, "unmap");
        sg_map_detach(m);
        sg_race_unmapped(m);
        free(m);
    }
    sg_host_spend((uint64_t)count * sg_prices.unmap_chunk);
    return CUDA_SUCCESS;
}

static CUresult access_ok(const struct sg_range *r, CUdeviceptr ptr, size_t size,
                          const CUmemAccessDesc *d)
{
    int flags = (int)d->flags;
    SG_CHECK(flags == 0 || flags == 1 || flags == 3, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(location_ok(&d->location), CUDA_ERROR_INVALID_DEVICE);
    if (d->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_SUCCESS;
    /* The host may be given access to host memory only. */
    for (CUdeviceptr at = ptr; at < ptr + size; at += sg_map_at(r, at)->bytes)
        SG_CHECK(sg_map_at(r, at)->phys->device == SG_HOST, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

SG_CALL(cuMemSetAccess, (CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count),
        (ptr, size, desc, count))
{
    unsigned chunks;
    struct sg_range *r = reservation(ptr, size);
    SG_CHECK(r && desc && count, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(whole_mappings(r, ptr, size, &chunks), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++)
        SG_TRY(access_ok(r, ptr, size, &desc[i]));
    for (CUdeviceptr at = ptr; at < ptr + size;) {
        struct sg_map *m = sg_map_at(r, at);
        for (size_t i = 0; i < count; i++)
            if (desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
                if (sg.cfg.racecheck && desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ)
                    sg_race_sealed(m->phys);
                m->access[desc[i].location.id] = (unsigned char)desc[i].flags;
            }
        SG_TRY(sg_map_protect(m));
        if (sg.cfg.racecheck)
            sg_race_mapped(m);
        at += m->bytes;
    }
    sg_host_spend((uint64_t)chunks * sg_prices.access_chunk);
    return CUDA_SUCCESS;
}

SG_CALL(cuMemGetAccess, (unsigned long long *flags, const CUmemLocation *where, CUdeviceptr ptr),
        (flags, where, ptr))
{
    SG_CHECK(flags && where, CUDA_ERROR_INVALID_VALUE);
    const struct sg_range *r = sg_range_find(ptr);
    const struct sg_map *m = r && r->kind == SG_VMM ? sg_map_at(r, ptr) : NULL;
    SG_CHECK(m && where->type == CU_MEM_LOCATION_TYPE_DEVICE && location_ok(where),
             CUDA_ERROR_INVALID_VALUE);
    *flags = m->access[where->id];
    return CUDA_SUCCESS;
}
