/* A small pager that does everything right: two blocks take turns on one chunk of device memory,
 * the other one's contents lie in page-locked memory. Each round adds to both; at the end the sums
 * are compared. Compute and copies have a stream each; what orders them is events and one host
 * wait. The planted shim (planted_shim.c) takes one of these away.
 *
 * Prints "right" or "wrong N"; exit status 0 unless a call failed (3). */
#include <cuda.h>
#include <simgpu.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS  4096u
#define ROUNDS 6

struct args {
    uint64_t dst;
    uint32_t value, n;
};

static void touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct args a;
    memcpy(&a, l->params, sizeof a);
    touch(ctx, a.dst, (size_t)a.n * 4, SIMGPU_RW);
}
static void body(const struct simgpu_launch *l)
{
    struct args a;
    memcpy(&a, l->params, sizeof a);
    for (uint32_t i = 0; i < a.n; i++)
        ((uint32_t *)a.dst)[i] += a.value;
}
static const struct simgpu_param params[] = {{0, 8}, {8, 4}, {12, 4}};
static const struct simgpu_kernel kernel = {"add", params, 3, touches, body, NULL};
static const struct simgpu_image image = {SIMGPU_IMAGE_MAGIC, SIMGPU_IMAGE_VERSION, 1, &kernel};

static void ok(CUresult r, const char *what)
{
    if (r == CUDA_SUCCESS)
        return;
    fprintf(stderr, "program: %s failed: %d\n", what, (int)r);
    exit(3);
}
#define OK(call) ok((call), #call)

static CUfunction add;
static CUstream compute, copy;
static CUevent used, moved;
static CUdeviceptr va[2];
static uint32_t *host[2];
static CUmemGenericAllocationHandle chunk;
static size_t bytes;
static const CUmemAccessDesc rw = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static void work(int b, uint32_t value)
{
    uint32_t n = WORDS;
    void *p[] = {&va[b], &value, &n};
    OK(cuLaunchKernel(add, 1, 1, 1, 32, 1, 1, 0, compute, p, NULL));
    OK(cuEventRecord(used, compute));
}

/* Copy b out behind its last use, wait for that, and give its chunk to the other block. */
static void swap(int b)
{
    OK(cuStreamWaitEvent(copy, used, 0));
    OK(cuMemcpyDtoHAsync(host[b], va[b], bytes, copy));
    OK(cuEventRecord(moved, copy));
    OK(cuEventSynchronize(moved));
    OK(cuMemUnmap(va[b], bytes));
    OK(cuMemMap(va[!b], bytes, 0, chunk, 0));
    OK(cuMemSetAccess(va[!b], bytes, &rw, 1));
    OK(cuMemcpyHtoDAsync(va[!b], host[!b], bytes, copy));
    OK(cuEventRecord(moved, copy));
    OK(cuStreamWaitEvent(compute, moved, 0));
}

static void set_up(void)
{
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = rw.location};
    CUcontext ctx;
    CUmodule mod;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxSetCurrent(ctx));
    OK(cuModuleLoadData(&mod, &image));
    OK(cuModuleGetFunction(&add, mod, "add"));
    OK(cuStreamCreate(&compute, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&copy, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&used, CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&moved, CU_EVENT_DISABLE_TIMING));
    OK(cuMemGetAllocationGranularity(&bytes, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    OK(cuMemCreate(&chunk, bytes, &prop, 0));
    for (int b = 0; b < 2; b++) {
        OK(cuMemAddressReserve(&va[b], bytes, 0, 0, 0));
        OK(cuMemAllocHost((void **)&host[b], bytes));
        memset(host[b], 0, bytes);
    }
    OK(cuMemMap(va[0], bytes, 0, chunk, 0));
    OK(cuMemSetAccess(va[0], bytes, &rw, 1));
    OK(cuMemcpyHtoDAsync(va[0], host[0], bytes, copy));
    OK(cuEventRecord(moved, copy));
    OK(cuStreamWaitEvent(compute, moved, 0));
}

int main(void)
{
    unsigned wrong = 0;
    set_up();
    for (uint32_t r = 0; r < ROUNDS; r++)
        for (int b = 0; b < 2; b++) {
            work(b, r + (uint32_t)b * 100);
            swap(b);
        }
    OK(cuCtxSynchronize());
    for (uint32_t b = 0; b < 2; b++)
        for (unsigned i = 0; i < WORDS; i++)
            wrong += host[b][i] != ROUNDS * (ROUNDS - 1) / 2 + b * 100 * ROUNDS;
    if (wrong)
        printf("wrong %u\n", wrong);
    else
        printf("right\n");
    return 0;
}
