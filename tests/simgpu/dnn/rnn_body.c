/* The arithmetic of recurrent layers, entry by entry, step by step, in single precision. */
#include "gemm.h"
#include "element.h"
#include "reduce.h"
#include "rnn.h"

#include <cudnn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One launch: what it reads as single precision, and the parts of the reserve space. Rows of all
 * arrays are (time, entry), padding included. */
struct job {
    struct sg_rnn_args a;
    struct sg_rnn_rows rows; /* of x; lengths are those of y too */
    int64_t n, h, gates,
        width; /* rows; gates * h is a row of gates; directions * h a row of outputs */
    float *weights, *space, *own; /* own: a reserve space of our own, where the call has none */
};

static float *loaded(int type, uint64_t addr, int64_t count)
{
    float *out = sg_scratch((size_t)count * sizeof *out);
    for (int64_t i = 0; i < count; i++) {
        out[i] = addr ? sg_element_get(type, sg_ptr(addr), i) : 0.0f;
    }
    return out;
}

static struct job begin(const struct simgpu_launch *l)
{
    struct job j;
    memset(&j, 0, sizeof j);
    memcpy(&j.a, l->params, sizeof j.a);
    const struct sg_rnn_shape *s = &j.a.s;
    j.rows = sg_rnn_rows_of(s, s->x_layout);
    j.n = (int64_t)s->steps * s->batch;
    j.h = s->hidden;
    j.gates = sg_rnn_gates(s->mode);
    j.width = j.h * s->directions;
    j.weights = loaded(s->type, j.a.weights, sg_rnn_weight_count(s));
    j.space = sg_ptr(j.a.reserve);
    if (!j.space) {
        j.space = j.own = sg_scratch(sg_rnn_reserve_bytes(s));
    }
    return j;
}

static void end(struct job *j)
{
    if (j->a.workspace) {
        memset(sg_ptr(j->a.workspace), 0x5a, j->a.s.workspace_bytes);
    }
    sg_rnn_rows_free(&j->rows);
    free(j->weights);
    free(j->own);
}

/* Parts of the reserve space of layer p (layers and directions counted through). */
static float *gates_of(const struct job *j, int p)
{
    return j->space + p * j->n * j->h * (j->gates + 2);
}

static float *cells_of(const struct job *j,
                       int p) /* LSTM: c; GRU: the state's part of the new gate */
{
    return gates_of(j, p) + j->n * j->h * j->gates;
}

static float *outputs_of(const struct job *j, int p)
{
    return cells_of(j, p) + j->n * j->h;
}

static unsigned char *mask_below(const struct job *j, int layer)
{
    int64_t bytes = (j->n * j->width + 7) / 8;
    return (unsigned char *)gates_of(j, j->a.s.layers * j->a.s.directions) + (layer - 1) * bytes;
}

static const float *bias(const struct job *j, int p, int64_t id)
{
    int64_t at = sg_rnn_bias_at(&j->a.s, p, (int)id);
    return at < 0 ? NULL : j->weights + at;
}

/* x in (time, entry) order, zeros in the padding. */
static float *load_rows(const struct job *j, uint64_t addr, int layout, int64_t width)
{
    const struct sg_rnn_shape *s = &j->a.s;
    struct sg_rnn_rows r = sg_rnn_rows_of(s, layout);
    float *out = sg_scratch((size_t)(j->n * width) * sizeof *out);
    memset(out, 0, (size_t)(j->n * width) * sizeof *out);
    for (int64_t b = 0; b < s->batch; b++) {
        for (int64_t t = 0; t < sg_rnn_length(&r, b); t++) {
            int64_t row = sg_rnn_row(&r, t, b);
            for (int64_t i = 0; i < width; i++) {
                out[(t * s->batch + b) * width + i] =
                    sg_element_get(s->type, sg_ptr(addr), row * width + i);
            }
        }
    }
    sg_rnn_rows_free(&r);
    return out;
}

