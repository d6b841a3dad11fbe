/* Operations: their life, their edges, and the rules of streams that make edges. */
#include "sg.h"
#include "sg_sched.h"
#include "sg_threads.h"

#include <stdlib.h>
#include <string.h>

struct sg_op *sg_op_new(enum sg_op_kind kind, enum sg_engine_id engine)
{
    struct sg_op *op = calloc(1, sizeof *op);
    if (!op)
        return NULL;
    op->kind = kind;
    op->engine = engine;
    op->refs = 1;
    return op;
}

/* Frees what the operation carries; it stays as a mark of what was done. */
static void op_clear(struct sg_op *op)
{
    if (op->kind == SG_OP_KERNEL) {
        free(op->u.kernel.params);
        op->u.kernel.params = NULL;
        if (op->u.kernel.fn)
            sg_module_unuse(op->u.kernel.fn->mod);
        op->u.kernel.fn = NULL;
    } else if (op->kind == SG_OP_COPY) {
        free(op->u.copy.staged);
        op->u.copy.staged = NULL;
    } else if (op->kind == SG_OP_MEMOP) {
        sg_shared_event_drop(&op->u.memop);
    }
}

void sg_op_unref(struct sg_op *op)
{
    if (!op || --op->refs)
        return;
    op_clear(op);
    for (unsigned i = 0; i < op->nin; i++)
        sg_op_unref(op->in[i]);
    sg_race_clock_free(op);
    free(op->in);
    free(op->out);
    free(op);
}

static bool push(struct sg_op ***v, unsigned *n, unsigned *cap, struct sg_op *op)
{
    if (*n == *cap) {
        unsigned c = *cap ? *cap * 2 : 2;
        struct sg_op **p = realloc(*v, c * sizeof *p);
        if (!p)
            return false;
        *v = p;
        *cap = c;
    }
    (*v)[(*n)++] = op;
    return true;
}

/* op starts only when pred is done. */
void sg_op_after(struct sg_op *op, struct sg_op *pred)
{
    if (!pred || pred == op)
        return;
    if (sg.cfg.racecheck)
        sg_race_join(op, pred);
    if (pred->state == SG_DONE) {
        if (sg.cfg.mode == SG_FUNCTIONAL && pred->end_ns > op->ready_ns)
            op->ready_ns = pred->end_ns;
        return;
    }
    if (!push(&pred->out, &pred->nout, &pred->cout, op))
        abort(); /* the simulator itself is out of memory: no answer would be right */
    op->ndeps++;
    if (sg.cfg.mode == SG_FUNCTIONAL && push(&op->in, &op->nin, &op->cin, pred))
        pred->refs++;
}

static bool blocking(const struct sg_stream *s)
{
    return !(s->flags & CU_STREAM_NON_BLOCKING);
}

/* Edges of stream order and of the legacy default stream's rules. */
static void stream_edges(struct sg_stream *s, struct sg_op *op)
{
    sg_op_after(op, s->last);
    if (s->legacy) {
        if (sg.cfg.racecheck)
            sg_race_join_retired(op, s->ctx);
        for (struct sg_stream *t = s->ctx->streams; t; t = t->next)
            if (t != s && blocking(t))
                sg_op_after(op, t->last);
    } else if (blocking(s) && s->ctx->legacy) {
        sg_op_after(op, s->ctx->legacy->last);
    }
}

/* First half of an enqueue: the caller may add edges before sg_enqueue_end. */
void sg_enqueue_begin(struct sg_stream *s, struct sg_op *op, unsigned lane)
{
    op->ctx = s->ctx;
    op->stream = s;
    op->device = s->ctx->device;
    op->prio = s->prio;
    op->seq = ++sg.seq;
    op->issue_ns = sg.host_ns;
    op->correlation = sg_activity_correlation();
    op->ready_ns = sg.host_ns;
    op->ndeps = 1; /* held until the edges are made */
    op->refs++;    /* the pending one */
    if (sg.cfg.racecheck)
        sg_race_issue(op, lane);
    if (op->kind == SG_OP_HOSTFN) {
        sg.hostfns_pending++;
        sg_thread_keep_going();
    }
    s->pending++;
    s->ctx->pending++;
    sg.pending++;
}

