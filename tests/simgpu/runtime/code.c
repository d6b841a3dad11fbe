/* code.c: the device code of the program: what nvcc's start-up code registers, libraries, kernels.
 *
 * Registering does no driver work. A binary is loaded (cuLibraryLoadData) when its first kernel or
 * variable is needed, a kernel gets its function in each context at its first launch there. The
 * lock is held across these calls: two threads that need the same binary load it once.
 */
#include "rt.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define RT_WRAPPER_MAGIC 0x466243b1

/* What __cudaRegisterFatBinary gets (fatbinary_section.h). */
struct rt_wrapper {
    int magic, version;
    const void *data;
    void *filename_or_fatbins;
};

struct rt_binary {
    const void *image;
    CUlibrary library; /* NULL: not loaded yet */
    cudaError_t status; /* why the load failed  */
    struct rt_binary *next;
};

/* A key that a program may pass: host stub, host shadow of a variable, or a kernel handle. */
struct rt_entry {
    const void *key;
    struct rt_binary *binary; /* NULL for handles */
    const char *name;
    void **managed;           /* managed variable: where the program wants the address */
    size_t bytes;             /* variables */
    CUkernel kernel;
    CUcontext context;        /* last context asked for, and its function */
    CUfunction function;
};

static struct {
    pthread_mutex_t lock;
    struct rt_entry *entries; /* open addressing, power of two, half empty */
    size_t cap, used;
    struct rt_binary *binaries;
} code = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- the table; the lock is held -----------------------------------------------------------------*/

static size_t rt_slot(const struct rt_entry *table, size_t cap, const void *key)
{
    uint64_t h = (uint64_t)(uintptr_t)key * UINT64_C(0x9E3779B97F4A7C15);
    size_t i = (size_t)(h >> 20) & (cap - 1);
    while (table[i].key && table[i].key != key)
        i = (i + 1) & (cap - 1);
    return i;
}

static struct rt_entry *rt_entry_find(const void *key)
{
    if (!key || !code.cap)
        return NULL;
    struct rt_entry *e = &code.entries[rt_slot(code.entries, code.cap, key)];
    return e->key ? e : NULL;
}

/* NULL on lack of memory. An entry that exists is given as it is. */
static struct rt_entry *rt_entry_add(const void *key)
{
    if ((code.used + 1) * 2 > code.cap) {
        size_t cap = code.cap ? code.cap * 2 : 64;
        struct rt_entry *grown = calloc(cap, sizeof *grown);
        if (!grown)
            return NULL;
        for (size_t i = 0; i < code.cap; i++)
            if (code.entries[i].key)
                grown[rt_slot(grown, cap, code.entries[i].key)] = code.entries[i];
        free(code.entries);
        code.entries = grown;
        code.cap = cap;
    }
    struct rt_entry *e = &code.entries[rt_slot(code.entries, code.cap, key)];
    if (!e->key) {
        e->key = key;
        code.used++;
    }
    return e;
}

/* Rebuilds the table without the entries of `binary`. On lack of memory they stay, without harm:
 * their binary is marked as gone. */
static void rt_entries_drop(const struct rt_binary *binary)
{
    struct rt_entry *kept = code.cap ? calloc(code.cap, sizeof *kept) : NULL;
    if (!kept)
        return;
    size_t used = 0;
    for (size_t i = 0; i < code.cap; i++) {
        const struct rt_entry *e = &code.entries[i];
        if (e->key && e->binary != binary) {
            kept[rt_slot(kept, code.cap, e->key)] = *e;
            used++;
        }
    }
    free(code.entries);
    code.entries = kept;
    code.used = used;
}

static cudaError_t rt_binary_load(struct rt_binary *b)
{
    if (!b->library && b->status == cudaSuccess) {
        CUlibrary library = NULL;
        CUresult r = rt_drv[0].cuLibraryLoadData(&library, b->image, NULL, NULL, 0, NULL, NULL, 0);
        if (r == CUDA_SUCCESS)
            b->library = library;
        else
            b->status = rt_error(r);
    }
    return b->status;
}

/* Sets e->kernel. The handle becomes a key as well, so that it may be passed as a function; `e` may
 * move then, and is given back. */
