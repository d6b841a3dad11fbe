/* The doors one by one, with a double of the runtime behind them (double.c): each call is made and
 * what the doors told the runtime is compared. Run with the double preloaded.
 *
 * The signature of an op is left out of the comparison and looked at on its own. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simgpu.h"

/* ---- kernels that touch nothing: only their parameters matter ---------------------------------*/

static void no_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
}
static void no_body(const struct simgpu_launch *l)
{
}
/* A pointer, a 4-byte number, then a structure of 20 bytes at offset 12 with a pointer at 16. */
static const struct simgpu_param mixed[] = {{0, 8}, {8, 4}, {12, 20}};
#define TORCH_KERNEL "_ZN2at6native5mixedEv"
/* A number, then a loop's body: an OffsetCalculator<2>, two addresses, 16 bytes of captures. */
static const struct simgpu_param elements[] = {{0, 4}, {8, 536}};
#define ELEMENTWISE "_ZN2at6native18elementwise_kernelILi128ELi2EEEviT1_"
static const struct simgpu_kernel kernels[] = {
    {"mixed", mixed, 3, no_touches, no_body, NULL},
    {"empty", NULL, 0, no_touches, no_body, NULL},
    {TORCH_KERNEL, mixed, 3, no_touches, no_body, NULL},
    {ELEMENTWISE, elements, 2, no_touches, no_body, NULL},
};
static const struct simgpu_image image = {SIMGPU_IMAGE_MAGIC, SIMGPU_IMAGE_VERSION, 4, kernels};

/* ---- what the double saw ----------------------------------------------------------------------*/

static size_t (*take)(char *, size_t);
static void (*set_relief)(unsigned), (*set_refusal)(unsigned);
static int failures, checks;
static char seen[1 << 16];

static void *symbol(const char *name)
{
    void *p = dlsym(RTLD_DEFAULT, name);
    if (!p) {
        printf("%s is missing: the double is not preloaded\n", name);
        exit(1);
    }
    return p;
}

/* Reads the lines, newlines as ';', without signatures and without the driver's own results. */
static void look(void)
{
    static char raw[1 << 16];
    take(raw, sizeof raw);
    char *out = seen;
    for (const char *p = raw; *p;) {
        if (strncmp(p, " sig=", 5) == 0) {
            for (p += 5; *p && *p != ' ' && *p != '\n'; p++)
                ;
            continue;
        }
        *out++ = *p == '\n' ? ';' : *p;
        p++;
    }
    *out = 0;
}

static unsigned long signature(void)
{
    static char raw[1 << 16];
    take(raw, sizeof raw);
    const char *p = strstr(raw, " sig=");
    return p ? strtoul(p + 5, NULL, 16) : 0;
}

static bool matches(const char *want)
{
    return strcmp(seen, want) == 0;
}

static void expect_at(int line, const char *want)
{
    look();
    checks++;
    if (!matches(want)) {
        failures++;
        printf("FAILED at line %d: wanted \"%s\", saw \"%s\"\n", line, want, seen);
    }
}
#define EXPECT(want) expect_at(__LINE__, want)

static void is_at(int line, bool ok, const char *text)
{
    checks++;
    if (!ok) {
        failures++;
        printf("FAILED at line %d: %s\n", line, text);
    }
}
#define IS(condition) is_at(__LINE__, condition, #condition)
#define OK(call)      IS((call) == CUDA_SUCCESS)

static CUdeviceptr a, b, c;
static CUstream stream;
static CUfunction mixed_fn, empty_fn, torch_fn, elementwise_fn;
static CUcontext ctx;

/* ---- tests ------------------------------------------------------------------------------------*/

static void starts(void)
{
    CUmodule module;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxSetCurrent(ctx));
    EXPECT("init;");
    OK(cuModuleLoadData(&module, &image));
    OK(cuModuleGetFunction(&mixed_fn, module, "mixed"));
    OK(cuModuleGetFunction(&empty_fn, module, "empty"));
    OK(cuModuleGetFunction(&torch_fn, module, TORCH_KERNEL));
    OK(cuModuleGetFunction(&elementwise_fn, module, ELEMENTWISE));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    EXPECT("stream_created;");
}

