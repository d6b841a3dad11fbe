/* Normalisations, resampling and statistics in graphs. */
#include "graph.h"

#include <cudnn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- normalisation: Ioffe and Szegedy (arXiv 1502.03167), Ba et al. (1607.06450), Ulyanov et al.
 * (1607.08022), Zhang and Sennrich (1910.07467) ----
 *
 * Each element belongs to one group, whose moments are taken; the shape of the means says which
 * dimensions a group does not span. Where there is no tensor of means, the mode says it. */

struct grouping {
    struct sg_gtensor shape; /* one element for each group */
    int64_t groups;
    double per_group;
};

static struct grouping grouping_of(const struct sg_gtensor *x, const struct sg_gtensor *moments,
                                   int mode)
{
    int64_t dim[SG_GRAPH_DIMS];
    for (int d = 0; d < x->ndims; d++) {
        int kept = mode == CUDNN_BATCH_NORM ? d == 1 : mode == CUDNN_INSTANCE_NORM ? d < 2 : d == 0;
        dim[d] = moments && moments->ndims == x->ndims ? moments->dim[d] : kept ? x->dim[d] : 1;
    }
    struct grouping q = {.shape = sg_gtensor_packed(CUDNN_DATA_FLOAT, x->ndims, dim)};
    q.groups = sg_gtensor_count(&q.shape);
    q.per_group = (double)sg_gtensor_count(x) / (double)q.groups;
    return q;
}

/* Means and inverse deviations of all groups; a root-mean-square normalisation has no means. */
static void moments_of(const struct grouping *q, const struct sg_gtensor *tx, const float *x,
                       int mode, double epsilon, double *mean, double *variance, double *inverse)
{
    int64_t count = sg_gtensor_count(tx);
    memset(mean, 0, (size_t)q->groups * sizeof *mean);
    memset(variance, 0, (size_t)q->groups * sizeof *variance);
    for (int64_t i = 0; i < count && mode != CUDNN_RMS_NORM; i++) {
        mean[sg_gtensor_under(tx, &q->shape, i)] += x[i];
    }
    for (int64_t k = 0; k < q->groups; k++) {
        mean[k] /= q->per_group;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t k = sg_gtensor_under(tx, &q->shape, i);
        variance[k] += (x[i] - mean[k]) * (x[i] - mean[k]);
    }
    for (int64_t k = 0; k < q->groups; k++) {
        variance[k] /= q->per_group;
        inverse[k] = 1 / sqrt(variance[k] + epsilon);
    }
}

static double scalar(const struct sg_graph_run *r, const struct sg_gnode *n, int role,
                     double otherwise)
{
    const float *v = sg_run_data(r, n, role);
    return v ? *v : otherwise;
}

static void update_running(const struct sg_graph_run *r, const struct sg_gnode *n,
                           const struct grouping *q, const double *mean, const double *variance)
{
    const float *old_mean = sg_run_data(r, n, SG_NF_IN_MEAN),
                *old_var = sg_run_data(r, n, SG_NF_IN_VAR);
    float *new_mean = sg_run_data(r, n, SG_NF_OUT_MEAN),
          *new_var = sg_run_data(r, n, SG_NF_OUT_VAR);
    double f = scalar(r, n, SG_NF_FACTOR, 1);
    double unbiased = q->per_group > 1 ? q->per_group / (q->per_group - 1) : 1;
    for (int64_t k = 0; k < q->groups; k++) {
        if (new_mean) {
            new_mean[k] = (float)((1 - f) * (old_mean ? old_mean[k] : 0) + f * mean[k]);
        }
        if (new_var) {
            new_var[k] = (float)((1 - f) * (old_var ? old_var[k] : 0) + f * variance[k] * unbiased);
        }
    }
}

