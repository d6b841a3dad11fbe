/* copy.c: copies and memsets in all their forms but those of arrays. */
#include "rt.h"

#include <string.h>

static cudaError_t rt_memcpy(const struct rt_driver *d, void *dst, const void *src, size_t n,
                             enum cudaMemcpyKind kind)
{
    if (!n)
        return cudaSuccess;
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return rt_error(d->cuMemcpyHtoD(rt_ptr(dst), src, n));
    case cudaMemcpyDeviceToHost:
        return rt_error(d->cuMemcpyDtoH(dst, rt_ptr(src), n));
    case cudaMemcpyDeviceToDevice:
        return rt_error(d->cuMemcpyDtoD(rt_ptr(dst), rt_ptr(src), n));
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
        return rt_error(d->cuMemcpy(rt_ptr(dst), rt_ptr(src), n));
    default:
        return cudaErrorInvalidMemcpyDirection;
    }
}

RT_TWINS(cudaMemcpy, _ptds, rt_memcpy,
         (void *dst, const void *src, size_t count, enum cudaMemcpyKind kind), dst, src, count, kind)

static cudaError_t rt_memcpy_async(const struct rt_driver *d, void *dst, const void *src, size_t n,
                                   enum cudaMemcpyKind kind, CUstream stream)
{
    if (!n)
        return cudaSuccess;
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return rt_error(d->cuMemcpyHtoDAsync(rt_ptr(dst), src, n, stream));
    case cudaMemcpyDeviceToHost:
        return rt_error(d->cuMemcpyDtoHAsync(dst, rt_ptr(src), n, stream));
    case cudaMemcpyDeviceToDevice:
        return rt_error(d->cuMemcpyDtoDAsync(rt_ptr(dst), rt_ptr(src), n, stream));
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
        return rt_error(d->cuMemcpyAsync(rt_ptr(dst), rt_ptr(src), n, stream));
    default:
        return cudaErrorInvalidMemcpyDirection;
    }
}

RT_TWINS(cudaMemcpyAsync, _ptsz, rt_memcpy_async,
         (void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream),
         dst, src, count, kind, stream)

/* ---- symbols --------------------------------------------------------------------------------------*/

static cudaError_t rt_symbol_range(const void *symbol, size_t count, size_t offset, void **address)
{
    CUdeviceptr base = 0;
    size_t bytes = 0;
    cudaError_t e = rt_symbol(symbol, &base, &bytes);
    if (e != cudaSuccess)
        return e;
    if (offset > bytes || count > bytes - offset)
        return cudaErrorInvalidValue;
    *address = (void *)(uintptr_t)(base + offset);
    return cudaSuccess;
}

static cudaError_t rt_to_symbol(const struct rt_driver *d, const void *symbol, const void *src,
                                size_t count, size_t offset, enum cudaMemcpyKind kind)
{
    void *address = NULL;
    cudaError_t e = rt_symbol_range(symbol, count, offset, &address);
    return e != cudaSuccess ? e : rt_memcpy(d, address, src, count, kind);
}

static cudaError_t rt_from_symbol(const struct rt_driver *d, void *dst, const void *symbol,
                                  size_t count, size_t offset, enum cudaMemcpyKind kind)
{
    void *address = NULL;
    cudaError_t e = rt_symbol_range(symbol, count, offset, &address);
    return e != cudaSuccess ? e : rt_memcpy(d, dst, address, count, kind);
}

static cudaError_t rt_to_symbol_async(const struct rt_driver *d, const void *symbol,
                                      const void *src, size_t count, size_t offset,
                                      enum cudaMemcpyKind kind, CUstream stream)
{
    void *address = NULL;
    cudaError_t e = rt_symbol_range(symbol, count, offset, &address);
    return e != cudaSuccess ? e : rt_memcpy_async(d, address, src, count, kind, stream);
}

static cudaError_t rt_from_symbol_async(const struct rt_driver *d, void *dst, const void *symbol,
                                        size_t count, size_t offset, enum cudaMemcpyKind kind,
                                        CUstream stream)
{
    void *address = NULL;
    cudaError_t e = rt_symbol_range(symbol, count, offset, &address);
    return e != cudaSuccess ? e : rt_memcpy_async(d, dst, address, count, kind, stream);
}

