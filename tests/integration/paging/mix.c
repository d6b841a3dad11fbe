/* A program that uses only the driver API and more memory than the card has: rounds of kernels over many
 * blocks, checked against a plain model in host memory.
 *
 *   mix BLOCKS BYTES ROUNDS STREAMS SEED [eager]
 *
 * Each kernel computes out[i] = 3 * a[i] + b[i] + round over words. In eager mode each output is
 * allocated anew, the block it replaces is freed. Ends with "mix: ok" or the first wrong word. */
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simgpu.h"

struct args {
    CUdeviceptr out, a, b;
    uint64_t words;
    uint32_t add;
};

static void touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    const struct args *p = (const void *)l->params;
    touch(ctx, p->a, p->words * 4, SIMGPU_READ);
    touch(ctx, p->b, p->words * 4, SIMGPU_READ);
    touch(ctx, p->out, p->words * 4, SIMGPU_WRITE);
}

static void body(const struct simgpu_launch *l)
{
    const struct args *p = (const void *)l->params;
    const uint32_t *a = (const uint32_t *)p->a, *b = (const uint32_t *)p->b;
    uint32_t *out = (uint32_t *)p->out;
    for (uint64_t i = 0; i < p->words; i++)
        out[i] = 3 * a[i] + b[i] + p->add;
}

static void cost(const struct simgpu_launch *l, struct simgpu_work *w)
{
    const struct args *p = (const void *)l->params;
    w->kclass = SIMGPU_CLASS_ELEMENTWISE;
    w->flops = 3.0 * (double)p->words;
    w->bytes = 12.0 * (double)p->words;
}

static const struct simgpu_param params[] = {{0, 8}, {8, 8}, {16, 8}, {24, 8}, {32, 4}};
static const struct simgpu_kernel kernels[] = {{"mix_words", params, 5, touches, body, cost}};
static const struct simgpu_image image = {SIMGPU_IMAGE_MAGIC, SIMGPU_IMAGE_VERSION, 1, kernels};

static void check(CUresult r, const char *what)
{
    const char *name = "?";
    if (r == CUDA_SUCCESS)
        return;
    cuGetErrorName(r, &name);
    printf("mix: %s: %s\n", what, name);
    exit(1);
}
#define CHECK(call) check(call, #call)

static uint64_t rng;
static uint64_t draw(uint64_t n)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return rng % n;
}

struct block {
    CUdeviceptr p;
    uint32_t *model;
    CUevent done; /* of the last kernel that touched it */
};

int main(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr, "usage: mix BLOCKS BYTES ROUNDS STREAMS SEED [eager]\n");
        return 2;
    }
    unsigned nblocks = (unsigned)atoi(argv[1]), rounds = (unsigned)atoi(argv[3]);
    uint64_t bytes = strtoull(argv[2], NULL, 10), words = bytes / 4;
    unsigned nstreams = (unsigned)atoi(argv[4]);
    int eager = argc > 6 && strcmp(argv[6], "eager") == 0;
    rng = strtoull(argv[5], NULL, 10) * 2654435761u + 1;

    CUdevice dev;
    CUcontext ctx;
    CUmodule mod;
    CUfunction fn;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&dev, 0));
    CHECK(cuDevicePrimaryCtxRetain(&ctx, dev));
    CHECK(cuCtxSetCurrent(ctx));
    CHECK(cuModuleLoadData(&mod, &image));
    CHECK(cuModuleGetFunction(&fn, mod, "mix_words"));

    CUstream streams[8] = {NULL};
    for (unsigned i = 1; i < nstreams && i < 8; i++)
        CHECK(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    struct block *b = calloc(nblocks, sizeof *b);
    uint32_t *host = malloc(bytes);
    for (unsigned i = 0; i < nblocks; i++) {
        b[i].model = malloc(bytes);
        for (uint64_t w = 0; w < words; w++)
            b[i].model[w] = (uint32_t)(w * 2654435761u + i);
        CHECK(cuMemAlloc(&b[i].p, bytes));
        CHECK(cuMemcpyHtoD(b[i].p, b[i].model, bytes));
        CHECK(cuEventCreate(&b[i].done, CU_EVENT_DISABLE_TIMING));
    }
    for (unsigned r = 0; r < rounds; r++) {
        uint64_t keep = rng;
        rng = strtoull(argv[5], NULL, 10) + 99; /* every round is the same: an iteration */
        for (unsigned k = 0; k < nblocks; k++) {
            unsigned o = (unsigned)draw(nblocks), x = (unsigned)draw(nblocks), y = (unsigned)draw(nblocks);
            CUstream s = streams[draw(nstreams)];
            if (o == x || o == y)
                continue;
            CHECK(cuStreamWaitEvent(s, b[o].done, 0));
            CHECK(cuStreamWaitEvent(s, b[x].done, 0));
            CHECK(cuStreamWaitEvent(s, b[y].done, 0));
            if (eager) {
                CUdeviceptr fresh;
                CHECK(cuMemAlloc(&fresh, bytes));
                CHECK(cuMemFree(b[o].p));
                b[o].p = fresh;
            }
            struct args a = {b[o].p, b[x].p, b[y].p, words, r + k};
            void *argp[] = {&a.out, &a.a, &a.b, &a.words, &a.add};
            /* Grids differ, as those of a network's layers do. */
            CHECK(cuLaunchKernel(fn, (unsigned)(words / 256 + 1), 1 + o % 8, 1, 256, 1, 1, 0, s, argp, NULL));
            CHECK(cuEventRecord(b[o].done, s));
            CHECK(cuEventRecord(b[x].done, s));
            CHECK(cuEventRecord(b[y].done, s));
            for (uint64_t w = 0; w < words; w++)
                b[o].model[w] = 3 * b[x].model[w] + b[y].model[w] + r + k;
        }
        rng = keep;
    }
    CHECK(cuCtxSynchronize());
    for (unsigned i = 0; i < nblocks; i++) {
        CHECK(cuMemcpyDtoH(host, b[i].p, bytes));
        for (uint64_t w = 0; w < words; w++)
            if (host[w] != b[i].model[w]) {
                printf("mix: block %u word %llu is %x and should be %x\n", i, (unsigned long long)w,
                       host[w], b[i].model[w]);
                return 1;
            }
        CHECK(cuMemFree(b[i].p));
    }
    printf("mix: ok\n");
    return 0;
}
