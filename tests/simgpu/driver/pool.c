/* Stream-ordered allocation. A freed block stays with its pool, address and all, and is handed out
 * again in the same stream at once, in another one when its free has executed. At a synchronisation
 * what exceeds the release threshold goes back to the device. */
#include "sg.h"

#include <stdlib.h>
#include <string.h>

struct sg_pool {
    int device;
    CUmemPoolProps props;
    cuuint64_t threshold, reserved, reserved_high, used, used_high;
    int reuse_event, reuse_opportunistic, reuse_internal;
    struct sg_range *cache; /* freed, not yet given back */
    bool dying;
    struct sg_pool *next;
};
static struct sg_pool *pools;

static struct sg_pool *pool_new(int device)
{
    struct sg_pool *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->device = device;
    p->reuse_event = p->reuse_opportunistic = p->reuse_internal = 1;
    p->next = pools;
    pools = p;
    sg_handle_add(SG_H_POOL, p);
    return p;
}

static struct sg_pool *default_pool(struct sg_device *d)
{
    if (!d->default_pool)
        d->default_pool = d->pool = pool_new(d->ordinal);
    return d->default_pool;
}

CUresult sg_pool_of_device(int device, struct sg_pool **out)
{
    struct sg_device *d = &sg.dev[device];
    SG_CHECK(default_pool(d), CUDA_ERROR_OUT_OF_MEMORY);
    *out = d->pool;
    return CUDA_SUCCESS;
}

static size_t capacity(const struct sg_range *r)
{
    return r->map.phys->bytes;
}

static void uncache(struct sg_range *r)
{
    struct sg_range **at = &r->pool->cache;
    while (*at && *at != r)
        at = &(*at)->next_free;
    if (*at)
        *at = r->next_free;
    r->next_free = NULL;
}

static void release(struct sg_range *r)
{
    struct sg_pool *p = r->pool;
    uncache(r);
    p->reserved -= capacity(r);
    sg_dealloc(r);
    if (p->dying && !p->cache && !p->used) {
        struct sg_pool **at = &pools;
        while (*at && *at != p)
            at = &(*at)->next;
        if (*at)
            *at = p->next;
        free(p);
    }
}

static bool done(const struct sg_range *r)
{
    return r->freed && r->freed->state == SG_DONE;
}

static bool trim(struct sg_pool *p, cuuint64_t keep)
{
    bool any = false;
    for (struct sg_range *r = p->cache, *next; r && p->reserved > keep; r = next) {
        bool last = p->dying && !r->next_free && !p->used;
        next = r->next_free;
        if (!done(r))
            continue;
        any = true;
        if (sg.cfg.racecheck)
            sg_race_forget(r->map.phys); /* the driver saw the free execute; the host need not */
        release(r);
        if (last)
            break;
    }
    return any;
}

void sg_pool_idle(void)
{
    for (struct sg_pool *p = pools, *next; p; p = next) {
        next = p->next;
        if (p->cache && p->reserved > p->threshold)
            trim(p, p->threshold);
    }
}

bool sg_pool_release_some(int device)
{
    bool any = false;
    for (struct sg_pool *p = pools, *next; p; p = next) {
        next = p->next;
        if (p->device == device)
            any |= trim(p, 0);
    }
    return any;
}

static struct sg_range *reuse(struct sg_pool *p, size_t bytes, const struct sg_stream *s)
{
    for (struct sg_range *r = p->cache; r; r = r->next_free) {
        size_t cap = capacity(r);
        if (cap < bytes || r->span < bytes || cap > bytes + bytes / 4 + sg.cfg.granularity)
            continue;
        if (r->freed_on != s->id && !(p->reuse_opportunistic && done(r)))
            continue;
        uncache(r);
        if (sg.cfg.racecheck && done(r))
            sg_race_host_saw(r->freed); /* the driver saw that it had executed */
        sg_op_unref(r->freed);
        r->freed = NULL;
        if (bytes > r->bytes)
            r->bytes = bytes; /* never less: work on its former life may still be queued */
        return r;
    }
    return NULL;
}

/* A block for work that follows in s. */
static CUresult pool_alloc(struct sg_pool *p, size_t bytes, struct sg_stream *s,
                           struct sg_range **out)
{
    struct sg_range *r = reuse(p, bytes, s);
    if (!r) {
        SG_CHECK(!p->props.maxSize || p->reserved + sg_phys_round(bytes) <= p->props.maxSize,
                 CUDA_ERROR_OUT_OF_MEMORY);
        CUresult res = sg_alloc(SG_POOL, s->ctx, bytes, &r);
        for (struct sg_range *f = p->cache; res == CUDA_ERROR_OUT_OF_MEMORY && f; f = p->cache) {
            SG_TRY(sg_wait(f->freed)); /* wait for a free that is under way, then try again */
            if (!sg_pool_release_some(p->device))
                break;
            res = sg_alloc(SG_POOL, s->ctx, bytes, &r);
        }
        SG_TRY(res);
        r->pool = p;
        p->reserved += capacity(r);
        if (p->reserved > p->reserved_high)
            p->reserved_high = p->reserved;
    }
    r->ctx = s->ctx;
    p->used += capacity(r);
    if (p->used > p->used_high)
        p->used_high = p->used;
    *out = r;
    return CUDA_SUCCESS;
}

