/* graph.c: graphs built node by node, instantiated, updated and launched. */
#include "rt.h"

#include <string.h>

cudaError_t CUDARTAPI cudaGraphCreate(cudaGraph_t *pGraph, unsigned int flags)
{
    RT_RUN(pGraph ? rt_error(rt_drv[0].cuGraphCreate(pGraph, flags)) : cudaErrorInvalidValue);
}

cudaError_t CUDARTAPI cudaGraphDestroy(cudaGraph_t graph)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphDestroy(graph)));
}

cudaError_t CUDARTAPI cudaGraphClone(cudaGraph_t *pGraphClone, cudaGraph_t originalGraph)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphClone(pGraphClone, originalGraph)));
}

cudaError_t CUDARTAPI cudaGraphNodeFindInClone(cudaGraphNode_t *pNode, cudaGraphNode_t originalNode,
                                               cudaGraph_t clonedGraph)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphNodeFindInClone(pNode, originalNode, clonedGraph)));
}

/* ---- kernel nodes ---------------------------------------------------------------------------------*/

static cudaError_t rt_kernel_params(CUDA_KERNEL_NODE_PARAMS *out,
                                    const struct cudaKernelNodeParams *in)
{
    memset(out, 0, sizeof *out);
    if (!in)
        return cudaErrorInvalidValue;
    cudaError_t e = rt_function(in->func, &out->func);
    if (e != cudaSuccess)
        return e;
    out->gridDimX = in->gridDim.x, out->gridDimY = in->gridDim.y, out->gridDimZ = in->gridDim.z;
    out->blockDimX = in->blockDim.x, out->blockDimY = in->blockDim.y;
    out->blockDimZ = in->blockDim.z;
    out->sharedMemBytes = in->sharedMemBytes;
    out->kernelParams = in->kernelParams;
    out->extra = in->extra;
    return cudaSuccess;
}

static cudaError_t rt_add_kernel(cudaGraphNode_t *node, cudaGraph_t graph,
                                 const cudaGraphNode_t *deps, size_t ndeps,
                                 const struct cudaKernelNodeParams *params)
{
    CUDA_KERNEL_NODE_PARAMS p;
    cudaError_t e = rt_kernel_params(&p, params);
    return e != cudaSuccess ? e
                            : rt_error(rt_drv[0].cuGraphAddKernelNode(node, graph, deps, ndeps, &p));
}

static cudaError_t rt_get_kernel_node(cudaGraphNode_t node, struct cudaKernelNodeParams *out)
{
    CUDA_KERNEL_NODE_PARAMS p;
    memset(&p, 0, sizeof p);
    if (!out)
        return cudaErrorInvalidValue;
    CUresult r = rt_drv[0].cuGraphKernelNodeGetParams(node, &p);
    if (r != CUDA_SUCCESS)
        return rt_error(r);
    const void *name = p.func ? rt_function_name(p.func) : (const void *)p.kern;
    struct cudaKernelNodeParams q = {
        .func = (void *)(uintptr_t)name,
        .gridDim = {p.gridDimX, p.gridDimY, p.gridDimZ},
        .blockDim = {p.blockDimX, p.blockDimY, p.blockDimZ},
        .sharedMemBytes = p.sharedMemBytes,
        .kernelParams = p.kernelParams,
        .extra = p.extra,
    };
    *out = q;
    return cudaSuccess;
}

static cudaError_t rt_set_kernel_node(cudaGraphExec_t exec, cudaGraphNode_t node,
                                      const struct cudaKernelNodeParams *params)
{
    CUDA_KERNEL_NODE_PARAMS p;
    cudaError_t e = rt_kernel_params(&p, params);
    if (e != cudaSuccess)
        return e;
    return rt_error(exec ? rt_drv[0].cuGraphExecKernelNodeSetParams(exec, node, &p)
                         : rt_drv[0].cuGraphKernelNodeSetParams(node, &p));
}

cudaError_t CUDARTAPI cudaGraphAddKernelNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                             const cudaGraphNode_t *pDependencies,
                                             size_t numDependencies,
                                             const struct cudaKernelNodeParams *pNodeParams)
{
    RT_RUN(rt_add_kernel(pGraphNode, graph, pDependencies, numDependencies, pNodeParams));
}

