/* Making nodes and reading and changing what they do. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

/* Checks the dependencies of a new node; they are handles, and stay so. */
static CUresult new_node(CUgraphNode *out, CUgraph hg, const CUgraphNode *deps, size_t ndeps,
                         CUgraphNodeType type, struct sg_op *op, struct sg_gnode **node)
{
    struct sg_graph *g = sg_graph_of(hg);
    CUresult r = out && g && (!ndeps || deps) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; r == CUDA_SUCCESS && i < ndeps; i++)
        if (!sg_node_of(deps[i]) || sg_node_of(deps[i])->graph != g)
            r = CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS) {
        sg_op_unref(op);
        return r;
    }
    SG_TRY(sg_node_add(g, type, op, (struct sg_gnode *const *)deps, (unsigned)ndeps, node));
    *out = (CUgraphNode)*node;
    return CUDA_SUCCESS;
}

static struct sg_gnode *typed(CUgraphNode hn, CUgraphNodeType type)
{
    struct sg_gnode *n = sg_node_of(hn);
    return n && n->type == type ? n : NULL;
}

/* The node of an executable graph that was made from hn. */
static struct sg_gnode *in_exec(CUgraphExec he, CUgraphNode hn, CUgraphNodeType type)
{
    const struct sg_gnode *n = typed(hn, type);
    if (!n || !sg_handle_is(SG_H_EXEC, he))
        return NULL;
    return sg_graph_image(((struct sg_exec *)he)->graph, n);
}

/* ---- kernels ---- */
static CUresult kernel_op(const CUDA_KERNEL_NODE_PARAMS_v2 *p, struct sg_op **op)
{
    SG_CHECK(p, CUDA_ERROR_INVALID_VALUE);
    struct sg_func *f = sg_func_of(p->func ? p->func : (CUfunction)p->kern);
    SG_CHECK(f, CUDA_ERROR_INVALID_HANDLE);
    const unsigned grid[3] = {p->gridDimX, p->gridDimY, p->gridDimZ};
    const unsigned block[3] = {p->blockDimX, p->blockDimY, p->blockDimZ};
    return sg_kernel_op(f, grid, block, p->sharedMemBytes, p->kernelParams, p->extra, op);
}

static CUDA_KERNEL_NODE_PARAMS_v2 widen(const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
    CUDA_KERNEL_NODE_PARAMS_v2 q = {.func = p->func,
                                    .gridDimX = p->gridDimX,
                                    .gridDimY = p->gridDimY,
                                    .gridDimZ = p->gridDimZ,
                                    .blockDimX = p->blockDimX,
                                    .blockDimY = p->blockDimY,
                                    .blockDimZ = p->blockDimZ,
                                    .sharedMemBytes = p->sharedMemBytes,
                                    .kernelParams = p->kernelParams,
                                    .extra = p->extra};
    return q;
}

static CUresult add_kernel(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n,
                           const CUDA_KERNEL_NODE_PARAMS_v2 *p)
{
    struct sg_op *op;
    struct sg_gnode *node;
    SG_TRY(kernel_op(p, &op));
    return new_node(out, g, deps, n, CU_GRAPH_NODE_TYPE_KERNEL, op, &node);
}
SG_CALL(cuGraphAddKernelNode,
        (CUgraphNode * out, CUgraph g, const CUgraphNode *deps, size_t n,
         const CUDA_KERNEL_NODE_PARAMS_v1 *p),
        (out, g, deps, n, p))
{
    SG_CHECK(p, CUDA_ERROR_INVALID_VALUE);
    const CUDA_KERNEL_NODE_PARAMS_v2 q = widen(p);
    return add_kernel(out, g, deps, n, &q);
}
SG_CALL(cuGraphAddKernelNode_v2,
        (CUgraphNode * out, CUgraph g, const CUgraphNode *deps, size_t n,
         const CUDA_KERNEL_NODE_PARAMS_v2 *p),
        (out, g, deps, n, p))
{
    return add_kernel(out, g, deps, n, p);
}

