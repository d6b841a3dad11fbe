/* Watched cuDNN and cuBLAS calls, with a double of the runtime behind the doors (double.c): what
 * each call says of its blocks, and that the launches inside it are taken for it. Run with the
 * double preloaded. Figures after the slash are roles (enum vm_role). */
#include <cublas_v2.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t (*take)(char *, size_t);
static int failures, checks;
static char seen[1 << 16];

/* The lines of library calls only, newlines as ';'. Launches are counted. */
static int launches;

static void look(void)
{
    static char raw[1 << 16];
    take(raw, sizeof raw);
    seen[0] = 0;
    launches = 0;
    for (char *line = strtok(raw, "\n"); line; line = strtok(NULL, "\n")) {
        launches += strncmp(line, "launch", 6) == 0;
        if (strncmp(line, "libcall ", 8) == 0)
            strcat(strcat(seen, line + 8), ";");
    }
}

static bool matches(const char *want)
{
    return strcmp(seen, want) == 0;
}

static void expect_at(int line, const char *want)
{
    look();
    checks++;
    if (!matches(want) || !launches) {
        failures++;
        printf("FAILED at line %d: wanted \"%s\", saw \"%s\" and %d launches\n", line, want, seen,
               launches);
    }
}
#define EXPECT(want) expect_at(__LINE__, want)

static void is_at(int line, bool ok, const char *text)
{
    checks++;
    if (!ok) {
        failures++;
        printf("FAILED at line %d: %s\n", line, text);
    }
}
#define IS(condition) is_at(__LINE__, condition, #condition)
#define OK(call)      IS((call) == 0)

/* x, y: 2x4x8x8 floats; w: 4x4x3x3; bias: 1x4x1x1 */
#define BYTES (2 * 4 * 8 * 8 * sizeof(float))
static float *x, *y, *dx, *dy, *w, *dw, *bias, *work; /* b0 .. b7 */
static const size_t work_bytes = 1 << 20;
static cudnnHandle_t dnn;
static cublasHandle_t blas;
static cudnnTensorDescriptor_t t, bt;
static cudnnFilterDescriptor_t f;
static const float one = 1, zero = 0;

static void starts(void)
{
    float **all[] = {&x, &y, &dx, &dy, &w, &dw, &bias, &work};
    size_t sizes[] = {BYTES, BYTES, BYTES, BYTES, 4 * 4 * 9 * 4, 4 * 4 * 9 * 4, 16, work_bytes};
    for (int i = 0; i < 8; i++) {
        OK(cudaMalloc((void **)all[i], sizes[i]));
        OK(cudaMemset(*all[i], 0, sizes[i]));
    }
    OK(cudnnCreate(&dnn));
    OK(cublasCreate(&blas));
    OK(cudnnCreateTensorDescriptor(&t));
    OK(cudnnSetTensor4dDescriptor(t, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 4, 8, 8));
    OK(cudnnCreateTensorDescriptor(&bt));
    OK(cudnnSetTensor4dDescriptor(bt, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 4, 1, 1));
    OK(cudnnCreateFilterDescriptor(&f));
    OK(cudnnSetFilter4dDescriptor(f, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 4, 4, 3, 3));
    look();
}

