#include "op_times.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "config.h"
#include "driver.h"
#include "stream.h"
#include "timing.h"

#define DENSE  4u    /* times of a signature that are measured before any is left out */
#define SPARSE 8u    /* from then on one in so many is measured ...                   */
#define SPREAD 1.05  /* ... if the longest took at most so much more than the shortest */

struct pending { /* an operation whose time is not known yet */
    uint32_t event;
    CUevent start, end;
    CUevent back; /* when the host came back from the call; NULL: not looked at */
};

struct sig_times { /* what is known of a signature */
    uint64_t sig;
    uint64_t shortest, longest;
    uint32_t seen, measured;
};

enum source { SOURCE_OPEN, SOURCE_EVENTS, SOURCE_PROFILER };

struct vm_op_times {
    unsigned device;
    enum source source;
    atomic_bool leaving; /* the profiler is held and not wanted any more */
    bool can_events;
    struct pending *pending; /* a ring */
    size_t head, count, cap;
    CUevent *spare; /* events with timing */
    size_t nspare, cap_spare;
    struct sig_times *sigs; /* open addressing, a power of two */
    size_t nsigs, cap_sigs;
    uint64_t serial, first_serial; /* of the profiler's ids: the next, and this recording's first */
    uint32_t *event_of;            /* by serial - first_serial; VM_NONE: no event */
    size_t cap_event_of;
};

static const struct vm_timing *offered;

void vm_timing_offer(const struct vm_timing *t)
{
    offered = t;
}

const struct vm_timing *vm_timing_offered(void)
{
    return offered;
}

int vm_op_times_new(struct vm_device *d, struct vm_op_times **out)
{
    struct vm_op_times *t = calloc(1, sizeof *t);
    if (!t)
        return VM_ENOMEM;
    t->device = (unsigned)d->ordinal;
    t->can_events = vm_drv.p_cuEventElapsedTime != NULL;
    t->serial = t->first_serial = 1;
    *out = t;
    return 0;
}

void vm_op_times_free(struct vm_op_times *t)
{
    if (!t)
        return;
    vm_op_times_drop(t);
    free(t->pending);
    free(t->spare);
    free(t->sigs);
    free(t->event_of);
    free(t);
}

/* ---- pairs of events ------------------------------------------------------------------------- */

static CUevent timer_take(struct vm_op_times *t)
{
    CUevent e;
    if (t->nspare > 0)
        return t->spare[--t->nspare];
    return vm_drv.p_cuEventCreate(&e, CU_EVENT_DEFAULT) == CUDA_SUCCESS ? e : NULL;
}

static void timer_give(struct vm_op_times *t, CUevent e)
{
    if (!e)
        return;
    if (t->nspare == t->cap_spare) {
        size_t cap = t->cap_spare ? t->cap_spare * 2 : 256;
        CUevent *p = realloc(t->spare, cap * sizeof(CUevent));
        if (!p) {
            vm_drv.p_cuEventDestroy_v2(e);
            return;
        }
        t->spare = p;
        t->cap_spare = cap;
    }
    t->spare[t->nspare++] = e;
}

static struct pending pending_pop(struct vm_op_times *t)
{
    struct pending p = t->pending[t->head];
    t->head = (t->head + 1) % t->cap;
    t->count--;
    timer_give(t, p.start);
    timer_give(t, p.end);
    timer_give(t, p.back);
    return p;
}

static bool pending_push(struct vm_op_times *t, struct pending p)
{
    if (t->count == t->cap) {
        size_t cap = t->cap ? t->cap * 2 : 1024;
        struct pending *n = malloc(cap * sizeof *n);
        if (!n)
            return false;
        for (size_t i = 0; i < t->count; i++)
            n[i] = t->pending[(t->head + i) % t->cap];
        free(t->pending);
        t->pending = n;
        t->head = 0;
        t->cap = cap;
    }
    t->pending[(t->head + t->count++) % t->cap] = p;
    return true;
}

/* ---- which operations are worth a pair ------------------------------------------------------- */

static size_t place_of(const struct sig_times *table, size_t cap, uint64_t sig)
{
    size_t k = (size_t)(sig >> 7 ^ sig);
    while (table[k & (cap - 1)].seen && table[k & (cap - 1)].sig != sig)
        k++;
    return k & (cap - 1);
}