static cudaError_t rt_entry_kernel(struct rt_entry **entry)
{
    struct rt_entry *e = *entry;
    if (e->kernel)
        return cudaSuccess;
    if (!e->binary)
        return cudaErrorInvalidDeviceFunction;
    cudaError_t status = rt_binary_load(e->binary);
    if (status != cudaSuccess)
        return status;
    CUkernel kernel = NULL;
    CUresult r = rt_drv[0].cuLibraryGetKernel(&kernel, e->binary->library, e->name);
    if (r != CUDA_SUCCESS)
        return r == CUDA_ERROR_NOT_FOUND ? cudaErrorInvalidDeviceFunction : rt_error(r);
    e->kernel = kernel;
    const void *key = e->key;
    struct rt_binary *binary = e->binary;
    struct rt_entry *handle = rt_entry_add(kernel);
    if (!handle)
        return cudaErrorMemoryAllocation;
    handle->kernel = kernel;
    handle->binary = binary;
    *entry = rt_entry_find(key);
    return cudaSuccess;
}

/* ---- look-ups --------------------------------------------------------------------------------------*/

cudaError_t rt_kernel(const void *func, CUkernel *kernel)
{
    pthread_mutex_lock(&code.lock);
    struct rt_entry *e = rt_entry_find(func);
    cudaError_t status = e ? rt_entry_kernel(&e) : cudaErrorInvalidDeviceFunction;
    if (status == cudaSuccess)
        *kernel = e->kernel;
    pthread_mutex_unlock(&code.lock);
    return status;
}

cudaError_t rt_function(const void *func, CUfunction *function)
{
    CUcontext context = rt_entered_context();
    pthread_mutex_lock(&code.lock);
    struct rt_entry *e = rt_entry_find(func);
    cudaError_t status = e ? rt_entry_kernel(&e) : cudaErrorInvalidDeviceFunction;
    if (status == cudaSuccess && (!e->function || e->context != context)) {
        CUfunction f = NULL;
        status = rt_error(rt_drv[0].cuKernelGetFunction(&f, e->kernel));
        if (status == cudaSuccess) {
            e->function = f;
            e->context = context;
        }
    }
    if (status == cudaSuccess)
        *function = e->function;
    pthread_mutex_unlock(&code.lock);
    return status;
}

cudaError_t rt_kernel_known(CUkernel kernel)
{
    pthread_mutex_lock(&code.lock);
    struct rt_entry *e = rt_entry_add(kernel);
    if (e)
        e->kernel = kernel;
    pthread_mutex_unlock(&code.lock);
    return e ? cudaSuccess : cudaErrorMemoryAllocation;
}

const void *rt_function_name(CUfunction function)
{
    const void *key = function;
    pthread_mutex_lock(&code.lock);
    for (size_t i = 0; i < code.cap; i++) {
        const struct rt_entry *e = &code.entries[i];
        if (e->key && e->function == function && (e->name || key == (const void *)function))
            key = e->key;
    }
    pthread_mutex_unlock(&code.lock);
    return key;
}

void rt_code_forget(void)
{
    pthread_mutex_lock(&code.lock);
    for (size_t i = 0; i < code.cap; i++) {
        code.entries[i].context = NULL;
        code.entries[i].function = NULL;
    }
    pthread_mutex_unlock(&code.lock);
}

cudaError_t rt_symbol(const void *symbol, CUdeviceptr *address, size_t *bytes)
{
    pthread_mutex_lock(&code.lock);
    struct rt_entry *e = rt_entry_find(symbol);
    cudaError_t status = e && e->binary && e->name ? rt_binary_load(e->binary)
                                                   : cudaErrorInvalidSymbol;
    if (status == cudaSuccess) {
        CUdeviceptr p = 0;
        size_t n = 0;
        CUresult r = e->managed
                         ? rt_drv[0].cuLibraryGetManaged(&p, &n, e->binary->library, e->name)
                         : rt_drv[0].cuLibraryGetGlobal(&p, &n, e->binary->library, e->name);
        status = r == CUDA_ERROR_NOT_FOUND ? cudaErrorInvalidSymbol : rt_error(r);
        if (status == cudaSuccess) {
            *address = p;
            *bytes = n;
        }
    }
    pthread_mutex_unlock(&code.lock);
    return status;
}

