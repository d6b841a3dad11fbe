/* gemm_isa.h: the products of each instruction set, chosen among by gemm_pick.c. */
#ifndef SG_GEMM_ISA_H
#define SG_GEMM_ISA_H

#include "gemm.h"

#define SG_GEMM_DECLARE(isa)                                                                       \
    void sg_gemm_f32_##isa(int64_t m, int64_t n, int64_t k, float alpha, const float *a,           \
                           struct sg_mat as, const float *b, struct sg_mat bs, float beta,         \
                           float *c, struct sg_mat cs);                                            \
    void sg_gemm_f64_##isa(int64_t m, int64_t n, int64_t k, double alpha, const double *a,         \
                           struct sg_mat as, const double *b, struct sg_mat bs, double beta,       \
                           double *c, struct sg_mat cs);
SG_GEMM_DECLARE(base)
#ifdef SG_HAVE_AVX2
SG_GEMM_DECLARE(avx2)
#endif

#endif
