/* Order, events, host functions and clocks. */
#include "gpu.h"

#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define F "SIMGPU_MODE", "functional"

/* A copy reads its source when it executes, not when it is issued. */
Test(order, async_copy_reads_late)
{
    START(F);
    CUstream s;
    CUdeviceptr a;
    unsigned *pinned, out = 0;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&a, 4));
    OK(cuMemAllocHost((void **)&pinned, 4));
    *pinned = 1;
    OK(cuMemcpyHtoDAsync(a, pinned, 4, s));
    *pinned = 2; /* too early */
    OK(cuStreamSynchronize(s));
    OK(cuMemcpyDtoH(&out, a, 4));
    cr_assert_eq(out, 2);
}

/* ... but from pageable memory the bytes are taken before the call returns. */
Test(order, pageable_copy_is_staged)
{
    START(F);
    CUstream s;
    CUdeviceptr a;
    unsigned v = 1, out = 0;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&a, 4));
    OK(cuMemcpyHtoDAsync(a, &v, 4, s));
    v = 2;
    OK(cuMemcpyDtoHAsync(&out, a, 4, s)); /* to pageable memory: returns when it is there */
    cr_assert_eq(out, 1);
}

/* Two streams without an edge: over the seeds, both orders must occur. With an event, only one. */
static unsigned two_streams(const char *seed, int with_event)
{
    struct gpu g = START(F, "SIMGPU_SEED", seed);
    CUstream s, t;
    CUevent e;
    CUdeviceptr a, b, c;
    unsigned out;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    OK(cuMemAlloc(&a, 4));
    OK(cuMemAlloc(&b, 4));
    OK(cuMemAlloc(&c, 4));
    OK(cuMemsetD32(a, 1, 1));
    OK(cuMemsetD32(b, 2, 1));
    OK(cuCtxSynchronize());
    gpu_move(&g, c, a, 1, s);
    OK(cuEventRecord(e, s));
    if (with_event)
        OK(cuStreamWaitEvent(t, e, 0));
    gpu_move(&g, c, b, 1, t);
    OK(cuStreamSynchronize(t));
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH(&out, c, 4));
    return out;
}

static int outcomes(int with_event)
{
    int seen = 0;
    for (int seed = 1; seed <= 40; seed++) {
        char text[12];
        int status;
        snprintf(text, sizeof text, "%d", seed);
        pid_t child = fork();
        if (child == 0)
            _exit((int)two_streams(text, with_event));
        waitpid(child, &status, 0);
        seen |= 1 << WEXITSTATUS(status);
    }
    return seen;
}

Test(order, streams_are_unordered_without_an_event)
{
    cr_assert_eq(outcomes(0), 1 << 1 | 1 << 2);
}

Test(order, an_event_orders_them)
{
    cr_assert_eq(outcomes(1), 1 << 2);
}

Test(order, legacy_stream_orders_blocking_streams)
{
    struct gpu g = START(F);
    CUstream s, t;
    CUdeviceptr a;
    unsigned out;
    OK(cuStreamCreate(&s, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&t, CU_STREAM_DEFAULT));
    OK(cuMemAlloc(&a, 4));
    OK(cuMemsetD32Async(a, 1, 1, s));
    gpu_add(&g, a, 10, 1, NULL); /* behind s */
    gpu_add(&g, a, 100, 1, t);   /* behind the legacy stream */
    OK(cuStreamSynchronize(t));
    OK(cuMemcpyDtoH(&out, a, 4));
    cr_assert_eq(out, 111);
}

static void count(void *data)
{
    ++*(int *)data;
}
static void forbidden(void *data)
{
    CUdeviceptr p;
    *(CUresult *)data = cuMemAlloc(&p, 4);
}

Test(order, host_functions_run_in_stream_order)
{
    START(F);
    CUstream s;
    int n = 0;
    CUresult inside = CUDA_SUCCESS;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuLaunchHostFunc(s, count, &n));
    OK(cuLaunchHostFunc(s, count, &n));
    OK(cuLaunchHostFunc(s, forbidden, &inside));
    OK(cuStreamSynchronize(s));
    cr_assert_eq(n, 2);
    cr_assert_eq(inside, CUDA_ERROR_NOT_PERMITTED);
}

