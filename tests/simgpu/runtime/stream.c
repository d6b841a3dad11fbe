/* stream.c: streams, events, host functions, stream capture. */
#include "rt.h"

#include <stdlib.h>

/* ---- streams --------------------------------------------------------------------------------------*/

static cudaError_t rt_stream_create(cudaStream_t *stream, unsigned flags, const int *priority)
{
    if (!stream)
        return cudaErrorInvalidValue;
    return rt_error(priority
                        ? rt_drv[0].cuStreamCreateWithPriority(stream, flags, *priority)
                        : rt_drv[0].cuStreamCreate(stream, flags));
}

cudaError_t CUDARTAPI cudaStreamCreate(cudaStream_t *pStream)
{
    RT_RUN(rt_stream_create(pStream, 0, NULL));
}

cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t *pStream, unsigned int flags)
{
    RT_RUN(rt_stream_create(pStream, flags, NULL));
}

cudaError_t CUDARTAPI cudaStreamCreateWithPriority(cudaStream_t *pStream, unsigned int flags,
                                                   int priority)
{
    RT_RUN(rt_stream_create(pStream, flags, &priority));
}

cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t stream)
{
    RT_RUN(stream ? rt_error(rt_drv[0].cuStreamDestroy(stream))
                  : cudaErrorInvalidResourceHandle);
}

static cudaError_t rt_stream_priority(const struct rt_driver *d, CUstream stream, int *priority)
{
    return priority ? rt_error(d->cuStreamGetPriority(stream, priority)) : cudaErrorInvalidValue;
}

static cudaError_t rt_stream_flags(const struct rt_driver *d, CUstream stream, unsigned *flags)
{
    return flags ? rt_error(d->cuStreamGetFlags(stream, flags)) : cudaErrorInvalidValue;
}

static cudaError_t rt_stream_id(const struct rt_driver *d, CUstream stream, unsigned long long *id)
{
    return id ? rt_error(d->cuStreamGetId(stream, id)) : cudaErrorInvalidValue;
}

static cudaError_t rt_stream_device(const struct rt_driver *d, CUstream stream, int *device)
{
    CUdevice found = 0;
    if (!device)
        return cudaErrorInvalidValue;
    CUresult r = d->cuStreamGetDevice(stream, &found);
    if (r == CUDA_SUCCESS)
        *device = found;
    return rt_error(r);
}

static cudaError_t rt_stream_wait(const struct rt_driver *d, CUstream stream, CUevent event,
                                  unsigned flags)
{
    return rt_error(d->cuStreamWaitEvent(stream, event, flags));
}

static cudaError_t rt_stream_sync(const struct rt_driver *d, CUstream stream)
{
    return rt_error(d->cuStreamSynchronize(stream));
}

static cudaError_t rt_stream_query(const struct rt_driver *d, CUstream stream)
{
    return rt_error(d->cuStreamQuery(stream));
}

static cudaError_t rt_stream_attach(const struct rt_driver *d, CUstream stream, void *ptr,
                                    size_t length, unsigned flags)
{
    return rt_error(d->cuStreamAttachMemAsync(stream, rt_ptr(ptr), length, flags));
}

static cudaError_t rt_stream_copy_attributes(const struct rt_driver *d, CUstream dst, CUstream src)
{
    return rt_error(d->cuStreamCopyAttributes(dst, src));
}

static cudaError_t rt_stream_get_attribute(const struct rt_driver *d, CUstream stream,
                                           cudaStreamAttrID attr, cudaStreamAttrValue *value)
{
    return rt_error(d->cuStreamGetAttribute(stream, (CUstreamAttrID)attr,
                                            (CUstreamAttrValue *)(void *)value));
}

static cudaError_t rt_stream_set_attribute(const struct rt_driver *d, CUstream stream,
                                           cudaStreamAttrID attr, const cudaStreamAttrValue *value)
{
    return rt_error(d->cuStreamSetAttribute(stream, (CUstreamAttrID)attr,
                                            (const CUstreamAttrValue *)(const void *)value));
}

RT_TWINS(cudaStreamGetPriority, _ptsz, rt_stream_priority, (cudaStream_t hStream, int *priority),
         hStream, priority)
RT_TWINS(cudaStreamGetFlags, _ptsz, rt_stream_flags, (cudaStream_t hStream, unsigned int *flags),
         hStream, flags)
RT_TWINS(cudaStreamGetId, _ptsz, rt_stream_id,
         (cudaStream_t hStream, unsigned long long *streamId), hStream, streamId)
RT_TWINS(cudaStreamGetDevice, _ptsz, rt_stream_device, (cudaStream_t hStream, int *device), hStream,
         device)
