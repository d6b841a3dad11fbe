/* Operations of the backend API that have graphs of one node: normalisations, pooling, changes of
 * shape, random numbers, statistics, reductions. */
#include "backend_use.h"
#include "common.h"

static cudnnHandle_t handle;

static void setup(void)
{
    card_reset(card_seed(17));
    OK(cudnnCreate(&handle));
    card_keep(handle, drop_handle);
}

TestSuite(graphs, .init = setup);

static be_t tensor(int64_t uid, int type, int flags, int64_t a, int64_t b, int64_t c, int64_t d)
{
    const int64_t dim[4] = {a, b, c, d};
    return be_tensor(uid, type, 4, dim, NULL, flags);
}

/* Runs one operation by its only engine and checks the ranges; the descriptors go with the process.
 */
static void run(be_t op, int n, const int64_t *uids, void *const *pointers)
{
    int64_t workspace;
    be_t config[1];
    cr_assert_eq(be_heuristics(be_graph(handle, 1, &op), CUDNN_HEUR_MODE_A, 1, config), 1);
    be_t plan = be_plan(handle, config[0], &workspace);
    be_execute(handle, plan, n, uids, pointers, workspace ? card_alloc((size_t)workspace) : NULL);
    CARD_OK();
}

enum { N = 3, C = 4, H = 2, W = 5, ALL = N * C * H * W, ROW = C * H * W };

/* Layer and root-mean-square normalisation of each entry of the batch. */
static double normalised(const float *x, const float *scale, const float *bias, int i, int rms,
                         double epsilon)
{
    const float *row = x + i / ROW * ROW;
    double mean = 0, variance = 0;
    for (int k = 0; k < ROW && !rms; k++) {
        mean += (double)row[k] / ROW;
    }
    for (int k = 0; k < ROW; k++) {
        variance += ((double)row[k] - mean) * ((double)row[k] - mean) / ROW;
    }
    return ((double)x[i] - mean) / sqrt(variance + epsilon) * (double)scale[i % ROW] +
           (rms ? 0 : (double)bias[i % ROW]);
}

static void check_norm(int rms)
{
    int mode = rms ? CUDNN_RMS_NORM : CUDNN_LAYER_NORM;
    float *x = card_random(ALL), *y = card_random(ALL), *scale = card_random(ROW),
          *bias = card_random(ROW), *mean = card_random(N), *inverse = card_random(N),
          *dy = card_random(ALL), *dx = card_random(ALL), *dscale = card_random(ROW),
          *dbias = card_random(ROW), epsilon = 1e-3f;
    be_t f = be_new(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR),
         b = be_new(CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR);
    be_t tx = tensor('x', 0, 0, N, C, H, W), ty = tensor('y', 0, 0, N, C, H, W),
         ts = tensor('s', 0, 0, 1, C, H, W), tm = tensor('m', 0, 0, N, 1, 1, 1),
         tv = tensor('v', 0, 0, N, 1, 1, 1);
    be_set_enum(f, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, mode);
    be_set_enum(f, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE,
                CUDNN_NORM_FWD_TRAINING);
    be_set_desc(f, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, tx);
    be_set_desc(f, CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, ts);
    be_set_desc(f, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, tv);
    be_set_desc(f, CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC,
                tensor('e', 0, BE_BY_VALUE, 1, 1, 1, 1));
    be_set_desc(f, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, ty);
    be_set_enum(b, CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, mode);
    be_set_desc(b, CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, tx);
    be_set_desc(b, CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, tv);
    be_set_desc(b, CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, ty);
    be_set_desc(b, CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, ts);
    be_set_desc(b, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, tensor('d', 0, 0, 1, C, H, W));
    be_set_desc(b, CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, tensor('g', 0, 0, N, C, H, W));
    if (!rms) {
        be_set_desc(f, CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, tensor('b', 0, 0, 1, C, H, W));
        be_set_desc(f, CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, tm);
        be_set_desc(b, CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, tm);
        be_set_desc(b, CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, tensor('a', 0, 0, 1, C, H, W));
    }
    const int64_t uids[10] = {'x', 'y', 's', 'b', 'm', 'v', 'e', 'd', 'g', 'a'};
    void *pointers[10] = {x, y, scale, bias, mean, inverse, &epsilon, dscale, dx, dbias};
    run(be_done(f), 10, uids, pointers);
    for (int i = 0; i < ALL; i++) {
        near((double)y[i], normalised(x, scale, bias, i, rms, (double)epsilon), 1e-5, "normalised");
    }
    pointers[1] = dy;
    run(be_done(b), 10, uids, pointers);
    for (int i = 0; i < ALL; i += 7) { /* d sum(dy * y) / dx by differences */
        float old = x[i];
        double up = 0, down = 0, eps = 1e-3;
        x[i] = old + (float)eps;
        for (int k = 0; k < ALL; k++) {
            up += (double)dy[k] * normalised(x, scale, bias, k, rms, (double)epsilon);
        }
        x[i] = old - (float)eps;
        for (int k = 0; k < ALL; k++) {
            down += (double)dy[k] * normalised(x, scale, bias, k, rms, (double)epsilon);
        }
        x[i] = old;
        near((double)dx[i], (up - down) / (2 * eps), 2e-3, "dx");
    }
    double from_scale = 0, from_y = 0; /* linear in scale (and bias) */
    for (int k = 0; k < ROW; k++) {
        from_scale +=
            (double)dscale[k] * (double)scale[k] + (rms ? 0 : (double)dbias[k] * (double)bias[k]);
    }
    for (int k = 0; k < ALL; k++) {
        from_y += (double)dy[k] * (double)y[k];
    }
    near(from_scale, from_y, 1e-4, "dscale and dbias");
}

