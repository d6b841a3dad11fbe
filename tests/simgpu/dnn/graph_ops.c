/* Convolution, products, reductions, softmax, masks, random numbers and changes of shape in graphs.
 */
#include "conv.h"
#include "gemm.h"
#include "graph.h"

#include <cudnn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void sg_node_conv(const struct sg_graph_run *r, const struct sg_gnode *n)
{
    struct sg_conv_args a = {.x = (uint64_t)(uintptr_t)sg_run_data(r, n, SG_CONV_X),
                             .w = (uint64_t)(uintptr_t)sg_run_data(r, n, SG_CONV_W),
                             .y = (uint64_t)(uintptr_t)sg_run_data(r, n, SG_CONV_Y)};
    sg_graph_conv_shape(r->g, n, &a.s);
    if (n->op == SG_G_CONV_FWD) {
        sg_conv_forward(&a);
    } else if (n->op == SG_G_CONV_DATA) {
        sg_conv_backward_data(&a);
    } else {
        sg_conv_backward_filter(&a);
    }
}

/* A length that a tensor gives for each batch; the first dimension of `of` counts them. */
static int64_t length_of(const struct sg_graph_run *r, const struct sg_gnode *n, int role,
                         int64_t batch, int64_t whole)
{
    const float *data = sg_run_data(r, n, role);
    if (!data) {
        return whole;
    }
    const struct sg_gtensor *t = sg_run_tensor(r, n, role);
    int64_t v = (int64_t)data[batch < t->dim[0] ? batch : 0];
    return v < 0 ? 0 : v < whole ? v : whole;
}

void sg_node_matmul(const struct sg_graph_run *r, const struct sg_gnode *n)
{
    const struct sg_gtensor *a = sg_run_tensor(r, n, SG_MM_A), *b = sg_run_tensor(r, n, SG_MM_B),
                            *c = sg_run_tensor(r, n, SG_MM_C);
    int d = c->ndims;
    int64_t rows = c->dim[d - 2], cols = c->dim[d - 1], inner = a->dim[d - 1];
    int64_t batches = sg_gtensor_count(c) / (rows * cols), of_first = 1;
    struct sg_gtensor tc = *c, ta = *a, tb = *b; /* the batch dimensions alone */
    tc.ndims = ta.ndims = tb.ndims = d - 2;
    for (int i = 1; i < d - 2; i++) {
        of_first *= c->dim[i];
    }
    float *out = sg_run_data(r, n, SG_MM_C);
    memset(out, 0, (size_t)sg_gtensor_count(c) * sizeof *out);
    for (int64_t i = 0; i < batches; i++) {
        const float *pa = sg_run_data(r, n, SG_MM_A) + sg_gtensor_under(&tc, &ta, i) * rows * inner;
        const float *pb = sg_run_data(r, n, SG_MM_B) + sg_gtensor_under(&tc, &tb, i) * inner * cols;
        int64_t m = length_of(r, n, SG_MM_M, i / of_first, rows),
                k = length_of(r, n, SG_MM_K, i / of_first, inner),
                cut = length_of(r, n, SG_MM_N, i / of_first, cols);
        if (m > 0 && cut > 0) {
            sg_gemm_f32(m, cut, k, 1.0f, pa, (struct sg_mat){inner, 1}, pb,
                        (struct sg_mat){cols, 1}, 0.0f, out + i * rows * cols,
                        (struct sg_mat){cols, 1});
        }
    }
}

static double reduce_start(int op)
{
    switch (op) {
    case CUDNN_REDUCE_TENSOR_MUL:
    case CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS:
        return 1.0;
    case CUDNN_REDUCE_TENSOR_MIN:
        return INFINITY;
    case CUDNN_REDUCE_TENSOR_MAX:
        return -INFINITY;
    default:
        return 0.0;
    }
}

static double reduce_step(int op, double sum, double v)
{
    switch (op) {
    case CUDNN_REDUCE_TENSOR_MUL:
        return sum * v;
    case CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS:
        return v == 0.0 ? sum : sum * v;
    case CUDNN_REDUCE_TENSOR_MIN:
        return v < sum ? v : sum;
    case CUDNN_REDUCE_TENSOR_MAX:
        return v > sum ? v : sum;
    case CUDNN_REDUCE_TENSOR_AMAX:
        return fabs(v) > sum ? fabs(v) : sum;
    case CUDNN_REDUCE_TENSOR_NORM1:
        return sum + fabs(v);
    case CUDNN_REDUCE_TENSOR_NORM2:
        return sum + v * v;
    default: /* sums and averages */
        return sum + v;
    }
}

