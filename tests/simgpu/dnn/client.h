/* client.h: how the simulated math libraries reach the driver.
 *
 * As NVIDIA's libraries do: libcuda.so.1 is opened by name at the first call that needs it, its
 * entry points come from cuGetProcAddress_v2 (by dlsym where that is missing), and kernels are
 * loaded as a library and launched in the current context. Nothing here is linked to a driver, so
 * whatever answers for libcuda.so.1 in this process (a preloaded shim too) sees every call.
 *
 * Thread-safe. Results are CUresult values (CUDA_SUCCESS is 0).
 */
#ifndef SG_CLIENT_H
#define SG_CLIENT_H

#include <stddef.h>
#include <cuda.h>
#include "simgpu.h"

/* The driver entry points we use: one row each, X(name, version asked for). */
#define SG_DRIVER_CALLS(X)                                                                         \
    X(cuInit, 2000)                                                                                \
    X(cuDeviceGet, 2000)                                                                           \
    X(cuDeviceGetAttribute, 2000)                                                                  \
    X(cuCtxGetCurrent, 4000)                                                                       \
    X(cuCtxSetCurrent, 4000)                                                                       \
    X(cuCtxGetDevice, 2000)                                                                        \
    X(cuDevicePrimaryCtxRetain, 7000)                                                              \
    X(cuLibraryLoadData, 12000)                                                                    \
    X(cuLibraryGetKernel, 12000)                                                                   \
    X(cuLaunchKernel, 4000)                                                                        \
    X(cuMemAlloc, 3020)                                                                            \
    X(cuMemFree, 3020)                                                                             \
    X(cuMemcpyDtoHAsync, 3020)                                                                     \
    X(cuMemcpyHtoDAsync, 3020)                                                                     \
    X(cuMemcpy2DAsync, 3020)                                                                       \
    X(cuStreamSynchronize, 2000)                                                                   \
    X(cuEventCreate, 2000)                                                                         \
    X(cuEventRecord, 2000)                                                                         \
    X(cuEventSynchronize, 2000)                                                                    \
    X(cuEventElapsedTime, 2000)                                                                    \
    X(cuEventDestroy, 4000)

struct sg_driver {
    CUresult (*cuInit)(unsigned);
    CUresult (*cuDeviceGet)(CUdevice *, int);
    CUresult (*cuDeviceGetAttribute)(int *, CUdevice_attribute, CUdevice);
    CUresult (*cuCtxGetCurrent)(CUcontext *);
    CUresult (*cuCtxSetCurrent)(CUcontext);
    CUresult (*cuCtxGetDevice)(CUdevice *);
    CUresult (*cuDevicePrimaryCtxRetain)(CUcontext *, CUdevice);
    CUresult (*cuLibraryLoadData)(CUlibrary *, const void *, CUjit_option *, void **, unsigned,
                                  CUlibraryOption *, void **, unsigned);
    CUresult (*cuLibraryGetKernel)(CUkernel *, CUlibrary, const char *);
    CUresult (*cuLaunchKernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                               unsigned, unsigned, CUstream, void **, void **);
    CUresult (*cuMemAlloc)(CUdeviceptr *, size_t);
    CUresult (*cuMemFree)(CUdeviceptr);
    CUresult (*cuMemcpyDtoHAsync)(void *, CUdeviceptr, size_t, CUstream);
    CUresult (*cuMemcpyHtoDAsync)(CUdeviceptr, const void *, size_t, CUstream);
    CUresult (*cuMemcpy2DAsync)(const CUDA_MEMCPY2D *, CUstream);
    CUresult (*cuStreamSynchronize)(CUstream);
    CUresult (*cuEventCreate)(CUevent *, unsigned);
    CUresult (*cuEventRecord)(CUevent, CUstream);
    CUresult (*cuEventSynchronize)(CUevent);
    CUresult (*cuEventElapsedTime)(float *, CUevent, CUevent);
    CUresult (*cuEventDestroy)(CUevent);
};

/* Opens the driver once. 0 on success; CUDA_ERROR_NOT_FOUND where there is none or a name is
 * missing. */
CUresult sg_client_driver(const struct sg_driver **out);

/* Makes sure that a context is current (device 0's primary one where the thread has none) and gives
 * its device. */
CUresult sg_client_context(const struct sg_driver *drv, CUdevice *device);

/* A library of kernels, loaded into the driver on first use and for the life of the process. */
struct sg_client_image {
    const struct simgpu_image *image;
    CUlibrary library;
    CUkernel *kernels; /* image->nkernels handles */
    int loaded;
};

/* Launches kernel number `kernel` of the image on the stream in the current context. `args` points
 * to the packed parameter block as the kernel's table lays it out; it is copied before the call
 * returns. `threads` is the number of threads wanted: the grid is made from it. */
CUresult sg_client_launch(const struct sg_driver *drv, struct sg_client_image *img, unsigned kernel,
                          CUstream stream, const void *args, double threads);

/* A device by its attributes: compute capability, rough peaks in fp32 flops and bytes a second, and the
 * peaks of matrix products in other formats as multiples of the former. */
struct sg_card {
    int major, sms;
    double flops, bytes;
    double half, tf32, fp64; /* half: binary16 and bfloat16 with sums in fp32 */
};
CUresult sg_client_card(const struct sg_driver *drv, CUdevice device, struct sg_card *out);

#endif
