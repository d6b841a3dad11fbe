/* A shim with one fault, named by PLANT, for test_planted.py:
 *   stale   the copy stream does not wait for the kernel that writes what is copied out
 *   event   compute does not wait for the copy in
 *   unmap   the host does not wait for the copy out before it unmaps
 *   reuse   the next block's copy in does not wait for the copy out of what the memory held before
 *   deaf    a copy out that fails is taken for done
 *   skip    the first copy in is left out
 * The streams are told apart by the order in which they were made. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static CUstream compute, copy;
static CUstream other; /* reuse: of the copies in */
static CUdeviceptr mapped; /* reuse: still to be unmapped, 0: nothing */
static size_t mapped_bytes;

#define NEXT(f) ((__typeof__(&f))dlsym(RTLD_NEXT, #f))

static int planted(const char *what)
{
    const char *p = getenv("PLANT");
    return p && strcmp(p, what) == 0;
}

CUresult CUDAAPI cuStreamCreate(CUstream *out, unsigned flags)
{
    CUresult r = NEXT(cuStreamCreate)(out, flags);
    if (r == CUDA_SUCCESS && !compute)
        compute = *out;
    else if (r == CUDA_SUCCESS)
        copy = *out;
    return r;
}

/* Everything is done, so that what is put off now is the only fault: what was mapped goes. */
static void catch_up(void)
{
    NEXT(cuCtxSynchronize)();
    if (mapped)
        NEXT(cuMemUnmap)(mapped, mapped_bytes);
    mapped = 0;
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream s, CUevent e, unsigned flags)
{
    if (planted("reuse") && s == copy)
        catch_up();
    if ((planted("stale") && s == copy) || (planted("event") && s == compute))
        return CUDA_SUCCESS;
    return NEXT(cuStreamWaitEvent)(s, e, flags);
}

CUresult CUDAAPI cuEventSynchronize(CUevent e)
{
    return planted("unmap") || planted("reuse") ? CUDA_SUCCESS : NEXT(cuEventSynchronize)(e);
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr p, size_t n)
{
    if (!planted("reuse"))
        return NEXT(cuMemUnmap)(p, n);
    mapped = p;
    mapped_bytes = n;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemcpyDtoHAsync(void *dst, CUdeviceptr src, size_t n, CUstream s)
{
    CUresult r = NEXT(cuMemcpyDtoHAsync_v2)(dst, src, n, s);
    return planted("deaf") ? CUDA_SUCCESS : r;
}

/* On a stream of their own, which the copy stream follows. */
static CUresult copy_in_apart(CUdeviceptr dst, const void *src, size_t n, CUstream s)
{
    static CUevent done;
    if (!other && (NEXT(cuStreamCreate)(&other, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
                   NEXT(cuEventCreate)(&done, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS))
        return CUDA_ERROR_UNKNOWN;
    NEXT(cuMemcpyHtoDAsync_v2)(dst, src, n, other);
    NEXT(cuEventRecord)(done, other);
    return NEXT(cuStreamWaitEvent)(s, done, 0);
}

CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr dst, const void *src, size_t n, CUstream s)
{
    static int copies;
    if (planted("skip") && copies++ == 0)
        return CUDA_SUCCESS;
    return planted("reuse") ? copy_in_apart(dst, src, n, s)
                            : NEXT(cuMemcpyHtoDAsync_v2)(dst, src, n, s);
}
