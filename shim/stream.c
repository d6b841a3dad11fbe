#include "stream.h"

#include <stdlib.h>
#include <unistd.h>
#include <sys/syscall.h>

#include "driver.h"

/* Enough ticks for a host that runs far ahead; the oldest is merged when the ring is full. */
#define VM_TICKS 256u

static uint64_t thread_id(void)
{
    static _Thread_local uint64_t id __attribute__((tls_model("initial-exec")));
    if (!id)
        id = (uint64_t)syscall(SYS_gettid);
    return id;
}

struct vm_stream *vm_stream_get(struct vm_device *d, CUstream handle, bool per_thread)
{
    uint64_t thread = per_thread ? thread_id() : 0;
    for (unsigned i = 0; i < d->nstreams; i++)
        if (d->streams[i]->handle == handle && d->streams[i]->thread == thread &&
            !d->streams[i]->gone)
            return d->streams[i];
    if (d->nstreams == d->cap_streams) {
        unsigned cap = d->cap_streams ? d->cap_streams * 2 : 16;
        struct vm_stream **p = realloc(d->streams, cap * sizeof *p);
        if (!p)
            return NULL;
        d->streams = p;
        d->cap_streams = cap;
    }
    struct vm_stream *s = calloc(1, sizeof *s);
    struct vm_tick *ring = malloc(VM_TICKS * sizeof *ring);
    if (!s || !ring) {
        free(s);
        free(ring);
        return NULL;
    }
    s->handle = handle;
    s->thread = thread;
    s->ticks = ring;
    s->cap = VM_TICKS;
    s->number = d->next_stream++;
    d->streams[d->nstreams++] = s;
    /* pages that were called back while being copied out are waited for by the streams known then
     */
    if (d->out_flight.count > 0 && !vm_stream_is_capturing(d, s)) {
        size_t last = (d->out_flight.head + d->out_flight.count - 1) % d->out_flight.cap;
        (void)vm_drv.p_cuStreamWaitEvent(handle, d->out_flight.items[last].event, 0);
    }
    return s;
}

