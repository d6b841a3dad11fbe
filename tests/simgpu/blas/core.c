/* What cuBLAS and cuBLASLt share: their core, data types, status values. */
#include "handle.h"

#include <stdio.h>

cublasStatus_t sg_blas_core_init(struct sg_blas_core *core)
{
    if (sg_client_driver(&core->drv) != CUDA_SUCCESS ||
        sg_client_context(core->drv, &core->device) != CUDA_SUCCESS ||
        sg_client_card(core->drv, core->device, &core->card) != CUDA_SUCCESS) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t sg_blas_status(CUresult r)
{
    switch (r) {
    case CUDA_SUCCESS:
        return CUBLAS_STATUS_SUCCESS;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return CUBLAS_STATUS_ALLOC_FAILED;
    default:
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
}

int sg_blas_number(cudaDataType type, enum sg_number *out)
{
    switch (type) {
    case CUDA_R_32F:
        *out = SG_F32;
        return 1;
    case CUDA_R_64F:
        *out = SG_F64;
        return 1;
    case CUDA_R_16F:
        *out = SG_F16;
        return 1;
    case CUDA_R_16BF:
        *out = SG_BF16;
        return 1;
    default:
        return 0;
    }
}

int sg_blas_gemm_types(const struct sg_blas_core *core, cudaDataType ta, cudaDataType tb,
                       cudaDataType tc, cublasComputeType_t compute, struct sg_blas_gemm_args *a)
{
    enum sg_number in, out;
    if (ta != tb || !sg_blas_number(ta, &in) || !sg_blas_number(tc, &out)) {
        return 0;
    }
    int is_half = in == SG_F16 || in == SG_BF16;
    if (out != in && !(is_half && out == SG_F32)) {
        return 0;
    }
    a->type_ab = (int32_t)in;
    a->type_c = (int32_t)out;
    a->rate = in == SG_F64 ? core->card.fp64 : is_half ? core->card.half : 1;
    switch (compute) {
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
        a->type_scale = SG_F64;
        return in == SG_F64;
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC:
        a->type_scale = SG_F16;
        return in == SG_F16 && out == SG_F16;
    case CUBLAS_COMPUTE_32F_FAST_TF32:
        a->rate = in == SG_F32 ? core->card.tf32 : a->rate;
        break;
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
        a->rate = core->card.half;
        break;
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
        break;
    default:
        return 0;
    }
    a->type_scale = SG_F32;
    return in != SG_F64;
}

cublasStatus_t sg_blas_refuse_types(const char *call, cudaDataType a, cudaDataType b,
                                    cudaDataType c)
{
    fprintf(stderr, "libcublas (simulated): %s does not compute with types %d, %d, %d\n", call,
            (int)a, (int)b, (int)c);
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

#define ROW(status, text)                                                                          \
    {                                                                                              \
        status, #status, text                                                                      \
    }
static const struct {
    cublasStatus_t status;
    const char *name, *text;
} status_names[] = {
    ROW(CUBLAS_STATUS_SUCCESS, "success"),
    ROW(CUBLAS_STATUS_NOT_INITIALIZED, "the library was not initialized"),
    ROW(CUBLAS_STATUS_ALLOC_FAILED, "the resource allocation failed"),
    ROW(CUBLAS_STATUS_INVALID_VALUE, "an invalid value was passed as an argument"),
    ROW(CUBLAS_STATUS_ARCH_MISMATCH, "the device does not have the feature"),
    ROW(CUBLAS_STATUS_MAPPING_ERROR, "an access to device memory failed"),
    ROW(CUBLAS_STATUS_EXECUTION_FAILED, "the kernel could not be launched or failed"),
    ROW(CUBLAS_STATUS_INTERNAL_ERROR, "an internal operation failed"),
    ROW(CUBLAS_STATUS_NOT_SUPPORTED, "the functionality is not supported"),
    ROW(CUBLAS_STATUS_LICENSE_ERROR, "the functionality requires a license"),
};
#undef ROW

const char *sg_blas_status_name(cublasStatus_t status)
{
    for (size_t i = 0; i < sizeof status_names / sizeof *status_names; i++) {
        if (status_names[i].status == status) {
            return status_names[i].name;
        }
    }
    return "CUBLAS_STATUS_UNKNOWN";
}

const char *sg_blas_status_text(cublasStatus_t status)
{
    for (size_t i = 0; i < sizeof status_names / sizeof *status_names; i++) {
        if (status_names[i].status == status) {
            return status_names[i].text;
        }
    }
    return "unknown status";
}