/* Inference with means and inverse deviations, or with running means and variances. 1: it was. */
static int given_moments(const struct sg_graph_run *r, const struct sg_gnode *n,
                         const struct grouping *q, double *mean, double *inverse)
{
    const float *m = sg_run_data(r, n, SG_NF_MEAN), *i = sg_run_data(r, n, SG_NF_INVVAR),
                *rm = sg_run_data(r, n, SG_NF_IN_MEAN), *rv = sg_run_data(r, n, SG_NF_IN_VAR);
    if (n->phase == CUDNN_NORM_FWD_TRAINING || (!i && !rv)) {
        return 0;
    }
    double epsilon = scalar(r, n, SG_NF_EPSILON, 0);
    for (int64_t k = 0; k < q->groups; k++) {
        mean[k] = i ? (m ? m[k] : 0) : rm ? rm[k] : 0;
        inverse[k] = i ? i[k] : 1 / sqrt(rv[k] + epsilon);
    }
    return 1;
}

void sg_node_norm_forward(const struct sg_graph_run *r, const struct sg_gnode *n)
{
    const struct sg_gtensor *tx = sg_run_tensor(r, n, SG_NF_X);
    const struct sg_gtensor *tscale = sg_run_tensor(r, n, SG_NF_SCALE),
                            *tbias = sg_run_tensor(r, n, SG_NF_BIAS),
                            *tm = sg_run_tensor(r, n, SG_NF_MEAN);
    const float *x = sg_run_data(r, n, SG_NF_X), *scale = sg_run_data(r, n, SG_NF_SCALE),
                *bias = sg_run_data(r, n, SG_NF_BIAS);
    float *save_mean = sg_run_data(r, n, SG_NF_MEAN), *save_inv = sg_run_data(r, n, SG_NF_INVVAR);
    struct grouping q = grouping_of(tx,
                                    tm                        ? tm
                                    : n->t[SG_NF_INVVAR] >= 0 ? sg_run_tensor(r, n, SG_NF_INVVAR)
                                    : n->mode == CUDNN_BATCH_NORM ? tscale
                                                                  : NULL,
                                    n->mode);
    double *mean = sg_scratch(3 * (size_t)q.groups * sizeof *mean);
    double *variance = mean + q.groups, *inverse = variance + q.groups;
    if (!given_moments(r, n, &q, mean, inverse)) {
        moments_of(&q, tx, x, n->mode, scalar(r, n, SG_NF_EPSILON, 0), mean, variance, inverse);
    }
    if (n->phase == CUDNN_NORM_FWD_TRAINING) {
        for (int64_t k = 0; k < q.groups; k++) {
            if (save_mean) {
                save_mean[k] = (float)mean[k];
            }
            if (save_inv) {
                save_inv[k] = (float)inverse[k];
            }
        }
        update_running(r, n, &q, mean, variance);
    }
    for (int64_t i = 0, count = sg_gtensor_count(tx); i < count; i++) {
        int64_t k = sg_gtensor_under(tx, &q.shape, i);
        double v = (x[i] - mean[k]) * inverse[k];
        v *= scale ? scale[sg_gtensor_under(tx, tscale, i)] : 1;
        v += bias ? bias[sg_gtensor_under(tx, tbias, i)] : 0;
        sg_run_data(r, n, SG_NF_Y)[i] = (float)v;
    }
    free(mean);
}

