/* Copies and memsets in all their forms. Each becomes one operation; the rules of what a call waits
 * for are those of the API: a synchronous copy with the host waits; one between device addresses
 * does not; an asynchronous copy from pageable memory takes the bytes before it returns, one to
 * pageable memory returns when they are there. */
#include "array.h"

#include <stdlib.h>
#include <string.h>

#define STAGE_BYTES                                                                                \
    ((size_t)64 << 10) /* pageable copies up to this size do not wait for the device */

struct side {
    uint64_t at;
    size_t pitch, slice;
    int kind; /* -1: find out; else a CUmemorytype */
};

static bool side_is_host(const struct side *s, bool *pinned)
{
    bool host = sg_is_host(s->at, pinned);
    return s->kind == CU_MEMORYTYPE_HOST ? true : s->kind == CU_MEMORYTYPE_DEVICE ? *pinned : host;
}

/* A device side must lie in a live allocation when the call is made. */
static CUresult side_ok(const struct side *s, bool host)
{
    const struct sg_range *r = sg_range_find(s->at);
    SG_CHECK(s->at, CUDA_ERROR_INVALID_VALUE);
    bool array = r && r->kind == SG_ARRAY;
    SG_CHECK(array == (s->kind == CU_MEMORYTYPE_ARRAY), CUDA_ERROR_INVALID_VALUE);
    return host || r ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static enum sg_engine_id engine_of(const struct sg_copy *c)
{
    if (c->src_host && c->dst_host)
        return SG_ENG_NONE;
    if (c->src_host)
        return SG_ENG_H2D;
    if (c->dst_host || c->src_dev != c->dst_dev)
        return SG_ENG_D2H;
    return SG_ENG_COMPUTE;
}

static int device_at(uint64_t va, int otherwise)
{
    const struct sg_range *r = sg_range_find(va);
    if (!r)
        return otherwise;
    const struct sg_map *m = sg_map_at(r, va);
    return m && m->phys && m->phys->device >= 0 ? m->phys->device : otherwise;
}

static bool stage(struct sg_copy *c)
{
    c->staged = malloc(c->width * c->height * c->depth);
    if (!c->staged)
        return false;
    for (size_t z = 0; z < c->depth; z++)
        for (size_t y = 0; y < c->height; y++)
            memcpy(c->staged + (z * c->height + y) * c->width,
                   (const unsigned char *)c->src + z * c->sslice + y * c->spitch, c->width);
    return true;
}

static CUresult build(struct side dst, struct side src, size_t width, size_t height, size_t depth,
                      const struct sg_ctx *ctx, struct sg_op **out)
{
    bool src_pinned, dst_pinned;
    bool src_host = side_is_host(&src, &src_pinned), dst_host = side_is_host(&dst, &dst_pinned);
    SG_TRY(side_ok(&src, src_host));
    SG_TRY(side_ok(&dst, dst_host));
    struct sg_op *op = sg_op_new(SG_OP_COPY, SG_ENG_NONE);
    SG_CHECK(op, CUDA_ERROR_OUT_OF_MEMORY);
    struct sg_copy *c = &op->u.copy;
    *c = (struct sg_copy){.src = src.at,
                          .dst = dst.at,
                          .width = width,
                          .height = height,
                          .depth = depth,
                          .spitch = src.pitch,
                          .dpitch = dst.pitch,
                          .sslice = src.slice,
                          .dslice = dst.slice,
                          .src_host = src_host,
                          .dst_host = dst_host};
    c->src_dev = device_at(src.at, ctx->device);
    c->dst_dev = device_at(dst.at, ctx->device);
    c->from_pageable = src_host && !src_pinned;
    c->to_pageable = dst_host && !dst_pinned;
    op->engine = engine_of(c);
    *out = op;
    return CUDA_SUCCESS;
}

static CUresult copy(struct side dst, struct side src, size_t width, size_t height, size_t depth,
                     struct sg_stream *s, bool async)
{
    struct sg_op *op;
    if (!width || !height || !depth)
        return CUDA_SUCCESS;
    SG_CHECK(async || !s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    SG_TRY(build(dst, src, width, height, depth, s->ctx, &op));
    struct sg_copy *c = &op->u.copy;
    if (s->capture)
        return sg_submit(s, op);
    size_t bytes = width * height * depth;
    if (c->from_pageable) {
        sg_host_spend((uint64_t)((double)bytes * sg_prices.host_copy_per_byte));
        if (sg.cfg.mode == SG_FUNCTIONAL && !stage(c)) {
            sg_op_unref(op);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    bool wait = c->to_pageable || (c->from_pageable && bytes > STAGE_BYTES) ||
                (!async && (c->src_host || c->dst_host));
    if (c->from_pageable && !c->to_pageable && async && sg.cfg.mode == SG_FUNCTIONAL)
        wait = false; /* the bytes were taken: as late as allowed */
    op->refs++;
    CUresult r = sg_submit(s, op);
    if (r == CUDA_SUCCESS && wait)
        r = sg_wait(op);
    sg_op_unref(op);
    return r;
}

static struct side plain(uint64_t at, size_t bytes, int kind)
{
    return (struct side){at, bytes, bytes, kind};
}

static CUresult line(struct side dst, struct side src, size_t bytes, CUstream hs, bool async)
{
    struct sg_stream *s;
    SG_TRY(sg_stream_of(hs, &s));
    return copy(dst, src, bytes, 1, 1, s, async);
}

/* One row. Synchronous forms go to the default stream, which their `_ptds` twins make per-thread.
 */
static CUresult linear(uint64_t dst, int dkind, uint64_t src, int skind, size_t bytes, CUstream hs,
                       bool async)
{
    return line(plain(dst, bytes, dkind), plain(src, bytes, skind), bytes, hs, async);
}

#define H CU_MEMORYTYPE_HOST
#define D CU_MEMORYTYPE_DEVICE

SG_CALL_S(cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds, (CUdeviceptr dst, const void *src, size_t n),
          (dst, src, n))
{
    return linear(dst, D, (uint64_t)src, H, n, NULL, false);
}
SG_CALL_S(cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds, (void *dst, CUdeviceptr src, size_t n),
          (dst, src, n))
{
    return linear((uint64_t)dst, H, src, D, n, NULL, false);
}
SG_CALL_S(cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds, (CUdeviceptr dst, CUdeviceptr src, size_t n),
          (dst, src, n))
{
    return linear(dst, D, src, D, n, NULL, false);
}
SG_CALL_S(cuMemcpy, cuMemcpy_ptds, (CUdeviceptr dst, CUdeviceptr src, size_t n), (dst, src, n))
{
    return linear(dst, -1, src, -1, n, NULL, false);
}
SG_CALL_S(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz,
          (CUdeviceptr dst, const void *src, size_t n, CUstream s), (dst, src, n, s))
{
    return linear(dst, D, (uint64_t)src, H, n, s, true);
}
SG_CALL_S(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz,
          (void *dst, CUdeviceptr src, size_t n, CUstream s), (dst, src, n, s))
{
    return linear((uint64_t)dst, H, src, D, n, s, true);
}
SG_CALL_S(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz,
          (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s), (dst, src, n, s))
{
    return linear(dst, D, src, D, n, s, true);
}
SG_CALL_S(cuMemcpyAsync, cuMemcpyAsync_ptsz,
          (CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream s), (dst, src, n, s))
{
    return linear(dst, -1, src, -1, n, s, true);
}
SG_CALL_S(cuMemcpyPeer, cuMemcpyPeer_ptds,
          (CUdeviceptr dst, CUcontext dc, CUdeviceptr src, CUcontext sc, size_t n),
          (dst, dc, src, sc, n))
{
    SG_CHECK(sg_handle_is(SG_H_CTX, dc) && sg_handle_is(SG_H_CTX, sc), CUDA_ERROR_INVALID_CONTEXT);
    return linear(dst, D, src, D, n, NULL, false);
}
SG_CALL_S(cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz,
          (CUdeviceptr dst, CUcontext dc, CUdeviceptr src, CUcontext sc, size_t n, CUstream s),
          (dst, dc, src, sc, n, s))
{
    SG_CHECK(sg_handle_is(SG_H_CTX, dc) && sg_handle_is(SG_H_CTX, sc), CUDA_ERROR_INVALID_CONTEXT);
    return linear(dst, D, src, D, n, s, true);
}

/* Arrays of one dimension and bytes that lie in a row. */
static CUresult line_of(CUarray a, size_t offset, size_t bytes, struct side *out)
{
    struct sg_box box;
    SG_TRY(sg_array_line(a, offset, bytes, &box));
    *out = (struct side){box.at, box.pitch, box.slice, CU_MEMORYTYPE_ARRAY};
    return CUDA_SUCCESS;
}

SG_CALL_S(cuMemcpyDtoA_v2, cuMemcpyDtoA_v2_ptds,
          (CUarray dst, size_t offset, CUdeviceptr src, size_t n), (dst, offset, src, n))
{
    struct side to;
    SG_TRY(line_of(dst, offset, n, &to));
    return line(to, plain(src, n, D), n, NULL, false);
}
SG_CALL_S(cuMemcpyAtoD_v2, cuMemcpyAtoD_v2_ptds,
          (CUdeviceptr dst, CUarray src, size_t offset, size_t n), (dst, src, offset, n))
{
    struct side from;
    SG_TRY(line_of(src, offset, n, &from));
    SG_CHECK(n % sg_array_element(src) == 0, CUDA_ERROR_INVALID_VALUE);
    return line(plain(dst, n, D), from, n, NULL, false);
}

static CUresult to_array(CUarray dst, size_t offset, const void *src, size_t n, CUstream s,
                         bool async)
{
    struct side to;
    SG_TRY(line_of(dst, offset, n, &to));
    return line(to, plain((uint64_t)src, n, H), n, s, async);
}
SG_CALL_S(cuMemcpyHtoA_v2, cuMemcpyHtoA_v2_ptds,
          (CUarray dst, size_t offset, const void *src, size_t n), (dst, offset, src, n))
{
    return to_array(dst, offset, src, n, NULL, false);
}
SG_CALL_S(cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync_v2_ptsz,
          (CUarray dst, size_t offset, const void *src, size_t n, CUstream s),
          (dst, offset, src, n, s))
{
    return to_array(dst, offset, src, n, s, true);
}

static CUresult from_array(void *dst, CUarray src, size_t offset, size_t n, CUstream s, bool async)
{
    struct side from;
    SG_TRY(line_of(src, offset, n, &from));
    return line(plain((uint64_t)dst, n, H), from, n, s, async);
}
SG_CALL_S(cuMemcpyAtoH_v2, cuMemcpyAtoH_v2_ptds, (void *dst, CUarray src, size_t offset, size_t n),
          (dst, src, offset, n))
{
    return from_array(dst, src, offset, n, NULL, false);
}
SG_CALL_S(cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync_v2_ptsz,
          (void *dst, CUarray src, size_t offset, size_t n, CUstream s), (dst, src, offset, n, s))
{
    return from_array(dst, src, offset, n, s, true);
}

SG_CALL_S(cuMemcpyAtoA_v2, cuMemcpyAtoA_v2_ptds,
          (CUarray dst, size_t at, CUarray src, size_t from, size_t n), (dst, at, src, from, n))
{
    struct side to, source;
    SG_TRY(line_of(dst, at, n, &to));
    SG_TRY(line_of(src, from, n, &source));
    size_t element = sg_array_element(src);
    SG_CHECK(sg_array_element(dst) == element && n % element == 0, CUDA_ERROR_INVALID_VALUE);
    return line(to, source, n, NULL, false);
}

/* One side of a shaped copy, as its descriptor says it. */
struct said {
    CUmemorytype type;
    const void *host;
    CUdeviceptr dev;
    CUarray array;
    size_t at[3], pitch, height;
};
#define SAID(p, side, z, rows)                                                                     \
    {                                                                                              \
        p->side##MemoryType, p->side##Host, p->side##Device, p->side##Array,                       \
            {p->side##XInBytes, p->side##Y, z}, p->side##Pitch, rows                               \
    }

static CUresult side_of(const struct said *d, const size_t extent[3], struct side *out)
{
    size_t pitch = d->pitch, height = d->height;
    if (d->type == CU_MEMORYTYPE_ARRAY) {
        struct sg_box box;
        SG_TRY(sg_array_box(d->array, d->at, extent, &box));
        *out = (struct side){box.at, box.pitch, box.slice, CU_MEMORYTYPE_ARRAY};
        return CUDA_SUCCESS;
    }
    SG_CHECK(d->type == H || d->type == D || d->type == CU_MEMORYTYPE_UNIFIED,
             CUDA_ERROR_INVALID_VALUE);
    if (!pitch)
        pitch = d->at[0] + extent[0];
    if (!height)
        height = extent[1] ? extent[1] : 1;
    SG_CHECK(pitch >= extent[0], CUDA_ERROR_INVALID_VALUE);
    uint64_t base = d->type == H ? (uint64_t)d->host : d->dev;
    *out = (struct side){base + (d->at[2] * height + d->at[1]) * pitch + d->at[0], pitch,
                         pitch * height, d->type == CU_MEMORYTYPE_UNIFIED ? -1 : (int)d->type};
    return CUDA_SUCCESS;
}

static CUresult copy_2d(const CUDA_MEMCPY2D *p, CUstream hs, bool async)
{
    struct sg_stream *s;
    struct side src, dst;
    SG_CHECK(p, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_stream_of(hs, &s));
    const size_t extent[3] = {p->WidthInBytes, p->Height, 1};
    const struct said from = SAID(p, src, 0, 0), to = SAID(p, dst, 0, 0);
    SG_TRY(side_of(&from, extent, &src));
    SG_TRY(side_of(&to, extent, &dst));
    return copy(dst, src, p->WidthInBytes, p->Height, 1, s, async);
}
SG_CALL_S(cuMemcpy2D_v2, cuMemcpy2D_v2_ptds, (const CUDA_MEMCPY2D *p), (p))
{
    return copy_2d(p, NULL, false);
}
SG_CALL_S(cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds, (const CUDA_MEMCPY2D *p), (p))
{
    return copy_2d(p, NULL, false);
}
SG_CALL_S(cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz, (const CUDA_MEMCPY2D *p, CUstream s), (p, s))
{
    return copy_2d(p, s, true);
}

static CUresult sides_3d(const CUDA_MEMCPY3D *p, struct side *src, struct side *dst)
{
    SG_CHECK(p, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(!p->srcLOD && !p->dstLOD, CUDA_ERROR_INVALID_VALUE);
    const size_t extent[3] = {p->WidthInBytes, p->Height, p->Depth};
    const struct said from = SAID(p, src, p->srcZ, p->srcHeight),
                      to = SAID(p, dst, p->dstZ, p->dstHeight);
    SG_TRY(side_of(&from, extent, src));
    return side_of(&to, extent, dst);
}

static CUresult copy_3d(const CUDA_MEMCPY3D *p, CUstream hs, bool async)
{
    struct sg_stream *s;
    struct side src, dst;
    SG_TRY(sides_3d(p, &src, &dst));
    SG_TRY(sg_stream_of(hs, &s));
    return copy(dst, src, p->WidthInBytes, p->Height, p->Depth, s, async);
}

/* The operation of a graph's copy node. */
CUresult sg_copy_op(const CUDA_MEMCPY3D *p, struct sg_ctx *c, struct sg_op **out)
{
    struct side src, dst;
    SG_TRY(sides_3d(p, &src, &dst));
    SG_CHECK(p->WidthInBytes && p->Height && p->Depth, CUDA_ERROR_INVALID_VALUE);
    return build(dst, src, p->WidthInBytes, p->Height, p->Depth, c, out);
}
SG_CALL_S(cuMemcpy3D_v2, cuMemcpy3D_v2_ptds, (const CUDA_MEMCPY3D *p), (p))
{
    return copy_3d(p, NULL, false);
}
SG_CALL_S(cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz, (const CUDA_MEMCPY3D *p, CUstream s), (p, s))
{
    return copy_3d(p, s, true);
}

static CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER *p, CUstream s, bool async)
{
    CUDA_MEMCPY3D q;
    SG_CHECK(p, CUDA_ERROR_INVALID_VALUE);
    q = (CUDA_MEMCPY3D){.srcXInBytes = p->srcXInBytes,
                        .srcY = p->srcY,
                        .srcZ = p->srcZ,
                        .srcMemoryType = p->srcMemoryType,
                        .srcHost = p->srcHost,
                        .srcDevice = p->srcDevice,
                        .srcArray = p->srcArray,
                        .srcPitch = p->srcPitch,
                        .srcHeight = p->srcHeight,
                        .dstXInBytes = p->dstXInBytes,
                        .dstY = p->dstY,
                        .dstZ = p->dstZ,
                        .dstMemoryType = p->dstMemoryType,
                        .dstHost = p->dstHost,
                        .dstDevice = p->dstDevice,
                        .dstArray = p->dstArray,
                        .dstPitch = p->dstPitch,
                        .dstHeight = p->dstHeight,
                        .WidthInBytes = p->WidthInBytes,
                        .Height = p->Height,
                        .Depth = p->Depth};
    return copy_3d(&q, s, async);
}
SG_CALL_S(cuMemcpy3DPeer, cuMemcpy3DPeer_ptds, (const CUDA_MEMCPY3D_PEER *p), (p))
{
    return copy_3d_peer(p, NULL, false);
}
SG_CALL_S(cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz, (const CUDA_MEMCPY3D_PEER *p, CUstream s),
          (p, s))
{
    return copy_3d_peer(p, s, true);
}

/* The copies of a batch are ordered with the stream, not among each other; one after the other is
 * an order that this allows. Refused on the legacy default stream, as documented. */
static CUresult batch(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t n, size_t *fail,
                      CUstream hs)
{
    SG_CHECK(dsts && srcs && sizes && n, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(hs != CU_STREAM_LEGACY && (hs || sg.ptds), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < n; i++) {
        CUresult r = sizes[i] ? linear(dsts[i], -1, srcs[i], -1, sizes[i], hs, true)
                              : CUDA_ERROR_INVALID_VALUE;
        if (r != CUDA_SUCCESS) {
            if (fail)
                *fail = i;
            return r;
        }
    }
    return CUDA_SUCCESS;
}
SG_CALL_S(cuMemcpyBatchAsync, cuMemcpyBatchAsync_ptsz,
          (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t n,
           CUmemcpyAttributes *attrs, size_t *idx, size_t nattrs, size_t *fail, CUstream s),
          (dsts, srcs, sizes, n, attrs, idx, nattrs, fail, s))
{
    (void)idx;
    SG_CHECK(attrs && nattrs, CUDA_ERROR_INVALID_VALUE);
    return batch(dsts, srcs, sizes, n, fail, s);
}
SG_CALL_S(cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync_v2_ptsz,
          (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t n,
           CUmemcpyAttributes *attrs, size_t *idx, size_t nattrs, CUstream s),
          (dsts, srcs, sizes, n, attrs, idx, nattrs, s))
{
    (void)idx;
    SG_CHECK(attrs && nattrs, CUDA_ERROR_INVALID_VALUE);
    return batch(dsts, srcs, sizes, n, NULL, s);
}

/* Elements of a copy of a batch: the array's where there is one, else bytes. 0: two that differ. */
static size_t element_of(const CUDA_MEMCPY3D_BATCH_OP *o)
{
    size_t from = 0, to = 0;
    if (o->src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY)
        from = sg_array_element(o->src.op.array.array);
    if (o->dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY)
        to = sg_array_element(o->dst.op.array.array);
    if (from && to)
        return from == to ? from : 0;
    return from + to ? from + to : 1;
}

static CUresult operand(const CUmemcpy3DOperand *o, const size_t extent[3], size_t element,
                        struct side *out)
{
    if (o->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
        const CUoffset3D *at = &o->op.array.offset;
        const struct said d = {.type = CU_MEMORYTYPE_ARRAY,
                               .array = o->op.array.array,
                               .at = {at->x * element, at->y, at->z}};
        return side_of(&d, extent, out);
    }
    SG_CHECK(o->type == CU_MEMCPY_OPERAND_TYPE_POINTER, CUDA_ERROR_INVALID_VALUE);
    size_t pitch = o->op.ptr.rowLength ? o->op.ptr.rowLength * element : extent[0];
    size_t rows = o->op.ptr.layerHeight ? o->op.ptr.layerHeight : extent[1];
    SG_CHECK(pitch >= extent[0] && rows >= extent[1], CUDA_ERROR_INVALID_VALUE);
    *out = (struct side){o->op.ptr.ptr, pitch, pitch * rows, -1};
    return CUDA_SUCCESS;
}

static CUresult one_of_batch(const CUDA_MEMCPY3D_BATCH_OP *o, struct sg_stream *s)
{
    struct side src, dst;
    size_t element = element_of(o);
    SG_CHECK(element, CUDA_ERROR_INVALID_VALUE);
    const size_t extent[3] = {o->extent.width * element, o->extent.height, o->extent.depth};
    SG_TRY(operand(&o->src, extent, element, &src));
    SG_TRY(operand(&o->dst, extent, element, &dst));
    return copy(dst, src, extent[0], extent[1], extent[2], s, true);
}

static CUresult batch_3d(size_t n, const CUDA_MEMCPY3D_BATCH_OP *ops, size_t *fail,
                         unsigned long long flags, CUstream hs)
{
    struct sg_stream *s;
    SG_CHECK(ops && n && flags == 0, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(hs != CU_STREAM_LEGACY && (hs || sg.ptds), CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_stream_of(hs, &s));
    for (size_t i = 0; i < n; i++) {
        CUresult r = one_of_batch(&ops[i], s);
        if (r != CUDA_SUCCESS) {
            if (fail)
                *fail = i;
            return r;
        }
    }
    return CUDA_SUCCESS;
}
SG_CALL_S(cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync_ptsz,
          (size_t n, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *fail, unsigned long long flags,
           CUstream s),
          (n, ops, fail, flags, s))
{
    return batch_3d(n, ops, fail, flags, s);
}
SG_CALL_S(cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync_v2_ptsz,
          (size_t n, CUDA_MEMCPY3D_BATCH_OP *ops, unsigned long long flags, CUstream s),
          (n, ops, flags, s))
{
    return batch_3d(n, ops, NULL, flags, s);
}

/* ---- memsets ---- */
CUresult sg_memset_op(const CUDA_MEMSET_NODE_PARAMS_v1 *p, struct sg_op **out)
{
    unsigned elem = p->elementSize;
    SG_CHECK(elem == 1 || elem == 2 || elem == 4, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(p->width && p->height, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(p->dst % elem == 0, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(p->height == 1 || (p->pitch % elem == 0 && p->pitch >= p->width * elem),
             CUDA_ERROR_INVALID_VALUE);
    const struct sg_range *at = sg_range_find(p->dst);
    SG_CHECK(at && at->kind != SG_ARRAY, CUDA_ERROR_INVALID_VALUE);
    struct sg_op *op = sg_op_new(SG_OP_MEMSET, SG_ENG_COMPUTE);
    SG_CHECK(op, CUDA_ERROR_OUT_OF_MEMORY);
    op->u.memset = (struct sg_memset){.dst = p->dst,
                                      .pitch = p->pitch,
                                      .width = p->width,
                                      .height = p->height,
                                      .value = p->value,
                                      .elem = elem};
    *out = op;
    return CUDA_SUCCESS;
}

static CUresult fill(CUdeviceptr dst, size_t pitch, unsigned value, unsigned elem, size_t width,
                     size_t height, CUstream hs, bool async)
{
    struct sg_stream *s;
    struct sg_op *op;
    bool pinned;
    SG_TRY(sg_stream_of(hs, &s));
    if (!width || !height)
        return CUDA_SUCCESS;
    SG_CHECK(async || !s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    const CUDA_MEMSET_NODE_PARAMS_v1 p = {.dst = dst,
                                          .pitch = pitch,
                                          .value = value,
                                          .elementSize = elem,
                                          .width = width,
                                          .height = height};
    SG_TRY(sg_memset_op(&p, &op));
    bool wait = !async && sg_is_host(dst, &pinned); /* host memory: the call waits */
    op->refs++;
    CUresult r = sg_submit(s, op);
    if (r == CUDA_SUCCESS && wait)
        r = sg_wait(op);
    sg_op_unref(op);
    return r;
}

/* Each memset family has three element sizes and two dimensions: spelled out for the name tables.
 */
SG_CALL_S(cuMemsetD8_v2, cuMemsetD8_v2_ptds, (CUdeviceptr p, unsigned char v, size_t n), (p, v, n))
{
    return fill(p, n, v, 1, n, 1, NULL, false);
}
SG_CALL_S(cuMemsetD16_v2, cuMemsetD16_v2_ptds, (CUdeviceptr p, unsigned short v, size_t n),
          (p, v, n))
{
    return fill(p, n * 2, v, 2, n, 1, NULL, false);
}
SG_CALL_S(cuMemsetD32_v2, cuMemsetD32_v2_ptds, (CUdeviceptr p, unsigned v, size_t n), (p, v, n))
{
    return fill(p, n * 4, v, 4, n, 1, NULL, false);
}
SG_CALL_S(cuMemsetD8Async, cuMemsetD8Async_ptsz,
          (CUdeviceptr p, unsigned char v, size_t n, CUstream s), (p, v, n, s))
{
    return fill(p, n, v, 1, n, 1, s, true);
}
SG_CALL_S(cuMemsetD16Async, cuMemsetD16Async_ptsz,
          (CUdeviceptr p, unsigned short v, size_t n, CUstream s), (p, v, n, s))
{
    return fill(p, n * 2, v, 2, n, 1, s, true);
}
SG_CALL_S(cuMemsetD32Async, cuMemsetD32Async_ptsz,
          (CUdeviceptr p, unsigned v, size_t n, CUstream s), (p, v, n, s))
{
    return fill(p, n * 4, v, 4, n, 1, s, true);
}
SG_CALL_S(cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds,
          (CUdeviceptr p, size_t pitch, unsigned char v, size_t w, size_t h), (p, pitch, v, w, h))
{
    return fill(p, pitch, v, 1, w, h, NULL, false);
}
SG_CALL_S(cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds,
          (CUdeviceptr p, size_t pitch, unsigned short v, size_t w, size_t h), (p, pitch, v, w, h))
{
    return fill(p, pitch, v, 2, w, h, NULL, false);
}
SG_CALL_S(cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds,
          (CUdeviceptr p, size_t pitch, unsigned v, size_t w, size_t h), (p, pitch, v, w, h))
{
    return fill(p, pitch, v, 4, w, h, NULL, false);
}
SG_CALL_S(cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz,
          (CUdeviceptr p, size_t pitch, unsigned char v, size_t w, size_t h, CUstream s),
          (p, pitch, v, w, h, s))
{
    return fill(p, pitch, v, 1, w, h, s, true);
}
SG_CALL_S(cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz,
          (CUdeviceptr p, size_t pitch, unsigned short v, size_t w, size_t h, CUstream s),
          (p, pitch, v, w, h, s))
{
    return fill(p, pitch, v, 2, w, h, s, true);
}
SG_CALL_S(cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz,
          (CUdeviceptr p, size_t pitch, unsigned v, size_t w, size_t h, CUstream s),
          (p, pitch, v, w, h, s))
{
    return fill(p, pitch, v, 4, w, h, s, true);
}
