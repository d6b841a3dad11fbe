#include "executor.h"

#include <stdlib.h>
#include <string.h>

#include "block.h"
#include "config.h"
#include "hints.h"
#include "iteration.h"
#include "learn.h"
#include "log.h"
#include "pager.h"
#include "recorder.h"
#include "replan.h"
#include "stream.h"

/* How far ahead an operation that was not expected next is looked for. */
#define VM_RESYNC_AHEAD 64u
/* Operations in a row that must match before a lost program counts as back on its plan. */
#define VM_RESYNC_RUN 16u

enum course {
    COURSE_NONE,  /* no plan                                             */
    COURSE_AHEAD, /* plan made in mid-iteration: takes effect at the next */
    COURSE_ON,    /* following                                           */
    COURSE_LOST,  /* the program does something else                     */
};

struct vm_executor {
    enum course course;
    struct vm_plan plan;
    struct vm_plan earlier;      /* the one that `plan` was to better; empty: none */
    struct vm_iteration it;      /* both were made from */
    uint32_t *action_at;         /* first action of each op, nops + 1 entries    */
    uint32_t *mem_at;            /* first allocation or free of each op, nops + 2 */
    uint32_t *birth_at;          /* for each page of the pool: first of its births */
    uint32_t *births;            /* ops before which a block appears on the page, ascending */
    uint64_t first_page, npages; /* of the pool */
    uint64_t *duration_ns;       /* of each op                                   */
    uint32_t *use_at;            /* first use of each block, nblocks + 1         */
    uint32_t *uses;              /* ops that use it, ascending                   */
    uint64_t *placed_in;         /* for each planned block: iteration it was placed in */
    uint64_t k;                  /* the op expected next; nops: between iterations */
    uint64_t iteration;
    unsigned missed; /* operations in a row that were not found in the plan */
    unsigned run;    /* while lost: operations in a row that match from the start */
    uint64_t lost_ops;
    struct {
        uint64_t deviations, out_bytes, in_bytes, demand_moves;
    } before; /* figures at the end of the last iteration */
    uint64_t planned_iterations, deviations;
};

int vm_executor_new(struct vm_device *d)
{
    d->executor = calloc(1, sizeof *d->executor);
    return d->executor ? 0 : VM_ENOMEM;
}

/* ---- adopting a plan --------------------------------------------------------------------------
 */

static void tables_free(struct vm_executor *x)
{
    vm_plan_fini(&x->plan);
    vm_plan_fini(&x->earlier);
    vm_iteration_fini(&x->it);
    free(x->action_at);
    free(x->mem_at);
    free(x->use_at);
    free(x->uses);
    free(x->birth_at);
    free(x->births);
    free(x->duration_ns);
    x->duration_ns = NULL;
    free(x->placed_in);
    x->action_at = x->mem_at = x->use_at = x->uses = x->birth_at = x->births = NULL;
    x->placed_in = NULL;
}

static bool index_uses(struct vm_executor *x, const struct vm_iteration *it)
{
    x->use_at = calloc(it->nblocks + 2, sizeof *x->use_at);
    x->uses = malloc((it->naccesses + 1) * sizeof *x->uses);
    if (!x->use_at || !x->uses)
        return false;
    for (size_t i = 0; i < it->naccesses; i++)
        x->use_at[it->accesses[i].block + 2]++;
    for (size_t b = 2; b < it->nblocks + 2; b++)
        x->use_at[b] += x->use_at[b - 1];
    for (uint32_t k = 0; k < it->nops; k++)
        for (uint32_t i = it->ops[k].acc; i < it->ops[k].acc + it->ops[k].nacc; i++)
            x->uses[x->use_at[it->accesses[i].block + 1]++] = k;
    return true;
}

