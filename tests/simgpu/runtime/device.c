/* device.c: devices, their properties and limits, contexts' settings, peers. */
#include "rt.h"

#include <stdio.h>
#include <string.h>

cudaError_t CUDARTAPI cudaGetDeviceCount(int *count)
{
    if (!count)
        return rt_last(cudaErrorInvalidValue);
    cudaError_t e = rt_load();
    *count = e == cudaSuccess ? rt_device_count() : 0;
    return rt_last(e);
}

cudaError_t CUDARTAPI cudaGetDevice(int *device)
{
    if (!device)
        return rt_last(cudaErrorInvalidValue);
    cudaError_t e = rt_load();
    return rt_last(e != cudaSuccess ? e : rt_current_device(device));
}

static cudaError_t rt_check_device(int device)
{
    cudaError_t e = rt_load();
    if (e != cudaSuccess)
        return e;
    return device < 0 || device >= rt_device_count() ? cudaErrorInvalidDevice : cudaSuccess;
}

cudaError_t CUDARTAPI cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    cudaError_t e = value ? rt_check_device(device) : cudaErrorInvalidValue;
    if (e == cudaSuccess) /* the runtime's attributes carry the driver's numbers */
        e = rt_error(rt_drv[0].cuDeviceGetAttribute(value, (CUdevice_attribute)attr, device));
    return rt_last(e);
}

/* Where an attribute of the driver goes in cudaDeviceProp. `wide`: the field is a size_t. */
struct rt_prop {
    CUdevice_attribute attr;
    size_t offset;
    int wide;
};
#define P(field, attr)  {CU_DEVICE_ATTRIBUTE_##attr, offsetof(struct cudaDeviceProp, field), 0}
#define PS(field, attr) {CU_DEVICE_ATTRIBUTE_##attr, offsetof(struct cudaDeviceProp, field), 1}

