/* Recurrent layers against a recurrence in double, their gradients against its differences. */
#include "common.h"

static cudnnHandle_t handle;

/* One random network and everything that goes in and out, as double. */
struct net {
    int mode, layers, dirs, in, hidden, steps, batch, gates, layout, lengths[8];
    cudnnRNNDescriptor_t rnn;
    cudnnRNNDataDescriptor_t xd, yd;
    cudnnTensorDescriptor_t state;
    size_t nweights, nstate, nx, ny; /* elements */
    size_t work, reserve;            /* bytes */
    float *x, *y, *hx, *hy, *cx, *cy, *w, *dy, *dx, *dhy, *dhx, *dcy, *dcx, *dw;
    void *ws, *rs;
};

static void drop_rnn(void *p)
{
    cudnnDestroyRNNDescriptor(p);
}

static void drop_data(void *p)
{
    cudnnDestroyRNNDataDescriptor(p);
}

static double act(int mode, double v)
{
    return mode == CUDNN_RNN_RELU ? (v > 0 ? v : 0) : tanh(v);
}

static double sigmoid(double v)
{
    return 1 / (1 + exp(-v));
}

/* Number of a vector of x or y. */
static int row(const struct net *q, int t, int b)
{
    if (q->layout == CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED) {
        return b * q->steps + t;
    }
    if (q->layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED) {
        return t * q->batch + b;
    }
    int at = b;
    for (int s = 0; s < t; s++) {
        for (int e = 0; e < q->batch; e++) {
            at += q->lengths[e] > s;
        }
    }
    return at;
}

/* An affine gate of layer p: its matrix and bias by the library's own addresses. */
static double gate(const struct net *q, const double *w, int p, int id, int unit, const double *v,
                   int n)
{
    cudnnTensorDescriptor_t md, bd;
    void *m, *b;
    int dim[3], str[3], nd;
    cudnnDataType_t type;
    OK(cudnnCreateTensorDescriptor(&md));
    OK(cudnnCreateTensorDescriptor(&bd));
    OK(cudnnGetRNNWeightParams(handle, q->rnn, p, q->nweights * 4, q->w, id, md, &m, bd, &b));
    OK(cudnnGetTensorNdDescriptor(md, 3, &type, &nd, dim, str));
    cr_assert(nd == 3 && dim[1] == q->hidden && dim[2] == n, "matrix %d of layer %d: %d x %d", id,
              p, dim[1], dim[2]);
    OK(cudnnDestroyTensorDescriptor(md));
    OK(cudnnDestroyTensorDescriptor(bd));
    double sum = w[(float *)b - q->w + unit];
    for (int i = 0; i < n; i++) {
        sum += w[(float *)m - q->w + unit * n + i] * v[i];
    }
    return sum;
}

/* The step of one unit; *c is the cell. */
static double unit_step(const struct net *q, const double *w, int p, int u, const double *in, int n,
                        const double *h, double *c)
{
    double a[4], r[4];
    for (int g = 0; g < q->gates; g++) {
        a[g] = gate(q, w, p, g, u, in, n);
        r[g] = gate(q, w, p, q->gates + g, u, h, q->hidden);
    }
    if (q->mode == CUDNN_LSTM) {
        *c = sigmoid(a[1] + r[1]) * *c + sigmoid(a[0] + r[0]) * tanh(a[2] + r[2]);
        return sigmoid(a[3] + r[3]) * tanh(*c);
    }
    if (q->mode == CUDNN_GRU) {
        double z = sigmoid(a[1] + r[1]);
        return (1 - z) * tanh(a[2] + sigmoid(a[0] + r[0]) * r[2]) + z * h[u];
    }
    return act(q->mode, a[0] + r[0]);
}

/* What dy, dhy and dcy weigh: the scalar whose gradients the library is asked for. y, hy: where not
 * NULL, the outputs. */
