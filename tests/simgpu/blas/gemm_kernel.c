/* The kernels of matrix products, for cuBLAS and cuBLASLt: ranges, arithmetic, cost. */
#include "blas.h"
#include "gemm.h"
#include "number.h"
#include "tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LOAD(l)                                                                                    \
    struct sg_blas_gemm_args a;                                                                    \
    memcpy(&a, (l)->params, sizeof a)

enum sg_blas_kernel_id sg_blas_gemm_kernel(const struct sg_blas_gemm_args *a)
{
    static const enum sg_blas_kernel_id single[2][2] = {{SG_BK_SGEMM, SG_BK_SGEMM_NT},
                                                        {SG_BK_SGEMM_TN, SG_BK_SGEMM_TT}};
    if (a->tables) {
        return SG_BK_GEMM_BATCHED;
    }
    switch (a->type_ab) {
    case SG_F64:
        return SG_BK_DGEMM;
    case SG_F16:
        return SG_BK_HGEMM;
    case SG_BF16:
        return SG_BK_BGEMM;
    default:
        return single[a->ma.rs != 1][a->mb.rs != 1];
    }
}

static uint64_t item(const struct sg_blas_gemm_args *a, uint64_t base, const struct sg_blas_matrix *m,
                     int32_t type, int32_t i)
{
    if (a->tables) {
        return ((const uint64_t *)(uintptr_t)base)[i];
    }
    return base + (uint64_t)(m->batch * i) * sg_number_bytes((enum sg_number)type);
}

static double scalar(const struct sg_blas_gemm_args *a, uint64_t addr, double value)
{
    return addr ? sg_number_load((enum sg_number)a->type_scale, (const void *)(uintptr_t)addr, 0)
                : value;
}

/* ---- ranges ---- */

struct touching {
    simgpu_touch_fn touch;
    void *ctx;
};

static void touch_matrix(const struct touching *t, uint64_t addr, int64_t rows, int64_t cols,
                         const struct sg_blas_matrix *m, int32_t type, int mode)
{
    size_t elem = sg_number_bytes((enum sg_number)type);
    int64_t rs = m->rs;
    if (rs < 0) { /* a vector walked backwards */
        addr += (uint64_t)((rows - 1) * rs) * elem;
        rs = -rs;
    }
    struct sg_tensor s = {{1, 1, 1, (int32_t)cols, (int32_t)rows},
                          {0, 0, 0, (int32_t)m->cs, (int32_t)rs}};
    sg_touch(t->touch, t->ctx, addr, &s, elem, mode);
}

/* Where column j of matrix p of the auxiliary data lies, and how many bytes of it are used. */
static uint64_t aux_column(const struct sg_blas_gemm_args *a, int32_t p, int64_t j, size_t *bytes)
{
    int64_t at = a->aux_batch * p + a->aux_ld * j;
    if (a->epilogue & (SG_BLAS_RELU | SG_BLAS_DRELU)) {
        *bytes = ((size_t)a->m + 7) / 8;
        return a->aux + (uint64_t)at / 8;
    }
    size_t elem = sg_number_bytes((enum sg_number)a->type_aux);
    *bytes = (size_t)a->m * elem;
    return a->aux + (uint64_t)at * elem;
}

static void touch_epilogue(const struct touching *t, const struct sg_blas_gemm_args *a)
{
    size_t elem = sg_number_bytes((enum sg_number)a->type_bias);
    for (int32_t p = 0; p < a->batch; p++) {
        uint64_t bias = a->bias + (uint64_t)(a->bias_batch * p) * elem;
        if (a->epilogue & SG_BLAS_BIAS) {
            t->touch(t->ctx, bias, elem * (size_t)a->m, SIMGPU_READ);
        } else if (a->epilogue & (SG_BLAS_BIAS_GRAD | SG_BLAS_SUM_A)) {
            t->touch(t->ctx, bias, elem * (size_t)a->m, SIMGPU_WRITE);
        } else if (a->epilogue & SG_BLAS_SUM_B) {
            t->touch(t->ctx, bias, elem * (size_t)a->n, SIMGPU_WRITE);
        }
        int mode = a->epilogue & SG_BLAS_AUX                          ? SIMGPU_WRITE
                   : a->epilogue & (SG_BLAS_DRELU | SG_BLAS_DGELU) ? SIMGPU_READ
                                                                      : 0;
        for (int64_t j = 0; mode && j < a->n; j++) {
            size_t bytes;
            uint64_t at = aux_column(a, p, j, &bytes);
            t->touch(t->ctx, at, bytes, mode);
        }
    }
}

