/* The race checker, each kind of finding planted and the same program done right. */
#include "gpu.h"

#include <stdio.h>

#define RACE "SIMGPU_RACECHECK", "1", "SIMGPU_GRANULARITY", "64KiB", "SIMGPU_MEMORY", "64MiB"
#define G    ((size_t)65536)

static const char *mode; /* of the run: every test runs in both */
static int right;        /* the program has its edge */

static const CUmemAllocationProp on_device = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
static const CUmemAccessDesc read_write = {
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static void expect(void (*program)(void), const char *finding)
{
    static const char *const modes[] = {"timing", "functional"};
    for (int m = 0; m < 2; m++)
        for (right = 0; right < 2; right++) {
            int status;
            mode = modes[m];
            const char *text = gpu_stderr_of(program, &status);
            cr_assert_eq(status, 0, "%s: %s", mode, text);
            if (right)
                cr_assert_str_eq(text, "", "%s, done right: %s", mode, text);
            else
                cr_assert(strstr(text, finding), "%s, planted: %s", mode, text);
        }
}

static void left_out_event(void)
{
    struct gpu g = START(RACE, "SIMGPU_MODE", mode);
    CUstream s, t;
    CUevent e;
    CUdeviceptr a;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&a, 4096));
    OK(cuMemsetD32Async(a, 1, 1024, s));
    OK(cuEventRecord(e, s));
    if (right)
        OK(cuStreamWaitEvent(t, e, 0));
    gpu_add(&g, a, 1, 1024, t);
    OK(cuCtxSynchronize());
}
Test(race, an_event_left_out)
{
    expect(left_out_event, "race: write by memset");
}

static void array_written_by_two(void)
{
    START(RACE, "SIMGPU_MODE", mode);
    const CUDA_ARRAY_DESCRIPTOR d = {1024, 0, CU_AD_FORMAT_FLOAT, 1};
    CUstream s, t;
    CUarray a;
    void *host;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    OK(cuArrayCreate(&a, &d));
    OK(cuMemAllocHost(&host, 4096));
    OK(cuMemcpyHtoAAsync(a, 0, host, 2048, s));
    OK(cuMemcpyHtoAAsync(a, right ? 2048 : 1024, host, 2048, t));
    OK(cuArrayDestroy(a));
}
Test(race, an_array_written_by_two_streams)
{
    expect(array_written_by_two, "race: write by copy");
}

static void host_wait_left_out(void)
{
    struct gpu g = START(RACE, "SIMGPU_MODE", mode);
    CUstream s, t;
    CUdeviceptr a, b;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&a, 64));
    OK(cuMemAlloc(&b, 64));
    OK(cuMemsetD32Async(a, 1, 16, s));
    OK(cuStreamSynchronize(s));
    gpu_move(&g, b, a, 16, s); /* reads a */
    if (right)
        OK(cuStreamSynchronize(s));
    OK(cuMemsetD32Async(a, 2, 16, t)); /* overwrites it */
    OK(cuCtxSynchronize());
}
Test(race, a_host_wait_left_out)
{
    expect(host_wait_left_out, "race: ");
}

static void partial_overlap(void)
{
    START(RACE, "SIMGPU_MODE", mode);
    CUstream s, t;
    CUdeviceptr a;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&a, 4096));
    OK(cuMemsetD8Async(a, 1, 2048, s));
    OK(cuMemsetD8Async(a + (right ? 2048 : 2047), 2, 1024, t));
    OK(cuCtxSynchronize());
}
Test(race, one_byte_of_overlap)
{
    expect(partial_overlap, "race: write by memset");
}