Test(graphs, layer_and_rms_norm)
{
    check_norm(0);
    check_norm(1);
}

/* Pooling, forwards and backwards, equals the legacy calls. */
static void check_pool(int mode, int legacy)
{
    struct t4 x = t4_new(PACKED, 2, 3, 7, 8), y = t4_new(PACKED, 2, 3, 4, 4),
              dy = t4_new(PACKED, 2, 3, 4, 4), dx = t4_new(PACKED, 2, 3, 7, 8);
    float *want_y = card_random(t4_count(&y)), *want_dx = card_random(t4_count(&x)), one = 1,
          zero = 0;
    cudnnPoolingDescriptor_t p;
    NEW(PoolingDescriptor, p);
    OK(cudnnSetPooling2dDescriptor(p, (cudnnPoolingMode_t)legacy, CUDNN_NOT_PROPAGATE_NAN, 3, 2, 1,
                                   0, 2, 2));
    OK(cudnnPoolingForward(handle, p, &one, x.desc, x.p, &zero, y.desc, want_y));
    OK(cudnnPoolingBackward(handle, p, &one, y.desc, want_y, y.desc, dy.p, x.desc, x.p, &zero,
                            x.desc, want_dx));
    const cudnnFraction_t pre[2] = {{1, 1}, {0, 1}}, stride[2] = {{2, 1}, {2, 1}},
                          window[2] = {{3, 1}, {2, 1}};
    be_t r = be_new(CUDNN_BACKEND_RESAMPLE_DESCRIPTOR),
         op[2] = {be_new(CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR),
                  be_new(CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR)};
    be_set_enum(r, CUDNN_ATTR_RESAMPLE_MODE, CUDNN_TYPE_RESAMPLE_MODE, mode);
    be_set_int(r, CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, 2);
    be_set(r, CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, CUDNN_TYPE_FRACTION, 2, pre);
    be_set(r, CUDNN_ATTR_RESAMPLE_POST_PADDINGS, CUDNN_TYPE_FRACTION, 2, pre);
    be_set(r, CUDNN_ATTR_RESAMPLE_STRIDES, CUDNN_TYPE_FRACTION, 2, stride);
    be_set(r, CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, CUDNN_TYPE_FRACTION, 2, window);
    be_done(r);
    be_set_desc(op[0], CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, r);
    be_set_desc(op[0], CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, tensor('x', 0, 0, 2, 3, 7, 8));
    be_set_desc(op[0], CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, tensor('y', 0, 0, 2, 3, 4, 4));
    be_set_desc(op[1], CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC, r);
    be_set_desc(op[1], CUDNN_ATTR_OPERATION_RESAMPLE_BWD_XDESC, tensor('x', 0, 0, 2, 3, 7, 8));
    be_set_desc(op[1], CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC, tensor('d', 0, 0, 2, 3, 7, 8));
    be_set_desc(op[1], CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC, tensor('g', 0, 0, 2, 3, 4, 4));
    const int64_t uids[4] = {'x', 'y', 'd', 'g'};
    void *const pointers[4] = {x.p, y.p, dx.p, dy.p};
    run(be_done(op[0]), 4, uids, pointers);
    run(be_done(op[1]), 4, uids, pointers);
    for (size_t i = 0; i < t4_count(&y); i++) {
        near((double)y.p[i], (double)want_y[i], 1e-6, "pooled");
    }
    for (size_t i = 0; i < t4_count(&x); i++) {
        near((double)dx.p[i], (double)want_dx[i], 1e-6, "gradient of pooling");
    }
}

