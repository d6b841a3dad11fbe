#include "norm.h"

#include <cudnn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- local response normalisation across channels ---- */

static inline int64_t pixel(const struct sg_tensor *t, int32_t n, int64_t p)
{
    int32_t w = (int32_t)(p % t->dim[4]), h = (int32_t)(p / t->dim[4] % t->dim[3]);
    int32_t d = (int32_t)(p / t->dim[4] / t->dim[3]);
    return (int64_t)n * t->str[0] + (int64_t)d * t->str[2] + (int64_t)h * t->str[3] +
           (int64_t)w * t->str[4];
}

/* k + alpha / n * (sum of squares in the window of channel c) */
static float lrn_base(const struct sg_lrn_args *a, const float *x, int32_t c)
{
    int32_t behind = (a->lrn_n - 1) / 2, lo = c - behind, hi = lo + a->lrn_n;
    float sum = 0.0f;
    for (int32_t i = lo < 0 ? 0 : lo; i < hi && i < a->tx.dim[1]; i++) {
        float v = x[(int64_t)i * a->tx.str[1]];
        sum += v * v;
    }
    return a->lrn_k + a->lrn_alpha / (float)a->lrn_n * sum;
}

void sg_lrn_fwd_body(const struct simgpu_launch *l)
{
    struct sg_lrn_args a;
    memcpy(&a, l->params, sizeof a);
    int64_t pixels = (int64_t)a.tx.dim[2] * a.tx.dim[3] * a.tx.dim[4];
    for (int32_t n = 0; n < a.tx.dim[0]; n++) {
        for (int64_t p = 0; p < pixels; p++) {
            const float *x = sg_ptr(a.x) + pixel(&a.tx, n, p);
            float *y = sg_ptr(a.out) + pixel(&a.tout, n, p);
            for (int32_t c = 0; c < a.tx.dim[1]; c++) {
                float v = x[(int64_t)c * a.tx.str[1]] * powf(lrn_base(&a, x, c), -a.lrn_beta);
                float *out = y + (int64_t)c * a.tout.str[1];
                *out = sg_blend(a.alpha, v, a.beta, *out);
            }
        }
    }
}

/* dx[j] = dy[j] base[j]^-b - 2 a b / n x[j] sum over the i whose window holds j of dy[i] y[i] /
 * base[i] */
static void lrn_bwd_pixel(const struct sg_lrn_args *a, int32_t n, int64_t p, float *base,
                          float *ratio)
{
    const float *x = sg_ptr(a->x) + pixel(&a->tx, n, p), *y = sg_ptr(a->y) + pixel(&a->ty, n, p);
    const float *dy = sg_ptr(a->dy) + pixel(&a->tdy, n, p);
    float *dx = sg_ptr(a->out) + pixel(&a->tout, n, p);
    int32_t channels = (int32_t)a->tx.dim[1], behind = (a->lrn_n - 1) / 2, ahead = a->lrn_n - behind - 1;
    for (int32_t c = 0; c < channels; c++) {
        base[c] = lrn_base(a, x, c);
        ratio[c] = dy[(int64_t)c * a->tdy.str[1]] * y[(int64_t)c * a->ty.str[1]] / base[c];
    }
    float factor = 2.0f * a->lrn_alpha * a->lrn_beta / (float)a->lrn_n;
    for (int32_t c = 0; c < channels; c++) {
        float sum = 0.0f;
        int32_t lo = c - ahead < 0 ? 0 : c - ahead; /* centres whose window reaches c */
        for (int32_t i = lo; i <= c + behind && i < channels; i++) {
            sum += ratio[i];
        }
        float d = dy[(int64_t)c * a->tdy.str[1]] * powf(base[c], -a->lrn_beta) -
                  factor * x[(int64_t)c * a->tx.str[1]] * sum;
        float *out = dx + (int64_t)c * a->tout.str[1];
        *out = sg_blend(a->alpha, d, a->beta, *out);
    }
}

void sg_lrn_bwd_body(const struct simgpu_launch *l)
{
    struct sg_lrn_args a;
    memcpy(&a, l->params, sizeof a);
    int64_t pixels = (int64_t)a.tx.dim[2] * a.tx.dim[3] * a.tx.dim[4];
    float *base = sg_scratch(2 * (size_t)a.tx.dim[1] * sizeof *base);
    for (int32_t n = 0; n < a.tx.dim[0]; n++) {
        for (int64_t p = 0; p < pixels; p++) {
            lrn_bwd_pixel(&a, n, p, base, base + a.tx.dim[1]);
        }
    }
    free(base);
}

void sg_lrn_fwd_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct sg_lrn_args a;
    memcpy(&a, l->params, sizeof a);
    sg_touch(touch, ctx, a.x, &a.tx, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.out, &a.tout, 4, sg_out_mode(a.beta));
}

void sg_lrn_bwd_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct sg_lrn_args a;
    memcpy(&a, l->params, sizeof a);
    sg_touch(touch, ctx, a.y, &a.ty, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.dy, &a.tdy, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.x, &a.tx, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.out, &a.tout, 4, sg_out_mode(a.beta));
}

