/* Allocation, virtual memory and pointer queries. */
#include "gpu.h"

#define F     "SIMGPU_MODE", "functional"
#define G     ((size_t)65536)
#define SMALL F, "SIMGPU_GRANULARITY", "64KiB", "SIMGPU_MEMORY", "16MiB"

static const CUmemAllocationProp on_device = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
static const CUmemAccessDesc read_write = {
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

Test(memory, budget_is_kept)
{
    START("SIMGPU_PRESET", "titanx-12g");
    size_t before, after, total;
    CUdeviceptr a, b;
    OK(cuMemGetInfo(&before, &total));
    cr_assert_eq(total, (size_t)12 << 30);
    cr_assert_lt(before, total); /* the context takes its share */
    OK(cuMemAlloc(&a, (size_t)10 << 30));
    OK(cuMemGetInfo(&after, &total));
    cr_assert_eq(before - after, (size_t)10 << 30);
    FAILS(cuMemAlloc(&b, (size_t)3 << 30), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemFree(a));
    OK(cuMemGetInfo(&after, &total));
    cr_assert_eq(before, after);
    FAILS(cuMemFree(a), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuMemAlloc(&b, 0), CUDA_ERROR_INVALID_VALUE);
}

Test(memory, contents_round_trip)
{
    struct gpu g = START(F);
    unsigned in[1000], out[1000];
    CUdeviceptr a, b;
    for (unsigned i = 0; i < 1000; i++)
        in[i] = i * 7;
    OK(cuMemAlloc(&a, sizeof in));
    OK(cuMemAlloc(&b, sizeof in));
    OK(cuMemcpyHtoD(a, in, sizeof in));
    gpu_add(&g, a, 5, 1000, NULL);
    OK(cuMemcpyDtoD(b, a, sizeof in));
    OK(cuMemcpyDtoH(out, b, sizeof out));
    for (unsigned i = 0; i < 1000; i++)
        cr_assert_eq(out[i], i * 7 + 5);
}

Test(memory, pitch_and_2d)
{
    START(F);
    CUdeviceptr p;
    size_t pitch;
    unsigned char in[5 * 100], out[5 * 100];
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (unsigned char)i;
    OK(cuMemAllocPitch(&p, &pitch, 100, 5, 4));
    cr_assert(pitch >= 100 && pitch % 512 == 0);
    CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                       .srcHost = in,
                       .srcPitch = 100,
                       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                       .dstDevice = p,
                       .dstPitch = pitch,
                       .WidthInBytes = 100,
                       .Height = 5};
    OK(cuMemcpy2D(&c));
    CUDA_MEMCPY2D d = {.dstMemoryType = CU_MEMORYTYPE_HOST,
                       .dstHost = out,
                       .dstPitch = 100,
                       .srcMemoryType = CU_MEMORYTYPE_DEVICE,
                       .srcDevice = p,
                       .srcPitch = pitch,
                       .WidthInBytes = 100,
                       .Height = 5};
    OK(cuMemcpy2D(&d));
    cr_assert_eq(memcmp(in, out, sizeof in), 0);
}

Test(memory, pools_keep_and_return)
{
    struct gpu g = START("SIMGPU_PRESET", "a100-40g", F);
    CUmemoryPool pool;
    CUdeviceptr a, b;
    cuuint64_t reserved = 1, used = 1, keep = UINT64_MAX;
    OK(cuDeviceGetDefaultMemPool(&pool, 0));
    OK(cuMemAllocAsync(&a, 1 << 20, NULL));
    gpu_work(&g, 1000, a, 16, NULL);
    OK(cuMemFreeAsync(a, NULL));
    OK(cuMemAllocAsync(&b, 1 << 20, NULL));
    cr_assert_eq(a, b, "the same stream gets the block back at once");
    OK(cuMemFreeAsync(b, NULL));
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    cr_assert_eq(reserved, (cuuint64_t)2 << 20);
    cr_assert_eq(used, 0);
    OK(cuStreamSynchronize(NULL));
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    cr_assert_eq(reserved, 0, "threshold 0: unused memory goes back at a synchronisation");
    OK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    OK(cuMemAllocAsync(&a, 1 << 20, NULL));
    OK(cuMemFreeAsync(a, NULL));
    OK(cuStreamSynchronize(NULL));
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    cr_assert_eq(reserved, (cuuint64_t)2 << 20);
    OK(cuMemPoolTrimTo(pool, 0));
    OK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    cr_assert_eq(reserved, 0);
}

