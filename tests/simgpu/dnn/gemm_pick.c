#include "gemm_isa.h"

#ifdef SG_HAVE_AVX2
#define PICK(type, ...)                                                                            \
    (__builtin_cpu_supports("avx2") ? sg_gemm_##type##_avx2(__VA_ARGS__)                           \
                                    : sg_gemm_##type##_base(__VA_ARGS__))
#else
#define PICK(type, ...) sg_gemm_##type##_base(__VA_ARGS__)
#endif

void sg_gemm_f32(int64_t m, int64_t n, int64_t k, float alpha, const float *a, struct sg_mat as,
                 const float *b, struct sg_mat bs, float beta, float *c, struct sg_mat cs)
{
    PICK(f32, m, n, k, alpha, a, as, b, bs, beta, c, cs);
}

void sg_gemm_f64(int64_t m, int64_t n, int64_t k, double alpha, const double *a, struct sg_mat as,
                 const double *b, struct sg_mat bs, double beta, double *c, struct sg_mat cs)
{
    PICK(f64, m, n, k, alpha, a, as, b, bs, beta, c, cs);
}
