#include "replan.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "executor.h"
#include "iteration.h"
#include "learn.h"
#include "log.h"
#include "policy.h"
#include "recorder.h"
#include "scope.h"

struct vm_replan {
    pthread_t thread;
    atomic_bool ready;
    bool threaded;
    struct vm_iteration it;
    struct vm_machine machine;
    uint64_t pool_offset;
    struct vm_plan plan;
    struct vm_error why;
    int result;
    bool again;      /* a better plan for the iteration of the one in force */
    double op_scale; /* by what its op times were multiplied                */
    uint64_t offset; /* operations between the plan's first and the next to be issued */
    const struct vm_policy *policy;
};

static const struct vm_policy *policy_in_force(void)
{
    static const struct vm_policy *p;
    const struct vm_policy *now = __atomic_load_n(&p, __ATOMIC_ACQUIRE);
    if (now)
        return now;
    const char *name = vm_config()->policy;
    now = vm_policy_find(name);
    if (!now) {
        vm_log(POLICY_UNKNOWN, name);
        now = vm_policy_find("auto");
    }
    __atomic_store_n(&p, now, __ATOMIC_RELEASE);
    return now;
}

const char *vm_policy_name(void)
{
    return policy_in_force()->name;
}

bool vm_policy_plans(void)
{
    return policy_in_force()->uses_plan;
}

bool vm_policy_pages(void)
{
    return policy_in_force()->may_page;
}

static void make_plan(struct vm_replan *r)
{
    struct vm_policy_input in = {&r->it, &r->machine, r->pool_offset};
    r->result = r->policy->plan(&in, &r->plan, &r->why);
}

static void *worker(void *arg)
{
    struct vm_replan *r = arg;
    vm_scope_depth = 1;
    make_plan(r);
    atomic_store_explicit(&r->ready, true, memory_order_release);
    return NULL;
}

/* The program's signals are not for our thread. */
static int start_worker(struct vm_replan *r)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int e = pthread_create(&r->thread, NULL, worker, r);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return e;
}

static void replan_free(struct vm_device *d)
{
    vm_iteration_fini(&d->replan->it);
    free(d->replan);
    d->replan = NULL;
}

/* Blocks that exist already keep their place; those that must not move are marked. */
static void fix_places(struct vm_device *d, const struct vm_trace *t, struct vm_iteration *it)
{
    for (size_t i = 0; i < it->nblocks; i++) {
        struct vm_iter_block *b = &it->blocks[i];
        if (b->flags & VM_BLK_PERSISTENT)
            b->fixed_offset = t->blocks[b->trace_block].addr - d->base;
    }
    uint32_t *of = malloc((t->nblocks + 1) * sizeof *of);
    if (!of)
        return;
    memset(of, 0xff, (t->nblocks + 1) * sizeof *of);
    for (uint32_t i = 0; i < d->nblocks; i++)
        if (d->blocks[i].live && d->blocks[i].trace != VM_NONE)
            of[d->blocks[i].trace] = i;
    for (size_t i = 0; i < it->nblocks; i++) {
        uint32_t b = of[it->blocks[i].trace_block];
        if (b == VM_NONE)
            continue;
        if (d->blocks[b].kept)
            it->blocks[i].flags |= VM_BLK_KEEP;
        else if (d->blocks[b].sticky > 0)
            it->blocks[i].flags |= VM_BLK_PINNED;
    }
    free(of);
}

/* Operations issued since (and with) the plan's first one, within one iteration. */
static uint64_t offset_now(const struct vm_trace *t, const struct vm_iteration *it)
{
    uint64_t n = 0;
    for (size_t e = it->ops[0].event; e < t->nevents; e++)
        n += t->events[e].kind == VM_EV_OP;
    return n % it->nops;
}

static bool wait_wanted(const struct vm_device *d)
{
    int w = vm_config()->plan_wait;
    return w == VM_PLAN_WAIT_YES || (w == VM_PLAN_WAIT_AUTO && vm_device_simulated(d));
}

static uint64_t mib(uint64_t bytes)
{
    return bytes >> 20;
}

