/* Questions about pointers, and calls that make an address known outside the program's launches.
 *
 * While a block is away the driver's own answers would change or fail, so the questions about our
 * blocks are answered here, as for memory of cuMemAlloc. An address that leaves the runtime's sight
 * (a texture, a tensor map, another process, a file descriptor) pins its block. */
#include "door.h"

#include <string.h>

struct block {
    CUdeviceptr p, base;
    size_t bytes;
    CUcontext ctx;
    CUdevice dev;
    uint64_t id;
};

static bool block_of(CUdeviceptr p, struct block *b)
{
    b->p = p;
    return p && vm_rt_range(p, &b->base, &b->bytes) && vm_rt_owner(p, &b->ctx, &b->dev, &b->id);
}

/* The address to ask the driver about: of a place in our address space where no block is, the
 * driver would speak of our mapping, so it is asked about an address that belongs to nobody. */
static CUdeviceptr asked(CUdeviceptr p)
{
    return vm_rt_reserved(p) ? 8 : p;
}

/* Stores one answer. CUDA_ERROR_NOT_SUPPORTED: the driver is asked; INVALID_VALUE: cuMemAlloc's
 * memory has no such property. */
static CUresult answer(void *data, CUpointer_attribute attribute, const struct block *b)
{
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = b->ctx;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = b->p;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long *)data = b->id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = b->dev;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)data = b->base;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)data = b->bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        memset(data, 0, sizeof(int)); /* flags, four bytes in the driver's contract */
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(int *)data = 1;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned long long *)data = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(CUDA_POINTER_ATTRIBUTE_ACCESS_FLAGS *)data = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = NULL;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult door_cuPointerGetAttribute(vm_fn_cuPointerGetAttribute real, bool per_thread, void *data,
                                    CUpointer_attribute attribute, CUdeviceptr ptr)
{
    struct block b;
    if (data && block_of(ptr, &b)) {
        CUresult r = answer(data, attribute, &b);
        return r != CUDA_ERROR_NOT_SUPPORTED ? r : real(data, attribute, ptr);
    }
    return real(data, attribute, asked(ptr));
}

CUresult door_cuPointerGetAttributes(vm_fn_cuPointerGetAttributes real, bool per_thread,
                                     unsigned numAttributes, CUpointer_attribute *attributes,
                                     void **data, CUdeviceptr ptr)
{
    struct block b;
    if (!attributes || !data || !block_of(ptr, &b))
        return real(numAttributes, attributes, data, asked(ptr));
    for (unsigned i = 0; i < numAttributes; i++) {
        if (!data[i])
            return CUDA_ERROR_INVALID_VALUE;
        CUresult r = answer(data[i], attributes[i], &b);
        if (r == CUDA_ERROR_NOT_SUPPORTED)
            r = real(1, &attributes[i], &data[i], ptr);
        else if (r == CUDA_ERROR_INVALID_VALUE &&
                 attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER) {
            *(void **)data[i] = NULL; /* this form gives nulls where the single one gives errors */
            r = CUDA_SUCCESS;
        }
        if (r != CUDA_SUCCESS)
            return r;
    }
    return CUDA_SUCCESS;
}

/* The attribute that can be set (synchronous copies) is remembered by the driver for its memory; a
 * block that moves would lose it, so it is pinned first. */
CUresult door_cuPointerSetAttribute(vm_fn_cuPointerSetAttribute real, bool per_thread,
                                    const void *value, CUpointer_attribute attribute,
                                    CUdeviceptr ptr)
{
    vm_rt_pin(ptr);
    return real(value, attribute, ptr);
}

CUresult door_cuMemGetAddressRange_v2(vm_fn_cuMemGetAddressRange_v2 real, bool per_thread,
                                      CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    CUdeviceptr base;
    size_t bytes;
    if (!dptr || !vm_rt_range(dptr, &base, &bytes))
        return real(pbase, psize, asked(dptr));
    if (pbase)
        *pbase = base;
    if (psize)
        *psize = bytes;
    return CUDA_SUCCESS;
}

/* Memory of the virtual memory calls cannot be exported this way: the driver's own refusal stands.
 */
CUresult door_cuIpcGetMemHandle(vm_fn_cuIpcGetMemHandle real, bool per_thread,
                                CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
    CUdeviceptr base;
    size_t bytes;
    if (vm_rt_range(dptr, &base, &bytes)) {
        vm_rt_pin(dptr);
        vm_log(IPC_EXPORT);
    }
    return real(pHandle, dptr);
}

/* Pins every block in the range: its physical memory becomes known outside. */
CUresult door_cuMemGetHandleForAddressRange(vm_fn_cuMemGetHandleForAddressRange real,
                                            bool per_thread, void *handle, CUdeviceptr dptr,
                                            size_t size, CUmemRangeHandleType handleType,
                                            unsigned long long flags)
{
    CUdeviceptr p = dptr, base;
    size_t bytes;
    while (p - dptr < size && vm_rt_range(p, &base, &bytes)) {
        vm_rt_pin(p);
        p = base + bytes;
    }
    return real(handle, dptr, size, handleType, flags);
}

