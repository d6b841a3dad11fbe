/* Op times from CUPTI (timing_cupti.h).
 *
 * An operation's driver call is issued under an external correlation id of ours; CUPTI pairs that id with
 * the call's own number, and the records of kernels, copies and memsets carry the number. CUPTI knows one
 * subscriber: if somebody has it we do without, and when the program's own profiler comes
 * (cupti.def) it is given up for good before the call goes on.
 */
#include <cupti.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"
#include "timing.h"
#include "timing_cupti.h"

#define BUFFER_BYTES (1u << 16) /* small: one with an operation that runs still is not handed over whole */
#define OUR_KIND     CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2 /* Kineto takes 0 and 1 */

static const char *const sonames[] = {"libcupti.so.13", "libcupti.so.12", NULL};

/* ---- the library ------------------------------------------------------------------------------*/

#define CUPTI_CALLS(X)                                                                             \
    X(cuptiSubscribe)                                                                              \
    X(cuptiUnsubscribe)                                                                            \
    X(cuptiActivityRegisterCallbacks)                                                              \
    X(cuptiActivityEnable)                                                                         \
    X(cuptiActivityDisable)                                                                        \
    X(cuptiActivityFlushAll)                                                                       \
    X(cuptiActivityGetNextRecord)                                                                  \
    X(cuptiActivityPushExternalCorrelationId)                                                      \
    X(cuptiActivityPopExternalCorrelationId)

static struct {
#define X(name) __typeof__(&name) p_##name;
    CUPTI_CALLS(X)
#undef X
    /* newer than the oldest library served: NULL where there is none */
    CUptiResult (*p_cuptiActivityEnableDriverApi)(CUpti_CallbackId, uint8_t);
    CUptiResult (*p_cuptiGetCallbackName)(CUpti_CallbackDomain, uint32_t, const char **);
} lib;

static bool bind(void *handle)
{
    void *p;
#define X(name)                                                                                    \
    p = dlsym(handle, #name);                                                                      \
    if (!p)                                                                                        \
        return false;                                                                              \
    memcpy(&lib.p_##name, &p, sizeof p);
    CUPTI_CALLS(X)
#undef X
    p = dlsym(handle, "cuptiActivityEnableDriverApi");
    memcpy(&lib.p_cuptiActivityEnableDriverApi, &p, sizeof p);
    p = dlsym(handle, "cuptiGetCallbackName");
    memcpy(&lib.p_cuptiGetCallbackName, &p, sizeof p);
    return true;
}

/* The copy that the program has, if it has one; it stays loaded. */
static bool load(void)
{
    void *handle = NULL;
    for (const char *const *s = sonames; *s && !handle; s++)
        handle = dlopen(*s, RTLD_NOW | RTLD_NOLOAD);
    for (const char *const *s = sonames; *s && !handle; s++)
        handle = dlopen(*s, RTLD_NOW | RTLD_LOCAL);
    return handle && bind(handle);
}

/* ---- what became known ------------------------------------------------------------------------*/

/* One call, by CUPTI's number. The two halves may come in either order. */
struct call {
    uint32_t number; /* 0: the slot is free */
    bool fresh;      /* known and not taken yet */
    uint64_t id;     /* ours; 0: not known yet */
    uint64_t start, end;
};

static pthread_mutex_t calls_lock = PTHREAD_MUTEX_INITIALIZER;
static struct call *calls; /* open addressing, a power of two */
static size_t ncalls, ccalls;

static struct call *slot_of(struct call *table, size_t capacity, uint32_t number)
{
    size_t k = number * UINT32_C(2654435761);
    while (table[k & (capacity - 1)].number && table[k & (capacity - 1)].number != number)
        k++;
    return &table[k & (capacity - 1)];
}

/* NULL: out of host memory, the time stays unknown. */
static struct call *call_of(uint32_t number)
{
    if (2 * ncalls >= ccalls) {
        size_t c = ccalls ? 2 * ccalls : 4096;
        struct call *p = calloc(c, sizeof *p);
        if (!p)
            return NULL;
        for (size_t i = 0; i < ccalls; i++)
            if (calls[i].number)
                *slot_of(p, c, calls[i].number) = calls[i];
        free(calls);
        calls = p;
        ccalls = c;
    }
    struct call *c = slot_of(calls, ccalls, number);
    ncalls += c->number == 0;
    c->number = number;
    return c;
}

static void forget_calls(void)
{
    pthread_mutex_lock(&calls_lock);
    free(calls);
    calls = NULL;
    ncalls = ccalls = 0;
    pthread_mutex_unlock(&calls_lock);
}

/* Several operations of one call (a graph's) count from the first's start to the last's end. */
static void ran(uint32_t number, uint64_t start, uint64_t end)
{
    struct call *c = number && start && end >= start ? call_of(number) : NULL;
    if (!c)
        return;
    c->start = c->start && c->start < start ? c->start : start;
    c->end = c->end > end ? c->end : end;
    c->fresh = true;
}

static void read_record(const CUpti_Activity *r)
{
    switch ((int)r->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
        const CUpti_ActivityKernel9 *k = (const void *)r;
        ran(k->correlationId, k->start, k->end);
        break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
        const CUpti_ActivityMemcpy5 *k = (const void *)r;
        ran(k->correlationId, k->start, k->end);
        break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY2: {
        const CUpti_ActivityMemcpyPtoP4 *k = (const void *)r;
        ran(k->correlationId, k->start, k->end);
        break;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
        const CUpti_ActivityMemset4 *k = (const void *)r;
        ran(k->correlationId, k->start, k->end);
        break;
    }
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
        const CUpti_ActivityExternalCorrelation *k = (const void *)r;
        struct call *c = k->externalKind == OUR_KIND ? call_of(k->correlationId) : NULL;
        if (c)
            c->id = k->externalId;
        break;
    }
    }
}

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *most)
{
    *buffer = aligned_alloc(8, BUFFER_BYTES); /* NULL: CUPTI drops records */
    *size = *buffer ? BUFFER_BYTES : 0;
    *most = 0;
}