void sg_node_norm_backward(const struct sg_graph_run *r, const struct sg_gnode *n)
{
    const struct sg_gtensor *tx = sg_run_tensor(r, n, SG_NB_X),
                            *tscale = sg_run_tensor(r, n, SG_NB_SCALE),
                            *tm = sg_run_tensor(r, n, SG_NB_MEAN);
    const struct sg_gtensor *tp = tscale ? tscale : sg_run_tensor(r, n, SG_NB_DSCALE);
    const float *x = sg_run_data(r, n, SG_NB_X), *dy = sg_run_data(r, n, SG_NB_DY),
                *scale = sg_run_data(r, n, SG_NB_SCALE), *sm = sg_run_data(r, n, SG_NB_MEAN),
                *si = sg_run_data(r, n, SG_NB_INVVAR);
    struct grouping q = grouping_of(tx,
                                    tm                        ? tm
                                    : n->t[SG_NB_INVVAR] >= 0 ? sg_run_tensor(r, n, SG_NB_INVVAR)
                                    : n->mode == CUDNN_BATCH_NORM ? tp
                                                                  : NULL,
                                    n->mode);
    int64_t count = sg_gtensor_count(tx), params = tp ? sg_gtensor_count(tp) : 0;
    double *mean = sg_scratch((5 * (size_t)q.groups + 2 * (size_t)params) * sizeof *mean);
    double *variance = mean + q.groups, *inverse = variance + q.groups, *g1 = inverse + q.groups,
           *g2 = g1 + q.groups, *dscale = g2 + q.groups, *dbias = dscale + params;
    moments_of(&q, tx, x, n->mode, scalar(r, n, SG_NB_EPSILON, 0), mean, variance, inverse);
    for (int64_t k = 0; k < q.groups; k++) {
        mean[k] = sm ? sm[k] : mean[k];
        inverse[k] = si ? si[k] : inverse[k];
    }
    memset(g1, 0, (2 * (size_t)q.groups + 2 * (size_t)params) * sizeof *g1);
    for (int64_t i = 0; i < count; i++) {
        int64_t k = sg_gtensor_under(tx, &q.shape, i), p = tp ? sg_gtensor_under(tx, tp, i) : 0;
        double hat = (x[i] - mean[k]) * inverse[k], g = dy[i] * (scale ? (double)scale[p] : 1.0);
        g1[k] += g;
        g2[k] += g * hat;
        if (tp) {
            dscale[p] += dy[i] * hat;
            dbias[p] += dy[i];
        }
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t k = sg_gtensor_under(tx, &q.shape, i), p = tp ? sg_gtensor_under(tx, tp, i) : 0;
        double hat = (x[i] - mean[k]) * inverse[k], g = dy[i] * (scale ? (double)scale[p] : 1.0);
        double centre = n->mode == CUDNN_RMS_NORM ? 0 : g1[k];
        sg_run_data(r, n, SG_NB_DX)[i] =
            (float)((g - (centre + hat * g2[k]) / q.per_group) * inverse[k]);
    }
    for (int64_t p = 0; p < params; p++) {
        if (n->t[SG_NB_DSCALE] >= 0) {
            sg_run_data(r, n, SG_NB_DSCALE)[p] = (float)dscale[p];
        }
        if (n->t[SG_NB_DBIAS] >= 0) {
            sg_run_data(r, n, SG_NB_DBIAS)[p] = (float)dbias[p];
        }
    }
    free(mean);
}

/* ---- resampling: pooling windows ---- */

struct window {
    int spatial;
    const struct sg_gtensor *in, *out;
    int64_t planes, inside, positions; /* batch times channels; elements of one plane */
};

static struct window window_of(const struct sg_gtensor *in, const struct sg_gtensor *out)
{
    struct window w = {in->ndims - 2, in, out, in->dim[0] * in->dim[1], 1, 1};
    for (int d = 2; d < in->ndims; d++) {
        w.inside *= in->dim[d];
        w.positions *= out->dim[d];
    }
    return w;
}

/* Input position that output position o meets at tap t of the window, or -1 in the padding. */
static int64_t meet(const struct window *w, const struct sg_gnode *n, int64_t o, int64_t t)
{
    int64_t at = 0, step = 1;
    for (int d = w->spatial - 1; d >= 0; d--) {
        int64_t size = w->in->dim[2 + d];
        int64_t i = o % w->out->dim[2 + d] * n->stride[d] - n->pre[d] + t % n->window[d];
        o /= w->out->dim[2 + d];
        t /= n->window[d];
        if (i < 0 || i >= size) {
            return -1;
        }
        at += i * step;
        step *= size;
    }
    return at;
}

static int64_t taps_of(const struct window *w, const struct sg_gnode *n)
{
    int64_t taps = 1;
    for (int d = 0; d < w->spatial; d++) {
        taps *= n->window[d];
    }
    return taps;
}

static int is_max(const struct sg_gnode *n)
{
    return n->mode == CUDNN_RESAMPLE_MAXPOOL;
}

/* The tap of the largest value, or -1 where the whole window lies in the padding. */
static int64_t max_tap(const struct window *w, const struct sg_gnode *n, const float *x, int64_t o)
{
    int64_t best = -1;
    float largest = 0;
    for (int64_t t = 0, taps = taps_of(w, n); t < taps; t++) {
        int64_t at = meet(w, n, o, t);
        if (at >= 0 && (best < 0 || x[at] > largest)) {
            best = t;
            largest = x[at];
        }
    }
    return best;
}

