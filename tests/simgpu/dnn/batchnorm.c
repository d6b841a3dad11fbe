#include "norm.h"

#include <cudnn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The elements that one parameter normalises: a channel, or one activation over the batch. */
struct group {
    int32_t c, lo[3], hi[3];
    int64_t param; /* offset of its parameters */
    int64_t count;
};

static int64_t group_count(const struct sg_bn_shape *s)
{
    return sg_count(&s->param);
}

static struct group group_at(const struct sg_bn_shape *s, int64_t i)
{
    struct group g;
    g.count = s->x.dim[0];
    if (!s->per_activation) {
        g.c = (int32_t)i;
        g.param = i * s->param.str[1];
        for (int d = 0; d < 3; d++) {
            g.lo[d] = 0;
            g.hi[d] = (int32_t)s->x.dim[2 + d];
            g.count *= g.hi[d];
        }
        return g;
    }
    g.param = 0;
    for (int d = 2; d >= 0; d--) {
        int32_t at = (int32_t)(i % s->x.dim[2 + d]);
        i /= s->x.dim[2 + d];
        g.lo[d] = at;
        g.hi[d] = at + 1;
        g.param += (int64_t)at * s->param.str[2 + d];
    }
    g.c = (int32_t)i;
    g.param += i * s->param.str[1];
    return g;
}

static inline int64_t offset(const struct sg_tensor *t, int32_t n, int32_t c, int32_t i0,
                             int32_t i1, int32_t i2)
{
    return (int64_t)n * t->str[0] + (int64_t)c * t->str[1] + (int64_t)i0 * t->str[2] +
           (int64_t)i1 * t->str[3] + (int64_t)i2 * t->str[4];
}

/* Index in the reserve's bit mask: row-major position in x. */
static inline int64_t position(const struct sg_tensor *t, int32_t n, int32_t c, int32_t i0,
                               int32_t i1, int32_t i2)
{
    const int64_t *d = t->dim;
    return (((n * d[1] + c) * d[2] + i0) * d[3] + i1) * d[4] + i2;
}

#define FOR_GROUP(s, g, n, i0, i1, i2)                                                             \
    for (int32_t n = 0; n < (s)->x.dim[0]; n++)                                                    \
        for (int32_t i0 = (g)->lo[0]; i0 < (g)->hi[0]; i0++)                                       \
            for (int32_t i1 = (g)->lo[1]; i1 < (g)->hi[1]; i1++)                                   \
                for (int32_t i2 = (g)->lo[2]; i2 < (g)->hi[2]; i2++)

uint64_t sg_bn_reserve_bytes(const struct sg_tensor *x)
{
    return ((uint64_t)sg_count(x) + 127) / 128 * 16;
}

static void moments(const struct sg_bn_shape *s, const struct group *g, const float *x,
                    double *mean, double *var)
{
    double sum = 0, square = 0;
    FOR_GROUP(s, g, n, i0, i1, i2)
    {
        sum += x[offset(&s->x, n, g->c, i0, i1, i2)];
    }
    *mean = sum / (double)g->count;
    FOR_GROUP(s, g, n, i0, i1, i2)
    {
        double d = x[offset(&s->x, n, g->c, i0, i1, i2)] - *mean;
        square += d * d;
    }
    *var = square / (double)g->count;
}

/* ---- forward, training ---- */

static void bn_normalise(const struct sg_bn_train_args *a, const struct group *g, float mean,
                         float invvar)
{
    const struct sg_bn_shape *s = &a->s;
    const float *x = sg_ptr(a->x), *z = sg_ptr(a->z);
    float *y = sg_ptr(a->y), scale = sg_ptr(a->scale)[g->param], bias = sg_ptr(a->bias)[g->param];
    unsigned char *mask = (unsigned char *)sg_ptr(a->reserve);
    FOR_GROUP(s, g, n, i0, i1, i2)
    {
        float v = scale * ((x[offset(&s->x, n, g->c, i0, i1, i2)] - mean) * invvar) + bias;
        if (s->ops == CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION) {
            v += z[offset(&s->z, n, g->c, i0, i1, i2)];
        }
        if (s->ops != CUDNN_BATCHNORM_OPS_BN) {
            int64_t bit = position(&s->x, n, g->c, i0, i1, i2);
            if (v > 0.0f) {
                mask[bit / 8] = (unsigned char)(mask[bit / 8] | 1u << bit % 8);
            }
            v = sg_act_forward(&s->act, v);
        }
        float *out = y + offset(&s->y, n, g->c, i0, i1, i2);
        *out = sg_blend(s->alpha, v, s->beta, *out);
    }
}

