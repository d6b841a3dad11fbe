/* The kernels of the simulated cuBLAS: ranges, arithmetic, cost. */
#include "blas.h"
#include "number.h"
#include "params.h"
#include "tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LOAD(type, l)                                                                              \
    struct type a;                                                                                 \
    memcpy(&a, (l)->params, sizeof a)

/* A column-major matrix as a tensor, for its ranges. */
static struct sg_tensor matrix(int32_t rows, int32_t cols, int32_t ld)
{
    return (struct sg_tensor){{1, 1, 1, cols, rows}, {0, 0, 0, ld, 1}};
}

/* A vector; a negative increment walks the same elements backwards. */
static struct sg_tensor vector(int32_t n, int32_t inc)
{
    return (struct sg_tensor){{1, 1, 1, 1, n}, {0, 0, 0, 0, inc < 0 ? -inc : inc}};
}

/* Offset of element 0 in BLAS's order. */
static int64_t first(int32_t n, int32_t inc)
{
    return inc < 0 ? (int64_t)(1 - n) * inc : 0;
}

static void touch_scalar(simgpu_touch_fn touch, void *ctx, uint64_t addr, size_t bytes)
{
    if (addr) {
        touch(ctx, addr, bytes, SIMGPU_READ);
    }
}

static float scalar32(uint64_t addr, float value)
{
    return addr ? *sg_ptr(addr) : value;
}

/* 1 where the old contents of an output surely do not matter. */
static int overwrites(const struct simgpu_launch *l, uint64_t addr, float value)
{
    return addr ? l->functional && *sg_ptr(addr) == 0.0f : value == 0.0f;
}

/* ---- matrix and vectors ---- */

static void sg_blas_gemv_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    LOAD(sg_blas_gemv_args, l);
    struct sg_tensor m = matrix(a.m, a.n, a.lda);
    struct sg_tensor x = vector(a.trans ? a.m : a.n, a.incx),
                     y = vector(a.trans ? a.n : a.m, a.incy);
    touch_scalar(touch, ctx, a.alpha, 4);
    touch_scalar(touch, ctx, a.beta, 4);
    sg_touch(touch, ctx, a.a, &m, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.x, &x, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.y, &y, 4,
             overwrites(l, a.beta, a.beta_value) ? SIMGPU_WRITE : SIMGPU_RW);
}

static void sg_blas_gemv_body(const struct simgpu_launch *l)
{
    LOAD(sg_blas_gemv_args, l);
    int32_t nx = a.trans ? a.m : a.n, ny = a.trans ? a.n : a.m;
    const float *m = sg_ptr(a.a), *x = sg_ptr(a.x) + first(nx, a.incx);
    float *y = sg_ptr(a.y) + first(ny, a.incy), *sum = sg_scratch((size_t)ny * sizeof *sum);
    float alpha = scalar32(a.alpha, a.alpha_value), beta = scalar32(a.beta, a.beta_value);
    memset(sum, 0, (size_t)ny * sizeof *sum);
    for (int32_t j = 0; j < a.n; j++) {
        const float *col = m + (int64_t)j * a.lda;
        if (a.trans) {
            for (int32_t i = 0; i < a.m; i++) {
                sum[j] += col[i] * x[(int64_t)i * a.incx];
            }
        } else {
            float v = x[(int64_t)j * a.incx];
            for (int32_t i = 0; i < a.m; i++) {
                sum[i] += col[i] * v;
            }
        }
    }
    for (int32_t i = 0; i < ny; i++) {
        float *out = y + (int64_t)i * a.incy;
        *out = sg_blend(alpha, sum[i], beta, *out);
    }
    free(sum);
}

static void sg_blas_gemv_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    LOAD(sg_blas_gemv_args, l);
    double m = a.m, n = a.n;
    *work = (struct simgpu_work){
        .flops = 2 * m * n, .bytes = 4 * (m * n + 2 * m + 2 * n), .kclass = SIMGPU_CLASS_REDUCE};
}

static void sg_blas_ger_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    LOAD(sg_blas_ger_args, l);
    struct sg_tensor m = matrix(a.m, a.n, a.lda), x = vector(a.m, a.incx), y = vector(a.n, a.incy);
    touch_scalar(touch, ctx, a.alpha, 4);
    sg_touch(touch, ctx, a.x, &x, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.y, &y, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.a, &m, 4, SIMGPU_RW);
}

