/* The simulated CUPTI: activity records.
 *
 * What the driver tells is kept in a queue and written into the client's buffers when it flushes:
 * buffers are never handed over from inside a driver call. One is asked for at the first record, as
 * clients take that for a sign that there is something to flush. Records have the newest layout that the
 * header knows, followed by zeroes, so that clients built for later headers, which append fields,
 * read zeroes there.
 */
#include "cupti_sim.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <sys/syscall.h>

#define QUEUE_MAX (1u << 22) /* records; more are dropped and counted */
#define APPENDED  64         /* zero bytes after each record */
#define KINDS     256        /* kinds that can be asked for, 12 and 13 have fewer */
#define CBIDS     1024
#define STACK     64 /* of external correlation ids, for each kind and thread */

/* One record before it has its layout. */
struct item {
    CUpti_ActivityKind kind;
    uint32_t cbid, process, thread;
    struct simgpu_activity a;
    uint64_t ahead; /* of the real clock over the virtual one when it was told */
    const char *name; /* kept for the life of the process, as CUPTI's are while records live */
    CUpti_ExternalCorrelationKind external_kind;
    uint64_t external;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool on[KINDS];
/* Of each function: 1 recorded, -1 not, whatever the kind says; 0 as the kind says. */
static signed char call_on[CBIDS], runtime_on[CBIDS];
static unsigned ncalls_on, nruntime_on;
static struct item *queue;
static size_t nqueue, cqueue, dropped;
static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc completed;
static CUpti_TimestampCallbackFunc clock_of_client;

/* A client that brought its own clock compares our times with it, so virtual time is laid over real time:
 * it is moved forward where the program itself took time, which is none on the virtual clock, and a thread
 * is held back where virtual time is ahead, as a real card would hold it. The client's clock may count
 * anything; two readings beside the real clock give its rate. Without such a clock times are virtual. */
static uint64_t ahead; /* real clock over virtual */
static struct reading {
    uint64_t real, client;
} began, now_read;

static uint64_t real_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Both clocks at one moment: of several pairs the one that was read fastest, as the thread may lose the
 * processor in between. */
static struct reading read_both(CUpti_TimestampCallbackFunc client)
{
    struct reading best = {0, 0};
    uint64_t shortest = UINT64_MAX;
    for (int i = 0; i < 50 && shortest > 1000; i++) {
        uint64_t before = real_ns(), c = client(), after = real_ns();
        if (after - before < shortest) {
            shortest = after - before;
            best = (struct reading){before + shortest / 2, c};
        }
    }
    return best;
}

/* With the lock held: virtual time is `now` at this moment. */
static void follow_real_clock(uint64_t now)
{
    uint64_t real = clock_of_client ? real_ns() : 0;
    if (clock_of_client && real > now + ahead)
        ahead = real - now;
}

void cs_pace(uint64_t now)
{
    pthread_mutex_lock(&lock);
    uint64_t until = clock_of_client ? now + ahead : 0;
    pthread_mutex_unlock(&lock);
    uint64_t real = until ? real_ns() : 0;
    if (until <= real)
        return;
    struct timespec t = {(time_t)((until - real) / 1000000000u), (long)((until - real) % 1000000000u)};
    nanosleep(&t, NULL);
}

/* A virtual time as the client is told it. */
static uint64_t client_time(uint64_t ns, uint64_t its_ahead)
{
    if (!clock_of_client)
        return ns;
    double rate = now_read.real > began.real ? (double)(now_read.client - began.client) /
                                                   (double)(now_read.real - began.real)
                                             : 1;
    return began.client + (uint64_t)(int64_t)((double)(int64_t)(ns + its_ahead - began.real) * rate);
}

struct external {
    uint64_t id[STACK];
    unsigned depth;
};
static _Thread_local struct external externals[CUPTI_EXTERNAL_CORRELATION_KIND_SIZE];

/* ---- names, kept once each ---------------------------------------------------------------------*/

static char **names;
static size_t nnames, cnames; /* cnames: a power of two, or 0 */

static size_t hash(const char *s)
{
    size_t h = 1469598103934665603u;
    while (*s)
        h = (h ^ (unsigned char)*s++) * 1099511628211u;
    return h;
}

static const char *keep_name(const char *s)
{
    if (nnames * 2 >= cnames) {
        size_t c = cnames ? cnames * 2 : 256;
        char **p = calloc(c, sizeof *p);
        if (!p)
            return NULL;
        for (size_t i = 0; i < cnames; i++)
            if (names[i]) {
                size_t k = hash(names[i]);
                while (p[k & (c - 1)])
                    k++;
                p[k & (c - 1)] = names[i];
            }
        free(names);
        names = p;
        cnames = c;
    }
    size_t k = hash(s);
    for (; names[k & (cnames - 1)]; k++)
        if (strcmp(names[k & (cnames - 1)], s) == 0)
            return names[k & (cnames - 1)];
    char *copy = strdup(s);
    if (copy) {
        names[k & (cnames - 1)] = copy;
        nnames++;
    }
    return copy;
}

/* ---- what the driver tells ---------------------------------------------------------------------*/

static void push(const struct item *it)
{
    if (nqueue == cqueue) {
        size_t c = cqueue ? cqueue * 2 : 1024;
        struct item *p = c <= QUEUE_MAX ? realloc(queue, c * sizeof *p) : NULL;
        if (!p) {
            dropped++;
            return;
        }
        queue = p;
        cqueue = c;
    }
    queue[nqueue] = *it;
    queue[nqueue++].ahead = ahead;
}

/* A call of the driver or of the runtime; of two, one inside of the other, the outer one is recorded. */
static void push_call(struct item *it)
{
    bool runtime = it->a.kind == SIMGPU_ACT_RUNTIME;
    it->cbid = runtime ? cs_runtime_cbid(it->a.name) : cs_driver_cbid(it->a.name);
    it->kind = runtime ? CUPTI_ACTIVITY_KIND_RUNTIME : CUPTI_ACTIVITY_KIND_DRIVER;
    int one = it->cbid < CBIDS ? (runtime ? runtime_on : call_on)[it->cbid] : 0;
    if (it->a.within || one < 0 || (one == 0 && !on[it->kind]) || (runtime && !it->cbid))
        return;
    it->process = (uint32_t)getpid();
    it->thread = (uint32_t)syscall(SYS_gettid);
    for (unsigned k = 1; on[CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION] &&
                         k < CUPTI_EXTERNAL_CORRELATION_KIND_SIZE;
         k++) {
        const struct external *e = &externals[k];
        if (!e->depth)
            continue;
        struct item x = {.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, .a = it->a};
        x.external_kind = (CUpti_ExternalCorrelationKind)k;
        x.external = e->id[(e->depth < STACK ? e->depth : STACK) - 1];
        push(&x);
    }
    push(it);
}

void cs_record(const struct simgpu_activity *a)
{
    struct item it = {.a = *a};
    pthread_mutex_lock(&lock);
    switch (a->kind) {
    case SIMGPU_ACT_KERNEL:
        it.kind = on[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL] ? CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL
                                                            : CUPTI_ACTIVITY_KIND_KERNEL;
        if (on[it.kind]) {
            it.name = keep_name(a->name);
            push(&it);
        }
        break;
    case SIMGPU_ACT_COPY:
        it.kind = a->u.copy.from == SIMGPU_AT_DEVICE && a->u.copy.to == SIMGPU_AT_DEVICE &&
                          a->u.copy.to_device != a->device
                      ? CUPTI_ACTIVITY_KIND_MEMCPY2
                      : CUPTI_ACTIVITY_KIND_MEMCPY;
        if (on[it.kind])
            push(&it);
        break;
    case SIMGPU_ACT_MEMSET:
        it.kind = CUPTI_ACTIVITY_KIND_MEMSET;
        if (on[it.kind])
            push(&it);
        break;
    case SIMGPU_ACT_CALL:
    case SIMGPU_ACT_RUNTIME:
        push_call(&it);
        break;
    case SIMGPU_ACT_BEGIN:
        follow_real_clock(a->start_ns);
        break;
    case SIMGPU_ACT_CONTEXT:
    case SIMGPU_ACT_CONTEXT_END:
    case SIMGPU_ACT_RETURN:
        break;
    }
    pthread_mutex_unlock(&lock);
}

/* ---- records -----------------------------------------------------------------------------------*/

union record {
    CUpti_Activity any;
    CUpti_ActivityKernel10 kernel;
    CUpti_ActivityMemcpy6 copy;
    CUpti_ActivityMemcpyPtoP4 peer;
    CUpti_ActivityMemset4 set;
    CUpti_ActivityAPI call;
    CUpti_ActivityExternalCorrelation external;
};

static size_t record_bytes(CUpti_ActivityKind kind)
{
    size_t n;
    switch ((int)kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        n = sizeof(CUpti_ActivityKernel10);
        break;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        n = sizeof(CUpti_ActivityMemcpy6);
        break;
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
        n = sizeof(CUpti_ActivityMemcpyPtoP4);
        break;
    case CUPTI_ACTIVITY_KIND_MEMSET:
        n = sizeof(CUpti_ActivityMemset4);
        break;
    case CUPTI_ACTIVITY_KIND_DRIVER:
    case CUPTI_ACTIVITY_KIND_RUNTIME:
        n = sizeof(CUpti_ActivityAPI);
        break;
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
        n = sizeof(CUpti_ActivityExternalCorrelation);
        break;
    default:
        return 0;
    }
    return (n + APPENDED + 7) & ~(size_t)7;
}

static uint8_t memory_kind(enum simgpu_place p)
{
    return (uint8_t)(p == SIMGPU_AT_DEVICE   ? CUPTI_ACTIVITY_MEMORY_KIND_DEVICE
                     : p == SIMGPU_AT_PINNED ? CUPTI_ACTIVITY_MEMORY_KIND_PINNED
                                             : CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE);
}

static void lay_out_copy(CUpti_ActivityMemcpy6 *r, const struct simgpu_activity *a)
{
    bool from = a->u.copy.from == SIMGPU_AT_DEVICE, to = a->u.copy.to == SIMGPU_AT_DEVICE;
    r->copyKind = (uint8_t)(from && to ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOD
                            : from     ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOH
                            : to       ? CUPTI_ACTIVITY_MEMCPY_KIND_HTOD
                                       : CUPTI_ACTIVITY_MEMCPY_KIND_HTOH);
    r->srcKind = memory_kind(a->u.copy.from);
    r->dstKind = memory_kind(a->u.copy.to);
    r->bytes = a->u.copy.bytes;
    r->copyCount = 1;
}

static void lay_out_kernel(CUpti_ActivityKernel10 *r, const struct simgpu_activity *a)
{
    r->completed = r->end;
    r->gridX = (int32_t)a->u.kernel.grid[0];
    r->gridY = (int32_t)a->u.kernel.grid[1];
    r->gridZ = (int32_t)a->u.kernel.grid[2];
    r->blockX = (int32_t)a->u.kernel.block[0];
    r->blockY = (int32_t)a->u.kernel.block[1];
    r->blockZ = (int32_t)a->u.kernel.block[2];
    r->dynamicSharedMemory = (int32_t)a->u.kernel.shared;
    r->gridId = a->correlation;
}

static void lay_out(const struct item *it, union record *r)
{
    const struct simgpu_activity *a = &it->a;
    memset(r, 0, sizeof *r);
    r->any.kind = it->kind;
/* The fields that all records of operations have, under the same names. */
#define COMMON(p)                                                                                  \
    do {                                                                                           \
        (p)->start = client_time(a->start_ns, it->ahead);                                          \
        (p)->end = client_time(a->end_ns, it->ahead);                                              \
        (p)->deviceId = a->device;                                                                 \
        (p)->contextId = a->context;                                                               \
        (p)->streamId = a->stream;                                                                 \
        (p)->correlationId = a->correlation;                                                       \
    } while (0)
    switch ((int)it->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        COMMON(&r->kernel);
        lay_out_kernel(&r->kernel, a);
        r->kernel.name = it->name;
        break;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        COMMON(&r->copy);
        lay_out_copy(&r->copy, a);
        break;
    case CUPTI_ACTIVITY_KIND_MEMCPY2:
        COMMON(&r->peer);
        r->peer.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
        r->peer.srcKind = r->peer.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
        r->peer.bytes = a->u.copy.bytes;
        r->peer.srcDeviceId = a->device;
        r->peer.dstDeviceId = a->u.copy.to_device;
        break;
    case CUPTI_ACTIVITY_KIND_MEMSET:
        COMMON(&r->set);
        r->set.value = a->u.memset.value;
        r->set.bytes = a->u.memset.bytes;
        r->set.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
        break;
    case CUPTI_ACTIVITY_KIND_DRIVER:
    case CUPTI_ACTIVITY_KIND_RUNTIME:
        r->call.cbid = it->cbid;
        r->call.start = client_time(a->start_ns, it->ahead);
        r->call.end = client_time(a->end_ns, it->ahead);
        r->call.processId = it->process;
        r->call.threadId = it->thread;
        r->call.correlationId = a->correlation;
        r->call.returnValue = (uint32_t)a->u.call.result;
        break;
    default:
        r->external.externalKind = it->external_kind;
        r->external.externalId = it->external;
        r->external.correlationId = a->correlation;
    }
#undef COMMON
}

/* ---- buffers -----------------------------------------------------------------------------------*/

struct buffer {
    uint8_t *at;
    size_t size, limit;
};
static struct buffer ahead_of_flush; /* asked for and not yet filled; at NULL: none */

void cs_ask_ahead(void)
{
    struct buffer b = {NULL, 0, 0};
    pthread_mutex_lock(&lock);
    CUpti_BuffersCallbackRequestFunc ask = nqueue > 0 && !ahead_of_flush.at ? request : NULL;
    pthread_mutex_unlock(&lock);
    if (!ask)
        return;
    ask(&b.at, &b.size, &b.limit);
    pthread_mutex_lock(&lock);
    bool kept = b.at && !ahead_of_flush.at;
    if (kept)
        ahead_of_flush = b;
    CUpti_BuffersCallbackCompleteFunc give = completed;
    pthread_mutex_unlock(&lock);
    if (b.at && !kept && give)
        give(NULL, 0, b.at, b.size, 0);
}

/* Fills buffers of the client from `items`, `first` before others; no lock is held, the callbacks are its
 * own code. */
static void deliver(const struct item *items, size_t n, struct buffer first,
                    CUpti_BuffersCallbackRequestFunc ask, CUpti_BuffersCallbackCompleteFunc give)
{
    if (n == 0 && first.at)
        give(NULL, 0, first.at, first.size, 0);
    for (size_t i = 0; i < n;) {
        uint8_t *buffer = first.at;
        size_t size = first.size, limit = first.limit, used = 0, count = 0;
        first.at = NULL;
        if (!buffer)
            ask(&buffer, &size, &limit);
        if (!buffer || size < record_bytes(items[i].kind)) {
            if (buffer)
                give(NULL, 0, buffer, size, 0);
            pthread_mutex_lock(&lock);
            dropped += n - i;
            pthread_mutex_unlock(&lock);
            return;
        }
        for (; i < n && (limit == 0 || count < limit); i++, count++) {
            union record r;
            size_t bytes = record_bytes(items[i].kind), laid = bytes - APPENDED;
            if (used + bytes > size)
                break;
            lay_out(&items[i], &r);
            memset(buffer + used, 0, bytes);
            memcpy(buffer + used, &r, laid < sizeof r ? laid : sizeof r);
            used += bytes;
        }
        give(NULL, 0, buffer, size, used);
    }
}

/* With the lock held: a second reading, some time after the first so that the rate is good. */
static void read_clocks(void)
{
    if (!clock_of_client)
        return;
    do
        now_read = read_both(clock_of_client);
    while (now_read.real - began.real < 1000000);
}

CUptiResult CUPTIAPI cuptiActivityFlushAll(uint32_t flag)
{
    (void)flag; /* operations that have not ended have no record here, with or without force */
    pthread_mutex_lock(&lock);
    if (!request) {
        pthread_mutex_unlock(&lock);
        return CUPTI_ERROR_INVALID_OPERATION;
    }
    struct item *items = queue;
    size_t n = nqueue;
    CUpti_BuffersCallbackRequestFunc ask = request;
    CUpti_BuffersCallbackCompleteFunc give = completed;
    queue = NULL;
    nqueue = cqueue = 0;
    read_clocks();
    struct buffer first = ahead_of_flush;
    ahead_of_flush.at = NULL;
    pthread_mutex_unlock(&lock);
    deliver(items, n, first, ask, give);
    free(items);
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid,
                                                CUpti_Activity **record)
{
    if (!buffer || !record)
        return CUPTI_ERROR_INVALID_PARAMETER;
    size_t at = 0;
    if (*record) {
        size_t bytes = record_bytes((*record)->kind);
        if (!bytes)
            return CUPTI_ERROR_INVALID_KIND;
        at = (size_t)((uint8_t *)*record - buffer) + bytes;
    }
    if (at >= valid)
        return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = (CUpti_Activity *)(void *)(buffer + at);
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream,
                                                       size_t *n)
{
    (void)context;
    (void)stream;
    if (!n)
        return CUPTI_ERROR_INVALID_PARAMETER;
    pthread_mutex_lock(&lock);
    *n = dropped;
    dropped = 0;
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc ask,
                                                    CUpti_BuffersCallbackCompleteFunc give)
{
    if (!ask || !give)
        return CUPTI_ERROR_INVALID_PARAMETER;
    pthread_mutex_lock(&lock);
    request = ask;
    completed = give;
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}

/* ---- what is recorded --------------------------------------------------------------------------*/

bool cs_records_wanted(void)
{
    bool wanted = false;
    pthread_mutex_lock(&lock);
    for (unsigned k = 0; k < KINDS; k++)
        wanted = wanted || on[k];
    wanted = wanted || ncalls_on || nruntime_on;
    pthread_mutex_unlock(&lock);
    return wanted;
}

bool cs_runtime_wanted(void)
{
    pthread_mutex_lock(&lock);
    bool wanted = on[CUPTI_ACTIVITY_KIND_RUNTIME] || nruntime_on;
    pthread_mutex_unlock(&lock);
    return wanted;
}

/* Kinds that never have a record here: nothing of the sort happens on the simulated GPU. */
static bool empty_kind(CUpti_ActivityKind k)
{
    return k == CUPTI_ACTIVITY_KIND_OVERHEAD || k == CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER;
}

static CUptiResult set_kind(CUpti_ActivityKind kind, bool value)
{
    if ((unsigned)kind >= KINDS || kind == CUPTI_ACTIVITY_KIND_INVALID)
        return CUPTI_ERROR_INVALID_KIND;
    if (value && !record_bytes(kind) && !empty_kind(kind)) {
        cs_not_modelled("an activity kind");
        return CUPTI_ERROR_NOT_COMPATIBLE;
    }
    const struct simgpu_activity_table *t = cs_driver();
    if (!t)
        return CUPTI_ERROR_UNKNOWN;
    uint64_t now = t->now_ns();
    pthread_mutex_lock(&lock);
    on[kind] = value;
    if (kind == CUPTI_ACTIVITY_KIND_RUNTIME || kind == CUPTI_ACTIVITY_KIND_DRIVER) {
        bool runtime = kind == CUPTI_ACTIVITY_KIND_RUNTIME;
        memset(runtime ? runtime_on : call_on, 0, CBIDS); /* for all functions alike */
        *(runtime ? &nruntime_on : &ncalls_on) = 0;
    }
    follow_real_clock(now);
    pthread_mutex_unlock(&lock);
    cs_listen();
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityEnable(CUpti_ActivityKind kind)
{
    return set_kind(kind, true);
}

CUptiResult CUPTIAPI cuptiActivityDisable(CUpti_ActivityKind kind)
{
    return set_kind(kind, false);
}

static CUptiResult set_call(signed char *one, unsigned *count, CUpti_CallbackId cbid, bool enable)
{
    if (cbid == 0 || cbid >= CBIDS)
        return CUPTI_ERROR_INVALID_PARAMETER;
    pthread_mutex_lock(&lock);
    *count = *count + (enable && one[cbid] != 1) - (!enable && one[cbid] == 1);
    one[cbid] = enable ? 1 : -1;
    pthread_mutex_unlock(&lock);
    cs_listen();
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityEnableDriverApi(CUpti_CallbackId cbid, uint8_t enable)
{
    return set_call(call_on, &ncalls_on, cbid, enable);
}

CUptiResult CUPTIAPI cuptiActivityEnableRuntimeApi(CUpti_CallbackId cbid, uint8_t enable)
{
    return set_call(runtime_on, &nruntime_on, cbid, enable);
}

CUptiResult CUPTIAPI cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc f)
{
    if (!f)
        return CUPTI_ERROR_INVALID_PARAMETER;
    const struct simgpu_activity_table *t = cs_driver();
    uint64_t now = t ? t->now_ns() : 0;
    pthread_mutex_lock(&lock);
    clock_of_client = f;
    began = now_read = read_both(f);
    ahead = began.real - now;
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetTimestamp(uint64_t *ns)
{
    const struct simgpu_activity_table *t = cs_driver();
    if (!ns)
        return CUPTI_ERROR_INVALID_PARAMETER;
    if (!t)
        return CUPTI_ERROR_UNKNOWN;
    uint64_t now = t->now_ns();
    pthread_mutex_lock(&lock);
    *ns = clock_of_client ? clock_of_client() : now;
    pthread_mutex_unlock(&lock);
    return CUPTI_SUCCESS;
}

/* Buffer sizes and the like: nothing here depends on them. */
CUptiResult CUPTIAPI cuptiActivitySetAttribute(CUpti_ActivityAttribute attr, size_t *size,
                                               void *value)
{
    (void)attr;
    return size && value ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

void cs_records_end(void)
{
    pthread_mutex_lock(&lock);
    memset(on, 0, sizeof on);
    memset(call_on, 0, sizeof call_on);
    memset(runtime_on, 0, sizeof runtime_on);
    ncalls_on = nruntime_on = 0;
    free(queue);
    queue = NULL;
    nqueue = cqueue = 0;
    request = NULL;
    completed = NULL;
    clock_of_client = NULL;
    ahead = 0;
    pthread_mutex_unlock(&lock);
}

/* ---- external correlation ----------------------------------------------------------------------*/

CUptiResult CUPTIAPI cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                            uint64_t id)
{
    if ((unsigned)kind == 0 || kind >= CUPTI_EXTERNAL_CORRELATION_KIND_SIZE)
        return CUPTI_ERROR_INVALID_PARAMETER;
    struct external *e = &externals[kind];
    if (e->depth < STACK)
        e->id[e->depth] = id;
    e->depth++; /* deeper ones count, the id of the deepest that fitted stands for them */
    return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                           uint64_t *last)
{
    if ((unsigned)kind == 0 || kind >= CUPTI_EXTERNAL_CORRELATION_KIND_SIZE)
        return CUPTI_ERROR_INVALID_PARAMETER;
    struct external *e = &externals[kind];
    if (!e->depth)
        return CUPTI_ERROR_QUEUE_EMPTY;
    e->depth--;
    if (last)
        *last = e->id[e->depth < STACK ? e->depth : STACK - 1];
    return CUPTI_SUCCESS;
}
