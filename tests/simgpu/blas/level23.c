/* Matrices. */
#include "handle.h"

#include <stdio.h>

static uint64_t addr_of(const void *p)
{
    return (uint64_t)(uintptr_t)p;
}

static int max1(int v)
{
    return v > 1 ? v : 1;
}

/* ---- products ---- */

static enum sg_blas_kernel_id gemm_kernel(const struct sg_blas_gemm_args *a)
{
    static const enum sg_blas_kernel_id single[2][2] = {{SG_BK_SGEMM, SG_BK_SGEMM_NT},
                                                        {SG_BK_SGEMM_TN, SG_BK_SGEMM_TT}};
    if (a->tables) {
        return SG_BK_GEMM_BATCHED;
    }
    return a->elem == 8 ? SG_BK_DGEMM : single[a->trans_a][a->trans_b];
}

/* Checks and launches a product whose operands and element size are already in `a`. */
static cublasStatus_t gemm(cublasHandle_t h, cublasOperation_t transa, cublasOperation_t transb,
                           int m, int n, int k, const void *alpha, int lda, int ldb,
                           const void *beta, int ldc, struct sg_blas_gemm_args *a)
{
    SG_BLAS_HANDLE(h);
    SG_BLAS_NEED((unsigned)transa <= CUBLAS_OP_C && (unsigned)transb <= CUBLAS_OP_C);
    SG_BLAS_NEED(m >= 0 && n >= 0 && k >= 0 && a->batch >= 0 && alpha && beta);
    a->trans_a = transa != CUBLAS_OP_N;
    a->trans_b = transb != CUBLAS_OP_N;
    SG_BLAS_NEED(lda >= max1(a->trans_a ? k : m) && ldb >= max1(a->trans_b ? n : k) &&
                 ldc >= max1(m));
    if (m == 0 || n == 0 || a->batch == 0) {
        return CUBLAS_STATUS_SUCCESS;
    }
    if (h->pointer_mode == CUBLAS_POINTER_MODE_DEVICE) {
        a->alpha = addr_of(alpha);
        a->beta = addr_of(beta);
    } else if (a->elem == 8) {
        a->alpha_value = *(const double *)alpha;
        a->beta_value = *(const double *)beta;
    } else {
        a->alpha_value = (double)*(const float *)alpha;
        a->beta_value = (double)*(const float *)beta;
    }
    a->m = m;
    a->n = n;
    a->k = k;
    a->lda = lda;
    a->ldb = ldb;
    a->ldc = ldc;
    return sg_blas_launch(h, gemm_kernel(a), a, (double)m * n * a->batch / 8);
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t transa,
                              cublasOperation_t transb, int m, int n, int k, const float *alpha,
                              const float *A, int lda, const float *B, int ldb, const float *beta,
                              float *C, int ldc)
{
    struct sg_blas_gemm_args a = {addr_of(A), addr_of(B), addr_of(C), .batch = 1, .elem = 4};
    return gemm(handle, transa, transb, m, n, k, alpha, lda, ldb, beta, ldc, &a);
}

cublasStatus_t cublasDgemm_v2(cublasHandle_t handle, cublasOperation_t transa,
                              cublasOperation_t transb, int m, int n, int k, const double *alpha,
                              const double *A, int lda, const double *B, int ldb,
                              const double *beta, double *C, int ldc)
{
    struct sg_blas_gemm_args a = {addr_of(A), addr_of(B), addr_of(C), .batch = 1, .elem = 8};
    return gemm(handle, transa, transb, m, n, k, alpha, lda, ldb, beta, ldc, &a);
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t transa,
                                         cublasOperation_t transb, int m, int n, int k,
                                         const float *alpha, const float *A, int lda,
                                         long long int strideA, const float *B, int ldb,
                                         long long int strideB, const float *beta, float *C,
                                         int ldc, long long int strideC, int batchCount)
{
    struct sg_blas_gemm_args a = {
        addr_of(A),          addr_of(B),          addr_of(C),          .stride_a = strideA,
        .stride_b = strideB, .stride_c = strideC, .batch = batchCount, .elem = 4};
    return gemm(handle, transa, transb, m, n, k, alpha, lda, ldb, beta, ldc, &a);
}

cublasStatus_t cublasSgemmBatched(cublasHandle_t handle, cublasOperation_t transa,
                                  cublasOperation_t transb, int m, int n, int k, const float *alpha,
                                  const float *const Aarray[], int lda, const float *const Barray[],
                                  int ldb, const float *beta, float *const Carray[], int ldc,
                                  int batchCount)
{
    struct sg_blas_gemm_args a = {addr_of(Aarray),     addr_of(Barray), addr_of(Carray),
                                  .batch = batchCount, .elem = 4,       .tables = 1};
    return gemm(handle, transa, transb, m, n, k, alpha, lda, ldb, beta, ldc, &a);
}

/* Bytes of the one type that all operands and the computation share; 0 where we do not compute it.
 */
