/* cuBLAS calls against their definitions: transposes, leading dimensions, batches, increments,
 * scalars in host and device memory. */
#include "common.h"
#include <cublas_v2.h>

#include "number.h"

static cublasHandle_t handle;

static void drop(void *h)
{
    (void)cublasDestroy(h);
}

static void begin(uint64_t seed)
{
    card_reset(card_seed(seed));
    OK(cublasCreate(&handle));
    card_keep(handle, drop);
}

static double el(const float *m, int trans, int ld, int i, int j)
{
    return (double)(trans ? m[j + i * ld] : m[i + j * ld]);
}

/* One product of the batch against the definition; old may be null where beta is 0. */
static void check_gemm(int ta, int tb, int m, int n, int k, const float *a, int lda, const float *b,
                       int ldb, double alpha, double beta, const float *old, const float *c,
                       int ldc)
{
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < n; j++) {
            double want = beta != 0 ? beta * (double)old[i + j * ldc] : 0;
            for (int p = 0; p < k; p++) {
                want += alpha * el(a, ta, lda, i, p) * el(b, tb, ldb, p, j);
            }
            near((double)c[i + j * ldc], want, 2e-5, "C");
        }
    }
}

Test(blas, gemm_by_definition)
{
    for (int i = 0; i < 64; i++) {
        begin(700 + (uint64_t)i);
        int ta = i & 1, tb = i >> 1 & 1, m = 1 + (int)card_below(40), n = 1 + (int)card_below(40),
            k = 1 + (int)card_below(i % 8 == 7 ? 600 : 60), batch = 1 + (int)card_below(3);
        int lda = (ta ? k : m) + (int)card_below(4), ldb = (tb ? n : k) + (int)card_below(4),
            ldc = m + (int)card_below(4);
        size_t na = (size_t)(lda * (ta ? m : k)), nb = (size_t)(ldb * (tb ? k : n)),
               nc = (size_t)(ldc * n);
        float *a = card_random(na * (size_t)batch), *b = card_random(nb * (size_t)batch),
              *c = card_random(nc * (size_t)batch), *old = malloc(nc * (size_t)batch * sizeof *old);
        float *scalars = card_random(2), alpha = 1.5f, beta = i & 4 ? -0.5f : 0.0f;
        memcpy(old, c, nc * (size_t)batch * sizeof *old);
        scalars[0] = alpha;
        scalars[1] = beta;
        int device = i >> 3 & 1;
        OK(cublasSetPointerMode(handle,
                                device ? CUBLAS_POINTER_MODE_DEVICE : CUBLAS_POINTER_MODE_HOST));
        OK(cublasSgemmStridedBatched(handle, (cublasOperation_t)ta, (cublasOperation_t)tb, m, n, k,
                                     device ? &scalars[0] : &alpha, a, lda, (long long)na, b, ldb,
                                     (long long)nb, device ? &scalars[1] : &beta, c, ldc,
                                     (long long)nc, batch));
        for (int p = 0; p < batch; p++) {
            check_gemm(ta, tb, m, n, k, a + (size_t)p * na, lda, b + (size_t)p * nb, ldb, 1.5,
                       (double)beta, old + (size_t)p * nc, c + (size_t)p * nc, ldc);
        }
        free(old);
        cr_assert_eq(card_faults(), 0u, "case %d: %s", i, card_fault());
    }
    CARD_OK();
}

Test(blas, gemm_batched_follows_the_tables)
{
    begin(800);
    enum { BATCH = 3, M = 5, N = 4, K = 6 };
    const float alpha = 2, beta = 0;
    const float **a = card_alloc(BATCH * sizeof *a), **b = card_alloc(BATCH * sizeof *b);
    float **c = card_alloc(BATCH * sizeof *c);
    for (int i = 0; i < BATCH; i++) {
        a[i] = card_random(M * K);
        b[i] = card_random(K * N);
        c[i] = card_random(M * N);
    }
    OK(cublasSgemmBatched(handle, CUBLAS_OP_N, CUBLAS_OP_N, M, N, K, &alpha, a, M, b, K, &beta, c,
                          M, BATCH));
    for (int i = 0; i < BATCH; i++) {
        check_gemm(0, 0, M, N, K, a[i], M, b[i], K, 2, 0, NULL, c[i], M);
    }
    CARD_OK();
}

