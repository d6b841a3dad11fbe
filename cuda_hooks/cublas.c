/* cuBLAS calls (cublas.def). Matrices are column-major: `ld` elements from column to column. */
#include <cublas_api.h>

#include "library.h"

#include <stdlib.h>

static const char *const sonames[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11",
                                      NULL};
static const struct vm_library cublas = {sonames};

/* What cuda_fp16.h calls __half in C++; cuBLAS declares its functions on it for C++ only. */
typedef struct {
    uint16_t bits;
} half_bits;

/* ---- extents ----------------------------------------------------------------------------------*/

struct scalars {
    bool on_host; /* the handle's pointer mode */
};

static struct scalars scalars_of(const void *caller, cublasHandle_t handle)
{
    typedef cublasStatus_t (*mode_fn)(cublasHandle_t, cublasPointerMode_t *);
    VM_LIBRARY_SLOT(slot);
    mode_fn get = (mode_fn)vm_library_real(&cublas, &slot, "cublasGetPointerMode_v2", caller);
    cublasPointerMode_t mode = CUBLAS_POINTER_MODE_DEVICE;
    return (struct scalars){get && get(handle, &mode) == CUBLAS_STATUS_SUCCESS &&
                            mode == CUBLAS_POINTER_MODE_HOST};
}

/* A scalar that the call reads; true when it is known to be zero. */
static bool scalar(struct vm_libcall *call, struct scalars s, const void *p, size_t bytes)
{
    if (s.on_host)
        return vm_library_zero(p, bytes);
    vm_library_touch(call, p, bytes, VM_READ, VM_ROLE_NONE);
    return false;
}

/* A scalar that the call writes: device memory in device mode only. */
static void result(struct vm_libcall *call, struct scalars s, void *p, size_t bytes)
{
    if (!s.on_host)
        vm_library_touch(call, p, bytes, VM_WRITE | VM_TOTAL, VM_ROLE_NONE);
}

struct matrix {
    size_t bytes;
    bool packed;
};

static struct matrix matrix_of(int rows, int cols, int ld, size_t element)
{
    struct matrix m = {0, rows == ld};
    if (rows > 0 && cols > 0 && ld >= rows)
        m.bytes = ((size_t)(cols - 1) * (size_t)ld + (size_t)rows) * element;
    return m;
}

/* `count` matrices, `stride` elements apart. */
static struct matrix batch_of(struct matrix m, long long stride, int count, size_t element)
{
    if (m.bytes && count > 1 && stride >= 0) {
        m.packed = m.packed && (size_t)stride * element == m.bytes;
        m.bytes += (size_t)(count - 1) * (size_t)stride * element;
    }
    return m;
}

static size_t vector_bytes(int n, int inc, size_t element)
{
    return n > 0 ? (1 + (size_t)(n - 1) * (size_t)abs(inc)) * element : 0;
}

static void reads(struct vm_libcall *call, const void *p, size_t bytes)
{
    if (bytes)
        vm_library_touch(call, p, bytes, VM_READ, VM_ROLE_NONE);
}

/* Written; read as well unless `fresh`; total when it is also packed. */
static void writes(struct vm_libcall *call, void *p, struct matrix m, bool fresh)
{
    if (m.bytes)
        vm_library_touch(call, p, m.bytes,
                         !fresh     ? VM_RW
                         : m.packed ? VM_WRITE | VM_TOTAL
                                    : VM_WRITE,
                         VM_ROLE_NONE);
}

/* The parts of a product, with types where the family has them as arguments. */
struct product {
    int m, n, k, lda, ldb, ldc, count;
    long long stride_a, stride_b, stride_c;
    bool ta, tb;
    size_t ea, eb, ec, scalar;
};

