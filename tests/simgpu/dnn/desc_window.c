/* Descriptors of convolutions and poolings, and the sizes of what they produce. */
#include "dnn.h"

#include <string.h>

cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t d, int arrayLength,
                                              const int padA[], const int filterStrideA[],
                                              const int dilationA[], cudnnConvolutionMode_t mode,
                                              cudnnDataType_t computeType)
{
    SG_NEED(d && padA && filterStrideA && dilationA && arrayLength > 0 &&
                arrayLength <= CUDNN_DIM_MAX - 2 && (unsigned)mode <= CUDNN_CROSS_CORRELATION,
            "cudnnSetConvolutionNdDescriptor: %d spatial dimensions, mode %d", arrayLength,
            (int)mode);
    for (int i = 0; i < arrayLength; i++) {
        SG_NEED(
            padA[i] >= 0 && filterStrideA[i] > 0 && dilationA[i] > 0,
            "cudnnSetConvolutionNdDescriptor: dimension %d has padding %d, stride %d, dilation %d",
            i, padA[i], filterStrideA[i], dilationA[i]);
    }
    *d = (struct cudnnConvolutionStruct){.ndims = arrayLength,
                                         .groups = d->groups ? d->groups : 1,
                                         .mode = mode,
                                         .compute = computeType};
    size_t bytes = (size_t)arrayLength * sizeof(int);
    memcpy(d->pad, padA, bytes);
    memcpy(d->stride, filterStrideA, bytes);
    memcpy(d->dilation, dilationA, bytes);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t d, int pad_h, int pad_w,
                                              int u, int v, int dilation_h, int dilation_w,
                                              cudnnConvolutionMode_t mode,
                                              cudnnDataType_t computeType)
{
    const int pad[2] = {pad_h, pad_w}, stride[2] = {u, v}, dilation[2] = {dilation_h, dilation_w};
    return cudnnSetConvolutionNdDescriptor(d, 2, pad, stride, dilation, mode, computeType);
}

