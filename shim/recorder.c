#include "recorder.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config.h"
#include "driver.h"
#include "executor.h"
#include "link_speed.h"
#include "log.h"
#include "period.h"
#include "op_times.h"
#include "replan.h"
#include "trace.h"
#include "trace_out.h"

/* Events of a program whose iteration is never found are forgotten at this number. */
#define VM_EVENTS_MAX (4u << 20)

struct vm_recorder {
    struct vm_trace trace;
    struct vm_period_finder *finder;
    struct vm_period found;
    bool on, has_period;
    bool has_layers;    /* an earlier recording had */
    uint64_t ops;       /* operations recorded: the position of the next one */
    uint64_t recording; /* number of this one: what waited without the lock asks whether it still
                           goes on */
    struct vm_op_times *times;
    uint32_t last_op; /* event of the last operation, if there is one */
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

/* ---- beginning and ending ---------------------------------------------------------------------
 */

/* Speeds and costs are known once a plan was needed. */
static void describe_machine(const struct vm_device *d, struct vm_trace *t)
{
    t->machine = d->link;
    t->machine.device_bytes = d->max_chunks << d->page_shift;
    t->machine.host_bytes = d->host.limit_slots << d->page_shift;
    t->machine.page_bytes = d->page_bytes;
    t->machine.page_least = vm_config()->chunk > 0 ? 0 : d->granularity;
}

static void describe(struct vm_device *d, struct vm_trace *t)
{
    describe_machine(d, t);
    if (!vm_drv.p_cuDeviceGetName ||
        vm_drv.p_cuDeviceGetName(t->device, sizeof t->device, d->ordinal) != CUDA_SUCCESS)
        t->device[0] = '\0';
    strcpy(t->clock, vm_device_simulated(d) ? "simulated" : "device");
}

int vm_recorder_new(struct vm_device *d)
{
    struct vm_recorder *r = calloc(1, sizeof *r);
    if (!r || vm_op_times_new(d, &r->times) != 0 || vm_period_finder_new(&r->finder) != 0) {
        if (r)
            vm_op_times_free(r->times);
        free(r);
        return VM_ENOMEM;
    }
    r->on = true;
    r->began_ns = now_ns();
    describe(d, &r->trace);
    r->out = vm_trace_out_open(vm_config()->trace, d->ordinal);
    d->recorder = r;
    return 0;
}

static void write_out(const struct vm_device *d)
{
    struct vm_recorder *r = d->recorder;
    if (!r->out)
        return;
    describe_machine(d, &r->trace);
    vm_op_times_collect(r->times, &r->trace);
    vm_trace_out_close(r->out, &r->trace);
    r->out = NULL;
}

static void empty(struct vm_recorder *r)
{
    vm_op_times_drop(r->times);
    r->recording++;
    struct vm_trace t = r->trace;
    vm_trace_fini(&r->trace);
    r->trace.machine = t.machine;
    memcpy(r->trace.device, t.device, sizeof t.device);
    memcpy(r->trace.clock, t.clock, sizeof t.clock);
    r->has_layers |= r->finder && vm_period_has_layers(r->finder);
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
    write_out(d);
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
    if (r->has_layers)
        vm_period_expect_layers(r->finder);
    r->on = true;
    for (uint32_t i = 0; i < d->nblocks; i++) {
        struct vm_block *b = &d->blocks[i];
        b->trace = VM_NONE;
        if (b->live)
            vm_trace_add_block(&r->trace, b->id, b->size, b->addr, &b->trace);
    }
}

void vm_recorder_settle(struct vm_device *d)
{
    if (d->recorder)
        vm_op_times_settle(d->recorder->times);
}

void vm_recorder_finish(struct vm_device *d)
{
    if (d->recorder)
        write_out(d);
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
    if (r->on)
        vm_op_times_before(r->times, d, op, s);
}

void vm_recorder_waited(struct vm_device *d, const struct vm_stream *s)
{
    struct vm_recorder *r = d->recorder;
    if (!r->on || r->ops == 0)
        return;
    struct vm_event *e = &r->trace.events[r->last_op];
    if (!s || e->stream == s->number)
        e->flags |= VM_OPF_WAITED;
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
        if (b->live && b->trace != VM_NONE && !op->acc[i].doubtful)
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

/* On to a plan. Times and link speeds are waited for without the lock: another thread may end this
 * recording meanwhile, or go on with it. */
static void plan(struct vm_device *d, const struct vm_period *p)
{
    struct vm_recorder *r = d->recorder;
    uint64_t recording = r->recording;
    if (vm_policy_plans()) {
        vm_op_times_flush(r->times, d);
        if (vm_policy_pages())
            vm_link_measure(d);
    }
    if (!r->on || r->recording != recording || d->replan)
        return;
    vm_op_times_collect(r->times, &r->trace);
    if (vm_replan_begin(d, &r->trace, p) != 0)
        vm_recorder_stop(d);
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
    if (p.repeats >= vm_config()->warmup && p.end == r->ops)
        plan(d, &p);
}

void vm_recorder_after(struct vm_device *d, struct vm_op *op, struct vm_stream *s, bool counted)
{
    struct vm_recorder *r = d->recorder;
    uint32_t event;
    if (!r->on || !counted) {
        vm_op_times_cancel(r->times, op);
        return;
    }
    int ret = add_op(d, op, s, &event);
    if (ret != 0) {
        vm_op_times_cancel(r->times, op);
        give_up(d);
        return;
    }
    vm_op_times_after(r->times, d, op, s, event);
    r->last_op = event;
    r->ops++;
    vm_op_times_collect(r->times, &r->trace);
    look_for_iteration(d);
}
