/* The simulated CUPTI, by its public interface. */
#include "gpu.h"

#include <cuda_runtime_api.h>
#include <cupti.h>
#include <stdint.h>
#include <time.h>

#define CU(call) cr_assert_eq((call), CUPTI_SUCCESS, "%s", #call)

struct seen {
    unsigned kernels, copies, sets, calls, runtime, externals, buffers, asked;
    CUpti_ActivityKernel9 kernel;
    CUpti_ActivityMemcpy5 copy;
    CUpti_ActivityMemset4 set;
    CUpti_ActivityAPI launch, runtime_call;
    CUpti_ActivityExternalCorrelation external;
};
static struct seen seen;
static size_t buffer_bytes = 4096;

static void ask(uint8_t **buffer, size_t *size, size_t *most)
{
    *buffer = aligned_alloc(8, buffer_bytes);
    *size = buffer_bytes;
    *most = 0;
    seen.asked++;
}

static void take(CUcontext c, uint32_t s, uint8_t *buffer, size_t size, size_t valid)
{
    CUpti_Activity *r = NULL;
    (void)c, (void)s, (void)size;
    seen.buffers++;
    while (cuptiActivityGetNextRecord(buffer, valid, &r) == CUPTI_SUCCESS)
        switch ((int)r->kind) {
        case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
            memcpy(&seen.kernel, r, sizeof seen.kernel);
            seen.kernels++;
            break;
        case CUPTI_ACTIVITY_KIND_MEMCPY:
            memcpy(&seen.copy, r, sizeof seen.copy);
            seen.copies++;
            break;
        case CUPTI_ACTIVITY_KIND_MEMSET:
            memcpy(&seen.set, r, sizeof seen.set);
            seen.sets++;
            break;
        case CUPTI_ACTIVITY_KIND_DRIVER:
            if (((CUpti_ActivityAPI *)(void *)r)->cbid == CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel)
                memcpy(&seen.launch, r, sizeof seen.launch);
            seen.calls++;
            break;
        case CUPTI_ACTIVITY_KIND_RUNTIME:
            memcpy(&seen.runtime_call, r, sizeof seen.runtime_call);
            seen.runtime++;
            break;
        case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
            memcpy(&seen.external, r, sizeof seen.external);
            seen.externals++;
            break;
        default:
            cr_assert_fail("a record of kind %d", (int)r->kind);
        }
    free(buffer);
}

static void on_call(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void *data)
{
    (void)data;
    if (domain == CUPTI_CB_DOMAIN_RESOURCE && id == CUPTI_CBID_RESOURCE_CONTEXT_CREATED)
        (*(int *)user)++;
}

/* Times are the simulated clock's, to the nanosecond; what belongs together carries one number. */
Test(cupti, records_of_each_kind)
{
    struct gpu g = START("SIMGPU_MODE", "timing");
    CUdeviceptr a;
    void *host;
    CUstream s;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&a, 1 << 20));
    OK(cuMemAllocHost(&host, 1 << 20));
    CU(cuptiActivityRegisterCallbacks(ask, take));
    CU(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
    CU(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY));
    CU(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET));
    CU(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION));
    CU(cuptiActivityEnableDriverApi(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, 1));
    CU(cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, 77));
    gpu_work(&g, 1e6, a, 1, s);
    CU(cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, NULL));
    OK(cuMemcpyHtoDAsync(a, host, 1 << 20, s));
    OK(cuMemsetD32Async(a, 5, 1024, s));
    OK(cuStreamSynchronize(s));
    CU(cuptiActivityFlushAll(0));
    cr_assert_eq(seen.kernels, 1);
    cr_assert_eq(seen.copies, 1);
    cr_assert_eq(seen.sets, 1);
    cr_assert_eq(seen.calls, 1, "one cbid was asked for");
    cr_assert_eq(seen.externals, 1);
    uint64_t ns = seen.kernel.end - seen.kernel.start;
    cr_assert(ns >= 1000000 && ns < 1010000, "the kernel takes what it was told: %llu",
              (unsigned long long)ns);
    cr_assert_str_eq(seen.kernel.name, "work");
    cr_assert_eq(seen.kernel.blockX, 32);
    cr_assert_eq(seen.kernel.correlationId, seen.launch.correlationId);
    cr_assert_eq(seen.external.correlationId, seen.launch.correlationId);
    cr_assert_eq(seen.external.externalId, 77);
    cr_assert_eq(seen.copy.copyKind, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD);
    cr_assert_eq(seen.copy.srcKind, CUPTI_ACTIVITY_MEMORY_KIND_PINNED);
    cr_assert_eq(seen.copy.bytes, 1 << 20);
    cr_assert_geq(seen.copy.start, seen.kernel.end, "stream order");
    cr_assert_eq(seen.set.bytes, 4096);
    cr_assert_eq(seen.set.value, 5);
    uint32_t stream, context;
    CU(cuptiGetStreamId(g.ctx, s, &stream));
    CU(cuptiGetContextId(g.ctx, &context));
    cr_assert_eq(seen.kernel.streamId, stream);
    cr_assert_eq(seen.kernel.contextId, context);
}

