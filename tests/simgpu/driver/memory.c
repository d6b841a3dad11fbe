/* The classic allocators: device, pitched, managed and page-locked host memory. */
#include "sg.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

CUresult sg_alloc(enum sg_kind kind, struct sg_ctx *c, size_t bytes, struct sg_range **out)
{
    struct sg_range *r;
    struct sg_phys *p;
    SG_TRY(sg_range_new(kind, bytes, sg.cfg.granularity < bytes ? sg.cfg.granularity : 512, 0,
                        c->device, &r));
    CUresult res = sg_phys_new(c->device, sg_phys_round(bytes), false, &p);
    if (res != CUDA_SUCCESS && sg_pool_release_some(c->device))
        res = sg_phys_new(c->device, sg_phys_round(bytes), false, &p);
    if (res == CUDA_SUCCESS) {
        res = sg_map_attach(&r->map, p, true);
        if (res != CUDA_SUCCESS)
            sg_phys_unref(p);
    }
    if (res != CUDA_SUCCESS) {
        sg_range_free(r);
        return res;
    }
    r->ctx = c;
    *out = r;
    return CUDA_SUCCESS;
}

void sg_dealloc(struct sg_range *r)
{
    struct sg_phys *p = r->map.phys;
    if (p && sg.cfg.racecheck)
        sg_race_free(p, 0, r->bytes, r->va, "free");
    if (p) {
        sg_map_detach(&r->map);
        sg_phys_unref(p);
    }
    if (r->array)
        sg_array_forget(r->array);
    sg_op_unref(r->freed);
    sg_range_free(r);
}

static void pages_cost(size_t bytes, uint32_t each)
{
    sg_host_spend((uint64_t)((bytes + ((size_t)2 << 20) - 1) >> 21) * each);
}

