/* handle.h: handles of the simulated cuBLAS. One thread uses a handle at a time, as with cuBLAS. */
#ifndef SG_BLAS_HANDLE_H
#define SG_BLAS_HANDLE_H

#include <cublas_v2.h>
#include "blas.h"
#include "client.h"
#include "number.h"

/* What cuBLAS and cuBLASLt share of a handle: a handle of the first serves as one of the second. */
struct sg_blas_core {
    const struct sg_driver *drv;
    CUdevice device;
    struct sg_card card;
};

/* Fills it in for the current context, device 0's primary one where the thread has none. */
cublasStatus_t sg_blas_core_init(struct sg_blas_core *core);

struct cublasContext {
    struct sg_blas_core core; /* first */
    CUstream stream;
    CUdeviceptr scratch; /* where reductions with a host result leave it first */
    void *workspace;     /* the user's, by cublasSetWorkspace */
    size_t workspace_bytes;
    cublasPointerMode_t pointer_mode;
    cublasAtomicsMode_t atomics_mode;
    cublasMath_t math_mode;
    int sm_count_target;
};

cublasStatus_t sg_blas_status(CUresult r);

/* The name of a status, and what it says; texts that live for ever. */
const char *sg_blas_status_name(cublasStatus_t status);
const char *sg_blas_status_text(cublasStatus_t status);

cublasStatus_t sg_blas_launch(cublasHandle_t h, enum sg_blas_kernel_id k, const void *args,
                              double threads);

static inline uint64_t sg_addr(const void *p)
{
    return (uint64_t)(uintptr_t)p;
}

static inline int sg_max1(int v)
{
    return v > 1 ? v : 1;
}

/* A data type as ours; 0 and no output where we do not compute with it. */
int sg_blas_number(cudaDataType type, enum sg_number *out);

/* Sets types and rate of a product; 0 where we do not compute it: both factors of one type, the result of
 * the same or, from halves, in single precision. Sums are in single or double precision. */
int sg_blas_gemm_types(const struct sg_blas_core *core, cudaDataType ta, cudaDataType tb,
                       cudaDataType tc, cublasComputeType_t compute, struct sg_blas_gemm_args *a);

/* Says on stderr which types a call does not combine; returns "not supported". */
cublasStatus_t sg_blas_refuse_types(const char *call, cudaDataType a, cudaDataType b,
                                    cudaDataType c);

/* Splits a scalar argument by the handle's pointer mode: a value or a device address. */
static inline void sg_blas_scalar32(cublasHandle_t h, const float *p, float *value, uint64_t *addr)
{
    int device = h->pointer_mode == CUBLAS_POINTER_MODE_DEVICE;
    *value = device ? 0.0f : *p;
    *addr = device ? (uint64_t)(uintptr_t)p : 0;
}

#define SG_BLAS_NEED(cond)                                                                         \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            return CUBLAS_STATUS_INVALID_VALUE;                                                    \
        }                                                                                          \
    } while (0)

#define SG_BLAS_HANDLE(h)                                                                          \
    do {                                                                                           \
        if (!(h)) {                                                                                \
            return CUBLAS_STATUS_NOT_INITIALIZED;                                                  \
        }                                                                                          \
    } while (0)

#endif
