/* Batch normalisation and local response normalisation. */
#include "dnn.h"
#include "legacy_graph.h"

/* Half precision is computed for normalisation alone, alpha 1 and beta 0. */
static cudnnStatus_t half_fits(const char *what, cudnnBatchNormOps_t ops, const void *alpha,
                               const void *beta)
{
    if (ops != CUDNN_BATCHNORM_OPS_BN || sg_dnn_scalar(alpha) != 1.0f ||
        sg_dnn_scalar(beta) != 0.0f) {
        return sg_dnn_refuse(
            CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE,
            "%s: half precision with an activation, or with alpha and beta other than "
            "1 and 0",
            what);
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t bn_shape(const char *what, cudnnBatchNormMode_t mode,
                              cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t param,
                              double epsilon, struct sg_bn_shape *s)
{
    SG_NEED((unsigned)mode <= CUDNN_BATCHNORM_SPATIAL_PERSISTENT, "%s: mode %d", what, (int)mode);
    SG_NEED(epsilon >= CUDNN_BN_MIN_EPSILON, "%s: epsilon %g", what, epsilon);
    SG_TRY(sg_dnn_tensor(what, x, &s->x));
    SG_TRY(sg_dnn_tensor(what, param, &s->param));
    s->per_activation = mode == CUDNN_BATCHNORM_PER_ACTIVATION;
    s->epsilon = epsilon;
    for (int i = 0; i < SG_DIMS; i++) {
        int kept = i == 1 || (i > 1 && s->per_activation);
        SG_NEED(s->param.dim[i] == (kept ? s->x.dim[i] : 1),
                "%s: the parameter descriptor does not fit x in dimension %d", what, i);
    }
    return CUDNN_STATUS_SUCCESS;
}

/* A further tensor of x's shape. */
static cudnnStatus_t bn_tensor(const char *what, const struct sg_bn_shape *s,
                               cudnnTensorDescriptor_t d, struct sg_tensor *out)
{
    SG_TRY(sg_dnn_tensor(what, d, out));
    SG_NEED(sg_dnn_same_shape(out, &s->x), "%s: a tensor differs in shape from x", what);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t bn_ops(const char *what, cudnnBatchNormOps_t ops,
                            cudnnActivationDescriptor_t act, struct sg_bn_shape *s)
{
    s->ops = (int32_t)ops;
    if (ops == CUDNN_BATCHNORM_OPS_BN) {
        return CUDNN_STATUS_SUCCESS;
    }
    SG_NEED((unsigned)ops <= CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION, "%s: bnOps %d", what, (int)ops);
    SG_NEED(act && act->set && act->mode == CUDNN_ACTIVATION_RELU,
            "%s: bnOps with an activation need CUDNN_ACTIVATION_RELU", what);
    s->act = sg_dnn_act(act);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t bn_reserve(const char *what, const struct sg_bn_shape *s, const void *reserve,
                                size_t bytes)
{
    if (s->ops != CUDNN_BATCHNORM_OPS_BN && (!reserve || bytes < sg_bn_reserve_bytes(&s->x))) {
        return sg_dnn_refuse(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT,
                             "%s: the reserve space needs %llu bytes", what,
                             (unsigned long long)sg_bn_reserve_bytes(&s->x));
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDeriveBNTensorDescriptor(cudnnTensorDescriptor_t derivedBnDesc,
                                            const cudnnTensorDescriptor_t xDesc,
                                            cudnnBatchNormMode_t mode)
{
    SG_NEED(derivedBnDesc && xDesc && xDesc->ndims > 0, "%s: an argument is null or never set",
            __func__);
    int dim[CUDNN_DIM_MAX];
    for (int i = 0; i < xDesc->ndims; i++) {
        dim[i] = i == 1 || (i > 1 && mode == CUDNN_BATCHNORM_PER_ACTIVATION) ? xDesc->dim[i] : 1;
    }
    cudnnDataType_t type = xDesc->type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    return cudnnSetTensorNdDescriptorEx(derivedBnDesc, CUDNN_TENSOR_NCHW, type, xDesc->ndims, dim);
}

/* ---- forward ---- */

cudnnStatus_t cudnnBatchNormalizationForwardTrainingEx(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t bnOps, const void *alpha,
    const void *beta, const cudnnTensorDescriptor_t xDesc, const void *xData,
    const cudnnTensorDescriptor_t zDesc, const void *zData, const cudnnTensorDescriptor_t yDesc,
    void *yData, const cudnnTensorDescriptor_t bnScaleBiasMeanVarDesc, const void *bnScale,
    const void *bnBias, double exponentialAverageFactor, void *resultRunningMean,
    void *resultRunningVariance, double epsilon, void *resultSaveMean, void *resultSaveInvVariance,
    cudnnActivationDescriptor_t activationDesc, void *workspace, size_t workSpaceSizeInBytes,
    void *reserveSpace, size_t reserveSpaceSizeInBytes)
{
    struct sg_bn_train_args a = {.x = sg_dnn_addr(xData),
                                 .y = sg_dnn_addr(yData),
                                 .scale = sg_dnn_addr(bnScale),
                                 .bias = sg_dnn_addr(bnBias),
                                 .running_mean = sg_dnn_addr(resultRunningMean),
                                 .running_var = sg_dnn_addr(resultRunningVariance),
                                 .save_mean = sg_dnn_addr(resultSaveMean),
                                 .save_invvar = sg_dnn_addr(resultSaveInvVariance)};
    SG_NEED(handle && alpha && beta && xData && yData && bnScale && bnBias,
            "%s: an argument is null", __func__);
    SG_NEED(!resultRunningMean == !resultRunningVariance &&
                !resultSaveMean == !resultSaveInvVariance,
            "%s: of a mean and its variance one is null", __func__);
    if (sg_half_call(xDesc)) {
        SG_TRY(half_fits(__func__, bnOps, alpha, beta));
        struct sg_half_bn call = {.x = xDesc,
                                  .y = yDesc,
                                  .param = bnScaleBiasMeanVarDesc,
                                  .x_data = xData,
                                  .y_data = yData,
                                  .scale = bnScale,
                                  .bias = bnBias,
                                  .running_mean = resultRunningMean,
                                  .running_var = resultRunningVariance,
                                  .save_mean = resultSaveMean,
                                  .save_invvar = resultSaveInvVariance,
                                  .epsilon = epsilon,
                                  .factor = exponentialAverageFactor};
        return sg_half_bn_train(__func__, handle, &call);
    }
    SG_TRY(bn_shape(__func__, mode, xDesc, bnScaleBiasMeanVarDesc, epsilon, &a.s));
    SG_TRY(bn_tensor(__func__, &a.s, yDesc, &a.s.y));
    SG_TRY(bn_ops(__func__, bnOps, activationDesc, &a.s));
    SG_TRY(bn_reserve(__func__, &a.s, reserveSpace, reserveSpaceSizeInBytes));
    if (bnOps == CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION) {
        SG_NEED(zData, "%s: z is null", __func__);
        SG_TRY(bn_tensor(__func__, &a.s, zDesc, &a.s.z));
        a.z = sg_dnn_addr(zData);
    }
    if (bnOps != CUDNN_BATCHNORM_OPS_BN) {
        a.reserve = sg_dnn_addr(reserveSpace);
    }
    a.s.average_factor = exponentialAverageFactor;
    a.s.alpha = sg_dnn_scalar(alpha);
    a.s.beta = sg_dnn_scalar(beta);
    return sg_dnn_launch(handle, SG_K_BN_TRAIN, &a, (double)sg_count(&a.s.param) * 256);
}

cudnnStatus_t cudnnBatchNormalizationForwardTraining(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alpha, const void *beta,
    const cudnnTensorDescriptor_t xDesc, const void *x, const cudnnTensorDescriptor_t yDesc,
    void *y, const cudnnTensorDescriptor_t bnScaleBiasMeanVarDesc, const void *bnScale,
    const void *bnBias, double exponentialAverageFactor, void *resultRunningMean,
    void *resultRunningVariance, double epsilon, void *resultSaveMean, void *resultSaveInvVariance)
{
    return cudnnBatchNormalizationForwardTrainingEx(
        handle, mode, CUDNN_BATCHNORM_OPS_BN, alpha, beta, xDesc, x, NULL, NULL, yDesc, y,
        bnScaleBiasMeanVarDesc, bnScale, bnBias, exponentialAverageFactor, resultRunningMean,
        resultRunningVariance, epsilon, resultSaveMean, resultSaveInvVariance, NULL, NULL, 0, NULL,
        0);
}

cudnnStatus_t cudnnBatchNormalizationForwardInference(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alpha, const void *beta,
    const cudnnTensorDescriptor_t xDesc, const void *x, const cudnnTensorDescriptor_t yDesc,
    void *y, const cudnnTensorDescriptor_t bnScaleBiasMeanVarDesc, const void *bnScale,
    const void *bnBias, const void *estimatedMean, const void *estimatedVariance, double epsilon)
{
    struct sg_bn_infer_args a = {.x = sg_dnn_addr(x),
                                 .y = sg_dnn_addr(y),
                                 .scale = sg_dnn_addr(bnScale),
                                 .bias = sg_dnn_addr(bnBias),
                                 .mean = sg_dnn_addr(estimatedMean),
                                 .var = sg_dnn_addr(estimatedVariance)};
    SG_NEED(handle && alpha && beta && x && y && bnScale && bnBias && estimatedMean &&
                estimatedVariance,
            "%s: an argument is null", __func__);
    if (sg_half_call(xDesc)) {
        SG_TRY(half_fits(__func__, CUDNN_BATCHNORM_OPS_BN, alpha, beta));
        struct sg_half_bn call = {.x = xDesc,
                                  .y = yDesc,
                                  .param = bnScaleBiasMeanVarDesc,
                                  .x_data = x,
                                  .y_data = y,
                                  .scale = bnScale,
                                  .bias = bnBias,
                                  .mean = estimatedMean,
                                  .var = estimatedVariance,
                                  .epsilon = epsilon};
        return sg_half_bn_infer(__func__, handle, &call);
    }
    SG_TRY(bn_shape(__func__, mode, xDesc, bnScaleBiasMeanVarDesc, epsilon, &a.s));
    SG_TRY(bn_tensor(__func__, &a.s, yDesc, &a.s.y));
    a.s.alpha = sg_dnn_scalar(alpha);
    a.s.beta = sg_dnn_scalar(beta);
    return sg_dnn_launch(handle, SG_K_BN_INFER, &a, (double)sg_count(&a.s.x));
}

/* ---- backward ---- */

cudnnStatus_t cudnnBatchNormalizationBackwardEx(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t bnOps,
    const void *alphaDataDiff, const void *betaDataDiff, const void *alphaParamDiff,
    const void *betaParamDiff, const cudnnTensorDescriptor_t xDesc, const void *xData,
    const cudnnTensorDescriptor_t yDesc, const void *yData, const cudnnTensorDescriptor_t dyDesc,
    const void *dyData, const cudnnTensorDescriptor_t dzDesc, void *dzData,
    const cudnnTensorDescriptor_t dxDesc, void *dxData,
    const cudnnTensorDescriptor_t dBnScaleBiasDesc, const void *bnScaleData, const void *bnBiasData,
    void *dBnScaleData, void *dBnBiasData, double epsilon, const void *savedMean,
    const void *savedInvVariance, cudnnActivationDescriptor_t activationDesc, void *workSpace,
    size_t workSpaceSizeInBytes, void *reserveSpace, size_t reserveSpaceSizeInBytes)
{
    struct sg_bn_bwd_args a = {.x = sg_dnn_addr(xData),
                               .dy = sg_dnn_addr(dyData),
                               .dx = sg_dnn_addr(dxData),
                               .scale = sg_dnn_addr(bnScaleData),
                               .dscale = sg_dnn_addr(dBnScaleData),
                               .dbias = sg_dnn_addr(dBnBiasData),
                               .save_mean = sg_dnn_addr(savedMean),
                               .save_invvar = sg_dnn_addr(savedInvVariance)};
    SG_NEED(handle && alphaDataDiff && betaDataDiff && alphaParamDiff && betaParamDiff && xData &&
                dyData && dxData && bnScaleData && dBnScaleData && dBnBiasData,
            "%s: an argument is null", __func__);
    SG_NEED(!savedMean == !savedInvVariance, "%s: of a mean and its variance one is null",
            __func__);
    if (sg_half_call(xDesc)) {
        SG_TRY(half_fits(__func__, bnOps, alphaDataDiff, betaDataDiff));
        SG_TRY(half_fits(__func__, bnOps, alphaParamDiff, betaParamDiff));
        struct sg_half_bn call = {.x = xDesc,
                                  .y = dyDesc,
                                  .param = dBnScaleBiasDesc,
                                  .x_data = xData,
                                  .dy_data = dyData,
                                  .y_data = dxData,
                                  .scale = bnScaleData,
                                  .mean = savedMean,
                                  .var = savedInvVariance,
                                  .dscale = dBnScaleData,
                                  .dbias = dBnBiasData,
                                  .epsilon = epsilon};
        return sg_half_bn_backward(__func__, handle, &call);
    }
    SG_TRY(bn_shape(__func__, mode, xDesc, dBnScaleBiasDesc, epsilon, &a.s));
    SG_TRY(bn_tensor(__func__, &a.s, dyDesc, &a.s.dy));
    SG_TRY(bn_tensor(__func__, &a.s, dxDesc, &a.s.dx));
    SG_TRY(bn_ops(__func__, bnOps, activationDesc, &a.s));
    SG_TRY(bn_reserve(__func__, &a.s, reserveSpace, reserveSpaceSizeInBytes));
    if (bnOps == CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION) {
        SG_NEED(dzData, "%s: dz is null", __func__);
        SG_TRY(bn_tensor(__func__, &a.s, dzDesc, &a.s.dz));
        a.dz = sg_dnn_addr(dzData);
    }
    if (bnOps != CUDNN_BATCHNORM_OPS_BN) {
        a.reserve = sg_dnn_addr(reserveSpace);
    }
    a.s.alpha = sg_dnn_scalar(alphaDataDiff);
    a.s.beta = sg_dnn_scalar(betaDataDiff);
    a.s.param_alpha = sg_dnn_scalar(alphaParamDiff);
    a.s.param_beta = sg_dnn_scalar(betaParamDiff);
    return sg_dnn_launch(handle, SG_K_BN_BWD, &a, (double)sg_count(&a.s.param) * 256);
}

cudnnStatus_t cudnnBatchNormalizationBackward(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alphaDataDiff,
    const void *betaDataDiff, const void *alphaParamDiff, const void *betaParamDiff,
    const cudnnTensorDescriptor_t xDesc, const void *x, const cudnnTensorDescriptor_t dyDesc,
    const void *dy, const cudnnTensorDescriptor_t dxDesc, void *dx,
    const cudnnTensorDescriptor_t dBnScaleBiasDesc, const void *bnScale, void *dBnScaleResult,
    void *dBnBiasResult, double epsilon, const void *savedMean, const void *savedInvVariance)
{
    return cudnnBatchNormalizationBackwardEx(
        handle, mode, CUDNN_BATCHNORM_OPS_BN, alphaDataDiff, betaDataDiff, alphaParamDiff,
        betaParamDiff, xDesc, x, NULL, NULL, dyDesc, dy, NULL, NULL, dxDesc, dx, dBnScaleBiasDesc,
        bnScale, NULL, dBnScaleResult, dBnBiasResult, epsilon, savedMean, savedInvVariance, NULL,
        NULL, 0, NULL, 0);
}

/* ---- sizes of the extended forms ---- */

cudnnStatus_t cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t bnOps,
    const cudnnTensorDescriptor_t xDesc, const cudnnTensorDescriptor_t zDesc,
    const cudnnTensorDescriptor_t yDesc, const cudnnTensorDescriptor_t bnScaleBiasMeanVarDesc,
    const cudnnActivationDescriptor_t activationDesc, size_t *sizeInBytes)
{
    SG_NEED(sizeInBytes, "%s: the result pointer is null", __func__);
    *sizeInBytes = 0; /* the moments stay on chip */
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t bnOps,
    const cudnnTensorDescriptor_t xDesc, const cudnnTensorDescriptor_t yDesc,
    const cudnnTensorDescriptor_t dyDesc, const cudnnTensorDescriptor_t dzDesc,
    const cudnnTensorDescriptor_t dxDesc, const cudnnTensorDescriptor_t dBnScaleBiasDesc,
    const cudnnActivationDescriptor_t activationDesc, size_t *sizeInBytes)
{
    SG_NEED(sizeInBytes, "%s: the result pointer is null", __func__);
    *sizeInBytes = 0;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t bnOps,
    const cudnnActivationDescriptor_t activationDesc, const cudnnTensorDescriptor_t xDesc,
    size_t *sizeInBytes)
{
    struct sg_tensor x;
    SG_NEED(sizeInBytes, "%s: the result pointer is null", __func__);
    if (bnOps == CUDNN_BATCHNORM_OPS_BN) {
        *sizeInBytes = 0;
        return CUDNN_STATUS_SUCCESS;
    }
    SG_TRY(sg_dnn_tensor(__func__, xDesc, &x));
    *sizeInBytes = sg_bn_reserve_bytes(&x);
    return CUDNN_STATUS_SUCCESS;
}

/* ---- local response normalisation ---- */

static void lrn_params(cudnnLRNDescriptor_t d, struct sg_lrn_args *a)
{
    a->lrn_n = (int32_t)d->n;
    a->lrn_alpha = (float)d->alpha;
    a->lrn_beta = (float)d->beta;
    a->lrn_k = (float)d->k;
}

cudnnStatus_t cudnnLRNCrossChannelForward(cudnnHandle_t handle, cudnnLRNDescriptor_t normDesc,
                                          cudnnLRNMode_t lrnMode, const void *alpha,
                                          const cudnnTensorDescriptor_t xDesc, const void *x,
                                          const void *beta, const cudnnTensorDescriptor_t yDesc,
                                          void *y)
{
    struct sg_lrn_args a = {.x = sg_dnn_addr(x), .out = sg_dnn_addr(y)};
    SG_NEED(handle && normDesc && alpha && x && beta && y &&
                lrnMode == CUDNN_LRN_CROSS_CHANNEL_DIM1,
            "%s: an argument is null or the mode is unknown", __func__);
    SG_NEED(x != y, "%s: not in place", __func__);
    SG_TRY(sg_dnn_tensor(__func__, xDesc, &a.tx));
    SG_TRY(sg_dnn_tensor(__func__, yDesc, &a.tout));
    SG_NEED(sg_dnn_same_shape(&a.tx, &a.tout), "%s: x and y differ in shape", __func__);
    lrn_params(normDesc, &a);
    a.alpha = sg_dnn_scalar(alpha);
    a.beta = sg_dnn_scalar(beta);
    return sg_dnn_launch(handle, SG_K_LRN_FWD, &a, (double)sg_count(&a.tx));
}

cudnnStatus_t cudnnLRNCrossChannelBackward(cudnnHandle_t handle, cudnnLRNDescriptor_t normDesc,
                                           cudnnLRNMode_t lrnMode, const void *alpha,
                                           const cudnnTensorDescriptor_t yDesc, const void *y,
                                           const cudnnTensorDescriptor_t dyDesc, const void *dy,
                                           const cudnnTensorDescriptor_t xDesc, const void *x,
                                           const void *beta, const cudnnTensorDescriptor_t dxDesc,
                                           void *dx)
{
    struct sg_lrn_args a = {sg_dnn_addr(y), sg_dnn_addr(dy), sg_dnn_addr(x), sg_dnn_addr(dx),
                            .alpha = 1.0f};
    SG_NEED(handle && normDesc && alpha && y && dy && x && beta && dx &&
                lrnMode == CUDNN_LRN_CROSS_CHANNEL_DIM1,
            "%s: an argument is null or the mode is unknown", __func__);
    SG_TRY(sg_dnn_tensor(__func__, yDesc, &a.ty));
    SG_TRY(sg_dnn_tensor(__func__, dyDesc, &a.tdy));
    SG_TRY(sg_dnn_tensor(__func__, xDesc, &a.tx));
    SG_TRY(sg_dnn_tensor(__func__, dxDesc, &a.tout));
    SG_NEED(sg_dnn_same_shape(&a.ty, &a.tout) && sg_dnn_same_shape(&a.tdy, &a.tout) &&
                sg_dnn_same_shape(&a.tx, &a.tout),
            "%s: y, dy, x and dx differ in shape", __func__);
    lrn_params(normDesc, &a);
    a.alpha = sg_dnn_scalar(alpha);
    a.beta = sg_dnn_scalar(beta);
    return sg_dnn_launch(handle, SG_K_LRN_BWD, &a, (double)sg_count(&a.tx));
}
