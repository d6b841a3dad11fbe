/* Elementwise operations, pooling, reductions and dropout against their definitions. */
#include "common.h"

static cudnnHandle_t handle;

static void begin(uint64_t seed)
{
    card_reset(card_seed(seed));
    OK(cudnnCreate(&handle));
    card_keep(handle, drop_handle);
}

/* ---- activations ---- */

static double act(int mode, double x)
{
    switch (mode) {
    case CUDNN_ACTIVATION_SIGMOID:
        return 1 / (1 + exp(-x));
    case CUDNN_ACTIVATION_RELU:
        return x > 0 ? x : 0;
    case CUDNN_ACTIVATION_TANH:
        return tanh(x);
    case CUDNN_ACTIVATION_CLIPPED_RELU:
        return x < 0 ? 0 : x > 0.5 ? 0.5 : x;
    case CUDNN_ACTIVATION_ELU:
        return x > 0 ? x : 0.5 * (exp(x) - 1);
    default:
        return x / (1 + exp(-x));
    }
}

static const int modes[] = {CUDNN_ACTIVATION_SIGMOID, CUDNN_ACTIVATION_RELU,
                            CUDNN_ACTIVATION_TANH,    CUDNN_ACTIVATION_CLIPPED_RELU,
                            CUDNN_ACTIVATION_ELU,     CUDNN_ACTIVATION_SWISH};

Test(ops, activations_and_their_slopes)
{
    for (int i = 0; i < 36; i++) {
        begin(200 + (uint64_t)i);
        int mode = modes[i % 6];
        enum layout a = (enum layout)(i / 6 % 3), b = i < 18 ? a : PACKED;
        struct t4 x = t4_new(a, 2, 3, 4, 5), y = t4_new(b, 2, 3, 4, 5), dy = t4_new(a, 2, 3, 4, 5),
                  dx = t4_new(b, 2, 3, 4, 5);
        cudnnActivationDescriptor_t d;
        NEW(ActivationDescriptor, d);
        OK(cudnnSetActivationDescriptor(d, (cudnnActivationMode_t)mode, CUDNN_NOT_PROPAGATE_NAN,
                                        0.5));
        const float one = 1, zero = 0, alpha = 1.5f, beta = i % 2 ? -0.5f : 0.0f;
        float *old = t4_values(&dx), *o = old;
        OK(cudnnActivationForward(handle, d, &one, x.desc, x.p, &zero, y.desc, y.p));
        OK(cudnnActivationBackward(handle, d, &alpha, y.desc, y.p, dy.desc, dy.p, x.desc, x.p,
                                   &beta, dx.desc, dx.p));
        FOR4(&x, n, c, h, w)
        {
            double v = (double)x.p[t4_at(&x, n, c, h, w)], e = 1e-4;
            near((double)y.p[t4_at(&y, n, c, h, w)], act(mode, v), 1e-5, "y");
            double slope = (act(mode, v + e) - act(mode, v - e)) / (2 * e);
            double want =
                1.5 * slope * (double)dy.p[t4_at(&dy, n, c, h, w)] + (double)(beta * *o++);
            near((double)dx.p[t4_at(&dx, n, c, h, w)], want, 1e-3, "dx");
        }
        free(old);
        CARD_OK();
    }
}

Test(ops, activation_in_place)
{
    begin(1);
    struct t4 x = t4_new(GAPS, 2, 3, 4, 5), dy = t4_new(GAPS, 2, 3, 4, 5);
    float *was = t4_values(&x), *gradient = t4_values(&dy), *v = was, *g = gradient;
    cudnnActivationDescriptor_t d;
    NEW(ActivationDescriptor, d);
    OK(cudnnSetActivationDescriptor(d, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0));
    const float one = 1, zero = 0;
    OK(cudnnActivationForward(handle, d, &one, x.desc, x.p, &zero, x.desc, x.p));
    OK(cudnnActivationBackward(handle, d, &one, x.desc, x.p, dy.desc, dy.p, x.desc, x.p, &zero,
                               dy.desc, dy.p));
    FOR4(&x, n, c, h, w)
    {
        cr_assert_float_eq(x.p[t4_at(&x, n, c, h, w)], *v > 0 ? *v : 0, 0);
        cr_assert_float_eq(dy.p[t4_at(&dy, n, c, h, w)], *v > 0 ? *g : 0, 0);
        v++;
        g++;
    }
    free(was);
    free(gradient);
    CARD_OK();
}

/* ---- tensors ---- */

