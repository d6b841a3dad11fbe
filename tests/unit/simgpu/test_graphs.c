/* Stream capture and graphs. */
#include "gpu.h"

#include <stdio.h>

#define F "SIMGPU_MODE", "functional"

static unsigned word(CUdeviceptr p)
{
    unsigned v;
    OK(cuMemcpyDtoH(&v, p, 4));
    return v;
}

static CUgraph captured(const struct gpu *g, CUstream s, CUdeviceptr a)
{
    CUgraph graph;
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemsetD32Async(a, 5, 1, s));
    gpu_add(g, a, 2, 1, s);
    OK(cuStreamEndCapture(s, &graph));
    return graph;
}

Test(capture, nothing_runs_until_launch)
{
    struct gpu g = START(F);
    CUstream s;
    CUdeviceptr a;
    CUgraphExec e;
    size_t n = 0;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&a, 4));
    OK(cuMemsetD32(a, 1, 1));
    CUgraph graph = captured(&g, s, a);
    cr_assert_eq(word(a), 1);
    OK(cuGraphGetNodes(graph, NULL, &n));
    cr_assert_eq(n, 2);
    CUgraphNode node[2];
    CUgraphNodeType type;
    OK(cuGraphGetNodes(graph, node, &n));
    OK(cuGraphNodeGetType(node[1], &type));
    cr_assert_eq(type, CU_GRAPH_NODE_TYPE_KERNEL);
    CUDA_KERNEL_NODE_PARAMS p;
    OK(cuGraphKernelNodeGetParams(node[1], &p));
    cr_assert_eq(*(CUdeviceptr *)p.kernelParams[0], a);
    OK(cuGraphInstantiateWithFlags(&e, graph, 0));
    OK(cuGraphDestroy(graph)); /* the executable one stands alone */
    OK(cuGraphLaunch(e, s));
    OK(cuGraphLaunch(e, s));
    OK(cuStreamSynchronize(s));
    cr_assert_eq(word(a), 7);
    OK(cuGraphExecDestroy(e));
}

Test(capture, forks_and_joins_through_events)
{
    struct gpu g = START(F, "SIMGPU_RACECHECK", "1");
    CUstream s, t;
    CUevent fork_event, join;
    CUdeviceptr a, b;
    CUgraph graph;
    CUgraphExec x;
    size_t edges = 0;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&fork_event, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&a, 4));
    OK(cuMemAlloc(&b, 4));
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(cuMemsetD32Async(a, 1, 1, s));
    OK(cuEventRecord(fork_event, s));
    OK(cuStreamWaitEvent(t, fork_event, 0));
    gpu_move(&g, b, a, 1, t);
    OK(cuEventRecord(join, t));
    FAILS(cuEventQuery(join), CUDA_ERROR_CAPTURED_EVENT);
    OK(cuStreamWaitEvent(s, join, 0));
    gpu_add(&g, b, 10, 1, s);
    OK(cuStreamEndCapture(s, &graph));
    OK(cuGraphGetEdges(graph, NULL, NULL, NULL, &edges));
    cr_assert_eq(edges, 3); /* memset-move, memset-add, move-add */
    OK(cuGraphInstantiateWithFlags(&x, graph, 0));
    OK(cuGraphLaunch(x, s));
    OK(cuStreamSynchronize(s));
    cr_assert_eq(word(b), 11);
}

