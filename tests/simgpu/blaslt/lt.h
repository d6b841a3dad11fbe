/* lt.h: the descriptors of the simulated cuBLASLt, as they lie in the program's opaque structures, and
 * what its files share. One thread changes a descriptor at a time, as with cuBLASLt; everything else is
 * thread-safe. */
#ifndef SG_BLASLT_H
#define SG_BLASLT_H

#include <cublasLt.h>

#include "handle.h"

struct cublasLtContext {
    struct sg_blas_core core; /* a cublasHandle_t begins with the same */
};

struct sg_lt_layout {
    uint64_t rows, cols;
    int64_t ld, batch_offset, plane_offset;
    uint32_t type;
    int32_t order, batch_count;
    uint32_t batch_mode;
};

struct sg_lt_matmul {
    int32_t compute_type, scale_type, pointer_mode, trans_a, trans_b, trans_c, fill_mode;
    uint32_t epilogue;
    uint64_t bias, aux, emulation; /* pointers, as all that follow */
    uint64_t a_scale, b_scale, c_scale, d_scale, amax_d, aux_scale, aux_amax, d_out_scale;
    int64_t bias_batch, aux_ld, aux_batch, alpha_batch;
    int32_t sm_target, aux_type, bias_type;
    int32_t a_scale_mode, b_scale_mode, c_scale_mode, d_scale_mode, aux_scale_mode, d_out_scale_mode;
    int8_t fast_accumulation;
};

struct sg_lt_preference {
    uint64_t max_workspace, impl_mask;
    uint32_t search_mode, reduction_mask, align_a, align_b, align_c, align_d;
    float max_waves;
};

struct sg_lt_transform {
    int32_t scale_type, pointer_mode, trans_a, trans_b;
};

struct sg_lt_emulation {
    uint64_t bit_count;
    int32_t strategy, special_values, mantissa_control, max_mantissa_bits, mantissa_offset;
};

/* A configured algorithm. `types` is what it was made for: it computes nothing else. */
struct sg_lt_algo {
    int32_t id, split_k;
    uint32_t tile, reduction, swizzle, option, stages;
    uint32_t types; /* of A, C and D: 8 bits each, plus one */
    uint16_t inner, cluster;
};

/* The one algorithm there is; as cuBLASLt's, ids are small numbers that mean nothing by themselves. */
enum { SG_LT_ALGO = 21 };

/* Marks what an algorithm computes with in `types`. */
uint32_t sg_lt_types(cudaDataType_t a, cudaDataType_t c, cudaDataType_t d);

/* A matmul as the kernel takes it, without operands, scalars and workspace. SUCCESS, INVALID_VALUE for
 * what contradicts itself, NOT_SUPPORTED (said on stderr by name) for what is not computed. */
cublasStatus_t sg_lt_resolve(const struct sg_blas_core *core, const struct sg_lt_matmul *op,
                             const struct sg_lt_layout *a, const struct sg_lt_layout *b,
                             const struct sg_lt_layout *c, const struct sg_lt_layout *d,
                             struct sg_blas_gemm_args *out);

/* Into how many parts of k the product is best split, with at most max_bytes of workspace for them. */
int sg_lt_split(const struct sg_blas_core *core, const struct sg_blas_gemm_args *g, size_t max_bytes);

/* Workspace of a product that is split into so many parts. */
size_t sg_lt_split_bytes(const struct sg_blas_gemm_args *g, int parts);

#endif