static double loss(const struct net *q, const double *x, const double *hx, const double *cx,
                   const double *w, double *y, double *hy)
{
    double sum = 0, in[8][16], out[8][16], h[8], c[8], next[8];
    for (int b = 0; b < q->batch; b++) {
        for (int t = 0; t < q->lengths[b]; t++) {
            memcpy(in[t], x + row(q, t, b) * q->in, (size_t)q->in * sizeof(double));
        }
        for (int p = 0; p < q->layers * q->dirs; p++) {
            int n = p < q->dirs ? q->in : q->dirs * q->hidden,
                first = (p * q->batch + b) * q->hidden;
            memcpy(h, hx + first, (size_t)q->hidden * sizeof *h);
            memcpy(c, cx + first, (size_t)q->hidden * sizeof *c);
            for (int k = 0; k < q->lengths[b]; k++) {
                int t = p % q->dirs ? q->lengths[b] - 1 - k : k;
                for (int u = 0; u < q->hidden; u++) {
                    next[u] = unit_step(q, w, p, u, in[t], n, h, &c[u]);
                    out[t][p % q->dirs * q->hidden + u] = next[u];
                }
                memcpy(h, next, sizeof h);
            }
            for (int u = 0; u < q->hidden; u++) {
                sum += h[u] * (double)q->dhy[first + u] +
                       (q->mode == CUDNN_LSTM ? c[u] * (double)q->dcy[first + u] : 0);
                if (hy) {
                    hy[first + u] = h[u];
                }
            }
            if (p % q->dirs == q->dirs - 1) {
                memcpy(in, out, sizeof in);
            }
        }
        for (int t = 0; t < q->lengths[b]; t++) {
            for (int i = 0; i < q->dirs * q->hidden; i++) {
                size_t at = (size_t)(row(q, t, b) * q->dirs * q->hidden + i);
                sum += out[t][i] * (double)q->dy[at];
                if (y) {
                    y[at] = out[t][i];
                }
            }
        }
    }
    return sum;
}

static struct net net_new(int mode, int layout)
{
    struct net q = {.mode = mode,
                    .layout = layout,
                    .layers = 1 + (int)card_below(2),
                    .dirs = 1 + (int)card_below(2),
                    .in = 1 + (int)card_below(4),
                    .hidden = 1 + (int)card_below(4),
                    .steps = 4,
                    .batch = 3,
                    .gates = mode == CUDNN_LSTM  ? 4
                             : mode == CUDNN_GRU ? 3
                                                 : 1};
    int rows = 0;
    for (int b = 0; b < q.batch;
         b++) { /* the longest first; the first as long as there are steps */
        q.lengths[b] = b == 0 ? q.steps : q.lengths[b - 1] - (int)card_below(2);
        rows += q.lengths[b];
    }
    if (layout != CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED) {
        rows = q.steps * q.batch;
    }
    const int dim[3] = {q.layers * q.dirs, q.batch, q.hidden};
    OK(cudnnCreateRNNDescriptor(&q.rnn));
    card_keep(q.rnn, drop_rnn);
    OK(cudnnSetRNNDescriptor_v8(
        q.rnn, CUDNN_RNN_ALGO_STANDARD, (cudnnRNNMode_t)mode, CUDNN_RNN_DOUBLE_BIAS,
        q.dirs == 2 ? CUDNN_BIDIRECTIONAL : CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT,
        CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_DEFAULT_MATH, q.in, q.hidden, q.hidden, q.layers,
        NULL, CUDNN_RNN_PADDED_IO_ENABLED));
    cudnnRNNDataDescriptor_t *data[2] = {&q.xd, &q.yd};
    for (int i = 0; i < 2; i++) {
        OK(cudnnCreateRNNDataDescriptor(data[i]));
        card_keep(*data[i], drop_data);
        OK(cudnnSetRNNDataDescriptor(*data[i], CUDNN_DATA_FLOAT, (cudnnRNNDataLayout_t)layout,
                                     q.steps, q.batch, i ? q.dirs * q.hidden : q.in, q.lengths,
                                     NULL));
    }
    NEW(TensorDescriptor, q.state);
    OK(cudnnSetTensorNdDescriptorEx(q.state, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 3, dim));
    OK(cudnnGetRNNWeightSpaceSize(handle, q.rnn, &q.nweights));
    q.nweights /= 4;
    OK(cudnnGetRNNTempSpaceSizes(handle, q.rnn, CUDNN_FWD_MODE_TRAINING, q.xd, &q.work,
                                 &q.reserve));
    q.nstate = (size_t)(dim[0] * dim[1] * dim[2]);
    q.nx = (size_t)(rows * q.in);
    q.ny = (size_t)(rows * q.dirs * q.hidden);
    float **states[8] = {&q.hx, &q.hy, &q.cx, &q.cy, &q.dhy, &q.dhx, &q.dcy, &q.dcx};
    for (int i = 0; i < 8; i++) {
        *states[i] = card_random(q.nstate);
    }
    q.x = card_random(q.nx);
    q.dx = card_random(q.nx);
    q.y = card_random(q.ny);
    q.dy = card_random(q.ny);
    q.w = card_random(q.nweights);
    q.dw = card_random(q.nweights);
    q.ws = card_alloc(q.work);
    q.rs = card_alloc(q.reserve);
    return q;
}