Test(capture, what_is_not_joined_or_not_allowed)
{
    struct gpu g = START(F);
    CUstream s, t;
    CUevent e;
    CUdeviceptr a, b;
    CUgraph graph;
    CUstreamCaptureStatus st;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&a, 4));
    /* work of another stream is left hanging */
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuEventRecord(e, s));
    OK(cuStreamWaitEvent(t, e, 0));
    gpu_add(&g, a, 1, 1, t);
    FAILS(cuStreamEndCapture(t, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    FAILS(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    /* an allocation during a global capture invalidates it */
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    FAILS(cuMemAlloc(&b, 4), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    OK(cuStreamIsCapturing(s, &st));
    cr_assert_eq(st, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    FAILS(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    /* ... unless the thread says that it knows what it does */
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    OK(cuMemAlloc(&b, 4));
    OK(cuThreadExchangeStreamCaptureMode(&mode));
    cr_assert_eq(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    OK(cuStreamEndCapture(s, &graph));
    OK(cuGraphDestroy(graph));
    /* waiting for the captured stream, or for work outside */
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    FAILS(cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    FAILS(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(cuEventRecord(e, t));
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
    FAILS(cuStreamWaitEvent(s, e, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    FAILS(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    FAILS(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_RELAXED),
          CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

Test(capture, allocations_become_nodes)
{
    struct gpu g = START(F);
    CUstream s;
    CUdeviceptr a, out;
    CUgraph graph;
    CUgraphExec x;
    cuuint64_t used;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&out, 4));
    OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(cuMemAllocAsync(&a, 4096, s));
    OK(cuMemsetD32Async(a, 3, 1, s));
    gpu_move(&g, out, a, 1, s);
    OK(cuMemFreeAsync(a, s));
    OK(cuStreamEndCapture(s, &graph));
    OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
    cr_assert_gt(used, 0);
    OK(cuGraphInstantiateWithFlags(&x, graph, 0));
    OK(cuGraphDestroy(graph));
    OK(cuGraphLaunch(x, s));
    OK(cuStreamSynchronize(s));
    cr_assert_eq(word(out), 3);
    OK(cuGraphExecDestroy(x));
    OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
    cr_assert_eq(used, 0);
}

Test(graph, built_by_hand_updated_and_disabled)
{
    struct gpu g = START(F);
    CUstream s;
    CUdeviceptr a;
    CUgraph graph;
    CUgraphNode first, second, child_node;
    CUgraphExec x;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&a, 4));
    OK(cuGraphCreate(&graph, 0));
    CUDA_MEMSET_NODE_PARAMS set = {.dst = a, .elementSize = 4, .value = 1, .width = 1, .height = 1};
    OK(cuGraphAddMemsetNode(&first, graph, NULL, 0, &set, g.ctx));
    CUdeviceptr src = 0;
    unsigned value = 10, n = 1;
    double ns = 0;
    void *args[] = {&a, &src, &value, &n, &ns};
    CUDA_KERNEL_NODE_PARAMS k = {.func = g.fn[K_ADD],
                                 .gridDimX = 1,
                                 .gridDimY = 1,
                                 .gridDimZ = 1,
                                 .blockDimX = 1,
                                 .blockDimY = 1,
                                 .blockDimZ = 1,
                                 .kernelParams = args};
    OK(cuGraphAddKernelNode(&second, graph, &first, 1, &k));
    FAILS(cuGraphAddDependencies(graph, &second, &first, NULL, 1),
          CUDA_ERROR_INVALID_VALUE); /* cycle */
    CUgraph child;
    CUgraphNode inner;
    OK(cuGraphCreate(&child, 0));
    OK(cuGraphAddKernelNode(&inner, child, NULL, 0, &k));
    OK(cuGraphAddChildGraphNode(&child_node, graph, &second, 1, child));
    OK(cuGraphInstantiateWithFlags(&x, graph, 0));
    OK(cuGraphLaunch(x, s));
    OK(cuStreamSynchronize(s));
    cr_assert_eq(word(a), 21);
    value = 100;
    OK(cuGraphExecKernelNodeSetParams(x, second, &k));
    OK(cuGraphLaunch(x, s));
    OK(cuStreamSynchronize(s));
    cr_assert_eq(word(a), 111);
    OK(cuGraphNodeSetEnabled(x, second, 0));
    OK(cuGraphLaunch(x, s));
    OK(cuStreamSynchronize(s));
    cr_assert_eq(word(a), 11);
    CUgraphExecUpdateResultInfo info;
    OK(cuGraphKernelNodeSetParams(second, &k));
    OK(cuGraphExecUpdate(x, graph, &info));
    OK(cuGraphLaunch(x, s));
    OK(cuStreamSynchronize(s));
    cr_assert_eq(word(a), 111);
    CUgraphNode extra;
    OK(cuGraphAddEmptyNode(&extra, graph, NULL, 0));
    FAILS(cuGraphExecUpdate(x, graph, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    cr_assert_eq(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
}

/* Two branches of one graph write the same word: there is no edge between them. */
static int with_edge;
static void branches(void)
{
    struct gpu g = START("SIMGPU_RACECHECK", "1", F);
    CUdeviceptr a;
    CUgraph graph;
    CUgraphNode n[2];
    CUgraphExec x;
    OK(cuMemAlloc(&a, 4));
    OK(cuGraphCreate(&graph, 0));
    CUDA_MEMSET_NODE_PARAMS set = {.dst = a, .elementSize = 4, .value = 1, .width = 1, .height = 1};
    OK(cuGraphAddMemsetNode(&n[0], graph, NULL, 0, &set, g.ctx));
    OK(cuGraphAddMemsetNode(&n[1], graph, NULL, 0, &set, g.ctx));
    if (with_edge)
        OK(cuGraphAddDependencies(graph, &n[0], &n[1], NULL, 1));
    OK(cuGraphInstantiateWithFlags(&x, graph, 0));
    OK(cuGraphLaunch(x, NULL));
    OK(cuGraphLaunch(x, NULL));
    OK(cuCtxSynchronize());
}
Test(graph, branches_race)
{
    int status;
    with_edge = 0;
    const char *text = gpu_stderr_of(branches, &status);
    cr_assert(status == 0 && strstr(text, "race: write by memset"), "%s", text);
    with_edge = 1;
    text = gpu_stderr_of(branches, &status);
    cr_assert(status == 0 && !*text, "%s", text);
}

static int destroyed;
static void destroy(void *data)
{
    destroyed += *(int *)data;
}
Test(graph, user_objects_go_with_the_last_graph)
{
    START(F);
    CUgraph a, b;
    CUuserObject o;
    int five = 5;
    OK(cuGraphCreate(&a, 0));
    OK(cuGraphCreate(&b, 0));
    OK(cuUserObjectCreate(&o, &five, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(cuGraphRetainUserObject(a, o, 1, 0));
    OK(cuGraphRetainUserObject(b, o, 1, CU_GRAPH_USER_OBJECT_MOVE));
    OK(cuGraphDestroy(a));
    cr_assert_eq(destroyed, 0);
    OK(cuGraphDestroy(b));
    cr_assert_eq(destroyed, 5);
}