/* NULL: out of host memory. */
static struct sig_times *sig_of(struct vm_op_times *t, uint64_t sig)
{
    if (2 * t->nsigs >= t->cap_sigs) {
        size_t cap = t->cap_sigs ? 2 * t->cap_sigs : 256;
        struct sig_times *p = calloc(cap, sizeof *p);
        if (!p)
            return NULL;
        for (size_t i = 0; i < t->cap_sigs; i++)
            if (t->sigs[i].seen)
                p[place_of(p, cap, t->sigs[i].sig)] = t->sigs[i];
        free(t->sigs);
        t->sigs = p;
        t->cap_sigs = cap;
    }
    struct sig_times *s = &t->sigs[place_of(t->sigs, t->cap_sigs, sig)];
    t->nsigs += s->seen == 0;
    s->sig = sig;
    return s;
}

static bool worth_measuring(struct vm_op_times *t, uint64_t sig)
{
    struct sig_times *s = sig_of(t, sig);
    if (!s)
        return true;
    uint32_t n = s->seen++;
    bool steady = s->measured >= DENSE && (double)s->longest <= SPREAD * (double)s->shortest;
    return !steady || n % SPARSE == 0;
}

static void learn(struct vm_op_times *t, uint64_t sig, uint64_t ns)
{
    struct sig_times *s = sig_of(t, sig);
    if (!s || !s->seen)
        return;
    s->shortest = s->measured && s->shortest < ns ? s->shortest : ns;
    s->longest = s->longest > ns ? s->longest : ns;
    s->measured++;
}

/* ---- the profiler ---------------------------------------------------------------------------- */

static void choose_source(struct vm_op_times *t, struct vm_device *d)
{
    t->source = SOURCE_EVENTS; /* of threads that come meanwhile too */
    if (vm_config()->timing != VM_TIMING_CUPTI || !offered)
        return;
    if (atomic_exchange(&t->leaving, false)) { /* it was not left yet */
        t->source = SOURCE_PROFILER;
        return;
    }
    pthread_mutex_unlock(&d->lock);
    bool ok = offered->open();
    pthread_mutex_lock(&d->lock);
    if (ok)
        t->source = SOURCE_PROFILER;
}

static bool note_serial(struct vm_op_times *t, uint64_t id, uint32_t event)
{
    size_t at = (size_t)((id & ((UINT64_C(1) << 56) - 1)) - t->first_serial);
    if (at >= t->cap_event_of) {
        size_t cap = t->cap_event_of ? t->cap_event_of : 1024;
        while (cap <= at)
            cap *= 2;
        uint32_t *p = realloc(t->event_of, cap * sizeof *p);
        if (!p)
            return false;
        for (size_t i = t->cap_event_of; i < cap; i++)
            p[i] = VM_NONE;
        t->event_of = p;
        t->cap_event_of = cap;
    }
    t->event_of[at] = event;
    return true;
}

static void collect_profiled(struct vm_op_times *t, struct vm_trace *trace)
{
    struct vm_op_time some[256];
    size_t n;
    do {
        n = offered->take(t->device, some, sizeof some / sizeof some[0]);
        for (size_t i = 0; i < n; i++) {
            uint64_t serial = some[i].id & ((UINT64_C(1) << 56) - 1);
            size_t at = (size_t)(serial - t->first_serial);
            if (serial >= t->first_serial && at < t->cap_event_of && t->event_of[at] != VM_NONE)
                trace->events[t->event_of[at]].dur_ns = some[i].ns;
        }
    } while (n == sizeof some / sizeof some[0]);
}

/* ---- around an operation --------------------------------------------------------------------- */

void vm_op_times_before(struct vm_op_times *t, struct vm_device *d, struct vm_op *op,
                        struct vm_stream *s)
{
    if (t->source == SOURCE_OPEN)
        choose_source(t, d);
    if (t->source == SOURCE_PROFILER) {
        uint64_t id = VM_TIMING_ID(t->device, t->serial++);
        if (offered->before(id)) {
            op->timed_id = id;
            return;
        }
    }
    if (!t->can_events || !worth_measuring(t, op->sig))
        return;
    op->start = timer_take(t);
    if (op->start && vm_drv.p_cuEventRecord(op->start, s->handle) != CUDA_SUCCESS) {
        timer_give(t, op->start);
        op->start = NULL;
    }
}