static int32_t common_type(const char *call, cudaDataType ta, cudaDataType tb, cudaDataType tc,
                           cublasComputeType_t compute)
{
    if (ta == CUDA_R_32F && tb == ta && tc == ta && compute != CUBLAS_COMPUTE_64F) {
        return 4;
    }
    if (ta == CUDA_R_64F && tb == ta && tc == ta &&
        (compute == CUBLAS_COMPUTE_64F || compute == CUBLAS_COMPUTE_64F_PEDANTIC)) {
        return 8;
    }
    fprintf(stderr,
            "libcublas (simulated): %s computes fp32 or fp64 throughout, not types %d, %d, %d\n",
            call, (int)ta, (int)tb, (int)tc);
    return 0;
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                          cublasOperation_t transb, int m, int n, int k,
                                          const void *alpha, const void *A, cudaDataType Atype,
                                          int lda, long long int strideA, const void *B,
                                          cudaDataType Btype, int ldb, long long int strideB,
                                          const void *beta, void *C, cudaDataType Ctype, int ldc,
                                          long long int strideC, int batchCount,
                                          cublasComputeType_t computeType, cublasGemmAlgo_t algo)
{
    struct sg_blas_gemm_args a = {addr_of(A),          addr_of(B),          addr_of(C),
                                  .stride_a = strideA, .stride_b = strideB, .stride_c = strideC,
                                  .batch = batchCount};
    a.elem = common_type(__func__, Atype, Btype, Ctype, computeType);
    if (!a.elem) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    return gemm(handle, transa, transb, m, n, k, alpha, lda, ldb, beta, ldc, &a);
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                            cublasOperation_t transb, int m, int n, int k, const void *alpha,
                            const void *A, cudaDataType Atype, int lda, const void *B,
                            cudaDataType Btype, int ldb, const void *beta, void *C,
                            cudaDataType Ctype, int ldc, cublasComputeType_t computeType,
                            cublasGemmAlgo_t algo)
{
    return cublasGemmStridedBatchedEx(handle, transa, transb, m, n, k, alpha, A, Atype, lda, 0, B,
                                      Btype, ldb, 0, beta, C, Ctype, ldc, 0, 1, computeType, algo);
}

/* ---- matrix and vectors ---- */

cublasStatus_t cublasSgemv_v2(cublasHandle_t handle, cublasOperation_t trans, int m, int n,
                              const float *alpha, const float *A, int lda, const float *x, int incx,
                              const float *beta, float *y, int incy)
{
    SG_BLAS_HANDLE(handle);
    SG_BLAS_NEED((unsigned)trans <= CUBLAS_OP_C && m >= 0 && n >= 0 && incx != 0 && incy != 0 &&
                 lda >= max1(m) && alpha && beta);
    if (m == 0 || n == 0) {
        return CUBLAS_STATUS_SUCCESS;
    }
    struct sg_blas_gemv_args a = {addr_of(A),
                                  addr_of(x),
                                  addr_of(y),
                                  .m = m,
                                  .n = n,
                                  .lda = lda,
                                  .trans = trans != CUBLAS_OP_N,
                                  .incx = incx,
                                  .incy = incy};
    sg_blas_scalar32(handle, alpha, &a.alpha_value, &a.alpha);
    sg_blas_scalar32(handle, beta, &a.beta_value, &a.beta);
    return sg_blas_launch(handle, SG_BK_GEMV, &a, 32.0 * (a.trans ? n : m));
}

cublasStatus_t cublasSger_v2(cublasHandle_t handle, int m, int n, const float *alpha,
                             const float *x, int incx, const float *y, int incy, float *A, int lda)
{
    SG_BLAS_HANDLE(handle);
    SG_BLAS_NEED(m >= 0 && n >= 0 && incx != 0 && incy != 0 && lda >= max1(m) && alpha);
    if (m == 0 || n == 0) {
        return CUBLAS_STATUS_SUCCESS;
    }
    struct sg_blas_ger_args a = {addr_of(x), addr_of(y), addr_of(A),   .m = m,
                                 .n = n,     .lda = lda, .incx = incx, .incy = incy};
    sg_blas_scalar32(handle, alpha, &a.alpha_value, &a.alpha);
    return sg_blas_launch(handle, SG_BK_GER, &a, (double)m * n);
}

cublasStatus_t cublasSgeam(cublasHandle_t handle, cublasOperation_t transa,
                           cublasOperation_t transb, int m, int n, const float *alpha,
                           const float *A, int lda, const float *beta, const float *B, int ldb,
                           float *C, int ldc)
{
    SG_BLAS_HANDLE(handle);
    int ta = transa != CUBLAS_OP_N, tb = transb != CUBLAS_OP_N;
    SG_BLAS_NEED((unsigned)transa <= CUBLAS_OP_C && (unsigned)transb <= CUBLAS_OP_C && m >= 0 &&
                 n >= 0);
    SG_BLAS_NEED(lda >= max1(ta ? n : m) && ldb >= max1(tb ? n : m) && ldc >= max1(m) && alpha &&
                 beta);
    /* in place only without transposition, as documented */
    SG_BLAS_NEED((A != C || (!ta && lda == ldc)) && (B != C || (!tb && ldb == ldc)));
    if (m == 0 || n == 0) {
        return CUBLAS_STATUS_SUCCESS;
    }
    struct sg_blas_geam_args a = {addr_of(A), addr_of(B), addr_of(C), .m = m,        .n = n,
                                  .lda = lda, .ldb = ldb, .ldc = ldc, .trans_a = ta, .trans_b = tb};
    sg_blas_scalar32(handle, alpha, &a.alpha_value, &a.alpha);
    sg_blas_scalar32(handle, beta, &a.beta_value, &a.beta);
    return sg_blas_launch(handle, SG_BK_GEAM, &a, (double)m * n);
}