/* The parameters that are answered point into the node and live as long as it stays unchanged. */
static CUresult kernel_params(CUgraphNode hn, CUDA_KERNEL_NODE_PARAMS_v2 *out)
{
    struct sg_gnode *n = typed(hn, CU_GRAPH_NODE_TYPE_KERNEL);
    SG_CHECK(n && out, CUDA_ERROR_INVALID_VALUE);
    const struct sg_kernel_op *k = &n->op->u.kernel;
    unsigned count = k->fn->kernel->nparams;
    if (!n->params) {
        n->params = calloc(count ? count : 1, sizeof *n->params);
        SG_CHECK(n->params, CUDA_ERROR_OUT_OF_MEMORY);
        for (unsigned i = 0; i < count; i++)
            n->params[i] = k->params + k->fn->kernel->params[i].offset;
    }
    bool kernel = sg_handle_is(SG_H_KERNEL, k->fn);
    *out = (CUDA_KERNEL_NODE_PARAMS_v2){.func = kernel ? NULL : (CUfunction)k->fn,
                                        .gridDimX = k->grid[0],
                                        .gridDimY = k->grid[1],
                                        .gridDimZ = k->grid[2],
                                        .blockDimX = k->block[0],
                                        .blockDimY = k->block[1],
                                        .blockDimZ = k->block[2],
                                        .sharedMemBytes = k->shared,
                                        .kernelParams = n->params,
                                        .kern = kernel ? (CUkernel)k->fn : NULL};
    return CUDA_SUCCESS;
}
SG_CALL(cuGraphKernelNodeGetParams, (CUgraphNode n, CUDA_KERNEL_NODE_PARAMS_v1 *out), (n, out))
{
    CUDA_KERNEL_NODE_PARAMS_v2 p;
    SG_CHECK(out, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(kernel_params(n, &p));
    *out = (CUDA_KERNEL_NODE_PARAMS_v1){.func = p.func ? p.func : (CUfunction)p.kern,
                                        .gridDimX = p.gridDimX,
                                        .gridDimY = p.gridDimY,
                                        .gridDimZ = p.gridDimZ,
                                        .blockDimX = p.blockDimX,
                                        .blockDimY = p.blockDimY,
                                        .blockDimZ = p.blockDimZ,
                                        .sharedMemBytes = p.sharedMemBytes,
                                        .kernelParams = p.kernelParams};
    return CUDA_SUCCESS;
}
SG_CALL(cuGraphKernelNodeGetParams_v2, (CUgraphNode n, CUDA_KERNEL_NODE_PARAMS_v2 *out), (n, out))
{
    return kernel_params(n, out);
}

static CUresult set_kernel(struct sg_gnode *n, const CUDA_KERNEL_NODE_PARAMS_v2 *p)
{
    struct sg_op *op;
    SG_CHECK(n, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(kernel_op(p, &op));
    return sg_node_set_op(n, op);
}
SG_CALL(cuGraphKernelNodeSetParams, (CUgraphNode n, const CUDA_KERNEL_NODE_PARAMS_v1 *p), (n, p))
{
    SG_CHECK(p, CUDA_ERROR_INVALID_VALUE);
    const CUDA_KERNEL_NODE_PARAMS_v2 q = widen(p);
    return set_kernel(typed(n, CU_GRAPH_NODE_TYPE_KERNEL), &q);
}
SG_CALL(cuGraphKernelNodeSetParams_v2, (CUgraphNode n, const CUDA_KERNEL_NODE_PARAMS_v2 *p), (n, p))
{
    return set_kernel(typed(n, CU_GRAPH_NODE_TYPE_KERNEL), p);
}
SG_CALL(cuGraphExecKernelNodeSetParams,
        (CUgraphExec e, CUgraphNode n, const CUDA_KERNEL_NODE_PARAMS_v1 *p), (e, n, p))
{
    SG_CHECK(p, CUDA_ERROR_INVALID_VALUE);
    const CUDA_KERNEL_NODE_PARAMS_v2 q = widen(p);
    return set_kernel(in_exec(e, n, CU_GRAPH_NODE_TYPE_KERNEL), &q);
}
SG_CALL(cuGraphExecKernelNodeSetParams_v2,
        (CUgraphExec e, CUgraphNode n, const CUDA_KERNEL_NODE_PARAMS_v2 *p), (e, n, p))
{
    return set_kernel(in_exec(e, n, CU_GRAPH_NODE_TYPE_KERNEL), p);
}

/* ---- copies ---- */
static CUresult copy_op(const CUDA_MEMCPY3D *p, CUcontext ctx, struct sg_op **op)
{
    struct sg_ctx *c = (struct sg_ctx *)ctx;
    SG_CHECK(p, CUDA_ERROR_INVALID_VALUE);
    if (!c)
        SG_TRY(sg_current(&c));
    SG_CHECK(sg_handle_is(SG_H_CTX, c), CUDA_ERROR_INVALID_CONTEXT);
    return sg_copy_op(p, c, op);
}
SG_CALL(cuGraphAddMemcpyNode,
        (CUgraphNode * out, CUgraph g, const CUgraphNode *deps, size_t n, const CUDA_MEMCPY3D *p,
         CUcontext ctx),
        (out, g, deps, n, p, ctx))
{
    struct sg_op *op;
    struct sg_gnode *node;
    SG_TRY(copy_op(p, ctx, &op));
    return new_node(out, g, deps, n, CU_GRAPH_NODE_TYPE_MEMCPY, op, &node);
}
SG_CALL(cuGraphMemcpyNodeGetParams, (CUgraphNode hn, CUDA_MEMCPY3D *out), (hn, out))
{
    const struct sg_gnode *n = typed(hn, CU_GRAPH_NODE_TYPE_MEMCPY);
    SG_CHECK(n && out, CUDA_ERROR_INVALID_VALUE);
    const struct sg_copy *c = &n->op->u.copy;
    *out = (CUDA_MEMCPY3D){.srcMemoryType = c->src_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
                           .srcHost = c->src_host ? (void *)c->src : NULL,
                           .srcDevice = c->src_host ? 0 : c->src,
                           .srcPitch = c->spitch,
                           .srcHeight = c->sslice / c->spitch,
                           .dstMemoryType = c->dst_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
                           .dstHost = c->dst_host ? (void *)c->dst : NULL,
                           .dstDevice = c->dst_host ? 0 : c->dst,
                           .dstPitch = c->dpitch,
                           .dstHeight = c->dslice / c->dpitch,
                           .WidthInBytes = c->width,
                           .Height = c->height,
                           .Depth = c->depth};
    return CUDA_SUCCESS;
}
static CUresult set_copy(struct sg_gnode *n, const CUDA_MEMCPY3D *p, CUcontext ctx)
{
    struct sg_op *op;
    SG_CHECK(n, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(copy_op(p, ctx, &op));
    return sg_node_set_op(n, op);
}
SG_CALL(cuGraphMemcpyNodeSetParams, (CUgraphNode n, const CUDA_MEMCPY3D *p), (n, p))
{
    return set_copy(typed(n, CU_GRAPH_NODE_TYPE_MEMCPY), p, NULL);
}
SG_CALL(cuGraphExecMemcpyNodeSetParams,
        (CUgraphExec e, CUgraphNode n, const CUDA_MEMCPY3D *p, CUcontext ctx), (e, n, p, ctx))
{
    return set_copy(in_exec(e, n, CU_GRAPH_NODE_TYPE_MEMCPY), p, ctx);
}

/* ---- memsets ---- */
SG_CALL(cuGraphAddMemsetNode,
        (CUgraphNode * out, CUgraph g, const CUgraphNode *deps, size_t n,
         const CUDA_MEMSET_NODE_PARAMS_v1 *p, CUcontext ctx),
        (out, g, deps, n, p, ctx))
{
    struct sg_op *op;
    struct sg_gnode *node;
    SG_CHECK(p, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(!ctx || sg_handle_is(SG_H_CTX, ctx), CUDA_ERROR_INVALID_CONTEXT);
    SG_TRY(sg_memset_op(p, &op));
    return new_node(out, g, deps, n, CU_GRAPH_NODE_TYPE_MEMSET, op, &node);
}
SG_CALL(cuGraphMemsetNodeGetParams, (CUgraphNode hn, CUDA_MEMSET_NODE_PARAMS_v1 *out), (hn, out))
{
    const struct sg_gnode *n = typed(hn, CU_GRAPH_NODE_TYPE_MEMSET);
    SG_CHECK(n && out, CUDA_ERROR_INVALID_VALUE);
    const struct sg_memset *m = &n->op->u.memset;
    *out = (CUDA_MEMSET_NODE_PARAMS_v1){.dst = m->dst,
                                        .pitch = m->pitch,
                                        .value = m->value,
                                        .elementSize = m->elem,
                                        .width = m->width,
                                        .height = m->height};
    return CUDA_SUCCESS;
}
static CUresult set_memset(struct sg_gnode *n, const CUDA_MEMSET_NODE_PARAMS_v1 *p)
{
    struct sg_op *op;
    SG_CHECK(n && p, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_memset_op(p, &op));
    return sg_node_set_op(n, op);
}
SG_CALL(cuGraphMemsetNodeSetParams, (CUgraphNode n, const CUDA_MEMSET_NODE_PARAMS_v1 *p), (n, p))
{
    return set_memset(typed(n, CU_GRAPH_NODE_TYPE_MEMSET), p);
}
SG_CALL(cuGraphExecMemsetNodeSetParams,
        (CUgraphExec e, CUgraphNode n, const CUDA_MEMSET_NODE_PARAMS_v1 *p, CUcontext ctx),
        (e, n, p, ctx))
{
    (void)ctx;
    return set_memset(in_exec(e, n, CU_GRAPH_NODE_TYPE_MEMSET), p);
}

/* ---- host functions ---- */
static CUresult host_op(const CUDA_HOST_NODE_PARAMS_v1 *p, struct sg_op **op)
{
    SG_CHECK(p && p->fn, CUDA_ERROR_INVALID_VALUE);
    *op = sg_op_new(SG_OP_HOSTFN, SG_ENG_NONE);
    SG_CHECK(*op, CUDA_ERROR_OUT_OF_MEMORY);
    (*op)->u.hostfn = (struct sg_hostfn){.fn = p->fn, .data = p->userData};
    return CUDA_SUCCESS;
}
SG_CALL(cuGraphAddHostNode,
        (CUgraphNode * out, CUgraph g, const CUgraphNode *deps, size_t n,
         const CUDA_HOST_NODE_PARAMS_v1 *p),
        (out, g, deps, n, p))
{
    struct sg_op *op;
    struct sg_gnode *node;
    SG_TRY(host_op(p, &op));
    return new_node(out, g, deps, n, CU_GRAPH_NODE_TYPE_HOST, op, &node);
}
SG_CALL(cuGraphHostNodeGetParams, (CUgraphNode hn, CUDA_HOST_NODE_PARAMS_v1 *out), (hn, out))
{
    const struct sg_gnode *n = typed(hn, CU_GRAPH_NODE_TYPE_HOST);
    SG_CHECK(n && out, CUDA_ERROR_INVALID_VALUE);
    *out = (CUDA_HOST_NODE_PARAMS_v1){.fn = n->op->u.hostfn.fn, .userData = n->op->u.hostfn.data};
    return CUDA_SUCCESS;
}
static CUresult set_host(struct sg_gnode *n, const CUDA_HOST_NODE_PARAMS_v1 *p)
{
    struct sg_op *op;
    SG_CHECK(n, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(host_op(p, &op));
    return sg_node_set_op(n, op);
}
SG_CALL(cuGraphHostNodeSetParams, (CUgraphNode n, const CUDA_HOST_NODE_PARAMS_v1 *p), (n, p))
{
    return set_host(typed(n, CU_GRAPH_NODE_TYPE_HOST), p);
}
SG_CALL(cuGraphExecHostNodeSetParams,
        (CUgraphExec e, CUgraphNode n, const CUDA_HOST_NODE_PARAMS_v1 *p), (e, n, p))
{
    return set_host(in_exec(e, n, CU_GRAPH_NODE_TYPE_HOST), p);
}

/* ---- empty, child, event and memory nodes ---- */
SG_CALL(cuGraphAddEmptyNode, (CUgraphNode * out, CUgraph g, const CUgraphNode *deps, size_t n),
        (out, g, deps, n))
{
    struct sg_gnode *node;
    return new_node(out, g, deps, n, CU_GRAPH_NODE_TYPE_EMPTY, NULL, &node);
}
SG_CALL(cuGraphAddChildGraphNode,
        (CUgraphNode * out, CUgraph g, const CUgraphNode *deps, size_t n, CUgraph child),
        (out, g, deps, n, child))
{
    struct sg_gnode *node;
    struct sg_graph *copy;
    SG_CHECK(sg_graph_of(child), CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_graph_clone(sg_graph_of(child), &copy));
    CUresult r = new_node(out, g, deps, n, CU_GRAPH_NODE_TYPE_GRAPH, NULL, &node);
    if (r != CUDA_SUCCESS) {
        sg_graph_free(copy);
        return r;
    }
    copy->owned = true;
    node->child = copy;
    return CUDA_SUCCESS;
}
SG_CALL(cuGraphChildGraphNodeGetGraph, (CUgraphNode hn, CUgraph *out), (hn, out))
{
    const struct sg_gnode *n = typed(hn, CU_GRAPH_NODE_TYPE_GRAPH);
    SG_CHECK(n && out, CUDA_ERROR_INVALID_VALUE);
    *out = (CUgraph)n->child;
    return CUDA_SUCCESS;
}

static CUresult add_event(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n, CUevent e,
                          CUgraphNodeType type)
{
    struct sg_gnode *node;
    SG_CHECK(sg_handle_is(SG_H_EVENT, e), CUDA_ERROR_INVALID_HANDLE);
    SG_TRY(new_node(out, g, deps, n, type, NULL, &node));
    node->event = (struct sg_event *)e;
    return CUDA_SUCCESS;
}
SG_CALL(cuGraphAddEventRecordNode,
        (CUgraphNode * out, CUgraph g, const CUgraphNode *deps, size_t n, CUevent e),
        (out, g, deps, n, e))
{
    return add_event(out, g, deps, n, e, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
}
SG_CALL(cuGraphAddEventWaitNode,
        (CUgraphNode * out, CUgraph g, const CUgraphNode *deps, size_t n, CUevent e),
        (out, g, deps, n, e))
{
    return add_event(out, g, deps, n, e, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}
static CUresult get_event(const struct sg_gnode *n, CUevent *out)
{
    SG_CHECK(n && out, CUDA_ERROR_INVALID_VALUE);
    *out = (CUevent)n->event;
    return CUDA_SUCCESS;
}
SG_CALL(cuGraphEventRecordNodeGetEvent, (CUgraphNode n, CUevent *out), (n, out))
{
    return get_event(typed(n, CU_GRAPH_NODE_TYPE_EVENT_RECORD), out);
}
SG_CALL(cuGraphEventWaitNodeGetEvent, (CUgraphNode n, CUevent *out), (n, out))
{
    return get_event(typed(n, CU_GRAPH_NODE_TYPE_WAIT_EVENT), out);
}
static CUresult set_event(struct sg_gnode *n, CUevent e)
{
    SG_CHECK(n, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(sg_handle_is(SG_H_EVENT, e), CUDA_ERROR_INVALID_HANDLE);
    n->event = (struct sg_event *)e;
    return CUDA_SUCCESS;
}
SG_CALL(cuGraphEventRecordNodeSetEvent, (CUgraphNode n, CUevent e), (n, e))
{
    return set_event(typed(n, CU_GRAPH_NODE_TYPE_EVENT_RECORD), e);
}
SG_CALL(cuGraphEventWaitNodeSetEvent, (CUgraphNode n, CUevent e), (n, e))
{
    return set_event(typed(n, CU_GRAPH_NODE_TYPE_WAIT_EVENT), e);
}
SG_CALL(cuGraphExecEventRecordNodeSetEvent, (CUgraphExec x, CUgraphNode n, CUevent e), (x, n, e))
{
    return set_event(in_exec(x, n, CU_GRAPH_NODE_TYPE_EVENT_RECORD), e);
}
SG_CALL(cuGraphExecEventWaitNodeSetEvent, (CUgraphExec x, CUgraphNode n, CUevent e), (x, n, e))
{
    return set_event(in_exec(x, n, CU_GRAPH_NODE_TYPE_WAIT_EVENT), e);
}

SG_CALL(cuGraphAddMemAllocNode,
        (CUgraphNode * out, CUgraph hg, const CUgraphNode *deps, size_t n,
         CUDA_MEM_ALLOC_NODE_PARAMS_v1 *p),
        (out, hg, deps, n, p))
{
    struct sg_gnode *node;
    struct sg_graph *g = sg_graph_of(hg);
    SG_CHECK(out && g && p && p->bytesize && (!n || deps), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < n; i++)
        SG_CHECK(sg_node_of(deps[i]) && sg_node_of(deps[i])->graph == g, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_graph_alloc_node(g, p->bytesize, (struct sg_gnode *const *)deps, (unsigned)n, &node));
    p->dptr = node->memory->range->va;
    *out = (CUgraphNode)node;
    return CUDA_SUCCESS;
}
SG_CALL(cuGraphMemAllocNodeGetParams, (CUgraphNode hn, CUDA_MEM_ALLOC_NODE_PARAMS_v1 *out),
        (hn, out))
{
    const struct sg_gnode *n = typed(hn, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    SG_CHECK(n && out, CUDA_ERROR_INVALID_VALUE);
    *out = (CUDA_MEM_ALLOC_NODE_PARAMS_v1){
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                      .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                                   .id = n->memory->range->device}},
        .bytesize = n->memory->range->bytes,
        .dptr = n->memory->range->va};
    return CUDA_SUCCESS;
}
SG_CALL(cuGraphAddMemFreeNode,
        (CUgraphNode * out, CUgraph g, const CUgraphNode *deps, size_t n, CUdeviceptr ptr),
        (out, g, deps, n, ptr))
{
    struct sg_gnode *node;
    const struct sg_range *r = sg_range_find(ptr);
    SG_CHECK(r && r->va == ptr && r->of_graph, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(new_node(out, g, deps, n, CU_GRAPH_NODE_TYPE_MEM_FREE, NULL, &node));
    node->freed = ptr;
    return CUDA_SUCCESS;
}
SG_CALL(cuGraphMemFreeNodeGetParams, (CUgraphNode hn, CUdeviceptr *out), (hn, out))
{
    const struct sg_gnode *n = typed(hn, CU_GRAPH_NODE_TYPE_MEM_FREE);
    SG_CHECK(n && out, CUDA_ERROR_INVALID_VALUE);
    *out = n->freed;
    return CUDA_SUCCESS;
}

/* ---- nodes of any type ---- */
static CUresult generic_op(const CUgraphNodeParams *p, struct sg_op **op, CUevent *event)
{
    *op = NULL;
    *event = NULL;
    switch ((int)p->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL: {
        CUDA_KERNEL_NODE_PARAMS_v2 k;
        memcpy(&k, &p->kernel, sizeof k); /* v3 has the layout of v2 */
        return kernel_op(&k, op);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return copy_op(&p->memcpy.copyParams, p->memcpy.copyCtx, op);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        CUDA_MEMSET_NODE_PARAMS_v1 m = {.dst = p->memset.dst,
                                        .pitch = p->memset.pitch,
                                        .value = p->memset.value,
                                        .elementSize = p->memset.elementSize,
                                        .width = p->memset.width,
                                        .height = p->memset.height};
        return sg_memset_op(&m, op);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
        CUDA_HOST_NODE_PARAMS_v1 h = {.fn = p->host.fn, .userData = p->host.userData};
        return host_op(&h, op);
    }
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        *event =
            p->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD ? p->eventRecord.event : p->eventWait.event;
        return sg_handle_is(SG_H_EVENT, *event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
    }
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult add_any(CUgraphNode *out, CUgraph g, const CUgraphNode *deps, size_t n,
                        CUgraphNodeParams *p)
{
    struct sg_op *op;
    struct sg_gnode *node;
    CUevent event;
    SG_CHECK(p, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(generic_op(p, &op, &event));
    SG_TRY(new_node(out, g, deps, n, p->type, op, &node));
    node->event = (struct sg_event *)event;
    return CUDA_SUCCESS;
}
SG_CALL(cuGraphAddNode,
        (CUgraphNode * out, CUgraph g, const CUgraphNode *deps, size_t n, CUgraphNodeParams *p),
        (out, g, deps, n, p))
{
    return add_any(out, g, deps, n, p);
}
SG_CALL(cuGraphAddNode_v2,
        (CUgraphNode * out, CUgraph g, const CUgraphNode *deps, const CUgraphEdgeData *data,
         size_t n, CUgraphNodeParams *p),
        (out, g, deps, data, n, p))
{
    (void)data;
    return add_any(out, g, deps, n, p);
}

static CUresult set_any(struct sg_gnode *n, CUgraphNodeParams *p)
{
    struct sg_op *op;
    CUevent event;
    SG_CHECK(n, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(generic_op(p, &op, &event));
    n->event = (struct sg_event *)event;
    return sg_node_set_op(n, op);
}
SG_CALL(cuGraphNodeSetParams, (CUgraphNode n, CUgraphNodeParams *p), (n, p))
{
    SG_CHECK(p, CUDA_ERROR_INVALID_VALUE);
    return set_any(typed(n, p->type), p);
}
SG_CALL(cuGraphExecNodeSetParams, (CUgraphExec e, CUgraphNode n, CUgraphNodeParams *p), (e, n, p))
{
    SG_CHECK(p, CUDA_ERROR_INVALID_VALUE);
    return set_any(in_exec(e, n, p->type), p);
}
