/* errors.c: what the runtime says of mistakes, which of them stay, and what a kernel is. */
#include "api.h"

static void last_error(void)
{
    void *p;
    EXPECT(cudaSetDevice(99), cudaErrorInvalidDevice);
    printf("peeked: %s", cudaGetErrorName(cudaPeekAtLastError()));
    OK(cudaMalloc(&p, 16)); /* a success does not clear it */
    printf(", still %s", cudaGetErrorName(cudaGetLastError()));
    printf(", then %s\n", cudaGetErrorName(cudaGetLastError()));
    OK(cudaFree(p));
    printf("words: %s / %s\n", cudaGetErrorString(cudaErrorMemoryAllocation),
           cudaGetErrorString(cudaSuccess));
    printf("no such code: %s\n", cudaGetErrorName((cudaError_t)123456));
}

static void launches(void)
{
    uint32_t *p, value = 1;
    uint64_t n = 4;
    static const char not_a_kernel;
    OK(cudaMalloc((void **)&p, 16));
    void *args[] = {&p, &value, &n};
    dim3 one = {1, 1, 1};
    printf("no threads: %s\n",
           cudaGetErrorName(cudaLaunchKernel(api_fill_stub, one, (dim3){0, 1, 1}, args, 0, 0)));
    printf("too many threads: %s\n",
           cudaGetErrorName(cudaLaunchKernel(api_fill_stub, one, (dim3){2048, 1, 1}, args, 0, 0)));
    printf("not a kernel: %s\n",
           cudaGetErrorName(cudaLaunchKernel(&not_a_kernel, one, one, args, 0, 0)));
    (void)cudaGetLastError();
    size_t offset = 9, size = 9;
    OK(cudaFuncGetParamInfo(api_fill_stub, 1, &offset, &size));
    printf("second parameter at %zu, %zu bytes\n", offset, size);
    printf("a fourth: %s\n",
           cudaGetErrorName(cudaFuncGetParamInfo(api_fill_stub, 3, &offset, &size)));
    const char *name = "";
    OK(cudaFuncGetName(&name, api_add_stub));
    printf("name: %s\n", name);
    struct cudaFuncAttributes a;
    OK(cudaFuncGetAttributes(&a, api_add_stub));
    int blocks = 0;
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, api_add_stub, 256, 0));
    printf("threads allowed: %d, blocks fit: %d\n", a.maxThreadsPerBlock >= 256, blocks > 0);
    cudaLaunchConfig_t c = {0};
    c.gridDim = c.blockDim = one;
    OK(cudaLaunchKernelExC(&c, api_fill_stub, args));
    cudaKernel_t k;
    OK(cudaGetKernel(&k, api_fill_stub));
    value = 8;
    OK(cudaLaunchKernel((const void *)k, one, one, args, 0, 0)); /* by handle */
    uint32_t back[4];
    OK(cudaMemcpy(back, p, 16, cudaMemcpyDeviceToHost));
    printf("launched by handle: %d\n", api_is(back, 8, 0, 4));
    OK(cudaFree(p));
    (void)cudaGetLastError();
}

static void handles(void)
{
    printf("no event: %d\n", cudaEventRecord(NULL, 0) != cudaSuccess);
    printf("no graph: %d\n", cudaGraphLaunch(NULL, 0) != cudaSuccess);
    printf("destroyed the default stream: %d\n", cudaStreamDestroy(NULL) != cudaSuccess);
    (void)cudaGetLastError();
}

/* A kernel that touches what it may not: the context is lost, every later call says so. */
static void sticky(void)
{
    uint32_t *p;
    OK(cudaMalloc((void **)&p, 4096));
    OK(cudaFree(p));
    uint32_t *wild = (uint32_t *)(uintptr_t)0x10000;
    api_fill(0, wild, 1, 16);
    printf("after a wild store: %s", cudaGetErrorName(cudaDeviceSynchronize()));
    (void)cudaGetLastError();
    printf(", again: %s\n", cudaGetErrorName(cudaMalloc((void **)&p, 16)));
}

int main(void)
{
    last_error();
    launches();
    handles();
    sticky();
    return 0;
}
