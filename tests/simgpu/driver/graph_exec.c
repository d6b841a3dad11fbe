/* Executable graphs: flattened, put in launch order, launched as operations with their own edges.
 */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

/* Puts a copy of `from`'s nodes into `to`; a child graph becomes its nodes and an empty one that
 * stands for its end. `heads` are what the roots depend on. */
static CUresult flatten(const struct sg_graph *from, struct sg_graph *to, struct sg_gnode **heads,
                        unsigned nheads);

static CUresult flatten_child(const struct sg_gnode *n, struct sg_graph *to, struct sg_gnode **deps,
                              unsigned ndeps, struct sg_gnode **out)
{
    unsigned first = to->n;
    SG_TRY(flatten(n->child, to, deps, ndeps));
    SG_TRY(sg_node_add(to, CU_GRAPH_NODE_TYPE_EMPTY, NULL, deps, ndeps, out));
    for (unsigned i = first; i + 1 < to->n; i++)
        SG_TRY(sg_node_depends(*out, to->node[i]));
    (*out)->origin = n;
    return CUDA_SUCCESS;
}

static CUresult flatten_node(const struct sg_gnode *n, struct sg_graph *to, struct sg_gnode **image,
                             struct sg_gnode **heads, unsigned nheads)
{
    unsigned ndeps = n->ndeps ? n->ndeps : nheads;
    struct sg_gnode **deps = calloc(ndeps ? ndeps : 1, sizeof *deps), *out = NULL;
    SG_CHECK(deps, CUDA_ERROR_OUT_OF_MEMORY);
    for (unsigned i = 0; i < ndeps; i++)
        deps[i] = n->ndeps ? image[n->deps[i]->index] : heads[i];
    CUresult r = CUDA_SUCCESS;
    if (n->child) {
        r = flatten_child(n, to, deps, ndeps, &out);
    } else {
        struct sg_op *op = n->op ? sg_op_clone(n->op) : NULL;
        r = n->op && !op ? CUDA_ERROR_OUT_OF_MEMORY
                         : sg_node_add(to, n->type, op, deps, ndeps, &out);
    }
    free(deps);
    SG_TRY(r);
    out->origin = n;
    out->event = n->event;
    out->freed = n->freed;
    out->disabled = n->disabled;
    out->memory = n->memory;
    if (n->memory)
        n->memory->refs++;
    image[n->index] = out;
    return CUDA_SUCCESS;
}

static CUresult flatten(const struct sg_graph *from, struct sg_graph *to, struct sg_gnode **heads,
                        unsigned nheads)
{
    struct sg_gnode **image = calloc(from->n ? from->n : 1, sizeof *image);
    SG_CHECK(image, CUDA_ERROR_OUT_OF_MEMORY);
    CUresult r = CUDA_SUCCESS;
    for (unsigned done = 0; r == CUDA_SUCCESS && done < from->n;) {
        unsigned before = done;
        for (unsigned i = 0; r == CUDA_SUCCESS && i < from->n; i++) {
            const struct sg_gnode *n = from->node[i];
            bool ready = !image[i];
            for (unsigned k = 0; ready && k < n->ndeps; k++)
                ready = image[n->deps[k]->index] != NULL;
            if (!ready)
                continue;
            r = flatten_node(n, to, image, heads, nheads);
            done++;
        }
        if (r == CUDA_SUCCESS && done == before)
            r = CUDA_ERROR_INVALID_VALUE; /* a cycle */
    }
    free(image);
    return r;
}

/* Race check: a node goes on in the lane of a node that nothing else goes on in yet. */
static void give_lanes(struct sg_graph *g)
{
    bool *taken = calloc(g->n ? g->n : 1, sizeof *taken);
    for (unsigned i = 0; i < g->n; i++) {
        struct sg_gnode *n = g->node[i];
        n->index = i;
        for (unsigned k = 0; taken && !n->lane && k < n->ndeps; k++)
            if (!taken[n->deps[k]->index]) {
                taken[n->deps[k]->index] = true;
                n->lane = n->deps[k]->lane;
            }
        if (!n->lane) {
            n->lane = sg_race_lane_new();
            n->lane_owner = true;
        }
    }
    free(taken);
}

