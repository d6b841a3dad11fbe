/* Elementwise calls, pooling, softmax, reductions, dropout. */
#include "dnn.h"

/* alpha and beta are always needed; the data pointers as listed by the caller. */
#define SG_NEED_ALL(cond) SG_NEED(cond, "%s: an argument is null", __func__)

/* ---- activations ---- */

cudnnStatus_t cudnnActivationForward(cudnnHandle_t handle,
                                     cudnnActivationDescriptor_t activationDesc, const void *alpha,
                                     const cudnnTensorDescriptor_t xDesc, const void *x,
                                     const void *beta, const cudnnTensorDescriptor_t yDesc, void *y)
{
    struct sg_act_fwd_args a = {.x = sg_dnn_addr(x), .y = sg_dnn_addr(y)};
    SG_NEED_ALL(handle && activationDesc && activationDesc->set && alpha && x && beta && y);
    SG_TRY(sg_dnn_tensor(__func__, xDesc, &a.tx));
    SG_TRY(sg_dnn_tensor(__func__, yDesc, &a.ty));
    SG_NEED(sg_dnn_same_shape(&a.tx, &a.ty), "%s: x and y differ in shape", __func__);
    SG_NEED(activationDesc->mode != CUDNN_ACTIVATION_IDENTITY,
            "%s: CUDNN_ACTIVATION_IDENTITY is for cudnnConvolutionBiasActivationForward only",
            __func__);
    a.act = sg_dnn_act(activationDesc);
    a.alpha = sg_dnn_scalar(alpha);
    a.beta = sg_dnn_scalar(beta);
    return sg_dnn_launch(handle, SG_K_ACT_FWD, &a, (double)sg_count(&a.ty));
}

cudnnStatus_t cudnnActivationBackward(cudnnHandle_t handle,
                                      cudnnActivationDescriptor_t activationDesc, const void *alpha,
                                      const cudnnTensorDescriptor_t yDesc, const void *y,
                                      const cudnnTensorDescriptor_t dyDesc, const void *dy,
                                      const cudnnTensorDescriptor_t xDesc, const void *x,
                                      const void *beta, const cudnnTensorDescriptor_t dxDesc,
                                      void *dx)
{
    struct sg_act_bwd_args a = {sg_dnn_addr(y), sg_dnn_addr(dy), sg_dnn_addr(x), sg_dnn_addr(dx),
                                .alpha = 1.0f};
    SG_NEED_ALL(handle && activationDesc && activationDesc->set && alpha && y && dy && x && beta &&
                dx);
    SG_TRY(sg_dnn_tensor(__func__, yDesc, &a.ty));
    SG_TRY(sg_dnn_tensor(__func__, dyDesc, &a.tdy));
    SG_TRY(sg_dnn_tensor(__func__, xDesc, &a.tx));
    SG_TRY(sg_dnn_tensor(__func__, dxDesc, &a.tdx));
    SG_NEED(sg_dnn_same_shape(&a.ty, &a.tdx) && sg_dnn_same_shape(&a.tdy, &a.tdx) &&
                sg_dnn_same_shape(&a.tx, &a.tdx),
            "%s: y, dy, x and dx differ in shape", __func__);
    a.act = sg_dnn_act(activationDesc);
    a.alpha = sg_dnn_scalar(alpha);
    a.beta = sg_dnn_scalar(beta);
    return sg_dnn_launch(handle, SG_K_ACT_BWD, &a, (double)sg_count(&a.tdx));
}

/* ---- tensors by element ---- */

/* 1 where every dimension of a is c's or 1. */
static int broadcasts(const struct sg_tensor *a, const struct sg_tensor *c)
{
    for (int i = 0; i < SG_DIMS; i++) {
        if (a->dim[i] != c->dim[i] && a->dim[i] != 1) {
            return 0;
        }
    }
    return 1;
}