Test(vmm, rules)
{
    START(SMALL);
    CUdeviceptr va;
    CUmemGenericAllocationHandle h, k;
    size_t granularity;
    OK(cuMemGetAllocationGranularity(&granularity, &on_device, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    cr_assert_eq(granularity, G);
    OK(cuMemAddressReserve(&va, 16 * G, 0, 0, 0));
    cr_assert_eq(va % G, 0);
    FAILS(cuMemCreate(&h, G + 4096, &on_device, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemCreate(&h, 2 * G, &on_device, 0));
    FAILS(cuMemMap(va, G, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuMemMap(va, G, G, h, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(va, 2 * G, 0, h, 0));
    FAILS(cuMemMap(va + G, 2 * G, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuMemUnmap(va, G), CUDA_ERROR_INVALID_VALUE);     /* part of a mapping */
    FAILS(cuMemUnmap(va, 3 * G), CUDA_ERROR_INVALID_VALUE); /* a hole */
    OK(cuMemCreate(&k, G, &on_device, 0));
    OK(cuMemMap(va + 2 * G, G, 0, k, 0));
    OK(cuMemSetAccess(va, 3 * G, &read_write, 1));
    FAILS(cuMemSetAccess(va, 4 * G, &read_write, 1), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuMemAddressFree(va, 16 * G), CUDA_ERROR_INVALID_VALUE); /* still mapped */
    OK(cuMemUnmap(va, 3 * G));                                     /* several mappings at once */
    OK(cuMemRelease(h));
    OK(cuMemRelease(k));
    FAILS(cuMemRelease(k), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAddressFree(va, 16 * G));
}

Test(vmm, handle_lives_while_mapped)
{
    START(SMALL);
    CUdeviceptr va;
    CUmemGenericAllocationHandle h, again;
    size_t before, now, total;
    OK(cuMemGetInfo(&before, &total));
    OK(cuMemAddressReserve(&va, G, 0, 0, 0));
    OK(cuMemCreate(&h, G, &on_device, 0));
    OK(cuMemMap(va, G, 0, h, 0));
    OK(cuMemSetAccess(va, G, &read_write, 1));
    OK(cuMemRelease(h));
    OK(cuMemGetInfo(&now, &total));
    cr_assert_eq(before - now, G);
    OK(cuMemRetainAllocationHandle(&again, (void *)(va + 100)));
    OK(cuMemUnmap(va, G));
    OK(cuMemGetInfo(&now, &total));
    cr_assert_eq(before - now, G, "the retained handle keeps it");
    OK(cuMemRelease(again));
    OK(cuMemGetInfo(&now, &total));
    cr_assert_eq(before, now);
}

Test(vmm, aliases_share_bytes)
{
    struct gpu g = START(SMALL);
    CUdeviceptr va;
    CUmemGenericAllocationHandle h;
    unsigned v = 40;
    OK(cuMemAddressReserve(&va, 2 * G, 0, 0, 0));
    OK(cuMemCreate(&h, G, &on_device, 0));
    OK(cuMemMap(va, G, 0, h, 0));
    OK(cuMemMap(va + G, G, 0, h, 0));
    OK(cuMemSetAccess(va, 2 * G, &read_write, 1));
    OK(cuMemcpyHtoD(va, &v, 4));
    gpu_add(&g, va + G, 2, 1, NULL);
    OK(cuMemcpyDtoH(&v, va, 4));
    cr_assert_eq(v, 42);
}

Test(vmm, a_mapping_starts_without_access)
{
    struct gpu g = START(SMALL);
    CUdeviceptr va;
    CUmemGenericAllocationHandle h;
    OK(cuMemAddressReserve(&va, G, 0, 0, 0));
    OK(cuMemCreate(&h, G, &on_device, 0));
    OK(cuMemMap(va, G, 0, h, 0));
    gpu_add(&g, va, 1, 1, NULL);
    FAILS(cuStreamSynchronize(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
    FAILS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS); /* sticky */
    FAILS(cuMemAlloc(&va, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
}

Test(vmm, read_only_refuses_writes)
{
    struct gpu g = START(SMALL);
    CUdeviceptr va, b;
    CUmemGenericAllocationHandle h;
    CUmemAccessDesc ro = read_write;
    ro.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    OK(cuMemAlloc(&b, 64));
    OK(cuMemAddressReserve(&va, G, 0, 0, 0));
    OK(cuMemCreate(&h, G, &on_device, 0));
    OK(cuMemMap(va, G, 0, h, 0));
    OK(cuMemSetAccess(va, G, &ro, 1));
    gpu_move(&g, b, va, 16, NULL);
    OK(cuStreamSynchronize(NULL));
    gpu_move(&g, va, b, 16, NULL);
    FAILS(cuStreamSynchronize(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
}

Test(vmm, host_numa_handles_hold_contents)
{
    struct gpu g = START(SMALL);
    CUdeviceptr va;
    CUmemGenericAllocationHandle h;
    CUmemAllocationProp p = on_device;
    unsigned v = 1;
    p.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    OK(cuMemAddressReserve(&va, G, 0, 0, 0));
    OK(cuMemCreate(&h, G, &p, 0));
    OK(cuMemMap(va, G, 0, h, 0));
    OK(cuMemSetAccess(va, G, &read_write, 1));
    OK(cuMemcpyHtoD(va, &v, 4));
    gpu_add(&g, va, 1, 1, NULL);
    OK(cuMemcpyDtoH(&v, va, 4));
    cr_assert_eq(v, 2);
}

Test(vmm, host_numa_can_be_refused)
{
    START(SMALL, "SIMGPU_HOST_NUMA", "0");
    CUmemGenericAllocationHandle h;
    CUmemAllocationProp p = on_device;
    int supported = 1;
    p.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    FAILS(cuMemCreate(&h, G, &p, 0), CUDA_ERROR_NOT_PERMITTED);
    OK(cuDeviceGetAttribute(&supported,
                            CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    cr_assert_eq(supported, 0);
}

Test(vmm, late_kernel_finds_the_mapping_gone)
{
    /* Functional mode runs nothing before it must: an unmap under pending work is caught. */
    struct gpu g = START(SMALL);
    CUdeviceptr va;
    CUmemGenericAllocationHandle h;
    OK(cuMemAddressReserve(&va, G, 0, 0, 0));
    OK(cuMemCreate(&h, G, &on_device, 0));
    OK(cuMemMap(va, G, 0, h, 0));
    OK(cuMemSetAccess(va, G, &read_write, 1));
    gpu_work(&g, 100, va, 4, NULL);
    OK(cuMemUnmap(va, G));
    FAILS(cuStreamSynchronize(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
}

Test(memory, pointer_attributes)
{
    struct gpu g = START(SMALL);
    CUdeviceptr a, va, base;
    CUmemGenericAllocationHandle h;
    void *host;
    CUmemorytype type;
    CUcontext ctx;
    size_t size;
    int mapped = 1;
    OK(cuMemAlloc(&a, 1000));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a + 999));
    cr_assert_eq(type, CU_MEMORYTYPE_DEVICE);
    OK(cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, a));
    cr_assert_eq(ctx, g.ctx);
    FAILS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a + 1000),
          CUDA_ERROR_INVALID_VALUE);
    OK(cuMemGetAddressRange(&base, &size, a + 17));
    cr_assert(base == a && size == 1000);
    OK(cuMemAllocHost(&host, 100));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)host));
    cr_assert_eq(type, CU_MEMORYTYPE_HOST);
    OK(cuMemAddressReserve(&va, 4 * G, 0, 0, 0));
    OK(cuPointerGetAttribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, va));
    cr_assert_eq(mapped, 0);
    OK(cuMemCreate(&h, G, &on_device, 0));
    OK(cuMemMap(va + G, G, 0, h, 0));
    OK(cuMemGetAddressRange(&base, &size, va + G + 5));
    cr_assert(base == va + G && size == G);
    OK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, va + G));
    cr_assert_eq(size, 4 * G);
}

Test(memory, registered_host_memory)
{
    struct gpu g = START(F);
    static unsigned buf[4096];
    CUdeviceptr a;
    FAILS(cuMemHostUnregister(buf), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    OK(cuMemHostRegister(buf, sizeof buf, 0));
    FAILS(cuMemHostRegister(buf + 16, 64, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    OK(cuMemAlloc(&a, sizeof buf));
    OK(cuMemsetD32(a, 3, 4096));
    OK(cuMemcpyDtoHAsync(buf, a, sizeof buf, NULL));
    OK(cuStreamSynchronize(NULL));
    cr_assert_eq(buf[4095], 3);
    gpu_add(&g, (CUdeviceptr)buf, 1, 4096, NULL); /* mapped: a kernel may touch it */
    OK(cuStreamSynchronize(NULL));
    cr_assert_eq(buf[0], 4);
    OK(cuMemHostUnregister(buf));
    FAILS(cuMemHostRegister((void *)16, 64, 0), CUDA_ERROR_INVALID_VALUE);
}

Test(memory, big_pinned_blocks_cost_no_memory_in_timing_mode)
{
    START("SIMGPU_PRESET", "titanx-12g");
    void *p;
    OK(cuMemHostAlloc(&p, (size_t)64 << 30, 0));
    for (size_t i = 0; i < (size_t)64 << 30; i += (size_t)1 << 30)
        ((char *)p)[i] = 1;
    OK(cuMemFreeHost(p));
}

/* Boxes within larger ones, several in one call; not on the legacy default stream. */
Test(memory, batches_of_3d_copies)
{
    START(F);
    enum { W = 16, H = 4, D = 3, ROW = 32, ROWS = 6 };
    static unsigned char box[W * H * D], back[W * H * D];
    CUdeviceptr p;
    CUstream s;
    unsigned char *pinned;
    size_t fail = 99;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&p, ROW * ROWS * D));
    OK(cuMemAllocHost((void **)&pinned, sizeof box));
    for (size_t i = 0; i < sizeof box; i++)
        pinned[i] = box[i] = (unsigned char)(i * 3);
    CUDA_MEMCPY3D_BATCH_OP op = {
        .src = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = (CUdeviceptr)pinned}},
        .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER,
                .op.ptr = {.ptr = p, .rowLength = ROW, .layerHeight = ROWS}},
        .extent = {.width = W, .height = H, .depth = D},
        .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
#if CUDA_VERSION >= 13000
    (void)fail;
    OK(cuMemcpy3DBatchAsync(1, &op, 0, s));
    FAILS(cuMemcpy3DBatchAsync(1, &op, 0, NULL), CUDA_ERROR_INVALID_VALUE);
#else
    OK(cuMemcpy3DBatchAsync(1, &op, &fail, 0, s));
    FAILS(cuMemcpy3DBatchAsync(1, &op, &fail, 0, NULL), CUDA_ERROR_INVALID_VALUE);
#endif
    OK(cuStreamSynchronize(s));
    CUDA_MEMCPY3D c = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                       .srcDevice = p,
                       .srcPitch = ROW,
                       .srcHeight = ROWS,
                       .dstMemoryType = CU_MEMORYTYPE_HOST,
                       .dstHost = back,
                       .dstPitch = W,
                       .dstHeight = H,
                       .WidthInBytes = W,
                       .Height = H,
                       .Depth = D};
    OK(cuMemcpy3D(&c));
    cr_assert_eq(memcmp(box, back, sizeof box), 0);
}

/* Timing mode: what is read from the device is zero, whatever the host memory held, rows with gaps included;
 * large page-locked blocks are left alone. */
Test(memory, results_without_contents_are_zero)
{
    START("SIMGPU_PRESET", "titanx-12g");
    enum { N = 4096 };
    CUdeviceptr d;
    unsigned char *pageable = malloc(N), *locked, *own = malloc(N), *large;
    OK(cuMemAlloc(&d, N));
    OK(cuMemHostAlloc((void **)&locked, N, 0));
    OK(cuMemHostAlloc((void **)&large, (size_t)65 << 20, 0));
    OK(cuMemHostRegister(own, N, 0));
    unsigned char *const all[] = {pageable, locked, own};
    for (int i = 0; i < 3; i++) {
        memset(all[i], 0xff, N);
        OK(cuMemcpyDtoHAsync(all[i], d, N / 2, NULL));
        OK(cuStreamSynchronize(NULL));
        for (int k = 0; k < N; k++)
            cr_assert_eq(all[i][k], k < N / 2 ? 0 : 0xff, "%d: byte %d", i, k);
    }
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = d,
                          .srcPitch = 16,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = pageable,
                          .dstPitch = 64,
                          .WidthInBytes = 8,
                          .Height = 4};
    memset(pageable, 0xff, N);
    OK(cuMemcpy2D(&rows));
    for (int k = 0; k < 256; k++)
        cr_assert_eq(pageable[k], k % 64 < 8 ? 0 : 0xff, "byte %d", k);
    large[0] = 7;
    OK(cuMemcpyDtoH(large, d, N));
    cr_assert_eq(large[0], 7);
    OK(cuMemHostUnregister(own));
    free(own);
    free(pageable);
}

Test(memory, texture_objects_are_over_linear_memory)
{
    START("SIMGPU_MODE", "functional");
    CUdeviceptr p;
    CUtexObject o = 0;
    CUDA_TEXTURE_DESC t = {.maxAnisotropy = 3}, back;
    CUDA_RESOURCE_VIEW_DESC view = {.width = 1};
    OK(cuMemAlloc(&p, 4096));
    CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_LINEAR};
    r.res.linear.devPtr = p;
    r.res.linear.sizeInBytes = 4096;
    OK(cuTexObjectCreate(&o, &r, &t, NULL));
    OK(cuTexObjectGetTextureDesc(&back, o));
    cr_assert_eq(back.maxAnisotropy, 3);
    OK(cuTexObjectDestroy(o));
    FAILS(cuTexObjectGetTextureDesc(&back, o), CUDA_ERROR_INVALID_VALUE);
    FAILS(cuTexObjectCreate(&o, &r, &t, &view), CUDA_ERROR_INVALID_VALUE);
    r.res.linear.devPtr = p + 4;
    FAILS(cuTexObjectCreate(&o, &r, &t, NULL), CUDA_ERROR_INVALID_VALUE);
    r.res.linear.devPtr = p;
    r.res.linear.sizeInBytes = (size_t)64 << 20;
    FAILS(cuTexObjectCreate(&o, &r, &t, NULL), CUDA_ERROR_INVALID_VALUE);
    r.resType = CU_RESOURCE_TYPE_PITCH2D;
    r.res.pitch2D.devPtr = p;
    r.res.pitch2D.width = 8;
    r.res.pitch2D.height = 4;
    r.res.pitch2D.pitchInBytes = 512;
    OK(cuTexObjectCreate(&o, &r, &t, NULL));
    r.res.pitch2D.pitchInBytes = 500;
    FAILS(cuTexObjectCreate(&o, &r, &t, NULL), CUDA_ERROR_INVALID_VALUE);
    memset(&r, 0, sizeof r);
    r.resType = CU_RESOURCE_TYPE_ARRAY;
    FAILS(cuTexObjectCreate(&o, &r, &t, NULL), CUDA_ERROR_INVALID_VALUE);
    r.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    FAILS(cuTexObjectCreate(&o, &r, &t, NULL), CUDA_ERROR_INVALID_VALUE);
}