void sg_node_reduce(const struct sg_graph_run *r, const struct sg_gnode *n)
{
    const struct sg_gtensor *x = sg_run_tensor(r, n, SG_ONE_X), *y = sg_run_tensor(r, n, SG_ONE_Y);
    int64_t count = sg_gtensor_count(x), outputs = sg_gtensor_count(y);
    double *sum = sg_scratch((size_t)outputs * sizeof *sum);
    for (int64_t i = 0; i < outputs; i++) {
        sum[i] = reduce_start(n->mode);
    }
    for (int64_t i = 0; i < count; i++) {
        double *s = &sum[sg_gtensor_under(x, y, i)];
        *s = reduce_step(n->mode, *s, sg_run_data(r, n, SG_ONE_X)[i]);
    }
    for (int64_t i = 0; i < outputs; i++) {
        double v = sum[i];
        v = n->mode == CUDNN_REDUCE_TENSOR_AVG     ? v * (double)outputs / (double)count
            : n->mode == CUDNN_REDUCE_TENSOR_NORM2 ? sqrt(v)
                                                   : v;
        sg_run_data(r, n, SG_ONE_Y)[i] = (float)v;
    }
    free(sum);
}

/* Where the pieces of one row's softmax go; NULL: not wanted. */
struct row_out {
    float *y, *stats, *max, *sum;
};

static void softmax_row(const float *x, int64_t cols, int64_t cut, const float *sink,
                        const struct row_out *o)
{
    float max = sink ? *sink : -INFINITY, sum = 0.0f;
    for (int64_t j = 0; j < cut; j++) {
        max = fmaxf(max, x[j]);
    }
    if (sink && max > -INFINITY) {
        sum = expf(*sink - max);
    }
    for (int64_t j = 0; j < cols; j++) {
        o->y[j] = j < cut && max > -INFINITY ? expf(x[j] - max) : 0.0f;
        sum += o->y[j];
    }
    for (int64_t j = 0; j < cols && sum > 0.0f; j++) {
        o->y[j] /= sum;
    }
    if (o->stats) {
        *o->stats = sum > 0.0f ? max + logf(sum) : -INFINITY;
    }
    if (o->max) {
        *o->max = max;
    }
    if (o->sum) {
        *o->sum = sum;
    }
}

void sg_node_softmax(const struct sg_graph_run *r, const struct sg_gnode *n)
{
    const struct sg_gtensor *x = sg_run_tensor(r, n, SG_SM_X);
    int64_t cols = x->dim[x->ndims - 1], rows = sg_gtensor_count(x) / cols;
    int64_t queries = x->ndims > 1 ? x->dim[x->ndims - 2] : 1, of_first = rows / x->dim[0];
    struct sg_gtensor row = *x; /* x with one column: the shape of what a row gives */
    row.dim[row.ndims - 1] = 1;
    float *stats = sg_run_data(r, n, SG_SM_STATS), *max = sg_run_data(r, n, SG_SM_MAX),
          *sum = sg_run_data(r, n, SG_SM_SUM), *sink = sg_run_data(r, n, SG_SM_SINK);
    for (int64_t i = 0; i < rows; i++) {
        struct row_out o = {sg_run_data(r, n, SG_SM_Y) + i * cols, stats ? stats + i : NULL,
                            max ? max + i : NULL, sum ? sum + i : NULL};
        int64_t cut = length_of(r, n, SG_SM_SEQ_KV, i / of_first, cols);
        if (i % queries >= length_of(r, n, SG_SM_SEQ_Q, i / of_first, queries)) {
            cut = 0; /* a row of padding */
        }
        softmax_row(sg_run_data(r, n, SG_SM_X) + i * cols, cols, cut,
                    sink ? sink + sg_gtensor_under(&row, sg_run_tensor(r, n, SG_SM_SINK), i) : NULL,
                    &o);
    }
}

static int compare(int mode, int64_t a, int64_t b)
{
    switch (mode) {
    case CUDNN_POINTWISE_CMP_GT:
        return a > b;
    case CUDNN_POINTWISE_CMP_LT:
        return a < b;
    case CUDNN_POINTWISE_CMP_LE:
        return a <= b;
    default:
        return a >= b;
    }
}

/* x where the row, moved by the right bound, compares with the column; or the column, moved by the
 * left bound, with the row; b elsewhere. Sequence lengths align the diagonal to the lower right. */
void sg_node_band_mask(const struct sg_graph_run *r, const struct sg_gnode *n)
{
    const struct sg_gtensor *x = sg_run_tensor(r, n, SG_BM_X);
    int64_t cols = x->dim[x->ndims - 1], rows = x->dim[x->ndims - 2];
    int64_t count = sg_gtensor_count(x), of_first = count / x->dim[0];
    float other = sg_run_data(r, n, SG_BM_B)[0];
    int64_t left = sg_run_integer(r, n, SG_BM_LEFT, 0),
            right = sg_run_integer(r, n, SG_BM_RIGHT, 0);
    for (int64_t i = 0; i < count; i++) {
        int64_t row = i / cols % rows, col = i % cols, batch = i / of_first;
        int64_t shift = 0;
        if (n->t[SG_BM_SEQ_KV] >= 0) {
            shift += length_of(r, n, SG_BM_SEQ_KV, batch, INT64_MAX);
        }
        if (n->t[SG_BM_SEQ_Q] >= 0) {
            shift -= length_of(r, n, SG_BM_SEQ_Q, batch, INT64_MAX);
        }
        int keep = n->t[SG_BM_LEFT] >= 0 ? compare(n->mode, col + left - shift, row)
                                         : compare(n->mode, row + shift + right, col);
        sg_run_data(r, n, SG_BM_Y)[i] = keep ? sg_run_data(r, n, SG_BM_X)[i] : other;
    }
}

