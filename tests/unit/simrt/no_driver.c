/* no_driver.c: what the runtime says where no driver is. Run with a library path that has none. */
#include <cuda_runtime_api.h>

#include <stdio.h>
#include <string.h>

static int bad;

static void want_number(const char *what, int got, int expected)
{
    if (got != expected) {
        printf("%s: %d, not %d\n", what, got, expected);
        bad = 1;
    }
}

/* Codes and numbers alike. */
#define want(what, got, expected) want_number(what, (int)(got), (int)(expected))

int main(void)
{
    int version = -1, count = -1, device = -1;
    void *p = NULL;
    size_t n = 0;
    want("cudaRuntimeGetVersion", cudaRuntimeGetVersion(&version), cudaSuccess);
    want("runtime version", version, 13000);
    want("last error", cudaGetLastError(), cudaSuccess);
    want("cudaDriverGetVersion", cudaDriverGetVersion(&version), cudaSuccess);
    if (version != 0)
        return 77; /* this machine has a driver after all */
    want("cudaGetDeviceCount", cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
    want("device count", count, 0);
    want("last error", cudaGetLastError(), cudaErrorInsufficientDriver);
    want("cleared", cudaGetLastError(), cudaSuccess);
    want("cudaMalloc", cudaMalloc(&p, 16), cudaErrorInsufficientDriver);
    want("cudaFree", cudaFree(NULL), cudaErrorInsufficientDriver);
    want("cudaSetDevice", cudaSetDevice(0), cudaErrorInsufficientDriver);
    want("cudaGetDevice", cudaGetDevice(&device), cudaErrorInsufficientDriver);
    want("cudaMemGetInfo", cudaMemGetInfo(&n, &n), cudaErrorInsufficientDriver);
    want("cudaDeviceSynchronize", cudaDeviceSynchronize(), cudaErrorInsufficientDriver);
    want("name", strcmp(cudaGetErrorName(cudaErrorInsufficientDriver),
                        "cudaErrorInsufficientDriver"), 0);
    return bad;
}
