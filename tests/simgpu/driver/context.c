/* Contexts: the primary one of each device, own ones, and each thread's stack of them. */
#include "sg.h"

#include <stdlib.h>
#include <string.h>

#define STACK 64
static _Thread_local struct sg_ctx *stack[STACK];
static _Thread_local unsigned depth; /* the current context is stack[depth - 1] */

struct sg_ctx *sg_current_raw(void)
{
    return depth ? stack[depth - 1] : NULL;
}

static void set_current(struct sg_ctx *c)
{
    if (depth)
        stack[depth - 1] = c;
    else if (c)
        stack[depth++] = c;
    if (depth && !stack[depth - 1])
        depth--;
}

CUresult sg_current(struct sg_ctx **out)
{
    struct sg_ctx *c = sg_current_raw();
    SG_CHECK(c, CUDA_ERROR_INVALID_CONTEXT);
    SG_CHECK(sg_handle_is(SG_H_CTX, c) && !c->dead, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    SG_CHECK(!sg.dev[c->device].lost, CUDA_ERROR_DEVICE_UNAVAILABLE);
    SG_CHECK(c->sticky == CUDA_SUCCESS, c->sticky);
    *out = c;
    return CUDA_SUCCESS;
}

static CUresult ctx_new(int device, unsigned flags, bool primary, struct sg_ctx **out)
{
    struct sg_device *d = &sg.dev[device];
    size_t bytes = sg.cfg.preset.context_bytes;
    SG_CHECK(!d->lost, CUDA_ERROR_DEVICE_UNAVAILABLE);
    SG_CHECK(d->used + d->reserved_ctx + sg_machine_others(device) + bytes <= sg.cfg.preset.memory,
             CUDA_ERROR_OUT_OF_MEMORY);
    struct sg_ctx *c = calloc(1, sizeof *c);
    SG_CHECK(c, CUDA_ERROR_OUT_OF_MEMORY);
    c->device = device;
    c->flags = flags;
    c->primary = primary;
    c->id = ++sg.next_id;
    c->limits[CU_LIMIT_STACK_SIZE] = 1024;
    c->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 7 << 20;
    c->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
    c->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    c->legacy = sg_stream_new(c, CU_STREAM_DEFAULT, 0);
    if (!c->legacy) {
        free(c);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    c->legacy->legacy = true;
    sg_machine_lock();
    d->reserved_ctx += bytes;
    sg_machine_unlock();
    if (d->used + d->reserved_ctx > d->peak)
        d->peak = d->used + d->reserved_ctx;
    sg_handle_add(SG_H_CTX, c);
    sg_activity_context(c, false);
    *out = c;
    return CUDA_SUCCESS;
}

/* Destroys a context: waits for its work, then frees what it owns. The struct stays, marked dead,
 * for threads that still have it on their stack. */
static void destroy(struct sg_ctx *c)
{
    sg_wait_ctx(c);
    sg_ctx_purge(c);
    sg.dev[c->device].reserved_ctx -= sg.cfg.preset.context_bytes;
    c->dead = true;
    c->sticky = CUDA_SUCCESS;
    sg_handle_drop(SG_H_CTX, c);
    sg_activity_context(c, true);
    for (unsigned i = 0; i < depth; i++)
        if (stack[i] == c) {
            memmove(&stack[i], &stack[i + 1], (depth - i - 1) * sizeof *stack);
            depth--;
            i--;
        }
}

static bool device_ok(CUdevice dev)
{
    return dev >= 0 && dev < sg.cfg.ndevices;
}

SG_CALL(cuDevicePrimaryCtxRetain, (CUcontext * out, CUdevice dev), (out, dev))
{
    SG_CHECK(out, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    struct sg_device *d = &sg.dev[dev];
    if (!d->primary)
        SG_TRY(ctx_new(dev, d->primary_flags, true, &d->primary));
    d->primary->primary_refs++;
    *out = (CUcontext)d->primary;
    return CUDA_SUCCESS;
}

static CUresult primary_release(CUdevice dev)
{
    SG_CHECK(device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    struct sg_device *d = &sg.dev[dev];
    SG_CHECK(d->primary, CUDA_ERROR_INVALID_CONTEXT);
    if (--d->primary->primary_refs == 0) {
        destroy(d->primary);
        d->primary = NULL;
    }
    return CUDA_SUCCESS;
}
SG_CALL(cuDevicePrimaryCtxRelease, (CUdevice dev), (dev))
{
    return primary_release(dev);
}
SG_CALL(cuDevicePrimaryCtxRelease_v2, (CUdevice dev), (dev))
{
    return primary_release(dev);
}

/* The context is emptied and stays the primary one for those who hold it. */
static CUresult primary_reset(CUdevice dev)
{
    SG_CHECK(device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    struct sg_ctx *c = sg.dev[dev].primary;
    if (c) {
        sg_wait_ctx(c);
        sg_ctx_purge(c);
        c->sticky = CUDA_SUCCESS;
    }
    return CUDA_SUCCESS;
}
SG_CALL(cuDevicePrimaryCtxReset, (CUdevice dev), (dev))
{
    return primary_reset(dev);
}
SG_CALL(cuDevicePrimaryCtxReset_v2, (CUdevice dev), (dev))
{
    return primary_reset(dev);
}

static CUresult primary_flags(CUdevice dev, unsigned flags)
{
    SG_CHECK(device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    SG_CHECK(!(flags & ~(unsigned)CU_CTX_FLAGS_MASK), CUDA_ERROR_INVALID_VALUE);
    sg.dev[dev].primary_flags = flags;
    if (sg.dev[dev].primary)
        sg.dev[dev].primary->flags = flags;
    return CUDA_SUCCESS;
}
SG_CALL(cuDevicePrimaryCtxSetFlags, (CUdevice dev, unsigned flags), (dev, flags))
{
    return primary_flags(dev, flags);
}
SG_CALL(cuDevicePrimaryCtxSetFlags_v2, (CUdevice dev, unsigned flags), (dev, flags))
{
    return primary_flags(dev, flags);
}

SG_CALL(cuDevicePrimaryCtxGetState, (CUdevice dev, unsigned *flags, int *active),
        (dev, flags, active))
{
    SG_CHECK(flags && active, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    *flags = sg.dev[dev].primary_flags;
    *active = sg.dev[dev].primary != NULL;
    return CUDA_SUCCESS;
}

static CUresult create(CUcontext *out, unsigned flags, CUdevice dev)
{
    struct sg_ctx *c;
    SG_CHECK(out, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(device_ok(dev), CUDA_ERROR_INVALID_DEVICE);
    SG_CHECK(depth < STACK, CUDA_ERROR_OUT_OF_MEMORY);
    SG_TRY(ctx_new(dev, flags, false, &c));
    stack[depth++] = c;
    *out = (CUcontext)c;
    return CUDA_SUCCESS;
}
SG_CALL(cuCtxCreate, (CUcontext * out, unsigned flags, CUdevice dev), (out, flags, dev))
{
    return create(out, flags, dev);
}
SG_CALL(cuCtxCreate_v2, (CUcontext * out, unsigned flags, CUdevice dev), (out, flags, dev))
{
    return create(out, flags, dev);
}
SG_CALL(cuCtxCreate_v3,
        (CUcontext * out, CUexecAffinityParam *params, int n, unsigned flags, CUdevice dev),
        (out, params, n, flags, dev))
{
    SG_CHECK(!params && n == 0, CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    return create(out, flags, dev);
}
SG_CALL(cuCtxCreate_v4, (CUcontext * out, CUctxCreateParams *params, unsigned flags, CUdevice dev),
        (out, params, flags, dev))
{
    SG_CHECK(!params || (params->numExecAffinityParams == 0 && !params->cigParams),
             CUDA_ERROR_NOT_SUPPORTED);
    return create(out, flags, dev);
}

static CUresult ctx_destroy(CUcontext ctx)
{
    struct sg_ctx *c = (struct sg_ctx *)ctx;
    SG_CHECK(sg_handle_is(SG_H_CTX, c), CUDA_ERROR_INVALID_CONTEXT);
    SG_CHECK(!c->primary, CUDA_ERROR_INVALID_CONTEXT);
    destroy(c);
    return CUDA_SUCCESS;
}
SG_CALL(cuCtxDestroy, (CUcontext ctx), (ctx))
{
    return ctx_destroy(ctx);
}
SG_CALL(cuCtxDestroy_v2, (CUcontext ctx), (ctx))
{
    return ctx_destroy(ctx);
}

static CUresult ctx_push(CUcontext ctx)
{
    SG_CHECK(sg_handle_is(SG_H_CTX, ctx), CUDA_ERROR_INVALID_CONTEXT);
    SG_CHECK(depth < STACK, CUDA_ERROR_OUT_OF_MEMORY);
    stack[depth++] = (struct sg_ctx *)ctx;
    return CUDA_SUCCESS;
}
SG_CALL(cuCtxPushCurrent, (CUcontext ctx), (ctx))
{
    return ctx_push(ctx);
}
SG_CALL(cuCtxPushCurrent_v2, (CUcontext ctx), (ctx))
{
    return ctx_push(ctx);
}

static CUresult ctx_pop(CUcontext *out)
{
    SG_CHECK(depth, CUDA_ERROR_INVALID_CONTEXT);
    depth--;
    if (out)
        *out = (CUcontext)stack[depth];
    return CUDA_SUCCESS;
}
SG_CALL(cuCtxPopCurrent, (CUcontext * out), (out))
{
    return ctx_pop(out);
}
SG_CALL(cuCtxPopCurrent_v2, (CUcontext * out), (out))
{
    return ctx_pop(out);
}

SG_CALL(cuCtxSetCurrent, (CUcontext ctx), (ctx))
{
    SG_CHECK(!ctx || sg_handle_is(SG_H_CTX, ctx), CUDA_ERROR_INVALID_CONTEXT);
    set_current((struct sg_ctx *)ctx);
    return CUDA_SUCCESS;
}

SG_CALL(cuCtxGetCurrent, (CUcontext * out), (out))
{
    SG_CHECK(out, CUDA_ERROR_INVALID_VALUE);
    *out = (CUcontext)sg_current_raw();
    return CUDA_SUCCESS;
}

/* NULL means the current context. */
static CUresult ctx_or_current(CUcontext ctx, struct sg_ctx **out)
{
    struct sg_ctx *c = ctx ? (struct sg_ctx *)ctx : sg_current_raw();
    SG_CHECK(sg_handle_is(SG_H_CTX, c), CUDA_ERROR_INVALID_CONTEXT);
    *out = c;
    return CUDA_SUCCESS;
}

SG_CALL(cuCtxGetDevice, (CUdevice * dev), (dev))
{
    struct sg_ctx *c;
    SG_CHECK(dev, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(ctx_or_current(NULL, &c));
    *dev = c->device;
    return CUDA_SUCCESS;
}
SG_CALL(cuCtxGetDevice_v2, (CUdevice * dev, CUcontext ctx), (dev, ctx))
{
    struct sg_ctx *c;
    SG_CHECK(dev, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(ctx_or_current(ctx, &c));
    *dev = c->device;
    return CUDA_SUCCESS;
}

SG_CALL(cuCtxGetFlags, (unsigned *flags), (flags))
{
    struct sg_ctx *c;
    SG_CHECK(flags, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(ctx_or_current(NULL, &c));
    *flags = c->flags;
    return CUDA_SUCCESS;
}
SG_CALL(cuCtxSetFlags, (unsigned flags), (flags))
{
    struct sg_ctx *c;
    SG_TRY(ctx_or_current(NULL, &c));
    c->flags = flags;
    return CUDA_SUCCESS;
}
SG_CALL(cuCtxGetId, (CUcontext ctx, unsigned long long *id), (ctx, id))
{
    struct sg_ctx *c;
    SG_CHECK(id, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(ctx_or_current(ctx, &c));
    *id = c->id;
    return CUDA_SUCCESS;
}
SG_CALL(cuCtxGetApiVersion, (CUcontext ctx, unsigned *version), (ctx, version))
{
    struct sg_ctx *c;
    SG_CHECK(version, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(ctx_or_current(ctx, &c));
    *version = 3020;
    return CUDA_SUCCESS;
}

static CUresult synchronize(CUcontext ctx)
{
    struct sg_ctx *c;
    if (ctx)
        SG_TRY(ctx_or_current(ctx, &c));
    else
        SG_TRY(sg_current(&c));
    SG_CHECK(!sg_capture_blocks(c), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return sg_wait_ctx(c);
}
SG_CALL(cuCtxSynchronize, (void), ())
{
    return synchronize(NULL);
}
SG_CALL(cuCtxSynchronize_v2, (CUcontext ctx), (ctx))
{
    return synchronize(ctx);
}

SG_CALL(cuCtxSetLimit, (CUlimit limit, size_t value), (limit, value))
{
    struct sg_ctx *c;
    SG_TRY(sg_current(&c));
    SG_CHECK((unsigned)limit < 16, CUDA_ERROR_UNSUPPORTED_LIMIT);
    c->limits[limit] = value;
    return CUDA_SUCCESS;
}
SG_CALL(cuCtxGetLimit, (size_t * value, CUlimit limit), (value, limit))
{
    struct sg_ctx *c;
    SG_CHECK(value, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_current(&c));
    SG_CHECK((unsigned)limit < 16, CUDA_ERROR_UNSUPPORTED_LIMIT);
    *value = c->limits[limit];
    return CUDA_SUCCESS;
}
SG_CALL(cuCtxGetCacheConfig, (CUfunc_cache * config), (config))
{
    struct sg_ctx *c;
    SG_CHECK(config, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_current(&c));
    *config = c->cache_config;
    return CUDA_SUCCESS;
}
SG_CALL(cuCtxSetCacheConfig, (CUfunc_cache config), (config))
{
    struct sg_ctx *c;
    SG_TRY(sg_current(&c));
    c->cache_config = config;
    return CUDA_SUCCESS;
}
SG_CALL(cuCtxGetSharedMemConfig, (CUsharedconfig * config), (config))
{
    SG_CHECK(config, CUDA_ERROR_INVALID_VALUE);
    *config = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
    return CUDA_SUCCESS;
}
SG_CALL(cuCtxSetSharedMemConfig, (CUsharedconfig config), (config))
{
    (void)config; /* without effect on cards of compute capability 5 and up */
    return CUDA_SUCCESS;
}
SG_CALL(cuCtxGetStreamPriorityRange, (int *least, int *greatest), (least, greatest))
{
    struct sg_ctx *c;
    SG_TRY(sg_current(&c));
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -(SG_MAX_PRIOS - 1);
    return CUDA_SUCCESS;
}
SG_CALL(cuCtxResetPersistingL2Cache, (void), ())
{
    struct sg_ctx *c;
    return sg_current(&c);
}

SG_CALL(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags), (peer, flags))
{
    struct sg_ctx *c, *p = (struct sg_ctx *)peer;
    SG_CHECK(flags == 0, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_current(&c));
    SG_CHECK(sg_handle_is(SG_H_CTX, p) && p != c, CUDA_ERROR_INVALID_CONTEXT);
    SG_CHECK(p->device != c->device, CUDA_ERROR_INVALID_DEVICE);
    SG_CHECK(!(c->peers >> p->device & 1), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    c->peers |= 1u << p->device;
    return CUDA_SUCCESS;
}
SG_CALL(cuCtxDisablePeerAccess, (CUcontext peer), (peer))
{
    struct sg_ctx *c, *p = (struct sg_ctx *)peer;
    SG_TRY(sg_current(&c));
    SG_CHECK(sg_handle_is(SG_H_CTX, p), CUDA_ERROR_INVALID_CONTEXT);
    SG_CHECK(c->peers >> p->device & 1, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    c->peers &= ~(1u << p->device);
    return CUDA_SUCCESS;
}
