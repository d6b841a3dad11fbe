/* The kernels: PTX, which any driver compiles for its card, and the same for the simulated GPU. */
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simgpu.h"

/* ---- PTX
 * ------------------------------------------------------------------------------------------*/

/* i runs over blockIdx * blockDim + threadIdx and on by the whole grid, up to `words`. */
#define FROM_FIRST                                                                                 \
    "mov.u32 %r1, %ctaid.x;\n"                                                                     \
    "mov.u32 %r2, %ntid.x;\n"                                                                      \
    "mov.u32 %r3, %tid.x;\n"                                                                       \
    "mad.wide.u32 %i, %r1, %r2, 0;\n"                                                              \
    "cvt.u64.u32 %rd1, %r3;\n"                                                                     \
    "add.u64 %i, %i, %rd1;\n"                                                                      \
    "mov.u32 %r4, %nctaid.x;\n"                                                                    \
    "mul.wide.u32 %step, %r4, %r2;\n"

static const char ptx[] =
    ".version 7.0\n"
    ".target sm_52\n"
    ".address_size 64\n"
    ".visible .entry spin(.param .u64 p_ns)\n"
    "{\n"
    ".reg .u64 %ns, %from, %at;\n"
    ".reg .pred %p;\n"
    "ld.param.u64 %ns, [p_ns];\n"
    "mov.u64 %from, %globaltimer;\n"
    "again:\n"
    "mov.u64 %at, %globaltimer;\n"
    "sub.u64 %at, %at, %from;\n"
    "setp.lt.u64 %p, %at, %ns;\n"
    "@%p bra again;\n"
    "ret;\n"
    "}\n"
    ".visible .entry fill(.param .u64 p_dst, .param .u64 p_words, .param .u64 p_value)\n"
    "{\n"
    ".reg .u64 %dst, %words, %value, %i, %step, %rd<4>;\n"
    ".reg .u32 %r<5>;\n"
    ".reg .pred %p;\n"
    "ld.param.u64 %dst, [p_dst];\n"
    "ld.param.u64 %words, [p_words];\n"
    "ld.param.u64 %value, [p_value];\n" FROM_FIRST "again:\n"
    "setp.ge.u64 %p, %i, %words;\n"
    "@%p bra done;\n"
    "shl.b64 %rd2, %i, 3;\n"
    "add.u64 %rd2, %dst, %rd2;\n"
    "add.u64 %rd3, %value, %i;\n"
    "st.global.u64 [%rd2], %rd3;\n"
    "add.u64 %i, %i, %step;\n"
    "bra again;\n"
    "done:\n"
    "ret;\n"
    "}\n"
    ".visible .entry sum(.param .u64 p_src, .param .u64 p_words, .param .u64 p_out)\n"
    "{\n"
    ".reg .u64 %src, %words, %out, %total, %i, %step, %rd<4>;\n"
    ".reg .u32 %r<5>;\n"
    ".reg .pred %p;\n"
    "ld.param.u64 %src, [p_src];\n"
    "ld.param.u64 %words, [p_words];\n"
    "ld.param.u64 %out, [p_out];\n"
    "mov.u64 %total, 0;\n" FROM_FIRST "again:\n"
    "setp.ge.u64 %p, %i, %words;\n"
    "@%p bra done;\n"
    "shl.b64 %rd2, %i, 3;\n"
    "add.u64 %rd2, %src, %rd2;\n"
    "ld.global.u64 %rd3, [%rd2];\n"
    "add.u64 %total, %total, %rd3;\n"
    "add.u64 %i, %i, %step;\n"
    "bra again;\n"
    "done:\n"
    "red.global.add.u64 [%out], %total;\n"
    "ret;\n"
    "}\n"
    ".visible .entry eight(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d, .param .u64 "
    "e,\n"
    ".param .u64 f, .param .u64 g, .param .u64 h, .param .u32 i, .param .u32 j, .param .u32 k)\n"
    "{ ret; }\n"
    ".visible .entry wide4k(.param .align 8 .b8 p[4000]) { ret; }\n";

/* Parameters beyond 4 KiB need a driver of CUDA 12.1 and a card of 7.0. */
static const char ptx_wide[] = ".version 8.1\n"
                               ".target sm_70\n"
                               ".address_size 64\n"
                               ".visible .entry wide32k(.param .align 8 .b8 p[32760]) { ret; }\n";

/* ---- the simulated GPU
 * -----------------------------------------------------------------------------*/

static uint64_t word(const struct simgpu_launch *l, unsigned i)
{
    uint64_t w;
    memcpy(&w, l->params + 8 * i, sizeof w);
    return w;
}

