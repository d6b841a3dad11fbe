/* Timing mode: a discrete-event simulation of the engines of every device, and the waits of both
 * modes. The device clock never runs ahead of the host's unless a host thread waits, so that work
 * issued later can never be too late for its start: the schedule is exact, not approximated. */
#include "sg_sched.h"
#include "sg_threads.h"

#include <stdlib.h>
#include <string.h>

#define QUEUE_DEPTH 1024 /* launches a stream holds before the host has to wait */
#define POLLS       3 /* polls of one operation in a row before the clock jumps to the next event */

enum what { READY, FINISH };
struct event {
    uint64_t at, seq;
    enum what what;
    unsigned gen;
    struct sg_op *op;         /* READY */
    struct sg_device *device; /* FINISH */
    int engine;
};
static struct event *heap;
static size_t nheap, cheap;
static uint64_t event_seq;

static bool before(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->seq < b->seq;
}

static void heap_push(struct event e)
{
    if (nheap == cheap) {
        size_t c = cheap ? cheap * 2 : 256;
        struct event *p = realloc(heap, c * sizeof *p);
        if (!p)
            abort(); /* the simulator itself is out of memory */
        heap = p;
        cheap = c;
    }
    e.seq = ++event_seq;
    size_t i = nheap++;
    for (; i && before(&e, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = e;
}

static struct event heap_pop(void)
{
    struct event top = heap[0], last = heap[--nheap];
    size_t i = 0;
    for (size_t c; (c = 2 * i + 1) < nheap; i = c) {
        if (c + 1 < nheap && before(&heap[c + 1], &heap[c]))
            c++;
        if (!before(&heap[c], &last))
            break;
        heap[i] = heap[c];
    }
    if (nheap)
        heap[i] = last;
    return top;
}

/* The rate of a copy engine falls while the other direction is busy too. */
static double engine_rate(const struct sg_device *d, int e)
{
    if (e == SG_ENG_H2D && d->engine[SG_ENG_D2H].running)
        return sg.cfg.preset.duplex_h2d;
    if (e == SG_ENG_D2H && d->engine[SG_ENG_H2D].running)
        return sg.cfg.preset.duplex_d2h;
    return 1;
}

static void schedule_finish(struct sg_device *d, int e, uint64_t now)
{
    struct sg_engine *g = &d->engine[e];
    g->rate = engine_rate(d, e);
    g->updated_ns = now;
    double ns = g->running->left_ns / g->rate;
    heap_push((struct event){.at = now + (uint64_t)(ns + 0.5),
                             .what = FINISH,
                             .gen = ++g->gen,
                             .device = d,
                             .engine = e});
}

/* The other copy engine started or stopped at `now`: what is left goes on at another rate. */
static void rerate(struct sg_device *d, int e, uint64_t now)
{
    struct sg_engine *g = &d->engine[e];
    if (!g->running)
        return;
    g->running->left_ns -= (double)(now - g->updated_ns) * g->rate;
    if (g->running->left_ns < 0)
        g->running->left_ns = 0;
    schedule_finish(d, e, now);
}

static void engine_changed(struct sg_device *d, int e, uint64_t now)
{
    if (e == SG_ENG_H2D)
        rerate(d, SG_ENG_D2H, now);
    else if (e == SG_ENG_D2H)
        rerate(d, SG_ENG_H2D, now);
}

static void start_next(struct sg_device *d, int e, uint64_t now)
{
    struct sg_engine *g = &d->engine[e];
    if (g->running)
        return;
    for (int p = SG_MAX_PRIOS - 1; p >= 0; p--) {
        struct sg_op *op = g->head[p];
        if (!op)
            continue;
        g->head[p] = op->next;
        if (!op->next)
            g->tail[p] = NULL;
        op->next = NULL;
        op->state = SG_RUNNING;
        op->start_ns = now;
        g->running = op;
        sg_execute(op);
        op->left_ns = sg_duration(op);
        if (sg.cfg.kernel_log && op->kind == SG_OP_KERNEL)
            sg_kernel_log(op);
        schedule_finish(d, e, now);
        engine_changed(d, e, now);
        return;
    }
}

static void time_ready(struct sg_op *op, uint64_t at)
{
    op->state = SG_READY;
    heap_push((struct event){.at = at > sg.dev_ns ? at : sg.dev_ns, .what = READY, .op = op});
}

static void play_ready(struct sg_op *op, uint64_t now)
{
    if (op->engine == SG_ENG_NONE) {
        if (!sg_memop_ready(op)) {
            sg_memop_park(op);
            return;
        }
        op->state = SG_RUNNING;
        op->start_ns = now;
        sg_execute(op);
        if (op->kind == SG_OP_HOSTFN)
            sg_run_hostfn(op);
        sg_op_done(op, now > sg.dev_ns ? now : sg.dev_ns);
        return;
    }
    struct sg_device *d = &sg.dev[op->device];
    struct sg_engine *g = &d->engine[op->engine];
    int p = -op->prio;
    if (g->tail[p])
        g->tail[p]->next = op;
    else
        g->head[p] = op;
    g->tail[p] = op;
    start_next(d, (int)op->engine, now);
}

static bool time_step(uint64_t until)
{
    if (sg.parked)
        sg_memop_recheck();
    if (!nheap || heap[0].at > until)
        return false;
    struct event e = heap_pop();
    if (e.what == READY) {
        if (e.at > sg.dev_ns)
            sg.dev_ns = e.at;
        play_ready(e.op, e.at);
        return true;
    }
    struct sg_engine *g = &e.device->engine[e.engine];
    if (!g->running || g->gen != e.gen)
        return true; /* rescheduled since */
    sg.dev_ns = e.at;
    struct sg_op *op = g->running;
    g->running = NULL;
    g->busy_ns += e.at - op->start_ns;
    engine_changed(e.device, e.engine, e.at);
    sg_op_done(op, e.at);
    start_next(e.device, e.engine, e.at);
    return true;
}

static uint64_t time_next(void)
{
    while (nheap && heap[0].what == FINISH &&
           heap[0].device->engine[heap[0].engine].gen != heap[0].gen)
        heap_pop();
    return nheap ? heap[0].at : UINT64_MAX;
}

void sg_sched_ready(struct sg_op *op, uint64_t at)
{
    if (sg.cfg.mode == SG_TIMING)
        time_ready(op, at);
    else
        sg_late_ready(op);
}

void sg_run_hostfn(struct sg_op *op)
{
    struct sg_hostfn f = op->u.hostfn;
    CUresult status = op->ctx->sticky;
    sg.hostfns++;
    sg.hostfns_pending--;
    pthread_mutex_unlock(&sg.lock);
    sg_in_callback = true;
    if (f.cb)
        f.cb(f.cb_stream, status, f.data);
    else
        f.fn(f.data);
    sg_in_callback = false;
    pthread_mutex_lock(&sg.lock);
    sg.hostfns--;
    pthread_cond_broadcast(&sg.moved);
}

void sg_advance(void)
{
    if (sg.cfg.mode == SG_TIMING)
        while (time_step(sg.host_ns))
            ;
}

void sg_host_spend(uint64_t ns)
{
    sg.host_ns += ns;
}

bool sg_play_one(void)
{
    bool moved = sg.cfg.mode == SG_TIMING ? time_step(UINT64_MAX) : sg_late_step(NULL, false);
    if (moved && sg.cfg.mode == SG_TIMING && sg.dev_ns > sg.host_ns)
        sg.host_ns = sg.dev_ns;
    if (moved)
        pthread_cond_broadcast(&sg.moved);
    return moved;
}

/* One step towards what the calling thread waits for. */
static void wait_step(struct sg_op *target, bool only_needed, bool *alone)
{
    if (!*alone || sg_thread_knocks()) {
        *alone = sg_thread_settled();
        return;
    }
    if (sg.cfg.mode == SG_TIMING) {
        if (sg_play_one())
            return;
    } else if (sg_late_step(target, only_needed) || (only_needed && sg_late_step(target, false))) {
        pthread_cond_broadcast(&sg.moved);
        return;
    }
    sg_thread_nap(); /* a host function is executing on another thread */
}

CUresult sg_wait(struct sg_op *op)
{
    if (!op)
        return CUDA_SUCCESS;
    op->refs++;
    struct sg_ctx *c = op->ctx;
    bool only_needed = sg.cfg.mode == SG_FUNCTIONAL && op->state != SG_DONE && sg_late_need(op);
    bool alone = false;
    sg_thread_waits(true);
    while (op->state != SG_DONE)
        wait_step(op, only_needed, &alone);
    sg_thread_waits(false);
    if (op->end_ns > sg.host_ns)
        sg.host_ns = op->end_ns;
    if (sg.cfg.racecheck)
        sg_race_host_saw(op);
    sg_op_unref(op);
    return c ? c->sticky : CUDA_SUCCESS;
}

CUresult sg_wait_ctx(struct sg_ctx *c)
{
    /* The last operation of each stream stands for all before it. Streams may come and go while we
     * wait, so the list is read anew each time. */
    for (;;) {
        struct sg_op *last = NULL;
        for (struct sg_stream *s = c->streams; s && !last; s = s->next)
            if (s->pending && s->last && s->last->state != SG_DONE)
                last = s->last;
        if (!last)
            break;
        sg_wait(last);
    }
    if (sg.cfg.racecheck) {
        sg_race_join_retired(NULL, c);
        for (const struct sg_stream *s = c->streams; s; s = s->next)
            if (s->last)
                sg_race_host_saw(s->last);
    }
    return c->sticky;
}

bool sg_poll(struct sg_op *op)
{
    if (!op)
        return true;
    if (op->state != SG_DONE) {
        /* A program that looks at several events once each is not spinning. */
        op->polls = op->poll_epoch == sg.poll_epoch ? op->polls + 1 : 1;
        op->poll_epoch = sg.poll_epoch;
        if (sg.cfg.mode == SG_FUNCTIONAL) {
            if (op->polls > 8 || sg_random() % 4 == 0)
                sg_late_step(op, false);
        } else if (op->polls > POLLS) {
            uint64_t next = time_next();
            if (next != UINT64_MAX && next > sg.host_ns)
                sg.host_ns = next;
            sg.poll_epoch++; /* whatever else the program polls, it looks at that before the next jump */
            sg_advance();
        }
    }
    if (op->state != SG_DONE)
        return false;
    if (sg.cfg.racecheck)
        sg_race_host_saw(op);
    return true;
}

void sg_sched_bound(struct sg_stream *s)
{
    while (s->pending > QUEUE_DEPTH) {
        if (sg.cfg.mode == SG_TIMING ? time_step(UINT64_MAX) : sg_late_step(s->last, false)) {
            if (sg.cfg.mode == SG_TIMING && sg.dev_ns > sg.host_ns)
                sg.host_ns = sg.dev_ns;
            continue;
        }
        if (!sg.hostfns)
            break;
        sg_thread_nap();
    }
}