/* A pager evicts a chunk and hands it on before the copy out has been waited for. */
static void early_reuse(void)
{
    START(RACE, "SIMGPU_MODE", mode, "SIMGPU_UNMAP_SYNC", "0");
    CUstream s, t;
    CUevent e;
    CUdeviceptr va;
    CUmemGenericAllocationHandle h;
    void *pinned;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAllocHost(&pinned, G));
    OK(cuMemAddressReserve(&va, 2 * G, 0, 0, 0));
    OK(cuMemCreate(&h, G, &on_device, 0));
    OK(cuMemMap(va, G, 0, h, 0));
    OK(cuMemMap(va + G, G, 0, h, 0)); /* the new owner's address */
    OK(cuMemSetAccess(va, 2 * G, &read_write, 1));
    OK(cuMemsetD8Async(va, 1, G, s));
    OK(cuMemcpyDtoHAsync(pinned, va, G, s));
    OK(cuEventRecord(e, s));
    if (right)
        OK(cuStreamWaitEvent(t, e, 0));
    OK(cuMemsetD8Async(va + G, 2, G, t));
    OK(cuCtxSynchronize());
}
Test(race, early_reuse_through_an_alias)
{
    expect(early_reuse, "race: ");
}

/* A page at an address of its own, with its chunk *h mapped to it. */
static CUdeviceptr mapped_page(CUmemGenericAllocationHandle *h)
{
    CUdeviceptr va;
    OK(cuMemAddressReserve(&va, G, 0, 0, 0));
    OK(cuMemCreate(h, G, &on_device, 0));
    OK(cuMemMap(va, G, 0, *h, 0));
    OK(cuMemSetAccess(va, G, &read_write, 1));
    return va;
}

/* In timing mode what is short ends meanwhile, and nobody knows. */
static void time_passes(void)
{
    for (int i = 0; i < 100; i++) {
        size_t a, b;
        OK(cuMemGetInfo(&a, &b));
    }
}

static void early_unmap(void)
{
    START(RACE, "SIMGPU_MODE", mode, "SIMGPU_UNMAP_SYNC", "0");
    CUstream s;
    CUmemGenericAllocationHandle h;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    CUdeviceptr va = mapped_page(&h);
    OK(cuMemsetD8Async(va, 1, G, s));
    if (!right)
        while (cuStreamQuery(s) == CUDA_ERROR_NOT_READY)
            ; /* done, and the host knows: the next one is not */
    OK(cuMemsetD8Async(va, 1, G, s));
    if (right)
        OK(cuStreamSynchronize(s));
    time_passes();
    OK(cuMemUnmap(va, G));
    CUresult r = cuCtxSynchronize();
    cr_assert(r == CUDA_SUCCESS || (!right && r == CUDA_ERROR_ILLEGAL_ADDRESS));
}
Test(race, early_unmap)
{
    /* In timing mode the memset has executed unseen; in functional mode it finds the hole. */
    int status;
    right = 0;
    mode = "timing";
    const char *text = gpu_stderr_of(early_unmap, &status);
    cr_assert(status == 0 && strstr(text, "early unmap"), "%s", text);
    mode = "functional";
    text = gpu_stderr_of(early_unmap, &status);
    cr_assert(status == 0 && strstr(text, "illegal address: memset"), "%s", text);
    right = 1;
    text = gpu_stderr_of(early_unmap, &status);
    cr_assert(status == 0 && !*text, "%s", text);
}

static void late_map(void)
{
    struct gpu g = START(RACE, "SIMGPU_MODE", "functional");
    CUstream s;
    CUmemGenericAllocationHandle h;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    CUdeviceptr va = mapped_page(&h);
    OK(cuMemsetD8(va, 1, G));
    OK(cuCtxSynchronize());
    if (!right)
        OK(cuMemUnmap(va, G));
    gpu_add(&g, va, 1, 16, s); /* waits in its queue */
    if (!right) {
        OK(cuMemMap(va, G, 0, h, 0));
        OK(cuMemSetAccess(va, G, &read_write, 1));
    }
    OK(cuCtxSynchronize());
}
Test(race, a_mapping_that_comes_after_its_user)
{
    int status;
    right = 0;
    const char *text = gpu_stderr_of(late_map, &status);
    cr_assert(status == 0 && strstr(text, "late map: kernel add"), "%s", text);
    right = 1;
    text = gpu_stderr_of(late_map, &status);
    cr_assert(status == 0 && !*text, "%s", text);
}