static void memory(void)
{
    CUdeviceptr p = 0, q;
    size_t n, pitch;
    OK(cuMemAlloc(&a, 4096));
    OK(cuMemAlloc(&b, 4096));
    OK(cuMemAllocAsync(&c, 8192, stream));
    EXPECT("alloc b0 4096 sync;alloc b1 4096 sync;alloc b2 8192 async;");
    OK(cuMemAllocPitch(&p, &pitch, 100, 3, 4));
    IS(pitch == 512);
    EXPECT("alloc b3 1536 sync;");
    OK(cuMemFree(p));
    EXPECT("free b3 sync;");
    IS(cuMemAlloc(&p, 0) == CUDA_ERROR_INVALID_VALUE);
    IS(cuMemAlloc(NULL, 8) != CUDA_SUCCESS);
    IS(cuMemFree(12345) != CUDA_SUCCESS);
    EXPECT("");
    OK(cuMemGetInfo(&n, &n));
    IS(n == 12345678);
    OK(cuDeviceTotalMem(&n, 0));
    IS(n == 12345678);
    OK(cuMemGetAddressRange(&q, &n, a + 100));
    IS(q == a && n == 4096);
    OK(cuMemHostAlloc((void **)&p, 64, 0));
    OK(cuMemFreeHost((void *)p));
    EXPECT("");
}

static void copies(void)
{
    static char host[8192];
    OK(cuMemcpyHtoD(a, host, 4096));
    EXPECT("htod - blocking b0:wt/0;after 0;");
    OK(cuMemcpyHtoD(a, host, 4095));
    EXPECT("htod - blocking b0:w/0;after 0;");
    OK(cuMemcpyDtoHAsync(host, b + 8, 16, stream));
    EXPECT("dtoh - visible b1:r/0;after 0;");
    OK(cuMemcpyDtoDAsync(a, b, 4096, stream));
    EXPECT("dtod - b1:r/0 b0:wt/0;after 0;");
    OK(cuMemcpy(a, (CUdeviceptr)host, 128));
    EXPECT("htod - blocking b0:w/0;after 0;");
    OK(cuMemcpy(a, b, 128)); /* on the device: the host goes on */
    EXPECT("dtod - b1:r/0 b0:w/0;after 0;");
    OK(cuMemcpyAsync((CUdeviceptr)host, a, 128, stream));
    EXPECT("dtoh - visible b0:r/0;after 0;");
    CUDA_MEMCPY2D k = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                       .srcHost = host,
                       .srcPitch = 64,
                       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                       .dstDevice = a,
                       .dstPitch = 64,
                       .WidthInBytes = 64,
                       .Height = 64};
    OK(cuMemcpy2D(&k));
    EXPECT("htod - blocking b0:wt/0;after 0;");
    k.dstXInBytes = 4, k.WidthInBytes = 32;
    OK(cuMemcpy2D(&k));
    EXPECT("htod - blocking b0:w/0;after 0;");
    CUDA_MEMCPY3D m = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                       .srcDevice = a,
                       .srcPitch = 16,
                       .srcHeight = 4,
                       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                       .dstDevice = b,
                       .dstPitch = 16,
                       .dstHeight = 4,
                       .WidthInBytes = 16,
                       .Height = 4,
                       .Depth = 2};
    OK(cuMemcpy3DAsync(&m, stream));
    EXPECT("dtod - b0:r/0 b1:w/0;after 0;");
    IS(cuMemcpyHtoD(12345, host, 8) != CUDA_SUCCESS);
    look();
    IS(strstr(seen, "after 1;") != NULL);
    OK(cuStreamSynchronize(stream));
    EXPECT("wait_stream;synced;");
}

