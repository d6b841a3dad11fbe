/* gemm_tile.h: the packed product for one element type and one instruction set; a template that
 * gemm.c includes for float and double. Expects T (element), V (vector of NR/2 elements), NR and
 * SG_FN(name). */

/* Packs rows [0, mc) x [0, kc) of A in panels of MR rows, k-major, padded with zeros. */
static void SG_FN(pack_a)(int64_t mc, int64_t kc, const T *a, struct sg_mat s, T *out)
{
    for (int64_t i = 0; i < mc; i += MR) {
        int64_t rows = mc - i < MR ? mc - i : MR;
        for (int64_t p = 0; p < kc; p++) {
            for (int64_t r = 0; r < MR; r++) {
                *out++ = r < rows ? a[(i + r) * s.rs + p * s.cs] : 0;
            }
        }
    }
}

/* Packs [0, kc) x [0, nc) of B in panels of NR columns, k-major, padded with zeros. */
static void SG_FN(pack_b)(int64_t kc, int64_t nc, const T *b, struct sg_mat s, T *out)
{
    for (int64_t j = 0; j < nc; j += NR) {
        int64_t cols = nc - j < NR ? nc - j : NR;
        for (int64_t p = 0; p < kc; p++) {
            const T *src = b + p * s.rs + j * s.cs;
            if (cols == NR && s.cs == 1) {
                memcpy(out, src, NR * sizeof(T));
            } else {
                for (int64_t c = 0; c < NR; c++) {
                    out[c] = c < cols ? src[c * s.cs] : 0;
                }
            }
            out += NR;
        }
    }
}

/* acc[MR][NR] = sum over p of a[p][MR] * b[p][NR], p ascending. */
static void SG_FN(tile)(int64_t kc, const T *restrict a, const T *restrict b, T *restrict acc)
{
    V sum[MR][2];
    memset(sum, 0, sizeof sum);
    for (int64_t p = 0; p < kc; p++) {
        V b0, b1;
        memcpy(&b0, b, sizeof b0);
        memcpy(&b1, b + NR / 2, sizeof b1);
#pragma GCC unroll 6
        for (int r = 0; r < MR; r++) {
            V ar = a[r] - (V){0}; /* the scalar in every lane */
            sum[r][0] += ar * b0;
            sum[r][1] += ar * b1;
        }
        a += MR;
        b += NR;
    }
    memcpy(acc, sum, sizeof sum);
}

/* Adds alpha * acc to a corner of C; the first block of k sets the corner from beta. */
static void SG_FN(store)(int64_t rows, int64_t cols, const T *acc, T alpha, int first, T beta, T *c,
                         struct sg_mat s)
{
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < cols; j++) {
            T *out = c + i * s.rs + j * s.cs, v = alpha * acc[i * NR + j];
            if (!first) {
                *out += v;
            } else if (beta == 0) {
                *out = v;
            } else {
                *out = v + beta * *out;
            }
        }
    }
}

void SG_FN(gemm)(int64_t m, int64_t n, int64_t k, T alpha, const T *a, struct sg_mat as, const T *b,
                 struct sg_mat bs, T beta, T *c, struct sg_mat cs)
{
    if (cs.rs == 1 && cs.cs != 1) { /* column-major C: the transposed product writes along rows */
        struct sg_mat at = {bs.cs, bs.rs}, bt = {as.cs, as.rs}, ct = {cs.cs, cs.rs};
        const T *swap = a;
        a = b;
        b = swap;
        int64_t rows = m;
        m = n;
        n = rows;
        as = at;
        bs = bt;
        cs = ct;
    }
    int64_t mc = m < MC ? (m + MR - 1) / MR * MR : MC, nc = n < NC ? (n + NR - 1) / NR * NR : NC;
    T *pack = sg_scratch((size_t)((mc + nc) * SG_GEMM_KC) * sizeof(T));
    T *pa = pack, *pb = pack + mc * SG_GEMM_KC;
    for (int64_t j = 0; j < n; j += NC) {
        int64_t nb = n - j < NC ? n - j : NC;
        for (int64_t p = 0; p < k || p == 0; p += SG_GEMM_KC) {
            int64_t kb = k - p < SG_GEMM_KC ? k - p : SG_GEMM_KC;
            SG_FN(pack_b)(kb, nb, b + p * bs.rs + j * bs.cs, bs, pb);
            for (int64_t i = 0; i < m; i += MC) {
                int64_t mb = m - i < MC ? m - i : MC;
                SG_FN(pack_a)(mb, kb, a + i * as.rs + p * as.cs, as, pa);
                for (int64_t jr = 0; jr < nb; jr += NR) {
                    for (int64_t ir = 0; ir < mb; ir += MR) {
                        T acc[MR * NR];
                        SG_FN(tile)(kb, pa + ir * kb, pb + jr * kb, acc);
                        SG_FN(store)
                        (mb - ir < MR ? mb - ir : MR, nb - jr < NR ? nb - jr : NR, acc, alpha,
                         p == 0, beta, c + (i + ir) * cs.rs + (j + jr) * cs.cs, cs);
                    }
                }
            }
        }
    }
    free(pack);
}
