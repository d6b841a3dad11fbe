/* PyTorch. See torch.h; the exported allocator pair is for
 * torch.cuda.memory.CUDAPluggableAllocator. */
#include "torch.h"

#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "config.h"
#include "door.h"

#define CACHE_OFF "PYTORCH_NO_CUDA_MEMORY_CACHING"

static int is_torch(struct dl_phdr_info *info, size_t size, void *found)
{
    const char *name = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    if (name && strncmp(name, "/libc10_cuda.so", 15) == 0)
        *(bool *)found = true;
    return *(bool *)found;
}

/* setenv() may move the array of variables under a thread that reads it, and a process with PyTorch
 * in it has other threads by now (those of its arithmetic libraries). So a copy with one line more
 * takes the place of the array in one step; who still reads the old one finds it as it was. */
static bool add_to_environment(char *line)
{
    for (;;) {
        char **now = __atomic_load_n(&environ, __ATOMIC_ACQUIRE);
        size_t n = 0;
        while (now && now[n])
            n++;
        char **more = malloc((n + 2) * sizeof *more);
        if (!more)
            return false;
        if (n > 0)
            memcpy(more, now, n * sizeof *more);
        more[n] = line;
        more[n + 1] = NULL;
        if (__atomic_compare_exchange_n(&environ, &now, more, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED))
            return true;
        free(more);
    }
}

/* The variable that holds settings of PyTorch's allocator, or NULL. */
static const char *settings(const char **value)
{
    static const char *const names[] = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        *value = getenv(names[i]);
        if (*value && **value)
            return names[i];
    }
    return NULL;
}

/* Does the list KEY:VALUE,... have this pair? PyTorch overlooks spaces. */
static bool has_setting(const char *list, const char *key, const char *value)
{
    const char *const parts[] = {key, ":", value};
    for (; list && *list; list++) {
        const char *at = list;
        size_t i = 0;
        for (; i < 3; i++) {
            at += strspn(at, " ");
            size_t n = strlen(parts[i]);
            if (strncmp(at, parts[i], n) != 0)
                break;
            at += n;
        }
        if (i == 3)
            return true;
    }
    return false;
}

void vm_torch_prepare(void)
{
    static atomic_bool done;
    static char line[] = CACHE_OFF "=1";
    const char *list = NULL, *name;
    bool torch = false;
    if (atomic_exchange(&done, true))
        return;
    dl_iterate_phdr(is_torch, &torch);
    if (!torch)
        return;
    if (getenv(CACHE_OFF)) {
        if (vm_config()->torch)
            vm_rt_serve_captures();
        return;
    }
    name = settings(&list);
    if (has_setting(list, "backend", "cudaMallocAsync"))
        vm_log(TORCH_POOL, name);
    else if (!vm_config()->torch && has_setting(list, "expandable_segments", "True"))
        vm_log(TORCH_EXPANDABLE, name);
    else if (!vm_config()->torch)
        vm_log(TORCH_ARENA);
    else if (add_to_environment(line)) {
        vm_rt_serve_captures();
        vm_log(TORCH_CACHE);
        if (name)
            vm_log(TORCH_SETTINGS, name);
    }
}

/* ---- the allocator pair -----------------------------------------------------------------------*/

#define MAX_DEVICES 64

/* The device's primary context; retained once and kept for the life of the process. */
static CUcontext context_of(int device)
{
    static _Atomic(CUcontext) kept[MAX_DEVICES];
    if (device < 0 || device >= MAX_DEVICES)
        return NULL;
    CUcontext ctx = atomic_load(&kept[device]), none = NULL;
    if (ctx || cuDevicePrimaryCtxRetain(&ctx, device) != CUDA_SUCCESS)
        return ctx;
    if (!atomic_compare_exchange_strong(&kept[device], &none, ctx))
        cuDevicePrimaryCtxRelease_v2(device); /* another thread was first */
    return ctx;
}

/* Makes the device's primary context current unless a context of that device is. */
static bool enter_device(int device, bool *pushed)
{
    CUdevice current;
    *pushed = false;
    if (vm_uses.cuCtxGetDevice && vm_uses.cuCtxGetDevice(&current) == CUDA_SUCCESS &&
        current == device)
        return true;
    CUcontext ctx = context_of(device);
    if (ctx && vm_uses.cuCtxPushCurrent_v2)
        *pushed = vm_uses.cuCtxPushCurrent_v2(ctx) == CUDA_SUCCESS;
    return *pushed;
}

static void leave_device(bool pushed)
{
    CUcontext ctx;
    if (pushed && vm_uses.cuCtxPopCurrent_v2)
        vm_uses.cuCtxPopCurrent_v2(&ctx);
}

VM_EXPORT void *vmem_torch_malloc(ssize_t size, int device, CUstream stream);
VM_EXPORT void vmem_torch_free(void *ptr, ssize_t size, int device, CUstream stream);
VM_EXPORT void vmem_torch_record_stream(void *ptr, CUstream stream);
VM_EXPORT void vmem_torch_reset(void);
VM_EXPORT void vmem_torch_memory_fraction(double fraction, int device);
VM_EXPORT void *vmem_torch_base_alloc(void *ptr, size_t *size);

/* Memory on `device`, ordered on `stream`. NULL when there is none. */
VM_EXPORT void *vmem_torch_malloc(ssize_t size, int device, CUstream stream)
{
    CUdeviceptr p = 0;
    bool pushed;
    if (size <= 0 || !vm_driver_present() || !enter_device(device, &pushed))
        return NULL;
    if (cuMemAllocAsync(&p, (size_t)size, stream) != CUDA_SUCCESS)
        p = 0;
    leave_device(pushed);
    return (void *)(uintptr_t)p;
}

/* Work that uses the memory may still be in flight on `stream`. */
VM_EXPORT void vmem_torch_free(void *ptr, ssize_t size, int device, CUstream stream)
{
    bool pushed;
    if (!ptr || !enter_device(device, &pushed))
        return;
    cuMemFreeAsync((CUdeviceptr)(uintptr_t)ptr, stream);
    leave_device(pushed);
}

/* The memory is used on `stream` too. Nothing has to be noted: what a free gives back is used again only
 * behind the work that every stream of the context has by then. */
VM_EXPORT void vmem_torch_record_stream(void *ptr, CUstream stream)
{
    (void)ptr;
    (void)stream;
}

/* torch.cuda.empty_cache(): memory of the current device that no tensor uses goes back to the driver. */
VM_EXPORT void vmem_torch_reset(void)
{
    vm_rt_trim();
}

/* torch.cuda.set_per_process_memory_fraction(): tensors take at most this share of the card's memory,
 * and never more than the budget. */
VM_EXPORT void vmem_torch_memory_fraction(double fraction, int device)
{
    bool pushed;
    if (!(fraction >= 0 && fraction <= 1) || !vm_driver_present() ||
        !enter_device(device, &pushed))
        return;
    vm_rt_limit(fraction);
    leave_device(pushed);
}

/* The allocation that holds `ptr`: its first address, and its bytes in *size (may be NULL). `ptr` itself
 * and no bytes where it is none of ours. */
VM_EXPORT void *vmem_torch_base_alloc(void *ptr, size_t *size)
{
    CUdeviceptr base = (CUdeviceptr)(uintptr_t)ptr;
    size_t bytes = 0;
    vm_rt_range(base, &base, &bytes);
    if (size)
        *size = bytes;
    return (void *)(uintptr_t)base;
}
