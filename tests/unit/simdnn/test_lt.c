/* cuBLASLt calls against their definitions: types, layouts, batches, epilogues, split products, and what
 * descriptors, heuristic and algorithms answer. */
#include "common.h"
#include <cublasLt.h>
#include <cublas_v2.h>

#include "number.h"

static cublasHandle_t blas;
static cublasLtHandle_t lt;

static void drop_blas(void *h)
{
    (void)cublasDestroy(h);
}

static void drop_lt(void *h)
{
    (void)cublasLtDestroy(h);
}

static void begin(uint64_t seed)
{
    card_reset(card_seed(seed));
    OK(cublasLtCreate(&lt));
    card_keep(lt, drop_lt);
}

/* A matrix of a test in device memory: element (i, j) of matrix p. */
struct mat {
    cublasLtMatrixLayout_t desc;
    enum sg_number type;
    int rows, cols, ld, by_rows, batch;
    long long stride;
    void *p;
};

static void drop_layout(void *l)
{
    (void)cublasLtMatrixLayoutDestroy(l);
}

static int64_t at(const struct mat *m, int p, int i, int j)
{
    return p * m->stride + (m->by_rows ? (int64_t)i * m->ld + j : i + (int64_t)j * m->ld);
}

static double el(const struct mat *m, int p, int i, int j)
{
    return sg_number_load(m->type, m->p, at(m, p, i, j));
}

static cudaDataType named(enum sg_number t)
{
    static const cudaDataType names[] = {
        [SG_F32] = CUDA_R_32F, [SG_F64] = CUDA_R_64F, [SG_F16] = CUDA_R_16F, [SG_BF16] = CUDA_R_16BF};
    return names[t];
}

static struct mat mat(enum sg_number type, int rows, int cols, int by_rows, int batch)
{
    struct mat m = {.type = type, .rows = rows, .cols = cols, .by_rows = by_rows, .batch = batch};
    int run = by_rows ? cols : rows, runs = by_rows ? rows : cols;
    m.ld = run + (int)card_below(4);
    m.stride = (long long)m.ld * runs + card_below(3);
    size_t n = (size_t)m.stride * (size_t)batch;
    m.p = card_alloc(n * sg_number_bytes(type));
    for (size_t i = 0; i < n; i++) {
        sg_number_store(type, m.p, (int64_t)i, card_below(2001) / 1000.0 - 1);
    }
    int32_t order = by_rows ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL, count = batch;
    OK(cublasLtMatrixLayoutCreate(&m.desc, named(type), (uint64_t)rows, (uint64_t)cols, m.ld));
    card_keep(m.desc, drop_layout);
    OK(cublasLtMatrixLayoutSetAttribute(m.desc, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order));
    OK(cublasLtMatrixLayoutSetAttribute(m.desc, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                        sizeof count));
    int64_t stride = m.stride;
    OK(cublasLtMatrixLayoutSetAttribute(m.desc, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                        &stride, sizeof stride));
    return m;
}

static void drop_op(void *d)
{
    (void)cublasLtMatmulDescDestroy(d);
}

static cublasLtMatmulDesc_t operation(cublasComputeType_t compute, cudaDataType scale)
{
    cublasLtMatmulDesc_t op;
    OK(cublasLtMatmulDescCreate(&op, compute, scale));
    card_keep(op, drop_op);
    return op;
}

#define SET(op, attr, type, value)                                                                 \
    do {                                                                                           \
        type value_ = (value);                                                                     \
        OK(cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_##attr, &value_,                \
                                          sizeof value_));                                         \
    } while (0)

/* alpha op(A) op(B) + beta C at (i, j) of matrix p. */
static double definition(const struct mat *a, int ta, const struct mat *b, int tb,
                         const struct mat *c, double alpha, double beta, int p, int i, int j)
{
    int k = ta ? a->rows : a->cols;
    double sum = 0;
    for (int q = 0; q < k; q++) {
        sum += (ta ? el(a, p, q, i) : el(a, p, i, q)) * (tb ? el(b, p, j, q) : el(b, p, q, j));
    }
    return alpha * sum + (beta != 0 ? beta * el(c, p, i, j) : 0);
}

