/* The backend API: statuses, graphs against the legacy calls and against sums in double. */
#include "backend_use.h"
#include "common.h"
#include "element.h"
#include "graph.h"
#include "number.h"

static cudnnHandle_t handle;

static void setup(void)
{
    card_reset(card_seed(7));
    OK(cudnnCreate(&handle));
    card_keep(handle, drop_handle);
}

TestSuite(backend, .init = setup);

/* Descriptors of a test; they go at its end. */
static be_t bin[64];
static int binned;

static be_t keep(be_t d)
{
    cr_assert_lt(binned, 64);
    return bin[binned++] = d;
}

static void empty_bin(void)
{
    while (binned > 0) {
        cudnnBackendDestroyDescriptor(bin[--binned]);
    }
}

static be_t tensor(int64_t uid, int type, int flags, int64_t a, int64_t b, int64_t c, int64_t d)
{
    const int64_t dim[4] = {a, b, c, d};
    return keep(be_tensor(uid, type, 4, dim, NULL, flags));
}

static be_t tensor_of(int64_t uid, const struct t4 *t)
{
    const int64_t dim[4] = {t->dim[0], t->dim[1], t->dim[2], t->dim[3]},
                  str[4] = {t->str[0], t->str[1], t->str[2], t->str[3]};
    return keep(be_tensor(uid, CUDNN_DATA_FLOAT, 4, dim, str, 0));
}

/* Runs the operations by the first engine that the heuristics propose. */
static void run(int nops, const be_t *ops, int n, const int64_t *uids, void *const *pointers)
{
    int64_t workspace;
    be_t config[8], graph = keep(be_graph(handle, nops, ops));
    int found = be_heuristics(graph, CUDNN_HEUR_MODE_A, 8, config);
    cr_assert_gt(found, 0);
    be_t plan = keep(be_plan(handle, config[0], &workspace));
    be_execute(handle, plan, n, uids, pointers, workspace ? card_alloc((size_t)workspace) : NULL);
    for (int i = 0; i < found; i++) {
        cudnnBackendDestroyDescriptor(config[i]);
    }
}

/* ---- statuses: what cuDNN 9.26 answered to the same calls without a device ---- */

#define ANSWERS(status, call)                                                                      \
    cr_assert_eq((int)(call), (int)(status), "%s answered %d", #call, (int)(call))

Test(backend, statuses)
{
    be_t d = be_new(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int64_t many[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, count = -7;
    int32_t type = 0;
    ANSWERS(2000, cudnnBackendFinalize(d));
    ANSWERS(2000, cudnnBackendSetAttribute(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                           CUDNN_TYPE_FLOAT, 1, many));
    ANSWERS(2010,
            cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_INT64, 1, many));
    ANSWERS(2000, cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 2,
                                           many));
    ANSWERS(2000, cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
                                           NULL));
    ANSWERS(2000,
            cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 9, many));
    ANSWERS(0,
            cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 8, many));
    ANSWERS(2002, cudnnBackendSetAttribute(NULL, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE,
                                           1, &type));
    ANSWERS(1001, cudnnBackendGetAttribute(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 8,
                                           &count, many));
    cudnnBackendDestroyDescriptor(d);
    ANSWERS(2002, cudnnBackendFinalize(NULL));
    ANSWERS(2002, cudnnBackendDestroyDescriptor(NULL));
}

