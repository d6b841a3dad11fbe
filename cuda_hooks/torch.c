/* PyTorch. See torch.h; the exported allocator pair is for
 * torch.cuda.memory.CUDAPluggableAllocator. */
#include "torch.h"

#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>

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

/* A second thread might read the environment while it is changed. */
static bool one_thread(void)
{
    struct stat st;
    return stat("/proc/self/task", &st) == 0 && st.st_nlink == 3; /* ., .., one task */
}

void vm_torch_prepare(void)
{
    static atomic_bool done;
    static const char *const choices[] = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"};
    bool torch = false;
    if (!vm_config()->torch || atomic_exchange(&done, true))
        return;
    dl_iterate_phdr(is_torch, &torch);
    if (!torch || getenv(CACHE_OFF))
        return;
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++)
        if (getenv(choices[i])) {
            vm_log(TORCH_ARENA, choices[i]);
            return;
        }
    if (one_thread() && setenv(CACHE_OFF, "1", 1) == 0)
        vm_log(TORCH_CACHE);
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
