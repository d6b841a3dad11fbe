/* dnn.h: what the files of the simulated cuDNN share: handles, descriptors, checks, launches.
 *
 * Thread-safety as cuDNN's: a handle or a descriptor is used by one thread at a time. A refused
 * call returns its status and leaves its reason for cudnnGetLastErrorString.
 */
#ifndef SG_DNN_H
#define SG_DNN_H

#include <cudnn.h>
#include "client.h"
#include "conv.h"
#include "kernels.h"
#include "norm.h"
#include "pool.h"
#include "reduce.h"

struct cudnnContext {
    const struct sg_driver *drv;
    CUdevice device;
    CUstream stream;
    struct sg_card card;
};

struct cudnnTensorStruct {
    cudnnDataType_t type;
    int ndims; /* 0 = not set */
    int dim[CUDNN_DIM_MAX], stride[CUDNN_DIM_MAX];
};

struct cudnnFilterStruct {
    cudnnDataType_t type;
    cudnnTensorFormat_t format;
    int ndims;
    int dim[CUDNN_DIM_MAX];
};

struct cudnnConvolutionStruct {
    int ndims; /* spatial; 0 = not set */
    int pad[CUDNN_DIM_MAX], stride[CUDNN_DIM_MAX], dilation[CUDNN_DIM_MAX];
    int groups;
    cudnnConvolutionMode_t mode;
    cudnnDataType_t compute;
    cudnnMathType_t math;
    cudnnReorderType_t reorder;
};

struct cudnnPoolingStruct {
    int ndims; /* spatial */
    int window[CUDNN_DIM_MAX], pad[CUDNN_DIM_MAX], stride[CUDNN_DIM_MAX];
    cudnnPoolingMode_t mode;
    cudnnNanPropagation_t nan;
};

struct cudnnActivationStruct {
    int set;
    cudnnActivationMode_t mode;
    cudnnNanPropagation_t nan;
    double coef, swish_beta;
};

struct cudnnLRNStruct {
    unsigned n;
    double alpha, beta, k;
};

struct cudnnOpTensorStruct {
    int set;
    cudnnOpTensorOp_t op;
    cudnnDataType_t compute;
    cudnnNanPropagation_t nan;
};

struct cudnnReduceTensorStruct {
    int set;
    cudnnReduceTensorOp_t op;
    cudnnDataType_t compute;
    cudnnNanPropagation_t nan;
    cudnnReduceTensorIndices_t indices;
    cudnnIndicesType_t index_type;
};

struct cudnnDropoutStruct {
    float rate;
    void *states;
    unsigned long long seed;
};

/* Bytes of one element; 0 for types narrower than a byte or unknown. */
size_t sg_dnn_type_bytes(cudnnDataType_t type);

/* Keeps the reason of a refusal for this thread and returns the status. */
__attribute__((format(printf, 2, 3))) cudnnStatus_t sg_dnn_refuse(cudnnStatus_t status,
                                                                  const char *fmt, ...);

/* fp32 tensor of up to five dimensions (`what` names it in the reason of a refusal). */
cudnnStatus_t sg_dnn_tensor(const char *what, cudnnTensorDescriptor_t d, struct sg_tensor *out);

/* Same dims. */
int sg_dnn_same_shape(const struct sg_tensor *a, const struct sg_tensor *b);

/* Launches one of our kernels on the handle's stream. */
cudnnStatus_t sg_dnn_launch(cudnnHandle_t h, enum sg_kernel_id k, const void *args, double threads);

/* The algorithms that support a convolution, the one expected to be fastest on the card first;
 * their number. */
int sg_conv_rank(const struct sg_card *card, const struct sg_conv_shape *s,
                 int order[SG_CONV_ALGOS_MAX]);

static inline float sg_dnn_scalar(const void *p)
{
    return *(const float *)p;
}

static inline uint64_t sg_dnn_addr(const void *p)
{
    return (uint64_t)(uintptr_t)p;
}

/* The parameter of a kernel for a host activation descriptor. */
struct sg_act sg_dnn_act(cudnnActivationDescriptor_t d);

/* Early return on anything but success. */
#define SG_TRY(call)                                                                               \
    do {                                                                                           \
        cudnnStatus_t sg_try_ = (call);                                                            \
        if (sg_try_ != CUDNN_STATUS_SUCCESS) {                                                     \
            return sg_try_;                                                                        \
        }                                                                                          \
    } while (0)

#define SG_NEED(cond, ...)                                                                         \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            return sg_dnn_refuse(CUDNN_STATUS_BAD_PARAM, __VA_ARGS__);                             \
        }                                                                                          \
    } while (0)

/* cudnnCreateX and cudnnDestroyX of a descriptor that is one zeroed structure. Include <stdlib.h>.
 */
#define SG_DNN_CREATE(name, type)                                                                  \
    cudnnStatus_t cudnnCreate##name##Descriptor(type *out)                                         \
    {                                                                                              \
        SG_NEED(out, "cudnnCreate" #name "Descriptor: the result pointer is null");                \
        type d = calloc(1, sizeof *d);                                                             \
        if (!d) {                                                                                  \
            return sg_dnn_refuse(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED,               \
                                 "cudnnCreate" #name "Descriptor: out of host memory");            \
        }                                                                                          \
        *out = d;                                                                                  \
        return CUDNN_STATUS_SUCCESS;                                                               \
    }
#define SG_DNN_DESCRIPTOR(name, type)                                                              \
    SG_DNN_CREATE(name, type)                                                                      \
    cudnnStatus_t cudnnDestroy##name##Descriptor(type d)                                           \
    {                                                                                              \
        free(d);                                                                                   \
        return CUDNN_STATUS_SUCCESS;                                                               \
    }

#endif
