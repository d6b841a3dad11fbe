/* Linear copies. */
#include "copy.h"

#include "config.h"

void vm_copy_escape(const void *host, size_t bytes)
{
    if (host && bytes >= sizeof(CUdeviceptr) && bytes <= vm_config()->escape_scan)
        vm_rt_escape_scan(host, bytes);
}

void vm_copy_escape_unknown(CUdeviceptr src, size_t bytes)
{
    unsigned type = 0;
    if (bytes < sizeof(CUdeviceptr) || bytes > vm_config()->escape_scan ||
        !vm_uses.cuPointerGetAttribute)
        return;
    CUresult r = vm_uses.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, src);
    if (r == CUDA_ERROR_INVALID_VALUE || (r == CUDA_SUCCESS && type == CU_MEMORYTYPE_HOST))
        vm_rt_escape_scan((const void *)(uintptr_t)src, bytes);
}

/* A copy between any two places. `src` and `dst` may be host addresses. */
struct copy {
    CUdeviceptr dst, src;
    size_t bytes;
    CUstream stream;
    bool per_thread, blocking;
};

static void describe(struct vm_op *op, const struct copy *c, enum vm_op_kind kind)
{
    vm_op_init(op, kind, c->stream, c->per_thread);
    op->blocking = c->blocking;
    op->host_visible = kind == VM_OP_COPY_DTOH;
    vm_op_sign(op, c->bytes);
    vm_op_touch(op, c->src, c->bytes, VM_READ, VM_ROLE_NONE);
    vm_op_touch(op, c->dst, c->bytes, VM_WRITE | VM_TOTAL, VM_ROLE_NONE);
}

/* Which way a copy with unified addresses goes, as far as our blocks tell. */
static enum vm_op_kind direction(CUdeviceptr dst, CUdeviceptr src)
{
    bool to = vm_copy_ours(dst), from = vm_copy_ours(src);
    return to && from ? VM_OP_COPY_DTOD
           : to       ? VM_OP_COPY_HTOD
           : from     ? VM_OP_COPY_DTOH
                      : VM_OP_OTHER;
}

CUresult door_cuMemcpy(vm_fn_cuMemcpy real, bool per_thread, CUdeviceptr dst, CUdeviceptr src,
                       size_t ByteCount)
{
    struct vm_op op;
    CUresult r;
    enum vm_op_kind kind = direction(dst, src);
    const struct copy c = {dst, src, ByteCount, NULL, per_thread, kind != VM_OP_COPY_DTOD};
    if (kind == VM_OP_COPY_HTOD || kind == VM_OP_OTHER)
        vm_copy_escape_unknown(src, ByteCount);
    describe(&op, &c, kind);
    VM_ISSUE(r, &op, real(dst, src, ByteCount));
    return r;
}

CUresult door_cuMemcpyAsync(vm_fn_cuMemcpyAsync real, bool per_thread, CUdeviceptr dst,
                            CUdeviceptr src, size_t ByteCount, CUstream hStream)
{
    struct vm_op op;
    CUresult r;
    const struct copy c = {dst, src, ByteCount, hStream, per_thread, false};
    enum vm_op_kind kind = direction(dst, src);
    if (kind == VM_OP_COPY_HTOD || kind == VM_OP_OTHER)
        vm_copy_escape_unknown(src, ByteCount);
    describe(&op, &c, kind);
    VM_ISSUE(r, &op, real(dst, src, ByteCount, hStream));
    return r;
}

CUresult door_cuMemcpyHtoD_v2(vm_fn_cuMemcpyHtoD_v2 real, bool per_thread, CUdeviceptr dstDevice,
                              const void *srcHost, size_t ByteCount)
{
    struct vm_op op;
    CUresult r;
    const struct copy c = {dstDevice, 0, ByteCount, NULL, per_thread, true};
    vm_copy_escape(srcHost, ByteCount);
    describe(&op, &c, VM_OP_COPY_HTOD);
    VM_ISSUE(r, &op, real(dstDevice, srcHost, ByteCount));
    return r;
}

