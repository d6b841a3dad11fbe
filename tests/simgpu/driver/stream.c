/* Streams, events and host functions. */
#include "sg.h"

#include <stdlib.h>
#include <string.h>

struct sg_stream *sg_stream_new(struct sg_ctx *c, unsigned flags, int prio)
{
    struct sg_stream *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->ctx = c;
    s->flags = flags;
    s->prio = prio > 0 ? 0 : prio < -(SG_MAX_PRIOS - 1) ? -(SG_MAX_PRIOS - 1) : prio;
    s->id = ++sg.next_id;
    s->lane = sg.cfg.racecheck ? sg_race_lane_new() : 0;
    s->next = c->streams;
    c->streams = s;
    return s;
}

/* The per-thread default streams of this thread; one for each context it used. */
static _Thread_local struct sg_stream *mine[SG_MAX_DEVICES];

static CUresult per_thread(struct sg_ctx *c, struct sg_stream **out)
{
    struct sg_stream **slot = &mine[c->device];
    if (!*slot || (*slot)->ctx != c) {
        *slot = sg_stream_new(c, CU_STREAM_DEFAULT, 0);
        SG_CHECK(*slot, CUDA_ERROR_OUT_OF_MEMORY);
    }
    *out = *slot;
    return CUDA_SUCCESS;
}