/* The host spins on what the function sets and calls nothing. */
static atomic_int flag;
static void raise_flag(void *data)
{
    (void)data;
    flag = 1;
}
static void spin(const char *mode)
{
    struct gpu g = START("SIMGPU_MODE", mode);
    CUdeviceptr a;
    OK(cuMemAlloc(&a, 4));
    gpu_work(&g, 1e6, a, 1, NULL);
    OK(cuLaunchHostFunc(NULL, raise_flag, NULL));
    while (!flag)
        ;
}
Test(order, the_device_goes_on_while_the_host_spins)
{
    spin("functional");
}
Test(order, the_device_goes_on_while_the_host_spins_timing)
{
    spin("timing");
}

/* Threads that each wait for their own stream: nobody hangs, every add arrives. */
#include <pthread.h>
static struct gpu shared;
static CUdeviceptr words;
static void *worker(void *data)
{
    unsigned k = *(unsigned *)data;
    CUstream s;
    CUevent e;
    OK(cuCtxSetCurrent(shared.ctx));
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < 50; i++) {
        gpu_add(&shared, words + 4 * k, 1, 1, s);
        OK(cuEventRecord(e, s));
        if (i % 3 == 0)
            OK(cuEventSynchronize(e));
        else if (i % 3 == 1)
            while (cuEventQuery(e) == CUDA_ERROR_NOT_READY)
                ;
    }
    OK(cuStreamSynchronize(s));
    OK(cuStreamDestroy(s));
    OK(cuEventDestroy(e));
    return NULL;
}
static void threads(const char *mode)
{
    pthread_t t[4];
    unsigned id[4], out[4];
    shared = START("SIMGPU_MODE", mode, "SIMGPU_RACECHECK", "1");
    OK(cuMemAlloc(&words, 16));
    OK(cuMemsetD32(words, 0, 4));
    OK(cuCtxSynchronize());
    for (unsigned k = 0; k < 4; k++) {
        id[k] = k;
        cr_assert_eq(pthread_create(&t[k], NULL, worker, &id[k]), 0);
    }
    for (unsigned k = 0; k < 4; k++)
        pthread_join(t[k], NULL);
    OK(cuMemcpyDtoH(out, words, 16));
    for (unsigned k = 0; k < 4 && mode[0] == 'f'; k++)
        cr_assert_eq(out[k], 50);
}
Test(order, threads_functional)
{
    threads("functional");
}
Test(order, threads_timing)
{
    threads("timing");
}

/* A thread that waits for a long kernel lets another issue its work at the time it issues it. */
static void *patient(void *data)
{
    OK(cuCtxSetCurrent(shared.ctx));
    OK(cuEventSynchronize(*(CUevent *)data));
    return NULL;
}
Test(clock, a_waiting_thread_holds_nobody_up)
{
    pthread_t t;
    CUstream s, u;
    CUevent start, mid, end, gate;
    float ms;
    CUdeviceptr d;
    void *h;
    shared = START("SIMGPU_PRESET", "titanx-12g");
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&u, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&start, 0));
    OK(cuEventCreate(&mid, 0));
    OK(cuEventCreate(&end, 0));
    OK(cuEventCreate(&gate, 0));
    OK(cuMemAlloc(&d, 1 << 20));
    OK(cuMemAllocHost(&h, 1 << 20));
    OK(cuEventRecord(start, s));
    gpu_work(&shared, 50e6, 0, 0, s);
    OK(cuEventRecord(mid, s));
    cr_assert_eq(pthread_create(&t, NULL, patient, &mid), 0);
    for (int i = 0; i < 20000; i++) { /* keeps calling while the other waits */
        size_t a, b;
        OK(cuMemGetInfo(&a, &b));
    }
    OK(cuMemcpyHtoDAsync(d, h, 1 << 20, u));
    OK(cuEventRecord(end, u));
    OK(cuEventSynchronize(end));
    OK(cuEventElapsedTime(&ms, start, end));
    cr_assert_lt(ms, 20.0f, "the copy was issued at %g ms of virtual time", (double)ms);
    pthread_join(t, NULL);
    (void)gate;
}

