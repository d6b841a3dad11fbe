/* tensor.h: the tensors of kernels' parameter blocks, walks over them and the ranges they cover.
 *
 * Plain data and arithmetic: no driver, no state, thread-safe.
 */
#ifndef SG_TENSOR_H
#define SG_TENSOR_H

#include <stdint.h>
#include "simgpu.h"

#define SG_DIMS 5

/* Batch, channels, depth, height, width; strides in elements. A 4d tensor has depth 1. A dimension of a
 * tensor that a kernel computes is below 2^31, its strides and the number of its elements need not be. */
struct sg_tensor {
    int64_t dim[SG_DIMS];
    int64_t str[SG_DIMS];
};

static inline float *sg_ptr(uint64_t addr)
{
    return (float *)(uintptr_t)addr;
}

/* Number of elements. */
int64_t sg_count(const struct sg_tensor *t);

/* Elements from the first to the last, both included (the size of the buffer behind it). */
int64_t sg_extent(const struct sg_tensor *t);

/* Strides of a packed row-major tensor with t's dims. */
void sg_pack_strides(struct sg_tensor *t);

/* Declares the bytes of the tensor at addr, one call for each contiguous run; tensors that
 * interleave with gaps in more than 65536 runs are declared from first byte to last. addr 0
 * declares nothing. */
void sg_touch(simgpu_touch_fn touch, void *ctx, uint64_t addr, const struct sg_tensor *t,
              size_t elem_bytes, int mode);

/* SIMGPU_WRITE where the old contents do not matter, SIMGPU_RW where they are blended in. */
static inline int sg_out_mode(float beta)
{
    return beta == 0.0f ? SIMGPU_WRITE : SIMGPU_RW;
}

/* A walk over up to four tensors of one shape, as runs along the last dimension. */
#define SG_WALK_MAX 4
struct sg_walk {
    int ndims, ntensors;
    int64_t dim[SG_DIMS];
    int64_t str[SG_WALK_MAX][SG_DIMS];
};

/* One run of n elements; p[i] and s[i] are the first element and the stride of tensor i; `start` is
 * the index of the run's first element in row-major order of the shape. */
typedef void (*sg_run_fn)(void *ctx, int64_t n, float *const p[], const int64_t s[], int64_t start);

/* Prepares a walk over the dims of `shape`. Dimensions of size 1 in tensor i that are larger in the
 * shape are broadcast (stride 0). Neighbouring dimensions are merged where every tensor allows it.
 */
void sg_walk_init(struct sg_walk *w, const struct sg_tensor *shape, int ntensors,
                  const struct sg_tensor *const t[]);

void sg_walk_run(const struct sg_walk *w, const uint64_t addr[], sg_run_fn run, void *ctx);

/* Host memory for one launch's scratch; release with free(). A machine that has none left cannot go
 * on with correct results: one line on stderr, then abort(). */
void *sg_scratch(size_t bytes);

/* A packed copy (row-major) of the tensor at addr, in scratch memory. */
float *sg_packed_copy(const struct sg_tensor *t, uint64_t addr);

/* out = alpha * value + beta * out, where beta 0 ignores what out holds. */
static inline float sg_blend(float alpha, float value, float beta, float old)
{
    return beta == 0.0f ? alpha * value : alpha * value + beta * old;
}

#endif
