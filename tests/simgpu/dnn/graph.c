/* Graphs: the table that keeps them, the ranges a launch touches, its cost, its body. */
#include "graph.h"
#include "conv.h"
#include "element.h"

#include <cudnn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- making and keeping ---- */

struct sg_graph *sg_graph_new(void)
{
    return calloc(1, sizeof(struct sg_graph));
}

void sg_graph_free(struct sg_graph *g)
{
    if (g) {
        free(g->tensors);
        free(g->nodes);
        free(g);
    }
}

/* *array with room for one more; 0 or -1. */
static int grow(void **array, uint32_t n, size_t bytes)
{
    void *more = realloc(*array, (n + 1) * bytes);
    if (!more) {
        return -1;
    }
    *array = more;
    return 0;
}

int sg_graph_tensor(struct sg_graph *g, const struct sg_gtensor *t)
{
    if (grow((void **)&g->tensors, g->ntensors, sizeof *t) < 0) {
        return -1;
    }
    memcpy(&g->tensors[g->ntensors], t, sizeof *t); /* padding too: graphs are compared as bytes */
    return (int)g->ntensors++;
}

int sg_graph_node(struct sg_graph *g, const struct sg_gnode *n)
{
    if (grow((void **)&g->nodes, g->nnodes, sizeof *n) < 0) {
        return -1;
    }
    memcpy(&g->nodes[g->nnodes], n, sizeof *n);
    return (int)g->nnodes++;
}

struct sg_graph *sg_graph_copy(const struct sg_graph *g)
{
    struct sg_graph *c = sg_graph_new();
    if (!c) {
        return NULL;
    }
    *c = *g;
    c->tensors = malloc((g->ntensors + 1) * sizeof *c->tensors);
    c->nodes = malloc((g->nnodes + 1) * sizeof *c->nodes);
    if (!c->tensors || !c->nodes) {
        sg_graph_free(c);
        return NULL;
    }
    memcpy(c->tensors, g->tensors, g->ntensors * sizeof *c->tensors);
    memcpy(c->nodes, g->nodes, g->nnodes * sizeof *c->nodes);
    return c;
}

static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sg_graph **kept;
static size_t nkept, kept_room;

static int equal(const struct sg_graph *a, const struct sg_graph *b)
{
    return a->ntensors == b->ntensors && a->nnodes == b->nnodes && a->nslots == b->nslots &&
           a->engine == b->engine && a->special == b->special &&
           a->workspace_bytes == b->workspace_bytes &&
           memcmp(a->tensors, b->tensors, a->ntensors * sizeof *a->tensors) == 0 &&
           memcmp(a->nodes, b->nodes, a->nnodes * sizeof *a->nodes) == 0;
}

static int64_t keep_locked(const struct sg_graph *g)
{
    for (size_t i = 0; i < nkept; i++) {
        if (equal(kept[i], g)) {
            return (int64_t)i;
        }
    }
    if (nkept == kept_room) {
        size_t room = kept_room ? 2 * kept_room : 64;
        struct sg_graph **more = realloc(kept, room * sizeof *more);
        if (!more) {
            return -1;
        }
        kept = more;
        kept_room = room;
    }
    kept[nkept] = sg_graph_copy(g);
    return kept[nkept] ? (int64_t)nkept++ : -1;
}

int64_t sg_graph_keep(const struct sg_graph *g)
{
    pthread_mutex_lock(&kept_lock);
    int64_t number = keep_locked(g);
    pthread_mutex_unlock(&kept_lock);
    return number;
}

const struct sg_graph *sg_graph_kept(uint64_t number)
{
    pthread_mutex_lock(&kept_lock);
    const struct sg_graph *g = number < nkept ? kept[number] : NULL;
    pthread_mutex_unlock(&kept_lock);
    return g;
}

/* ---- what a node reads and writes ---- */

struct sg_gnode sg_gnode_of(enum sg_gop op)
{
    struct sg_gnode n;
    memset(&n, 0, sizeof n);
    n.op = (int32_t)op;
    n.alpha = 1.0f;
    for (int i = 0; i < SG_NODE_ROLES; i++) {
        n.t[i] = -1;
    }
    return n;
}

#define ROLE(r) (1u << (r))