/* When each page of the pool is next needed by a block that is not there yet. */
static bool index_births(struct vm_executor *x)
{
    const struct vm_plan *p = &x->plan;
    x->first_page = p->pool_offset / p->page_bytes;
    x->npages = (p->pool_bytes + p->page_bytes - 1) / p->page_bytes;
    x->birth_at = calloc(x->npages + 3, sizeof *x->birth_at);
    if (!x->birth_at)
        return false;
    size_t total = 0;
    for (int pass = 0; pass < 2; pass++) {
        /* In the order of allocation, so that each page's list ascends. */
        for (size_t i = 0; i < p->nmem; i++) {
            const struct vm_plan_block *b = &p->blocks[p->mem[i].block];
            if (p->mem[i].is_free || (b->flags & VM_BLK_PERSISTENT))
                continue;
            uint64_t first = b->offset / p->page_bytes,
                     last = (b->offset + b->size - 1) / p->page_bytes;
            for (uint64_t g = first; g <= last; g++) {
                uint64_t at = g - x->first_page;
                if (at >= x->npages)
                    continue;
                if (pass == 0) {
                    x->birth_at[at + 2]++;
                    total++;
                } else {
                    x->births[x->birth_at[at + 1]++] = p->mem[i].op;
                }
            }
        }
        if (pass == 1)
            break;
        for (size_t i = 2; i < x->npages + 3; i++)
            x->birth_at[i] += x->birth_at[i - 1];
        x->births = malloc((total + 1) * sizeof *x->births);
        if (!x->births)
            return false;
    }
    return true;
}

/* First action of each op, and none after the last. NULL: out of host memory. */
static uint32_t *index_actions(const struct vm_plan *p)
{
    uint32_t *at = calloc(p->nops + 2, sizeof *at);
    size_t a = 0;
    for (size_t k = 0; at && k < p->nops; k++) {
        while (a < p->nactions && p->actions[a].op < k)
            a++;
        at[k] = (uint32_t)a;
    }
    if (at)
        at[p->nops] = (uint32_t)p->nactions;
    return at;
}

static bool build_tables(struct vm_executor *x, const struct vm_iteration *it)
{
    const struct vm_plan *p = &x->plan;
    x->action_at = index_actions(p);
    x->mem_at = calloc(p->nops + 3, sizeof *x->mem_at);
    x->placed_in = calloc(p->nblocks + 1, sizeof *x->placed_in);
    x->duration_ns = malloc((p->nops + 1) * sizeof *x->duration_ns);
    if (!x->action_at || !x->mem_at || !x->placed_in || !x->duration_ns || !index_uses(x, it) ||
        !index_births(x))
        return false;
    for (size_t k = 0; k < p->nops; k++)
        x->duration_ns[k] = it->ops[k].dur_ns;
    size_t m = 0;
    for (size_t k = 0; k <= p->nops + 1; k++) {
        while (m < p->nmem && p->mem[m].op < k)
            m++;
        x->mem_at[k] = (uint32_t)m;
    }
    x->mem_at[p->nops + 1] = (uint32_t)p->nmem;
    return true;
}

/* Which of our blocks the plan's persistent ones are. */
static void bind_persistent(struct vm_device *d)
{
    struct vm_executor *x = d->executor;
    uint32_t most = 0;
    for (size_t i = 0; i < x->plan.nblocks; i++)
        if (x->plan.blocks[i].trace_block > most)
            most = x->plan.blocks[i].trace_block;
    uint32_t *of = malloc(((size_t)most + 1) * sizeof *of);
    if (!of)
        return; /* no next-use answers for them: least recently used serves */
    memset(of, 0xff, ((size_t)most + 1) * sizeof *of);
    for (uint32_t i = 0; i < x->plan.nblocks; i++)
        if (x->plan.blocks[i].flags & VM_BLK_PERSISTENT)
            of[x->plan.blocks[i].trace_block] = i;
    for (uint32_t i = 0; i < d->nblocks; i++) {
        struct vm_block *b = &d->blocks[i];
        b->plan_block = VM_NONE;
        if (b->live && b->trace != VM_NONE && b->trace <= most && of[b->trace] != VM_NONE &&
            d->base + x->plan.blocks[of[b->trace]].offset == b->addr)
            b->plan_block = of[b->trace];
    }
    free(of);
}