static double tolerance(enum sg_number type)
{
    return type == SG_F64 ? 1e-12 : type == SG_F32 ? 3e-5 : type == SG_F16 ? 2e-3 : 1.5e-2;
}

Test(lt, products_by_definition)
{
    static const struct {
        enum sg_number in, out;
        cublasComputeType_t compute;
    } rows[] = {{SG_F32, SG_F32, CUBLAS_COMPUTE_32F},      {SG_F16, SG_F16, CUBLAS_COMPUTE_32F},
                {SG_BF16, SG_BF16, CUBLAS_COMPUTE_32F},    {SG_F16, SG_F32, CUBLAS_COMPUTE_32F},
                {SG_BF16, SG_F32, CUBLAS_COMPUTE_32F},     {SG_F64, SG_F64, CUBLAS_COMPUTE_64F},
                {SG_F32, SG_F32, CUBLAS_COMPUTE_32F_FAST_TF32}};
    for (int i = 0; i < 70; i++) {
        begin(900 + (uint64_t)i);
        enum sg_number in = rows[i % 7].in, out = rows[i % 7].out;
        int ta = i & 1, tb = i >> 1 & 1, m = 1 + (int)card_below(30), n = 1 + (int)card_below(30),
            k = 1 + (int)card_below(40), batch = 1 + (int)card_below(3);
        struct mat a = mat(in, ta ? k : m, ta ? m : k, (int)card_below(2), batch),
                   b = mat(in, tb ? n : k, tb ? k : n, (int)card_below(2), batch),
                   c = mat(out, m, n, 0, batch), d = mat(out, m, n, 0, batch);
        cublasLtMatmulDesc_t op =
            operation(rows[i % 7].compute, in == SG_F64 ? CUDA_R_64F : CUDA_R_32F);
        SET(op, TRANSA, int32_t, ta ? CUBLAS_OP_T : CUBLAS_OP_N);
        SET(op, TRANSB, int32_t, tb ? CUBLAS_OP_T : CUBLAS_OP_N);
        float alpha = 1.5f, beta = i & 4 ? -0.5f : 0.0f;
        double alpha64 = 1.5, beta64 = (double)beta;
        const void *pa = in == SG_F64 ? (void *)&alpha64 : &alpha,
                   *pb = in == SG_F64 ? (void *)&beta64 : &beta;
        if (i & 8) { /* scalars in device memory */
            SET(op, POINTER_MODE, int32_t, CUBLASLT_POINTER_MODE_DEVICE);
            char *both = card_alloc(16);
            size_t bytes = in == SG_F64 ? sizeof alpha64 : sizeof alpha;
            memcpy(both, pa, bytes);
            memcpy(both + 8, pb, bytes);
            pa = both;
            pb = both + 8;
        }
        OK(cublasLtMatmul(lt, op, pa, a.p, a.desc, b.p, b.desc, pb, c.p, c.desc, d.p, d.desc, NULL,
                          NULL, 0, NULL));
        for (int p = 0; p < batch; p++) {
            for (int e = 0; e < m * n; e++) {
                near(el(&d, p, e % m, e / m),
                     definition(&a, ta, &b, tb, &c, 1.5, (double)beta, p, e % m, e / m),
                     tolerance(out), "D");
            }
        }
        cr_assert_eq(card_faults(), 0u, "case %d: %s", i, card_fault());
    }
    CARD_OK();
}

static double gelu_of(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    return (gelu_of(x + 1e-6) - gelu_of(x - 1e-6)) / 2e-6;
}

/* Bit or number (i, j) of matrix p of auxiliary data. */
static int bit_at(const unsigned char *aux, int64_t ld, int64_t stride, int p, int i, int j)
{
    int64_t n = p * stride + j * ld + i;
    return aux[n / 8] >> (n % 8) & 1;
}