RT_TWINS(cudaMemcpyToSymbol, _ptds, rt_to_symbol,
         (const void *symbol, const void *src, size_t count, size_t offset,
          enum cudaMemcpyKind kind),
         symbol, src, count, offset, kind)
RT_TWINS(cudaMemcpyFromSymbol, _ptds, rt_from_symbol,
         (void *dst, const void *symbol, size_t count, size_t offset, enum cudaMemcpyKind kind),
         dst, symbol, count, offset, kind)
RT_TWINS(cudaMemcpyToSymbolAsync, _ptsz, rt_to_symbol_async,
         (const void *symbol, const void *src, size_t count, size_t offset,
          enum cudaMemcpyKind kind, cudaStream_t stream),
         symbol, src, count, offset, kind, stream)
RT_TWINS(cudaMemcpyFromSymbolAsync, _ptsz, rt_from_symbol_async,
         (void *dst, const void *symbol, size_t count, size_t offset, enum cudaMemcpyKind kind,
          cudaStream_t stream),
         dst, symbol, count, offset, kind, stream)

/* ---- peers ----------------------------------------------------------------------------------------*/

static cudaError_t rt_peer_contexts(int a, int b, CUcontext *ca, CUcontext *cb)
{
    if (a < 0 || b < 0 || a >= rt_device_count() || b >= rt_device_count())
        return cudaErrorInvalidDevice;
    cudaError_t e = rt_primary(a, ca);
    return e != cudaSuccess ? e : rt_primary(b, cb);
}

static cudaError_t rt_memcpy_peer(const struct rt_driver *d, void *dst, int dst_device,
                                  const void *src, int src_device, size_t n)
{
    CUcontext to = NULL, from = NULL;
    cudaError_t e = rt_peer_contexts(dst_device, src_device, &to, &from);
    if (e != cudaSuccess || !n)
        return e;
    return rt_error(d->cuMemcpyPeer(rt_ptr(dst), to, rt_ptr(src), from, n));
}

cudaError_t CUDARTAPI cudaMemcpyPeer(void *dst, int dstDevice, const void *src, int srcDevice,
                                     size_t count)
{
    RT_RUN(rt_memcpy_peer(&rt_drv[0], dst, dstDevice, src, srcDevice, count));
}

static cudaError_t rt_memcpy_peer_async(const struct rt_driver *d, void *dst, int dst_device,
                                        const void *src, int src_device, size_t n, CUstream stream)
{
    CUcontext to = NULL, from = NULL;
    cudaError_t e = rt_peer_contexts(dst_device, src_device, &to, &from);
    if (e != cudaSuccess || !n)
        return e;
    return rt_error(d->cuMemcpyPeerAsync(rt_ptr(dst), to, rt_ptr(src), from, n, stream));
}

cudaError_t CUDARTAPI cudaMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice,
                                          size_t count, cudaStream_t stream)
{
    RT_RUN(rt_memcpy_peer_async(&rt_drv[0], dst, dstDevice, src, srcDevice, count, stream));
}

/* ---- two dimensions ---------------------------------------------------------------------------------*/

/* Memory types of the two ends; 0 if `kind` is none of the enumeration. */
static int rt_kind_types(enum cudaMemcpyKind kind, CUmemorytype *dst, CUmemorytype *src)
{
    switch (kind) {
    case cudaMemcpyHostToHost:
        *src = *dst = CU_MEMORYTYPE_HOST;
        return 1;
    case cudaMemcpyHostToDevice:
        *src = CU_MEMORYTYPE_HOST, *dst = CU_MEMORYTYPE_DEVICE;
        return 1;
    case cudaMemcpyDeviceToHost:
        *src = CU_MEMORYTYPE_DEVICE, *dst = CU_MEMORYTYPE_HOST;
        return 1;
    case cudaMemcpyDeviceToDevice:
        *src = *dst = CU_MEMORYTYPE_DEVICE;
        return 1;
    case cudaMemcpyDefault:
        *src = *dst = CU_MEMORYTYPE_UNIFIED;
        return 1;
    default:
        return 0;
    }
}

