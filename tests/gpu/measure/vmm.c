/* What the calls of virtual memory cost: idle, while the device works, and with many live mappings.
 */
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>

enum call { CREATE, MAP, ACCESS, UNMAP, RELEASE, CALLS };
static const char *const call_names[CALLS] = {"create", "map", "access", "unmap", "release"};

struct cost {
    struct samples of[CALLS];
};

/* One handle's whole life at `at`, each call timed. */
static void one_life(CUdeviceptr at, size_t bytes, struct cost *c)
{
    CUmemGenericAllocationHandle h;
    double t[CALLS + 1];
    t[CREATE] = now_us();
    h = create(bytes, &on_device);
    t[MAP] = now_us();
    must(cu.MemMap(at, bytes, 0, h, 0));
    t[ACCESS] = now_us();
    must(give_access(at, bytes));
    t[UNMAP] = now_us();
    must(cu.MemUnmap(at, bytes));
    t[RELEASE] = now_us();
    must(cu.MemRelease(h));
    t[CALLS] = now_us();
    for (int i = 0; i < CALLS; i++)
        sample(&c->of[i], t[i + 1] - t[i]);
}

static void report_cost(const struct cost *c, size_t bytes, const char *state)
{
    for (int i = 0; i < CALLS; i++)
        report_samples(&c->of[i], "us", "vmm/%s/%zuMiB/%s", call_names[i], bytes / MIB, state);
}

/* A kept handle mapped again and again: what a pager pays where it does not create. */
static void remaps(size_t bytes)
{
    struct samples s = {0};
    CUdeviceptr at = reserve(bytes);
    CUmemGenericAllocationHandle h = create(bytes, &on_device);
    for (int i = 0; i < 50; i++) {
        double t = now_us();
        map(at, bytes, h);
        must(cu.MemUnmap(at, bytes));
        sample(&s, now_us() - t);
    }
    report_samples(&s, "us", "vmm/remap-kept-handle/%zuMiB", bytes / MIB);
    must(cu.MemRelease(h));
    must(cu.MemAddressFree(at, bytes));
}

/* Access to N mappings in one call, and one call for each. */
static void access_together(size_t bytes)
{
    enum { N = 64 };
    struct samples together = {0}, each = {0};
    CUmemGenericAllocationHandle h[N];
    CUdeviceptr at = reserve(N * bytes);
    for (int i = 0; i < N; i++)
        h[i] = create(bytes, &on_device);
    for (int round = 0; round < 10; round++) {
        for (int way = 0; way < 2; way++) {
            for (int i = 0; i < N; i++)
                must(cu.MemMap(at + (size_t)i * bytes, bytes, 0, h[i], 0));
            double t = now_us();
            for (int i = 0; i < (way ? N : 1); i++)
                must(give_access(at + (size_t)i * bytes, way ? bytes : N * bytes));
            sample(way ? &each : &together, (now_us() - t) / N);
            must(cu.MemUnmap(at, N * bytes));
        }
    }
    report_samples(&together, "us", "vmm/access-per-mapping/64x%zuMiB/one-call", bytes / MIB);
    report_samples(&each, "us", "vmm/access-per-mapping/64x%zuMiB/call-each", bytes / MIB);
    for (int i = 0; i < N; i++)
        must(cu.MemRelease(h[i]));
    must(cu.MemAddressFree(at, N * bytes));
}

static const size_t sizes[] = {2 * MIB, 16 * MIB, 64 * MIB, 256 * MIB};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* Kernel parameters are searched for addresses by where they can lie. */
static void places(void)
{
    static const size_t bytes[] = {(size_t)1 << 30, (size_t)1 << 40};
    char text[32];

    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        CUdeviceptr at = reserve(bytes[i]);
        snprintf(text, sizeof text, "0x%llx", (unsigned long long)at);
        report_text(text, "vmm/reserved-at/%zuGiB", bytes[i] >> 30);
        must(cu.MemAddressFree(at, bytes[i]));
    }
}

void step_vmm(void)
{
    places();
    report_number((double)granularity(&on_device), "B", "vmm/granularity");
    for (int s = 0; s < SIZES; s++) {
        struct cost c = {0};
        CUdeviceptr at = reserve(sizes[s]);
        for (int i = 0; i < 40; i++)
            one_life(at, sizes[s], &c);
        report_cost(&c, sizes[s], "idle");
        must(cu.MemAddressFree(at, sizes[s]));
        remaps(sizes[s]);
    }
    access_together(2 * MIB);
}

/* A kernel, a copy to the host and one from it, all of `us` or longer, on memory of their own. */
struct load {
    CUstream compute, out, in;
    CUdeviceptr memory[2];
    void *host[2];
    size_t bytes;
};