/* Each epilogue forward, then its gradient from the auxiliary data that it left. */
Test(lt, epilogues_by_definition)
{
    enum { M = 13, N = 6, K = 9, BATCH = 2, LD = 128, STRIDE = LD * N };
    static const uint32_t forward[] = {CUBLASLT_EPILOGUE_BIAS,      CUBLASLT_EPILOGUE_RELU,
                                       CUBLASLT_EPILOGUE_GELU,      CUBLASLT_EPILOGUE_RELU_BIAS,
                                       CUBLASLT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_RELU_AUX_BIAS,
                                       CUBLASLT_EPILOGUE_GELU_AUX_BIAS};
    for (size_t f = 0; f < sizeof forward / sizeof *forward; f++) {
        for (int half = 0; half < 2; half++) {
            enum sg_number type = half ? SG_BF16 : SG_F32;
            begin(1100 + f);
            struct mat a = mat(type, M, K, 0, BATCH), b = mat(type, K, N, 0, BATCH),
                       d = mat(type, M, N, 0, BATCH);
            struct mat bias = mat(type, M, BATCH, 0, 1);
            unsigned char *aux = card_alloc((size_t)BATCH * STRIDE * 4);
            cublasLtMatmulDesc_t op = operation(CUBLAS_COMPUTE_32F, CUDA_R_32F);
            float one = 1, zero = 0;
            SET(op, EPILOGUE, uint32_t, forward[f]);
            SET(op, BIAS_POINTER, void *, bias.p);
            SET(op, BIAS_BATCH_STRIDE, int64_t, bias.ld);
            SET(op, EPILOGUE_AUX_POINTER, void *, aux);
            SET(op, EPILOGUE_AUX_LD, int64_t, LD);
            SET(op, EPILOGUE_AUX_BATCH_STRIDE, int64_t, STRIDE);
            OK(cublasLtMatmul(lt, op, &one, a.p, a.desc, b.p, b.desc, &zero, d.p, d.desc, d.p,
                              d.desc, NULL, NULL, 0, NULL));
            int with_bias = (forward[f] & CUBLASLT_EPILOGUE_BIAS) != 0,
                relu = (forward[f] & CUBLASLT_EPILOGUE_RELU) != 0,
                gelu = (forward[f] & CUBLASLT_EPILOGUE_GELU) != 0, with_aux = (forward[f] & 128) != 0;
            for (int e = 0; e < M * N * BATCH; e++) {
                int p = e / (M * N), i = e % M, j = e / M % N;
                double v = definition(&a, 0, &b, 0, NULL, 1, 0, p, i, j) +
                           (with_bias ? el(&bias, 0, i, p) : 0);
                double want = relu ? fmax(v, 0) : gelu ? gelu_of(v) : v;
                near(el(&d, p, i, j), want, tolerance(type), "D");
                if (with_aux && relu && fabs(v) > 1e-3) {
                    cr_assert_eq(bit_at(aux, LD, STRIDE, p, i, j), v > 0);
                } else if (with_aux && gelu) {
                    near(sg_number_load(type, aux, p * STRIDE + j * LD + i), v, tolerance(type), "aux");
                }
            }
            CARD_OK();
            if (!with_aux) {
                continue;
            }
            SET(op, EPILOGUE, uint32_t,
                relu ? CUBLASLT_EPILOGUE_DRELU_BGRAD : CUBLASLT_EPILOGUE_DGELU_BGRAD);
            OK(cublasLtMatmul(lt, op, &one, a.p, a.desc, b.p, b.desc, &zero, d.p, d.desc, d.p,
                              d.desc, NULL, NULL, 0, NULL));
            for (int p = 0; p < BATCH; p++) {
                for (int i = 0; i < M; i++) {
                    double sum = 0;
                    for (int j = 0; j < N; j++) {
                        double v = definition(&a, 0, &b, 0, NULL, 1, 0, p, i, j);
                        v *= relu ? bit_at(aux, LD, STRIDE, p, i, j)
                                  : gelu_slope(sg_number_load(type, aux, p * STRIDE + j * LD + i));
                        near(el(&d, p, i, j), v, 2 * tolerance(type), "gradient");
                        sum += v;
                    }
                    near(el(&bias, 0, i, p), sum, 4 * tolerance(type), "bias gradient");
                }
            }
            CARD_OK();
        }
    }
}