static CUresult pool_give_back(struct sg_range *r, struct sg_stream *s)
{
    struct sg_op *op = sg_op_new(SG_OP_FREE, SG_ENG_NONE);
    SG_CHECK(op, CUDA_ERROR_OUT_OF_MEMORY);
    op->u.freed.range = r;
    op->u.freed.va = r->va;
    op->refs++;
    r->freed = op;
    r->freed_on = s->id;
    r->next_free = r->pool->cache;
    r->pool->cache = r;
    r->pool->used -= capacity(r);
    return sg_submit(s, op);
}

/* For the race checker a free is a write of every byte: what is not ordered before it is an error.
 */
void sg_pool_freed(struct sg_op *op)
{
    struct sg_range *r = op->u.freed.range;
    if (sg_range_find(op->u.freed.va) != r)
        return;
    if (sg.cfg.racecheck) {
        sg_race_access(op, r->map.phys, 0, r->map.phys->bytes, SIMGPU_WRITE, r->va);
        sg_race_undefine(r->va, r->bytes);
    }
    /* It may have been handed out again in the same stream meanwhile; nothing has run on it since.
     */
    if (sg.cfg.mode == SG_FUNCTIONAL)
        memset((void *)r->va, 0xDB, r->bytes);
}

void sg_pool_free_now(struct sg_range *r)
{
    r->pool->used -= capacity(r);
    release(r);
}

static CUresult alloc_async(CUdeviceptr *out, size_t bytes, struct sg_pool *p, struct sg_stream *s)
{
    struct sg_range *r;
    SG_CHECK(out && bytes, CUDA_ERROR_INVALID_VALUE);
    if (s->capture)
        return sg_capture_alloc(s, bytes, out);
    SG_TRY(pool_alloc(p, bytes, s, &r));
    *out = r->va;
    return CUDA_SUCCESS;
}

SG_CALL_S(cuMemAllocAsync, cuMemAllocAsync_ptsz, (CUdeviceptr * out, size_t bytes, CUstream hs),
          (out, bytes, hs))
{
    struct sg_stream *s;
    struct sg_pool *p;
    SG_TRY(sg_stream_of(hs, &s));
    SG_TRY(sg_pool_of_device(s->ctx->device, &p));
    return alloc_async(out, bytes, p, s);
}

SG_CALL_S(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync_ptsz,
          (CUdeviceptr * out, size_t bytes, CUmemoryPool pool, CUstream hs), (out, bytes, pool, hs))
{
    struct sg_stream *s;
    SG_CHECK(sg_handle_is(SG_H_POOL, pool), CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_stream_of(hs, &s));
    return alloc_async(out, bytes, (struct sg_pool *)pool, s);
}

SG_CALL_S(cuMemFreeAsync, cuMemFreeAsync_ptsz, (CUdeviceptr ptr, CUstream hs), (ptr, hs))
{
    struct sg_stream *s;
    if (!ptr)
        return CUDA_SUCCESS;
    SG_TRY(sg_stream_of(hs, &s));
    if (s->capture)
        return sg_capture_free(s, ptr);
    struct sg_range *r = sg_range_find(ptr);
    if (r && r->va == ptr && r->of_graph)
        return CUDA_SUCCESS; /* goes with its graphs */
    SG_CHECK(r && r->va == ptr && r->kind == SG_POOL && !r->freed, CUDA_ERROR_INVALID_VALUE);
    return pool_give_back(r, s);
}

