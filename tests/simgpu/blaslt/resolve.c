/* What a matmul's descriptors say, as the kernel takes it. */
#include "lt.h"

#include <stdio.h>

static cublasStatus_t refuse(const char *what, long long value)
{
    fprintf(stderr, "libcublasLt (simulated): %s %lld is not supported\n", what, value);
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

/* Elements from row to row and from column to column of op(matrix). */
static struct sg_blas_matrix strides(const struct sg_lt_layout *l, int transposed)
{
    int by_rows = (l->order == CUBLASLT_ORDER_ROW) != transposed;
    return by_rows ? (struct sg_blas_matrix){l->ld, 1, l->batch_offset}
                   : (struct sg_blas_matrix){1, l->ld, l->batch_offset};
}

static cublasStatus_t check_layout(const struct sg_lt_layout *l)
{
    if (l->order != CUBLASLT_ORDER_COL && l->order != CUBLASLT_ORDER_ROW) {
        return refuse("memory order", l->order);
    }
    if (l->batch_mode != CUBLASLT_BATCH_MODE_STRIDED) {
        return refuse("batch mode", l->batch_mode);
    }
    if (l->plane_offset) {
        return refuse("plane offset", l->plane_offset);
    }
    uint64_t run = l->order == CUBLASLT_ORDER_ROW ? l->cols : l->rows;
    SG_BLAS_NEED(l->rows <= INT32_MAX && l->cols <= INT32_MAX && l->batch_count >= 1);
    SG_BLAS_NEED(l->ld >= 0 && (uint64_t)l->ld >= run && l->ld <= INT32_MAX);
    return CUBLAS_STATUS_SUCCESS;
}

/* The parts of the operation's descriptor that no kernel of ours computes. */
static cublasStatus_t check_operation(const struct sg_lt_matmul *op)
{
    if (op->pointer_mode != CUBLASLT_POINTER_MODE_HOST &&
        op->pointer_mode != CUBLASLT_POINTER_MODE_DEVICE) {
        return refuse("pointer mode", op->pointer_mode);
    }
    if (op->a_scale || op->b_scale || op->c_scale || op->d_scale || op->amax_d || op->aux_scale ||
        op->aux_amax || op->d_out_scale) {
        return refuse("a scale factor or a maximum with compute type", op->compute_type);
    }
    if (op->trans_c != CUBLAS_OP_N) {
        return refuse("transposition of C", op->trans_c);
    }
    if (op->fill_mode != CUBLAS_FILL_MODE_FULL) {
        return refuse("fill mode", op->fill_mode);
    }
    SG_BLAS_NEED((unsigned)op->trans_a <= CUBLAS_OP_C && (unsigned)op->trans_b <= CUBLAS_OP_C);
    return CUBLAS_STATUS_SUCCESS;
}

static int epilogue_flags(uint32_t epilogue)
{
    static const struct {
        uint32_t theirs;
        int ours;
    } rows[] = {
        {CUBLASLT_EPILOGUE_DEFAULT, 0},
        {CUBLASLT_EPILOGUE_RELU, SG_BLAS_RELU},
        {CUBLASLT_EPILOGUE_RELU_AUX, SG_BLAS_RELU | SG_BLAS_AUX},
        {CUBLASLT_EPILOGUE_BIAS, SG_BLAS_BIAS},
        {CUBLASLT_EPILOGUE_RELU_BIAS, SG_BLAS_RELU | SG_BLAS_BIAS},
        {CUBLASLT_EPILOGUE_RELU_AUX_BIAS, SG_BLAS_RELU | SG_BLAS_AUX | SG_BLAS_BIAS},
        {CUBLASLT_EPILOGUE_DRELU, SG_BLAS_DRELU},
        {CUBLASLT_EPILOGUE_DRELU_BGRAD, SG_BLAS_DRELU | SG_BLAS_BIAS_GRAD},
        {CUBLASLT_EPILOGUE_GELU, SG_BLAS_GELU},
        {CUBLASLT_EPILOGUE_GELU_AUX, SG_BLAS_GELU | SG_BLAS_AUX},
        {CUBLASLT_EPILOGUE_GELU_BIAS, SG_BLAS_GELU | SG_BLAS_BIAS},
        {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, SG_BLAS_GELU | SG_BLAS_AUX | SG_BLAS_BIAS},
        {CUBLASLT_EPILOGUE_DGELU, SG_BLAS_DGELU},
        {CUBLASLT_EPILOGUE_DGELU_BGRAD, SG_BLAS_DGELU | SG_BLAS_BIAS_GRAD},
        {CUBLASLT_EPILOGUE_BGRADA, SG_BLAS_SUM_A},
        {CUBLASLT_EPILOGUE_BGRADB, SG_BLAS_SUM_B},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].theirs == epilogue) {
            return rows[i].ours;
        }
    }
    return -1;
}

