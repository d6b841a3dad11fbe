/* Handles, the choice of an algorithm, and the product itself.
 *
 * There is one algorithm. Like cuBLASLt's it splits k where the tiles of the result do not fill the card,
 * for which it needs a workspace; the heuristic says how large. */
#include "lt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TILE = 128, SPLIT_MAX = 8, SPLIT_MIN_K = 1024 };

static struct sg_client_image image = {.image = &sg_blas_image};

cublasStatus_t cublasLtCreate(cublasLtHandle_t *lightHandle)
{
    SG_BLAS_NEED(lightHandle);
    struct cublasLtContext h;
    cublasStatus_t s = sg_blas_core_init(&h.core);
    if (s != CUBLAS_STATUS_SUCCESS) {
        return s;
    }
    cublasLtHandle_t made = malloc(sizeof *made);
    if (!made) {
        return CUBLAS_STATUS_ALLOC_FAILED;
    }
    *made = h;
    *lightHandle = made;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t lightHandle)
{
    SG_BLAS_HANDLE(lightHandle);
    free(lightHandle);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- versions and texts ---- */

size_t cublasLtGetVersion(void)
{
#if SG_CUBLAS_MAJOR == CUBLAS_VER_MAJOR
    return CUBLAS_VERSION;
#else
    return SG_CUBLAS_MAJOR * 10000 + 900;
#endif
}

size_t cublasLtGetCudartVersion(void)
{
    return SG_CUBLAS_MAJOR * 1000;
}

cublasStatus_t cublasLtGetProperty(libraryPropertyType type, int *value)
{
    int version = (int)cublasLtGetVersion();
    SG_BLAS_NEED(value && (unsigned)type < 3);
    *value = type == MAJOR_VERSION   ? version / 10000
             : type == MINOR_VERSION ? version / 100 % 100
                                     : version % 100;
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    return sg_blas_status_name(status);
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return sg_blas_status_text(status);
}

/* ---- the choice ---- */

static int64_t tiles(const struct sg_blas_gemm_args *g)
{
    return (int64_t)((g->m + TILE - 1) / TILE) * ((g->n + TILE - 1) / TILE) * g->batch;
}

size_t sg_lt_split_bytes(const struct sg_blas_gemm_args *g, int parts)
{
    return parts > 1 ? (size_t)parts * (size_t)g->m * (size_t)g->n * (size_t)g->batch * sizeof(float)
                     : 0;
}

int sg_lt_split(const struct sg_blas_core *core, const struct sg_blas_gemm_args *g, size_t max_bytes)
{
    int parts = 1;
    while (2 * parts <= SPLIT_MAX && g->k / (2 * parts) >= SPLIT_MIN_K &&
           tiles(g) * 2 * parts <= core->card.sms &&
           sg_lt_split_bytes(g, 2 * parts) <= max_bytes) {
        parts *= 2;
    }
    return parts;
}

uint32_t sg_lt_types(cudaDataType_t a, cudaDataType_t c, cudaDataType_t d)
{
    return 1 + ((uint32_t)a & 0xff) + (((uint32_t)c & 0xff) << 8) + (((uint32_t)d & 0xff) << 16);
}

static struct sg_lt_algo algorithm(int parts, uint32_t types)
{
    return (struct sg_lt_algo){.id = SG_LT_ALGO,
                               .split_k = parts,
                               .tile = CUBLASLT_MATMUL_TILE_128x128,
                               .stages = CUBLASLT_MATMUL_STAGES_32x3,
                               .reduction = parts > 1 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                                                      : CUBLASLT_REDUCTION_SCHEME_NONE,
                               .types = types};
}

/* The descriptors, which lie in the program's structures. */
#define OP(p)   ((const struct sg_lt_matmul *)(const void *)(p))
#define MAT(p)  ((const struct sg_lt_layout *)(const void *)(p))
#define ALGO(p) ((const struct sg_lt_algo *)(const void *)(p))

static void report(const struct sg_blas_core *core, const struct sg_blas_gemm_args *g, int parts,
                   cublasLtMatmulHeuristicResult_t *out)
{
    out->workspaceSize = sg_lt_split_bytes(g, parts);
    out->state = CUBLAS_STATUS_SUCCESS;
    out->wavesCount = (float)(tiles(g) * parts) / (float)(core->card.sms > 0 ? core->card.sms : 1);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t operationDesc, cublasLtMatrixLayout_t Adesc,
    cublasLtMatrixLayout_t Bdesc, cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
    cublasLtMatmulPreference_t preference, int requestedAlgoCount,
    cublasLtMatmulHeuristicResult_t heuristicResultsArray[], int *returnAlgoCount)
{
    SG_BLAS_HANDLE(lightHandle);
    SG_BLAS_NEED(preference && heuristicResultsArray && returnAlgoCount && requestedAlgoCount > 0);
    const struct sg_lt_preference *pref = (const void *)preference;
    struct sg_blas_gemm_args g;
    cublasStatus_t s = sg_lt_resolve(&lightHandle->core, OP(operationDesc), MAT(Adesc), MAT(Bdesc),
                                     MAT(Cdesc), MAT(Ddesc), &g);
    if (s != CUBLAS_STATUS_SUCCESS) {
        return s;
    }
    size_t most = pref->reduction_mask & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                      ? (size_t)pref->max_workspace
                      : 0;
    int parts = sg_lt_split(&lightHandle->core, &g, most);
    cublasLtMatmulHeuristicResult_t *out = heuristicResultsArray;
    struct sg_lt_algo algo =
        algorithm(parts, sg_lt_types((cudaDataType_t)MAT(Adesc)->type,
                                     (cudaDataType_t)MAT(Cdesc)->type,
                                     (cudaDataType_t)MAT(Ddesc)->type));
    memset(out, 0, sizeof *out);
    memcpy(&out->algo, &algo, sizeof algo);
    report(&lightHandle->core, &g, parts, out);
    *returnAlgoCount = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetIds(cublasLtHandle_t lightHandle,
                                        cublasComputeType_t computeType, cudaDataType_t scaleType,
                                        cudaDataType_t Atype, cudaDataType_t Btype,
                                        cudaDataType_t Ctype, cudaDataType_t Dtype,
                                        int requestedAlgoCount, int algoIdsArray[],
                                        int *returnAlgoCount)
{
    struct sg_blas_gemm_args g;
    SG_BLAS_HANDLE(lightHandle);
    SG_BLAS_NEED(algoIdsArray && returnAlgoCount && requestedAlgoCount > 0);
    *returnAlgoCount =
        Ctype == Dtype &&
        sg_blas_gemm_types(&lightHandle->core, Atype, Btype, Ctype, computeType, &g);
    if (*returnAlgoCount) {
        algoIdsArray[0] = SG_LT_ALGO;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t lightHandle, cublasComputeType_t computeType,
                                      cudaDataType_t scaleType, cudaDataType_t Atype,
                                      cudaDataType_t Btype, cudaDataType_t Ctype,
                                      cudaDataType_t Dtype, int algoId, cublasLtMatmulAlgo_t *algo)
{
    struct sg_blas_gemm_args g;
    SG_BLAS_HANDLE(lightHandle);
    SG_BLAS_NEED(algo && algoId == SG_LT_ALGO);
    if (Ctype != Dtype ||
        !sg_blas_gemm_types(&lightHandle->core, Atype, Btype, Ctype, computeType, &g)) {
        return sg_blas_refuse_types(__func__, Atype, Btype, Ctype);
    }
    struct sg_lt_algo a = algorithm(1, sg_lt_types(Atype, Ctype, Dtype));
    memset(algo, 0, sizeof *algo);
    memcpy(algo, &a, sizeof a);
    return CUBLAS_STATUS_SUCCESS;
}

/* The algorithm computes this product, in the parts of k that it is configured for. */
static cublasStatus_t check_algo(const struct sg_lt_algo *algo, const struct sg_lt_layout *a,
                                 const struct sg_lt_layout *c, const struct sg_lt_layout *d)
{
    SG_BLAS_NEED(algo->id == SG_LT_ALGO && algo->types == sg_lt_types((cudaDataType_t)a->type,
                                                                      (cudaDataType_t)c->type,
                                                                      (cudaDataType_t)d->type));
    SG_BLAS_NEED(algo->split_k >= 1 && algo->split_k <= SPLIT_MAX &&
                 (algo->split_k > 1) == (algo->reduction != CUBLASLT_REDUCTION_SCHEME_NONE));
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t lightHandle,
                                       cublasLtMatmulDesc_t operationDesc,
                                       cublasLtMatrixLayout_t Adesc, cublasLtMatrixLayout_t Bdesc,
                                       cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    struct sg_blas_gemm_args g;
    SG_BLAS_HANDLE(lightHandle);
    SG_BLAS_NEED(algo && result);
    cublasStatus_t s = sg_lt_resolve(&lightHandle->core, OP(operationDesc), MAT(Adesc), MAT(Bdesc),
                                     MAT(Cdesc), MAT(Ddesc), &g);
    if (s == CUBLAS_STATUS_SUCCESS) {
        s = check_algo(ALGO(algo), MAT(Adesc), MAT(Cdesc), MAT(Ddesc));
    }
    if (s == CUBLAS_STATUS_SUCCESS) {
        report(&lightHandle->core, &g, ALGO(algo)->split_k, result);
    }
    return s;
}

/* One value, or the list of values, of a capability. */
#define ANSWER(type, ...)                                                                          \
    do {                                                                                           \
        static const type answer_[] = {__VA_ARGS__};                                               \
        value = answer_;                                                                           \
        bytes = sizeof answer_;                                                                    \
    } while (0)

cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                 cublasLtMatmulAlgoCapAttributes_t attr, void *buf,
                                                 size_t sizeInBytes, size_t *sizeWritten)
{
    const void *value = NULL;
    size_t bytes = 0;
    SG_BLAS_NEED(algo && ALGO(algo)->id == SG_LT_ALGO && (sizeInBytes ? buf : (void *)sizeWritten));
    switch ((int)attr) {
    case CUBLASLT_ALGO_CAP_SPLITK_SUPPORT:
    case CUBLASLT_ALGO_CAP_STRIDED_BATCH_SUPPORT:
    case CUBLASLT_ALGO_CAP_OUT_OF_PLACE_RESULT_SUPPORT:
        ANSWER(int32_t, 1);
        break;
    case CUBLASLT_ALGO_CAP_UPLO_SUPPORT:
    case CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX:
    case CUBLASLT_ALGO_CAP_CUSTOM_MEMORY_ORDER:
    case CUBLASLT_ALGO_CAP_CTA_SWIZZLING_SUPPORT:
    case CUBLASLT_ALGO_CAP_LD_NEGATIVE:
    case CUBLASLT_ALGO_CAP_POINTER_ARRAY_BATCH_SUPPORT:
    case CUBLASLT_ALGO_CAP_FLOATING_POINT_EMULATION_SUPPORT:
        ANSWER(int32_t, 0);
        break;
    case CUBLASLT_ALGO_CAP_REDUCTION_SCHEME_MASK:
        ANSWER(uint32_t, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
        break;
    case CUBLASLT_ALGO_CAP_TILE_IDS:
        ANSWER(uint32_t, CUBLASLT_MATMUL_TILE_128x128);
        break;
    case CUBLASLT_ALGO_CAP_STAGES_IDS:
        ANSWER(uint32_t, CUBLASLT_MATMUL_STAGES_32x3);
        break;
    case CUBLASLT_ALGO_CAP_POINTER_MODE_MASK:
        ANSWER(uint32_t, CUBLASLT_POINTER_MODE_MASK_HOST | CUBLASLT_POINTER_MODE_MASK_DEVICE);
        break;
    case CUBLASLT_ALGO_CAP_EPILOGUE_MASK:
        ANSWER(uint32_t, 1023); /* all that the header declares */
        break;
    case CUBLASLT_ALGO_CAP_NUMERICAL_IMPL_FLAGS:
        ANSWER(uint64_t, CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA |
                             CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F);
        break;
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES:
        ANSWER(uint32_t, 2);
        break;
    default:
        fprintf(stderr, "libcublasLt (simulated): %s does not know capability %d\n", __func__,
                (int)attr);
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    SG_BLAS_NEED(!sizeInBytes || sizeInBytes >= bytes);
    if (sizeInBytes) {
        memcpy(buf, value, bytes);
    }
    if (sizeWritten) {
        *sizeWritten = bytes;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- the product ---- */

cublasStatus_t cublasLtMatmul(cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t computeDesc,
                              const void *alpha, const void *A, cublasLtMatrixLayout_t Adesc,
                              const void *B, cublasLtMatrixLayout_t Bdesc, const void *beta,
                              const void *C, cublasLtMatrixLayout_t Cdesc, void *D,
                              cublasLtMatrixLayout_t Ddesc, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspaceSizeInBytes, cudaStream_t stream)
{
    struct sg_blas_gemm_args g;
    SG_BLAS_HANDLE(lightHandle);
    SG_BLAS_NEED(alpha && beta && A && B && D);
    const struct sg_blas_core *core = &lightHandle->core;
    const struct sg_lt_matmul *op = OP(computeDesc);
    cublasStatus_t s =
        sg_lt_resolve(core, op, MAT(Adesc), MAT(Bdesc), MAT(Cdesc), MAT(Ddesc), &g);
    if (s == CUBLAS_STATUS_SUCCESS && algo) {
        s = check_algo(ALGO(algo), MAT(Adesc), MAT(Cdesc), MAT(Ddesc));
    }
    if (s != CUBLAS_STATUS_SUCCESS || g.m == 0 || g.n == 0) {
        return s;
    }
    int parts = algo ? ALGO(algo)->split_k
                     : sg_lt_split(core, &g, workspace ? workspaceSizeInBytes : 0);
    g.work_bytes = (int64_t)sg_lt_split_bytes(&g, parts);
    SG_BLAS_NEED(!g.work_bytes || (workspace && (size_t)g.work_bytes <= workspaceSizeInBytes));
    g.work = g.work_bytes ? sg_addr(workspace) : 0;
    g.a = sg_addr(A);
    g.b = sg_addr(B);
    g.c = sg_addr(C);
    g.d = sg_addr(D);
    g.bias = op->bias;
    g.aux = op->aux;
    SG_BLAS_NEED(!(g.epilogue & (SG_BLAS_BIAS | SG_BLAS_BIAS_GRAD | SG_BLAS_SUM_A | SG_BLAS_SUM_B)) ||
                 g.bias);
    SG_BLAS_NEED(!(g.epilogue & (SG_BLAS_AUX | SG_BLAS_DRELU | SG_BLAS_DGELU)) || g.aux);
    if (op->pointer_mode == CUBLASLT_POINTER_MODE_DEVICE) {
        g.alpha = sg_addr(alpha);
        g.beta = sg_addr(beta);
    } else {
        g.alpha_value = sg_number_load((enum sg_number)g.type_scale, alpha, 0);
        g.beta_value = sg_number_load((enum sg_number)g.type_scale, beta, 0);
    }
    SG_BLAS_NEED(C || (!g.beta && g.beta_value == 0));
    return sg_blas_status(sg_client_launch(core->drv, &image, (unsigned)sg_blas_gemm_kernel(&g),
                                           stream, &g, (double)g.m * g.n * g.batch / 8));
}

/* ---- changes of layout ---- */

cublasStatus_t cublasLtMatrixTransform(cublasLtHandle_t lightHandle,
                                       cublasLtMatrixTransformDesc_t transformDesc,
                                       const void *alpha, const void *A,
                                       cublasLtMatrixLayout_t Adesc, const void *beta,
                                       const void *B, cublasLtMatrixLayout_t Bdesc, void *C,
                                       cublasLtMatrixLayout_t Cdesc, cudaStream_t stream)
{
    SG_BLAS_HANDLE(lightHandle);
    SG_BLAS_NEED(transformDesc && alpha && A && Adesc && C && Cdesc && (!B || (Bdesc && beta)));
    const struct sg_lt_transform *t = (const void *)transformDesc;
    const struct sg_lt_layout *a = MAT(Adesc), *b = B ? MAT(Bdesc) : a, *c = MAT(Cdesc);
    const struct sg_lt_layout *const all[] = {a, b, c};
    for (int i = 0; i < 3; i++) {
        if (all[i]->type != CUDA_R_32F || all[i]->batch_count != 1 || all[i]->ld > INT32_MAX ||
            (all[i]->order != CUBLASLT_ORDER_COL && all[i]->order != CUBLASLT_ORDER_ROW)) {
            fprintf(stderr,
                    "libcublasLt (simulated): cublasLtMatrixTransform moves single precision in "
                    "columns or rows, without batches\n");
            return CUBLAS_STATUS_NOT_SUPPORTED;
        }
    }
    /* the same sum with all matrices transposed writes a result in rows */
    int by_rows = c->order == CUBLASLT_ORDER_ROW;
    int ta = (t->trans_a != CUBLAS_OP_N) ^ (a->order == CUBLASLT_ORDER_ROW) ^ by_rows;
    int tb = (t->trans_b != CUBLAS_OP_N) ^ (b->order == CUBLASLT_ORDER_ROW) ^ by_rows;
    struct sg_blas_geam_args g = {.a = sg_addr(A),
                                  .b = sg_addr(B ? B : A),
                                  .c = sg_addr(C),
                                  .m = (int32_t)(by_rows ? c->cols : c->rows),
                                  .n = (int32_t)(by_rows ? c->rows : c->cols),
                                  .lda = (int32_t)a->ld,
                                  .ldb = (int32_t)b->ld,
                                  .ldc = (int32_t)c->ld,
                                  .trans_a = ta,
                                  .trans_b = tb};
    SG_BLAS_NEED((t->trans_a != CUBLAS_OP_N ? a->cols : a->rows) == c->rows &&
                 (t->trans_a != CUBLAS_OP_N ? a->rows : a->cols) == c->cols);
    SG_BLAS_NEED(!B || ((t->trans_b != CUBLAS_OP_N ? b->cols : b->rows) == c->rows &&
                        (t->trans_b != CUBLAS_OP_N ? b->rows : b->cols) == c->cols));
    if (t->pointer_mode == CUBLASLT_POINTER_MODE_DEVICE) {
        g.alpha = sg_addr(alpha);
        g.beta = B ? sg_addr(beta) : 0;
    } else {
        g.alpha_value = *(const float *)alpha;
        g.beta_value = B ? *(const float *)beta : 0;
    }
    return sg_blas_status(sg_client_launch(lightHandle->core.drv, &image, SG_BK_GEAM, stream, &g,
                                           (double)g.m * g.n));
}