static void bn_keep(const struct sg_bn_train_args *a, const struct group *g, double mean,
                    double var, float invvar)
{
    double f = a->s.average_factor, n = (double)g->count;
    if (a->running_mean) {
        float *m = sg_ptr(a->running_mean) + g->param, *v = sg_ptr(a->running_var) + g->param;
        double unbiased = n > 1 ? var * n / (n - 1) : var;
        *m = (float)(f == 1.0 ? mean : mean * f + *m * (1 - f));
        *v = (float)(f == 1.0 ? unbiased : unbiased * f + *v * (1 - f));
    }
    if (a->save_mean) {
        sg_ptr(a->save_mean)[g->param] = (float)mean;
        sg_ptr(a->save_invvar)[g->param] = invvar;
    }
}

void sg_bn_train_body(const struct simgpu_launch *l)
{
    struct sg_bn_train_args a;
    memcpy(&a, l->params, sizeof a);
    if (a.s.ops != CUDNN_BATCHNORM_OPS_BN) {
        memset(sg_ptr(a.reserve), 0, sg_bn_reserve_bytes(&a.s.x));
    }
    for (int64_t i = 0; i < group_count(&a.s); i++) {
        struct group g = group_at(&a.s, i);
        double mean, var;
        moments(&a.s, &g, sg_ptr(a.x), &mean, &var);
        float invvar = (float)(1.0 / sqrt(var + a.s.epsilon));
        bn_normalise(&a, &g, (float)mean, invvar);
        bn_keep(&a, &g, mean, var, invvar);
    }
}

void sg_bn_train_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct sg_bn_train_args a;
    memcpy(&a, l->params, sizeof a);
    int running = a.s.average_factor == 1.0 ? SIMGPU_WRITE : SIMGPU_RW;
    sg_touch(touch, ctx, a.x, &a.s.x, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.y, &a.s.y, 4, sg_out_mode(a.s.beta));
    sg_touch(touch, ctx, a.scale, &a.s.param, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.bias, &a.s.param, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.running_mean, &a.s.param, 4, running);
    sg_touch(touch, ctx, a.running_var, &a.s.param, 4, running);
    sg_touch(touch, ctx, a.save_mean, &a.s.param, 4, SIMGPU_WRITE);
    sg_touch(touch, ctx, a.save_invvar, &a.s.param, 4, SIMGPU_WRITE);
    if (a.s.ops == CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION) {
        sg_touch(touch, ctx, a.z, &a.s.z, 4, SIMGPU_READ);
    }
    if (a.s.ops != CUDNN_BATCHNORM_OPS_BN) {
        touch(ctx, a.reserve, sg_bn_reserve_bytes(&a.s.x), SIMGPU_WRITE);
    }
}

/* Passes over whole tensors: a multiple of the input's bytes. */
static void norm_cost(struct simgpu_work *work, const struct sg_tensor *t, double ops,
                      double passes)
{
    double n = (double)sg_count(t);
    *work = (struct simgpu_work){
        .flops = ops * n, .bytes = 4 * passes * n, .kclass = SIMGPU_CLASS_NORM};
}

void sg_bn_train_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    struct sg_bn_train_args a;
    memcpy(&a, l->params, sizeof a);
    double passes = 3; /* x for the moments, x again, y */
    passes += a.s.ops == CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION ? 1 : 0;
    norm_cost(work, &a.s.x, 8, passes + (a.s.beta != 0.0f ? 1 : 0));
}

/* ---- forward, inference ---- */

void sg_bn_infer_body(const struct simgpu_launch *l)
{
    struct sg_bn_infer_args a;
    memcpy(&a, l->params, sizeof a);
    const struct sg_bn_shape *s = &a.s;
    for (int64_t i = 0; i < group_count(s); i++) {
        struct group g = group_at(s, i);
        float mean = sg_ptr(a.mean)[g.param];
        float invvar = (float)(1.0 / sqrt(sg_ptr(a.var)[g.param] + s->epsilon));
        float scale = sg_ptr(a.scale)[g.param], bias = sg_ptr(a.bias)[g.param];
        FOR_GROUP(s, &g, n, i0, i1, i2)
        {
            float v = sg_ptr(a.x)[offset(&s->x, n, g.c, i0, i1, i2)];
            float *out = sg_ptr(a.y) + offset(&s->y, n, g.c, i0, i1, i2);
            *out = sg_blend(s->alpha, scale * ((v - mean) * invvar) + bias, s->beta, *out);
        }
    }
}

void sg_bn_infer_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct sg_bn_infer_args a;
    memcpy(&a, l->params, sizeof a);
    const uint64_t params[4] = {a.scale, a.bias, a.mean, a.var};
    sg_touch(touch, ctx, a.x, &a.s.x, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.y, &a.s.y, 4, sg_out_mode(a.s.beta));
    for (int i = 0; i < 4; i++) {
        sg_touch(touch, ctx, params[i], &a.s.param, 4, SIMGPU_READ);
    }
}

void sg_bn_infer_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    struct sg_bn_infer_args a;
    memcpy(&a, l->params, sizeof a);
    norm_cost(work, &a.s.x, 3, a.s.beta != 0.0f ? 3 : 2);
}

/* ---- backward ---- */

