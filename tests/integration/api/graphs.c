/* graphs.c: graphs by capture and by hand, launched again and again, updated, with memory nodes. */
#include "api.h"

#define WORDS 8192
#define BYTES ((size_t)WORDS * 4)

static uint32_t *host;

/* x = ramp; y = x + x; back to the host; over two streams. */
static void captured(void)
{
    cudaStream_t a, b;
    cudaEvent_t fork, join;
    cudaGraph_t g;
    cudaGraphExec_t exec;
    enum cudaStreamCaptureStatus status;
    uint32_t *x, *y, *z;
    size_t nodes = 0;
    OK(cudaStreamCreate(&a));
    OK(cudaStreamCreate(&b));
    OK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    OK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    OK(cudaMalloc((void **)&x, BYTES));
    OK(cudaMalloc((void **)&y, BYTES));
    OK(cudaMalloc((void **)&z, BYTES));
    OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
    api_scale(a, x, 2, WORDS);
    OK(cudaEventRecord(fork, a));
    OK(cudaStreamWaitEvent(b, fork, 0));
    api_add(b, y, x, x, WORDS);
    OK(cudaEventRecord(join, b));
    OK(cudaMemsetAsync(z, 0, BYTES, a));
    OK(cudaStreamWaitEvent(a, join, 0));
    OK(cudaMemcpyAsync(host, y, BYTES, cudaMemcpyDeviceToHost, a));
    OK(cudaStreamIsCapturing(a, &status));
    printf("capturing: %d\n", status == cudaStreamCaptureStatusActive);
    OK(cudaStreamEndCapture(a, &g));
    OK(cudaGraphGetNodes(g, NULL, &nodes));
    printf("nodes captured: %zu\n", nodes);
    OK(cudaGraphInstantiate(&exec, g, 0));
    OK(cudaGraphDestroy(g));
    api_ramp(a, x, 1, WORDS);
    for (int i = 0; i < 5; i++)
        OK(cudaGraphLaunch(exec, a));
    OK(cudaStreamSynchronize(a));
    printf("launched five times: %d\n", api_is(host, 64, 64, WORDS));
    /* more launches while other blocks come and go */
    for (int i = 0; i < 3; i++) {
        uint32_t *other;
        OK(cudaMalloc((void **)&other, 16 * BYTES));
        api_fill(0, other, 3, 16 * WORDS);
        api_ramp(a, x, 0, WORDS);
        OK(cudaGraphLaunch(exec, a));
        OK(cudaStreamSynchronize(a));
        OK(cudaFree(other));
    }
    printf("and among other work: %d\n", api_is(host, 0, 4, WORDS));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaEventDestroy(fork));
    OK(cudaEventDestroy(join));
    OK(cudaStreamDestroy(a));
    OK(cudaStreamDestroy(b));
    OK(cudaFree(x));
    OK(cudaFree(y));
    OK(cudaFree(z));
}

static void CUDART_CB count(void *user)
{
    ++*(int *)user;
}

static cudaGraphNode_t add_fill(cudaGraph_t g, const cudaGraphNode_t *deps, size_t n, uint32_t *dst,
                                uint32_t value)
{
    uint64_t words = WORDS;
    void *args[] = {&dst, &value, &words};
    struct cudaKernelNodeParams p = {0};
    cudaGraphNode_t node;
    p.func = (void *)(uintptr_t)api_fill_stub;
    p.gridDim = (dim3){WORDS / 256, 1, 1};
    p.blockDim = (dim3){256, 1, 1};
    p.kernelParams = args;
    OK(cudaGraphAddKernelNode(&node, g, deps, n, &p));
    return node;
}