/* Operations from now to the first of an ascending, cyclic list. */
static uint64_t distance(const struct vm_executor *x, const uint32_t *u, size_t n)
{
    size_t lo = 0, hi = n;
    uint64_t k = x->k == x->plan.nops ? 0 : x->k;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (u[mid] < k)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo < n)
        return u[lo] - k;
    return n > 0 ? u[0] + x->plan.nops - k : 2 * x->plan.nops;
}

static bool next_use(struct vm_device *d, uint64_t page, uint64_t *next)
{
    const struct vm_executor *x = d->executor;
    const struct vm_page *pg = &d->pages[page];
    if (x->course != COURSE_ON)
        return false;
    if (pg->live == 0) {
        uint64_t at = page - x->first_page;
        *next = 2 * x->plan.nops;
        if (at < x->npages)
            *next = distance(x, x->births + x->birth_at[at], x->birth_at[at + 1] - x->birth_at[at]);
        return true;
    }
    uint32_t b = vm_page_is_shared(pg) ? VM_NONE : d->blocks[pg->owner].plan_block;
    if (b == VM_NONE)
        return false;
    *next = distance(x, x->uses + x->use_at[b], x->use_at[b + 1] - x->use_at[b]);
    return true;
}

void vm_executor_adopt(struct vm_device *d, struct vm_plan *plan, struct vm_iteration *it,
                       uint64_t offset)
{
    struct vm_executor *x = d->executor;
    tables_free(x);
    x->plan = *plan;
    memset(plan, 0, sizeof *plan);
    if (!build_tables(x, it)) {
        vm_log(RECORDING_ENDED, "out of host memory");
        tables_free(x);
        x->course = COURSE_NONE;
        return;
    }
    x->it = *it;
    memset(it, 0, sizeof *it);
    bind_persistent(d);
    d->next_use = next_use;
    x->k = offset == 0 ? x->plan.nops : offset;
    x->course = offset == 0 ? COURSE_ON : COURSE_AHEAD;
    x->missed = x->run = 0;
    x->iteration++;
    d->pressure = false;
}

int vm_executor_iteration(const struct vm_device *d, struct vm_iteration *out)
{
    const struct vm_executor *x = d->executor;
    if (x->course != COURSE_ON)
        return VM_NOTFOUND;
    int ret = vm_iteration_copy(&x->it, out);
    for (size_t i = 0; ret == 0 && i < out->nblocks; i++)
        out->blocks[i].fixed_offset = x->plan.blocks[i].offset;
    return ret;
}

static bool same_places(const struct vm_plan *a, const struct vm_plan *b)
{
    bool same = a->nops == b->nops && a->nblocks == b->nblocks && a->nmem == b->nmem &&
                a->page_bytes == b->page_bytes;
    for (size_t i = 0; same && i < a->nblocks; i++)
        same = a->blocks[i].offset == b->blocks[i].offset && a->blocks[i].size == b->blocks[i].size;
    return same;
}

int vm_executor_revise(struct vm_device *d, struct vm_plan *plan, const struct vm_iteration *it)
{
    struct vm_executor *x = d->executor;
    if (x->course != COURSE_ON || !same_places(plan, &x->plan))
        return VM_EINVAL;
    uint32_t *action_at = index_actions(plan);
    if (!action_at)
        return VM_ENOMEM;
    plan->pool_offset = x->plan.pool_offset; /* everything had its place: the new one has no pool */
    plan->pool_bytes = x->plan.pool_bytes;
    vm_plan_fini(&x->earlier);
    x->earlier = x->plan;
    x->plan = *plan;
    memset(plan, 0, sizeof *plan);
    free(x->action_at);
    x->action_at = action_at;
    for (size_t k = 0; k < x->plan.nops; k++)
        x->duration_ns[k] = it->ops[k].dur_ns;
    return 0;
}