static void product(struct vm_libcall *call, struct scalars s, const struct product *p,
                    const void *alpha, const void *A, const void *B, const void *beta, void *C)
{
    struct matrix a = matrix_of(p->ta ? p->k : p->m, p->ta ? p->m : p->k, p->lda, p->ea);
    struct matrix b = matrix_of(p->tb ? p->n : p->k, p->tb ? p->k : p->n, p->ldb, p->eb);
    struct matrix c = matrix_of(p->m, p->n, p->ldc, p->ec);
    scalar(call, s, alpha, p->scalar);
    bool fresh = scalar(call, s, beta, p->scalar);
    reads(call, A, batch_of(a, p->stride_a, p->count, p->ea).bytes);
    reads(call, B, batch_of(b, p->stride_b, p->count, p->eb).bytes);
    writes(call, C, batch_of(c, p->stride_c, p->count, p->ec), fresh);
    if (fresh)
        call->flags |= VM_OPF_PURE;
}

/* 0 for a type that is not known here: its operand then counts as not named. */
static size_t type_bytes(cudaDataType type)
{
    switch ((int)type) {
    case CUDA_R_8I:
    case CUDA_R_8U:
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2:
        return 1;
    case CUDA_R_16F:
    case CUDA_R_16BF:
        return 2;
    case CUDA_R_32F:
    case CUDA_R_32I:
    case CUDA_C_16F:
    case CUDA_C_16BF:
        return 4;
    case CUDA_R_64F:
    case CUDA_C_32F:
        return 8;
    case CUDA_C_64F:
        return 16;
    default:
        return 0;
    }
}

static size_t scale_bytes(cublasComputeType_t compute, cudaDataType c)
{
    size_t bytes = compute == CUBLAS_COMPUTE_16F || compute == CUBLAS_COMPUTE_16F_PEDANTIC   ? 2
                   : compute == CUBLAS_COMPUTE_64F || compute == CUBLAS_COMPUTE_64F_PEDANTIC ? 8
                                                                                             : 4;
    return c == CUDA_C_32F || c == CUDA_C_64F ? 2 * bytes : bytes;
}

/* ---- wrappers ---------------------------------------------------------------------------------*/

