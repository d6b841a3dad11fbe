/* Graphs over memory that leaves and comes back at the same address, and virtual memory during a
 * capture. */
#include "measure.h"

enum { WORDS = 1 << 16 };

/* The graph of one kernel that fills the buffer. */
static CUgraphExec capture_fill(CUdeviceptr at, uint64_t value, CUstream stream)
{
    CUgraph graph;
    CUgraphExec exec;
    must(cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    launch_fill(at, WORDS, value, stream);
    must(cu.StreamEndCapture(stream, &graph));
    must(cu.GraphInstantiate(&exec, graph, 0));
    must(cu.GraphDestroy(graph));
    return exec;
}

/* What the fill left in the last word. */
static const char *verdict(CUdeviceptr at, uint64_t value)
{
    uint64_t word = 0;
    must(cu.MemcpyDtoH(&word, at + 8 * (WORDS - 1), 8));
    return contents_are(word == value + WORDS - 1);
}

static void replay_after_backing_again(CUstream stream)
{
    size_t bytes = 2 * MIB;
    CUdeviceptr at = reserve(bytes);
    CUmemGenericAllocationHandle first = create(bytes, &on_device),
                                 second = create(bytes, &on_device);
    map(at, bytes, first);
    launch_fill(at, 1, 0, stream); /* the module is loaded before anything is captured */
    CUgraphExec exec = capture_fill(at, 100, stream);
    must(cu.GraphLaunch(exec, stream));
    must(cu.StreamSynchronize(stream));
    report_text(verdict(at, 100), "graphs/replay/first-memory");
    must(cu.MemUnmap(at, bytes));
    map(at, bytes, second);
    must(cu.MemsetD8(at, 0, bytes));
    must(cu.CtxSynchronize());
    must(cu.GraphLaunch(exec, stream));
    CUresult r = cu.StreamSynchronize(stream);
    report_text(r != CUDA_SUCCESS ? result_name(r) : verdict(at, 100),
                "graphs/replay/other-memory-at-the-same-address");
    must(r);
    struct samples s = {0};
    for (int i = 0; i < 200; i++) {
        double t = now_us();
        must(cu.GraphLaunch(exec, stream));
        sample(&s, now_us() - t);
    }
    must(cu.StreamSynchronize(stream));
    report_samples(&s, "us", "graphs/launch-of-one-node");
    must(cu.GraphExecDestroy(exec));
    must(cu.MemUnmap(at, bytes));
    must(cu.MemRelease(first));
    must(cu.MemRelease(second));
    must(cu.MemAddressFree(at, bytes));
}

/* The calls of a pager while the thread captures in global mode, and with the thread's mode
 * exchanged. Each way has a capture of its own, as a refused call breaks it. */
static void memory_during_capture(CUstream stream, bool relaxed)
{
    size_t bytes = 2 * MIB;
    CUgraph graph = NULL;
    CUdeviceptr at = reserve(bytes), block = 0;
    CUmemGenericAllocationHandle h = 0;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    const char *way = relaxed ? "relaxed" : "global";
    must(cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    if (relaxed)
        must(cu.ThreadExchangeStreamCaptureMode(&mode));
    CUresult created = cu.MemCreate(&h, bytes, &on_device, 0);
    CUresult mapped = created == CUDA_SUCCESS ? cu.MemMap(at, bytes, 0, h, 0) : created;
    CUresult access = mapped == CUDA_SUCCESS ? give_access(at, bytes) : mapped;
    CUresult unmapped = mapped == CUDA_SUCCESS ? cu.MemUnmap(at, bytes) : mapped;
    CUresult alloc = cu.MemAlloc(&block, bytes);
    if (relaxed)
        must(cu.ThreadExchangeStreamCaptureMode(&mode));
    CUresult ended = cu.StreamEndCapture(stream, &graph);
    report_text(result_name(created), "graphs/capture/%s/cuMemCreate", way);
    report_text(result_name(mapped), "graphs/capture/%s/cuMemMap", way);
    report_text(result_name(access), "graphs/capture/%s/cuMemSetAccess", way);
    report_text(result_name(unmapped), "graphs/capture/%s/cuMemUnmap", way);
    report_text(result_name(alloc), "graphs/capture/%s/cuMemAlloc", way);
    report_text(result_name(ended), "graphs/capture/%s/end", way);
    if (mapped == CUDA_SUCCESS && unmapped != CUDA_SUCCESS)
        must(cu.MemUnmap(at, bytes));
    if (ended == CUDA_SUCCESS && graph)
        must(cu.GraphDestroy(graph));
    if (block)
        must(cu.MemFree(block));
    if (h)
        must(cu.MemRelease(h));
    must(cu.MemAddressFree(at, bytes));
}

void step_graphs(void)
{
    CUstream stream;
    must(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    replay_after_backing_again(stream);
    memory_during_capture(stream, false);
    memory_during_capture(stream, true);
    must(cu.StreamDestroy(stream));
}
