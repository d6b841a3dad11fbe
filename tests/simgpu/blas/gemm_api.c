/* Products of matrices. */
#include "handle.h"

/* The operands and sizes of a call, as all of the calls below have them. */
struct product {
    cublasOperation_t transa, transb;
    int m, n, k, lda, ldb, ldc, batch;
    const void *alpha, *beta;
};

static struct sg_blas_matrix operand(cublasOperation_t trans, int ld, long long batch)
{
    return trans == CUBLAS_OP_N ? (struct sg_blas_matrix){1, ld, batch}
                                : (struct sg_blas_matrix){ld, 1, batch};
}

/* Checks and launches a product whose operands, types and batch strides are already in `a`. */
static cublasStatus_t gemm(cublasHandle_t h, const struct product *p, struct sg_blas_gemm_args *a)
{
    SG_BLAS_HANDLE(h);
    SG_BLAS_NEED((unsigned)p->transa <= CUBLAS_OP_C && (unsigned)p->transb <= CUBLAS_OP_C);
    SG_BLAS_NEED(p->m >= 0 && p->n >= 0 && p->k >= 0 && p->batch >= 0 && p->alpha && p->beta);
    SG_BLAS_NEED(p->lda >= sg_max1(p->transa != CUBLAS_OP_N ? p->k : p->m) &&
                 p->ldb >= sg_max1(p->transb != CUBLAS_OP_N ? p->n : p->k) &&
                 p->ldc >= sg_max1(p->m));
    if (p->m == 0 || p->n == 0 || p->batch == 0) {
        return CUBLAS_STATUS_SUCCESS;
    }
    if (h->pointer_mode == CUBLAS_POINTER_MODE_DEVICE) {
        a->alpha = sg_addr(p->alpha);
        a->beta = sg_addr(p->beta);
    } else {
        a->alpha_value = sg_number_load((enum sg_number)a->type_scale, p->alpha, 0);
        a->beta_value = sg_number_load((enum sg_number)a->type_scale, p->beta, 0);
    }
    a->m = p->m;
    a->n = p->n;
    a->k = p->k;
    a->batch = p->batch;
    a->ma = operand(p->transa, p->lda, a->ma.batch);
    a->mb = operand(p->transb, p->ldb, a->mb.batch);
    a->mc = operand(CUBLAS_OP_N, p->ldc, a->mc.batch);
    a->md = a->mc;
    a->d = a->c;
    a->type_d = a->type_c;
    if (a->type_ab == SG_F32 && a->rate == 1 && h->math_mode == CUBLAS_TF32_TENSOR_OP_MATH) {
        a->rate = h->core.card.tf32;
    }
    return sg_blas_launch(h, sg_blas_gemm_kernel(a), a, (double)p->m * p->n * p->batch / 8);
}

/* For the calls of one type. */
static struct sg_blas_gemm_args uniform(cublasHandle_t h, enum sg_number type)
{
    return (struct sg_blas_gemm_args){.type_ab = (int32_t)type,
                                      .type_c = (int32_t)type,
                                      .type_scale = (int32_t)type,
                                      .rate = h && type == SG_F64 ? h->core.card.fp64 : 1};
}

/* The calls of one type: X(letter, C type, format). */
#define TYPES(X)                                                                                   \
    X(S, float, SG_F32)                                                                            \
    X(D, double, SG_F64)

#define STRIDED_BATCHED(letter, type, number)                                                      \
    cublasStatus_t cublas##letter##gemmStridedBatched(                                             \
        cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,   \
        int k, const type *alpha, const type *A, int lda, long long int strideA, const type *B,    \
        int ldb, long long int strideB, const type *beta, type *C, int ldc, long long int strideC, \
        int batchCount)                                                                            \
    {                                                                                              \
        struct product p = {transa, transb, m, n, k, lda, ldb, ldc, batchCount, alpha, beta};      \
        struct sg_blas_gemm_args a = uniform(handle, number);                                              \
        a.a = sg_addr(A);                                                                          \
        a.b = sg_addr(B);                                                                          \
        a.c = sg_addr(C);                                                                          \
        a.ma.batch = strideA;                                                                      \
        a.mb.batch = strideB;                                                                      \
        a.mc.batch = strideC;                                                                      \
        return gemm(handle, &p, &a);                                                               \
    }
TYPES(STRIDED_BATCHED)

#define SINGLE(name, letter, type)                                                                 \
    cublasStatus_t name(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, \
                        int m, int n, int k, const type *alpha, const type *A, int lda,            \
                        const type *B, int ldb, const type *beta, type *C, int ldc)                \
    {                                                                                              \
        return cublas##letter##gemmStridedBatched(handle, transa, transb, m, n, k, alpha, A, lda,  \
                                                  0, B, ldb, 0, beta, C, ldc, 0, 1);               \
    }
SINGLE(cublasSgemm_v2, S, float)
SINGLE(cublasDgemm_v2, D, double)

