/* Copies of rectangles and boxes. */
#include "copy.h"

/* One side of a shaped copy: where its first byte is and how far apart rows and slices lie. */
struct side {
    bool memory; /* device or unified memory, not an array */
    bool host;   /* host memory                            */
    CUdeviceptr first;
    size_t pitch, rows; /* rows of `pitch` bytes in a slice  */
};

struct shape {
    struct side src, dst;
    size_t width, height, depth;
};

static struct side side_of(CUmemorytype type, CUdeviceptr device, const void *host, size_t x,
                           size_t y, size_t z, size_t pitch, size_t rows, size_t width,
                           size_t height)
{
    struct side s = {0};
    s.pitch = pitch ? pitch : width;
    s.rows = rows ? rows : height;
    s.host = type == CU_MEMORYTYPE_HOST;
    s.memory = type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED;
    s.first = s.host ? (CUdeviceptr)(uintptr_t)host : device;
    s.first += x + (y + z * s.rows) * s.pitch;
    return s;
}

static void touch_side(struct vm_op *op, const struct side *s, const struct shape *k, unsigned mode)
{
    if (!s->memory || !k->width || !k->height || !k->depth)
        return;
    if (k->depth == 1 || s->rows == k->height) {
        vm_op_touch_2d(op, s->first, k->width, k->height * k->depth, s->pitch, mode);
        return;
    }
    /* Slices with gaps between them: from the first byte to the last, never total. */
    size_t span = ((k->depth - 1) * s->rows + k->height - 1) * s->pitch + k->width;
    vm_op_touch(op, s->first, span, mode & ~(unsigned)VM_TOTAL, VM_ROLE_NONE);
}

/* Addresses in the copied host data: rows lie apart, so the whole span is looked at. */
static void escape_side(const struct side *s, const struct shape *k)
{
    size_t span = ((k->depth - 1) * s->rows + k->height - 1) * s->pitch + k->width;
    if (!k->width || !k->height || !k->depth)
        return;
    if (s->host)
        vm_copy_escape((const void *)(uintptr_t)s->first, span);
    else if (s->memory && !vm_copy_ours(s->first))
        vm_copy_escape_unknown(s->first, span);
}

static void describe(struct vm_op *op, const struct shape *k, CUstream stream, bool per_thread,
                     bool blocking)
{
    bool to = k->dst.memory && vm_copy_ours(k->dst.first);
    bool from = k->src.memory && vm_copy_ours(k->src.first);
    enum vm_op_kind kind = from && k->dst.host ? VM_OP_COPY_DTOH
                           : to && k->src.host ? VM_OP_COPY_HTOD
                           : to && from        ? VM_OP_COPY_DTOD
                                               : VM_OP_OTHER;
    if (!from)
        escape_side(&k->src, k);
    vm_op_init(op, kind, stream, per_thread);
    op->blocking = blocking && (k->src.host || k->dst.host);
    op->host_visible = !to; /* the destination may be memory that the host reads */
    vm_op_sign(op, k->width);
    vm_op_sign(op, k->height);
    vm_op_sign(op, k->depth);
    touch_side(op, &k->src, k, VM_READ);
    touch_side(op, &k->dst, k, VM_WRITE | VM_TOTAL);
}

static struct shape shape_2d(const CUDA_MEMCPY2D *c)
{
    struct shape k = {side_of(c->srcMemoryType, c->srcDevice, c->srcHost, c->srcXInBytes, c->srcY,
                              0, c->srcPitch, 0, c->WidthInBytes, c->Height),
                      side_of(c->dstMemoryType, c->dstDevice, c->dstHost, c->dstXInBytes, c->dstY,
                              0, c->dstPitch, 0, c->WidthInBytes, c->Height),
                      c->WidthInBytes, c->Height, 1};
    return k;
}

static struct shape shape_3d(const CUDA_MEMCPY3D *c)
{
    struct shape k = {side_of(c->srcMemoryType, c->srcDevice, c->srcHost, c->srcXInBytes, c->srcY,
                              c->srcZ, c->srcPitch, c->srcHeight, c->WidthInBytes, c->Height),
                      side_of(c->dstMemoryType, c->dstDevice, c->dstHost, c->dstXInBytes, c->dstY,
                              c->dstZ, c->dstPitch, c->dstHeight, c->WidthInBytes, c->Height),
                      c->WidthInBytes, c->Height, c->Depth};
    return k;
}

static struct shape shape_3d_peer(const CUDA_MEMCPY3D_PEER *c)
{
    struct shape k = {side_of(c->srcMemoryType, c->srcDevice, c->srcHost, c->srcXInBytes, c->srcY,
                              c->srcZ, c->srcPitch, c->srcHeight, c->WidthInBytes, c->Height),
                      side_of(c->dstMemoryType, c->dstDevice, c->dstHost, c->dstXInBytes, c->dstY,
                              c->dstZ, c->dstPitch, c->dstHeight, c->WidthInBytes, c->Height),
                      c->WidthInBytes, c->Height, c->Depth};
    return k;
}

/* One shaped copy: `shape_of` reads the descriptor, `call` is the driver's function. */
#define SHAPED(shape_of, stream, blocking, call)                                                   \
    struct vm_op op;                                                                               \
    CUresult r;                                                                                    \
    if (!pCopy)                                                                                    \
        return call;                                                                               \
    const struct shape k = shape_of(pCopy);                                                        \
    describe(&op, &k, stream, per_thread, blocking);                                               \
    VM_ISSUE(r, &op, call);                                                                        \
    return r

CUresult door_cuMemcpy2D_v2(vm_fn_cuMemcpy2D_v2 real, bool per_thread, const CUDA_MEMCPY2D *pCopy)
{
    SHAPED(shape_2d, NULL, true, real(pCopy));
}

CUresult door_cuMemcpy2DUnaligned_v2(vm_fn_cuMemcpy2DUnaligned_v2 real, bool per_thread,
                                     const CUDA_MEMCPY2D *pCopy)
{
    SHAPED(shape_2d, NULL, true, real(pCopy));
}

CUresult door_cuMemcpy2DAsync_v2(vm_fn_cuMemcpy2DAsync_v2 real, bool per_thread,
                                 const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
    SHAPED(shape_2d, hStream, false, real(pCopy, hStream));
}

CUresult door_cuMemcpy3D_v2(vm_fn_cuMemcpy3D_v2 real, bool per_thread, const CUDA_MEMCPY3D *pCopy)
{
    SHAPED(shape_3d, NULL, true, real(pCopy));
}

CUresult door_cuMemcpy3DAsync_v2(vm_fn_cuMemcpy3DAsync_v2 real, bool per_thread,
                                 const CUDA_MEMCPY3D *pCopy, CUstream hStream)
{
    SHAPED(shape_3d, hStream, false, real(pCopy, hStream));
}

CUresult door_cuMemcpy3DPeer(vm_fn_cuMemcpy3DPeer real, bool per_thread,
                             const CUDA_MEMCPY3D_PEER *pCopy)
{
    SHAPED(shape_3d_peer, NULL, true, real(pCopy));
}

CUresult door_cuMemcpy3DPeerAsync(vm_fn_cuMemcpy3DPeerAsync real, bool per_thread,
                                  const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream)
{
    SHAPED(shape_3d_peer, hStream, false, real(pCopy, hStream));
}
