/* Operation graphs: the nodes of operations, and what of them is computed. */
#include "backend_build.h"

#include <float.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "element.h"

int sg_build_refuse(struct sg_build *b, const char *fmt, ...)
{
    if (!b->why[0]) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(b->why, sizeof b->why, fmt, ap);
        va_end(ap);
    }
    return -1;
}

/* ---- tensors ---- */

static int add_tensor(struct sg_build *b, struct sg_gtensor *t)
{
    if (t->slot >= 0) {
        if (b->g->nslots >= SG_GRAPH_SLOTS) {
            return sg_build_refuse(b, "more than %d tensors in memory", SG_GRAPH_SLOTS);
        }
        t->slot = (int32_t)b->g->nslots++;
    }
    int i = sg_graph_tensor(b->g, t);
    b->no_memory |= i < 0;
    return i;
}

int sg_build_virtual(struct sg_build *b, int ndims, const int64_t *dim)
{
    struct sg_gtensor t = sg_gtensor_packed(CUDNN_DATA_FLOAT, ndims, dim);
    t.uid = --b->next_uid;
    return add_tensor(b, &t);
}

/* No address space holds more elements. */
#define MOST_ELEMENTS ((int64_t)1 << 48)

/* Do the elements lie in an address space? */
static int extent_possible(const struct sg_gtensor *t)
{
    int64_t last = 0, count = 1;
    for (int d = 0; d < t->ndims; d++) {
        int64_t reach;
        if (__builtin_mul_overflow(t->dim[d] - 1, t->str[d], &reach) ||
            __builtin_add_overflow(last, reach, &last) ||
            __builtin_mul_overflow(count, t->dim[d], &count) || last >= MOST_ELEMENTS ||
            count > MOST_ELEMENTS) {
            return 0;
        }
    }
    return 1;
}

/* What we do not compute of a tensor; NULL: nothing. Tensors of 2^31 elements and more are possible
 * since cuDNN 9.3 (PyTorch hands them over whole); only the legacy descriptors forbid them. */
static const char *tensor_limit(const struct sg_object *o, const struct sg_gtensor *t,
                                int is_virtual)
{
    for (int d = 0; d < t->ndims; d++) {
        if (t->dim[d] < 1 || t->str[d] < 0 || t->dim[d] > INT32_MAX) {
            return "a dimension that is not positive, or above 2^31, or a negative stride";
        }
    }
    if (!extent_possible(t)) {
        return "more elements than there are addresses";
    }
    if (!sg_type_known(t->type) && !(t->type == CUDNN_DATA_BOOLEAN && is_virtual)) {
        return "this data type";
    }
    if (sg_attr_find(o, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC)) {
        return "ragged offsets";
    }
    if (sg_attr_int(o, CUDNN_ATTR_TENSOR_VECTOR_COUNT, 1) != 1) {
        return "vectors of elements";
    }
    if (sg_attr_int(o, CUDNN_ATTR_TENSOR_REORDERING_MODE, 0) != CUDNN_TENSOR_REORDERING_NONE) {
        return "reordered elements";
    }
    if ((t->by_value || t->constant) && sg_gtensor_count(t) != 1) {
        return "more than one element by value";
    }
    return NULL;
}