RT_TWINS(cudaStreamWaitEvent, _ptsz, rt_stream_wait,
         (cudaStream_t stream, cudaEvent_t event, unsigned int flags), stream, event, flags)
RT_TWINS(cudaStreamSynchronize, _ptsz, rt_stream_sync, (cudaStream_t stream), stream)
RT_TWINS(cudaStreamQuery, _ptsz, rt_stream_query, (cudaStream_t stream), stream)
RT_TWINS(cudaStreamAttachMemAsync, _ptsz, rt_stream_attach,
         (cudaStream_t stream, void *devPtr, size_t length, unsigned int flags), stream, devPtr,
         length, flags)
RT_TWINS(cudaStreamCopyAttributes, _ptsz, rt_stream_copy_attributes,
         (cudaStream_t dst, cudaStream_t src), dst, src)
RT_TWINS(cudaStreamGetAttribute, _ptsz, rt_stream_get_attribute,
         (cudaStream_t hStream, cudaStreamAttrID attr, cudaStreamAttrValue *value_out), hStream,
         attr, value_out)
RT_TWINS(cudaStreamSetAttribute, _ptsz, rt_stream_set_attribute,
         (cudaStream_t hStream, cudaStreamAttrID attr, const cudaStreamAttrValue *value), hStream,
         attr, value)

/* ---- host functions ---------------------------------------------------------------------------------*/

/* A runtime callback wants the runtime's error type: this carries it through the driver's. */
struct rt_callback {
    cudaStreamCallback_t fn;
    void *user;
};

static void CUDA_CB rt_callback_thunk(CUstream stream, CUresult status, void *data)
{
    struct rt_callback c = *(struct rt_callback *)data;
    free(data);
    c.fn(stream, rt_error(status), c.user);
}

static cudaError_t rt_stream_callback(const struct rt_driver *d, CUstream stream,
                                      cudaStreamCallback_t fn, void *user, unsigned flags)
{
    if (!fn)
        return cudaErrorInvalidValue;
    struct rt_callback *c = malloc(sizeof *c);
    if (!c)
        return cudaErrorMemoryAllocation;
    c->fn = fn;
    c->user = user;
    CUresult r = d->cuStreamAddCallback(stream, rt_callback_thunk, c, flags);
    if (r != CUDA_SUCCESS)
        free(c);
    return rt_error(r);
}

static cudaError_t rt_host_function(const struct rt_driver *d, CUstream stream, cudaHostFn_t fn,
                                    void *user)
{
    return fn ? rt_error(d->cuLaunchHostFunc(stream, fn, user)) : cudaErrorInvalidValue;
}

RT_TWINS(cudaStreamAddCallback, _ptsz, rt_stream_callback,
         (cudaStream_t stream, cudaStreamCallback_t callback, void *userData, unsigned int flags),
         stream, callback, userData, flags)
RT_TWINS(cudaLaunchHostFunc, _ptsz, rt_host_function,
         (cudaStream_t stream, cudaHostFn_t fn, void *userData), stream, fn, userData)

/* ---- capture ----------------------------------------------------------------------------------------*/

static cudaError_t rt_begin_capture(const struct rt_driver *d, CUstream stream,
                                    enum cudaStreamCaptureMode mode)
{
    return rt_error(d->cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode));
}

static cudaError_t rt_begin_capture_to(const struct rt_driver *d, CUstream stream, CUgraph graph,
                                       const CUgraphNode *dependencies,
                                       const cudaGraphEdgeData *edges, size_t n,
                                       enum cudaStreamCaptureMode mode)
{
    return rt_error(d->cuStreamBeginCaptureToGraph(stream, graph, dependencies,
                                                   (const CUgraphEdgeData *)edges, n,
                                                   (CUstreamCaptureMode)mode));
}

static cudaError_t rt_end_capture(const struct rt_driver *d, CUstream stream, CUgraph *graph)
{
    return graph ? rt_error(d->cuStreamEndCapture(stream, graph)) : cudaErrorInvalidValue;
}

static cudaError_t rt_is_capturing(const struct rt_driver *d, CUstream stream,
                                   enum cudaStreamCaptureStatus *status)
{
    CUstreamCaptureStatus s = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!status)
        return cudaErrorInvalidValue;
    CUresult r = d->cuStreamIsCapturing(stream, &s);
    if (r == CUDA_SUCCESS)
        *status = (enum cudaStreamCaptureStatus)s;
    return rt_error(r);
}