void sg_blas_gemm_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    LOAD(l);
    struct touching t = {touch, ctx};
    const uint64_t scalars[2] = {a.alpha, a.beta};
    for (int i = 0; i < 2; i++) {
        if (scalars[i]) {
            touch(ctx, scalars[i], sg_number_bytes((enum sg_number)a.type_scale), SIMGPU_READ);
        }
    }
    if (a.tables) {
        const uint64_t tables[4] = {a.a, a.b, a.c, a.d};
        for (int i = 0; i < (a.c == a.d ? 3 : 4); i++) {
            touch(ctx, tables[i], 8 * (size_t)a.batch, SIMGPU_READ);
        }
        if (!l->functional) {
            return; /* the tables have no contents to follow */
        }
    }
    /* old contents matter unless beta is surely zero */
    int keeps = a.beta ? !l->functional || scalar(&a, a.beta, 0) != 0.0 : a.beta_value != 0.0;
    for (int32_t i = 0; i < a.batch; i++) {
        uint64_t c = item(&a, a.c, &a.mc, a.type_c, i), d = item(&a, a.d, &a.md, a.type_d, i);
        if (a.k > 0) {
            touch_matrix(&t, item(&a, a.a, &a.ma, a.type_ab, i), a.m, a.k, &a.ma, a.type_ab,
                         SIMGPU_READ);
            touch_matrix(&t, item(&a, a.b, &a.mb, a.type_ab, i), a.k, a.n, &a.mb, a.type_ab,
                         SIMGPU_READ);
        }
        if (keeps && c != d) {
            touch_matrix(&t, c, a.m, a.n, &a.mc, a.type_c, SIMGPU_READ);
        }
        touch_matrix(&t, d, a.m, a.n, &a.md, a.type_d,
                     keeps && c == d ? SIMGPU_RW : SIMGPU_WRITE);
    }
    touch_epilogue(&t, &a);
    if (a.work_bytes) {
        touch(ctx, a.work, (size_t)a.work_bytes, SIMGPU_WRITE);
    }
}

/* ---- arithmetic ---- */

/* A packed column-major copy in single precision; release with free(). */
static float *widened(const void *p, int64_t rows, int64_t cols, const struct sg_blas_matrix *m,
                      int32_t type)
{
    float *out = sg_scratch((size_t)(rows * cols) * sizeof *out);
    for (int64_t j = 0; j < cols; j++) {
        for (int64_t i = 0; i < rows; i++) {
            out[i + j * rows] =
                (float)sg_number_load((enum sg_number)type, p, i * m->rs + j * m->cs);
        }
    }
    return out;
}

static float gelu(float x, float *gradient)
{
    const float c = 0.7978845608f /* sqrt(2/pi) */, b = 0.044715f;
    float t = tanhf(c * (x + b * x * x * x));
    *gradient = 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * c * (1 + 3 * b * x * x);
    return 0.5f * x * (1 + t);
}

