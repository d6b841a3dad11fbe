/* Contexts and several devices. */
#include "gpu.h"

#define TWO "SIMGPU_MODE", "functional", "SIMGPU_DEVICES", "2", "SIMGPU_GRANULARITY", "64KiB"
#define G   ((size_t)65536)

Test(devices, each_has_its_own_memory)
{
    START("SIMGPU_DEVICES", "2", "SIMGPU_MEMORY", "1GiB");
    CUcontext second;
    CUdeviceptr p;
    size_t a, b, total;
    int n;
    CUdevice d;
    CUuuid u, v;
    OK(cuDeviceGetCount(&n));
    cr_assert_eq(n, 2);
    FAILS(cuDeviceGet(&d, 2), CUDA_ERROR_INVALID_DEVICE);
    OK(cuDeviceGetUuid(&u, 0));
    OK(cuDeviceGetUuid(&v, 1));
    cr_assert_neq(memcmp(&u, &v, sizeof u), 0);
    OK(cuMemAlloc(&p, (size_t)512 << 20));
    OK(cuMemGetInfo(&a, &total));
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuCtxPushCurrent(second));
    OK(cuMemGetInfo(&b, &total));
    cr_assert_eq(b - a, (size_t)512 << 20);
    OK(cuMemAlloc(&p, (size_t)900 << 20));
    CUcontext popped;
    OK(cuCtxPopCurrent(&popped));
    cr_assert_eq(popped, second);
    OK(cuCtxGetDevice(&d));
    cr_assert_eq(d, 0);
    OK(cuDevicePrimaryCtxRelease(1));
    FAILS(cuCtxPushCurrent(second), CUDA_ERROR_INVALID_CONTEXT);
}

Test(devices, a_kernel_needs_an_enabled_peer)
{
    struct gpu g = START(TWO);
    CUcontext second;
    CUdeviceptr far, near;
    unsigned v = 0;
    OK(cuMemAlloc(&near, 4));
    OK(cuMemsetD32(near, 7, 1));
    OK(cuDevicePrimaryCtxRetain(&second, 1));
    OK(cuCtxSetCurrent(second));
    OK(cuMemAlloc(&far, 4));
    OK(cuCtxSetCurrent(g.ctx));
    OK(cuMemcpyPeer(far, second, near, g.ctx, 4)); /* copies need no peer access */
    OK(cuCtxEnablePeerAccess(second, 0));
    FAILS(cuCtxEnablePeerAccess(second, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    gpu_add(&g, far, 1, 1, NULL);
    OK(cuMemcpyDtoH(&v, far, 4));
    cr_assert_eq(v, 8);
    OK(cuCtxDisablePeerAccess(second));
    gpu_add(&g, far, 1, 1, NULL);
    FAILS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

Test(devices, virtual_memory_is_opened_to_each_by_name)
{
    struct gpu g = START(TWO);
    CUdeviceptr va;
    CUmemGenericAllocationHandle h;
    CUmemAllocationProp far = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                               .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}};
    CUmemAccessDesc access[2] = {{.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                 {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
    unsigned long long flags = 1;
    OK(cuMemAddressReserve(&va, G, 0, 0, 0));
    OK(cuMemCreate(&h, G, &far, 0));
    OK(cuMemMap(va, G, 0, h, 0));
    OK(cuMemSetAccess(va, G, access, 1));
    OK(cuMemGetAccess(&flags, &access[1].location, va));
    cr_assert_eq(flags, 0);
    OK(cuMemSetAccess(va, G, access, 2));
    OK(cuMemsetD32(va, 1, 1));
    gpu_add(&g, va, 1, 1, NULL); /* on device 0 */
    OK(cuCtxSynchronize());
    access[1].flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    OK(cuMemSetAccess(va, G, &access[1], 1));
    gpu_add(&g, va, 1, 1, NULL);
    FAILS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

Test(contexts, own_ones_nest_and_die)
{
    START("SIMGPU_MODE", "functional");
    CUcontext own, now;
    CUdeviceptr p;
    CUstream s;
    unsigned flags;
    int active;
    size_t before, after, total;
    OK(cuMemGetInfo(&before, &total));
#if CUDA_VERSION >= 13000
    OK(cuCtxCreate(&own, NULL, 0, 0));
#else
    OK(cuCtxCreate(&own, 0, 0));
#endif
    OK(cuCtxGetCurrent(&now));
    cr_assert_eq(now, own);
    OK(cuMemAlloc(&p, 1 << 20));
    OK(cuStreamCreate(&s, 0));
    OK(cuCtxDestroy(own));
    OK(cuCtxGetCurrent(&now));
    cr_assert_neq(now, own);
    OK(cuMemGetInfo(&after, &total));
    cr_assert_eq(before, after, "its memory went with it");
    FAILS(cuStreamSynchronize(s), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    FAILS(cuCtxDestroy(own), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    cr_assert_eq(active, 1);
}

Test(contexts, a_sticky_error_ends_with_a_reset)
{
    struct gpu g = START("SIMGPU_MODE", "functional");
    CUdeviceptr p;
    OK(cuMemAlloc(&p, 4));
    OK(cuMemFree(p));
    gpu_add(&g, p, 1, 1, NULL);
    FAILS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    FAILS(cuMemAlloc(&p, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
    OK(cuDevicePrimaryCtxReset(0));
    OK(cuMemAlloc(&p, 4));
}