Test(lt, sums_of_the_operands)
{
    begin(1200);
    enum { M = 5, N = 7, K = 11 };
    struct mat a = mat(SG_F16, M, K, 0, 1), b = mat(SG_F16, K, N, 0, 1), d = mat(SG_F16, M, N, 0, 1);
    void *sums = card_alloc(N * 4);
    float one = 1, zero = 0;
    for (int of_b = 0; of_b < 2; of_b++) {
        cublasLtMatmulDesc_t op = operation(CUBLAS_COMPUTE_32F, CUDA_R_32F);
        SET(op, EPILOGUE, uint32_t, of_b ? CUBLASLT_EPILOGUE_BGRADB : CUBLASLT_EPILOGUE_BGRADA);
        SET(op, BIAS_POINTER, void *, sums);
        SET(op, BIAS_DATA_TYPE, int32_t, CUDA_R_32F);
        OK(cublasLtMatmul(lt, op, &one, a.p, a.desc, b.p, b.desc, &zero, d.p, d.desc, d.p, d.desc,
                          NULL, NULL, 0, NULL));
        for (int i = 0; i < (of_b ? N : M); i++) {
            double want = 0;
            for (int q = 0; q < K; q++) {
                want += of_b ? el(&b, 0, q, i) : el(&a, 0, i, q);
            }
            near(sg_number_load(SG_F32, sums, i), want, 1e-5, "sum");
        }
    }
    CARD_OK();
}

/* A long product with few tiles is split; the workspace that the heuristic asks for is used, a smaller one
 * refused, and the result is the same. */
Test(lt, heuristic_and_workspace)
{
    begin(1300);
    enum { M = 8, N = 6, K = 5000 };
    struct mat a = mat(SG_F32, M, K, 0, 1), b = mat(SG_F32, K, N, 0, 1), d = mat(SG_F32, M, N, 0, 1);
    cublasLtMatmulDesc_t op = operation(CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulPreference_t pref;
    cublasLtMatmulHeuristicResult_t found[2], checked;
    uint64_t most = 1 << 20, none = 0;
    int n = 0;
    OK(cublasLtMatmulPreferenceCreate(&pref));
    OK(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &none,
                                            sizeof none));
    OK(cublasLtMatmulAlgoGetHeuristic(lt, op, a.desc, b.desc, d.desc, d.desc, pref, 2, found, &n));
    cr_assert(n == 1 && found[0].workspaceSize == 0, "no workspace was allowed");
    OK(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most,
                                            sizeof most));
    OK(cublasLtMatmulAlgoGetHeuristic(lt, op, a.desc, b.desc, d.desc, d.desc, pref, 2, found, &n));
    OK(cublasLtMatmulPreferenceDestroy(pref));
    cr_assert(n == 1 && found[0].state == CUBLAS_STATUS_SUCCESS && found[0].wavesCount > 0);
    int32_t parts = 0;
    size_t bytes = 0;
    OK(cublasLtMatmulAlgoConfigGetAttribute(&found[0].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts,
                                            sizeof parts, &bytes));
    cr_assert(parts == 4 && bytes == sizeof parts, "k of %d in %d parts", K, (int)parts);
    cr_assert_eq(found[0].workspaceSize, (size_t)parts * M * N * 4);
    OK(cublasLtMatmulAlgoCheck(lt, op, a.desc, b.desc, d.desc, d.desc, &found[0].algo, &checked));
    cr_assert_eq(checked.workspaceSize, found[0].workspaceSize);
    void *work = card_alloc(found[0].workspaceSize);
    float one = 1, zero = 0;
    cr_assert_eq(cublasLtMatmul(lt, op, &one, a.p, a.desc, b.p, b.desc, &zero, d.p, d.desc, d.p,
                                d.desc, &found[0].algo, work, found[0].workspaceSize - 1, NULL),
                 CUBLAS_STATUS_INVALID_VALUE);
    OK(cublasLtMatmul(lt, op, &one, a.p, a.desc, b.p, b.desc, &zero, d.p, d.desc, d.p, d.desc,
                      &found[0].algo, work, found[0].workspaceSize, NULL));
    near(el(&d, 0, 3, 2), definition(&a, 0, &b, 0, NULL, 1, 0, 0, 3, 2), 1e-4, "D");
    CARD_OK();
}

