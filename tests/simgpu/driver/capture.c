/* Stream capture: work of a capturing stream becomes nodes; events carry the capture to other
 * streams; what a capture forbids also invalidates it, as the real driver does. */
#include "graph.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct sg_capture {
    struct sg_graph *graph;
    struct sg_stream *origin;
    struct sg_ctx *ctx;
    CUstreamCaptureMode mode;
    pthread_t thread;
    uint64_t id;
    bool invalid, into_existing;
    struct sg_capture *next;
};
static struct sg_capture *captures; /* all that are under way */
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static struct sg_capture *by_id(uint64_t id)
{
    struct sg_capture *c = captures;
    while (c && c->id != id)
        c = c->next;
    return c;
}

static CUresult set_front(struct sg_stream *s, struct sg_gnode *const *nodes, unsigned n)
{
    struct sg_gnode **f = calloc(n ? n : 1, sizeof *f);
    SG_CHECK(f, CUDA_ERROR_OUT_OF_MEMORY);
    if (n)
        memcpy(f, nodes, n * sizeof *f);
    free(s->front);
    s->front = f;
    s->nfront = n;
    return CUDA_SUCCESS;
}

static CUresult add_front(struct sg_stream *s, struct sg_gnode *const *nodes, unsigned n)
{
    struct sg_gnode **f = calloc(s->nfront + n + 1, sizeof *f);
    SG_CHECK(f, CUDA_ERROR_OUT_OF_MEMORY);
    unsigned k = s->nfront;
    if (k)
        memcpy(f, s->front, k * sizeof *f);
    for (unsigned i = 0; i < n; i++) {
        bool there = false;
        for (unsigned j = 0; j < k; j++)
            there |= f[j] == nodes[i];
        if (!there)
            f[k++] = nodes[i];
    }
    free(s->front);
    s->front = f;
    s->nfront = k;
    return CUDA_SUCCESS;
}

static CUgraphNodeType type_of(const struct sg_op *op)
{
    switch (op->kind) {
    case SG_OP_KERNEL:
        return CU_GRAPH_NODE_TYPE_KERNEL;
    case SG_OP_COPY:
        return CU_GRAPH_NODE_TYPE_MEMCPY;
    case SG_OP_MEMSET:
        return CU_GRAPH_NODE_TYPE_MEMSET;
    case SG_OP_HOSTFN:
        return CU_GRAPH_NODE_TYPE_HOST;
    default:
        return CU_GRAPH_NODE_TYPE_EMPTY;
    }
}

