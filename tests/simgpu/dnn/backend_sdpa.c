/* Scaled dot-product attention (Vaswani et al., arXiv 1706.03762) as the operations it is made of:
 * softmax(scale * Q K' with what a subgraph makes of it) V, dropout in between. */
#include "backend_build.h"

#include <string.h>

/* The tensor of one of the operation's attributes, -1 where it has none. */
static int tensor(struct sg_build *b, const struct sg_object *o, int name)
{
    return sg_build_tensor(b, sg_attr_object(o, name, 0));
}

/* A second tensor over the memory of tensor i, its last two dimensions exchanged. */
static int transposed(struct sg_build *b, int i)
{
    struct sg_gtensor t = b->g->tensors[i];
    int d = t.ndims;
    int64_t dim = t.dim[d - 1], str = t.str[d - 1];
    t.dim[d - 1] = t.dim[d - 2];
    t.str[d - 1] = t.str[d - 2];
    t.dim[d - 2] = dim;
    t.str[d - 2] = str;
    int at = sg_graph_tensor(b->g, &t);
    b->no_memory |= at < 0;
    return at;
}

static int product(struct sg_build *b, int x, int y, int out)
{
    struct sg_gnode n = sg_gnode_of(SG_G_MATMUL);
    n.t[SG_MM_A] = x;
    n.t[SG_MM_B] = y;
    n.t[SG_MM_C] = out;
    return sg_build_add(b, &n);
}

/* out = x * y, or x * alpha where y is -1. */
static int times(struct sg_build *b, int x, int y, float alpha, int out)
{
    struct sg_gnode n = sg_gnode_of(SG_G_POINTWISE);
    n.mode = y < 0 ? CUDNN_POINTWISE_IDENTITY : CUDNN_POINTWISE_MUL;
    n.alpha = alpha;
    n.beta = 1.0f;
    n.t[SG_PW_X] = x;
    n.t[SG_PW_B] = y;
    n.t[SG_PW_Y] = out;
    return sg_build_add(b, &n);
}

/* The subgraph between the product and the softmax; its input tensor becomes `score`. Returns its
 * output tensor. */
static int subgraph(struct sg_build *b, const struct sg_object *o, int score)
{
    const struct sg_object *sub = sg_attr_object(o, SG_ATTR_SDPA_SUBGRAPH, 0);
    if (!sub) {
        return score;
    }
    int64_t in = sg_attr_int(o, SG_ATTR_SDPA_SUBGRAPH_INPUT_UID, 0),
            out = sg_attr_int(o, SG_ATTR_SDPA_SUBGRAPH_OUTPUT_UID, 0);
    b->g->tensors[score].uid = in;
    const struct sg_attr *ops = sg_attr_find(sub, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    for (int64_t i = 0; ops && i < ops->count; i++) {
        if (sg_build_operation(b, ((struct sg_object **)ops->data)[i]) < 0) {
            return -1;
        }
    }
    for (uint32_t i = 0; i < b->g->ntensors; i++) {
        if (b->g->tensors[i].uid == out) {
            return (int)i;
        }
    }
    return sg_build_refuse(b, "a subgraph of attention without its output tensor");
}

/* softmax of `score` into `to`, with the outputs and the sink of the operation or of its softmax
 * descriptor. */
static int softmax(struct sg_build *b, const struct sg_object *o, int score, int to)
{
    struct sg_gnode n = sg_gnode_of(SG_G_SOFTMAX);
    const struct sg_object *s = sg_attr_object(o, SG_ATTR_SDPA_SOFTMAX, 0);
    n.t[SG_SM_X] = score;
    n.t[SG_SM_Y] = to;
    n.t[SG_SM_STATS] = s ? tensor(b, s, SG_ATTR_SOFTMAX_STATS)
                         : tensor(b, o, CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC);
    if (s) {
        n.t[SG_SM_MAX] = tensor(b, s, SG_ATTR_SOFTMAX_MAX);
        n.t[SG_SM_SUM] = tensor(b, s, SG_ATTR_SOFTMAX_SUM);
        n.t[SG_SM_SINK] = tensor(b, s, SG_ATTR_SOFTMAX_SINK);
    }
    n.t[SG_SM_SEQ_Q] = tensor(b, o, CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC);
    n.t[SG_SM_SEQ_KV] = tensor(b, o, CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_KVDESC);
    return sg_build_add(b, &n);
}

/* Drops weights: what is left is scaled so that the mean stays. Returns the tensor of the result.
 */
static int dropout(struct sg_build *b, const struct sg_object *o, int weights, const int64_t dim[4])
{
    double rate = sg_attr_number(o, SG_ATTR_SDPA_DROPOUT_PROBABILITY, 0);
    if (rate <= 0) {
        return weights;
    }
    int mask = sg_build_virtual(b, 4, dim), kept = sg_build_virtual(b, 4, dim);
    struct sg_gnode n = sg_gnode_of(SG_G_RNG);
    n.mode = CUDNN_RNG_DISTRIBUTION_BERNOULLI;
    n.p[0] = 1 - rate;
    n.t[SG_RNG_Y] = mask;
    n.t[SG_RNG_SEED] = tensor(b, o, SG_ATTR_SDPA_DROPOUT_SEED);
    n.t[SG_RNG_OFFSET] = tensor(b, o, SG_ATTR_SDPA_DROPOUT_OFFSET);
    if (mask < 0 || kept < 0 || sg_build_add(b, &n) < 0 ||
        times(b, weights, mask, (float)(1 / (1 - rate)), kept) < 0) {
        return -1;
    }
    return kept;
}

int sg_build_attention(struct sg_build *b, const struct sg_object *o)
{
    for (const struct sg_attr_row *r = sg_attr_rows(o->kind); r->kind == o->kind; r++) {
        if (r->flags & SG_ATTR_REFUSED && sg_attr_find(o, r->name)) {
            return sg_build_refuse(b, "%s", r->text);
        }
    }
    int q = tensor(b, o, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC),
        k = tensor(b, o, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC),
        v = tensor(b, o, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC),
        out = tensor(b, o, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC),
        scale = tensor(b, o, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC);
    if (q < 0 || k < 0 || v < 0 || out < 0 || b->why[0]) {
        return -1;
    }
    const struct sg_gtensor *tq = &b->g->tensors[q], *tk = &b->g->tensors[k],
                            *tv = &b->g->tensors[v];
    if (tq->ndims != 4 || tk->ndims != 4 || tv->ndims != 4 || tq->dim[3] != tk->dim[3] ||
        tk->dim[2] != tv->dim[2] || tq->dim[1] % tk->dim[1] != 0 || tq->dim[1] % tv->dim[1] != 0) {
        return sg_build_refuse(b, "attention whose queries, keys and values do not fit");
    }
    const int64_t dim[4] = {tq->dim[0], tq->dim[1], tq->dim[2], tk->dim[2]};
    int score = sg_build_virtual(b, 4, dim), weights = sg_build_virtual(b, 4, dim);
    int scaled = scale < 0 ? score : sg_build_virtual(b, 4, dim), kt = transposed(b, k);
    if (score < 0 || weights < 0 || scaled < 0 || kt < 0 || product(b, q, kt, score) < 0 ||
        (scale >= 0 && times(b, score, scale, 1.0f, scaled) < 0)) {
        return -1;
    }
    int masked = subgraph(b, o, scaled);
    if (masked < 0 || softmax(b, o, masked, weights) < 0) {
        return -1;
    }
    int kept = dropout(b, o, weights, dim);
    return kept < 0 ? -1 : product(b, kept, v, out);
}