static void store_rows(const struct job *j, uint64_t addr, int layout, int64_t width,
                       const float *data, float fill)
{
    const struct sg_rnn_shape *s = &j->a.s;
    struct sg_rnn_rows r = sg_rnn_rows_of(s, layout);
    for (int64_t b = 0; b < s->batch; b++) {
        for (int64_t t = 0; t < s->steps; t++) {
            int64_t row = sg_rnn_row(&r, t, b);
            int inside = t < sg_rnn_length(&r, b);
            for (int64_t i = 0; row >= 0 && i < width; i++) {
                sg_element_set(s->type, sg_ptr(addr), row * width + i,
                               inside ? data[(t * s->batch + b) * width + i] : fill);
            }
        }
    }
    sg_rnn_rows_free(&r);
}

/* The outputs of a layer side by side, as the next one reads them. */
static float *layer_output(const struct job *j, int layer)
{
    float *out = sg_scratch((size_t)(j->n * j->width) * sizeof *out);
    for (int64_t d = 0; d < j->a.s.directions; d++) {
        const float *from = outputs_of(j, layer * j->a.s.directions + (int)d);
        for (int64_t row = 0; row < j->n; row++) {
            memcpy(out + row * j->width + d * j->h, from + row * j->h, (size_t)j->h * sizeof *out);
        }
    }
    return out;
}

static void drop(const struct job *j, int layer, float *data)
{
    const struct sg_rnn_shape *s = &j->a.s;
    if (!s->training || s->rate <= 0.0f) {
        return;
    }
    const unsigned char *mask = mask_below(j, layer);
    float scale = s->rate < 1.0f ? 1.0f / (1.0f - s->rate) : 0.0f;
    for (int64_t i = 0; i < j->n * j->width; i++) {
        data[i] = mask[i / 8] >> i % 8 & 1 ? scale * data[i] : 0.0f;
    }
}

/* What layer `layer` reads: x, or the outputs below after dropout. */
static float *layer_input(const struct job *j, int layer)
{
    if (layer == 0) {
        return load_rows(j, j->a.x, j->a.s.x_layout, j->a.s.input);
    }
    float *in = layer_output(j, layer - 1);
    drop(j, layer, in);
    return in;
}

static float sigmoid(float v)
{
    return 1.0f / (1.0f + expf(-v));
}

/* One step of one entry: `pre` holds the input's part of the gates and becomes the gates, `rec` the
 * state's part; h and c become the new ones; `kept` is what cells_of() keeps. */
static void cell(const struct job *j, float *pre, const float *rec, float *h, float *c, float *kept)
{
    int64_t n = j->h;
    for (int64_t i = 0; i < n; i++) {
        if (j->a.s.mode == CUDNN_LSTM) {
            float in = sigmoid(pre[i] + rec[i]), forget = sigmoid(pre[n + i] + rec[n + i]);
            float new = tanhf(pre[2 * n + i] + rec[2 * n + i]);
            float out = sigmoid(pre[3 * n + i] + rec[3 * n + i]);
            c[i] = forget * c[i] + in * new;
            h[i] = out * tanhf(c[i]);
            pre[i] = in;
            pre[n + i] = forget;
            pre[2 * n + i] = new;
            pre[3 * n + i] = out;
            kept[i] = c[i];
        } else if (j->a.s.mode == CUDNN_GRU) {
            float reset = sigmoid(pre[i] + rec[i]), update = sigmoid(pre[n + i] + rec[n + i]);
            float new = tanhf(pre[2 * n + i] + reset * rec[2 * n + i]);
            h[i] = (1.0f - update) * new + update *h[i];
            pre[i] = reset;
            pre[n + i] = update;
            pre[2 * n + i] = new;
            kept[i] = rec[2 * n + i];
        } else {
            float v = pre[i] + rec[i];
            h[i] = j->a.s.mode == CUDNN_RNN_TANH ? tanhf(v) : v > 0.0f ? v : 0.0f;
            pre[i] = h[i];
            kept[i] = 0.0f;
        }
    }
}

/* rows[m][k] times the transposed matrix[n][k], plus a bias. */
static void affine(int64_t m, int64_t n, int64_t k, const float *rows, const float *matrix,
                   const float *b, float *out)
{
    sg_gemm_f32(m, n, k, 1.0f, rows, (struct sg_mat){k, 1}, matrix, (struct sg_mat){1, k}, 0.0f,
                out, (struct sg_mat){n, 1});
    for (int64_t i = 0; b && i < m * n; i++) {
        out[i] += b[i % n];
    }
}