Test(backend, reading_back)
{
    const int64_t dim[4] = {8, 3, 32, 16};
    be_t d = keep(be_tensor('x', CUDNN_DATA_HALF, 4, dim, NULL, 0));
    int64_t got[8] = {0}, count = -7;
    ANSWERS(2000, cudnnBackendFinalize(d));
    ANSWERS(2000,
            cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, dim));
    ANSWERS(0, cudnnBackendGetAttribute(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 8,
                                        &count, got));
    cr_assert(count == 4 && memcmp(got, dim, sizeof dim) == 0);
    ANSWERS(0, cudnnBackendGetAttribute(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 2,
                                        &count, got));
    cr_assert_eq(count, 2);
    ANSWERS(0, cudnnBackendGetAttribute(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 0,
                                        &count, NULL));
    cr_assert_eq(count, 4);
    ANSWERS(2010, cudnnBackendGetAttribute(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_DOUBLE, 8,
                                           &count, got));
    ANSWERS(2000, cudnnBackendGetAttribute(d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE,
                                           1, &count, got));
    ANSWERS(0, cudnnBackendGetAttribute(d, CUDNN_ATTR_TENSOR_VECTOR_COUNT, CUDNN_TYPE_INT64, 1,
                                        &count, got));
    cr_assert_eq(got[0], 1);
    be_t pack = keep(be_new(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
    void *pointers[2] = {got, got + 1}, *workspace = NULL;
    be_set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 2, dim);
    be_set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 1, pointers);
    ANSWERS(2000, cudnnBackendFinalize(pack));
    be_set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 2, pointers);
    be_set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    be_done(pack);
    ANSWERS(3000, cudnnBackendGetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                           CUDNN_TYPE_INT64, 2, &count, got));
    ANSWERS(0, cudnnBackendGetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                        CUDNN_TYPE_VOID_PTR, 1, &count, got));
    empty_bin();
}

/* ---- convolutions: bit for bit those of the legacy calls, with every engine ---- */

struct conv {
    struct t4 x, w, y, dw, dx, want;
    int pad, stride, dilation, mode;
    cudnnConvolutionDescriptor_t legacy;
    cudnnFilterDescriptor_t filter;
};

static struct conv conv_new(enum layout layout)
{
    struct conv q = {.pad = (int)card_below(2),
                     .stride = 1 + (int)card_below(2),
                     .dilation = 1 + (int)card_below(2),
                     .mode = (int)card_below(2)};
    int groups = 1 + (int)card_below(2), c = 1 + (int)card_below(4), r = 1 + (int)card_below(3), n,
        k, h, w;
    q.x = t4_new(layout, 2, c * groups, 9, 11);
    q.w = t4_new(PACKED, groups * 3, c, r, r);
    q.dw = t4_new(PACKED, groups * 3, c, r, r);
    q.dx = t4_new(layout, 2, c * groups, 9, 11);
    NEW(ConvolutionDescriptor, q.legacy);
    NEW(FilterDescriptor, q.filter);
    OK(cudnnSetConvolution2dDescriptor(q.legacy, q.pad, q.pad, q.stride, q.stride, q.dilation,
                                       q.dilation, (cudnnConvolutionMode_t)q.mode,
                                       CUDNN_DATA_FLOAT));
    OK(cudnnSetConvolutionGroupCount(q.legacy, groups));
    OK(cudnnSetFilter4dDescriptor(q.filter, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, groups * 3, c, r,
                                  r));
    OK(cudnnGetConvolution2dForwardOutputDim(q.legacy, q.x.desc, q.filter, &n, &k, &h, &w));
    q.y = t4_new(layout, n, k, h, w);
    return q;
}

/* All engines of one operation; out is compared with `want` and set back after each. */
static int every_engine(be_t op, const int64_t uids[3], void *const pointers[3],
                        const struct t4 *out, const float *want)
{
    be_t config[8], graph = keep(be_graph(handle, 1, &op));
    int n = be_heuristics(graph, CUDNN_HEUR_MODE_A, 8, config);
    float *start = t4_values(out);
    for (int i = 0; i < n; i++) {
        int64_t bytes;
        be_t plan = be_plan(handle, config[i], &bytes);
        be_execute(handle, plan, 3, uids, pointers, bytes ? card_alloc((size_t)bytes) : NULL);
        float *got = t4_values(out), *from = start;
        cr_assert_eq(memcmp(got, want, t4_count(out) * sizeof *got), 0, "engine %d of %d differs",
                     i, n);
        FOR4(out, a, b, c, d)
        {
            out->p[t4_at(out, a, b, c, d)] = *from++;
        }
        free(got);
        cudnnBackendDestroyDescriptor(plan);
        cudnnBackendDestroyDescriptor(config[i]);
    }
    free(start);
    return n;
}