#define WRAP(function, layer, params, args, ...)                                                   \
    VM_EXPORT cublasStatus_t function params;                                                      \
    VM_EXPORT cublasStatus_t function params                                                       \
    {                                                                                              \
        VM_LIBRARY_SLOT(slot);                                                                     \
        const void *caller = __builtin_return_address(0);                                          \
        cublasStatus_t(*real) params =                                                             \
            (cublasStatus_t(*) params)vm_library_real(&cublas, &slot, #function, caller);          \
        struct vm_libcall call;                                                                    \
        if (!real)                                                                                 \
            return CUBLAS_STATUS_NOT_INITIALIZED;                                                  \
        if (!vm_library_begin(&call, #function, VM_LAYER_##layer, 0))                              \
            return real args;                                                                      \
        struct scalars s = scalars_of(caller, handle);                                             \
        __VA_ARGS__                                                                                \
        vm_library_issue();                                                                        \
        cublasStatus_t status = real args;                                                         \
        vm_library_end(&call);                                                                     \
        return status;                                                                             \
    }

#define VM_GEMM(function, type)                                                                    \
    WRAP(function, GEMM,                                                                           \
         (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, \
          int k, const type *alpha, const type *A, int lda, const type *B, int ldb,                \
          const type *beta, type *C, int ldc),                                                     \
         (handle, transa, transb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc),                   \
         const struct product p = {m, n, k, lda, ldb, ldc, 1, 0, 0, 0, transa != CUBLAS_OP_N,      \
                                   transb != CUBLAS_OP_N, sizeof(type), sizeof(type),              \
                                   sizeof(type), sizeof(type)};                                    \
         product(&call, s, &p, alpha, A, B, beta, C);)

#define VM_GEMM_BATCHED(function, type)                                                            \
    WRAP(function, GEMM,                                                                           \
         (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, \
          int k, const type *alpha, const type *A, int lda, long long strideA, const type *B,      \
          int ldb, long long strideB, const type *beta, type *C, int ldc, long long strideC,       \
          int batchCount),                                                                         \
         (handle, transa, transb, m, n, k, alpha, A, lda, strideA, B, ldb, strideB, beta, C, ldc,  \
          strideC, batchCount),                                                                    \
         const struct product p = {m, n, k, lda, ldb, ldc, batchCount, strideA, strideB, strideC,  \
                                   transa != CUBLAS_OP_N, transb != CUBLAS_OP_N, sizeof(type),     \
                                   sizeof(type), sizeof(type), sizeof(type)};                      \
         product(&call, s, &p, alpha, A, B, beta, C);)

#define VM_GEMM_EX(function)                                                                       \
    WRAP(function, GEMM,                                                                           \
         (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, \
          int k, const void *alpha, const void *A, cudaDataType Atype, int lda, const void *B,     \
          cudaDataType Btype, int ldb, const void *beta, void *C, cudaDataType Ctype, int ldc,     \
          cublasComputeType_t computeType, cublasGemmAlgo_t algo),                                 \
         (handle, transa, transb, m, n, k, alpha, A, Atype, lda, B, Btype, ldb, beta, C, Ctype,    \
          ldc, computeType, algo),                                                                 \
         const struct product p = {m, n, k, lda, ldb, ldc, 1, 0, 0, 0, transa != CUBLAS_OP_N,      \
                                   transb != CUBLAS_OP_N, type_bytes(Atype), type_bytes(Btype),    \
                                   type_bytes(Ctype), scale_bytes(computeType, Ctype)};            \
         product(&call, s, &p, alpha, A, B, beta, C);)

#define VM_GEMM_BATCHED_EX(function)                                                               \
    WRAP(function, GEMM,                                                                           \
         (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, \
          int k, const void *alpha, const void *A, cudaDataType Atype, int lda, long long strideA, \
          const void *B, cudaDataType Btype, int ldb, long long strideB, const void *beta,         \
          void *C, cudaDataType Ctype, int ldc, long long strideC, int batchCount,                 \
          cublasComputeType_t computeType, cublasGemmAlgo_t algo),                                 \
         (handle, transa, transb, m, n, k, alpha, A, Atype, lda, strideA, B, Btype, ldb, strideB,  \
          beta, C, Ctype, ldc, strideC, batchCount, computeType, algo),                            \
         const struct product p = {m, n, k, lda, ldb, ldc, batchCount, strideA, strideB, strideC,  \
                                   transa != CUBLAS_OP_N, transb != CUBLAS_OP_N,                   \
                                   type_bytes(Atype), type_bytes(Btype), type_bytes(Ctype),        \
                                   scale_bytes(computeType, Ctype)};                               \
         product(&call, s, &p, alpha, A, B, beta, C);)

#define VM_GEMV(function, type)                                                                    \
    WRAP(function, GEMM,                                                                           \
         (cublasHandle_t handle, cublasOperation_t trans, int m, int n, const type *alpha,         \
          const type *A, int lda, const type *x, int incx, const type *beta, type *y, int incy),   \
         (handle, trans, m, n, alpha, A, lda, x, incx, beta, y, incy),                             \
         const int nx = trans == CUBLAS_OP_N ? n : m, ny = trans == CUBLAS_OP_N ? m : n;           \
         scalar(&call, s, alpha, sizeof(type));                                                    \
         const bool fresh = scalar(&call, s, beta, sizeof(type));                                  \
         const struct matrix out = {vector_bytes(ny, incy, sizeof(type)), abs(incy) == 1};         \
         reads(&call, A, matrix_of(m, n, lda, sizeof(type)).bytes);                                \
         reads(&call, x, vector_bytes(nx, incx, sizeof(type))); writes(&call, y, out, fresh);)

#define VM_GER(function, type)                                                                     \
    WRAP(function, GEMM,                                                                           \
         (cublasHandle_t handle, int m, int n, const type *alpha, const type *x, int incx,         \
          const type *y, int incy, type *A, int lda),                                              \
         (handle, m, n, alpha, x, incx, y, incy, A, lda), scalar(&call, s, alpha, sizeof(type));   \
         reads(&call, x, vector_bytes(m, incx, sizeof(type)));                                     \
         reads(&call, y, vector_bytes(n, incy, sizeof(type)));                                     \
         writes(&call, A, matrix_of(m, n, lda, sizeof(type)), false);)

#define VM_GEAM(function, type)                                                                    \
    WRAP(function, ELEMENTWISE,                                                                    \
         (cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, \
          const type *alpha, const type *A, int lda, const type *beta, const type *B, int ldb,     \
          type *C, int ldc),                                                                       \
         (handle, transa, transb, m, n, alpha, A, lda, beta, B, ldb, C, ldc),                      \
         const bool ta = transa != CUBLAS_OP_N, tb = transb != CUBLAS_OP_N;                        \
         scalar(&call, s, alpha, sizeof(type)); scalar(&call, s, beta, sizeof(type));              \
         reads(&call, A, matrix_of(ta ? n : m, ta ? m : n, lda, sizeof(type)).bytes);              \
         reads(&call, B, matrix_of(tb ? n : m, tb ? m : n, ldb, sizeof(type)).bytes);              \
         writes(&call, C, matrix_of(m, n, ldc, sizeof(type)), true); call.flags |= VM_OPF_PURE;)

#define VM_AXPY(function, type)                                                                    \
    WRAP(function, ELEMENTWISE,                                                                    \
         (cublasHandle_t handle, int n, const type *alpha, const type *x, int incx, type *y,       \
          int incy),                                                                               \
         (handle, n, alpha, x, incx, y, incy),                                                     \
         const struct matrix out = {vector_bytes(n, incy, sizeof(type)), true};                    \
         scalar(&call, s, alpha, sizeof(type));                                                    \
         reads(&call, x, vector_bytes(n, incx, sizeof(type))); writes(&call, y, out, false);)

#define VM_SCAL(function, scale, type)                                                             \
    WRAP(function, ELEMENTWISE,                                                                    \
         (cublasHandle_t handle, int n, const scale *alpha, type *x, int incx),                    \
         (handle, n, alpha, x, incx),                                                              \
         const struct matrix out = {vector_bytes(n, incx, sizeof(type)), true};                    \
         scalar(&call, s, alpha, sizeof(scale)); writes(&call, x, out, false);)

#define VM_COPY(function, type)                                                                    \
    WRAP(function, ELEMENTWISE,                                                                    \
         (cublasHandle_t handle, int n, const type *x, int incx, type *y, int incy),               \
         (handle, n, x, incx, y, incy),                                                            \
         const struct matrix out = {vector_bytes(n, incy, sizeof(type)), abs(incy) == 1};          \
         (void)s; reads(&call, x, vector_bytes(n, incx, sizeof(type)));                            \
         writes(&call, y, out, true); call.flags |= VM_OPF_PURE;)

#define VM_DOT(function, type)                                                                     \
    WRAP(function, ELEMENTWISE,                                                                    \
         (cublasHandle_t handle, int n, const type *x, int incx, const type *y, int incy,          \
          type *out),                                                                              \
         (handle, n, x, incx, y, incy, out), reads(&call, x, vector_bytes(n, incx, sizeof(type))); \
         reads(&call, y, vector_bytes(n, incy, sizeof(type)));                                     \
         result(&call, s, out, sizeof(type));)

#define VM_NORM(function, type, answer)                                                            \
    WRAP(function, ELEMENTWISE,                                                                    \
         (cublasHandle_t handle, int n, const type *x, int incx, answer *out),                     \
         (handle, n, x, incx, out), reads(&call, x, vector_bytes(n, incx, sizeof(type)));          \
         result(&call, s, out, sizeof(answer));)

#define VM_LT_MATMUL(function) /* in cublaslt.c */

#include "cublas.def"
