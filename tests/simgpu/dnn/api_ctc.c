/* Connectionist temporal classification and spatial transformers: descriptors, checks, launches. */
#include "ctc.h"
#include "dnn.h"
#include "spatial.h"

#include <stdlib.h>
#include <string.h>

/* ---- CTC ---- */

struct cudnnCTCLossStruct {
    int set;
    cudnnDataType_t type;
    cudnnLossNormalizationMode_t norm;
    int grad_mode; /* cudnnNanPropagation_t or cudnnCTCGradMode_t */
    int max_label;
};

SG_DNN_DESCRIPTOR(CTCLoss, cudnnCTCLossDescriptor_t)

static cudnnStatus_t ctc_set(const char *what, cudnnCTCLossDescriptor_t d, cudnnDataType_t type,
                             cudnnLossNormalizationMode_t norm, int grad_mode, int max_label)
{
    SG_NEED(d && type == CUDNN_DATA_FLOAT && (unsigned)norm <= CUDNN_LOSS_NORMALIZATION_SOFTMAX &&
                max_label >= 0,
            "%s: data type %d, normalisation %d, labels of up to %d", what, (int)type, (int)norm,
            max_label);
    *d = (struct cudnnCTCLossStruct){1, type, norm, grad_mode, max_label};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetCTCLossDescriptor(cudnnCTCLossDescriptor_t d, cudnnDataType_t compType)
{
    return ctc_set(__func__, d, compType, CUDNN_LOSS_NORMALIZATION_NONE, 0, 256);
}

cudnnStatus_t cudnnSetCTCLossDescriptorEx(cudnnCTCLossDescriptor_t d, cudnnDataType_t compType,
                                          cudnnLossNormalizationMode_t normMode,
                                          cudnnNanPropagation_t gradMode)
{
    return ctc_set(__func__, d, compType, normMode, (int)gradMode, 256);
}

cudnnStatus_t cudnnSetCTCLossDescriptor_v8(cudnnCTCLossDescriptor_t d, cudnnDataType_t compType,
                                           cudnnLossNormalizationMode_t normMode,
                                           cudnnNanPropagation_t gradMode, int maxLabelLength)
{
    return ctc_set(__func__, d, compType, normMode, (int)gradMode, maxLabelLength);
}

cudnnStatus_t cudnnSetCTCLossDescriptor_v9(cudnnCTCLossDescriptor_t d, cudnnDataType_t compType,
                                           cudnnLossNormalizationMode_t normMode,
                                           cudnnCTCGradMode_t ctcGradMode, int maxLabelLength)
{
    return ctc_set(__func__, d, compType, normMode, (int)ctcGradMode, maxLabelLength);
}

/* What probabilities and gradients say of the launch. */
static cudnnStatus_t ctc_shape(const char *what, cudnnCTCLossDescriptor_t d,
                               cudnnTensorDescriptor_t probs, cudnnTensorDescriptor_t grads,
                               struct sg_ctc_args *a)
{
    SG_NEED(d && d->set && probs && probs->ndims == 3, "%s: a descriptor was never set", what);
    if (probs->type != CUDNN_DATA_FLOAT) {
        return sg_dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "%s: data type %d", what,
                             (int)probs->type);
    }
    SG_NEED(!grads || (grads->ndims == 3 && grads->type == probs->type &&
                       memcmp(grads->dim, probs->dim, 3 * sizeof(int)) == 0),
            "%s: the gradients differ in shape or type from the probabilities", what);
    a->steps = probs->dim[0];
    a->batch = probs->dim[1];
    a->classes = probs->dim[2];
    a->softmax = d->norm == CUDNN_LOSS_NORMALIZATION_SOFTMAX;
    for (int i = 0; i < 3; i++) {
        a->probs_stride[i] = probs->stride[i];
        a->gradients_stride[i] = grads ? grads->stride[i] : 0;
    }
    return CUDNN_STATUS_SUCCESS;
}

