/* Batch normalisation, local response normalisation and softmax: definitions and numerical
 * gradients. */
#include "common.h"

static cudnnHandle_t handle;
static const float one = 1, zero = 0;

static void begin(uint64_t seed)
{
    card_reset(card_seed(seed));
    OK(cudnnCreate(&handle));
    card_keep(handle, drop_handle);
}

/* A function of one tensor whose gradient a test checks: y = f(x), all in double, row-major. */
struct problem {
    int dim[4];
    int kind, mode, ops;
    double scale[64], bias[64];
    const double *z;
};

enum { BN, LRN, SOFTMAX };

static size_t flat(const struct problem *p, int n, int c, int h, int w)
{
    return (size_t)(((n * p->dim[1] + c) * p->dim[2] + h) * p->dim[3] + w);
}

/* Index of the parameter that an element of x uses. */
static int group_of(const struct problem *p, int c, int h, int w)
{
    return p->mode == CUDNN_BATCHNORM_PER_ACTIVATION ? (c * p->dim[2] + h) * p->dim[3] + w : c;
}

static void bn(const struct problem *p, const double *x, double *y)
{
    double mean[64] = {0}, var[64] = {0}, count[64] = {0};
    FOR4(p, n, c, h, w)
    {
        mean[group_of(p, c, h, w)] += x[flat(p, n, c, h, w)];
        count[group_of(p, c, h, w)]++;
    }
    FOR4(p, n, c, h, w)
    {
        int g = group_of(p, c, h, w);
        double d = x[flat(p, n, c, h, w)] - mean[g] / count[g];
        var[g] += d * d / count[g];
    }
    FOR4(p, n, c, h, w)
    {
        int g = group_of(p, c, h, w);
        size_t i = flat(p, n, c, h, w);
        double v = p->scale[g] * (x[i] - mean[g] / count[g]) / sqrt(var[g] + 1e-3) + p->bias[g];
        v += p->ops == CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION ? p->z[i] : 0;
        y[i] = p->ops != CUDNN_BATCHNORM_OPS_BN && v < 0 ? 0 : v;
    }
}

static void lrn(const struct problem *p, const double *x, double *y)
{
    FOR4(p, n, c, h, w)
    {
        double sum = 0;
        for (int i = c - 1; i <= c + 2; i++) { /* n = 4: one behind, two ahead */
            if (i >= 0 && i < p->dim[1]) {
                sum += pow(x[flat(p, n, i, h, w)], 2);
            }
        }
        y[flat(p, n, c, h, w)] = x[flat(p, n, c, h, w)] * pow(1.5 + 0.8 / 4 * sum, -0.75);
    }
}

static void softmax(const struct problem *p, const double *x, double *y)
{
    FOR4(p, n, c, h, w)
    {
        double sum = 0;
        for (int i = 0; i < p->dim[1]; i++) {
            if (p->mode == CUDNN_SOFTMAX_MODE_CHANNEL) {
                sum += exp(x[flat(p, n, i, h, w)]);
                continue;
            }
            for (int j = 0; j < p->dim[2] * p->dim[3]; j++) {
                sum += exp(x[flat(p, n, i, 0, 0) + (size_t)j]);
            }
        }
        double v = exp(x[flat(p, n, c, h, w)]) / sum;
        y[flat(p, n, c, h, w)] = p->ops == CUDNN_SOFTMAX_LOG ? log(v) : v;
    }
}

static void evaluate(const struct problem *p, const double *x, double *y)
{
    (p->kind == BN ? bn : p->kind == LRN ? lrn : softmax)(p, x, y);
}

static double *doubles(const struct t4 *t)
{
    float *f = t4_values(t);
    double *d = malloc(t4_count(t) * sizeof *d);
    cr_assert_not_null(d);
    for (size_t i = 0; i < t4_count(t); i++) {
        d[i] = (double)f[i];
    }
    free(f);
    return d;
}

