#include "gpu.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

struct args {
    uint64_t dst, src;
    uint32_t value, n;
    double ns;
};

static const struct simgpu_param params[] = {{0, 8}, {8, 8}, {16, 4}, {20, 4}, {24, 8}};

static struct args of(const struct simgpu_launch *l)
{
    struct args a;
    memcpy(&a, l->params, sizeof a);
    return a;
}
static void touch_add(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct args a = of(l);
    touch(ctx, a.dst, (size_t)a.n * 4, SIMGPU_RW);
}
static void body_add(const struct simgpu_launch *l)
{
    struct args a = of(l);
    for (uint32_t i = 0; i < a.n; i++)
        ((uint32_t *)a.dst)[i] += a.value;
}
static void touch_move(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct args a = of(l);
    touch(ctx, a.src, (size_t)a.n * 4, SIMGPU_READ);
    touch(ctx, a.dst, (size_t)a.n * 4, SIMGPU_WRITE);
}
static void body_move(const struct simgpu_launch *l)
{
    struct args a = of(l);
    memcpy((void *)a.dst, (void *)a.src, (size_t)a.n * 4);
}
static void touch_chase(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct args a = of(l);
    touch(ctx, a.src, 8, SIMGPU_READ);
    if (l->functional)
        touch(ctx, *(uint64_t *)a.src, 4, SIMGPU_WRITE);
}
static void body_chase(const struct simgpu_launch *l)
{
    struct args a = of(l);
    **(uint32_t **)a.src = a.value;
}
static void body_hidden(const struct simgpu_launch *l)
{
    struct args a = of(l);
    *(volatile uint32_t *)a.dst = a.value;
}
static void touch_work(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct args a = of(l);
    if (a.n)
        touch(ctx, a.dst, (size_t)a.n * 4, SIMGPU_WRITE);
}
static void cost_work(const struct simgpu_launch *l, struct simgpu_work *w)
{
    w->ns = of(l).ns;
}

const char *const test_kernel_names[K_COUNT] = {"add", "move", "chase", "hidden", "work"};
static const struct simgpu_kernel kernels[K_COUNT] = {
    {"add", params, 5, touch_add, body_add, NULL},
    {"move", params, 5, touch_move, body_move, NULL},
    {"chase", params, 5, touch_chase, body_chase, NULL},
    {"hidden", params, 5, NULL, body_hidden, NULL},
    {"work", params, 5, touch_work, NULL, cost_work},
};
const struct simgpu_image test_image = {SIMGPU_IMAGE_MAGIC, SIMGPU_IMAGE_VERSION, K_COUNT, kernels};

struct gpu gpu_start(const char *const *env)
{
    struct gpu g;
    for (; env[0]; env += 2)
        setenv(env[0], env[1], 1);
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&g.ctx, 0));
    OK(cuCtxSetCurrent(g.ctx));
    OK(cuModuleLoadData(&g.mod, &test_image));
    for (int i = 0; i < K_COUNT; i++)
        OK(cuModuleGetFunction(&g.fn[i], g.mod, test_kernel_names[i]));
    return g;
}

static void launch(CUfunction f, struct args a, CUstream s)
{
    void *p[] = {&a.dst, &a.src, &a.value, &a.n, &a.ns};
    OK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, s, p, NULL));
}

void gpu_add(const struct gpu *g, CUdeviceptr dst, unsigned value, unsigned n, CUstream s)
{
    launch(g->fn[K_ADD], (struct args){.dst = dst, .value = value, .n = n}, s);
}

void gpu_move(const struct gpu *g, CUdeviceptr dst, CUdeviceptr src, unsigned n, CUstream s)
{
    launch(g->fn[K_MOVE], (struct args){.dst = dst, .src = src, .n = n}, s);
}

void gpu_work(const struct gpu *g, double ns, CUdeviceptr dst, unsigned n, CUstream s)
{
    launch(g->fn[K_WORK], (struct args){.dst = dst, .n = n, .ns = ns}, s);
}

const char *gpu_stderr_of(void (*body)(void), int *status)
{
    static char text[8192];
    FILE *f = tmpfile();
    pid_t child = fork();
    if (child == 0) {
        dup2(fileno(f), STDERR_FILENO);
        body();
        _exit(0);
    }
    waitpid(child, status, 0);
    rewind(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    fclose(f);
    return text;
}
