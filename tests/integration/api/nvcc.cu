/* nvcc.cu: a program as nvcc compiles it: <<<>>> launches, parameters of all kinds, variables. On the
 * simulated GPU its kernels do nothing; what counts is that everything loads, launches and is told. */
#include <cstdio>
#include <cstdlib>

struct functor {
    float *data;
    int n;
    double scale;
};

__device__ int counter[4];
__constant__ float factors[8];

__global__ void axpy(float a, const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] += a * x[i];
}

template <class T> __global__ void fill(T *p, T v, long n)
{
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < n)
        p[i] = v;
}

__global__ void apply(functor f, char c, short s)
{
    if ((int)threadIdx.x < f.n)
        f.data[threadIdx.x] = (float)f.scale + c + s + factors[threadIdx.x % 8] + counter[0];
}

static void check(cudaError_t e, int line)
{
    if (e != cudaSuccess) {
        std::printf("line %d: %s\n", line, cudaGetErrorName(e));
        std::exit(1);
    }
}
#define CHECK(call) check(call, __LINE__)

int main()
{
    float *x, *y, host[8] = {1, 2, 3, 4, 5, 6, 7, 8}, back[8] = {0};
    int numbers[4] = {7, 8, 9, 10}, read[4] = {0};
    CHECK(cudaMalloc(&x, 4096));
    CHECK(cudaMalloc(&y, 4096));
    CHECK(cudaMemset(x, 0, 4096));
    CHECK(cudaMemset(y, 0, 4096));
    axpy<<<4, 256>>>(2.0f, x, y, 1024);
    CHECK(cudaGetLastError());
    fill<double><<<1, 64>>>(reinterpret_cast<double *>(x), 1.0, 64);
    CHECK(cudaGetLastError());
    functor f = {x, 8, 2.0};
    apply<<<dim3(1, 1, 1), dim3(8, 1, 1), 64>>>(f, 1, 2);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    std::printf("launched\n");
    CHECK(cudaMemcpyToSymbol(factors, host, sizeof host));
    CHECK(cudaMemcpyFromSymbol(back, factors, sizeof back));
    CHECK(cudaMemcpyToSymbol(counter, numbers, sizeof numbers));
    CHECK(cudaMemcpyFromSymbol(read, counter, sizeof read));
    std::printf("variables: %g %g %d %d\n", back[0], back[7], read[0], read[3]);
    size_t bytes = 0;
    CHECK(cudaGetSymbolSize(&bytes, counter));
    std::printf("size of a variable: %zu\n", bytes);
    size_t offset[4], size[4];
    for (int i = 0; i < 4; i++)
        CHECK(cudaFuncGetParamInfo((const void *)axpy, (size_t)i, &offset[i], &size[i]));
    std::printf("parameters at %zu %zu %zu %zu, of %zu %zu %zu %zu bytes\n", offset[0], offset[1],
                offset[2], offset[3], size[0], size[1], size[2], size[3]);
    CHECK(cudaFuncGetParamInfo((const void *)apply, 0, &offset[0], &size[0]));
    std::printf("a structure of %zu bytes\n", size[0]);
    const char *name = "";
    CHECK(cudaFuncGetName(&name, (const void *)axpy));
    std::printf("name: %s\n", name);
    CHECK(cudaFree(x));
    CHECK(cudaFree(y));
    return 0;
}