Test(memory, arrays_take_memory_and_have_no_address)
{
    START("SIMGPU_PRESET", "titanx-12g");
    size_t before, with, after, total;
    CUarray a, b;
    CUDA_ARRAY3D_DESCRIPTOR d = {.Width = 32768,
                                 .Height = 32768,
                                 .Format = CU_AD_FORMAT_FLOAT,
                                 .NumChannels = 2};
    CUtexObject t;
    CUDA_TEXTURE_DESC how = {0};
    CUDA_RESOURCE_VIEW_DESC view = {.width = 1}, told;
    OK(cuMemGetInfo(&before, &total));
    OK(cuArray3DCreate(&a, &d));
    OK(cuMemGetInfo(&with, &total));
    cr_assert_eq(before - with, (size_t)8 << 30);
    FAILS(cuArray3DCreate(&b, &d), CUDA_ERROR_OUT_OF_MEMORY);
    FAILS(cuMemFree((CUdeviceptr)a), CUDA_ERROR_INVALID_VALUE);
    CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_ARRAY};
    r.res.array.hArray = a;
    OK(cuTexObjectCreate(&t, &r, &how, &view));
    OK(cuTexObjectGetResourceViewDesc(&told, t));
    cr_assert_eq(told.width, 1);
    OK(cuArrayDestroy(a));
    OK(cuMemGetInfo(&after, &total));
    cr_assert_eq(before, after);
    FAILS(cuTexObjectCreate(&t, &r, &how, NULL), CUDA_ERROR_INVALID_VALUE);
    d.Flags = CUDA_ARRAY3D_CUBEMAP; /* six faces */
    FAILS(cuArray3DCreate(&b, &d), CUDA_ERROR_INVALID_VALUE);
    d.Flags = CUDA_ARRAY3D_SPARSE;
    FAILS(cuArray3DCreate(&b, &d), CUDA_ERROR_NOT_SUPPORTED);
}
