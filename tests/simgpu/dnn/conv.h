/* conv.h: convolutions: the parameter blocks of their kernels and the model of their algorithms.
 *
 * All algorithms of one direction compute the same bits; they differ in workspace, time and name.
 */
#ifndef SG_CONV_H
#define SG_CONV_H

#include "tensor.h"

enum sg_conv_dir { SG_CONV_FWD, SG_CONV_BWD_DATA, SG_CONV_BWD_FILTER };

struct sg_conv_shape {
    struct sg_tensor x, y; /* input (or its gradient), output (or its gradient) */
    struct sg_tensor w; /* filters: output channels, channels of a group, then the three extents */
    int32_t pad[3], stride[3], dilation[3];
    int32_t groups;
    int32_t flip; /* 1: true convolution, filters mirrored; 0: cross-correlation */
    int32_t dir, algo;
    float alpha, beta;
    uint64_t workspace_bytes; /* what the algorithm uses of the workspace */
};

struct sg_conv_args {
    uint64_t x, w, y, workspace;
    struct sg_conv_shape s;
};

/* y = act(alpha * conv(x, w) + alpha2 * z + bias); mode is a cudnnActivationMode_t. */
struct sg_conv_fused_args {
    uint64_t x, w, y, workspace, z, bias;
    struct sg_conv_shape s;
    struct sg_tensor zt, biast;
    float alpha2, coef;
    int32_t mode, nan;
};

/* What an algorithm costs on this shape. */
struct sg_conv_model {
    int supported;
    int kclass; /* enum simgpu_class */
    double flops, bytes;
    uint64_t workspace_bytes;
};

/* algo is the cudnn enum value of the direction. Sources: conv_model.c. */
struct sg_conv_model sg_conv_model(const struct sg_conv_shape *s, enum sg_conv_dir dir, int algo);

/* Number of algorithms of a direction. */
int sg_conv_algo_count(enum sg_conv_dir dir);

/* More than any direction has. */
#define SG_CONV_ALGOS_MAX 8

/* 1 where the algorithm gives the same bits each time on hardware; where it is a minimal-filtering
 * one. */
int sg_conv_deterministic(enum sg_conv_dir dir, int algo);
int sg_conv_is_winograd(enum sg_conv_dir dir, int algo);

/* The arithmetic, addresses being host addresses. */
void sg_conv_forward(const struct sg_conv_args *a);
void sg_conv_backward_data(const struct sg_conv_args *a);
void sg_conv_backward_filter(const struct sg_conv_args *a);

/* Kernel entry points. */
void sg_conv_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_conv_body(const struct simgpu_launch *l);
void sg_conv_cost(const struct simgpu_launch *l, struct simgpu_work *work);
void sg_conv_fused_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_conv_fused_body(const struct simgpu_launch *l);
void sg_conv_fused_cost(const struct simgpu_launch *l, struct simgpu_work *work);

#endif
