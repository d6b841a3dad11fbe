/* Kernel launches and host functions. */
#include "door.h"
#include "function.h"

/* How one launch is issued, whatever its entry point. */
struct launch {
    CUfunction f;
    CUstream stream;
    bool per_thread;
    unsigned grid[3], block[3], shared;
    void **params, **extra;
};

/* The op of a launch: its blocks and a signature that is the same in every run. False: the kernel
 * is not known (bad handle, or it was logged) and the launch goes on without us. */
static bool describe(struct vm_op *op, const struct launch *l)
{
    const struct vm_function *fn = vm_function_of(l->f);
    if (!fn)
        return false;
    vm_op_init(op, VM_OP_LAUNCH, l->stream, l->per_thread);
    op->name = fn->name;
    vm_op_sign(op, fn->name_hash);
    vm_op_sign(op, (uint64_t)l->grid[0] << 32 | l->grid[1]);
    vm_op_sign(op, (uint64_t)l->grid[2] << 32 | l->shared);
    vm_op_sign(op, (uint64_t)l->block[0] << 40 | (uint64_t)l->block[1] << 20 | l->block[2]);
    vm_op_sign(op, fn->param_bytes);
    vm_function_scan(op, fn, l->grid, l->params, l->extra);
    return true;
}

/* One launch around `call`, which is evaluated once at least: again while the driver loads the
 * kernel lazily and runs out of memory, which the runtime may relieve. */
#define LAUNCH(result, launch, call)                                                               \
    do {                                                                                           \
        struct vm_op op_;                                                                          \
        if (!describe(&op_, launch)) {                                                             \
            VM_RETRY(result, call);                                                                \
            break;                                                                                 \
        }                                                                                          \
        (result) = vm_rt_op_before(&op_);                                                          \
        if ((result) != CUDA_SUCCESS) /* the runtime's own word, nothing to relieve */             \
            break;                                                                                 \
        (result) = (call);                                                                         \
        vm_rt_op_after(&op_, result);                                                              \
    } while ((result) == CUDA_ERROR_OUT_OF_MEMORY && vm_rt_relieve())

CUresult door_cuLaunchKernel(vm_fn_cuLaunchKernel real, bool per_thread, CUfunction f,
                             unsigned gridDimX, unsigned gridDimY, unsigned gridDimZ,
                             unsigned blockDimX, unsigned blockDimY, unsigned blockDimZ,
                             unsigned sharedMemBytes, CUstream hStream, void **kernelParams,
                             void **extra)
{
    CUresult r;
    const struct launch l = {f,
                             hStream,
                             per_thread,
                             {gridDimX, gridDimY, gridDimZ},
                             {blockDimX, blockDimY, blockDimZ},
                             sharedMemBytes,
                             kernelParams,
                             extra};
    LAUNCH(r, &l,
           real(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes,
                hStream, kernelParams, extra));
    return r;
}

CUresult door_cuLaunchKernelEx(vm_fn_cuLaunchKernelEx real, bool per_thread,
                               const CUlaunchConfig *config, CUfunction f, void **kernelParams,
                               void **extra)
{
    CUresult r;
    if (!config)
        return real(config, f, kernelParams, extra);
    const struct launch l = {f,
                             config->hStream,
                             per_thread,
                             {config->gridDimX, config->gridDimY, config->gridDimZ},
                             {config->blockDimX, config->blockDimY, config->blockDimZ},
                             config->sharedMemBytes,
                             kernelParams,
                             extra};
    LAUNCH(r, &l, real(config, f, kernelParams, extra));
    return r;
}

CUresult door_cuLaunchCooperativeKernel(vm_fn_cuLaunchCooperativeKernel real, bool per_thread,
                                        CUfunction f, unsigned gridDimX, unsigned gridDimY,
                                        unsigned gridDimZ, unsigned blockDimX, unsigned blockDimY,
                                        unsigned blockDimZ, unsigned sharedMemBytes,
                                        CUstream hStream, void **kernelParams)
{
    CUresult r;
    const struct launch l = {f,
                             hStream,
                             per_thread,
                             {gridDimX, gridDimY, gridDimZ},
                             {blockDimX, blockDimY, blockDimZ},
                             sharedMemBytes,
                             kernelParams,
                             NULL};
    LAUNCH(r, &l,
           real(f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes,
                hStream, kernelParams));
    return r;
}

static void pin_word(void *ctx, CUdeviceptr word)
{
    CUdeviceptr base;
    size_t bytes;
    if (word && vm_rt_range(word, &base, &bytes))
        vm_rt_pin(word);
}

/* One call, many devices and streams: what it touches stays on its devices. */
CUresult door_cuLaunchCooperativeKernelMultiDevice(vm_fn_cuLaunchCooperativeKernelMultiDevice real,
                                                   bool per_thread,
                                                   CUDA_LAUNCH_PARAMS *launchParamsList,
                                                   unsigned numDevices, unsigned flags)
{
    for (unsigned i = 0; launchParamsList && i < numDevices; i++)
        vm_function_words(launchParamsList[i].function, launchParamsList[i].kernelParams, NULL,
                          pin_word, NULL);
    return real(launchParamsList, numDevices, flags);
}

/* Parameters of the launch calls of CUDA 3, set ahead of the launch. */
CUresult door_cuParamSetv(vm_fn_cuParamSetv real, bool per_thread, CUfunction hfunc, int offset,
                          void *ptr, unsigned numbytes)
{
    if (ptr)
        vm_rt_escape_scan(ptr, numbytes);
    return real(hfunc, offset, ptr, numbytes);
}

/* ---- host functions: they see host memory that earlier work wrote -----------------------------*/

CUresult door_cuLaunchHostFunc(vm_fn_cuLaunchHostFunc real, bool per_thread, CUstream hStream,
                               CUhostFn fn, void *userData)
{
    struct vm_op op;
    vm_op_init(&op, VM_OP_HOSTFUNC, hStream, per_thread);
    op.host_visible = true;
    CUresult r = vm_rt_op_before(&op);
    if (r != CUDA_SUCCESS)
        return r;
    r = real(hStream, fn, userData);
    vm_rt_op_after(&op, r);
    return r;
}

CUresult door_cuStreamAddCallback(vm_fn_cuStreamAddCallback real, bool per_thread, CUstream hStream,
                                  CUstreamCallback callback, void *userData, unsigned flags)
{
    struct vm_op op;
    vm_op_init(&op, VM_OP_HOSTFUNC, hStream, per_thread);
    op.host_visible = true;
    CUresult r = vm_rt_op_before(&op);
    if (r != CUDA_SUCCESS)
        return r;
    r = real(hStream, callback, userData, flags);
    vm_rt_op_after(&op, r);
    return r;
}