/* A stream waits for a word that another stream writes, or the host. */
static void words_in(const char *mode)
{
    struct gpu g = START("SIMGPU_MODE", mode);
    CUstream s, t;
    CUdeviceptr flag_word, a;
    unsigned out = 0;
    volatile unsigned *pinned;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&flag_word, 8));
    OK(cuMemAlloc(&a, 4));
    OK(cuMemAllocHost((void **)&pinned, 4));
    *pinned = 0;
    OK(cuMemsetD8(flag_word, 0, 8));
    OK(cuCtxSynchronize());
    OK(cuStreamWaitValue32(s, flag_word, 3, CU_STREAM_WAIT_VALUE_GEQ));
    gpu_add(&g, a, 1, 1, s);
    OK(cuMemsetD32Async(a, 10, 1, t));
    OK(cuStreamWriteValue32(t, flag_word, 4, 0));
    OK(cuStreamSynchronize(s));
    OK(cuMemcpyDtoH(&out, a, 4));
    if (mode[0] == 'f')
        cr_assert_eq(out, 11);
    OK(cuStreamWaitValue32(s, (CUdeviceptr)pinned, 7, CU_STREAM_WAIT_VALUE_EQ));
    OK(cuLaunchHostFunc(s, raise_flag, NULL));
    for (int i = 0; i < 100; i++)
        FAILS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
    cr_assert_eq(flag, 0);
    __atomic_store_n(pinned, 7, __ATOMIC_RELEASE);
    while (!flag) /* no call is made: the device sees the word by itself */
        ;
    OK(cuStreamSynchronize(s));
    FAILS(cuStreamWaitValue32(s, flag_word + 2, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CUstreamBatchMemOpParams p[2];
    memset(p, 0, sizeof p);
    p[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    p[0].writeValue.address = flag_word;
    p[0].writeValue.value64 = (cuuint64_t)1 << 40;
    p[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    p[1].waitValue.address = flag_word;
    p[1].waitValue.value64 = (cuuint64_t)1 << 40;
    p[1].waitValue.flags = CU_STREAM_WAIT_VALUE_AND;
    OK(cuStreamBatchMemOp(t, 2, p, 0));
    OK(cuStreamSynchronize(t));
}
Test(order, words_functional)
{
    words_in("functional");
}
Test(order, words_timing)
{
    words_in("timing");
}

Test(order, polling_ends)
{
    struct gpu g = START(F);
    CUdeviceptr a;
    CUevent e;
    CUresult r;
    int polls = 0;
    OK(cuMemAlloc(&a, 4));
    OK(cuEventCreate(&e, 0));
    gpu_work(&g, 1000, a, 1, NULL);
    OK(cuEventRecord(e, NULL));
    while ((r = cuEventQuery(e)) == CUDA_ERROR_NOT_READY)
        cr_assert_lt(++polls, 1000);
    OK(r);
}

/* ---- timing ---- */
static float ms_between(CUevent a, CUevent b)
{
    float ms;
    OK(cuEventSynchronize(b));
    OK(cuEventElapsedTime(&ms, a, b));
    return ms;
}

Test(clock, kernels_of_one_stream_add_up)
{
    struct gpu g = START("SIMGPU_PRESET", "titanx-12g");
    CUevent a, b;
    OK(cuEventCreate(&a, 0));
    OK(cuEventCreate(&b, 0));
    OK(cuEventRecord(a, NULL));
    for (int i = 0; i < 10; i++)
        gpu_work(&g, 1e6, 0, 0, NULL);
    OK(cuEventRecord(b, NULL));
    FAILS(cuEventQuery(b), CUDA_ERROR_NOT_READY);
    cr_assert_float_eq(ms_between(a, b), 10.0, 0.1);
}

/* 128 MiB at 12.8 GB/s is 10.5 ms; under a kernel of 20 ms it is hidden. */
Test(clock, copies_overlap_kernels)
{
    struct gpu g = START("SIMGPU_PRESET", "titanx-12g");
    CUevent a, b, c;
    CUstream s;
    CUdeviceptr d;
    void *h;
    OK(cuEventCreate(&a, 0));
    OK(cuEventCreate(&b, 0));
    OK(cuEventCreate(&c, 0));
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&d, (size_t)128 << 20));
    OK(cuMemAllocHost(&h, (size_t)128 << 20));
    OK(cuEventRecord(a, s));
    OK(cuMemcpyDtoHAsync(h, d, (size_t)128 << 20, s));
    OK(cuEventRecord(b, s));
    cr_assert_float_eq(ms_between(a, b), 10.49, 0.05);
    OK(cuEventRecord(a, s));
    gpu_work(&g, 20e6, 0, 0, NULL);
    OK(cuMemcpyDtoHAsync(h, d, (size_t)128 << 20, s));
    OK(cuEventRecord(b, s));
    OK(cuEventRecord(c, NULL));
    cr_assert_float_eq(ms_between(a, b), 10.49, 0.05);
    cr_assert_float_eq(ms_between(a, c), 20.0, 0.1);
}

/* Real polls take no time beside a copy: whoever looks at several things in turn sees each copy end before
 * the next one has. */
Test(clock, a_poller_of_several_events_misses_none)
{
    struct gpu g = START("SIMGPU_PRESET", "titanx-12g");
    CUevent copied[4], late[2];
    CUstream s;
    CUdeviceptr d;
    void *h;
    size_t n = (size_t)16 << 20;
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&d, n));
    OK(cuMemAllocHost(&h, n));
    for (int i = 0; i < 2; i++) {
        gpu_work(&g, 20e6, 0, 0, NULL);
        OK(cuEventCreate(&late[i], 0));
        OK(cuEventRecord(late[i], NULL));
    }
    for (int i = 0; i < 4; i++) {
        OK(cuEventCreate(&copied[i], 0));
        OK(cuMemcpyDtoHAsync(h, d, n, s));
        OK(cuEventRecord(copied[i], s));
    }
    for (int i = 0, polls = 0; i < 4; polls++) {
        cr_assert_lt(polls, 1000);
        if (cuEventQuery(copied[i]) == CUDA_SUCCESS) {
            i++;
            cr_assert(i == 4 || cuEventQuery(copied[i]) == CUDA_ERROR_NOT_READY, "copy %d", i);
        }
        for (int k = 0; k < 2; k++)
            FAILS(cuEventQuery(late[k]), CUDA_ERROR_NOT_READY);
    }
}

