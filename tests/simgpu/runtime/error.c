/* error.c: the thread's last error, and the names and words of every code. */
#include "rt.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static _Thread_local cudaError_t rt_thread_error;

cudaError_t rt_last(cudaError_t e)
{
    if (e != cudaSuccess)
        rt_thread_error = e;
    return e;
}

cudaError_t rt_error(CUresult r)
{
    /* The two enumerations share their numbers but for a few codes that only the driver has. */
    switch ((int)r) {
    case 202: /* CUDA_ERROR_CONTEXT_ALREADY_CURRENT */
        return cudaErrorUnknown;
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
        return cudaErrorContextIsDestroyed;
    default:
        return (cudaError_t)r;
    }
}

cudaError_t CUDARTAPI cudaGetLastError(void)
{
    cudaError_t e = rt_thread_error;
    rt_thread_error = cudaSuccess;
    return e;
}

cudaError_t CUDARTAPI cudaPeekAtLastError(void)
{
    return rt_thread_error;
}

/* Generated from driver_types.h: code, name, the name in words. */
struct rt_error_name {
    int code;
    const char *name, *words;
};
static const struct rt_error_name rt_error_names[] = {
#include "error_names.h"
};

static const struct rt_error_name *rt_error_find(cudaError_t e)
{
    for (size_t i = 0; i < sizeof rt_error_names / sizeof rt_error_names[0]; i++)
        if (rt_error_names[i].code == (int)e)
            return &rt_error_names[i];
    return NULL;
}

const char *CUDARTAPI cudaGetErrorName(cudaError_t error)
{
    const struct rt_error_name *n = rt_error_find(error);
    return n ? n->name : "unrecognized error code";
}

const char *CUDARTAPI cudaGetErrorString(cudaError_t error)
{
    /* what programs print most, in the words that people search for */
    switch (error) {
    case cudaSuccess:
        return "no error";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorInvalidValue:
        return "invalid argument";
    case cudaErrorInsufficientDriver:
        return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
        return "invalid device ordinal";
    case cudaErrorIllegalAddress:
        return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure:
        return "unspecified launch failure";
    case cudaErrorNotReady:
        return "device not ready";
    case cudaErrorNotSupported:
        return "operation not supported";
    default: {
        const struct rt_error_name *n = rt_error_find(error);
        return n ? n->words : "unrecognized error code";
    }
    }
}

cudaError_t rt_unsupported(const char *function)
{
    static _Atomic(const char *) told[64];
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++) {
        const char *empty = NULL;
        if (atomic_compare_exchange_strong(&told[i], &empty, function)) {
            fprintf(stderr, "simgpu: %s is not supported by the simulated CUDA runtime\n", function);
            break;
        }
        if (strcmp(empty, function) == 0)
            break;
    }
    return rt_last(cudaErrorNotSupported);
}
