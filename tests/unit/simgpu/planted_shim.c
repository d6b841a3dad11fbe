/* A shim with one fault, named by PLANT, for test_planted.py:
 *   stale   the copy stream does not wait for the kernel that writes what is copied out
 *   event   compute does not wait for the copy in
 *   unmap   the host does not wait for the copy out before it unmaps
 *   skip    the first copy in is left out
 * The streams are told apart by the order in which they were made. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static CUstream compute, copy;

static int planted(const char *what)
{
    const char *p = getenv("PLANT");
    return p && strcmp(p, what) == 0;
}

CUresult CUDAAPI cuStreamCreate(CUstream *out, unsigned flags)
{
    CUresult (*next)(CUstream *, unsigned) =
        (CUresult(*)(CUstream *, unsigned))dlsym(RTLD_NEXT, "cuStreamCreate");
    CUresult r = next(out, flags);
    if (r == CUDA_SUCCESS && !compute)
        compute = *out;
    else if (r == CUDA_SUCCESS)
        copy = *out;
    return r;
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags)
{
    CUresult (*next)(CUstream, CUevent, unsigned) =
        (CUresult(*)(CUstream, CUevent, unsigned))dlsym(RTLD_NEXT, "cuStreamWaitEvent");
    if ((planted("stale") && s == copy) || (planted("event") && s == compute))
        return CUDA_SUCCESS;
    return next(s, e, flags);
}

CUresult CUDAAPI cuEventSynchronize(CUevent e)
{
    CUresult (*next)(CUevent) = (CUresult(*)(CUevent))dlsym(RTLD_NEXT, "cuEventSynchronize");
    return planted("unmap") ? CUDA_SUCCESS : next(e);
}

CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr dst, const void *src, size_t n, CUstream s)
{
    static int copies;
    CUresult (*next)(CUdeviceptr, const void *, size_t, CUstream) =
        (CUresult(*)(CUdeviceptr, const void *, size_t, CUstream))dlsym(RTLD_NEXT,
                                                                        "cuMemcpyHtoDAsync_v2");
    if (planted("skip") && copies++ == 0)
        return CUDA_SUCCESS;
    return next(dst, src, n, s);
}