/* dx of sum(dy * f(x)) by central differences, compared with got (row-major). */
static void check_gradient(const struct problem *p, const double *x, const double *dy,
                           const double *got, double tolerance)
{
    size_t count = (size_t)p->dim[0] * (size_t)p->dim[1] * (size_t)p->dim[2] * (size_t)p->dim[3];
    double *y = malloc(2 * count * sizeof *y), *moved = y + count;
    for (size_t i = 0; i < count; i++) {
        double sum[2] = {0};
        memcpy(moved, x, count * sizeof *x);
        for (int s = 0; s < 2; s++) {
            moved[i] = x[i] + (s ? -1e-5 : 1e-5);
            evaluate(p, moved, y);
            for (size_t j = 0; j < count; j++) {
                sum[s] += dy[j] * y[j];
            }
        }
        near(got[i], (sum[0] - sum[1]) / 2e-5, tolerance, "gradient");
    }
    free(y);
}

static void check_values(const struct problem *p, const double *x, const double *got)
{
    size_t count = (size_t)p->dim[0] * (size_t)p->dim[1] * (size_t)p->dim[2] * (size_t)p->dim[3];
    double *y = malloc(count * sizeof *y);
    evaluate(p, x, y);
    for (size_t i = 0; i < count; i++) {
        near(got[i], y[i], 2e-5, "value");
    }
    free(y);
}

/* ---- batch normalisation ---- */

/* The tensors of a batch normalisation test. */
struct bn_case {
    struct t4 x, y, z, dy, dx, dz, scale, bias, mean, var, save_mean, save_invvar, dscale, dbias;
    cudnnActivationDescriptor_t relu;
    cudnnBatchNormMode_t mode;
    cudnnBatchNormOps_t ops;
    void *reserve;
    size_t reserve_bytes;
    struct problem p;
};

static struct bn_case bn_new(int i)
{
    const int dim[4] = {3, 4, 2, 3};
    enum layout lay = (enum layout)(i % LAYOUTS);
    int per_activation = i / 3 % 2;
    struct bn_case b = {.mode = per_activation ? CUDNN_BATCHNORM_PER_ACTIVATION
                                               : CUDNN_BATCHNORM_SPATIAL,
                        .ops = (cudnnBatchNormOps_t)(i / 6 % 3)};
    struct t4 *data[] = {&b.x, &b.y, &b.z, &b.dy, &b.dx, &b.dz};
    for (int k = 0; k < 6; k++) {
        *data[k] = t4_new(k == 1 ? PACKED : lay, dim[0], dim[1], dim[2], dim[3]);
    }
    struct t4 *params[] = {&b.scale,     &b.bias,        &b.mean,   &b.var,
                           &b.save_mean, &b.save_invvar, &b.dscale, &b.dbias};
    for (int k = 0; k < 8; k++) {
        *params[k] =
            t4_new(PACKED, 1, dim[1], per_activation ? dim[2] : 1, per_activation ? dim[3] : 1);
    }
    NEW(ActivationDescriptor, b.relu);
    OK(cudnnSetActivationDescriptor(b.relu, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0));
    OK(cudnnGetBatchNormalizationTrainingExReserveSpaceSize(handle, b.mode, b.ops, b.relu, b.x.desc,
                                                            &b.reserve_bytes));
    b.reserve = b.reserve_bytes ? card_alloc(b.reserve_bytes) : NULL;
    b.p = (struct problem){.kind = BN, .mode = (int)b.mode, .ops = (int)b.ops};
    memcpy(b.p.dim, dim, sizeof dim);
    for (size_t k = 0; k < t4_count(&b.scale); k++) {
        b.p.scale[k] = (double)b.scale.p[k];
        b.p.bias[k] = (double)b.bias.p[k];
    }
    return b;
}

static void bn_forward(struct bn_case *b, double factor)
{
    OK(cudnnBatchNormalizationForwardTrainingEx(
        handle, b->mode, b->ops, &one, &zero, b->x.desc, b->x.p, b->z.desc, b->z.p, b->y.desc,
        b->y.p, b->scale.desc, b->scale.p, b->bias.p, factor, b->mean.p, b->var.p, 1e-3,
        b->save_mean.p, b->save_invvar.p, b->relu, NULL, 0, b->reserve, b->reserve_bytes));
}