/* A well mixed word (the finalizer of splitmix64: Steele et al., OOPSLA 2014). */
static uint64_t mixed(uint64_t v)
{
    v = (v ^ v >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    v = (v ^ v >> 27) * UINT64_C(0x94d049bb133111eb);
    return v ^ v >> 31;
}

/* Uniform in [0, 1), from the seed, the offset and the element's place: a second pass with the same
 * three makes the same numbers. */
static double uniform(uint64_t seed, uint64_t offset, uint64_t at)
{
    uint64_t v = mixed(mixed(seed + UINT64_C(0x9e3779b97f4a7c15)) ^ mixed(offset) ^ at);
    return (double)(mixed(v) >> 11) * 0x1p-53;
}

void sg_node_rng(const struct sg_graph_run *r, const struct sg_gnode *n)
{
    const struct sg_gtensor *y = sg_run_tensor(r, n, SG_RNG_Y);
    uint64_t seed = (uint64_t)sg_run_integer(r, n, SG_RNG_SEED, n->seed),
             offset = (uint64_t)sg_run_integer(r, n, SG_RNG_OFFSET, 0);
    for (int64_t i = 0, count = sg_gtensor_count(y); i < count; i++) {
        double u = uniform(seed, offset, (uint64_t)i), v;
        if (n->mode == CUDNN_RNG_DISTRIBUTION_BERNOULLI) {
            v = u < n->p[0];
        } else if (n->mode == CUDNN_RNG_DISTRIBUTION_UNIFORM) {
            v = n->p[0] + u * (n->p[1] - n->p[0]);
        } else { /* Box and Muller */
            double w = uniform(seed, offset, (uint64_t)i + (uint64_t)count);
            v = n->p[0] + n->p[1] * sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * w);
        }
        sg_run_data(r, n, SG_RNG_Y)[i] = (float)v;
    }
}

/* ---- changes of shape ---- */

static int64_t offset_of(const struct sg_gtensor *t, int64_t at)
{
    int64_t off = 0;
    for (int d = t->ndims - 1; d >= 0; d--) {
        off += at % t->dim[d] * t->str[d];
        at /= t->dim[d];
    }
    return off;
}

/* The memory that x's strides describe, read with y's; or, where mode says so, the same sequence of
 * elements. */
void sg_node_view(const struct sg_graph_run *r, const struct sg_gnode *n)
{
    const struct sg_gtensor *x = sg_run_tensor(r, n, SG_ONE_X), *y = sg_run_tensor(r, n, SG_ONE_Y);
    int64_t count = sg_gtensor_count(x);
    const float *from = sg_run_data(r, n, SG_ONE_X);
    float *to = sg_run_data(r, n, SG_ONE_Y);
    if (n->mode) {
        memcpy(to, from, (size_t)count * sizeof *to);
        return;
    }
    int64_t last = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t ox = offset_of(x, i), oy = offset_of(y, i);
        last = ox > last ? ox : oy > last ? oy : last;
    }
    float *image = sg_scratch((size_t)(last + 1) * sizeof *image);
    memset(image, 0, (size_t)(last + 1) * sizeof *image);
    for (int64_t i = 0; i < count; i++) {
        image[offset_of(x, i)] = from[i];
    }
    for (int64_t i = 0; i < count; i++) {
        to[i] = image[offset_of(y, i)];
    }
    free(image);
}

/* y, each of whose dimensions d steps through dimension from[d] of x, starting at first[d]. */
static void pick(const struct sg_graph_run *r, const struct sg_gnode *n, const int32_t from[],
                 const int32_t first[], const int32_t step[])
{
    const struct sg_gtensor *x = sg_run_tensor(r, n, SG_ONE_X), *y = sg_run_tensor(r, n, SG_ONE_Y);
    struct sg_gtensor packed = sg_gtensor_packed(x->type, x->ndims, x->dim);
    for (int64_t i = 0, count = sg_gtensor_count(y); i < count; i++) {
        int64_t rest = i, at = 0;
        for (int d = y->ndims - 1; d >= 0; d--) {
            at += (first[d] + rest % y->dim[d] * step[d]) * packed.str[from[d]];
            rest /= y->dim[d];
        }
        sg_run_data(r, n, SG_ONE_Y)[i] = sg_run_data(r, n, SG_ONE_X)[at];
    }
}

void sg_node_transpose(const struct sg_graph_run *r, const struct sg_gnode *n)
{
    static const int32_t none[SG_GRAPH_DIMS] = {0}, one[SG_GRAPH_DIMS] = {1, 1, 1, 1, 1, 1, 1, 1};
    pick(r, n, n->dilation, none, one);
}

void sg_node_slice(const struct sg_graph_run *r, const struct sg_gnode *n)
{
    static const int32_t same[SG_GRAPH_DIMS] = {0, 1, 2, 3, 4, 5, 6, 7};
    pick(r, n, same, n->pre, n->stride);
}