static void convolutions(void)
{
    cudnnConvolutionDescriptor_t c;
    OK(cudnnCreateConvolutionDescriptor(&c));
    OK(cudnnSetConvolution2dDescriptor(c, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                       CUDNN_DATA_FLOAT));
    OK(cudnnConvolutionForward(dnn, &one, t, x, f, w, c, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
                               work, work_bytes, &zero, t, y));
    EXPECT("cudnnConvolutionForward layer=1 flags=5 b0:r/1 b4:r/3 b7:wt/7 b1:wt/2;");
    OK(cudnnConvolutionForward(dnn, &one, t, x, f, w, c, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
                               NULL, 0, &one, t, y));
    EXPECT("cudnnConvolutionForward layer=1 flags=1 b0:r/1 b4:r/3 b1:rw/2;");
    OK(cudnnConvolutionBackwardFilter(dnn, &one, t, x, t, dy, c,
                                      CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, work, work_bytes, &one,
                                      f, dw));
    EXPECT("cudnnConvolutionBackwardFilter layer=1 flags=2 b0:r/1 b3:r/5 b7:wt/7 b5:rw/6;");
    OK(cudnnConvolutionBackwardData(dnn, &one, f, w, t, dy, c, CUDNN_CONVOLUTION_BWD_DATA_ALGO_0,
                                    work, work_bytes, &zero, t, dx));
    EXPECT("cudnnConvolutionBackwardData layer=1 flags=2 b4:r/3 b3:r/5 b7:wt/7 b2:wt/4;");
    OK(cudnnConvolutionBackwardBias(dnn, &one, t, dy, &zero, bt, bias));
    EXPECT("cudnnConvolutionBackwardBias layer=9 flags=2 b3:r/5 b6:wt/6;");
    OK(cudnnDestroyConvolutionDescriptor(c));
}

static void layers(void)
{
    cudnnActivationDescriptor_t relu;
    OK(cudnnCreateActivationDescriptor(&relu));
    OK(cudnnSetActivationDescriptor(relu, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0));
    OK(cudnnActivationForward(dnn, relu, &one, t, y, &zero, t,
                              y)); /* in place: read, then written */
    EXPECT("cudnnActivationForward layer=3 flags=5 b1:r/1 b1:wt/2;");
    OK(cudnnActivationBackward(dnn, relu, &one, t, y, t, dy, t, x, &zero, t, dx));
    EXPECT("cudnnActivationBackward layer=3 flags=2 b1:r/2 b3:r/5 b0:r/1 b2:wt/4;");
    OK(cudnnDestroyActivationDescriptor(relu));
    OK(cudnnAddTensor(dnn, &one, bt, bias, &one, t, y));
    EXPECT("cudnnAddTensor layer=9 flags=0 b6:r/0 b1:rw/0;");
    OK(cudnnSoftmaxForward(dnn, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_INSTANCE, &one, t, x,
                           &zero, t, y));
    EXPECT("cudnnSoftmaxForward layer=7 flags=5 b0:r/1 b1:wt/2;");
    cudnnPoolingDescriptor_t pool;
    cudnnTensorDescriptor_t half;
    OK(cudnnCreatePoolingDescriptor(&pool));
    OK(cudnnSetPooling2dDescriptor(pool, CUDNN_POOLING_MAX, CUDNN_NOT_PROPAGATE_NAN, 2, 2, 0, 0, 2,
                                   2));
    OK(cudnnCreateTensorDescriptor(&half));
    OK(cudnnSetTensor4dDescriptor(half, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 4, 4, 4));
    OK(cudnnPoolingForward(dnn, pool, &one, t, x, &zero, half, y)); /* a quarter of y's block */
    EXPECT("cudnnPoolingForward layer=2 flags=5 b0:r/1 b1:w/2;");
    OK(cudnnPoolingBackward(dnn, pool, &one, half, y, half, dy, t, x, &zero, t, dx));
    EXPECT("cudnnPoolingBackward layer=2 flags=2 b1:r/2 b3:r/5 b0:r/1 b2:wt/4;");
    OK(cudnnDestroyPoolingDescriptor(pool));
    OK(cudnnDestroyTensorDescriptor(half));
}