cudaError_t CUDARTAPI cudaGraphKernelNodeGetParams(cudaGraphNode_t node,
                                                   struct cudaKernelNodeParams *pNodeParams)
{
    RT_RUN(rt_get_kernel_node(node, pNodeParams));
}

cudaError_t CUDARTAPI cudaGraphKernelNodeSetParams(cudaGraphNode_t node,
                                                   const struct cudaKernelNodeParams *pNodeParams)
{
    RT_RUN(rt_set_kernel_node(NULL, node, pNodeParams));
}

cudaError_t CUDARTAPI cudaGraphExecKernelNodeSetParams(
    cudaGraphExec_t hGraphExec, cudaGraphNode_t node, const struct cudaKernelNodeParams *pNodeParams)
{
    RT_RUN(hGraphExec ? rt_set_kernel_node(hGraphExec, node, pNodeParams) : cudaErrorInvalidValue);
}

/* ---- copy nodes -------------------------------------------------------------------------------------*/

/* A plain copy of `count` bytes as a one-row 3D copy. */
static struct cudaMemcpy3DParms rt_copy_1d(void *dst, const void *src, size_t count,
                                           enum cudaMemcpyKind kind)
{
    struct cudaMemcpy3DParms p;
    memset(&p, 0, sizeof p);
    p.srcPtr = (struct cudaPitchedPtr){(void *)(uintptr_t)src, count, count, 1};
    p.dstPtr = (struct cudaPitchedPtr){dst, count, count, 1};
    p.extent = (struct cudaExtent){count, 1, 1};
    p.kind = kind;
    return p;
}

static cudaError_t rt_add_copy(cudaGraphNode_t *node, cudaGraph_t graph,
                               const cudaGraphNode_t *deps, size_t ndeps,
                               const struct cudaMemcpy3DParms *params)
{
    CUDA_MEMCPY3D c;
    cudaError_t e = rt_copy_3d(&c, params);
    if (e != cudaSuccess)
        return e;
    return rt_error(rt_drv[0].cuGraphAddMemcpyNode(node, graph, deps, ndeps, &c,
                                                   rt_entered_context()));
}

static cudaError_t rt_set_copy(cudaGraphExec_t exec, cudaGraphNode_t node,
                               const struct cudaMemcpy3DParms *params)
{
    CUDA_MEMCPY3D c;
    cudaError_t e = rt_copy_3d(&c, params);
    if (e != cudaSuccess)
        return e;
    return rt_error(exec ? rt_drv[0].cuGraphExecMemcpyNodeSetParams(exec, node, &c,
                                                                    rt_entered_context())
                         : rt_drv[0].cuGraphMemcpyNodeSetParams(node, &c));
}

static enum cudaMemcpyKind rt_kind_of(CUmemorytype dst, CUmemorytype src)
{
    if (dst == CU_MEMORYTYPE_UNIFIED || src == CU_MEMORYTYPE_UNIFIED)
        return cudaMemcpyDefault;
    if (src == CU_MEMORYTYPE_HOST)
        return dst == CU_MEMORYTYPE_HOST ? cudaMemcpyHostToHost : cudaMemcpyHostToDevice;
    return dst == CU_MEMORYTYPE_HOST ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice;
}

static void *rt_end(CUmemorytype type, const void *host, CUdeviceptr device)
{
    return type == CU_MEMORYTYPE_HOST ? (void *)(uintptr_t)host : (void *)(uintptr_t)device;
}

static cudaError_t rt_get_copy(cudaGraphNode_t node, struct cudaMemcpy3DParms *out)
{
    CUDA_MEMCPY3D c;
    if (!out)
        return cudaErrorInvalidValue;
    CUresult r = rt_drv[0].cuGraphMemcpyNodeGetParams(node, &c);
    if (r != CUDA_SUCCESS)
        return rt_error(r);
    struct cudaMemcpy3DParms p;
    memset(&p, 0, sizeof p);
    p.srcPos = (struct cudaPos){c.srcXInBytes, c.srcY, c.srcZ};
    p.dstPos = (struct cudaPos){c.dstXInBytes, c.dstY, c.dstZ};
    p.srcPtr = (struct cudaPitchedPtr){rt_end(c.srcMemoryType, c.srcHost, c.srcDevice), c.srcPitch,
                                       c.srcPitch, c.srcHeight};
    p.dstPtr = (struct cudaPitchedPtr){rt_end(c.dstMemoryType, c.dstHost, c.dstDevice), c.dstPitch,
                                       c.dstPitch, c.dstHeight};
    p.extent = (struct cudaExtent){c.WidthInBytes, c.Height, c.Depth};
    p.kind = rt_kind_of(c.dstMemoryType, c.srcMemoryType);
    *out = p;
    return cudaSuccess;
}