static cudaError_t rt_symbol_out(const void *symbol, void **address, size_t *bytes)
{
    CUdeviceptr p = 0;
    size_t n = 0;
    cudaError_t e = rt_symbol(symbol, &p, &n);
    if (e == cudaSuccess && address)
        *address = (void *)(uintptr_t)p;
    if (e == cudaSuccess && bytes)
        *bytes = n;
    return e;
}

cudaError_t CUDARTAPI cudaGetSymbolAddress(void **devPtr, const void *symbol)
{
    RT_RUN(devPtr ? rt_symbol_out(symbol, devPtr, NULL) : cudaErrorInvalidValue);
}

cudaError_t CUDARTAPI cudaGetSymbolSize(size_t *size, const void *symbol)
{
    RT_RUN(size ? rt_symbol_out(symbol, NULL, size) : cudaErrorInvalidValue);
}

static cudaError_t rt_get_kernel(cudaKernel_t *out, const void *func)
{
    CUkernel k = NULL;
    cudaError_t e = rt_kernel(func, &k);
    if (e == cudaSuccess)
        *out = k;
    return e;
}

cudaError_t CUDARTAPI cudaGetKernel(cudaKernel_t *kernelPtr, const void *entryFuncAddr)
{
    RT_RUN(kernelPtr ? rt_get_kernel(kernelPtr, entryFuncAddr) : cudaErrorInvalidValue);
}

cudaError_t CUDARTAPI cudaGetFuncBySymbol(cudaFunction_t *functionPtr, const void *symbolPtr)
{
    RT_RUN(functionPtr ? rt_function(symbolPtr, functionPtr) : cudaErrorInvalidValue);
}

/* ---- what nvcc's start-up code calls -----------------------------------------------------------------
 * Declared here: crt/host_runtime.h, which declares them, is for C++ only. */

void **CUDARTAPI __cudaRegisterFatBinary(void *fatCubin);
void CUDARTAPI __cudaRegisterFatBinaryEnd(void **fatCubinHandle);
void CUDARTAPI __cudaUnregisterFatBinary(void **fatCubinHandle);
void CUDARTAPI __cudaRegisterFunction(void **fatCubinHandle, const char *hostFun, char *deviceFun,
                                      const char *deviceName, int thread_limit, uint3 *tid,
                                      uint3 *bid, dim3 *bDim, dim3 *gDim, int *wSize);
void CUDARTAPI __cudaRegisterVar(void **fatCubinHandle, char *hostVar, char *deviceAddress,
                                 const char *deviceName, int ext, size_t size, int constant,
                                 int global);
void CUDARTAPI __cudaRegisterHostVar(void **fatCubinHandle, const char *deviceName, char *hostVar,
                                     size_t size);
void CUDARTAPI __cudaRegisterManagedVar(void **fatCubinHandle, void **hostVarPtrAddress,
                                        char *deviceAddress, const char *deviceName, int ext,
                                        size_t size, int constant, int global);
char CUDARTAPI __cudaInitModule(void **fatCubinHandle);
cudaError_t CUDARTAPI __cudaGetKernel(cudaKernel_t *kernel, const void *entryFuncAddr);

void **CUDARTAPI __cudaRegisterFatBinary(void *fatCubin)
{
    const struct rt_wrapper *w = fatCubin;
    struct rt_binary *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->image = w && w->magic == RT_WRAPPER_MAGIC ? w->data : fatCubin;
    pthread_mutex_lock(&code.lock);
    b->next = code.binaries;
    code.binaries = b;
    pthread_mutex_unlock(&code.lock);
    return (void **)b;
}

void CUDARTAPI __cudaRegisterFatBinaryEnd(void **fatCubinHandle)
{
    (void)fatCubinHandle; /* nothing is deferred to here: loading waits for the first use */
}

