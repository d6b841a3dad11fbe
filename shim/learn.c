#include "learn.h"

#include <stdlib.h>

#include "cost.h"
#include "driver.h"
#include "log.h"
#include "stream.h"

#define OFF_SHARE   0.10 /* a prediction that is off by more is wrong                            */
#define STRAY_SHARE 0.25 /* a speed that differs by more is another: the program copies too          */
#define BETTER      0.98 /* of the measured time: a plan must promise less to be taken            */
#define WRONG_ROW   3u   /* iterations in a row that were wrong before a new plan is thought of   */
#define TRIAL       3u   /* iterations by which a new plan is judged                              */
#define SETTLE      2u   /* iterations after a plan came into force that count for nothing        */
#define MARKS       16u  /* iterations whose end is not known yet                                 */
#define COPIES      8u   /* copies that are timed an iteration, each way                          */
#define MAPS        4u   /* calls likewise                                                        */

struct mark { /* the beginning of an iteration */
    CUevent event;
    uint64_t deviations;
};

struct map_sample {
    CUevent begin, end;
    uint64_t pages;
    bool unmap;
};

struct vm_learn {
    struct vm_cost cost;
    struct vm_machine used; /* what the plan in force was made for ... */
    double op_scale;        /* ... and by what its op times were multiplied */
    uint64_t predicted_ns, compute_ns;
    bool on;                /* a plan that moves pages is followed */
    unsigned settle, wrong;
    unsigned patience;   /* iterations in a row that must be wrong: more after each new plan that gained nothing */
    unsigned trial;      /* iterations by which the plan in force is still to be judged */
    double before_ns, trial_ns; /* what the plan before took; the trial's sum so far */
    bool worse;          /* the trial said so */
    struct mark marks[MARKS];
    unsigned head, count;
    struct map_sample maps[2 * MAPS];
    unsigned nmaps;
    uint32_t begun[2];                     /* flights, [out]  */
    unsigned copies_left[2], maps_left[2]; /* [out], [unmap] */
    CUevent spare[64];
    unsigned nspare;
    double measured_ns, expected_ns;
    uint64_t compared, revised, kept;
};

int vm_learn_new(struct vm_device *d)
{
    d->learn = calloc(1, sizeof *d->learn);
    return d->learn ? 0 : VM_ENOMEM;
}

/* ---- events ---------------------------------------------------------------------------------- */

static CUevent take(struct vm_learn *l)
{
    CUevent e;
    if (l->nspare > 0)
        return l->spare[--l->nspare];
    return vm_drv.p_cuEventCreate(&e, CU_EVENT_DEFAULT) == CUDA_SUCCESS ? e : NULL;
}

static void give(struct vm_learn *l, CUevent e)
{
    if (!e)
        return;
    if (l->nspare < sizeof l->spare / sizeof l->spare[0])
        l->spare[l->nspare++] = e;
    else
        vm_drv.p_cuEventDestroy_v2(e);
}

static CUevent record(struct vm_device *d, CUstream s)
{
    CUevent e = take(d->learn);
    if (e && vm_drv.p_cuEventRecord(e, s) != CUDA_SUCCESS) {
        give(d->learn, e);
        e = NULL;
    }
    return e;
}

/* Nanoseconds between two events that are done; negative: not to be had. */
static double between(CUevent begin, CUevent end)
{
    float ms;
    if (vm_drv.p_cuEventElapsedTime(&ms, begin, end) != CUDA_SUCCESS)
        return -1;
    return (double)ms * 1e6;
}

/* ---- copies and maps -------------------------------------------------------------------------- */

/* Has the other direction copies in flight? A copy tells the speed of a link alone if there were none from
 * its beginning to its end, and of both if there were some at either end. */
static bool other_busy(const struct vm_device *d, bool out)
{
    return (out ? d->in_flight.count : d->out_flight.count) > 0;
}

bool vm_learn_copy_begins(struct vm_device *d, bool out, struct vm_flight *f)
{
    struct vm_learn *l = d->learn;
    f->begin = NULL;
    f->event = NULL;
    l->begun[out]++;
    if (l->on && l->copies_left[out] > 0) {
        l->copies_left[out]--;
        f->duplex = other_busy(d, out);
        f->others = l->begun[!out];
        f->begin = record(d, out ? d->out_stream : d->in_stream);
        f->event = f->begin ? take(l) : NULL;
        if (f->begin && !f->event) {
            give(l, f->begin);
            f->begin = NULL;
        }
    }
    if (!f->event)
        f->event = vm_event_take(d);
    return f->event != NULL;
}

void vm_learn_copied(struct vm_device *d, bool out, uint64_t bytes, const struct vm_flight *f)
{
    struct vm_learn *l = d->learn;
    if (!f->begin) {
        vm_event_give(d, f->event);
        return;
    }
    double ns = bytes ? between(f->begin, f->event) : 0;
    bool alone = !f->duplex && f->others == l->begun[!out];
    if (ns > 0 && (alone || (f->duplex && other_busy(d, out))))
        vm_cost_copy(&l->cost, out, f->duplex, bytes, ns);
    give(l, f->begin);
    give(l, f->event);
}