cudnnStatus_t cudnnAddTensor(cudnnHandle_t handle, const void *alpha,
                             const cudnnTensorDescriptor_t aDesc, const void *A, const void *beta,
                             const cudnnTensorDescriptor_t cDesc, void *C)
{
    struct sg_add_args a = {.a = sg_dnn_addr(A), .c = sg_dnn_addr(C)};
    SG_NEED_ALL(handle && alpha && A && beta && C);
    SG_TRY(sg_dnn_tensor(__func__, aDesc, &a.ta));
    SG_TRY(sg_dnn_tensor(__func__, cDesc, &a.tc));
    SG_NEED(broadcasts(&a.ta, &a.tc), "%s: a dimension of A is neither 1 nor that of C", __func__);
    a.alpha = sg_dnn_scalar(alpha);
    a.beta = sg_dnn_scalar(beta);
    return sg_dnn_launch(handle, SG_K_ADD, &a, (double)sg_count(&a.tc));
}

cudnnStatus_t cudnnTransformTensor(cudnnHandle_t handle, const void *alpha,
                                   const cudnnTensorDescriptor_t xDesc, const void *x,
                                   const void *beta, const cudnnTensorDescriptor_t yDesc, void *y)
{
    struct sg_add_args a = {.a = sg_dnn_addr(x), .c = sg_dnn_addr(y)};
    SG_NEED_ALL(handle && alpha && x && beta && y);
    SG_TRY(sg_dnn_tensor(__func__, xDesc, &a.ta));
    SG_TRY(sg_dnn_tensor(__func__, yDesc, &a.tc));
    SG_NEED(sg_dnn_same_shape(&a.ta, &a.tc), "%s: x and y differ in shape", __func__);
    SG_NEED(x != y, "%s: not in place", __func__);
    a.alpha = sg_dnn_scalar(alpha);
    a.beta = sg_dnn_scalar(beta);
    return sg_dnn_launch(handle, SG_K_TRANSFORM, &a, (double)sg_count(&a.tc));
}

cudnnStatus_t cudnnOpTensor(cudnnHandle_t handle, const cudnnOpTensorDescriptor_t opTensorDesc,
                            const void *alpha1, const cudnnTensorDescriptor_t aDesc, const void *A,
                            const void *alpha2, const cudnnTensorDescriptor_t bDesc, const void *B,
                            const void *beta, const cudnnTensorDescriptor_t cDesc, void *C)
{
    struct sg_op_args a = {.a = sg_dnn_addr(A), .c = sg_dnn_addr(C)};
    SG_NEED_ALL(handle && opTensorDesc && opTensorDesc->set && alpha1 && A && beta && C);
    SG_TRY(sg_dnn_tensor(__func__, aDesc, &a.ta));
    SG_TRY(sg_dnn_tensor(__func__, cDesc, &a.tc));
    SG_NEED(sg_dnn_same_shape(&a.ta, &a.tc), "%s: A and C differ in shape", __func__);
    a.op = (int32_t)opTensorDesc->op;
    a.nan = opTensorDesc->nan == CUDNN_PROPAGATE_NAN;
    if (opTensorDesc->op != CUDNN_OP_TENSOR_SQRT && opTensorDesc->op != CUDNN_OP_TENSOR_NOT) {
        SG_NEED_ALL(alpha2 && B);
        SG_TRY(sg_dnn_tensor(__func__, bDesc, &a.tb));
        SG_NEED(broadcasts(&a.tb, &a.tc), "%s: a dimension of B is neither 1 nor that of C",
                __func__);
        SG_NEED(B != C || sg_dnn_same_shape(&a.tb, &a.tc), "%s: C in place of a broadcast B",
                __func__);
        a.b = sg_dnn_addr(B);
        a.alpha2 = sg_dnn_scalar(alpha2);
    }
    a.alpha1 = sg_dnn_scalar(alpha1);
    a.beta = sg_dnn_scalar(beta);
    return sg_dnn_launch(handle, SG_K_OP, &a, (double)sg_count(&a.tc));
}

static cudnnStatus_t fill(const char *what, cudnnHandle_t handle, cudnnTensorDescriptor_t yDesc,
                          void *y, const void *value, int scale)
{
    struct sg_fill_args a = {.y = sg_dnn_addr(y), .scale = scale};
    SG_NEED(handle && y && value, "%s: an argument is null", what);
    SG_TRY(sg_dnn_tensor(what, yDesc, &a.ty));
    a.value = sg_dnn_scalar(value);
    return sg_dnn_launch(handle, scale ? SG_K_SCALE : SG_K_SET, &a, (double)sg_count(&a.ty));
}