int sg_build_tensor(struct sg_build *b, const struct sg_object *o)
{
    if (!o) {
        return -1;
    }
    if (o->kind != CUDNN_BACKEND_TENSOR_DESCRIPTOR) {
        return sg_build_refuse(b, "%s in the place of a tensor", sg_kind_text(o->kind));
    }
    int64_t uid = sg_attr_int(o, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
    for (uint32_t i = 0; i < b->g->ntensors; i++) {
        if (b->g->tensors[i].uid == uid) {
            return (int)i;
        }
    }
    const struct sg_attr *dims = sg_attr_find(o, CUDNN_ATTR_TENSOR_DIMENSIONS),
                         *strides = sg_attr_find(o, CUDNN_ATTR_TENSOR_STRIDES);
    int is_virtual = sg_attr_int(o, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0) != 0;
    struct sg_gtensor t =
        sg_gtensor_packed((int)sg_attr_int(o, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT),
                          (int)dims->count, dims->data);
    t.uid = uid;
    t.by_value = sg_attr_int(o, CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0) != 0;
    t.constant = sg_attr_find(o, SG_ATTR_TENSOR_CONSTANT_VALUE) != NULL;
    t.value = t.constant ? (float)sg_attr_number(o, SG_ATTR_TENSOR_CONSTANT_VALUE, 0) : 0.0f;
    t.slot = is_virtual || t.constant ? -1 : 0;
    if (strides->count == dims->count) {
        memcpy(t.str, strides->data, (size_t)dims->count * sizeof *t.str);
    }
    const char *limit = tensor_limit(o, &t, is_virtual);
    if (limit) {
        return sg_build_refuse(b, "tensor %lld (data type %d): %s", (long long)uid, t.type, limit);
    }
    return add_tensor(b, &t);
}

/* ---- nodes ---- */

int sg_build_add(struct sg_build *b, const struct sg_gnode *n)
{
    int i = sg_graph_node(b->g, n);
    b->no_memory |= i < 0;
    return i < 0 ? -1 : 0;
}

static const struct sg_gtensor *at(const struct sg_build *b, const struct sg_gnode *n, int role)
{
    return n->t[role] < 0 ? NULL : &b->g->tensors[n->t[role]];
}

/* Integers of a descriptor's array into a node's; fractions must be whole numbers. */
static int array_of(struct sg_build *b, const struct sg_object *o, int name,
                    int32_t out[SG_GRAPH_DIMS])
{
    const struct sg_attr *a = sg_attr_find(o, name);
    for (int64_t i = 0; a && i < a->count && i < SG_GRAPH_DIMS; i++) {
        int64_t v;
        if (a->type == CUDNN_TYPE_FRACTION) {
            cudnnFraction_t f = ((const cudnnFraction_t *)a->data)[i];
            if (f.denominator == 0 || f.numerator % f.denominator != 0) {
                return sg_build_refuse(b, "%s: a fraction", sg_kind_text(o->kind));
            }
            v = f.numerator / f.denominator;
        } else {
            v = ((const int64_t *)a->data)[i];
        }
        out[i] = (int32_t)v;
    }
    return 0;
}

static int conv_node(struct sg_build *b, const struct sg_object *o, struct sg_gnode *n)
{
    static const int names[3][3] = {{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
                                    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
                                    {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}};
    const int *name = names[n->op - SG_G_CONV_FWD];
    const struct sg_object *c = sg_attr_object(o, name[0], 0);
    n->mode = (int32_t)sg_attr_int(c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION);
    n->alpha = (float)sg_attr_number(o, name[1], 1);
    n->beta = (float)sg_attr_number(o, name[2], 0);
    array_of(b, c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, n->pre);
    array_of(b, c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, n->post);
    array_of(b, c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, n->stride);
    array_of(b, c, CUDNN_ATTR_CONVOLUTION_DILATIONS, n->dilation);
    const struct sg_gtensor *x = at(b, n, SG_CONV_X);
    if (x && (x->ndims < 3 || x->ndims > 5)) {
        return sg_build_refuse(b, "a convolution in %d dimensions", x->ndims);
    }
    return 0;
}

static int pointwise_node(struct sg_build *b, const struct sg_object *o, struct sg_gnode *n)
{
    const struct sg_object *p = sg_attr_object(o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 0);
    n->mode = (int32_t)sg_attr_int(p, CUDNN_ATTR_POINTWISE_MODE, 0);
    n->alpha = (float)sg_attr_number(o, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 1);
    n->beta = (float)sg_attr_number(o, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, 1);
    n->p[SG_P_LOW] = sg_attr_number(p, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, 0);
    n->p[SG_P_HIGH] = sg_attr_number(p, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, FLT_MAX);
    n->p[SG_P_SLOPE] = sg_attr_number(p, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, 0);
    n->p[SG_P_ELU] = sg_attr_number(p, CUDNN_ATTR_POINTWISE_ELU_ALPHA, 1);
    n->p[SG_P_SOFTPLUS] = sg_attr_number(p, CUDNN_ATTR_POINTWISE_SOFTPLUS_BETA, 1);
    n->p[SG_P_SWISH] = sg_attr_number(p, CUDNN_ATTR_POINTWISE_SWISH_BETA, 1);
    n->axis = (int32_t)sg_attr_int(p, CUDNN_ATTR_POINTWISE_AXIS, 0);
    int backward = n->mode >= CUDNN_POINTWISE_RELU_BWD && n->mode < CUDNN_POINTWISE_CMP_EQ;
    const struct sg_gtensor *out = at(b, n, backward ? SG_PW_DX : SG_PW_Y);
    if (!out || (backward ? n->t[SG_PW_DY] < 0 || (n->t[SG_PW_X] < 0 && n->t[SG_PW_Y] < 0)
                          : n->t[SG_PW_X] < 0)) {
        return sg_build_refuse(b, "pointwise mode %d without one of its tensors", n->mode);
    }
    if (n->mode == CUDNN_POINTWISE_GEN_INDEX && (n->axis < 0 || n->axis >= out->ndims)) {
        return sg_build_refuse(b, "an index along dimension %d of %d", n->axis, out->ndims);
    }
    return 0;
}

static int matmul_node(struct sg_build *b, struct sg_gnode *n)
{
    const struct sg_gtensor *x = at(b, n, SG_MM_A), *y = at(b, n, SG_MM_B), *c = at(b, n, SG_MM_C);
    if (!x || !y || !c) {
        return -1;
    }
    int d = c->ndims;
    if (d < 2 || x->ndims != d || y->ndims != d || x->dim[d - 2] != c->dim[d - 2] ||
        y->dim[d - 1] != c->dim[d - 1] || x->dim[d - 1] != y->dim[d - 2]) {
        return sg_build_refuse(b, "a product whose matrices do not fit");
    }
    return 0;
}

static int resample_node(struct sg_build *b, const struct sg_object *o, int forward,
                         struct sg_gnode *n)
{
    const struct sg_object *w = sg_attr_object(o,
                                               forward ? CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC
                                                       : CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC,
                                               0);
    n->mode = (int32_t)sg_attr_int(w, CUDNN_ATTR_RESAMPLE_MODE, CUDNN_RESAMPLE_NEAREST);
    n->alpha = (float)sg_attr_number(o,
                                     forward ? CUDNN_ATTR_OPERATION_RESAMPLE_FWD_ALPHA
                                             : CUDNN_ATTR_OPERATION_RESAMPLE_BWD_ALPHA,
                                     1);
    n->beta = (float)sg_attr_number(o,
                                    forward ? CUDNN_ATTR_OPERATION_RESAMPLE_FWD_BETA
                                            : CUDNN_ATTR_OPERATION_RESAMPLE_BWD_BETA,
                                    0);
    if (n->alpha != 1.0f || n->beta != 0.0f) {
        return sg_build_refuse(b, "resampling with alpha %g and beta %g", (double)n->alpha,
                               (double)n->beta);
    }
    if (n->mode != CUDNN_RESAMPLE_MAXPOOL && n->mode != CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING &&
        n->mode != CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING) {
        return sg_build_refuse(b, "resampling mode %d", n->mode);
    }
    if (!forward && n->mode == CUDNN_RESAMPLE_MAXPOOL && n->t[SG_RB_INDEX] < 0 &&
        n->t[SG_RB_X] < 0) {
        return sg_build_refuse(b, "the gradient of a maximum without index or input");
    }
    if (array_of(b, w, CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, n->pre) < 0 ||
        array_of(b, w, CUDNN_ATTR_RESAMPLE_POST_PADDINGS, n->post) < 0 ||
        array_of(b, w, CUDNN_ATTR_RESAMPLE_STRIDES, n->stride) < 0 ||
        array_of(b, w, CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, n->window) < 0) {
        return -1;
    }
    return 0;
}

static int rng_node(const struct sg_object *o, struct sg_gnode *n)
{
    const struct sg_object *d = sg_attr_object(o, CUDNN_ATTR_OPERATION_RNG_DESC, 0);
    n->mode =
        (int32_t)sg_attr_int(d, CUDNN_ATTR_RNG_DISTRIBUTION, CUDNN_RNG_DISTRIBUTION_BERNOULLI);
    static const int names[3][2] = {
        {CUDNN_ATTR_RNG_BERNOULLI_DIST_PROBABILITY, CUDNN_ATTR_RNG_BERNOULLI_DIST_PROBABILITY},
        {CUDNN_ATTR_RNG_UNIFORM_DIST_MINIMUM, CUDNN_ATTR_RNG_UNIFORM_DIST_MAXIMUM},
        {CUDNN_ATTR_RNG_NORMAL_DIST_MEAN, CUDNN_ATTR_RNG_NORMAL_DIST_STANDARD_DEVIATION}};
    const int *name = names[n->mode >= 0 && n->mode < 3 ? n->mode : 0];
    n->p[0] = sg_attr_number(d, name[0], 0);
    n->p[1] = sg_attr_number(d, name[1], 1);
    const struct sg_attr *seed = sg_attr_find(o, CUDNN_ATTR_OPERATION_RNG_SEED);
    n->seed = seed && seed->type == CUDNN_TYPE_INT64 ? *(const int64_t *)seed->data : 0;
    return 0;
}

static int reshape_node(struct sg_build *b, const struct sg_object *o, struct sg_gnode *n)
{
    const struct sg_gtensor *x = at(b, n, SG_ONE_X), *y = at(b, n, SG_ONE_Y);
    if (!x || !y || sg_gtensor_count(x) != sg_gtensor_count(y)) {
        return sg_build_refuse(b, "a reshape to another number of elements");
    }
    n->mode = (int32_t)sg_attr_int(o, SG_ATTR_RESHAPE_MODE, 0);
    return 0;
}

static int permutation_node(struct sg_build *b, const struct sg_object *o, struct sg_gnode *n)
{
    const struct sg_gtensor *x = at(b, n, SG_ONE_X), *y = at(b, n, SG_ONE_Y);
    if (o->kind == SG_KIND_TRANSPOSE) {
        array_of(b, o, SG_ATTR_TRANSPOSE_PERMUTATION, n->dilation);
    } else {
        for (int i = 0; i < SG_GRAPH_DIMS; i++) {
            n->stride[i] = 1;
        }
        array_of(b, o, SG_ATTR_SLICE_START, n->pre);
        array_of(b, o, SG_ATTR_SLICE_STRIDES, n->stride);
    }
    int fits = x && y && x->ndims == y->ndims;
    for (int d = 0; fits && d < y->ndims; d++) {
        int from = o->kind == SG_KIND_TRANSPOSE ? n->dilation[d] : d;
        fits = from >= 0 && from < x->ndims &&
               (o->kind == SG_KIND_TRANSPOSE
                    ? y->dim[d] == x->dim[from]
                    : n->pre[d] >= 0 && n->pre[d] + (y->dim[d] - 1) * n->stride[d] < x->dim[d]);
    }
    return fits ? 0 : sg_build_refuse(b, "%s whose output does not fit", sg_kind_text(o->kind));
}

static int op_of_kind(int kind)
{
    switch (kind) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        return SG_G_CONV_FWD;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        return SG_G_CONV_DATA;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        return SG_G_CONV_FILTER;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return SG_G_POINTWISE;
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return SG_G_MATMUL;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return SG_G_REDUCE;
    case CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR:
        return SG_G_GENSTATS;
    case CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR:
        return SG_G_RESAMPLE_FWD;
    case CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR:
        return SG_G_RESAMPLE_BWD;
    case CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR:
        return SG_G_NORM_FWD;
    case CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR:
        return SG_G_NORM_BWD;
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        return SG_G_VIEW;
    case CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR:
        return SG_G_RNG;
    case SG_KIND_DIAGONAL_BAND_MASK:
        return SG_G_BAND_MASK;
    case SG_KIND_SOFTMAX:
        return SG_G_SOFTMAX;
    case SG_KIND_TRANSPOSE:
        return SG_G_TRANSPOSE;
    case SG_KIND_SLICE:
        return SG_G_SLICE;
    default:
        return -1;
    }
}

/* What else the operation's descriptors say. */
static int parameters(struct sg_build *b, const struct sg_object *o, struct sg_gnode *n)
{
    switch (n->op) {
    case SG_G_CONV_FWD:
    case SG_G_CONV_DATA:
    case SG_G_CONV_FILTER:
        return conv_node(b, o, n);
    case SG_G_POINTWISE:
        return pointwise_node(b, o, n);
    case SG_G_MATMUL:
        return matmul_node(b, n);
    case SG_G_REDUCE:
        n->mode = (int32_t)sg_attr_int(sg_attr_object(o, CUDNN_ATTR_OPERATION_REDUCTION_DESC, 0),
                                       CUDNN_ATTR_REDUCTION_OPERATOR, 0);
        return 0;
    case SG_G_RESAMPLE_FWD:
    case SG_G_RESAMPLE_BWD:
        return resample_node(b, o, n->op == SG_G_RESAMPLE_FWD, n);
    case SG_G_NORM_FWD:
        n->mode = (int32_t)sg_attr_int(o, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, 0);
        n->phase = (int32_t)sg_attr_int(o, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, 0);
        return n->mode <= CUDNN_BATCH_NORM || n->mode == CUDNN_RMS_NORM
                   ? 0
                   : sg_build_refuse(b, "normalisation mode %d", n->mode);
    case SG_G_NORM_BWD:
        n->mode = (int32_t)sg_attr_int(o, CUDNN_ATTR_OPERATION_NORM_BWD_MODE, 0);
        return n->mode <= CUDNN_BATCH_NORM || n->mode == CUDNN_RMS_NORM
                   ? 0
                   : sg_build_refuse(b, "normalisation mode %d", n->mode);
    case SG_G_VIEW:
        return reshape_node(b, o, n);
    case SG_G_RNG:
        return rng_node(o, n);
    case SG_G_BAND_MASK:
        n->mode = (int32_t)sg_attr_int(o, SG_ATTR_MASK_COMPARISON, CUDNN_POINTWISE_CMP_GE);
        return 0;
    case SG_G_TRANSPOSE:
    case SG_G_SLICE:
        return permutation_node(b, o, n);
    default:
        return 0;
    }
}

int sg_build_operation(struct sg_build *b, const struct sg_object *o)
{
    if (o->kind == CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR) {
        return sg_build_attention(b, o);
    }
    int op = op_of_kind(o->kind);
    if (op < 0) {
        return sg_build_refuse(b, "%s is no operation", sg_kind_text(o->kind));
    }
    struct sg_gnode n = sg_gnode_of((enum sg_gop)op);
    for (const struct sg_attr_row *r = sg_attr_rows(o->kind); r->kind == o->kind; r++) {
        const struct sg_attr *a = sg_attr_find(o, r->name);
        if (a && r->flags & SG_ATTR_REFUSED) {
            return sg_build_refuse(b, "%s", r->text);
        }
        if (a && r->role >= 0 && a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
            n.t[r->role] = sg_build_tensor(b, sg_attr_object(o, r->name, 0));
        }
    }
    return b->why[0] || b->no_memory || parameters(b, o, &n) < 0 ? -1 : sg_build_add(b, &n);
}

/* ---- the graph ---- */

/* Whether a node that is not yet placed makes what node k reads. */
static int waits(const struct sg_graph *g, const unsigned char *placed, uint32_t k)
{
    for (int r = 0; r < SG_NODE_ROLES; r++) {
        if (!sg_gnode_reads(&g->nodes[k], r) || sg_gnode_writes(&g->nodes[k], r)) {
            continue;
        }
        for (uint32_t m = 0; m < g->nnodes; m++) {
            for (int w = 0; w < SG_NODE_ROLES && m != k && !placed[m]; w++) {
                if (sg_gnode_writes(&g->nodes[m], w) && g->nodes[m].t[w] == g->nodes[k].t[r]) {
                    return 1;
                }
            }
        }
    }
    return 0;
}

/* Brings the nodes into an order in which inputs are made first. */
static int sort_nodes(struct sg_build *b)
{
    struct sg_graph *g = b->g;
    struct sg_gnode *sorted = malloc((g->nnodes + 1) * sizeof *sorted);
    unsigned char *placed = calloc(g->nnodes + 1, 1);
    uint32_t n = 0, before = UINT32_MAX;
    b->no_memory |= !sorted || !placed;
    while (!b->no_memory && n < g->nnodes && before != n) {
        before = n;
        for (uint32_t k = 0; k < g->nnodes; k++) {
            if (!placed[k] && !waits(g, placed, k)) {
                placed[k] = 1;
                memcpy(&sorted[n++], &g->nodes[k], sizeof *sorted);
            }
        }
    }
    if (!b->no_memory && n < g->nnodes) {
        sg_build_refuse(b, "operations that wait for each other");
    } else if (!b->no_memory) {
        memcpy(g->nodes, sorted, n * sizeof *sorted);
    }
    free(sorted);
    free(placed);
    return b->no_memory || b->why[0] ? -1 : 0;
}

/* A virtual tensor that something reads must be made by something. */
static int check_virtual(struct sg_build *b)
{
    const struct sg_graph *g = b->g;
    for (uint32_t i = 0; i < g->ntensors; i++) {
        int made = g->tensors[i].slot >= 0 || g->tensors[i].constant, read = 0;
        for (uint32_t k = 0; k < g->nnodes; k++) {
            for (int r = 0; r < SG_NODE_ROLES; r++) {
                if (g->nodes[k].t[r] == (int32_t)i) {
                    made |= sg_gnode_writes(&g->nodes[k], r);
                    read |= sg_gnode_reads(&g->nodes[k], r);
                }
            }
        }
        if (read && !made) {
            return sg_build_refuse(b, "nothing makes the virtual tensor %lld",
                                   (long long)g->tensors[i].uid);
        }
    }
    return 0;
}

/* At most one convolution; what the main operation reads says how wide the elements are. */
static int classify(struct sg_build *b)
{
    struct sg_graph *g = b->g;
    int convolutions = 0;
    g->lane = 4;
    for (uint32_t k = 0; k < g->nnodes; k++) {
        const struct sg_gnode *n = &g->nodes[k];
        int is_conv = n->op <= SG_G_CONV_FILTER;
        if (!is_conv && n->op != SG_G_MATMUL) {
            continue;
        }
        const struct sg_gtensor *t = &g->tensors[n->t[is_conv && n->op == SG_G_CONV_DATA]];
        convolutions += is_conv;
        if (t->type == CUDNN_DATA_HALF || t->type == CUDNN_DATA_BFLOAT16) {
            g->lane = 2;
            g->special = 1;
        }
    }
    return convolutions > 1 ? sg_build_refuse(b, "more than one convolution") : 0;
}

cudnnStatus_t sg_operation_graph_finish(struct sg_object *o)
{
    const struct sg_attr *ops = sg_attr_find(o, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    struct sg_build b = {.g = sg_graph_new(), .next_uid = INT64_MIN / 2};
    SG_NEED(ops->count > 0, "cudnnBackendFinalize: an operation graph without operations");
    b.no_memory = !b.g;
    for (int64_t i = 0; i < ops->count && !b.no_memory && !b.why[0]; i++) {
        sg_build_operation(&b, ((struct sg_object **)ops->data)[i]);
    }
    if (!b.no_memory && !b.why[0] && sort_nodes(&b) == 0 && check_virtual(&b) == 0) {
        classify(&b);
    }
    if (!b.no_memory && b.why[0]) {
        o->why = strdup(b.why);
        b.no_memory = !o->why;
        sg_graph_free(b.g);
        b.g = NULL;
    }
    if (b.no_memory) {
        sg_graph_free(b.g);
        return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    }
    o->graph = b.g;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- shapes, when an operation is finalized ---- */

static cudnnStatus_t conv_check(const struct sg_object *o, const struct sg_attr_row *rows, int conv)
{
    const struct sg_object *t[3] = {NULL, NULL, NULL}, *c = sg_attr_object(o, conv, 0);
    for (const struct sg_attr_row *r = rows; r->kind == o->kind; r++) {
        if (r->role >= 0) {
            t[r->role] = sg_attr_object(o, r->name, 0);
        }
    }
    const struct sg_attr *dim[3];
    for (int i = 0; i < 3; i++) {
        SG_NEED(t[i]->kind == CUDNN_BACKEND_TENSOR_DESCRIPTOR,
                "cudnnBackendFinalize: %s: a tensor is none", sg_kind_text(o->kind));
        dim[i] = sg_attr_find(t[i], CUDNN_ATTR_TENSOR_DIMENSIONS);
    }
    SG_NEED(c->kind == CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
            "cudnnBackendFinalize: %s: no convolution descriptor", sg_kind_text(o->kind));
    int64_t spatial = sg_attr_int(c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0);
    static const int arrays[4] = {
        CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
        CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_ATTR_CONVOLUTION_DILATIONS};
    const int64_t *v[4];
    for (int i = 0; i < 4; i++) {
        SG_NEED(sg_attr_find(c, arrays[i])->count == spatial,
                "cudnnBackendFinalize: a convolution of %lld dimensions", (long long)spatial);
        v[i] = sg_attr_find(c, arrays[i])->data;
    }
    const int64_t *x = dim[SG_CONV_X]->data, *w = dim[SG_CONV_W]->data, *y = dim[SG_CONV_Y]->data;
    for (int i = 0; i < 3; i++) {
        SG_NEED(dim[i]->count == spatial + 2, "cudnnBackendFinalize: a tensor of %lld dimensions",
                (long long)dim[i]->count);
    }
    SG_NEED(x[0] == y[0] && w[0] == y[1] && w[1] > 0 && x[1] % w[1] == 0 &&
                w[0] % (x[1] / w[1]) == 0,
            "cudnnBackendFinalize: the channels of the convolution do not fit");
    for (int64_t i = 0; i < spatial; i++) {
        int64_t span = (w[2 + i] - 1) * v[3][i] + 1, room = x[2 + i] + v[0][i] + v[1][i] - span;
        SG_NEED(v[2][i] > 0 && v[3][i] > 0 && room >= 0 && room / v[2][i] + 1 == y[2 + i],
                "cudnnBackendFinalize: dimension %lld of the output has not the size of the "
                "convolution's output",
                (long long)i);
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t sg_operation_check(const struct sg_object *o)
{
    const struct sg_attr_row *rows = sg_attr_rows(o->kind);
    switch (o->kind) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        return conv_check(o, rows, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        return conv_check(o, rows, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC);
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        return conv_check(o, rows, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC);
    default:
        return CUDNN_STATUS_SUCCESS;
    }
}
