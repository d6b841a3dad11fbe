/* The kernel entry points of convolutions: ranges, cost, body by direction. */
#include "conv.h"
#include "pointwise.h"

#include <stdlib.h>
#include <string.h>

static void touch_shape(const struct sg_conv_shape *s, uint64_t x, uint64_t w, uint64_t y,
                        uint64_t workspace, simgpu_touch_fn touch, void *ctx)
{
    int out = sg_out_mode(s->beta);
    sg_touch(touch, ctx, x, &s->x, 4, s->dir == SG_CONV_BWD_DATA ? out : SIMGPU_READ);
    sg_touch(touch, ctx, w, &s->w, 4, s->dir == SG_CONV_BWD_FILTER ? out : SIMGPU_READ);
    sg_touch(touch, ctx, y, &s->y, 4, s->dir == SG_CONV_FWD ? out : SIMGPU_READ);
    if (workspace && s->workspace_bytes) {
        touch(ctx, workspace, s->workspace_bytes, SIMGPU_WRITE);
    }
}

void sg_conv_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct sg_conv_args a;
    memcpy(&a, l->params, sizeof a);
    touch_shape(&a.s, a.x, a.w, a.y, a.workspace, touch, ctx);
}

void sg_conv_body(const struct simgpu_launch *l)
{
    struct sg_conv_args a;
    memcpy(&a, l->params, sizeof a);
    switch (a.s.dir) {
    case SG_CONV_FWD:
        sg_conv_forward(&a);
        break;
    case SG_CONV_BWD_DATA:
        sg_conv_backward_data(&a);
        break;
    default:
        sg_conv_backward_filter(&a);
    }
}

void sg_conv_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    struct sg_conv_args a;
    memcpy(&a, l->params, sizeof a);
    struct sg_conv_model m = sg_conv_model(&a.s, (enum sg_conv_dir)a.s.dir, a.s.algo);
    *work = (struct simgpu_work){.flops = m.flops, .bytes = m.bytes, .kclass = m.kclass};
}

void sg_conv_fused_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct sg_conv_fused_args a;
    memcpy(&a, l->params, sizeof a);
    touch_shape(&a.s, a.x, a.w, a.y, a.workspace, touch, ctx);
    sg_touch(touch, ctx, a.z, &a.zt, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.bias, &a.biast, 4, SIMGPU_READ);
}

/* The elementwise tail: y = act(y + alpha2 * z + bias), the convolution already being in y. */
struct tail {
    float alpha2;
    struct sg_act act;
};

static void tail_run(void *ctx, int64_t n, float *const p[], const int64_t s[], int64_t start)
{
    const struct tail *t = ctx;
    for (int64_t i = 0; i < n; i++) {
        float v = p[0][i * s[0]] + p[1][i * s[1]];
        if (t->alpha2 != 0.0f) {
            v += t->alpha2 * p[2][i * s[2]];
        }
        p[0][i * s[0]] = sg_act_forward(&t->act, v);
    }
}

void sg_conv_fused_body(const struct simgpu_launch *l)
{
    struct sg_conv_fused_args a;
    memcpy(&a, l->params, sizeof a);
    struct sg_conv_args conv = {a.x, a.w, a.y, a.workspace, a.s};
    const struct sg_tensor *t[3] = {&a.s.y, &a.biast, &a.zt};
    uint64_t addr[3] = {a.y, a.bias, a.z};
    struct tail tail = {a.alpha2, {a.mode, a.nan, a.coef, 1.0f}};
    float *z = NULL;
    if (a.z == a.y && a.alpha2 != 0.0f) { /* y may be z: keep it, the convolution overwrites y */
        z = sg_packed_copy(&a.zt, a.z);
        addr[2] = (uint64_t)(uintptr_t)z;
        sg_pack_strides(&a.zt);
    }
    sg_conv_forward(&conv);
    struct sg_walk w;
    sg_walk_init(&w, &a.s.y, a.z ? 3 : 2, t);
    sg_walk_run(&w, addr, tail_run, &tail);
    free(z);
}

void sg_conv_fused_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    struct sg_conv_fused_args a;
    memcpy(&a, l->params, sizeof a);
    struct sg_conv_model m = sg_conv_model(&a.s, SG_CONV_FWD, a.s.algo);
    *work = (struct simgpu_work){.flops = m.flops, .bytes = m.bytes, .kclass = m.kclass};
    if (a.z) {
        work->bytes += 4.0 * (double)sg_count(&a.zt);
    }
}