Test(clock, both_directions_cost_each_other)
{
    START("SIMGPU_PRESET", "a100-40g");
    CUevent a, b;
    CUstream s, t;
    CUdeviceptr d;
    void *h;
    size_t n = (size_t)64 << 20;
    OK(cuEventCreate(&a, 0));
    OK(cuEventCreate(&b, 0));
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&d, 2 * n));
    OK(cuMemAllocHost(&h, 2 * n));
    OK(cuEventRecord(a, s));
    OK(cuMemcpyHtoDAsync(d, h, n, s));
    OK(cuEventRecord(b, s));
    float alone = ms_between(a, b);
    OK(cuMemcpyDtoHAsync(h, d + n, n, t));
    OK(cuEventRecord(a, s));
    OK(cuMemcpyHtoDAsync(d, h, n, s));
    OK(cuEventRecord(b, s));
    cr_assert_gt(ms_between(a, b), 1.3f * alone);
}

/* 64 MiB of page-locked memory at 12.8 GB/s is 5.2 ms, whatever the kernel computes. */
Test(clock, a_kernel_on_host_memory_waits_for_the_link)
{
    struct gpu g = START("SIMGPU_PRESET", "titanx-12g");
    CUevent a, b;
    void *h;
    OK(cuEventCreate(&a, 0));
    OK(cuEventCreate(&b, 0));
    OK(cuMemAllocHost(&h, (size_t)64 << 20));
    OK(cuEventRecord(a, NULL));
    gpu_work(&g, 1e6, (CUdeviceptr)h, 16 << 20, NULL);
    OK(cuEventRecord(b, NULL));
    cr_assert_float_eq(ms_between(a, b), 5.24, 0.05);
    OK(cuEventRecord(a, NULL));
    gpu_work(&g, 9e6, (CUdeviceptr)h, 16 << 20, NULL);
    OK(cuEventRecord(b, NULL));
    cr_assert_float_eq(ms_between(a, b), 9.0, 0.05);
}