Test(backend, convolutions_equal_the_legacy_calls)
{
    const int64_t uids[3] = {'x', 'w', 'y'};
    for (int i = 0; i < 12; i++) {
        struct conv q = conv_new((enum layout)(i % LAYOUTS));
        float one = 1.0f, beta = i % 2 ? 0.5f : 0.0f;
        be_t c = keep(be_conv(q.pad, q.stride, q.dilation, q.mode));
        be_t x = tensor_of('x', &q.x), w = tensor_of('w', &q.w), y = tensor_of('y', &q.y);
        be_t dx = tensor_of('x', &q.dx), dw = tensor_of('w', &q.dw);
        void *ws = card_alloc(1 << 20);
        struct t4 *outs[3] = {&q.y, &q.dw, &q.dx};
        void *pointers[3][3] = {
            {q.x.p, q.w.p, q.y.p}, {q.x.p, q.dw.p, q.y.p}, {q.dx.p, q.w.p, q.y.p}};
        be_t ops[3] = {
            keep(be_conv_op(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, c, x, w, y,
                            beta)),
            keep(be_conv_op(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, c, x,
                            dw, y, beta)),
            keep(be_conv_op(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, c, dx, w,
                            y, beta))};
        for (int k = 0; k < 3; k++) {
            float *before = t4_values(outs[k]), *b = before;
            if (k == 0) {
                OK(cudnnConvolutionForward(handle, &one, q.x.desc, q.x.p, q.filter, q.w.p, q.legacy,
                                           CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, ws, 1 << 20,
                                           &beta, q.y.desc, q.y.p));
            } else if (k == 1) {
                OK(cudnnConvolutionBackwardFilter(handle, &one, q.x.desc, q.x.p, q.y.desc, q.y.p,
                                                  q.legacy, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, ws,
                                                  1 << 20, &beta, q.filter, q.dw.p));
            } else {
                OK(cudnnConvolutionBackwardData(handle, &one, q.filter, q.w.p, q.y.desc, q.y.p,
                                                q.legacy, CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, ws,
                                                1 << 20, &beta, q.dx.desc, q.dx.p));
            }
            float *want = t4_values(outs[k]);
            FOR4(outs[k], n, m, h, w2)
            {
                outs[k]->p[t4_at(outs[k], n, m, h, w2)] = *b++;
            }
            cr_assert_gt(every_engine(ops[k], uids, pointers[k], outs[k], want), 1);
            free(before);
            free(want);
        }
        CARD_OK();
        empty_bin();
        setup();
    }
}