static cudaError_t rt_capture_info(const struct rt_driver *d, CUstream stream,
                                   enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                   CUgraph *graph, const CUgraphNode **dependencies,
                                   const cudaGraphEdgeData **edges, size_t *n)
{
    CUstreamCaptureStatus s = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t number = 0;
    if (!status)
        return cudaErrorInvalidValue;
    CUresult r = d->cuStreamGetCaptureInfo(stream, &s, &number, graph, dependencies,
                                           (const CUgraphEdgeData **)edges, n);
    if (r == CUDA_SUCCESS) {
        *status = (enum cudaStreamCaptureStatus)s;
        if (id)
            *id = number;
    }
    return rt_error(r);
}

static cudaError_t rt_update_capture(const struct rt_driver *d, CUstream stream, CUgraphNode *nodes,
                                     const cudaGraphEdgeData *edges, size_t n, unsigned flags)
{
    return rt_error(d->cuStreamUpdateCaptureDependencies(
        stream, nodes, (const CUgraphEdgeData *)edges, n, flags));
}

RT_TWINS(cudaStreamBeginCapture, _ptsz, rt_begin_capture,
         (cudaStream_t stream, enum cudaStreamCaptureMode mode), stream, mode)
RT_TWINS(cudaStreamBeginCaptureToGraph, _ptsz, rt_begin_capture_to,
         (cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
          const cudaGraphEdgeData *dependencyData, size_t numDependencies,
          enum cudaStreamCaptureMode mode),
         stream, graph, dependencies, dependencyData, numDependencies, mode)
RT_TWINS(cudaStreamEndCapture, _ptsz, rt_end_capture, (cudaStream_t stream, cudaGraph_t *pGraph),
         stream, pGraph)
RT_TWINS(cudaStreamIsCapturing, _ptsz, rt_is_capturing,
         (cudaStream_t stream, enum cudaStreamCaptureStatus *pCaptureStatus), stream,
         pCaptureStatus)
RT_TWINS(cudaStreamGetCaptureInfo, _ptsz, rt_capture_info,
         (cudaStream_t stream, enum cudaStreamCaptureStatus *captureStatus_out,
          unsigned long long *id_out, cudaGraph_t *graph_out,
          const cudaGraphNode_t **dependencies_out, const cudaGraphEdgeData **edgeData_out,
          size_t *numDependencies_out),
         stream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out,
         numDependencies_out)
RT_TWINS(cudaStreamUpdateCaptureDependencies, _ptsz, rt_update_capture,
         (cudaStream_t stream, cudaGraphNode_t *dependencies,
          const cudaGraphEdgeData *dependencyData, size_t numDependencies, unsigned int flags),
         stream, dependencies, dependencyData, numDependencies, flags)

cudaError_t CUDARTAPI cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    RT_RUN(mode ? rt_error(rt_drv[0].cuThreadExchangeStreamCaptureMode(
                      (CUstreamCaptureMode *)(void *)mode))
                : cudaErrorInvalidValue);
}

/* ---- events -----------------------------------------------------------------------------------------*/

cudaError_t CUDARTAPI cudaEventCreate(cudaEvent_t *event)
{
    RT_RUN(event ? rt_error(rt_drv[0].cuEventCreate(event, 0)) : cudaErrorInvalidValue);
}

cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    RT_RUN(event ? rt_error(rt_drv[0].cuEventCreate(event, flags)) : cudaErrorInvalidValue);
}

cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t event)
{
    RT_RUN(rt_error(rt_drv[0].cuEventDestroy(event)));
}

cudaError_t CUDARTAPI cudaEventQuery(cudaEvent_t event)
{
    RT_RUN(rt_error(rt_drv[0].cuEventQuery(event)));
}

cudaError_t CUDARTAPI cudaEventSynchronize(cudaEvent_t event)
{
    RT_RUN(rt_error(rt_drv[0].cuEventSynchronize(event)));
}

cudaError_t CUDARTAPI cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    RT_RUN(ms ? rt_error(rt_drv[0].cuEventElapsedTime(ms, start, end)) : cudaErrorInvalidValue);
}

static cudaError_t rt_event_record(const struct rt_driver *d, CUevent event, CUstream stream)
{
    return rt_error(d->cuEventRecord(event, stream));
}

static cudaError_t rt_event_record_flags(const struct rt_driver *d, CUevent event, CUstream stream,
                                         unsigned flags)
{
    return rt_error(d->cuEventRecordWithFlags(event, stream, flags));
}

RT_TWINS(cudaEventRecord, _ptsz, rt_event_record, (cudaEvent_t event, cudaStream_t stream), event,
         stream)
RT_TWINS(cudaEventRecordWithFlags, _ptsz, rt_event_record_flags,
         (cudaEvent_t event, cudaStream_t stream, unsigned int flags), event, stream, flags)