static void by_hand(void)
{
    cudaGraph_t g;
    cudaGraphExec_t exec;
    cudaGraphNode_t set, fill, copy, call, nodes[8];
    size_t n = 8, edges = 0;
    uint32_t *x;
    int calls = 0;
    OK(cudaMalloc((void **)&x, BYTES));
    OK(cudaGraphCreate(&g, 0));
    struct cudaMemsetParams m = {0};
    m.dst = x, m.value = 0, m.elementSize = 4, m.width = WORDS, m.height = 1;
    OK(cudaGraphAddMemsetNode(&set, g, NULL, 0, &m));
    fill = add_fill(g, &set, 1, x, 5);
    OK(cudaGraphAddMemcpyNode1D(&copy, g, &fill, 1, host, x, BYTES, cudaMemcpyDeviceToHost));
    struct cudaHostNodeParams h = {count, &calls};
    OK(cudaGraphAddHostNode(&call, g, &copy, 1, &h));
    OK(cudaGraphGetNodes(g, nodes, &n));
    OK(cudaGraphGetRootNodes(g, NULL, &edges));
    enum cudaGraphNodeType type;
    OK(cudaGraphNodeGetType(fill, &type));
    printf("nodes %zu, roots %zu, a kernel: %d\n", n, edges, type == cudaGraphNodeTypeKernel);
    OK(cudaGraphInstantiate(&exec, g, 0));
    OK(cudaGraphLaunch(exec, 0));
    OK(cudaGraphLaunch(exec, 0));
    OK(cudaStreamSynchronize(0));
    printf("filled: %d, host node ran: %d\n", api_is(host, 5, 0, WORDS), calls);
    struct cudaKernelNodeParams p;
    OK(cudaGraphKernelNodeGetParams(fill, &p));
    uint32_t nine = 9;
    uint64_t words = WORDS;
    void *args[] = {&x, &nine, &words};
    p.kernelParams = args;
    OK(cudaGraphExecKernelNodeSetParams(exec, fill, &p));
    OK(cudaGraphLaunch(exec, 0));
    OK(cudaStreamSynchronize(0));
    printf("after new parameters: %d\n", api_is(host, 9, 0, WORDS));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(g));
    OK(cudaFree(x));
}

static void refused(void)
{
    cudaStream_t s;
    cudaGraph_t g;
    void *p;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    printf("synchronised while capturing: %s\n", cudaGetErrorName(cudaStreamSynchronize(s)));
    cudaError_t e = cudaStreamEndCapture(s, &g);
    printf("the capture is lost: %d\n", e != cudaSuccess);
    (void)cudaGetLastError();
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    printf("allocated while capturing: %s\n", cudaGetErrorName(cudaMalloc(&p, 16)));
    (void)cudaStreamEndCapture(s, &g);
    (void)cudaGetLastError();
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
    OK(cudaMalloc(&p, 16));
    OK(cudaStreamEndCapture(s, &g));
    OK(cudaGraphDestroy(g));
    OK(cudaFree(p));
    printf("allowed in relaxed mode\n");
    OK(cudaStreamDestroy(s));
}

/* Allocation and free as nodes: a capture of the stream-ordered calls. */
static void memory_nodes(void)
{
    cudaStream_t s;
    cudaGraph_t g;
    cudaGraphExec_t exec;
    uint32_t *x;
    OK(cudaStreamCreate(&s));
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    OK(cudaMallocAsync((void **)&x, BYTES, s));
    api_ramp(s, x, 100, WORDS);
    OK(cudaMemcpyAsync(host, x, BYTES, cudaMemcpyDeviceToHost, s));
    OK(cudaFreeAsync(x, s));
    OK(cudaStreamEndCapture(s, &g));
    OK(cudaGraphInstantiate(&exec, g, 0));
    for (int i = 0; i < 3; i++) {
        memset(host, 0, BYTES);
        OK(cudaGraphLaunch(exec, s));
        OK(cudaStreamSynchronize(s));
    }
    printf("memory nodes: %d\n", api_is(host, 100, 1, WORDS));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(g));
    OK(cudaStreamDestroy(s));
}

int main(void)
{
    OK(cudaMallocHost((void **)&host, BYTES));
    captured();
    by_hand();
    refused();
    memory_nodes();
    OK(cudaFreeHost(host));
    return 0;
}