Test(lt, algorithms_by_hand)
{
    begin(1310);
    int ids[4], n = 0;
    cublasLtMatmulAlgo_t algo;
    OK(cublasLtMatmulAlgoGetIds(lt, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16F, CUDA_R_16F,
                                CUDA_R_16F, CUDA_R_16F, 4, ids, &n));
    cr_assert_eq(n, 1);
    OK(cublasLtMatmulAlgoInit(lt, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F,
                              CUDA_R_16F, ids[0], &algo));
    cr_assert_eq(cublasLtMatmulAlgoInit(lt, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16F, CUDA_R_16F,
                                        CUDA_R_16F, CUDA_R_16F, ids[0] + 1, &algo),
                 CUBLAS_STATUS_INVALID_VALUE);
    uint32_t tiles[4];
    size_t bytes = 0;
    OK(cublasLtMatmulAlgoCapGetAttribute(&algo, CUBLASLT_ALGO_CAP_TILE_IDS, NULL, 0, &bytes));
    cr_assert(bytes > 0 && bytes <= sizeof tiles);
    OK(cublasLtMatmulAlgoCapGetAttribute(&algo, CUBLASLT_ALGO_CAP_TILE_IDS, tiles, sizeof tiles,
                                         &bytes));
    struct mat a = mat(SG_F32, 4, 4, 0, 1);
    cublasLtMatmulDesc_t op = operation(CUBLAS_COMPUTE_32F, CUDA_R_32F);
    float one = 1, zero = 0;
    cr_assert_eq(cublasLtMatmul(lt, op, &one, a.p, a.desc, a.p, a.desc, &zero, a.p, a.desc, a.p,
                                a.desc, &algo, NULL, 0, NULL),
                 CUBLAS_STATUS_INVALID_VALUE, "an algorithm for halves");
    cr_assert_eq(card_launches(), 0u);
}