/* The type that an optional attribute names, else the result's. */
static cublasStatus_t side_type(const char *what, int32_t type, int32_t fallback, int32_t *out)
{
    enum sg_number n;
    if (type == -1) {
        *out = fallback;
        return CUBLAS_STATUS_SUCCESS;
    }
    if (!sg_blas_number((cudaDataType)type, &n)) {
        return refuse(what, type);
    }
    *out = (int32_t)n;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t resolve_epilogue(const struct sg_lt_matmul *op, struct sg_blas_gemm_args *g)
{
    int flags = epilogue_flags(op->epilogue);
    if (flags < 0 || (flags && g->type_ab == SG_F64)) {
        return refuse("epilogue", op->epilogue);
    }
    int gradient = flags & (SG_BLAS_BIAS_GRAD | SG_BLAS_SUM_A | SG_BLAS_SUM_B);
    int bits = flags & (SG_BLAS_RELU | SG_BLAS_DRELU);
    g->epilogue = flags;
    g->bias_batch = op->bias_batch;
    cublasStatus_t s = side_type("bias type", op->bias_type, g->type_d, &g->type_bias);
    if (s == CUBLAS_STATUS_SUCCESS) {
        s = side_type("type of the auxiliary data", op->aux_type, g->type_d, &g->type_aux);
    }
    if (s != CUBLAS_STATUS_SUCCESS) {
        return s;
    }
    if (gradient && g->batch > 1 && !op->bias_batch) {
        return refuse("one bias gradient of a batch of", g->batch);
    }
    if (flags & (SG_BLAS_AUX | SG_BLAS_DRELU | SG_BLAS_DGELU)) {
        g->aux_ld = op->aux_ld;
        g->aux_batch = op->aux_batch;
        int64_t unit = bits ? 128 : 8;
        SG_BLAS_NEED(op->aux_ld >= g->m && op->aux_ld % unit == 0 && op->aux_batch % unit == 0);
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t sg_lt_resolve(const struct sg_blas_core *core, const struct sg_lt_matmul *op,
                             const struct sg_lt_layout *a, const struct sg_lt_layout *b,
                             const struct sg_lt_layout *c, const struct sg_lt_layout *d,
                             struct sg_blas_gemm_args *out)
{
    const struct sg_lt_layout *const layouts[] = {a, b, c, d};
    SG_BLAS_NEED(op && a && b && c && d);
    cublasStatus_t s = check_operation(op);
    for (int i = 0; i < 4 && s == CUBLAS_STATUS_SUCCESS; i++) {
        s = check_layout(layouts[i]);
        if (s == CUBLAS_STATUS_SUCCESS && layouts[i]->batch_count != d->batch_count) {
            s = CUBLAS_STATUS_INVALID_VALUE;
        }
    }
    if (s != CUBLAS_STATUS_SUCCESS) {
        return s;
    }
    struct sg_blas_gemm_args g = {0};
    if (c->type != d->type ||
        !sg_blas_gemm_types(core, (cudaDataType)a->type, (cudaDataType)b->type,
                            (cudaDataType)d->type, (cublasComputeType_t)op->compute_type, &g)) {
        return sg_blas_refuse_types("cublasLtMatmul", (cudaDataType)a->type, (cudaDataType)b->type,
                                    (cudaDataType)d->type);
    }
    enum sg_number scale;
    if (!sg_blas_number((cudaDataType)op->scale_type, &scale)) {
        return refuse("scale type", op->scale_type);
    }
    g.type_scale = (int32_t)scale;
    g.type_d = g.type_c;
    int ta = op->trans_a != CUBLAS_OP_N, tb = op->trans_b != CUBLAS_OP_N;
    uint64_t k = ta ? a->rows : a->cols;
    SG_BLAS_NEED((ta ? a->cols : a->rows) == d->rows && (tb ? b->rows : b->cols) == d->cols &&
                 (tb ? b->cols : b->rows) == k && c->rows == d->rows && c->cols == d->cols);
    g.m = (int32_t)d->rows;
    g.n = (int32_t)d->cols;
    g.k = (int32_t)k;
    g.batch = d->batch_count;
    g.ma = strides(a, ta);
    g.mb = strides(b, tb);
    g.mc = strides(c, 0);
    g.md = strides(d, 0);
    s = resolve_epilogue(op, &g);
    if (s == CUBLAS_STATUS_SUCCESS) {
        *out = g;
    }
    return s;
}
