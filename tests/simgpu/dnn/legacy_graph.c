#include "legacy_graph.h"
#include "backend.h"

#include <string.h>

int sg_half_call(cudnnTensorDescriptor_t d)
{
    return d && d->ndims > 0 && (d->type == CUDNN_DATA_HALF || d->type == CUDNN_DATA_BFLOAT16);
}

/* A graph of one node under construction, with the words of its launch. */
struct call {
    struct sg_graph *g;
    struct sg_gnode n;
    uint64_t words[SG_GRAPH_SLOTS];
    int failed;
};

static void add(struct call *c, int role, struct sg_gtensor *t, uint64_t word)
{
    t->slot = (int32_t)c->g->nslots;
    t->uid = t->slot;
    c->words[c->g->nslots++] = word;
    c->n.t[role] = sg_graph_tensor(c->g, t);
    c->failed |= c->n.t[role] < 0;
}

static void tensor(struct call *c, int role, cudnnTensorDescriptor_t d, const void *p)
{
    int64_t dim[SG_GRAPH_DIMS];
    if (!p || c->failed) {
        return;
    }
    for (int i = 0; i < d->ndims; i++) {
        dim[i] = d->dim[i];
    }
    struct sg_gtensor t = sg_gtensor_packed((int)d->type, d->ndims, dim);
    for (int i = 0; i < d->ndims; i++) {
        t.str[i] = d->stride[i];
    }
    add(c, role, &t, sg_dnn_addr(p));
}

static void value(struct call *c, int role, int ndims, double v)
{
    static const int64_t ones[SG_GRAPH_DIMS] = {1, 1, 1, 1, 1, 1, 1, 1};
    struct sg_gtensor t = sg_gtensor_packed(CUDNN_DATA_FLOAT, ndims, ones);
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    t.by_value = 1;
    if (!c->failed) {
        add(c, role, &t, bits);
    }
}

static struct call begin(enum sg_gop op)
{
    struct call c = {.g = sg_graph_new(), .n = sg_gnode_of(op)};
    c.failed = !c.g;
    return c;
}

static cudnnStatus_t launch(struct call *c, cudnnHandle_t h)
{
    int64_t number = -1;
    if (!c->failed && sg_graph_node(c->g, &c->n) >= 0) {
        c->g->lane = 2;
        number = sg_graph_keep(c->g);
    }
    sg_graph_free(c->g);
    return number < 0 ? CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED
                      : sg_graph_launch(h, number, c->words, 0);
}

static cudnnStatus_t check(const char *what, const struct sg_half_bn *a)
{
    SG_NEED(a->x && a->y && a->param && a->x->ndims == a->y->ndims &&
                a->param->ndims == a->x->ndims && a->x->ndims <= SG_GRAPH_DIMS,
            "%s: the descriptors' dimensions do not agree", what);
    SG_NEED(memcmp(a->x->dim, a->y->dim, (size_t)a->x->ndims * sizeof(int)) == 0,
            "%s: input and output differ in shape", what);
    for (int i = 0; i < a->x->ndims; i++) {
        SG_NEED(a->param->dim[i] == a->x->dim[i] || a->param->dim[i] == 1,
                "%s: the parameter descriptor does not fit x in dimension %d", what, i);
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t sg_half_bn_train(const char *what, cudnnHandle_t h, const struct sg_half_bn *a)
{
    SG_TRY(check(what, a));
    struct call c = begin(SG_G_NORM_FWD);
    c.n.mode = CUDNN_BATCH_NORM;
    c.n.phase = CUDNN_NORM_FWD_TRAINING;
    tensor(&c, SG_NF_X, a->x, a->x_data);
    tensor(&c, SG_NF_SCALE, a->param, a->scale);
    tensor(&c, SG_NF_BIAS, a->param, a->bias);
    tensor(&c, SG_NF_MEAN, a->param, a->save_mean);
    tensor(&c, SG_NF_INVVAR, a->param, a->save_invvar);
    tensor(&c, SG_NF_IN_MEAN, a->param, a->running_mean);
    tensor(&c, SG_NF_IN_VAR, a->param, a->running_var);
    tensor(&c, SG_NF_OUT_MEAN, a->param, a->running_mean);
    tensor(&c, SG_NF_OUT_VAR, a->param, a->running_var);
    tensor(&c, SG_NF_Y, a->y, a->y_data);
    value(&c, SG_NF_EPSILON, a->x->ndims, a->epsilon);
    value(&c, SG_NF_FACTOR, a->x->ndims, a->factor);
    return launch(&c, h);
}

/* The estimated variance becomes an inverse deviation on the way: y = (x - mean) * scale / sqrt(var
 * + epsilon) + bias. */
cudnnStatus_t sg_half_bn_infer(const char *what, cudnnHandle_t h, const struct sg_half_bn *a)
{
    SG_TRY(check(what, a));
    struct call c = begin(SG_G_NORM_FWD);
    c.n.mode = CUDNN_BATCH_NORM;
    c.n.phase = CUDNN_NORM_FWD_INFERENCE;
    tensor(&c, SG_NF_X, a->x, a->x_data);
    tensor(&c, SG_NF_SCALE, a->param, a->scale);
    tensor(&c, SG_NF_BIAS, a->param, a->bias);
    tensor(&c, SG_NF_IN_MEAN, a->param, a->mean);
    tensor(&c, SG_NF_IN_VAR, a->param, a->var);
    tensor(&c, SG_NF_Y, a->y, a->y_data);
    value(&c, SG_NF_EPSILON, a->x->ndims, a->epsilon);
    return launch(&c, h);
}

cudnnStatus_t sg_half_bn_backward(const char *what, cudnnHandle_t h, const struct sg_half_bn *a)
{
    SG_TRY(check(what, a));
    struct call c = begin(SG_G_NORM_BWD);
    c.n.mode = CUDNN_BATCH_NORM;
    tensor(&c, SG_NB_X, a->x, a->x_data);
    tensor(&c, SG_NB_DY, a->y, a->dy_data);
    tensor(&c, SG_NB_SCALE, a->param, a->scale);
    tensor(&c, SG_NB_MEAN, a->param, a->mean);
    tensor(&c, SG_NB_INVVAR, a->param, a->var);
    tensor(&c, SG_NB_DX, a->x, a->y_data);
    tensor(&c, SG_NB_DSCALE, a->param, a->dscale);
    tensor(&c, SG_NB_DBIAS, a->param, a->dbias);
    value(&c, SG_NB_EPSILON, a->x->ndims, a->epsilon);
    return launch(&c, h);
}