Test(graphs, pooling_equals_the_legacy_calls)
{
    check_pool(CUDNN_RESAMPLE_MAXPOOL, CUDNN_POOLING_MAX);
    check_pool(CUDNN_RESAMPLE_AVGPOOL_INCLUDE_PADDING, CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING);
    check_pool(CUDNN_RESAMPLE_AVGPOOL_EXCLUDE_PADDING, CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING);
}

/* By number: the headers that this is compiled with may be older. */
enum { TRANSPOSE = 46, SLICE = 47, TRANSPOSE_X = 3200, SLICE_X = 3300 };

Test(graphs, changes_of_shape)
{
    float *x = card_random(ALL), *y = card_random(ALL);
    const int64_t uids[2] = {'x', 'y'}, order[4] = {2, 0, 3, 1}, start[4] = {1, 1, 0, 0},
                  step[4] = {1, 2, 1, 3};
    void *const pointers[2] = {x, y};
    be_t d = be_new(TRANSPOSE);
    be_set_desc(d, TRANSPOSE_X, tensor('x', 0, 0, N, C, H, W));
    be_set_desc(d, TRANSPOSE_X + 1, tensor('y', 0, 0, H, N, W, C));
    be_set(d, TRANSPOSE_X + 2, CUDNN_TYPE_INT64, 4, order);
    run(be_done(d), 2, uids, pointers);
    for (int i = 0; i < ALL; i++) {
        int c = i % C, w = i / C % W, n = i / (C * W) % N, h = i / (C * W * N);
        cr_assert_eq(y[i], x[((n * C + c) * H + h) * W + w], "transposed element %d", i);
    }
    d = be_new(SLICE);
    be_set_desc(d, SLICE_X, tensor('x', 0, 0, N, C, H, W));
    be_set_desc(d, SLICE_X + 1, tensor('y', 0, 0, 2, 2, H, 2));
    be_set(d, SLICE_X + 2, CUDNN_TYPE_INT64, 4, start);
    be_set(d, SLICE_X + 4, CUDNN_TYPE_INT64, 4, step);
    run(be_done(d), 2, uids, pointers);
    for (int i = 0; i < 2 * 2 * H * 2; i++) {
        int w = i % 2 * 3, h = i / 2 % H, c = 1 + i / (2 * H) % 2 * 2, n = 1 + i / (2 * H * 2);
        cr_assert_eq(y[i], x[((n * C + c) * H + h) * W + w], "element %d of the slice", i);
    }
    d = be_new(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR); /* the same memory, rows as columns */
    const int64_t dim[4] = {N, C, W, H}, str[4] = {ROW, H * W, 1, W};
    be_set_desc(d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, tensor('x', 0, 0, N, C, H, W));
    be_set_desc(d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC,
                be_tensor('y', CUDNN_DATA_FLOAT, 4, dim, str, 0));
    run(be_done(d), 2, uids, pointers);
    cr_assert_eq(memcmp(x, y, ALL * sizeof *x), 0, "a view moved elements");
}

