#include "reduce.h"

#include <cudnn.h>
#include <math.h>
#include <string.h>

/* ---- reductions ---- */

/* A running result; doubles keep it independent of how a card would split the sum. */
struct acc {
    double v;
    uint32_t index;
};

static struct acc acc_start(int op)
{
    switch (op) {
    case CUDNN_REDUCE_TENSOR_MUL:
    case CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS:
        return (struct acc){1.0, 0};
    case CUDNN_REDUCE_TENSOR_MIN:
        return (struct acc){INFINITY, 0};
    case CUDNN_REDUCE_TENSOR_MAX:
        return (struct acc){-INFINITY, 0};
    default:
        return (struct acc){0.0, 0};
    }
}

static void acc_add(struct acc *r, int op, int nan, double v, uint32_t index)
{
    switch (op) {
    case CUDNN_REDUCE_TENSOR_ADD:
    case CUDNN_REDUCE_TENSOR_AVG:
        r->v += v;
        break;
    case CUDNN_REDUCE_TENSOR_MUL:
        r->v *= v;
        break;
    case CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS:
        r->v *= v == 0.0 ? 1.0 : v;
        break;
    case CUDNN_REDUCE_TENSOR_MIN:
        if (v < r->v || (nan && isnan(v) && !isnan(r->v))) {
            *r = (struct acc){v, index};
        }
        break;
    case CUDNN_REDUCE_TENSOR_MAX:
        if (v > r->v || (nan && isnan(v) && !isnan(r->v))) {
            *r = (struct acc){v, index};
        }
        break;
    case CUDNN_REDUCE_TENSOR_AMAX:
        r->v = fabs(v) > r->v ? fabs(v) : r->v;
        break;
    case CUDNN_REDUCE_TENSOR_NORM1:
        r->v += fabs(v);
        break;
    default: /* NORM2 */
        r->v += v * v;
    }
}

/* One element of c: the reduction over the box of a that it stands for. */
static void reduce_one(const struct sg_reduce_args *a, int64_t flat)
{
    int32_t at[SG_DIMS], box[SG_DIMS];
    int64_t rest = flat, base = 0, out = 0, count = 1;
    for (int d = SG_DIMS - 1; d >= 0; d--) {
        at[d] = (int32_t)(rest % a->tc.dim[d]);
        rest /= a->tc.dim[d];
        box[d] = a->tc.dim[d] == 1 ? (int32_t)a->ta.dim[d] : 1;
        base += (int64_t)at[d] * a->ta.str[d];
        out += (int64_t)at[d] * a->tc.str[d];
        count *= box[d];
    }
    const float *src = sg_ptr(a->a) + base;
    struct acc r = acc_start(a->op);
    uint32_t index = 0;
    for (int32_t i0 = 0; i0 < box[0]; i0++) {
        for (int32_t i1 = 0; i1 < box[1]; i1++) {
            for (int32_t i2 = 0; i2 < box[2]; i2++) {
                for (int32_t i3 = 0; i3 < box[3]; i3++) {
                    const float *row = src + (int64_t)i0 * a->ta.str[0] +
                                       (int64_t)i1 * a->ta.str[1] + (int64_t)i2 * a->ta.str[2] +
                                       (int64_t)i3 * a->ta.str[3];
                    for (int32_t i4 = 0; i4 < box[4]; i4++) {
                        acc_add(&r, a->op, a->nan, row[(int64_t)i4 * a->ta.str[4]], index++);
                    }
                }
            }
        }
    }
    if (a->op == CUDNN_REDUCE_TENSOR_AVG) {
        r.v /= (double)count;
    } else if (a->op == CUDNN_REDUCE_TENSOR_NORM2) {
        r.v = sqrt(r.v);
    }
    float *c = sg_ptr(a->c) + out;
    *c = sg_blend(a->alpha, (float)r.v, a->beta, *c);
    if (a->indices) {
        ((uint32_t *)(uintptr_t)a->indices)[flat] = r.index;
    }
}

void sg_reduce_body(const struct simgpu_launch *l)
{
    struct sg_reduce_args a;
    memcpy(&a, l->params, sizeof a);
    for (int64_t i = 0, n = sg_count(&a.tc); i < n; i++) {
        reduce_one(&a, i);
    }
}

void sg_reduce_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct sg_reduce_args a;
    memcpy(&a, l->params, sizeof a);
    sg_touch(touch, ctx, a.a, &a.ta, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.c, &a.tc, 4, sg_out_mode(a.beta));
    if (a.indices) {
        touch(ctx, a.indices, (size_t)sg_count(&a.tc) * 4, SIMGPU_WRITE);
    }
}

void sg_reduce_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    struct sg_reduce_args a;
    memcpy(&a, l->params, sizeof a);
    double in = (double)sg_count(&a.ta), out = (double)sg_count(&a.tc);
    *work = (struct simgpu_work){
        .flops = in, .bytes = 4 * (in + out * 2), .kclass = SIMGPU_CLASS_REDUCE};
}

/* ---- dropout ---- */

