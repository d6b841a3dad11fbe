/* Descriptors: made, kept in the program's own memory, read and written attribute by attribute. */
#include "lt.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FITS(ours, theirs)                                                                         \
    static_assert(sizeof(struct ours) <= sizeof(theirs), #ours " does not fit into " #theirs)
FITS(sg_lt_layout, cublasLtMatrixLayoutOpaque_t);
FITS(sg_lt_matmul, cublasLtMatmulDescOpaque_t);
FITS(sg_lt_preference, cublasLtMatmulPreferenceOpaque_t);
FITS(sg_lt_transform, cublasLtMatrixTransformDescOpaque_t);
FITS(sg_lt_emulation, cublasLtEmulationDescOpaque_t);
FITS(sg_lt_algo, cublasLtMatmulAlgo_t);

/* Where an attribute lies in its descriptor. */
struct field {
    int attr;
    unsigned short offset, bytes;
};
#define FIELD(attr, type, member)                                                                  \
    {                                                                                              \
        attr, offsetof(struct type, member), sizeof(((struct type *)0)->member)                    \
    }

#define L(attr, member) FIELD(CUBLASLT_MATRIX_LAYOUT_##attr, sg_lt_layout, member)
static const struct field layout_fields[] = {
    L(TYPE, type),
    L(ORDER, order),
    L(ROWS, rows),
    L(COLS, cols),
    L(LD, ld),
    L(BATCH_COUNT, batch_count),
    L(STRIDED_BATCH_OFFSET, batch_offset),
    L(PLANE_OFFSET, plane_offset),
    L(BATCH_MODE, batch_mode),
};

#define M(attr, member) FIELD(CUBLASLT_MATMUL_DESC_##attr, sg_lt_matmul, member)
static const struct field matmul_fields[] = {
    M(COMPUTE_TYPE, compute_type),
    M(SCALE_TYPE, scale_type),
    M(POINTER_MODE, pointer_mode),
    M(TRANSA, trans_a),
    M(TRANSB, trans_b),
    M(TRANSC, trans_c),
    M(FILL_MODE, fill_mode),
    M(EPILOGUE, epilogue),
    M(BIAS_POINTER, bias),
    M(BIAS_BATCH_STRIDE, bias_batch),
    M(EPILOGUE_AUX_POINTER, aux),
    M(EPILOGUE_AUX_LD, aux_ld),
    M(EPILOGUE_AUX_BATCH_STRIDE, aux_batch),
    M(ALPHA_VECTOR_BATCH_STRIDE, alpha_batch),
    M(SM_COUNT_TARGET, sm_target),
    M(A_SCALE_POINTER, a_scale),
    M(B_SCALE_POINTER, b_scale),
    M(C_SCALE_POINTER, c_scale),
    M(D_SCALE_POINTER, d_scale),
    M(AMAX_D_POINTER, amax_d),
    M(EPILOGUE_AUX_DATA_TYPE, aux_type),
    M(EPILOGUE_AUX_SCALE_POINTER, aux_scale),
    M(EPILOGUE_AUX_AMAX_POINTER, aux_amax),
    M(FAST_ACCUM, fast_accumulation),
    M(BIAS_DATA_TYPE, bias_type),
    M(A_SCALE_MODE, a_scale_mode),
    M(B_SCALE_MODE, b_scale_mode),
    M(C_SCALE_MODE, c_scale_mode),
    M(D_SCALE_MODE, d_scale_mode),
    M(EPILOGUE_AUX_SCALE_MODE, aux_scale_mode),
    M(D_OUT_SCALE_POINTER, d_out_scale),
    M(D_OUT_SCALE_MODE, d_out_scale_mode),
    M(EMULATION_DESCRIPTOR, emulation),
};

#define P(attr, member) FIELD(CUBLASLT_MATMUL_PREF_##attr, sg_lt_preference, member)
static const struct field preference_fields[] = {
    P(SEARCH_MODE, search_mode),
    P(MAX_WORKSPACE_BYTES, max_workspace),
    P(REDUCTION_SCHEME_MASK, reduction_mask),
    P(MIN_ALIGNMENT_A_BYTES, align_a),
    P(MIN_ALIGNMENT_B_BYTES, align_b),
    P(MIN_ALIGNMENT_C_BYTES, align_c),
    P(MIN_ALIGNMENT_D_BYTES, align_d),
    P(MAX_WAVES_COUNT, max_waves),
    P(IMPL_MASK, impl_mask),
};

#define T(attr, member) FIELD(CUBLASLT_MATRIX_TRANSFORM_DESC_##attr, sg_lt_transform, member)
static const struct field transform_fields[] = {
    T(SCALE_TYPE, scale_type),
    T(POINTER_MODE, pointer_mode),
    T(TRANSA, trans_a),
    T(TRANSB, trans_b),
};

#define E(attr, member) FIELD(CUBLASLT_EMULATION_DESC_##attr, sg_lt_emulation, member)
static const struct field emulation_fields[] = {
    E(STRATEGY, strategy),
    E(SPECIAL_VALUES_SUPPORT, special_values),
    E(FIXEDPOINT_MANTISSA_CONTROL, mantissa_control),
    E(FIXEDPOINT_MAX_MANTISSA_BIT_COUNT, max_mantissa_bits),
    E(FIXEDPOINT_MANTISSA_BIT_OFFSET, mantissa_offset),
    E(FIXEDPOINT_MANTISSA_BIT_COUNT_POINTER, bit_count),
};

#define A(attr, member) FIELD(CUBLASLT_ALGO_CONFIG_##attr, sg_lt_algo, member)
static const struct field algo_fields[] = {
    A(ID, id),
    A(TILE_ID, tile),
    A(SPLITK_NUM, split_k),
    A(REDUCTION_SCHEME, reduction),
    A(CTA_SWIZZLING, swizzle),
    A(CUSTOM_OPTION, option),
    A(STAGES_ID, stages),
    A(INNER_SHAPE_ID, inner),
    A(CLUSTER_SHAPE_ID, cluster),
};

/* The field of an attribute; NULL, and a line on stderr, for one that we do not know. */
static const struct field *find(const char *call, const struct field *fields, size_t n, int attr)
{
    for (size_t i = 0; i < n; i++) {
        if (fields[i].attr == attr) {
            return &fields[i];
        }
    }
    fprintf(stderr, "libcublasLt (simulated): %s does not know attribute %d\n", call, attr);
    return NULL;
}

static cublasStatus_t set(const char *call, const struct field *fields, size_t n, void *desc,
                          int attr, const void *buf, size_t bytes)
{
    SG_BLAS_NEED(desc && buf);
    const struct field *f = find(call, fields, n, attr);
    SG_BLAS_NEED(f && bytes == f->bytes);
    memcpy((char *)desc + f->offset, buf, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t get(const char *call, const struct field *fields, size_t n, const void *desc,
                          int attr, void *buf, size_t bytes, size_t *written)
{
    SG_BLAS_NEED(desc && (bytes ? buf != NULL : written != NULL));
    const struct field *f = find(call, fields, n, attr);
    SG_BLAS_NEED(f && (!bytes || bytes == f->bytes));
    if (bytes) {
        memcpy(buf, (const char *)desc + f->offset, bytes);
    }
    if (written) {
        *written = f->bytes;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* The two calls that every kind of descriptor has. */
#define ATTRIBUTES(name, handle, attribute, fields)                                                \
    cublasStatus_t name##SetAttribute(handle desc, attribute attr, const void *buf,                \
                                      size_t sizeInBytes)                                          \
    {                                                                                              \
        return set(__func__, fields, sizeof fields / sizeof *fields, desc, (int)attr, buf,         \
                   sizeInBytes);                                                                   \
    }                                                                                              \
    cublasStatus_t name##GetAttribute(const_##handle desc, attribute attr, void *buf,              \
                                      size_t sizeInBytes, size_t *sizeWritten)                     \
    {                                                                                              \
        return get(__func__, fields, sizeof fields / sizeof *fields, desc, (int)attr, buf,         \
                   sizeInBytes, sizeWritten);                                                      \
    }
typedef cublasLtMatrixLayout_t layout_ptr, const_layout_ptr;
typedef cublasLtMatmulDesc_t matmul_ptr, const_matmul_ptr;
typedef cublasLtMatmulPreference_t preference_ptr, const_preference_ptr;
typedef cublasLtMatrixTransformDesc_t transform_ptr, const_transform_ptr;
typedef cublasLtEmulationDesc_t emulation_ptr, const_emulation_ptr;
typedef cublasLtMatmulAlgo_t *algo_ptr;
typedef const cublasLtMatmulAlgo_t *const_algo_ptr;
ATTRIBUTES(cublasLtMatrixLayout, layout_ptr, cublasLtMatrixLayoutAttribute_t, layout_fields)
ATTRIBUTES(cublasLtMatmulDesc, matmul_ptr, cublasLtMatmulDescAttributes_t, matmul_fields)
ATTRIBUTES(cublasLtMatmulPreference, preference_ptr, cublasLtMatmulPreferenceAttributes_t,
           preference_fields)
ATTRIBUTES(cublasLtMatrixTransformDesc, transform_ptr, cublasLtMatrixTransformDescAttributes_t,
           transform_fields)
ATTRIBUTES(cublasLtEmulationDesc, emulation_ptr, cublasLtEmulationDescAttributes_t,
           emulation_fields)
ATTRIBUTES(cublasLtMatmulAlgoConfig, algo_ptr, cublasLtMatmulAlgoConfigAttributes_t, algo_fields)

/* Puts a descriptor's first contents into memory of `size` bytes that the program gives. */
static cublasStatus_t init(void *memory, size_t size, size_t opaque, const void *first, size_t bytes)
{
    SG_BLAS_NEED(memory);
    if (size < opaque) {
        return CUBLAS_STATUS_ALLOC_FAILED;
    }
    memset(memory, 0, opaque);
    memcpy(memory, first, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t matLayout, size_t size,
                                                 cudaDataType type, uint64_t rows, uint64_t cols,
                                                 int64_t ld)
{
    struct sg_lt_layout d = {
        .type = (uint32_t)type, .rows = rows, .cols = cols, .ld = ld, .batch_count = 1};
    return init(matLayout, size, sizeof *matLayout, &d, sizeof d);
}

static int32_t default_scale(cublasComputeType_t compute)
{
    switch (compute) {
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC:
        return CUDA_R_16F;
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
        return CUDA_R_64F;
    case CUBLAS_COMPUTE_32I:
    case CUBLAS_COMPUTE_32I_PEDANTIC:
        return CUDA_R_32I;
    default:
        return CUDA_R_32F;
    }
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t matmulDesc, size_t size,
                                               cublasComputeType_t computeType,
                                               cudaDataType_t scaleType)
{
    struct sg_lt_matmul d = {.compute_type = (int32_t)computeType,
                             .scale_type = (int32_t)scaleType,
                             .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
                             .fill_mode = CUBLAS_FILL_MODE_FULL,
                             .aux_type = -1,
                             .bias_type = -1};
    if ((int)scaleType < 0) {
        d.scale_type = default_scale(computeType);
    }
    return init(matmulDesc, size, sizeof *matmulDesc, &d, sizeof d);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t pref, size_t size)
{
    struct sg_lt_preference d = {.search_mode = CUBLASLT_SEARCH_BEST_FIT,
                                 .reduction_mask = CUBLASLT_REDUCTION_SCHEME_MASK,
                                 .impl_mask = UINT64_MAX,
                                 .align_a = 256,
                                 .align_b = 256,
                                 .align_c = 256,
                                 .align_d = 256};
    return init(pref, size, sizeof *pref, &d, sizeof d);
}

cublasStatus_t cublasLtMatrixTransformDescInit_internal(cublasLtMatrixTransformDesc_t transformDesc,
                                                        size_t size, cudaDataType scaleType)
{
    struct sg_lt_transform d = {.scale_type = (int32_t)scaleType};
    return init(transformDesc, size, sizeof *transformDesc, &d, sizeof d);
}

cublasStatus_t cublasLtEmulationDescInit_internal(cublasLtEmulationDesc_t emulationDesc,
                                                  size_t size)
{
    struct sg_lt_emulation d = {.special_values = 0xffff};
    return init(emulationDesc, size, sizeof *emulationDesc, &d, sizeof d);
}

/* Create and Destroy over Init; `params` are Create's own, `args` go to Init. */
#define UNPACK(...) __VA_ARGS__
#define LIFE(name, handle, params, args)                                                           \
    cublasStatus_t name##Create(handle *desc UNPACK params)                                        \
    {                                                                                              \
        SG_BLAS_NEED(desc);                                                                        \
        handle made = malloc(sizeof *made);                                                        \
        if (!made) {                                                                               \
            return CUBLAS_STATUS_ALLOC_FAILED;                                                     \
        }                                                                                          \
        (void)name##Init_internal(made, sizeof *made UNPACK args); /* the size is right */         \
        *desc = made;                                                                              \
        return CUBLAS_STATUS_SUCCESS;                                                              \
    }                                                                                              \
    cublasStatus_t name##Destroy(handle desc)                                                      \
    {                                                                                              \
        free(desc);                                                                                \
        return CUBLAS_STATUS_SUCCESS;                                                              \
    }
LIFE(cublasLtMatrixLayout, cublasLtMatrixLayout_t,
     (, cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld), (, type, rows, cols, ld))
LIFE(cublasLtMatmulDesc, cublasLtMatmulDesc_t,
     (, cublasComputeType_t computeType, cudaDataType_t scaleType), (, computeType, scaleType))
LIFE(cublasLtMatmulPreference, cublasLtMatmulPreference_t, (), ())
LIFE(cublasLtMatrixTransformDesc, cublasLtMatrixTransformDesc_t, (, cudaDataType scaleType),
     (, scaleType))
LIFE(cublasLtEmulationDesc, cublasLtEmulationDesc_t, (), ())
