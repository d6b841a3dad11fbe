/* A small training loop (weights that are read and updated) whose program has a profiler of its own.
 *
 *   profiled never|first|late     `first` before the first operation, `late` after the first iteration
 *
 * Ends with 0 and "profiler: N records" when the profiler could attach and saw the kernels launched since. */
#include <cuda.h>
#include <cupti.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simgpu.h"

#define ITERATIONS 8
#define LAYERS     4
#define BYTES      (4u << 20)

struct args {
    uint64_t dst, src;
};

static void touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct args a;
    memcpy(&a, l->params, sizeof a);
    touch(ctx, a.src, BYTES, SIMGPU_READ);
    touch(ctx, a.dst, BYTES, SIMGPU_RW);
}

static void cost(const struct simgpu_launch *l, struct simgpu_work *w)
{
    w->ns = 100000.0 * l->grid[0];
}

static void body(const struct simgpu_launch *l)
{
}

static const struct simgpu_param layout[] = {{0, 8}, {8, 8}};
static const struct simgpu_kernel kernels[] = {{"layer", layout, 2, touches, body, cost}};
static const struct simgpu_image image = {SIMGPU_IMAGE_MAGIC, SIMGPU_IMAGE_VERSION, 1, kernels};

static unsigned records;

static void give(uint8_t **buffer, size_t *size, size_t *most)
{
    *size = 1 << 16;
    *buffer = aligned_alloc(8, *size);
    *most = 0;
}

static void take(CUcontext c, uint32_t s, uint8_t *buffer, size_t size, size_t valid)
{
    CUpti_Activity *r = NULL;
    (void)c, (void)s, (void)size;
    while (cuptiActivityGetNextRecord(buffer, valid, &r) == CUPTI_SUCCESS)
        records += r->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    free(buffer);
}

static void no_callback(void *user, CUpti_CallbackDomain d, CUpti_CallbackId id, const void *data)
{
    (void)user, (void)d, (void)id, (void)data;
}

static int attach(void)
{
    CUpti_SubscriberHandle s;
    CUptiResult r = cuptiSubscribe(&s, no_callback, NULL);
    if (r == CUPTI_SUCCESS)
        r = cuptiActivityRegisterCallbacks(give, take);
    if (r == CUPTI_SUCCESS)
        r = cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    if (r != CUPTI_SUCCESS)
        fprintf(stderr, "the profiler is refused: %d\n", (int)r);
    return r != CUPTI_SUCCESS;
}

int main(int argc, char **argv)
{
    const char *when = argc > 1 ? argv[1] : "never";
    CUdeviceptr w[LAYERS], x;
    CUcontext ctx;
    CUmodule module;
    CUfunction f;
    unsigned launched = 0;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&ctx, 0) || cuCtxSetCurrent(ctx) ||
        cuModuleLoadData(&module, &image) || cuModuleGetFunction(&f, module, "layer"))
        return 1;
    if (strcmp(when, "first") == 0 && attach())
        return 2;
    for (int i = 0; i < LAYERS; i++)
        if (cuMemAlloc(&w[i], BYTES) || cuMemsetD8(w[i], 0, BYTES))
            return 1;
    for (int k = 0; k < ITERATIONS; k++) {
        if (k == 1 && strcmp(when, "late") == 0) {
            launched = 0;
            if (cuCtxSynchronize() || attach())
                return 2;
        }
        if (cuMemAlloc(&x, BYTES) || cuMemsetD8(x, 0, BYTES))
            return 1;
        for (int i = 0; i < LAYERS; i++) {
            struct args a = {w[i], i ? w[i - 1] : x};
            void *params[] = {&a.dst, &a.src};
            if (cuLaunchKernel(f, 1 + (unsigned)i, 1, 1, 32, 1, 1, 0, NULL, params, NULL))
                return 1;
            launched++;
        }
        if (cuCtxSynchronize() || cuMemFree(x))
            return 1;
    }
    if (strcmp(when, "never") == 0)
        return 0;
    if (cuptiActivityFlushAll(1) != CUPTI_SUCCESS)
        return 2;
    printf("profiler: %u records\n", records);
    return records == launched ? 0 : 3;
}