static void take_over(struct vm_device *d)
{
    struct vm_replan *r = d->replan;
    if (r->result != 0) {
        vm_log(PLAN_NONE, r->policy->name, r->why.text);
        vm_recorder_stop(d);
        replan_free(d);
        return;
    }
    struct vm_plan *p = &r->plan;
    vm_log(PLAN_READY, p->policy, (unsigned long long)p->nops,
           (unsigned long long)mib(p->max_live_bytes), (unsigned long long)mib(p->out_bytes),
           (unsigned long long)mib(p->in_bytes), (unsigned long long)(p->predicted_ns / 1000),
           (unsigned long long)(p->compute_ns / 1000));
    uint64_t pages = (p->pool_bytes + d->page_bytes - 1) >> d->page_shift;
    d->pool_next += pages;
    vm_learn_plan(d, p, &r->machine, 1);
    vm_executor_adopt(d, p, &r->it, r->offset);
    vm_recorder_stop(d);
    replan_free(d);
}

/* What a plan may use now. */
static void machine_limits(const struct vm_device *d, struct vm_machine *m)
{
    m->device_bytes = d->max_chunks << d->page_shift;
    m->host_bytes = d->host.limit_slots << d->page_shift;
    m->page_bytes = d->page_bytes;
}

int vm_replan_begin(struct vm_device *d, const struct vm_trace *t, const struct vm_period *p)
{
    const struct vm_policy *policy = policy_in_force();
    if (!policy->uses_plan)
        return VM_NOTFOUND;
    struct vm_replan *r = calloc(1, sizeof *r);
    if (!r)
        return VM_ENOMEM;
    int ret = vm_iteration_build(t, p, &r->it, &r->why);
    if (ret != 0) {
        vm_log(PLAN_NONE, policy->name, r->why.text);
        free(r);
        return ret;
    }
    d->replan = r;
    r->policy = policy;
    fix_places(d, t, &r->it);
    r->offset = offset_now(t, &r->it);
    r->machine = d->link;
    machine_limits(d, &r->machine);
    /* Pools follow each other round the upper half of the space; what still lives in an old one
     * makes a placement fail harmlessly. */
    if (d->pool_next > d->pool_first + (d->npages - d->pool_first) / 2)
        d->pool_next = d->pool_first;
    r->pool_offset = d->pool_next << d->page_shift;
    if (wait_wanted(d) || start_worker(r) != 0) {
        make_plan(r);
        take_over(d);
    } else {
        r->threaded = true;
    }
    return 0;
}

static bool finished(struct vm_replan *r)
{
    if (!r->threaded || !atomic_load_explicit(&r->ready, memory_order_acquire))
        return !r->threaded;
    pthread_join(r->thread, NULL);
    r->threaded = false;
    return true;
}

bool vm_replan_poll(struct vm_device *d)
{
    struct vm_replan *r = d->replan;
    if (r->again) {
        if (!vm_executor_on_plan(d) && finished(r)) { /* the program left the plan meanwhile */
            vm_plan_fini(&r->plan);
            replan_free(d);
        }
        return false;
    }
    r->offset = (r->offset + 1) % r->it.nops;
    if (!finished(r))
        return false;
    take_over(d);
    return true;
}

/* ---- a better plan for the same iteration ------------------------------------------------------ */

static void begin_again(struct vm_device *d)
{
    struct vm_replan *r = calloc(1, sizeof *r);
    if (!r)
        return;
    if (vm_executor_iteration(d, &r->it) != 0) {
        free(r);
        return;
    }
    d->replan = r;
    r->again = true;
    r->policy = policy_in_force();
    vm_learn_belief(d, &r->machine, &r->op_scale);
    machine_limits(d, &r->machine);
    for (size_t k = 0; k < r->it.nops; k++)
        r->it.ops[k].dur_ns = (uint64_t)((double)r->it.ops[k].dur_ns * r->op_scale + 0.5);
    if (wait_wanted(d) || start_worker(r) != 0)
        make_plan(r);
    else
        r->threaded = true;
}

static void end_again(struct vm_device *d)
{
    struct vm_replan *r = d->replan;
    if (r->result == 0) {
        if (vm_learn_better(d, &r->plan, &r->machine, r->op_scale) &&
            vm_executor_revise(d, &r->plan, &r->it) != 0)
            vm_learn_stop(d); /* out of host memory: the old plan goes on, unwatched */
        vm_plan_fini(&r->plan);
    }
    replan_free(d);
}

void vm_replan_between(struct vm_device *d)
{
    if (vm_learn_wants_back(d) && vm_executor_restore(d) == 0)
        vm_learn_went_back(d);
    if (!d->replan && vm_learn_wants_plan(d))
        begin_again(d);
    if (d->replan && d->replan->again && finished(d->replan))
        end_again(d);
}