/* One element; `bits` or `inputs` is its column of the auxiliary data, i its row. */
static float finish(const struct sg_blas_gemm_args *a, float v, double bias, unsigned char *bits,
                    void *inputs, int64_t i)
{
    unsigned char bit = (unsigned char)(1u << (i % 8));
    float gradient;
    if (a->epilogue & SG_BLAS_BIAS) {
        v += (float)bias;
    }
    if (a->epilogue & SG_BLAS_RELU) {
        if (a->epilogue & SG_BLAS_AUX) {
            bits[i / 8] = (unsigned char)(v > 0 ? bits[i / 8] | bit : bits[i / 8] & ~bit);
        }
        return v > 0 ? v : 0;
    }
    if (a->epilogue & SG_BLAS_GELU) {
        if (a->epilogue & SG_BLAS_AUX) {
            sg_number_store((enum sg_number)a->type_aux, inputs, i, (double)v);
        }
        return gelu(v, &gradient);
    }
    if (a->epilogue & SG_BLAS_DRELU) {
        return bits[i / 8] & bit ? v : 0;
    }
    if (a->epilogue & SG_BLAS_DGELU) {
        (void)gelu((float)sg_number_load((enum sg_number)a->type_aux, inputs, i), &gradient);
        return v * gradient;
    }
    return v;
}

/* Applies the epilogue to matrix p of the batch, which is in `out`. */
static void epilogue(const struct sg_blas_gemm_args *a, int32_t p, float *out,
                     const struct sg_blas_matrix *m)
{
    enum sg_number type = (enum sg_number)a->type_bias;
    char *bias = (char *)(uintptr_t)a->bias + (size_t)(a->bias_batch * p) * sg_number_bytes(type);
    double *sums = sg_scratch((size_t)a->m * sizeof *sums);
    memset(sums, 0, (size_t)a->m * sizeof *sums);
    for (int64_t j = 0; j < a->n; j++) {
        size_t bytes;
        unsigned char *aux = (unsigned char *)(uintptr_t)aux_column(a, p, j, &bytes);
        if ((a->epilogue & SG_BLAS_RELU) && (a->epilogue & SG_BLAS_AUX)) {
            memset(aux, 0, bytes);
        }
        for (int64_t i = 0; i < a->m; i++) {
            float *v = out + i * m->rs + j * m->cs;
            double b = a->epilogue & SG_BLAS_BIAS ? sg_number_load(type, bias, i) : 0;
            *v = finish(a, *v, b, aux, aux, i);
            sums[i] += (double)*v;
        }
    }
    for (int64_t i = 0; (a->epilogue & SG_BLAS_BIAS_GRAD) && i < a->m; i++) {
        sg_number_store(type, bias, i, sums[i]);
    }
    free(sums);
}

/* The sums of op(A)'s rows, or of op(B)'s columns, over k. */
static void operand_sums(const struct sg_blas_gemm_args *a, int32_t p)
{
    int of_a = a->epilogue & SG_BLAS_SUM_A;
    const struct sg_blas_matrix *m = of_a ? &a->ma : &a->mb;
    int64_t across = of_a ? m->rs : m->cs, along = of_a ? m->cs : m->rs, n = of_a ? a->m : a->n;
    const void *x = (const void *)(uintptr_t)item(a, of_a ? a->a : a->b, m, a->type_ab, p);
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t q = 0; q < a->k; q++) {
            sum += sg_number_load((enum sg_number)a->type_ab, x, i * across + q * along);
        }
        sg_number_store((enum sg_number)a->type_bias, (void *)(uintptr_t)a->bias,
                        a->bias_batch * p + i, sum);
    }
}

static void copy_matrix(const struct sg_blas_gemm_args *a, const void *c, void *d)
{
    for (int64_t j = 0; j < a->n; j++) {
        for (int64_t i = 0; i < a->m; i++) {
            double v = sg_number_load((enum sg_number)a->type_c, c, i * a->mc.rs + j * a->mc.cs);
            sg_number_store((enum sg_number)a->type_d, d, i * a->md.rs + j * a->md.cs, v);
        }
    }
}

