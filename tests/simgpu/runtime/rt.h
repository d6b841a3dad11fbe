/* rt.h: what the parts of the simulated CUDA runtime share.
 *
 * The runtime is a thin layer over the public driver API, found as the real one finds it: dlopen of
 * libcuda.so.1, cuGetProcAddress_v2, then look-ups by name, version and flags. It holds no device
 * state of its own but the primary contexts it retained, the code that the program registered and the
 * last error of each thread. All functions here are thread-safe unless they say otherwise.
 *
 * RT_VERSION is 13000 or 12080: the same sources make both libraries; what differs between the two
 * ABIs is chosen by it.
 */
#ifndef SIMGPU_RT_H
#define SIMGPU_RT_H

#ifndef RT_VERSION
#define RT_VERSION 13000
#endif

#if RT_VERSION < 13000
/* The header is that of CUDA 13. What it declares under these names, CUDA 12 exports under names of
 * a later version; the older forms are in compat12.c. */
#define cudaEventElapsedTime                cudaEventElapsedTime_v2
#define cudaGetDeviceProperties             cudaGetDeviceProperties_v2
#define cudaGraphAddDependencies            cudaGraphAddDependencies_v2
#define cudaGraphGetEdges                   cudaGraphGetEdges_v2
#define cudaGraphNodeGetDependencies        cudaGraphNodeGetDependencies_v2
#define cudaGraphNodeGetDependentNodes      cudaGraphNodeGetDependentNodes_v2
#define cudaGraphRemoveDependencies         cudaGraphRemoveDependencies_v2
#define cudaMemAdvise                       cudaMemAdvise_v2
#define cudaMemPrefetchAsync                cudaMemPrefetchAsync_v2
#define cudaStreamGetCaptureInfo            cudaStreamGetCaptureInfo_v3
#define cudaStreamUpdateCaptureDependencies cudaStreamUpdateCaptureDependencies_v2
#endif

#include <cuda.h>
#include <cudaProfiler.h>
#include <cuda_runtime_api.h>
#include <cuda_profiler_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The driver's functions, typed as the header declares them. Two tables: with the legacy default
 * stream, and with the per-thread one (which equals the first where no twin exists). */
struct rt_driver {
#define D(name, version, twin) __typeof__(&name) name;
#include "driver.def"
#undef D
};

enum rt_default_stream { RT_LEGACY = 0, RT_PER_THREAD = 1 };
extern struct rt_driver rt_drv[2];

#define RT_MAX_DEVICES 64

/* Loads the driver and initialises it on the first call; afterwards returns the same answer. */
cudaError_t rt_load(void);
/* rt_load, and makes sure that the calling thread has a current context (its device's primary one
 * unless the program set another). */
cudaError_t rt_enter(void);
/* The context that rt_enter found or made current on this thread. */
CUcontext rt_entered_context(void);
/* The primary context of `device` (0 <= device < rt_device_count()), retained by the runtime. */
cudaError_t rt_primary(int device, CUcontext *context);
/* Device whose context is current on this thread, or the one it selected. After rt_load. */
cudaError_t rt_current_device(int *device);
/* The address of a driver function for cudaGetDriverEntryPoint; NULL if the driver has none. */
CUresult rt_lookup(const char *name, int version, uint64_t flags, void **pfn,
                   CUdriverProcAddressQueryResult *found);
/* Counts the resets of primary contexts: what was cached for a context holds within one epoch. */
unsigned rt_epoch(void);
int rt_device_count(void); /* after rt_load */

/* The runtime's code for a driver result. */
cudaError_t rt_error(CUresult r);
/* Records `e` as the thread's last error unless it is a success, and returns it. */
cudaError_t rt_last(cudaError_t e);
/* For exported functions that nothing implements: names the function on stderr, once each. */
cudaError_t rt_unsupported(const char *function);

/* The kernel behind what a program passes as a function: the host stub of a registered kernel, or
 * a kernel handle. cudaErrorInvalidDeviceFunction if it is neither. */
cudaError_t rt_kernel(const void *func, CUkernel *kernel);
/* The same, as a function of the current context. After rt_enter. */
cudaError_t rt_function(const void *func, CUfunction *function);
/* Device address and size of a registered variable. After rt_enter. */
cudaError_t rt_symbol(const void *symbol, CUdeviceptr *address, size_t *bytes);
/* What the program called the kernel behind `function`; `function` itself if it is unknown. */
const void *rt_function_name(CUfunction function);
/* Enters a kernel handle that the program may pass as a function from now on. */
cudaError_t rt_kernel_known(CUkernel kernel);
/* A 3D copy between pitched pointers in the driver's terms. */
cudaError_t rt_copy_3d(CUDA_MEMCPY3D *c, const struct cudaMemcpy3DParms *p);
#if RT_VERSION < 13000
/* The properties in CUDA 13's layout, for compat12.c to lay out anew. */
cudaError_t rt_device_properties(struct cudaDeviceProp *prop, int device);
#endif
/* Forgets the functions that were cached for contexts. */
void rt_code_forget(void);

/* Tells CUPTI of a call of the runtime; does nothing while nobody asked for that. */
bool rt_tell_begins(void);
void rt_tell_ends(const char *function, cudaError_t result);

/* An exported function without twin: enters, runs, records. `body` is an expression of cudaError_t. */
#define RT_RUN(body)                                                                               \
    bool told_ = rt_tell_begins();                                                                 \
    cudaError_t err_ = rt_enter();                                                                 \
    err_ = rt_last(err_ != cudaSuccess ? err_ : (body));                                           \
    if (told_)                                                                                     \
        rt_tell_ends(__func__, err_);                                                              \
    return err_

/* Exports `name` and its per-thread twin over `body(const struct rt_driver *, ...)`. */
#define RT_TWINS(name, suffix, body, params, ...) RT_TWINS_(name, suffix, body, params, __VA_ARGS__)
#define RT_TWINS_(name, suffix, body, params, ...)                                                 \
    cudaError_t CUDARTAPI name params                                                              \
    {                                                                                              \
        RT_RUN(body(&rt_drv[RT_LEGACY], __VA_ARGS__));                                             \
    }                                                                                              \
    cudaError_t CUDARTAPI name##suffix params;                                                     \
    cudaError_t CUDARTAPI name##suffix params                                                      \
    {                                                                                              \
        RT_RUN(body(&rt_drv[RT_PER_THREAD], __VA_ARGS__));                                         \
    }

static inline CUdeviceptr rt_ptr(const void *p)
{
    return (CUdeviceptr)(uintptr_t)p;
}

#endif