int sg_gnode_writes(const struct sg_gnode *n, int role)
{
    static const unsigned written[SG_G_OPS] = {
        [SG_G_CONV_FWD] = ROLE(SG_CONV_Y),
        [SG_G_CONV_DATA] = ROLE(SG_CONV_X),
        [SG_G_CONV_FILTER] = ROLE(SG_CONV_W),
        [SG_G_MATMUL] = ROLE(SG_MM_C),
        [SG_G_REDUCE] = ROLE(SG_ONE_Y),
        [SG_G_SOFTMAX] = ROLE(SG_SM_Y) | ROLE(SG_SM_STATS) | ROLE(SG_SM_MAX) | ROLE(SG_SM_SUM),
        [SG_G_BAND_MASK] = ROLE(SG_BM_Y),
        [SG_G_RNG] = ROLE(SG_RNG_Y),
        [SG_G_VIEW] = ROLE(SG_ONE_Y),
        [SG_G_TRANSPOSE] = ROLE(SG_ONE_Y),
        [SG_G_SLICE] = ROLE(SG_ONE_Y),
        [SG_G_NORM_FWD] = ROLE(SG_NF_Y) | ROLE(SG_NF_OUT_MEAN) | ROLE(SG_NF_OUT_VAR),
        [SG_G_NORM_BWD] = ROLE(SG_NB_DX) | ROLE(SG_NB_DSCALE) | ROLE(SG_NB_DBIAS),
        [SG_G_RESAMPLE_FWD] = ROLE(SG_RF_Y) | ROLE(SG_RF_INDEX),
        [SG_G_RESAMPLE_BWD] = ROLE(SG_RB_DX),
        [SG_G_GENSTATS] = ROLE(SG_GS_SUM) | ROLE(SG_GS_SQSUM),
    };
    unsigned w = written[n->op];
    if (n->op == SG_G_POINTWISE) {
        int backward = n->mode >= CUDNN_POINTWISE_RELU_BWD && n->mode < CUDNN_POINTWISE_CMP_EQ;
        w = ROLE(backward ? SG_PW_DX : SG_PW_Y);
    } else if (n->op == SG_G_NORM_FWD && n->phase == CUDNN_NORM_FWD_TRAINING) {
        w |= ROLE(SG_NF_MEAN) | ROLE(SG_NF_INVVAR);
    }
    return n->t[role] >= 0 && (w & ROLE(role));
}

static int accumulates(const struct sg_gnode *n)
{
    return n->beta != 0.0f && n->op != SG_G_POINTWISE;
}

int sg_gnode_reads(const struct sg_gnode *n, int role)
{
    return n->t[role] >= 0 && (!sg_gnode_writes(n, role) || accumulates(n));
}

/* ---- tensors ---- */

int64_t sg_gtensor_count(const struct sg_gtensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->ndims; i++) {
        n *= t->dim[i];
    }
    return n;
}

struct sg_gtensor sg_gtensor_packed(int type, int ndims, const int64_t *dim)
{
    struct sg_gtensor t;
    memset(&t, 0, sizeof t);
    t.type = type;
    t.ndims = ndims;
    t.slot = -1;
    int64_t s = 1;
    for (int i = ndims - 1; i >= 0; i--) {
        t.dim[i] = dim[i];
        t.str[i] = s;
        s *= dim[i];
    }
    return t;
}

int64_t sg_gtensor_under(const struct sg_gtensor *o, const struct sg_gtensor *t, int64_t at)
{
    int64_t index = 0, step = 1;
    for (int d = o->ndims - 1, e = t->ndims - 1; d >= 0; d--, e--) {
        int64_t i = at % o->dim[d], n = e >= 0 ? t->dim[e] : 1;
        at /= o->dim[d];
        index += (n == o->dim[d] ? i : n < o->dim[d] ? i * n / o->dim[d] : 0) * step;
        step *= n;
    }
    return index;
}

static size_t element_bytes(int type)
{
    switch (type) {
    case CUDNN_DATA_INT64:
        return 8;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16:
        return 2;
    case CUDNN_DATA_INT8:
    case CUDNN_DATA_UINT8:
        return 1;
    default:
        return 4;
    }
}

/* The tensor in the five dimensions of a range, neighbours merged; those that are left over are
 * taken as one that reaches to the end. */
static struct sg_tensor range_of(const struct sg_gtensor *t)
{
    int64_t dim[SG_GRAPH_DIMS], str[SG_GRAPH_DIMS];
    int n = 0;
    for (int d = 0; d < t->ndims; d++) {
        if (t->dim[d] == 1) {
            continue;
        }
        if (n > 0 && str[n - 1] == t->str[d] * t->dim[d]) {
            dim[n - 1] *= t->dim[d];
            str[n - 1] = t->str[d];
        } else {
            dim[n] = t->dim[d];
            str[n++] = t->str[d];
        }
    }
    struct sg_tensor r;
    int64_t last = 0;
    for (int d = 0; d < n; d++) {
        last += (dim[d] - 1) * str[d];
    }
    for (int i = 0; i < SG_DIMS; i++) {
        r.dim[i] = i < n ? dim[i] : 1;
        r.str[i] = i < n ? str[i] : 0;
    }
    if (n > SG_DIMS) {
        r = (struct sg_tensor){{last + 1, 1, 1, 1, 1}, {1, 0, 0, 0, 0}};
    }
    return r;
}