/* One row for each field (and element) of the structure that an attribute tells. */
static const struct rt_prop rt_props[] = {
    PS(sharedMemPerBlock, MAX_SHARED_MEMORY_PER_BLOCK),
    P(regsPerBlock, MAX_REGISTERS_PER_BLOCK),
    P(warpSize, WARP_SIZE),
    PS(memPitch, MAX_PITCH),
    P(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK),
    P(maxThreadsDim[0], MAX_BLOCK_DIM_X),
    P(maxThreadsDim[1], MAX_BLOCK_DIM_Y),
    P(maxThreadsDim[2], MAX_BLOCK_DIM_Z),
    P(maxGridSize[0], MAX_GRID_DIM_X),
    P(maxGridSize[1], MAX_GRID_DIM_Y),
    P(maxGridSize[2], MAX_GRID_DIM_Z),
    PS(totalConstMem, TOTAL_CONSTANT_MEMORY),
    P(major, COMPUTE_CAPABILITY_MAJOR),
    P(minor, COMPUTE_CAPABILITY_MINOR),
    PS(textureAlignment, TEXTURE_ALIGNMENT),
    PS(texturePitchAlignment, TEXTURE_PITCH_ALIGNMENT),
    P(multiProcessorCount, MULTIPROCESSOR_COUNT),
    P(integrated, INTEGRATED),
    P(canMapHostMemory, CAN_MAP_HOST_MEMORY),
    P(maxTexture1D, MAXIMUM_TEXTURE1D_WIDTH),
    P(maxTexture1DMipmap, MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH),
    P(maxTexture2D[0], MAXIMUM_TEXTURE2D_WIDTH),
    P(maxTexture2D[1], MAXIMUM_TEXTURE2D_HEIGHT),
    P(maxTexture2DMipmap[0], MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH),
    P(maxTexture2DMipmap[1], MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT),
    P(maxTexture2DLinear[0], MAXIMUM_TEXTURE2D_LINEAR_WIDTH),
    P(maxTexture2DLinear[1], MAXIMUM_TEXTURE2D_LINEAR_HEIGHT),
    P(maxTexture2DLinear[2], MAXIMUM_TEXTURE2D_LINEAR_PITCH),
    P(maxTexture2DGather[0], MAXIMUM_TEXTURE2D_GATHER_WIDTH),
    P(maxTexture2DGather[1], MAXIMUM_TEXTURE2D_GATHER_HEIGHT),
    P(maxTexture3D[0], MAXIMUM_TEXTURE3D_WIDTH),
    P(maxTexture3D[1], MAXIMUM_TEXTURE3D_HEIGHT),
    P(maxTexture3D[2], MAXIMUM_TEXTURE3D_DEPTH),
    P(maxTexture3DAlt[0], MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE),
    P(maxTexture3DAlt[1], MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE),
    P(maxTexture3DAlt[2], MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE),
    P(maxTextureCubemap, MAXIMUM_TEXTURECUBEMAP_WIDTH),
    P(maxTexture1DLayered[0], MAXIMUM_TEXTURE1D_LAYERED_WIDTH),
    P(maxTexture1DLayered[1], MAXIMUM_TEXTURE1D_LAYERED_LAYERS),
    P(maxTexture2DLayered[0], MAXIMUM_TEXTURE2D_LAYERED_WIDTH),
    P(maxTexture2DLayered[1], MAXIMUM_TEXTURE2D_LAYERED_HEIGHT),
    P(maxTexture2DLayered[2], MAXIMUM_TEXTURE2D_LAYERED_LAYERS),
    P(maxTextureCubemapLayered[0], MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH),
    P(maxTextureCubemapLayered[1], MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS),
    P(maxSurface1D, MAXIMUM_SURFACE1D_WIDTH),
    P(maxSurface2D[0], MAXIMUM_SURFACE2D_WIDTH),
    P(maxSurface2D[1], MAXIMUM_SURFACE2D_HEIGHT),
    P(maxSurface3D[0], MAXIMUM_SURFACE3D_WIDTH),
    P(maxSurface3D[1], MAXIMUM_SURFACE3D_HEIGHT),
    P(maxSurface3D[2], MAXIMUM_SURFACE3D_DEPTH),
    P(maxSurface1DLayered[0], MAXIMUM_SURFACE1D_LAYERED_WIDTH),
    P(maxSurface1DLayered[1], MAXIMUM_SURFACE1D_LAYERED_LAYERS),
    P(maxSurface2DLayered[0], MAXIMUM_SURFACE2D_LAYERED_WIDTH),
    P(maxSurface2DLayered[1], MAXIMUM_SURFACE2D_LAYERED_HEIGHT),
    P(maxSurface2DLayered[2], MAXIMUM_SURFACE2D_LAYERED_LAYERS),
    P(maxSurfaceCubemap, MAXIMUM_SURFACECUBEMAP_WIDTH),
    P(maxSurfaceCubemapLayered[0], MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH),
    P(maxSurfaceCubemapLayered[1], MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS),
    PS(surfaceAlignment, SURFACE_ALIGNMENT),
    P(concurrentKernels, CONCURRENT_KERNELS),
    P(ECCEnabled, ECC_ENABLED),
    P(pciBusID, PCI_BUS_ID),
    P(pciDeviceID, PCI_DEVICE_ID),
    P(pciDomainID, PCI_DOMAIN_ID),
    P(tccDriver, TCC_DRIVER),
    P(asyncEngineCount, ASYNC_ENGINE_COUNT),
    P(unifiedAddressing, UNIFIED_ADDRESSING),
    P(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH),
    P(l2CacheSize, L2_CACHE_SIZE),
    P(persistingL2CacheMaxSize, MAX_PERSISTING_L2_CACHE_SIZE),
    P(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR),
    P(streamPrioritiesSupported, STREAM_PRIORITIES_SUPPORTED),
    P(globalL1CacheSupported, GLOBAL_L1_CACHE_SUPPORTED),
    P(localL1CacheSupported, LOCAL_L1_CACHE_SUPPORTED),
    PS(sharedMemPerMultiprocessor, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
    P(regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR),
    P(managedMemory, MANAGED_MEMORY),
    P(isMultiGpuBoard, MULTI_GPU_BOARD),
    P(multiGpuBoardGroupID, MULTI_GPU_BOARD_GROUP_ID),
    P(hostNativeAtomicSupported, HOST_NATIVE_ATOMIC_SUPPORTED),
    P(pageableMemoryAccess, PAGEABLE_MEMORY_ACCESS),
    P(concurrentManagedAccess, CONCURRENT_MANAGED_ACCESS),
    P(computePreemptionSupported, COMPUTE_PREEMPTION_SUPPORTED),
    P(canUseHostPointerForRegisteredMem, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM),
    P(cooperativeLaunch, COOPERATIVE_LAUNCH),
    PS(sharedMemPerBlockOptin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
    P(pageableMemoryAccessUsesHostPageTables, PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES),
    P(directManagedMemAccessFromHost, DIRECT_MANAGED_MEM_ACCESS_FROM_HOST),
    P(maxBlocksPerMultiProcessor, MAX_BLOCKS_PER_MULTIPROCESSOR),
    P(accessPolicyMaxWindowSize, MAX_ACCESS_POLICY_WINDOW_SIZE),
    PS(reservedSharedMemPerBlock, RESERVED_SHARED_MEMORY_PER_BLOCK),
    P(hostRegisterSupported, HOST_REGISTER_SUPPORTED),
    P(sparseCudaArraySupported, SPARSE_CUDA_ARRAY_SUPPORTED),
    P(hostRegisterReadOnlySupported, READ_ONLY_HOST_REGISTER_SUPPORTED),
    P(timelineSemaphoreInteropSupported, TIMELINE_SEMAPHORE_INTEROP_SUPPORTED),
    P(memoryPoolsSupported, MEMORY_POOLS_SUPPORTED),
    P(gpuDirectRDMASupported, GPU_DIRECT_RDMA_SUPPORTED),
    P(gpuDirectRDMAFlushWritesOptions, GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS),
    P(gpuDirectRDMAWritesOrdering, GPU_DIRECT_RDMA_WRITES_ORDERING),
    P(memoryPoolSupportedHandleTypes, MEMPOOL_SUPPORTED_HANDLE_TYPES),
    P(deferredMappingCudaArraySupported, DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED),
    P(ipcEventSupported, IPC_EVENT_SUPPORTED),
    P(clusterLaunch, CLUSTER_LAUNCH),
    P(unifiedFunctionPointers, UNIFIED_FUNCTION_POINTERS),
    P(deviceNumaConfig, NUMA_CONFIG),
    P(deviceNumaId, NUMA_ID),
    P(mpsEnabled, MPS_ENABLED),
    P(hostNumaId, HOST_NUMA_ID),
    P(gpuPciDeviceID, GPU_PCI_DEVICE_ID),
    P(gpuPciSubsystemID, GPU_PCI_SUBSYSTEM_ID),
    P(hostNumaMultinodeIpcSupported, HOST_NUMA_MULTINODE_IPC_SUPPORTED),
};
#undef P
#undef PS

static cudaError_t rt_properties(struct cudaDeviceProp *prop, int device)
{
    const struct rt_driver *d = &rt_drv[0];
    struct cudaDeviceProp p;
    memset(&p, 0, sizeof p);
    CUuuid uuid;
    CUresult r = d->cuDeviceGetName(p.name, (int)sizeof p.name, device);
    if (r == CUDA_SUCCESS)
        r = d->cuDeviceTotalMem(&p.totalGlobalMem, device);
    if (r != CUDA_SUCCESS)
        return rt_error(r);
    if (d->cuDeviceGetUuid(&uuid, device) == CUDA_SUCCESS)
        memcpy(&p.uuid, &uuid, sizeof p.uuid);
    for (size_t i = 0; i < sizeof rt_props / sizeof rt_props[0]; i++) {
        int value = 0;
        if (d->cuDeviceGetAttribute(&value, rt_props[i].attr, device) != CUDA_SUCCESS)
            continue; /* an attribute that this driver does not know stays 0 */
        size_t wide = (size_t)value;
        memcpy((char *)&p + rt_props[i].offset, rt_props[i].wide ? (void *)&wide : (void *)&value,
               rt_props[i].wide ? sizeof wide : sizeof value);
    }
    *prop = p;
    return cudaSuccess;
}

#if RT_VERSION >= 13000
cudaError_t CUDARTAPI cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    cudaError_t e = prop ? rt_check_device(device) : cudaErrorInvalidValue;
    return rt_last(e != cudaSuccess ? e : rt_properties(prop, device));
}
#else
cudaError_t rt_device_properties(struct cudaDeviceProp *prop, int device)
{
    cudaError_t e = prop ? rt_check_device(device) : cudaErrorInvalidValue;
    return e != cudaSuccess ? e : rt_properties(prop, device);
}
#endif

cudaError_t CUDARTAPI cudaSetDeviceFlags(unsigned int flags)
{
    cudaError_t e = rt_load();
    int device = 0;
    if (e == cudaSuccess)
        e = rt_current_device(&device);
    if (e == cudaSuccess)
        e = rt_error(rt_drv[0].cuDevicePrimaryCtxSetFlags(device, flags));
    return rt_last(e);
}

cudaError_t CUDARTAPI cudaGetDeviceFlags(unsigned int *flags)
{
    RT_RUN(flags ? rt_error(rt_drv[0].cuCtxGetFlags(flags)) : cudaErrorInvalidValue);
}

cudaError_t CUDARTAPI cudaSetValidDevices(int *device_arr, int len)
{
    cudaError_t e = rt_load();
    for (int i = 0; e == cudaSuccess && i < len; i++)
        e = device_arr ? rt_check_device(device_arr[i]) : cudaErrorInvalidValue;
    return rt_last(e);
}

cudaError_t CUDARTAPI cudaChooseDevice(int *device, const struct cudaDeviceProp *prop)
{
    if (!device || !prop)
        return rt_last(cudaErrorInvalidValue);
    cudaError_t e = rt_load();
    if (e == cudaSuccess)
        *device = 0;
    return rt_last(e);
}

cudaError_t CUDARTAPI cudaDeviceSynchronize(void)
{
    RT_RUN(rt_error(rt_drv[0].cuCtxSynchronize()));
}

cudaError_t CUDARTAPI cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
    RT_RUN(rt_error(rt_drv[0].cuCtxSetLimit((CUlimit)limit, value)));
}

