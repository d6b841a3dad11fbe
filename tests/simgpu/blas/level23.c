/* A matrix and vectors, and sums of matrices. */
#include "handle.h"

cublasStatus_t cublasSgemv_v2(cublasHandle_t handle, cublasOperation_t trans, int m, int n,
                              const float *alpha, const float *A, int lda, const float *x, int incx,
                              const float *beta, float *y, int incy)
{
    SG_BLAS_HANDLE(handle);
    SG_BLAS_NEED((unsigned)trans <= CUBLAS_OP_C && m >= 0 && n >= 0 && incx != 0 && incy != 0 &&
                 lda >= sg_max1(m) && alpha && beta);
    if (m == 0 || n == 0) {
        return CUBLAS_STATUS_SUCCESS;
    }
    struct sg_blas_gemv_args a = {sg_addr(A),
                                  sg_addr(x),
                                  sg_addr(y),
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
    SG_BLAS_NEED(m >= 0 && n >= 0 && incx != 0 && incy != 0 && lda >= sg_max1(m) && alpha);
    if (m == 0 || n == 0) {
        return CUBLAS_STATUS_SUCCESS;
    }
    struct sg_blas_ger_args a = {sg_addr(x), sg_addr(y), sg_addr(A),   .m = m,
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
    SG_BLAS_NEED(lda >= sg_max1(ta ? n : m) && ldb >= sg_max1(tb ? n : m) && ldc >= sg_max1(m) && alpha &&
                 beta);
    /* in place only without transposition, as documented */
    SG_BLAS_NEED((A != C || (!ta && lda == ldc)) && (B != C || (!tb && ldb == ldc)));
    if (m == 0 || n == 0) {
        return CUBLAS_STATUS_SUCCESS;
    }
    struct sg_blas_geam_args a = {sg_addr(A), sg_addr(B), sg_addr(C), .m = m,        .n = n,
                                  .lda = lda, .ldb = ldb, .ldc = ldc, .trans_a = ta, .trans_b = tb};
    sg_blas_scalar32(handle, alpha, &a.alpha_value, &a.alpha);
    sg_blas_scalar32(handle, beta, &a.beta_value, &a.beta);
    return sg_blas_launch(handle, SG_BK_GEAM, &a, (double)m * n);
}