static cudaError_t rt_add_copy_1d(cudaGraphNode_t *node, cudaGraph_t graph,
                                  const cudaGraphNode_t *deps, size_t ndeps, void *dst,
                                  const void *src, size_t count, enum cudaMemcpyKind kind)
{
    struct cudaMemcpy3DParms p = rt_copy_1d(dst, src, count, kind);
    return rt_add_copy(node, graph, deps, ndeps, &p);
}

static cudaError_t rt_set_copy_1d(cudaGraphExec_t exec, cudaGraphNode_t node, void *dst,
                                  const void *src, size_t count, enum cudaMemcpyKind kind)
{
    struct cudaMemcpy3DParms p = rt_copy_1d(dst, src, count, kind);
    return rt_set_copy(exec, node, &p);
}

cudaError_t CUDARTAPI cudaGraphAddMemcpyNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                             const cudaGraphNode_t *pDependencies,
                                             size_t numDependencies,
                                             const struct cudaMemcpy3DParms *pCopyParams)
{
    RT_RUN(rt_add_copy(pGraphNode, graph, pDependencies, numDependencies, pCopyParams));
}

cudaError_t CUDARTAPI cudaGraphAddMemcpyNode1D(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                               const cudaGraphNode_t *pDependencies,
                                               size_t numDependencies, void *dst, const void *src,
                                               size_t count, enum cudaMemcpyKind kind)
{
    RT_RUN(rt_add_copy_1d(pGraphNode, graph, pDependencies, numDependencies, dst, src, count, kind));
}

cudaError_t CUDARTAPI cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node,
                                                   struct cudaMemcpy3DParms *pNodeParams)
{
    RT_RUN(rt_get_copy(node, pNodeParams));
}

cudaError_t CUDARTAPI cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node,
                                                   const struct cudaMemcpy3DParms *pNodeParams)
{
    RT_RUN(rt_set_copy(NULL, node, pNodeParams));
}

cudaError_t CUDARTAPI cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void *dst,
                                                     const void *src, size_t count,
                                                     enum cudaMemcpyKind kind)
{
    RT_RUN(rt_set_copy_1d(NULL, node, dst, src, count, kind));
}

cudaError_t CUDARTAPI cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t hGraphExec,
                                                       cudaGraphNode_t node,
                                                       const struct cudaMemcpy3DParms *pNodeParams)
{
    RT_RUN(hGraphExec ? rt_set_copy(hGraphExec, node, pNodeParams) : cudaErrorInvalidValue);
}

cudaError_t CUDARTAPI cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t hGraphExec,
                                                         cudaGraphNode_t node, void *dst,
                                                         const void *src, size_t count,
                                                         enum cudaMemcpyKind kind)
{
    RT_RUN(hGraphExec ? rt_set_copy_1d(hGraphExec, node, dst, src, count, kind)
                      : cudaErrorInvalidValue);
}

/* ---- memset nodes -----------------------------------------------------------------------------------*/

static CUDA_MEMSET_NODE_PARAMS rt_memset_params(const struct cudaMemsetParams *in)
{
    return (CUDA_MEMSET_NODE_PARAMS){
        .dst = rt_ptr(in->dst),
        .pitch = in->pitch,
        .value = in->value,
        .elementSize = in->elementSize,
        .width = in->width,
        .height = in->height,
    };
}

static cudaError_t rt_add_memset(cudaGraphNode_t *node, cudaGraph_t graph,
                                 const cudaGraphNode_t *deps, size_t ndeps,
                                 const struct cudaMemsetParams *params)
{
    if (!params)
        return cudaErrorInvalidValue;
    CUDA_MEMSET_NODE_PARAMS p = rt_memset_params(params);
    return rt_error(rt_drv[0].cuGraphAddMemsetNode(node, graph, deps, ndeps, &p,
                                                   rt_entered_context()));
}

