/* gemm.h: matrix products on the CPU, the arithmetic behind the simulated cuBLAS and convolutions.
 *
 * C = alpha * A * B + beta * C with arbitrary element strides (row stride rs, column stride cs), C
 * m by n, the inner dimension k; beta 0 ignores what C holds. Each element is summed over k in
 * ascending order in blocks of SG_GEMM_KC, one multiplication and one addition rounded apart, so
 * that the bits depend neither on the instruction set nor on the other dimensions. Packing and
 * register blocking follow Goto and van de Geijn, "Anatomy of high-performance matrix
 * multiplication" (2008). Thread-safe.
 */
#ifndef SG_GEMM_H
#define SG_GEMM_H

#include <stdint.h>

#define SG_GEMM_KC 256

struct sg_mat {
    int64_t rs, cs;
};

void sg_gemm_f32(int64_t m, int64_t n, int64_t k, float alpha, const float *a, struct sg_mat as,
                 const float *b, struct sg_mat bs, float beta, float *c, struct sg_mat cs);
void sg_gemm_f64(int64_t m, int64_t n, int64_t k, double alpha, const double *a, struct sg_mat as,
                 const double *b, struct sg_mat bs, double beta, double *c, struct sg_mat cs);

#endif