static void sg_blas_ger_body(const struct simgpu_launch *l)
{
    LOAD(sg_blas_ger_args, l);
    const float *x = sg_ptr(a.x) + first(a.m, a.incx), *y = sg_ptr(a.y) + first(a.n, a.incy);
    float alpha = scalar32(a.alpha, a.alpha_value);
    for (int32_t j = 0; j < a.n; j++) {
        float *col = sg_ptr(a.a) + (int64_t)j * a.lda, v = alpha * y[(int64_t)j * a.incy];
        for (int32_t i = 0; i < a.m; i++) {
            col[i] += x[(int64_t)i * a.incx] * v;
        }
    }
}

static void sg_blas_ger_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    LOAD(sg_blas_ger_args, l);
    double m = a.m, n = a.n;
    *work = (struct simgpu_work){
        .flops = 2 * m * n, .bytes = 4 * (2 * m * n + m + n), .kclass = SIMGPU_CLASS_ELEMENTWISE};
}

static void sg_blas_geam_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    LOAD(sg_blas_geam_args, l);
    struct sg_tensor ma = a.trans_a ? matrix(a.n, a.m, a.lda) : matrix(a.m, a.n, a.lda);
    struct sg_tensor mb = a.trans_b ? matrix(a.n, a.m, a.ldb) : matrix(a.m, a.n, a.ldb);
    struct sg_tensor mc = matrix(a.m, a.n, a.ldc);
    touch_scalar(touch, ctx, a.alpha, 4);
    touch_scalar(touch, ctx, a.beta, 4);
    if (!overwrites(l, a.alpha, a.alpha_value)) {
        sg_touch(touch, ctx, a.a, &ma, 4, SIMGPU_READ);
    }
    if (!overwrites(l, a.beta, a.beta_value)) {
        sg_touch(touch, ctx, a.b, &mb, 4, SIMGPU_READ);
    }
    sg_touch(touch, ctx, a.c, &mc, 4, SIMGPU_WRITE);
}

static void sg_blas_geam_body(const struct simgpu_launch *l)
{
    LOAD(sg_blas_geam_args, l);
    float alpha = scalar32(a.alpha, a.alpha_value), beta = scalar32(a.beta, a.beta_value);
    const float *pa = sg_ptr(a.a), *pb = sg_ptr(a.b);
    for (int64_t j = 0; j < a.n; j++) {
        for (int64_t i = 0; i < a.m; i++) {
            float v = 0.0f;
            if (alpha != 0.0f) {
                v = alpha * pa[a.trans_a ? j + i * a.lda : i + j * a.lda];
            }
            if (beta != 0.0f) {
                v += beta * pb[a.trans_b ? j + i * a.ldb : i + j * a.ldb];
            }
            sg_ptr(a.c)[i + j * a.ldc] = v;
        }
    }
}

static void sg_blas_geam_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    LOAD(sg_blas_geam_args, l);
    double n = (double)a.m * a.n,
           in = (a.alpha || a.alpha_value != 0.0f) + (a.beta || a.beta_value != 0.0f);
    *work = (struct simgpu_work){
        .flops = 3 * n, .bytes = 4 * n * (1 + in), .kclass = SIMGPU_CLASS_ELEMENTWISE};
}

/* ---- vectors ---- */

static int reduces(int op)
{
    return op == SG_BLAS_DOT || op == SG_BLAS_ASUM || op == SG_BLAS_NRM2;
}

static int uses_y(int op)
{
    return op == SG_BLAS_AXPY || op == SG_BLAS_COPY || op == SG_BLAS_SWAP || op == SG_BLAS_DOT;
}

static void sg_blas_vector_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    LOAD(sg_blas_vector_args, l);
    struct sg_tensor x = vector(a.n, a.incx), y = vector(a.n, a.incy);
    size_t elem = sg_number_bytes((enum sg_number)a.type);
    int xmode = a.op == SG_BLAS_SCAL || a.op == SG_BLAS_SWAP ? SIMGPU_RW : SIMGPU_READ;
    touch_scalar(touch, ctx, a.alpha, 4);
    if (a.n > 0) {
        sg_touch(touch, ctx, a.x, &x, elem, xmode);
    }
    if (a.n > 0 && uses_y(a.op)) {
        int ymode = a.op == SG_BLAS_COPY  ? SIMGPU_WRITE
                    : a.op == SG_BLAS_DOT ? SIMGPU_READ
                                          : SIMGPU_RW;
        sg_touch(touch, ctx, a.y, &y, elem, ymode);
    }
    if (a.result) {
        touch(ctx, a.result, elem, SIMGPU_WRITE);
    }
}

