/* memory.c: allocation in all its families, pools, pointers, managed memory, IPC. */
#include "rt.h"

#include <string.h>

static cudaError_t rt_malloc(void **ptr, size_t size)
{
    CUdeviceptr p = 0;
    if (!ptr)
        return cudaErrorInvalidValue;
    if (size) {
        CUresult r = rt_drv[0].cuMemAlloc(&p, size);
        if (r != CUDA_SUCCESS)
            return rt_error(r);
    }
    *ptr = (void *)(uintptr_t)p;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaMalloc(void **devPtr, size_t size)
{
    RT_RUN(rt_malloc(devPtr, size));
}

cudaError_t CUDARTAPI cudaFree(void *devPtr)
{
    RT_RUN(devPtr ? rt_error(rt_drv[0].cuMemFree(rt_ptr(devPtr))) : cudaSuccess);
}

static cudaError_t rt_malloc_pitch(void **ptr, size_t *pitch, size_t width, size_t height)
{
    CUdeviceptr p = 0;
    size_t row = 0;
    if (!ptr || !pitch)
        return cudaErrorInvalidValue;
    if (width && height) {
        CUresult r = rt_drv[0].cuMemAllocPitch(&p, &row, width, height, 4);
        if (r != CUDA_SUCCESS)
            return rt_error(r);
    }
    *ptr = (void *)(uintptr_t)p;
    *pitch = row;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaMallocPitch(void **devPtr, size_t *pitch, size_t width, size_t height)
{
    RT_RUN(rt_malloc_pitch(devPtr, pitch, width, height));
}

static cudaError_t rt_malloc_3d(struct cudaPitchedPtr *out, struct cudaExtent extent)
{
    if (!out)
        return cudaErrorInvalidValue;
    if (extent.depth && extent.height > SIZE_MAX / extent.depth)
        return cudaErrorMemoryAllocation;
    struct cudaPitchedPtr p = {NULL, 0, extent.width, extent.height};
    cudaError_t e = rt_malloc_pitch(&p.ptr, &p.pitch, extent.width, extent.height * extent.depth);
    if (e == cudaSuccess)
        *out = p;
    return e;
}

cudaError_t CUDARTAPI cudaMalloc3D(struct cudaPitchedPtr *pitchedDevPtr, struct cudaExtent extent)
{
    RT_RUN(rt_malloc_3d(pitchedDevPtr, extent));
}

static cudaError_t rt_malloc_managed(void **ptr, size_t size, unsigned flags)
{
    CUdeviceptr p = 0;
    if (!ptr || !size)
        return cudaErrorInvalidValue;
    CUresult r = rt_drv[0].cuMemAllocManaged(&p, size, flags);
    if (r == CUDA_SUCCESS)
        *ptr = (void *)(uintptr_t)p;
    return rt_error(r);
}

cudaError_t CUDARTAPI cudaMallocManaged(void **devPtr, size_t size, unsigned int flags)
{
    RT_RUN(rt_malloc_managed(devPtr, size, flags));
}

cudaError_t CUDARTAPI cudaMemGetInfo(size_t *free, size_t *total)
{
    RT_RUN(free && total ? rt_error(rt_drv[0].cuMemGetInfo(free, total)) : cudaErrorInvalidValue);
}

/* ---- host memory ------------------------------------------------------------------------------*/

static cudaError_t rt_host_alloc(void **ptr, size_t size, unsigned flags)
{
    void *p = NULL;
    if (!ptr)
        return cudaErrorInvalidValue;
    if (size) {
        CUresult r = rt_drv[0].cuMemHostAlloc(&p, size, flags);
        if (r != CUDA_SUCCESS)
            return rt_error(r);
    }
    *ptr = p;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaMallocHost(void **ptr, size_t size)
{
    RT_RUN(rt_host_alloc(ptr, size, 0));
}

cudaError_t CUDARTAPI cudaHostAlloc(void **pHost, size_t size, unsigned int flags)
{
    RT_RUN(rt_host_alloc(pHost, size, flags));
}

cudaError_t CUDARTAPI cudaFreeHost(void *ptr)
{
    RT_RUN(ptr ? rt_error(rt_drv[0].cuMemFreeHost(ptr)) : cudaSuccess);
}

cudaError_t CUDARTAPI cudaHostRegister(void *ptr, size_t size, unsigned int flags)
{
    RT_RUN(rt_error(rt_drv[0].cuMemHostRegister(ptr, size, flags)));
}

cudaError_t CUDARTAPI cudaHostUnregister(void *ptr)
{
    RT_RUN(rt_error(rt_drv[0].cuMemHostUnregister(ptr)));
}

static cudaError_t rt_host_device_pointer(void **device, void *host, unsigned flags)
{
    CUdeviceptr p = 0;
    if (!device)
        return cudaErrorInvalidValue;
    CUresult r = rt_drv[0].cuMemHostGetDevicePointer(&p, host, flags);
    if (r == CUDA_SUCCESS)
        *device = (void *)(uintptr_t)p;
    return rt_error(r);
}

cudaError_t CUDARTAPI cudaHostGetDevicePointer(void **pDevice, void *pHost, unsigned int flags)
{
    RT_RUN(rt_host_device_pointer(pDevice, pHost, flags));
}

cudaError_t CUDARTAPI cudaHostGetFlags(unsigned int *pFlags, void *pHost)
{
    RT_RUN(pFlags ? rt_error(rt_drv[0].cuMemHostGetFlags(pFlags, pHost)) : cudaErrorInvalidValue);
}

/* ---- stream-ordered memory ----------------------------------------------------------------------*/

static cudaError_t rt_malloc_async(const struct rt_driver *d, void **ptr, size_t size,
                                   CUmemoryPool pool, CUstream stream)
{
    CUdeviceptr p = 0;
    if (!ptr)
        return cudaErrorInvalidValue;
    if (size) {
        CUresult r = pool ? d->cuMemAllocFromPoolAsync(&p, size, pool, stream)
                          : d->cuMemAllocAsync(&p, size, stream);
        if (r != CUDA_SUCCESS)
            return rt_error(r);
    }
    *ptr = (void *)(uintptr_t)p;
    return cudaSuccess;
}

RT_TWINS(cudaMallocAsync, _ptsz, rt_malloc_async,
         (void **devPtr, size_t size, cudaStream_t hStream), devPtr, size, NULL, hStream)
RT_TWINS(cudaMallocFromPoolAsync, _ptsz, rt_malloc_async,
         (void **ptr, size_t size, cudaMemPool_t memPool, cudaStream_t stream), ptr, size, memPool,
         stream)

static cudaError_t rt_free_async(const struct rt_driver *d, void *ptr, CUstream stream)
{
    return ptr ? rt_error(d->cuMemFreeAsync(rt_ptr(ptr), stream)) : cudaSuccess;
}

RT_TWINS(cudaFreeAsync, _ptsz, rt_free_async, (void *devPtr, cudaStream_t hStream), devPtr, hStream)

static CUmemLocation rt_location(struct cudaMemLocation l)
{
    CUmemLocation out;
    memset(&out, 0, sizeof out);
    out.type = (CUmemLocationType)l.type;
    out.id = l.id;
    return out;
}

static cudaError_t rt_pool_create(cudaMemPool_t *pool, const struct cudaMemPoolProps *props)
{
    if (!pool || !props)
        return cudaErrorInvalidValue;
    CUmemPoolProps p;
    memset(&p, 0, sizeof p);
    p.allocType = (CUmemAllocationType)props->allocType;
    p.handleTypes = (CUmemAllocationHandleType)props->handleTypes;
    p.location = rt_location(props->location);
    p.win32SecurityAttributes = props->win32SecurityAttributes;
    p.maxSize = props->maxSize;
    p.usage = props->usage;
    return rt_error(rt_drv[0].cuMemPoolCreate(pool, &p));
}

cudaError_t CUDARTAPI cudaMemPoolCreate(cudaMemPool_t *memPool,
                                        const struct cudaMemPoolProps *poolProps)
{
    RT_RUN(rt_pool_create(memPool, poolProps));
}

cudaError_t CUDARTAPI cudaMemPoolDestroy(cudaMemPool_t memPool)
{
    RT_RUN(rt_error(rt_drv[0].cuMemPoolDestroy(memPool)));
}

cudaError_t CUDARTAPI cudaMemPoolTrimTo(cudaMemPool_t memPool, size_t minBytesToKeep)
{
    RT_RUN(rt_error(rt_drv[0].cuMemPoolTrimTo(memPool, minBytesToKeep)));
}

cudaError_t CUDARTAPI cudaMemPoolSetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr,
                                              void *value)
{
    RT_RUN(rt_error(rt_drv[0].cuMemPoolSetAttribute(memPool, (CUmemPool_attribute)attr, value)));
}

cudaError_t CUDARTAPI cudaMemPoolGetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr,
                                              void *value)
{
    RT_RUN(rt_error(rt_drv[0].cuMemPoolGetAttribute(memPool, (CUmemPool_attribute)attr, value)));
}

static cudaError_t rt_pool_set_access(cudaMemPool_t pool, const struct cudaMemAccessDesc *list,
                                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        CUmemAccessDesc a;
        memset(&a, 0, sizeof a);
        a.location = rt_location(list[i].location);
        a.flags = (CUmemAccess_flags)list[i].flags;
        CUresult r = rt_drv[0].cuMemPoolSetAccess(pool, &a, 1);
        if (r != CUDA_SUCCESS)
            return rt_error(r);
    }
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaMemPoolSetAccess(cudaMemPool_t memPool,
                                           const struct cudaMemAccessDesc *descList, size_t count)
{
    RT_RUN(descList || !count ? rt_pool_set_access(memPool, descList, count)
                              : cudaErrorInvalidValue);
}

static cudaError_t rt_pool_get_access(enum cudaMemAccessFlags *flags, cudaMemPool_t pool,
                                      struct cudaMemLocation *location)
{
    if (!flags || !location)
        return cudaErrorInvalidValue;
    CUmemLocation l = rt_location(*location);
    CUmemAccess_flags f = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    CUresult r = rt_drv[0].cuMemPoolGetAccess(&f, pool, &l);
    if (r == CUDA_SUCCESS)
        *flags = (enum cudaMemAccessFlags)f;
    return rt_error(r);
}

cudaError_t CUDARTAPI cudaMemPoolGetAccess(enum cudaMemAccessFlags *flags, cudaMemPool_t memPool,
                                           struct cudaMemLocation *location)
{
    RT_RUN(rt_pool_get_access(flags, memPool, location));
}

cudaError_t CUDARTAPI cudaDeviceGetDefaultMemPool(cudaMemPool_t *memPool, int device)
{
    RT_RUN(rt_error(rt_drv[0].cuDeviceGetDefaultMemPool(memPool, device)));
}

cudaError_t CUDARTAPI cudaDeviceGetMemPool(cudaMemPool_t *memPool, int device)
{
    RT_RUN(rt_error(rt_drv[0].cuDeviceGetMemPool(memPool, device)));
}

cudaError_t CUDARTAPI cudaDeviceSetMemPool(int device, cudaMemPool_t memPool)
{
    RT_RUN(rt_error(rt_drv[0].cuDeviceSetMemPool(device, memPool)));
}

/* ---- pointers -----------------------------------------------------------------------------------*/

static cudaError_t rt_pointer_attributes(struct cudaPointerAttributes *out, const void *ptr)
{
    if (!out)
        return cudaErrorInvalidValue;
    unsigned type = 0, managed = 0;
    int ordinal = 0;
    CUdeviceptr device = 0;
    void *host = NULL;
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,  CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        CU_POINTER_ATTRIBUTE_HOST_POINTER,
    };
    void *values[] = {&type, &managed, &ordinal, &device, &host};
    CUresult r = rt_drv[0].cuPointerGetAttributes(5, names, values, rt_ptr(ptr));
    if (r != CUDA_SUCCESS && r != CUDA_ERROR_INVALID_VALUE)
        return rt_error(r);
    struct cudaPointerAttributes a;
    memset(&a, 0, sizeof a);
    if (r != CUDA_SUCCESS || (type == 0 && !managed)) {
        a.type = cudaMemoryTypeUnregistered;
        a.device = cudaInvalidDeviceId;
        a.hostPointer = (void *)(uintptr_t)rt_ptr(ptr);
    } else {
        a.type = managed                       ? cudaMemoryTypeManaged
                 : type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost
                                               : cudaMemoryTypeDevice;
        a.device = ordinal;
        a.devicePointer = (void *)(uintptr_t)device;
        a.hostPointer = a.type == cudaMemoryTypeDevice ? NULL : host;
    }
    /* CUDA 12's ends before what 13 reserves */
    memcpy(out, &a,
           RT_VERSION < 13000 ? offsetof(struct cudaPointerAttributes, reserved) : sizeof a);
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaPointerGetAttributes(struct cudaPointerAttributes *attributes,
                                               const void *ptr)
{
    RT_RUN(rt_pointer_attributes(attributes, ptr));
}

/* ---- managed memory -----------------------------------------------------------------------------*/

cudaError_t CUDARTAPI cudaMemAdvise(const void *devPtr, size_t count,
                                    enum cudaMemoryAdvise advice, struct cudaMemLocation location)
{
    RT_RUN(rt_error(rt_drv[0].cuMemAdvise(rt_ptr(devPtr), count, (CUmem_advise)advice,
                                          rt_location(location))));
}

static cudaError_t rt_prefetch(const struct rt_driver *d, const void *ptr, size_t count,
                               struct cudaMemLocation location, unsigned flags, CUstream stream)
{
    return rt_error(
        d->cuMemPrefetchAsync(rt_ptr(ptr), count, rt_location(location), flags, stream));
}

RT_TWINS(cudaMemPrefetchAsync, _ptsz, rt_prefetch,
         (const void *devPtr, size_t count, struct cudaMemLocation location, unsigned int flags,
          cudaStream_t stream),
         devPtr, count, location, flags, stream)

cudaError_t CUDARTAPI cudaMemRangeGetAttribute(void *data, size_t dataSize,
                                               enum cudaMemRangeAttribute attribute,
                                               const void *devPtr, size_t count)
{
    RT_RUN(rt_error(rt_drv[0].cuMemRangeGetAttribute(
        data, dataSize, (CUmem_range_attribute)attribute, rt_ptr(devPtr), count)));
}

/* ---- IPC ----------------------------------------------------------------------------------------*/

cudaError_t CUDARTAPI cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *devPtr)
{
    RT_RUN(handle ? rt_error(rt_drv[0].cuIpcGetMemHandle((CUipcMemHandle *)handle, rt_ptr(devPtr)))
                  : cudaErrorInvalidValue);
}