SG_CALL(cuDeviceGetDefaultMemPool, (CUmemoryPool * out, CUdevice dev), (out, dev))
{
    SG_CHECK(out, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(dev >= 0 && dev < sg.cfg.ndevices, CUDA_ERROR_INVALID_DEVICE);
    struct sg_pool *p = default_pool(&sg.dev[dev]);
    SG_CHECK(p, CUDA_ERROR_OUT_OF_MEMORY);
    *out = (CUmemoryPool)p;
    return CUDA_SUCCESS;
}

SG_CALL(cuDeviceGetMemPool, (CUmemoryPool * out, CUdevice dev), (out, dev))
{
    struct sg_pool *p;
    SG_CHECK(out, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(dev >= 0 && dev < sg.cfg.ndevices, CUDA_ERROR_INVALID_DEVICE);
    SG_TRY(sg_pool_of_device(dev, &p));
    *out = (CUmemoryPool)p;
    return CUDA_SUCCESS;
}

SG_CALL(cuDeviceSetMemPool, (CUdevice dev, CUmemoryPool pool), (dev, pool))
{
    struct sg_pool *p = (struct sg_pool *)pool;
    SG_CHECK(dev >= 0 && dev < sg.cfg.ndevices, CUDA_ERROR_INVALID_DEVICE);
    SG_CHECK(sg_handle_is(SG_H_POOL, p) && p->device == dev, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(default_pool(&sg.dev[dev]), CUDA_ERROR_OUT_OF_MEMORY);
    sg.dev[dev].pool = p;
    return CUDA_SUCCESS;
}

SG_CALL(cuMemPoolCreate, (CUmemoryPool * out, const CUmemPoolProps *props), (out, props))
{
    SG_CHECK(out && props && props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED,
             CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(props->location.type == CU_MEM_LOCATION_TYPE_DEVICE && props->location.id >= 0 &&
                 props->location.id < sg.cfg.ndevices,
             CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(props->handleTypes == CU_MEM_HANDLE_TYPE_NONE, CUDA_ERROR_NOT_SUPPORTED);
    struct sg_pool *p = pool_new(props->location.id);
    SG_CHECK(p, CUDA_ERROR_OUT_OF_MEMORY);
    p->props = *props;
    *out = (CUmemoryPool)p;
    return CUDA_SUCCESS;
}

SG_CALL(cuMemPoolDestroy, (CUmemoryPool pool), (pool))
{
    struct sg_pool *p = (struct sg_pool *)pool;
    SG_CHECK(sg_handle_is(SG_H_POOL, p), CUDA_ERROR_INVALID_VALUE);
    struct sg_device *d = &sg.dev[p->device];
    SG_CHECK(p != d->default_pool, CUDA_ERROR_INVALID_VALUE);
    if (d->pool == p)
        d->pool = d->default_pool;
    sg_handle_drop(SG_H_POOL, p);
    p->dying = true;
    p->threshold = 0;
    if (p->cache) {
        trim(p, 0);
    } else if (!p->used) {
        struct sg_pool **at = &pools;
        while (*at != p)
            at = &(*at)->next;
        *at = p->next;
        free(p);
    }
    return CUDA_SUCCESS;
}

SG_CALL(cuMemPoolTrimTo, (CUmemoryPool pool, size_t keep), (pool, keep))
{
    SG_CHECK(sg_handle_is(SG_H_POOL, pool), CUDA_ERROR_INVALID_VALUE);
    trim((struct sg_pool *)pool, keep);
    return CUDA_SUCCESS;
}

static void *attribute_at(struct sg_pool *p, CUmemPool_attribute a, bool *is_int)
{
    *is_int = false;
    switch ((int)a) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        *is_int = true;
        return &p->reuse_event;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        *is_int = true;
        return &p->reuse_opportunistic;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        *is_int = true;
        return &p->reuse_internal;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return &p->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return &p->reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return &p->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return &p->used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return &p->used_high;
    }
    return NULL;
}

SG_CALL(cuMemPoolGetAttribute, (CUmemoryPool pool, CUmemPool_attribute a, void *value),
        (pool, a, value))
{
    bool is_int;
    SG_CHECK(value && sg_handle_is(SG_H_POOL, pool), CUDA_ERROR_INVALID_VALUE);
    const void *at = attribute_at((struct sg_pool *)pool, a, &is_int);
    SG_CHECK(at, CUDA_ERROR_INVALID_VALUE);
    memcpy(value, at, is_int ? sizeof(int) : sizeof(cuuint64_t));
    return CUDA_SUCCESS;
}

SG_CALL(cuMemPoolSetAttribute, (CUmemoryPool pool, CUmemPool_attribute a, void *value),
        (pool, a, value))
{
    bool is_int;
    struct sg_pool *p = (struct sg_pool *)pool;
    SG_CHECK(value && sg_handle_is(SG_H_POOL, pool), CUDA_ERROR_INVALID_VALUE);
    void *at = attribute_at(p, a, &is_int);
    SG_CHECK(at && at != &p->reserved && at != &p->used, CUDA_ERROR_INVALID_VALUE);
    if (at == &p->reserved_high || at == &p->used_high) { /* high marks can only be reset */
        cuuint64_t v;
        memcpy(&v, value, sizeof v);
        SG_CHECK(v == 0, CUDA_ERROR_INVALID_VALUE);
        *(cuuint64_t *)at = at == &p->used_high ? p->used : p->reserved;
        return CUDA_SUCCESS;
    }
    memcpy(at, value, is_int ? sizeof(int) : sizeof(cuuint64_t));
    return CUDA_SUCCESS;
}

SG_CALL(cuMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc *map, size_t count),
        (pool, map, count))
{
    SG_CHECK(sg_handle_is(SG_H_POOL, pool) && (map || !count), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < count; i++)
        SG_CHECK(map[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && map[i].location.id >= 0 &&
                     map[i].location.id < sg.cfg.ndevices,
                 CUDA_ERROR_INVALID_DEVICE);
    return CUDA_SUCCESS;
}

SG_CALL(cuMemPoolGetAccess, (CUmemAccess_flags * flags, CUmemoryPool pool, CUmemLocation *where),
        (flags, pool, where))
{
    SG_CHECK(flags && where && sg_handle_is(SG_H_POOL, pool), CUDA_ERROR_INVALID_VALUE);
    *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
}