/* y = relu(conv(x, w) + z + bias) in half precision, z and the sums virtual or not. */
Test(backend, fused_half_convolution)
{
    enum { N = 2, C = 3, K = 4, H = 6, W = 7 };
    int type = card_below(2) ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16;
    size_t nx = N * C * H * W, nw = K * C * 9, ny = N * K * H * W;
    uint16_t *x = card_alloc(2 * nx), *w = card_alloc(2 * nw), *y = card_alloc(2 * ny),
             *z = card_alloc(2 * ny);
    float *b = card_random(K), *r = card_random(nx + nw + ny);
    for (size_t i = 0; i < nx; i++) {
        sg_element_set(type, x, (int64_t)i, r[i]);
    }
    for (size_t i = 0; i < nw; i++) {
        sg_element_set(type, w, (int64_t)i, r[nx + i]);
    }
    for (size_t i = 0; i < ny; i++) {
        sg_element_set(type, z, (int64_t)i, r[nx + nw + i]);
    }
    be_t tx = tensor('x', type, 0, N, C, H, W), tw = tensor('w', type, 0, K, C, 3, 3);
    be_t tz = tensor('z', type, 0, N, K, H, W), tb = tensor('b', CUDNN_DATA_FLOAT, 0, 1, K, 1, 1);
    be_t v[3], ty = tensor('y', type, 0, N, K, H, W),
               c = keep(be_conv(1, 1, 1, CUDNN_CROSS_CORRELATION));
    for (int i = 0; i < 3; i++) {
        v[i] = tensor(100 + i, CUDNN_DATA_FLOAT, BE_VIRTUAL, N, K, H, W);
    }
    be_t ops[4] = {/* not in their order: the library sorts them */
                   keep(be_pointwise(CUDNN_POINTWISE_RELU_FWD, v[2], NULL, ty)),
                   keep(be_pointwise(CUDNN_POINTWISE_ADD, v[1], tb, v[2])),
                   keep(be_conv_op(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, c, tx,
                                   tw, v[0], 0)),
                   keep(be_pointwise(CUDNN_POINTWISE_ADD, v[0], tz, v[1]))};
    const int64_t uids[5] = {'x', 'w', 'y', 'z', 'b'};
    void *const pointers[5] = {x, w, y, z, b};
    run(4, ops, 5, uids, pointers);
    CARD_OK();
    for (int n = 0; n < N; n++) {
        for (int k = 0; k < K; k++) {
            for (int h = 0; h < H; h++) {
                for (int p = 0; p < W; p++) {
                    int at = ((n * K + k) * H + h) * W + p;
                    double sum = (double)sg_element_get(type, z, at) + (double)b[k];
                    for (int e = 0; e < C * 9; e++) {
                        int i = h + e / 3 % 3 - 1, j = p + e % 3 - 1;
                        if (i >= 0 && j >= 0 && i < H && j < W) {
                            sum +=
                                (double)sg_element_get(type, x, ((n * C + e / 9) * H + i) * W + j) *
                                (double)sg_element_get(type, w, k * C * 9 + e);
                        }
                    }
                    near((double)sg_element_get(type, y, at), sum > 0 ? sum : 0, 1e-2,
                         "fused convolution");
                }
            }
        }
    }
    empty_bin();
}

/* ---- attention: composed by hand, and as one operation; both against a sum in double ---- */

enum { B = 2, HQ = 4, HK = 2, SQ = 5, SK = 7, D = 3 };

static double score(const float *q, const float *k, int b, int h, int i, int j, float scale)
{
    double s = 0;
    for (int d = 0; d < D; d++) {
        s += (double)q[((b * HQ + h) * SQ + i) * D + d] *
             (double)k[((b * HK + h * HK / HQ) * SK + j) * D + d];
    }
    return s * (double)scale;
}

static void check_attention(const float *q, const float *k, const float *v, const float *o,
                            const float *stats, float scale, int causal)
{
    for (int r = 0; r < B * HQ * SQ; r++) {
        int b = r / (HQ * SQ), h = r / SQ % HQ, i = r % SQ;
        double sum = 0, out[D] = {0};
        for (int j = 0; j < SK; j++) {
            double e = causal && j > i ? 0 : exp(score(q, k, b, h, i, j, scale));
            sum += e;
            for (int d = 0; d < D; d++) {
                out[d] += e * (double)v[((b * HK + h * HK / HQ) * SK + j) * D + d];
            }
        }
        for (int d = 0; d < D; d++) {
            near((double)o[r * D + d], out[d] / sum, 1e-5, "attention");
        }
        if (stats) {
            near((double)stats[r], log(sum), 1e-5, "statistics of the softmax");
        }
    }
}