static void bn_backward(struct bn_case *b, int saved)
{
    OK(cudnnBatchNormalizationBackwardEx(
        handle, b->mode, b->ops, &one, &zero, &one, &zero, b->x.desc, b->x.p, b->y.desc, b->y.p,
        b->dy.desc, b->dy.p, b->dz.desc, b->dz.p, b->dx.desc, b->dx.p, b->scale.desc, b->scale.p,
        b->bias.p, b->dscale.p, b->dbias.p, 1e-3, saved ? b->save_mean.p : NULL,
        saved ? b->save_invvar.p : NULL, b->relu, NULL, 0, b->reserve, b->reserve_bytes));
}

/* Gradients of scale and bias by differences too. */
static void check_params(struct bn_case *b, const double *x, const double *dy)
{
    size_t count = t4_count(&b->x);
    double *y = malloc(count * sizeof *y);
    for (size_t k = 0; k < t4_count(&b->scale); k++) {
        for (int which = 0; which < 2; which++) {
            double *at = which ? &b->p.bias[k] : &b->p.scale[k], keep = *at, sum[2] = {0};
            for (int s = 0; s < 2; s++) {
                *at = keep + (s ? -1e-5 : 1e-5);
                evaluate(&b->p, x, y);
                for (size_t j = 0; j < count; j++) {
                    sum[s] += dy[j] * y[j];
                }
            }
            *at = keep;
            near((double)(which ? b->dbias.p[k] : b->dscale.p[k]), (sum[0] - sum[1]) / 2e-5, 2e-4,
                 which ? "dbias" : "dscale");
        }
    }
    free(y);
}

Test(norm, batch_normalisation_and_gradients)
{
    for (int i = 0; i < 18; i++) {
        begin(400 + (uint64_t)i);
        struct bn_case b = bn_new(i);
        double *x = doubles(&b.x), *z = doubles(&b.z), *dy = doubles(&b.dy);
        b.p.z = z;
        bn_forward(&b, 1.0);
        bn_backward(&b, i % 2);
        double *y = doubles(&b.y), *dx = doubles(&b.dx);
        check_values(&b.p, x, y);
        check_gradient(&b.p, x, dy, dx, 5e-4);
        check_params(&b, x, dy);
        if (b.ops == CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION) {
            double *dz = doubles(&b.dz);
            for (size_t k = 0; k < t4_count(&b.x); k++) {
                near(dz[k], y[k] > 0 ? dy[k] : 0, 0, "dz");
            }
            free(dz);
        }
        free(x);
        free(z);
        free(dy);
        free(y);
        free(dx);
        CARD_OK();
    }
}

Test(norm, running_averages_and_inference)
{
    begin(450);
    struct bn_case b = bn_new(0);
    float mean[4], var[4];
    memcpy(mean, b.mean.p, sizeof mean);
    memcpy(var, b.var.p, sizeof var);
    bn_forward(&b, 0.25);
    for (int c = 0; c < 4; c++) {
        double m = 0, v = 0;
        for (int pass = 0; pass < 2; pass++) {
            for (int n = 0; n < 3; n++) {
                for (int i = 0; i < 6; i++) {
                    double e = (double)b.x.p[t4_at(&b.x, n, c, i / 3, i % 3)];
                    m += pass ? 0 : e / 18;
                    v += pass ? (e - m) * (e - m) / 17 : 0;
                }
            }
        }
        near((double)b.mean.p[c], 0.25 * m + 0.75 * (double)mean[c], 1e-5, "running mean");
        near((double)b.var.p[c], 0.25 * v + 0.75 * (double)var[c], 1e-5, "running variance");
        near((double)b.save_mean.p[c], m, 1e-5, "saved mean");
        b.var.p[c] = fabsf(b.var.p[c]);
    }
    OK(cudnnBatchNormalizationForwardInference(handle, b.mode, &one, &zero, b.x.desc, b.x.p,
                                               b.y.desc, b.y.p, b.scale.desc, b.scale.p, b.bias.p,
                                               b.mean.p, b.var.p, 1e-3));
    FOR4(&b.x, n, c, h, w)
    {
        double v = ((double)b.x.p[t4_at(&b.x, n, c, h, w)] - (double)b.mean.p[c]) /
                   sqrt((double)b.var.p[c] + 1e-3);
        near((double)b.y.p[t4_at(&b.y, n, c, h, w)], (double)b.scale.p[c] * v + (double)b.bias.p[c],
             1e-5, "inference");
    }
    CARD_OK();
}

