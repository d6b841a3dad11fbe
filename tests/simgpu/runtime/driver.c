/* driver.c: finds the driver as the real runtime does, and keeps the contexts of the threads. */
#include "rt.h"

#include "simgpu_activity.h"
#include "simgpu_table.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

struct rt_driver rt_drv[2];

static struct {
    pthread_mutex_t lock;
    atomic_int loaded;
    cudaError_t status;
    void *handle;
    __typeof__(&cuGetProcAddress) lookup;
    int devices;
    CUcontext primary[RT_MAX_DEVICES]; /* retained by us, NULL = not yet */
    atomic_uint epoch;
} rt = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local int rt_thread_device;
static _Thread_local CUcontext rt_thread_context;

enum twin { TWIN_NONE, TWIN_PTSZ, TWIN_PTDS };

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

/* One row of driver.def. `exported` is the suffixed name, `source` the plain one. */
struct rt_name {
    const char *source, *exported;
    int version;
    enum twin twin;
    size_t offset;
};

static const struct rt_name rt_names[] = {
#define D(name, version, twin)                                                                     \
    {#name, TEXT(name), version, TWIN_##twin, offsetof(struct rt_driver, name)},
#include "driver.def"
#undef D
};

/* Stands for every function that the driver lacks. Any arguments are ignored by the ABI. */
static CUresult rt_missing(void)
{
    return CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER;
}

CUresult rt_lookup(const char *name, int version, uint64_t flags, void **pfn,
                   CUdriverProcAddressQueryResult *found)
{
    CUdriverProcAddressQueryResult state = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    void *address = NULL;
    if (rt.lookup) {
        CUresult r = rt.lookup(name, &address, version, flags, &state);
        if (r != CUDA_SUCCESS && r != CUDA_ERROR_NOT_FOUND)
            return r;
    } else if (rt.handle) {
        address = dlsym(rt.handle, name);
        state = address ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    *pfn = address;
    if (found)
        *found = state;
    return address ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

static void *rt_find(const struct rt_name *n, enum rt_default_stream kind)
{
    int per_thread = kind == RT_PER_THREAD && n->twin != TWIN_NONE;
    void *p = NULL;
    if (rt.lookup) {
        uint64_t flags = per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                    : CU_GET_PROC_ADDRESS_DEFAULT;
        if (rt_lookup(n->source, n->version, flags, &p, NULL) != CUDA_SUCCESS)
            p = NULL;
    } else {
        char name[96];
        const char *suffix = !per_thread ? "" : n->twin == TWIN_PTSZ ? "_ptsz" : "_ptds";
        snprintf(name, sizeof name, "%s%s", n->exported, suffix);
        p = dlsym(rt.handle, name);
    }
    return p ? p : (void *)(uintptr_t)rt_missing;
}

static void rt_fill_tables(void)
{
    for (size_t i = 0; i < sizeof rt_names / sizeof rt_names[0]; i++) {
        const struct rt_name *n = &rt_names[i];
        void *plain = rt_find(n, RT_LEGACY);
        void *twin = n->twin == TWIN_NONE ? plain : rt_find(n, RT_PER_THREAD);
        memcpy((char *)&rt_drv[RT_LEGACY] + n->offset, &plain, sizeof plain);
        memcpy((char *)&rt_drv[RT_PER_THREAD] + n->offset, &twin, sizeof twin);
    }
}

/* ---- CUPTI --------------------------------------------------------------------------------------*/

/* As the real runtime does it, though by a table of our own: the driver connects it with CUPTI. */
static const struct simgpu_activity_table *rt_tools;

static void rt_find_tools(void)
{
    rt_tools = simgpu_table(rt.handle, (CUuuid)SIMGPU_ACTIVITY_ID);
}

bool rt_tell_begins(void)
{
    if (!rt_tools || !__atomic_load_n(rt_tools->runtime_told, __ATOMIC_RELAXED))
        return false;
    rt_tools->runtime_begins();
    return true;
}

void rt_tell_ends(const char *function, cudaError_t result)
{
    rt_tools->runtime_ends(function, (int)result);
}

/* Called once, with the lock held. */
static cudaError_t rt_load_locked(void)
{
    rt.handle = dlopen("libcuda.so.1", RTLD_NOW);
    if (!rt.handle)
        return cudaErrorInsufficientDriver;
    rt_find_tools();
    void *sym = dlsym(rt.handle, "cuGetProcAddress_v2");
    memcpy(&rt.lookup, &sym, sizeof sym);
    if (rt.lookup) {
        /* a driver's own answer for its look-up function, as the caller's version sees it */
        void *self = NULL;
        if (rt_lookup("cuGetProcAddress", 12000, 0, &self, NULL) == CUDA_SUCCESS && self)
            memcpy(&rt.lookup, &self, sizeof self);
    }
    rt_fill_tables();
    int version = 0;
    CUresult r = rt_drv[0].cuDriverGetVersion(&version);
    if (r != CUDA_SUCCESS || version / 1000 < RT_VERSION / 1000)
        return cudaErrorInsufficientDriver;
    r = rt_drv[0].cuInit(0);
    if (r != CUDA_SUCCESS)
        return rt_error(r);
    int count = 0;
    r = rt_drv[0].cuDeviceGetCount(&count);
    if (r != CUDA_SUCCESS)
        return rt_error(r);
    rt.devices = count < RT_MAX_DEVICES ? count : RT_MAX_DEVICES;
    return count > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t rt_load(void)
{
    if (atomic_load_explicit(&rt.loaded, memory_order_acquire))
        return rt.status;
    pthread_mutex_lock(&rt.lock);
    if (!atomic_load_explicit(&rt.loaded, memory_order_relaxed)) {
        rt.status = rt_load_locked();
        atomic_store_explicit(&rt.loaded, 1, memory_order_release);
    }
    pthread_mutex_unlock(&rt.lock);
    return rt.status;
}

int rt_device_count(void)
{
    return rt.devices;
}

unsigned rt_epoch(void)
{
    return atomic_load_explicit(&rt.epoch, memory_order_acquire);
}

/* The driver is called without our lock; the retain counts references, so that a second thread's
 * retain in between is given back. */
cudaError_t rt_primary(int device, CUcontext *context)
{
    pthread_mutex_lock(&rt.lock);
    CUcontext known = rt.primary[device];
    pthread_mutex_unlock(&rt.lock);
    if (!known) {
        CUresult r = rt_drv[0].cuDevicePrimaryCtxRetain(&known, device);
        if (r != CUDA_SUCCESS)
            return rt_error(r);
        pthread_mutex_lock(&rt.lock);
        int extra = rt.primary[device] != NULL;
        rt.primary[device] = known;
        pthread_mutex_unlock(&rt.lock);
        if (extra)
            (void)rt_drv[0].cuDevicePrimaryCtxRelease(device);
    }
    *context = known;
    return cudaSuccess;
}

/* Makes the primary context of `device` current. */
static cudaError_t rt_bind(int device)
{
    CUcontext context = NULL;
    cudaError_t e = rt_primary(device, &context);
    if (e == cudaSuccess)
        e = rt_error(rt_drv[0].cuCtxSetCurrent(context));
    if (e == cudaSuccess)
        rt_thread_context = context;
    return e;
}

cudaError_t rt_enter(void)
{
    cudaError_t e = rt_load();
    if (e != cudaSuccess)
        return e;
    CUcontext current = NULL;
    CUresult r = rt_drv[0].cuCtxGetCurrent(&current);
    if (r != CUDA_SUCCESS)
        return rt_error(r);
    rt_thread_context = current;
    return current ? cudaSuccess : rt_bind(rt_thread_device);
}

CUcontext rt_entered_context(void)
{
    return rt_thread_context;
}

cudaError_t rt_current_device(int *device)
{
    CUdevice d = 0;
    CUcontext current = NULL;
    if (rt_drv[0].cuCtxGetCurrent(&current) == CUDA_SUCCESS && current &&
        rt_drv[0].cuCtxGetDevice(&d) == CUDA_SUCCESS)
        *device = d;
    else
        *device = rt_thread_device;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaSetDevice(int device)
{
    cudaError_t e = rt_load();
    if (e != cudaSuccess)
        return rt_last(e);
    if (device < 0 || device >= rt.devices)
        return rt_last(cudaErrorInvalidDevice);
    e = rt_bind(device);
    if (e == cudaSuccess)
        rt_thread_device = device;
    return rt_last(e);
}

cudaError_t CUDARTAPI cudaInitDevice(int device, unsigned int deviceFlags, unsigned int flags)
{
    cudaError_t e = rt_load();
    if (e != cudaSuccess)
        return rt_last(e);
    if (device < 0 || device >= rt.devices || (flags & ~(unsigned)cudaInitDeviceFlagsAreValid))
        return rt_last(device < 0 || device >= rt.devices ? cudaErrorInvalidDevice
                                                          : cudaErrorInvalidValue);
    if (flags & cudaInitDeviceFlagsAreValid)
        (void)rt_drv[0].cuDevicePrimaryCtxSetFlags(device, deviceFlags);
    CUcontext context = NULL;
    e = rt_primary(device, &context);
    return rt_last(e);
}

cudaError_t CUDARTAPI cudaDeviceReset(void)
{
    cudaError_t e = rt_load();
    if (e != cudaSuccess)
        return rt_last(e);
    int device = 0;
    e = rt_current_device(&device);
    if (e != cudaSuccess || device >= rt.devices)
        return rt_last(e != cudaSuccess ? e : cudaErrorInvalidDevice);
    pthread_mutex_lock(&rt.lock);
    CUcontext context = rt.primary[device];
    rt.primary[device] = NULL;
    pthread_mutex_unlock(&rt.lock);
    atomic_fetch_add_explicit(&rt.epoch, 1, memory_order_acq_rel);
    rt_code_forget();
    if (!context)
        return cudaSuccess;
    e = rt_error(rt_drv[0].cuDevicePrimaryCtxReset(device));
    (void)rt_drv[0].cuDevicePrimaryCtxRelease(device);
    (void)rt_drv[0].cuCtxSetCurrent(NULL);
    rt_thread_device = device;
    return rt_last(e);
}

cudaError_t CUDARTAPI cudaDriverGetVersion(int *driverVersion)
{
    if (!driverVersion)
        return rt_last(cudaErrorInvalidValue);
    (void)rt_load();
    int version = 0;
    if (rt.handle)
        (void)rt_drv[0].cuDriverGetVersion(&version);
    *driverVersion = version;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaRuntimeGetVersion(int *runtimeVersion)
{
    if (!runtimeVersion)
        return rt_last(cudaErrorInvalidValue);
    *runtimeVersion = RT_VERSION;
    return cudaSuccess;
}
