/* cublasLt's product: D = alpha op(A) op(B) + beta C, extents from its layout descriptors. What the
 * epilogue reads and writes besides (bias, gradients, masks) lies in the call's descriptor and is
 * seen through the launch. */
#include <cublasLt.h>

#include "library.h"

static const char *const sonames[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11",
                                      NULL};
static const struct vm_library cublaslt = {sonames};

typedef cublasStatus_t (*layout_fn)(cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, void *,
                                    size_t, size_t *);
typedef cublasStatus_t (*desc_fn)(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, void *,
                                  size_t, size_t *);

static size_t type_bytes(uint32_t type)
{
    switch (type) {
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

struct extent {
    size_t bytes; /* 0: not known */
    bool packed;
};

/* A matrix in columns or rows; the tiled orders have extents of their own and stay unknown. */
static struct extent extent_of(const void *caller, cublasLtMatrixLayout_t layout)
{
    VM_LIBRARY_SLOT(slot);
    const struct extent unknown = {0, false};
    layout_fn get =
        (layout_fn)vm_library_real(&cublaslt, &slot, "cublasLtMatrixLayoutGetAttribute", caller);
    uint32_t type = 0;
    int32_t order = 0, batch = 1;
    uint64_t rows = 0, cols = 0;
    int64_t ld = 0, stride = 0;
    const struct {
        cublasLtMatrixLayoutAttribute_t name;
        void *into;
        size_t bytes;
    } wanted[] = {
        {CUBLASLT_MATRIX_LAYOUT_TYPE, &type, sizeof type},
        {CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order},
        {CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, sizeof rows},
        {CUBLASLT_MATRIX_LAYOUT_COLS, &cols, sizeof cols},
        {CUBLASLT_MATRIX_LAYOUT_LD, &ld, sizeof ld},
        {CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch},
        {CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (!layout || !get ||
            get(layout, wanted[i].name, wanted[i].into, wanted[i].bytes, NULL) !=
                CUBLAS_STATUS_SUCCESS)
            return unknown;
#if CUBLAS_VER_MAJOR >= 13
    int32_t batch_mode = CUBLASLT_BATCH_MODE_STRIDED; /* or the pointer is that of a table of them */
    if (get(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, &batch_mode, sizeof batch_mode, NULL) ==
            CUBLAS_STATUS_SUCCESS &&
        batch_mode != CUBLASLT_BATCH_MODE_STRIDED)
        return unknown;
#endif
    if (order == CUBLASLT_ORDER_ROW) {
        uint64_t swap = rows;
        rows = cols;
        cols = swap;
    } else if (order != CUBLASLT_ORDER_COL) {
        return unknown;
    }
    size_t element = type_bytes(type);
    if (!rows || !cols || ld < 0 || (uint64_t)ld < rows || batch < 1 || (batch > 1 && stride < 0))
        return unknown;
    struct extent e = {((cols - 1) * (uint64_t)ld + rows) * element, (uint64_t)ld == rows};
    if (batch > 1) {
        e.packed = e.packed && (uint64_t)stride * element == e.bytes;
        e.bytes += (uint64_t)(batch - 1) * (uint64_t)stride * element;
    }
    return e;
}

/* beta is on the host and zero: C is not read. */
static bool zero_beta(const void *caller, cublasLtMatmulDesc_t desc, const void *beta)
{
    VM_LIBRARY_SLOT(slot);
    desc_fn get =
        (desc_fn)vm_library_real(&cublaslt, &slot, "cublasLtMatmulDescGetAttribute", caller);
    int32_t mode = CUBLASLT_POINTER_MODE_DEVICE;
    uint32_t type = 0;
    return desc && get &&
           get(desc, CUBLASLT_MATMUL_DESC_POINTER_MODE, &mode, sizeof mode, NULL) ==
               CUBLAS_STATUS_SUCCESS &&
           mode == CUBLASLT_POINTER_MODE_HOST &&
           get(desc, CUBLASLT_MATMUL_DESC_SCALE_TYPE, &type, sizeof type, NULL) ==
               CUBLAS_STATUS_SUCCESS &&
           type_bytes(type) && vm_library_zero(beta, type_bytes(type));
}

static void describe(struct vm_libcall *call, const void *p, struct extent e, unsigned mode)
{
    vm_library_touch(call, p, e.bytes, mode, VM_ROLE_NONE);
}

VM_EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t computeDesc,
                                        const void *alpha, const void *A,
                                        cublasLtMatrixLayout_t Adesc, const void *B,
                                        cublasLtMatrixLayout_t Bdesc, const void *beta,
                                        const void *C, cublasLtMatrixLayout_t Cdesc, void *D,
                                        cublasLtMatrixLayout_t Ddesc,
                                        const cublasLtMatmulAlgo_t *algo, void *workspace,
                                        size_t workspaceSizeInBytes, cudaStream_t stream)
{
    VM_LIBRARY_SLOT(slot);
    const void *caller = __builtin_return_address(0);
    typedef __typeof__(&cublasLtMatmul) matmul_fn;
    matmul_fn real = (matmul_fn)vm_library_real(&cublaslt, &slot, "cublasLtMatmul", caller);
    struct vm_libcall call;
    if (!real)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!vm_library_begin(&call, "cublasLtMatmul", VM_LAYER_GEMM, 0))
        return real(handle, computeDesc, alpha, A, Adesc, B, Bdesc, beta, C, Cdesc, D, Ddesc, algo,
                    workspace, workspaceSizeInBytes, stream);
    struct extent d = extent_of(caller, Ddesc);
    describe(&call, A, extent_of(caller, Adesc), VM_READ);
    describe(&call, B, extent_of(caller, Bdesc), VM_READ);
    if (!zero_beta(caller, computeDesc, beta))
        describe(&call, C, extent_of(caller, Cdesc), VM_READ);
    if (workspaceSizeInBytes)
        vm_library_touch(&call, workspace, workspaceSizeInBytes, VM_WRITE | VM_TOTAL,
                         VM_ROLE_WORKSPACE);
    describe(&call, D, d, d.bytes && d.packed ? VM_WRITE | VM_TOTAL : VM_WRITE);
    vm_library_issue();
    cublasStatus_t status = real(handle, computeDesc, alpha, A, Adesc, B, Bdesc, beta, C, Cdesc, D,
                                 Ddesc, algo, workspace, workspaceSizeInBytes, stream);
    vm_library_end(&call);
    return status;
}