static double *doubles(const float *p, size_t n)
{
    double *out = malloc(n * sizeof *out);
    cr_assert_not_null(out);
    for (size_t i = 0; i < n; i++) {
        out[i] = (double)p[i];
    }
    return out;
}

/* Some of the gradients against central differences of the loss by `part`, one of its four inputs.
 */
static void differences(const struct net *q, double *in[4], int part, size_t n,
                        const float *gradient, const float *before, const char *what)
{
    for (int i = 0; i < 10; i++) {
        size_t at = card_below((unsigned)n);
        double old = in[part][at], eps = 1e-5;
        in[part][at] = old + eps;
        double up = loss(q, in[0], in[1], in[2], in[3], NULL, NULL);
        in[part][at] = old - eps;
        double down = loss(q, in[0], in[1], in[2], in[3], NULL, NULL);
        in[part][at] = old;
        near((double)gradient[at] - (before ? (double)before[at] : 0), (up - down) / (2 * eps),
             1e-4, what);
    }
}

static void check(int mode, int layout)
{
    struct net q = net_new(mode, layout);
    int lstm = mode == CUDNN_LSTM;
    OK(cudnnRNNForward(handle, q.rnn, CUDNN_FWD_MODE_TRAINING, NULL, q.xd, q.x, q.yd, q.y, q.state,
                       q.hx, q.hy, q.state, q.cx, q.cy, q.nweights * 4, q.w, q.work, q.ws,
                       q.reserve, q.rs));
    CARD_OK();
    double *in[4] = {doubles(q.x, q.nx), doubles(q.hx, q.nstate), doubles(q.cx, q.nstate),
                     doubles(q.w, q.nweights)};
    double *y = calloc(q.ny, sizeof *y), *hy = calloc(q.nstate, sizeof *hy);
    loss(&q, in[0], in[1], in[2], in[3], y, hy);
    for (size_t i = 0; i < q.ny; i++) { /* the padding holds zeros, in both */
        near((double)q.y[i], y[i], 1e-5, "y");
    }
    for (size_t i = 0; i < q.nstate; i++) {
        near((double)q.hy[i], hy[i], 1e-5, "hy");
    }
    OK(cudnnRNNBackwardData_v8(handle, q.rnn, NULL, q.yd, q.y, q.dy, q.xd, q.dx, q.state, q.hx,
                               q.dhy, q.dhx, q.state, q.cx, q.dcy, q.dcx, q.nweights * 4, q.w,
                               q.work, q.ws, q.reserve, q.rs));
    CARD_OK();
    float *before = malloc(q.nweights * sizeof *before);
    memcpy(before, q.dw, q.nweights * sizeof *before);
    OK(cudnnRNNBackwardWeights_v8(handle, q.rnn, CUDNN_WGRAD_MODE_ADD, NULL, q.xd, q.x, q.state,
                                  q.hx, q.yd, q.y, q.nweights * 4, q.dw, q.work, q.ws, q.reserve,
                                  q.rs));
    CARD_OK();
    if (mode !=
        CUDNN_RNN_RELU) { /* whose kinks differences may straddle: its forward pass is checked */
        differences(&q, in, 0, q.nx, q.dx, NULL, "dx");
        differences(&q, in, 1, q.nstate, q.dhx, NULL, "dhx");
        if (lstm) {
            differences(&q, in, 2, q.nstate, q.dcx, NULL, "dcx");
        }
        differences(&q, in, 3, q.nweights, q.dw, before, "dw");
    }
    for (int i = 0; i < 4; i++) {
        free(in[i]);
    }
    free(before);
    free(y);
    free(hy);
}

static void setup(void)
{
    card_reset(card_seed(11));
    OK(cudnnCreate(&handle));
    card_keep(handle, drop_handle);
}

TestSuite(rnn, .init = setup);

Test(rnn, layers_and_their_gradients)
{
    for (int i = 0; i < 24; i++) {
        check(i % 4, i / 4 % 3);
        setup();
    }
}

/* Dropout between layers: what is kept is scaled, the same mask serves backwards, and each pass
 * draws another one. */