/* ---- touches ---- */

static int in_memory(const struct sg_gtensor *t)
{
    return t->slot >= 0 && !t->by_value;
}

/* How the whole launch uses the memory of tensor i: a read of what an earlier node wrote is none.
 */
static int tensor_mode(const struct sg_graph *g, uint32_t i)
{
    int mode = 0;
    for (uint32_t k = 0; k < g->nnodes; k++) {
        for (int r = 0; r < SG_NODE_ROLES; r++) {
            const struct sg_gnode *n = &g->nodes[k];
            if (n->t[r] == (int32_t)i && sg_gnode_reads(n, r) && !(mode & SIMGPU_WRITE)) {
                mode |= SIMGPU_READ;
            }
        }
        for (int r = 0; r < SG_NODE_ROLES; r++) {
            if (g->nodes[k].t[r] == (int32_t)i && sg_gnode_writes(&g->nodes[k], r)) {
                mode |= SIMGPU_WRITE;
            }
        }
    }
    return mode;
}

static void load_args(const struct simgpu_launch *l, struct sg_graph_args *a)
{
    memcpy(a, l->params, sizeof *a);
}

void sg_graph_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct sg_graph_args a;
    load_args(l, &a);
    const struct sg_graph *g = sg_graph_kept(a.number);
    for (uint32_t i = 0; i < g->ntensors; i++) {
        const struct sg_gtensor *t = &g->tensors[i];
        int mode = in_memory(t) ? tensor_mode(g, i) : 0;
        if (mode) {
            struct sg_tensor r = range_of(t);
            sg_touch(touch, ctx, a.word[t->slot], &r, element_bytes(t->type), mode);
        }
    }
    if (a.workspace && g->workspace_bytes) {
        touch(ctx, a.workspace, g->workspace_bytes, SIMGPU_WRITE);
    }
}

/* ---- cost ---- */

int sg_graph_conv_shape(const struct sg_graph *g, const struct sg_gnode *n, struct sg_conv_shape *s)
{
    struct sg_tensor *out[3] = {&s->x, &s->w, &s->y};
    memset(s, 0, sizeof *s);
    int spatial = g->tensors[n->t[SG_CONV_X]].ndims - 2;
    if (spatial < 1 || spatial > 3) {
        return -1;
    }
    for (int r = 0; r < 3; r++) {
        const struct sg_gtensor *t = &g->tensors[n->t[r]];
        for (int d = 0; d < SG_DIMS; d++) {
            int from = d < 2 ? d : d - (3 - spatial);
            out[r]->dim[d] = d < 2 || from >= 2 ? t->dim[from] : 1;
        }
        sg_pack_strides(out[r]);
    }
    for (int d = 0; d < 3; d++) {
        int from = d - (3 - spatial);
        s->pad[d] = from >= 0 ? n->pre[from] : 0;
        s->stride[d] = from >= 0 ? n->stride[from] : 1;
        s->dilation[d] = from >= 0 ? n->dilation[from] : 1;
    }
    s->groups = (int32_t)(s->x.dim[1] / s->w.dim[1]);
    s->flip = n->mode == CUDNN_CONVOLUTION;
    s->dir = n->op - SG_G_CONV_FWD;
    s->algo = g->engine;
    s->alpha = n->alpha;
    s->beta = n->beta;
    return 0;
}

static double count_at(const struct sg_graph *g, const struct sg_gnode *n, int role)
{
    return n->t[role] < 0 ? 0.0 : (double)sg_gtensor_count(&g->tensors[n->t[role]]);
}

/* Higher: it says what the whole kernel is. */
static int rank_of_class(int kclass)
{
    static const int rank[SIMGPU_CLASS_COUNT] = {[SIMGPU_CLASS_REDUCE] = 1,
                                                 [SIMGPU_CLASS_POOL] = 2,
                                                 [SIMGPU_CLASS_NORM] = 3,
                                                 [SIMGPU_CLASS_GEMM] = 4,
                                                 [SIMGPU_CLASS_CONV_FWD] = 5,
                                                 [SIMGPU_CLASS_CONV_BWD_DATA] = 5,
                                                 [SIMGPU_CLASS_CONV_BWD_FILTER] = 5,
                                                 [SIMGPU_CLASS_CONV_FAST] = 5};
    return rank[kclass];
}