void vm_op_times_cancel(struct vm_op_times *t, struct vm_op *op)
{
    if (op->timed_id)
        offered->after();
    timer_give(t, op->start);
    op->start = NULL;
    op->timed_id = 0;
}

/* An event on a stream of ours that has no work comes when the host records it. */
static CUevent note_return(struct vm_op_times *t, struct vm_device *d, const struct vm_op *op)
{
    bool host = op->kind == VM_OP_COPY_HTOD || op->kind == VM_OP_COPY_DTOH;
    if (!host || d->in_flight.count > 0)
        return NULL;
    CUevent e = timer_take(t);
    if (e && vm_drv.p_cuEventRecord(e, d->in_stream) != CUDA_SUCCESS) {
        timer_give(t, e);
        e = NULL;
    }
    return e;
}

void vm_op_times_after(struct vm_op_times *t, struct vm_device *d, struct vm_op *op,
                       struct vm_stream *s, uint32_t event)
{
    if (op->timed_id) {
        offered->after();
        note_serial(t, op->timed_id, event);
        op->timed_id = 0;
    }
    if (!op->start)
        return;
    struct pending p = {.event = event, .start = op->start, .end = timer_take(t)};
    op->start = NULL;
    bool ok = p.end && vm_drv.p_cuEventRecord(p.end, s->handle) == CUDA_SUCCESS;
    if (ok)
        p.back = note_return(t, d, op);
    if (!ok || !pending_push(t, p)) {
        timer_give(t, p.start);
        timer_give(t, p.end);
        timer_give(t, p.back);
    }
}

void vm_op_times_flush(struct vm_op_times *t, struct vm_device *d)
{
    if (t->source != SOURCE_PROFILER)
        return;
    pthread_mutex_unlock(&d->lock);
    offered->flush();
    pthread_mutex_lock(&d->lock);
}

/* Did the host stand in the call until the device was done? */
static bool blocked(const struct pending *p)
{
    float ms;
    return p->back && vm_drv.p_cuEventElapsedTime(&ms, p->end, p->back) == CUDA_SUCCESS && ms >= 0;
}

/* Stops at the first pair that has not come out: they come in order, near enough. */
void vm_op_times_collect(struct vm_op_times *t, struct vm_trace *trace)
{
    while (t->count > 0) {
        const struct pending *p = &t->pending[t->head];
        float ms = 0;
        if (vm_drv.p_cuEventQuery(p->end) != CUDA_SUCCESS ||
            (p->back && vm_drv.p_cuEventQuery(p->back) != CUDA_SUCCESS))
            break;
        if (vm_drv.p_cuEventElapsedTime(&ms, p->start, p->end) == CUDA_SUCCESS && ms >= 0) {
            uint64_t ns = (uint64_t)((double)ms * 1e6);
            trace->events[p->event].dur_ns = ns ? ns : 1;
            learn(t, trace->events[p->event].sig, ns ? ns : 1);
            if (blocked(p))
                trace->events[p->event].flags |= VM_OPF_BLOCKS;
        }
        pending_pop(t);
    }
    if (t->source == SOURCE_PROFILER)
        collect_profiled(t, trace);
}

void vm_op_times_drop(struct vm_op_times *t)
{
    while (t->count > 0)
        pending_pop(t);
    while (t->nspare > 0)
        vm_drv.p_cuEventDestroy_v2(t->spare[--t->nspare]);
    free(t->sigs);
    t->sigs = NULL;
    t->nsigs = t->cap_sigs = 0;
    for (size_t i = 0; i < t->cap_event_of; i++)
        t->event_of[i] = VM_NONE;
    t->first_serial = t->serial;
    if (t->source == SOURCE_PROFILER)
        atomic_store(&t->leaving, true);
    t->source = SOURCE_OPEN;
}

void vm_op_times_settle(struct vm_op_times *t)
{
    if (atomic_load_explicit(&t->leaving, memory_order_relaxed) &&
        atomic_exchange(&t->leaving, false))
        offered->close();
}