static void fills(void)
{
    OK(cuMemsetD8(a, 1, 4096));
    OK(cuMemsetD32Async(b, 1, 1024, stream));
    OK(cuMemsetD16(c, 1, 8));
    OK(cuMemsetD2D8(a, 64, 1, 32, 4));
    EXPECT("memset - b0:wt/0;after 0;memset - b1:wt/0;after 0;memset - b2:w/0;after 0;"
           "memset - b0:w/0;after 0;");
}

struct tail {
    int number;
    CUdeviceptr p;
    int more[2];
} __attribute__((packed));

static void launches(void)
{
    int number = 5;
    struct tail tail = {1, b, {2, 3}};
    void *params[] = {&a, &number, &tail};
    OK(cuLaunchKernel(mixed_fn, 2, 1, 1, 32, 1, 1, 0, stream, params, NULL));
    EXPECT("launch mixed b0:u/0 b1:u/0;after 0;");
    OK(cuLaunchKernel(empty_fn, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    EXPECT("launch empty;after 0;");
    /* The same parameters packed by the program. */
    unsigned char packed[32];
    size_t size = sizeof packed;
    memset(packed, 0, sizeof packed);
    memcpy(packed, &b, 8);
    memcpy(packed + 16, &a, 8);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                     CU_LAUNCH_PARAM_END};
    OK(cuLaunchKernel(mixed_fn, 2, 1, 1, 32, 1, 1, 0, stream, NULL, extra));
    EXPECT("launch mixed b1:u/0 b0:u/0;after 0;");
    CUlaunchConfig config = {.gridDimX = 2,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 32,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .hStream = stream};
    OK(cuLaunchKernelEx(&config, mixed_fn, params, NULL));
    EXPECT("launch mixed b0:u/0 b1:u/0;after 0;");
    IS(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) != CUDA_SUCCESS);
    EXPECT("");
}

/* A word of PyTorch's kernels that has held a number is doubted from then on, but never overlooked: it may
 * have been an address that the caller left unwritten. */
static void unwritten_words(void)
{
    int number = 5;
    CUdeviceptr first = a;
    struct tail tail = {1, b, {2, 3}};
    void *params[] = {&first, &number, &tail};
    OK(cuLaunchKernel(torch_fn, 2, 1, 1, 32, 1, 1, 0, stream, params, NULL));
    EXPECT("launch " TORCH_KERNEL " b0:u/0 b1:u/0;after 0;");
    first = 77;
    OK(cuLaunchKernel(torch_fn, 2, 1, 1, 32, 1, 1, 0, stream, params, NULL));
    EXPECT("launch " TORCH_KERNEL " b1:u/0;after 0;");
    first = a;
    OK(cuLaunchKernel(torch_fn, 2, 1, 1, 32, 1, 1, 0, stream, params, NULL));
    EXPECT("launch " TORCH_KERNEL " b0:u?/0 b1:u/0;after 0;");
    first = 0;
    OK(cuLaunchKernel(torch_fn, 2, 1, 1, 32, 1, 1, 0, stream, params, NULL));
    EXPECT("launch " TORCH_KERNEL " b1:u/0;after 0;");
}

/* What lies in the unused dimensions of a calculator is no address; where the contents are not a calculator's,
 * everything counts. */