cudnnStatus_t cudnnGetConvolutionNdDescriptor(const cudnnConvolutionDescriptor_t d,
                                              int arrayLengthRequested, int *arrayLength,
                                              int padA[], int strideA[], int dilationA[],
                                              cudnnConvolutionMode_t *mode,
                                              cudnnDataType_t *computeType)
{
    SG_NEED(d && d->ndims > 0, "cudnnGetConvolutionNdDescriptor: the descriptor was never set");
    for (int i = 0; i < arrayLengthRequested && i < d->ndims; i++) {
        if (padA) {
            padA[i] = d->pad[i];
        }
        if (strideA) {
            strideA[i] = d->stride[i];
        }
        if (dilationA) {
            dilationA[i] = d->dilation[i];
        }
    }
    if (arrayLength) {
        *arrayLength = d->ndims;
    }
    if (mode) {
        *mode = d->mode;
    }
    if (computeType) {
        *computeType = d->compute;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolution2dDescriptor(const cudnnConvolutionDescriptor_t d, int *pad_h,
                                              int *pad_w, int *u, int *v, int *dilation_h,
                                              int *dilation_w, cudnnConvolutionMode_t *mode,
                                              cudnnDataType_t *computeType)
{
    SG_NEED(d && d->ndims == 2 && pad_h && pad_w && u && v && dilation_h && dilation_w,
            "cudnnGetConvolution2dDescriptor: an argument is null or not two dimensions");
    *pad_h = d->pad[0];
    *pad_w = d->pad[1];
    *u = d->stride[0];
    *v = d->stride[1];
    *dilation_h = d->dilation[0];
    *dilation_w = d->dilation[1];
    return cudnnGetConvolutionNdDescriptor(d, 0, NULL, NULL, NULL, NULL, mode, computeType);
}

/* A field of the convolution descriptor with its setter and getter. */
#define CONVOLUTION_FIELD(name, type, field, valid)                                                \
    cudnnStatus_t cudnnSetConvolution##name(cudnnConvolutionDescriptor_t d, type value)            \
    {                                                                                              \
        SG_NEED(d && (valid), "cudnnSetConvolution" #name ": value %d", (int)value);               \
        d->field = value;                                                                          \
        return CUDNN_STATUS_SUCCESS;                                                               \
    }                                                                                              \
    cudnnStatus_t cudnnGetConvolution##name(cudnnConvolutionDescriptor_t d, type *value)           \
    {                                                                                              \
        SG_NEED(d &&value, "cudnnGetConvolution" #name ": an argument is null");                   \
        *value = d->field;                                                                         \
        return CUDNN_STATUS_SUCCESS;                                                               \
    }

CONVOLUTION_FIELD(MathType, cudnnMathType_t, math, (unsigned)value <= CUDNN_FMA_MATH)
CONVOLUTION_FIELD(GroupCount, int, groups, value > 0)
CONVOLUTION_FIELD(ReorderType, cudnnReorderType_t, reorder, (unsigned)value <= CUDNN_NO_REORDER)

cudnnStatus_t cudnnGetConvolutionNdForwardOutputDim(const cudnnConvolutionDescriptor_t conv,
                                                    const cudnnTensorDescriptor_t x,
                                                    const cudnnFilterDescriptor_t w, int nbDims,
                                                    int dimA[])
{
    SG_NEED(conv && x && w && dimA && conv->ndims > 0 && x->ndims == conv->ndims + 2 &&
                w->ndims == x->ndims && nbDims >= x->ndims,
            "cudnnGetConvolutionNdForwardOutputDim: the descriptors' dimensions do not agree");
    int out[CUDNN_DIM_MAX] = {x->dim[0], w->dim[0]};
    for (int i = 0; i < conv->ndims; i++) {
        int span = (w->dim[2 + i] - 1) * conv->dilation[i] + 1;
        int room = x->dim[2 + i] + 2 * conv->pad[i] - span;
        SG_NEED(room >= 0,
                "cudnnGetConvolutionNdForwardOutputDim: the filter is larger than dimension %d", i);
        out[2 + i] = room / conv->stride[i] + 1;
    }
    memcpy(dimA, out, (size_t)x->ndims * sizeof *dimA);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolution2dForwardOutputDim(const cudnnConvolutionDescriptor_t conv,
                                                    const cudnnTensorDescriptor_t x,
                                                    const cudnnFilterDescriptor_t w, int *n, int *c,
                                                    int *h, int *wd)
{
    int dim[CUDNN_DIM_MAX];
    SG_NEED(conv && conv->ndims == 2 && n && c && h && wd,
            "cudnnGetConvolution2dForwardOutputDim: an argument is null or not two dimensions");
    SG_TRY(cudnnGetConvolutionNdForwardOutputDim(conv, x, w, CUDNN_DIM_MAX, dim));
    *n = dim[0];
    *c = dim[1];
    *h = dim[2];
    *wd = dim[3];
    return CUDNN_STATUS_SUCCESS;
}

/* ---- pooling ---- */

cudnnStatus_t cudnnSetPoolingNdDescriptor(cudnnPoolingDescriptor_t d, const cudnnPoolingMode_t mode,
                                          const cudnnNanPropagation_t nan, int nbDims,
                                          const int windowDimA[], const int paddingA[],
                                          const int strideA[])
{
    SG_NEED(d && windowDimA && paddingA && strideA && nbDims > 0 && nbDims <= CUDNN_DIM_MAX - 2 &&
                (unsigned)mode <= CUDNN_POOLING_MAX_DETERMINISTIC,
            "cudnnSetPoolingNdDescriptor: %d spatial dimensions, mode %d", nbDims, (int)mode);
    for (int i = 0; i < nbDims; i++) {
        SG_NEED(windowDimA[i] > 0 && strideA[i] > 0 && paddingA[i] >= 0 &&
                    paddingA[i] < windowDimA[i],
                "cudnnSetPoolingNdDescriptor: dimension %d has window %d, padding %d, stride %d", i,
                windowDimA[i], paddingA[i], strideA[i]);
    }
    *d = (struct cudnnPoolingStruct){.ndims = nbDims, .mode = mode, .nan = nan};
    size_t bytes = (size_t)nbDims * sizeof(int);
    memcpy(d->window, windowDimA, bytes);
    memcpy(d->pad, paddingA, bytes);
    memcpy(d->stride, strideA, bytes);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetPooling2dDescriptor(cudnnPoolingDescriptor_t d, cudnnPoolingMode_t mode,
                                          cudnnNanPropagation_t nan, int windowHeight,
                                          int windowWidth, int verticalPadding,
                                          int horizontalPadding, int verticalStride,
                                          int horizontalStride)
{
    const int window[2] = {windowHeight, windowWidth},
              pad[2] = {verticalPadding, horizontalPadding},
              stride[2] = {verticalStride, horizontalStride};
    return cudnnSetPoolingNdDescriptor(d, mode, nan, 2, window, pad, stride);
}

cudnnStatus_t cudnnGetPoolingNdDescriptor(const cudnnPoolingDescriptor_t d, int nbDimsRequested,
                                          cudnnPoolingMode_t *mode, cudnnNanPropagation_t *nan,
                                          int *nbDims, int windowDimA[], int paddingA[],
                                          int strideA[])
{
    SG_NEED(d && d->ndims > 0, "cudnnGetPoolingNdDescriptor: the descriptor was never set");
    for (int i = 0; i < nbDimsRequested && i < d->ndims; i++) {
        if (windowDimA) {
            windowDimA[i] = d->window[i];
        }
        if (paddingA) {
            paddingA[i] = d->pad[i];
        }
        if (strideA) {
            strideA[i] = d->stride[i];
        }
    }
    if (mode) {
        *mode = d->mode;
    }
    if (nan) {
        *nan = d->nan;
    }
    if (nbDims) {
        *nbDims = d->ndims;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetPooling2dDescriptor(const cudnnPoolingDescriptor_t d,
                                          cudnnPoolingMode_t *mode, cudnnNanPropagation_t *nan,
                                          int *windowHeight, int *windowWidth, int *verticalPadding,
                                          int *horizontalPadding, int *verticalStride,
                                          int *horizontalStride)
{
    SG_NEED(d && d->ndims == 2, "cudnnGetPooling2dDescriptor: not a descriptor of two dimensions");
    int *const out[6] = {windowHeight,      windowWidth,    verticalPadding,
                         horizontalPadding, verticalStride, horizontalStride};
    const int value[6] = {d->window[0], d->window[1], d->pad[0],
                          d->pad[1],    d->stride[0], d->stride[1]};
    for (int i = 0; i < 6; i++) {
        if (out[i]) {
            *out[i] = value[i];
        }
    }
    return cudnnGetPoolingNdDescriptor(d, 0, mode, nan, NULL, NULL, NULL, NULL);
}

cudnnStatus_t cudnnGetPoolingNdForwardOutputDim(const cudnnPoolingDescriptor_t d,
                                                const cudnnTensorDescriptor_t x, int nbDims,
                                                int dimA[])
{
    SG_NEED(d && x && dimA && d->ndims > 0 && x->ndims == d->ndims + 2 && nbDims >= x->ndims,
            "cudnnGetPoolingNdForwardOutputDim: the descriptors' dimensions do not agree");
    int out[CUDNN_DIM_MAX] = {x->dim[0], x->dim[1]};
    for (int i = 0; i < d->ndims; i++) {
        int room = x->dim[2 + i] + 2 * d->pad[i] - d->window[i];
        SG_NEED(room >= 0,
                "cudnnGetPoolingNdForwardOutputDim: the window is larger than dimension %d", i);
        out[2 + i] = room / d->stride[i] + 1;
    }
    memcpy(dimA, out, (size_t)x->ndims * sizeof *dimA);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetPooling2dForwardOutputDim(const cudnnPoolingDescriptor_t d,
                                                const cudnnTensorDescriptor_t x, int *n, int *c,
                                                int *h, int *w)
{
    int dim[CUDNN_DIM_MAX];
    SG_NEED(d && d->ndims == 2 && n && c && h && w,
            "cudnnGetPooling2dForwardOutputDim: an argument is null or not two dimensions");
    SG_TRY(cudnnGetPoolingNdForwardOutputDim(d, x, CUDNN_DIM_MAX, dim));
    *n = dim[0];
    *c = dim[1];
    *h = dim[2];
    *w = dim[3];
    return CUDNN_STATUS_SUCCESS;
}