static void CUPTIAPI take_buffer(CUcontext ctx, uint32_t stream, uint8_t *buffer, size_t size,
                                 size_t valid)
{
    CUpti_Activity *r = NULL;
    pthread_mutex_lock(&calls_lock);
    while (valid && lib.p_cuptiActivityGetNextRecord(buffer, valid, &r) == CUPTI_SUCCESS)
        read_record(r);
    pthread_mutex_unlock(&calls_lock);
    free(buffer);
}

static size_t take(unsigned device, struct vm_op_time *out, size_t n)
{
    size_t k = 0;
    pthread_mutex_lock(&calls_lock);
    for (size_t i = 0; i < ccalls && k < n; i++) {
        struct call *c = &calls[i];
        if (!c->number || !c->fresh || !c->id || c->id >> 56 != device)
            continue;
        c->fresh = false;
        out[k++] = (struct vm_op_time){c->id, c->end > c->start ? c->end - c->start : 1};
    }
    pthread_mutex_unlock(&calls_lock);
    return k;
}

/* ---- holding it and giving it up --------------------------------------------------------------*/

static const CUpti_ActivityKind kinds[] = {
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY2,
    CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};
#define NKINDS (sizeof kinds / sizeof kinds[0])

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below but `on` */
static CUpti_SubscriberHandle subscriber;
static unsigned users;
static bool never; /* it cannot be had, or somebody else wanted it */
static atomic_bool on;

/* A subscriber needs a callback; no domain is enabled, so it is not called. */
static void CUPTIAPI no_callback(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                 const void *data)
{
}

/* The driver calls that make operations. An external id is paired with recorded calls only. */
static bool enable_calls(bool value)
{
    static const char *const starts[] = {"cuLaunch", "cuMemcpy", "cuMemset", "cuGraphLaunch"};
    const char *name;
    if (!lib.p_cuptiActivityEnableDriverApi || !lib.p_cuptiGetCallbackName) {
        CUptiResult r = value ? lib.p_cuptiActivityEnable(CUPTI_ACTIVITY_KIND_DRIVER)
                              : lib.p_cuptiActivityDisable(CUPTI_ACTIVITY_KIND_DRIVER);
        return r == CUPTI_SUCCESS;
    }
    bool any = false;
    for (uint32_t id = 1; id < CUPTI_DRIVER_TRACE_CBID_SIZE; id++) {
        if (lib.p_cuptiGetCallbackName(CUPTI_CB_DOMAIN_DRIVER_API, id, &name) != CUPTI_SUCCESS)
            continue;
        for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++)
            if (strncmp(name, starts[i], strlen(starts[i])) == 0)
                any |= lib.p_cuptiActivityEnableDriverApi(id, value) == CUPTI_SUCCESS;
    }
    return any;
}