static void passes(struct simgpu_work *work, const struct sg_tensor *t, double ops, double n)
{
    double elements = (double)sg_count(t);
    *work = (struct simgpu_work){
        .flops = ops * elements, .bytes = 4 * n * elements, .kclass = SIMGPU_CLASS_NORM};
}

void sg_lrn_fwd_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    struct sg_lrn_args a;
    memcpy(&a, l->params, sizeof a);
    passes(work, &a.tx, 10 + 2 * a.lrn_n, a.beta == 0.0f ? 2 : 3);
}

void sg_lrn_bwd_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    struct sg_lrn_args a;
    memcpy(&a, l->params, sizeof a);
    passes(work, &a.tx, 20 + 4 * a.lrn_n, a.beta == 0.0f ? 4 : 5);
}

/* ---- softmax ---- */

/* Element i of one normalised vector: over all of an image, or over the channels of one pixel. */
struct vector {
    int64_t count;
    int64_t pixels; /* 1 where the vector is the channels of one pixel */
    int64_t first;  /* pixel of the vector, per-channel mode */
    int32_t n;
};

static inline int64_t element(const struct sg_tensor *t, const struct vector *v, int64_t i)
{
    if (v->pixels == 1) {
        return pixel(t, v->n, v->first) + i * t->str[1];
    }
    return pixel(t, v->n, i % v->pixels) + i / v->pixels * t->str[1];
}

/* Calls body for every vector of the tensor. */
static void for_vectors(const struct sg_softmax_args *a, const struct sg_tensor *t,
                        void (*body)(const struct sg_softmax_args *, const struct vector *))
{
    int64_t pixels = (int64_t)t->dim[2] * t->dim[3] * t->dim[4];
    for (int32_t n = 0; n < t->dim[0]; n++) {
        if (a->per_channel || pixels == 1) {
            for (int64_t p = 0; p < pixels; p++) {
                struct vector v = {t->dim[1], 1, p, n};
                body(a, &v);
            }
        } else {
            struct vector v = {t->dim[1] * pixels, pixels, 0, n};
            body(a, &v);
        }
    }
}

static void softmax_vector(const struct sg_softmax_args *a, const struct vector *v)
{
    const float *x = sg_ptr(a->x);
    float *y = sg_ptr(a->out), top = -INFINITY, sum = 0.0f;
    for (int64_t i = 0; i < v->count; i++) {
        float e = x[element(&a->tx, v, i)];
        top = e > top ? e : top;
    }
    if (a->algo == CUDNN_SOFTMAX_FAST) {
        top = 0.0f;
    }
    for (int64_t i = 0; i < v->count; i++) {
        sum += expf(x[element(&a->tx, v, i)] - top);
    }
    float log_sum = logf(sum);
    for (int64_t i = 0; i < v->count; i++) {
        float e = x[element(&a->tx, v, i)] - top;
        float r = a->algo == CUDNN_SOFTMAX_LOG ? e - log_sum : expf(e) / sum;
        float *out = y + element(&a->tout, v, i);
        *out = sg_blend(a->alpha, r, a->beta, *out);
    }
}

static void softmax_bwd_vector(const struct sg_softmax_args *a, const struct vector *v)
{
    const float *y = sg_ptr(a->y), *dy = sg_ptr(a->dy);
    float *dx = sg_ptr(a->out), sum = 0.0f;
    int is_log = a->algo == CUDNN_SOFTMAX_LOG;
    for (int64_t i = 0; i < v->count; i++) {
        float d = dy[element(&a->tdy, v, i)];
        sum += is_log ? d : d * y[element(&a->ty, v, i)];
    }
    for (int64_t i = 0; i < v->count; i++) {
        float d = dy[element(&a->tdy, v, i)], p = y[element(&a->ty, v, i)];
        float r = is_log ? d - expf(p) * sum : p * (d - sum);
        float *out = dx + element(&a->tout, v, i);
        *out = sg_blend(a->alpha, r, a->beta, *out);
    }
}

void sg_softmax_fwd_body(const struct simgpu_launch *l)
{
    struct sg_softmax_args a;
    memcpy(&a, l->params, sizeof a);
    for_vectors(&a, &a.tx, softmax_vector);
}

void sg_softmax_bwd_body(const struct simgpu_launch *l)
{
    struct sg_softmax_args a;
    memcpy(&a, l->params, sizeof a);
    for_vectors(&a, &a.ty, softmax_bwd_vector);
}

void sg_softmax_fwd_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct sg_softmax_args a;
    memcpy(&a, l->params, sizeof a);
    sg_touch(touch, ctx, a.x, &a.tx, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.out, &a.tout, 4, sg_out_mode(a.beta));
}

void sg_softmax_bwd_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct sg_softmax_args a;
    memcpy(&a, l->params, sizeof a);
    sg_touch(touch, ctx, a.y, &a.ty, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.dy, &a.tdy, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.out, &a.tout, 4, sg_out_mode(a.beta));
}

void sg_softmax_fwd_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    struct sg_softmax_args a;
    memcpy(&a, l->params, sizeof a);
    passes(work, &a.tx, 12, a.beta == 0.0f ? 3 : 4);
}

void sg_softmax_bwd_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    struct sg_softmax_args a;
    memcpy(&a, l->params, sizeof a);
    passes(work, &a.ty, 4, a.beta == 0.0f ? 5 : 6);
}