/* A mix of 64 bits with full avalanche: the finaliser of Steele, Lea and Flood's SplitMix (2014).
 */
static uint64_t mix64(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t sg_dropout_reserve_bytes(const struct sg_tensor *x)
{
    return ((uint64_t)sg_count(x) + 127) / 128 * 16;
}

void sg_dropout_init_body(const struct simgpu_launch *l)
{
    struct sg_dropout_init_args a;
    memcpy(&a, l->params, sizeof a);
    struct sg_dropout_state *s = (struct sg_dropout_state *)(uintptr_t)a.states;
    for (uint64_t i = 0; i < SG_DROPOUT_STREAMS; i++) {
        s[i].key = mix64(a.seed + (i + 1) * UINT64_C(0x9e3779b97f4a7c15));
        s[i].counter = 0;
    }
}

void sg_dropout_init_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct sg_dropout_init_args a;
    memcpy(&a, l->params, sizeof a);
    touch(ctx, a.states, SG_DROPOUT_STATE_BYTES, SIMGPU_WRITE);
}

void sg_dropout_init_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    *work = (struct simgpu_work){.flops = 8.0 * SG_DROPOUT_STREAMS,
                                 .bytes = (double)SG_DROPOUT_STATE_BYTES,
                                 .kclass = SIMGPU_CLASS_ELEMENTWISE};
}

void sg_dropout_draw(uint64_t states, float rate, int64_t n, unsigned char *mask)
{
    struct sg_dropout_state *s = (struct sg_dropout_state *)(uintptr_t)states;
    memset(mask, 0, (size_t)(n + 7) / 8);
    for (int64_t i = 0; i < n; i++) {
        struct sg_dropout_state *stream = &s[i % SG_DROPOUT_STREAMS];
        uint64_t r = mix64(stream->key ^ (stream->counter + (uint64_t)(i / SG_DROPOUT_STREAMS)));
        float u = (float)(r >> 40) * 0x1p-24f;
        if (u >= rate) {
            mask[i / 8] = (unsigned char)(mask[i / 8] | 1u << i % 8);
        }
    }
    for (int64_t i = 0; i < SG_DROPOUT_STREAMS; i++) {
        s[i].counter += (uint64_t)((n + SG_DROPOUT_STREAMS - 1) / SG_DROPOUT_STREAMS);
    }
}

static void mask_run(void *ctx, int64_t n, float *const p[], const int64_t s[], int64_t start)
{
    const struct sg_dropout_args *a = ctx;
    const unsigned char *mask = (const unsigned char *)(uintptr_t)a->reserve;
    float scale = a->rate < 1.0f ? 1.0f / (1.0f - a->rate) : 0.0f;
    for (int64_t i = 0; i < n; i++) {
        int64_t bit = start + i;
        p[1][i * s[1]] = mask[bit / 8] >> bit % 8 & 1 ? scale * p[0][i * s[0]] : 0.0f;
    }
}

static void apply_mask(struct sg_dropout_args *a)
{
    const struct sg_tensor *t[2] = {&a->tx, &a->ty};
    const uint64_t addr[2] = {a->x, a->y};
    struct sg_walk w;
    sg_walk_init(&w, &a->ty, 2, t);
    sg_walk_run(&w, addr, mask_run, a);
}

void sg_dropout_fwd_body(const struct simgpu_launch *l)
{
    struct sg_dropout_args a;
    memcpy(&a, l->params, sizeof a);
    memset((void *)(uintptr_t)a.reserve, 0, sg_dropout_reserve_bytes(&a.tx));
    sg_dropout_draw(a.states, a.rate, sg_count(&a.tx), (unsigned char *)(uintptr_t)a.reserve);
    apply_mask(&a);
}

void sg_dropout_bwd_body(const struct simgpu_launch *l)
{
    struct sg_dropout_args a;
    memcpy(&a, l->params, sizeof a);
    apply_mask(&a);
}

void sg_dropout_fwd_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct sg_dropout_args a;
    memcpy(&a, l->params, sizeof a);
    sg_touch(touch, ctx, a.x, &a.tx, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.y, &a.ty, 4, SIMGPU_WRITE);
    touch(ctx, a.states, SG_DROPOUT_STATE_BYTES, SIMGPU_RW);
    touch(ctx, a.reserve, sg_dropout_reserve_bytes(&a.tx), SIMGPU_WRITE);
}

void sg_dropout_bwd_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct sg_dropout_args a;
    memcpy(&a, l->params, sizeof a);
    sg_touch(touch, ctx, a.x, &a.tx, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.y, &a.ty, 4, SIMGPU_WRITE);
    touch(ctx, a.reserve, sg_dropout_reserve_bytes(&a.tx), SIMGPU_READ);
}

void sg_dropout_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    struct sg_dropout_args a;
    memcpy(&a, l->params, sizeof a);
    double n = (double)sg_count(&a.tx);
    *work = (struct simgpu_work){.flops = 10 * n,
                                 .bytes = 8 * n + (double)sg_dropout_reserve_bytes(&a.tx),
                                 .kclass = SIMGPU_CLASS_ELEMENTWISE};
}