/* An event on a stream without work comes at once: two of them have the host's time between them. */
CUevent vm_learn_map_begins(struct vm_device *d, bool unmap)
{
    struct vm_learn *l = d->learn;
    if (!l->on || l->maps_left[unmap] == 0 || l->nmaps == 2 * MAPS || d->in_flight.count > 0)
        return NULL;
    if (unmap && (d->out_flight.count > 0 || !vm_streams_reached(d, d->g)))
        return NULL; /* it may wait for the device: that is another cost */
    l->maps_left[unmap]--;
    return record(d, d->in_stream);
}

void vm_learn_map_ends(struct vm_device *d, bool unmap, uint64_t pages, CUevent begin)
{
    struct vm_learn *l = d->learn;
    if (!begin)
        return;
    CUevent end = record(d, d->in_stream);
    if (!end) {
        give(l, begin);
        return;
    }
    l->maps[l->nmaps++] = (struct map_sample){begin, end, pages, unmap};
}

static void collect_maps(struct vm_learn *l)
{
    unsigned left = 0;
    for (unsigned i = 0; i < l->nmaps; i++) {
        struct map_sample *m = &l->maps[i];
        if (vm_drv.p_cuEventQuery(m->end) == CUDA_ERROR_NOT_READY) {
            l->maps[left++] = *m;
            continue;
        }
        double ns = between(m->begin, m->end);
        if (ns > 0)
            vm_cost_map(&l->cost, m->unmap, m->pages, ns);
        give(l, m->begin);
        give(l, m->end);
    }
    l->nmaps = left;
}

/* ---- iterations ------------------------------------------------------------------------------- */

static void drop_marks(struct vm_learn *l)
{
    for (; l->count > 0; l->count--) {
        give(l, l->marks[l->head].event);
        l->head = (l->head + 1) % MARKS;
    }
}

void vm_learn_stop(struct vm_device *d)
{
    struct vm_learn *l = d->learn;
    if (l->on) /* the next plan begins with what is known by now */
        vm_cost_machine(&l->cost, &d->link);
    l->on = false;
    l->wrong = 0;
    drop_marks(l);
}

static void in_force(struct vm_learn *l, const struct vm_plan *p, const struct vm_machine *m,
                     double op_scale)
{
    l->used = *m;
    l->op_scale = op_scale;
    l->predicted_ns = p->predicted_ns;
    l->compute_ns = p->compute_ns;
    l->wrong = 0;
    l->settle = SETTLE;
}

void vm_learn_plan(struct vm_device *d, const struct vm_plan *p, const struct vm_machine *m,
                   double op_scale)
{
    struct vm_learn *l = d->learn;
    drop_marks(l);
    vm_cost_init(&l->cost, m);
    l->patience = WRONG_ROW;
    l->trial = 0;
    l->worse = false;
    in_force(l, p, m, op_scale);
    l->on = p->nactions > 0 && p->compute_ns > 0 && vm_drv.p_cuEventElapsedTime;
}

/* What the plan's times become with what was learnt since it was made. */
static double stall_of(const struct vm_learn *l)
{
    return l->predicted_ns > l->compute_ns ? (double)(l->predicted_ns - l->compute_ns) : 0;
}

static double expected(const struct vm_learn *l)
{
    double compute = (double)l->compute_ns / l->op_scale;
    return vm_cost_predict(&l->cost, compute + stall_of(l), compute);
}

static double error_of(double expected_ns, double measured_ns)
{
    double e = expected_ns - measured_ns;
    return (e < 0 ? -e : e) / measured_ns;
}

/* A plan that was to be better has shown what it takes. */
static void judge(struct vm_learn *l, double measured_ns)
{
    l->trial_ns += measured_ns;
    if (--l->trial > 0)
        return;
    double took = l->trial_ns / TRIAL;
    l->worse = took > l->before_ns;
    if (took < BETTER * l->before_ns)
        l->patience = WRONG_ROW;
    else if (l->patience < 1u << 16)
        l->patience *= 4;
}

static void compare(struct vm_learn *l, double measured_ns)
{
    double compute = (double)l->compute_ns / l->op_scale;
    bool known = vm_cost_strays(&l->cost, &l->used, STRAY_SHARE);
    l->expected_ns = expected(l);
    l->measured_ns = measured_ns;
    l->compared++;
    vm_log(ITERATION_COMPARED, (unsigned long long)(l->predicted_ns / 1000),
           (unsigned long long)(l->expected_ns / 1000), (unsigned long long)(measured_ns / 1000));
    /* What another speed of the links explains is not held against operations or the plan's rest. */
    if (!known)
        vm_cost_correct(&l->cost, compute + stall_of(l), compute, measured_ns);
    known = known || error_of(l->op_scale, l->cost.op_scale) > STRAY_SHARE;
    bool off = error_of((double)l->predicted_ns, measured_ns) > OFF_SHARE;
    l->wrong = known && off && !l->trial ? l->wrong + 1 : 0;
    if (l->trial)
        judge(l, measured_ns);
}

