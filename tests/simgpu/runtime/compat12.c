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

/* Fields that CUDA 13 removed; each is told by an attribute, and stands just before a field that both
 * have. The layouts are equal between two of these. */
struct rt_old_field {
    size_t before; /* offset in CUDA 13's structure of the field that follows it */
    CUdevice_attribute attr;
};
static const struct rt_old_field rt_old_fields[] = {
    {offsetof(struct cudaDeviceProp, textureAlignment), CU_DEVICE_ATTRIBUTE_CLOCK_RATE},
    {offsetof(struct cudaDeviceProp, multiProcessorCount), CU_DEVICE_ATTRIBUTE_GPU_OVERLAP},
    {offsetof(struct cudaDeviceProp, integrated), CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT},
    {offsetof(struct cudaDeviceProp, maxTexture1D), CU_DEVICE_ATTRIBUTE_COMPUTE_MODE},
    {offsetof(struct cudaDeviceProp, maxTexture2D),
     CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH},
    {offsetof(struct cudaDeviceProp, memoryBusWidth), CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE},
    {offsetof(struct cudaDeviceProp, pageableMemoryAccess),
     CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO},
    {offsetof(struct cudaDeviceProp, sharedMemPerBlockOptin),
     CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH},
};

/* The size of the structure in CUDA 12, and in the older form that the plain name fills. */
#define RT_PROP12_BYTES 1032
#define RT_PROP11_BYTES 728

/* Where size_t fields are aligned, both layouts pad; `at` follows the copy through them. */
static void rt_old_properties(unsigned char *out, size_t bytes, const struct cudaDeviceProp *p,
                              int device)
{
    unsigned char wide[RT_PROP12_BYTES + sizeof *p];
    memset(wide, 0, sizeof wide);
    size_t from = 0, at = 0;
    const size_t end = offsetof(struct cudaDeviceProp, deviceNumaConfig);
    const size_t n = sizeof rt_old_fields / sizeof rt_old_fields[0];
    for (size_t i = 0; i <= n; i++) {
        size_t stop = i < n ? rt_old_fields[i].before : end;
        /* a gap in front of an aligned field belongs to that field, not to the copy */
        size_t copied = stop - from;
        if (i < n && rt_old_fields[i].before == offsetof(struct cudaDeviceProp, textureAlignment))
            copied = offsetof(struct cudaDeviceProp, minor) + sizeof(int) - from;
        if (i < n && rt_old_fields[i].before ==
                         offsetof(struct cudaDeviceProp, sharedMemPerBlockOptin))
            copied = offsetof(struct cudaDeviceProp, cooperativeLaunch) + sizeof(int) - from;
        memcpy(wide + at, (const unsigned char *)p + from, copied);
        at += copied;
        from = stop;
        if (i == n)
            break;
        int value = 0;
        (void)rt_drv[0].cuDeviceGetAttribute(&value, rt_old_fields[i].attr, device);
        memcpy(wide + at, &value, sizeof value);
        at += sizeof value;
        if (stop == offsetof(struct cudaDeviceProp, textureAlignment) ||
            stop == offsetof(struct cudaDeviceProp, sharedMemPerBlockOptin))
            at = (at + 7) & ~(size_t)7;
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
