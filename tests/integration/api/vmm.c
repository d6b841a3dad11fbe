/* vmm.c: a program that maps memory itself, by the driver API, beside ordinary allocations. */
#include "api.h"

static CUmemAllocationProp device_memory(void)
{
    CUmemAllocationProp p;
    memset(&p, 0, sizeof p);
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = 0;
    return p;
}

static void allow(CUdeviceptr at, size_t n)
{
    CUmemAccessDesc a;
    memset(&a, 0, sizeof a);
    a.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    a.location.id = 0;
    a.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    DRV(cuMemSetAccess(at, n, &a, 1));
}

/* Two handles side by side in one range, then the second replaced: what PyTorch's segments do. */
static void segments(size_t g)
{
    CUmemAllocationProp prop = device_memory();
    CUmemGenericAllocationHandle h[3];
    CUdeviceptr va;
    uint32_t word[2] = {0, 0};
    for (int i = 0; i < 3; i++)
        DRV(cuMemCreate(&h[i], g, &prop, 0));
    DRV(cuMemAddressReserve(&va, 4 * g, 0, 0, 0));
    DRV(cuMemMap(va, g, 0, h[0], 0));
    DRV(cuMemMap(va + g, g, 0, h[1], 0));
    allow(va, 2 * g);
    DRV(cuMemsetD32(va, 11, 2 * g / 4));
    DRV(cuMemcpyDtoH(&word[0], va + g - 4, 4));
    DRV(cuMemcpyDtoH(&word[1], va + g, 4));
    printf("two mappings, one range: %d\n", word[0] == 11 && word[1] == 11);
    DRV(cuCtxSynchronize()); /* unmapping does not wait for work: a program must */
    DRV(cuMemUnmap(va + g, g));
    DRV(cuMemMap(va + g, g, 0, h[2], 0));
    allow(va + g, g);
    DRV(cuMemsetD32(va + g, 22, g / 4));
    DRV(cuCtxSynchronize());
    DRV(cuMemUnmap(va + g, g));
    DRV(cuMemMap(va + g, g, 0, h[1], 0));
    allow(va + g, g);
    DRV(cuMemcpyDtoH(&word[1], va + g, 4));
    printf("a handle keeps its contents while unmapped: %d\n", word[1] == 11);
    DRV(cuMemMap(va + 2 * g, g, 0, h[2], 0));
    allow(va + 2 * g, g);
    DRV(cuMemcpyDtoH(&word[0], va + 2 * g, 4));
    printf("and takes them to another address: %d\n", word[0] == 22);
    for (int i = 0; i < 3; i++)
        DRV(cuMemRelease(h[i])); /* the mappings keep the memory */
    DRV(cuMemcpyDtoH(&word[0], va + 2 * g, 4));
    printf("released while mapped: still there: %d\n", word[0] == 22);
    DRV(cuMemUnmap(va, 3 * g));
    DRV(cuMemAddressFree(va, 4 * g));
}

