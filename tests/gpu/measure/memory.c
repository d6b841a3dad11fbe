/* Virtual memory for the steps. */
#include "measure.h"

CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

size_t granularity(const CUmemAllocationProp *prop)
{
    size_t bytes = 0;
    must(cu.MemGetAllocationGranularity(&bytes, prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    return bytes;
}

CUdeviceptr reserve(size_t bytes)
{
    CUdeviceptr at = 0;
    must(cu.MemAddressReserve(&at, bytes, 0, 0, 0));
    return at;
}

CUmemGenericAllocationHandle create(size_t bytes, const CUmemAllocationProp *prop)
{
    CUmemGenericAllocationHandle h = 0;
    must(cu.MemCreate(&h, bytes, prop, 0));
    return h;
}

CUresult give_access(CUdeviceptr at, size_t bytes)
{
    CUmemAccessDesc all = {{CU_MEM_LOCATION_TYPE_DEVICE, device},
                           CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return cu.MemSetAccess(at, bytes, &all, 1);
}

void map(CUdeviceptr at, size_t bytes, CUmemGenericAllocationHandle handle)
{
    must(cu.MemMap(at, bytes, 0, handle, 0));
    must(give_access(at, bytes));
}