static void unused_dimensions(void)
{
    struct {
        int dims;
        struct {
            unsigned divisor, multiplier, shift;
        } dividers[25];
        unsigned strides[25][2];
        CUdeviceptr data[2], captures[2];
    } body;
    int number = 5;
    void *params[] = {&number, &body};
    memset(&body, 0, sizeof body);
    memcpy(&body.dividers[20].multiplier, &c, sizeof c);
    memcpy(body.strides[24], &c, sizeof c);
    body.dims = 2;
    body.dividers[0].divisor = 3, body.dividers[0].multiplier = 0x55555556, body.dividers[0].shift = 2;
    body.dividers[1].divisor = 8, body.dividers[1].multiplier = 1, body.dividers[1].shift = 3;
    body.data[0] = a, body.data[1] = b;
    OK(cuLaunchKernel(elementwise_fn, 2, 1, 1, 32, 1, 1, 0, stream, params, NULL));
    EXPECT("launch " ELEMENTWISE " b0:u/0 b1:u/0;after 0;");
    body.captures[1] = c;
    OK(cuLaunchKernel(elementwise_fn, 2, 1, 1, 32, 1, 1, 0, stream, params, NULL));
    EXPECT("launch " ELEMENTWISE " b0:u/0 b1:u/0 b2:u/0;after 0;");
    body.captures[1] = 0;
    body.dividers[1].shift = 4;
    OK(cuLaunchKernel(elementwise_fn, 2, 1, 1, 32, 1, 1, 0, stream, params, NULL));
    EXPECT("launch " ELEMENTWISE " b2:u/0 b2:u/0 b0:u/0 b1:u/0;after 0;");
}

/* The signature is the call's: the same for the same launch, another for another grid or kernel. */
static void signatures(void)
{
    int number = 5;
    struct tail tail = {1, b, {2, 3}};
    void *params[] = {&a, &number, &tail}, *others[] = {&b, &number, &tail};
    unsigned long s[5];
    cuLaunchKernel(mixed_fn, 2, 1, 1, 32, 1, 1, 0, stream, params, NULL);
    s[0] = signature();
    cuLaunchKernel(mixed_fn, 2, 1, 1, 32, 1, 1, 0, stream, others, NULL);
    s[1] = signature();
    cuLaunchKernel(mixed_fn, 3, 1, 1, 32, 1, 1, 0, stream, params, NULL);
    s[2] = signature();
    cuLaunchKernel(mixed_fn, 2, 1, 1, 32, 1, 1, 128, stream, params, NULL);
    s[3] = signature();
    cuLaunchKernel(empty_fn, 2, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
    s[4] = signature();
    IS(s[0] && s[0] == s[1]);
    IS(s[0] != s[2] && s[0] != s[3] && s[0] != s[4]);
}

static void escapes(void)
{
    CUdeviceptr table[4] = {1, a + 4, 0, b};
    OK(cuMemcpyHtoD(c, table, sizeof table));
    EXPECT("escape b0;escape b1;htod - blocking b2:w/0;after 0;");
    OK(cuMemcpy(c, (CUdeviceptr)table, sizeof table));
    EXPECT("escape b0;escape b1;htod - blocking b2:w/0;after 0;");
    static CUdeviceptr large[1 << 14];
    CUdeviceptr big = 0;
    large[0] = a;
    OK(cuMemAlloc(&big, sizeof large));
    look();
    OK(cuMemcpyHtoD(big, large, sizeof large));
    EXPECT("htod - blocking b4:wt/0;after 0;"); /* 128 KiB: over VMEM_ESCAPE_SCAN */
    OK(cuMemFree(big));
    look();
    /* A table in host memory that a kernel is given the address of. */
    CUdeviceptr *pinned, *registered = table, inside;
    int number = 5;
    struct tail tail = {1, b, {2, 3}};
    OK(cuMemHostAlloc((void **)&pinned, 4096, 0));
    memset(pinned, 0, 4096);
    pinned[100] = c;
    pinned[3] = a;
    inside = (CUdeviceptr)&pinned[8];
    void *params[] = {&inside, &number, &tail};
    OK(cuLaunchKernel(mixed_fn, 2, 1, 1, 32, 1, 1, 0, stream, params, NULL));
    EXPECT("escape b2;launch mixed b1:u/0;after 0;");
    OK(cuStreamSynchronize(stream));
    OK(cuMemHostRegister(table, sizeof table, 0));
    look();
    params[0] = &registered;
    OK(cuLaunchKernel(mixed_fn, 2, 1, 1, 32, 1, 1, 0, stream, params, NULL));
    EXPECT("escape b0;escape b1;launch mixed b1:u/0;after 0;");
    OK(cuStreamSynchronize(stream));
    OK(cuMemHostUnregister(table));
    OK(cuMemFreeHost(pinned));
    look();
    OK(cuLaunchKernel(mixed_fn, 2, 1, 1, 32, 1, 1, 0, stream, params, NULL));
    EXPECT("launch mixed b1:u/0;after 0;");
    CUipcMemHandle ipc;
    cuIpcGetMemHandle(&ipc, a);
    look();
    IS(strstr(seen, "pin b0;") != NULL);
    cuStreamWriteValue32(stream, b, 1, 0); /* pinned whatever the driver says to it */
    look();
    IS(strstr(seen, "pin b1;") != NULL);
}

static void pointers(void)
{
    unsigned type = 0, managed = 9;
    unsigned long long id_a = 0, id_b = 0;
    CUcontext owner = NULL;
    void *host = (void *)1;
    size_t bytes = 0;
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a + 1));
    OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, a));
    OK(cuPointerGetAttribute(&id_a, CU_POINTER_ATTRIBUTE_BUFFER_ID, a));
    OK(cuPointerGetAttribute(&id_b, CU_POINTER_ATTRIBUTE_BUFFER_ID, b));
    OK(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, c));
    IS(type == CU_MEMORYTYPE_DEVICE && owner == ctx && id_a != id_b && bytes == 8192);
    IS(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, a) ==
       CUDA_ERROR_INVALID_VALUE);
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_HOST_POINTER,
                                   CU_POINTER_ATTRIBUTE_IS_MANAGED};
    void *into[] = {&host, &managed};
    OK(cuPointerGetAttributes(2, names, into, a));
    IS(host == NULL && managed == 0);
    IS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 12345) != CUDA_SUCCESS);
    EXPECT("");
}