int vm_executor_restore(struct vm_device *d)
{
    struct vm_executor *x = d->executor;
    if (x->course != COURSE_ON || !x->earlier.sigs)
        return VM_NOTFOUND;
    uint32_t *action_at = index_actions(&x->earlier);
    if (!action_at)
        return VM_ENOMEM;
    vm_plan_fini(&x->plan);
    x->plan = x->earlier;
    memset(&x->earlier, 0, sizeof x->earlier);
    free(x->action_at);
    x->action_at = action_at;
    return 0;
}

/* ---- following --------------------------------------------------------------------------------
 */

static void deviate(struct vm_device *d, const char *what, uint64_t number)
{
    struct vm_executor *x = d->executor;
    x->deviations++;
    vm_log(DEVIATION, (unsigned long long)x->iteration, (unsigned long long)x->k, what,
           (unsigned long long)number);
}

static void begin_iteration(struct vm_executor *x)
{
    x->k = 0;
    x->iteration++;
}

static bool find_alloc(struct vm_executor *x, uint64_t op, uint64_t iteration, uint64_t bytes,
                       uint32_t *block)
{
    for (uint32_t i = x->mem_at[op]; i < x->mem_at[op + 1]; i++) {
        uint32_t b = x->plan.mem[i].block;
        if (x->plan.mem[i].is_free || x->plan.blocks[b].size != bytes ||
            x->placed_in[b] == iteration)
            continue;
        *block = b;
        return true;
    }
    return false;
}

uint64_t vm_executor_place(struct vm_device *d, uint64_t bytes, uint32_t *plan_block)
{
    struct vm_executor *x = d->executor;
    uint32_t b;
    if (x->course == COURSE_AHEAD && x->k == x->plan.nops)
        x->course = COURSE_ON;
    if (x->course != COURSE_ON)
        return VM_UNPLACED;
    if (!find_alloc(x, x->k, x->iteration, bytes, &b)) {
        bool next = x->k == x->plan.nops && find_alloc(x, 0, x->iteration + 1, bytes, &b);
        if (!next) {
            deviate(d, "an allocation of bytes", bytes);
            return VM_UNPLACED;
        }
        begin_iteration(x);
    }
    x->placed_in[b] = x->iteration;
    *plan_block = b;
    return x->plan.blocks[b].offset;
}

void vm_executor_freed(struct vm_device *d, const struct vm_block *b)
{
    struct vm_executor *x = d->executor;
    if (x->course != COURSE_ON || b->plan_block == VM_NONE)
        return;
    if (x->plan.blocks[b->plan_block].flags & VM_BLK_PERSISTENT)
        deviate(d, "a long-lived block was freed, bytes", b->size);
}

/* Contents may be given up only if the user said so, and only of pages whose block is where the
 * plan thinks it is: the plan says that they are overwritten next, and a plan can be wrong. */
static bool may_drop(const struct vm_device *d, uint64_t page)
{
    const struct vm_page *pg = &d->pages[page];
    if (pg->live == 0)
        return true;
    return vm_config()->drop && !vm_page_is_shared(pg) &&
           d->blocks[pg->owner].plan_block != VM_NONE;
}

static void fire_out(struct vm_device *d, uint64_t page, bool drop)
{
    const struct vm_page *pg = &d->pages[page];
    drop = drop && may_drop(d, page);
    if (!drop && pg->live > 0 && !vm_page_is_shared(pg) &&
        vm_block_droppable(d, &d->blocks[pg->owner]))
        drop = true;
    vm_pager_out(d, page, d->g, drop);
}

