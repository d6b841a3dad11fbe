/* spatial.h: spatial transformers (Jaderberg et al., arXiv 1506.02025): affine grids and bilinear
 * sampling in two dimensions; the corners of the grid are the centres of the corner pixels, what
 * lies outside the image is zero. */
#ifndef SG_SPATIAL_H
#define SG_SPATIAL_H

#include "tensor.h"

/* Rows of a grid: batch, height, width, two coordinates, packed; theta: batch, two rows of three.
 */
struct sg_grid_args {
    uint64_t theta, grid; /* backward: their gradients */
    int32_t batch, height, width, backward;
};

struct sg_sample_args {
    uint64_t x, grid, y, dx, dgrid; /* backward: y is dy */
    struct sg_tensor tx, ty, tdx;
    float alpha, beta, grid_alpha, grid_beta;
    int32_t backward, unused;
};

void sg_grid_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_grid_body(const struct simgpu_launch *l);
void sg_grid_cost(const struct simgpu_launch *l, struct simgpu_work *work);
void sg_sample_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_sample_body(const struct simgpu_launch *l);
void sg_sample_cost(const struct simgpu_launch *l, struct simgpu_work *work);

#endif