static void CUDA_CB host_function(void *data)
{
    *(int *)data += 1;
}

static void streams(void)
{
    CUevent event;
    int called = 0;
    OK(cuEventCreate(&event, 0));
    OK(cuEventRecord(event, stream));
    OK(cuStreamWaitEvent(stream, event, 0));
    EXPECT("poke;poke;");
    OK(cuEventSynchronize(event));
    EXPECT("wait_event;synced;");
    OK(cuLaunchHostFunc(stream, host_function, &called));
    EXPECT("hostfunc - visible;after 0;");
    OK(cuCtxSynchronize());
    EXPECT("wait_context;synced;");
    IS(called == 1);
    OK(cuEventDestroy(event));
    CUstream other;
    OK(cuStreamCreateWithPriority(&other, 0, 0));
    OK(cuStreamDestroy(other));
    EXPECT("stream_created;stream_destroyed;");
}

static void graphs(void)
{
    CUgraph graph;
    CUgraphExec exec;
    int number = 5;
    struct tail tail = {1, b, {2, 3}};
    void *params[] = {&a, &number, &tail};
    if (cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS) /* none of the legacy stream */
        exit(1);
    EXPECT("capture_soon;capture_end nothing;");
    OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT("capture_soon;");
    OK(cuLaunchKernel(mixed_fn, 2, 1, 1, 32, 1, 1, 0, stream, params, NULL));
    look();
    OK(cuStreamEndCapture(stream, &graph));
    EXPECT("capture_end graph;");
    CUgraphNode node;
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = c, .elementSize = 4, .width = 4, .height = 1};
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, ctx));
    EXPECT("graph_names b2;");
    OK(cuGraphInstantiate(&exec, graph, 0));
    look();
    IS(strstr(seen, "graph_names b0;") && strstr(seen, "graph_names b1;") &&
       strstr(seen, "graph_names b2;") && strstr(seen, "graph_instantiated;"));
    OK(cuGraphLaunch(exec, stream));
    EXPECT("graph - visible;after 0;");
    fill.dst = a;
    OK(cuGraphExecMemsetNodeSetParams(exec, node, &fill, ctx));
    EXPECT("pin b0;");
    OK(cuStreamSynchronize(stream));
    look();
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    EXPECT("graph_exec_gone;graph_gone;");
}

