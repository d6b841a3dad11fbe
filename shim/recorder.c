#include "recorder.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config.h"
#include "driver.h"
#include "executor.h"
#include "log.h"
#include "period.h"
#include "replan.h"
#include "trace.h"
#include "trace_out.h"

/* Events of a program whose iteration is never found are forgotten at this number. */
#define VM_EVENTS_MAX (4u << 20)

struct pending { /* an operation whose time is not known yet */
    uint32_t event;
    CUevent start, end;
};

struct vm_recorder {
    struct vm_trace trace;
    struct vm_period_finder *finder;
    struct vm_period found;
    bool on, has_period, timed;
    uint64_t ops; /* operations recorded: the position of the next one */
    struct pending *pending;
    size_t head, count, cap;
    CUevent *spare; /* events with timing */
    size_t nspare, cap_spare;
    uint64_t began_ns;
    uint64_t iterations; /* of earlier recordings */
    uint64_t period_ops; /* of the last one */
    uint64_t period_repeats;
    struct vm_trace_out *out; /* NULL: no trace file wanted, or it is written */
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t since(const struct vm_recorder *r)
{
    return now_ns() - r->began_ns;
}

/* ---- times ----------------------------------------------------------------------------------- */

static CUevent timer_take(struct vm_recorder *r)
{
    CUevent e;
    if (r->nspare > 0)
        return r->spare[--r->nspare];
    return vm_drv.p_cuEventCreate(&e, CU_EVENT_DEFAULT) == CUDA_SUCCESS ? e : NULL;
}

static void timer_give(struct vm_recorder *r, CUevent e)
{
    if (!e)
        return;
    if (r->nspare == r->cap_spare) {
        size_t cap = r->cap_spare ? r->cap_spare * 2 : 256;
        CUevent *p = realloc(r->spare, cap * sizeof(CUevent));
        if (!p) {
            vm_drv.p_cuEventDestroy_v2(e);
            return;
        }
        r->spare = p;
        r->cap_spare = cap;
    }
    r->spare[r->nspare++] = e;
}

static struct pending pending_pop(struct vm_recorder *r)
{
    struct pending p = r->pending[r->head];
    r->head = (r->head + 1) % r->cap;
    r->count--;
    timer_give(r, p.start);
    timer_give(r, p.end);
    return p;
}

static bool pending_push(struct vm_recorder *r, struct pending p)
{
    if (r->count == r->cap) {
        size_t cap = r->cap ? r->cap * 2 : 1024;
        struct pending *n = malloc(cap * sizeof *n);
        if (!n)
            return false;
        for (size_t i = 0; i < r->count; i++)
            n[i] = r->pending[(r->head + i) % r->cap];
        free(r->pending);
        r->pending = n;
        r->head = 0;
        r->cap = cap;
    }
    r->pending[(r->head + r->count++) % r->cap] = p;
    return true;
}

/* Fills in the times that have come out; stops at the first that has not. */
static void collect_times(struct vm_recorder *r)
{
    while (r->count > 0) {
        struct pending *p = &r->pending[r->head];
        float ms = 0;
        if (vm_drv.p_cuEventQuery(p->end) != CUDA_SUCCESS)
            return;
        if (vm_drv.p_cuEventElapsedTime(&ms, p->start, p->end) == CUDA_SUCCESS && ms >= 0) {
            uint64_t ns = (uint64_t)((double)ms * 1e6);
            r->trace.events[p->event].dur_ns = ns ? ns : 1;
        }
        pending_pop(r);
    }
}

static void drop_times(struct vm_recorder *r)
{
    collect_times(r);
    while (r->count > 0)
        pending_pop(r);
}

/* ---- beginning and ending ---------------------------------------------------------------------
 */

static void describe(struct vm_device *d, struct vm_trace *t)
{
    t->machine = d->link;
    t->machine.device_bytes = d->max_chunks << d->page_shift;
    t->machine.host_bytes = d->host.limit_slots << d->page_shift;
    t->machine.page_bytes = d->page_bytes;
    if (!vm_drv.p_cuDeviceGetName ||
        vm_drv.p_cuDeviceGetName(t->device, sizeof t->device, d->ordinal) != CUDA_SUCCESS)
        t->device[0] = '\0';
    strcpy(t->clock, vm_device_simulated(d) ? "simulated" : "device");
}

int vm_recorder_new(struct vm_device *d)
{
    struct vm_recorder *r = calloc(1, sizeof *r);
    if (!r || vm_period_finder_new(&r->finder) != 0) {
        free(r);
        return VM_ENOMEM;
    }
    r->on = true;
    r->timed = vm_drv.p_cuEventElapsedTime != NULL;
    r->began_ns = now_ns();
    describe(d, &r->trace);
    r->out = vm_trace_out_open(vm_config()->trace, d->ordinal);
    d->recorder = r;
    return 0;
}

static void write_out(struct vm_recorder *r)
{
    if (!r->out)
        return;
    collect_times(r);
    vm_trace_out_close(r->out, &r->trace);
    r->out = NULL;
}

static void empty(struct vm_recorder *r)
{
    drop_times(r);
    while (r->nspare > 0)
        vm_drv.p_cuEventDestroy_v2(r->spare[--r->nspare]);
    struct vm_trace t = r->trace;
    vm_trace_fini(&r->trace);
    r->trace.machine = t.machine;
    memcpy(r->trace.device, t.device, sizeof t.device);
    memcpy(r->trace.clock, t.clock, sizeof t.clock);
    vm_period_finder_free(r->finder);
    r->finder = NULL;
    if (r->has_period)
        r->iterations += r->found.repeats;
    r->has_period = false;
    r->ops = 0;
}

void vm_recorder_stop(struct vm_device *d)
{
    struct vm_recorder *r = d->recorder;
    if (!r->on)
        return;
    r->on = false;
    write_out(r);
    if (r->has_period) {
        r->period_ops = r->found.ops;
        r->period_repeats = r->found.repeats;
    }
    empty(r);
}

void vm_recorder_restart(struct vm_device *d)
{
    struct vm_recorder *r = d->recorder;
    if (r->on)
        empty(r);
    if (vm_period_finder_new(&r->finder) != 0) {
        r->on = false;
        return;
    }
    if (r->period_ops) /* the program left it */
        vm_period_distrust(r->finder, r->period_ops, r->period_repeats);
    r->on = true;
    for (uint32_t i = 0; i < d->nblocks; i++) {
        struct vm_block *b = &d->blocks[i];
        b->trace = VM_NONE;
        if (b->live)
            vm_trace_add_block(&r->trace, b->id, b->size, b->addr, &b->trace);
    }
}

void vm_recorder_finish(struct vm_device *d)
{
    if (d->recorder)
        write_out(d->recorder);
}

uint64_t vm_recorder_iterations(const struct vm_device *d)
{
    const struct vm_recorder *r = d->recorder;
    return r->iterations + (r->has_period ? r->found.repeats : 0);
}

uint64_t vm_recorder_period(const struct vm_device *d)
{
    const struct vm_recorder *r = d->recorder;
    return r->has_period ? r->found.ops : r->period_ops;
}

/* ---- events ---------------------------------------------------------------------------------- */

/* Out of host memory: recording ends, the program goes on by demand paging. */
static void give_up(struct vm_device *d)
{
    vm_log(RECORDING_ENDED, "out of host memory");
    vm_recorder_stop(d);
}

void vm_recorder_alloc(struct vm_device *d, struct vm_block *b)
{
    struct vm_recorder *r = d->recorder;
    if (r->on &&
        vm_trace_add_alloc(&r->trace, b->id, b->size, b->addr, 0, since(r), &b->trace) != 0)
        give_up(d);
}

void vm_recorder_free(struct vm_device *d, struct vm_block *b)
{
    struct vm_recorder *r = d->recorder;
    if (r->on && b->trace != VM_NONE && vm_trace_add_free(&r->trace, b->trace, 0, since(r)) != 0)
        give_up(d);
}

void vm_recorder_hint(struct vm_device *d, struct vm_block *b, unsigned hint)
{
    struct vm_recorder *r = d->recorder;
    if (r->on && b->trace != VM_NONE && vm_trace_add_hint(&r->trace, b->trace, hint, since(r)) != 0)
        give_up(d);
}

void vm_recorder_step(struct vm_device *d)
{
    struct vm_recorder *r = d->recorder;
    if (r->on && vm_trace_add_step(&r->trace, since(r)) != 0)
        give_up(d);
}

void vm_recorder_before(struct vm_device *d, struct vm_op *op, struct vm_stream *s)
{
    struct vm_recorder *r = d->recorder;
    if (!r->on || !r->timed)
        return;
    op->start = timer_take(r);
    if (op->start && vm_drv.p_cuEventRecord(op->start, s->handle) != CUDA_SUCCESS) {
        timer_give(r, op->start);
        op->start = NULL;
    }
}

static int add_op(struct vm_device *d, const struct vm_op *op, const struct vm_stream *s,
                  uint32_t *event)
{
    struct vm_recorder *r = d->recorder;
    struct vm_access small[64], *acc = small;
    if (op->nacc > 64) {
        acc = malloc(op->nacc * sizeof *acc);
        if (!acc)
            return VM_ENOMEM;
    }
    uint32_t n = 0;
    for (unsigned i = 0; i < op->nacc; i++) {
        const struct vm_block *b = &d->blocks[op->acc[i].block];
        if (b->live && b->trace != VM_NONE)
            acc[n++] = (struct vm_access){b->trace, op->acc[i].mode, op->acc[i].role, 0};
    }
    struct vm_event e = {.op_kind = op->kind,
                         .layer = op->layer,
                         .flags = op->flags,
                         .stream = s->number,
                         .sig = op->sig,
                         .block = VM_NONE,
                         .name = VM_NONE,
                         .host_ns = since(r)};
    int ret = 0;
    if (op->name)
        ret = vm_trace_add_name(&r->trace, op->name, strlen(op->name), &e.name);
    if (ret == 0)
        ret = vm_trace_add_op(&r->trace, &e, acc, n, event);
    if (acc != small)
        free(acc);
    return ret;
}

/* The iteration is known and has been seen often enough: on to a plan. */
static void look_for_iteration(struct vm_device *d)
{
    struct vm_recorder *r = d->recorder;
    struct vm_period p;
    int ret = vm_period_feed(r->finder, &r->trace, &p);
    if (ret < 0) {
        give_up(d);
        return;
    }
    if (ret != VM_OK) {
        r->has_period = false;
        if (r->trace.nevents > VM_EVENTS_MAX)
            vm_recorder_restart(d);
        return;
    }
    if (!r->has_period)
        vm_log(ITERATION_FOUND, (unsigned long long)p.ops, (unsigned long long)p.found,
               (unsigned)p.repeats);
    r->has_period = true;
    r->found = p;
    if (p.repeats >= vm_config()->warmup && p.end == r->ops) {
        collect_times(r);
        if (vm_replan_begin(d, &r->trace, &p) != 0)
            vm_recorder_stop(d);
    }
}

void vm_recorder_after(struct vm_device *d, struct vm_op *op, struct vm_stream *s, bool counted)
{
    struct vm_recorder *r = d->recorder;
    if (!r->on || !counted) {
        timer_give(r, op->start);
        return;
    }
    struct pending p = {.start = op->start};
    if (op->start) {
        p.end = timer_take(r);
        if (p.end && vm_drv.p_cuEventRecord(p.end, s->handle) != CUDA_SUCCESS) {
            timer_give(r, p.end);
            p.end = NULL;
        }
    }
    int ret = add_op(d, op, s, &p.event);
    if (ret != 0 || !p.end || !pending_push(r, p)) {
        timer_give(r, p.start);
        timer_give(r, p.end);
    }
    if (ret != 0) {
        give_up(d);
        return;
    }
    r->ops++;
    collect_times(r);
    look_for_iteration(d);
}
