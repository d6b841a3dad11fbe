/* kernels.c: the programs' kernels: what nvcc would have compiled and its start-up code registered. */
#include "api.h"
#include "simgpu.h"

struct args1 {
    uint64_t dst;
    uint32_t value, pad;
    uint64_t n;
};
struct args3 {
    uint64_t dst, a, b, n;
};

static const struct simgpu_param params1[] = {{0, 8}, {8, 4}, {16, 8}};
static const struct simgpu_param params3[] = {{0, 8}, {8, 8}, {16, 8}, {24, 8}};

static struct args1 get1(const struct simgpu_launch *l)
{
    struct args1 a;
    memcpy(&a, l->params, sizeof a);
    return a;
}

static struct args3 get3(const struct simgpu_launch *l)
{
    struct args3 a;
    memcpy(&a, l->params, sizeof a);
    return a;
}

static void touch_write(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct args1 a = get1(l);
    touch(ctx, a.dst, a.n * 4, SIMGPU_WRITE);
}

static void touch_update(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct args1 a = get1(l);
    touch(ctx, a.dst, a.n * 4, SIMGPU_RW);
}

static void touch_add(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct args3 a = get3(l);
    touch(ctx, a.a, a.n * 4, SIMGPU_READ);
    touch(ctx, a.b, a.n * 4, SIMGPU_READ);
    touch(ctx, a.dst, a.n * 4, SIMGPU_WRITE);
}

static uint32_t *words(uint64_t address)
{
    return (uint32_t *)(uintptr_t)address;
}

static void body_fill(const struct simgpu_launch *l)
{
    struct args1 a = get1(l);
    for (uint64_t i = 0; i < a.n; i++)
        words(a.dst)[i] = a.value;
}

static void body_ramp(const struct simgpu_launch *l)
{
    struct args1 a = get1(l);
    for (uint64_t i = 0; i < a.n; i++)
        words(a.dst)[i] = a.value + (uint32_t)i;
}

static void body_scale(const struct simgpu_launch *l)
{
    struct args1 a = get1(l);
    for (uint64_t i = 0; i < a.n; i++)
        words(a.dst)[i] *= a.value;
}

static void body_add(const struct simgpu_launch *l)
{
    struct args3 a = get3(l);
    for (uint64_t i = 0; i < a.n; i++)
        words(a.dst)[i] = words(a.a)[i] + words(a.b)[i];
}

static const struct simgpu_kernel kernels[] = {
    {"api_fill", params1, 3, touch_write, body_fill, NULL},
    {"api_ramp", params1, 3, touch_write, body_ramp, NULL},
    {"api_scale", params1, 3, touch_update, body_scale, NULL},
    {"api_add", params3, 4, touch_add, body_add, NULL},
};
static const struct simgpu_image image = {SIMGPU_IMAGE_MAGIC, SIMGPU_IMAGE_VERSION,
                                          sizeof kernels / sizeof kernels[0], kernels};
const void *const api_image = &image;

/* Any distinct addresses do as host stubs. */
static const char stubs[4] = {0, 0, 0, 0};
const void *const api_fill_stub = &stubs[0];
const void *const api_ramp_stub = &stubs[1];
const void *const api_scale_stub = &stubs[2];
const void *const api_add_stub = &stubs[3];

int api_is(const uint32_t *p, uint32_t value, uint32_t step, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (p[i] != value + step * (uint32_t)i)
            return 0;
    return 1;
}

#ifndef API_DRIVER_ONLY
void **__cudaRegisterFatBinary(void *fatCubin);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *hostFun, char *deviceFun,
                            const char *deviceName, int thread_limit, uint3 *tid, uint3 *bid,
                            dim3 *bDim, dim3 *gDim, int *wSize);

static const struct {
    int magic, version;
    const void *data;
    void *filename_or_fatbins;
} wrapper = {0x466243b1, 1, &image, NULL};
static void **handle;

static void unregister_kernels(void)
{
    __cudaUnregisterFatBinary(handle);
}

/* As in every program that nvcc links. */
__attribute__((constructor)) static void register_kernels(void)
{
    handle = __cudaRegisterFatBinary((void *)(uintptr_t)&wrapper);
    for (int i = 0; i < 4; i++)
        __cudaRegisterFunction(handle, &stubs[i], (char *)(uintptr_t)kernels[i].name,
                               kernels[i].name, -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFatBinaryEnd(handle);
    atexit(unregister_kernels);
}

static dim3 blocks(uint64_t n)
{
    return (dim3){(unsigned)((n + 255) / 256), 1, 1};
}

static void launch1(const void *stub, cudaStream_t s, uint32_t *dst, uint32_t value, uint64_t n)
{
    void *args[] = {&dst, &value, &n};
    OK(cudaLaunchKernel(stub, blocks(n), (dim3){256, 1, 1}, args, 0, s));
}

void api_fill(cudaStream_t s, uint32_t *dst, uint32_t value, uint64_t n)
{
    launch1(api_fill_stub, s, dst, value, n);
}

void api_ramp(cudaStream_t s, uint32_t *dst, uint32_t first, uint64_t n)
{
    launch1(api_ramp_stub, s, dst, first, n);
}

void api_scale(cudaStream_t s, uint32_t *dst, uint32_t factor, uint64_t n)
{
    launch1(api_scale_stub, s, dst, factor, n);
}

void api_add(cudaStream_t s, uint32_t *dst, const uint32_t *a, const uint32_t *b, uint64_t n)
{
    void *args[] = {&dst, &a, &b, &n};
    OK(cudaLaunchKernel(api_add_stub, blocks(n), (dim3){256, 1, 1}, args, 0, s));
}
#endif
