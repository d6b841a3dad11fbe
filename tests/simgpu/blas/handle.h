/* handle.h: handles of the simulated cuBLAS. One thread uses a handle at a time, as with cuBLAS. */
#ifndef SG_BLAS_HANDLE_H
#define SG_BLAS_HANDLE_H

#include <cublas_v2.h>
#include "blas.h"
#include "client.h"

struct cublasContext {
    const struct sg_driver *drv;
    CUdevice device;
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

cublasStatus_t sg_blas_launch(cublasHandle_t h, enum sg_blas_kernel_id k, const void *args,
                              double threads);

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
