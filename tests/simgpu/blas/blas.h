/* blas.h: the kernels of the simulated cuBLAS and what its files share.
 *
 * Matrices are column-major with a leading dimension, as in BLAS. Scalars come by value, or from
 * device memory where the handle's pointer mode says so (then the kernel reads them when it
 * executes).
 */
#ifndef SG_BLAS_H
#define SG_BLAS_H

#include <stdint.h>
#include "simgpu.h"

/* C = alpha op(A) op(B) + beta C for each matrix of a batch. */
struct sg_blas_gemm_args {
    uint64_t a, b, c, alpha, beta; /* alpha, beta: device addresses or 0 */
    double alpha_value, beta_value;
    int64_t stride_a, stride_b, stride_c; /* elements from one matrix of the batch to the next */
    int32_t m, n, k, lda, ldb, ldc;
    int32_t trans_a, trans_b;
    int32_t batch;
    int32_t elem;   /* 4 or 8 bytes */
    int32_t tables; /* 1: a, b, c are device arrays of pointers */
    int32_t unused;
};

/* y = alpha op(A) x + beta y */
struct sg_blas_gemv_args {
    uint64_t a, x, y, alpha, beta;
    float alpha_value, beta_value;
    int32_t m, n, lda, trans, incx, incy;
};

/* A = alpha x y' + A */
struct sg_blas_ger_args {
    uint64_t x, y, a, alpha;
    float alpha_value;
    int32_t m, n, lda, incx, incy;
};

/* C = alpha op(A) + beta op(B) */
struct sg_blas_geam_args {
    uint64_t a, b, c, alpha, beta;
    float alpha_value, beta_value;
    int32_t m, n, lda, ldb, ldc, trans_a, trans_b, unused;
};

enum sg_blas_vector_op {
    SG_BLAS_AXPY, /* y = alpha x + y  */
    SG_BLAS_SCAL, /* x = alpha x      */
    SG_BLAS_COPY, /* y = x            */
    SG_BLAS_SWAP, /* x, y = y, x      */
    SG_BLAS_DOT,  /* result = x'y     */
    SG_BLAS_ASUM, /* result = sum |x| */
    SG_BLAS_NRM2, /* result = sqrt(x'x) */
};

struct sg_blas_vector_args {
    uint64_t x, y, alpha, result;
    float alpha_value;
    int32_t op; /* enum sg_blas_vector_op */
    int32_t n, incx, incy, unused;
};

/* X(identifier, name, parameter struct, leading pointers, functions' stem) */
#define SG_BLAS_KERNELS                                                                            \
    X(SGEMM, "ampere_sgemm_128x64_nn", sg_blas_gemm_args, 5, sg_blas_gemm)                         \
    X(SGEMM_TN, "ampere_sgemm_128x64_tn", sg_blas_gemm_args, 5, sg_blas_gemm)                      \
    X(SGEMM_NT, "ampere_sgemm_128x64_nt", sg_blas_gemm_args, 5, sg_blas_gemm)                      \
    X(SGEMM_TT, "ampere_sgemm_128x64_tt", sg_blas_gemm_args, 5, sg_blas_gemm)                      \
    X(DGEMM, "ampere_dgemm_64x64", sg_blas_gemm_args, 5, sg_blas_gemm)                             \
    X(GEMM_BATCHED, "gemmBatched_kernel", sg_blas_gemm_args, 5, sg_blas_gemm)                      \
    X(GEMV, "gemv2N_kernel", sg_blas_gemv_args, 5, sg_blas_gemv)                                   \
    X(GER, "ger_kernel", sg_blas_ger_args, 4, sg_blas_ger)                                         \
    X(GEAM, "geam_kernel", sg_blas_geam_args, 5, sg_blas_geam)                                     \
    X(AXPY, "axpy_kernel_val", sg_blas_vector_args, 4, sg_blas_vector)                             \
    X(SCAL, "scal_kernel_val", sg_blas_vector_args, 4, sg_blas_vector)                             \
    X(COPY, "copy_kernel", sg_blas_vector_args, 4, sg_blas_vector)                                 \
    X(SWAP, "swap_kernel", sg_blas_vector_args, 4, sg_blas_vector)                                 \
    X(DOT, "dot_kernel", sg_blas_vector_args, 4, sg_blas_vector)                                   \
    X(ASUM, "asum_kernel", sg_blas_vector_args, 4, sg_blas_vector)                                 \
    X(NRM2, "nrm2_kernel", sg_blas_vector_args, 4, sg_blas_vector)

enum sg_blas_kernel_id {
#define X(id, ...) SG_BK_##id,
    SG_BLAS_KERNELS
#undef X
        SG_BK_COUNT
};

extern const struct simgpu_image sg_blas_image;

#endif