Test(backend, attention_composed)
{
    float *q = card_random(B * HQ * SQ * D), *k = card_random(B * HK * SK * D),
          *v = card_random(B * HK * SK * D), *o = card_random(B * HQ * SQ * D),
          *stats = card_random(B * HQ * SQ), scale = 0.7f;
    const int64_t kt[4] = {B, HK, D, SK}, kts[4] = {HK * SK * D, SK * D, 1, D};
    be_t tq = tensor(1, 0, 0, B, HQ, SQ, D), tk = keep(be_tensor(2, 0, 4, kt, kts, 0)),
         tv = tensor(3, 0, 0, B, HK, SK, D), to = tensor(4, 0, 0, B, HQ, SQ, D),
         ts = tensor(5, 0, 0, B, HQ, SQ, 1), tscale = tensor(6, 0, BE_BY_VALUE, 1, 1, 1, 1);
    be_t s[5], row[3];
    for (int i = 0; i < 5; i++) {
        s[i] = tensor(20 + i, 0, BE_VIRTUAL, B, HQ, SQ, SK);
        row[i % 3] = tensor(30 + i % 3, 0, BE_VIRTUAL, B, HQ, SQ, 1);
    }
    be_t ops[9] = {keep(be_matmul(tq, tk, s[0])),
                   keep(be_pointwise(CUDNN_POINTWISE_MUL, s[0], tscale, s[1])),
                   keep(be_reduce(CUDNN_REDUCE_TENSOR_MAX, s[1], row[0])),
                   keep(be_pointwise(CUDNN_POINTWISE_SUB, s[1], row[0], s[2])),
                   keep(be_pointwise(CUDNN_POINTWISE_EXP, s[2], NULL, s[3])),
                   keep(be_reduce(CUDNN_REDUCE_TENSOR_ADD, s[3], row[1])),
                   keep(be_pointwise(CUDNN_POINTWISE_DIV, s[3], row[1], s[4])),
                   keep(be_matmul(s[4], tv, to)),
                   keep(be_pointwise(CUDNN_POINTWISE_LOG, row[1], NULL, row[2]))};
    be_t all[10];
    memcpy(all, ops, sizeof ops);
    all[9] = keep(be_pointwise(CUDNN_POINTWISE_ADD, row[0], row[2], ts));
    const int64_t uids[6] = {1, 2, 3, 4, 5, 6};
    void *const pointers[6] = {q, k, v, o, stats, &scale};
    run(10, all, 6, uids, pointers);
    CARD_OK();
    check_attention(q, k, v, o, stats, scale, 0);
    empty_bin();
}

/* By number: the headers that this is compiled with may be older. */
enum {
    BAND_MASK = 44,
    MASK_X = 3000,
    MASK_RIGHT = 3004,
    MASK_B,
    MASK_Y,
    MASK_COMPARE,
    SUBGRAPH = 2811
};

Test(backend, attention_as_one_operation)
{
    for (int causal = 0; causal < 2; causal++) {
        float *q = card_random(B * HQ * SQ * D), *k = card_random(B * HK * SK * D),
              *v = card_random(B * HK * SK * D), *o = card_random(B * HQ * SQ * D),
              *stats = card_random(B * HQ * SQ), scale = 0.4f, low = -INFINITY;
        int32_t right = 0;
        be_t op = keep(be_new(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR));
        be_set_desc(op, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, tensor(1, 0, 0, B, HQ, SQ, D));
        be_set_desc(op, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, tensor(2, 0, 0, B, HK, SK, D));
        be_set_desc(op, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, tensor(3, 0, 0, B, HK, SK, D));
        be_set_desc(op, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, tensor(4, 0, 0, B, HQ, SQ, D));
        be_set_desc(op, CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, tensor(5, 0, 0, B, HQ, SQ, 1));
        be_set_desc(op, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC,
                    tensor(6, 0, BE_BY_VALUE, 1, 1, 1, 1));
        if (causal) {
            be_t mask = keep(be_new(BAND_MASK));
            be_set_desc(mask, MASK_X, tensor(50, 0, BE_VIRTUAL, B, HQ, SQ, SK));
            be_set_desc(mask, MASK_Y, tensor(51, 0, BE_VIRTUAL, B, HQ, SQ, SK));
            be_set_desc(mask, MASK_B, tensor(7, 0, BE_BY_VALUE, 1, 1, 1, 1));
            be_set_desc(mask, MASK_RIGHT, tensor(8, CUDNN_DATA_INT32, BE_BY_VALUE, 1, 1, 1, 1));
            be_set_enum(mask, MASK_COMPARE, CUDNN_TYPE_POINTWISE_MODE, CUDNN_POINTWISE_CMP_GE);
            be_done(mask);
            be_set_desc(op, SUBGRAPH, keep(be_graph(handle, 1, &mask)));
            be_set_int(op, SUBGRAPH + 1, 50);
            be_set_int(op, SUBGRAPH + 2, 51);
        }
        be_done(op);
        const int64_t uids[8] = {1, 2, 3, 4, 5, 6, 7, 8};
        void *const pointers[8] = {q, k, v, o, stats, &scale, &low, &right};
        run(1, &op, causal ? 8 : 6, uids, pointers);
        CARD_OK();
        check_attention(q, k, v, o, stats, scale, causal);
        empty_bin();
    }
}

