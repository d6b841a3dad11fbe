/* What the driver says of the card, of addresses, tensor maps and parameters. */
#include "measure.h"

#include <stdio.h>
#include <string.h>

void step_device(void)
{
    static const struct {
        CUdevice_attribute id;
        const char *name;
    } asked[] = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, "compute-capability-major"},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, "compute-capability-minor"},
        {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, "copy-engines"},
        {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "virtual-memory"},
        {CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, "host-numa-node"},
        {CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
         "host-numa-virtual-memory"},
        {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, "pageable-memory-access"},
        {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, "uses-host-page-tables"},
    };
    char name[256] = "";
    int version = 0;
    size_t bytes = 0;
    must(cu.DeviceGetName(name, sizeof name, device));
    must(cu.DriverGetVersion(&version));
    must(cu.DeviceTotalMem(&bytes, device));
    report_text(name, "device/name");
    report_number(version, "", "device/driver-api");
    report_number((double)bytes, "B", "device/memory");
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        int value = 0;
        CUresult r = cu.DeviceGetAttribute(&value, asked[i].id, device);
        if (r == CUDA_SUCCESS)
            report_number(value, "", "device/%s", asked[i].name);
        else
            report_text(result_name(r), "device/%s", asked[i].name);
    }
}

static const struct {
    CUpointer_attribute id;
    const char *name;
} attributes[] = {
    {CU_POINTER_ATTRIBUTE_CONTEXT, "CONTEXT"},
    {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, "MEMORY_TYPE"},
    {CU_POINTER_ATTRIBUTE_DEVICE_POINTER, "DEVICE_POINTER"},
    {CU_POINTER_ATTRIBUTE_HOST_POINTER, "HOST_POINTER"},
    {CU_POINTER_ATTRIBUTE_BUFFER_ID, "BUFFER_ID"},
    {CU_POINTER_ATTRIBUTE_IS_MANAGED, "IS_MANAGED"},
    {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, "DEVICE_ORDINAL"},
    {CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, "IS_LEGACY_CUDA_IPC_CAPABLE"},
    {CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, "RANGE_START_ADDR"},
    {CU_POINTER_ATTRIBUTE_RANGE_SIZE, "RANGE_SIZE"},
    {CU_POINTER_ATTRIBUTE_MAPPED, "MAPPED"},
    {CU_POINTER_ATTRIBUTE_MAPPING_SIZE, "MAPPING_SIZE"},
    {CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, "MAPPING_BASE_ADDR"},
    {CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, "MEMORY_BLOCK_ID"},
};

static void describe(const char *what, CUdeviceptr at)
{
    CUdeviceptr base = 0;
    size_t bytes = 0;
    char text[96];
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
        uint64_t value = 0;
        CUresult r = cu.PointerGetAttribute(&value, attributes[i].id, at);
        snprintf(text, sizeof text, r == CUDA_SUCCESS ? "%s %#llx" : "%s", result_name(r),
                 (unsigned long long)value);
        report_text(text, "pointers/%s/%s", what, attributes[i].name);
    }
    CUresult r = cu.MemGetAddressRange(&base, &bytes, at);
    snprintf(text, sizeof text, r == CUDA_SUCCESS ? "%s offset %lld size %zu" : "%s",
             result_name(r), (long long)(at - base), bytes);
    report_text(text, "pointers/%s/cuMemGetAddressRange", what);
}

