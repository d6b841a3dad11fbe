/* Host time of one kernel launch: launches COUNT kernels of eight pointers and some numbers, waits
 * now and then, and prints the nanoseconds a launch took on the host.
 *
 *   launches [COUNT [BLOCKS]]
 */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "simgpu.h"

static void no_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
}
static void no_body(const struct simgpu_launch *l)
{
}
static const struct simgpu_param layout[] = {{0, 8},  {8, 8},  {16, 8}, {24, 8}, {32, 8}, {40, 8},
                                             {48, 8}, {56, 8}, {64, 4}, {68, 4}, {72, 4}};
static const struct simgpu_kernel kernels[] = {{"eight", layout, 11, no_touches, no_body, NULL}};
static const struct simgpu_image image = {SIMGPU_IMAGE_MAGIC, SIMGPU_IMAGE_VERSION, 1, kernels};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 100000, nblocks = argc > 2 ? atoi(argv[2]) : 64;
    CUdeviceptr *block = calloc((size_t)nblocks, sizeof *block), p[8];
    int numbers[3] = {1, 2, 3};
    void *params[11];
    CUcontext ctx;
    CUmodule module;
    CUfunction f;
    if (!block || cuInit(0) || cuDevicePrimaryCtxRetain(&ctx, 0) || cuCtxSetCurrent(ctx) ||
        cuModuleLoadData(&module, &image) || cuModuleGetFunction(&f, module, "eight"))
        return 1;
    for (int i = 0; i < nblocks; i++)
        if (cuMemAlloc(&block[i], 1 << 20))
            return 1;
    for (int i = 0; i < 8; i++)
        params[i] = &p[i];
    for (int i = 0; i < 3; i++)
        params[8 + i] = &numbers[i];
    double spent = 0;
    for (int done = 0; done < count;) {
        double t = now();
        for (int k = 0; k < 500; k++, done++) {
            for (int i = 0; i < 8; i++)
                p[i] = block[(done * 3 + i * 5) % nblocks];
            if (cuLaunchKernel(f, 1 + (unsigned)done % 7, 1, 1, 32, 1, 1, 0, NULL, params, NULL))
                return 1;
        }
        spent += now() - t;
        if (cuCtxSynchronize())
            return 1;
    }
    printf("%.1f\n", spent / count);
    return 0;
}