Test(blas, double_and_typed_products)
{
    begin(810);
    enum { M = 7, N = 9, K = 33 };
    double *a = card_alloc(M * K * sizeof *a), *b = card_alloc(K * N * sizeof *b),
           *c = card_alloc(M * N * sizeof *c), alpha = 1, beta = 0;
    for (int i = 0; i < M * K; i++) {
        a[i] = 1.0 / (i + 1);
    }
    for (int i = 0; i < K * N; i++) {
        b[i] = 1.0 / (i + 2);
    }
    OK(cublasDgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, M, N, K, &alpha, a, M, b, K, &beta, c, M));
    double first = 0;
    for (int p = 0; p < K; p++) {
        first += a[3 + p * M] * b[p + 5 * K];
    }
    cr_assert_float_eq(c[3 + 5 * M], first, 1e-14);
    double *again = card_alloc(M * N * sizeof *again);
    OK(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, M, N, K, &alpha, a, CUDA_R_64F, M, b,
                    CUDA_R_64F, K, &beta, again, CUDA_R_64F, M, CUBLAS_COMPUTE_64F,
                    CUBLAS_GEMM_DEFAULT));
    cr_assert_eq(memcmp(c, again, M * N * sizeof *c), 0);
    cr_assert_eq(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, M, N, K, &alpha, a, CUDA_R_8I, M, b,
                              CUDA_R_8I, K, &beta, again, CUDA_R_32I, M, CUBLAS_COMPUTE_32I,
                              CUBLAS_GEMM_DEFAULT),
                 CUBLAS_STATUS_NOT_SUPPORTED);
    CARD_OK();
}

/* Half precision and bfloat16, with results of the same type and in single precision, in strided batches and
 * by tables; the sums are in single precision. */
