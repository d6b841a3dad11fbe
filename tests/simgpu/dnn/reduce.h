/* reduce.h: reductions and dropout. */
#ifndef SG_REDUCE_H
#define SG_REDUCE_H

#include "tensor.h"

/* c = alpha * reduce(a) + beta * c over the dimensions where c has size 1. */
struct sg_reduce_args {
    uint64_t a, c,
        indices; /* indices: flattened positions of a minimum or maximum, 0 = not wanted */
    struct sg_tensor ta, tc;
    int32_t op, nan; /* cudnnReduceTensorOp_t */
    float alpha, beta;
};

/* Dropout's generator state: independent counters, in device memory, advanced by every forward
 * pass. */
#define SG_DROPOUT_STREAMS 256
struct sg_dropout_state {
    uint64_t key, counter;
};
#define SG_DROPOUT_STATE_BYTES (SG_DROPOUT_STREAMS * sizeof(struct sg_dropout_state))

struct sg_dropout_init_args {
    uint64_t states, seed;
};

struct sg_dropout_args {
    uint64_t x, y, states, reserve; /* backward: x is dy, y is dx, states unused */
    struct sg_tensor tx, ty;
    float rate;
    int32_t unused;
};

/* Draws the mask of n elements from the states at this host address, and advances them: bit i set =
 * element i kept, with probability 1 - rate. Writes (n + 7) / 8 bytes. */
void sg_dropout_draw(uint64_t states, float rate, int64_t n, unsigned char *mask);

uint64_t sg_dropout_reserve_bytes(const struct sg_tensor *x);

void sg_reduce_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_reduce_body(const struct simgpu_launch *l);
void sg_reduce_cost(const struct simgpu_launch *l, struct simgpu_work *work);
void sg_dropout_init_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_dropout_init_body(const struct simgpu_launch *l);
void sg_dropout_init_cost(const struct simgpu_launch *l, struct simgpu_work *work);
void sg_dropout_fwd_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_dropout_fwd_body(const struct simgpu_launch *l);
void sg_dropout_bwd_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_dropout_bwd_body(const struct simgpu_launch *l);
void sg_dropout_cost(const struct simgpu_launch *l, struct simgpu_work *work);

#endif
