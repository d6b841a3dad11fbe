/* Contexts: when they go, and waiting for everything in one. */
#include "door.h"

#define MAX_DEVICES 64

/* References that the program holds on each device's primary context, and the context. */
static struct {
    atomic_int held;
    _Atomic(CUcontext) ctx;
} primary[MAX_DEVICES];

static bool known(CUdevice dev)
{
    return dev >= 0 && dev < MAX_DEVICES;
}

CUresult door_cuDevicePrimaryCtxRetain(vm_fn_cuDevicePrimaryCtxRetain real, bool per_thread,
                                       CUcontext *pctx, CUdevice dev)
{
    CUresult r;
    VM_RETRY(r, real(pctx, dev));
    if (r == CUDA_SUCCESS && known(dev) && pctx) {
        atomic_store(&primary[dev].ctx, *pctx);
        atomic_fetch_add(&primary[dev].held, 1);
    }
    return r;
}

static void context_goes(CUcontext ctx)
{
    vm_rt_context_gone(ctx);
    atomic_store_explicit(&vm_device_lost, false, memory_order_relaxed);
}

/* The runtime is told while the context still exists, at the last release or at a reset. */
static void primary_goes(CUdevice dev)
{
    CUcontext ctx = atomic_exchange(&primary[dev].ctx, NULL);
    if (ctx)
        context_goes(ctx);
}

static void primary_released(CUdevice dev)
{
    if (!known(dev))
        return;
    int held = atomic_load(&primary[dev].held);
    while (held > 0 && !atomic_compare_exchange_weak(&primary[dev].held, &held, held - 1))
        ;
    if (held == 1)
        primary_goes(dev);
}

CUresult door_cuDevicePrimaryCtxRelease(vm_fn_cuDevicePrimaryCtxRelease real, bool per_thread,
                                        CUdevice dev)
{
    primary_released(dev);
    return real(dev);
}

CUresult door_cuDevicePrimaryCtxRelease_v2(vm_fn_cuDevicePrimaryCtxRelease_v2 real, bool per_thread,
                                           CUdevice dev)
{
    primary_released(dev);
    return real(dev);
}

CUresult door_cuDevicePrimaryCtxReset(vm_fn_cuDevicePrimaryCtxReset real, bool per_thread,
                                      CUdevice dev)
{
    if (known(dev))
        primary_goes(dev);
    return real(dev);
}

CUresult door_cuDevicePrimaryCtxReset_v2(vm_fn_cuDevicePrimaryCtxReset_v2 real, bool per_thread,
                                         CUdevice dev)
{
    if (known(dev))
        primary_goes(dev);
    return real(dev);
}

CUresult door_cuCtxDestroy(vm_fn_cuCtxDestroy real, bool per_thread, CUcontext ctx)
{
    context_goes(ctx);
    return real(ctx);
}

CUresult door_cuCtxDestroy_v2(vm_fn_cuCtxDestroy_v2 real, bool per_thread, CUcontext ctx)
{
    context_goes(ctx);
    return real(ctx);
}

CUresult door_cuCtxSynchronize(vm_fn_cuCtxSynchronize real, bool per_thread)
{
    vm_rt_wait_context();
    CUresult r = real();
    vm_rt_synced();
    return r;
}

#if CUDA_VERSION >= 13000
CUresult door_cuCtxSynchronize_v2(vm_fn_cuCtxSynchronize_v2 real, bool per_thread, CUcontext ctx)
{
    CUcontext current = NULL;
    bool ours = !ctx || (vm_uses.cuCtxGetCurrent &&
                         vm_uses.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == ctx);
    if (ours)
        vm_rt_wait_context();
    CUresult r = real(ctx);
    if (ours)
        vm_rt_synced();
    return r;
}
#endif
