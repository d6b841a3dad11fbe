/* Convolutions against a direct sum in double, their gradients by the adjoint identity, algorithms,
 * workspaces, layouts, groups, dilation, blending, and the fused form. */
#include "common.h"

/* One random convolution. */
struct conv_case {
    struct t4 x, y, dy, dx;
    cudnnFilterDescriptor_t wd;
    cudnnConvolutionDescriptor_t conv;
    float *w, *dw;
    int k, c, r, s, pad, stride, dilation, groups, nhwc_filter, flip;
};

static cudnnHandle_t handle;

static size_t w_at(const struct conv_case *q, int k, int c, int r, int s)
{
    return (size_t)(q->nhwc_filter ? ((k * q->r + r) * q->s + s) * q->c + c
                                   : ((k * q->c + c) * q->r + r) * q->s + s);
}

static struct conv_case conv_new(enum layout layout)
{
    struct conv_case q = {.groups = 1 + (int)card_below(2),
                          .r = 1 + (int)card_below(3),
                          .s = 1 + (int)card_below(4),
                          .pad = (int)card_below(2),
                          .stride = 1 + (int)card_below(2),
                          .dilation = 1 + (int)card_below(2),
                          .nhwc_filter = (int)card_below(2),
                          .flip = (int)card_below(2)};
    q.c = 1 + (int)card_below(5);
    q.k = q.groups * (1 + (int)card_below(9));
    q.x = t4_new(layout, 1 + (int)card_below(3), q.c * q.groups, 6 + (int)card_below(6),
                 8 + (int)card_below(5));
    NEW(FilterDescriptor, q.wd);
    OK(cudnnSetFilter4dDescriptor(q.wd, CUDNN_DATA_FLOAT,
                                  q.nhwc_filter ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW, q.k, q.c,
                                  q.r, q.s));
    NEW(ConvolutionDescriptor, q.conv);
    OK(cudnnSetConvolution2dDescriptor(
        q.conv, q.pad, q.pad, q.stride, q.stride, q.dilation, q.dilation,
        q.flip ? CUDNN_CONVOLUTION : CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    OK(cudnnSetConvolutionGroupCount(q.conv, q.groups));
    int n, k, h, w;
    OK(cudnnGetConvolution2dForwardOutputDim(q.conv, q.x.desc, q.wd, &n, &k, &h, &w));
    q.y = t4_new(layout, n, k, h, w);
    q.dy = t4_new(layout, n, k, h, w);
    q.dx = t4_new(layout, q.x.dim[0], q.x.dim[1], q.x.dim[2], q.x.dim[3]);
    q.w = card_random((size_t)(q.k * q.c * q.r * q.s));
    q.dw = card_random((size_t)(q.k * q.c * q.r * q.s));
    return q;
}

/* Output element by the definition. */
static double reference(const struct conv_case *q, int n, int k, int h, int w)
{
    double sum = 0;
    int group = k / (q->k / q->groups);
    for (int c = 0; c < q->c; c++) {
        for (int r = 0; r < q->r; r++) {
            for (int s = 0; s < q->s; s++) {
                int rr = q->flip ? q->r - 1 - r : r, ss = q->flip ? q->s - 1 - s : s;
                int y = h * q->stride - q->pad + rr * q->dilation;
                int x = w * q->stride - q->pad + ss * q->dilation;
                if (y >= 0 && x >= 0 && y < q->x.dim[2] && x < q->x.dim[3]) {
                    sum += (double)q->x.p[t4_at(&q->x, n, group * q->c + c, y, x)] *
                           (double)q->w[w_at(q, k, c, r, s)];
                }
            }
        }
    }
    return sum;
}

/* Forward with an algorithm that supports the case; the workspace is exactly as large as asked for.
 */
static void forward(const struct conv_case *q, int algo, float alpha, float beta,
                    const struct t4 *y)
{
    size_t bytes;
    if (cudnnGetConvolutionForwardWorkspaceSize(handle, q->x.desc, q->wd, q->conv, y->desc,
                                                (cudnnConvolutionFwdAlgo_t)algo, &bytes) != 0) {
        return;
    }
    OK(cudnnConvolutionForward(handle, &alpha, q->x.desc, q->x.p, q->wd, q->w, q->conv,
                               (cudnnConvolutionFwdAlgo_t)algo, bytes ? card_alloc(bytes) : NULL,
                               bytes, &beta, y->desc, y->p));
}

Test(conv, forward_equals_the_definition)
{
    uint64_t seed = card_seed(1);
    for (int i = 0; i < 40; i++) {
        card_reset(seed + (uint64_t)i);
        OK(cudnnCreate(&handle));
        card_keep(handle, drop_handle);
        struct conv_case q = conv_new((enum layout)(i % LAYOUTS));
        float *old = t4_values(&q.y), *o = old;
        forward(&q, i % 3, 0.75f, i % 2 ? 0.5f : 0.0f, &q.y);
        FOR4(&q.y, n, c, h, w)
        {
            double want = 0.75 * reference(&q, n, c, h, w) + (i % 2 ? 0.5 * (double)*o : 0);
            o++;
            near((double)q.y.p[t4_at(&q.y, n, c, h, w)], want, 1e-5, "y");
        }
        free(old);
        cr_assert_eq(card_faults(), 0u, "seed %llu: %s", (unsigned long long)seed + (unsigned)i,
                     card_fault());
    }
    CARD_OK();
}

/* <conv(x, w), dy> = <x, backward_data(dy, w)> = <w, backward_filter(x, dy)>: for a map linear in x
 * and in w this holds for the right gradients and no others. */
Test(conv, gradients_are_the_adjoints)
{
    const float one = 1, zero = 0;
    uint64_t seed = card_seed(100);
    for (int i = 0; i < 40; i++) {
        card_reset(seed + (uint64_t)i);
        OK(cudnnCreate(&handle));
        card_keep(handle, drop_handle);
        struct conv_case q = conv_new((enum layout)(i % LAYOUTS));
        forward(&q, 0, 1.0f, 0.0f, &q.y);
        OK(cudnnConvolutionBackwardData(handle, &one, q.wd, q.w, q.dy.desc, q.dy.p, q.conv,
                                        CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, NULL, 0, &zero,
                                        q.dx.desc, q.dx.p));
        OK(cudnnConvolutionBackwardFilter(handle, &one, q.x.desc, q.x.p, q.dy.desc, q.dy.p, q.conv,
                                          CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, NULL, 0, &zero, q.wd,
                                          q.dw));
        double by_w = 0;
        for (int e = 0; e < q.k * q.c * q.r * q.s; e++) {
            by_w += (double)q.w[e] * (double)q.dw[e];
        }
        double y_dy = t4_dot(&q.y, &q.dy);
        near(t4_dot(&q.x, &q.dx), y_dy, 1e-4, "x . dx");
        near(by_w, y_dy, 1e-4, "w . dw");
        cr_assert_eq(card_faults(), 0u, "seed %llu: %s", (unsigned long long)seed + (unsigned)i,
                     card_fault());
    }
    CARD_OK();
}

Test(conv, backward_blends)
{
    const float alpha = 2, beta = 0.25f, one = 1, zero = 0;
    card_reset(card_seed(7));
    OK(cudnnCreate(&handle));
    card_keep(handle, drop_handle);
    struct conv_case q = conv_new(PACKED);
    size_t nw = (size_t)(q.k * q.c * q.r * q.s);
    float *old_dx = t4_values(&q.dx), *plain = card_random(nw);
    struct t4 pure = t4_new(PACKED, q.x.dim[0], q.x.dim[1], q.x.dim[2], q.x.dim[3]);
    OK(cudnnConvolutionBackwardData(handle, &one, q.wd, q.w, q.dy.desc, q.dy.p, q.conv, 0, NULL, 0,
                                    &zero, pure.desc, pure.p));
    OK(cudnnConvolutionBackwardData(handle, &alpha, q.wd, q.w, q.dy.desc, q.dy.p, q.conv, 0, NULL,
                                    0, &beta, q.dx.desc, q.dx.p));
    for (size_t i = 0; i < t4_count(&q.dx); i++) {
        near((double)q.dx.p[i], 2 * (double)pure.p[i] + 0.25 * (double)old_dx[i], 1e-5, "dx");
    }
    float *old_dw = malloc(nw * sizeof *old_dw);
    memcpy(old_dw, q.dw, nw * sizeof *old_dw);
    OK(cudnnConvolutionBackwardFilter(handle, &one, q.x.desc, q.x.p, q.dy.desc, q.dy.p, q.conv, 0,
                                      NULL, 0, &zero, q.wd, plain));
    OK(cudnnConvolutionBackwardFilter(handle, &alpha, q.x.desc, q.x.p, q.dy.desc, q.dy.p, q.conv, 0,
                                      NULL, 0, &beta, q.wd, q.dw));
    for (size_t i = 0; i < nw; i++) {
        near((double)q.dw[i], 2 * (double)plain[i] + 0.25 * (double)old_dw[i], 1e-5, "dw");
    }
    free(old_dx);
    free(old_dw);
    CARD_OK();
}

/* Every algorithm of every direction gives the same bits, in exactly the workspace it asked for. */
Test(conv, algorithms_agree_to_the_bit)
{
    card_reset(card_seed(3));
    OK(cudnnCreate(&handle));
    card_keep(handle, drop_handle);
    const float one = 1, zero = 0;
    struct t4 x = t4_new(PACKED, 2, 3, 9, 9), y = t4_new(PACKED, 2, 4, 9, 9),
              first = t4_new(PACKED, 2, 4, 9, 9);
    cudnnFilterDescriptor_t wd;
    cudnnConvolutionDescriptor_t conv;
    NEW(FilterDescriptor, wd);
    OK(cudnnSetFilter4dDescriptor(wd, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 4, 3, 3, 3));
    NEW(ConvolutionDescriptor, conv);
    OK(cudnnSetConvolution2dDescriptor(conv, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                       CUDNN_DATA_FLOAT));
    float *w = card_random(4 * 3 * 9);
    int count, ran = 0;
    cudnnConvolutionFwdAlgoPerf_t perf[CUDNN_CONVOLUTION_FWD_ALGO_COUNT];
    OK(cudnnGetConvolutionForwardAlgorithm_v7(handle, x.desc, wd, conv, y.desc,
                                              CUDNN_CONVOLUTION_FWD_ALGO_COUNT, &count, perf));
    cr_assert_eq(count, CUDNN_CONVOLUTION_FWD_ALGO_COUNT);
    for (int i = 0; i < count; i++) {
        size_t bytes = 1;
        int status = (int)cudnnGetConvolutionForwardWorkspaceSize(handle, x.desc, wd, conv, y.desc,
                                                                  perf[i].algo, &bytes);
        cr_assert_eq(status, (int)perf[i].status, "algorithm %d", (int)perf[i].algo);
        if (status != 0) {
            continue;
        }
        cr_assert_eq(bytes, perf[i].memory);
        void *ws = bytes ? card_alloc(bytes) : NULL;
        if (bytes) {
            cr_assert_neq((int)cudnnConvolutionForward(handle, &one, x.desc, x.p, wd, w, conv,
                                                       perf[i].algo, ws, bytes - 1, &zero, y.desc,
                                                       y.p),
                          0, "a workspace one byte short was accepted");
        }
        OK(cudnnConvolutionForward(handle, &one, x.desc, x.p, wd, w, conv, perf[i].algo, ws, bytes,
                                   &zero, ran ? y.desc : first.desc, ran ? y.p : first.p));
        cr_assert(!ran || memcmp(y.p, first.p, t4_count(&y) * sizeof *y.p) == 0,
                  "algorithm %d differs", (int)perf[i].algo);
        ran++;
    }
    cr_assert_geq(ran, 6);
    CARD_OK();
}

Test(conv, old_cards_have_the_algorithms_of_their_day)
{
    for (int major = 5; major <= 9; major += 4) {
        card_reset(card_seed(5));
        card_major = major;
        OK(cudnnCreate(&handle));
        card_keep(handle, drop_handle);
        struct t4 x = t4_new(PACKED, 1, 2, 8, 8), y = t4_new(PACKED, 1, 2, 8, 8);
        cudnnFilterDescriptor_t w;
        cudnnConvolutionDescriptor_t conv;
        NEW(FilterDescriptor, w);
        OK(cudnnSetFilter4dDescriptor(w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 2, 2, 3, 3));
        NEW(ConvolutionDescriptor, conv);
        OK(cudnnSetConvolution2dDescriptor(conv, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                           CUDNN_DATA_FLOAT));
        size_t bytes;
        int status = (int)cudnnGetConvolutionForwardWorkspaceSize(
            handle, x.desc, w, conv, y.desc, CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD, &bytes);
        cr_assert_eq(status == 0, major >= 6, "compute capability %d answered %d", major, status);
        OK(cudnnGetConvolutionForwardWorkspaceSize(handle, x.desc, w, conv, y.desc,
                                                   CUDNN_CONVOLUTION_FWD_ALGO_FFT, &bytes));
    }
}

Test(conv, find_times_what_fits)
{
    card_reset(card_seed(4));
    OK(cudnnCreate(&handle));
    card_keep(handle, drop_handle);
    struct conv_case q = conv_new(PACKED);
    cudnnConvolutionBwdFilterAlgoPerf_t perf[8];
    int count;
    OK(cudnnFindConvolutionBackwardFilterAlgorithm(handle, q.x.desc, q.dy.desc, q.conv, q.wd, 8,
                                                   &count, perf));
    cr_assert_eq(count, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT);
    cr_assert_eq((int)perf[0].status, 0);
    cr_assert_gt(perf[0].time, 0.0f);
    OK(cudnnFindConvolutionBackwardFilterAlgorithmEx(handle, q.x.desc, q.x.p, q.dy.desc, q.dy.p,
                                                     q.conv, q.wd, q.dw, 8, &count, perf, NULL, 0));
    for (int i = 0; i < count; i++) {
        cr_assert(perf[i].status != 0 || perf[i].memory == 0,
                  "algorithm %d ran without its workspace", (int)perf[i].algo);
    }
    CARD_OK();
}

Test(conv, fused_equals_its_parts)
{
    const float one = 1, half = 0.5f;
    for (int i = 0; i < 8; i++) {
        card_reset(card_seed(50) + (uint64_t)i);
        OK(cudnnCreate(&handle));
        card_keep(handle, drop_handle);
        struct conv_case q = conv_new((enum layout)(i % LAYOUTS));
        struct t4 bias = t4_new(PACKED, 1, q.k, 1, 1);
        float *z = t4_values(i % 2 ? &q.y : &q.dy), *at = z;
        cudnnActivationDescriptor_t act;
        NEW(ActivationDescriptor, act);
        OK(cudnnSetActivationDescriptor(act,
                                        i < 4 ? CUDNN_ACTIVATION_RELU : CUDNN_ACTIVATION_IDENTITY,
                                        CUDNN_NOT_PROPAGATE_NAN, 0));
        OK(cudnnConvolutionBiasActivationForward(handle, &one, q.x.desc, q.x.p, q.wd, q.w, q.conv,
                                                 CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, NULL, 0,
                                                 &half, q.y.desc, i % 2 ? q.y.p : q.dy.p, bias.desc,
                                                 bias.p, act, q.y.desc, q.y.p));
        FOR4(&q.y, n, c, h, w)
        {
            double v = reference(&q, n, c, h, w) + 0.5 * (double)*at++ + (double)bias.p[c];
            near((double)q.y.p[t4_at(&q.y, n, c, h, w)], i < 4 && v < 0 ? 0 : v, 1e-5, "fused y");
        }
        free(z);
        cr_assert_eq(card_faults(), 0u, "%s", card_fault());
    }
    CARD_OK();
}

Test(conv, three_spatial_dimensions)
{
    card_reset(card_seed(9));
    OK(cudnnCreate(&handle));
    card_keep(handle, drop_handle);
    const int xd[5] = {1, 2, 4, 5, 6}, wdim[5] = {3, 2, 2, 3, 1}, pad[3] = {1, 0, 0},
              step[3] = {1, 2, 1}, dil[3] = {1, 1, 1};
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t conv;
    int yd[5];
    NEW(TensorDescriptor, x);
    NEW(TensorDescriptor, y);
    NEW(FilterDescriptor, w);
    NEW(ConvolutionDescriptor, conv);
    OK(cudnnSetTensorNdDescriptorEx(x, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 5, xd));
    OK(cudnnSetFilterNdDescriptor(w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 5, wdim));
    OK(cudnnSetConvolutionNdDescriptor(conv, 3, pad, step, dil, CUDNN_CROSS_CORRELATION,
                                       CUDNN_DATA_FLOAT));
    OK(cudnnGetConvolutionNdForwardOutputDim(conv, x, w, 5, yd));
    cr_assert(yd[2] == 5 && yd[3] == 2 && yd[4] == 6, "output %d %d %d", yd[2], yd[3], yd[4]);
    OK(cudnnSetTensorNdDescriptorEx(y, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 5, yd));
    float *px = card_random(240), *pw = card_random(36), *py = card_random(180);
    const float one = 1, zero = 0;
    OK(cudnnConvolutionForward(handle, &one, x, px, w, pw, conv, 0, NULL, 0, &zero, y, py));
    /* output (k 1, d 2, h 1, w 3) by hand: depths 1 and 2, rows 2 to 4, column 3 */
    double want = 0;
    for (int c = 0; c < 2; c++) {
        for (int t = 0; t < 2; t++) {
            for (int r = 0; r < 3; r++) {
                want += (double)px[((c * 4 + 1 + t) * 5 + 2 + r) * 6 + 3] *
                        (double)pw[((1 * 2 + c) * 2 + t) * 3 + r];
            }
        }
    }
    near((double)py[((1 * 5 + 2) * 2 + 1) * 6 + 3], want, 1e-5, "y of three dimensions");
    CARD_OK();
}

Test(conv, bias_gradient_sums_each_channel)
{
    card_reset(card_seed(11));
    OK(cudnnCreate(&handle));
    card_keep(handle, drop_handle);
    struct t4 dy = t4_new(GAPS, 3, 4, 5, 6), db = t4_new(PACKED, 1, 4, 1, 1);
    float old[4], alpha = 2, beta = 3;
    memcpy(old, db.p, sizeof old);
    OK(cudnnConvolutionBackwardBias(handle, &alpha, dy.desc, dy.p, &beta, db.desc, db.p));
    double sum[4] = {0};
    FOR4(&dy, n, c, h, w)
    {
        sum[c] += (double)dy.p[t4_at(&dy, n, c, h, w)];
    }
    for (int c = 0; c < 4; c++) {
        near((double)db.p[c], 2 * sum[c] + 3 * (double)old[c], 1e-5, "db");
    }
    CARD_OK();
}