/* Labels and lengths on the host travel to the card in the workspace: both lengths, then labels. */
static int64_t host_ints(const int *label_lengths, int batch)
{
    int64_t n = 2 * (int64_t)batch;
    for (int b = 0; b < batch; b++) {
        n += label_lengths[b];
    }
    return n;
}

cudnnStatus_t cudnnGetCTCLossWorkspaceSize(cudnnHandle_t handle,
                                           const cudnnTensorDescriptor_t probsDesc,
                                           const cudnnTensorDescriptor_t gradientsDesc,
                                           const int *labels, const int *labelLengths,
                                           const int *inputLengths, cudnnCTCLossAlgo_t algo,
                                           cudnnCTCLossDescriptor_t ctcLossDesc,
                                           size_t *sizeInBytes)
{
    struct sg_ctc_args a = {0};
    SG_NEED(handle && labelLengths && sizeInBytes, "%s: an argument is null", __func__);
    SG_TRY(ctc_shape(__func__, ctcLossDesc, probsDesc, gradientsDesc, &a));
    *sizeInBytes = 4 * (size_t)host_ints(labelLengths, a.batch);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetCTCLossWorkspaceSize_v8(cudnnHandle_t handle, cudnnCTCLossAlgo_t algo,
                                              cudnnCTCLossDescriptor_t ctcLossDesc,
                                              const cudnnTensorDescriptor_t probsDesc,
                                              const cudnnTensorDescriptor_t gradientsDesc,
                                              size_t *sizeInBytes)
{
    struct sg_ctc_args a = {0};
    SG_NEED(handle && sizeInBytes, "%s: an argument is null", __func__);
    SG_TRY(ctc_shape(__func__, ctcLossDesc, probsDesc, gradientsDesc, &a));
    *sizeInBytes = 0; /* the labels are on the card, the sums on chip */
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCTCLoss_v8(cudnnHandle_t handle, cudnnCTCLossAlgo_t algo,
                              cudnnCTCLossDescriptor_t ctcLossDesc,
                              const cudnnTensorDescriptor_t probsDesc, const void *probs,
                              const int labels[], const int labelLengths[],
                              const int inputLengths[], void *costs,
                              const cudnnTensorDescriptor_t gradientsDesc, void *gradients,
                              size_t workSpaceSizeInBytes, void *workspace)
{
    struct sg_ctc_args a = {.probs = sg_dnn_addr(probs),
                            .labels = sg_dnn_addr(labels),
                            .label_lengths = sg_dnn_addr(labelLengths),
                            .input_lengths = sg_dnn_addr(inputLengths),
                            .costs = sg_dnn_addr(costs),
                            .gradients = sg_dnn_addr(gradients)};
    SG_NEED(handle && probs && labels && labelLengths && inputLengths && costs,
            "%s: an argument is null", __func__);
    SG_TRY(ctc_shape(__func__, ctcLossDesc, probsDesc, gradients ? gradientsDesc : NULL, &a));
    a.label_room = ctcLossDesc->max_label * a.batch;
    return sg_dnn_launch(handle, SG_K_CTC, &a, (double)a.batch * 256);
}

cudnnStatus_t cudnnCTCLoss(cudnnHandle_t handle, const cudnnTensorDescriptor_t probsDesc,
                           const void *probs, const int hostLabels[], const int hostLabelLengths[],
                           const int hostInputLengths[], void *costs,
                           const cudnnTensorDescriptor_t gradientsDesc, void *gradients,
                           cudnnCTCLossAlgo_t algo, cudnnCTCLossDescriptor_t ctcLossDesc,
                           void *workspace, size_t workSpaceSizeInBytes)
{
    struct sg_ctc_args a = {.probs = sg_dnn_addr(probs),
                            .costs = sg_dnn_addr(costs),
                            .gradients = sg_dnn_addr(gradients),
                            .workspace = sg_dnn_addr(workspace)};
    SG_NEED(handle && probs && hostLabels && hostLabelLengths && hostInputLengths && costs,
            "%s: an argument is null", __func__);
    SG_TRY(ctc_shape(__func__, ctcLossDesc, probsDesc, gradients ? gradientsDesc : NULL, &a));
    int64_t n = host_ints(hostLabelLengths, a.batch), total = n - 2 * a.batch;
    a.workspace_bytes = 4 * (uint64_t)n;
    if (!workspace || workSpaceSizeInBytes < a.workspace_bytes) {
        return sg_dnn_refuse(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT,
                             "%s: the workspace needs %llu bytes", __func__,
                             (unsigned long long)a.workspace_bytes);
    }
    for (int b = 0; b < a.batch; b++) {
        SG_NEED(hostInputLengths[b] >= 0 && hostInputLengths[b] <= a.steps &&
                    hostLabelLengths[b] >= 0,
                "%s: entry %d has %d steps of %d and %d labels", __func__, b, hostInputLengths[b],
                a.steps, hostLabelLengths[b]);
    }
    size_t lengths = 4 * (size_t)a.batch;
    a.label_lengths = a.workspace;
    a.input_lengths = a.workspace + lengths;
    a.labels = a.workspace + 2 * lengths;
    a.label_room = (int32_t)total;
    CUresult r =
        handle->drv->cuMemcpyHtoDAsync(a.label_lengths, hostLabelLengths, lengths, handle->stream);
    if (r == CUDA_SUCCESS) {
        r = handle->drv->cuMemcpyHtoDAsync(a.input_lengths, hostInputLengths, lengths,
                                           handle->stream);
    }
    if (r == CUDA_SUCCESS && total > 0) {
        r = handle->drv->cuMemcpyHtoDAsync(a.labels, hostLabels, 4 * (size_t)total, handle->stream);
    }
    if (r != CUDA_SUCCESS) {
        return sg_dnn_refuse(CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER,
                             "%s: the driver answered with error %d", __func__, (int)r);
    }
    return sg_dnn_launch(handle, SG_K_CTC, &a, (double)a.batch * 256);
}

/* ---- spatial transformers ---- */

struct cudnnSpatialTransformerStruct {
    int dim[4]; /* of the output; 0: never set */
};

SG_DNN_DESCRIPTOR(SpatialTransformer, cudnnSpatialTransformerDescriptor_t)

cudnnStatus_t cudnnSetSpatialTransformerNdDescriptor(cudnnSpatialTransformerDescriptor_t stDesc,
                                                     cudnnSamplerType_t samplerType,
                                                     cudnnDataType_t dataType, const int nbDims,
                                                     const int dimA[])
{
    SG_NEED(stDesc && dimA && samplerType == CUDNN_SAMPLER_BILINEAR && nbDims >= 3,
            "%s: sampler %d, %d dimensions", __func__, (int)samplerType, nbDims);
    if (dataType != CUDNN_DATA_FLOAT || nbDims != 4) {
        return sg_dnn_refuse(
            CUDNN_STATUS_NOT_SUPPORTED,
            "%s: data type %d in %d dimensions; single precision in four is computed", __func__,
            (int)dataType, nbDims);
    }
    memcpy(stDesc->dim, dimA, sizeof stDesc->dim);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t grid(const char *what, cudnnHandle_t h, cudnnSpatialTransformerDescriptor_t d,
                          const void *theta, const void *g, int backward)
{
    SG_NEED(h && d && d->dim[0] > 0 && theta && g, "%s: an argument is null or was never set",
            what);
    struct sg_grid_args a = {sg_dnn_addr(theta), sg_dnn_addr(g), d->dim[0],
                             d->dim[2],          d->dim[3],      backward};
    return sg_dnn_launch(h, SG_K_GRID, &a, (double)a.batch * a.height * a.width);
}

cudnnStatus_t cudnnSpatialTfGridGeneratorForward(cudnnHandle_t handle,
                                                 const cudnnSpatialTransformerDescriptor_t stDesc,
                                                 const void *theta, void *gridOut)
{
    return grid(__func__, handle, stDesc, theta, gridOut, 0);
}

cudnnStatus_t cudnnSpatialTfGridGeneratorBackward(cudnnHandle_t handle,
                                                  const cudnnSpatialTransformerDescriptor_t stDesc,
                                                  const void *dgrid, void *dtheta)
{
    return grid(__func__, handle, stDesc, dtheta, dgrid, 1);
}

static cudnnStatus_t sample_shapes(const char *what, cudnnSpatialTransformerDescriptor_t d,
                                   cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t y,
                                   struct sg_sample_args *a)
{
    SG_NEED(d && d->dim[0] > 0, "%s: the transformer descriptor is null or was never set", what);
    SG_TRY(sg_dnn_tensor(what, x, &a->tx));
    SG_TRY(sg_dnn_tensor(what, y, &a->ty));
    SG_NEED(x->ndims == 4 && y->ndims == 4 && memcmp(y->dim, d->dim, sizeof d->dim) == 0 &&
                x->dim[0] == y->dim[0] && x->dim[1] == y->dim[1],
            "%s: input, output and transformer differ in shape", what);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSpatialTfSamplerForward(cudnnHandle_t handle,
                                           cudnnSpatialTransformerDescriptor_t stDesc,
                                           const void *alpha, const cudnnTensorDescriptor_t xDesc,
                                           const void *x, const void *gridIn, const void *beta,
                                           cudnnTensorDescriptor_t yDesc, void *y)
{
    struct sg_sample_args a = {
        .x = sg_dnn_addr(x), .grid = sg_dnn_addr(gridIn), .y = sg_dnn_addr(y)};
    SG_NEED(handle && alpha && x && gridIn && beta && y, "%s: an argument is null", __func__);
    SG_TRY(sample_shapes(__func__, stDesc, xDesc, yDesc, &a));
    a.alpha = sg_dnn_scalar(alpha);
    a.beta = sg_dnn_scalar(beta);
    return sg_dnn_launch(handle, SG_K_SAMPLE_FWD, &a, (double)sg_count(&a.ty));
}

cudnnStatus_t cudnnSpatialTfSamplerBackward(cudnnHandle_t handle,
                                            cudnnSpatialTransformerDescriptor_t stDesc,
                                            const void *alpha, const cudnnTensorDescriptor_t xDesc,
                                            const void *x, const void *beta,
                                            const cudnnTensorDescriptor_t dxDesc, void *dx,
                                            const void *alphaDgrid,
                                            const cudnnTensorDescriptor_t dyDesc, const void *dy,
                                            const void *gridIn, const void *betaDgrid, void *dgrid)
{
    struct sg_sample_args a = {.x = sg_dnn_addr(x),
                               .grid = sg_dnn_addr(gridIn),
                               .y = sg_dnn_addr(dy),
                               .dx = sg_dnn_addr(dx),
                               .dgrid = sg_dnn_addr(dgrid),
                               .backward = 1};
    SG_NEED(handle && alpha && x && beta && dx && alphaDgrid && dy && gridIn && betaDgrid && dgrid,
            "%s: an argument is null", __func__);
    SG_TRY(sample_shapes(__func__, stDesc, xDesc, dyDesc, &a));
    SG_TRY(sg_dnn_tensor(__func__, dxDesc, &a.tdx));
    SG_NEED(sg_dnn_same_shape(&a.tx, &a.tdx), "%s: x and dx differ in shape", __func__);
    a.alpha = sg_dnn_scalar(alpha);
    a.beta = sg_dnn_scalar(beta);
    a.grid_alpha = sg_dnn_scalar(alphaDgrid);
    a.grid_beta = sg_dnn_scalar(betaDgrid);
    return sg_dnn_launch(handle, SG_K_SAMPLE_BWD, &a, (double)sg_count(&a.ty));
}
