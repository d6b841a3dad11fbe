/* A program of the driver API that knows nothing of libvmem: the tests run it bare and under the
 * preload and compare what it prints.
 *
 *   probe compute    allocates blocks, runs kernels over them for some iterations, prints a
 * checksum probe fork       the same; between two iterations forks a child that tries to use CUDA
 *   probe launcher   forks before CUDA; the child computes
 *   probe exec       forks after CUDA is up; the child runs a shell and then this program again
 *   probe deepbind   reaches the driver by dlopen with RTLD_DEEPBIND and computes through it
 *   probe query      what the driver says about memory, pointers and sizes
 *   probe errors     calls with bad arguments, and how they end
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "simgpu.h"

/* ---- a kernel: y[i] = a * x[i] + y[i]
 * ----------------------------------------------------------*/

struct axpy_params {
    uint64_t x, y;
    float a;
    uint32_t n;
};

static void axpy_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    const struct axpy_params *p = (const void *)l->params;
    touch(ctx, p->x, p->n * sizeof(float), SIMGPU_READ);
    touch(ctx, p->y, p->n * sizeof(float), SIMGPU_RW);
}

static void axpy_body(const struct simgpu_launch *l)
{
    const struct axpy_params *p = (const void *)l->params;
    const float *x = (const float *)(uintptr_t)p->x;
    float *y = (float *)(uintptr_t)p->y;
    for (uint32_t i = 0; i < p->n; i++)
        y[i] += p->a * x[i];
}

static const struct simgpu_param axpy_layout[] = {{0, 8}, {8, 8}, {16, 4}, {20, 4}};
static const struct simgpu_kernel kernels[] = {
    {"axpy", axpy_layout, 4, axpy_touches, axpy_body, NULL},
};
static const struct simgpu_image image = {SIMGPU_IMAGE_MAGIC, SIMGPU_IMAGE_VERSION, 1, kernels};

/* ---- the driver, as linked or as found
 * ---------------------------------------------------------*/

static struct {
    CUresult (*init)(unsigned);
    CUresult (*retain)(CUcontext *, CUdevice);
    CUresult (*release)(CUdevice);
    CUresult (*set_current)(CUcontext);
    CUresult (*load)(CUmodule *, const void *);
    CUresult (*function)(CUfunction *, CUmodule, const char *);
    CUresult (*alloc)(CUdeviceptr *, size_t);
    CUresult (*free)(CUdeviceptr);
    CUresult (*htod)(CUdeviceptr, const void *, size_t);
    CUresult (*dtoh)(void *, CUdeviceptr, size_t);
    CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                       unsigned, CUstream, void **, void **);
    CUresult (*sync)(void);
    CUresult (*info)(size_t *, size_t *);
} cu;

static void use_linked(void)
{
    cu.init = cuInit;
    cu.retain = cuDevicePrimaryCtxRetain;
    cu.release = cuDevicePrimaryCtxRelease;
    cu.set_current = cuCtxSetCurrent;
    cu.load = cuModuleLoadData;
    cu.function = cuModuleGetFunction;
    cu.alloc = cuMemAlloc;
    cu.free = cuMemFree;
    cu.htod = cuMemcpyHtoD;
    cu.dtoh = cuMemcpyDtoH;
    cu.launch = cuLaunchKernel;
    cu.sync = cuCtxSynchronize;
    cu.info = cuMemGetInfo;
}

static void find(void *handle, void *slot, const char *name)
{
    void *p = dlsym(handle, name);
    if (!p) {
        printf("no %s: %s\n", name, dlerror());
        exit(1);
    }
    memcpy(slot, &p, sizeof p);
}

