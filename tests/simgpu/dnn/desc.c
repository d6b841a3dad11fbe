/* Descriptors: plain data that a program fills and reads back; no driver is needed for any of it.
 */
#include "dnn.h"

#include <stdlib.h>
#include <string.h>

SG_DNN_DESCRIPTOR(Tensor, cudnnTensorDescriptor_t)
SG_DNN_DESCRIPTOR(Filter, cudnnFilterDescriptor_t)
SG_DNN_DESCRIPTOR(Convolution, cudnnConvolutionDescriptor_t)
SG_DNN_DESCRIPTOR(Pooling, cudnnPoolingDescriptor_t)
SG_DNN_DESCRIPTOR(Activation, cudnnActivationDescriptor_t)
SG_DNN_DESCRIPTOR(OpTensor, cudnnOpTensorDescriptor_t)
SG_DNN_DESCRIPTOR(ReduceTensor, cudnnReduceTensorDescriptor_t)
SG_DNN_DESCRIPTOR(Dropout, cudnnDropoutDescriptor_t)

cudnnStatus_t cudnnCreateLRNDescriptor(cudnnLRNDescriptor_t *out)
{
    SG_NEED(out, "cudnnCreateLRNDescriptor: the result pointer is null");
    cudnnLRNDescriptor_t d = malloc(sizeof *d);
    if (!d) {
        return sg_dnn_refuse(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED,
                             "cudnnCreateLRNDescriptor: out of host memory");
    }
    *d = (struct cudnnLRNStruct){5, 1e-4, 0.75, 2.0}; /* cudnn_ops.h: the defaults of this call */
    *out = d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyLRNDescriptor(cudnnLRNDescriptor_t d)
{
    free(d);
    return CUDNN_STATUS_SUCCESS;
}

/* ---- tensors ---- */

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t d, cudnnDataType_t type,
                                         int nbDims, const int dimA[], const int strideA[])
{
    SG_NEED(d && dimA && strideA, "cudnnSetTensorNdDescriptor: an argument is null");
    if (nbDims < 3 || nbDims > CUDNN_DIM_MAX) {
        return sg_dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED,
                             "cudnnSetTensorNdDescriptor: %d dimensions; 3 to %d are possible",
                             nbDims, CUDNN_DIM_MAX);
    }
    SG_NEED(sg_dnn_type_bytes(type) > 0, "cudnnSetTensorNdDescriptor: data type %d is unknown",
            (int)type);
    int64_t last = 0;
    for (int i = 0; i < nbDims; i++) {
        SG_NEED(dimA[i] > 0 && strideA[i] >= 0,
                "cudnnSetTensorNdDescriptor: dimension %d has size %d and stride %d", i, dimA[i],
                strideA[i]);
        last += (int64_t)(dimA[i] - 1) * strideA[i];
    }
    if (last > INT32_MAX) {
        return sg_dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED,
                             "cudnnSetTensorNdDescriptor: more than 2^31 elements");
    }
    d->type = type;
    d->ndims = nbDims;
    memcpy(d->dim, dimA, (size_t)nbDims * sizeof *dimA);
    memcpy(d->stride, strideA, (size_t)nbDims * sizeof *strideA);
    return CUDNN_STATUS_SUCCESS;
}

/* Strides of a packed tensor; channels innermost for NHWC. */
static cudnnStatus_t packed_strides(cudnnTensorFormat_t format, int n, const int dim[],
                                    int stride[])
{
    int64_t s = 1;
    if (format == CUDNN_TENSOR_NHWC) {
        stride[1] = 1;
        s = dim[1];
    } else if (format != CUDNN_TENSOR_NCHW) {
        return sg_dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT, "tensor format %d is not supported",
                             (int)format);
    }
    for (int i = n - 1; i >= 0; i--) {
        if (format == CUDNN_TENSOR_NHWC && i == 1) {
            continue;
        }
        if (s > INT32_MAX) {
            return sg_dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "a tensor of more than 2^31 elements");
        }
        stride[i] = (int)s;
        s *= dim[i];
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetTensorNdDescriptorEx(cudnnTensorDescriptor_t d, cudnnTensorFormat_t format,
                                           cudnnDataType_t type, int nbDims, const int dimA[])
{
    SG_NEED(dimA && nbDims >= 3 && nbDims <= CUDNN_DIM_MAX,
            "cudnnSetTensorNdDescriptorEx: %d dimensions; 3 to %d are possible", nbDims,
            CUDNN_DIM_MAX);
    int stride[CUDNN_DIM_MAX];
    SG_TRY(packed_strides(format, nbDims, dimA, stride));
    return cudnnSetTensorNdDescriptor(d, type, nbDims, dimA, stride);
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t d, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w)
{
    const int dim[4] = {n, c, h, w};
    return cudnnSetTensorNdDescriptorEx(d, format, type, 4, dim);
}

cudnnStatus_t cudnnSetTensor4dDescriptorEx(cudnnTensorDescriptor_t d, cudnnDataType_t type, int n,
                                           int c, int h, int w, int nStride, int cStride,
                                           int hStride, int wStride)
{
    const int dim[4] = {n, c, h, w}, stride[4] = {nStride, cStride, hStride, wStride};
    return cudnnSetTensorNdDescriptor(d, type, 4, dim, stride);
}

