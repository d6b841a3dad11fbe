/* launch.c: launches, the <<<>>> configuration, what a program asks about a kernel. */
#include "rt.h"

#include <string.h>

/* Limits that the runtime names itself; everything else is the driver's to judge. */
static int rt_bad_shape(dim3 grid, dim3 block)
{
    if (!grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z)
        return 1;
    return block.x > 1024 || block.y > 1024 || block.z > 64 ||
           (uint64_t)block.x * block.y * block.z > 1024;
}

static cudaError_t rt_launch(const struct rt_driver *d, const void *func, dim3 grid, dim3 block,
                             void **args, size_t shared, CUstream stream, int cooperative)
{
    CUfunction f = NULL;
    cudaError_t e = rt_function(func, &f);
    if (e != cudaSuccess)
        return e;
    if (rt_bad_shape(grid, block) || shared > UINT32_MAX)
        return cudaErrorInvalidConfiguration;
    if (cooperative)
        return rt_error(d->cuLaunchCooperativeKernel(f, grid.x, grid.y, grid.z, block.x, block.y,
                                                     block.z, (unsigned)shared, stream, args));
    return rt_error(d->cuLaunchKernel(f, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                      (unsigned)shared, stream, args, NULL));
}

RT_TWINS(cudaLaunchKernel, _ptsz, rt_launch,
         (const void *func, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem,
          cudaStream_t stream),
         func, gridDim, blockDim, args, sharedMem, stream, 0)
RT_TWINS(cudaLaunchCooperativeKernel, _ptsz, rt_launch,
         (const void *func, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem,
          cudaStream_t stream),
         func, gridDim, blockDim, args, sharedMem, stream, 1)

/* What <<<>>> becomes since CUDA 13: the same launch by kernel handle. */
cudaError_t CUDARTAPI __cudaLaunchKernel(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim,
                                         void **args, size_t sharedMem, cudaStream_t stream);
RT_TWINS(__cudaLaunchKernel, _ptsz, rt_launch,
         (cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem,
          cudaStream_t stream),
         (const void *)kernel, gridDim, blockDim, args, sharedMem, stream, 0)

static cudaError_t rt_launch_ex(const struct rt_driver *d, const cudaLaunchConfig_t *config,
                                const void *func, void **args)
{
    CUfunction f = NULL;
    if (!config)
        return cudaErrorInvalidValue;
    cudaError_t e = rt_function(func, &f);
    if (e != cudaSuccess)
        return e;
    if (rt_bad_shape(config->gridDim, config->blockDim) || config->dynamicSmemBytes > UINT32_MAX)
        return cudaErrorInvalidConfiguration;
    CUlaunchConfig c;
    memset(&c, 0, sizeof c);
    c.gridDimX = config->gridDim.x;
    c.gridDimY = config->gridDim.y;
    c.gridDimZ = config->gridDim.z;
    c.blockDimX = config->blockDim.x;
    c.blockDimY = config->blockDim.y;
    c.blockDimZ = config->blockDim.z;
    c.sharedMemBytes = (unsigned)config->dynamicSmemBytes;
    c.hStream = config->stream;
    c.attrs = (CUlaunchAttribute *)(void *)config->attrs; /* same layout and numbers */
    c.numAttrs = config->numAttrs;
    return rt_error(d->cuLaunchKernelEx(&c, f, args, NULL));
}

RT_TWINS(cudaLaunchKernelExC, _ptsz, rt_launch_ex,
         (const cudaLaunchConfig_t *config, const void *func, void **args), config, func, args)

/* ---- the configuration between <<<>>> and the stub ------------------------------------------------*/

struct rt_call {
    dim3 grid, block;
    size_t shared;
    CUstream stream;
};
#define RT_CALL_DEPTH 32
static _Thread_local struct rt_call rt_calls[RT_CALL_DEPTH];
static _Thread_local unsigned rt_ncalls;

unsigned CUDARTAPI __cudaPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem,
                                               struct CUstream_st *stream);
unsigned CUDARTAPI __cudaPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem,
                                               struct CUstream_st *stream)
{
    if (rt_ncalls == RT_CALL_DEPTH)
        return (unsigned)rt_last(cudaErrorLaunchOutOfResources);
    rt_calls[rt_ncalls++] = (struct rt_call){gridDim, blockDim, sharedMem, stream};
    return 0;
}

cudaError_t CUDARTAPI __cudaPopCallConfiguration(dim3 *gridDim, dim3 *blockDim, size_t *sharedMem,
                                                 void *stream);
cudaError_t CUDARTAPI __cudaPopCallConfiguration(dim3 *gridDim, dim3 *blockDim, size_t *sharedMem,
                                                 void *stream)
{
    if (!rt_ncalls)
        return rt_last(cudaErrorMissingConfiguration);
    const struct rt_call *c = &rt_calls[--rt_ncalls];
    *gridDim = c->grid;
    *blockDim = c->block;
    *sharedMem = c->shared;
    memcpy(stream, &c->stream, sizeof c->stream);
    return cudaSuccess;
}

/* ---- attributes and occupancy -----------------------------------------------------------------------*/

static int rt_attribute(CUfunction f, CUfunction_attribute attr)
{
    int value = 0;
    return rt_drv[0].cuFuncGetAttribute(&value, attr, f) == CUDA_SUCCESS ? value : 0;
}