Test(blas, half_products)
{
    static const cudaDataType names[] = {CUDA_R_16F, CUDA_R_16BF};
    static const enum sg_number types[] = {SG_F16, SG_BF16};
    enum { M = 9, N = 7, K = 40, BATCH = 2 };
    for (int i = 0; i < 8; i++) {
        begin(820 + (uint64_t)i);
        enum sg_number in = types[i & 1], out = i & 2 ? SG_F32 : in;
        cudaDataType ctype = out == SG_F32 ? CUDA_R_32F : names[i & 1];
        size_t na = M * K, nb = K * N, nc = M * N, eo = sg_number_bytes(out);
        char *a = card_alloc(na * BATCH * 2), *b = card_alloc(nb * BATCH * 2),
             *c = card_alloc(nc * BATCH * eo);
        for (size_t e = 0; e < BATCH * na; e++) {
            sg_number_store(in, a, (int64_t)e, card_below(200) / 100.0 - 1);
        }
        for (size_t e = 0; e < BATCH * nb; e++) {
            sg_number_store(in, b, (int64_t)e, card_below(200) / 100.0 - 1);
        }
        float alpha = 0.5f, beta = 0;
        if (i & 4) {
            void **tables = card_alloc(3 * BATCH * sizeof *tables);
            for (size_t p = 0; p < BATCH; p++) {
                tables[p] = a + p * na * 2;
                tables[BATCH + p] = b + p * nb * 2;
                tables[2 * BATCH + p] = c + p * nc * eo;
            }
            OK(cublasGemmBatchedEx(handle, CUBLAS_OP_N, CUBLAS_OP_T, M, N, K, &alpha,
                                   (const void *const *)tables, names[i & 1], M,
                                   (const void *const *)tables + BATCH, names[i & 1], N, &beta,
                                   tables + 2 * BATCH, ctype, M, BATCH, CUBLAS_COMPUTE_32F,
                                   CUBLAS_GEMM_DEFAULT));
        } else {
            OK(cublasGemmStridedBatchedEx(handle, CUBLAS_OP_N, CUBLAS_OP_T, M, N, K, &alpha, a,
                                          names[i & 1], M, (long long)na, b, names[i & 1], N,
                                          (long long)nb, &beta, c, ctype, M, (long long)nc, BATCH,
                                          CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
        }
        for (int64_t e = 0; e < M * N * BATCH; e++) {
            int64_t p = e / (M * N), r = e % M, s = e / M % N;
            double want = 0;
            for (int64_t q = 0; q < K; q++) {
                want += 0.5 * sg_number_load(in, a, p * M * K + r + q * M) *
                        sg_number_load(in, b, p * K * N + s + q * N);
            }
            near(sg_number_load(out, c, e), want,
                 out == SG_F32 ? 1e-5 : out == SG_F16 ? 2e-3 : 1.5e-2, "C");
        }
        CARD_OK();
    }
}

/* Half-precision products cost less time than single-precision ones by what the card's sheet says. */
Test(blas, half_products_are_faster)
{
    begin(830);
    enum { N = 64 };
    float *a = card_random(N * N), alpha = 1, beta = 0;
    double flops[2];
    for (int half = 0; half < 2; half++) {
        cudaDataType t = half ? CUDA_R_16F : CUDA_R_32F;
        memset(a, 0, N * N * sizeof *a);
        OK(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &alpha, a, t, N, a, t, N, &beta,
                        card_alloc(N * N * 4), t, N, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
        flops[half] = card_last_work().flops;
    }
    cr_assert_float_eq(flops[0] / flops[1], 16, 1e-9);
}

Test(blas, double_vectors)
{
    begin(840);
    enum { M = 6, N = 4 };
    double *a = card_alloc(M * N * sizeof *a), *x = card_alloc(2 * M * sizeof *x),
           *y = card_alloc(2 * M * sizeof *y), alpha = 2, beta = 3;
    for (int t = 0; t < 2; t++) {
        for (int neg = 0; neg < 2; neg++) {
            double old[2 * M];
            for (int i = 0; i < M * N; i++) {
                a[i] = 1.0 / (1 + i);
            }
            for (int i = 0; i < 2 * M; i++) {
                x[i] = i - 3;
                old[i] = y[i] = 0.5 * i;
            }
            int inner = t ? M : N, rows = t ? N : M, inc = neg ? -2 : 2;
            OK(cublasDgemv(handle, t ? CUBLAS_OP_T : CUBLAS_OP_N, M, N, &alpha, a, M, x, inc, &beta, y,
                           inc));
            for (int i = 0; i < rows; i++) {
                double sum = 0;
                for (int q = 0; q < inner; q++) {
                    sum += (t ? a[q + i * M] : a[i + q * M]) * x[neg ? 2 * (inner - 1 - q) : 2 * q];
                }
                int at = neg ? 2 * (rows - 1 - i) : 2 * i;
                near(y[at], 2 * sum + 3 * old[at], 1e-13, "y");
            }
        }
    }
    double dot = 0, want = 0;
    OK(cublasDdot(handle, M, x, 1, y, 1, &dot));
    for (int i = 0; i < M; i++) {
        want += x[i] * y[i];
    }
    near(dot, want, 1e-13, "dot");
    uint16_t *h = card_alloc(M * sizeof *h), half_dot;
    for (int i = 0; i < M; i++) {
        h[i] = sg_to_f16((float)i);
    }
    OK(cublasDotEx(handle, M, h, CUDA_R_16F, 1, h, CUDA_R_16F, 1, &half_dot, CUDA_R_16F, CUDA_R_32F));
    near((double)sg_from_f16(half_dot), 55, 1e-6, "dot of halves");
    CARD_OK();
}

Test(blas, matrix_vector_ger_geam)
{
    for (int i = 0; i < 8; i++) {
        begin(820 + (uint64_t)i);
        int t = i & 1, m = 6, n = 4, lda = 8, incx = i & 2 ? 2 : -1, incy = i & 4 ? 3 : 1;
        int nx = t ? m : n, ny = t ? n : m;
        float *a = card_random(32), *x = card_random(16), *y = card_random(24), old[24];
        const float alpha = 2, beta = 0.5f;
        memcpy(old, y, sizeof old);
        OK(cublasSgemv(handle, (cublasOperation_t)t, m, n, &alpha, a, lda, x, incx, &beta, y,
                       incy));
        for (int r = 0; r < ny; r++) {
            double want = 0.5 * (double)old[r * incy];
            for (int s = 0; s < nx; s++) {
                double xv = (double)x[incx < 0 ? nx - 1 - s : s * incx];
                want += 2 * xv * (t ? el(a, 1, lda, r, s) : el(a, 0, lda, r, s));
            }
            near((double)y[r * incy], want, 1e-5, "gemv");
        }
        float *c = card_random(24), *b = card_random(32);
        OK(cublasSgeam(handle, (cublasOperation_t)t, CUBLAS_OP_N, 4, 4, &alpha, a, lda, &beta, b,
                       lda, c, 5));
        near((double)c[2 + 3 * 5], 2 * el(a, t, lda, 2, 3) + 0.5 * el(b, 0, lda, 2, 3), 1e-6,
             "geam");
        float was = a[1 + 2 * lda];
        OK(cublasSger(handle, m, n, &alpha, x, 1, b, 2, a, lda));
        near((double)a[1 + 2 * lda], (double)was + 2 * (double)x[1] * (double)b[4], 1e-6, "ger");
        CARD_OK();
    }
}

Test(blas, vectors)
{
    begin(840);
    enum { N = 100 };
    float *x = card_random(3 * N), *y = card_random(2 * N), *z = card_random(N), old[2 * N],
          alpha = 0.5f;
    memcpy(old, y, sizeof old);
    OK(cublasSaxpy(handle, N, &alpha, x, 3, y, 2));
    for (int i = 0; i < N; i++) {
        near((double)y[2 * i], (double)old[2 * i] + 0.5 * (double)x[3 * i], 1e-6, "axpy");
    }
    OK(cublasScopy(handle, N, x, 3, z, -1));
    cr_assert_float_eq(z[N - 1], x[0], 0);
    OK(cublasSscal(handle, N, &alpha, z, 1));
    cr_assert_float_eq(z[N - 1], 0.5f * x[0], 0);
    double dot = 0, sum = 0, sq = 0;
    for (int i = 0; i < N; i++) {
        dot += (double)x[3 * i] * (double)y[2 * i];
        sum += fabs((double)x[3 * i]);
        sq += (double)x[3 * i] * (double)x[3 * i];
    }
    float r, *on_card = card_random(1);
    OK(cublasSdot(handle, N, x, 3, y, 2, &r));
    near((double)r, dot, 1e-6, "dot");
    OK(cublasSasum(handle, N, x, 3, &r));
    near((double)r, sum, 1e-6, "asum");
    OK(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE));
    OK(cublasSnrm2(handle, N, x, 3, on_card));
    near((double)*on_card, sqrt(sq), 1e-6, "nrm2");
    float x0 = x[0], z0 = z[0];
    OK(cublasSswap(handle, N, x, 1, z, 1));
    cr_assert(x[0] == z0 && z[0] == x0);
    CARD_OK();
}

Test(blas, copies_of_vectors_and_matrices)
{
    begin(860);
    float host[12], back[12] = {0}, *dev = card_random(64);
    for (int i = 0; i < 12; i++) {
        host[i] = (float)i;
    }
    OK(cublasSetMatrix(3, 4, sizeof *host, host, 3, dev, 7));
    cr_assert_float_eq(dev[2 + 3 * 7], 11.0f, 0);
    OK(cublasGetMatrix(3, 4, sizeof *host, dev, 7, back, 3));
    cr_assert_eq(memcmp(host, back, sizeof host), 0);
    OK(cublasSetVector(6, sizeof *host, host, 2, dev, 3));
    cr_assert_float_eq(dev[15], 10.0f, 0);
    OK(cublasGetVector(6, sizeof *host, dev, 3, back, 1));
    cr_assert_float_eq(back[5], 10.0f, 0);
}

Test(blas, refusals)
{
    begin(870);
    const float alpha = 1, beta = 0;
    float *m = card_random(16);
    cr_assert_eq(
        cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &alpha, m, 3, m, 4, &beta, m, 4),
        CUBLAS_STATUS_INVALID_VALUE);
    cr_assert_eq(
        cublasSgemm(NULL, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &alpha, m, 4, m, 4, &beta, m, 4),
        CUBLAS_STATUS_NOT_INITIALIZED);
    cr_assert_eq(card_launches(), 0u);
    int version;
    OK(cublasGetVersion(handle, &version));
    cr_assert_eq(version, CUBLAS_VERSION);
    cr_assert_str_eq(cublasGetStatusName(CUBLAS_STATUS_ALLOC_FAILED), "CUBLAS_STATUS_ALLOC_FAILED");
}
