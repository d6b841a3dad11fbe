/* Engines of operation graphs, heuristics, plans, and the launch of a graph.
 *
 * A graph with a convolution has one engine for each algorithm of its direction (conv_model.c);
 * those that transform need it alone and in single precision. Every other graph has one engine. */
#include "backend.h"

#include <stdlib.h>
#include <string.h>

static const struct sg_gnode *convolution_of(const struct sg_graph *g)
{
    for (uint32_t k = 0; k < g->nnodes; k++) {
        if (g->nodes[k].op <= SG_G_CONV_FILTER) {
            return &g->nodes[k];
        }
    }
    return NULL;
}

static int products_of(const struct sg_graph *g)
{
    int n = 0;
    for (uint32_t k = 0; k < g->nnodes; k++) {
        n += g->nodes[k].op == SG_G_MATMUL;
    }
    return n;
}

int sg_engine_count(const struct sg_graph *g)
{
    const struct sg_gnode *c = convolution_of(g);
    return c ? sg_conv_algo_count((enum sg_conv_dir)(c->op - SG_G_CONV_FWD)) : 1;
}

/* The algorithms that multiply matrices are the ones that come fused, or in half precision. */
static int is_product(enum sg_conv_dir dir, int algo)
{
    return algo <= 1 || (dir == SG_CONV_BWD_FILTER && algo == 3) ||
           (dir == SG_CONV_FWD && algo == 2);
}

struct sg_graph *sg_engine_graph(const struct sg_graph *g, int index)
{
    const struct sg_gnode *c = convolution_of(g);
    uint64_t workspace = 0;
    if (c) {
        struct sg_conv_shape s;
        sg_graph_conv_shape(g, c, &s);
        enum sg_conv_dir dir = (enum sg_conv_dir)s.dir;
        struct sg_conv_model m = sg_conv_model(&s, dir, index);
        if (!m.supported || ((g->nnodes > 1 || g->lane != 4) && !is_product(dir, index))) {
            return NULL;
        }
        workspace = m.workspace_bytes;
    } else if (index != 0) {
        return NULL;
    } else if (products_of(g) >
               3) { /* attention's gradients: sums in single precision beside them */
        for (uint32_t i = 0; i < g->ntensors; i++) {
            const struct sg_gtensor *t = &g->tensors[i];
            workspace += t->slot >= 0 && t->ndims == 4 ? (uint64_t)sg_gtensor_count(t) : 0;
        }
    }
    struct sg_graph *e = sg_graph_copy(g);
    if (e) {
        e->engine = index;
        e->workspace_bytes = (workspace + 255) / 256 * 256;
    }
    return e;
}

/* ---- notes ---- */

int sg_engine_numerical_notes(const struct sg_graph *g, int32_t out[8])
{
    const struct sg_gnode *c = convolution_of(g);
    int n = 0;
    if (g->special) {
        out[n++] = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    }
    if (c) {
        struct sg_conv_shape s;
        sg_graph_conv_shape(g, c, &s);
        enum sg_conv_dir dir = (enum sg_conv_dir)s.dir;
        if (!sg_conv_deterministic(dir, g->engine)) {
            out[n++] = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
        }
        if (sg_conv_model(&s, dir, g->engine).kclass == SIMGPU_CLASS_CONV_FAST) {
            out[n++] = sg_conv_is_winograd(dir, g->engine) ? CUDNN_NUMERICAL_NOTE_WINOGRAD
                                                           : CUDNN_NUMERICAL_NOTE_FFT;
        }
    }
    return n;
}

int sg_engine_behavior_notes(const struct sg_graph *g, int32_t out[8])
{
    if (g->nnodes > 1 || !convolution_of(g)) {
        out[0] = CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
        return 1;
    }
    return 0;
}

/* ---- descriptors ---- */

/* The graph behind an attribute, or the status that refuses it by name. */
static cudnnStatus_t graph_of(const struct sg_object *o, int name, const struct sg_graph **out)
{
    const struct sg_object *g = sg_attr_object(o, name, 0);
    SG_NEED(g->kind == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
            "cudnnBackendFinalize: %s: no operation graph", sg_kind_text(o->kind));
    if (g->why) {
        return sg_backend_refuse(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN,
                                 "operation graph is not supported: %s", g->why);
    }
    *out = g->graph;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t sg_engine_finish(struct sg_object *o)
{
    const struct sg_graph *g = NULL;
    SG_TRY(graph_of(o, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, &g));
    int64_t index = sg_attr_int(o, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 0);
    SG_NEED(index >= 0, "cudnnBackendFinalize: engine %lld", (long long)index);
    o->graph = index < sg_engine_count(g) ? sg_engine_graph(g, (int)index) : NULL;
    if (!o->graph) {
        return sg_dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED,
                             "cudnnBackendFinalize: engine %lld does not support the graph",
                             (long long)index);
    }
    return CUDNN_STATUS_SUCCESS;
}