static cudaError_t rt_set_memset(cudaGraphExec_t exec, cudaGraphNode_t node,
                                 const struct cudaMemsetParams *params)
{
    if (!params)
        return cudaErrorInvalidValue;
    CUDA_MEMSET_NODE_PARAMS p = rt_memset_params(params);
    return rt_error(exec ? rt_drv[0].cuGraphExecMemsetNodeSetParams(exec, node, &p,
                                                                    rt_entered_context())
                         : rt_drv[0].cuGraphMemsetNodeSetParams(node, &p));
}

static cudaError_t rt_get_memset(cudaGraphNode_t node, struct cudaMemsetParams *out)
{
    CUDA_MEMSET_NODE_PARAMS p;
    if (!out)
        return cudaErrorInvalidValue;
    CUresult r = rt_drv[0].cuGraphMemsetNodeGetParams(node, &p);
    if (r == CUDA_SUCCESS)
        *out = (struct cudaMemsetParams){(void *)(uintptr_t)p.dst, p.pitch, p.value, p.elementSize,
                                         p.width, p.height};
    return rt_error(r);
}

cudaError_t CUDARTAPI cudaGraphAddMemsetNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                             const cudaGraphNode_t *pDependencies,
                                             size_t numDependencies,
                                             const struct cudaMemsetParams *pMemsetParams)
{
    RT_RUN(rt_add_memset(pGraphNode, graph, pDependencies, numDependencies, pMemsetParams));
}

cudaError_t CUDARTAPI cudaGraphMemsetNodeGetParams(cudaGraphNode_t node,
                                                   struct cudaMemsetParams *pNodeParams)
{
    RT_RUN(rt_get_memset(node, pNodeParams));
}

cudaError_t CUDARTAPI cudaGraphMemsetNodeSetParams(cudaGraphNode_t node,
                                                   const struct cudaMemsetParams *pNodeParams)
{
    RT_RUN(rt_set_memset(NULL, node, pNodeParams));
}

cudaError_t CUDARTAPI cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t hGraphExec,
                                                       cudaGraphNode_t node,
                                                       const struct cudaMemsetParams *pNodeParams)
{
    RT_RUN(hGraphExec ? rt_set_memset(hGraphExec, node, pNodeParams) : cudaErrorInvalidValue);
}

/* ---- host nodes -------------------------------------------------------------------------------------*/

static cudaError_t rt_add_host(cudaGraphNode_t *node, cudaGraph_t graph,
                               const cudaGraphNode_t *deps, size_t ndeps,
                               const struct cudaHostNodeParams *params)
{
    if (!params)
        return cudaErrorInvalidValue;
    CUDA_HOST_NODE_PARAMS p = {.fn = params->fn, .userData = params->userData};
    return rt_error(rt_drv[0].cuGraphAddHostNode(node, graph, deps, ndeps, &p));
}

static cudaError_t rt_set_host(cudaGraphExec_t exec, cudaGraphNode_t node,
                               const struct cudaHostNodeParams *params)
{
    if (!params)
        return cudaErrorInvalidValue;
    CUDA_HOST_NODE_PARAMS p = {.fn = params->fn, .userData = params->userData};
    return rt_error(exec ? rt_drv[0].cuGraphExecHostNodeSetParams(exec, node, &p)
                         : rt_drv[0].cuGraphHostNodeSetParams(node, &p));
}

static cudaError_t rt_get_host(cudaGraphNode_t node, struct cudaHostNodeParams *out)
{
    CUDA_HOST_NODE_PARAMS p;
    if (!out)
        return cudaErrorInvalidValue;
    CUresult r = rt_drv[0].cuGraphHostNodeGetParams(node, &p);
    if (r == CUDA_SUCCESS)
        *out = (struct cudaHostNodeParams){p.fn, p.userData};
    return rt_error(r);
}

cudaError_t CUDARTAPI cudaGraphAddHostNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                           const cudaGraphNode_t *pDependencies,
                                           size_t numDependencies,
                                           const struct cudaHostNodeParams *pNodeParams)
{
    RT_RUN(rt_add_host(pGraphNode, graph, pDependencies, numDependencies, pNodeParams));
}

cudaError_t CUDARTAPI cudaGraphHostNodeGetParams(cudaGraphNode_t node,
                                                 struct cudaHostNodeParams *pNodeParams)
{
    RT_RUN(rt_get_host(node, pNodeParams));
}

