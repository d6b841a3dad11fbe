/* Graphs: nodes, edges, copies of graphs, and the memory that allocation nodes make. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

struct sg_graph *sg_graph_new(void)
{
    struct sg_graph *g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->id = ++sg.next_id;
    sg_handle_add(SG_H_GRAPH, g);
    return g;
}

struct sg_graph *sg_graph_of(CUgraph g)
{
    return sg_handle_is(SG_H_GRAPH, g) ? (struct sg_graph *)g : NULL;
}

struct sg_gnode *sg_node_of(CUgraphNode n)
{
    return sg_handle_is(SG_H_NODE, n) ? (struct sg_gnode *)n : NULL;
}

static void memory_unref(struct sg_graph_memory *m)
{
    if (!m || --m->refs)
        return;
    sg.dev[m->range->device].graph_used -= m->range->map.phys->bytes;
    sg_dealloc(m->range);
    free(m);
}

static void node_free(struct sg_gnode *n)
{
    sg_handle_drop(SG_H_NODE, n);
    sg_op_unref(n->op);
    if (n->child)
        sg_graph_free(n->child);
    memory_unref(n->memory);
    free(n->deps);
    free(n->params);
    free(n);
}

void sg_graph_free(struct sg_graph *g)
{
    sg_handle_drop(SG_H_GRAPH, g);
    for (unsigned i = 0; i < g->n; i++)
        node_free(g->node[i]);
    sg_users_release(g);
    free(g->node);
    free(g);
}

CUresult sg_node_depends(struct sg_gnode *n, struct sg_gnode *dep)
{
    for (unsigned i = 0; i < n->ndeps; i++)
        SG_CHECK(n->deps[i] != dep, CUDA_ERROR_INVALID_VALUE);
    struct sg_gnode **d = realloc(n->deps, (n->ndeps + 1) * sizeof *d);
    SG_CHECK(d, CUDA_ERROR_OUT_OF_MEMORY);
    n->deps = d;
    n->deps[n->ndeps++] = dep;
    return CUDA_SUCCESS;
}

CUresult sg_node_add(struct sg_graph *g, CUgraphNodeType type, struct sg_op *op,
                     struct sg_gnode *const *deps, unsigned ndeps, struct sg_gnode **out)
{
    struct sg_gnode *n = calloc(1, sizeof *n);
    if (!n) {
        sg_op_unref(op);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    n->graph = g;
    n->type = type;
    n->op = op;
    sg_handle_add(SG_H_NODE, n);
    for (unsigned i = 0; i < ndeps; i++) {
        CUresult r = sg_node_depends(n, deps[i]);
        if (r != CUDA_SUCCESS) {
            node_free(n);
            return r;
        }
    }
    if (g->n == g->cap) {
        unsigned c = g->cap ? g->cap * 2 : 8;
        struct sg_gnode **p = realloc(g->node, c * sizeof *p);
        if (!p) {
            node_free(n);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        g->node = p;
        g->cap = c;
    }
    n->index = g->n;
    g->node[g->n++] = n;
    *out = n;
    return CUDA_SUCCESS;
}

/* Kernel parameters are copied, a module in use stays loaded. */
struct sg_op *sg_op_clone(const struct sg_op *op)
{
    struct sg_op *c = sg_op_new(op->kind, op->engine);
    if (!c)
        return NULL;
    c->u = op->u;
    if (op->kind == SG_OP_KERNEL) {
        c->u.kernel.params = malloc(op->u.kernel.param_bytes ? op->u.kernel.param_bytes : 1);
        if (!c->u.kernel.params) {
            c->u.kernel.fn = NULL;
            sg_op_unref(c);
            return NULL;
        }
        memcpy(c->u.kernel.params, op->u.kernel.params, op->u.kernel.param_bytes);
        c->u.kernel.fn->mod->users++;
    } else if (op->kind == SG_OP_COPY) {
        c->u.copy.staged = NULL;
    }
    return c;
}

