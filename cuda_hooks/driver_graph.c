/* Graphs: which blocks they name, and their launches.
 *
 * A replay touches memory that no launch call names, so every block that a node names is told to
 * the runtime before the graph can run: when a node is added, when the graph becomes executable
 * (this finds cloned, captured and child nodes), and when an executable is changed. */
#include "door.h"
#include "function.h"

#include <stdlib.h>

#include "copy.h"

/* ---- what a node names ------------------------------------------------------------------------*/

/* Without a graph (a change to an executable) the block is pinned instead. */
static void name_address(void *graph, CUdeviceptr p)
{
    if (!vm_copy_ours(p))
        return;
    if (graph)
        vm_rt_graph_names(graph, p);
    else
        vm_rt_pin(p);
}

static void name_kernel(CUgraph graph, CUfunction f, CUkernel kernel, void **params, void **extra)
{
    vm_function_words(f ? f : (CUfunction)kernel, params, extra, name_address, graph);
}

static void name_memcpy(CUgraph graph, const CUDA_MEMCPY3D *c)
{
    if (c->srcMemoryType == CU_MEMORYTYPE_DEVICE || c->srcMemoryType == CU_MEMORYTYPE_UNIFIED)
        name_address(graph, c->srcDevice);
    if (c->dstMemoryType == CU_MEMORYTYPE_DEVICE || c->dstMemoryType == CU_MEMORYTYPE_UNIFIED)
        name_address(graph, c->dstDevice);
}