static cudaError_t rt_copy_2d(CUDA_MEMCPY2D *c, void *dst, size_t dpitch, const void *src,
                              size_t spitch, size_t width, size_t height, enum cudaMemcpyKind kind)
{
    memset(c, 0, sizeof *c);
    if (!rt_kind_types(kind, &c->dstMemoryType, &c->srcMemoryType))
        return cudaErrorInvalidMemcpyDirection;
    if (width > dpitch || width > spitch)
        return cudaErrorInvalidPitchValue;
    c->dstHost = dst;
    c->dstDevice = rt_ptr(dst);
    c->dstPitch = dpitch;
    c->srcHost = src;
    c->srcDevice = rt_ptr(src);
    c->srcPitch = spitch;
    c->WidthInBytes = width;
    c->Height = height;
    return cudaSuccess;
}

static cudaError_t rt_memcpy_2d(const struct rt_driver *d, void *dst, size_t dpitch,
                                const void *src, size_t spitch, size_t width, size_t height,
                                enum cudaMemcpyKind kind)
{
    CUDA_MEMCPY2D c;
    cudaError_t e = rt_copy_2d(&c, dst, dpitch, src, spitch, width, height, kind);
    if (e != cudaSuccess || !width || !height)
        return e;
    return rt_error(d->cuMemcpy2DUnaligned(&c));
}

static cudaError_t rt_memcpy_2d_async(const struct rt_driver *d, void *dst, size_t dpitch,
                                      const void *src, size_t spitch, size_t width, size_t height,
                                      enum cudaMemcpyKind kind, CUstream stream)
{
    CUDA_MEMCPY2D c;
    cudaError_t e = rt_copy_2d(&c, dst, dpitch, src, spitch, width, height, kind);
    if (e != cudaSuccess || !width || !height)
        return e;
    return rt_error(d->cuMemcpy2DAsync(&c, stream));
}

RT_TWINS(cudaMemcpy2D, _ptds, rt_memcpy_2d,
         (void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
          enum cudaMemcpyKind kind),
         dst, dpitch, src, spitch, width, height, kind)
RT_TWINS(cudaMemcpy2DAsync, _ptsz, rt_memcpy_2d_async,
         (void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
          enum cudaMemcpyKind kind, cudaStream_t stream),
         dst, dpitch, src, spitch, width, height, kind, stream)

/* ---- three dimensions -------------------------------------------------------------------------------*/

/* Between pitched pointers only: arrays cannot be created here, so that none can be named. */
cudaError_t rt_copy_3d(CUDA_MEMCPY3D *c, const struct cudaMemcpy3DParms *p)
{
    memset(c, 0, sizeof *c);
    if (!p || p->srcArray || p->dstArray || !p->srcPtr.ptr || !p->dstPtr.ptr)
        return cudaErrorInvalidValue;
    if (!rt_kind_types(p->kind, &c->dstMemoryType, &c->srcMemoryType))
        return cudaErrorInvalidMemcpyDirection;
    c->srcHost = p->srcPtr.ptr;
    c->srcDevice = rt_ptr(p->srcPtr.ptr);
    c->srcPitch = p->srcPtr.pitch;
    c->srcHeight = p->srcPtr.ysize;
    c->srcXInBytes = p->srcPos.x, c->srcY = p->srcPos.y, c->srcZ = p->srcPos.z;
    c->dstHost = p->dstPtr.ptr;
    c->dstDevice = rt_ptr(p->dstPtr.ptr);
    c->dstPitch = p->dstPtr.pitch;
    c->dstHeight = p->dstPtr.ysize;
    c->dstXInBytes = p->dstPos.x, c->dstY = p->dstPos.y, c->dstZ = p->dstPos.z;
    c->WidthInBytes = p->extent.width;
    c->Height = p->extent.height;
    c->Depth = p->extent.depth;
    return cudaSuccess;
}

static cudaError_t rt_memcpy_3d(const struct rt_driver *d, const struct cudaMemcpy3DParms *p)
{
    CUDA_MEMCPY3D c;
    cudaError_t e = rt_copy_3d(&c, p);
    if (e != cudaSuccess || !c.WidthInBytes || !c.Height || !c.Depth)
        return e;
    return rt_error(d->cuMemcpy3D(&c));
}

