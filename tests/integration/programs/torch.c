/* A program with PyTorch in it, as far as libvmem can tell.
 *
 *   torch LIBRARY            loads LIBRARY, initialises CUDA, prints what became of the environment
 *   torch LIBRARY thread     the same while a second thread reads the environment
 *   torch LIBRARY allocate   uses libvmem's allocator pair as
 * torch.cuda.memory.CUDAPluggableAllocator does
 *   torch LIBRARY ask        uses the other functions that such an allocator can be given
 *   torch LIBRARY capture    allocates and frees while a capture is open, as torch.cuda.graph without a cache
 */
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* Every variable of the start must be there at any time. */
static void *read_forever(void *arg)
{
    for (;;) {
        if (!getenv("LD_PRELOAD") || !getenv(arg))
            _exit(3);
    }
    return NULL;
}

static int allocate(void)
{
    void *(*take)(ssize_t, int, CUstream);
    void (*give)(void *, ssize_t, int, CUstream);
    void *p = dlsym(RTLD_DEFAULT, "vmem_torch_malloc"), *q = dlsym(RTLD_DEFAULT, "vmem_torch_free");
    unsigned char in[1000], out[1000] = {0};
    CUcontext before = NULL, after = NULL;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    if (!p || !q)
        return 1;
    memcpy(&take, &p, sizeof p);
    memcpy(&give, &q, sizeof q);
    cuCtxGetCurrent(&before);
    void *block = take(1000, 0, NULL);
    cuCtxGetCurrent(&after);
    printf("current context kept %d\n", before == after);
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (unsigned char)(i * 7);
    CUcontext ctx;
    if (cuDevicePrimaryCtxRetain(&ctx, 0) || cuCtxSetCurrent(ctx) ||
        cuMemGetAddressRange(&base, &bytes, (CUdeviceptr)block) ||
        cuMemcpyHtoD((CUdeviceptr)block, in, 1000) || cuMemcpyDtoH(out, (CUdeviceptr)block, 1000))
        return 1;
    printf("block of %zu bytes, contents kept %d\n", bytes, memcmp(in, out, sizeof in) == 0);
    give(block, 1000, 0, NULL);
    printf("freed %d\n", cuMemGetAddressRange(&base, &bytes, (CUdeviceptr)block) != CUDA_SUCCESS);
    printf("nothing for nothing %d, for too much %d\n", take(0, 0, NULL) == NULL,
           take((ssize_t)1 << 60, 0, NULL) == NULL);
    give(NULL, 0, 0, NULL);
    return 0;
}

/* ---- what else PyTorch may ask its allocator -----------------------------------------------------*/

/* With a budget of 16 MiB: two blocks of 6 MiB, a share of a half, the first block's contents, a share
 * of all. */
static int ask(void)
{
    void *(*take)(ssize_t, int, CUstream);
    void *(*base_of)(void *, size_t *);
    void (*limit)(double, int);
    void (*reset)(void);
    *(void **)&take = dlsym(RTLD_DEFAULT, "vmem_torch_malloc");
    *(void **)&base_of = dlsym(RTLD_DEFAULT, "vmem_torch_base_alloc");
    *(void **)&limit = dlsym(RTLD_DEFAULT, "vmem_torch_memory_fraction");
    *(void **)&reset = dlsym(RTLD_DEFAULT, "vmem_torch_reset");
    if (!take || !base_of || !limit || !reset)
        return 1;
    const size_t bytes = 6u << 20;
    unsigned char *in = malloc(bytes), *out = malloc(bytes);
    size_t size = 1;
    CUcontext ctx;
    if (!in || !out || cuDevicePrimaryCtxRetain(&ctx, 0) || cuCtxSetCurrent(ctx))
        return 1;
    for (size_t i = 0; i < bytes; i++)
        in[i] = (unsigned char)(i * 7 + i / 4096);
    char *a = take((ssize_t)bytes, 0, NULL), *b = take((ssize_t)bytes, 0, NULL);
    bool right = a && b && cuMemcpyHtoD((CUdeviceptr)a, in, bytes) == CUDA_SUCCESS &&
                 cuMemsetD8((CUdeviceptr)b, 1, bytes) == CUDA_SUCCESS;
    printf("written %d\n", right);
    printf("base %d\n", base_of(a + 5000, &size) == a && size == bytes);
    printf("none %d\n", base_of(in, &size) == in && size == 0 && base_of(b, NULL) == b);
    limit(0.5, 0);
    right = cuMemcpyDtoH(out, (CUdeviceptr)a, bytes) == CUDA_SUCCESS && memcmp(in, out, bytes) == 0;
    printf("contents %d\n", right);
    limit(2.0, 0);
    limit(-1.0, 0);
    reset();
    limit(1.0, 0);
    memset(out, 0, bytes);
    right = cuMemsetD8((CUdeviceptr)b, 2, bytes) == CUDA_SUCCESS &&
            cuMemcpyDtoH(out, (CUdeviceptr)a, bytes) == CUDA_SUCCESS && memcmp(in, out, bytes) == 0;
    printf("contents %d\n", right);
    free(in);
    free(out);
    return 0;
}

/* ---- memory in captures -----------------------------------------------------------------------*/

#define OTHERS 8
#define BYTES  ((size_t)1 << 20)

static unsigned failures;

static void expect(bool right, const char *what)
{
    failures += !right;
    printf("%s %d\n", what, right);
}

static bool ok(CUresult r)
{
    return r == CUDA_SUCCESS;
}