void step_pointers(void)
{
    size_t page = granularity(&on_device);
    CUdeviceptr at = reserve(4 * page), block, again = 0;
    CUmemGenericAllocationHandle h = create(page, &on_device);
    describe("reserved-unmapped", at + page + 4096);
    map(at + page, page, h);
    describe("mapped", at + page + 4096);
    struct samples s = {0};
    for (int round = 0; round < 50; round++) {
        CUdeviceptr value;
        double t = now_us();
        for (int i = 0; i < 100; i++)
            must(cu.PointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at + page));
        sample(&s, (now_us() - t) * 10);
    }
    report_samples(&s, "ns", "pointers/cost-of-one-query");
    must(cu.MemUnmap(at + page, page));
    describe("unmapped-again", at + page + 4096);
    must(cu.MemRelease(h));
    must(cu.MemAddressFree(at, 4 * page));
    describe("freed-reservation", at + page + 4096);

    must(cu.MemAlloc(&block, 64 * MIB));
    describe("allocated", block + 4096);
    must(cu.MemFree(block));
    must(cu.MemAddressReserve(&again, 64 * MIB, 0, block, 0));
    report_text(again == block ? "granted" : "elsewhere", "pointers/reserve-at-a-freed-block");
    describe("reserved-at-a-freed-block", again + 4096);
    must(cu.MemAddressFree(again, 64 * MIB));
}

/* Two maps that differ in their address alone: which of the 16 words differ, and how. */
void step_tensormap(void)
{
    CUtensorMap a, b;
    CUdeviceptr at[2];
    cuuint64_t dims[2] = {256, 256}, strides[1] = {256 * 4};
    cuuint32_t box[2] = {64, 64}, elements[2] = {1, 1};
    if (!cu.TensorMapEncodeTiled) {
        report_text("the driver has no cuTensorMapEncodeTiled", "tensormap/address-word");
        return;
    }
    for (int i = 0; i < 2; i++)
        must(cu.MemAlloc(&at[i], 256 * 256 * 4));
    for (int i = 0; i < 2; i++) {
        CUresult r = cu.TensorMapEncodeTiled(
            i ? &b : &a, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, (void *)(uintptr_t)at[i], dims,
            strides, box, elements, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
            CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
        if (r != CUDA_SUCCESS) {
            report_text(result_name(r), "tensormap/encode");
            return;
        }
    }
    int differing = 0;
    for (int i = 0; i < 16; i++) {
        uint64_t x, y;
        memcpy(&x, (const char *)&a + 8 * i, 8);
        memcpy(&y, (const char *)&b + 8 * i, 8);
        if (x == y)
            continue;
        differing++;
        report_text(x == at[0] && y == at[1] ? "is the address" : "differs, but is not the address",
                    "tensormap/word-%d", i);
    }
    report_number(differing, "", "tensormap/words-that-differ");
    for (int i = 0; i < 2; i++)
        must(cu.MemFree(at[i]));
}

/* Whether a CUkernel is taken for a CUfunction, and what asking costs. */
void step_params(void)
{
    CUlibrary library;
    CUkernel k;
    size_t offset, size;
    CUfunction f = kernel(KERNEL_EIGHT);
    if (!cu.FuncGetParamInfo || !cu.KernelGetParamInfo) {
        report_text("the driver has no cuFuncGetParamInfo", "params/function");
        return;
    }
    must(cu.LibraryLoadData(&library, kernels_image(), NULL, NULL, 0, NULL, NULL, 0));
    must(cu.LibraryGetKernel(&k, library, KERNEL_EIGHT));
    report_text(result_name(cu.FuncGetParamInfo(f, 10, &offset, &size)), "params/function");
    report_text(result_name(cu.FuncGetParamInfo(f, 11, &offset, &size)),
                "params/function-past-the-last");
    report_text(result_name(cu.FuncGetParamInfo((CUfunction)k, 10, &offset, &size)),
                "params/kernel-as-function");
    report_text(result_name(cu.KernelGetParamInfo(k, 10, &offset, &size)), "params/kernel");
    struct samples s = {0};
    for (int round = 0; round < 50; round++) {
        double t = now_us();
        for (int i = 0; i < 100; i++)
            cu.FuncGetParamInfo(f, (size_t)(i % 11), &offset, &size);
        sample(&s, (now_us() - t) * 10);
    }
    report_samples(&s, "ns", "params/cost-of-one-query");
    must(cu.LibraryUnload(library));
}
