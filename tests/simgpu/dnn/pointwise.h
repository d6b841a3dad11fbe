/* pointwise.h: kernels that treat each element alone. */
#ifndef SG_POINTWISE_H
#define SG_POINTWISE_H

#include "tensor.h"

/* An activation; mode is a cudnnActivationMode_t. */
struct sg_act {
    int32_t mode;
    int32_t nan; /* 1: rectifiers let NaN through */
    float coef;  /* ceiling of the clipped rectifier, alpha of ELU */
    float swish;
};

float sg_act_forward(const struct sg_act *a, float x);
/* d act(x) / dx, from the input and the output. */
float sg_act_slope(const struct sg_act *a, float x, float y);

/* y = alpha * act(x) + beta * y */
struct sg_act_fwd_args {
    uint64_t x, y;
    struct sg_tensor tx, ty;
    struct sg_act act;
    float alpha, beta;
};

/* dx = alpha * act'(x) * dy + beta * dx */
struct sg_act_bwd_args {
    uint64_t y, dy, x, dx;
    struct sg_tensor ty, tdy, tx, tdx;
    struct sg_act act;
    float alpha, beta;
};

/* c = alpha * a + beta * c, where a is broadcast along its dimensions of size 1. */
struct sg_add_args {
    uint64_t a, c;
    struct sg_tensor ta, tc;
    float alpha, beta;
};

/* c = op(alpha1 * a, alpha2 * b) + beta * c; op is a cudnnOpTensorOp_t; b is broadcast. */
struct sg_op_args {
    uint64_t a, b, c;
    struct sg_tensor ta, tb, tc;
    int32_t op, nan;
    float alpha1, alpha2, beta;
    int32_t unused;
};

/* y = value, or y = value * y where scale is 1. */
struct sg_fill_args {
    uint64_t y;
    struct sg_tensor ty;
    float value;
    int32_t scale;
};

void sg_act_fwd_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_act_fwd_body(const struct simgpu_launch *l);
void sg_act_fwd_cost(const struct simgpu_launch *l, struct simgpu_work *work);
void sg_act_bwd_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_act_bwd_body(const struct simgpu_launch *l);
void sg_act_bwd_cost(const struct simgpu_launch *l, struct simgpu_work *work);
void sg_add_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_add_body(const struct simgpu_launch *l);
void sg_add_cost(const struct simgpu_launch *l, struct simgpu_work *work);
void sg_op_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_op_body(const struct simgpu_launch *l);
void sg_op_cost(const struct simgpu_launch *l, struct simgpu_work *work);
void sg_fill_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_fill_body(const struct simgpu_launch *l);
void sg_fill_cost(const struct simgpu_launch *l, struct simgpu_work *work);

#endif
