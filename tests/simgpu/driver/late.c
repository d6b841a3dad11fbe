/* Functional mode: ready operations execute in an order drawn from the seed, and only when the host
 * waits, polls or fills a queue: as late as streams and events allow. Two ways of being unfair are
 * drawn at each wait: nothing runs but what the wait needs, or one stream is favoured and the
 * others starve until nothing else can run. */
#include "sg_sched.h"

#include <stdlib.h>

static struct sg_op **ready;
static size_t nready, cready;
static unsigned epoch;

void sg_late_ready(struct sg_op *op)
{
    op->state = SG_READY;
    if (nready == cready) {
        size_t c = cready ? cready * 2 : 64;
        struct sg_op **p = realloc(ready, c * sizeof *p);
        if (!p)
            abort(); /* the simulator itself is out of memory */
        ready = p;
        cready = c;
    }
    ready[nready++] = op;
}

static void reshuffle(void)
{
    for (size_t i = 0; i < nready; i++)
        ready[i]->stream->weight = (unsigned)(sg_random() & 0xffff);
}

/* Marks the pending operations that target waits for; answers whether only those shall run. */
bool sg_late_need(struct sg_op *target)
{
    static struct sg_op **stack;
    static size_t cstack;
    size_t n = 0;
    reshuffle();
    if (sg_random() % 2)
        return false;
    epoch++;
    target->mark = epoch;
    for (struct sg_op *op = target; op; op = n ? stack[--n] : NULL) {
        if (n + op->nin > cstack) {
            cstack = (n + op->nin) * 2 + 64;
            struct sg_op **p = realloc(stack, cstack * sizeof *p);
            if (!p)
                abort(); /* the simulator itself is out of memory */
            stack = p;
        }
        for (unsigned i = 0; i < op->nin; i++)
            if (op->in[i]->state != SG_DONE && op->in[i]->mark != epoch) {
                op->in[i]->mark = epoch;
                stack[n++] = op->in[i];
            }
    }
    return true;
}

/* The first of the heaviest streams, from a random start. */
static size_t choose(bool only_needed)
{
    size_t best = nready, start = (size_t)(sg_random() % nready);
    for (size_t k = 0; k < nready; k++) {
        size_t i = (start + k) % nready;
        if (only_needed && ready[i]->mark != epoch)
            continue;
        if (best == nready || ready[i]->stream->weight > ready[best]->stream->weight)
            best = i;
    }
    return best;
}

bool sg_late_step(struct sg_op *target, bool only_needed)
{
    (void)target;
    if (sg.parked)
        sg_memop_recheck();
    if (!nready)
        return false;
    size_t i = choose(only_needed);
    if (i == nready)
        return false;
    struct sg_op *op = ready[i];
    ready[i] = ready[--nready];
    if (!sg_memop_ready(op)) {
        sg_memop_park(op);
        return true;
    }
    if (sg_random() % 8 == 0)
        op->stream->weight = (unsigned)(sg_random() & 0xffff);
    op->state = SG_RUNNING;
    op->start_ns = op->ready_ns;
    sg_execute(op);
    double ns = sg_duration(op);
    if (op->kind == SG_OP_HOSTFN)
        sg_run_hostfn(op);
    uint64_t end = op->start_ns + (uint64_t)ns;
    if (op->engine != SG_ENG_NONE)
        sg.dev[op->device].engine[op->engine].busy_ns += (uint64_t)ns;
    if (end > sg.dev_ns)
        sg.dev_ns = end;
    sg_op_done(op, end);
    return true;
}