static void forward_layer(struct job *j, int p, const float *in)
{
    const struct sg_rnn_shape *s = &j->a.s;
    int64_t columns, wide = j->gates * j->h, at = sg_rnn_matrix_at(s, p, 0, &columns), inner;
    const float *r = j->weights + sg_rnn_matrix_at(s, p, (int)j->gates, &inner);
    float *gates = gates_of(j, p), *cells = cells_of(j, p), *outputs = outputs_of(j, p);
    float *state = sg_scratch((size_t)(2 * j->h + wide) * sizeof *state);
    float *h = state, *c = h + j->h, *rec = c + j->h;
    memset(outputs, 0, (size_t)(j->n * j->h) * sizeof *outputs);
    memset(cells, 0, (size_t)(j->n * j->h) * sizeof *cells);
    affine(j->n, wide, columns, in, j->weights + at, bias(j, p, 0), gates);
    for (int64_t b = 0; b < s->batch; b++) {
        int64_t length = sg_rnn_length(&j->rows, b), first = (p * s->batch + b) * j->h;
        for (int64_t i = 0; i < j->h; i++) {
            h[i] = j->a.hx ? sg_element_get(s->type, sg_ptr(j->a.hx), first + i) : 0.0f;
            c[i] = j->a.cx ? sg_element_get(s->type, sg_ptr(j->a.cx), first + i) : 0.0f;
        }
        for (int64_t k = 0; k < length; k++) {
            int64_t row = (p % s->directions ? length - 1 - k : k) * s->batch + b;
            affine(1, wide, j->h, h, r, bias(j, p, j->gates), rec);
            cell(j, gates + row * wide, rec, h, c, cells + row * j->h);
            for (int64_t i = 0; i < j->h; i++) { /* what the next step and the next layer read */
                h[i] = sg_element_round(s->type, h[i]);
            }
            memcpy(outputs + row * j->h, h, (size_t)j->h * sizeof *h);
        }
        for (int64_t i = 0; i < j->h; i++) {
            if (j->a.hy) {
                sg_element_set(s->type, sg_ptr(j->a.hy), first + i, h[i]);
            }
            if (j->a.cy) {
                sg_element_set(s->type, sg_ptr(j->a.cy), first + i, c[i]);
            }
        }
    }
    free(state);
}

void sg_rnn_fwd_body(const struct simgpu_launch *l)
{
    struct job j = begin(l);
    const struct sg_rnn_shape *s = &j.a.s;
    for (int layer = 0; layer < s->layers; layer++) {
        if (layer > 0 && s->training && s->rate > 0.0f) {
            sg_dropout_draw(j.a.states, s->rate, j.n * j.width, mask_below(&j, layer));
        }
        float *in = layer_input(&j, layer);
        for (int d = 0; d < s->directions; d++) {
            forward_layer(&j, layer * s->directions + d, in);
        }
        free(in);
    }
    float *out = layer_output(&j, s->layers - 1);
    store_rows(&j, j.a.y, s->y_layout, j.width, out, s->fill);
    free(out);
    end(&j);
}

/* ---- backward through the data ---- */

/* One step back: from dh and dc of the output to the gates' gradients, in their place. `h_prev` and
 * `c_prev` are the states before the step. What of dh goes on past the products stays in dh. */
static void cell_back(const struct job *j, float *g, float *kept, const float *h_prev,
                      const float *c_prev, float *dh, float *dc)
{
    int64_t n = j->h;
    for (int64_t i = 0; i < n; i++) {
        if (j->a.s.mode == CUDNN_LSTM) {
            float in = g[i], forget = g[n + i], new = g[2 * n + i], out = g[3 * n + i];
            float t = tanhf(kept[i]), d = dc[i] + dh[i] * out * (1.0f - t * t);
            g[i] = d * new *in *(1.0f - in);
            g[n + i] = d * c_prev[i] * forget * (1.0f - forget);
            g[2 * n + i] = d * in * (1.0f - new *new);
            g[3 * n + i] = dh[i] * t * out * (1.0f - out);
            dc[i] = d * forget;
            dh[i] = 0.0f;
        } else if (j->a.s.mode == CUDNN_GRU) {
            float reset = g[i], update = g[n + i], new = g[2 * n + i];
            float dnew = dh[i] * (1.0f - update) * (1.0f - new *new);
            g[i] = dnew * kept[i] * reset * (1.0f - reset);
            g[n + i] = dh[i] * (h_prev[i] - new) * update * (1.0f - update);
            g[2 * n + i] = dnew;
            kept[i] = dnew * reset; /* the same gate's gradient, as the state's product sees it */
            dh[i] *= update;
        } else {
            float y = g[i];
            g[i] = dh[i] * (j->a.s.mode == CUDNN_RNN_TANH ? 1.0f - y * y : y > 0.0f);
            dh[i] = 0.0f;
        }
    }
}