static cudaError_t rt_attributes(struct cudaFuncAttributes *out, const void *func)
{
    CUfunction f = NULL;
    cudaError_t e = out ? rt_function(func, &f) : cudaErrorInvalidValue;
    if (e != cudaSuccess)
        return e;
    struct cudaFuncAttributes a;
    memset(&a, 0, sizeof a);
    a.sharedSizeBytes = (size_t)rt_attribute(f, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
    a.constSizeBytes = (size_t)rt_attribute(f, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES);
    a.localSizeBytes = (size_t)rt_attribute(f, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
    a.maxThreadsPerBlock = rt_attribute(f, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
    a.numRegs = rt_attribute(f, CU_FUNC_ATTRIBUTE_NUM_REGS);
    a.ptxVersion = rt_attribute(f, CU_FUNC_ATTRIBUTE_PTX_VERSION);
    a.binaryVersion = rt_attribute(f, CU_FUNC_ATTRIBUTE_BINARY_VERSION);
    a.cacheModeCA = rt_attribute(f, CU_FUNC_ATTRIBUTE_CACHE_MODE_CA);
    a.maxDynamicSharedSizeBytes = rt_attribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
    a.preferredShmemCarveout =
        rt_attribute(f, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
    a.clusterDimMustBeSet = rt_attribute(f, CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET);
    a.requiredClusterWidth = rt_attribute(f, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH);
    a.requiredClusterHeight = rt_attribute(f, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT);
    a.requiredClusterDepth = rt_attribute(f, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH);
    *out = a;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaFuncGetAttributes(struct cudaFuncAttributes *attr, const void *func)
{
    RT_RUN(rt_attributes(attr, func));
}

static cudaError_t rt_set_attribute(const void *func, CUfunction_attribute attr, int value)
{
    CUfunction f = NULL;
    cudaError_t e = rt_function(func, &f);
    return e != cudaSuccess ? e : rt_error(rt_drv[0].cuFuncSetAttribute(f, attr, value));
}

cudaError_t CUDARTAPI cudaFuncSetAttribute(const void *func, enum cudaFuncAttribute attr, int value)
{
    RT_RUN(rt_set_attribute(func, (CUfunction_attribute)attr, value));
}

static cudaError_t rt_set_cache(const void *func, enum cudaFuncCache config)
{
    CUfunction f = NULL;
    cudaError_t e = rt_function(func, &f);
    return e != cudaSuccess ? e : rt_error(rt_drv[0].cuFuncSetCacheConfig(f, (CUfunc_cache)config));
}

cudaError_t CUDARTAPI cudaFuncSetCacheConfig(const void *func, enum cudaFuncCache cacheConfig)
{
    RT_RUN(rt_set_cache(func, cacheConfig));
}

static cudaError_t rt_name(const char **name, const void *func)
{
    CUkernel k = NULL;
    cudaError_t e = name ? rt_kernel(func, &k) : cudaErrorInvalidValue;
    return e != cudaSuccess ? e : rt_error(rt_drv[0].cuKernelGetName(name, k));
}

cudaError_t CUDARTAPI cudaFuncGetName(const char **name, const void *func)
{
    RT_RUN(rt_name(name, func));
}

static cudaError_t rt_param_info(const void *func, size_t index, size_t *offset, size_t *size)
{
    CUkernel k = NULL;
    cudaError_t e = offset ? rt_kernel(func, &k) : cudaErrorInvalidValue;
    return e != cudaSuccess ? e : rt_error(rt_drv[0].cuKernelGetParamInfo(k, index, offset, size));
}

cudaError_t CUDARTAPI cudaFuncGetParamInfo(const void *func, size_t paramIndex, size_t *paramOffset,
                                           size_t *paramSize)
{
    RT_RUN(rt_param_info(func, paramIndex, paramOffset, paramSize));
}

static cudaError_t rt_occupancy(int *blocks, const void *func, int threads, size_t shared,
                                unsigned flags)
{
    CUfunction f = NULL;
    cudaError_t e = blocks ? rt_function(func, &f) : cudaErrorInvalidValue;
    if (e != cudaSuccess)
        return e;
    return rt_error(rt_drv[0].cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks, f, threads, shared, flags));
}

cudaError_t CUDARTAPI cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks,
                                                                    const void *func, int blockSize,
                                                                    size_t dynamicSMemSize)
{
    RT_RUN(rt_occupancy(numBlocks, func, blockSize, dynamicSMemSize, 0));
}

cudaError_t CUDARTAPI cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *numBlocks, const void *func, int blockSize, size_t dynamicSMemSize, unsigned int flags)
{
    RT_RUN(rt_occupancy(numBlocks, func, blockSize, dynamicSMemSize, flags));
}

static cudaError_t rt_available_shared(size_t *bytes, const void *func, int blocks, int threads)
{
    CUfunction f = NULL;
    cudaError_t e = bytes ? rt_function(func, &f) : cudaErrorInvalidValue;
    if (e != cudaSuccess)
        return e;
    return rt_error(
        rt_drv[0].cuOccupancyAvailableDynamicSMemPerBlock(bytes, f, blocks, threads));
}

cudaError_t CUDARTAPI cudaOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize,
                                                                const void *func, int numBlocks,
                                                                int blockSize)
{
    RT_RUN(rt_available_shared(dynamicSmemSize, func, numBlocks, blockSize));
}