/* What is switched off is not recorded, and small buffers are asked for again and again. */
Test(cupti, kinds_and_buffers)
{
    struct gpu g = START("SIMGPU_MODE", "functional");
    CUdeviceptr a;
    size_t dropped;
    OK(cuMemAlloc(&a, 4096));
    buffer_bytes = 1024;
    cr_assert_eq(cuptiActivityFlushAll(0), CUPTI_ERROR_INVALID_OPERATION);
    CU(cuptiActivityRegisterCallbacks(ask, take));
    CU(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
    for (int i = 0; i < 100; i++)
        gpu_add(&g, a, 1, 1, NULL);
    OK(cuMemsetD32(a, 5, 1024));
    OK(cuCtxSynchronize());
    CU(cuptiActivityFlushAll(1));
    cr_assert_eq(seen.kernels, 100);
    cr_assert_eq(seen.sets, 0);
    cr_assert_gt(seen.buffers, 20);
    CU(cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
    gpu_add(&g, a, 1, 1, NULL);
    OK(cuCtxSynchronize());
    CU(cuptiActivityFlushAll(1));
    cr_assert_eq(seen.kernels, 100);
    buffer_bytes = 64; /* too small for a record: it is dropped and counted */
    CU(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
    gpu_add(&g, a, 1, 1, NULL);
    OK(cuCtxSynchronize());
    CU(cuptiActivityFlushAll(1));
    CU(cuptiActivityGetNumDroppedRecords(NULL, 0, &dropped));
    cr_assert_eq(dropped, 1);
}

Test(cupti, one_subscriber)
{
    CUpti_SubscriberHandle one, two;
    CUcontext c;
    int contexts = 0;
    OK(cuInit(0));
    CU(cuptiSubscribe(&one, on_call, &contexts));
    cr_assert_eq(cuptiSubscribe(&two, on_call, NULL),
                 CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    CU(cuptiEnableCallback(1, one, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_CREATED));
    OK(cuDevicePrimaryCtxRetain(&c, 0));
    cr_assert_eq(contexts, 1);
    cr_assert_eq(cuptiUnsubscribe(NULL), CUPTI_ERROR_INVALID_PARAMETER);
    CU(cuptiUnsubscribe(one));
    CU(cuptiSubscribe(&two, on_call, NULL));
    CU(cuptiUnsubscribe(two));
}

static uint64_t fixed_clock(void)
{
    return UINT64_C(1000000000000);
}

/* A client's own clock: simulated durations, counted from its time when recording began. */
Test(cupti, clock_of_the_client)
{
    struct gpu g = START("SIMGPU_MODE", "timing");
    CUdeviceptr a;
    uint64_t now;
    OK(cuMemAlloc(&a, 4096));
    CU(cuptiActivityRegisterCallbacks(ask, take));
    CU(cuptiActivityRegisterTimestampCallback(fixed_clock));
    CU(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
    gpu_work(&g, 1e6, a, 1, NULL);
    OK(cuCtxSynchronize());
    CU(cuptiActivityFlushAll(0));
    cr_assert(seen.kernel.start >= fixed_clock() && seen.kernel.start < fixed_clock() + 100000);
    CU(cuptiGetTimestamp(&now));
    cr_assert_geq(now, seen.kernel.end);
}

Test(cupti, names)
{
    const char *name;
    CU(cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
                            &name));
    cr_assert_str_eq(name, "cuLaunchKernel");
    CU(cuptiGetResultString(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, &name));
    cr_assert_str_eq(name, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED");
    cr_assert_eq(cuptiGetResultString((CUptiResult)12345, &name), CUPTI_ERROR_INVALID_PARAMETER);
}

/* A call of the runtime, and what the driver does for it, carry one number; driver calls inside of it have
 * no records. */
Test(cupti, calls_of_the_runtime)
{
    void *p;
    START("SIMGPU_MODE", "timing");
    cr_assert_eq(cudaMalloc(&p, 4096), cudaSuccess);
    CU(cuptiActivityRegisterCallbacks(ask, take));
    CU(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_RUNTIME));
    CU(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_DRIVER));
    CU(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET));
    CU(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION));
    CU(cuptiActivityEnableRuntimeApi(CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_v3020, 0));
    CU(cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, 5));
    cr_assert_eq(cudaMemsetAsync(p, 0, 4096, NULL), cudaSuccess);
    CU(cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, NULL));
    cr_assert_eq(cudaStreamSynchronize(NULL), cudaSuccess);
    CU(cuptiActivityFlushAll(0));
    cr_assert_eq(seen.runtime, 1, "one of two was switched off");
    cr_assert_eq(seen.calls, 0);
    cr_assert_eq(seen.runtime_call.cbid, CUPTI_RUNTIME_TRACE_CBID_cudaMemsetAsync_v3020);
    cr_assert_eq(seen.sets, 1);
    cr_assert_eq(seen.set.correlationId, seen.runtime_call.correlationId);
    cr_assert_eq(seen.externals, 1);
    cr_assert_eq(seen.external.correlationId, seen.runtime_call.correlationId);
    OK(cuCtxSynchronize());
    CU(cuptiActivityFlushAll(0));
    cr_assert_gt(seen.calls, 0, "outside of the runtime driver calls have theirs");
}