/* Compares the iterations whose end is known. */
static void collect_marks(struct vm_learn *l)
{
    while (l->count >= 2) {
        struct mark *a = &l->marks[l->head], *b = &l->marks[(l->head + 1) % MARKS];
        if (vm_drv.p_cuEventQuery(b->event) != CUDA_SUCCESS)
            return;
        double ns = between(a->event, b->event);
        if (l->settle > 0)
            l->settle--;
        else if (ns > 0 && a->deviations == b->deviations)
            compare(l, ns);
        give(l, a->event);
        l->head = (l->head + 1) % MARKS;
        l->count--;
    }
}

void vm_learn_iteration(struct vm_device *d, struct vm_stream *s, uint64_t deviations)
{
    struct vm_learn *l = d->learn;
    if (!l->on)
        return;
    collect_maps(l);
    collect_marks(l);
    l->copies_left[0] = l->copies_left[1] = COPIES;
    l->maps_left[0] = l->maps_left[1] = MAPS;
    if (l->count == MARKS) /* the device is far behind: begin anew */
        drop_marks(l);
    CUevent e = vm_stream_is_capturing(d, s) ? NULL : record(d, s->handle);
    if (e)
        l->marks[(l->head + l->count++) % MARKS] = (struct mark){e, deviations};
    else
        drop_marks(l);
}

/* ---- another plan ------------------------------------------------------------------------------ */

bool vm_learn_wants_plan(const struct vm_device *d)
{
    return d->learn->on && d->learn->wrong >= d->learn->patience;
}

void vm_learn_belief(const struct vm_device *d, struct vm_machine *m, double *op_scale)
{
    const struct vm_learn *l = d->learn;
    vm_cost_machine(&l->cost, m);
    *op_scale = l->cost.op_scale;
}

/* A plan stays that was made for another belief. It is the same, what is expected of it is not: its stall is
 * as it was seen. */
static void keep_old(struct vm_learn *l, const struct vm_machine *m, double op_scale)
{
    double compute = (double)l->compute_ns / l->op_scale;
    double seen = l->measured_ns - compute * l->cost.op_scale;
    l->wrong = 0;
    l->used = *m;
    l->compute_ns = (uint64_t)(compute * op_scale);
    l->op_scale = op_scale;
    l->predicted_ns = l->compute_ns + (uint64_t)(seen > 0 ? seen / l->cost.stall_scale : 0);
}

bool vm_learn_better(struct vm_device *d, const struct vm_plan *p, const struct vm_machine *m,
                     double op_scale)
{
    struct vm_learn *l = d->learn;
    /* What the old plan took beyond its prediction before the reason was known, a new one is believed to
     * take too. If that is too little the trial will show. */
    double promise = (double)p->predicted_ns + (l->cost.stall_scale - 1) * stall_of(l);
    bool better = promise < BETTER * l->measured_ns;
    vm_log(PLAN_REVISED, better ? "taken" : "not taken, the old one is as good",
           (unsigned long long)(l->predicted_ns / 1000), (unsigned long long)(l->measured_ns / 1000),
           (unsigned long long)(promise / 1000));
    if (better) {
        l->revised++;
        l->before_ns = l->measured_ns;
        l->trial = TRIAL;
        l->trial_ns = 0;
        in_force(l, p, m, op_scale);
        drop_marks(l);
        return true;
    }
    l->kept++;
    keep_old(l, m, op_scale);
    return false;
}

bool vm_learn_wants_back(const struct vm_device *d)
{
    return d->learn->on && d->learn->worse;
}

void vm_learn_went_back(struct vm_device *d)
{
    struct vm_learn *l = d->learn;
    struct vm_machine m;
    double op_scale;
    vm_log(PLAN_BACK, (unsigned long long)(l->trial_ns / TRIAL / 1000),
           (unsigned long long)(l->before_ns / 1000));
    l->worse = false;
    l->revised--;
    l->kept++;
    l->measured_ns = l->before_ns;
    vm_learn_belief(d, &m, &op_scale);
    keep_old(l, &m, op_scale);
    l->settle = SETTLE;
    drop_marks(l);
}

struct vm_learn_figures vm_learn_figures(const struct vm_device *d)
{
    const struct vm_learn *l = d->learn;
    struct vm_learn_figures f = {.compared = l->compared,
                                 .plan_us = l->predicted_ns / 1000,
                                 .expected_us = (uint64_t)(l->expected_ns / 1000),
                                 .measured_us = (uint64_t)(l->measured_ns / 1000),
                                 .revised = l->revised,
                                 .kept = l->kept};
    if (l->measured_ns > 0)
        f.error_ppm = (uint64_t)(error_of(l->expected_ns, l->measured_ns) * 1e6);
    return f;
}