Test(ops, add_broadcasts_and_blends)
{
    for (int i = 0; i < 6; i++) {
        begin(30 + (uint64_t)i);
        struct t4 a = t4_new(PACKED, i % 2 ? 2 : 1, 3, i % 3 == 0 ? 4 : 1, i % 3 == 0 ? 5 : 1),
                  c = t4_new((enum layout)(i % LAYOUTS), 2, 3, 4, 5);
        float *old = t4_values(&c), *o = old;
        const float alpha = 2, beta = i < 3 ? 1.0f : 0.0f;
        OK(cudnnAddTensor(handle, &alpha, a.desc, a.p, &beta, c.desc, c.p));
        FOR4(&c, n, k, h, w)
        {
            float from =
                a.p[t4_at(&a, a.dim[0] > 1 ? n : 0, k, a.dim[2] > 1 ? h : 0, a.dim[3] > 1 ? w : 0)];
            near((double)c.p[t4_at(&c, n, k, h, w)], 2 * (double)from + (double)(beta * *o++), 1e-6,
                 "c");
        }
        free(old);
        CARD_OK();
    }
}

Test(ops, op_tensor_by_definition)
{
    for (int op = CUDNN_OP_TENSOR_ADD; op <= CUDNN_OP_TENSOR_NOT; op++) {
        begin(40 + (uint64_t)op);
        struct t4 a = t4_new(GAPS, 2, 3, 4, 5), b = t4_new(PACKED, 1, 3, 1, 1),
                  c = t4_new(CHANNELS_LAST, 2, 3, 4, 5);
        if (op == CUDNN_OP_TENSOR_SQRT) {
            FOR4(&a, n, k, h, w)
            {
                a.p[t4_at(&a, n, k, h, w)] = fabsf(a.p[t4_at(&a, n, k, h, w)]);
            }
        }
        cudnnOpTensorDescriptor_t d;
        NEW(OpTensorDescriptor, d);
        OK(cudnnSetOpTensorDescriptor(d, (cudnnOpTensorOp_t)op, CUDNN_DATA_FLOAT,
                                      CUDNN_NOT_PROPAGATE_NAN));
        const float alpha1 = 2, alpha2 = 3, beta = op % 2 ? 0.5f : 0.0f;
        float *old = t4_values(&c), *o = old;
        OK(cudnnOpTensor(handle, d, &alpha1, a.desc, a.p, &alpha2, b.desc, b.p, &beta, c.desc,
                         c.p));
        FOR4(&c, n, k, h, w)
        {
            double u = 2 * (double)a.p[t4_at(&a, n, k, h, w)], v = 3 * (double)b.p[k];
            const double want[] = {u + v, u * v, fmin(u, v), fmax(u, v), sqrt(u), 1 - u};
            near((double)c.p[t4_at(&c, n, k, h, w)], want[op] + (double)(beta * *o++), 1e-5, "c");
        }
        free(old);
        CARD_OK();
    }
}

Test(ops, set_scale_transform)
{
    begin(60);
    struct t4 x = t4_new(PACKED, 2, 3, 4, 5), y = t4_new(CHANNELS_LAST, 2, 3, 4, 5),
              g = t4_new(GAPS, 2, 3, 4, 5);
    const float alpha = 3, beta = 0, value = -1.25f, twice = 2;
    OK(cudnnTransformTensor(handle, &alpha, x.desc, x.p, &beta, y.desc, y.p));
    OK(cudnnSetTensor(handle, g.desc, g.p, &value));
    OK(cudnnScaleTensor(handle, g.desc, g.p, &twice));
    FOR4(&x, n, c, h, w)
    {
        cr_assert_float_eq(y.p[t4_at(&y, n, c, h, w)], 3 * x.p[t4_at(&x, n, c, h, w)], 0);
        cr_assert_float_eq(g.p[t4_at(&g, n, c, h, w)], -2.5f, 0);
    }
    CARD_OK();
}

/* ---- pooling ---- */

static double pooled(const struct t4 *x, int mode, int win, int pad, int stride, int n, int c,
                     int h, int w)
{
    double best = -INFINITY, sum = 0;
    int inside = 0;
    for (int i = 0; i < win; i++) {
        for (int j = 0; j < win; j++) {
            int y = h * stride - pad + i, z = w * stride - pad + j;
            if (y >= 0 && z >= 0 && y < x->dim[2] && z < x->dim[3]) {
                double v = (double)x->p[t4_at(x, n, c, y, z)];
                best = v > best ? v : best;
                sum += v;
                inside++;
            }
        }
    }
    return mode == CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING   ? sum / (win * win)
           : mode == CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING ? sum / inside
                                                                 : best;
}