void CUDARTAPI __cudaUnregisterFatBinary(void **fatCubinHandle)
{
    struct rt_binary *b = (struct rt_binary *)fatCubinHandle;
    if (!b)
        return;
    pthread_mutex_lock(&code.lock);
    for (struct rt_binary **p = &code.binaries; *p; p = &(*p)->next) {
        if (*p == b) {
            *p = b->next;
            break;
        }
    }
    rt_entries_drop(b);
    pthread_mutex_unlock(&code.lock);
    if (b->library)
        (void)rt_drv[0].cuLibraryUnload(b->library);
    free(b);
}

static void rt_register(void **handle, const void *key, const char *name, void **managed,
                        size_t bytes)
{
    if (!handle || !key)
        return;
    pthread_mutex_lock(&code.lock);
    struct rt_entry *e = rt_entry_add(key);
    if (e) {
        e->binary = (struct rt_binary *)handle;
        e->name = name;
        e->managed = managed;
        e->bytes = bytes;
    }
    pthread_mutex_unlock(&code.lock);
}

void CUDARTAPI __cudaRegisterFunction(void **fatCubinHandle, const char *hostFun, char *deviceFun,
                                      const char *deviceName, int thread_limit, uint3 *tid,
                                      uint3 *bid, dim3 *bDim, dim3 *gDim, int *wSize)
{
    rt_register(fatCubinHandle, hostFun, deviceName, NULL, 0);
}

void CUDARTAPI __cudaRegisterVar(void **fatCubinHandle, char *hostVar, char *deviceAddress,
                                 const char *deviceName, int ext, size_t size, int constant,
                                 int global)
{
    rt_register(fatCubinHandle, hostVar, deviceName, NULL, size);
}

void CUDARTAPI __cudaRegisterHostVar(void **fatCubinHandle, const char *deviceName, char *hostVar,
                                     size_t size)
{
    rt_register(fatCubinHandle, hostVar, deviceName, NULL, size);
}

void CUDARTAPI __cudaRegisterManagedVar(void **fatCubinHandle, void **hostVarPtrAddress,
                                        char *deviceAddress, const char *deviceName, int ext,
                                        size_t size, int constant, int global)
{
    rt_register(fatCubinHandle, hostVarPtrAddress, deviceName, hostVarPtrAddress, size);
}

/* Gives the managed variables of a module their addresses. */
char CUDARTAPI __cudaInitModule(void **fatCubinHandle)
{
    struct rt_binary *b = (struct rt_binary *)fatCubinHandle;
    if (!b || rt_enter() != cudaSuccess)
        return 0;
    char done = 1;
    pthread_mutex_lock(&code.lock);
    for (size_t i = 0; i < code.cap; i++) {
        struct rt_entry *e = &code.entries[i];
        if (!e->key || e->binary != b || !e->managed)
            continue;
        CUdeviceptr p = 0;
        size_t n = 0;
        if (rt_binary_load(b) == cudaSuccess &&
            rt_drv[0].cuLibraryGetManaged(&p, &n, b->library, e->name) == CUDA_SUCCESS)
            *e->managed = (void *)(uintptr_t)p;
        else
            done = 0;
    }
    pthread_mutex_unlock(&code.lock);
    return done;
}

cudaError_t CUDARTAPI __cudaGetKernel(cudaKernel_t *kernel, const void *entryFuncAddr)
{
    RT_RUN(rt_get_kernel(kernel, entryFuncAddr));
}

/* ---- libraries ---------------------------------------------------------------------------------------*/

cudaError_t CUDARTAPI cudaLibraryLoadData(cudaLibrary_t *library, const void *code_image,
                                          enum cudaJitOption *jitOptions, void **jitOptionsValues,
                                          unsigned int numJitOptions,
                                          enum cudaLibraryOption *libraryOptions,
                                          void **libraryOptionValues,
                                          unsigned int numLibraryOptions)
{
    RT_RUN(library ? rt_error(rt_drv[0].cuLibraryLoadData(
                         library, code_image, (CUjit_option *)(void *)jitOptions, jitOptionsValues,
                         numJitOptions, (CUlibraryOption *)(void *)libraryOptions,
                         libraryOptionValues, numLibraryOptions))
                   : cudaErrorInvalidValue);
}

