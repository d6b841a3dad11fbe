/* CTC against the sum over all paths, spatial transformers against their definition; gradients
 * against differences. */
#include "common.h"

static cudnnHandle_t handle;

static void setup(void)
{
    card_reset(card_seed(13));
    OK(cudnnCreate(&handle));
    card_keep(handle, drop_handle);
}

TestSuite(ctc, .init = setup);

enum { T = 5, N = 3, A = 3 };

/* Whether a path of classes reads as the labels: repetitions joined, blanks dropped. */
static int reads_as(const int *path, int steps, const int *labels, int n)
{
    int at = 0;
    for (int t = 0; t < steps; t++) {
        if (path[t] != 0 && (t == 0 || path[t] != path[t - 1])) {
            if (at == n || labels[at++] != path[t]) {
                return 0;
            }
        }
    }
    return at == n;
}

/* The cost of one entry: every path is tried. x: its inputs [steps][A]. */
static double cost(const double *x, int steps, const int *labels, int n, int softmax)
{
    double total = 0, p[T][A];
    for (int t = 0; t < steps; t++) {
        double sum = 0;
        for (int c = 0; c < A; c++) {
            sum += exp(x[t * A + c]);
        }
        for (int c = 0; c < A; c++) {
            p[t][c] = softmax ? exp(x[t * A + c]) / sum : x[t * A + c];
        }
    }
    int paths = 1, path[T];
    for (int t = 0; t < steps; t++) {
        paths *= A;
    }
    for (int i = 0; i < paths; i++) {
        double product = 1;
        for (int t = 0, rest = i; t < steps; t++, rest /= A) {
            path[t] = rest % A;
            product *= p[t][path[t]];
        }
        total += reads_as(path, steps, labels, n) ? product : 0;
    }
    return -log(total);
}

static void check_ctc(int softmax, int on_card)
{
    const int lengths[N] = {2, 1, 0}, steps[N] = {T, T - 1, T - 2}, labels[3] = {1, 1, 2};
    cudnnCTCLossDescriptor_t d;
    cudnnTensorDescriptor_t td;
    size_t bytes;
    const int dim[3] = {T, N, A}, str[3] = {N * A, A, 1};
    OK(cudnnCreateCTCLossDescriptor(&d));
    OK(cudnnSetCTCLossDescriptor_v9(d, CUDNN_DATA_FLOAT,
                                    softmax ? CUDNN_LOSS_NORMALIZATION_SOFTMAX
                                            : CUDNN_LOSS_NORMALIZATION_NONE,
                                    CUDNN_CTC_ZERO_OOB_GRADIENTS, 2));
    NEW(TensorDescriptor, td);
    OK(cudnnSetTensorNdDescriptor(td, CUDNN_DATA_FLOAT, 3, dim, str));
    float *x = card_random(T * N * A), *g = card_random(T * N * A), *costs = card_random(N);
    for (int i = 0; i < T * N * A; i++) {
        x[i] = softmax ? x[i] : 0.3f + 0.1f * x[i]; /* probabilities, not necessarily of sum 1 */
    }
    if (on_card) {
        int *l = card_alloc(sizeof labels), *n = card_alloc(sizeof lengths),
            *s = card_alloc(sizeof steps);
        memcpy(l, labels, sizeof labels);
        memcpy(n, lengths, sizeof lengths);
        memcpy(s, steps, sizeof steps);
        OK(cudnnCTCLoss_v8(handle, CUDNN_CTC_LOSS_ALGO_DETERMINISTIC, d, td, x, l, n, s, costs, td,
                           g, 0, NULL));
    } else {
        OK(cudnnGetCTCLossWorkspaceSize(handle, td, td, labels, lengths, steps,
                                        CUDNN_CTC_LOSS_ALGO_DETERMINISTIC, d, &bytes));
        OK(cudnnCTCLoss(handle, td, x, labels, lengths, steps, costs, td, g,
                        CUDNN_CTC_LOSS_ALGO_DETERMINISTIC, d, card_alloc(bytes), bytes));
    }
    CARD_OK();
    const int *l = labels;
    for (int b = 0; b < N; l += lengths[b++]) {
        double in[T * A];
        for (int i = 0; i < T * A; i++) {
            in[i] = (double)x[(i / A * N + b) * A + i % A];
        }
        near((double)costs[b], cost(in, steps[b], l, lengths[b], softmax), 1e-5, "cost");
        for (int i = 0; i < T * A; i++) {
            double old = in[i], eps = 1e-6, up, down;
            in[i] = old + eps;
            up = cost(in, steps[b], l, lengths[b], softmax);
            in[i] = old - eps;
            down = cost(in, steps[b], l, lengths[b], softmax);
            in[i] = old; /* beyond its steps nothing matters: 0 */
            near((double)g[(i / A * N + b) * A + i % A], (up - down) / (2 * eps), 1e-4, "gradient");
        }
    }
    OK(cudnnDestroyCTCLossDescriptor(d));
}