static void product(const struct sg_blas_gemm_args *a, int32_t p, double alpha, double beta)
{
    struct sg_mat as = {a->ma.rs, a->ma.cs}, bs = {a->mb.rs, a->mb.cs}, ds = {a->md.rs, a->md.cs};
    void *pa = (void *)(uintptr_t)item(a, a->a, &a->ma, a->type_ab, p);
    void *pb = (void *)(uintptr_t)item(a, a->b, &a->mb, a->type_ab, p);
    void *pc = (void *)(uintptr_t)item(a, a->c, &a->mc, a->type_c, p);
    void *pd = (void *)(uintptr_t)item(a, a->d, &a->md, a->type_d, p);
    if (a->type_d == a->type_ab && (a->type_d == SG_F32 || a->type_d == SG_F64)) {
        if (pc != pd && beta != 0) {
            copy_matrix(a, pc, pd);
        }
        if (a->type_d == SG_F64) {
            sg_gemm_f64(a->m, a->n, a->k, alpha, pa, as, pb, bs, beta, pd, ds);
        } else {
            sg_gemm_f32(a->m, a->n, a->k, (float)alpha, pa, as, pb, bs, (float)beta, pd, ds);
        }
        if (a->epilogue & ~(SG_BLAS_SUM_A | SG_BLAS_SUM_B)) {
            epilogue(a, p, pd, &a->md);
        }
        return;
    }
    const struct sg_blas_matrix packed = {1, a->m, 0};
    float *wa = widened(pa, a->m, a->k, &a->ma, a->type_ab),
          *wb = widened(pb, a->k, a->n, &a->mb, a->type_ab),
          *out = beta != 0 ? widened(pc, a->m, a->n, &a->mc, a->type_c)
                           : sg_scratch((size_t)a->m * (size_t)a->n * sizeof *out);
    sg_gemm_f32(a->m, a->n, a->k, (float)alpha, wa, (struct sg_mat){1, a->m}, wb,
                (struct sg_mat){1, a->k}, (float)beta, out, (struct sg_mat){1, a->m});
    if (a->epilogue & ~(SG_BLAS_SUM_A | SG_BLAS_SUM_B)) {
        epilogue(a, p, out, &packed);
    }
    for (int64_t j = 0; j < a->n; j++) {
        for (int64_t i = 0; i < a->m; i++) {
            sg_number_store((enum sg_number)a->type_d, pd, i * a->md.rs + j * a->md.cs,
                            (double)out[i + j * a->m]);
        }
    }
    free(wa);
    free(wb);
    free(out);
}

void sg_blas_gemm_body(const struct simgpu_launch *l)
{
    LOAD(l);
    double alpha = scalar(&a, a.alpha, a.alpha_value), beta = scalar(&a, a.beta, a.beta_value);
    if (a.work_bytes) {
        memset((void *)(uintptr_t)a.work, 0, (size_t)a.work_bytes);
    }
    for (int32_t p = 0; p < a.batch; p++) {
        product(&a, p, alpha, beta);
        if (a.epilogue & (SG_BLAS_SUM_A | SG_BLAS_SUM_B)) {
            operand_sums(&a, p);
        }
    }
}

/* ---- cost ---- */

static double padded(double v, double to)
{
    return ceil(v / to) * to;
}

void sg_blas_gemm_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    LOAD(l);
    double m = a.m, n = a.n, k = a.k, batch = a.batch;
    double in = (double)sg_number_bytes((enum sg_number)a.type_ab),
           out = (double)sg_number_bytes((enum sg_number)a.type_d);
    if (a.beta || a.beta_value != 0.0) {
        out += (double)sg_number_bytes((enum sg_number)a.type_c);
    }
    if (a.epilogue & (SG_BLAS_AUX | SG_BLAS_DRELU | SG_BLAS_DGELU)) {
        out += a.epilogue & (SG_BLAS_RELU | SG_BLAS_DRELU)
                   ? 1.0 / 8
                   : (double)sg_number_bytes((enum sg_number)a.type_aux);
    }
    /* borders of tiles, and the start-up along k, as in the convolutions' products */
    double macs = padded(m, 32) * padded(n, 32) * (k + 16);
    *work = (struct simgpu_work){.flops = 2 * batch * macs / a.rate,
                                 .bytes = batch * (in * (m * k + k * n) + out * m * n) +
                                          2.0 * (double)a.work_bytes,
                                 .kclass = SIMGPU_CLASS_GEMM};
}
