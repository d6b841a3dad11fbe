/* Vectors. */
#include "handle.h"

/* Launches a vector kernel; alpha null where it has none. */
static cublasStatus_t vector_launch(cublasHandle_t h, enum sg_blas_kernel_id k,
                                    enum sg_blas_vector_op op, int n, const float *alpha,
                                    const float *x, int incx, const float *y, int incy)
{
    SG_BLAS_HANDLE(h);
    if (n <= 0) {
        return CUBLAS_STATUS_SUCCESS;
    }
    struct sg_blas_vector_args a = {.x = (uint64_t)(uintptr_t)x,
                                    .y = (uint64_t)(uintptr_t)y,
                                    .op = (int32_t)op,
                                    .n = n,
                                    .incx = incx,
                                    .incy = incy};
    SG_BLAS_NEED(x);
    if (alpha) {
        sg_blas_scalar32(h, alpha, &a.alpha_value, &a.alpha);
    }
    return sg_blas_launch(h, k, &a, n);
}

cublasStatus_t cublasSaxpy_v2(cublasHandle_t handle, int n, const float *alpha, const float *x,
                              int incx, float *y, int incy)
{
    SG_BLAS_NEED(alpha && (y || n <= 0));
    return vector_launch(handle, SG_BK_AXPY, SG_BLAS_AXPY, n, alpha, x, incx, y, incy);
}

cublasStatus_t cublasSscal_v2(cublasHandle_t handle, int n, const float *alpha, float *x, int incx)
{
    SG_BLAS_NEED(alpha);
    if (incx <= 0) {
        SG_BLAS_HANDLE(handle);
        return CUBLAS_STATUS_SUCCESS; /* as in reference BLAS: nothing is scaled */
    }
    return vector_launch(handle, SG_BK_SCAL, SG_BLAS_SCAL, n, alpha, x, incx, NULL, 0);
}

cublasStatus_t cublasScopy_v2(cublasHandle_t handle, int n, const float *x, int incx, float *y,
                              int incy)
{
    SG_BLAS_NEED(y || n <= 0);
    return vector_launch(handle, SG_BK_COPY, SG_BLAS_COPY, n, NULL, x, incx, y, incy);
}

cublasStatus_t cublasSswap_v2(cublasHandle_t handle, int n, float *x, int incx, float *y, int incy)
{
    SG_BLAS_NEED(y || n <= 0);
    return vector_launch(handle, SG_BK_SWAP, SG_BLAS_SWAP, n, NULL, x, incx, y, incy);
}

/* A result in device memory is written there; one in host memory goes through the handle's scratch,
 * and the call returns when it has arrived. */
static cublasStatus_t reduction(cublasHandle_t h, enum sg_blas_kernel_id k,
                                enum sg_blas_vector_op op, int n, const void *x, int incx,
                                const void *y, int incy, enum sg_number type, void *result)
{
    SG_BLAS_HANDLE(h);
    SG_BLAS_NEED(result);
    int device = h->pointer_mode == CUBLAS_POINTER_MODE_DEVICE;
    if (!device && (n <= 0 || (op != SG_BLAS_DOT && incx <= 0))) {
        sg_number_store(type, result, 0, 0);
        return CUBLAS_STATUS_SUCCESS;
    }
    struct sg_blas_vector_args a = {.x = (uint64_t)(uintptr_t)x,
                                    .y = (uint64_t)(uintptr_t)y,
                                    .result = device ? (uint64_t)(uintptr_t)result : h->scratch,
                                    .op = (int32_t)op,
                                    .n = n > 0 ? n : 0,
                                    .incx = incx,
                                    .incy = incy,
                                    .type = (int32_t)type};
    cublasStatus_t s = sg_blas_launch(h, k, &a, n);
    if (s != CUBLAS_STATUS_SUCCESS || device) {
        return s;
    }
    CUresult r = h->core.drv->cuMemcpyDtoHAsync(result, h->scratch, sg_number_bytes(type), h->stream);
    if (r == CUDA_SUCCESS) {
        r = h->core.drv->cuStreamSynchronize(h->stream);
    }
    return sg_blas_status(r);
}

cublasStatus_t cublasSdot_v2(cublasHandle_t handle, int n, const float *x, int incx, const float *y,
                             int incy, float *result)
{
    return reduction(handle, SG_BK_DOT, SG_BLAS_DOT, n, x, incx, y, incy, SG_F32, result);
}

cublasStatus_t cublasSasum_v2(cublasHandle_t handle, int n, const float *x, int incx, float *result)
{
    return reduction(handle, SG_BK_ASUM, SG_BLAS_ASUM, n, x, incx, NULL, 0, SG_F32, result);
}

cublasStatus_t cublasSnrm2_v2(cublasHandle_t handle, int n, const float *x, int incx, float *result)
{
    return reduction(handle, SG_BK_NRM2, SG_BLAS_NRM2, n, x, incx, NULL, 0, SG_F32, result);
}

cublasStatus_t cublasDdot_v2(cublasHandle_t handle, int n, const double *x, int incx,
                             const double *y, int incy, double *result)
{
    return reduction(handle, SG_BK_DOT, SG_BLAS_DOT, n, x, incx, y, incy, SG_F64, result);
}

cublasStatus_t cublasDotEx(cublasHandle_t handle, int n, const void *x, cudaDataType xType,
                           int incx, const void *y, cudaDataType yType, int incy, void *result,
                           cudaDataType resultType, cudaDataType executionType)
{
    enum sg_number type;
    SG_BLAS_HANDLE(handle);
    if (xType != yType || xType != resultType || !sg_blas_number(xType, &type) ||
        (type == SG_F64) != (executionType == CUDA_R_64F)) {
        return sg_blas_refuse_types(__func__, xType, yType, resultType);
    }
    return reduction(handle, SG_BK_DOT, SG_BLAS_DOT, n, x, incx, y, incy, type, result);
}