static void rules(size_t g)
{
    CUmemAllocationProp prop = device_memory();
    CUmemGenericAllocationHandle h, same;
    CUdeviceptr va;
    printf("size off the granularity: %d\n", (int)cuMemCreate(&h, g - 1, &prop, 0));
    DRV(cuMemCreate(&h, 2 * g, &prop, 0));
    DRV(cuMemAddressReserve(&va, 4 * g, 0, 0, 0));
    printf("offset into a handle: %d\n", (int)cuMemMap(va, g, g, h, 0));
    DRV(cuMemMap(va, 2 * g, 0, h, 0));
    printf("mapped twice at one place: %d\n", (int)cuMemMap(va, 2 * g, 0, h, 0));
    printf("part of a mapping unmapped: %d\n", (int)cuMemUnmap(va, g));
    printf("a range with a hole unmapped: %d\n", (int)cuMemUnmap(va, 4 * g));
    DRV(cuMemRetainAllocationHandle(&same, (void *)(uintptr_t)(va + g)));
    printf("the handle by an address: %d\n", same == h);
    DRV(cuMemRelease(same));
    allow(va, 2 * g);
    unsigned long long flags = 0;
    CUmemLocation where = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    DRV(cuMemGetAccess(&flags, &where, va));
    printf("access reads back: %d\n", flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    DRV(cuMemUnmap(va, 2 * g));
    DRV(cuMemRelease(h));
    printf("a reservation freed by half: %d\n", (int)cuMemAddressFree(va, 2 * g) != 0);
    DRV(cuMemAddressFree(va, 4 * g));
}

/* Ordinary allocations and the program's own mappings live side by side. */
static void beside(size_t g)
{
    CUmemAllocationProp prop = device_memory();
    CUmemGenericAllocationHandle h;
    CUdeviceptr mine, theirs;
    uint32_t word = 0;
    DRV(cuMemAlloc(&theirs, g));
    DRV(cuMemsetD32(theirs, 1, g / 4));
    DRV(cuMemCreate(&h, g, &prop, 0));
    DRV(cuMemAddressReserve(&mine, g, 0, 0, 0));
    DRV(cuMemMap(mine, g, 0, h, 0));
    allow(mine, g);
    DRV(cuMemcpyDtoD(mine, theirs, g));
    DRV(cuMemsetD32(theirs, 2, g / 4));
    DRV(cuMemcpyDtoH(&word, mine + g - 4, 4));
    printf("copied from an ordinary block: %d\n", word == 1);
    DRV(cuMemFree(theirs));
    DRV(cuMemcpyDtoH(&word, mine, 4));
    printf("and independent of it: %d\n", word == 1);
    DRV(cuMemUnmap(mine, g));
    DRV(cuMemAddressFree(mine, g));
    DRV(cuMemRelease(h));
}

/* A graph over mapped memory: the memory goes, comes back under the same address, and the graph is launched
 * again. What torch_memory_saver does between a pause and a resume. */
static void paused(size_t g)
{
    CUmemAllocationProp prop = device_memory();
    CUmemGenericAllocationHandle h;
    CUdeviceptr va;
    CUstream s;
    CUgraph graph;
    CUgraphExec exec;
    uint32_t word = 0;
    DRV(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    DRV(cuMemAddressReserve(&va, g, 0, 0, 0));
    DRV(cuMemCreate(&h, g, &prop, 0));
    DRV(cuMemMap(va, g, 0, h, 0));
    allow(va, g);
    DRV(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    DRV(cuMemsetD32Async(va, 5, g / 8, s));
    DRV(cuMemcpyDtoDAsync(va + g / 2, va, g / 2, s));
    DRV(cuStreamEndCapture(s, &graph));
    DRV(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int round = 0; round < 3; round++) {
        DRV(cuGraphLaunch(exec, s));
        DRV(cuStreamSynchronize(s));
        DRV(cuMemcpyDtoH(&word, va + g - 4, 4));
        printf("round %d of a graph: %d\n", round, word == 5);
        DRV(cuMemUnmap(va, g)); /* pause */
        DRV(cuMemRelease(h));
        DRV(cuMemCreate(&h, g, &prop, 0)); /* resume */
        DRV(cuMemMap(va, g, 0, h, 0));
        allow(va, g);
    }
    DRV(cuGraphExecDestroy(exec));
    DRV(cuGraphDestroy(graph));
    DRV(cuMemUnmap(va, g));
    DRV(cuMemRelease(h));
    DRV(cuMemAddressFree(va, g));
    DRV(cuStreamDestroy(s));
}

int main(void)
{
    size_t g = 0;
    CUmemAllocationProp prop = device_memory();
    CUcontext context;
    DRV(cuInit(0));
    DRV(cuDevicePrimaryCtxRetain(&context, 0));
    DRV(cuCtxSetCurrent(context));
    DRV(cuMemGetAllocationGranularity(&g, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    printf("granularity is a power of two: %d\n", g && (g & (g - 1)) == 0);
    segments(g);
    rules(g);
    beside(g);
    paused(g);
    DRV(cuDevicePrimaryCtxRelease(0));
    return 0;
}
