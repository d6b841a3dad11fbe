/* The link: copies each way alone and together, host memory and what it costs, kernels that read
 * it. */
#include "measure.h"

#include <string.h>
#include <stdio.h>
#include <sys/mman.h>

struct lane {
    CUstream stream;
    CUevent from, to;
    CUdeviceptr device;
    void *host;
};

static void lane_init(struct lane *l, size_t bytes)
{
    must(cu.StreamCreate(&l->stream, CU_STREAM_NON_BLOCKING));
    must(cu.EventCreate(&l->from, CU_EVENT_DEFAULT));
    must(cu.EventCreate(&l->to, CU_EVENT_DEFAULT));
    must(cu.MemAlloc(&l->device, bytes));
    must(cu.MemHostAlloc(&l->host, bytes, 0));
    memset(l->host, 1, bytes);
    must(cu.MemsetD8(l->device, 2, bytes));
}

static void lane_end(struct lane *l)
{
    must(cu.MemFree(l->device));
    must(cu.MemFreeHost(l->host));
    must(cu.EventDestroy(l->from));
    must(cu.EventDestroy(l->to));
    must(cu.StreamDestroy(l->stream));
}

static void lane_copy(struct lane *l, bool in, size_t bytes, int times)
{
    must(cu.EventRecord(l->from, l->stream));
    for (int i = 0; i < times; i++)
        must(in ? cu.MemcpyHtoDAsync(l->device, l->host, bytes, l->stream)
                : cu.MemcpyDtoHAsync(l->host, l->device, bytes, l->stream));
    must(cu.EventRecord(l->to, l->stream));
}

/* GB/s over what lay between the lane's events; waits for them. */
static double lane_rate(struct lane *l, size_t bytes, int times)
{
    float ms;
    must(cu.EventSynchronize(l->to));
    must(cu.EventElapsedTime(&ms, l->from, l->to));
    return (double)bytes * times / 1e6 / (double)ms;
}

void step_copies(void)
{
    static const size_t sizes[] = {64 * KIB, 2 * MIB, 16 * MIB, 64 * MIB, 256 * MIB};
    int engines = 0;
    struct lane in, out;
    must(cu.DeviceGetAttribute(&engines, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, device));
    report_number(engines, "", "copies/engines");
    lane_init(&in, 256 * MIB);
    lane_init(&out, 256 * MIB);
    must(cu.CtxSynchronize());
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct samples alone[2] = {{0}}, both[2] = {{0}};
        size_t bytes = sizes[i];
        int times = bytes < 64 * MIB ? (int)(128 * MIB / bytes) : 4;
        times = times > 64 ? 64 : times;
        for (int round = 0; round < 5; round++) {
            lane_copy(&in, true, bytes, times);
            sample(&alone[0], lane_rate(&in, bytes, times));
            lane_copy(&out, false, bytes, times);
            sample(&alone[1], lane_rate(&out, bytes, times));
            lane_copy(&in, true, bytes, times);
            lane_copy(&out, false, bytes, times);
            sample(&both[0], lane_rate(&in, bytes, times));
            sample(&both[1], lane_rate(&out, bytes, times));
        }
        report_samples(&alone[0], "GB/s", "copies/in/alone/%zuKiB", bytes / KIB);
        report_samples(&alone[1], "GB/s", "copies/out/alone/%zuKiB", bytes / KIB);
        report_samples(&both[0], "GB/s", "copies/in/both-ways/%zuKiB", bytes / KIB);
        report_samples(&both[1], "GB/s", "copies/out/both-ways/%zuKiB", bytes / KIB);
    }
    lane_end(&in);
    lane_end(&out);
}