static void fire_copy(struct vm_device *d, uint64_t page)
{
    const struct vm_page *pg = &d->pages[page];
    if (pg->live > 0 && (vm_page_is_shared(pg) || !vm_block_droppable(d, &d->blocks[pg->owner])))
        vm_pager_copy(d, page, d->g);
}

/* Does the operation that the pages of an action come back for write their block? */
static bool comes_to_write(const struct vm_device *d, const struct vm_plan_action *a)
{
    const struct vm_executor *x = d->executor;
    const struct vm_page *pg = &d->pages[a->page];
    const struct vm_iter_op *op = &x->it.ops[a->need_op % x->plan.nops];
    if (a->kind != VM_ACT_IN || pg->live == 0 || vm_page_is_shared(pg))
        return false;
    for (uint32_t i = op->acc; i < op->acc + op->nacc; i++)
        if (x->it.accesses[i].block == d->blocks[pg->owner].plan_block)
            return (x->it.accesses[i].mode & VM_WRITE) != 0;
    return false;
}

static void fire(struct vm_device *d, uint64_t op)
{
    struct vm_executor *x = d->executor;
    /* The frontier of now, not of whenever somebody asks: the host runs far ahead of the device. */
    if (x->action_at[op] < x->action_at[op + 1])
        vm_streams_tick(d);
    for (uint32_t i = x->action_at[op]; i < x->action_at[op + 1]; i++) {
        const struct vm_plan_action *a = &x->plan.actions[i];
        bool to_write = a->page < d->npages && comes_to_write(d, a);
        for (uint64_t p = a->page; p < a->page + a->npages && p < d->npages; p++) {
            if (a->kind == VM_ACT_IN)
                vm_pager_in(d, p, to_write);
            else if (a->kind == VM_ACT_COPY)
                fire_copy(d, p);
            else
                fire_out(d, p, a->kind == VM_ACT_DROP);
        }
    }
}

static void lose(struct vm_device *d)
{
    struct vm_executor *x = d->executor;
    vm_log(PLAN_LOST, (unsigned long long)x->iteration);
    x->course = COURSE_LOST;
    vm_learn_stop(d);
    x->lost_ops = 0;
    x->run = 0;
    d->pressure = true;
    vm_recorder_restart(d);
}

/* The operation is not the one expected: a little further on, or not in the plan here at all. */
static bool resync(struct vm_device *d, const struct vm_op *op)
{
    struct vm_executor *x = d->executor;
    uint64_t n = x->plan.nops, far = n < VM_RESYNC_AHEAD ? n : VM_RESYNC_AHEAD;
    deviate(d, "an operation, signature", op->sig);
    for (uint64_t i = 1; i < far; i++) {
        uint64_t k = (x->k + i) % n;
        if (x->plan.sigs[k] != op->sig)
            continue;
        if (k < x->k)
            begin_iteration(x);
        x->k = k;
        x->missed = 0;
        return true;
    }
    if (++x->missed > VM_RESYNC_AHEAD && x->missed > n / 8)
        lose(d);
    return false;
}

/* Lost: the plan is taken up again when its beginning is seen. */
static void seek(struct vm_executor *x, const struct vm_op *op)
{
    uint64_t need = x->plan.nops < VM_RESYNC_RUN ? x->plan.nops : VM_RESYNC_RUN;
    if (op->sig != x->plan.sigs[x->run])
        x->run = op->sig == x->plan.sigs[0] ? 1 : 0;
    else
        x->run++;
    if (x->run < need)
        return;
    x->course = COURSE_AHEAD;
    x->k = x->run;
    x->missed = x->run = 0;
}

static void report_iteration(struct vm_device *d)
{
    struct vm_executor *x = d->executor;
    vm_log(ITERATION_PLANNED, (unsigned long long)x->iteration,
           (unsigned long long)(x->deviations - x->before.deviations),
           (unsigned long long)((d->out_bytes - x->before.out_bytes) >> 20),
           (unsigned long long)((d->in_bytes - x->before.in_bytes) >> 20),
           (unsigned long long)(d->demand_moves - x->before.demand_moves));
    x->before.deviations = x->deviations;
    x->before.out_bytes = d->out_bytes;
    x->before.in_bytes = d->in_bytes;
    x->before.demand_moves = d->demand_moves;
}