CUresult door_cuMemRetainAllocationHandle(vm_fn_cuMemRetainAllocationHandle real, bool per_thread,
                                          CUmemGenericAllocationHandle *handle, void *addr)
{
    vm_rt_pin((CUdeviceptr)(uintptr_t)addr);
    return real(handle, addr);
}

/* ---- textures and tensor maps -----------------------------------------------------------------*/

CUresult door_cuTexObjectCreate(vm_fn_cuTexObjectCreate real, bool per_thread,
                                CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc,
                                const CUDA_TEXTURE_DESC *pTexDesc,
                                const CUDA_RESOURCE_VIEW_DESC *pResViewDesc)
{
    if (pResDesc && pResDesc->resType == CU_RESOURCE_TYPE_LINEAR)
        vm_rt_pin(pResDesc->res.linear.devPtr);
    else if (pResDesc && pResDesc->resType == CU_RESOURCE_TYPE_PITCH2D)
        vm_rt_pin(pResDesc->res.pitch2D.devPtr);
    CUresult r;
    VM_RETRY(r, real(pTexObject, pResDesc, pTexDesc, pResViewDesc));
    return r;
}

CUresult door_cuTexRefSetAddress_v2(vm_fn_cuTexRefSetAddress_v2 real, bool per_thread,
                                    size_t *ByteOffset, CUtexref hTexRef, CUdeviceptr dptr,
                                    size_t bytes)
{
    vm_rt_pin(dptr);
    return real(ByteOffset, hTexRef, dptr, bytes);
}

/* A tensor map may live in device memory and outlast many launches: its block is pinned. */
CUresult door_cuTensorMapEncodeTiled(vm_fn_cuTensorMapEncodeTiled real, bool per_thread,
                                     CUtensorMap *tensorMap, CUtensorMapDataType tensorDataType,
                                     cuuint32_t tensorRank, void *globalAddress,
                                     const cuuint64_t *globalDim, const cuuint64_t *globalStrides,
                                     const cuuint32_t *boxDim, const cuuint32_t *elementStrides,
                                     CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                     CUtensorMapL2promotion l2Promotion,
                                     CUtensorMapFloatOOBfill oobFill)
{
    vm_rt_pin((CUdeviceptr)(uintptr_t)globalAddress);
    return real(tensorMap, tensorDataType, tensorRank, globalAddress, globalDim, globalStrides,
                boxDim, elementStrides, interleave, swizzle, l2Promotion, oobFill);
}

CUresult door_cuTensorMapEncodeIm2col(
    vm_fn_cuTensorMapEncodeIm2col real, bool per_thread, CUtensorMap *tensorMap,
    CUtensorMapDataType tensorDataType, cuuint32_t tensorRank, void *globalAddress,
    const cuuint64_t *globalDim, const cuuint64_t *globalStrides, const int *pixelBoxLowerCorner,
    const int *pixelBoxUpperCorner, cuuint32_t channelsPerPixel, cuuint32_t pixelsPerColumn,
    const cuuint32_t *elementStrides, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion l2Promotion, CUtensorMapFloatOOBfill oobFill)
{
    vm_rt_pin((CUdeviceptr)(uintptr_t)globalAddress);
    return real(tensorMap, tensorDataType, tensorRank, globalAddress, globalDim, globalStrides,
                pixelBoxLowerCorner, pixelBoxUpperCorner, channelsPerPixel, pixelsPerColumn,
                elementStrides, interleave, swizzle, l2Promotion, oobFill);
}

CUresult door_cuTensorMapEncodeIm2colWide(
    vm_fn_cuTensorMapEncodeIm2colWide real, bool per_thread, CUtensorMap *tensorMap,
    CUtensorMapDataType tensorDataType, cuuint32_t tensorRank, void *globalAddress,
    const cuuint64_t *globalDim, const cuuint64_t *globalStrides, int pixelBoxLowerCornerWidth,
    int pixelBoxUpperCornerWidth, cuuint32_t channelsPerPixel, cuuint32_t pixelsPerColumn,
    const cuuint32_t *elementStrides, CUtensorMapInterleave interleave,
    CUtensorMapIm2ColWideMode mode, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2Promotion,
    CUtensorMapFloatOOBfill oobFill)
{
    vm_rt_pin((CUdeviceptr)(uintptr_t)globalAddress);
    return real(tensorMap, tensorDataType, tensorRank, globalAddress, globalDim, globalStrides,
                pixelBoxLowerCornerWidth, pixelBoxUpperCornerWidth, channelsPerPixel,
                pixelsPerColumn, elementStrides, interleave, mode, swizzle, l2Promotion, oobFill);
}

CUresult door_cuTensorMapReplaceAddress(vm_fn_cuTensorMapReplaceAddress real, bool per_thread,
                                        CUtensorMap *tensorMap, void *globalAddress)
{
    vm_rt_pin((CUdeviceptr)(uintptr_t)globalAddress);
    return real(tensorMap, globalAddress);
}