/* Gradients of the state's part of the gates: those of the input's part, but for a GRU's new gate.
 */
static void recurrent_part(const struct job *j, const float *g, const float *kept, float *out)
{
    memcpy(out, g, (size_t)(j->gates * j->h) * sizeof *out);
    if (j->a.s.mode == CUDNN_GRU) {
        memcpy(out + 2 * j->h, kept, (size_t)j->h * sizeof *out);
    }
}

/* The state of entry b before the step that made `row`; zeros where it began without one. */
static void previous(const struct job *j, int p, int64_t b, int64_t k, int64_t length,
                     uint64_t start, const float *kept, float *out)
{
    const struct sg_rnn_shape *s = &j->a.s;
    for (int64_t i = 0; i < j->h; i++) {
        if (k > 0) {
            int64_t row = (p % s->directions ? length - k : k - 1) * s->batch + b;
            out[i] = kept[row * j->h + i];
        } else {
            out[i] = start ? sg_element_get(s->type, sg_ptr(start), (p * s->batch + b) * j->h + i)
                           : 0.0f;
        }
    }
}

static void backward_layer(struct job *j, int p, const float *dout, float *din)
{
    const struct sg_rnn_shape *s = &j->a.s;
    int64_t columns, inner, wide = j->gates * j->h, h = j->h;
    const float *w = j->weights + sg_rnn_matrix_at(s, p, 0, &columns),
                *r = j->weights + sg_rnn_matrix_at(s, p, (int)j->gates, &inner);
    float *gates = gates_of(j, p), *cells = cells_of(j, p);
    float *state = sg_scratch((size_t)(4 * h + wide) * sizeof *state);
    float *dh = state, *dc = dh + h, *hp = dc + h, *cp = hp + h, *rec = cp + h;
    for (int64_t b = 0; b < s->batch; b++) {
        int64_t length = sg_rnn_length(&j->rows, b), first = (p * s->batch + b) * h;
        for (int64_t i = 0; i < h; i++) {
            dh[i] = j->a.dhy ? sg_element_get(s->type, sg_ptr(j->a.dhy), first + i) : 0.0f;
            dc[i] = j->a.dcy ? sg_element_get(s->type, sg_ptr(j->a.dcy), first + i) : 0.0f;
        }
        for (int64_t k = length - 1; k >= 0; k--) {
            int64_t row = (p % s->directions ? length - 1 - k : k) * s->batch + b;
            for (int64_t i = 0; i < h; i++) {
                dh[i] += dout[row * j->width + p % s->directions * h + i];
            }
            previous(j, p, b, k, length, j->a.hx, outputs_of(j, p), hp);
            previous(j, p, b, k, length, j->a.cx, cells, cp);
            cell_back(j, gates + row * wide, cells + row * h, hp, cp, dh, dc);
            recurrent_part(j, gates + row * wide, cells + row * h, rec);
            sg_gemm_f32(1, h, wide, 1.0f, rec, (struct sg_mat){wide, 1}, r, (struct sg_mat){h, 1},
                        1.0f, dh, (struct sg_mat){h, 1});
        }
        for (int64_t t = length; t < s->steps; t++) { /* padding adds nothing to the weights */
            memset(gates + (t * s->batch + b) * wide, 0, (size_t)wide * sizeof *gates);
            memset(cells + (t * s->batch + b) * h, 0, (size_t)h * sizeof *cells);
        }
        for (int64_t i = 0; i < h; i++) {
            if (j->a.dhx) {
                sg_element_set(s->type, sg_ptr(j->a.dhx), first + i, dh[i]);
            }
            if (j->a.dcx) {
                sg_element_set(s->type, sg_ptr(j->a.dcx), first + i, dc[i]);
            }
        }
    }
    free(state);
    sg_gemm_f32(j->n, columns, wide, 1.0f, gates, (struct sg_mat){wide, 1}, w,
                (struct sg_mat){columns, 1}, 1.0f, din, (struct sg_mat){columns, 1});
}