cudaError_t CUDARTAPI cudaDeviceGetLimit(size_t *pValue, enum cudaLimit limit)
{
    RT_RUN(pValue ? rt_error(rt_drv[0].cuCtxGetLimit(pValue, (CUlimit)limit))
                  : cudaErrorInvalidValue);
}

cudaError_t CUDARTAPI cudaDeviceGetCacheConfig(enum cudaFuncCache *pCacheConfig)
{
    RT_RUN(rt_error(rt_drv[0].cuCtxGetCacheConfig((CUfunc_cache *)pCacheConfig)));
}

cudaError_t CUDARTAPI cudaDeviceSetCacheConfig(enum cudaFuncCache cacheConfig)
{
    RT_RUN(rt_error(rt_drv[0].cuCtxSetCacheConfig((CUfunc_cache)cacheConfig)));
}

cudaError_t CUDARTAPI cudaDeviceGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
    RT_RUN(rt_error(rt_drv[0].cuCtxGetStreamPriorityRange(leastPriority, greatestPriority)));
}

cudaError_t CUDARTAPI cudaDeviceGetByPCIBusId(int *device, const char *pciBusId)
{
    cudaError_t e = device && pciBusId ? rt_load() : cudaErrorInvalidValue;
    if (e == cudaSuccess)
        e = rt_error(rt_drv[0].cuDeviceGetByPCIBusId(device, pciBusId));
    return rt_last(e);
}