static bool matched(struct vm_device *d, const struct vm_op *issued)
{
    struct vm_executor *x = d->executor;
    uint64_t op = x->k++;
    if (x->course == COURSE_ON) {
        if (op == 0)
            vm_learn_iteration(d, issued->stream_state, x->deviations);
        fire(d, op);
    }
    if (x->k < x->plan.nops)
        return x->course == COURSE_ON;
    if (x->course == COURSE_ON) {
        x->planned_iterations += x->it.periods;
        report_iteration(d);
        vm_replan_between(d);
    } else {
        x->course = COURSE_ON;
        vm_recorder_stop(d); /* it may have been lost before: nothing to record any more */
    }
    return true;
}

uint64_t vm_executor_duration(const struct vm_device *d, uint64_t sig)
{
    const struct vm_executor *x = d->executor;
    if (!vm_executor_pages(d))
        return 0;
    uint64_t k = x->k == x->plan.nops ? 0 : x->k;
    return x->plan.sigs[k] == sig ? x->duration_ns[k] : 0;
}

uint64_t vm_executor_window(const struct vm_device *d)
{
    return vm_executor_pages(d) ? d->executor->plan.window_ns : 0;
}

bool vm_executor_spares_link(const struct vm_device *d)
{
    const struct vm_plan *p = &d->executor->plan;
    return vm_executor_pages(d) && p->predicted_ns <= p->compute_ns + p->compute_ns / 50;
}

bool vm_executor_on_plan(const struct vm_device *d)
{
    return d->executor->course == COURSE_ON;
}

bool vm_executor_pages(const struct vm_device *d)
{
    return d->executor->course == COURSE_ON && d->executor->plan.nactions > 0;
}

bool vm_executor_op(struct vm_device *d, const struct vm_op *op)
{
    struct vm_executor *x = d->executor;
    if (d->replan && vm_replan_poll(d)) /* the new plan counts from the next operation on */
        return x->course == COURSE_ON;
    if (x->course == COURSE_NONE)
        return false;
    if (x->course == COURSE_LOST) {
        x->lost_ops++;
        seek(x, op);
        return false;
    }
    if (x->k == x->plan.nops)
        begin_iteration(x);
    if (x->plan.sigs[x->k] != op->sig && !resync(d, op))
        return x->course == COURSE_ON;
    x->missed = 0;
    return matched(d, op);
}

/* ---- figures ----------------------------------------------------------------------------------
 */

void vm_device_stats(struct vm_device *d, struct vmem_stats *s)
{
    const struct vm_executor *x = d->executor;
    uint32_t state = x->course == COURSE_NONE || x->course == COURSE_AHEAD ? 1
                     : x->course == COURSE_ON                              ? 2
                                                                           : 3;
    if (state > s->state)
        s->state = state;
    s->budget_bytes += d->max_chunks << d->page_shift;
    s->device_bytes += d->mapped_chunks << d->page_shift;
    s->peak_device_bytes += d->peak_chunks << d->page_shift;
    s->block_bytes += d->block_bytes;
    s->peak_block_bytes += d->peak_block_bytes;
    s->host_bytes += (uint64_t)d->host.in_use << d->page_shift;
    s->out_bytes += d->out_bytes;
    s->in_bytes += d->in_bytes;
    s->iterations += vm_recorder_iterations(d) + x->planned_iterations;
    s->planned_iterations += x->planned_iterations;
    s->deviations += x->deviations;
    s->demand_moves += d->demand_moves;
    s->regenerated += d->regenerated;
    s->dropped_bytes += d->dropped_bytes;
}
