/* A program that uses only the driver API and more memory than the card has: rounds of kernels over many
 * blocks, checked against a plain model in host memory.
 *
 *   mix BLOCKS BYTES ROUNDS STREAMS SEED [eager]
 *
 * Each kernel computes out[i] = 3 * a[i] + b[i] + round over words. In eager mode each output is
 * allocated anew, the block it replaces is freed. Ends with "mix: ok" or the first wrong word. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simgpu.h"

#define PROGRAM "mix"
#include "program.h"

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

struct mix {
    unsigned nblocks, nstreams;
    uint64_t bytes, words, seed;
    int eager;
    CUfunction fn;
    CUstream streams[8];
    struct block *b;
};

static void open_device(struct mix *m)
{
    CUdevice dev;
    CUcontext ctx;
    CUmodule mod;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&dev, 0));
    CHECK(cuDevicePrimaryCtxRetain(&ctx, dev));
    CHECK(cuCtxSetCurrent(ctx));
    CHECK(cuModuleLoadData(&mod, &image));
    CHECK(cuModuleGetFunction(&m->fn, mod, "mix_words"));
    for (unsigned i = 1; i < m->nstreams && i < 8; i++)
        CHECK(cuStreamCreate(&m->streams[i], CU_STREAM_NON_BLOCKING));
}

static void make_blocks(struct mix *m)
{
    m->b = calloc(m->nblocks, sizeof *m->b);
    for (unsigned i = 0; i < m->nblocks; i++) {
        m->b[i].model = malloc(m->bytes);
        for (uint64_t w = 0; w < m->words; w++)
            m->b[i].model[w] = (uint32_t)(w * 2654435761u + i);
        CHECK(cuMemAlloc(&m->b[i].p, m->bytes));
        CHECK(cuMemcpyHtoD(m->b[i].p, m->b[i].model, m->bytes));
        CHECK(cuEventCreate(&m->b[i].done, CU_EVENT_DISABLE_TIMING));
    }
}

/* One kernel, on the device and in the model. */
static void one_kernel(struct mix *m, unsigned o, unsigned x, unsigned y, CUstream s, uint32_t add)
{
    struct block *used[3] = {&m->b[o], &m->b[x], &m->b[y]};
    for (int i = 0; i < 3; i++)
        CHECK(cuStreamWaitEvent(s, used[i]->done, 0));
    if (m->eager) {
        CUdeviceptr fresh;
        CHECK(cuMemAlloc(&fresh, m->bytes));
        CHECK(cuMemFree(m->b[o].p));
        m->b[o].p = fresh;
    }
    struct args a = {m->b[o].p, m->b[x].p, m->b[y].p, m->words, add};
    void *argp[] = {&a.out, &a.a, &a.b, &a.words, &a.add};
    /* Grids differ, as those of a network's layers do. */
    CHECK(cuLaunchKernel(m->fn, (unsigned)(m->words / 256 + 1), 1 + o % 8, 1, 256, 1, 1, 0, s, argp,
                         NULL));
    for (int i = 0; i < 3; i++)
        CHECK(cuEventRecord(used[i]->done, s));
    for (uint64_t w = 0; w < m->words; w++)
        m->b[o].model[w] = 3 * m->b[x].model[w] + m->b[y].model[w] + add;
}

static void one_round(struct mix *m, unsigned r)
{
    rng = m->seed + 99; /* every round is the same: an iteration */
    for (unsigned k = 0; k < m->nblocks; k++) {
        unsigned o = (unsigned)draw(m->nblocks), x = (unsigned)draw(m->nblocks);
        unsigned y = (unsigned)draw(m->nblocks);
        CUstream s = m->streams[draw(m->nstreams)];
        if (o != x && o != y)
            one_kernel(m, o, x, y, s, r + k);
    }
}

static int compare(struct mix *m)
{
    uint32_t *host = malloc(m->bytes);
    CHECK(cuCtxSynchronize());
    for (unsigned i = 0; i < m->nblocks; i++) {
        CHECK(cuMemcpyDtoH(host, m->b[i].p, m->bytes));
        for (uint64_t w = 0; w < m->words; w++)
            if (host[w] != m->b[i].model[w]) {
                printf("mix: block %u word %llu is %x and should be %x\n", i, (unsigned long long)w,
                       host[w], m->b[i].model[w]);
                return 1;
            }
        CHECK(cuMemFree(m->b[i].p));
    }
    printf("mix: ok\n");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr, "usage: mix BLOCKS BYTES ROUNDS STREAMS SEED [eager]\n");
        return 2;
    }
    struct mix m = {.nblocks = (unsigned)atoi(argv[1]),
                    .bytes = strtoull(argv[2], NULL, 10),
                    .nstreams = (unsigned)atoi(argv[4]),
                    .seed = strtoull(argv[5], NULL, 10),
                    .eager = argc > 6 && strcmp(argv[6], "eager") == 0};
    m.words = m.bytes / 4;
    open_device(&m);
    make_blocks(&m);
    for (unsigned r = 0; r < (unsigned)atoi(argv[3]); r++)
        one_round(&m, r);
    return compare(&m);
}
