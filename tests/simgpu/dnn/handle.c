/* Handles, versions, error texts and the launch of a kernel. */
#include "dnn.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local char last_error[256];

static struct sg_client_image image = {.image = &sg_dnn_image};

cudnnStatus_t sg_dnn_refuse(cudnnStatus_t status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(last_error, sizeof last_error, fmt, ap);
    va_end(ap);
    return status;
}

static cudnnStatus_t status_of(CUresult r)
{
    switch (r) {
    case CUDA_SUCCESS:
        return CUDNN_STATUS_SUCCESS;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return sg_dnn_refuse(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED,
                             "the driver is out of memory");
    default:
        return sg_dnn_refuse(CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER,
                             "the driver answered with error %d", (int)r);
    }
}

cudnnStatus_t sg_dnn_launch(cudnnHandle_t h, enum sg_kernel_id k, const void *args, double threads)
{
    return status_of(sg_client_launch(h->drv, &image, (unsigned)k, h->stream, args, threads));
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    SG_NEED(handle, "cudnnCreate: handle is null");
    struct cudnnContext h = {0};
    CUresult r = sg_client_driver(&h.drv);
    if (r == CUDA_SUCCESS) {
        r = sg_client_context(h.drv, &h.device);
    }
    if (r == CUDA_SUCCESS) {
        r = sg_client_card(h.drv, h.device, &h.card);
    }
    if (r != CUDA_SUCCESS) {
        return sg_dnn_refuse(CUDNN_STATUS_NOT_INITIALIZED,
                             "cudnnCreate: no usable driver or device (driver error %d)", (int)r);
    }
    struct cudnnContext *out = malloc(sizeof *out);
    if (!out) {
        return sg_dnn_refuse(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED,
                             "cudnnCreate: out of host memory");
    }
    *out = h;
    *handle = out;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t streamId)
{
    SG_NEED(handle, "cudnnSetStream: handle is null");
    handle->stream = streamId;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *streamId)
{
    SG_NEED(handle && streamId, "cudnnGetStream: an argument is null");
    *streamId = handle->stream;
    return CUDNN_STATUS_SUCCESS;
}

/* A framework asks for the minor version that it was built with, or a later one: the newest that
 * backend.def knows the attributes of. */
enum { VERSION_MAJOR = 9, VERSION_MINOR = CUDNN_MINOR > 26 ? CUDNN_MINOR : 26 };
_Static_assert(CUDNN_MAJOR == VERSION_MAJOR, "headers of another major version");

size_t cudnnGetVersion(void)
{
    return VERSION_MAJOR * 10000 + VERSION_MINOR * 100;
}

size_t cudnnGetMaxDeviceVersion(void)
{
    return 1210;
}

size_t cudnnGetCudartVersion(void)
{
    return 13010;
}

cudnnStatus_t cudnnGetProperty(libraryPropertyType type, int *value)
{
    SG_NEED(value, "cudnnGetProperty: value is null");
    static const int version[3] = {VERSION_MAJOR, VERSION_MINOR, 0};
    SG_NEED((unsigned)type < 3, "cudnnGetProperty: property %d is unknown", (int)type);
    *value = version[type];
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGraphVersionCheck(void)
{
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnOpsVersionCheck(void)
{
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCnnVersionCheck(void)
{
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnAdvVersionCheck(void)
{
    return CUDNN_STATUS_SUCCESS;
}

#define ROW(status)                                                                                \
    {                                                                                              \
        status, #status                                                                            \
    }
static const struct {
    int status;
    const char *name;
} status_names[] = {
    ROW(CUDNN_STATUS_SUCCESS),
    ROW(CUDNN_STATUS_NOT_INITIALIZED),
    ROW(CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH),
    ROW(CUDNN_STATUS_DEPRECATED),
    ROW(CUDNN_STATUS_BAD_PARAM),
    ROW(CUDNN_STATUS_BAD_PARAM_NULL_POINTER),
    ROW(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER),
    ROW(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT),
    ROW(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH),
    ROW(CUDNN_STATUS_NOT_SUPPORTED),
    ROW(CUDNN_STATUS_NOT_SUPPORTED_SHAPE),
    ROW(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE),
    ROW(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT),
    ROW(CUDNN_STATUS_INTERNAL_ERROR),
    ROW(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED),
    ROW(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED),
    ROW(CUDNN_STATUS_EXECUTION_FAILED),
    ROW(CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER),
};
#undef ROW

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    for (size_t i = 0; i < sizeof status_names / sizeof *status_names; i++) {
        if (status_names[i].status == (int)status) {
            return status_names[i].name;
        }
    }
    return "CUDNN_UNKNOWN_STATUS";
}

void cudnnGetLastErrorString(char *message, size_t max_size)
{
    if (message && max_size > 0) {
        snprintf(message, max_size, "%s", last_error);
        last_error[0] = '\0';
    }
}

/* ---- what the other files share ---- */

size_t sg_dnn_type_bytes(cudnnDataType_t type)
{
    switch (type) {
    case CUDNN_DATA_DOUBLE:
    case CUDNN_DATA_INT64:
    case CUDNN_DATA_COMPLEX_FP32:
        return 8;
    case CUDNN_DATA_COMPLEX_FP64:
        return 16;
    case CUDNN_DATA_FLOAT:
    case CUDNN_DATA_INT32:
    case CUDNN_DATA_UINT32:
    case CUDNN_DATA_INT8x4:
    case CUDNN_DATA_UINT8x4:
        return 4;
    case CUDNN_DATA_INT8x32:
        return 32;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16:
        return 2;
    case CUDNN_DATA_INT8:
    case CUDNN_DATA_UINT8:
    case CUDNN_DATA_BOOLEAN:
    case CUDNN_DATA_FP8_E4M3:
    case CUDNN_DATA_FP8_E5M2:
    case CUDNN_DATA_FP8_E8M0:
        return 1;
    default:
        return 0;
    }
}

cudnnStatus_t sg_dnn_tensor(const char *what, cudnnTensorDescriptor_t d, struct sg_tensor *out)
{
    SG_NEED(d && d->ndims > 0, "%s: the tensor descriptor is null or was never set", what);
    if (d->type != CUDNN_DATA_FLOAT) {
        return sg_dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE,
                             "%s: data type %d; the simulated cuDNN computes CUDNN_DATA_FLOAT only",
                             what, (int)d->type);
    }
    if (d->ndims > SG_DIMS) {
        return sg_dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED_SHAPE,
                             "%s: %d dimensions; the simulated cuDNN computes up to %d", what,
                             d->ndims, SG_DIMS);
    }
    /* Batch and channels stay in front, missing spatial dimensions go between as size 1. */
    int missing = SG_DIMS - d->ndims;
    for (int i = 0; i < SG_DIMS; i++) {
        int from = i < 2 ? i : i - missing;
        int there = i < 2 ? i < d->ndims : from >= 2 && from < d->ndims;
        out->dim[i] = there ? d->dim[from] : 1;
        out->str[i] = there ? d->stride[from] : 0;
    }
    return CUDNN_STATUS_SUCCESS;
}

int sg_dnn_same_shape(const struct sg_tensor *a, const struct sg_tensor *b)
{
    return memcmp(a->dim, b->dim, sizeof a->dim) == 0;
}

struct sg_act sg_dnn_act(cudnnActivationDescriptor_t d)
{
    return (struct sg_act){.mode = (int32_t)d->mode,
                           .nan = d->nan == CUDNN_PROPAGATE_NAN,
                           .coef = (float)d->coef,
                           .swish = (float)d->swish_beta};
}