static CUresult node_clone(struct sg_graph *g, const struct sg_gnode *n, struct sg_gnode **out)
{
    struct sg_op *op = NULL;
    if (n->op && !(op = sg_op_clone(n->op)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    SG_TRY(sg_node_add(g, n->type, op, NULL, 0, out));
    (*out)->origin = n;
    (*out)->event = n->event;
    (*out)->freed = n->freed;
    (*out)->disabled = n->disabled;
    (*out)->memory = n->memory;
    if (n->memory)
        n->memory->refs++;
    if (n->child) {
        SG_TRY(sg_graph_clone(n->child, &(*out)->child));
        (*out)->child->owned = true;
    }
    return CUDA_SUCCESS;
}

CUresult sg_graph_clone(const struct sg_graph *g, struct sg_graph **out)
{
    struct sg_graph *c = sg_graph_new();
    struct sg_gnode *n;
    CUresult r = c ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; r == CUDA_SUCCESS && i < g->n; i++)
        r = node_clone(c, g->node[i], &n);
    for (unsigned i = 0; r == CUDA_SUCCESS && i < g->n; i++)
        for (unsigned k = 0; r == CUDA_SUCCESS && k < g->node[i]->ndeps; k++)
            r = sg_node_depends(c->node[i], c->node[g->node[i]->deps[k]->index]);
    if (r != CUDA_SUCCESS && c)
        sg_graph_free(c);
    else if (c)
        *out = c;
    return r;
}

struct sg_gnode *sg_graph_image(const struct sg_graph *clone, const struct sg_gnode *origin)
{
    if (origin->index < clone->n && clone->node[origin->index]->origin == origin)
        return clone->node[origin->index];
    for (unsigned i = 0; i < clone->n; i++)
        if (clone->node[i]->origin == origin)
            return clone->node[i];
    return NULL;
}

/* Depth first, each node once. */
bool sg_node_reaches(struct sg_gnode *from, const struct sg_gnode *to)
{
    static unsigned epoch;
    size_t n = 0, cap = 64;
    struct sg_gnode **stack = malloc(cap * sizeof *stack);
    bool found = from == to;
    epoch++;
    from->mark = epoch;
    for (struct sg_gnode *v = from; stack && v && !found; v = n ? stack[--n] : NULL)
        for (unsigned i = 0; i < v->ndeps; i++) {
            struct sg_gnode *d = v->deps[i];
            found |= d == to;
            if (d->mark == epoch)
                continue;
            d->mark = epoch;
            if (n == cap) {
                struct sg_gnode **p = realloc(stack, (cap *= 2) * sizeof *p);
                if (!p)
                    abort(); /* the simulator itself is out of memory */
                stack = p;
            }
            stack[n++] = d;
        }
    free(stack);
    return found;
}

/* The memory is there from the node's creation until the last graph that names it is gone. */
CUresult sg_graph_alloc_node(struct sg_graph *g, size_t bytes, struct sg_gnode *const *deps,
                             unsigned ndeps, struct sg_gnode **out)
{
    struct sg_ctx *c;
    SG_TRY(sg_current(&c));
    struct sg_graph_memory *m = calloc(1, sizeof *m);
    SG_CHECK(m, CUDA_ERROR_OUT_OF_MEMORY);
    CUresult r = sg_alloc(SG_DEVICE, c, bytes, &m->range);
    if (r != CUDA_SUCCESS) {
        free(m);
        return r;
    }
    struct sg_device *d = &sg.dev[c->device];
    m->range->of_graph = true;
    m->refs = 1;
    d->graph_used += m->range->map.phys->bytes;
    if (d->graph_used > d->graph_high)
        d->graph_high = d->graph_used;
    r = sg_node_add(g, CU_GRAPH_NODE_TYPE_MEM_ALLOC, NULL, deps, ndeps, out);
    if (r != CUDA_SUCCESS)
        memory_unref(m);
    else
        (*out)->memory = m;
    return r;
}

CUresult sg_node_set_op(struct sg_gnode *n, struct sg_op *op)
{
    sg_op_unref(n->op);
    n->op = op;
    free(n->params);
    n->params = NULL;
    return CUDA_SUCCESS;
}

/* ---- calls on graphs ---- */
SG_CALL(cuGraphCreate, (CUgraph * out, unsigned flags), (out, flags))
{
    SG_CHECK(out && flags == 0, CUDA_ERROR_INVALID_VALUE);
    struct sg_graph *g = sg_graph_new();
    SG_CHECK(g, CUDA_ERROR_OUT_OF_MEMORY);
    *out = (CUgraph)g;
    return CUDA_SUCCESS;
}

SG_CALL(cuGraphDestroy, (CUgraph hg), (hg))
{
    struct sg_graph *g = sg_graph_of(hg);
    SG_CHECK(g && !g->owned, CUDA_ERROR_INVALID_VALUE);
    sg_graph_free(g);
    return CUDA_SUCCESS;
}

SG_CALL(cuGraphClone, (CUgraph * out, CUgraph hg), (out, hg))
{
    struct sg_graph *g = sg_graph_of(hg), *c;
    SG_CHECK(out && g, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_graph_clone(g, &c));
    *out = (CUgraph)c;
    return CUDA_SUCCESS;
}

SG_CALL(cuGraphNodeFindInClone, (CUgraphNode * out, CUgraphNode hn, CUgraph hg), (out, hn, hg))
{
    const struct sg_graph *g = sg_graph_of(hg);
    const struct sg_gnode *n = sg_node_of(hn);
    SG_CHECK(out && g && n, CUDA_ERROR_INVALID_VALUE);
    struct sg_gnode *found = sg_graph_image(g, n);
    SG_CHECK(found, CUDA_ERROR_INVALID_VALUE);
    *out = (CUgraphNode)found;
    return CUDA_SUCCESS;
}

SG_CALL(cuGraphDestroyNode, (CUgraphNode hn), (hn))
{
    struct sg_gnode *n = sg_node_of(hn);
    SG_CHECK(n, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(n->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC && n->type != CU_GRAPH_NODE_TYPE_MEM_FREE,
             CUDA_ERROR_NOT_SUPPORTED);
    struct sg_graph *g = n->graph;
    memmove(&g->node[n->index], &g->node[n->index + 1], (g->n - n->index - 1) * sizeof *g->node);
    g->n--;
    for (unsigned i = 0; i < g->n; i++) {
        struct sg_gnode *m = g->node[i];
        m->index = i;
        for (unsigned k = 0; k < m->ndeps; k++)
            if (m->deps[k] == n)
                m->deps[k--] = m->deps[--m->ndeps];
    }
    node_free(n);
    return CUDA_SUCCESS;
}

SG_CALL(cuGraphNodeGetType, (CUgraphNode hn, CUgraphNodeType *type), (hn, type))
{
    const struct sg_gnode *n = sg_node_of(hn);
    SG_CHECK(n && type, CUDA_ERROR_INVALID_VALUE);
    *type = n->type;
    return CUDA_SUCCESS;
}

/* Lists: with a NULL array only the count is answered; surplus entries become NULL. */
static void put(CUgraphNode *out, size_t room, size_t *n, const struct sg_gnode *v)
{
    if (out && *n < room)
        out[*n] = (CUgraphNode)v;
    ++*n;
}
static CUresult finish(CUgraphNode *out, size_t room, size_t n, size_t *count)
{
    for (size_t i = n; out && i < room; i++)
        out[i] = NULL;
    *count = out && room < n ? room : n;
    return CUDA_SUCCESS;
}

SG_CALL(cuGraphGetNodes, (CUgraph hg, CUgraphNode *out, size_t *count), (hg, out, count))
{
    const struct sg_graph *g = sg_graph_of(hg);
    SG_CHECK(g && count, CUDA_ERROR_INVALID_VALUE);
    size_t n = 0;
    for (unsigned i = 0; i < g->n; i++)
        put(out, *count, &n, g->node[i]);
    return finish(out, *count, n, count);
}

SG_CALL(cuGraphGetRootNodes, (CUgraph hg, CUgraphNode *out, size_t *count), (hg, out, count))
{
    const struct sg_graph *g = sg_graph_of(hg);
    SG_CHECK(g && count, CUDA_ERROR_INVALID_VALUE);
    size_t n = 0;
    for (unsigned i = 0; i < g->n; i++)
        if (!g->node[i]->ndeps)
            put(out, *count, &n, g->node[i]);
    return finish(out, *count, n, count);
}

static CUresult edges(CUgraph hg, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data,
                      size_t *count)
{
    const struct sg_graph *g = sg_graph_of(hg);
    SG_CHECK(g && count && !from == !to, CUDA_ERROR_INVALID_VALUE);
    size_t n = 0, m = 0, room = *count;
    for (unsigned i = 0; i < g->n; i++)
        for (unsigned k = 0; k < g->node[i]->ndeps; k++) {
            put(from, room, &n, g->node[i]->deps[k]);
            put(to, room, &m, g->node[i]);
        }
    if (data)
        memset(data, 0, (room < n ? room : n) * sizeof *data);
    finish(from, room, n, count);
    return finish(to, room, n, count);
}
SG_CALL(cuGraphGetEdges, (CUgraph g, CUgraphNode *from, CUgraphNode *to, size_t *n),
        (g, from, to, n))
{
    return edges(g, from, to, NULL, n);
}
SG_CALL(cuGraphGetEdges_v2,
        (CUgraph g, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *n),
        (g, from, to, data, n))
{
    return edges(g, from, to, data, n);
}

static CUresult neighbours(CUgraphNode hn, CUgraphNode *out, CUgraphEdgeData *data, size_t *count,
                           bool dependents)
{
    const struct sg_gnode *v = sg_node_of(hn);
    SG_CHECK(v && count, CUDA_ERROR_INVALID_VALUE);
    size_t n = 0, room = *count;
    for (unsigned k = 0; !dependents && k < v->ndeps; k++)
        put(out, room, &n, v->deps[k]);
    for (unsigned i = 0; dependents && i < v->graph->n; i++)
        for (unsigned k = 0; k < v->graph->node[i]->ndeps; k++)
            if (v->graph->node[i]->deps[k] == v)
                put(out, room, &n, v->graph->node[i]);
    if (data)
        memset(data, 0, (room < n ? room : n) * sizeof *data);
    return finish(out, room, n, count);
}
SG_CALL(cuGraphNodeGetDependencies, (CUgraphNode v, CUgraphNode *out, size_t *n), (v, out, n))
{
    return neighbours(v, out, NULL, n, false);
}
SG_CALL(cuGraphNodeGetDependencies_v2,
        (CUgraphNode v, CUgraphNode *out, CUgraphEdgeData *data, size_t *n), (v, out, data, n))
{
    return neighbours(v, out, data, n, false);
}
SG_CALL(cuGraphNodeGetDependentNodes, (CUgraphNode v, CUgraphNode *out, size_t *n), (v, out, n))
{
    return neighbours(v, out, NULL, n, true);
}
SG_CALL(cuGraphNodeGetDependentNodes_v2,
        (CUgraphNode v, CUgraphNode *out, CUgraphEdgeData *data, size_t *n), (v, out, data, n))
{
    return neighbours(v, out, data, n, true);
}

static CUresult change_edges(CUgraph hg, const CUgraphNode *from, const CUgraphNode *to, size_t n,
                             bool add)
{
    const struct sg_graph *g = sg_graph_of(hg);
    SG_CHECK(g && (!n || (from && to)), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < n; i++) {
        struct sg_gnode *a = sg_node_of(from[i]), *b = sg_node_of(to[i]);
        SG_CHECK(a && b && a->graph == g && b->graph == g, CUDA_ERROR_INVALID_VALUE);
        if (add) {
            SG_CHECK(!sg_node_reaches(a, b), CUDA_ERROR_INVALID_VALUE); /* no cycles */
            SG_TRY(sg_node_depends(b, a));
            continue;
        }
        unsigned k = 0;
        while (k < b->ndeps && b->deps[k] != a)
            k++;
        SG_CHECK(k < b->ndeps, CUDA_ERROR_INVALID_VALUE);
        b->deps[k] = b->deps[--b->ndeps];
    }
    return CUDA_SUCCESS;
}
SG_CALL(cuGraphAddDependencies,
        (CUgraph g, const CUgraphNode *from, const CUgraphNode *to, size_t n), (g, from, to, n))
{
    return change_edges(g, from, to, n, true);
}
SG_CALL(cuGraphAddDependencies_v2,
        (CUgraph g, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data,
         size_t n),
        (g, from, to, data, n))
{
    (void)data;
    return change_edges(g, from, to, n, true);
}
SG_CALL(cuGraphRemoveDependencies,
        (CUgraph g, const CUgraphNode *from, const CUgraphNode *to, size_t n), (g, from, to, n))
{
    return change_edges(g, from, to, n, false);
}
SG_CALL(cuGraphRemoveDependencies_v2,
        (CUgraph g, const CUgraphNode *from, const CUgraphNode *to, const CUgraphEdgeData *data,
         size_t n),
        (g, from, to, data, n))
{
    (void)data;
    return change_edges(g, from, to, n, false);
}

/* ---- memory of graphs ---- */
SG_CALL(cuDeviceGetGraphMemAttribute, (CUdevice dev, CUgraphMem_attribute a, void *value),
        (dev, a, value))
{
    SG_CHECK(value, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(dev >= 0 && dev < sg.cfg.ndevices, CUDA_ERROR_INVALID_DEVICE);
    const struct sg_device *d = &sg.dev[dev];
    bool high = a == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || a == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
    *(cuuint64_t *)value = high ? d->graph_high : d->graph_used;
    return CUDA_SUCCESS;
}
SG_CALL(cuDeviceSetGraphMemAttribute, (CUdevice dev, CUgraphMem_attribute a, void *value),
        (dev, a, value))
{
    SG_CHECK(value && *(cuuint64_t *)value == 0, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(dev >= 0 && dev < sg.cfg.ndevices, CUDA_ERROR_INVALID_DEVICE);
    SG_CHECK(a == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || a == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH,
             CUDA_ERROR_INVALID_VALUE);
    sg.dev[dev].graph_high = sg.dev[dev].graph_used;
    return CUDA_SUCCESS;
}
SG_CALL(cuDeviceGraphMemTrim, (CUdevice dev), (dev))
{
    SG_CHECK(dev >= 0 && dev < sg.cfg.ndevices, CUDA_ERROR_INVALID_DEVICE);
    return CUDA_SUCCESS; /* nothing is held that no graph names */
}