cudaError_t CUDARTAPI cudaDeviceGetPCIBusId(char *pciBusId, int len, int device)
{
    cudaError_t e = pciBusId ? rt_check_device(device) : cudaErrorInvalidValue;
    if (e == cudaSuccess)
        e = rt_error(rt_drv[0].cuDeviceGetPCIBusId(pciBusId, len, device));
    return rt_last(e);
}

cudaError_t CUDARTAPI cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attr,
                                                int srcDevice, int dstDevice)
{
    cudaError_t e = value ? rt_check_device(srcDevice) : cudaErrorInvalidValue;
    if (e == cudaSuccess)
        e = rt_check_device(dstDevice);
    if (e == cudaSuccess)
        e = rt_error(rt_drv[0].cuDeviceGetP2PAttribute(value, (CUdevice_P2PAttribute)attr,
                                                       srcDevice, dstDevice));
    return rt_last(e);
}

cudaError_t CUDARTAPI cudaDeviceCanAccessPeer(int *canAccessPeer, int device, int peerDevice)
{
    cudaError_t e = canAccessPeer ? rt_check_device(device) : cudaErrorInvalidValue;
    if (e == cudaSuccess)
        e = rt_check_device(peerDevice);
    if (e == cudaSuccess)
        e = rt_error(rt_drv[0].cuDeviceCanAccessPeer(canAccessPeer, device, peerDevice));
    return rt_last(e);
}