static uint64_t real_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static uint64_t ticks(void) /* a clock of the client's own: three a nanosecond */
{
    return 3 * real_ns();
}

/* A client with its own clock finds the records between its readings, in its own units, kernels as long as the
 * card takes, and a buffer is asked for before it flushes. */
Test(cupti, the_clients_clock)
{
    struct gpu g = START("SIMGPU_MODE", "timing");
    CUdeviceptr a;
    OK(cuMemAlloc(&a, 4096));
    CU(cuptiActivityRegisterTimestampCallback(ticks));
    CU(cuptiActivityRegisterCallbacks(ask, take));
    CU(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL));
    CU(cuptiActivityEnableDriverApi(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, 1));
    struct timespec pause = {0, 30000000}; /* takes no virtual time */
    nanosleep(&pause, NULL);
    uint64_t before = ticks();
    gpu_work(&g, 50e6, a, 1, NULL);
    OK(cuCtxSynchronize());
    uint64_t after = ticks();
    cr_assert_eq(seen.asked, 1);
    CU(cuptiActivityFlushAll(0));
    cr_assert(seen.kernels == 1 && seen.asked == 1);
    const uint64_t slack = 3 * 2000000; /* the rate is known from two readings */
    cr_assert(after - before >= 3 * 50000000u, "the host was not held back");
    cr_assert(seen.launch.start + slack >= before && seen.kernel.end <= after + slack,
              "outside of the client's readings");
    cr_assert_geq(seen.kernel.start, seen.launch.start);
    double ns = (double)(seen.kernel.end - seen.kernel.start) / 3;
    cr_assert_float_eq(ns, 50e6, 2e6, "the kernel took %g ns", ns);
}