CUresult door_cuMemcpyHtoDAsync_v2(vm_fn_cuMemcpyHtoDAsync_v2 real, bool per_thread,
                                   CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount,
                                   CUstream hStream)
{
    struct vm_op op;
    CUresult r;
    const struct copy c = {dstDevice, 0, ByteCount, hStream, per_thread, false};
    vm_copy_escape(srcHost, ByteCount);
    describe(&op, &c, VM_OP_COPY_HTOD);
    VM_ISSUE(r, &op, real(dstDevice, srcHost, ByteCount, hStream));
    return r;
}

CUresult door_cuMemcpyDtoH_v2(vm_fn_cuMemcpyDtoH_v2 real, bool per_thread, void *dstHost,
                              CUdeviceptr srcDevice, size_t ByteCount)
{
    struct vm_op op;
    CUresult r;
    const struct copy c = {0, srcDevice, ByteCount, NULL, per_thread, true};
    describe(&op, &c, VM_OP_COPY_DTOH);
    VM_ISSUE(r, &op, real(dstHost, srcDevice, ByteCount));
    return r;
}

CUresult door_cuMemcpyDtoHAsync_v2(vm_fn_cuMemcpyDtoHAsync_v2 real, bool per_thread, void *dstHost,
                                   CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream)
{
    struct vm_op op;
    CUresult r;
    const struct copy c = {0, srcDevice, ByteCount, hStream, per_thread, false};
    describe(&op, &c, VM_OP_COPY_DTOH);
    VM_ISSUE(r, &op, real(dstHost, srcDevice, ByteCount, hStream));
    return r;
}

/* Copies between two places on the device do not block the host, in either form. */
CUresult door_cuMemcpyDtoD_v2(vm_fn_cuMemcpyDtoD_v2 real, bool per_thread, CUdeviceptr dstDevice,
                              CUdeviceptr srcDevice, size_t ByteCount)
{
    struct vm_op op;
    CUresult r;
    const struct copy c = {dstDevice, srcDevice, ByteCount, NULL, per_thread, false};
    describe(&op, &c, VM_OP_COPY_DTOD);
    VM_ISSUE(r, &op, real(dstDevice, srcDevice, ByteCount));
    return r;
}

CUresult door_cuMemcpyDtoDAsync_v2(vm_fn_cuMemcpyDtoDAsync_v2 real, bool per_thread,
                                   CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                                   CUstream hStream)
{
    struct vm_op op;
    CUresult r;
    const struct copy c = {dstDevice, srcDevice, ByteCount, hStream, per_thread, false};
    describe(&op, &c, VM_OP_COPY_DTOD);
    VM_ISSUE(r, &op, real(dstDevice, srcDevice, ByteCount, hStream));
    return r;
}

CUresult door_cuMemcpyPeer(vm_fn_cuMemcpyPeer real, bool per_thread, CUdeviceptr dstDevice,
                           CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
                           size_t ByteCount)
{
    struct vm_op op;
    CUresult r;
    const struct copy c = {dstDevice, srcDevice, ByteCount, NULL, per_thread, false};
    describe(&op, &c, VM_OP_COPY_DTOD);
    VM_ISSUE(r, &op, real(dstDevice, dstContext, srcDevice, srcContext, ByteCount));
    return r;
}

CUresult door_cuMemcpyPeerAsync(vm_fn_cuMemcpyPeerAsync real, bool per_thread,
                                CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                                CUcontext srcContext, size_t ByteCount, CUstream hStream)
{
    struct vm_op op;
    CUresult r;
    const struct copy c = {dstDevice, srcDevice, ByteCount, hStream, per_thread, false};
    describe(&op, &c, VM_OP_COPY_DTOD);
    VM_ISSUE(r, &op, real(dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream));
    return r;
}

CUresult door_cuMemcpyDtoA_v2(vm_fn_cuMemcpyDtoA_v2 real, bool per_thread, CUarray dstArray,
                              size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount)
{
    struct vm_op op;
    CUresult r;
    const struct copy c = {0, srcDevice, ByteCount, NULL, per_thread, false};
    describe(&op, &c, VM_OP_COPY_DTOD);
    VM_ISSUE(r, &op, real(dstArray, dstOffset, srcDevice, ByteCount));
    return r;
}