cudnnStatus_t cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t d, int nbDimsRequested,
                                         cudnnDataType_t *type, int *nbDims, int dimA[],
                                         int strideA[])
{
    SG_NEED(d && d->ndims > 0, "cudnnGetTensorNdDescriptor: the descriptor was never set");
    SG_NEED(nbDimsRequested >= 0 && nbDimsRequested <= CUDNN_DIM_MAX,
            "cudnnGetTensorNdDescriptor: %d dimensions requested", nbDimsRequested);
    int n = nbDimsRequested < d->ndims ? nbDimsRequested : d->ndims;
    if (type) {
        *type = d->type;
    }
    if (nbDims) {
        *nbDims = d->ndims;
    }
    for (int i = 0; i < n; i++) {
        if (dimA) {
            dimA[i] = d->dim[i];
        }
        if (strideA) {
            strideA[i] = d->stride[i];
        }
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetTensor4dDescriptor(const cudnnTensorDescriptor_t d, cudnnDataType_t *type,
                                         int *n, int *c, int *h, int *w, int *nStride, int *cStride,
                                         int *hStride, int *wStride)
{
    SG_NEED(d && d->ndims == 4, "cudnnGetTensor4dDescriptor: not a descriptor of four dimensions");
    int *dim[4] = {n, c, h, w}, *stride[4] = {nStride, cStride, hStride, wStride};
    for (int i = 0; i < 4; i++) {
        if (dim[i]) {
            *dim[i] = d->dim[i];
        }
        if (stride[i]) {
            *stride[i] = d->stride[i];
        }
    }
    if (type) {
        *type = d->type;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetTensorSizeInBytes(const cudnnTensorDescriptor_t d, size_t *size)
{
    SG_NEED(d && d->ndims > 0 && size, "cudnnGetTensorSizeInBytes: the descriptor was never set");
    size_t last = 0;
    for (int i = 0; i < d->ndims; i++) {
        last += (size_t)(d->dim[i] - 1) * (size_t)d->stride[i];
    }
    *size = (last + 1) * sg_dnn_type_bytes(d->type);
    return CUDNN_STATUS_SUCCESS;
}

/* ---- filters ---- */

cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int nbDims, const int dimA[])
{
    SG_NEED(d && dimA, "cudnnSetFilterNdDescriptor: an argument is null");
    SG_NEED(nbDims >= 3 && nbDims <= CUDNN_DIM_MAX && sg_dnn_type_bytes(type) > 0,
            "cudnnSetFilterNdDescriptor: %d dimensions, data type %d", nbDims, (int)type);
    SG_NEED(format == CUDNN_TENSOR_NCHW || format == CUDNN_TENSOR_NHWC,
            "cudnnSetFilterNdDescriptor: format %d", (int)format);
    for (int i = 0; i < nbDims; i++) {
        SG_NEED(dimA[i] > 0, "cudnnSetFilterNdDescriptor: dimension %d has size %d", i, dimA[i]);
    }
    d->type = type;
    d->format = format;
    d->ndims = nbDims;
    memcpy(d->dim, dimA, (size_t)nbDims * sizeof *dimA);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w)
{
    const int dim[4] = {k, c, h, w};
    return cudnnSetFilterNdDescriptor(d, type, format, 4, dim);
}

cudnnStatus_t cudnnGetFilterNdDescriptor(const cudnnFilterDescriptor_t d, int nbDimsRequested,
                                         cudnnDataType_t *type, cudnnTensorFormat_t *format,
                                         int *nbDims, int filterDimA[])
{
    SG_NEED(d && d->ndims > 0 && type && format && nbDims && filterDimA,
            "cudnnGetFilterNdDescriptor: an argument is null or the descriptor was never set");
    *type = d->type;
    *format = d->format;
    *nbDims = d->ndims;
    for (int i = 0; i < nbDimsRequested && i < d->ndims; i++) {
        filterDimA[i] = d->dim[i];
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetFilter4dDescriptor(const cudnnFilterDescriptor_t d, cudnnDataType_t *type,
                                         cudnnTensorFormat_t *format, int *k, int *c, int *h,
                                         int *w)
{
    SG_NEED(d && d->ndims == 4 && type && format && k && c && h && w,
            "cudnnGetFilter4dDescriptor: an argument is null or not four dimensions");
    *type = d->type;
    *format = d->format;
    *k = d->dim[0];
    *c = d->dim[1];
    *h = d->dim[2];
    *w = d->dim[3];
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetFilterSizeInBytes(const cudnnFilterDescriptor_t d, size_t *size)
{
    SG_NEED(d && d->ndims > 0 && size, "cudnnGetFilterSizeInBytes: the descriptor was never set");
    size_t n = sg_dnn_type_bytes(d->type);
    for (int i = 0; i < d->ndims; i++) {
        n *= (size_t)d->dim[i];
    }
    *size = n;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- activations, LRN, op tensor, reduce tensor ---- */

cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t d,
                                           cudnnActivationMode_t mode, cudnnNanPropagation_t nan,
                                           double coef)
{
    SG_NEED(d && (unsigned)mode <= CUDNN_ACTIVATION_SWISH && (unsigned)nan <= CUDNN_PROPAGATE_NAN,
            "cudnnSetActivationDescriptor: mode %d, NaN option %d", (int)mode, (int)nan);
    *d = (struct cudnnActivationStruct){1, mode, nan, coef, 1.0};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetActivationDescriptor(const cudnnActivationDescriptor_t d,
                                           cudnnActivationMode_t *mode, cudnnNanPropagation_t *nan,
                                           double *coef)
{
    SG_NEED(d && d->set && mode && nan && coef,
            "cudnnGetActivationDescriptor: an argument is null or the descriptor was never set");
    *mode = d->mode;
    *nan = d->nan;
    *coef = d->coef;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetActivationDescriptorSwishBeta(cudnnActivationDescriptor_t d,
                                                    double swish_beta)
{
    SG_NEED(d && d->mode == CUDNN_ACTIVATION_SWISH,
            "cudnnSetActivationDescriptorSwishBeta: the mode is not CUDNN_ACTIVATION_SWISH");
    d->swish_beta = swish_beta;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetActivationDescriptorSwishBeta(cudnnActivationDescriptor_t d,
                                                    double *swish_beta)
{
    SG_NEED(d && d->mode == CUDNN_ACTIVATION_SWISH && swish_beta,
            "cudnnGetActivationDescriptorSwishBeta: the mode is not CUDNN_ACTIVATION_SWISH");
    *swish_beta = d->swish_beta;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetLRNDescriptor(cudnnLRNDescriptor_t d, unsigned lrnN, double lrnAlpha,
                                    double lrnBeta, double lrnK)
{
    SG_NEED(d && lrnN >= CUDNN_LRN_MIN_N && lrnN <= CUDNN_LRN_MAX_N && lrnK >= CUDNN_LRN_MIN_K &&
                lrnBeta >= CUDNN_LRN_MIN_BETA,
            "cudnnSetLRNDescriptor: n %u, beta %g, k %g", lrnN, lrnBeta, lrnK);
    *d = (struct cudnnLRNStruct){lrnN, lrnAlpha, lrnBeta, lrnK};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetLRNDescriptor(cudnnLRNDescriptor_t d, unsigned *lrnN, double *lrnAlpha,
                                    double *lrnBeta, double *lrnK)
{
    SG_NEED(d, "cudnnGetLRNDescriptor: the descriptor is null");
    if (lrnN) {
        *lrnN = d->n;
    }
    if (lrnAlpha) {
        *lrnAlpha = d->alpha;
    }
    if (lrnBeta) {
        *lrnBeta = d->beta;
    }
    if (lrnK) {
        *lrnK = d->k;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetOpTensorDescriptor(cudnnOpTensorDescriptor_t d, cudnnOpTensorOp_t op,
                                         cudnnDataType_t type, cudnnNanPropagation_t nan)
{
    SG_NEED(d && (unsigned)op <= CUDNN_OP_TENSOR_NOT, "cudnnSetOpTensorDescriptor: op %d", (int)op);
    *d = (struct cudnnOpTensorStruct){1, op, type, nan};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetOpTensorDescriptor(const cudnnOpTensorDescriptor_t d, cudnnOpTensorOp_t *op,
                                         cudnnDataType_t *type, cudnnNanPropagation_t *nan)
{
    SG_NEED(d && d->set && op && type && nan,
            "cudnnGetOpTensorDescriptor: an argument is null or the descriptor was never set");
    *op = d->op;
    *type = d->compute;
    *nan = d->nan;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetReduceTensorDescriptor(cudnnReduceTensorDescriptor_t d,
                                             cudnnReduceTensorOp_t op, cudnnDataType_t type,
                                             cudnnNanPropagation_t nan,
                                             cudnnReduceTensorIndices_t indices,
                                             cudnnIndicesType_t index_type)
{
    SG_NEED(d && (unsigned)op <= CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS,
            "cudnnSetReduceTensorDescriptor: op %d", (int)op);
    if (indices != CUDNN_REDUCE_TENSOR_NO_INDICES && index_type != CUDNN_32BIT_INDICES) {
        return sg_dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED,
                             "cudnnSetReduceTensorDescriptor: indices other than 32 bit");
    }
    *d = (struct cudnnReduceTensorStruct){1, op, type, nan, indices, index_type};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetReduceTensorDescriptor(const cudnnReduceTensorDescriptor_t d,
                                             cudnnReduceTensorOp_t *op, cudnnDataType_t *type,
                                             cudnnNanPropagation_t *nan,
                                             cudnnReduceTensorIndices_t *indices,
                                             cudnnIndicesType_t *index_type)
{
    SG_NEED(d && d->set && op && type && nan && indices && index_type,
            "cudnnGetReduceTensorDescriptor: an argument is null or the descriptor was never set");
    *op = d->op;
    *type = d->compute;
    *nan = d->nan;
    *indices = d->indices;
    *index_type = d->index_type;
    return CUDNN_STATUS_SUCCESS;
}