static void use_deep_bound(void)
{
    void *h = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (!h) {
        printf("no driver: %s\n", dlerror());
        exit(1);
    }
    find(h, &cu.init, "cuInit");
    find(h, &cu.retain, "cuDevicePrimaryCtxRetain");
    find(h, &cu.release, "cuDevicePrimaryCtxRelease_v2");
    find(h, &cu.set_current, "cuCtxSetCurrent");
    find(h, &cu.load, "cuModuleLoadData");
    find(h, &cu.function, "cuModuleGetFunction");
    find(h, &cu.alloc, "cuMemAlloc_v2");
    find(h, &cu.free, "cuMemFree_v2");
    find(h, &cu.htod, "cuMemcpyHtoD_v2");
    find(h, &cu.dtoh, "cuMemcpyDtoH_v2");
    find(h, &cu.launch, "cuLaunchKernel");
    find(h, &cu.sync, "cuCtxSynchronize");
    find(h, &cu.info, "cuMemGetInfo_v2");
}

#define TRY(call)                                                                                  \
    do {                                                                                           \
        CUresult r_ = (call);                                                                      \
        if (r_ != CUDA_SUCCESS) {                                                                  \
            printf("%s: error %d\n", #call, (int)r_);                                              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* ---- work
 * --------------------------------------------------------------------------------------*/

#define BLOCKS     24
#define FLOATS     (64 * 1024)
#define ITERATIONS 6

static CUfunction axpy;
static CUdeviceptr block[BLOCKS];

static void start(void)
{
    CUcontext ctx;
    CUmodule module;
    TRY(cu.init(0));
    TRY(cu.retain(&ctx, 0));
    TRY(cu.set_current(ctx));
    TRY(cu.load(&module, &image));
    TRY(cu.function(&axpy, module, "axpy"));
}

static void fill(void)
{
    static float host[FLOATS];
    for (int b = 0; b < BLOCKS; b++) {
        for (int i = 0; i < FLOATS; i++)
            host[i] = (float)((i * 7 + b * 13) % 101) / 64;
        TRY(cu.alloc(&block[b], sizeof host));
        TRY(cu.htod(block[b], host, sizeof host));
    }
}

static void iteration(int it)
{
    for (int b = 0; b < BLOCKS; b++) {
        CUdeviceptr x = block[b], y = block[(b + 5) % BLOCKS];
        float a = (float)(it + 1) / 256;
        uint32_t n = FLOATS;
        void *params[] = {&x, &y, &a, &n};
        TRY(cu.launch(axpy, FLOATS / 256, 1, 1, 256, 1, 1, 0, NULL, params, NULL));
    }
    TRY(cu.sync());
}

static void finish(void)
{
    static float host[FLOATS];
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (int b = 0; b < BLOCKS; b++) {
        TRY(cu.dtoh(host, block[b], sizeof host));
        for (size_t i = 0; i < sizeof host; i++)
            h = (h ^ ((unsigned char *)host)[i]) * UINT64_C(0x100000001b3);
        TRY(cu.free(block[b]));
    }
    TRY(cu.release(0));
    printf("checksum %016lx\n", (unsigned long)h);
}

static void compute(void)
{
    start();
    fill();
    for (int it = 0; it < ITERATIONS; it++)
        iteration(it);
    finish();
}

/* ---- processes
 * ---------------------------------------------------------------------------------*/

static int wait_for(pid_t child)
{
    int status = 0;
    if (waitpid(child, &status, 0) != child)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void forks(void)
{
    start();
    fill();
    for (int it = 0; it < ITERATIONS; it++) {
        iteration(it);
        if (it != 2)
            continue;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            CUdeviceptr p = 0;
            size_t free_bytes = 0, total = 0;
            int count = -1;
            printf("child: alloc %d, info %d, count %d, free %d\n", (int)cu.alloc(&p, 4096),
                   (int)cu.info(&free_bytes, &total), (int)cuDeviceGetCount(&count),
                   (int)cu.free(block[0]));
            fflush(stdout);
            _exit(7);
        }
        printf("child ended with %d\n", wait_for(child));
    }
    finish();
}

static void launches(void)
{
    pid_t child = fork();
    if (child == 0) {
        compute();
        fflush(stdout);
        _exit(3);
    }
    printf("child ended with %d\n", wait_for(child));
}

static void executes(const char *self)
{
    start();
    fill();
    iteration(0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", "echo shell says $((6 * 7)); exec \"$0\" compute", self,
              (char *)0);
        _exit(127);
    }
    printf("child ended with %d\n", wait_for(child));
    for (int it = 1; it < ITERATIONS; it++)
        iteration(it);
    finish();
}

/* ---- questions
 * ---------------------------------------------------------------------------------*/

static void queries(void)
{
    CUdeviceptr p = 0, base = 0;
    size_t size = 0, pitch = 0;
    start();
    TRY(cuMemAlloc(&p, 1000));
    TRY(cuMemGetAddressRange(&base, &size, p + 10));
    printf("range starts %d, %zu bytes\n", base == p, size);
    TRY(cuMemGetAddressRange(NULL, &size, p));
    unsigned type = 0, managed = 9;
    CUdeviceptr device_pointer = 0;
    int ordinal = -1;
    void *host = (void *)1;
    TRY(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 10));
    TRY(cuPointerGetAttribute(&device_pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, p + 10));
    printf("type %u, pointer is its own %d\n", type, device_pointer == p + 10);
    printf("host pointer: %d\n",
           (int)cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, p));
    CUpointer_attribute names[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_HOST_POINTER};
    void *into[] = {&type, &managed, &ordinal, &host};
    TRY(cuPointerGetAttributes(4, names, into, p));
    printf("type %u, managed %u, device %d, host %p\n", type, managed & 1, ordinal, host);
    TRY(cuMemFree(p));
    printf("range of nothing: %d\n", (int)cuMemGetAddressRange(&base, &size, 4096));
    TRY(cuMemAllocPitch(&p, &pitch, 1000, 10, 4));
    printf("pitch is enough %d\n", pitch >= 1000 && pitch % 256 == 0);
    TRY(cuMemsetD2D8(p, pitch, 7, 1000, 10));
    unsigned char row[1000];
    TRY(cuMemcpyDtoH(row, p + 9 * pitch, sizeof row));
    printf("last row %d %d\n", row[0], row[999]);
    TRY(cuMemFree(p));
    TRY(cu.release(0));
}

