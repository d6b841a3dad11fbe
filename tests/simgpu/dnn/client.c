#include "client.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t driver_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sg_driver driver;
static CUresult driver_status = CUDA_ERROR_NOT_FOUND;

typedef CUresult (*get_proc_fn)(const char *, void **, int, cuuint64_t,
                                CUdriverProcAddressQueryResult *);

/* Names whose exported symbol carries a suffix, for drivers without cuGetProcAddress. */
static const char *exported_name(const char *name)
{
    static const char *const suffixed[][2] = {
        {"cuMemAlloc", "cuMemAlloc_v2"},
        {"cuMemFree", "cuMemFree_v2"},
        {"cuMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2"},
        {"cuMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2"},
        {"cuMemcpy2DAsync", "cuMemcpy2DAsync_v2"},
        {"cuEventDestroy", "cuEventDestroy_v2"},
    };
    for (size_t i = 0; i < sizeof suffixed / sizeof *suffixed; i++) {
        if (strcmp(name, suffixed[i][0]) == 0) {
            return suffixed[i][1];
        }
    }
    return name;
}

static void *lookup(void *so, get_proc_fn get, const char *name, int version)
{
    void *fn = NULL;
    CUdriverProcAddressQueryResult found;
    if (get && get(name, &fn, version, CU_GET_PROC_ADDRESS_DEFAULT, &found) == CUDA_SUCCESS && fn) {
        return fn;
    }
    return dlsym(so, exported_name(name));
}