static void no_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    (void)l, (void)touch, (void)ctx;
}

static void no_body(const struct simgpu_launch *l)
{
    (void)l;
}

static void spin_cost(const struct simgpu_launch *l, struct simgpu_work *w)
{
    w->ns = (double)word(l, 0);
}

static void fill_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    touch(ctx, word(l, 0), word(l, 1) * 8, SIMGPU_WRITE);
}

static void fill_body(const struct simgpu_launch *l)
{
    uint64_t *dst = (uint64_t *)(uintptr_t)word(l, 0);
    for (uint64_t i = 0; i < word(l, 1); i++)
        dst[i] = word(l, 2) + i;
}

static void stream_cost(const struct simgpu_launch *l, struct simgpu_work *w)
{
    w->kclass = SIMGPU_CLASS_ELEMENTWISE;
    w->bytes = (double)word(l, 1) * 8;
}

static void sum_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    touch(ctx, word(l, 0), word(l, 1) * 8, SIMGPU_READ);
    touch(ctx, word(l, 2), 8, SIMGPU_RW);
}

static void sum_body(const struct simgpu_launch *l)
{
    const uint64_t *src = (const uint64_t *)(uintptr_t)word(l, 0);
    uint64_t *out = (uint64_t *)(uintptr_t)word(l, 2);
    for (uint64_t i = 0; i < word(l, 1); i++)
        *out += src[i];
}

static const struct simgpu_param words[] = {{0, 8},  {8, 8},  {16, 8}, {24, 8}, {32, 8}, {40, 8},
                                            {48, 8}, {56, 8}, {64, 4}, {68, 4}, {72, 4}};
static const struct simgpu_param wide4k[] = {{0, BYTES_4K}}, wide32k[] = {{0, BYTES_32K}};
static const struct simgpu_kernel simulated_kernels[] = {
    {KERNEL_SPIN, words, 1, no_touches, no_body, spin_cost},
    {KERNEL_FILL, words, 3, fill_touches, fill_body, stream_cost},
    {KERNEL_SUM, words, 3, sum_touches, sum_body, stream_cost},
    {KERNEL_EIGHT, words, 11, no_touches, no_body, NULL},
    {KERNEL_4K, wide4k, 1, no_touches, no_body, NULL},
    {KERNEL_32K, wide32k, 1, no_touches, no_body, NULL},
};
static const struct simgpu_image simulated_image = {
    SIMGPU_IMAGE_MAGIC, SIMGPU_IMAGE_VERSION,
    sizeof simulated_kernels / sizeof simulated_kernels[0], simulated_kernels};

/* ---- both
 * ------------------------------------------------------------------------------------------*/

const void *kernels_image(void)
{
    return simulated ? (const void *)&simulated_image : (const void *)ptx;
}

CUfunction kernel(const char *name)
{
    static CUmodule module, wide;
    CUfunction f = NULL;
    if (!module)
        must(cu.ModuleLoadData(&module, kernels_image()));
    if (!simulated && strcmp(name, KERNEL_32K) == 0) {
        if (!wide && cu.ModuleLoadData(&wide, ptx_wide) != CUDA_SUCCESS)
            return NULL;
        must(cu.ModuleGetFunction(&f, wide, name));
    } else {
        must(cu.ModuleGetFunction(&f, module, name));
    }
    return f;
}

void launch_spin(double us, CUstream stream)
{
    static CUfunction f;
    uint64_t ns = (uint64_t)(us * 1e3);
    void *params[] = {&ns};
    if (!f)
        f = kernel(KERNEL_SPIN);
    must(cu.LaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

/* Threads enough to keep any card's memory busy, each with several words. */
static void launch_words(CUfunction f, size_t n, void **params, CUstream stream)
{
    size_t blocks = (n + 255) / 256;
    must(cu.LaunchKernel(f, blocks < 2048 ? (unsigned)blocks : 2048, 1, 1, 256, 1, 1, 0, stream,
                         params, NULL));
}

void launch_fill(CUdeviceptr dst, size_t n, uint64_t value, CUstream stream)
{
    static CUfunction f;
    uint64_t count = n;
    void *params[] = {&dst, &count, &value};
    if (!f)
        f = kernel(KERNEL_FILL);
    launch_words(f, n, params, stream);
}

void launch_sum(CUdeviceptr src, size_t n, CUdeviceptr out, CUstream stream)
{
    static CUfunction f;
    uint64_t count = n;
    void *params[] = {&src, &count, &out};
    if (!f)
        f = kernel(KERNEL_SUM);
    launch_words(f, n, params, stream);
}
