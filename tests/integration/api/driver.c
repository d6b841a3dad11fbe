/* driver.c: a program that uses the driver API alone, as compilers' run times do: the library is
 * opened by name, its functions are looked up, kernels come from a module. */
#include "api.h"

#include <dlfcn.h>

#define WORDS 4096
#define BYTES ((size_t)WORDS * 4)

static void *library;

/* By the loader, as Triton and XLA do it. */
static void *symbol(const char *name)
{
    void *p = dlsym(library, name);
    if (!p) {
        fprintf(stderr, "%s is not exported\n", name);
        exit(1);
    }
    return p;
}
#define NAME_(f)   #f
#define FIND(f)    ((__typeof__(&f))symbol(NAME_(f)))
#define EXPORTED(f) FIND(f)

int main(void)
{
    CUcontext context;
    CUmodule module;
    CUfunction fill, add;
    CUstream stream;
    CUevent event;
    CUdeviceptr a, b;
    uint32_t host[WORDS], value = 6;
    uint64_t n = WORDS;
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    DRV(EXPORTED(cuInit)(0));
    DRV(EXPORTED(cuCtxCreate)(&context, NULL, 0, 0));
    DRV(EXPORTED(cuModuleLoadData)(&module, api_image));
    DRV(EXPORTED(cuModuleGetFunction)(&fill, module, "api_fill"));
    DRV(EXPORTED(cuModuleGetFunction)(&add, module, "api_add"));
    printf("no such kernel: %d\n", (int)EXPORTED(cuModuleGetFunction)(&add, module, "other"));
    DRV(EXPORTED(cuModuleGetFunction)(&add, module, "api_add"));
    DRV(EXPORTED(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    DRV(EXPORTED(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
    DRV(EXPORTED(cuMemAlloc)(&a, BYTES));
    DRV(EXPORTED(cuMemAlloc)(&b, BYTES));
    void *args[] = {&a, &value, &n};
    __typeof__(&cuLaunchKernel) launch;
    CUdriverProcAddressQueryResult found;
    DRV(EXPORTED(cuGetProcAddress)("cuLaunchKernel", (void **)&launch, 4000, 0, &found));
    printf("looked up: %d\n", found == CU_GET_PROC_ADDRESS_SUCCESS);
    DRV(launch(fill, WORDS / 256, 1, 1, 256, 1, 1, 0, stream, args, NULL));
    /* the second launch passes its parameters as one packed buffer */
    struct {
        uint64_t dst, x, y, words;
    } packed = {b, a, a, WORDS};
    size_t bytes = sizeof packed;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    DRV(launch(add, WORDS / 256, 1, 1, 256, 1, 1, 0, stream, NULL, extra));
    DRV(EXPORTED(cuEventRecord)(event, stream));
    DRV(EXPORTED(cuEventSynchronize)(event));
    DRV(EXPORTED(cuMemcpyDtoH)(host, b, BYTES));
    printf("filled and added: %d\n", api_is(host, 12, 0, WORDS));
    CUdeviceptr base = 0;
    size_t size = 0;
    DRV(EXPORTED(cuMemGetAddressRange)(&base, &size, a + 100));
    printf("range of an inner address: %d %d\n", base == a, size == BYTES);
    size_t offset = 0;
    DRV(EXPORTED(cuFuncGetParamInfo)(add, 3, &offset, &bytes));
    printf("fourth parameter at %zu, %zu bytes\n", offset, bytes);
    DRV(EXPORTED(cuMemFree)(a));
    DRV(EXPORTED(cuMemFree)(b));
    DRV(EXPORTED(cuEventDestroy)(event));
    DRV(EXPORTED(cuStreamDestroy)(stream));
    DRV(EXPORTED(cuModuleUnload)(module));
    DRV(EXPORTED(cuCtxDestroy)(context));
    return 0;
}
