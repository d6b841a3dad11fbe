/* What is this pointer? */
#include "sg.h"

#include <string.h>

static void put(void *data, const void *v, size_t n)
{
    memcpy(data, v, n);
}
#define PUT(type, value)                                                                           \
    do {                                                                                           \
        type v_ = (value);                                                                         \
        put(data, &v_, sizeof v_);                                                                 \
        return CUDA_SUCCESS;                                                                       \
    } while (0)

/* What only mapped memory has. */
static CUresult of_mapping(void *data, CUpointer_attribute a, const struct sg_range *r,
                           const struct sg_map *m)
{
    bool vmm = r->kind == SG_VMM;
    switch ((int)a) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        SG_CHECK(m, CUDA_ERROR_INVALID_VALUE);
        PUT(CUmemorytype,
            r->kind == SG_PINNED || r->kind == SG_REGISTERED || m->phys->device == SG_HOST
                ? CU_MEMORYTYPE_HOST
                : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        SG_CHECK(m || r->ctx, CUDA_ERROR_INVALID_VALUE);
        PUT(int, r->ctx ? r->ctx->device : m->phys->device);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        SG_CHECK(m, CUDA_ERROR_INVALID_VALUE);
        PUT(size_t, vmm ? m->bytes : r->bytes);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        SG_CHECK(m, CUDA_ERROR_INVALID_VALUE);
        PUT(CUdeviceptr, m->va);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        SG_CHECK(m && m->phys, CUDA_ERROR_INVALID_VALUE);
        PUT(unsigned long long, m->phys->id);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        PUT(unsigned long long, vmm &&m ? m->phys->id : r->id);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: {
        const struct sg_ctx *c = sg_current_raw();
        SG_CHECK(m && c, CUDA_ERROR_INVALID_VALUE);
        PUT(CUmemAccess_flags, (CUmemAccess_flags)m->access[c->device]);
    }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult query(void *data, CUpointer_attribute a, CUdeviceptr ptr)
{
    const struct sg_range *r = sg_range_find(ptr);
    SG_CHECK(data, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(r && r->kind != SG_ARRAY, CUDA_ERROR_INVALID_VALUE);
    const struct sg_map *m = sg_map_at(r, ptr);
    bool host = r->kind == SG_PINNED || r->kind == SG_REGISTERED;
    switch ((int)a) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        SG_CHECK(r->ctx, CUDA_ERROR_INVALID_VALUE); /* virtual memory belongs to no context */
        PUT(CUcontext, (CUcontext)r->ctx);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        PUT(CUdeviceptr, ptr);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        SG_CHECK(host || r->kind == SG_MANAGED, CUDA_ERROR_INVALID_VALUE);
        PUT(void *, (void *)ptr);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        PUT(int, r->sync_memops);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        PUT(int, r->kind == SG_MANAGED);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        PUT(int, r->kind == SG_DEVICE);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        PUT(CUdeviceptr, r->va);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        PUT(size_t, r->bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
        PUT(int, m != NULL);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        PUT(CUmemAllocationHandleType, CU_MEM_HANDLE_TYPE_NONE);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        PUT(int, 0);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        PUT(CUmemoryPool, (CUmemoryPool)r->pool);
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        PUT(int, 0);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return of_mapping(data, a, r, m);
}

SG_CALL(cuPointerGetAttribute, (void *data, CUpointer_attribute a, CUdeviceptr ptr), (data, a, ptr))
{
    struct sg_ctx *c;
    SG_TRY(sg_current(&c));
    return query(data, a, ptr);
}

/* What does not apply is answered with zeros, not with an error. */
SG_CALL(cuPointerGetAttributes,
        (unsigned n, CUpointer_attribute *attributes, void **data, CUdeviceptr ptr),
        (n, attributes, data, ptr))
{
    struct sg_ctx *c;
    SG_CHECK(n && attributes && data, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_current(&c));
    for (unsigned i = 0; i < n; i++) {
        if (query(data[i], attributes[i], ptr) == CUDA_SUCCESS)
            continue;
        SG_CHECK(data[i], CUDA_ERROR_INVALID_VALUE);
        switch ((int)attributes[i]) {
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: {
            int none = -2; /* CU_DEVICE_INVALID */
            put(data[i], &none, sizeof none);
            break;
        }
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        case CU_POINTER_ATTRIBUTE_MAPPED:
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
            memset(data[i], 0, sizeof(int));
            break;
        default:
            memset(data[i], 0, sizeof(void *));
        }
    }
    return CUDA_SUCCESS;
}

SG_CALL(cuPointerSetAttribute, (const void *value, CUpointer_attribute a, CUdeviceptr ptr),
        (value, a, ptr))
{
    struct sg_ctx *c;
    SG_CHECK(value && a == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_current(&c));
    struct sg_range *r = sg_range_find(ptr);
    SG_CHECK(r && r->va == ptr && r->kind != SG_ARRAY, CUDA_ERROR_INVALID_VALUE);
    r->sync_memops = *(const unsigned *)value != 0;
    return CUDA_SUCCESS;
}
