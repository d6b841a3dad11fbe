/* A machine without a driver: what the calls answer. A bare system would not even have the library; the
 * nearest honest answers are a driver of version 0 (the runtime then says that the driver is insufficient)
 * and, from cuInit, the error that XLA's own stand-in for an absent library gives (JAX and TensorFlow
 * then say what they say without us). */
#include "resolve.h"

#include <string.h>
#include "vm_names.h"

static CUresult no_version(int *version)
{
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = 0;
    return CUDA_SUCCESS;
}

static CUresult no_init(void)
{
    return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
}

static CUresult not_initialised(void)
{
    return CUDA_ERROR_NOT_INITIALIZED;
}

/* The errors that can come from here, so that a program can print them. One has no name: XLA takes that
 * for the sign that the library is absent, and says so. */
static const struct {
    CUresult code;
    const char *name, *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_SHARED_OBJECT_INIT_FAILED, NULL, "there is no CUDA driver on this machine"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
};

static CUresult describe(CUresult error, const char **out, bool name)
{
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == error)
            *out = name ? errors[i].name : errors[i].text;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult error_name(CUresult error, const char **out)
{
    return describe(error, out, true);
}

static CUresult error_string(CUresult error, const char **out)
{
    return describe(error, out, false);
}

vm_any_fn vm_no_driver_answer(const char *name)
{
    if (strcmp(name, "cuDriverGetVersion") == 0)
        return (vm_any_fn)no_version;
    if (strcmp(name, "cuInit") == 0)
        return (vm_any_fn)no_init;
    if (strcmp(name, "cuGetErrorName") == 0)
        return (vm_any_fn)error_name;
    if (strcmp(name, "cuGetErrorString") == 0)
        return (vm_any_fn)error_string;
    return (vm_any_fn)not_initialised;
}