CUresult door_cuMemcpyAtoD_v2(vm_fn_cuMemcpyAtoD_v2 real, bool per_thread, CUdeviceptr dstDevice,
                              CUarray srcArray, size_t srcOffset, size_t ByteCount)
{
    struct vm_op op;
    CUresult r;
    const struct copy c = {dstDevice, 0, ByteCount, NULL, per_thread, false};
    describe(&op, &c, VM_OP_COPY_DTOD);
    VM_ISSUE(r, &op, real(dstDevice, srcArray, srcOffset, ByteCount));
    return r;
}

/* ---- batches ----------------------------------------------------------------------------------*/

/* One op for the whole batch. Its copies have no order among themselves, so none counts as total.
 */
static void describe_batch(struct vm_op *op, CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
                           size_t count, CUstream stream, bool per_thread)
{
    vm_op_init(op, VM_OP_OTHER, stream, per_thread);
    op->host_visible = true; /* some of them may write host memory */
    vm_op_sign(op, count);
    for (size_t i = 0; dsts && srcs && sizes && i < count; i++) {
        vm_op_sign(op, sizes[i]);
        vm_op_touch(op, srcs[i], sizes[i], VM_READ, VM_ROLE_NONE);
        vm_op_touch(op, dsts[i], sizes[i], VM_WRITE, VM_ROLE_NONE);
        if (!vm_copy_ours(srcs[i]))
            vm_copy_escape_unknown(srcs[i], sizes[i]);
    }
}

CUresult door_cuMemcpyBatchAsync(vm_fn_cuMemcpyBatchAsync real, bool per_thread, CUdeviceptr *dsts,
                                 CUdeviceptr *srcs, size_t *sizes, size_t count,
                                 CUmemcpyAttributes *attrs, size_t *attrIdxs, size_t numAttrs,
                                 size_t *failIdx, CUstream hStream)
{
    struct vm_op op;
    CUresult r;
    describe_batch(&op, dsts, srcs, sizes, count, hStream, per_thread);
    VM_ISSUE(r, &op, real(dsts, srcs, sizes, count, attrs, attrIdxs, numAttrs, failIdx, hStream));
    return r;
}

static void touch_operand(struct vm_op *op, const CUmemcpy3DOperand *o, unsigned mode)
{
    if (o->type == CU_MEMCPY_OPERAND_TYPE_POINTER)
        vm_op_touch(op, o->op.ptr.ptr, 0, mode, VM_ROLE_NONE);
}

static void describe_batch_3d(struct vm_op *op, size_t n, CUDA_MEMCPY3D_BATCH_OP *list,
                              CUstream stream, bool per_thread)
{
    vm_op_init(op, VM_OP_OTHER, stream, per_thread);
    op->host_visible = true;
    vm_op_sign(op, n);
    for (size_t i = 0; list && i < n; i++) {
        touch_operand(op, &list[i].src, VM_READ);
        touch_operand(op, &list[i].dst, VM_WRITE);
    }
}

CUresult door_cuMemcpy3DBatchAsync(vm_fn_cuMemcpy3DBatchAsync real, bool per_thread, size_t numOps,
                                   CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx,
                                   unsigned long long flags, CUstream hStream)
{
    struct vm_op op;
    CUresult r;
    describe_batch_3d(&op, numOps, opList, hStream, per_thread);
    VM_ISSUE(r, &op, real(numOps, opList, failIdx, flags, hStream));
    return r;
}

#if CUDA_VERSION >= 13000
CUresult door_cuMemcpyBatchAsync_v2(vm_fn_cuMemcpyBatchAsync_v2 real, bool per_thread,
                                    CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes,
                                    size_t count, CUmemcpyAttributes *attrs, size_t *attrIdxs,
                                    size_t numAttrs, CUstream hStream)
{
    struct vm_op op;
    CUresult r;
    describe_batch(&op, dsts, srcs, sizes, count, hStream, per_thread);
    VM_ISSUE(r, &op, real(dsts, srcs, sizes, count, attrs, attrIdxs, numAttrs, hStream));
    return r;
}

CUresult door_cuMemcpy3DBatchAsync_v2(vm_fn_cuMemcpy3DBatchAsync_v2 real, bool per_thread,
                                      size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList,
                                      unsigned long long flags, CUstream hStream)
{
    struct vm_op op;
    CUresult r;
    describe_batch_3d(&op, numOps, opList, hStream, per_thread);
    VM_ISSUE(r, &op, real(numOps, opList, flags, hStream));
    return r;
}
#endif