static CUresult device_alloc(CUdeviceptr *out, size_t bytes)
{
    struct sg_ctx *c;
    struct sg_range *r;
    SG_CHECK(out && bytes, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_current(&c));
    SG_CHECK(!sg_capture_blocks(c), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    SG_CHECK(bytes < (size_t)1 << 46, CUDA_ERROR_OUT_OF_MEMORY);
    SG_TRY(sg_alloc(SG_DEVICE, c, bytes, &r));
    pages_cost(bytes, sg_prices.alloc_page);
    *out = r->va;
    return CUDA_SUCCESS;
}

SG_CALL(cuMemAlloc_v2, (CUdeviceptr * out, size_t bytes), (out, bytes))
{
    return device_alloc(out, bytes);
}

SG_CALL(cuMemAllocPitch_v2,
        (CUdeviceptr * out, size_t *pitch, size_t width, size_t height, unsigned elem),
        (out, pitch, width, height, elem))
{
    SG_CHECK(out && pitch && width && height, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(elem == 4 || elem == 8 || elem == 16, CUDA_ERROR_INVALID_VALUE);
    size_t p = (width + 511) & ~(size_t)511;
    SG_CHECK(p >= width && height < SIZE_MAX / p, CUDA_ERROR_OUT_OF_MEMORY);
    SG_TRY(device_alloc(out, p * height));
    *pitch = p;
    return CUDA_SUCCESS;
}

/* Waits for everything the context has under way, as the real call does. */
SG_CALL(cuMemFree_v2, (CUdeviceptr ptr), (ptr))
{
    struct sg_ctx *c;
    if (!ptr)
        return CUDA_SUCCESS;
    SG_TRY(sg_current(&c));
    SG_CHECK(!sg_capture_blocks(c), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    struct sg_range *r = sg_range_find(ptr);
    SG_CHECK(r && r->va == ptr, CUDA_ERROR_INVALID_VALUE);
    if (r->of_graph)
        return CUDA_SUCCESS; /* goes with its graphs */
    SG_CHECK(!r->of_ipc, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(r->kind == SG_DEVICE || r->kind == SG_MANAGED || (r->kind == SG_POOL && !r->freed),
             CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_wait_ctx(r->ctx ? r->ctx : c));
    r = sg_range_find(ptr); /* the lock was given back while waiting */
    SG_CHECK(r && r->va == ptr, CUDA_ERROR_INVALID_VALUE);
    pages_cost(r->bytes, sg_prices.free_page);
    if (r->kind == SG_POOL)
        sg_pool_free_now(r);
    else
        sg_dealloc(r);
    return CUDA_SUCCESS;
}

SG_CALL(cuMemGetInfo_v2, (size_t * free_bytes, size_t *total), (free_bytes, total))
{
    struct sg_ctx *c;
    SG_CHECK(free_bytes && total, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_current(&c));
    const struct sg_device *d = &sg.dev[c->device];
    size_t taken = d->used + d->reserved_ctx + sg_machine_others(c->device);
    *free_bytes = taken < sg.cfg.preset.memory ? sg.cfg.preset.memory - taken : 0;
    *total = sg.cfg.preset.memory;
    return CUDA_SUCCESS;
}

/* A mapping is answered for virtual memory, the allocation otherwise. */
SG_CALL(cuMemGetAddressRange_v2, (CUdeviceptr * base, size_t *size, CUdeviceptr ptr),
        (base, size, ptr))
{
    struct sg_ctx *c;
    SG_TRY(sg_current(&c));
    const struct sg_range *r = sg_range_find(ptr);
    const struct sg_map *m = r ? sg_map_at(r, ptr) : NULL;
    SG_CHECK(r && m && r->kind != SG_PINNED && r->kind != SG_REGISTERED && r->kind != SG_ARRAY,
             CUDA_ERROR_NOT_FOUND);
    if (base)
        *base = m->va;
    if (size)
        *size = r->kind == SG_VMM ? m->bytes : r->bytes;
    return CUDA_SUCCESS;
}

/* The bytes are at a host address that the program may read and write in both modes. */
SG_CALL(cuMemAllocManaged, (CUdeviceptr * out, size_t bytes, unsigned flags), (out, bytes, flags))
{
    struct sg_ctx *c;
    struct sg_range *r;
    SG_CHECK(out && bytes, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST,
             CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_current(&c));
    SG_CHECK(!sg_capture_blocks(c), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    SG_TRY(sg_alloc(SG_MANAGED, c, bytes, &r));
    if (sg.cfg.mode == SG_TIMING && mprotect((void *)r->va, r->span, PROT_READ | PROT_WRITE) != 0) {
        sg_dealloc(r);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    r->map.phys->host_writes = true;
    r->flags = flags;
    *out = r->va;
    return CUDA_SUCCESS;
}

/* Timing mode, large blocks: every stretch of the block shows the same few pages. Copies carry no
 * contents in that mode, and gigabytes that a program touches in advance must not cost real ones.
 */
static bool host_pages(struct sg_range *r)
{
    if (r->bytes <= SG_ALIAS_BYTES)
        return mprotect((void *)r->va, r->span, PROT_READ | PROT_WRITE) == 0;
    if (sg_file() < 0 || ftruncate(sg.memfile, (off_t)SG_ALIAS_BYTES) != 0)
        return false;
    for (size_t at = 0; at < r->span; at += SG_ALIAS_BYTES) {
        size_t n = r->span - at < SG_ALIAS_BYTES ? r->span - at : SG_ALIAS_BYTES;
        if (mmap((void *)(r->va + at), n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                 sg.memfile, 0) == MAP_FAILED)
            return false;
    }
    return true;
}

static CUresult host_alloc(void **out, size_t bytes, unsigned flags)
{
    struct sg_ctx *c;
    struct sg_range *r;
    struct sg_phys *p;
    SG_CHECK(out && bytes && !(flags & ~7u), CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_current(&c));
    SG_CHECK(!sg_capture_blocks(c), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    SG_TRY(sg_range_new(SG_PINNED, bytes, 4096, 0, SG_HOST, &r));
    CUresult res = sg_phys_new(SG_HOST, (bytes + 4095) & ~(size_t)4095, false, &p);
    if (res == CUDA_SUCCESS) {
        res = sg_map_attach(&r->map, p, true);
        if (res == CUDA_SUCCESS && sg.cfg.mode == SG_TIMING && !host_pages(r)) {
            sg_map_detach(&r->map);
            res = CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (res != CUDA_SUCCESS)
            sg_phys_unref(p);
    }
    if (res != CUDA_SUCCESS) {
        sg_range_free(r);
        return res;
    }
    sg_host_spend((uint64_t)((double)bytes * sg_prices.host_alloc_per_byte));
    p->host_writes = true;
    r->ctx = c;
    r->flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;
    *out = (void *)r->va;
    return CUDA_SUCCESS;
}

SG_CALL(cuMemHostAlloc, (void **out, size_t bytes, unsigned flags), (out, bytes, flags))
{
    return host_alloc(out, bytes, flags);
}
SG_CALL(cuMemAllocHost_v2, (void **out, size_t bytes), (out, bytes))
{
    return host_alloc(out, bytes, 0);
}

SG_CALL(cuMemFreeHost, (void *ptr), (ptr))
{
    struct sg_ctx *c;
    SG_TRY(sg_current(&c));
    SG_CHECK(!sg_capture_blocks(c), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    struct sg_range *r = sg_range_find((uint64_t)ptr);
    SG_CHECK(r && r->va == (uint64_t)ptr && r->kind == SG_PINNED, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_wait_ctx(r->ctx));
    r = sg_range_find((uint64_t)ptr);
    SG_CHECK(r && r->va == (uint64_t)ptr, CUDA_ERROR_INVALID_VALUE);
    sg_dealloc(r);
    return CUDA_SUCCESS;
}

static CUresult host_register(void *ptr, size_t bytes, unsigned flags)
{
    struct sg_ctx *c;
    struct sg_range *r;
    struct sg_phys *p;
    uint64_t first = (uint64_t)ptr & ~UINT64_C(4095), end = (uint64_t)ptr + bytes;
    SG_CHECK(ptr && bytes && end > (uint64_t)ptr && !(flags & ~15u), CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_current(&c));
    SG_CHECK(!(flags & CU_MEMHOSTREGISTER_IOMEMORY), CUDA_ERROR_NOT_SUPPORTED);
    if (msync((void *)first, end - first, MS_ASYNC) != 0)
        return CUDA_ERROR_INVALID_VALUE; /* a page of it is not there */
    SG_TRY(sg_phys_new(SG_HOST, bytes, true, &p));
    CUresult res = sg_range_adopt((uint64_t)ptr, bytes, &r);
    if (res != CUDA_SUCCESS) {
        sg_phys_unref(p);
        return res;
    }
    sg_map_attach(&r->map, p, true); /* no file behind p: nothing is mapped anew */
    sg_host_spend((uint64_t)((double)bytes * sg_prices.host_pin_per_byte));
    p->host_writes = true;
    r->ctx = c;
    r->flags = flags;
    return CUDA_SUCCESS;
}

SG_CALL(cuMemHostRegister_v2, (void *ptr, size_t bytes, unsigned flags), (ptr, bytes, flags))
{
    return host_register(ptr, bytes, flags);
}
SG_CALL(cuMemHostRegister, (void *ptr, size_t bytes, unsigned flags), (ptr, bytes, flags))
{
    return host_register(ptr, bytes, flags);
}

SG_CALL(cuMemHostUnregister, (void *ptr), (ptr))
{
    struct sg_ctx *c;
    SG_TRY(sg_current(&c));
    struct sg_range *r = sg_range_find((uint64_t)ptr);
    SG_CHECK(r && r->va == (uint64_t)ptr && r->kind == SG_REGISTERED,
             CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    SG_TRY(sg_wait_ctx(r->ctx));
    r = sg_range_find((uint64_t)ptr);
    SG_CHECK(r && r->kind == SG_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    sg_dealloc(r);
    return CUDA_SUCCESS;
}

SG_CALL(cuMemHostGetDevicePointer_v2, (CUdeviceptr * out, void *ptr, unsigned flags),
        (out, ptr, flags))
{
    struct sg_ctx *c;
    SG_CHECK(out && flags == 0, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_current(&c));
    const struct sg_range *r = sg_range_find((uint64_t)ptr);
    SG_CHECK(r && (r->kind == SG_PINNED || r->kind == SG_REGISTERED), CUDA_ERROR_INVALID_VALUE);
    *out = (CUdeviceptr)ptr; /* one address space */
    return CUDA_SUCCESS;
}

SG_CALL(cuMemHostGetFlags, (unsigned *flags, void *ptr), (flags, ptr))
{
    SG_CHECK(flags, CUDA_ERROR_INVALID_VALUE);
    const struct sg_range *r = sg_range_find((uint64_t)ptr);
    SG_CHECK(r && r->kind == SG_PINNED, CUDA_ERROR_INVALID_VALUE);
    *flags = r->flags;
    return CUDA_SUCCESS;
}

/* Managed memory: advice and prefetch are accepted; the simple model does not migrate. */
static CUresult managed_only(CUdeviceptr ptr, size_t bytes)
{
    struct sg_ctx *c;
    SG_TRY(sg_current(&c));
    const struct sg_range *r = sg_range_find(ptr);
    SG_CHECK(r && r->kind == SG_MANAGED && ptr + bytes <= r->va + r->bytes,
             CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}
SG_CALL(cuMemAdvise, (CUdeviceptr ptr, size_t bytes, CUmem_advise advice, CUdevice dev),
        (ptr, bytes, advice, dev))
{
    (void)advice;
    (void)dev;
    return managed_only(ptr, bytes);
}
SG_CALL(cuMemAdvise_v2, (CUdeviceptr ptr, size_t bytes, CUmem_advise advice, CUmemLocation where),
        (ptr, bytes, advice, where))
{
    (void)advice;
    (void)where;
    return managed_only(ptr, bytes);
}
SG_CALL_S(cuMemPrefetchAsync, cuMemPrefetchAsync_ptsz,
          (CUdeviceptr ptr, size_t bytes, CUdevice dev, CUstream hs), (ptr, bytes, dev, hs))
{
    struct sg_stream *s;
    (void)dev;
    SG_TRY(sg_stream_of(hs, &s));
    return managed_only(ptr, bytes);
}
SG_CALL_S(cuMemPrefetchAsync_v2, cuMemPrefetchAsync_v2_ptsz,
          (CUdeviceptr ptr, size_t bytes, CUmemLocation where, unsigned flags, CUstream hs),
          (ptr, bytes, where, flags, hs))
{
    struct sg_stream *s;
    (void)where;
    (void)flags;
    SG_TRY(sg_stream_of(hs, &s));
    return managed_only(ptr, bytes);
}
SG_CALL_S(cuStreamAttachMemAsync, cuStreamAttachMemAsync_ptsz,
          (CUstream hs, CUdeviceptr ptr, size_t bytes, unsigned flags), (hs, ptr, bytes, flags))
{
    struct sg_stream *s;
    (void)flags;
    SG_TRY(sg_stream_of(hs, &s));
    return managed_only(ptr, bytes);
}

/* What dies with a context: its allocations and reservations' mappings stay a leak otherwise. */
void sg_ctx_purge(struct sg_ctx *c)
{
    for (size_t i = 0; sg_range_at(i);) {
        struct sg_range *r = sg_range_at(i);
        if (r->ctx == c && (r->kind == SG_DEVICE || r->kind == SG_MANAGED || r->kind == SG_PINNED ||
                            r->kind == SG_REGISTERED || r->kind == SG_ARRAY))
            sg_dealloc(r);
        else
            i++;
    }
}
