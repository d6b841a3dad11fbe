#include "pool.h"

#include <cudnn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int is_max(const struct sg_pool_shape *s)
{
    return s->mode == CUDNN_POOLING_MAX || s->mode == CUDNN_POOLING_MAX_DETERMINISTIC;
}

/* The part of a window that lies inside the input. */
struct window {
    int32_t lo[3], hi[3];
    int32_t count; /* what an average divides by */
};

static struct window window_at(const struct sg_pool_shape *s, const struct sg_tensor *in,
                               const int32_t o[3])
{
    struct window w = {.count = 1};
    for (int d = 0; d < 3; d++) {
        int32_t lo = o[d] * s->stride[d] - s->pad[d], hi = lo + s->window[d];
        w.lo[d] = lo < 0 ? 0 : lo;
        w.hi[d] = hi > in->dim[2 + d] ? (int32_t)in->dim[2 + d] : hi;
        int32_t inside = w.hi[d] > w.lo[d] ? w.hi[d] - w.lo[d] : 0;
        w.count *= s->mode == CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING ? s->window[d] : inside;
    }
    return w;
}

#define FOR_WINDOW(win, i0, i1, i2)                                                                \
    for (int32_t i0 = (win).lo[0]; i0 < (win).hi[0]; i0++)                                         \
        for (int32_t i1 = (win).lo[1]; i1 < (win).hi[1]; i1++)                                     \
            for (int32_t i2 = (win).lo[2]; i2 < (win).hi[2]; i2++)

static inline int64_t at(const struct sg_tensor *t, int32_t i0, int32_t i1, int32_t i2)
{
    return (int64_t)i0 * t->str[2] + (int64_t)i1 * t->str[3] + (int64_t)i2 * t->str[4];
}

static float pool_window(const struct sg_pool_shape *s, const float *plane,
                         const struct window *win)
{
    if (is_max(s)) {
        float best = -INFINITY;
        FOR_WINDOW(*win, i0, i1, i2)
        {
            float v = plane[at(&s->x, i0, i1, i2)];
            if (v > best || (s->nan && isnan(v))) {
                best = v;
            }
        }
        return best;
    }
    float sum = 0.0f;
    FOR_WINDOW(*win, i0, i1, i2)
    {
        sum += plane[at(&s->x, i0, i1, i2)];
    }
    return win->count > 0 ? sum / (float)win->count : 0.0f;
}

void sg_pool_fwd_body(const struct simgpu_launch *l)
{
    struct sg_pool_fwd_args a;
    memcpy(&a, l->params, sizeof a);
    const struct sg_pool_shape *s = &a.s;
    for (int32_t n = 0; n < s->y.dim[0]; n++) {
        for (int32_t c = 0; c < s->y.dim[1]; c++) {
            const float *plane = sg_ptr(a.x) + (int64_t)n * s->x.str[0] + (int64_t)c * s->x.str[1];
            float *out = sg_ptr(a.y) + (int64_t)n * s->y.str[0] + (int64_t)c * s->y.str[1];
            int32_t o[3];
            for (o[0] = 0; o[0] < s->y.dim[2]; o[0]++) {
                for (o[1] = 0; o[1] < s->y.dim[3]; o[1]++) {
                    for (o[2] = 0; o[2] < s->y.dim[4]; o[2]++) {
                        struct window win = window_at(s, &s->x, o);
                        float *y = out + at(&s->y, o[0], o[1], o[2]);
                        *y = sg_blend(s->alpha, pool_window(s, plane, &win), s->beta, *y);
                    }
                }
            }
        }
    }
}

void sg_pool_fwd_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct sg_pool_fwd_args a;
    memcpy(&a, l->params, sizeof a);
    sg_touch(touch, ctx, a.x, &a.s.x, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.y, &a.s.y, 4, sg_out_mode(a.s.beta));
}

void sg_pool_fwd_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    struct sg_pool_fwd_args a;
    memcpy(&a, l->params, sizeof a);
    double window = (double)a.s.window[0] * a.s.window[1] * a.s.window[2];
    double in = (double)sg_count(&a.s.x), out = (double)sg_count(&a.s.y);
    *work = (struct simgpu_work){.flops = out * window,
                                 .bytes = 4 * (in + out * (a.s.beta == 0.0f ? 1 : 2)),
                                 .kclass = SIMGPU_CLASS_POOL};
}