/* Rows of a wider tensor: every element is written and not every byte. */
static void strided_outputs_are_not_total(void)
{
    cudnnTensorDescriptor_t wide, rows;
    OK(cudnnCreateTensorDescriptor(&wide));
    OK(cudnnCreateTensorDescriptor(&rows));
    OK(cudnnSetTensor4dDescriptorEx(wide, CUDNN_DATA_FLOAT, 2, 4, 8, 4, 256, 64, 8, 1));
    OK(cudnnSetTensor4dDescriptor(rows, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 2, 4, 8, 4));
    OK(cudnnTransformTensor(dnn, &one, rows, x, &zero, wide, y));
    EXPECT("cudnnTransformTensor layer=10 flags=4 b0:r/0 b1:w/0;");
    OK(cudnnDestroyTensorDescriptor(wide));
    OK(cudnnDestroyTensorDescriptor(rows));
}

static void normalisation(void)
{
    float *mean, *variance; /* b9, b10: b8 is cuBLAS's own workspace */
    OK(cudaMalloc((void **)&mean, 16));
    OK(cudaMalloc((void **)&variance, 16));
    OK(cudaMemset(mean, 0, 16));
    OK(cudaMemset(variance, 0, 16));
    OK(cudnnBatchNormalizationForwardTraining(dnn, CUDNN_BATCHNORM_SPATIAL, &one, &zero, t, x, t, y,
                                              bt, bias, bias, 0.5, mean, variance, 1e-5, NULL,
                                              NULL));
    /* The library may come by its own Ex form on the way: calls nest. */
    look();
    IS(launches &&
       strstr(seen, "cudnnBatchNormalizationForwardTraining layer=4 flags=1 b0:r/1 b1:wt/2 "
                    "b6:r/3 b6:r/3 b9:rw/8 b10:rw/8;"));
    OK(cudaFree(mean));
    OK(cudaFree(variance));
}

static void products(void)
{
    /* 16x16 out of blocks of 512 floats, then exactly filling ones. */
    OK(cublasSgemm(blas, CUBLAS_OP_N, CUBLAS_OP_T, 16, 32, 8, &one, x, 16, dx, 32, &zero, y, 16));
    EXPECT("cublasSgemm_v2 layer=8 flags=4 b0:r/0 b2:r/0 b1:wt/0;");
    OK(cublasSgemm(blas, CUBLAS_OP_N, CUBLAS_OP_N, 16, 16, 8, &one, x, 16, dx, 8, &zero, y, 32));
    EXPECT("cublasSgemm_v2 layer=8 flags=4 b0:r/0 b2:r/0 b1:w/0;");
    OK(cublasSgemm(blas, CUBLAS_OP_N, CUBLAS_OP_N, 16, 16, 8, &one, x, 16, dx, 8, &one, y, 16));
    EXPECT("cublasSgemm_v2 layer=8 flags=0 b0:r/0 b2:r/0 b1:rw/0;");
    OK(cublasSaxpy(blas, 512, &one, x, 1, y, 1));
    EXPECT("cublasSaxpy_v2 layer=10 flags=0 b0:r/0 b1:rw/0;");
    OK(cublasSscal(blas, 512, &one, y, 1));
    EXPECT("cublasSscal_v2 layer=10 flags=0 b1:rw/0;");
    OK(cublasScopy(blas, 512, x, 1, y, 1));
    EXPECT("cublasScopy_v2 layer=10 flags=4 b0:r/0 b1:wt/0;");
    OK(cublasSgemv(blas, CUBLAS_OP_N, 16, 8, &one, x, 16, dx, 1, &zero, y, 1));
    EXPECT("cublasSgemv_v2 layer=8 flags=0 b0:r/0 b2:r/0 b1:w/0;");
}

int main(void)
{
    void *p = dlsym(RTLD_DEFAULT, "vmem_double_take");
    if (!p) {
        printf("the double is not preloaded\n");
        return 1;
    }
    memcpy(&take, &p, sizeof p);
    starts();
    convolutions();
    layers();
    strided_outputs_are_not_total();
    normalisation();
    products();
    OK(cudaDeviceSynchronize());
    strcpy(seen, "a;");
    IS(!matches("a;b;") && matches("a;")); /* the comparison itself can fail */
    printf("%d checks, %d failures\n", checks, failures);
    return failures || checks < 50;
}