cudaError_t CUDARTAPI cudaLibraryLoadFromFile(cudaLibrary_t *library, const char *fileName,
                                              enum cudaJitOption *jitOptions,
                                              void **jitOptionsValues, unsigned int numJitOptions,
                                              enum cudaLibraryOption *libraryOptions,
                                              void **libraryOptionValues,
                                              unsigned int numLibraryOptions)
{
    RT_RUN(library ? rt_error(rt_drv[0].cuLibraryLoadFromFile(
                         library, fileName, (CUjit_option *)(void *)jitOptions, jitOptionsValues,
                         numJitOptions, (CUlibraryOption *)(void *)libraryOptions,
                         libraryOptionValues, numLibraryOptions))
                   : cudaErrorInvalidValue);
}

cudaError_t CUDARTAPI cudaLibraryUnload(cudaLibrary_t library)
{
    RT_RUN(rt_error(rt_drv[0].cuLibraryUnload(library)));
}

static cudaError_t rt_library_kernel(cudaKernel_t *out, cudaLibrary_t library, const char *name)
{
    CUkernel k = NULL;
    CUresult r = rt_drv[0].cuLibraryGetKernel(&k, library, name);
    cudaError_t e = r == CUDA_SUCCESS ? rt_kernel_known(k) : rt_error(r);
    if (e == cudaSuccess)
        *out = k;
    return e;
}

cudaError_t CUDARTAPI cudaLibraryGetKernel(cudaKernel_t *pKernel, cudaLibrary_t library,
                                           const char *name)
{
    RT_RUN(pKernel && name ? rt_library_kernel(pKernel, library, name) : cudaErrorInvalidValue);
}

static cudaError_t rt_library_kernels(cudaKernel_t *kernels, unsigned n, cudaLibrary_t library)
{
    unsigned count = 0;
    cudaError_t e = rt_error(rt_drv[0].cuLibraryGetKernelCount(&count, library));
    if (e == cudaSuccess)
        e = rt_error(rt_drv[0].cuLibraryEnumerateKernels(kernels, n, library));
    for (unsigned i = 0; e == cudaSuccess && i < n && i < count; i++)
        e = rt_kernel_known(kernels[i]);
    return e;
}

cudaError_t CUDARTAPI cudaLibraryEnumerateKernels(cudaKernel_t *kernels, unsigned int numKernels,
                                                  cudaLibrary_t lib)
{
    RT_RUN(kernels ? rt_library_kernels(kernels, numKernels, lib) : cudaErrorInvalidValue);
}

cudaError_t CUDARTAPI cudaLibraryGetKernelCount(unsigned int *count, cudaLibrary_t lib)
{
    RT_RUN(count ? rt_error(rt_drv[0].cuLibraryGetKernelCount(count, lib))
                 : cudaErrorInvalidValue);
}

static cudaError_t rt_library_global(void **address, size_t *bytes, cudaLibrary_t library,
                                     const char *name, int managed)
{
    CUdeviceptr p = 0;
    size_t n = 0;
    CUresult r = managed ? rt_drv[0].cuLibraryGetManaged(&p, &n, library, name)
                         : rt_drv[0].cuLibraryGetGlobal(&p, &n, library, name);
    if (r == CUDA_SUCCESS && address)
        *address = (void *)(uintptr_t)p;
    if (r == CUDA_SUCCESS && bytes)
        *bytes = n;
    return rt_error(r);
}

cudaError_t CUDARTAPI cudaLibraryGetGlobal(void **dptr, size_t *bytes, cudaLibrary_t library,
                                           const char *name)
{
    RT_RUN(name ? rt_library_global(dptr, bytes, library, name, 0) : cudaErrorInvalidValue);
}

cudaError_t CUDARTAPI cudaLibraryGetManaged(void **dptr, size_t *bytes, cudaLibrary_t library,
                                            const char *name)
{
    RT_RUN(name ? rt_library_global(dptr, bytes, library, name, 1) : cudaErrorInvalidValue);
}

cudaError_t CUDARTAPI cudaKernelSetAttributeForDevice(cudaKernel_t kernel,
                                                      enum cudaFuncAttribute attr, int value,
                                                      int device)
{
    RT_RUN(rt_error(rt_drv[0].cuKernelSetAttribute((CUfunction_attribute)attr, value, kernel,
                                                   device)));
}