CUevent vm_event_take(struct vm_device *d)
{
    if (d->nevents > 0)
        return d->events[--d->nevents];
    CUevent e;
    return vm_drv.p_cuEventCreate(&e, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS ? e : NULL;
}

void vm_event_give(struct vm_device *d, CUevent e)
{
    if (!e)
        return;
    if (d->nevents == d->cap_events) {
        unsigned cap = d->cap_events ? d->cap_events * 2 : 64;
        CUevent *p = realloc(d->events, cap * sizeof *p);
        if (!p) {
            vm_drv.p_cuEventDestroy_v2(e);
            return;
        }
        d->events = p;
        d->cap_events = cap;
    }
    d->events[d->nevents++] = e;
}

static struct vm_tick *tick_at(struct vm_stream *s, unsigned i)
{
    return &s->ticks[(s->head + i) % s->cap];
}

static void drop_front(struct vm_device *d, struct vm_stream *s)
{
    vm_event_give(d, tick_at(s, 0)->event);
    s->head = (s->head + 1) % s->cap;
    s->count--;
}

/* The driver gave no event: the host looks at the stream itself until it is idle. Rare enough to be done
 * with the lock. False when the stream cannot be named from here, or failed. */
static bool wait_without_tick(struct vm_stream *o)
{
    CUresult r = CUDA_ERROR_NOT_READY;
    if (o->gone || o->capturing || (o->thread && o->thread != thread_id()))
        return false;
    for (unsigned times = 0; r == CUDA_ERROR_NOT_READY; times++) {
        r = vm_drv.p_cuStreamQuery(o->handle);
        if (r == CUDA_ERROR_NOT_READY)
            vm_nap(times);
    }
    return r == CUDA_SUCCESS;
}

/* The work of a destroyed stream goes on; its ticks' events stay queryable, so it is kept, without
 * a handle, until they are done. What has no tick yet gets one first (the caller destroys it
 * after). */
void vm_stream_forget(struct vm_device *d, CUstream handle)
{
    for (unsigned i = 0; i < d->nstreams; i++) {
        struct vm_stream *s = d->streams[i];
        if (s->handle != handle || s->gone)
            continue;
        if (s->last_g > s->done_g && vm_stream_tick(d, s) != 0 && wait_without_tick(s))
            s->done_g = s->last_g;
        s->gone = true;
    }
}

void vm_stream_issued(struct vm_stream *s, uint64_t g)
{
    if (s->last_g <= s->done_g)
        s->first_g = g;
    s->last_g = g;
}

int vm_stream_tick(struct vm_device *d, struct vm_stream *s)
{
    if (s->gone || s->last_g <= s->done_g || vm_stream_is_capturing(d, s))
        return 0;
    if (s->count > 0 && tick_at(s, s->count - 1)->g >= s->last_g)
        return 0;
    CUevent e;
    if (s->count == s->cap) { /* full: the newest moves forward, older frontiers just get later */
        s->count--;
        e = tick_at(s, s->count)->event;
    } else {
        e = vm_event_take(d);
    }
    if (!e)
        return 1;
    if (vm_drv.p_cuEventRecord(e, s->handle) != CUDA_SUCCESS) {
        vm_event_give(d, e);
        return 1;
    }
    *tick_at(s, s->count) = (struct vm_tick){s->last_g, e};
    s->count++;
    return 0;
}

void vm_streams_tick(struct vm_device *d)
{
    uint64_t me = thread_id();
    for (unsigned i = 0; i < d->nstreams; i++)
        if (!d->streams[i]->thread || d->streams[i]->thread == me)
            vm_stream_tick(d, d->streams[i]);
}

static bool enough(const struct vm_stream *s, uint64_t g)
{
    return s->done_g >= g || s->done_g >= s->last_g || s->first_g > g;
}

static void see_progress(struct vm_device *d, struct vm_stream *s)
{
    while (s->count > 0) {
        CUresult r = vm_drv.p_cuEventQuery(tick_at(s, 0)->event);
        if (r == CUDA_ERROR_NOT_READY)
            return;
        if (r != CUDA_SUCCESS) { /* sticky: nothing on the device will ever be done */
            d->broken = r;
            return;
        }
        s->done_g = tick_at(s, 0)->g;
        if (s->done_g < s->last_g && s->first_g <= s->done_g)
            s->first_g = s->done_g + 1;
        drop_front(d, s);
    }
}

static bool reached(struct vm_device *d, struct vm_stream *s, uint64_t g)
{
    if (enough(s, g))
        return true;
    see_progress(d, s);
    if (enough(s, g) || (s->capturing && s->count == 0))
        return true; /* what came before a capture has a tick; nothing in it runs by itself */
    uint64_t newest = s->count > 0 ? tick_at(s, s->count - 1)->g : 0;
    if (newest < g && newest < s->last_g && (!s->thread || s->thread == thread_id()))
        vm_stream_tick(d, s);
    return false;
}

bool vm_streams_reached(struct vm_device *d, uint64_t g)
{
    for (unsigned i = 0; i < d->nstreams; i++) {
        struct vm_stream *s = d->streams[i];
        if (!reached(d, s, g))
            return d->broken != CUDA_SUCCESS;
        if (s->gone && s->count == 0) {
            free(s->ticks);
            free(s);
            d->streams[i--] = d->streams[--d->nstreams];
        }
    }
    return true;
}

/* The first tick that is late enough; reached() left one unless it could not. */
static struct vm_tick *late_tick(struct vm_stream *o, uint64_t g)
{
    for (unsigned k = 0; k < o->count; k++)
        if (tick_at(o, k)->g >= g || tick_at(o, k)->g >= o->last_g)
            return tick_at(o, k);
    return o->capturing && o->count > 0 ? tick_at(o, o->count - 1) : NULL;
}

CUresult vm_stream_join(struct vm_device *d, struct vm_stream *s, uint64_t g)
{
    if (s->joined_g >= g || s->capturing)
        return CUDA_SUCCESS;
    for (unsigned i = 0; i < d->nstreams; i++) {
        struct vm_stream *o = d->streams[i];
        if (o == s || reached(d, o, g))
            continue;
        struct vm_tick *t = late_tick(o, g);
        if (!t && wait_without_tick(o))
            continue;
        if (!t)
            return CUDA_ERROR_UNKNOWN;
        CUresult r = vm_drv.p_cuStreamWaitEvent(s->handle, t->event, 0);
        if (r != CUDA_SUCCESS)
            return r;
    }
    s->joined_g = g;
    return CUDA_SUCCESS;
}

void vm_streams_idle(struct vm_device *d, uint64_t g)
{
    for (unsigned i = 0; i < d->nstreams; i++) {
        struct vm_stream *s = d->streams[i];
        uint64_t done = s->last_g < g ? s->last_g : g;
        if (s->capturing || done <= s->done_g)
            continue;
        s->done_g = done;
        if (s->first_g <= done)
            s->first_g = done + 1;
        while (s->count > 0 && tick_at(s, 0)->g <= done)
            drop_front(d, s);
    }
}

uint64_t vm_streams_host_visible(struct vm_device *d)
{
    uint64_t g = 0;
    for (unsigned i = 0; i < d->nstreams; i++) {
        const struct vm_stream *s = d->streams[i];
        if (s->host_visible_g > s->done_g && s->host_visible_g > g)
            g = s->host_visible_g;
    }
    return g;
}
