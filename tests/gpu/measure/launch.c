/* Host time of launches and allocations; run bare and under libvmem.so it is what libvmem.so adds.
 * Also what a CUPTI subscriber adds. */
#include "measure.h"

#include <stdint.h>
#include <stdlib.h>

#ifdef HAVE_CUPTI
#include <cupti.h>
#include <dlfcn.h>
#endif

enum { ROUND = 200, ROUNDS = 60 };

/* Launches of `f`, whose single parameter has `bytes`, every third word the address of a block of
 * its own (as optimizers name many tensors in one launch), or, for 0 bytes, of eight pointers. */
static void time_launches(CUfunction f, size_t bytes, const char *name)
{
    CUdeviceptr block, p[8];
    uint32_t number = 1;
    void *eight[] = {&p[0], &p[1], &p[2],   &p[3],   &p[4],  &p[5],
                     &p[6], &p[7], &number, &number, &number};
    static CUdeviceptr wide[BYTES_32K / 8];
    void *one[] = {wide};
    struct samples s = {0};
    must(cu.MemAlloc(&block, 8 * MIB));
    for (size_t i = 0; i < bytes / 8; i++) {
        wide[i] = i;
        if (i % 3 == 0)
            must(cu.MemAlloc(&wide[i], 4096));
    }
    for (int i = 0; i < 8; i++)
        p[i] = block + (size_t)i * MIB;
    for (int round = 0; round < ROUNDS; round++) {
        double t = now_us();
        for (int i = 0; i < ROUND; i++)
            must(cu.LaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, NULL, bytes ? one : eight, NULL));
        sample(&s, (now_us() - t) / ROUND * 1e3);
        must(cu.CtxSynchronize());
    }
    report_samples(&s, "ns", "%s", name);
    must(cu.MemFree(block));
    for (size_t i = 0; i < bytes / 8; i += 3)
        must(cu.MemFree(wide[i]));
}

void step_launch(void)
{
    time_launches(kernel(KERNEL_EIGHT), 0, "launch/eight-pointers");
    time_launches(kernel(KERNEL_4K), BYTES_4K, "launch/4KB-of-parameters");
    CUfunction wide = kernel(KERNEL_32K);
    if (wide)
        time_launches(wide, BYTES_32K, "launch/32KB-of-parameters");
}

void step_malloc(void)
{
    static const size_t sizes[] = {512, 64 * KIB, MIB, 16 * MIB, 256 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct samples alloc = {0}, gone = {0};
        for (int round = 0; round < 60; round++) {
            CUdeviceptr p;
            double t = now_us();
            must(cu.MemAlloc(&p, sizes[i]));
            sample(&alloc, now_us() - t);
            launch_fill(p, 1, 1, NULL);
            t = now_us();
            must(cu.MemFree(p));
            sample(&gone, now_us() - t);
        }
        report_samples(&alloc, "us", "malloc/alloc/%zu", sizes[i]);
        report_samples(&gone, "us", "malloc/free-after-a-launch/%zu", sizes[i]);
    }
}

#ifdef HAVE_CUPTI

static size_t called;

static void CUPTIAPI on_callback(void *data, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                 const void *info)
{
    (void)data, (void)domain, (void)id, (void)info;
    called++;
}

static void CUPTIAPI want_buffer(uint8_t **buffer, size_t *bytes, size_t *records)
{
    *buffer = malloc(MIB);
    *bytes = *buffer ? MIB : 0;
    *records = 0;
}

static void CUPTIAPI have_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t bytes,
                                 size_t valid)
{
    (void)context, (void)stream, (void)bytes;
    called += valid > 0;
    free(buffer);
}

#define CUPTI_CALLS(X)                                                                             \
    X(cuptiSubscribe)                                                                              \
    X(cuptiUnsubscribe)                                                                            \
    X(cuptiEnableDomain)                                                                           \
    X(cuptiActivityRegisterCallbacks)                                                              \
    X(cuptiActivityEnable)                                                                         \
    X(cuptiActivityDisable)                                                                        \
    X(cuptiActivityFlushAll)

static struct {
#define FIELD(name) __typeof__(&name) name;
    CUPTI_CALLS(FIELD)
#undef FIELD
} cupti;

static bool cupti_open(void)
{
    void *library = dlopen("libcupti.so.13", RTLD_NOW);
    if (!library)
        library = dlopen("libcupti.so.12", RTLD_NOW);
    if (!library)
        return false;
    bool all = true;
#define BIND(name) all &= (*(void **)&cupti.name = dlsym(library, #name)) != NULL;
    CUPTI_CALLS(BIND)
#undef BIND
    return all;
}

void step_cupti(void)
{
    CUpti_SubscriberHandle subscriber;
    if (!cupti_open()) {
        report_text("no libcupti.so.13 or .12 was found", "cupti/library");
        return;
    }
    CUfunction f = kernel(KERNEL_EIGHT);
    time_launches(f, 0, "cupti/launch/without");
    CUptiResult r = cupti.cuptiSubscribe(&subscriber, on_callback, NULL);
    if (r != CUPTI_SUCCESS) {
        report_number(r, "", "cupti/subscribe-refused-with");
    } else {
        r = cupti.cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API);
        if (r == CUPTI_SUCCESS) {
            time_launches(f, 0, "cupti/launch/driver-callbacks");
            report_number((double)called, "", "cupti/callbacks-seen");
        } else {
            report_number(r, "", "cupti/driver-callbacks-refused-with");
        }
        cupti.cuptiUnsubscribe(subscriber);
    }
    called = 0;
    if (cupti.cuptiActivityRegisterCallbacks(want_buffer, have_buffer) != CUPTI_SUCCESS ||
        cupti.cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS) {
        report_text("refused", "cupti/activity");
        return;
    }
    time_launches(f, 0, "cupti/launch/kernel-activity");
    cupti.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    cupti.cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    report_number((double)called, "", "cupti/activity-buffers-seen");
}

#else

void step_cupti(void)
{
    report_text("built without cupti.h", "cupti/library");
}

#endif