/* ---- normalisation: that of the legacy call ---- */

Test(backend, batch_norm_in_half_precision)
{
    enum { N = 3, C = 4, HW = 10, ALL = N * C * HW };
    cudnnTensorDescriptor_t xd, hd, pd;
    NEW(TensorDescriptor, xd);
    NEW(TensorDescriptor, hd);
    NEW(TensorDescriptor, pd);
    OK(cudnnSetTensor4dDescriptor(xd, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, N, C, 2, HW / 2));
    OK(cudnnSetTensor4dDescriptor(hd, CUDNN_TENSOR_NCHW, CUDNN_DATA_HALF, N, C, 2, HW / 2));
    OK(cudnnDeriveBNTensorDescriptor(pd, xd, CUDNN_BATCHNORM_SPATIAL));
    float *x = card_random(ALL), *y = card_random(ALL), *scale = card_random(C),
          *bias = card_random(C), *dy = card_random(ALL), *dx = card_random(ALL);
    float *m[2] = {card_random(C), card_random(C)}, *v[2] = {card_random(C), card_random(C)},
          *sm[2] = {card_random(C), card_random(C)}, *sv[2] = {card_random(C), card_random(C)},
          *ds[2] = {card_random(C), card_random(C)}, *db[2] = {card_random(C), card_random(C)};
    uint16_t *hx = card_alloc(2 * ALL), *hy = card_alloc(2 * ALL), *hdy = card_alloc(2 * ALL),
             *hdx = card_alloc(2 * ALL);
    for (int i = 0; i < ALL; i++) {
        x[i] = sg_from_f16(hx[i] = sg_to_f16(x[i]));
        dy[i] = sg_from_f16(hdy[i] = sg_to_f16(dy[i]));
    }
    memcpy(m[1], m[0], C * sizeof(float));
    for (int c = 0; c < C; c++) {
        v[0][c] = v[1][c] = 1.0f + (float)c;
    }
    float one = 1.0f, zero = 0.0f;
    OK(cudnnBatchNormalizationForwardTraining(handle, CUDNN_BATCHNORM_SPATIAL, &one, &zero, xd, x,
                                              xd, y, pd, scale, bias, 0.1, m[0], v[0], 1e-5, sm[0],
                                              sv[0]));
    OK(cudnnBatchNormalizationForwardTraining(handle, CUDNN_BATCHNORM_SPATIAL, &one, &zero, hd, hx,
                                              hd, hy, pd, scale, bias, 0.1, m[1], v[1], 1e-5, sm[1],
                                              sv[1]));
    OK(cudnnBatchNormalizationBackward(handle, CUDNN_BATCHNORM_SPATIAL, &one, &zero, &one, &zero,
                                       xd, x, xd, dy, xd, dx, pd, scale, ds[0], db[0], 1e-5, sm[0],
                                       sv[0]));
    OK(cudnnBatchNormalizationBackward(handle, CUDNN_BATCHNORM_SPATIAL, &one, &zero, &one, &zero,
                                       hd, hx, hd, hdy, hd, hdx, pd, scale, ds[1], db[1], 1e-5,
                                       sm[1], sv[1]));
    CARD_OK();
    for (int i = 0; i < ALL; i++) {
        near((double)sg_from_f16(hy[i]), (double)y[i], 2e-3, "y");
        near((double)sg_from_f16(hdx[i]), (double)dx[i], 2e-3, "dx");
    }
    for (int c = 0; c < C; c++) {
        near((double)m[1][c], (double)m[0][c], 1e-5, "running mean");
        near((double)v[1][c], (double)v[0][c], 1e-5, "running variance");
        near((double)sm[1][c], (double)sm[0][c], 1e-5, "saved mean");
        near((double)sv[1][c], (double)sv[0][c], 1e-5, "saved inverse deviation");
        near((double)ds[1][c], (double)ds[0][c], 1e-4, "dscale");
        near((double)db[1][c], (double)db[0][c], 1e-4, "dbias");
    }
    OK(cudnnBatchNormalizationForwardInference(handle, CUDNN_BATCHNORM_SPATIAL, &one, &zero, xd, x,
                                               xd, y, pd, scale, bias, m[0], v[0], 1e-5));
    OK(cudnnBatchNormalizationForwardInference(handle, CUDNN_BATCHNORM_SPATIAL, &one, &zero, hd, hx,
                                               hd, hy, pd, scale, bias, m[0], v[0], 1e-5));
    CARD_OK();
    for (int i = 0; i < ALL; i++) {
        near((double)sg_from_f16(hy[i]), (double)y[i], 2e-3, "y of inference");
    }
}