cudnnStatus_t cudnnSetTensor(cudnnHandle_t handle, const cudnnTensorDescriptor_t yDesc, void *y,
                             const void *valuePtr)
{
    return fill(__func__, handle, yDesc, y, valuePtr, 0);
}

cudnnStatus_t cudnnScaleTensor(cudnnHandle_t handle, const cudnnTensorDescriptor_t yDesc, void *y,
                               const void *alpha)
{
    return fill(__func__, handle, yDesc, y, alpha, 1);
}

/* ---- pooling ---- */

static cudnnStatus_t pool_shape(const char *what, cudnnPoolingDescriptor_t d,
                                cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t y,
                                struct sg_pool_shape *s)
{
    int dim[CUDNN_DIM_MAX];
    SG_NEED(d && d->ndims > 0, "%s: the pooling descriptor is null or was never set", what);
    SG_TRY(sg_dnn_tensor(what, x, &s->x));
    SG_TRY(sg_dnn_tensor(what, y, &s->y));
    SG_TRY(cudnnGetPoolingNdForwardOutputDim(d, x, CUDNN_DIM_MAX, dim));
    for (int i = 0; i < x->ndims; i++) {
        SG_NEED(y->ndims == x->ndims && y->dim[i] == dim[i],
                "%s: the output descriptor does not have the pooling's output dimensions", what);
    }
    for (int i = 0; i < 3; i++) {
        int from = i - (3 - d->ndims);
        s->window[i] = from >= 0 ? d->window[from] : 1;
        s->pad[i] = from >= 0 ? d->pad[from] : 0;
        s->stride[i] = from >= 0 ? d->stride[from] : 1;
    }
    s->mode = (int32_t)d->mode;
    s->nan = d->nan == CUDNN_PROPAGATE_NAN;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnPoolingForward(cudnnHandle_t handle, const cudnnPoolingDescriptor_t poolingDesc,
                                  const void *alpha, const cudnnTensorDescriptor_t xDesc,
                                  const void *x, const void *beta,
                                  const cudnnTensorDescriptor_t yDesc, void *y)
{
    struct sg_pool_fwd_args a = {.x = sg_dnn_addr(x), .y = sg_dnn_addr(y)};
    SG_NEED_ALL(handle && alpha && x && beta && y);
    SG_TRY(pool_shape(__func__, poolingDesc, xDesc, yDesc, &a.s));
    a.s.alpha = sg_dnn_scalar(alpha);
    a.s.beta = sg_dnn_scalar(beta);
    return sg_dnn_launch(handle, SG_K_POOL_FWD, &a, (double)sg_count(&a.s.y));
}

cudnnStatus_t cudnnPoolingBackward(cudnnHandle_t handle, const cudnnPoolingDescriptor_t poolingDesc,
                                   const void *alpha, const cudnnTensorDescriptor_t yDesc,
                                   const void *y, const cudnnTensorDescriptor_t dyDesc,
                                   const void *dy, const cudnnTensorDescriptor_t xDesc,
                                   const void *x, const void *beta,
                                   const cudnnTensorDescriptor_t dxDesc, void *dx)
{
    struct sg_pool_bwd_args a = {
        .y = sg_dnn_addr(y), .dy = sg_dnn_addr(dy), .x = sg_dnn_addr(x), .dx = sg_dnn_addr(dx)};
    SG_NEED_ALL(handle && alpha && y && dy && x && beta && dx);
    SG_TRY(pool_shape(__func__, poolingDesc, xDesc, yDesc, &a.s));
    SG_TRY(sg_dnn_tensor(__func__, dyDesc, &a.s.dy));
    SG_TRY(sg_dnn_tensor(__func__, dxDesc, &a.s.dx));
    SG_NEED(sg_dnn_same_shape(&a.s.dy, &a.s.y) && sg_dnn_same_shape(&a.s.dx, &a.s.x),
            "%s: gradients differ in shape from their tensors", __func__);
    a.s.alpha = sg_dnn_scalar(alpha);
    a.s.beta = sg_dnn_scalar(beta);
    return sg_dnn_launch(handle, SG_K_POOL_BWD, &a, (double)sg_count(&a.s.dx));
}

/* ---- softmax ---- */

static double softmax_threads(const struct sg_softmax_args *a)
{
    int64_t n = a->per_channel ? sg_count(&a->ty) / a->ty.dim[1] : a->ty.dim[0];
    return (double)n * 32;
}

cudnnStatus_t cudnnSoftmaxForward(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algo,
                                  cudnnSoftmaxMode_t mode, const void *alpha,
                                  const cudnnTensorDescriptor_t xDesc, const void *x,
                                  const void *beta, const cudnnTensorDescriptor_t yDesc, void *y)
{
    struct sg_softmax_args a = {.x = sg_dnn_addr(x), .out = sg_dnn_addr(y)};
    SG_NEED_ALL(handle && alpha && x && beta && y);
    SG_NEED((unsigned)algo <= CUDNN_SOFTMAX_LOG && (unsigned)mode <= CUDNN_SOFTMAX_MODE_CHANNEL,
            "%s: algorithm %d, mode %d", __func__, (int)algo, (int)mode);
    SG_TRY(sg_dnn_tensor(__func__, xDesc, &a.tx));
    SG_TRY(sg_dnn_tensor(__func__, yDesc, &a.tout));
    SG_NEED(sg_dnn_same_shape(&a.tx, &a.tout), "%s: x and y differ in shape", __func__);
    a.ty = a.tout;
    a.algo = (int32_t)algo;
    a.per_channel = mode == CUDNN_SOFTMAX_MODE_CHANNEL;
    a.alpha = sg_dnn_scalar(alpha);
    a.beta = sg_dnn_scalar(beta);
    return sg_dnn_launch(handle, SG_K_SOFTMAX_FWD, &a, softmax_threads(&a));
}

cudnnStatus_t cudnnSoftmaxBackward(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algo,
                                   cudnnSoftmaxMode_t mode, const void *alpha,
                                   const cudnnTensorDescriptor_t yDesc, const void *y,
                                   const cudnnTensorDescriptor_t dyDesc, const void *dy,
                                   const void *beta, const cudnnTensorDescriptor_t dxDesc, void *dx)
{
    struct sg_softmax_args a = {.y = sg_dnn_addr(y), .dy = sg_dnn_addr(dy), .out = sg_dnn_addr(dx)};
    SG_NEED_ALL(handle && alpha && y && dy && beta && dx);
    SG_NEED((unsigned)algo <= CUDNN_SOFTMAX_LOG && (unsigned)mode <= CUDNN_SOFTMAX_MODE_CHANNEL,
            "%s: algorithm %d, mode %d", __func__, (int)algo, (int)mode);
    SG_TRY(sg_dnn_tensor(__func__, yDesc, &a.ty));
    SG_TRY(sg_dnn_tensor(__func__, dyDesc, &a.tdy));
    SG_TRY(sg_dnn_tensor(__func__, dxDesc, &a.tout));
    SG_NEED(sg_dnn_same_shape(&a.ty, &a.tdy) && sg_dnn_same_shape(&a.ty, &a.tout),
            "%s: y, dy and dx differ in shape", __func__);
    a.algo = (int32_t)algo;
    a.per_channel = mode == CUDNN_SOFTMAX_MODE_CHANNEL;
    a.alpha = sg_dnn_scalar(alpha);
    a.beta = sg_dnn_scalar(beta);
    return sg_dnn_launch(handle, SG_K_SOFTMAX_BWD, &a, softmax_threads(&a));
}

/* ---- reductions ---- */

static int wants_indices(cudnnReduceTensorDescriptor_t d)
{
    return d->indices == CUDNN_REDUCE_TENSOR_FLATTENED_INDICES &&
           (d->op == CUDNN_REDUCE_TENSOR_MIN || d->op == CUDNN_REDUCE_TENSOR_MAX);
}

cudnnStatus_t cudnnGetReductionIndicesSize(cudnnHandle_t handle,
                                           const cudnnReduceTensorDescriptor_t reduceTensorDesc,
                                           const cudnnTensorDescriptor_t aDesc,
                                           const cudnnTensorDescriptor_t cDesc, size_t *sizeInBytes)
{
    struct sg_tensor c;
    SG_NEED_ALL(reduceTensorDesc && reduceTensorDesc->set && sizeInBytes);
    SG_TRY(sg_dnn_tensor(__func__, cDesc, &c));
    *sizeInBytes = wants_indices(reduceTensorDesc) ? (size_t)sg_count(&c) * 4 : 0;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetReductionWorkspaceSize(cudnnHandle_t handle,
                                             const cudnnReduceTensorDescriptor_t reduceTensorDesc,
                                             const cudnnTensorDescriptor_t aDesc,
                                             const cudnnTensorDescriptor_t cDesc,
                                             size_t *sizeInBytes)
{
    struct sg_tensor c;
    SG_NEED_ALL(reduceTensorDesc && reduceTensorDesc->set && sizeInBytes);
    SG_TRY(sg_dnn_tensor(__func__, cDesc, &c));
    *sizeInBytes = 0; /* one pass over the input, no partial results */
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnReduceTensor(cudnnHandle_t handle,
                                const cudnnReduceTensorDescriptor_t reduceTensorDesc, void *indices,
                                size_t indicesSizeInBytes, void *workspace,
                                size_t workspaceSizeInBytes, const void *alpha,
                                const cudnnTensorDescriptor_t aDesc, const void *A,
                                const void *beta, const cudnnTensorDescriptor_t cDesc, void *C)
{
    struct sg_reduce_args a = {.a = sg_dnn_addr(A), .c = sg_dnn_addr(C)};
    SG_NEED_ALL(handle && reduceTensorDesc && reduceTensorDesc->set && alpha && A && beta && C);
    SG_TRY(sg_dnn_tensor(__func__, aDesc, &a.ta));
    SG_TRY(sg_dnn_tensor(__func__, cDesc, &a.tc));
    SG_NEED(broadcasts(&a.tc, &a.ta), "%s: a dimension of C is neither 1 nor that of A", __func__);
    if (wants_indices(reduceTensorDesc)) {
        SG_NEED(indices && indicesSizeInBytes >= (size_t)sg_count(&a.tc) * 4,
                "%s: the indices need %lld bytes", __func__, (long long)sg_count(&a.tc) * 4);
        a.indices = sg_dnn_addr(indices);
    }
    a.op = (int32_t)reduceTensorDesc->op;
    a.nan = reduceTensorDesc->nan == CUDNN_PROPAGATE_NAN;
    a.alpha = sg_dnn_scalar(alpha);
    a.beta = sg_dnn_scalar(beta);
    return sg_dnn_launch(handle, SG_K_REDUCE, &a, (double)sg_count(&a.tc) * 256);
}

/* ---- dropout ---- */

cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t handle, size_t *sizeInBytes)
{
    SG_NEED_ALL(handle && sizeInBytes);
    *sizeInBytes = SG_DROPOUT_STATE_BYTES;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDropoutGetReserveSpaceSize(cudnnTensorDescriptor_t xdesc, size_t *sizeInBytes)
{
    struct sg_tensor x;
    SG_NEED_ALL(sizeInBytes);
    SG_TRY(sg_dnn_tensor(__func__, xdesc, &x));
    *sizeInBytes = sg_dropout_reserve_bytes(&x);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t set_dropout(const char *what, cudnnDropoutDescriptor_t d, float rate,
                                 void *states, size_t bytes, unsigned long long seed)
{
    SG_NEED(d && rate >= 0.0f && rate <= 1.0f, "%s: dropout rate %g", what, (double)rate);
    if (states && bytes < SG_DROPOUT_STATE_BYTES) {
        return sg_dnn_refuse(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT,
                             "%s: the states need %zu bytes", what, SG_DROPOUT_STATE_BYTES);
    }
    *d = (struct cudnnDropoutStruct){rate, states, seed};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t dropoutDesc, cudnnHandle_t handle,
                                        float dropout, void *states, size_t stateSizeInBytes,
                                        unsigned long long seed)
{
    SG_NEED_ALL(handle);
    SG_TRY(set_dropout(__func__, dropoutDesc, dropout, states, stateSizeInBytes, seed));
    if (!states) {
        return CUDNN_STATUS_SUCCESS; /* rate only; the generator is left as it is */
    }
    struct sg_dropout_init_args a = {sg_dnn_addr(states), seed};
    return sg_dnn_launch(handle, SG_K_DROPOUT_INIT, &a, SG_DROPOUT_STREAMS);
}

cudnnStatus_t cudnnRestoreDropoutDescriptor(cudnnDropoutDescriptor_t dropoutDesc,
                                            cudnnHandle_t handle, float dropout, void *states,
                                            size_t stateSizeInBytes, unsigned long long seed)
{
    SG_NEED_ALL(handle && states);
    return set_dropout(__func__, dropoutDesc, dropout, states, stateSizeInBytes, seed);
}

cudnnStatus_t cudnnGetDropoutDescriptor(cudnnDropoutDescriptor_t dropoutDesc, cudnnHandle_t handle,
                                        float *dropout, void **states, unsigned long long *seed)
{
    SG_NEED_ALL(dropoutDesc && dropout && states && seed);
    *dropout = dropoutDesc->rate;
    *states = dropoutDesc->states;
    *seed = dropoutDesc->seed;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t dropout(const char *what, cudnnHandle_t handle, cudnnDropoutDescriptor_t d,
                             enum sg_kernel_id kernel, cudnnTensorDescriptor_t xdesc, const void *x,
                             cudnnTensorDescriptor_t ydesc, void *y, void *reserve, size_t bytes)
{
    struct sg_dropout_args a = {
        .x = sg_dnn_addr(x), .y = sg_dnn_addr(y), .reserve = sg_dnn_addr(reserve)};
    SG_NEED(handle && d && x && y && reserve, "%s: an argument is null", what);
    SG_TRY(sg_dnn_tensor(what, xdesc, &a.tx));
    SG_TRY(sg_dnn_tensor(what, ydesc, &a.ty));
    SG_NEED(sg_dnn_same_shape(&a.tx, &a.ty), "%s: input and output differ in shape", what);
    if (bytes < sg_dropout_reserve_bytes(&a.tx)) {
        return sg_dnn_refuse(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT,
                             "%s: the reserve space needs %llu bytes", what,
                             (unsigned long long)sg_dropout_reserve_bytes(&a.tx));
    }
    if (kernel == SG_K_DROPOUT_FWD) {
        SG_NEED(d->states, "%s: the descriptor has no states", what);
        a.states = sg_dnn_addr(d->states);
    }
    a.rate = d->rate;
    return sg_dnn_launch(handle, kernel, &a, (double)sg_count(&a.tx));
}

cudnnStatus_t cudnnDropoutForward(cudnnHandle_t handle, const cudnnDropoutDescriptor_t dropoutDesc,
                                  const cudnnTensorDescriptor_t xdesc, const void *x,
                                  const cudnnTensorDescriptor_t ydesc, void *y, void *reserveSpace,
                                  size_t reserveSpaceSizeInBytes)
{
    return dropout(__func__, handle, dropoutDesc, SG_K_DROPOUT_FWD, xdesc, x, ydesc, y,
                   reserveSpace, reserveSpaceSizeInBytes);
}

cudnnStatus_t cudnnDropoutBackward(cudnnHandle_t handle, const cudnnDropoutDescriptor_t dropoutDesc,
                                   const cudnnTensorDescriptor_t dydesc, const void *dy,
                                   const cudnnTensorDescriptor_t dxdesc, void *dx,
                                   void *reserveSpace, size_t reserveSpaceSizeInBytes)
{
    return dropout(__func__, handle, dropoutDesc, SG_K_DROPOUT_BWD, dydesc, dy, dxdesc, dx,
                   reserveSpace, reserveSpaceSizeInBytes);
}
