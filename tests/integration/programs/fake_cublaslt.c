/* Stands for cublasLt: descriptors answer from their own words, the product does nothing. */
#include <cublasLt.h>

static cublasStatus_t give(const uint64_t *data, int attribute, int count, void *buf, size_t bytes)
{
    if (attribute < 0 || attribute >= count || (bytes != 4 && bytes != 8))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (bytes == 4)
        *(uint32_t *)buf = (uint32_t)data[attribute];
    else
        *(uint64_t *)buf = data[attribute];
    return CUBLAS_STATUS_SUCCESS;
}

/* data[i] is attribute i: type, order, rows, columns, leading dimension, batch, stride, -, batch
 * mode. */
cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attr, void *buf,
                                                size_t sizeInBytes, size_t *sizeWritten)
{
    static uint64_t words[9];
    for (int i = 0; i < 8; i++)
        words[i] = layout->data[i];
    words[8] = layout->data[7]; /* the batch mode lies where attribute 7 would */
    return give(words, (int)attr, 9, buf, sizeInBytes);
}

cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attr, void *buf,
                                              size_t sizeInBytes, size_t *sizeWritten)
{
    return give(desc->data, (int)attr, 3, buf, sizeInBytes);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *A, cublasLtMatrixLayout_t Adesc, const void *B,
                              cublasLtMatrixLayout_t Bdesc, const void *beta, const void *C,
                              cublasLtMatrixLayout_t Cdesc, void *D, cublasLtMatrixLayout_t Ddesc,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes,
                              cudaStream_t stream)
{
    return CUBLAS_STATUS_ARCH_MISMATCH; /* recognisably this one */
}