/* A finalized engine configuration of our own. */
static struct sg_object *config_of(struct sg_object *graph, int index)
{
    struct sg_object *engine = sg_object_new(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    struct sg_object *config = sg_object_new(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    int64_t at = index;
    int made = 0;
    if (engine && config &&
        sg_attr_put(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                    &graph) == 0) {
        sg_object_hold(graph);
        engine->graph = sg_engine_graph(graph->graph, index);
        config->graph = engine->graph ? sg_graph_copy(engine->graph) : NULL;
        made = config->graph &&
               sg_attr_put(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &at) == 0 &&
               sg_attr_put(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                           &engine) == 0;
    }
    if (!made) {
        sg_object_drop(engine);
        sg_object_drop(config);
        return NULL;
    }
    engine->finalized = config->finalized = 1;
    return config;
}

/* The card that a choice is made for: the current one; a middling one where there is none, as
 * descriptors need no device. */
static struct sg_card card_now(void)
{
    struct sg_card card = {.major = 8, .flops = 19.5e12, .bytes = 1555e9, .half = 16};
    const struct sg_driver *drv;
    CUdevice device;
    if (sg_client_driver(&drv) == CUDA_SUCCESS && sg_client_context(drv, &device) == CUDA_SUCCESS) {
        sg_client_card(drv, device, &card);
    }
    return card;
}

/* Engine indices, best first. The fallback is the one that needs no workspace. */
static int ranked(const struct sg_graph *g, int fallback, int out[SG_CONV_ALGOS_MAX])
{
    const struct sg_gnode *c = convolution_of(g);
    int n = 0;
    if (!c) {
        out[0] = 0;
        return 1;
    }
    struct sg_conv_shape s;
    struct sg_card card = card_now();
    sg_graph_conv_shape(g, c, &s);
    int order[SG_CONV_ALGOS_MAX], all = sg_conv_rank(&card, &s, order);
    for (int i = 0; i < all; i++) {
        struct sg_graph *e = sg_engine_graph(g, order[i]);
        if (e && (!fallback || e->workspace_bytes == 0)) {
            out[n++] = order[i];
        }
        sg_graph_free(e);
    }
    return n;
}

cudnnStatus_t sg_heuristics_finish(struct sg_object *o)
{
    const struct sg_graph *g = NULL;
    int order[SG_CONV_ALGOS_MAX];
    SG_TRY(graph_of(o, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &g));
    int fallback =
        sg_attr_int(o, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_HEUR_MODE_A) == CUDNN_HEUR_MODE_FALLBACK;
    int n = ranked(g, fallback, order);
    o->results = calloc((size_t)n + 1, sizeof(struct sg_object *));
    for (int i = 0; o->results && i < n; i++) {
        struct sg_object *c =
            config_of(sg_attr_object(o, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 0), order[i]);
        if (!c) {
            return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
        }
        o->results[o->nresults++] = c;
    }
    return o->results ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
}

cudnnStatus_t sg_plan_finish(struct sg_object *o)
{
    struct sg_object *config = sg_attr_object(o, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 0);
    SG_NEED(config->kind == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
            "cudnnBackendFinalize: CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG is none");
    o->graph = sg_graph_copy(config->graph);
    o->number = o->graph ? sg_graph_keep(o->graph) : -1;
    return o->number >= 0 ? CUDNN_STATUS_SUCCESS
                          : CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
}

/* ---- launch ---- */

static int has(const struct sg_graph *g, enum sg_gop first, enum sg_gop last)
{
    for (uint32_t k = 0; k < g->nnodes; k++) {
        if (g->nodes[k].op >= (int)first && g->nodes[k].op <= (int)last) {
            return 1;
        }
    }
    return 0;
}

static enum sg_kernel_id kernel_of(const struct sg_graph *g)
{
    const struct sg_gnode *c = convolution_of(g);
    if (c) {
        static const enum sg_kernel_id conv[] = {SG_K_GRAPH_CONV_FWD, SG_K_GRAPH_CONV_DATA,
                                                 SG_K_GRAPH_CONV_FILTER};
        return conv[c->op - SG_G_CONV_FWD];
    }
    int products = products_of(g);
    if (products > 0) {
        return products == 1   ? SG_K_GRAPH_MATMUL
               : products == 2 ? SG_K_GRAPH_ATTENTION
                               : SG_K_GRAPH_ATTENTION_BWD;
    }
    if (has(g, SG_G_NORM_FWD, SG_G_NORM_FWD)) {
        return SG_K_GRAPH_NORM_FWD;
    }
    if (has(g, SG_G_NORM_BWD, SG_G_NORM_BWD)) {
        return SG_K_GRAPH_NORM_BWD;
    }
    if (has(g, SG_G_RESAMPLE_FWD, SG_G_RESAMPLE_BWD)) {
        return SG_K_GRAPH_RESAMPLE;
    }
    return has(g, SG_G_REDUCE, SG_G_SOFTMAX) || has(g, SG_G_GENSTATS, SG_G_GENSTATS)
               ? SG_K_GRAPH_REDUCE
               : SG_K_GRAPH_POINTWISE;
}

cudnnStatus_t sg_graph_launch(cudnnHandle_t h, int64_t number, const uint64_t words[SG_GRAPH_SLOTS],
                              uint64_t workspace)
{
    const struct sg_graph *g = sg_graph_kept((uint64_t)number);
    struct sg_graph_args a = {.workspace = workspace, .number = (uint64_t)number};
    int64_t threads = 1;
    memcpy(a.word, words, sizeof a.word);
    a.tensor_speed = h->card.half;
    for (uint32_t i = 0; i < g->ntensors; i++) {
        int64_t n = g->tensors[i].slot >= 0 ? sg_gtensor_count(&g->tensors[i]) : 0;
        threads = n > threads ? n : threads;
    }
    return sg_dnn_launch(h, kernel_of(g), &a, (double)threads);
}
