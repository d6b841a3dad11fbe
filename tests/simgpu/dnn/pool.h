/* pool.h: maximum and average pooling in up to three spatial dimensions. */
#ifndef SG_POOL_H
#define SG_POOL_H

#include "tensor.h"

struct sg_pool_shape {
    struct sg_tensor x, y, dx, dy;
    int32_t window[3], pad[3], stride[3];
    int32_t mode; /* cudnnPoolingMode_t */
    int32_t nan;  /* 1: NaN wins a maximum */
    int32_t unused;
    float alpha, beta;
};

struct sg_pool_fwd_args {
    uint64_t x, y;
    struct sg_pool_shape s;
};

struct sg_pool_bwd_args {
    uint64_t y, dy, x, dx;
    struct sg_pool_shape s;
};

void sg_pool_fwd_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_pool_fwd_body(const struct simgpu_launch *l);
void sg_pool_fwd_cost(const struct simgpu_launch *l, struct simgpu_work *work);
void sg_pool_bwd_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_pool_bwd_body(const struct simgpu_launch *l);
void sg_pool_bwd_cost(const struct simgpu_launch *l, struct simgpu_work *work);

#endif