Test(lt, descriptors_keep_what_they_are_told)
{
    begin(1320);
    cublasLtMatmulDesc_t op = operation(CUBLAS_COMPUTE_64F, (cudaDataType)-1);
    int32_t v = 0;
    size_t written = 0;
    OK(cublasLtMatmulDescGetAttribute(op, CUBLASLT_MATMUL_DESC_SCALE_TYPE, &v, sizeof v, NULL));
    cr_assert_eq(v, CUDA_R_64F, "follows the compute type");
    OK(cublasLtMatmulDescGetAttribute(op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, NULL, 0, &written));
    cr_assert_eq(written, sizeof(void *));
    cr_assert_eq(cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_TRANSA, &v, 2),
                 CUBLAS_STATUS_INVALID_VALUE, "wrong size");
    cr_assert_eq(cublasLtMatmulDescSetAttribute(op, (cublasLtMatmulDescAttributes_t)77, &v, 4),
                 CUBLAS_STATUS_INVALID_VALUE, "unknown attribute");
    cublasLtMatmulDescOpaque_t own; /* in the program's memory */
    OK(cublasLtMatmulDescInit(&own, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    OK(cublasLtMatmulDescGetAttribute(&own, CUBLASLT_MATMUL_DESC_EPILOGUE, &v, sizeof v, NULL));
    cr_assert_eq(v, CUBLASLT_EPILOGUE_DEFAULT);
    cr_assert_eq(cublasLtMatmulDescInit_internal(&own, sizeof own - 8, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                 CUBLAS_STATUS_ALLOC_FAILED);
}

/* What is not computed is refused and launches nothing. */
Test(lt, refusals)
{
    begin(1330);
    struct mat a = mat(SG_F32, 4, 4, 0, 1), h = mat(SG_F16, 4, 4, 0, 1), wide = mat(SG_F32, 4, 5, 0, 1);
    float one = 1, zero = 0;
    cublasLtMatmulDesc_t op = operation(CUBLAS_COMPUTE_32F, CUDA_R_32F);
#define TRY(x, y, out)                                                                             \
    cublasLtMatmul(lt, op, &one, (x).p, (x).desc, (y).p, (y).desc, &zero, (out).p, (out).desc,     \
                   (out).p, (out).desc, NULL, NULL, 0, NULL)
    cr_assert_eq(TRY(a, h, a), CUBLAS_STATUS_NOT_SUPPORTED, "factors of two types");
    cr_assert_eq(TRY(a, wide, a), CUBLAS_STATUS_INVALID_VALUE, "shapes that do not fit");
    SET(op, A_SCALE_POINTER, void *, a.p);
    cr_assert_eq(TRY(a, a, a), CUBLAS_STATUS_NOT_SUPPORTED, "a scale factor");
    SET(op, A_SCALE_POINTER, void *, NULL);
    SET(op, EPILOGUE, uint32_t, CUBLASLT_EPILOGUE_BIAS);
    cr_assert_eq(TRY(a, a, a), CUBLAS_STATUS_INVALID_VALUE, "no bias");
    SET(op, POINTER_MODE, int32_t, CUBLASLT_POINTER_MODE_DEVICE_VECTOR);
    cr_assert_eq(TRY(a, a, a), CUBLAS_STATUS_NOT_SUPPORTED, "vectors of scalars");
    cr_assert_eq(card_launches(), 0u);
}

/* A cuBLAS handle serves as one of cuBLASLt, as frameworks use it. */
Test(lt, handle_of_cublas)
{
    begin(1340);
    OK(cublasCreate(&blas));
    card_keep(blas, drop_blas);
    struct mat a = mat(SG_F32, 3, 3, 0, 1), d = mat(SG_F32, 3, 3, 0, 1);
    float one = 1, zero = 0;
    OK(cublasLtMatmul((cublasLtHandle_t)blas, operation(CUBLAS_COMPUTE_32F, CUDA_R_32F), &one, a.p,
                      a.desc, a.p, a.desc, &zero, d.p, d.desc, d.p, d.desc, NULL, NULL, 0, NULL));
    near(el(&d, 0, 1, 2), definition(&a, 0, &a, 0, NULL, 1, 0, 0, 1, 2), 1e-5, "D");
    CARD_OK();
}

Test(lt, transforms_by_definition)
{
    for (int i = 0; i < 32; i++) {
        begin(1400 + (uint64_t)i);
        int ta = i & 1, tb = i >> 1 & 1, m = 1 + (int)card_below(9), n = 1 + (int)card_below(9);
        struct mat a = mat(SG_F32, ta ? n : m, ta ? m : n, i >> 2 & 1, 1),
                   b = mat(SG_F32, tb ? n : m, tb ? m : n, i >> 3 & 1, 1),
                   c = mat(SG_F32, m, n, i >> 4 & 1, 1);
        cublasLtMatrixTransformDesc_t t;
        int32_t va = ta ? CUBLAS_OP_T : CUBLAS_OP_N, vb = tb ? CUBLAS_OP_T : CUBLAS_OP_N;
        float alpha = 2, beta = -1;
        OK(cublasLtMatrixTransformDescCreate(&t, CUDA_R_32F));
        OK(cublasLtMatrixTransformDescSetAttribute(t, CUBLASLT_MATRIX_TRANSFORM_DESC_TRANSA, &va,
                                                   sizeof va));
        OK(cublasLtMatrixTransformDescSetAttribute(t, CUBLASLT_MATRIX_TRANSFORM_DESC_TRANSB, &vb,
                                                   sizeof vb));
        OK(cublasLtMatrixTransform(lt, t, &alpha, a.p, a.desc, &beta, b.p, b.desc, c.p, c.desc,
                                   NULL));
        for (int e = 0; e < m * n; e++) {
            int r = e % m, s = e / m;
            near(el(&c, 0, r, s),
                 2 * (ta ? el(&a, 0, s, r) : el(&a, 0, r, s)) -
                     (tb ? el(&b, 0, s, r) : el(&b, 0, r, s)),
                 1e-6, "C");
        }
        OK(cublasLtMatrixTransform(lt, t, &alpha, a.p, a.desc, NULL, NULL, NULL, c.p, c.desc, NULL));
        near(el(&c, 0, 0, n - 1), 2 * (ta ? el(&a, 0, n - 1, 0) : el(&a, 0, 0, n - 1)), 1e-6, "C");
        OK(cublasLtMatrixTransformDescDestroy(t));
        CARD_OK();
    }
}