void step_host(void)
{
    const size_t bytes = 256 * MIB;
    struct samples alloc = {0}, touch = {0}, reg = {0}, unreg = {0};
    for (int round = 0; round < 3; round++) {
        void *p;
        double t = now_us();
        must(cu.MemHostAlloc(&p, bytes, 0));
        sample(&alloc, (now_us() - t) / 1e6 * (double)(1024 * MIB) / (double)bytes);
        must(cu.MemFreeHost(p));
        t = now_us();
        p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) {
            report_text("no host memory", "host/register");
            return;
        }
        memset(p, 1, bytes);
        sample(&touch, (now_us() - t) / 1e6 * (double)(1024 * MIB) / (double)bytes);
        t = now_us();
        must(cu.MemHostRegister(p, bytes, CU_MEMHOSTREGISTER_PORTABLE));
        sample(&reg, (now_us() - t) / 1e6 * (double)(1024 * MIB) / (double)bytes);
        t = now_us();
        must(cu.MemHostUnregister(p));
        sample(&unreg, (now_us() - t) / 1e6 * (double)(1024 * MIB) / (double)bytes);
        munmap(p, bytes);
    }
    report_samples(&alloc, "s/GiB", "host/alloc");
    report_samples(&touch, "s/GiB", "host/map-and-touch");
    report_samples(&reg, "s/GiB", "host/register-touched");
    report_samples(&unreg, "s/GiB", "host/unregister");
}

/* GB/s at which a kernel reads `bytes` at `at`, and whether it found what was written there. */
static void time_reads(CUdeviceptr at, size_t bytes, const char *what)
{
    struct samples s = {0};
    CUdeviceptr out;
    CUevent from, to;
    uint64_t sum = 0, words = bytes / 8, expected = words * 7 + words * (words - 1) / 2;
    must(cu.MemAlloc(&out, 8));
    must(cu.EventCreate(&from, CU_EVENT_DEFAULT));
    must(cu.EventCreate(&to, CU_EVENT_DEFAULT));
    launch_fill(at, words, 7, NULL);
    for (int i = 0; i < 5; i++) {
        float ms;
        must(cu.MemsetD8(out, 0, 8));
        must(cu.EventRecord(from, NULL));
        launch_sum(at, words, out, NULL);
        must(cu.EventRecord(to, NULL));
        must(cu.EventSynchronize(to));
        must(cu.EventElapsedTime(&ms, from, to));
        sample(&s, (double)bytes / 1e6 / (double)ms);
    }
    must(cu.MemcpyDtoH(&sum, out, 8));
    report_samples(&s, "GB/s", "host-numa/kernel-reads/%s", what);
    report_text(contents_are(sum == expected), "host-numa/contents/%s", what);
    must(cu.MemFree(out));
    must(cu.EventDestroy(from));
    must(cu.EventDestroy(to));
}

/* A kernel that reads memory of the host's node mapped where device memory was: slow, but right? */
void step_host_numa(void)
{
    int node = -1;
    CUmemGenericAllocationHandle h, host;
    must(cu.DeviceGetAttribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device));
    report_number(node, "", "host-numa/node");
    CUmemAllocationProp on_host = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, node < 0 ? 0 : node}};
    size_t page = 0;
    CUresult r = cu.MemGetAllocationGranularity(&page, &on_host, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    size_t bytes = 64 * MIB;
    CUdeviceptr at = reserve(bytes);
    h = create(bytes, &on_device);
    map(at, bytes, h);
    time_reads(at, bytes, "device-memory");
    must(cu.MemUnmap(at, bytes));
    must(cu.MemRelease(h));
    if (r == CUDA_SUCCESS)
        r = cu.MemCreate(&host, bytes, &on_host, 0);
    report_text(result_name(r), "host-numa/create");
    if (r == CUDA_SUCCESS) {
        report_number((double)page, "B", "host-numa/granularity");
        map(at, bytes, host);
        time_reads(at, bytes, "host-memory-at-the-same-address");
        must(cu.MemUnmap(at, bytes));
        must(cu.MemRelease(host));
    }
    must(cu.MemAddressFree(at, bytes));
}