Test(ctc, costs_and_gradients)
{
    for (int i = 0; i < 4; i++) {
        check_ctc(i & 1, i >> 1);
        setup();
    }
}

/* ---- spatial transformers ---- */

enum { B = 2, C = 3, H = 5, W = 6, OH = 4, OW = 3 };

/* The value that a point of the grid samples, by the definition. */
static double sampled(const float *x, double gx, double gy)
{
    double px = (gx + 1) / 2 * (W - 1), py = (gy + 1) / 2 * (H - 1), sum = 0;
    for (int h = 0; h < H; h++) {
        for (int w = 0; w < W; w++) {
            double wx = 1 - fabs(px - w), wy = 1 - fabs(py - h);
            sum += wx > 0 && wy > 0 ? wx * wy * (double)x[h * W + w] : 0;
        }
    }
    return sum;
}

Test(ctc, spatial_transformer)
{
    const int out[4] = {B, C, OH, OW};
    float one = 1.0f, zero = 0.0f;
    cudnnSpatialTransformerDescriptor_t d;
    OK(cudnnCreateSpatialTransformerDescriptor(&d));
    OK(cudnnSetSpatialTransformerNdDescriptor(d, CUDNN_SAMPLER_BILINEAR, CUDNN_DATA_FLOAT, 4, out));
    struct t4 x = t4_new(PACKED, B, C, H, W), dx = t4_new(PACKED, B, C, H, W),
              y = t4_new(PACKED, B, C, OH, OW), dy = t4_new(PACKED, B, C, OH, OW);
    float *theta = card_random(B * 6), *grid = card_random(B * OH * OW * 2),
          *dgrid = card_random(B * OH * OW * 2), *dtheta = card_random(B * 6);
    OK(cudnnSpatialTfGridGeneratorForward(handle, d, theta, grid));
    CARD_OK();
    for (int i = 0; i < B * OH * OW; i++) {
        const float *t = theta + i / (OH * OW) * 6;
        double u = -1 + 2.0 * (i % OW) / (OW - 1), v = -1 + 2.0 * (i / OW % OH) / (OH - 1);
        near((double)grid[2 * i], (double)t[0] * u + (double)t[1] * v + (double)t[2], 1e-5,
             "grid x");
        near((double)grid[2 * i + 1], (double)t[3] * u + (double)t[4] * v + (double)t[5], 1e-5,
             "grid y");
    }
    OK(cudnnSpatialTfSamplerForward(handle, d, &one, x.desc, x.p, grid, &zero, y.desc, y.p));
    CARD_OK();
    FOR4(&y, n, c, h, w)
    {
        const float *g = grid + 2 * ((n * OH + h) * OW + w);
        near((double)y.p[t4_at(&y, n, c, h, w)],
             sampled(x.p + (n * C + c) * H * W, (double)g[0], (double)g[1]), 1e-4, "sample");
    }
    OK(cudnnSpatialTfSamplerBackward(handle, d, &one, x.desc, x.p, &zero, dx.desc, dx.p, &one,
                                     dy.desc, dy.p, grid, &zero, dgrid));
    CARD_OK();
    /* linear in x: the adjoint identity; in the grid: differences, away from the kinks */
    near(t4_dot(&dx, &x), t4_dot(&dy, &y), 1e-4, "adjoint of sampling");
    for (int i = 0; i < B * OH * OW; i++) {
        double by[2] = {0, 0}, eps = 1e-6;
        double px = ((double)grid[2 * i] + 1) / 2 * (W - 1),
               py = ((double)grid[2 * i + 1] + 1) / 2 * (H - 1);
        for (int c = 0; c < C; c++) {
            const float *plane = x.p + (i / (OH * OW) * C + c) * H * W;
            double g0 = (double)grid[2 * i], g1 = (double)grid[2 * i + 1];
            double t = (double)dy.p[(i / (OH * OW) * C + c) * OH * OW + i % (OH * OW)];
            by[0] += t * (sampled(plane, g0 + eps, g1) - sampled(plane, g0 - eps, g1)) / (2 * eps);
            by[1] += t * (sampled(plane, g0, g1 + eps) - sampled(plane, g0, g1 - eps)) / (2 * eps);
        }
        if (fabs(px - round(px)) > 1e-3 && fabs(py - round(py)) > 1e-3) {
            near((double)dgrid[2 * i], by[0], 1e-3, "dgrid x");
            near((double)dgrid[2 * i + 1], by[1], 1e-3, "dgrid y");
        }
    }
    OK(cudnnSpatialTfGridGeneratorBackward(handle, d, dgrid, dtheta));
    CARD_OK();
    double a = 0, b = 0; /* linear in theta */
    for (int i = 0; i < B * 6; i++) {
        a += (double)theta[i] * (double)dtheta[i];
    }
    for (int i = 0; i < B * OH * OW * 2; i++) {
        b += (double)grid[i] * (double)dgrid[i];
    }
    near(a, b, 1e-4, "adjoint of the grid");
    OK(cudnnDestroySpatialTransformerDescriptor(d));
}
