/* Small families: tensor maps, advice on managed ranges, pools by location, the profiler's switch,
 * modules from files, attributes that the simulated card has no use for. */
#include "graph.h"

#include <string.h>

/* ---- tensor maps: our own layout, the base address first ---- */
struct tensor_map {
    uint64_t base;
    uint32_t type, rank;
    uint64_t dim[5];
    uint64_t stride[4];
    uint32_t box[5];
    uint32_t interleave;
};
_Static_assert(sizeof(struct tensor_map) <= sizeof(CUtensorMap), "a tensor map holds 128 bytes");

static CUresult encode(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t rank, void *base,
                       const cuuint64_t *dim, const cuuint64_t *stride, const cuuint32_t *box)
{
    struct tensor_map m = {.base = (uint64_t)base, .type = (uint32_t)type, .rank = rank};
    SG_CHECK(out && (uint64_t)out % 64 == 0, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(base && (uint64_t)base % 16 == 0 && rank >= 1 && rank <= 5 && dim,
             CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(rank == 1 || stride, CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < rank; i++) {
        SG_CHECK(dim[i] >= 1 && dim[i] <= (cuuint64_t)1 << 32, CUDA_ERROR_INVALID_VALUE);
        m.dim[i] = dim[i];
        if (box) {
            SG_CHECK(box[i] >= 1 && box[i] <= 256, CUDA_ERROR_INVALID_VALUE);
            m.box[i] = box[i];
        }
        if (i + 1 < rank) {
            SG_CHECK(stride[i] % 16 == 0 && stride[i] < (cuuint64_t)1 << 40,
                     CUDA_ERROR_INVALID_VALUE);
            m.stride[i] = stride[i];
        }
    }
    memset(out, 0, sizeof *out);
    memcpy(out, &m, sizeof m);
    return CUDA_SUCCESS;
}

SG_CALL(cuTensorMapEncodeTiled,
        (CUtensorMap * out, CUtensorMapDataType type, cuuint32_t rank, void *base,
         const cuuint64_t *dim, const cuuint64_t *stride, const cuuint32_t *box,
         const cuuint32_t *element_stride, CUtensorMapInterleave interleave,
         CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2, CUtensorMapFloatOOBfill fill),
        (out, type, rank, base, dim, stride, box, element_stride, interleave, swizzle, l2, fill))
{
    SG_CHECK(box && element_stride, CUDA_ERROR_INVALID_VALUE);
    (void)interleave;
    (void)swizzle;
    (void)l2;
    (void)fill;
    return encode(out, type, rank, base, dim, stride, box);
}
SG_CALL(cuTensorMapEncodeIm2col,
        (CUtensorMap * out, CUtensorMapDataType type, cuuint32_t rank, void *base,
         const cuuint64_t *dim, const cuuint64_t *stride, const int *lower, const int *upper,
         cuuint32_t channels, cuuint32_t pixels, const cuuint32_t *element_stride,
         CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2,
         CUtensorMapFloatOOBfill fill),
        (out, type, rank, base, dim, stride, lower, upper, channels, pixels, element_stride,
         interleave, swizzle, l2, fill))
{
    SG_CHECK(rank >= 3 && lower && upper && element_stride && channels <= 256 && pixels <= 1024,
             CUDA_ERROR_INVALID_VALUE);
    (void)interleave;
    (void)swizzle;
    (void)l2;
    (void)fill;
    return encode(out, type, rank, base, dim, stride, NULL);
}
SG_CALL(cuTensorMapReplaceAddress, (CUtensorMap * map, void *base), (map, base))
{
    SG_CHECK(map && base && (uint64_t)base % 16 == 0, CUDA_ERROR_INVALID_VALUE);
    uint64_t v = (uint64_t)base;
    memcpy(map, &v, sizeof v);
    return CUDA_SUCCESS;
}

/* ---- managed ranges: the simple model keeps no advice ---- */
static CUresult range_attribute(void *data, size_t size, CUmem_range_attribute a, CUdeviceptr ptr,
                                size_t bytes)
{
    const struct sg_range *r = sg_range_find(ptr);
    int none = CU_DEVICE_INVALID, zero = 0;
    SG_CHECK(data && r && r->kind == SG_MANAGED && ptr + bytes <= r->va + r->bytes,
             CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(size >= 4 && size % 4 == 0, CUDA_ERROR_INVALID_VALUE);
    switch ((int)a) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        memcpy(data, &zero, sizeof zero);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        memcpy(data, &none, sizeof none);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
        for (size_t i = 0; i < size; i += sizeof none)
            memcpy((char *)data + i, &none, sizeof none);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}
SG_CALL(cuMemRangeGetAttribute,
        (void *data, size_t size, CUmem_range_attribute a, CUdeviceptr ptr, size_t bytes),
        (data, size, a, ptr, bytes))
{
    return range_attribute(data, size, a, ptr, bytes);
}
SG_CALL(cuMemRangeGetAttributes,
        (void **data, size_t *sizes, CUmem_range_attribute *a, size_t n, CUdeviceptr ptr,
         size_t bytes),
        (data, sizes, a, n, ptr, bytes))
{
    SG_CHECK(data && sizes && a && n, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < n; i++)
        SG_TRY(range_attribute(data[i], sizes[i], a[i], ptr, bytes));
    return CUDA_SUCCESS;
}

/* ---- pools by location ---- */
static CUresult pool_at(CUmemoryPool *out, const CUmemLocation *where, CUmemAllocationType type,
                        bool def)
{
    SG_CHECK(out && where && type == CU_MEM_ALLOCATION_TYPE_PINNED, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(where->type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_NOT_SUPPORTED);
    SG_CHECK(where->id >= 0 && where->id < sg.cfg.ndevices, CUDA_ERROR_INVALID_DEVICE);
    struct sg_pool *p;
    SG_TRY(sg_pool_of_device(where->id, &p));
    *out = (CUmemoryPool)(def ? sg.dev[where->id].default_pool : p);
    return CUDA_SUCCESS;
}
SG_CALL(cuMemGetDefaultMemPool,
        (CUmemoryPool * out, CUmemLocation *where, CUmemAllocationType type), (out, where, type))
{
    return pool_at(out, where, type, true);
}
SG_CALL(cuMemGetMemPool, (CUmemoryPool * out, CUmemLocation *where, CUmemAllocationType type),
        (out, where, type))
{
    return pool_at(out, where, type, false);
}

/* ---- the profiler's switch: nothing profiles the simulated card ---- */
SG_CALL(cuProfilerStart, (void), ())
{
    struct sg_ctx *c;
    return sg_current(&c);
}
SG_CALL(cuProfilerStop, (void), ())
{
    struct sg_ctx *c;
    return sg_current(&c);
}

/* ---- attributes without effect ---- */
SG_CALL_S(cuStreamCopyAttributes, cuStreamCopyAttributes_ptsz, (CUstream hdst, CUstream hsrc),
          (hdst, hsrc))
{
    struct sg_stream *dst, *src;
    SG_TRY(sg_stream_of(hdst, &dst));
    SG_TRY(sg_stream_of(hsrc, &src));
    dst->prio = src->prio;
    return CUDA_SUCCESS;
}
static bool kernel_node(CUgraphNode n)
{
    return sg_node_of(n) && sg_node_of(n)->type == CU_GRAPH_NODE_TYPE_KERNEL;
}
SG_CALL(cuGraphKernelNodeCopyAttributes, (CUgraphNode dst, CUgraphNode src), (dst, src))
{
    return kernel_node(dst) && kernel_node(src) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SG_CALL(cuGraphKernelNodeGetAttribute,
        (CUgraphNode n, CUkernelNodeAttrID a, CUkernelNodeAttrValue *v), (n, a, v))
{
    (void)a;
    SG_CHECK(kernel_node(n) && v, CUDA_ERROR_INVALID_VALUE);
    memset(v, 0, sizeof *v);
    return CUDA_SUCCESS;
}
SG_CALL(cuGraphKernelNodeSetAttribute,
        (CUgraphNode n, CUkernelNodeAttrID a, const CUkernelNodeAttrValue *v), (n, a, v))
{
    (void)a;
    return kernel_node(n) && v ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