static cudaError_t rt_ipc_open(void **ptr, cudaIpcMemHandle_t handle, unsigned flags)
{
    if (!ptr)
        return cudaErrorInvalidValue;
    CUipcMemHandle h;
    memcpy(&h, &handle, sizeof h);
    CUdeviceptr p = 0;
    CUresult r = rt_drv[0].cuIpcOpenMemHandle(&p, h, flags);
    if (r == CUDA_SUCCESS)
        *ptr = (void *)(uintptr_t)p;
    return rt_error(r);
}

cudaError_t CUDARTAPI cudaIpcOpenMemHandle(void **devPtr, cudaIpcMemHandle_t handle,
                                           unsigned int flags)
{
    RT_RUN(rt_ipc_open(devPtr, handle, flags));
}

cudaError_t CUDARTAPI cudaIpcCloseMemHandle(void *devPtr)
{
    RT_RUN(rt_error(rt_drv[0].cuIpcCloseMemHandle(rt_ptr(devPtr))));
}

cudaError_t CUDARTAPI cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event)
{
    RT_RUN(handle ? rt_error(rt_drv[0].cuIpcGetEventHandle((CUipcEventHandle *)handle, event))
                  : cudaErrorInvalidValue);
}

static cudaError_t rt_ipc_open_event(cudaEvent_t *event, cudaIpcEventHandle_t handle)
{
    CUipcEventHandle h;
    memcpy(&h, &handle, sizeof h);
    return rt_error(rt_drv[0].cuIpcOpenEventHandle(event, h));
}

cudaError_t CUDARTAPI cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle)
{
    RT_RUN(event ? rt_ipc_open_event(event, handle) : cudaErrorInvalidValue);
}
