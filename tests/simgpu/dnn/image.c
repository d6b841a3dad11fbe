/* The image of cuDNN's kernels: names, parameter layouts, ranges, bodies, costs. */
#include "kernels.h"
#include "conv.h"
#include "ctc.h"
#include "graph.h"
#include "norm.h"
#include "pool.h"
#include "reduce.h"
#include "rnn.h"
#include "spatial.h"
#include "params.h"

/* What follows the pointers is one structure by value. */
#define X(id, name, args, pointers, ...)                                                           \
    static const struct simgpu_param params_##id[pointers + 1] = {                                 \
        SG_POINTERS_##pointers, {8 * pointers, sizeof(struct args) - 8 * pointers}};
SG_KERNELS
#undef X

static const struct simgpu_kernel kernels[SG_K_COUNT] = {
#define X(id, kernel_name, args, pointers, touch_fn, body_fn, cost_fn)                             \
    [SG_K_##id] = {.name = kernel_name,                                                            \
                   .params = params_##id,                                                          \
                   .nparams = pointers + 1,                                                        \
                   .touches = touch_fn,                                                            \
                   .body = body_fn,                                                                \
                   .cost = cost_fn},
    SG_KERNELS
#undef X
};

const struct simgpu_image sg_dnn_image = {
    .magic = SIMGPU_IMAGE_MAGIC,
    .version = SIMGPU_IMAGE_VERSION,
    .nkernels = SG_K_COUNT,
    .kernels = kernels,
};