/* Adds the arithmetic of one node, and traffic beside its tensors. */
static void node_work(const struct sg_graph *g, const struct sg_gnode *n, double speed,
                      struct simgpu_work *work)
{
    double flops, traffic = 0;
    int kclass = SIMGPU_CLASS_ELEMENTWISE;
    struct sg_conv_shape s;
    switch (n->op) {
    case SG_G_CONV_FWD:
    case SG_G_CONV_DATA:
    case SG_G_CONV_FILTER: {
        sg_graph_conv_shape(g, n, &s);
        struct sg_conv_model m = sg_conv_model(&s, (enum sg_conv_dir)s.dir, g->engine);
        double plain = 4.0 * (count_at(g, n, 0) + count_at(g, n, 1) + count_at(g, n, 2));
        flops = m.flops / speed;
        traffic = (m.bytes - plain) * g->lane / 4.0;
        kclass = m.kclass;
        break;
    }
    case SG_G_MATMUL: {
        const struct sg_gtensor *a = &g->tensors[n->t[SG_MM_A]];
        flops = 2 * count_at(g, n, SG_MM_C) * (double)a->dim[a->ndims - 1] / speed;
        kclass = SIMGPU_CLASS_GEMM;
        break;
    }
    case SG_G_REDUCE:
    case SG_G_GENSTATS:
        flops = 2 * count_at(g, n, 0);
        kclass = SIMGPU_CLASS_REDUCE;
        break;
    case SG_G_SOFTMAX:
        flops = 8 * count_at(g, n, SG_SM_X);
        kclass = SIMGPU_CLASS_NORM;
        break;
    case SG_G_NORM_FWD:
    case SG_G_NORM_BWD:
        flops = 10 * count_at(g, n, 0);
        traffic = g->lane * count_at(g, n, 0); /* a second pass */
        kclass = SIMGPU_CLASS_NORM;
        break;
    case SG_G_RESAMPLE_FWD:
    case SG_G_RESAMPLE_BWD:
        flops = 4 * count_at(g, n, 0);
        kclass = SIMGPU_CLASS_POOL;
        break;
    default:
        flops = 4 * (count_at(g, n, n->op == SG_G_POINTWISE ? SG_PW_Y : SG_ONE_Y));
    }
    work->flops += flops;
    work->bytes += traffic > 0 ? traffic : 0;
    if (rank_of_class(kclass) > rank_of_class(work->kclass)) {
        work->kclass = kclass;
    }
}

void sg_graph_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    struct sg_graph_args a;
    load_args(l, &a);
    const struct sg_graph *g = sg_graph_kept(a.number);
    *work = (struct simgpu_work){.kclass = SIMGPU_CLASS_ELEMENTWISE};
    for (uint32_t k = 0; k < g->nnodes; k++) {
        node_work(g, &g->nodes[k], g->special ? a.tensor_speed : 1.0, work);
    }
    for (uint32_t i = 0; i < g->ntensors; i++) {
        const struct sg_gtensor *t = &g->tensors[i];
        int mode = in_memory(t) ? tensor_mode(g, i) : 0;
        double bytes = (double)element_bytes(t->type) * (double)sg_gtensor_count(t);
        work->bytes += (mode & SIMGPU_READ ? bytes : 0) + (mode & SIMGPU_WRITE ? bytes : 0);
    }
}

/* ---- body ---- */

/* Calls for each element of t in row-major order: packed index and offset in its memory. */
#define FOR_ELEMENTS(t, at, off)                                                                   \
    int64_t index_[SG_GRAPH_DIMS] = {0};                                                           \
    for (int64_t at = 0, off = 0, n_ = sg_gtensor_count(t); at < n_;                               \
         at++, off = advance(t, index_, off))

static int64_t advance(const struct sg_gtensor *t, int64_t index[], int64_t off)
{
    for (int d = t->ndims - 1; d >= 0; d--) {
        off += t->str[d];
        if (++index[d] < t->dim[d]) {
            return off;
        }
        off -= t->dim[d] * t->str[d];
        index[d] = 0;
    }
    return off;
}

static float *load(const struct sg_gtensor *t, uint64_t word)
{
    float *out = sg_scratch((size_t)sg_gtensor_count(t) * sizeof *out);
    const void *from = t->by_value ? (const void *)&word : (const void *)sg_ptr(word);
    FOR_ELEMENTS(t, at, off)
    {
        out[at] = t->constant ? t->value : sg_element_get(t->type, from, t->by_value ? 0 : off);
    }
    return out;
}