static void load_init(struct load *l, size_t bytes)
{
    l->bytes = bytes;
    must(cu.StreamCreate(&l->compute, CU_STREAM_NON_BLOCKING));
    must(cu.StreamCreate(&l->out, CU_STREAM_NON_BLOCKING));
    must(cu.StreamCreate(&l->in, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 2; i++) {
        must(cu.MemAlloc(&l->memory[i], bytes));
        must(cu.MemHostAlloc(&l->host[i], bytes, 0));
    }
}

static void load_start(struct load *l, double us)
{
    launch_spin(us, l->compute);
    for (int i = 0; i < 4; i++) {
        must(cu.MemcpyDtoHAsync(l->host[0], l->memory[0], l->bytes, l->out));
        must(cu.MemcpyHtoDAsync(l->memory[1], l->host[1], l->bytes, l->in));
    }
}

static void load_end(struct load *l)
{
    must(cu.CtxSynchronize());
    for (int i = 0; i < 2; i++) {
        must(cu.MemFree(l->memory[i]));
        must(cu.MemFreeHost(l->host[i]));
    }
    must(cu.StreamDestroy(l->compute));
    must(cu.StreamDestroy(l->out));
    must(cu.StreamDestroy(l->in));
}

/* Each call alone while a kernel of `us` runs: did it return before the kernel ended? */
static void who_waits(struct load *l, double us)
{
    CUdeviceptr at = reserve(2 * MIB);
    for (int c = 0; c < CALLS; c++) {
        CUmemGenericAllocationHandle h = 0;
        if (c != CREATE)
            h = create(2 * MIB, &on_device);
        if (c == ACCESS || c == UNMAP)
            must(cu.MemMap(at, 2 * MIB, 0, h, 0));
        if (c == UNMAP)
            must(give_access(at, 2 * MIB));
        must(cu.CtxSynchronize());
        launch_spin(us, l->compute);
        double t = now_us();
        if (c == CREATE)
            h = create(2 * MIB, &on_device);
        else if (c == MAP)
            must(cu.MemMap(at, 2 * MIB, 0, h, 0));
        else if (c == ACCESS)
            must(give_access(at, 2 * MIB));
        else if (c == UNMAP)
            must(cu.MemUnmap(at, 2 * MIB));
        else
            must(cu.MemRelease(h));
        t = now_us() - t;
        CUresult running = cu.StreamQuery(l->compute);
        report_text(running == CUDA_ERROR_NOT_READY ? "no" : "yes", "vmm/%s/waits-for-a-kernel",
                    call_names[c]);
        report_number(t, "us", "vmm/%s/beside-a-kernel-of-%.0fms", call_names[c], us / 1e3);
        must(cu.CtxSynchronize());
        if (c == MAP || c == ACCESS)
            must(cu.MemUnmap(at, 2 * MIB));
        if (c != RELEASE)
            must(cu.MemRelease(h));
    }
    must(cu.MemAddressFree(at, 2 * MIB));
}

void step_vmm_busy(void)
{
    struct load l;
    load_init(&l, 256 * MIB);
    launch_spin(1, l.compute); /* the module is loaded, the streams exist */
    must(cu.CtxSynchronize());
    who_waits(&l, 100e3);
    for (int s = 0; s < SIZES; s++) {
        struct cost c = {0};
        CUdeviceptr at = reserve(sizes[s]);
        for (int i = 0; i < 10; i++) {
            load_start(&l, 20e3);
            one_life(at, sizes[s], &c);
            must(cu.CtxSynchronize());
        }
        report_cost(&c, sizes[s], "busy");
        must(cu.MemAddressFree(at, sizes[s]));
    }
    load_end(&l);
}

/* One handle mapped at so many addresses: what the next mapping costs then. */
void step_mappings(void)
{
    static const size_t counts[] = {1000, 10000, 100000};
    size_t page = granularity(&on_device), most = counts[2], live = 0;
    CUmemGenericAllocationHandle h = create(page, &on_device), own = create(page, &on_device);
    CUdeviceptr at = reserve(most * page), apart = reserve(page);
    for (int c = 0; c < 3; c++) {
        struct samples s = {0};
        double t = now_us();
        size_t from = live;
        for (; live < counts[c]; live++) {
            CUresult r = cu.MemMap(at + live * page, page, 0, h, 0);
            if (r != CUDA_SUCCESS) {
                report_text(result_name(r), "mappings/refused-at-%zu", live);
                goto done;
            }
        }
        must(give_access(at + from * page, (live - from) * page));
        report_number((now_us() - t) / (double)(live - from), "us",
                      "mappings/map-and-access/up-to-%zu", live);
        for (int i = 0; i < 40; i++) {
            t = now_us();
            map(apart, page, own);
            must(cu.MemUnmap(apart, page));
            sample(&s, now_us() - t);
        }
        report_samples(&s, "us", "mappings/one-more-with-%zu", live);
    }
done:;
    double t = now_us();
    if (live)
        must(cu.MemUnmap(at, live * page));
    report_number((now_us() - t) / (double)(live ? live : 1), "us",
                  "mappings/unmap-all-per-mapping");
    must(cu.MemRelease(h));
    must(cu.MemRelease(own));
    must(cu.MemAddressFree(at, most * page));
    must(cu.MemAddressFree(apart, page));
}