static void mistakes(void)
{
    CUdeviceptr p = 0;
    start();
    printf("alloc 0: %d\n", (int)cuMemAlloc(&p, 0));
    printf("alloc huge: %d\n", (int)cuMemAlloc(&p, (size_t)1 << 60));
    printf("alloc to nothing: %d\n", (int)cuMemAlloc(NULL, 10));
    printf("free 0: %d\n", (int)cuMemFree(0));
    printf("free nonsense: %d\n", (int)cuMemFree(4096));
    TRY(cuMemAlloc(&p, 4096));
    printf("free inside: %d\n", (int)cuMemFree(p + 256));
    TRY(cuMemFree(p));
    printf("free twice: %d\n", (int)cuMemFree(p));
    printf("launch nothing: %d\n",
           (int)cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    printf("copy to nothing: %d\n", (int)cuMemcpyHtoD(4096, &p, 8));
    printf("copy 2d of nothing: %d\n", (int)cuMemcpy2D(NULL));
    TRY(cu.release(0));
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "compute";
    if (strcmp(what, "deepbind") == 0)
        use_deep_bound();
    else
        use_linked();
    if (strcmp(what, "compute") == 0 || strcmp(what, "deepbind") == 0)
        compute();
    else if (strcmp(what, "fork") == 0)
        forks();
    else if (strcmp(what, "launcher") == 0)
        launches();
    else if (strcmp(what, "exec") == 0)
        executes(argv[0]);
    else if (strcmp(what, "query") == 0)
        queries();
    else if (strcmp(what, "errors") == 0)
        mistakes();
    else
        return 2;
    return 0;
}
