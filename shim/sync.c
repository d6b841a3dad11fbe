/* Where the host waits, due page moves go on (runtime.h). And captures, in which nothing may. */
#include "block.h"
#include "driver.h"
#include "graph.h"
#include "pager.h"
#include "recorder.h"
#include "runtime.h"
#include "stream.h"

/* What a wait for the whole context may conclude when it is over. */
static _Thread_local uint64_t waited_g __attribute__((tls_model("initial-exec")));
static _Thread_local struct vm_device *waited_on __attribute__((tls_model("initial-exec")));

typedef bool (*done_fn)(struct vm_device *d, void *what);

static bool stream_done(struct vm_device *d, void *what)
{
    (void)d;
    return vm_drv.p_cuStreamQuery(what) != CUDA_ERROR_NOT_READY;
}

static bool event_done(struct vm_device *d, void *what)
{
    (void)d;
    return vm_drv.p_cuEventQuery(what) != CUDA_ERROR_NOT_READY;
}

static bool context_done(struct vm_device *d, void *what)
{
    return vm_streams_reached(d, *(uint64_t *)what);
}

static void note_wait(struct vm_device *d, CUstream s)
{
    for (unsigned i = 0; i < d->nstreams; i++)
        if (d->streams[i]->handle == s && !d->streams[i]->gone)
            vm_recorder_waited(d, d->streams[i]);
}

/* Works off what is due until `done` or nothing is left to do. */
static void work_until(struct vm_device *d, done_fn done, void *what)
{
    pthread_mutex_lock(&d->lock);
    if (done == context_done)
        vm_recorder_waited(d, NULL);
    else if (done == stream_done)
        note_wait(d, what);
    if (!vm_pager_busy(d) || d->broken != CUDA_SUCCESS || d->captures > 0) {
        pthread_mutex_unlock(&d->lock);
        return;
    }
    bool pushed = vm_ctx_enter(d);
    for (unsigned times = 0; vm_pager_busy(d) && d->broken == CUDA_SUCCESS && !done(d, what);) {
        d->patience_ns = VM_UNTIL_IDLE;
        if (vm_pager_pump(d)) {
            times = 0;
            continue;
        }
        pthread_mutex_unlock(&d->lock);
        vm_nap(times++);
        pthread_mutex_lock(&d->lock);
    }
    d->patience_ns = 0;
    vm_ctx_leave(pushed);
    pthread_mutex_unlock(&d->lock);
}

void vm_rt_wait_stream(CUstream s, bool per_thread_default)
{
    struct vm_device *d = vm_device_default();
    if (!s)
        s = per_thread_default ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    if (d)
        work_until(d, stream_done, s);
}

void vm_rt_wait_event(CUevent e)
{
    struct vm_device *d = vm_device_default();
    if (d && e)
        work_until(d, event_done, e);
}

void vm_rt_wait_context(void)
{
    struct vm_device *d = vm_device_default();
    waited_on = d;
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    waited_g = d->g;
    pthread_mutex_unlock(&d->lock);
    uint64_t g = waited_g;
    work_until(d, context_done, &g);
}

void vm_rt_synced(void)
{
    struct vm_device *d = waited_on;
    waited_on = NULL;
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    vm_streams_idle(d, waited_g);
    pthread_mutex_unlock(&d->lock);
}

void vm_rt_poke(void)
{
    struct vm_device *d = vm_device_default();
    if (!d || d->broken != CUDA_SUCCESS || pthread_mutex_trylock(&d->lock) != 0)
        return;
    if (vm_pager_busy(d) && d->captures == 0) {
        bool pushed = vm_ctx_enter(d);
        vm_pager_pump(d);
        vm_ctx_leave(pushed);
    }
    pthread_mutex_unlock(&d->lock);
}

void vm_rt_stream_created(CUstream s)
{
    struct vm_device *d = vm_device_default();
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    vm_stream_get(d, s, false);
    pthread_mutex_unlock(&d->lock);
}

void vm_rt_stream_destroyed(CUstream s)
{
    struct vm_device *d = vm_device_default();
    if (!d || d->broken != CUDA_SUCCESS)
        return;
    pthread_mutex_lock(&d->lock);
    vm_stream_forget(d, s);
    pthread_mutex_unlock(&d->lock);
}

/* ---- captures -------------------------------------------------------------------------------- */

bool vm_rt_capture_soon(CUstream s)
{
    struct vm_device *d = vm_device_default();
    if (!d)
        return false;
    pthread_mutex_lock(&d->lock);
    /* a stream that is new to us may get waits of ours */
    struct vm_stream *st = vm_stream_get(d, s, s == CU_STREAM_PER_THREAD);
    vm_streams_tick(d);
    bool begins = st && !st->capturing;
    if (begins) {
        st->capturing = true;
        d->captures++;
    }
    pthread_mutex_unlock(&d->lock);
    return begins;
}

/* Streams that joined the capture left it with the one that began it. */
void vm_rt_capture_end(CUstream s, CUgraph graph)
{
    struct vm_device *d = vm_device_default();
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    struct vm_stream *st = vm_stream_get(d, s, s == CU_STREAM_PER_THREAD);
    if (st && st->capturing) {
        st->capturing = false;
        d->captures--;
        vm_graph_capture_over(d, graph);
    }
    pthread_mutex_unlock(&d->lock);
}

bool vm_stream_is_capturing(struct vm_device *d, struct vm_stream *s)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (s->capturing || d->captures == 0)
        return s->capturing;
    /* It may have joined by an event of a capturing stream: only the driver knows. */
    return vm_drv.p_cuStreamIsCapturing &&
           vm_drv.p_cuStreamIsCapturing(s->handle, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool vm_rt_capturing(CUstream stream)
{
    struct vm_device *d = vm_device_default();
    if (!d)
        return false;
    pthread_mutex_lock(&d->lock);
    bool c = false;
    if (d->captures > 0) {
        struct vm_stream *s = vm_stream_get(d, stream, stream == CU_STREAM_PER_THREAD);
        c = s && vm_stream_is_capturing(d, s);
    }
    pthread_mutex_unlock(&d->lock);
    return c;
}