/* Sums are kept in double so that the result does not hang on how a card would split them. */
static void reduce_vectors(const struct sg_blas_vector_args *a)
{
    const void *x = sg_ptr(a->x), *y = sg_ptr(a->y);
    enum sg_number type = (enum sg_number)a->type;
    int64_t x0 = first(a->n, a->incx), y0 = first(a->n, a->incy);
    double sum = 0;
    for (int64_t i = 0; i < a->n; i++) {
        double v = sg_number_load(type, x, x0 + i * a->incx);
        if (a->op == SG_BLAS_DOT) {
            sum += v * sg_number_load(type, y, y0 + i * a->incy);
        } else {
            sum += a->op == SG_BLAS_ASUM ? fabs(v) : v * v;
        }
    }
    sg_number_store(type, sg_ptr(a->result), 0, a->op == SG_BLAS_NRM2 ? sqrt(sum) : sum);
}

static void sg_blas_vector_body(const struct simgpu_launch *l)
{
    LOAD(sg_blas_vector_args, l);
    if (reduces(a.op)) {
        reduce_vectors(&a);
        return;
    }
    float *x = sg_ptr(a.x) + first(a.n, a.incx), *y = NULL;
    float alpha = scalar32(a.alpha, a.alpha_value);
    if (uses_y(a.op)) {
        y = sg_ptr(a.y) + first(a.n, a.incy);
    }
    for (int64_t i = 0; i < a.n; i++) {
        float *px = x + i * a.incx, *py = y ? y + i * a.incy : NULL;
        switch (a.op) {
        case SG_BLAS_AXPY:
            *py += alpha * *px;
            break;
        case SG_BLAS_SCAL:
            *px *= alpha;
            break;
        case SG_BLAS_COPY:
            *py = *px;
            break;
        default: { /* swap */
            float t = *px;
            *px = *py;
            *py = t;
        }
        }
    }
}

static void sg_blas_vector_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    static const int passes[] = {
        [SG_BLAS_AXPY] = 3, [SG_BLAS_SCAL] = 2, [SG_BLAS_COPY] = 2, [SG_BLAS_SWAP] = 4,
        [SG_BLAS_DOT] = 2,  [SG_BLAS_ASUM] = 1, [SG_BLAS_NRM2] = 1};
    LOAD(sg_blas_vector_args, l);
    *work = (struct simgpu_work){.flops = 2.0 * a.n,
                                 .bytes = (double)sg_number_bytes((enum sg_number)a.type) * a.n *
                                          passes[a.op],
                                 .kclass = reduces(a.op) ? SIMGPU_CLASS_REDUCE
                                                         : SIMGPU_CLASS_ELEMENTWISE};
}

/* ---- the image ---- */

#define X(id, kernel_name, args, pointers, stem)                                                   \
    static const struct simgpu_param params_##id[pointers + 1] = {                                 \
        SG_POINTERS_##pointers, {8 * pointers, sizeof(struct args) - 8 * pointers}};
SG_BLAS_KERNELS
#undef X

static const struct simgpu_kernel kernels[SG_BK_COUNT] = {
#define X(id, kernel_name, args, pointers, stem)                                                   \
    [SG_BK_##id] = {.name = kernel_name,                                                           \
                    .params = params_##id,                                                         \
                    .nparams = pointers + 1,                                                       \
                    .touches = stem##_touches,                                                     \
                    .body = stem##_body,                                                           \
                    .cost = stem##_cost},
    SG_BLAS_KERNELS
#undef X
};

const struct simgpu_image sg_blas_image = {
    .magic = SIMGPU_IMAGE_MAGIC,
    .version = SIMGPU_IMAGE_VERSION,
    .nkernels = SG_BK_COUNT,
    .kernels = kernels,
};