/* What an average divides by. */
static double divisor(const struct window *w, const struct sg_gnode *n, int64_t o)
{
    int64_t taps = taps_of(w, n), met = 0;
    if (n->mode != CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING) {
        return (double)taps;
    }
    for (int64_t t = 0; t < taps; t++) {
        met += meet(w, n, o, t) >= 0;
    }
    return met ? (double)met : 1.0;
}

void sg_node_resample_forward(const struct sg_graph_run *r, const struct sg_gnode *n)
{
    struct window w = window_of(sg_run_tensor(r, n, SG_RF_X), sg_run_tensor(r, n, SG_RF_Y));
    float *index = sg_run_data(r, n, SG_RF_INDEX);
    for (int64_t p = 0; p < w.planes; p++) {
        const float *x = sg_run_data(r, n, SG_RF_X) + p * w.inside;
        for (int64_t o = 0; o < w.positions; o++) {
            double v = 0;
            if (is_max(n)) {
                int64_t t = max_tap(&w, n, x, o);
                v = t < 0 ? 0 : x[meet(&w, n, o, t)];
                if (index) {
                    index[p * w.positions + o] = (float)(t < 0 ? 0 : t);
                }
            } else {
                for (int64_t t = 0, taps = taps_of(&w, n); t < taps; t++) {
                    int64_t at = meet(&w, n, o, t);
                    v += at < 0 ? 0 : x[at];
                }
                v /= divisor(&w, n, o);
            }
            sg_run_data(r, n, SG_RF_Y)[p * w.positions + o] = (float)v;
        }
    }
}

void sg_node_resample_backward(const struct sg_graph_run *r, const struct sg_gnode *n)
{
    struct window w = window_of(sg_run_tensor(r, n, SG_RB_DX), sg_run_tensor(r, n, SG_RB_DY));
    const float *index = sg_run_data(r, n, SG_RB_INDEX), *x = sg_run_data(r, n, SG_RB_X);
    for (int64_t p = 0; p < w.planes; p++) {
        float *dx = sg_run_data(r, n, SG_RB_DX) + p * w.inside;
        memset(dx, 0, (size_t)w.inside * sizeof *dx);
        for (int64_t o = 0; o < w.positions; o++) {
            float dy = sg_run_data(r, n, SG_RB_DY)[p * w.positions + o];
            if (is_max(n)) {
                int64_t t = index ? (int64_t)index[p * w.positions + o]
                                  : max_tap(&w, n, x + p * w.inside, o);
                int64_t at = t < 0 ? -1 : meet(&w, n, o, t);
                if (at >= 0) {
                    dx[at] += dy;
                }
                continue;
            }
            float part = (float)(dy / divisor(&w, n, o));
            for (int64_t t = 0, taps = taps_of(&w, n); t < taps; t++) {
                int64_t at = meet(&w, n, o, t);
                if (at >= 0) {
                    dx[at] += part;
                }
            }
        }
    }
}

/* ---- sums and sums of squares of each channel ---- */

void sg_node_genstats(const struct sg_graph_run *r, const struct sg_gnode *n)
{
    const struct sg_gtensor *tx = sg_run_tensor(r, n, SG_GS_X),
                            *ts = sg_run_tensor(r, n, SG_GS_SUM);
    int64_t channels = sg_gtensor_count(ts), count = sg_gtensor_count(tx);
    double *sum = sg_scratch(2 * (size_t)channels * sizeof *sum);
    memset(sum, 0, 2 * (size_t)channels * sizeof *sum);
    for (int64_t i = 0; i < count; i++) {
        int64_t c = sg_gtensor_under(tx, ts, i);
        double v = sg_run_data(r, n, SG_GS_X)[i];
        sum[c] += v;
        sum[channels + c] += v * v;
    }
    for (int64_t c = 0; c < channels; c++) {
        sg_run_data(r, n, SG_GS_SUM)[c] = (float)sum[c];
        sg_run_data(r, n, SG_GS_SQSUM)[c] = (float)sum[channels + c];
    }
    free(sum);
}