CUresult sg_capture_add(struct sg_stream *s, struct sg_op *op)
{
    struct sg_gnode *n;
    if (s->capture->invalid) {
        sg_op_unref(op);
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    SG_TRY(sg_node_add(s->capture->graph, type_of(op), op, s->front, s->nfront, &n));
    return set_front(s, &n, 1);
}

CUresult sg_capture_alloc(struct sg_stream *s, size_t bytes, CUdeviceptr *out)
{
    struct sg_gnode *n;
    SG_CHECK(!s->capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    SG_TRY(sg_graph_alloc_node(s->capture->graph, bytes, s->front, s->nfront, &n));
    *out = n->memory->range->va;
    return set_front(s, &n, 1);
}

CUresult sg_capture_free(struct sg_stream *s, CUdeviceptr ptr)
{
    struct sg_gnode *n;
    const struct sg_range *r = sg_range_find(ptr);
    SG_CHECK(!s->capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    SG_CHECK(r && r->va == ptr && r->of_graph, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(
        sg_node_add(s->capture->graph, CU_GRAPH_NODE_TYPE_MEM_FREE, NULL, s->front, s->nfront, &n));
    n->freed = ptr;
    return set_front(s, &n, 1);
}

/* The rule of cuThreadExchangeStreamCaptureMode for calls that may be unsafe during a capture. */
bool sg_capture_blocks(struct sg_ctx *c)
{
    bool blocked = false;
    (void)c;
    for (struct sg_capture *k = captures; k && thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED;
         k = k->next) {
        bool own = pthread_equal(k->thread, pthread_self());
        if ((own && k->mode != CU_STREAM_CAPTURE_MODE_RELAXED) ||
            (!own && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
             k->mode == CU_STREAM_CAPTURE_MODE_GLOBAL)) {
            k->invalid = true;
            blocked = true;
        }
    }
    return blocked;
}

/* A capturing stream can be neither waited for nor asked; asking another one is an unsafe call. */
CUresult sg_capture_check_sync(struct sg_stream *s)
{
    if (s->capture) {
        s->capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    SG_TRY(sg_capture_check_legacy(s));
    return sg_capture_blocks(s->ctx) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

/* The legacy stream would order itself with a capturing blocking stream: not allowed. */
CUresult sg_capture_check_legacy(struct sg_stream *s)
{
    for (struct sg_capture *k = captures; k && s->legacy; k = k->next)
        if (k->ctx == s->ctx && !(k->origin->flags & CU_STREAM_NON_BLOCKING)) {
            k->invalid = true;
            return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    return CUDA_SUCCESS;
}

CUresult sg_capture_event_record(struct sg_stream *s, struct sg_event *e)
{
    SG_CHECK(!s->capture->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    struct sg_gnode **nodes = calloc(s->nfront + 1, sizeof *nodes);
    SG_CHECK(nodes, CUDA_ERROR_OUT_OF_MEMORY);
    memcpy(nodes, s->front, s->nfront * sizeof *nodes);
    free(e->nodes);
    e->nodes = nodes;
    e->nnodes = s->nfront;
    e->captured = s->capture->id;
    return CUDA_SUCCESS;
}

CUresult sg_capture_event_wait(struct sg_stream *s, struct sg_event *e)
{
    struct sg_capture *c = e->captured ? by_id(e->captured) : NULL;
    if (!e->captured) { /* work outside the capture cannot be waited for */
        s->capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    SG_CHECK(c, CUDA_ERROR_CAPTURED_EVENT);
    SG_CHECK(!c->invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    if (s->capture && s->capture != c) {
        s->capture->invalid = c->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    SG_CHECK(!s->legacy, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    if (s->capture)
        return add_front(s, e->nodes, e->nnodes);
    SG_TRY(set_front(s, e->nodes, e->nnodes));
    s->capture = c;
    return CUDA_SUCCESS;
}

/* ---- calls ---- */
static CUresult begin(CUstream hs, CUstreamCaptureMode mode, struct sg_graph *into,
                      struct sg_gnode *const *deps, unsigned ndeps)
{
    struct sg_stream *s;
    SG_CHECK((unsigned)mode <= CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_stream_of(hs, &s));
    SG_CHECK(!s->legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    SG_CHECK(!s->capture, CUDA_ERROR_ILLEGAL_STATE);
    struct sg_capture *c = calloc(1, sizeof *c);
    SG_CHECK(c, CUDA_ERROR_OUT_OF_MEMORY);
    c->graph = into ? into : sg_graph_new();
    if (!c->graph || set_front(s, deps, ndeps) != CUDA_SUCCESS) {
        if (c->graph && !into)
            sg_graph_free(c->graph);
        free(c);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    c->origin = s;
    c->ctx = s->ctx;
    c->mode = mode;
    c->thread = pthread_self();
    c->id = ++sg.next_id;
    c->into_existing = into != NULL;
    c->next = captures;
    captures = c;
    s->capture = c;
    return CUDA_SUCCESS;
}
SG_CALL_S(cuStreamBeginCapture, cuStreamBeginCapture_ptsz, (CUstream s), (s))
{
    return begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, 0);
}
SG_CALL_S(cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz,
          (CUstream s, CUstreamCaptureMode mode), (s, mode))
{
    return begin(s, mode, NULL, NULL, 0);
}
SG_CALL_S(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph_ptsz,
          (CUstream s, CUgraph hg, const CUgraphNode *deps, const CUgraphEdgeData *data, size_t n,
           CUstreamCaptureMode mode),
          (s, hg, deps, data, n, mode))
{
    struct sg_graph *g = sg_graph_of(hg);
    (void)data;
    SG_CHECK(g && (!n || deps), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < n; i++)
        SG_CHECK(sg_node_of(deps[i]) && sg_node_of(deps[i])->graph == g, CUDA_ERROR_INVALID_VALUE);
    return begin(s, mode, g, (struct sg_gnode *const *)deps, (unsigned)n);
}

/* Every other stream's work must have been joined into the origin stream. */
static bool joined(const struct sg_capture *c)
{
    for (const struct sg_stream *t = c->ctx->streams; t; t = t->next) {
        if (t->capture != c || t == c->origin)
            continue;
        for (unsigned i = 0; i < t->nfront; i++) {
            bool seen = false;
            for (unsigned k = 0; !seen && k < c->origin->nfront; k++)
                seen = sg_node_reaches(c->origin->front[k], t->front[i]);
            if (!seen)
                return false;
        }
    }
    return true;
}

static void finish(struct sg_capture *c)
{
    for (struct sg_stream *t = c->ctx->streams; t; t = t->next)
        if (t->capture == c) {
            t->capture = NULL;
            free(t->front);
            t->front = NULL;
            t->nfront = 0;
        }
    struct sg_capture **at = &captures;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    free(c);
}

SG_CALL_S(cuStreamEndCapture, cuStreamEndCapture_ptsz, (CUstream hs, CUgraph *out), (hs, out))
{
    struct sg_stream *s;
    SG_CHECK(out, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_stream_of(hs, &s));
    struct sg_capture *c = s->capture;
    SG_CHECK(c, CUDA_ERROR_ILLEGAL_STATE);
    SG_CHECK(c->origin == s, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    SG_CHECK(c->mode == CU_STREAM_CAPTURE_MODE_RELAXED || pthread_equal(c->thread, pthread_self()),
             CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    CUresult r = c->invalid   ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                 : !joined(c) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                              : CUDA_SUCCESS;
    *out = r == CUDA_SUCCESS ? (CUgraph)c->graph : NULL;
    struct sg_graph *lost = r != CUDA_SUCCESS && !c->into_existing ? c->graph : NULL;
    finish(c);
    if (lost)
        sg_graph_free(lost);
    return r;
}

static CUstreamCaptureStatus status_of(const struct sg_stream *s)
{
    return !s->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
           : s->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                 : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

SG_CALL_S(cuStreamIsCapturing, cuStreamIsCapturing_ptsz, (CUstream hs, CUstreamCaptureStatus *st),
          (hs, st))
{
    struct sg_stream *s;
    SG_CHECK(st, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_stream_of(hs, &s));
    SG_TRY(sg_capture_check_legacy(s));
    *st = status_of(s);
    return CUDA_SUCCESS;
}

static CUresult info(CUstream hs, CUstreamCaptureStatus *st, cuuint64_t *id, CUgraph *graph,
                     const CUgraphNode **deps, size_t *n)
{
    struct sg_stream *s;
    SG_CHECK(st, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_stream_of(hs, &s));
    SG_TRY(sg_capture_check_legacy(s));
    *st = status_of(s);
    if (*st != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return CUDA_SUCCESS;
    if (id)
        *id = s->capture->id;
    if (graph)
        *graph = (CUgraph)s->capture->graph;
    if (deps)
        *deps = (const CUgraphNode *)s->front;
    if (n)
        *n = s->nfront;
    return CUDA_SUCCESS;
}
SG_CALL_S(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_ptsz,
          (CUstream s, CUstreamCaptureStatus *st, cuuint64_t *id), (s, st, id))
{
    return info(s, st, id, NULL, NULL, NULL);
}
SG_CALL_S(cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v2_ptsz,
          (CUstream s, CUstreamCaptureStatus *st, cuuint64_t *id, CUgraph *g,
           const CUgraphNode **deps, size_t *n),
          (s, st, id, g, deps, n))
{
    return info(s, st, id, g, deps, n);
}
SG_CALL_S(cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo_v3_ptsz,
          (CUstream s, CUstreamCaptureStatus *st, cuuint64_t *id, CUgraph *g,
           const CUgraphNode **deps, const CUgraphEdgeData **data, size_t *n),
          (s, st, id, g, deps, data, n))
{
    if (data)
        *data = NULL; /* every edge is a full dependency */
    return info(s, st, id, g, deps, n);
}

static CUresult update(CUstream hs, CUgraphNode *deps, size_t n, unsigned flags)
{
    struct sg_stream *s;
    SG_TRY(sg_stream_of(hs, &s));
    SG_CHECK(s->capture, CUDA_ERROR_ILLEGAL_STATE);
    SG_CHECK(!n || deps, CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < n; i++)
        SG_CHECK(sg_node_of(deps[i]) && sg_node_of(deps[i])->graph == s->capture->graph,
                 CUDA_ERROR_INVALID_VALUE);
    return flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES
               ? set_front(s, (struct sg_gnode *const *)deps, (unsigned)n)
               : add_front(s, (struct sg_gnode *const *)deps, (unsigned)n);
}
SG_CALL_S(cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies_ptsz,
          (CUstream s, CUgraphNode *deps, size_t n, unsigned flags), (s, deps, n, flags))
{
    return update(s, deps, n, flags);
}
SG_CALL_S(cuStreamUpdateCaptureDependencies_v2, cuStreamUpdateCaptureDependencies_v2_ptsz,
          (CUstream s, CUgraphNode *deps, const CUgraphEdgeData *data, size_t n, unsigned flags),
          (s, deps, data, n, flags))
{
    (void)data;
    return update(s, deps, n, flags);
}

SG_CALL(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode), (mode))
{
    SG_CHECK(mode && (unsigned)*mode <= CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_ERROR_INVALID_VALUE);
    CUstreamCaptureMode old = thread_mode;
    thread_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}
