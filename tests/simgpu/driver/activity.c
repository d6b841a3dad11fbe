/* The table that the simulated CUPTI gets from cuGetExportTable (simgpu_activity.h), and what it is
 * told of. Without a listener an operation and a call cost one comparison each. */
#include "sg.h"

#include <string.h>

#include "simgpu_activity.h"

static void (*sink)(const struct simgpu_activity *); /* guarded by sg.lock */
static _Thread_local uint32_t correlation;
static _Thread_local uint64_t began_ns;
static _Thread_local struct sg_ctx *made, *ended; /* by the call under way */
static uint32_t calls;                    /* guarded by sg.lock */
static int runtime_told;                  /* read by the runtime without the lock */
static _Thread_local uint32_t within;     /* number of the runtime's call under way, or 0 */
static _Thread_local uint64_t runtime_began_ns;

static void tell_begin(void)
{
    struct simgpu_activity a = {.kind = SIMGPU_ACT_BEGIN, .start_ns = sg.host_ns};
    if (sink)
        sink(&a);
}

void sg_activity_call_begins(void)
{
    if (!within)
        tell_begin();
    correlation = within ? within : ++calls;
    began_ns = sg.host_ns;
    made = ended = NULL;
}

uint32_t sg_activity_correlation(void)
{
    return correlation;
}

void sg_activity_context(struct sg_ctx *c, bool ends)
{
    *(ends ? &ended : &made) = c;
}

/* Under the lock; what is to be told after it was given back is left in *after. */
void sg_activity_call_ends(enum sg_id id, CUresult r, struct sg_told *after)
{
    after->sink = NULL;
    if (!sink || !sg.inited)
        return;
    struct simgpu_activity a = {.kind = SIMGPU_ACT_CALL,
                                .start_ns = began_ns,
                                .end_ns = sg.host_ns,
                                .issue_ns = began_ns,
                                .correlation = correlation,
                                .within = within,
                                .name = sg_names[id],
                                .u.call.result = (int)r};
    sink(&a);
    after->sink = sink;
    const struct sg_ctx *c = made ? made : ended;
    after->ctx = c;
    after->ends = !made && ended;
    after->now_ns = sg.host_ns;
    if (c) {
        after->device = (uint32_t)c->device;
        after->id = (uint32_t)c->id;
    }
}

void sg_activity_tell(const struct sg_told *t)
{
    if (!t->sink)
        return;
    if (t->ctx) {
        struct simgpu_activity a = {.kind = t->ends ? SIMGPU_ACT_CONTEXT_END : SIMGPU_ACT_CONTEXT,
                                    .device = t->device,
                                    .context = t->id,
                                    .u.context.handle = (CUcontext)t->ctx};
        t->sink(&a);
    }
    struct simgpu_activity a = {.kind = SIMGPU_ACT_RETURN, .end_ns = t->now_ns};
    t->sink(&a);
}

static enum simgpu_place place(bool host, bool pageable)
{
    return !host ? SIMGPU_AT_DEVICE : pageable ? SIMGPU_AT_PAGEABLE : SIMGPU_AT_PINNED;
}

/* An operation is done; it still has its stream and its contents. */
void sg_activity_op(const struct sg_op *op)
{
    if (!sink)
        return;
    struct simgpu_activity a = {.start_ns = op->start_ns,
                                .end_ns = op->end_ns,
                                .issue_ns = op->issue_ns,
                                .correlation = op->correlation,
                                .device = (uint32_t)op->device,
                                .context = (uint32_t)op->ctx->id,
                                .stream = (uint32_t)op->stream->id};
    switch (op->kind) {
    case SG_OP_KERNEL:
        a.kind = SIMGPU_ACT_KERNEL;
        a.name = op->u.kernel.name;
        memcpy(a.u.kernel.grid, op->u.kernel.grid, sizeof a.u.kernel.grid);
        memcpy(a.u.kernel.block, op->u.kernel.block, sizeof a.u.kernel.block);
        a.u.kernel.shared = op->u.kernel.shared;
        break;
    case SG_OP_COPY: {
        const struct sg_copy *c = &op->u.copy;
        a.kind = SIMGPU_ACT_COPY;
        a.u.copy.bytes = c->width * c->height * c->depth;
        a.u.copy.from = place(c->src_host, c->from_pageable);
        a.u.copy.to = place(c->dst_host, c->to_pageable);
        if (!c->src_host)
            a.device = (uint32_t)c->src_dev;
        a.u.copy.to_device = c->dst_host ? a.device : (uint32_t)c->dst_dev;
        break;
    }
    case SG_OP_MEMSET:
        a.kind = SIMGPU_ACT_MEMSET;
        a.u.memset.bytes = op->u.memset.width * op->u.memset.elem * op->u.memset.height;
        a.u.memset.value = op->u.memset.value;
        break;
    default:
        return;
    }
    sink(&a);
}

/* ---- the table -------------------------------------------------------------------------------- */

static void table_listen(void (*to)(const struct simgpu_activity *), int runtime)
{
    pthread_mutex_lock(&sg.lock);
    sink = to;
    __atomic_store_n(&runtime_told, to && runtime, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&sg.lock);
}

static uint64_t table_now(void)
{
    pthread_mutex_lock(&sg.lock);
    uint64_t ns = sg.host_ns;
    pthread_mutex_unlock(&sg.lock);
    return ns;
}

static uint32_t table_context(CUcontext ctx)
{
    struct sg_ctx *c = (struct sg_ctx *)ctx;
    pthread_mutex_lock(&sg.lock);
    uint32_t id = sg_handle_is(SG_H_CTX, c) ? (uint32_t)c->id : 0;
    pthread_mutex_unlock(&sg.lock);
    return id;
}

static uint32_t table_stream(CUcontext ctx, CUstream stream)
{
    struct sg_ctx *c = (struct sg_ctx *)ctx;
    uint32_t id = 0;
    pthread_mutex_lock(&sg.lock);
    if (sg_handle_is(SG_H_STREAM, stream))
        id = (uint32_t)((struct sg_stream *)stream)->id;
    else if ((stream == NULL || stream == CU_STREAM_LEGACY) && sg_handle_is(SG_H_CTX, c))
        id = (uint32_t)c->legacy->id;
    pthread_mutex_unlock(&sg.lock);
    return id;
}

static void table_runtime_begins(void)
{
    pthread_mutex_lock(&sg.lock);
    tell_begin();
    within = ++calls;
    runtime_began_ns = sg.host_ns;
    pthread_mutex_unlock(&sg.lock);
}

static void table_runtime_ends(const char *name, int result)
{
    pthread_mutex_lock(&sg.lock);
    struct simgpu_activity a = {.kind = SIMGPU_ACT_RUNTIME,
                                .start_ns = runtime_began_ns,
                                .end_ns = sg.host_ns,
                                .issue_ns = runtime_began_ns,
                                .correlation = within,
                                .name = name,
                                .u.call.result = result};
    if (sink && within)
        sink(&a);
    within = 0;
    pthread_mutex_unlock(&sg.lock);
}

const void *sg_activity_table(const CUuuid *id)
{
    static const CUuuid ours = SIMGPU_ACTIVITY_ID;
    static const struct simgpu_activity_table table = {.bytes = sizeof table,
                                                       .listen = table_listen,
                                                       .now_ns = table_now,
                                                       .stream_id = table_stream,
                                                       .context_id = table_context,
                                                       .runtime_told = &runtime_told,
                                                       .runtime_begins = table_runtime_begins,
                                                       .runtime_ends = table_runtime_ends};
    return memcmp(id, &ours, sizeof ours) == 0 ? &table : NULL;
}