cudaError_t CUDARTAPI cudaGraphHostNodeSetParams(cudaGraphNode_t node,
                                                 const struct cudaHostNodeParams *pNodeParams)
{
    RT_RUN(rt_set_host(NULL, node, pNodeParams));
}

cudaError_t CUDARTAPI cudaGraphExecHostNodeSetParams(cudaGraphExec_t hGraphExec,
                                                     cudaGraphNode_t node,
                                                     const struct cudaHostNodeParams *pNodeParams)
{
    RT_RUN(hGraphExec ? rt_set_host(hGraphExec, node, pNodeParams) : cudaErrorInvalidValue);
}

/* ---- other nodes ------------------------------------------------------------------------------------*/

cudaError_t CUDARTAPI cudaGraphAddChildGraphNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                                 const cudaGraphNode_t *pDependencies,
                                                 size_t numDependencies, cudaGraph_t childGraph)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphAddChildGraphNode(pGraphNode, graph, pDependencies,
                                                       numDependencies, childGraph)));
}

cudaError_t CUDARTAPI cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t node, cudaGraph_t *pGraph)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphChildGraphNodeGetGraph(node, pGraph)));
}

cudaError_t CUDARTAPI cudaGraphAddEmptyNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                            const cudaGraphNode_t *pDependencies,
                                            size_t numDependencies)
{
    RT_RUN(rt_error(
        rt_drv[0].cuGraphAddEmptyNode(pGraphNode, graph, pDependencies, numDependencies)));
}

cudaError_t CUDARTAPI cudaGraphAddEventRecordNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                                  const cudaGraphNode_t *pDependencies,
                                                  size_t numDependencies, cudaEvent_t event)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphAddEventRecordNode(pGraphNode, graph, pDependencies,
                                                        numDependencies, event)));
}

cudaError_t CUDARTAPI cudaGraphAddEventWaitNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                                const cudaGraphNode_t *pDependencies,
                                                size_t numDependencies, cudaEvent_t event)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphAddEventWaitNode(pGraphNode, graph, pDependencies,
                                                      numDependencies, event)));
}

static cudaError_t rt_add_alloc(cudaGraphNode_t *node, cudaGraph_t graph,
                                const cudaGraphNode_t *deps, size_t ndeps,
                                struct cudaMemAllocNodeParams *params)
{
    if (!params)
        return cudaErrorInvalidValue;
    CUDA_MEM_ALLOC_NODE_PARAMS p;
    memset(&p, 0, sizeof p);
    p.poolProps.allocType = (CUmemAllocationType)params->poolProps.allocType;
    p.poolProps.handleTypes = (CUmemAllocationHandleType)params->poolProps.handleTypes;
    p.poolProps.location.type = (CUmemLocationType)params->poolProps.location.type;
    p.poolProps.location.id = params->poolProps.location.id;
    p.poolProps.maxSize = params->poolProps.maxSize;
    p.accessDescs = (const CUmemAccessDesc *)(const void *)params->accessDescs; /* same layout */
    p.accessDescCount = params->accessDescCount;
    p.bytesize = params->bytesize;
    CUresult r = rt_drv[0].cuGraphAddMemAllocNode(node, graph, deps, ndeps, &p);
    if (r == CUDA_SUCCESS)
        params->dptr = (void *)(uintptr_t)p.dptr;
    return rt_error(r);
}

cudaError_t CUDARTAPI cudaGraphAddMemAllocNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                               const cudaGraphNode_t *pDependencies,
                                               size_t numDependencies,
                                               struct cudaMemAllocNodeParams *nodeParams)
{
    RT_RUN(rt_add_alloc(pGraphNode, graph, pDependencies, numDependencies, nodeParams));
}

cudaError_t CUDARTAPI cudaGraphAddMemFreeNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                              const cudaGraphNode_t *pDependencies,
                                              size_t numDependencies, void *dptr)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphAddMemFreeNode(pGraphNode, graph, pDependencies,
                                                    numDependencies, rt_ptr(dptr))));
}

cudaError_t CUDARTAPI cudaGraphMemFreeNodeGetParams(cudaGraphNode_t node, void *dptr_out)
{
    RT_RUN(dptr_out
               ? rt_error(rt_drv[0].cuGraphMemFreeNodeGetParams(node, (CUdeviceptr *)dptr_out))
               : cudaErrorInvalidValue);
}

/* ---- structure --------------------------------------------------------------------------------------*/