/* Distinct values, further apart than the differences move them: a maximum has one place. */
static void spread_values(struct t4 *x)
{
    int count = (int)t4_count(x), i = 0, step = 1 + (int)card_below((unsigned)count);
    while (count % step == 0 || (step % 2 == 0 && count % 2 == 0) ||
           (step % 3 == 0 && count % 3 == 0) || (step % 7 == 0 && count % 7 == 0)) {
        step++; /* to a step that visits every value once: 336 = 2 * 2 * 2 * 2 * 3 * 7 */
    }
    FOR4(x, n, c, h, w)
    {
        x->p[t4_at(x, n, c, h, w)] = (float)(i * step % count - count / 2) / 256.0f;
        i++;
    }
}

Test(ops, pooling_and_its_gradient)
{
    for (int i = 0; i < 24; i++) {
        begin(300 + (uint64_t)i);
        int mode = i % 4, win = 2 + i % 2, pad = i / 4 % 2, stride = 1 + i / 8 % 3;
        struct t4 x = t4_new((enum layout)(i % LAYOUTS), 2, 3, 7, 8);
        spread_values(&x);
        cudnnPoolingDescriptor_t d;
        int n0, c0, h0, w0;
        NEW(PoolingDescriptor, d);
        OK(cudnnSetPooling2dDescriptor(d, (cudnnPoolingMode_t)mode, CUDNN_NOT_PROPAGATE_NAN, win,
                                       win, pad, pad, stride, stride));
        OK(cudnnGetPooling2dForwardOutputDim(d, x.desc, &n0, &c0, &h0, &w0));
        struct t4 y = t4_new(GAPS, n0, c0, h0, w0), dy = t4_new(PACKED, n0, c0, h0, w0),
                  dx = t4_new(GAPS, 2, 3, 7, 8);
        const float one = 1, zero = 0, alpha = 2, beta = 0.5f;
        OK(cudnnPoolingForward(handle, d, &one, x.desc, x.p, &zero, y.desc, y.p));
        float *old = t4_values(&dx), *o = old;
        OK(cudnnPoolingBackward(handle, d, &alpha, y.desc, y.p, dy.desc, dy.p, x.desc, x.p, &beta,
                                dx.desc, dx.p));
        FOR4(&y, n, c, h, w)
        {
            near((double)y.p[t4_at(&y, n, c, h, w)], pooled(&x, mode, win, pad, stride, n, c, h, w),
                 1e-5, "pooled y");
        }
        /* numerical gradient of sum(dy * y) by every input element */
        FOR4(&x, n, c, h, w)
        {
            float *at = &x.p[t4_at(&x, n, c, h, w)], keep = *at;
            double e = 1.0 / 4096, up = 0, down = 0;
            for (int h1 = 0; h1 < h0; h1++) {
                for (int w1 = 0; w1 < w0; w1++) {
                    double g = (double)dy.p[t4_at(&dy, n, c, h1, w1)];
                    *at = (float)((double)keep + e);
                    up += g * pooled(&x, mode, win, pad, stride, n, c, h1, w1);
                    *at = (float)((double)keep - e);
                    down += g * pooled(&x, mode, win, pad, stride, n, c, h1, w1);
                }
            }
            *at = keep;
            near((double)dx.p[t4_at(&dx, n, c, h, w)],
                 2 * (up - down) / (2 * e) + 0.5 * (double)*o++, 2e-3, "pooled dx");
        }
        free(old);
        CARD_OK();
    }
}

/* ---- reductions ---- */

