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

/* A matrix of a product as its elements lie, transposition already applied: element (i, j) of matrix
 * p of the batch is rs * i + cs * j + batch * p elements behind the first. */
struct sg_blas_matrix {
    int64_t rs, cs, batch;
};

/* What is done to an element of a product before it is stored, in this order. */
enum sg_blas_epilogue {
    SG_BLAS_BIAS = 1,      /* bias[i] is added */
    SG_BLAS_RELU = 2,      /* max(v, 0) ... */
    SG_BLAS_GELU = 4,      /* ... or GELU, in its form with tanh */
    SG_BLAS_AUX = 8,       /* and what is needed for its gradient goes to aux: bits or inputs */
    SG_BLAS_DRELU = 16,    /* times the gradient of either by what is in aux */
    SG_BLAS_DGELU = 32,
    SG_BLAS_BIAS_GRAD = 64, /* bias[i] = the sum of row i of the result */
    SG_BLAS_SUM_A = 128,   /* bias[i] = the sum of row i of op(A) */
    SG_BLAS_SUM_B = 256,   /* bias[j] = the sum of column j of op(B) */
};

/* D = epilogue(alpha op(A) op(B) + beta C) for each matrix of a batch; C may be D. */
struct sg_blas_gemm_args {
    uint64_t a, b, c, d, alpha, beta, bias, aux, work; /* alpha, beta: device addresses or 0 */
    double alpha_value, beta_value;
    double rate; /* peak of the arithmetic as a multiple of single precision's */
    struct sg_blas_matrix ma, mb, mc, md;
    int64_t aux_ld, aux_batch, bias_batch; /* elements; bits for the gradient of RELU */
    int64_t work_bytes;                    /* scratch in device memory */
    int32_t m, n, k, batch;
    int32_t type_ab, type_c, type_d, type_bias, type_aux, type_scale; /* enum sg_number */
    int32_t epilogue; /* of enum sg_blas_epilogue */
    int32_t tables;   /* 1: a, b, c, d are device arrays of pointers */
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
    int32_t n, incx, incy;
    int32_t type; /* enum sg_number, of the vectors and the result; reductions only */
};

/* X(identifier, name, parameter struct, leading pointers, functions' stem) */
#define SG_BLAS_KERNELS                                                                            \
    X(SGEMM, "ampere_sgemm_128x64_nn", sg_blas_gemm_args, 9, sg_blas_gemm)                          \
    X(SGEMM_TN, "ampere_sgemm_128x64_tn", sg_blas_gemm_args, 9, sg_blas_gemm)                       \
    X(SGEMM_NT, "ampere_sgemm_128x64_nt", sg_blas_gemm_args, 9, sg_blas_gemm)                       \
    X(SGEMM_TT, "ampere_sgemm_128x64_tt", sg_blas_gemm_args, 9, sg_blas_gemm)                       \
    X(DGEMM, "ampere_dgemm_64x64", sg_blas_gemm_args, 9, sg_blas_gemm)                              \
    X(HGEMM, "ampere_fp16_s16816gemm_fp16_128x64", sg_blas_gemm_args, 9, sg_blas_gemm)              \
    X(BGEMM, "ampere_bf16_s16816gemm_bf16_128x64", sg_blas_gemm_args, 9, sg_blas_gemm)            \
    X(GEMM_BATCHED, "gemmBatched_kernel", sg_blas_gemm_args, 9, sg_blas_gemm)                       \
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

/* The kernel that computes a product of these types and transpositions. */
enum sg_blas_kernel_id sg_blas_gemm_kernel(const struct sg_blas_gemm_args *a);

/* The kernels of products, in gemm_kernel.c. */
void sg_blas_gemm_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_blas_gemm_body(const struct simgpu_launch *l);
void sg_blas_gemm_cost(const struct simgpu_launch *l, struct simgpu_work *work);

#endif