#define BATCHED(letter, type, number)                                                              \
    cublasStatus_t cublas##letter##gemmBatched(                                                    \
        cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n,   \
        int k, const type *alpha, const type *const Aarray[], int lda, const type *const Barray[], \
        int ldb, const type *beta, type *const Carray[], int ldc, int batchCount)                  \
    {                                                                                              \
        struct product p = {transa, transb, m, n, k, lda, ldb, ldc, batchCount, alpha, beta};      \
        struct sg_blas_gemm_args a = uniform(handle, number);                                              \
        a.a = sg_addr(Aarray);                                                                     \
        a.b = sg_addr(Barray);                                                                     \
        a.c = sg_addr(Carray);                                                                     \
        a.tables = 1;                                                                              \
        return gemm(handle, &p, &a);                                                               \
    }
TYPES(BATCHED)

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                          cublasOperation_t transb, int m, int n, int k,
                                          const void *alpha, const void *A, cudaDataType Atype,
                                          int lda, long long int strideA, const void *B,
                                          cudaDataType Btype, int ldb, long long int strideB,
                                          const void *beta, void *C, cudaDataType Ctype, int ldc,
                                          long long int strideC, int batchCount,
                                          cublasComputeType_t computeType, cublasGemmAlgo_t algo)
{
    struct product p = {transa, transb, m, n, k, lda, ldb, ldc, batchCount, alpha, beta};
    struct sg_blas_gemm_args a = {sg_addr(A),           sg_addr(B),           sg_addr(C),
                                  .ma.batch = strideA, .mb.batch = strideB, .mc.batch = strideC};
    SG_BLAS_HANDLE(handle);
    if (!sg_blas_gemm_types(&handle->core, Atype, Btype, Ctype, computeType, &a)) {
        return sg_blas_refuse_types(__func__, Atype, Btype, Ctype);
    }
    return gemm(handle, &p, &a);
}

cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t transa,
                                   cublasOperation_t transb, int m, int n, int k, const void *alpha,
                                   const void *const Aarray[], cudaDataType Atype, int lda,
                                   const void *const Barray[], cudaDataType Btype, int ldb,
                                   const void *beta, void *const Carray[], cudaDataType Ctype,
                                   int ldc, int batchCount, cublasComputeType_t computeType,
                                   cublasGemmAlgo_t algo)
{
    struct product p = {transa, transb, m, n, k, lda, ldb, ldc, batchCount, alpha, beta};
    struct sg_blas_gemm_args a = {sg_addr(Aarray), sg_addr(Barray), sg_addr(Carray), .tables = 1};
    SG_BLAS_HANDLE(handle);
    if (!sg_blas_gemm_types(&handle->core, Atype, Btype, Ctype, computeType, &a)) {
        return sg_blas_refuse_types(__func__, Atype, Btype, Ctype);
    }
    return gemm(handle, &p, &a);
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

cublasStatus_t cublasSgemmEx(cublasHandle_t handle, cublasOperation_t transa,
                             cublasOperation_t transb, int m, int n, int k, const float *alpha,
                             const void *A, cudaDataType Atype, int lda, const void *B,
                             cudaDataType Btype, int ldb, const float *beta, void *C,
                             cudaDataType Ctype, int ldc)
{
    return cublasGemmEx(handle, transa, transb, m, n, k, alpha, A, Atype, lda, B, Btype, ldb, beta,
                        C, Ctype, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

/* Element 0 of a vector of n doubles whose increment may be negative. */
static uint64_t vector_start(const double *x, int n, int inc)
{
    return sg_addr(x) + (inc < 0 ? (uint64_t)((int64_t)(1 - n) * inc) * sizeof *x : 0);
}

/* The vectors as matrices of one column. */
cublasStatus_t cublasDgemv_v2(cublasHandle_t handle, cublasOperation_t trans, int m, int n,
                              const double *alpha, const double *A, int lda, const double *x,
                              int incx, const double *beta, double *y, int incy)
{
    SG_BLAS_HANDLE(handle);
    SG_BLAS_NEED((unsigned)trans <= CUBLAS_OP_C && m >= 0 && n >= 0 && incx != 0 && incy != 0 &&
                 lda >= sg_max1(m) && alpha && beta);
    int rows = trans == CUBLAS_OP_N ? m : n, inner = trans == CUBLAS_OP_N ? n : m;
    if (m == 0 || n == 0) {
        return CUBLAS_STATUS_SUCCESS;
    }
    struct sg_blas_gemm_args a = uniform(handle, SG_F64);
    int device = handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE;
    a.a = sg_addr(A);
    a.b = vector_start(x, inner, incx);
    a.c = a.d = vector_start(y, rows, incy);
    a.ma = operand(trans, lda, 0);
    a.mb = (struct sg_blas_matrix){incx, 1, 0};
    a.mc = a.md = (struct sg_blas_matrix){incy, 1, 0};
    a.type_d = a.type_c;
    a.m = rows;
    a.n = 1;
    a.k = inner;
    a.batch = 1;
    a.alpha = device ? sg_addr(alpha) : 0;
    a.beta = device ? sg_addr(beta) : 0;
    a.alpha_value = device ? 0 : *alpha;
    a.beta_value = device ? 0 : *beta;
    return sg_blas_launch(handle, SG_BK_DGEMM, &a, 32.0 * rows);
}