static cudaError_t rt_node_type(cudaGraphNode_t node, enum cudaGraphNodeType *type)
{
    CUgraphNodeType t = CU_GRAPH_NODE_TYPE_EMPTY;
    if (!type)
        return cudaErrorInvalidValue;
    CUresult r = rt_drv[0].cuGraphNodeGetType(node, &t);
    if (r == CUDA_SUCCESS)
        *type = (enum cudaGraphNodeType)t;
    return rt_error(r);
}

cudaError_t CUDARTAPI cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *pType)
{
    RT_RUN(rt_node_type(node, pType));
}

cudaError_t CUDARTAPI cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *numNodes)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphGetNodes(graph, nodes, numNodes)));
}

cudaError_t CUDARTAPI cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t *pRootNodes,
                                            size_t *pNumRootNodes)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphGetRootNodes(graph, pRootNodes, pNumRootNodes)));
}

cudaError_t CUDARTAPI cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t *from,
                                        cudaGraphNode_t *to, cudaGraphEdgeData *edgeData,
                                        size_t *numEdges)
{
    RT_RUN(rt_error(
        rt_drv[0].cuGraphGetEdges(graph, from, to, (CUgraphEdgeData *)edgeData, numEdges)));
}

cudaError_t CUDARTAPI cudaGraphNodeGetDependencies(cudaGraphNode_t node,
                                                   cudaGraphNode_t *pDependencies,
                                                   cudaGraphEdgeData *edgeData,
                                                   size_t *pNumDependencies)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphNodeGetDependencies(
        node, pDependencies, (CUgraphEdgeData *)edgeData, pNumDependencies)));
}

cudaError_t CUDARTAPI cudaGraphNodeGetDependentNodes(cudaGraphNode_t node,
                                                     cudaGraphNode_t *pDependentNodes,
                                                     cudaGraphEdgeData *edgeData,
                                                     size_t *pNumDependentNodes)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphNodeGetDependentNodes(
        node, pDependentNodes, (CUgraphEdgeData *)edgeData, pNumDependentNodes)));
}

cudaError_t CUDARTAPI cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                               const cudaGraphNode_t *to,
                                               const cudaGraphEdgeData *edgeData,
                                               size_t numDependencies)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphAddDependencies(
        graph, from, to, (const CUgraphEdgeData *)edgeData, numDependencies)));
}

cudaError_t CUDARTAPI cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                                  const cudaGraphNode_t *to,
                                                  const cudaGraphEdgeData *edgeData,
                                                  size_t numDependencies)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphRemoveDependencies(
        graph, from, to, (const CUgraphEdgeData *)edgeData, numDependencies)));
}

cudaError_t CUDARTAPI cudaGraphDestroyNode(cudaGraphNode_t node)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphDestroyNode(node)));
}

cudaError_t CUDARTAPI cudaGraphDebugDotPrint(cudaGraph_t graph, const char *path,
                                             unsigned int flags)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphDebugDotPrint(graph, path, flags)));
}

/* ---- executable graphs --------------------------------------------------------------------------------*/

cudaError_t CUDARTAPI cudaGraphInstantiate(cudaGraphExec_t *pGraphExec, cudaGraph_t graph,
                                           unsigned long long flags)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphInstantiateWithFlags(pGraphExec, graph, flags)));
}

cudaError_t CUDARTAPI cudaGraphInstantiateWithFlags(cudaGraphExec_t *pGraphExec, cudaGraph_t graph,
                                                    unsigned long long flags)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphInstantiateWithFlags(pGraphExec, graph, flags)));
}

static cudaError_t rt_instantiate(const struct rt_driver *d, cudaGraphExec_t *exec,
                                  cudaGraph_t graph, cudaGraphInstantiateParams *params)
{
    if (!params)
        return cudaErrorInvalidValue;
    CUDA_GRAPH_INSTANTIATE_PARAMS p;
    memset(&p, 0, sizeof p);
    p.flags = params->flags;
    p.hUploadStream = params->uploadStream;
    CUresult r = d->cuGraphInstantiateWithParams(exec, graph, &p);
    params->errNode_out = p.hErrNode_out;
    params->result_out = (cudaGraphInstantiateResult)p.result_out;
    return rt_error(r);
}

static cudaError_t rt_graph_launch(const struct rt_driver *d, cudaGraphExec_t exec, CUstream stream)
{
    return rt_error(d->cuGraphLaunch(exec, stream));
}

