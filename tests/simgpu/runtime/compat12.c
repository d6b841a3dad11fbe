/* compat12.c: the functions of CUDA 12 whose ABI changed in CUDA 13, under the names and with the
 * arguments that a program of CUDA 12 (or older, where the plain name kept its first form) uses.
 * Built into libcudart.so.12 only. */
#include "rt.h"

#include <string.h>

#if RT_VERSION >= 13000
#error "compat12.c belongs to the runtime of CUDA 12"
#endif

#undef cudaEventElapsedTime
#undef cudaGetDeviceProperties
#undef cudaGraphAddDependencies
#undef cudaGraphGetEdges
#undef cudaGraphNodeGetDependencies
#undef cudaGraphNodeGetDependentNodes
#undef cudaGraphRemoveDependencies
#undef cudaMemAdvise
#undef cudaMemPrefetchAsync
#undef cudaStreamGetCaptureInfo
#undef cudaStreamUpdateCaptureDependencies

/* ---- device properties ------------------------------------------------------------------------------*/

/* CUDA 13 removed eight fields, which moved the others: these runs of bytes are alike in both. */
struct rt_prop_run {
    size_t from, end; /* in CUDA 13's structure */
    size_t to;        /* in CUDA 12's           */
};
#define RUN(first, last, to)                                                                       \
    {offsetof(struct cudaDeviceProp, first),                                                       \
     offsetof(struct cudaDeviceProp, last) + sizeof(((struct cudaDeviceProp *)0)->last), to}
static const struct rt_prop_run rt_prop_runs[] = {
    RUN(name, maxGridSize, 0),
    RUN(totalConstMem, texturePitchAlignment, 352),
    RUN(multiProcessorCount, multiProcessorCount, 388),
    RUN(integrated, canMapHostMemory, 396),
    RUN(maxTexture1D, maxTexture1DMipmap, 408),
    RUN(maxTexture2D, unifiedAddressing, 420),
    RUN(memoryBusWidth, localL1CacheSupported, 612),
    RUN(sharedMemPerMultiprocessor, hostNativeAtomicSupported, 640),
    RUN(pageableMemoryAccess, cooperativeLaunch, 672),
    RUN(sharedMemPerBlockOptin, unifiedFunctionPointers, 696),
};
#undef RUN

/* The removed fields: where they were, and the attribute that tells them. */
static const struct {
    size_t at;
    CUdevice_attribute attr;
} rt_prop_removed[] = {
    {348, CU_DEVICE_ATTRIBUTE_CLOCK_RATE},
    {384, CU_DEVICE_ATTRIBUTE_GPU_OVERLAP},
    {392, CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT},
    {404, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE},
    {416, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH},
    {608, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE},
    {668, CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO},
    {692, CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH},
};

/* The size of the structure in CUDA 12, and in the older form that the plain name fills. */
#define RT_PROP12_BYTES 1032
#define RT_PROP11_BYTES 728

static void rt_old_properties(unsigned char *out, size_t bytes, const struct cudaDeviceProp *p,
                              int device)
{
    unsigned char wide[RT_PROP12_BYTES] = {0};
    for (size_t i = 0; i < sizeof rt_prop_runs / sizeof rt_prop_runs[0]; i++) {
        const struct rt_prop_run *r = &rt_prop_runs[i];
        memcpy(wide + r->to, (const unsigned char *)p + r->from, r->end - r->from);
    }
    for (size_t i = 0; i < sizeof rt_prop_removed / sizeof rt_prop_removed[0]; i++) {
        int value = 0;
        if (rt_drv[0].cuDeviceGetAttribute(&value, rt_prop_removed[i].attr, device) == CUDA_SUCCESS)
            memcpy(wide + rt_prop_removed[i].at, &value, sizeof value);
    }
    memcpy(out, wide, bytes);
}

static cudaError_t rt_properties_as(void *prop, size_t bytes, int device)
{
    struct cudaDeviceProp p;
    if (!prop)
        return cudaErrorInvalidValue;
    cudaError_t e = rt_device_properties(&p, device);
    if (e == cudaSuccess)
        rt_old_properties(prop, bytes, &p, device);
    return e;
}

cudaError_t CUDARTAPI cudaGetDeviceProperties_v2(struct cudaDeviceProp *prop, int device)
{
    return rt_last(rt_properties_as(prop, RT_PROP12_BYTES, device));
}

cudaError_t CUDARTAPI cudaGetDeviceProperties(void *prop, int device);
cudaError_t CUDARTAPI cudaGetDeviceProperties(void *prop, int device)
{
    return rt_last(rt_properties_as(prop, RT_PROP11_BYTES, device));
}

/* ---- events and managed memory ------------------------------------------------------------------------*/

cudaError_t CUDARTAPI cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end);
cudaError_t CUDARTAPI cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    RT_RUN(ms ? rt_error(rt_drv[0].cuEventElapsedTime(ms, start, end)) : cudaErrorInvalidValue);
}

/* CUDA 12 named a device, or the host by its device number -1. */
static CUmemLocation rt_device_location(int device)
{
    CUmemLocation l;
    memset(&l, 0, sizeof l);
    l.type = device == cudaCpuDeviceId ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
    l.id = device == cudaCpuDeviceId ? 0 : device;
    return l;
}