/* A page is written, made read-only (unless `right`) and copied, and no edge leads from the write to the copy. */
static void sealed_write(void)
{
    START(RACE, "SIMGPU_MODE", "timing");
    const CUmemAccessDesc read_only = {.location = on_device.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READ};
    CUstream s, t;
    CUmemGenericAllocationHandle h;
    void *pinned;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    OK(cuMemAllocHost(&pinned, G));
    CUdeviceptr va = mapped_page(&h);
    OK(cuMemsetD8Async(va, 1, G, s));
    time_passes();
    if (!right)
        OK(cuMemSetAccess(va, G, &read_only, 1));
    OK(cuMemcpyDtoHAsync(pinned, va, G, t));
    OK(cuCtxSynchronize());
}
Test(race, a_write_that_was_over_when_its_page_was_sealed)
{
    static const char told[] = ", which was over when the page became read-only";
    int status;
    right = 0;
    const char *text = gpu_stderr_of(sealed_write, &status);
    cr_assert(status == 0 && strstr(text, "race: write by memset") && strstr(text, told), "%s", text);
    right = 1;
    text = gpu_stderr_of(sealed_write, &status);
    cr_assert(status == 0 && strstr(text, "race: write by memset") && !strstr(text, told), "%s", text);
}

static void undefined_read(void)
{
    struct gpu g = START(RACE, "SIMGPU_MODE", mode);
    CUdeviceptr a, b, c;
    OK(cuMemAlloc(&a, 64));
    OK(cuMemAlloc(&b, 64));
    OK(cuMemAlloc(&c, 64));
    if (right)
        OK(cuMemsetD8(a, 0, 64));
    OK(cuMemcpyDtoD(b, a, 64)); /* passes on what is undefined */
    gpu_move(&g, c, b, 16, NULL);
    OK(cuCtxSynchronize());
}
Test(race, undefined_bytes_through_a_copy)
{
    expect(undefined_read, "undefined: kernel move");
}

static void legacy_orders(void)
{
    struct gpu g = START(RACE, "SIMGPU_MODE", mode);
    CUstream s;
    CUdeviceptr a;
    OK(cuStreamCreate(&s, right ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&a, 64));
    OK(cuMemsetD8Async(a, 0, 64, s));
    gpu_add(&g, a, 1, 16, NULL);
    OK(cuStreamDestroy(s));
    OK(cuCtxSynchronize());
}
Test(race, the_default_stream_orders_blocking_streams_only)
{
    expect(legacy_orders, "race: write by memset");
}

static void free_under_use(void)
{
    struct gpu g = START(RACE, "SIMGPU_MODE", mode);
    CUstream s, t;
    CUevent e;
    CUdeviceptr a, b;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&b, 64));
    OK(cuMemAllocAsync(&a, 64, s));
    OK(cuMemsetD8Async(a, 1, 64, s));
    OK(cuStreamSynchronize(s));
    gpu_move(&g, b, a, 16, t); /* another stream still reads it */
    OK(cuEventRecord(e, t));
    if (right)
        OK(cuStreamWaitEvent(s, e, 0));
    OK(cuMemFreeAsync(a, s));
    cuCtxSynchronize(); /* the read may come first or last: both are caught */
}
Test(race, a_stream_ordered_free_under_use)
{
    static const char *const modes[] = {"timing", "functional"};
    for (int m = 0; m < 2; m++)
        for (right = 0; right < 2; right++) {
            int status;
            mode = modes[m];
            const char *text = gpu_stderr_of(free_under_use, &status);
            cr_assert_eq(status, 0);
            if (right)
                cr_assert_str_eq(text, "", "%s: %s", mode, text);
            else
                cr_assert(strstr(text, "race: ") || strstr(text, "illegal address: kernel move"),
                          "%s: %s", mode, text);
        }
}