/* ---- what is not computed says so ---- */

Test(backend, refusals_name_the_reason)
{
    const int64_t dim[4] = {2, 2, 2, 2};
    be_t ragged = keep(be_new(CUDNN_BACKEND_TENSOR_DESCRIPTOR));
    be_set_int(ragged, CUDNN_ATTR_TENSOR_UNIQUE_ID, 9);
    be_set_int(ragged, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 16);
    be_set_enum(ragged, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    be_set(ragged, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
    be_set(ragged, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, dim);
    be_set_desc(ragged, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC,
                tensor(8, CUDNN_DATA_INT32, 0, 3, 1, 1, 1));
    be_done(ragged);
    be_t op = keep(be_pointwise(CUDNN_POINTWISE_EXP, ragged, NULL, tensor(1, 0, 0, 2, 2, 2, 2)));
    be_t graph = keep(be_graph(handle, 1, &op)),
         h = keep(be_new(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR));
    char text[256];
    be_set_desc(h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    be_set_enum(h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
    ANSWERS(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, cudnnBackendFinalize(h));
    cudnnGetLastErrorString(text, sizeof text);
    cr_assert(strstr(text, "ragged offsets"), "%s", text);
    be_t other;
    ANSWERS(CUDNN_STATUS_NOT_SUPPORTED,
            cudnnBackendCreateDescriptor(CUDNN_BACKEND_OPERATION_CONCAT_DESCRIPTOR, &other));
    be_t loop[2] = {tensor(60, 0, BE_VIRTUAL, 1, 1, 1, 4), tensor(61, 0, BE_VIRTUAL, 1, 1, 1, 4)};
    be_t circle[2] = {keep(be_pointwise(CUDNN_POINTWISE_EXP, loop[0], NULL, loop[1])),
                      keep(be_pointwise(CUDNN_POINTWISE_EXP, loop[1], NULL, loop[0]))};
    be_t h2 = keep(be_new(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR));
    be_set_desc(h2, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, keep(be_graph(handle, 2, circle)));
    be_set_enum(h2, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
    ANSWERS(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, cudnnBackendFinalize(h2));
    empty_bin();
}

/* ---- tensors of 2^31 elements and more ---- */

static void note_end(void *ctx, uint64_t addr, size_t bytes, int mode)
{
    uint64_t *end = ctx;
    (void)mode;
    end[addr >> 60] = (addr & ~(UINT64_C(15) << 60)) + bytes;
}

Test(backend, convolutions_of_more_than_2_31_elements)
{
    const int64_t n = 264, side = 256, c = 128, k = 64;
    be_t x = tensor(1, 0, 0, n, c, side, side), y = tensor(2, 0, 0, n, k, side, side);
    be_t conv = keep(be_conv(1, 1, 1, CUDNN_CROSS_CORRELATION));
    be_t op = keep(be_conv_op(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, conv, x,
                              tensor(3, 0, 0, k, c, 3, 3), y, 0.0f));
    be_t config[8], graph = keep(be_graph(handle, 1, &op));
    int found = be_heuristics(graph, CUDNN_HEUR_MODE_A, 8, config);
    int64_t workspace = -1;
    cr_assert_gt(found, 0);
    keep(be_plan(handle, config[0], &workspace));
    cr_assert_geq(workspace, 0);
    for (int i = 0; i < found; i++) {
        cudnnBackendDestroyDescriptor(config[i]);
    }
    empty_bin();
}

Test(backend, ranges_of_more_than_2_31_elements)
{
    const int64_t dim[4] = {264, 128, 256, 256}, all = dim[0] * dim[1] * dim[2] * dim[3];
    struct sg_graph *g = sg_graph_new();
    struct sg_gtensor x = sg_gtensor_packed(CUDNN_DATA_FLOAT, 4, dim), y = x;
    struct sg_gnode node = sg_gnode_of(SG_G_POINTWISE);
    x.slot = 0;
    y.slot = 1; /* one channel more lies between two of its images */
    y.str[0] += dim[2] * dim[3];
    node.mode = CUDNN_POINTWISE_EXP;
    node.t[SG_PW_X] = sg_graph_tensor(g, &x);
    node.t[SG_PW_Y] = sg_graph_tensor(g, &y);
    cr_assert_geq(sg_graph_node(g, &node), 0);
    g->nslots = 2;
    struct sg_graph_args a = {.word = {UINT64_C(1) << 60, UINT64_C(2) << 60},
                              .number = (uint64_t)sg_graph_keep(g)};
    struct simgpu_launch l = {.params = (void *)&a};
    uint64_t end[16] = {0};
    sg_graph_touches(&l, note_end, end);
    cr_assert_eq(end[1], (uint64_t)all * 4);
    cr_assert_eq(end[2], (uint64_t)(all + 263 * dim[2] * dim[3]) * 4);
    struct simgpu_work work;
    sg_graph_cost(&l, &work);
    cr_assert_float_eq(work.bytes, 8.0 * (double)all, 1);
    sg_graph_free(g);
}

/* ---- half precision, every value ---- */

Test(backend, half_precision_rounds_to_nearest_even)
{
    for (uint32_t i = 0; i < 65536; i++) {
        float h = sg_from_f16((uint16_t)i), b = sg_from_bf16((uint16_t)i);
        if (!isnan(h)) {
            cr_assert_eq(sg_to_f16(h), i, "half %#x", i);
        }
        if (!isnan(b)) {
            cr_assert_eq(sg_to_bf16(b), i, "bfloat %#x", i);
        }
        if ((i & 0x7fff) <
            0x7bff) { /* between two neighbours: the even one in the middle, else the near one */
            float next = sg_from_f16((uint16_t)(i + 1)), middle = h + (next - h) / 2;
            cr_assert_eq(sg_to_f16(middle), i + (i & 1), "middle above half %#x", i);
            cr_assert_eq(sg_to_f16(nextafterf(middle, h)), i, "below the middle above half %#x",
                         i);
            cr_assert_eq(sg_to_f16(nextafterf(middle, next)), i + 1,
                         "above the middle above half %#x", i);
        }
    }
    cr_assert_eq(sg_to_f16(65519.0f), 0x7bff);
    cr_assert_eq(sg_to_f16(65520.0f), 0x7c00);
    cr_assert(isnan(sg_from_f16(sg_to_f16(NAN))) && isnan(sg_from_bf16(sg_to_bf16(NAN))));
}