Test(ops, reductions_by_definition)
{
    for (int op = CUDNN_REDUCE_TENSOR_ADD; op <= CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS; op++) {
        begin(80 + (uint64_t)op);
        struct t4 a = t4_new(GAPS, 2, 3, 4, 2), c = t4_new(PACKED, 1, 3, 1, 2);
        a.p[t4_at(&a, 1, 1, 2, 1)] = 0;
        cudnnReduceTensorDescriptor_t d;
        NEW(ReduceTensorDescriptor, d);
        OK(cudnnSetReduceTensorDescriptor(
            d, (cudnnReduceTensorOp_t)op, CUDNN_DATA_FLOAT, CUDNN_NOT_PROPAGATE_NAN,
            CUDNN_REDUCE_TENSOR_FLATTENED_INDICES, CUDNN_32BIT_INDICES));
        size_t bytes;
        OK(cudnnGetReductionIndicesSize(handle, d, a.desc, c.desc, &bytes));
        unsigned *indices = bytes ? card_alloc(bytes) : NULL;
        cr_assert_eq(bytes != 0, op == CUDNN_REDUCE_TENSOR_MIN || op == CUDNN_REDUCE_TENSOR_MAX);
        float old[6];
        memcpy(old, c.p, sizeof old);
        const float alpha = 2, beta = 1;
        OK(cudnnReduceTensor(handle, d, indices, bytes, NULL, 0, &alpha, a.desc, a.p, &beta, c.desc,
                             c.p));
        for (int k = 0; k < 6; k++) {
            double sum = 0, prod = 1, least = INFINITY, most = -INFINITY, amax = 0, abs = 0, sq = 0,
                   nz = 1;
            for (int n = 0; n < 2; n++) {
                for (int h = 0; h < 4; h++) {
                    double v = (double)a.p[t4_at(&a, n, k / 2, h, k % 2)];
                    sum += v;
                    prod *= v;
                    least = fmin(least, v);
                    most = fmax(most, v);
                    amax = fmax(amax, fabs(v));
                    abs += fabs(v);
                    sq += v * v;
                    nz *= v == 0 ? 1 : v;
                }
            }
            const double want[] = {sum, prod, least, most, amax, sum / 8, abs, sqrt(sq), nz};
            near((double)c.p[k], 2 * want[op] + (double)old[k], 1e-5, "reduced");
            if (indices) {
                double at =
                    (double)a.p[t4_at(&a, (int)indices[k] / 4, k / 2, (int)indices[k] % 4, k % 2)];
                near(at, want[op], 0, "element at the index");
            }
        }
        CARD_OK();
    }
}

/* ---- dropout ---- */

Test(ops, dropout_masks_advance_and_replay)
{
    begin(90);
    size_t states_bytes, reserve_bytes;
    struct t4 x = t4_new(PACKED, 4, 8, 16, 16), y = t4_new(GAPS, 4, 8, 16, 16),
              second = t4_new(PACKED, 4, 8, 16, 16), dx = t4_new(PACKED, 4, 8, 16, 16);
    cudnnDropoutDescriptor_t d;
    NEW(DropoutDescriptor, d);
    OK(cudnnDropoutGetStatesSize(handle, &states_bytes));
    OK(cudnnDropoutGetReserveSpaceSize(x.desc, &reserve_bytes));
    void *states = card_alloc(states_bytes), *saved = malloc(states_bytes),
         *reserve = card_alloc(reserve_bytes), *other = card_alloc(reserve_bytes);
    OK(cudnnSetDropoutDescriptor(d, handle, 0.25f, states, states_bytes, 42));
    memcpy(saved, states, states_bytes);
    OK(cudnnDropoutForward(handle, d, x.desc, x.p, y.desc, y.p, reserve, reserve_bytes));
    int kept = 0, total = (int)t4_count(&x);
    FOR4(&x, n, c, h, w)
    {
        float in = x.p[t4_at(&x, n, c, h, w)], out = y.p[t4_at(&y, n, c, h, w)];
        cr_assert(out == 0.0f || fabsf(out - in / 0.75f) < 1e-6f * fabsf(in), "%g became %g",
                  (double)in, (double)out);
        kept += out != 0.0f;
    }
    cr_assert(abs(kept - total * 3 / 4) < total / 32, "%d of %d kept at rate 0.25", kept, total);
    OK(cudnnDropoutForward(handle, d, x.desc, x.p, second.desc, second.p, other, reserve_bytes));
    cr_assert_neq(memcmp(reserve, other, reserve_bytes), 0, "the second mask equals the first");
    /* backward follows the mask in the reserve */
    OK(cudnnDropoutBackward(handle, d, x.desc, x.p, dx.desc, dx.p, reserve, reserve_bytes));
    FOR4(&x, n, c, h, w)
    {
        cr_assert_float_eq(dx.p[t4_at(&dx, n, c, h, w)], y.p[t4_at(&y, n, c, h, w)], 0);
    }
    /* the states put back, the same masks come again */
    memcpy(states, saved, states_bytes);
    OK(cudnnDropoutForward(handle, d, x.desc, x.p, second.desc, second.p, other, reserve_bytes));
    cr_assert_eq(memcmp(reserve, other, reserve_bytes), 0, "a replay drew another mask");
    free(saved);
    CARD_OK();
}