static void let_go(void)
{
    atomic_store(&on, false);
    lib.p_cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED); /* what is ours comes to us */
    for (size_t i = 0; i < NKINDS; i++)
        lib.p_cuptiActivityDisable(kinds[i]);
    enable_calls(false);
    lib.p_cuptiUnsubscribe(subscriber);
    subscriber = NULL;
}

static bool take_hold(void)
{
    if (!load()) {
        vm_log(CUPTI_ABSENT);
        return false;
    }
    CUptiResult r = lib.p_cuptiSubscribe(&subscriber, no_callback, NULL);
    if (r != CUPTI_SUCCESS) {
        vm_log(CUPTI_REFUSED, (int)r);
        subscriber = NULL;
        return false;
    }
    r = lib.p_cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
    for (size_t i = 0; i < NKINDS && r == CUPTI_SUCCESS; i++)
        r = lib.p_cuptiActivityEnable(kinds[i]);
    if (r == CUPTI_SUCCESS && !enable_calls(true))
        r = CUPTI_ERROR_NOT_SUPPORTED;
    if (r != CUPTI_SUCCESS) {
        vm_log(CUPTI_REFUSED, (int)r);
        let_go();
        return false;
    }
    atomic_store(&on, true);
    return true;
}

static bool open_cupti(void)
{
    struct vm_scope scope = vm_enter();
    pthread_mutex_lock(&lock);
    if (never)
        vm_log(CUPTI_GIVEN_UP);
    bool ok = !never && (users > 0 || take_hold());
    never = never || !ok;
    users += ok;
    pthread_mutex_unlock(&lock);
    vm_leave(scope);
    return ok;
}

static void close_cupti(void)
{
    struct vm_scope scope = vm_enter();
    pthread_mutex_lock(&lock);
    if (users > 0 && --users == 0) {
        if (atomic_load(&on))
            let_go();
        forget_calls();
    }
    pthread_mutex_unlock(&lock);
    vm_leave(scope);
}

static bool before(uint64_t id)
{
    return atomic_load_explicit(&on, memory_order_relaxed) &&
           lib.p_cuptiActivityPushExternalCorrelationId(OUR_KIND, id) == CUPTI_SUCCESS;
}

static void after(void)
{
    lib.p_cuptiActivityPopExternalCorrelationId(OUR_KIND, NULL);
}

static void flush(void)
{
    struct vm_scope scope = vm_enter();
    pthread_mutex_lock(&lock);
    if (atomic_load(&on))
        lib.p_cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED); /* what runs still is lost */
    pthread_mutex_unlock(&lock);
    vm_leave(scope);
}

void vm_timing_cupti_offer(void)
{
    static const struct vm_timing timing = {open_cupti, close_cupti, before, after, flush, take};
    vm_timing_offer(&timing);
}

/* ---- the program's own profiler ---------------------------------------------------------------*/

static void make_way(void)
{
    struct vm_scope scope = vm_enter();
    if (scope.outer) {
        pthread_mutex_lock(&lock);
        never = true;
        if (atomic_load(&on)) {
            let_go();
            vm_log(CUPTI_GIVEN_UP);
        }
        pthread_mutex_unlock(&lock);
    }
    vm_leave(scope);
}

static const struct vm_library cupti = {sonames};

#define VM_CUPTI(name, params, args)                                                               \
    VM_EXPORT CUptiResult CUPTIAPI name params;                                                    \
    VM_EXPORT CUptiResult CUPTIAPI name params                                                     \
    {                                                                                              \
        VM_LIBRARY_SLOT(slot);                                                                     \
        CUptiResult(*real) params = (CUptiResult(*) params)vm_library_real(                        \
            &cupti, &slot, #name, __builtin_return_address(0));                                    \
        make_way();                                                                                \
        return real ? real args : CUPTI_ERROR_NOT_INITIALIZED;                                     \
    }
#include "cupti.def"
#undef VM_CUPTI