/* Spreads one output's gradient over a packed plane of input gradients. */
static void spread(const struct sg_pool_shape *s, const struct window *win, const float *x, float y,
                   float dy, float *dx)
{
    FOR_WINDOW(*win, i0, i1, i2)
    {
        float *out = dx + ((int64_t)i0 * s->dx.dim[3] + i1) * s->dx.dim[4] + i2;
        if (!is_max(s)) {
            *out += dy / (float)win->count;
        } else if (x[at(&s->x, i0, i1, i2)] == y) {
            *out += dy; /* the first of equals */
            return;
        }
    }
}

static void pool_bwd_plane(const struct sg_pool_bwd_args *a, int32_t n, int32_t c, float *sum)
{
    const struct sg_pool_shape *s = &a->s;
    const float *x = NULL, *y = NULL;
    if (is_max(s)) {
        x = sg_ptr(a->x) + (int64_t)n * s->x.str[0] + (int64_t)c * s->x.str[1];
        y = sg_ptr(a->y) + (int64_t)n * s->y.str[0] + (int64_t)c * s->y.str[1];
    }
    const float *dy = sg_ptr(a->dy) + (int64_t)n * s->dy.str[0] + (int64_t)c * s->dy.str[1];
    int32_t o[3];
    for (o[0] = 0; o[0] < s->dy.dim[2]; o[0]++) {
        for (o[1] = 0; o[1] < s->dy.dim[3]; o[1]++) {
            for (o[2] = 0; o[2] < s->dy.dim[4]; o[2]++) {
                struct window win = window_at(s, &s->dx, o);
                spread(s, &win, x, y ? y[at(&s->y, o[0], o[1], o[2])] : 0.0f,
                       dy[at(&s->dy, o[0], o[1], o[2])], sum);
            }
        }
    }
}

void sg_pool_bwd_body(const struct simgpu_launch *l)
{
    struct sg_pool_bwd_args a;
    memcpy(&a, l->params, sizeof a);
    const struct sg_pool_shape *s = &a.s;
    const int64_t *dim = s->dx.dim;
    int64_t plane = dim[2] * dim[3] * dim[4];
    float *sum = sg_scratch((size_t)plane * sizeof *sum);
    for (int32_t n = 0; n < dim[0]; n++) {
        for (int32_t c = 0; c < dim[1]; c++) {
            memset(sum, 0, (size_t)plane * sizeof *sum);
            pool_bwd_plane(&a, n, c, sum);
            float *out = sg_ptr(a.dx) + (int64_t)n * s->dx.str[0] + (int64_t)c * s->dx.str[1];
            for (int64_t i = 0; i < plane; i++) {
                int32_t i2 = (int32_t)(i % dim[4]), i1 = (int32_t)(i / dim[4] % dim[3]);
                float *at_dx = out + at(&s->dx, (int32_t)(i / dim[4] / dim[3]), i1, i2);
                *at_dx = sg_blend(s->alpha, sum[i], s->beta, *at_dx);
            }
        }
    }
    free(sum);
}

void sg_pool_bwd_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct sg_pool_bwd_args a;
    memcpy(&a, l->params, sizeof a);
    if (is_max(&a.s)) { /* an average needs neither */
        sg_touch(touch, ctx, a.y, &a.s.y, 4, SIMGPU_READ);
        sg_touch(touch, ctx, a.x, &a.s.x, 4, SIMGPU_READ);
    }
    sg_touch(touch, ctx, a.dy, &a.s.dy, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.dx, &a.s.dx, 4, sg_out_mode(a.s.beta));
}

void sg_pool_bwd_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    struct sg_pool_bwd_args a;
    memcpy(&a, l->params, sizeof a);
    double window = (double)a.s.window[0] * a.s.window[1] * a.s.window[2];
    double in = (double)sg_count(&a.s.dx), out = (double)sg_count(&a.s.dy);
    double elements = in * (a.s.beta == 0.0f ? 1 : 2) + out + (is_max(&a.s) ? in + out : 0);
    *work = (struct simgpu_work){
        .flops = out * window, .bytes = 4 * elements, .kclass = SIMGPU_CLASS_POOL};
}
