/* Allocation, free, and how much memory there is. */
#include "door.h"

/* Row pitch of cuMemAllocPitch: what current devices use whatever the element size. */
#define PITCH_BYTES 512

static CUresult serve(CUdeviceptr *out, size_t bytes, enum vm_alloc_kind kind, CUstream stream,
                      bool *handled)
{
    CUdeviceptr p = 0;
    if (atomic_load_explicit(&vm_device_lost, memory_order_relaxed))
        return CUDA_SUCCESS; /* not handled: the driver tells what its context is worth */
    CUresult r = vm_rt_alloc(&p, bytes, kind, stream, handled);
    if (*handled && r == CUDA_SUCCESS)
        *out = p;
    return r;
}

CUresult door_cuMemAlloc_v2(vm_fn_cuMemAlloc_v2 real, bool per_thread, CUdeviceptr *dptr,
                            size_t bytesize)
{
    bool handled = false;
    CUresult r = CUDA_SUCCESS;
    if (dptr && bytesize)
        r = serve(dptr, bytesize, VM_ALLOC_SYNC, NULL, &handled);
    if (!handled)
        VM_RETRY(r, real(dptr, bytesize));
    return r;
}

CUresult door_cuMemAllocPitch_v2(vm_fn_cuMemAllocPitch_v2 real, bool per_thread, CUdeviceptr *dptr,
                                 size_t *pPitch, size_t WidthInBytes, size_t Height,
                                 unsigned ElementSizeBytes)
{
    bool handled = false;
    CUresult r = CUDA_SUCCESS;
    bool valid = dptr && pPitch && WidthInBytes && Height &&
                 WidthInBytes <= SIZE_MAX - PITCH_BYTES &&
                 (ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16);
    size_t pitch = (WidthInBytes + PITCH_BYTES - 1) / PITCH_BYTES * PITCH_BYTES;
    if (valid && pitch <= SIZE_MAX / Height) {
        r = serve(dptr, pitch * Height, VM_ALLOC_SYNC, NULL, &handled);
        if (handled && r == CUDA_SUCCESS)
            *pPitch = pitch;
    }
    if (!handled)
        VM_RETRY(r, real(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes));
    return r;
}

/* An allocation inside a capture becomes a node of the graph: the driver's business. */
static bool may_serve_async(const CUdeviceptr *dptr, size_t bytes, CUstream stream)
{
    return dptr && bytes && !vm_rt_capturing(stream);
}

CUresult door_cuMemAllocAsync(vm_fn_cuMemAllocAsync real, bool per_thread, CUdeviceptr *dptr,
                              size_t bytesize, CUstream hStream)
{
    bool handled = false;
    CUresult r = CUDA_SUCCESS;
    CUstream stream = vm_stream_of(hStream, per_thread);
    if (may_serve_async(dptr, bytesize, stream))
        r = serve(dptr, bytesize, VM_ALLOC_ASYNC, stream, &handled);
    if (!handled)
        VM_RETRY(r, real(dptr, bytesize, hStream));
    return r;
}

/* Pools that the program made or shares keep their own rules; the device's default pool has none.
 */
static bool is_default_pool(CUmemoryPool pool)
{
    CUdevice dev;
    CUmemoryPool own;
    return vm_uses.cuCtxGetDevice && vm_uses.cuDeviceGetDefaultMemPool &&
           vm_uses.cuCtxGetDevice(&dev) == CUDA_SUCCESS &&
           vm_uses.cuDeviceGetDefaultMemPool(&own, dev) == CUDA_SUCCESS && own == pool;
}

CUresult door_cuMemAllocFromPoolAsync(vm_fn_cuMemAllocFromPoolAsync real, bool per_thread,
                                      CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                      CUstream hStream)
{
    bool handled = false;
    CUresult r = CUDA_SUCCESS;
    CUstream stream = vm_stream_of(hStream, per_thread);
    if (may_serve_async(dptr, bytesize, stream) && is_default_pool(pool))
        r = serve(dptr, bytesize, VM_ALLOC_ASYNC, stream, &handled);
    if (!handled)
        VM_RETRY(r, real(dptr, bytesize, pool, hStream));
    return r;
}

CUresult door_cuMemFree_v2(vm_fn_cuMemFree_v2 real, bool per_thread, CUdeviceptr dptr)
{
    bool handled = false;
    CUresult r = CUDA_SUCCESS;
    if (dptr)
        r = vm_rt_free(dptr, VM_ALLOC_SYNC, NULL, &handled);
    return handled ? r : real(dptr);
}

CUresult door_cuMemFreeAsync(vm_fn_cuMemFreeAsync real, bool per_thread, CUdeviceptr dptr,
                             CUstream hStream)
{
    bool handled = false;
    CUresult r = CUDA_SUCCESS;
    if (dptr)
        r = vm_rt_free(dptr, VM_ALLOC_ASYNC, vm_stream_of(hStream, per_thread), &handled);
    return handled ? r : real(dptr, hStream);
}

CUresult door_cuMemGetInfo_v2(vm_fn_cuMemGetInfo_v2 real, bool per_thread, size_t *free_bytes,
                              size_t *total)
{
    CUresult r = real(free_bytes, total);
    if (r == CUDA_SUCCESS)
        vm_rt_mem_info(free_bytes, total);
    return r;
}

CUresult door_cuDeviceTotalMem_v2(vm_fn_cuDeviceTotalMem_v2 real, bool per_thread, size_t *bytes,
                                  CUdevice dev)
{
    CUresult r = real(bytes, dev);
    if (r == CUDA_SUCCESS)
        vm_rt_total_mem(dev, bytes);
    return r;
}
