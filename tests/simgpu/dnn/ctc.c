#include "ctc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void load(const struct simgpu_launch *l, struct sg_ctc_args *a)
{
    memcpy(a, l->params, sizeof *a);
}

static const int32_t *ints(uint64_t addr)
{
    return (const int32_t *)(uintptr_t)addr;
}

static struct sg_tensor shape(const struct sg_ctc_args *a, const int32_t stride[3])
{
    return (struct sg_tensor){{a->steps, a->batch, 1, 1, a->classes},
                              {stride[0], stride[1], 0, 0, stride[2]}};
}

/* Where the labels are the program's, as many are read as the lengths say; without contents (timing
 * mode) nobody knows how many that is. */
static size_t label_bytes(const struct simgpu_launch *l, const struct sg_ctc_args *a)
{
    size_t n = 0;
    if (a->label_lengths == a->workspace) {
        return 4 * (size_t)a->label_room;
    }
    for (int32_t b = 0; l->functional && b < a->batch; b++) {
        n += (size_t)ints(a->label_lengths)[b];
    }
    return 4 * n;
}

void sg_ctc_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct sg_ctc_args a;
    load(l, &a);
    struct sg_tensor probs = shape(&a, a.probs_stride), grads = shape(&a, a.gradients_stride);
    sg_touch(touch, ctx, a.probs, &probs, 4, SIMGPU_READ);
    touch(ctx, a.label_lengths, 4 * (size_t)a.batch, SIMGPU_READ);
    touch(ctx, a.input_lengths, 4 * (size_t)a.batch, SIMGPU_READ);
    if (label_bytes(l, &a)) {
        touch(ctx, a.labels, label_bytes(l, &a), SIMGPU_READ);
    }
    touch(ctx, a.costs, 4 * (size_t)a.batch, SIMGPU_WRITE);
    sg_touch(touch, ctx, a.gradients, &grads, 4, SIMGPU_WRITE);
}

static double add_logs(double a, double b)
{
    double high = a > b ? a : b, low = a > b ? b : a;
    return low == -INFINITY ? high : high + log1p(exp(low - high));
}

/* One entry of the batch: logarithms of the classes' probabilities, of the forward and the backward
 * sums. The labels with blanks between are 2 * length + 1 symbols. */
struct entry {
    const int32_t *labels;
    int64_t symbols, steps, classes;
    double *log_p, *alpha, *beta;
};

static int64_t symbol(const struct entry *e, int64_t s)
{
    return s % 2 ? e->labels[s / 2] : 0;
}

/* Whether symbol s may follow the one two before it. */
static int skips(const struct entry *e, int64_t s)
{
    return s % 2 && s >= 2 && symbol(e, s) != symbol(e, s - 2);
}

static void forward_sums(const struct entry *e)
{
    for (int64_t t = 0; t < e->steps; t++) {
        for (int64_t s = 0; s < e->symbols; s++) {
            const double *last = e->alpha + (t - 1) * e->symbols;
            double v = t == 0 && s < 2 ? 0.0 : -INFINITY;
            if (t > 0) {
                v = last[s];
                v = s > 0 ? add_logs(v, last[s - 1]) : v;
                v = skips(e, s) ? add_logs(v, last[s - 2]) : v;
            }
            e->alpha[t * e->symbols + s] = v + e->log_p[t * e->classes + symbol(e, s)];
        }
    }
}

/* Without the probability of the step itself. */
static void backward_sums(const struct entry *e)
{
    for (int64_t t = e->steps - 1; t >= 0; t--) {
        for (int64_t s = 0; s < e->symbols; s++) {
            double v = t == e->steps - 1 && s >= e->symbols - 2 ? 0.0 : -INFINITY;
            for (int64_t k = s; t < e->steps - 1 && k <= s + 2 && k < e->symbols; k++) {
                if (k < s + 2 || skips(e, k)) {
                    v = add_logs(v, e->beta[(t + 1) * e->symbols + k] +
                                        e->log_p[(t + 1) * e->classes + symbol(e, k)]);
                }
            }
            e->beta[t * e->symbols + s] = v;
        }
    }
}

static void log_probabilities(const struct sg_ctc_args *a, int64_t b, struct entry *e)
{
    for (int64_t t = 0; t < e->steps; t++) {
        const float *in = sg_ptr(a->probs) + t * a->probs_stride[0] + b * a->probs_stride[1];
        double max = -INFINITY, sum = 0;
        for (int64_t c = 0; c < e->classes; c++) {
            max = fmax(max, (double)in[c * a->probs_stride[2]]);
        }
        for (int64_t c = 0; c < e->classes; c++) {
            sum += exp((double)in[c * a->probs_stride[2]] - max);
        }
        for (int64_t c = 0; c < e->classes; c++) {
            double v = (double)in[c * a->probs_stride[2]];
            e->log_p[t * e->classes + c] = a->softmax ? v - max - log(sum) : log(v);
        }
    }
}

/* d cost / d input: with the softmax p - posterior, else -posterior / p. */
static void gradient(const struct sg_ctc_args *a, int64_t b, const struct entry *e,
                     double log_total)
{
    for (int64_t t = 0; t < a->steps; t++) {
        float *out = sg_ptr(a->gradients) + t * a->gradients_stride[0] + b * a->gradients_stride[1];
        for (int64_t c = 0; c < a->classes; c++) {
            double posterior = -INFINITY, g = 0;
            for (int64_t s = 0; t < e->steps && s < e->symbols; s++) {
                if (symbol(e, s) == c) {
                    posterior = add_logs(posterior, e->alpha[t * e->symbols + s] +
                                                        e->beta[t * e->symbols + s]);
                }
            }
            if (t < e->steps && log_total > -INFINITY) {
                double lp = e->log_p[t * e->classes + c];
                g = a->softmax ? exp(lp) - exp(posterior - log_total)
                               : -exp(posterior - log_total - lp);
            }
            out[c * a->gradients_stride[2]] = (float)g;
        }
    }
}

void sg_ctc_body(const struct simgpu_launch *l)
{
    struct sg_ctc_args a;
    load(l, &a);
    const int32_t *labels = ints(a.labels);
    for (int64_t b = 0; b < a.batch; b++) {
        struct entry e = {.labels = labels,
                          .symbols = 2 * (int64_t)ints(a.label_lengths)[b] + 1,
                          .steps = ints(a.input_lengths)[b],
                          .classes = a.classes};
        labels += ints(a.label_lengths)[b];
        e.log_p = sg_scratch((size_t)(e.steps * (e.classes + 2 * e.symbols)) * sizeof(double));
        e.alpha = e.log_p + e.steps * e.classes;
        e.beta = e.alpha + e.steps * e.symbols;
        log_probabilities(&a, b, &e);
        forward_sums(&e);
        double total = e.steps ? e.alpha[e.steps * e.symbols - 1] : -INFINITY;
        if (e.steps && e.symbols > 1) {
            total = add_logs(total, e.alpha[e.steps * e.symbols - 2]);
        }
        sg_ptr(a.costs)[b] = (float)-total;
        if (a.gradients) {
            backward_sums(&e);
            gradient(&a, b, &e, total);
        }
        free(e.log_p);
    }
}

void sg_ctc_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    struct sg_ctc_args a;
    load(l, &a);
    double n = (double)a.steps * a.batch * a.classes, sums = 8.0 * a.steps * a.label_room;
    *work = (struct simgpu_work){
        .flops = 10 * n + 20 * sums, .bytes = 12 * n + 16 * sums, .kclass = SIMGPU_CLASS_REDUCE};
}