static void name_batch(CUgraph graph, const CUstreamBatchMemOpParams *ops, unsigned count)
{
    for (unsigned i = 0; ops && i < count; i++)
        if (ops[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
            ops[i].operation == CU_STREAM_MEM_OP_WAIT_VALUE_64)
            name_address(graph, ops[i].waitValue.address);
        else if (ops[i].operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
                 ops[i].operation == CU_STREAM_MEM_OP_WRITE_VALUE_64)
            name_address(graph, ops[i].writeValue.address);
}

static void name_params(CUgraph graph, const CUgraphNodeParams *p)
{
    switch ((int)p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        name_kernel(graph, p->kernel.func, p->kernel.kern, p->kernel.kernelParams, p->kernel.extra);
        break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        name_memcpy(graph, &p->memcpy.copyParams);
        break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        name_address(graph, p->memset.dst);
        break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        name_batch(graph, p->memOp.paramArray, p->memOp.count);
        break;
    default:
        break;
    }
}

static void name_graph(CUgraph graph, CUgraph nodes_of, int depth);

static void name_node(CUgraph graph, CUgraphNode node, int depth)
{
    CUgraphNodeType type;
    CUDA_KERNEL_NODE_PARAMS kernel;
    CUDA_MEMCPY3D copy;
    CUDA_MEMSET_NODE_PARAMS fill;
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch;
    CUgraph child;
    if (vm_uses.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
        return;
    switch ((int)type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        if (vm_uses.cuGraphKernelNodeGetParams_v2 &&
            vm_uses.cuGraphKernelNodeGetParams_v2(node, &kernel) == CUDA_SUCCESS)
            name_kernel(graph, kernel.func, kernel.kern, kernel.kernelParams, kernel.extra);
        break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        if (vm_uses.cuGraphMemcpyNodeGetParams &&
            vm_uses.cuGraphMemcpyNodeGetParams(node, &copy) == CUDA_SUCCESS)
            name_memcpy(graph, &copy);
        break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
        if (vm_uses.cuGraphMemsetNodeGetParams &&
            vm_uses.cuGraphMemsetNodeGetParams(node, &fill) == CUDA_SUCCESS)
            name_address(graph, fill.dst);
        break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        if (vm_uses.cuGraphBatchMemOpNodeGetParams &&
            vm_uses.cuGraphBatchMemOpNodeGetParams(node, &batch) == CUDA_SUCCESS)
            name_batch(graph, batch.paramArray, batch.count);
        break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        if (depth && vm_uses.cuGraphChildGraphNodeGetGraph &&
            vm_uses.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS)
            name_graph(graph, child, depth - 1);
        break;
    default:
        break;
    }
}

/* Everything that the nodes of `nodes_of` name is named by `graph`. */
static void name_graph(CUgraph graph, CUgraph nodes_of, int depth)
{
    size_t n = 0;
    if (!vm_uses.cuGraphGetNodes || !vm_uses.cuGraphNodeGetType ||
        vm_uses.cuGraphGetNodes(nodes_of, NULL, &n) != CUDA_SUCCESS || !n)
        return;
    CUgraphNode *nodes = malloc(n * sizeof *nodes);
    if (!nodes) {
        vm_log(NO_ROOM, "a graph");
        return;
    }
    if (vm_uses.cuGraphGetNodes(nodes_of, nodes, &n) == CUDA_SUCCESS)
        for (size_t i = 0; i < n; i++)
            name_node(graph, nodes[i], depth);
    free(nodes);
}

#define MAX_DEPTH 16 /* of graphs in graphs */

/* ---- executables ------------------------------------------------------------------------------*/

static void made_executable(CUgraphExec exec, CUgraph graph)
{
    name_graph(graph, graph, MAX_DEPTH);
    vm_rt_graph_instantiated(exec, graph);
}

#define INSTANTIATE(call)                                                                          \
    CUresult r;                                                                                    \
    VM_RETRY(r, call);                                                                             \
    if (r == CUDA_SUCCESS && phGraphExec)                                                          \
        made_executable(*phGraphExec, hGraph);                                                     \
    return r

CUresult door_cuGraphInstantiate(vm_fn_cuGraphInstantiate real, bool per_thread,
                                 CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                                 char *logBuffer, size_t bufferSize)
{
    INSTANTIATE(real(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize));
}

CUresult door_cuGraphInstantiate_v2(vm_fn_cuGraphInstantiate_v2 real, bool per_thread,
                                    CUgraphExec *phGraphExec, CUgraph hGraph,
                                    CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize)
{
    INSTANTIATE(real(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize));
}

CUresult door_cuGraphInstantiateWithFlags(vm_fn_cuGraphInstantiateWithFlags real, bool per_thread,
                                          CUgraphExec *phGraphExec, CUgraph hGraph,
                                          unsigned long long flags)
{
    INSTANTIATE(real(phGraphExec, hGraph, flags));
}

CUresult door_cuGraphInstantiateWithParams(vm_fn_cuGraphInstantiateWithParams real, bool per_thread,
                                           CUgraphExec *phGraphExec, CUgraph hGraph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    INSTANTIATE(real(phGraphExec, hGraph, instantiateParams));
}

CUresult door_cuGraphExecUpdate(vm_fn_cuGraphExecUpdate real, bool per_thread,
                                CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
                                CUgraphExecUpdateResult *updateResult_out)
{
    CUresult r = real(hGraphExec, hGraph, hErrorNode_out, updateResult_out);
    if (r == CUDA_SUCCESS)
        made_executable(hGraphExec, hGraph);
    return r;
}

CUresult door_cuGraphExecUpdate_v2(vm_fn_cuGraphExecUpdate_v2 real, bool per_thread,
                                   CUgraphExec hGraphExec, CUgraph hGraph,
                                   CUgraphExecUpdateResultInfo *resultInfo)
{
    CUresult r = real(hGraphExec, hGraph, resultInfo);
    if (r == CUDA_SUCCESS)
        made_executable(hGraphExec, hGraph);
    return r;
}

CUresult door_cuGraphDestroy(vm_fn_cuGraphDestroy real, bool per_thread, CUgraph hGraph)
{
    CUresult r = real(hGraph);
    if (r == CUDA_SUCCESS)
        vm_rt_graph_gone(hGraph);
    return r;
}

CUresult door_cuGraphExecDestroy(vm_fn_cuGraphExecDestroy real, bool per_thread,
                                 CUgraphExec hGraphExec)
{
    CUresult r = real(hGraphExec);
    if (r == CUDA_SUCCESS)
        vm_rt_graph_exec_gone(hGraphExec);
    return r;
}

CUresult door_cuGraphLaunch(vm_fn_cuGraphLaunch real, bool per_thread, CUgraphExec hGraph,
                            CUstream hStream)
{
    struct vm_op op;
    CUresult r;
    do {
        vm_op_init(&op, VM_OP_GRAPH, hStream, per_thread);
        op.host_visible = true; /* its nodes may write host memory or run host functions */
        r = vm_rt_op_before(&op);
        if (r != CUDA_SUCCESS) /* the runtime's own word, nothing to relieve */
            return r;
        r = real(hGraph, hStream);
        vm_rt_op_after(&op, r);
    } while (r == CUDA_ERROR_OUT_OF_MEMORY && vm_rt_relieve());
    return r;
}

/* ---- nodes ------------------------------------------------------------------------------------*/

CUresult door_cuGraphAddKernelNode(vm_fn_cuGraphAddKernelNode real, bool per_thread,
                                   CUgraphNode *phGraphNode, CUgraph hGraph,
                                   const CUgraphNode *dependencies, size_t numDependencies,
                                   const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    CUresult r = real(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
    if (r == CUDA_SUCCESS)
        name_kernel(hGraph, nodeParams->func, NULL, nodeParams->kernelParams, nodeParams->extra);
    return r;
}

CUresult door_cuGraphAddKernelNode_v2(vm_fn_cuGraphAddKernelNode_v2 real, bool per_thread,
                                      CUgraphNode *phGraphNode, CUgraph hGraph,
                                      const CUgraphNode *dependencies, size_t numDependencies,
                                      const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    CUresult r = real(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
    if (r == CUDA_SUCCESS)
        name_kernel(hGraph, nodeParams->func, nodeParams->kern, nodeParams->kernelParams,
                    nodeParams->extra);
    return r;
}

CUresult door_cuGraphAddMemcpyNode(vm_fn_cuGraphAddMemcpyNode real, bool per_thread,
                                   CUgraphNode *phGraphNode, CUgraph hGraph,
                                   const CUgraphNode *dependencies, size_t numDependencies,
                                   const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    CUresult r = real(phGraphNode, hGraph, dependencies, numDependencies, copyParams, ctx);
    if (r == CUDA_SUCCESS)
        name_memcpy(hGraph, copyParams);
    return r;
}

CUresult door_cuGraphAddMemsetNode(vm_fn_cuGraphAddMemsetNode real, bool per_thread,
                                   CUgraphNode *phGraphNode, CUgraph hGraph,
                                   const CUgraphNode *dependencies, size_t numDependencies,
                                   const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
    CUresult r = real(phGraphNode, hGraph, dependencies, numDependencies, memsetParams, ctx);
    if (r == CUDA_SUCCESS)
        name_address(hGraph, memsetParams->dst);
    return r;
}

CUresult door_cuGraphAddNode(vm_fn_cuGraphAddNode real, bool per_thread, CUgraphNode *phGraphNode,
                             CUgraph hGraph, const CUgraphNode *dependencies,
                             size_t numDependencies, CUgraphNodeParams *nodeParams)
{
    CUresult r;
    VM_RETRY(r, real(phGraphNode, hGraph, dependencies, numDependencies, nodeParams));
    if (r == CUDA_SUCCESS)
        name_params(hGraph, nodeParams);
    return r;
}

CUresult door_cuGraphAddNode_v2(vm_fn_cuGraphAddNode_v2 real, bool per_thread,
                                CUgraphNode *phGraphNode, CUgraph hGraph,
                                const CUgraphNode *dependencies,
                                const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                CUgraphNodeParams *nodeParams)
{
    CUresult r;
    VM_RETRY(r,
             real(phGraphNode, hGraph, dependencies, dependencyData, numDependencies, nodeParams));
    if (r == CUDA_SUCCESS)
        name_params(hGraph, nodeParams);
    return r;
}

CUresult door_cuGraphExecKernelNodeSetParams(vm_fn_cuGraphExecKernelNodeSetParams real,
                                             bool per_thread, CUgraphExec hGraphExec,
                                             CUgraphNode hNode,
                                             const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
    CUresult r = real(hGraphExec, hNode, nodeParams);
    if (r == CUDA_SUCCESS)
        name_kernel(NULL, nodeParams->func, NULL, nodeParams->kernelParams, nodeParams->extra);
    return r;
}

CUresult door_cuGraphExecKernelNodeSetParams_v2(vm_fn_cuGraphExecKernelNodeSetParams_v2 real,
                                                bool per_thread, CUgraphExec hGraphExec,
                                                CUgraphNode hNode,
                                                const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    CUresult r = real(hGraphExec, hNode, nodeParams);
    if (r == CUDA_SUCCESS)
        name_kernel(NULL, nodeParams->func, nodeParams->kern, nodeParams->kernelParams,
                    nodeParams->extra);
    return r;
}

CUresult door_cuGraphExecMemcpyNodeSetParams(vm_fn_cuGraphExecMemcpyNodeSetParams real,
                                             bool per_thread, CUgraphExec hGraphExec,
                                             CUgraphNode hNode, const CUDA_MEMCPY3D *copyParams,
                                             CUcontext ctx)
{
    CUresult r = real(hGraphExec, hNode, copyParams, ctx);
    if (r == CUDA_SUCCESS)
        name_memcpy(NULL, copyParams);
    return r;
}

CUresult door_cuGraphExecMemsetNodeSetParams(vm_fn_cuGraphExecMemsetNodeSetParams real,
                                             bool per_thread, CUgraphExec hGraphExec,
                                             CUgraphNode hNode,
                                             const CUDA_MEMSET_NODE_PARAMS *memsetParams,
                                             CUcontext ctx)
{
    CUresult r = real(hGraphExec, hNode, memsetParams, ctx);
    if (r == CUDA_SUCCESS)
        name_address(NULL, memsetParams->dst);
    return r;
}

CUresult door_cuGraphExecNodeSetParams(vm_fn_cuGraphExecNodeSetParams real, bool per_thread,
                                       CUgraphExec hGraphExec, CUgraphNode hNode,
                                       CUgraphNodeParams *nodeParams)
{
    CUresult r = real(hGraphExec, hNode, nodeParams);
    if (r == CUDA_SUCCESS)
        name_params(NULL, nodeParams);
    return r;
}