void sg_rnn_bwd_data_body(const struct simgpu_launch *l)
{
    struct job j = begin(l);
    const struct sg_rnn_shape *s = &j.a.s;
    float *dout = load_rows(&j, j.a.dy, s->y_layout, j.width);
    for (int layer = s->layers - 1; layer >= 0; layer--) {
        int64_t width = layer ? j.width : s->input;
        float *din = sg_scratch((size_t)(j.n * width) * sizeof *din);
        memset(din, 0, (size_t)(j.n * width) * sizeof *din);
        for (int d = 0; d < s->directions; d++) {
            backward_layer(&j, layer * s->directions + d, dout, din);
        }
        if (layer) {
            drop(&j, layer, din);
        }
        free(dout);
        dout = din;
    }
    store_rows(&j, j.a.dx, s->x_layout, s->input, dout, 0.0f);
    free(dout);
    end(&j);
}

/* ---- backward to the weights: they are added to ---- */

static void weights_of_layer(struct job *j, int p, const float *in, float *sum)
{
    const struct sg_rnn_shape *s = &j->a.s;
    int64_t columns, inner, wide = j->gates * j->h, h = j->h;
    int64_t w = sg_rnn_matrix_at(s, p, 0, &columns),
            r = sg_rnn_matrix_at(s, p, (int)j->gates, &inner);
    const float *gates = gates_of(j, p), *cells = cells_of(j, p);
    float *rec = sg_scratch((size_t)(j->n * (wide + h)) * sizeof *rec), *before = rec + j->n * wide;
    memset(before, 0, (size_t)(j->n * h) * sizeof *before);
    for (int64_t b = 0; b < s->batch; b++) {
        int64_t length = sg_rnn_length(&j->rows, b);
        for (int64_t k = 0; k < length; k++) {
            int64_t row = (p % s->directions ? length - 1 - k : k) * s->batch + b;
            previous(j, p, b, k, length, j->a.hx, outputs_of(j, p), before + row * h);
        }
    }
    for (int64_t row = 0; row < j->n; row++) {
        recurrent_part(j, gates + row * wide, cells + row * h, rec + row * wide);
    }
    sg_gemm_f32(wide, columns, j->n, 1.0f, gates, (struct sg_mat){1, wide}, in,
                (struct sg_mat){columns, 1}, 1.0f, sum + w, (struct sg_mat){columns, 1});
    sg_gemm_f32(wide, h, j->n, 1.0f, rec, (struct sg_mat){1, wide}, before, (struct sg_mat){h, 1},
                1.0f, sum + r, (struct sg_mat){h, 1});
    for (int64_t side = 0; side < 2; side++) {
        int64_t at = sg_rnn_bias_at(s, p, (int)(side * j->gates));
        const float *from = side ? rec : gates;
        for (int64_t i = 0; at >= 0 && i < j->n * wide; i++) {
            sum[at + i % wide] += from[i];
        }
    }
    free(rec);
}

void sg_rnn_bwd_weights_body(const struct simgpu_launch *l)
{
    struct job j = begin(l); /* j.weights: the gradient so far */
    const struct sg_rnn_shape *s = &j.a.s;
    for (int layer = 0; layer < s->layers; layer++) {
        float *in = layer_input(&j, layer);
        for (int d = 0; d < s->directions; d++) {
            weights_of_layer(&j, layer * s->directions + d, in, j.weights);
        }
        free(in);
    }
    for (int64_t i = 0, n = sg_rnn_weight_count(s); i < n; i++) {
        sg_element_set(s->type, sg_ptr(j.a.weights), i, j.weights[i]);
    }
    end(&j);
}