cudaError_t CUDARTAPI cudaMemAdvise(const void *devPtr, size_t count, enum cudaMemoryAdvise advice,
                                    int device);
cudaError_t CUDARTAPI cudaMemAdvise(const void *devPtr, size_t count, enum cudaMemoryAdvise advice,
                                    int device)
{
    RT_RUN(rt_error(rt_drv[0].cuMemAdvise(rt_ptr(devPtr), count, (CUmem_advise)advice,
                                          rt_device_location(device))));
}

static cudaError_t rt_prefetch_to(const struct rt_driver *d, const void *ptr, size_t count,
                                  int device, CUstream stream)
{
    return rt_error(
        d->cuMemPrefetchAsync(rt_ptr(ptr), count, rt_device_location(device), 0, stream));
}

cudaError_t CUDARTAPI cudaMemPrefetchAsync(const void *devPtr, size_t count, int dstDevice,
                                           cudaStream_t stream);
RT_TWINS(cudaMemPrefetchAsync, _ptsz, rt_prefetch_to,
         (const void *devPtr, size_t count, int dstDevice, cudaStream_t stream), devPtr, count,
         dstDevice, stream)

/* ---- capture ------------------------------------------------------------------------------------------*/

static cudaError_t rt_capture_state(const struct rt_driver *d, CUstream stream,
                                    enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                    CUgraph *graph, const CUgraphNode **nodes, size_t *n)
{
    CUstreamCaptureStatus s = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t number = 0;
    if (!status)
        return cudaErrorInvalidValue;
    CUresult r = d->cuStreamGetCaptureInfo(stream, &s, &number, graph, nodes, NULL, n);
    if (r == CUDA_SUCCESS) {
        *status = (enum cudaStreamCaptureStatus)s;
        if (id)
            *id = number;
    }
    return rt_error(r);
}

static cudaError_t rt_update_nodes(const struct rt_driver *d, CUstream stream, CUgraphNode *nodes,
                                   size_t n, unsigned flags)
{
    return rt_error(d->cuStreamUpdateCaptureDependencies(stream, nodes, NULL, n, flags));
}

cudaError_t CUDARTAPI cudaStreamGetCaptureInfo(cudaStream_t stream,
                                               enum cudaStreamCaptureStatus *status,
                                               unsigned long long *id);
RT_TWINS(cudaStreamGetCaptureInfo, _ptsz, rt_capture_state,
         (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id),
         stream, status, id, NULL, NULL, NULL)

cudaError_t CUDARTAPI cudaStreamGetCaptureInfo_v2(cudaStream_t stream,
                                                  enum cudaStreamCaptureStatus *status,
                                                  unsigned long long *id, cudaGraph_t *graph,
                                                  const cudaGraphNode_t **nodes, size_t *n);
RT_TWINS(cudaStreamGetCaptureInfo_v2, _ptsz, rt_capture_state,
         (cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
          cudaGraph_t *graph, const cudaGraphNode_t **nodes, size_t *n),
         stream, status, id, graph, nodes, n)

cudaError_t CUDARTAPI cudaStreamUpdateCaptureDependencies(cudaStream_t stream,
                                                          cudaGraphNode_t *nodes, size_t n,
                                                          unsigned int flags);
RT_TWINS(cudaStreamUpdateCaptureDependencies, _ptsz, rt_update_nodes,
         (cudaStream_t stream, cudaGraphNode_t *nodes, size_t n, unsigned int flags), stream, nodes,
         n, flags)

/* ---- graphs without edge data ---------------------------------------------------------------------------*/

cudaError_t CUDARTAPI cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from,
                                        cudaGraphNode_t *to, size_t *numEdges);
cudaError_t CUDARTAPI cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from,
                                        cudaGraphNode_t *to, size_t *numEdges)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphGetEdges(graph, from, to, NULL, numEdges)));
}

cudaError_t CUDARTAPI cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *nodes,
                                                   size_t *n);
cudaError_t CUDARTAPI cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *nodes,
                                                   size_t *n)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphNodeGetDependencies(node, nodes, NULL, n)));
}

cudaError_t CUDARTAPI cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t *nodes,
                                                     size_t *n);
cudaError_t CUDARTAPI cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t *nodes,
                                                     size_t *n)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphNodeGetDependentNodes(node, nodes, NULL, n)));
}

cudaError_t CUDARTAPI cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                               const cudaGraphNode_t *to, size_t n);
cudaError_t CUDARTAPI cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                               const cudaGraphNode_t *to, size_t n)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphAddDependencies(graph, from, to, NULL, n)));
}

cudaError_t CUDARTAPI cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                                  const cudaGraphNode_t *to, size_t n);
cudaError_t CUDARTAPI cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                                  const cudaGraphNode_t *to, size_t n)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphRemoveDependencies(graph, from, to, NULL, n)));
}

/* ---- names of the time before cudaDevice... ---------------------------------------------------------------*/

cudaError_t CUDARTAPI cudaThreadSynchronize(void);
cudaError_t CUDARTAPI cudaThreadSynchronize(void)
{
    RT_RUN(rt_error(rt_drv[0].cuCtxSynchronize()));
}