Test(graphs, random_numbers_statistics_reductions)
{
    enum { MANY = 4000 };
    float *y = card_random(MANY), *first = malloc(MANY * sizeof *first);
    int64_t seed = 77, offset = 5;
    double keep = 0.25;
    be_t d = be_new(CUDNN_BACKEND_RNG_DESCRIPTOR),
         op = be_new(CUDNN_BACKEND_OPERATION_RNG_DESCRIPTOR);
    be_set_enum(d, CUDNN_ATTR_RNG_DISTRIBUTION, CUDNN_TYPE_RNG_DISTRIBUTION,
                CUDNN_RNG_DISTRIBUTION_BERNOULLI);
    be_set(d, CUDNN_ATTR_RNG_BERNOULLI_DIST_PROBABILITY, CUDNN_TYPE_DOUBLE, 1, &keep);
    be_set_desc(op, CUDNN_ATTR_OPERATION_RNG_DESC, be_done(d));
    be_set_desc(op, CUDNN_ATTR_OPERATION_RNG_YDESC, tensor('y', 0, 0, 1, 1, 1, MANY));
    be_set_desc(op, CUDNN_ATTR_OPERATION_RNG_SEED,
                tensor('s', CUDNN_DATA_INT64, BE_BY_VALUE, 1, 1, 1, 1));
    be_set_desc(op, CUDNN_ATTR_OPERATION_RNG_OFFSET_DESC,
                tensor('o', CUDNN_DATA_INT64, BE_BY_VALUE, 1, 1, 1, 1));
    be_done(op);
    const int64_t uids[3] = {'y', 's', 'o'};
    void *const pointers[3] = {y, &seed, &offset};
    run(op, 3, uids, pointers);
    double sum = 0;
    for (int i = 0; i < MANY; i++) {
        cr_assert(y[i] == 0.0f || y[i] == 1.0f);
        sum += (double)y[i];
    }
    near(sum / MANY, keep, 0.03, "share of ones");
    memcpy(first, y, MANY * sizeof *first);
    run(op, 3, uids, pointers);
    cr_assert_eq(memcmp(first, y, MANY * sizeof *first), 0,
                 "the same seed and offset, other numbers");
    offset++;
    run(op, 3, uids, pointers);
    cr_assert_neq(memcmp(first, y, MANY * sizeof *first), 0, "another offset, the same numbers");
    free(first);
    float *x = card_random(ALL), *s = card_random(C), *q = card_random(C);
    be_t g = be_new(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
    be_set_enum(g, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE,
                CUDNN_GENSTATS_SUM_SQSUM);
    be_set_enum(g, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    be_set_desc(g, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, tensor('x', 0, 0, N, C, H, W));
    be_set_desc(g, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, tensor('s', 0, 0, 1, C, 1, 1));
    be_set_desc(g, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, tensor('q', 0, 0, 1, C, 1, 1));
    run(be_done(g), 3, (const int64_t[3]){'x', 's', 'q'}, (void *const[3]){x, s, q});
    double want[C][9] = {{0}}; /* by cudnnReduceTensorOp_t; 7: the sum of squares */
    for (int i = 0; i < ALL; i++) {
        double v = (double)x[i], *w = want[i / (H * W) % C];
        w[CUDNN_REDUCE_TENSOR_ADD] += v;
        w[CUDNN_REDUCE_TENSOR_MAX] =
            fmax(i / (H * W) < C && i % (H * W) == 0 ? v : w[CUDNN_REDUCE_TENSOR_MAX], v);
        w[CUDNN_REDUCE_TENSOR_AMAX] = fmax(w[CUDNN_REDUCE_TENSOR_AMAX], fabs(v));
        w[CUDNN_REDUCE_TENSOR_AVG] += v / (N * H * W);
        w[CUDNN_REDUCE_TENSOR_NORM1] += fabs(v);
        w[CUDNN_REDUCE_TENSOR_NORM2] += v * v;
    }
    for (int c = 0; c < C; c++) {
        near((double)s[c], want[c][CUDNN_REDUCE_TENSOR_ADD], 1e-5, "sum");
        near((double)q[c], want[c][CUDNN_REDUCE_TENSOR_NORM2], 1e-5, "sum of squares");
        want[c][CUDNN_REDUCE_TENSOR_NORM2] = sqrt(want[c][CUDNN_REDUCE_TENSOR_NORM2]);
    }
    static const int ops[] = {CUDNN_REDUCE_TENSOR_ADD,   CUDNN_REDUCE_TENSOR_MAX,
                              CUDNN_REDUCE_TENSOR_AMAX,  CUDNN_REDUCE_TENSOR_AVG,
                              CUDNN_REDUCE_TENSOR_NORM1, CUDNN_REDUCE_TENSOR_NORM2};
    for (int k = 0; k < 6; k++) {
        run(be_reduce(ops[k], tensor('x', 0, 0, N, C, H, W), tensor('s', 0, 0, 1, C, 1, 1)), 2,
            (const int64_t[2]){'x', 's'}, (void *const[2]){x, s});
        for (int c = 0; c < C; c++) {
            near((double)s[c], want[c][ops[k]], 1e-5, "reduced");
        }
    }
}
