/* Many threads at the doors at once, for the tables that are read without a lock: kernels are
 * learnt while others launch them and modules come and go; host memory is registered while others
 * look it up. Run with the double preloaded, and under a thread sanitizer. The seed is printed. */
#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simgpu.h"

#define THREADS 4
#define ROUNDS  300
#define KERNELS 40

static void no_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
}
static void no_body(const struct simgpu_launch *l)
{
}

static const struct simgpu_param layout[] = {{0, 8}, {8, 8}};
static struct simgpu_kernel kernels[KERNELS];
static char names[KERNELS][16];
static struct simgpu_image image = {SIMGPU_IMAGE_MAGIC, SIMGPU_IMAGE_VERSION, KERNELS, kernels};
static CUcontext ctx;
static CUdeviceptr block;
static unsigned base_seed = 20261129;
static _Atomic int failures;

static void require(CUresult r, const char *what)
{
    if (r != CUDA_SUCCESS) {
        failures++;
        printf("FAILED: %s: %d\n", what, (int)r);
    }
}

static void launch_some(CUmodule module, CUstream stream, unsigned *seed, void *host)
{
    for (int i = 0; i < 8; i++) {
        CUfunction f;
        void *params[] = {&block, &host};
        require(cuModuleGetFunction(&f, module, names[(unsigned)rand_r(seed) % KERNELS]),
                "function");
        require(cuLaunchKernel(f, 1 + (unsigned)i, 1, 1, 32, 1, 1, 0, stream, params, NULL),
                "launch");
    }
}

static void *worker(void *arg)
{
    unsigned seed = base_seed + *(unsigned *)arg;
    CUstream stream;
    void *host = NULL;
    require(cuCtxSetCurrent(ctx), "context");
    require(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "stream");
    for (int round = 0; round < ROUNDS && !failures; round++) {
        CUmodule module;
        require(cuModuleLoadData(&module, &image), "module");
        require(cuMemHostAlloc(&host, 4096, 0), "host memory");
        if (!host)
            break;
        memset(host, 0, 4096);
        launch_some(module, stream, &seed, host);
        require(cuStreamSynchronize(stream), "wait");
        require(cuMemFreeHost(host), "free");
        require(cuModuleUnload(module), "unload");
    }
    require(cuStreamDestroy(stream), "destroy");
    return NULL;
}

/* The very first calls of the process, all at once: the driver is opened by one of them. */
static pthread_barrier_t line;

static void *first_call(void *arg)
{
    int n = -1, version = 0;
    CUresult early;
    pthread_barrier_wait(&line);
    early = cuDeviceGetCount(&n); /* before or after another thread's cuInit */
    if (early != CUDA_SUCCESS && early != CUDA_ERROR_NOT_INITIALIZED)
        require(early, "early count");
    require(cuDriverGetVersion(&version), "version");
    require(cuInit(0), "init");
    require(cuDeviceGetCount(&n), "count");
    if (n != 1 || version <= 0)
        require(CUDA_ERROR_UNKNOWN, "what the first calls say");
    return NULL;
}

static void rush(void)
{
    pthread_t t[THREADS];
    pthread_barrier_init(&line, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&t[i], NULL, first_call, NULL) != 0)
            exit(1);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
}

int main(void)
{
    pthread_t t[THREADS];
    unsigned id[THREADS];
    const char *wanted = getenv("VMEM_TEST_SEED");
    if (wanted)
        base_seed = (unsigned)strtoul(wanted, NULL, 10);
    for (int i = 0; i < KERNELS; i++) {
        snprintf(names[i], sizeof names[i], "kernel%d", i);
        kernels[i] = (struct simgpu_kernel){names[i], layout, 2, no_touches, no_body, NULL};
    }
    rush();
    require(cuDevicePrimaryCtxRetain(&ctx, 0), "retain");
    require(cuCtxSetCurrent(ctx), "context");
    require(cuMemAlloc(&block, 4096), "block");
    for (unsigned i = 0; i < THREADS; i++) {
        id[i] = i;
        if (pthread_create(&t[i], NULL, worker, &id[i]) != 0)
            return 1;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    require(cuMemFree(block), "free");
    require(cuDevicePrimaryCtxRelease(0), "release");
    printf("seed %u: %d threads, %d launches each, %d failures\n", base_seed, THREADS, ROUNDS * 8,
           (int)failures);
    return failures != 0;
}
