/* cuInit: the moment from which libvmem takes part. */
#include "door.h"

#include <dlfcn.h>
#include <pthread.h>

#include "config.h"
#include "driver.h"
#include "timing_cupti.h"
#include "torch.h"

static pthread_once_t init_once = PTHREAD_ONCE_INIT;

/* A child of a process that had initialised CUDA cannot use it: everything passes. */
static void in_forked_child(void)
{
    atomic_store_explicit(&vm_doors_state, VM_DOORS_CLOSED, memory_order_release);
    vm_log(FORKED);
}

static void *find_symbol(const char *name)
{
    vm_any_fn fn = vm_driver_symbol(name);
    void *p;
    __builtin_memcpy(&p, &fn, sizeof p);
    return p;
}

struct unknown {
    unsigned count;
    const char *first;
};

static void count_unknown(void *ctx, const char *name)
{
    struct unknown *u = ctx;
    if (!u->count++)
        u->first = name;
}

static void take_part(void)
{
    if (vm_config()->disabled)
        return;
    if (vm_log_wants(VM_LOG_INFO)) {
        struct unknown u = {0, ""};
        vm_driver_unknown_names(count_unknown, &u);
        if (u.count)
            vm_log(DRIVER_NEWER, u.count, u.first);
    }
    const char *missing = vm_driver_bind(find_symbol);
    if (!missing && !vm_uses.cuFuncGetParamInfo)
        missing = "cuFuncGetParamInfo";
    if (!missing && !vm_uses.cuFuncGetName)
        missing = "cuFuncGetName";
    if (missing) {
        vm_log(DRIVER_OLD, missing);
        return;
    }
    if (pthread_atfork(NULL, NULL, in_forked_child) != 0)
        return;
#ifdef VM_HAVE_CUPTI
    vm_timing_cupti_offer();
#endif
    vm_rt_after_init();
    atomic_store_explicit(&vm_doors_state, VM_DOORS_OPEN, memory_order_release);
}

VM_EXPORT CUresult cuInit(unsigned Flags)
{
    vm_fn_cuInit real = VM_REAL(cuInit);
    struct vm_scope scope = vm_enter();
    if (scope.outer && !vm_config()->disabled && vm_driver_present())
        vm_torch_prepare();
    CUresult r = real(Flags);
    if (r == CUDA_SUCCESS && scope.outer && vm_driver_present())
        pthread_once(&init_once, take_part);
    vm_leave(scope);
    return r;
}
