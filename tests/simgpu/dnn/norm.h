/* norm.h: batch normalisation (Ioffe and Szegedy, arXiv 1502.03167), local response normalisation
 * across channels (Krizhevsky et al. 2012) and softmax. */
#ifndef SG_NORM_H
#define SG_NORM_H

#include "pointwise.h"

/* ops is a cudnnBatchNormOps_t; param has the shape of scale, bias, means and variances. */
struct sg_bn_shape {
    struct sg_tensor x, y, z, dy, dx, dz, param;
    struct sg_act act;
    double epsilon, average_factor;
    float alpha, beta, param_alpha, param_beta;
    int32_t per_activation;
    int32_t ops;
};

struct sg_bn_train_args {
    uint64_t x, y, z, scale, bias, running_mean, running_var, save_mean, save_invvar, reserve;
    struct sg_bn_shape s;
};

struct sg_bn_infer_args {
    uint64_t x, y, scale, bias, mean, var;
    struct sg_bn_shape s;
};

struct sg_bn_bwd_args {
    uint64_t x, dy, dx, dz, scale, dscale, dbias, save_mean, save_invvar, reserve;
    struct sg_bn_shape s;
};

struct sg_lrn_args {
    uint64_t y, dy, x, out; /* forward: x and out (y); backward: all, out is dx */
    struct sg_tensor ty, tdy, tx, tout;
    float alpha, beta;
    float lrn_alpha, lrn_beta, lrn_k;
    int32_t lrn_n;
};

struct sg_softmax_args {
    uint64_t y, dy, x, out; /* forward: x and out (y); backward: y, dy and out (dx) */
    struct sg_tensor ty, tdy, tx, tout;
    float alpha, beta;
    int32_t algo, per_channel;
};

/* Bytes of the reserve space of a batch normalisation with an activation: one bit an element. */
uint64_t sg_bn_reserve_bytes(const struct sg_tensor *x);

void sg_bn_train_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_bn_train_body(const struct simgpu_launch *l);
void sg_bn_train_cost(const struct simgpu_launch *l, struct simgpu_work *work);
void sg_bn_infer_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_bn_infer_body(const struct simgpu_launch *l);
void sg_bn_infer_cost(const struct simgpu_launch *l, struct simgpu_work *work);
void sg_bn_bwd_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_bn_bwd_body(const struct simgpu_launch *l);
void sg_bn_bwd_cost(const struct simgpu_launch *l, struct simgpu_work *work);
void sg_lrn_fwd_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_lrn_fwd_body(const struct simgpu_launch *l);
void sg_lrn_fwd_cost(const struct simgpu_launch *l, struct simgpu_work *work);
void sg_lrn_bwd_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_lrn_bwd_body(const struct simgpu_launch *l);
void sg_lrn_bwd_cost(const struct simgpu_launch *l, struct simgpu_work *work);
void sg_softmax_fwd_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_softmax_fwd_body(const struct simgpu_launch *l);
void sg_softmax_fwd_cost(const struct simgpu_launch *l, struct simgpu_work *work);
void sg_softmax_bwd_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_softmax_bwd_body(const struct simgpu_launch *l);
void sg_softmax_bwd_cost(const struct simgpu_launch *l, struct simgpu_work *work);

#endif