/* What mapping costs the host, seen by an event that is recorded when the calls are done. */
static float map_cost(int chunks, const char *sync)
{
    START("SIMGPU_PRESET", "titanx-12g", "SIMGPU_UNMAP_SYNC", sync);
    const size_t n = (size_t)2 << 20;
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    const CUmemAccessDesc rw = {.location = prop.location,
                                .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle h[64];
    CUdeviceptr va;
    CUevent a, b;
    OK(cuEventCreate(&a, 0));
    OK(cuEventCreate(&b, 0));
    OK(cuMemAddressReserve(&va, 64 * n, 0, 0, 0));
    for (int i = 0; i < chunks; i++)
        OK(cuMemCreate(&h[i], n, &prop, 0));
    OK(cuEventRecord(a, NULL));
    for (int i = 0; i < chunks; i++)
        OK(cuMemMap(va + (size_t)i * n, n, 0, h[i], 0));
    OK(cuMemSetAccess(va, (size_t)chunks * n, &rw, 1));
    OK(cuMemUnmap(va, (size_t)chunks * n));
    OK(cuEventRecord(b, NULL));
    return ms_between(a, b);
}
Test(clock, one_chunk_costs_what_was_measured)
{
    cr_assert_float_eq(map_cost(1, "0"), 0.074, 0.003); /* map 2, access 38, unmap 34 us */
}
Test(clock, chunks_cost_each)
{
    cr_assert_float_eq(map_cost(32, "0"), 0.014 + 32 * 0.060, 0.01);
}

static float unmap_under_work(const char *sync)
{
    struct gpu g = START("SIMGPU_PRESET", "titanx-12g", "SIMGPU_UNMAP_SYNC", sync);
    const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle h;
    CUdeviceptr va;
    CUstream s;
    CUevent a, b;
    OK(cuEventCreate(&a, 0));
    OK(cuEventCreate(&b, 0));
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuMemAddressReserve(&va, (size_t)2 << 20, 0, 0, 0));
    OK(cuMemCreate(&h, (size_t)2 << 20, &prop, 0));
    OK(cuMemMap(va, (size_t)2 << 20, 0, h, 0));
    OK(cuEventRecord(a, NULL));
    gpu_work(&g, 10e6, 0, 0, s);
    OK(cuMemUnmap(va, (size_t)2 << 20));
    OK(cuEventRecord(b, NULL)); /* when the host goes on */
    return ms_between(a, b);
}
Test(clock, an_unmap_waits_where_the_switch_says_so)
{
    cr_assert_gt(unmap_under_work("1"), 10.0f);
}
Test(clock, an_unmap_need_not_wait)
{
    cr_assert_lt(unmap_under_work("0"), 0.1f);
}

Test(clock, a_priority_goes_first)
{
    struct gpu g = START("SIMGPU_PRESET", "titanx-12g");
    CUstream low, high;
    CUevent l, h, zero;
    int least, greatest;
    float first, second;
    OK(cuCtxGetStreamPriorityRange(&least, &greatest));
    OK(cuStreamCreateWithPriority(&low, CU_STREAM_NON_BLOCKING, least));
    OK(cuStreamCreateWithPriority(&high, CU_STREAM_NON_BLOCKING, greatest));
    OK(cuEventCreate(&l, 0));
    OK(cuEventCreate(&h, 0));
    OK(cuEventCreate(&zero, 0));
    OK(cuEventRecord(zero, low));
    for (int i = 0; i < 3; i++)
        gpu_work(&g, 1e6, 0, 0, low);
    OK(cuEventRecord(l, low));
    gpu_work(&g, 1e6, 0, 0, high);
    OK(cuEventRecord(h, high));
    OK(cuCtxSynchronize());
    OK(cuEventElapsedTime(&first, zero, h));
    OK(cuEventElapsedTime(&second, zero, l));
    cr_assert_lt(first, 2.1f);
    cr_assert_float_eq(second, 4.0, 0.1);
}

Test(clock, the_same_run_twice_takes_the_same_time)
{
    float t[2];
    for (int k = 0; k < 2; k++) {
        int fd[2], status;
        cr_assert_eq(pipe(fd), 0);
        pid_t child = fork();
        if (child == 0) {
            struct gpu g = START("SIMGPU_PRESET", "titanx-12g");
            CUevent a, b;
            OK(cuEventCreate(&a, 0));
            OK(cuEventCreate(&b, 0));
            OK(cuEventRecord(a, NULL));
            for (int i = 0; i < 500; i++) {
                CUdeviceptr d;
                OK(cuMemAlloc(&d, (size_t)(i + 1) << 16));
                gpu_work(&g, 1000.0 * i, d, 16, NULL);
                OK(cuMemFree(d));
            }
            OK(cuEventRecord(b, NULL));
            float ms = ms_between(a, b);
            _exit(write(fd[1], &ms, sizeof ms) != sizeof ms);
        }
        waitpid(child, &status, 0);
        cr_assert_eq(status, 0);
        cr_assert_eq(read(fd[0], &t[k], sizeof t[k]), (ssize_t)sizeof t[k]);
    }
    cr_assert_eq(t[0], t[1]);
}