/* ---- local response normalisation ---- */

Test(norm, local_response_and_gradient)
{
    for (int i = 0; i < 6; i++) {
        begin(500 + (uint64_t)i);
        struct t4 x = t4_new((enum layout)(i % 3), 2, 7, 2, 2), y = t4_new(PACKED, 2, 7, 2, 2),
                  dy = t4_new(GAPS, 2, 7, 2, 2), dx = t4_new((enum layout)(i % 3), 2, 7, 2, 2);
        cudnnLRNDescriptor_t d;
        unsigned n;
        NEW(LRNDescriptor, d);
        OK(cudnnGetLRNDescriptor(d, &n, NULL, NULL, NULL));
        cr_assert_eq(n, 5u);
        OK(cudnnSetLRNDescriptor(d, 4, 0.8, 0.75, 1.5));
        OK(cudnnLRNCrossChannelForward(handle, d, CUDNN_LRN_CROSS_CHANNEL_DIM1, &one, x.desc, x.p,
                                       &zero, y.desc, y.p));
        OK(cudnnLRNCrossChannelBackward(handle, d, CUDNN_LRN_CROSS_CHANNEL_DIM1, &one, y.desc, y.p,
                                        dy.desc, dy.p, x.desc, x.p, &zero, dx.desc, dx.p));
        struct problem p = {.dim = {2, 7, 2, 2}, .kind = LRN};
        double *px = doubles(&x), *py = doubles(&y), *pdy = doubles(&dy), *pdx = doubles(&dx);
        check_values(&p, px, py);
        check_gradient(&p, px, pdy, pdx, 5e-4);
        free(px);
        free(py);
        free(pdy);
        free(pdx);
        CARD_OK();
    }
}

/* ---- softmax ---- */

Test(norm, softmax_and_gradient)
{
    for (int i = 0; i < 12; i++) {
        begin(600 + (uint64_t)i);
        int algo = i % 3, mode = i / 3 % 2;
        struct t4 x = t4_new((enum layout)(i % 3), 2, 5, 2, 2),
                  y = t4_new((enum layout)(i / 6), 2, 5, 2, 2), dy = t4_new(GAPS, 2, 5, 2, 2),
                  dx = t4_new(PACKED, 2, 5, 2, 2);
        OK(cudnnSoftmaxForward(handle, (cudnnSoftmaxAlgorithm_t)algo, (cudnnSoftmaxMode_t)mode,
                               &one, x.desc, x.p, &zero, y.desc, y.p));
        OK(cudnnSoftmaxBackward(handle, (cudnnSoftmaxAlgorithm_t)algo, (cudnnSoftmaxMode_t)mode,
                                &one, y.desc, y.p, dy.desc, dy.p, &zero, dx.desc, dx.p));
        struct problem p = {.dim = {2, 5, 2, 2}, .kind = SOFTMAX, .mode = mode, .ops = algo};
        double *px = doubles(&x), *py = doubles(&y), *pdy = doubles(&dy), *pdx = doubles(&dx);
        check_values(&p, px, py);
        check_gradient(&p, px, pdy, pdx, 5e-4);
        free(px);
        free(py);
        free(pdy);
        free(pdx);
        CARD_OK();
    }
}

Test(norm, accurate_softmax_survives_large_inputs)
{
    begin(650);
    struct t4 x = t4_new(PACKED, 1, 3, 1, 1), y = t4_new(PACKED, 1, 3, 1, 1);
    x.p[0] = 1000;
    x.p[1] = 1001;
    x.p[2] = -1000;
    OK(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &one, x.desc,
                           x.p, &zero, y.desc, y.p));
    near((double)y.p[1], 1 / (1 + exp(-1)), 1e-6, "softmax of large inputs");
    near((double)y.p[2], 0, 1e-6, "softmax of large inputs");
    CARD_OK();
}