/* Forwarded calls that run out of memory are repeated while the runtime finds some. */
static void relief(void)
{
    CUdeviceptr p = 0;
    set_relief(2);
    IS(cuMemAllocManaged(&p, (size_t)1 << 60, CU_MEM_ATTACH_GLOBAL) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT("relieve;relieve;relieve;");
    OK(cuMemAllocManaged(&p, 4096, CU_MEM_ATTACH_GLOBAL));
    OK(cuMemFree(p)); /* not ours: the driver's */
    EXPECT("");
    /* What the runtime itself refuses is the program's answer at once, and the driver is not called. */
    set_relief(5);
    set_refusal(1);
    IS(cuLaunchKernel(empty_fn, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT("refused;");
    set_refusal(1);
    IS(cuMemsetD8(a, 0, 16) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT("refused;");
    set_relief(0);
}

/* A lazily loaded kernel may not find room at its launch. The driver refuses every launch of this run. */
static int launches_without_room(void)
{
    set_relief(2);
    IS(cuLaunchKernel(empty_fn, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT("launch empty;after 2;relieve;launch empty;after 2;relieve;launch empty;after 2;relieve;");
    printf("%d checks, %d failures\n", checks, failures);
    return failures != 0;
}

static void per_thread(void)
{
    int number = 5;
    struct tail tail = {1, b, {2, 3}};
    void *params[] = {&a, &number, &tail};
    static char host[64];
    CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                       unsigned, CUstream, void **, void **);
    CUresult (*copy)(CUdeviceptr, const void *, size_t);
    CUresult (*wait)(CUstream);
    void *p = symbol("cuLaunchKernel_ptsz");
    memcpy(&launch, &p, sizeof p);
    p = symbol("cuMemcpyHtoD_v2_ptds");
    memcpy(&copy, &p, sizeof p);
    p = symbol("cuStreamSynchronize_ptsz");
    memcpy(&wait, &p, sizeof p);
    OK(launch(mixed_fn, 2, 1, 1, 32, 1, 1, 0, NULL, params, NULL));
    EXPECT("launch mixed pt b0:u/0 b1:u/0;after 0;");
    OK(copy(a, host, sizeof host));
    EXPECT("htod - blocking pt b0:w/0;after 0;");
    OK(wait(NULL));
    EXPECT("wait_stream pt;synced;");
}

static void ends(void)
{
    OK(cuMemFreeAsync(c, stream));
    OK(cuMemFree(b));
    OK(cuMemFree(a));
    OK(cuStreamDestroy(stream));
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuDevicePrimaryCtxRelease(0));
    EXPECT("free b2 async;free b1 sync;free b0 sync;stream_destroyed;");
    OK(cuDevicePrimaryCtxRelease(0));
    EXPECT("context_gone;");
}

int main(int argc, char **argv)
{
    void *p = symbol("vmem_double_take");
    memcpy(&take, &p, sizeof p);
    p = symbol("vmem_double_relief");
    memcpy(&set_relief, &p, sizeof p);
    p = symbol("vmem_double_refuse");
    memcpy(&set_refusal, &p, sizeof p);
    starts();
    if (argc > 1 && strcmp(argv[1], "no-room") == 0)
        return launches_without_room();
    memory();
    copies();
    fills();
    launches();
    unwritten_words();
    unused_dimensions();
    signatures();
    escapes();
    pointers();
    streams();
    graphs();
    relief();
    per_thread();
    ends();
    /* The comparison itself must be able to fail. */
    strcpy(seen, "poke;");
    IS(!matches("poke;poke;") && matches("poke;"));
    printf("%d checks, %d failures\n", checks, failures);
    return failures || checks < 100;
}