/* The gradient that reaches the normalisation itself: masked where an activation follows. */
static inline float bn_incoming(const struct sg_bn_bwd_args *a, const float *dy, int32_t n,
                                int32_t c, int32_t i0, int32_t i1, int32_t i2)
{
    const struct sg_bn_shape *s = &a->s;
    float g = dy[offset(&s->dy, n, c, i0, i1, i2)];
    if (s->ops != CUDNN_BATCHNORM_OPS_BN) {
        const unsigned char *mask = (const unsigned char *)sg_ptr(a->reserve);
        int64_t bit = position(&s->x, n, c, i0, i1, i2);
        return mask[bit / 8] >> bit % 8 & 1 ? g : 0.0f;
    }
    return g;
}

/* dx and dz of one group, whose sums of dy and of dy times the normalised x are known. */
static void bn_bwd_group(const struct sg_bn_bwd_args *a, const struct group *g, double mean,
                         double invvar, double sum_dy, double sum_dyx)
{
    const struct sg_bn_shape *s = &a->s;
    double scale = sg_ptr(a->scale)[g->param], n_inv = 1.0 / (double)g->count;
    FOR_GROUP(s, g, n, i0, i1, i2)
    {
        float in = bn_incoming(a, sg_ptr(a->dy), n, g->c, i0, i1, i2);
        double xhat = (sg_ptr(a->x)[offset(&s->x, n, g->c, i0, i1, i2)] - mean) * invvar;
        double d = scale * invvar * (in - n_inv * sum_dy - xhat * n_inv * sum_dyx);
        if (s->ops == CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION) {
            sg_ptr(a->dz)[offset(&s->dz, n, g->c, i0, i1, i2)] = in;
        }
        float *out = sg_ptr(a->dx) + offset(&s->dx, n, g->c, i0, i1, i2);
        *out = sg_blend(s->alpha, (float)d, s->beta, *out);
    }
}

void sg_bn_bwd_body(const struct simgpu_launch *l)
{
    struct sg_bn_bwd_args a;
    memcpy(&a, l->params, sizeof a);
    const struct sg_bn_shape *s = &a.s;
    for (int64_t i = 0; i < group_count(s); i++) {
        struct group g = group_at(s, i);
        double mean, var, invvar, sum_dy = 0, sum_dyx = 0;
        if (a.save_mean) {
            mean = sg_ptr(a.save_mean)[g.param];
            invvar = sg_ptr(a.save_invvar)[g.param];
        } else {
            moments(s, &g, sg_ptr(a.x), &mean, &var);
            invvar = 1.0 / sqrt(var + s->epsilon);
        }
        FOR_GROUP(s, &g, n, i0, i1, i2)
        {
            double in = bn_incoming(&a, sg_ptr(a.dy), n, g.c, i0, i1, i2);
            sum_dy += in;
            sum_dyx += in * (sg_ptr(a.x)[offset(&s->x, n, g.c, i0, i1, i2)] - mean) * invvar;
        }
        float *ds = sg_ptr(a.dscale) + g.param, *db = sg_ptr(a.dbias) + g.param;
        *ds = sg_blend(s->param_alpha, (float)sum_dyx, s->param_beta, *ds);
        *db = sg_blend(s->param_alpha, (float)sum_dy, s->param_beta, *db);
        bn_bwd_group(&a, &g, mean, invvar, sum_dy, sum_dyx);
    }
}

void sg_bn_bwd_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct sg_bn_bwd_args a;
    memcpy(&a, l->params, sizeof a);
    sg_touch(touch, ctx, a.x, &a.s.x, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.dy, &a.s.dy, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.dx, &a.s.dx, 4, sg_out_mode(a.s.beta));
    sg_touch(touch, ctx, a.scale, &a.s.param, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.dscale, &a.s.param, 4, sg_out_mode(a.s.param_beta));
    sg_touch(touch, ctx, a.dbias, &a.s.param, 4, sg_out_mode(a.s.param_beta));
    sg_touch(touch, ctx, a.save_mean, &a.s.param, 4, SIMGPU_READ);
    sg_touch(touch, ctx, a.save_invvar, &a.s.param, 4, SIMGPU_READ);
    if (a.s.ops == CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION) {
        sg_touch(touch, ctx, a.dz, &a.s.dz, 4, SIMGPU_WRITE);
    }
    if (a.s.ops != CUDNN_BATCHNORM_OPS_BN) {
        touch(ctx, a.reserve, sg_bn_reserve_bytes(&a.s.x), SIMGPU_READ);
    }
}

void sg_bn_bwd_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    struct sg_bn_bwd_args a;
    memcpy(&a, l->params, sizeof a);
    double passes = 5; /* x and dy for the sums, both again, dx */
    passes += a.s.ops == CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION ? 1 : 0;
    norm_cost(work, &a.s.x, 12, passes + (a.s.beta != 0.0f ? 1 : 0));
}
