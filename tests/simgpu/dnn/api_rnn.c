/* Recurrent layers: descriptors, weights, spaces, launches. */
#include "dnn.h"
#include "rnn.h"
#include "number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cudnnRNNStruct {
    int set;
    cudnnRNNAlgo_t algo;
    cudnnRNNMode_t mode;
    cudnnRNNBiasMode_t bias;
    cudnnDirectionMode_t direction;
    cudnnRNNInputMode_t input_mode;
    cudnnDataType_t type, math_type;
    cudnnMathType_t math;
    int32_t input, hidden, projection, layers;
    cudnnDropoutDescriptor_t dropout;
    uint32_t flags;
};

struct cudnnRNNDataStruct {
    cudnnDataType_t type;
    cudnnRNNDataLayout_t layout;
    int steps, batch, width;
    int *lengths; /* NULL: never set */
    double fill;
};

SG_DNN_DESCRIPTOR(RNN, cudnnRNNDescriptor_t)

/* What we do not compute: its name on stderr. */
static cudnnStatus_t refuse(const char *what, const char *why)
{
    fprintf(stderr, "libcudnn (simulated): %s: %s is not supported\n", what, why);
    return sg_dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "%s: %s is not supported", what, why);
}

cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t rnnDesc, cudnnRNNAlgo_t algo,
                                       cudnnRNNMode_t cellMode, cudnnRNNBiasMode_t biasMode,
                                       cudnnDirectionMode_t dirMode, cudnnRNNInputMode_t inputMode,
                                       cudnnDataType_t dataType, cudnnDataType_t mathPrec,
                                       cudnnMathType_t mathType, int32_t inputSize,
                                       int32_t hiddenSize, int32_t projSize, int32_t numLayers,
                                       cudnnDropoutDescriptor_t dropoutDesc, uint32_t auxFlags)
{
    SG_NEED(rnnDesc && (unsigned)cellMode <= CUDNN_GRU && (unsigned)biasMode <= 3 &&
                (unsigned)dirMode <= CUDNN_BIDIRECTIONAL && inputSize > 0 && hiddenSize > 0 &&
                numLayers > 0,
            "%s: mode %d, %d layers of %d to %d", __func__, (int)cellMode, numLayers, inputSize,
            hiddenSize);
    if (dataType != CUDNN_DATA_FLOAT && dataType != CUDNN_DATA_HALF &&
        dataType != CUDNN_DATA_BFLOAT16) {
        return refuse(__func__, "a data type other than single and half precision");
    }
    if (inputMode == CUDNN_SKIP_INPUT) {
        return refuse(__func__, "CUDNN_SKIP_INPUT");
    }
    if (projSize != 0 && projSize != hiddenSize) {
        return refuse(__func__, "a projection of the state");
    }
    *rnnDesc = (struct cudnnRNNStruct){1,          algo,     cellMode,  biasMode,    dirMode,
                                       inputMode,  dataType, mathPrec,  mathType,    inputSize,
                                       hiddenSize, projSize, numLayers, dropoutDesc, auxFlags};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNDescriptor_v8(cudnnRNNDescriptor_t d, cudnnRNNAlgo_t *algo,
                                       cudnnRNNMode_t *cellMode, cudnnRNNBiasMode_t *biasMode,
                                       cudnnDirectionMode_t *dirMode,
                                       cudnnRNNInputMode_t *inputMode, cudnnDataType_t *dataType,
                                       cudnnDataType_t *mathPrec, cudnnMathType_t *mathType,
                                       int32_t *inputSize, int32_t *hiddenSize, int32_t *projSize,
                                       int32_t *numLayers, cudnnDropoutDescriptor_t *dropoutDesc,
                                       uint32_t *auxFlags)
{
    SG_NEED(d && d->set, "%s: the descriptor is null or was never set", __func__);
#define GIVE(pointer, field)                                                                       \
    if (pointer) {                                                                                 \
        *(pointer) = d->field;                                                                     \
    }
    GIVE(algo, algo)
    GIVE(cellMode, mode)
    GIVE(biasMode, bias)
    GIVE(dirMode, direction)
    GIVE(inputMode, input_mode)
    GIVE(dataType, type)
    GIVE(mathPrec, math_type)
    GIVE(mathType, math)
    GIVE(inputSize, input)
    GIVE(hiddenSize, hidden)
    GIVE(projSize, projection)
    GIVE(numLayers, layers)
    GIVE(dropoutDesc, dropout)
    GIVE(auxFlags, flags)
#undef GIVE
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBuildRNNDynamic(cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc,
                                   int miniBatch)
{
    SG_NEED(handle && rnnDesc && rnnDesc->set && miniBatch > 0, "%s: a bad argument", __func__);
    return CUDNN_STATUS_SUCCESS; /* nothing is compiled for a batch */
}

/* ---- sequences ---- */

SG_DNN_CREATE(RNNData, cudnnRNNDataDescriptor_t)

cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t rnnDataDesc)
{
    if (rnnDataDesc) {
        free(rnnDataDesc->lengths);
    }
    free(rnnDataDesc);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t d, cudnnDataType_t dataType,
                                        cudnnRNNDataLayout_t layout, int maxSeqLength,
                                        int batchSize, int vectorSize, const int seqLengthArray[],
                                        void *paddingFill)
{
    SG_NEED(d && seqLengthArray && (unsigned)layout <= 2 && maxSeqLength > 0 && batchSize > 0 &&
                vectorSize > 0,
            "%s: layout %d, %d steps of %d vectors of %d", __func__, (int)layout, maxSeqLength,
            batchSize, vectorSize);
    for (int b = 0; b < batchSize; b++) {
        SG_NEED(seqLengthArray[b] >= 0 && seqLengthArray[b] <= maxSeqLength,
                "%s: entry %d has length %d of %d", __func__, b, seqLengthArray[b], maxSeqLength);
        SG_NEED(layout != CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED || b == 0 ||
                    seqLengthArray[b] <= seqLengthArray[b - 1],
                "%s: the packed layout needs the longest first", __func__);
    }
    int *lengths = malloc((size_t)batchSize * sizeof *lengths);
    if (!lengths) {
        return sg_dnn_refuse(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED,
                             "%s: out of host memory", __func__);
    }
    memcpy(lengths, seqLengthArray, (size_t)batchSize * sizeof *lengths);
    free(d->lengths);
    double fill = !paddingFill                    ? 0
                  : dataType == CUDNN_DATA_FLOAT  ? (double)*(const float *)paddingFill
                  : dataType == CUDNN_DATA_DOUBLE ? *(const double *)paddingFill
                  : dataType == CUDNN_DATA_BFLOAT16
                      ? (double)sg_from_bf16(*(const uint16_t *)paddingFill)
                      : (double)sg_from_f16(*(const uint16_t *)paddingFill);
    *d = (struct cudnnRNNDataStruct){dataType,   layout,  maxSeqLength, batchSize,
                                     vectorSize, lengths, fill};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNDataDescriptor(cudnnRNNDataDescriptor_t d, cudnnDataType_t *dataType,
                                        cudnnRNNDataLayout_t *layout, int *maxSeqLength,
                                        int *batchSize, int *vectorSize, int arrayLengthRequested,
                                        int seqLengthArray[], void *paddingFill)
{
    SG_NEED(d && d->lengths && dataType && layout && maxSeqLength && batchSize && vectorSize,
            "%s: an argument is null or the descriptor was never set", __func__);
    *dataType = d->type;
    *layout = d->layout;
    *maxSeqLength = d->steps;
    *batchSize = d->batch;
    *vectorSize = d->width;
    for (int b = 0; seqLengthArray && b < arrayLengthRequested && b < d->batch; b++) {
        seqLengthArray[b] = d->lengths[b];
    }
    if (paddingFill && d->type == CUDNN_DATA_FLOAT) {
        *(float *)paddingFill = (float)d->fill;
    }
    return CUDNN_STATUS_SUCCESS;
}

/* ---- shapes and sizes ---- */

static cudnnStatus_t layer_shape(const char *what, cudnnRNNDescriptor_t d, struct sg_rnn_shape *s)
{
    SG_NEED(d && d->set, "%s: the descriptor is null or was never set", what);
    *s = (struct sg_rnn_shape){.mode = (int32_t)d->mode,
                               .layers = d->layers,
                               .directions = d->direction == CUDNN_BIDIRECTIONAL ? 2 : 1,
                               .input = d->input,
                               .hidden = d->hidden,
                               .type = (int32_t)d->type,
                               .biases = d->bias == CUDNN_RNN_NO_BIAS       ? 0
                                         : d->bias == CUDNN_RNN_DOUBLE_BIAS ? 2
                                                                            : 1,
                               .recurrent_bias = d->bias == CUDNN_RNN_SINGLE_REC_BIAS,
                               .rate = d->dropout && d->layers > 1 ? d->dropout->rate : 0.0f,
                               .lengths = SG_RNN_UNIFORM,
                               .speed = 1};
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t data_shape(const char *what, cudnnRNNDescriptor_t d,
                                cudnnRNNDataDescriptor_t x, struct sg_rnn_shape *s)
{
    SG_TRY(layer_shape(what, d, s));
    SG_NEED(x && x->lengths && x->width == s->input && x->type == d->type,
            "%s: the input descriptor was never set, or has another width or type than the layer",
            what);
    s->steps = x->steps;
    s->batch = x->batch;
    s->x_layout = (int32_t)x->layout;
    s->lengths = sg_rnn_keep_lengths(x->steps, x->batch, x->lengths);
    s->workspace_bytes = sg_rnn_workspace_bytes(s);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc,
                                        cudnnForwardMode_t fwdMode, cudnnRNNDataDescriptor_t xDesc,
                                        size_t *workSpaceSize, size_t *reserveSpaceSize)
{
    struct sg_rnn_shape s;
    SG_NEED(handle, "%s: the handle is null", __func__);
    SG_TRY(data_shape(__func__, rnnDesc, xDesc, &s));
    if (workSpaceSize) {
        *workSpaceSize = s.workspace_bytes;
    }
    if (reserveSpaceSize) {
        *reserveSpaceSize = fwdMode == CUDNN_FWD_MODE_TRAINING ? sg_rnn_reserve_bytes(&s) : 0;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc,
                                         size_t *weightSpaceSize)
{
    struct sg_rnn_shape s;
    SG_NEED(handle && weightSpaceSize, "%s: an argument is null", __func__);
    SG_TRY(layer_shape(__func__, rnnDesc, &s));
    *weightSpaceSize = (size_t)sg_rnn_weight_count(&s) * sg_dnn_type_bytes(rnnDesc->type);
    return CUDNN_STATUS_SUCCESS;
}

/* One matrix or bias as a tensor of three dimensions; none: all zero, as the header says. */
static void part_desc(cudnnTensorDescriptor_t d, cudnnDataType_t type, int64_t rows,
                      int64_t columns)
{
    if (!d) {
        return;
    }
    *d = (struct cudnnTensorStruct){.type = type, .ndims = 3};
    if (rows > 0) {
        const int dim[3] = {1, (int)rows, (int)columns};
        cudnnSetTensorNdDescriptorEx(d, CUDNN_TENSOR_NCHW, type, 3, dim);
    }
}

cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc,
                                      int32_t pseudoLayer, size_t weightSpaceSize,
                                      const void *weightSpace, int32_t linLayerID,
                                      cudnnTensorDescriptor_t mDesc, void **mAddr,
                                      cudnnTensorDescriptor_t bDesc, void **bAddr)
{
    struct sg_rnn_shape s;
    SG_NEED(handle, "%s: the handle is null", __func__);
    SG_TRY(layer_shape(__func__, rnnDesc, &s));
    size_t bytes = sg_dnn_type_bytes(rnnDesc->type);
    int has_projection_id = linLayerID == 8 && s.mode == CUDNN_LSTM;
    SG_NEED(pseudoLayer >= 0 && pseudoLayer < s.layers * s.directions && linLayerID >= 0 &&
                (linLayerID < 2 * sg_rnn_gates(s.mode) || has_projection_id),
            "%s: layer %d, matrix %d", __func__, pseudoLayer, linLayerID);
    SG_NEED(weightSpaceSize >= (size_t)sg_rnn_weight_count(&s) * bytes,
            "%s: the weights need %zu bytes", __func__, (size_t)sg_rnn_weight_count(&s) * bytes);
    int64_t columns = 0, at = -1, bias = -1;
    if (!has_projection_id) {
        at = sg_rnn_matrix_at(&s, pseudoLayer, linLayerID, &columns);
        bias = sg_rnn_bias_at(&s, pseudoLayer, linLayerID);
    }
    part_desc(mDesc, rnnDesc->type, at < 0 ? 0 : s.hidden, columns);
    part_desc(bDesc, rnnDesc->type, bias < 0 ? 0 : s.hidden, 1);
    uint64_t base = sg_dnn_addr(weightSpace);
    if (mAddr) {
        *mAddr = at < 0 || !base ? NULL : (void *)(uintptr_t)(base + (uint64_t)at * bytes);
    }
    if (bAddr) {
        *bAddr = bias < 0 || !base ? NULL : (void *)(uintptr_t)(base + (uint64_t)bias * bytes);
    }
    return CUDNN_STATUS_SUCCESS;
}

/* ---- launches ---- */

static double threads(const struct sg_rnn_shape *s)
{
    return (double)s->batch * s->hidden * s->directions;
}

/* Spaces are large enough; what a launch shares with the others. */
static cudnnStatus_t prepare(const char *what, cudnnHandle_t h, struct sg_rnn_args *a,
                             size_t weight_bytes, size_t work_bytes, void *work,
                             size_t reserve_bytes, void *reserve)
{
    struct sg_rnn_shape *s = &a->s;
    size_t weights = (size_t)sg_rnn_weight_count(s) * sg_dnn_type_bytes((cudnnDataType_t)s->type);
    SG_NEED(h && a->weights && weight_bytes >= weights, "%s: the weights need %zu bytes", what,
            weights);
    if (work_bytes < s->workspace_bytes || !work) {
        return sg_dnn_refuse(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT,
                             "%s: the workspace needs %llu bytes", what,
                             (unsigned long long)s->workspace_bytes);
    }
    if (s->training && (reserve_bytes < sg_rnn_reserve_bytes(s) || !reserve)) {
        return sg_dnn_refuse(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT,
                             "%s: the reserve space needs %llu bytes", what,
                             (unsigned long long)sg_rnn_reserve_bytes(s));
    }
    a->workspace = sg_dnn_addr(work);
    a->reserve = s->training ? sg_dnn_addr(reserve) : 0;
    s->speed = s->type == CUDNN_DATA_FLOAT ? 1 : h->card.half;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t output_shape(const char *what, cudnnRNNDataDescriptor_t y,
                                  struct sg_rnn_shape *s)
{
    SG_NEED(y && y->lengths && y->steps == s->steps && y->batch == s->batch &&
                y->width == s->hidden * s->directions && (int)y->type == s->type,
            "%s: the output descriptor does not fit the layer and its input", what);
    s->y_layout = (int32_t)y->layout;
    s->fill = (float)y->fill;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc,
                              cudnnForwardMode_t fwdMode, const int32_t devSeqLengths[],
                              cudnnRNNDataDescriptor_t xDesc, const void *x,
                              cudnnRNNDataDescriptor_t yDesc, void *y,
                              cudnnTensorDescriptor_t hDesc, const void *hx, void *hy,
                              cudnnTensorDescriptor_t cDesc, const void *cx, void *cy,
                              size_t weightSpaceSize, const void *weightSpace, size_t workSpaceSize,
                              void *workSpace, size_t reserveSpaceSize, void *reserveSpace)
{
    struct sg_rnn_args a = {.x = sg_dnn_addr(x),
                            .y = sg_dnn_addr(y),
                            .hx = sg_dnn_addr(hx),
                            .hy = sg_dnn_addr(hy),
                            .weights = sg_dnn_addr(weightSpace)};
    SG_NEED(x && y, "%s: an argument is null", __func__);
    SG_TRY(data_shape(__func__, rnnDesc, xDesc, &a.s));
    SG_TRY(output_shape(__func__, yDesc, &a.s));
    a.s.training = fwdMode == CUDNN_FWD_MODE_TRAINING;
    if (a.s.mode == CUDNN_LSTM) {
        a.cx = sg_dnn_addr(cx);
        a.cy = sg_dnn_addr(cy);
    }
    if (a.s.training && a.s.rate > 0.0f) {
        SG_NEED(rnnDesc->dropout->states, "%s: the dropout descriptor has no states", __func__);
        a.states = sg_dnn_addr(rnnDesc->dropout->states);
    }
    SG_TRY(prepare(__func__, handle, &a, weightSpaceSize, workSpaceSize, workSpace,
                   reserveSpaceSize, reserveSpace));
    return sg_dnn_launch(handle, SG_K_RNN_FWD, &a, threads(&a.s));
}

cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc,
                                      const int32_t devSeqLengths[], cudnnRNNDataDescriptor_t yDesc,
                                      const void *y, const void *dy, cudnnRNNDataDescriptor_t xDesc,
                                      void *dx, cudnnTensorDescriptor_t hDesc, const void *hx,
                                      const void *dhy, void *dhx, cudnnTensorDescriptor_t cDesc,
                                      const void *cx, const void *dcy, void *dcx,
                                      size_t weightSpaceSize, const void *weightSpace,
                                      size_t workSpaceSize, void *workSpace,
                                      size_t reserveSpaceSize, void *reserveSpace)
{
    struct sg_rnn_args a = {.dy = sg_dnn_addr(dy),
                            .dx = sg_dnn_addr(dx),
                            .hx = sg_dnn_addr(hx),
                            .dhy = sg_dnn_addr(dhy),
                            .dhx = sg_dnn_addr(dhx),
                            .weights = sg_dnn_addr(weightSpace)};
    SG_NEED(dy && dx, "%s: an argument is null", __func__);
    SG_TRY(data_shape(__func__, rnnDesc, xDesc, &a.s));
    SG_TRY(output_shape(__func__, yDesc, &a.s));
    a.s.training = 1;
    if (a.s.mode == CUDNN_LSTM) {
        a.cx = sg_dnn_addr(cx);
        a.dcy = sg_dnn_addr(dcy);
        a.dcx = sg_dnn_addr(dcx);
    }
    SG_TRY(prepare(__func__, handle, &a, weightSpaceSize, workSpaceSize, workSpace,
                   reserveSpaceSize, reserveSpace));
    return sg_dnn_launch(handle, SG_K_RNN_BWD_DATA, &a, threads(&a.s));
}

cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc,
                                         cudnnWgradMode_t addGrad, const int32_t devSeqLengths[],
                                         cudnnRNNDataDescriptor_t xDesc, const void *x,
                                         cudnnTensorDescriptor_t hDesc, const void *hx,
                                         cudnnRNNDataDescriptor_t yDesc, const void *y,
                                         size_t weightSpaceSize, void *dweightSpace,
                                         size_t workSpaceSize, void *workSpace,
                                         size_t reserveSpaceSize, void *reserveSpace)
{
    struct sg_rnn_args a = {
        .x = sg_dnn_addr(x), .hx = sg_dnn_addr(hx), .weights = sg_dnn_addr(dweightSpace)};
    SG_NEED(x, "%s: an argument is null", __func__);
    if (addGrad != CUDNN_WGRAD_MODE_ADD) {
        return refuse(__func__, "CUDNN_WGRAD_MODE_SET");
    }
    SG_TRY(data_shape(__func__, rnnDesc, xDesc, &a.s));
    SG_TRY(output_shape(__func__, yDesc, &a.s));
    a.s.training = 1;
    SG_TRY(prepare(__func__, handle, &a, weightSpaceSize, workSpaceSize, workSpace,
                   reserveSpaceSize, reserveSpace));
    return sg_dnn_launch(handle, SG_K_RNN_BWD_WEIGHTS, &a, threads(&a.s));
}