CUresult sg_stream_of(CUstream hs, struct sg_stream **out)
{
    struct sg_ctx *c;
    SG_TRY(sg_current(&c));
    if (hs == CU_STREAM_PER_THREAD || (hs == NULL && sg.ptds))
        return per_thread(c, out);
    if (hs == NULL || hs == CU_STREAM_LEGACY) {
        *out = c->legacy;
        return CUDA_SUCCESS;
    }
    struct sg_stream *s = (struct sg_stream *)hs;
    SG_CHECK(sg_handle_is(SG_H_STREAM, s), CUDA_ERROR_INVALID_HANDLE);
    SG_CHECK(!s->ctx->dead, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    SG_CHECK(s->ctx->sticky == CUDA_SUCCESS, s->ctx->sticky);
    *out = s;
    return CUDA_SUCCESS;
}

static CUresult create(CUstream *out, unsigned flags, int prio)
{
    struct sg_ctx *c;
    SG_CHECK(out && !(flags & ~1u), CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_current(&c));
    struct sg_stream *s = sg_stream_new(c, flags, prio);
    SG_CHECK(s, CUDA_ERROR_OUT_OF_MEMORY);
    sg_handle_add(SG_H_STREAM, s);
    *out = (CUstream)s;
    return CUDA_SUCCESS;
}
SG_CALL(cuStreamCreate, (CUstream * out, unsigned flags), (out, flags))
{
    return create(out, flags, 0);
}
SG_CALL(cuStreamCreateWithPriority, (CUstream * out, unsigned flags, int prio), (out, flags, prio))
{
    return create(out, flags, prio);
}

/* Returns at once; work that is pending still executes. */
static CUresult destroy(CUstream hs)
{
    struct sg_stream *s = (struct sg_stream *)hs;
    SG_CHECK(sg_handle_is(SG_H_STREAM, s), CUDA_ERROR_INVALID_HANDLE);
    SG_CHECK(!s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    sg_handle_drop(SG_H_STREAM, s);
    s->destroyed = true;
    sg_stream_release(s);
    return CUDA_SUCCESS;
}
SG_CALL(cuStreamDestroy, (CUstream hs), (hs))
{
    return destroy(hs);
}
SG_CALL(cuStreamDestroy_v2, (CUstream hs), (hs))
{
    return destroy(hs);
}

SG_CALL_S(cuStreamSynchronize, cuStreamSynchronize_ptsz, (CUstream hs), (hs))
{
    struct sg_stream *s;
    SG_TRY(sg_stream_of(hs, &s));
    SG_TRY(sg_capture_check_sync(s));
    struct sg_ctx *c = s->ctx;
    if (s->legacy) { /* stands for every blocking stream as well */
        for (struct sg_stream *t = c->streams; t;) {
            struct sg_op *last = t->flags & CU_STREAM_NON_BLOCKING ? NULL : t->last;
            bool wait = last && last->state != SG_DONE;
            if (wait)
                sg_wait(last);
            t = wait ? c->streams : t->next;
        }
    }
    CUresult r = sg_wait(s->last);
    sg_pool_idle();
    return r == CUDA_SUCCESS ? c->sticky : r;
}

SG_CALL_S(cuStreamQuery, cuStreamQuery_ptsz, (CUstream hs), (hs))
{
    struct sg_stream *s;
    SG_TRY(sg_stream_of(hs, &s));
    SG_TRY(sg_capture_check_sync(s));
    bool done = sg_poll(s->last);
    SG_CHECK(s->ctx->sticky == CUDA_SUCCESS, s->ctx->sticky);
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

SG_CALL_S(cuStreamGetFlags, cuStreamGetFlags_ptsz, (CUstream hs, unsigned *flags), (hs, flags))
{
    struct sg_stream *s;
    SG_CHECK(flags, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_stream_of(hs, &s));
    *flags = s->flags;
    return CUDA_SUCCESS;
}
SG_CALL_S(cuStreamGetPriority, cuStreamGetPriority_ptsz, (CUstream hs, int *prio), (hs, prio))
{
    struct sg_stream *s;
    SG_CHECK(prio, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_stream_of(hs, &s));
    *prio = s->prio;
    return CUDA_SUCCESS;
}
SG_CALL_S(cuStreamGetId, cuStreamGetId_ptsz, (CUstream hs, unsigned long long *id), (hs, id))
{
    struct sg_stream *s;
    SG_CHECK(id, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_stream_of(hs, &s));
    *id = s->id;
    return CUDA_SUCCESS;
}
SG_CALL_S(cuStreamGetDevice, cuStreamGetDevice_ptsz, (CUstream hs, CUdevice *dev), (hs, dev))
{
    struct sg_stream *s;
    SG_CHECK(dev, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_stream_of(hs, &s));
    *dev = s->ctx->device;
    return CUDA_SUCCESS;
}
SG_CALL_S(cuStreamGetCtx, cuStreamGetCtx_ptsz, (CUstream hs, CUcontext *ctx), (hs, ctx))
{
    struct sg_stream *s;
    SG_CHECK(ctx, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_stream_of(hs, &s));
    *ctx = (CUcontext)s->ctx;
    return CUDA_SUCCESS;
}
SG_CALL_S(cuStreamGetCtx_v2, cuStreamGetCtx_v2_ptsz,
          (CUstream hs, CUcontext *ctx, CUgreenCtx *green), (hs, ctx, green))
{
    struct sg_stream *s;
    SG_TRY(sg_stream_of(hs, &s));
    if (ctx)
        *ctx = (CUcontext)s->ctx;
    if (green)
        *green = NULL;
    return CUDA_SUCCESS;
}

static struct sg_event *event_of(CUevent e)
{
    return sg_handle_is(SG_H_EVENT, e) ? (struct sg_event *)e : NULL;
}

/* ---- events ---- */
SG_CALL(cuEventCreate, (CUevent * out, unsigned flags), (out, flags))
{
    struct sg_ctx *c;
    SG_CHECK(out && !(flags & ~7u), CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_current(&c));
    SG_CHECK(!(flags & CU_EVENT_INTERPROCESS) || (flags & CU_EVENT_DISABLE_TIMING),
             CUDA_ERROR_INVALID_VALUE);
    struct sg_event *e = calloc(1, sizeof *e);
    SG_CHECK(e, CUDA_ERROR_OUT_OF_MEMORY);
    CUresult r = flags & CU_EVENT_INTERPROCESS ? sg_shared_event_new(&e->shared) : CUDA_SUCCESS;
    if (r != CUDA_SUCCESS) {
        free(e);
        return r;
    }
    e->ctx = c;
    e->flags = flags;
    sg_handle_add(SG_H_EVENT, e);
    *out = (CUevent)e;
    return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent he)
{
    struct sg_event *e = event_of(he);
    SG_CHECK(e, CUDA_ERROR_INVALID_HANDLE);
    sg_handle_drop(SG_H_EVENT, e);
    sg_op_unref(e->op);
    sg_shared_event_unref(e->shared);
    free(e->nodes);
    free(e);
    return CUDA_SUCCESS;
}
SG_CALL(cuEventDestroy, (CUevent e), (e))
{
    return event_destroy(e);
}
SG_CALL(cuEventDestroy_v2, (CUevent e), (e))
{
    return event_destroy(e);
}

static CUresult record(CUevent he, CUstream hs, unsigned flags)
{
    struct sg_stream *s;
    struct sg_event *e = event_of(he);
    SG_CHECK(e, CUDA_ERROR_INVALID_HANDLE);
    SG_CHECK(!(flags & ~1u), CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_stream_of(hs, &s));
    SG_CHECK(s->ctx == e->ctx, CUDA_ERROR_INVALID_HANDLE);
    if (s->capture && !(flags & CU_EVENT_RECORD_EXTERNAL))
        return sg_capture_event_record(s, e);
    SG_CHECK(!s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    struct sg_op *op = e->shared ? sg_shared_event_op(e->shared, false)
                                 : sg_op_new(SG_OP_EVENT, SG_ENG_NONE);
    SG_CHECK(op, CUDA_ERROR_OUT_OF_MEMORY);
    op->refs++;
    sg_op_unref(e->op);
    e->op = op;
    e->captured = 0;
    return sg_submit(s, op);
}
SG_CALL_S(cuEventRecord, cuEventRecord_ptsz, (CUevent e, CUstream s), (e, s))
{
    return record(e, s, 0);
}
SG_CALL_S(cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz,
          (CUevent e, CUstream s, unsigned flags), (e, s, flags))
{
    return record(e, s, flags);
}

SG_CALL(cuEventQuery, (CUevent he), (he))
{
    struct sg_event *e = event_of(he);
    SG_CHECK(e, CUDA_ERROR_INVALID_HANDLE);
    SG_CHECK(!e->captured, CUDA_ERROR_CAPTURED_EVENT);
    SG_CHECK(!sg_capture_blocks(e->ctx), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    bool done = sg_poll(e->op) && (!e->shared || sg_shared_event_done(e->shared));
    SG_CHECK(e->ctx->sticky == CUDA_SUCCESS, e->ctx->sticky);
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

SG_CALL(cuEventSynchronize, (CUevent he), (he))
{
    struct sg_event *e = event_of(he);
    SG_CHECK(e, CUDA_ERROR_INVALID_HANDLE);
    SG_CHECK(!e->captured, CUDA_ERROR_CAPTURED_EVENT);
    SG_CHECK(!sg_capture_blocks(e->ctx), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    struct sg_ctx *c = e->ctx;
    SG_TRY(sg_wait(e->op));
    if (e->shared)
        sg_shared_event_wait(e->shared);
    sg_pool_idle();
    return c->sticky;
}

static CUresult elapsed(float *ms, CUevent hstart, CUevent hend)
{
    const struct sg_event *a = event_of(hstart), *b = event_of(hend);
    SG_CHECK(ms, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(a && b && a->op && b->op, CUDA_ERROR_INVALID_HANDLE);
    SG_CHECK(!((a->flags | b->flags) & CU_EVENT_DISABLE_TIMING), CUDA_ERROR_INVALID_HANDLE);
    SG_CHECK(a->op->state == SG_DONE && b->op->state == SG_DONE, CUDA_ERROR_NOT_READY);
    *ms = (float)(((double)b->op->end_ns - (double)a->op->end_ns) / 1e6);
    return CUDA_SUCCESS;
}
SG_CALL(cuEventElapsedTime, (float *ms, CUevent a, CUevent b), (ms, a, b))
{
    return elapsed(ms, a, b);
}
SG_CALL(cuEventElapsedTime_v2, (float *ms, CUevent a, CUevent b), (ms, a, b))
{
    return elapsed(ms, a, b);
}

SG_CALL_S(cuStreamWaitEvent, cuStreamWaitEvent_ptsz, (CUstream hs, CUevent he, unsigned flags),
          (hs, he, flags))
{
    struct sg_stream *s;
    struct sg_event *e = event_of(he);
    SG_CHECK(e, CUDA_ERROR_INVALID_HANDLE);
    SG_CHECK(!(flags & ~1u), CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_stream_of(hs, &s));
    if (s->capture || e->captured)
        return sg_capture_event_wait(s, e);
    if (!e->op && !e->shared)
        return CUDA_SUCCESS;
    struct sg_op *op = e->shared ? sg_shared_event_op(e->shared, true)
                                 : sg_op_new(SG_OP_NOP, SG_ENG_NONE);
    SG_CHECK(op, CUDA_ERROR_OUT_OF_MEMORY);
    sg_enqueue_wait(s, op, e->op);
    sg_op_unref(op);
    return CUDA_SUCCESS;
}

/* ---- host functions ---- */
static CUresult host_function(CUstream hs, CUhostFn fn, CUstreamCallback cb, void *data)
{
    struct sg_stream *s;
    SG_CHECK(fn || cb, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_stream_of(hs, &s));
    SG_CHECK(!cb || !s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    struct sg_op *op = sg_op_new(SG_OP_HOSTFN, SG_ENG_NONE);
    SG_CHECK(op, CUDA_ERROR_OUT_OF_MEMORY);
    op->u.hostfn = (struct sg_hostfn){.fn = fn, .cb = cb, .cb_stream = hs, .data = data};
    return sg_submit(s, op);
}
SG_CALL_S(cuLaunchHostFunc, cuLaunchHostFunc_ptsz, (CUstream hs, CUhostFn fn, void *data),
          (hs, fn, data))
{
    SG_CHECK(fn, CUDA_ERROR_INVALID_VALUE);
    return host_function(hs, fn, NULL, data);
}
SG_CALL_S(cuStreamAddCallback, cuStreamAddCallback_ptsz,
          (CUstream hs, CUstreamCallback cb, void *data, unsigned flags), (hs, cb, data, flags))
{
    SG_CHECK(cb && flags == 0, CUDA_ERROR_INVALID_VALUE);
    return host_function(hs, NULL, cb, data);
}

/* Attributes are kept by nobody: the simulated card has neither windows nor sync domains. */
SG_CALL_S(cuStreamSetAttribute, cuStreamSetAttribute_ptsz,
          (CUstream hs, CUstreamAttrID a, const CUstreamAttrValue *v), (hs, a, v))
{
    struct sg_stream *s;
    SG_CHECK(v, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_stream_of(hs, &s));
    if (a == CU_LAUNCH_ATTRIBUTE_PRIORITY)
        s->prio = v->priority > 0                     ? 0
                  : v->priority < -(SG_MAX_PRIOS - 1) ? -(SG_MAX_PRIOS - 1)
                                                      : v->priority;
    return CUDA_SUCCESS;
}
SG_CALL_S(cuStreamGetAttribute, cuStreamGetAttribute_ptsz,
          (CUstream hs, CUstreamAttrID a, CUstreamAttrValue *v), (hs, a, v))
{
    struct sg_stream *s;
    SG_CHECK(v, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_stream_of(hs, &s));
    memset(v, 0, sizeof *v);
    if (a == CU_LAUNCH_ATTRIBUTE_PRIORITY)
        v->priority = s->prio;
    return CUDA_SUCCESS;
}
