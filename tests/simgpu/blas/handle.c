/* Handles, modes, versions, texts, and copies of vectors and matrices. */
#include "handle.h"

#include <stdlib.h>

enum { SCRATCH_BYTES = 512 };

static struct sg_client_image image = {.image = &sg_blas_image};

cublasStatus_t sg_blas_launch(cublasHandle_t h, enum sg_blas_kernel_id k, const void *args,
                              double threads)
{
    return sg_blas_status(sg_client_launch(h->core.drv, &image, (unsigned)k, h->stream, args, threads));
}

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle)
{
    SG_BLAS_NEED(handle);
    struct cublasContext h = {.atomics_mode = CUBLAS_ATOMICS_NOT_ALLOWED};
    cublasStatus_t s = sg_blas_core_init(&h.core);
    if (s != CUBLAS_STATUS_SUCCESS) {
        return s;
    }
    CUresult r = h.core.drv->cuMemAlloc(&h.scratch, SCRATCH_BYTES);
    if (r != CUDA_SUCCESS) {
        return sg_blas_status(r);
    }
    struct cublasContext *out = malloc(sizeof *out);
    if (!out) {
        h.core.drv->cuMemFree(h.scratch);
        return CUBLAS_STATUS_ALLOC_FAILED;
    }
    *out = h;
    *handle = out;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
    SG_BLAS_HANDLE(handle);
    CUresult r = handle->core.drv->cuMemFree(handle->scratch);
    free(handle);
    return sg_blas_status(r);
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version)
{
    SG_BLAS_NEED(version);
#if SG_CUBLAS_MAJOR == CUBLAS_VER_MAJOR
    *version = CUBLAS_VERSION;
#else
    *version = SG_CUBLAS_MAJOR * 10000 + 900;
#endif
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetProperty(libraryPropertyType type, int *value)
{
    int version;
    SG_BLAS_NEED(value && (unsigned)type < 3);
    (void)cublasGetVersion_v2(NULL, &version);
    *value = type == MAJOR_VERSION   ? version / 10000
             : type == MINOR_VERSION ? version / 100 % 100
                                     : version % 100;
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasGetCudartVersion(void)
{
    return SG_CUBLAS_MAJOR * 1000;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t bytes)
{
    SG_BLAS_HANDLE(handle);
    SG_BLAS_NEED((uintptr_t)workspace % 256 == 0);
    handle->workspace = workspace;
    handle->workspace_bytes = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t streamId)
{
    SG_BLAS_HANDLE(handle);
    handle->stream = streamId;
    handle->workspace = NULL; /* as documented: back to the default workspace */
    handle->workspace_bytes = 0;
    return CUBLAS_STATUS_SUCCESS;
}

/* A field of the handle with its setter and getter. */
#define FIELD_GET(name, type, field)                                                               \
    cublasStatus_t name(cublasHandle_t handle, type *value)                                        \
    {                                                                                              \
        SG_BLAS_HANDLE(handle);                                                                    \
        SG_BLAS_NEED(value);                                                                       \
        *value = handle->field;                                                                    \
        return CUBLAS_STATUS_SUCCESS;                                                              \
    }
#define FIELD_SET(name, type, field, valid)                                                        \
    cublasStatus_t name(cublasHandle_t handle, type value)                                         \
    {                                                                                              \
        SG_BLAS_HANDLE(handle);                                                                    \
        SG_BLAS_NEED(valid);                                                                       \
        handle->field = value;                                                                     \
        return CUBLAS_STATUS_SUCCESS;                                                              \
    }
FIELD_GET(cublasGetStream_v2, cudaStream_t, stream)
FIELD_GET(cublasGetPointerMode_v2, cublasPointerMode_t, pointer_mode)
FIELD_SET(cublasSetPointerMode_v2, cublasPointerMode_t, pointer_mode,
          (unsigned)value <= CUBLAS_POINTER_MODE_DEVICE)
FIELD_GET(cublasGetAtomicsMode, cublasAtomicsMode_t, atomics_mode)
FIELD_SET(cublasSetAtomicsMode, cublasAtomicsMode_t, atomics_mode,
          (unsigned)value <= CUBLAS_ATOMICS_ALLOWED)
FIELD_GET(cublasGetMathMode, cublasMath_t, math_mode)
FIELD_SET(cublasSetMathMode, cublasMath_t, math_mode, (unsigned)value <= 31)
FIELD_GET(cublasGetSmCountTarget, int, sm_count_target)
FIELD_SET(cublasSetSmCountTarget, int, sm_count_target, value >= 0)

const char *cublasGetStatusName(cublasStatus_t status)
{
    return sg_blas_status_name(status);
}

const char *cublasGetStatusString(cublasStatus_t status)
{
    return sg_blas_status_text(status);
}

/* ---- copies between host and device ---- */

/* A matrix of `rows` by `cols` elements, each column `ld` elements after the one before. */
static cublasStatus_t copy_matrix(int rows, int cols, int elemSize, const void *src, int lds,
                                  void *dst, int ldd, int to_device, CUstream stream, int wait)
{
    const struct sg_driver *drv;
    SG_BLAS_NEED(rows >= 0 && cols >= 0 && elemSize > 0 && lds >= rows && ldd >= rows);
    if (rows == 0 || cols == 0) {
        return CUBLAS_STATUS_SUCCESS;
    }
    if (sg_client_driver(&drv) != CUDA_SUCCESS) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    CUDA_MEMCPY2D c = {.srcPitch = (size_t)lds * (size_t)elemSize,
                       .dstPitch = (size_t)ldd * (size_t)elemSize,
                       .WidthInBytes = (size_t)rows * (size_t)elemSize,
                       .Height = (size_t)cols};
    if (to_device) {
        c.srcMemoryType = CU_MEMORYTYPE_HOST;
        c.srcHost = src;
        c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        c.dstDevice = (CUdeviceptr)(uintptr_t)dst;
    } else {
        c.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        c.srcDevice = (CUdeviceptr)(uintptr_t)src;
        c.dstMemoryType = CU_MEMORYTYPE_HOST;
        c.dstHost = dst;
    }
    CUresult r = drv->cuMemcpy2DAsync(&c, stream);
    if (r == CUDA_SUCCESS && wait) {
        r = drv->cuStreamSynchronize(stream);
    }
    return sg_blas_status(r);
}

cublasStatus_t cublasSetMatrix(int rows, int cols, int elemSize, const void *A, int lda, void *B,
                               int ldb)
{
    return copy_matrix(rows, cols, elemSize, A, lda, B, ldb, 1, NULL, 1);
}

cublasStatus_t cublasGetMatrix(int rows, int cols, int elemSize, const void *A, int lda, void *B,
                               int ldb)
{
    return copy_matrix(rows, cols, elemSize, A, lda, B, ldb, 0, NULL, 1);
}

cublasStatus_t cublasSetMatrixAsync(int rows, int cols, int elemSize, const void *A, int lda,
                                    void *B, int ldb, cudaStream_t stream)
{
    return copy_matrix(rows, cols, elemSize, A, lda, B, ldb, 1, stream, 0);
}

cublasStatus_t cublasGetMatrixAsync(int rows, int cols, int elemSize, const void *A, int lda,
                                    void *B, int ldb, cudaStream_t stream)
{
    return copy_matrix(rows, cols, elemSize, A, lda, B, ldb, 0, stream, 0);
}

/* A vector is a matrix of one row; a packed one goes as one column. */
static cublasStatus_t copy_vector(int n, int elemSize, const void *x, int incx, void *y, int incy,
                                  int to_device, CUstream stream, int wait)
{
    SG_BLAS_NEED(n >= 0 && incx > 0 && incy > 0);
    if (incx == 1 && incy == 1) {
        return copy_matrix(n, 1, elemSize, x, n > 0 ? n : 1, y, n > 0 ? n : 1, to_device, stream,
                           wait);
    }
    return copy_matrix(1, n, elemSize, x, incx, y, incy, to_device, stream, wait);
}

cublasStatus_t cublasSetVector(int n, int elemSize, const void *x, int incx, void *devicePtr,
                               int incy)
{
    return copy_vector(n, elemSize, x, incx, devicePtr, incy, 1, NULL, 1);
}

cublasStatus_t cublasGetVector(int n, int elemSize, const void *x, int incx, void *y, int incy)
{
    return copy_vector(n, elemSize, x, incx, y, incy, 0, NULL, 1);
}

cublasStatus_t cublasSetVectorAsync(int n, int elemSize, const void *hostPtr, int incx,
                                    void *devicePtr, int incy, cudaStream_t stream)
{
    return copy_vector(n, elemSize, hostPtr, incx, devicePtr, incy, 1, stream, 0);
}

cublasStatus_t cublasGetVectorAsync(int n, int elemSize, const void *devicePtr, int incx,
                                    void *hostPtr, int incy, cudaStream_t stream)
{
    return copy_vector(n, elemSize, devicePtr, incx, hostPtr, incy, 0, stream, 0);
}
