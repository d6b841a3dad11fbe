#include "pointwise.h"

#include <cudnn.h>
#include <math.h>
#include <string.h>

#define LOAD(type, l)                                                                              \
    struct type a;                                                                                 \
    memcpy(&a, (l)->params, sizeof a)

/* Bytes of traffic of an output: written, and read as well where it is blended. */
static double out_bytes(const struct sg_tensor *t, float beta)
{
    return (beta == 0.0f ? 4.0 : 8.0) * (double)sg_count(t);
}

static double in_bytes(const struct sg_tensor *t)
{
    return 4.0 * (double)sg_count(t);
}

static void elementwise(struct simgpu_work *work, const struct sg_tensor *t, double ops,
                        double bytes)
{
    *work = (struct simgpu_work){
        .flops = ops * (double)sg_count(t), .bytes = bytes, .kclass = SIMGPU_CLASS_ELEMENTWISE};
}

/* ---- activations ---- */

float sg_act_forward(const struct sg_act *a, float x)
{
    switch (a->mode) {
    case CUDNN_ACTIVATION_SIGMOID:
        return 1.0f / (1.0f + expf(-x));
    case CUDNN_ACTIVATION_RELU:
        return isnan(x) ? (a->nan ? x : 0.0f) : x > 0.0f ? x : 0.0f;
    case CUDNN_ACTIVATION_TANH:
        return tanhf(x);
    case CUDNN_ACTIVATION_CLIPPED_RELU:
        return isnan(x) ? (a->nan ? x : 0.0f) : x < 0.0f ? 0.0f : x > a->coef ? a->coef : x;
    case CUDNN_ACTIVATION_ELU:
        return x > 0.0f ? x : a->coef * expm1f(x);
    case CUDNN_ACTIVATION_SWISH:
        return x / (1.0f + expf(-a->swish * x));
    default:
        return x;
    }
}

float sg_act_slope(const struct sg_act *a, float x, float y)
{
    switch (a->mode) {
    case CUDNN_ACTIVATION_SIGMOID:
        return y * (1.0f - y);
    case CUDNN_ACTIVATION_RELU:
        return x > 0.0f ? 1.0f : 0.0f;
    case CUDNN_ACTIVATION_TANH:
        return 1.0f - y * y;
    case CUDNN_ACTIVATION_CLIPPED_RELU:
        return x > 0.0f && x < a->coef ? 1.0f : 0.0f;
    case CUDNN_ACTIVATION_ELU:
        return y > 0.0f ? 1.0f : y + a->coef;
    case CUDNN_ACTIVATION_SWISH: {
        float g = 1.0f / (1.0f + expf(-a->swish * x));
        return g + a->swish * x * g * (1.0f - g);
    }
    default:
        return 1.0f;
    }
}

static void act_fwd_run(void *ctx, int64_t n, float *const p[], const int64_t s[], int64_t start)
{
    const struct sg_act_fwd_args *a = ctx;
    const float *x = p[0];
    float *y = p[1];
    if (a->act.mode == CUDNN_ACTIVATION_RELU && !a->act.nan && a->alpha == 1.0f &&
        a->beta == 0.0f) {
        for (int64_t i = 0; i < n; i++) {
            float v = x[i * s[0]];
            y[i * s[1]] = v > 0.0f ? v : 0.0f;
        }
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        float *out = y + i * s[1];
        *out = sg_blend(a->alpha, sg_act_forward(&a->act, x[i * s[0]]), a->beta, *out);
    }
}

void sg_act_fwd_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    LOAD(sg_act_fwd_args, l);
    sg_touch(touch, ctx, a.x, &a.tx, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.y, &a.ty, 4, sg_out_mode(a.beta));
}

void sg_act_fwd_body(const struct simgpu_launch *l)
{
    LOAD(sg_act_fwd_args, l);
    const struct sg_tensor *t[2] = {&a.tx, &a.ty};
    const uint64_t addr[2] = {a.x, a.y};
    struct sg_walk w;
    sg_walk_init(&w, &a.ty, 2, t);
    sg_walk_run(&w, addr, act_fwd_run, &a);
}

void sg_act_fwd_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    LOAD(sg_act_fwd_args, l);
    double ops = a.act.mode == CUDNN_ACTIVATION_RELU ? 1 : 10;
    elementwise(work, &a.ty, ops, in_bytes(&a.tx) + out_bytes(&a.ty, a.beta));
}

static void act_bwd_run(void *ctx, int64_t n, float *const p[], const int64_t s[], int64_t start)
{
    const struct sg_act_bwd_args *a = ctx;
    for (int64_t i = 0; i < n; i++) {
        float slope = sg_act_slope(&a->act, p[2][i * s[2]], p[0][i * s[0]]);
        float *out = p[3] + i * s[3];
        *out = sg_blend(a->alpha, slope * p[1][i * s[1]], a->beta, *out);
    }
}

void sg_act_bwd_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    LOAD(sg_act_bwd_args, l);
    sg_touch(touch, ctx, a.y, &a.ty, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.dy, &a.tdy, 4, SIMGPU_READ);
    if (a.x != a.y) {
        sg_touch(touch, ctx, a.x, &a.tx, 4, SIMGPU_READ);
    }
    sg_touch(touch, ctx, a.dx, &a.tdx, 4, sg_out_mode(a.beta));
}