Test(rnn, dropout_between_layers)
{
    enum { T = 5, N = 4, H = 64 };
    cudnnDropoutDescriptor_t dropout;
    size_t states, work, reserve, weights;
    int lengths[N] = {T, T, T, T};
    NEW(DropoutDescriptor, dropout);
    OK(cudnnDropoutGetStatesSize(handle, &states));
    OK(cudnnSetDropoutDescriptor(dropout, handle, 0.25f, card_alloc(states), states, 3));
    cudnnRNNDescriptor_t rnn;
    OK(cudnnCreateRNNDescriptor(&rnn));
    card_keep(rnn, drop_rnn);
    OK(cudnnSetRNNDescriptor_v8(rnn, CUDNN_RNN_ALGO_STANDARD, CUDNN_RNN_RELU, CUDNN_RNN_NO_BIAS,
                                CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT,
                                CUDNN_DATA_FLOAT, CUDNN_DEFAULT_MATH, H, H, 0, 2, dropout, 0));
    cudnnRNNDataDescriptor_t d;
    OK(cudnnCreateRNNDataDescriptor(&d));
    card_keep(d, drop_data);
    OK(cudnnSetRNNDataDescriptor(d, CUDNN_DATA_FLOAT, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, T,
                                 N, H, lengths, NULL));
    OK(cudnnGetRNNTempSpaceSizes(handle, rnn, CUDNN_FWD_MODE_TRAINING, d, &work, &reserve));
    OK(cudnnGetRNNWeightSpaceSize(handle, rnn, &weights));
    float *w = card_random(weights / 4), *x = card_random(T * N * H), *y = card_random(T * N * H);
    memset(w, 0, weights);
    for (int p = 0; p < 2; p++) { /* each layer passes its input on */
        void *m;
        OK(cudnnGetRNNWeightParams(handle, rnn, p, weights, w, 0, NULL, &m, NULL, NULL));
        for (int i = 0; i < H; i++) {
            ((float *)m)[i * H + i] = 1.0f;
        }
    }
    for (int i = 0; i < T * N * H; i++) {
        x[i] = 1.0f;
    }
    void *ws = card_alloc(work), *rs = card_alloc(reserve);
    int kept[2] = {0, 0}, differ = 0;
    float *first = malloc(T * N * H * sizeof *first);
    for (int pass = 0; pass < 2; pass++) {
        OK(cudnnRNNForward(handle, rnn, CUDNN_FWD_MODE_TRAINING, NULL, d, x, d, y, NULL, NULL, NULL,
                           NULL, NULL, NULL, weights, w, work, ws, reserve, rs));
        CARD_OK();
        for (int i = 0; i < T * N * H; i++) {
            cr_assert(y[i] == 0.0f || fabsf(y[i] - 1.0f / 0.75f) < 1e-6f, "%g", (double)y[i]);
            kept[pass] += y[i] != 0.0f;
            differ += pass && y[i] != first[i];
            first[i] = y[i];
        }
        float *dx = card_random(T * N * H);
        OK(cudnnRNNBackwardData_v8(handle, rnn, NULL, d, y, x, d, dx, NULL, NULL, NULL, NULL, NULL,
                                   NULL, NULL, NULL, weights, w, work, ws, reserve, rs));
        CARD_OK();
        cr_assert_eq(memcmp(dx, y, T * N * H * sizeof *dx), 0, "the gradient saw another mask");
        near(kept[pass] / (double)(T * N * H), 0.75, 0.04, "share of what is kept");
    }
    cr_assert_gt(differ, T * N * H / 4);
    free(first);
}

Test(rnn, refusals)
{
    cudnnRNNDescriptor_t rnn;
    OK(cudnnCreateRNNDescriptor(&rnn));
    cr_assert_eq(cudnnSetRNNDescriptor_v8(rnn, CUDNN_RNN_ALGO_STANDARD, CUDNN_LSTM,
                                          CUDNN_RNN_DOUBLE_BIAS, CUDNN_UNIDIRECTIONAL,
                                          CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT,
                                          CUDNN_DEFAULT_MATH, 8, 8, 4, 1, NULL, 0),
                 CUDNN_STATUS_NOT_SUPPORTED);
    cr_assert_eq(cudnnSetRNNDescriptor_v8(rnn, CUDNN_RNN_ALGO_STANDARD, CUDNN_LSTM,
                                          CUDNN_RNN_DOUBLE_BIAS, CUDNN_UNIDIRECTIONAL,
                                          CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT,
                                          CUDNN_DEFAULT_MATH, 0, 8, 0, 1, NULL, 0),
                 CUDNN_STATUS_BAD_PARAM);
    int rising[2] = {2, 3};
    cudnnRNNDataDescriptor_t d;
    OK(cudnnCreateRNNDataDescriptor(&d));
    cr_assert_eq(cudnnSetRNNDataDescriptor(d, CUDNN_DATA_FLOAT,
                                           CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED, 3, 2, 4, rising,
                                           NULL),
                 CUDNN_STATUS_BAD_PARAM);
    OK(cudnnDestroyRNNDataDescriptor(d));
    OK(cudnnDestroyRNNDescriptor(rnn));
}
