/* The built libraries as programs meet them: loaded by name, with the simulated driver and without.
 * SG_TEST_DRIVER says which of the two this run is; LD_LIBRARY_PATH leads to the libraries. */
#include <criterion/criterion.h>
#include <cublas_v2.h>
#include <cuda.h>
#include <cudnn.h>
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

static void *open_library(const char *name)
{
    void *so = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(so, "%s: %s", name, dlerror());
    return so;
}

/* Fetches a function into a variable of its type. */
#define GET(so, name) __typeof__(name) *p_##name = get(so, #name)

static void *get(void *so, const char *name)
{
    void *sym = dlsym(so, name);
    cr_assert_not_null(sym, "%s is not exported", name);
    return sym;
}

static int with_driver(void)
{
    const char *s = getenv("SG_TEST_DRIVER");
    return s && strcmp(s, "1") == 0;
}

Test(libs, symbol_versions_are_the_real_ones)
{
    static const char *const rows[][3] = {
        {"libcudnn.so.9", "cudnnConvolutionForward", "libcudnn.so.9"},
        {"libcublas.so.13", "cublasSgemm_v2", "libcublas.so.13"},
        {"libcublas.so.12", "cublasSgemm_v2", "libcublas.so.12"},
        {"libcublasLt.so.13", "cublasLtMatmul", "libcublasLt.so.13"},
        {"libcublasLt.so.12", "cublasLtMatmul", "libcublasLt.so.12"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *so = open_library(rows[i][0]);
        cr_assert_not_null(dlvsym(so, rows[i][1], rows[i][2]), "%s@%s", rows[i][1], rows[i][2]);
        cr_assert_null(dlsym(so, "sg_client_launch"), "%s leaks an internal name", rows[i][0]);
    }
    cublasHandle_t h = NULL;
    int v13 = 0, v12 = 0;
    __typeof__(cublasGetVersion_v2) *version =
        get(open_library("libcublas.so.13"), "cublasGetVersion_v2");
    version(h, &v13);
    version = get(open_library("libcublas.so.12"), "cublasGetVersion_v2");
    version(h, &v12);
    cr_assert(v13 / 10000 == 13 && v12 / 10000 == 12, "versions %d and %d", v13, v12);
}

/* Without a driver the answers are those of the real libraries on such a machine; descriptors work.
 */
Test(libs, without_a_driver)
{
    if (with_driver() || dlopen("libcuda.so.1", RTLD_NOW)) {
        cr_skip_test("this run, or this machine, has a driver");
    }
    void *dnn = open_library("libcudnn.so.9"), *blas = open_library("libcublas.so.13");
    GET(dnn, cudnnCreate);
    GET(dnn, cudnnCreateTensorDescriptor);
    GET(dnn, cudnnSetTensor4dDescriptor);
    GET(dnn, cudnnGetTensorSizeInBytes);
    GET(dnn, cudnnDestroyTensorDescriptor);
    GET(blas, cublasCreate_v2);
    cudnnHandle_t h;
    cublasHandle_t b;
    cudnnTensorDescriptor_t d;
    size_t bytes = 0;
    cr_assert_eq((int)p_cudnnCreate(&h), CUDNN_STATUS_NOT_INITIALIZED);
    cr_assert_eq((int)p_cublasCreate_v2(&b), CUBLAS_STATUS_NOT_INITIALIZED);
    cr_assert_eq((int)p_cudnnCreateTensorDescriptor(&d), 0);
    cr_assert_eq(
        (int)p_cudnnSetTensor4dDescriptor(d, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 3, 4, 5), 0);
    cr_assert_eq((int)p_cudnnGetTensorSizeInBytes(d, &bytes), 0);
    cr_assert_eq(bytes, 480u);
    p_cudnnDestroyTensorDescriptor(d);
}

/* What is not computed says its name on stderr and answers "not supported". */
Test(libs, refusals_are_loud)
{
    int ends[2], keep = dup(2);
    char said[256] = {0};
    cr_assert_eq(pipe(ends), 0);
    dup2(ends[1], 2);
    int (*rnn)(void) = get(open_library("libcudnn.so.9"), "cudnnMultiHeadAttnForward");
    int (*trsm)(void) = get(open_library("libcublas.so.13"), "cublasStrsm_v2");
    int dnn_status = rnn(), blas_status = trsm();
    dup2(keep, 2);
    cr_assert_gt(read(ends[0], said, sizeof said - 1), 0);
    cr_assert_eq(dnn_status, CUDNN_STATUS_NOT_SUPPORTED);
    cr_assert_eq(blas_status, CUBLAS_STATUS_NOT_SUPPORTED);
    cr_assert(strstr(said, "cudnnMultiHeadAttnForward") && strstr(said, "cublasStrsm_v2"), "stderr had: %s",
              said);
    close(ends[0]);
    close(ends[1]);
    close(keep);
}

/* Both libraries on one stream of the simulated card, in functional mode. */
Test(libs, compute_through_the_driver)
{
    if (!with_driver()) {
        cr_skip_test("this run has no driver");
    }
    void *cuda = open_library("libcuda.so.1"), *dnn = open_library("libcudnn.so.9"),
         *blas = open_library("libcublas.so.13");
    CUresult (*alloc)(CUdeviceptr *, size_t) = get(cuda, "cuMemAlloc_v2");
    CUresult (*to_host)(void *, CUdeviceptr, size_t) = get(cuda, "cuMemcpyDtoH_v2");
    CUresult (*to_card)(CUdeviceptr, const void *, size_t) = get(cuda, "cuMemcpyHtoD_v2");
    CUresult (*wait)(void) = get(cuda, "cuCtxSynchronize");
    CUresult (*new_stream)(CUstream *, unsigned) = get(cuda, "cuStreamCreate");
    GET(dnn, cudnnCreate);
    GET(dnn, cudnnSetStream);
    GET(dnn, cudnnCreateTensorDescriptor);
    GET(dnn, cudnnSetTensor4dDescriptor);
    GET(dnn, cudnnSetTensor);
    GET(dnn, cudnnDestroy);
    GET(dnn, cudnnDestroyTensorDescriptor);
    GET(blas, cublasCreate_v2);
    GET(blas, cublasSetStream_v2);
    GET(blas, cublasSgemm_v2);
    GET(blas, cublasSasum_v2);
    GET(blas, cublasSgemmBatched);
    GET(blas, cublasDestroy_v2);
    cudnnHandle_t h;
    cublasHandle_t b;
    cudnnTensorDescriptor_t d;
    CUstream s;
    CUdeviceptr x, y, tables;
    const float two = 2, one = 1, zero = 0;
    float out[64], sum = 0;
    cr_assert_eq((int)p_cudnnCreate(&h), 0); /* makes the primary context current */
    cr_assert_eq((int)p_cublasCreate_v2(&b), 0);
    cr_assert_eq((int)new_stream(&s, CU_STREAM_NON_BLOCKING), 0);
    p_cudnnSetStream(h, s);
    p_cublasSetStream_v2(b, s);
    cr_assert_eq((int)(alloc(&x, 256) | alloc(&y, 256) | alloc(&tables, 24)), 0);
    p_cudnnCreateTensorDescriptor(&d);
    p_cudnnSetTensor4dDescriptor(d, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 1, 8, 8);
    float *px = (void *)(uintptr_t)x, *py = (void *)(uintptr_t)y;
    cr_assert_eq((int)p_cudnnSetTensor(h, d, px, &two), 0);
    cr_assert_eq((int)p_cublasSgemm_v2(b, CUBLAS_OP_N, CUBLAS_OP_T, 8, 8, 8, &one, px, 8, px, 8,
                                       &zero, py, 8),
                 0);
    cr_assert_eq((int)p_cublasSasum_v2(b, 64, py, 1, &sum), 0); /* waits for its result */
    cr_assert_float_eq(sum, 64 * 32.0f, 0);
    /* tables of pointers are read when the kernel runs */
    const CUdeviceptr table[3] = {x, y, x};
    cr_assert_eq((int)to_card(tables, table, sizeof table), 0);
    const float *const *pt = (void *)(uintptr_t)tables;
    cr_assert_eq((int)p_cublasSgemmBatched(b, CUBLAS_OP_N, CUBLAS_OP_N, 8, 8, 8, &one, pt, 8,
                                           pt + 1, 8, &zero,
                                           (float *const *)(uintptr_t)(tables + 8), 8, 1),
                 0);
    cr_assert_eq((int)wait(), 0);
    cr_assert_eq((int)to_host(out, y, sizeof out), 0);
    cr_assert_float_eq(out[63], 8 * 2 * 32.0f, 0);
    p_cublasDestroy_v2(b);
    p_cudnnDestroyTensorDescriptor(d);
    p_cudnnDestroy(h);
}