static void store(const struct sg_gtensor *t, uint64_t word, const float *data)
{
    FOR_ELEMENTS(t, at, off)
    {
        sg_element_set(t->type, sg_ptr(word), off, data[at]);
    }
}

int64_t sg_run_integer(const struct sg_graph_run *r, const struct sg_gnode *n, int role,
                       int64_t otherwise)
{
    const struct sg_gtensor *t = sg_run_tensor(r, n, role);
    if (!t) {
        return otherwise;
    }
    if (t->slot < 0) {
        return (int64_t)r->data[n->t[role]][0];
    }
    const void *p = t->by_value ? (const void *)&r->a->word[t->slot]
                                : (const void *)sg_ptr(r->a->word[t->slot]);
    if (t->type == CUDNN_DATA_INT64) {
        return *(const int64_t *)p;
    }
    return t->type == CUDNN_DATA_INT32 ? *(const int32_t *)p
                                       : (int64_t)sg_element_get(t->type, p, 0);
}

static void (*const node_bodies[SG_G_OPS])(const struct sg_graph_run *, const struct sg_gnode *) = {
    [SG_G_CONV_FWD] = sg_node_conv,
    [SG_G_CONV_DATA] = sg_node_conv,
    [SG_G_CONV_FILTER] = sg_node_conv,
    [SG_G_POINTWISE] = sg_node_pointwise,
    [SG_G_MATMUL] = sg_node_matmul,
    [SG_G_REDUCE] = sg_node_reduce,
    [SG_G_SOFTMAX] = sg_node_softmax,
    [SG_G_BAND_MASK] = sg_node_band_mask,
    [SG_G_RNG] = sg_node_rng,
    [SG_G_VIEW] = sg_node_view,
    [SG_G_TRANSPOSE] = sg_node_transpose,
    [SG_G_SLICE] = sg_node_slice,
    [SG_G_NORM_FWD] = sg_node_norm_forward,
    [SG_G_NORM_BWD] = sg_node_norm_backward,
    [SG_G_RESAMPLE_FWD] = sg_node_resample_forward,
    [SG_G_RESAMPLE_BWD] = sg_node_resample_backward,
    [SG_G_GENSTATS] = sg_node_genstats,
};

static void run_node(const struct sg_graph_run *r, const struct sg_gnode *n)
{
    const struct sg_graph *g = r->g;
    for (int role = 0; role < SG_NODE_ROLES; role++) {
        if (sg_gnode_writes(n, role) && !r->data[n->t[role]]) {
            size_t count = (size_t)sg_gtensor_count(&g->tensors[n->t[role]]);
            r->data[n->t[role]] = sg_scratch(count * sizeof(float));
        }
    }
    node_bodies[n->op](r, n);
    for (int role = 0; role < SG_NODE_ROLES; role++) {
        if (!sg_gnode_writes(n, role)) {
            continue;
        }
        const struct sg_gtensor *t = &g->tensors[n->t[role]];
        float *data = r->data[n->t[role]];
        if (t->type != CUDNN_DATA_FLOAT) {
            for (int64_t i = 0, count = sg_gtensor_count(t); i < count; i++) {
                data[i] = sg_element_round(t->type, data[i]);
            }
        }
        if (in_memory(t)) {
            store(t, r->a->word[t->slot], data);
        }
    }
}

void sg_graph_body(const struct simgpu_launch *l)
{
    struct sg_graph_args a;
    load_args(l, &a);
    const struct sg_graph *g = sg_graph_kept(a.number);
    struct sg_graph_run r = {g, &a, sg_scratch((g->ntensors + 1) * sizeof(float *))};
    for (uint32_t i = 0; i < g->ntensors; i++) {
        const struct sg_gtensor *t = &g->tensors[i];
        int given = t->constant || (t->slot >= 0 && tensor_mode(g, i) & SIMGPU_READ);
        r.data[i] = given ? load(t, t->constant ? 0 : a.word[t->slot]) : NULL;
    }
    for (uint32_t k = 0; k < g->nnodes; k++) {
        run_node(&r, &g->nodes[k]);
    }
    for (uint32_t i = 0; i < g->ntensors; i++) {
        free(r.data[i]);
    }
    free(r.data);
    if (a.workspace && g->workspace_bytes) { /* it is used: what was there is gone */
        memset(sg_ptr(a.workspace), 0x5a, (size_t)g->workspace_bytes);
    }
}