static void driver_open(void)
{
    void *so = dlopen("libcuda.so.1", RTLD_NOW);
    if (!so) {
        return;
    }
    get_proc_fn get;
    void *sym = dlsym(so, "cuGetProcAddress_v2");
    memcpy(&get, &sym, sizeof get); /* the portable way from an object to a function pointer */
#define LOOK_UP(name, version)                                                                     \
    sym = lookup(so, get, #name, version);                                                         \
    if (!sym) {                                                                                    \
        return;                                                                                    \
    }                                                                                              \
    memcpy(&driver.name, &sym, sizeof sym);
    SG_DRIVER_CALLS(LOOK_UP)
#undef LOOK_UP
    driver_status = CUDA_SUCCESS;
}

CUresult sg_client_driver(const struct sg_driver **out)
{
    pthread_once(&driver_once, driver_open);
    if (driver_status == CUDA_SUCCESS) {
        *out = &driver;
    }
    return driver_status;
}

CUresult sg_client_context(const struct sg_driver *drv, CUdevice *device)
{
    CUcontext ctx = NULL;
    CUresult r = drv->cuInit(0);
    if (r == CUDA_SUCCESS) {
        r = drv->cuCtxGetCurrent(&ctx);
    }
    if (r != CUDA_SUCCESS) {
        return r;
    }
    if (!ctx) {
        CUdevice dev;
        r = drv->cuDeviceGet(&dev, 0);
        if (r == CUDA_SUCCESS) {
            r = drv->cuDevicePrimaryCtxRetain(&ctx, dev);
        }
        if (r == CUDA_SUCCESS) {
            r = drv->cuCtxSetCurrent(ctx);
        }
        if (r != CUDA_SUCCESS) {
            return r;
        }
    }
    return drv->cuCtxGetDevice(device);
}

/* Loads the image; called with load_lock held. */
static CUresult load_image(const struct sg_driver *drv, struct sg_client_image *img)
{
    unsigned n = img->image->nkernels;
    CUkernel *kernels = calloc(n, sizeof *kernels);
    if (!kernels) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUlibrary lib;
    CUresult r = drv->cuLibraryLoadData(&lib, img->image, NULL, NULL, 0, NULL, NULL, 0);
    for (unsigned i = 0; i < n && r == CUDA_SUCCESS; i++) {
        r = drv->cuLibraryGetKernel(&kernels[i], lib, img->image->kernels[i].name);
    }
    if (r != CUDA_SUCCESS) {
        free(kernels);
        return r;
    }
    img->library = lib;
    img->kernels = kernels;
    __atomic_store_n(&img->loaded, 1, __ATOMIC_RELEASE);
    return CUDA_SUCCESS;
}

CUresult sg_client_launch(const struct sg_driver *drv, struct sg_client_image *img, unsigned kernel,
                          CUstream stream, const void *args, double threads)
{
    if (!__atomic_load_n(&img->loaded, __ATOMIC_ACQUIRE)) {
        pthread_mutex_lock(&load_lock);
        CUresult r = img->loaded ? CUDA_SUCCESS : load_image(drv, img);
        pthread_mutex_unlock(&load_lock);
        if (r != CUDA_SUCCESS) {
            return r;
        }
    }
    const struct simgpu_kernel *k = &img->image->kernels[kernel];
    void *params[24];
    for (unsigned i = 0; i < k->nparams; i++) {
        params[i] = (unsigned char *)(uintptr_t)args + k->params[i].offset;
    }
    const unsigned block = 256;
    double blocks = (threads + block - 1) / block;
    unsigned grid = blocks < 1 ? 1u : blocks > 65535 ? 65535u : (unsigned)blocks;
    return drv->cuLaunchKernel((CUfunction)img->kernels[kernel], grid, 1, 1, block, 1, 1, 0, stream,
                               params, NULL);
}

/* Cores of one multiprocessor by compute capability (CUDA programming guide, technical
 * specifications). */
static int cores_per_sm(int major, int minor)
{
    switch (major) {
    case 3:
        return 192;
    case 6:
        return minor == 0 ? 64 : 128;
    case 7:
        return 64;
    case 8:
        return minor == 0 ? 64 : 128;
    default:
        return 128;
    }
}

/* Peaks of matrix products as multiples of the fp32 peak, dense, from the data sheets: P100 (6.0), V100
 * (7.0: 125 of 15.7 TFLOPS), T4 (7.5: 65 of 8.1), A100 (8.0: 312, 156, 19.5 of 19.5), A10 (8.6: 125 and
 * 62.5 of 31.2), L40 (8.9), H100 (9.0: 989, 494, 67 of 67), B200 (10.0: 2250, 1125, 37 of 75). */
static void product_rates(int major, int minor, struct sg_card *out)
{
    static const struct {
        int major, minor; /* the first capability of a row */
        double half, tf32, fp64;
    } rows[] = {
        {12, 0, 4, 2, 1.0 / 64}, {10, 0, 30, 15, 0.5},   {9, 0, 14.8, 7.4, 1},
        {8, 6, 4, 2, 1.0 / 64},  {8, 0, 16, 8, 1},       {7, 5, 8, 1, 1.0 / 32},
        {7, 0, 8, 1, 0.5},       {6, 1, 1, 1, 1.0 / 32}, {6, 0, 2, 1, 0.5},
        {5, 0, 1, 1, 1.0 / 32},  {0, 0, 1, 1, 1.0 / 3},
    };
    size_t i = 0;
    while (rows[i].major > major || (rows[i].major == major && rows[i].minor > minor)) {
        i++;
    }
    out->half = rows[i].half;
    out->tf32 = rows[i].tf32;
    out->fp64 = rows[i].fp64;
}

CUresult sg_client_card(const struct sg_driver *drv, CUdevice device, struct sg_card *out)
{
    static const CUdevice_attribute wanted[6] = {
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,     CU_DEVICE_ATTRIBUTE_CLOCK_RATE,
        CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE,        CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH,
    };
    int v[6];
    for (int i = 0; i < 6; i++) {
        CUresult r = drv->cuDeviceGetAttribute(&v[i], wanted[i], device);
        if (r != CUDA_SUCCESS) {
            return r;
        }
    }
    *out = (struct sg_card){.major = v[0],
                            .sms = v[2],
                            .flops = 2.0 * v[2] * cores_per_sm(v[0], v[1]) * v[3] * 1e3,
                            .bytes = 2.0 * v[4] * 1e3 * v[5] / 8.0};
    product_rates(v[0], v[1], out);
    return CUDA_SUCCESS;
}