static cudaError_t rt_graph_upload(const struct rt_driver *d, cudaGraphExec_t exec, CUstream stream)
{
    return rt_error(d->cuGraphUpload(exec, stream));
}

RT_TWINS(cudaGraphInstantiateWithParams, _ptsz, rt_instantiate,
         (cudaGraphExec_t *pGraphExec, cudaGraph_t graph,
          cudaGraphInstantiateParams *instantiateParams),
         pGraphExec, graph, instantiateParams)
RT_TWINS(cudaGraphLaunch, _ptsz, rt_graph_launch, (cudaGraphExec_t graphExec, cudaStream_t stream),
         graphExec, stream)
RT_TWINS(cudaGraphUpload, _ptsz, rt_graph_upload, (cudaGraphExec_t graphExec, cudaStream_t stream),
         graphExec, stream)

static cudaError_t rt_exec_flags(cudaGraphExec_t exec, unsigned long long *flags)
{
    cuuint64_t f = 0;
    if (!flags)
        return cudaErrorInvalidValue;
    CUresult r = rt_drv[0].cuGraphExecGetFlags(exec, &f);
    if (r == CUDA_SUCCESS)
        *flags = f;
    return rt_error(r);
}

cudaError_t CUDARTAPI cudaGraphExecGetFlags(cudaGraphExec_t graphExec, unsigned long long *flags)
{
    RT_RUN(rt_exec_flags(graphExec, flags));
}

static cudaError_t rt_exec_update(cudaGraphExec_t exec, cudaGraph_t graph,
                                  cudaGraphExecUpdateResultInfo *info)
{
    CUgraphExecUpdateResultInfo i;
    memset(&i, 0, sizeof i);
    if (!info)
        return cudaErrorInvalidValue;
    CUresult r = rt_drv[0].cuGraphExecUpdate(exec, graph, &i);
    info->result = (enum cudaGraphExecUpdateResult)i.result;
    info->errorNode = i.errorNode;
    info->errorFromNode = i.errorFromNode;
    return rt_error(r);
}

cudaError_t CUDARTAPI cudaGraphExecUpdate(cudaGraphExec_t hGraphExec, cudaGraph_t hGraph,
                                          cudaGraphExecUpdateResultInfo *resultInfo)
{
    RT_RUN(rt_exec_update(hGraphExec, hGraph, resultInfo));
}

cudaError_t CUDARTAPI cudaGraphExecDestroy(cudaGraphExec_t graphExec)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphExecDestroy(graphExec)));
}

cudaError_t CUDARTAPI cudaGraphNodeSetEnabled(cudaGraphExec_t hGraphExec, cudaGraphNode_t hNode,
                                              unsigned int isEnabled)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphNodeSetEnabled(hGraphExec, hNode, isEnabled)));
}

cudaError_t CUDARTAPI cudaGraphNodeGetEnabled(cudaGraphExec_t hGraphExec, cudaGraphNode_t hNode,
                                              unsigned int *isEnabled)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphNodeGetEnabled(hGraphExec, hNode, isEnabled)));
}

/* ---- user objects -------------------------------------------------------------------------------------*/

cudaError_t CUDARTAPI cudaUserObjectCreate(cudaUserObject_t *object_out, void *ptr,
                                           cudaHostFn_t destroy, unsigned int initialRefcount,
                                           unsigned int flags)
{
    RT_RUN(rt_error(rt_drv[0].cuUserObjectCreate(object_out, ptr, destroy, initialRefcount, flags)));
}

cudaError_t CUDARTAPI cudaUserObjectRetain(cudaUserObject_t object, unsigned int count)
{
    RT_RUN(rt_error(rt_drv[0].cuUserObjectRetain(object, count)));
}

cudaError_t CUDARTAPI cudaUserObjectRelease(cudaUserObject_t object, unsigned int count)
{
    RT_RUN(rt_error(rt_drv[0].cuUserObjectRelease(object, count)));
}

cudaError_t CUDARTAPI cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                                unsigned int count, unsigned int flags)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphRetainUserObject(graph, object, count, flags)));
}

cudaError_t CUDARTAPI cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                                 unsigned int count)
{
    RT_RUN(rt_error(rt_drv[0].cuGraphReleaseUserObject(graph, object, count)));
}