static cudaError_t rt_peer(int peer, unsigned flags, int enable)
{
    CUcontext context = NULL;
    cudaError_t e = rt_check_device(peer);
    if (e == cudaSuccess)
        e = rt_primary(peer, &context);
    if (e != cudaSuccess)
        return e;
    return rt_error(enable ? rt_drv[0].cuCtxEnablePeerAccess(context, flags)
                           : rt_drv[0].cuCtxDisablePeerAccess(context));
}

cudaError_t CUDARTAPI cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags)
{
    RT_RUN(rt_peer(peerDevice, flags, 1));
}

cudaError_t CUDARTAPI cudaDeviceDisablePeerAccess(int peerDevice)
{
    RT_RUN(rt_peer(peerDevice, 0, 0));
}

cudaError_t CUDARTAPI cudaDeviceGraphMemTrim(int device)
{
    RT_RUN(rt_error(rt_drv[0].cuDeviceGraphMemTrim(device)));
}

cudaError_t CUDARTAPI cudaDeviceGetGraphMemAttribute(int device,
                                                     enum cudaGraphMemAttributeType attr,
                                                     void *value)
{
    RT_RUN(rt_error(rt_drv[0].cuDeviceGetGraphMemAttribute(device, (CUgraphMem_attribute)attr,
                                                           value)));
}

cudaError_t CUDARTAPI cudaDeviceSetGraphMemAttribute(int device,
                                                     enum cudaGraphMemAttributeType attr,
                                                     void *value)
{
    RT_RUN(rt_error(rt_drv[0].cuDeviceSetGraphMemAttribute(device, (CUgraphMem_attribute)attr,
                                                           value)));
}

cudaError_t CUDARTAPI cudaDeviceFlushGPUDirectRDMAWrites(
    enum cudaFlushGPUDirectRDMAWritesTarget target, enum cudaFlushGPUDirectRDMAWritesScope scope)
{
    return rt_unsupported("cudaDeviceFlushGPUDirectRDMAWrites");
}

cudaError_t CUDARTAPI cudaProfilerStart(void)
{
    RT_RUN(rt_error(rt_drv[0].cuProfilerStart()));
}

cudaError_t CUDARTAPI cudaProfilerStop(void)
{
    RT_RUN(rt_error(rt_drv[0].cuProfilerStop()));
}

/* ---- the driver's functions by name -----------------------------------------------------------*/

static cudaError_t rt_entry_point(const struct rt_driver *d, const char *symbol, void **funcPtr,
                                  int version, unsigned long long flags,
                                  enum cudaDriverEntryPointQueryResult *status)
{
    if (!symbol || !funcPtr)
        return cudaErrorInvalidValue;
    if (flags == cudaEnableDefault && d == &rt_drv[RT_PER_THREAD])
        flags = cudaEnablePerThreadDefaultStream;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    void *address = NULL;
    CUresult r = rt_lookup(symbol, version, flags, &address, &found);
    if (r != CUDA_SUCCESS && r != CUDA_ERROR_NOT_FOUND)
        return rt_error(r);
    *funcPtr = address;
    if (status) {
        *status = (enum cudaDriverEntryPointQueryResult)found;
        return cudaSuccess; /* the status tells what is missing */
    }
    return address ? cudaSuccess : cudaErrorSymbolNotFound;
}

static cudaError_t rt_entry_point_now(const struct rt_driver *d, const char *symbol,
                                      void **funcPtr, unsigned long long flags,
                                      enum cudaDriverEntryPointQueryResult *status)
{
    return rt_entry_point(d, symbol, funcPtr, RT_VERSION, flags, status);
}

RT_TWINS(cudaGetDriverEntryPointByVersion, _ptsz, rt_entry_point,
         (const char *symbol, void **funcPtr, unsigned int cudaVersion, unsigned long long flags,
          enum cudaDriverEntryPointQueryResult *driverStatus),
         symbol, funcPtr, (int)cudaVersion, flags, driverStatus)

/* Not declared for C by the header of CUDA 13, still exported. */
cudaError_t CUDARTAPI cudaGetDriverEntryPoint(const char *symbol, void **funcPtr,
                                              unsigned long long flags,
                                              enum cudaDriverEntryPointQueryResult *driverStatus);
RT_TWINS(cudaGetDriverEntryPoint, _ptsz, rt_entry_point_now,
         (const char *symbol, void **funcPtr, unsigned long long flags,
          enum cudaDriverEntryPointQueryResult *driverStatus),
         symbol, funcPtr, flags, driverStatus)