static CUresult instantiate(CUgraphExec *out, CUgraph hg, cuuint64_t flags)
{
    const struct sg_graph *g = sg_graph_of(hg);
    SG_CHECK(out && g, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(!(flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH), CUDA_ERROR_NOT_SUPPORTED);
    struct sg_exec *e = calloc(1, sizeof *e);
    SG_CHECK(e, CUDA_ERROR_OUT_OF_MEMORY);
    e->flags = flags;
    e->graph = sg_graph_new();
    CUresult r = e->graph ? flatten(g, e->graph, NULL, 0) : CUDA_ERROR_OUT_OF_MEMORY;
    if (r != CUDA_SUCCESS) {
        if (e->graph)
            sg_graph_free(e->graph);
        free(e);
        return r;
    }
    if (sg.cfg.racecheck)
        give_lanes(e->graph);
    sg_host_spend(10000 + 1000ull * e->graph->n);
    sg_handle_add(SG_H_EXEC, e);
    *out = (CUgraphExec)e;
    return CUDA_SUCCESS;
}

static CUresult instantiate_old(CUgraphExec *out, CUgraph g, CUgraphNode *bad, char *log, size_t n)
{
    if (bad)
        *bad = NULL;
    if (log && n)
        log[0] = 0;
    return instantiate(out, g, 0);
}
SG_CALL(cuGraphInstantiate, (CUgraphExec * out, CUgraph g, CUgraphNode *bad, char *log, size_t n),
        (out, g, bad, log, n))
{
    return instantiate_old(out, g, bad, log, n);
}
SG_CALL(cuGraphInstantiate_v2,
        (CUgraphExec * out, CUgraph g, CUgraphNode *bad, char *log, size_t n),
        (out, g, bad, log, n))
{
    return instantiate_old(out, g, bad, log, n);
}
SG_CALL(cuGraphInstantiateWithFlags, (CUgraphExec * out, CUgraph g, unsigned long long flags),
        (out, g, flags))
{
    return instantiate(out, g, flags);
}
SG_CALL_S(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams_ptsz,
          (CUgraphExec * out, CUgraph g, CUDA_GRAPH_INSTANTIATE_PARAMS *p), (out, g, p))
{
    SG_CHECK(p, CUDA_ERROR_INVALID_VALUE);
    CUresult r = instantiate(out, g, p->flags);
    p->hErrNode_out = NULL;
    p->result_out =
        r == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    return r;
}

static struct sg_exec *exec_of(CUgraphExec e)
{
    return sg_handle_is(SG_H_EXEC, e) ? (struct sg_exec *)e : NULL;
}

/* What is launched goes on; operations carry their own copies. */
SG_CALL(cuGraphExecDestroy, (CUgraphExec he), (he))
{
    struct sg_exec *e = exec_of(he);
    SG_CHECK(e, CUDA_ERROR_INVALID_VALUE);
    sg_handle_drop(SG_H_EXEC, e);
    sg_op_unref(e->last);
    for (unsigned i = 0; i < e->graph->n; i++)
        if (e->graph->node[i]->lane_owner)
            sg_race_lane_drop(e->graph->node[i]->lane);
    sg_graph_free(e->graph);
    free(e);
    return CUDA_SUCCESS;
}

SG_CALL(cuGraphExecGetFlags, (CUgraphExec he, cuuint64_t *flags), (he, flags))
{
    const struct sg_exec *e = exec_of(he);
    SG_CHECK(e && flags, CUDA_ERROR_INVALID_VALUE);
    *flags = e->flags;
    return CUDA_SUCCESS;
}

/* ---- launch ---- */
static struct sg_op *node_op(const struct sg_gnode *n)
{
    bool event = n->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    if (n->op && !n->disabled)
        return sg_op_clone(n->op);
    if (!n->disabled && n->event && sg_handle_is(SG_H_EVENT, n->event) && n->event->shared)
        return sg_shared_event_op(n->event->shared, !event);
    return sg_op_new(event && !n->disabled ? SG_OP_EVENT : SG_OP_NOP, SG_ENG_NONE);
}

/* Enqueues a node's operation behind its dependencies' ones, or behind the launch's begin. */
static void enqueue_node(const struct sg_gnode *n, struct sg_op *op, struct sg_op **ops,
                         struct sg_op *begin, struct sg_stream *s)
{
    sg_enqueue_begin(s, op, n->lane);
    sg_op_after(op, begin);
    for (unsigned k = 0; k < n->ndeps; k++)
        sg_op_after(op, ops[n->deps[k]->index]);
    bool live = n->event && sg_handle_is(SG_H_EVENT, n->event);
    if (live && n->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT)
        sg_op_after(op, n->event->op);
    if (live && n->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
        op->refs++;
        sg_op_unref(n->event->op);
        n->event->op = op;
        n->event->captured = 0;
    }
    sg_enqueue_end(op);
}

static CUresult exec_launch(struct sg_exec *e, struct sg_stream *s)
{
    const struct sg_graph *g = e->graph;
    struct sg_op **ops = calloc(g->n + 2, sizeof *ops);
    SG_CHECK(ops, CUDA_ERROR_OUT_OF_MEMORY);
    bool ok = true;
    for (unsigned i = 0; i < g->n; i++)
        ok &= (ops[i] = node_op(g->node[i])) != NULL;
    struct sg_op *begin = ops[g->n] = sg_op_new(SG_OP_NOP, SG_ENG_NONE);
    struct sg_op *end = ops[g->n + 1] = sg_op_new(SG_OP_NOP, SG_ENG_NONE);
    if (ok && begin && end) {
        sg_enqueue_wait(s, begin, e->last); /* launches of one executable graph do not overlap */
        for (unsigned i = 0; i < g->n; i++)
            enqueue_node(g->node[i], ops[i], ops, begin, s);
        sg_enqueue_begin(s, end, s->lane);
        sg_op_after(end, begin);
        for (unsigned i = 0; i < g->n; i++)
            sg_op_after(end, ops[i]);
        end->refs += 2;
        sg_op_unref(s->last);
        sg_op_unref(e->last);
        s->last = e->last = end;
        sg_enqueue_end(end);
    }
    for (unsigned i = 0; i < g->n + 2; i++)
        sg_op_unref(ops[i]);
    free(ops);
    return ok && begin && end ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SG_CALL_S(cuGraphLaunch, cuGraphLaunch_ptsz, (CUgraphExec he, CUstream hs), (he, hs))
{
    struct sg_stream *s;
    struct sg_exec *e = exec_of(he);
    SG_CHECK(e, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_stream_of(hs, &s));
    SG_CHECK(!s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    SG_TRY(sg_capture_check_legacy(s));
    return exec_launch(e, s);
}
SG_CALL_S(cuGraphUpload, cuGraphUpload_ptsz, (CUgraphExec he, CUstream hs), (he, hs))
{
    struct sg_stream *s;
    SG_CHECK(exec_of(he), CUDA_ERROR_INVALID_VALUE);
    return sg_stream_of(hs, &s);
}

/* ---- update ---- */
static struct sg_gnode *enabled_of(CUgraphExec he, CUgraphNode hn)
{
    const struct sg_exec *e = exec_of(he);
    const struct sg_gnode *n = sg_node_of(hn);
    if (!e || !n ||
        (n->type != CU_GRAPH_NODE_TYPE_KERNEL && n->type != CU_GRAPH_NODE_TYPE_MEMCPY &&
         n->type != CU_GRAPH_NODE_TYPE_MEMSET))
        return NULL;
    return sg_graph_image(e->graph, n);
}
SG_CALL(cuGraphNodeSetEnabled, (CUgraphExec e, CUgraphNode hn, unsigned enabled), (e, hn, enabled))
{
    struct sg_gnode *n = enabled_of(e, hn);
    SG_CHECK(n, CUDA_ERROR_INVALID_VALUE);
    n->disabled = !enabled;
    return CUDA_SUCCESS;
}
SG_CALL(cuGraphNodeGetEnabled, (CUgraphExec e, CUgraphNode hn, unsigned *enabled), (e, hn, enabled))
{
    const struct sg_gnode *n = enabled_of(e, hn);
    SG_CHECK(n && enabled, CUDA_ERROR_INVALID_VALUE);
    *enabled = !n->disabled;
    return CUDA_SUCCESS;
}

/* The new graph must have the same shape; then its parameters take the place of the old ones. */
static CUgraphExecUpdateResult compare(const struct sg_graph *old, const struct sg_graph *new,
                                       const struct sg_gnode **bad)
{
    *bad = NULL;
    if (old->n != new->n)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (unsigned i = 0; i < old->n; i++) {
        const struct sg_gnode *a = old->node[i], *b = new->node[i];
        *bad = b->origin;
        if (a->type != b->type)
            return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        if (a->ndeps != b->ndeps)
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        for (unsigned k = 0; k < a->ndeps; k++)
            if (a->deps[k]->index != b->deps[k]->index)
                return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        if (a->memory != b->memory || a->freed != b->freed)
            return CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED;
    }
    *bad = NULL;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static void move_lane(struct sg_gnode *to, struct sg_gnode *from)
{
    to->lane = from->lane;
    to->lane_owner = from->lane_owner;
}

static CUresult update(CUgraphExec he, CUgraph hg, CUgraphNode *bad,
                       CUgraphExecUpdateResult *result)
{
    struct sg_exec *e = exec_of(he);
    const struct sg_graph *g = sg_graph_of(hg);
    const struct sg_gnode *where;
    SG_CHECK(e && g, CUDA_ERROR_INVALID_VALUE);
    struct sg_graph *flat = sg_graph_new();
    SG_CHECK(flat, CUDA_ERROR_OUT_OF_MEMORY);
    CUresult r = flatten(g, flat, NULL, 0);
    if (r != CUDA_SUCCESS) {
        sg_graph_free(flat);
        return r;
    }
    *result = compare(e->graph, flat, &where);
    if (bad)
        *bad = (CUgraphNode)where;
    if (*result != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
        sg_graph_free(flat);
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    for (unsigned i = 0; i < flat->n; i++)
        move_lane(flat->node[i], e->graph->node[i]);
    sg_graph_free(e->graph);
    e->graph = flat;
    return CUDA_SUCCESS;
}
SG_CALL(cuGraphExecUpdate,
        (CUgraphExec e, CUgraph g, CUgraphNode *bad, CUgraphExecUpdateResult *result),
        (e, g, bad, result))
{
    SG_CHECK(result, CUDA_ERROR_INVALID_VALUE);
    return update(e, g, bad, result);
}
SG_CALL(cuGraphExecUpdate_v2, (CUgraphExec e, CUgraph g, CUgraphExecUpdateResultInfo *info),
        (e, g, info))
{
    SG_CHECK(info, CUDA_ERROR_INVALID_VALUE);
    info->errorFromNode = NULL;
    return update(e, g, &info->errorNode, &info->result);
}