static cudaError_t rt_memcpy_3d_async(const struct rt_driver *d, const struct cudaMemcpy3DParms *p,
                                      CUstream stream)
{
    CUDA_MEMCPY3D c;
    cudaError_t e = rt_copy_3d(&c, p);
    if (e != cudaSuccess || !c.WidthInBytes || !c.Height || !c.Depth)
        return e;
    return rt_error(d->cuMemcpy3DAsync(&c, stream));
}

RT_TWINS(cudaMemcpy3D, _ptds, rt_memcpy_3d, (const struct cudaMemcpy3DParms *p), p)
RT_TWINS(cudaMemcpy3DAsync, _ptsz, rt_memcpy_3d_async,
         (const struct cudaMemcpy3DParms *p, cudaStream_t stream), p, stream)

/* ---- memsets ----------------------------------------------------------------------------------------*/

static cudaError_t rt_memset(const struct rt_driver *d, void *ptr, int value, size_t n)
{
    return n ? rt_error(d->cuMemsetD8(rt_ptr(ptr), (unsigned char)value, n)) : cudaSuccess;
}

static cudaError_t rt_memset_async(const struct rt_driver *d, void *ptr, int value, size_t n,
                                   CUstream stream)
{
    return n ? rt_error(d->cuMemsetD8Async(rt_ptr(ptr), (unsigned char)value, n, stream))
             : cudaSuccess;
}

static cudaError_t rt_memset_2d(const struct rt_driver *d, void *ptr, size_t pitch, int value,
                                size_t width, size_t height)
{
    if (!width || !height)
        return cudaSuccess;
    return rt_error(d->cuMemsetD2D8(rt_ptr(ptr), pitch, (unsigned char)value, width, height));
}

static cudaError_t rt_memset_2d_async(const struct rt_driver *d, void *ptr, size_t pitch, int value,
                                      size_t width, size_t height, CUstream stream)
{
    if (!width || !height)
        return cudaSuccess;
    return rt_error(
        d->cuMemsetD2D8Async(rt_ptr(ptr), pitch, (unsigned char)value, width, height, stream));
}

static cudaError_t rt_memset_3d_async(const struct rt_driver *d, struct cudaPitchedPtr p, int value,
                                      struct cudaExtent extent, CUstream stream)
{
    for (size_t z = 0; z < extent.depth; z++) {
        char *slice = (char *)p.ptr + z * p.pitch * p.ysize;
        cudaError_t e = rt_memset_2d_async(d, slice, p.pitch, value, extent.width, extent.height,
                                           stream);
        if (e != cudaSuccess)
            return e;
    }
    return cudaSuccess;
}

static cudaError_t rt_memset_3d(const struct rt_driver *d, struct cudaPitchedPtr p, int value,
                                struct cudaExtent extent)
{
    for (size_t z = 0; z < extent.depth; z++) {
        char *slice = (char *)p.ptr + z * p.pitch * p.ysize;
        cudaError_t e = rt_memset_2d(d, slice, p.pitch, value, extent.width, extent.height);
        if (e != cudaSuccess)
            return e;
    }
    return cudaSuccess;
}

RT_TWINS(cudaMemset, _ptds, rt_memset, (void *devPtr, int value, size_t count), devPtr, value, count)
RT_TWINS(cudaMemsetAsync, _ptsz, rt_memset_async,
         (void *devPtr, int value, size_t count, cudaStream_t stream), devPtr, value, count, stream)
RT_TWINS(cudaMemset2D, _ptds, rt_memset_2d,
         (void *devPtr, size_t pitch, int value, size_t width, size_t height), devPtr, pitch, value,
         width, height)
RT_TWINS(cudaMemset2DAsync, _ptsz, rt_memset_2d_async,
         (void *devPtr, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream),
         devPtr, pitch, value, width, height, stream)
RT_TWINS(cudaMemset3D, _ptds, rt_memset_3d,
         (struct cudaPitchedPtr pitchedDevPtr, int value, struct cudaExtent extent), pitchedDevPtr,
         value, extent)
RT_TWINS(cudaMemset3DAsync, _ptsz, rt_memset_3d_async,
         (struct cudaPitchedPtr pitchedDevPtr, int value, struct cudaExtent extent,
          cudaStream_t stream),
         pitchedDevPtr, value, extent, stream)