static size_t free_bytes(void)
{
    size_t now = 0, all = 0;
    return ok(cuMemGetInfo(&now, &all)) ? now : 0;
}

static bool filled(CUdeviceptr p, unsigned char with)
{
    static unsigned char bytes[BYTES];
    if (!ok(cuMemcpyDtoH(bytes, p, BYTES)))
        return false;
    for (size_t i = 0; i < BYTES; i++)
        if (bytes[i] != with)
            return false;
    return true;
}

/* y becomes what x is, by way of blocks that are gone when the capture ends. */
static CUgraphExec captured(CUstream s, CUdeviceptr x, CUdeviceptr *inner, CUdeviceptr *y)
{
    CUgraph g;
    CUgraphExec exec;
    CUdeviceptr second = 0, unused = 0;
    bool fine = ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
    fine = fine && ok(cuMemAlloc(inner, BYTES)) && ok(cuMemcpyDtoDAsync(*inner, x, BYTES, s));
    fine = fine && ok(cuMemAlloc(y, BYTES)) && ok(cuMemcpyDtoDAsync(*y, *inner, BYTES, s));
    fine = fine && ok(cuMemFree(*inner)) && ok(cuMemAlloc(&unused, BYTES)) && ok(cuMemFree(unused));
    fine = fine && ok(cuMemAlloc(&second, BYTES)) && ok(cuMemsetD8Async(second, 77, BYTES, s)) &&
           ok(cuMemFree(second));
    expect(fine, "allocated and freed in a capture");
    fine = ok(cuStreamEndCapture(s, &g)) && ok(cuGraphInstantiateWithFlags(&exec, g, 0)) &&
           ok(cuGraphDestroy(g));
    expect(fine, "a graph came of it");
    return fine ? exec : NULL;
}

/* The graph runs among blocks that were allocated since. */
static bool launches(CUgraphExec exec, CUstream s, CUdeviceptr x, CUdeviceptr y, unsigned char value)
{
    CUdeviceptr other[OTHERS];
    bool right = true;
    for (size_t i = 0; i < OTHERS; i++)
        right = ok(cuMemAlloc(&other[i], BYTES)) &&
                ok(cuMemsetD8(other[i], (unsigned char)(100 + i), BYTES)) && right;
    right = right && ok(cuMemsetD8(x, value, BYTES)) && ok(cuStreamSynchronize(NULL)) &&
            ok(cuGraphLaunch(exec, s)) && ok(cuStreamSynchronize(s));
    right = right && (!y || filled(y, value));
    for (size_t i = 0; i < OTHERS; i++)
        right = filled(other[i], (unsigned char)(100 + i)) && ok(cuMemFree(other[i])) && right;
    return right;
}

static int capture(void)
{
    CUcontext ctx;
    CUstream s;
    CUgraph g = NULL;
    CUdeviceptr x, inner = 0, y = 0, base;
    size_t bytes;
    if (!ok(cuDevicePrimaryCtxRetain(&ctx, 0)) || !ok(cuCtxSetCurrent(ctx)) ||
        !ok(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING)) || !ok(cuMemAlloc(&x, BYTES)) ||
        !ok(cuMemsetD8(x, 1, BYTES)))
        return 1;
    size_t before = free_bytes();
    CUgraphExec exec = captured(s, x, &inner, &y);
    if (!exec)
        return 1;
    expect(before - free_bytes() >= 2 * BYTES, "the graph holds what was freed");
    expect(!ok(cuMemGetAddressRange(&base, &bytes, inner)), "to the program it is gone");
    expect(!ok(cuMemFree(inner)), "and cannot be freed again");
    expect(launches(exec, s, x, y, 5) && launches(exec, s, x, y, 6), "launched");
    expect(ok(cuMemFree(y)) && launches(exec, s, x, 0, 7), "launched after its result was freed");
    expect(ok(cuGraphExecDestroy(exec)) && free_bytes() == before, "all memory is back with the graph's end");
    bool fine = ok(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL)) &&
                ok(cuMemAlloc(&inner, BYTES)) && ok(cuMemsetD8Async(inner, 1, BYTES, s)) &&
                ok(cuMemFree(inner)) && !ok(cuStreamSynchronize(s)) && !ok(cuStreamEndCapture(s, &g));
    expect(fine && free_bytes() == before, "and when no graph came of a capture");
    return failures > 0;
}

int main(int argc, char **argv)
{
    pthread_t t;
    if (argc < 2 || !dlopen(argv[1], RTLD_NOW | RTLD_LOCAL)) {
        printf("%s\n", argc < 2 ? "no library" : dlerror());
        return 1;
    }
    if (argc > 2 && strcmp(argv[2], "thread") == 0 &&
        (setenv("SET_BEFORE", "1", 1) != 0 ||
         pthread_create(&t, NULL, read_forever, "SET_BEFORE") != 0))
        return 1;
    printf("init %d\n", (int)cuInit(0));
    /* The program may go on to change its environment (with a reader it would be its own race). */
    if (argc == 2 && (setenv("SET_AFTER", "1", 1) != 0 || !getenv("SET_AFTER")))
        return 1;
    const char *value = getenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
    printf("caching %s\n", value ? value : "untouched");
    if (argc > 2 && strcmp(argv[2], "capture") == 0)
        return capture();
    if (argc > 2 && strcmp(argv[2], "ask") == 0)
        return ask();
    return argc > 2 && strcmp(argv[2], "allocate") == 0 ? allocate() : 0;
}