void sg_enqueue_end(struct sg_op *op)
{
    if (--op->ndeps == 0)
        sg_sched_ready(op, op->ready_ns);
}

static void enqueue(struct sg_stream *s, struct sg_op *op)
{
    sg_enqueue_wait(s, op, NULL);
}

/* As enqueue; op also waits for `other`, of whatever stream. */
void sg_enqueue_wait(struct sg_stream *s, struct sg_op *op, struct sg_op *other)
{
    sg_enqueue_begin(s, op, s->lane);
    stream_edges(s, op);
    sg_op_after(op, other);
    struct sg_op *old = s->last;
    s->last = op;
    op->refs++;
    sg_op_unref(old);
    sg_enqueue_end(op);
}

CUresult sg_submit(struct sg_stream *s, struct sg_op *op)
{
    if (s->capture)
        return sg_capture_add(s, op);
    CUresult r = sg_capture_check_legacy(s);
    if (r != CUDA_SUCCESS) {
        sg_op_unref(op);
        return r;
    }
    enqueue(s, op);
    sg_sched_bound(s);
    sg_op_unref(op);
    return CUDA_SUCCESS;
}

void sg_stream_release(struct sg_stream *s)
{
    if (!s->destroyed || s->pending)
        return;
    struct sg_stream **p = &s->ctx->streams;
    while (*p && *p != s)
        p = &(*p)->next;
    if (*p)
        *p = s->next;
    if (sg.cfg.racecheck) {
        if (s->last)
            sg_race_retire(s->ctx, s->last);
        sg_race_lane_drop(s->lane);
    }
    sg_op_unref(s->last);
    free(s->front);
    free(s);
}

/* Bookkeeping of a completion; the schedulers call it once for each operation. */
void sg_op_done(struct sg_op *op, uint64_t at)
{
    struct sg_stream *s = op->stream;
    op->state = SG_DONE;
    op->end_ns = at;
    sg_activity_op(op);
    for (unsigned i = 0; i < op->nout; i++) {
        struct sg_op *next = op->out[i];
        if (at > next->ready_ns)
            next->ready_ns = at;
        if (--next->ndeps == 0)
            sg_sched_ready(next, next->ready_ns);
    }
    for (unsigned i = 0; i < op->nin; i++)
        sg_op_unref(op->in[i]);
    free(op->out);
    free(op->in);
    op->out = op->in = NULL;
    op->nout = op->cout = op->nin = op->cin = 0;
    op_clear(op);
    op->stream = NULL;
    sg.pending--;
    s->pending--;
    s->ctx->pending--;
    sg_stream_release(s);
    sg_op_unref(op);
}

void sg_op_describe(const struct sg_op *op, char *buf, size_t n)
{
    char what[160] = "?";
    switch (op->kind) {
    case SG_OP_KERNEL:
        snprintf(what, sizeof what, "kernel %s", op->u.kernel.name);
        break;
    case SG_OP_COPY:
        snprintf(what, sizeof what, "copy %s to %s", op->u.copy.src_host ? "host" : "device",
                 op->u.copy.dst_host ? "host" : "device");
        break;
    case SG_OP_MEMSET:
        snprintf(what, sizeof what, "memset");
        break;
    case SG_OP_HOSTFN:
        snprintf(what, sizeof what, "host function");
        break;
    case SG_OP_EVENT:
        snprintf(what, sizeof what, "event record");
        break;
    case SG_OP_FREE:
        snprintf(what, sizeof what, "stream-ordered free");
        break;
    case SG_OP_MEMOP:
        snprintf(what, sizeof what, "%s of a %s", op->u.memop.wait ? "wait" : "write",
                 op->u.memop.event ? "shared event" : "word");
        break;
    case SG_OP_NOP:
        snprintf(what, sizeof what, "join");
        break;
    }
    snprintf(buf, n, "%s (operation %llu, stream lane %u)", what, (unsigned long long)op->seq,
             op->lane);
}