void sg_act_bwd_body(const struct simgpu_launch *l)
{
    LOAD(sg_act_bwd_args, l);
    const struct sg_tensor *t[4] = {&a.ty, &a.tdy, &a.tx, &a.tdx};
    const uint64_t addr[4] = {a.y, a.dy, a.x, a.dx};
    struct sg_walk w;
    sg_walk_init(&w, &a.tdx, 4, t);
    sg_walk_run(&w, addr, act_bwd_run, &a);
}

void sg_act_bwd_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    LOAD(sg_act_bwd_args, l);
    double bytes = in_bytes(&a.ty) + in_bytes(&a.tdy) + out_bytes(&a.tdx, a.beta);
    if (a.x != a.y) {
        bytes += in_bytes(&a.tx);
    }
    elementwise(work, &a.tdx, 3, bytes);
}

/* ---- c = alpha * a + beta * c ---- */

static void add_run(void *ctx, int64_t n, float *const p[], const int64_t s[], int64_t start)
{
    const struct sg_add_args *a = ctx;
    for (int64_t i = 0; i < n; i++) {
        float *out = p[1] + i * s[1];
        *out = sg_blend(a->alpha, p[0][i * s[0]], a->beta, *out);
    }
}

void sg_add_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    LOAD(sg_add_args, l);
    sg_touch(touch, ctx, a.a, &a.ta, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.c, &a.tc, 4, sg_out_mode(a.beta));
}

void sg_add_body(const struct simgpu_launch *l)
{
    LOAD(sg_add_args, l);
    const struct sg_tensor *t[2] = {&a.ta, &a.tc};
    const uint64_t addr[2] = {a.a, a.c};
    struct sg_walk w;
    sg_walk_init(&w, &a.tc, 2, t);
    sg_walk_run(&w, addr, add_run, &a);
}

void sg_add_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    LOAD(sg_add_args, l);
    elementwise(work, &a.tc, 2, in_bytes(&a.ta) + out_bytes(&a.tc, a.beta));
}

/* ---- c = op(alpha1 * a, alpha2 * b) + beta * c ---- */

static float op_apply(const struct sg_op_args *a, float u, float v)
{
    switch (a->op) {
    case CUDNN_OP_TENSOR_ADD:
        return u + v;
    case CUDNN_OP_TENSOR_MUL:
        return u * v;
    case CUDNN_OP_TENSOR_MIN:
        return a->nan && (isnan(u) || isnan(v)) ? NAN : fminf(u, v);
    case CUDNN_OP_TENSOR_MAX:
        return a->nan && (isnan(u) || isnan(v)) ? NAN : fmaxf(u, v);
    case CUDNN_OP_TENSOR_SQRT:
        return sqrtf(u);
    default:
        return 1.0f - u;
    }
}

static int op_is_unary(int op)
{
    return op == CUDNN_OP_TENSOR_SQRT || op == CUDNN_OP_TENSOR_NOT;
}

static void op_run(void *ctx, int64_t n, float *const p[], const int64_t s[], int64_t start)
{
    const struct sg_op_args *a = ctx;
    int unary = op_is_unary(a->op);
    for (int64_t i = 0; i < n; i++) {
        float *out = p[1] + i * s[1];
        float v = unary ? 0.0f : a->alpha2 * p[2][i * s[2]];
        *out = sg_blend(1.0f, op_apply(a, a->alpha1 * p[0][i * s[0]], v), a->beta, *out);
    }
}

void sg_op_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    LOAD(sg_op_args, l);
    sg_touch(touch, ctx, a.a, &a.ta, 4, SIMGPU_READ);
    if (!op_is_unary(a.op)) {
        sg_touch(touch, ctx, a.b, &a.tb, 4, SIMGPU_READ);
    }
    sg_touch(touch, ctx, a.c, &a.tc, 4, sg_out_mode(a.beta));
}

void sg_op_body(const struct simgpu_launch *l)
{
    LOAD(sg_op_args, l);
    const struct sg_tensor *t[3] = {&a.ta, &a.tc, &a.tb};
    const uint64_t addr[3] = {a.a, a.c, a.b};
    struct sg_walk w;
    sg_walk_init(&w, &a.tc, op_is_unary(a.op) ? 2 : 3, t);
    sg_walk_run(&w, addr, op_run, &a);
}

void sg_op_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    LOAD(sg_op_args, l);
    double bytes = in_bytes(&a.ta) + out_bytes(&a.tc, a.beta);
    if (!op_is_unary(a.op)) {
        bytes += in_bytes(&a.tb);
    }
    elementwise(work, &a.tc, 3, bytes);
}

/* ---- fill and scale ---- */

static void fill_run(void *ctx, int64_t n, float *const p[], const int64_t s[], int64_t start)
{
    const struct sg_fill_args *a = ctx;
    for (int64_t i = 0; i < n; i++) {
        float *out = p[0] + i * s[0];
        *out = a->scale ? a->value * *out : a->value;
    }
}

void sg_fill_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    LOAD(sg_fill_args, l);
    sg_touch(touch, ctx, a.y, &a.ty, 4, a.scale ? SIMGPU_RW : SIMGPU_WRITE);
}

void sg_fill_body(const struct simgpu_launch *l)
{
    LOAD(sg_fill_args, l);
    const struct sg_tensor *t[1] = {&a.ty};
    const uint64_t addr[1] = {a.y};
    struct sg_walk w;
    sg_walk_init(&w, &a.ty, 1, t);
    sg_walk_run(&w, addr, fill_run, &a);
}

void sg_fill_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    LOAD(sg_fill_args, l);
    elementwise(work, &a.ty, 1, (a.scale ? 8.0 : 4.0) * (double)sg_count(&a.ty));
}
