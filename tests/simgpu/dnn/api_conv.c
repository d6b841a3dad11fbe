/* Convolution calls: checks, algorithm lists, workspaces, launches. */
#include "dnn.h"

#include <stdlib.h>
#include <string.h>

static cudnnStatus_t filter_tensor(const char *what, cudnnFilterDescriptor_t d,
                                   struct sg_tensor *out)
{
    SG_NEED(d && d->ndims > 0, "%s: the filter descriptor is null or was never set", what);
    struct cudnnTensorStruct t;
    const int dims = d->ndims;
    if (cudnnSetTensorNdDescriptorEx(&t, d->format, d->type, dims, d->dim) !=
        CUDNN_STATUS_SUCCESS) {
        return CUDNN_STATUS_BAD_PARAM;
    }
    return sg_dnn_tensor(what, &t, out);
}

/* Everything a convolution's parameter block says of shapes; checks that they agree. */
static cudnnStatus_t conv_shape(const char *what, enum sg_conv_dir dir, cudnnTensorDescriptor_t x,
                                cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t conv,
                                cudnnTensorDescriptor_t y, struct sg_conv_shape *s)
{
    int dim[CUDNN_DIM_MAX];
    *s = (struct sg_conv_shape){.dir = (int32_t)dir, .alpha = 1.0f};
    SG_NEED(conv && conv->ndims > 0, "%s: the convolution descriptor is null or was never set",
            what);
    SG_TRY(sg_dnn_tensor(what, x, &s->x));
    SG_TRY(filter_tensor(what, w, &s->w));
    SG_TRY(sg_dnn_tensor(what, y, &s->y));
    SG_TRY(cudnnGetConvolutionNdForwardOutputDim(conv, x, w, CUDNN_DIM_MAX, dim));
    SG_NEED(y->ndims == x->ndims && memcmp(dim, y->dim, (size_t)x->ndims * sizeof(int)) == 0,
            "%s: the output descriptor does not have the convolution's output dimensions", what);
    SG_NEED(x->dim[1] == w->dim[1] * conv->groups && w->dim[0] % conv->groups == 0,
            "%s: %d input channels, %d channels in a filter, %d groups, %d filters", what,
            x->dim[1], w->dim[1], conv->groups, w->dim[0]);
    for (int d = 0; d < 3; d++) {
        int from = d - (3 - conv->ndims);
        s->pad[d] = from >= 0 ? conv->pad[from] : 0;
        s->stride[d] = from >= 0 ? conv->stride[from] : 1;
        s->dilation[d] = from >= 0 ? conv->dilation[from] : 1;
    }
    s->groups = conv->groups;
    s->flip = conv->mode == CUDNN_CONVOLUTION;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- choice of an algorithm ---- */

/* What we expect of the classes when ranking algorithms without running them: share of the peak. */
static double expected_seconds(const struct sg_card *card, const struct sg_conv_model *m)
{
    static const double share_of[SIMGPU_CLASS_COUNT] = {[SIMGPU_CLASS_CONV_FWD] = 0.7,
                                                        [SIMGPU_CLASS_CONV_BWD_DATA] = 0.5,
                                                        [SIMGPU_CLASS_CONV_BWD_FILTER] = 0.45,
                                                        [SIMGPU_CLASS_CONV_FAST] = 0.7};
    double share = share_of[m->kclass];
    double arithmetic = m->flops / (share * card->flops), traffic = m->bytes / (0.7 * card->bytes);
    return arithmetic > traffic ? arithmetic : traffic;
}

/* cuDNN 9 runs on no card before compute capability 6. On those the simulated one offers the
 * algorithms that cuDNN v4 had in their day (no Winograd, no tiled transforms for the filter's
 * gradient): the published times that their presets are calibrated with are of that version. */
static int of_the_day(const struct sg_card *card, enum sg_conv_dir dir, int algo)
{
    static const int last_of_v4[] = {CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING,
                                     CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING,
                                     CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3};
    return card->major >= 6 || algo <= last_of_v4[dir];
}

static struct sg_conv_model model_of(const struct sg_card *card, const struct sg_conv_shape *s,
                                     int algo)
{
    enum sg_conv_dir dir = (enum sg_conv_dir)s->dir;
    return of_the_day(card, dir, algo) ? sg_conv_model(s, dir, algo) : (struct sg_conv_model){0};
}

/* The three perf structures have one layout; we fill the forward one and copy. */
typedef cudnnConvolutionFwdAlgoPerf_t perf_t;
_Static_assert(sizeof(perf_t) == sizeof(cudnnConvolutionBwdDataAlgoPerf_t), "perf layouts differ");
_Static_assert(sizeof(perf_t) == sizeof(cudnnConvolutionBwdFilterAlgoPerf_t),
               "perf layouts differ");

enum { PERF_MAX = SG_CONV_ALGOS_MAX };

/* All algorithms with expected times; refused ones last, status NOT_SUPPORTED. Returns their
 * number. */
static int rank_algorithms(const struct sg_card *card, const struct sg_conv_shape *s,
                           perf_t out[PERF_MAX])
{
    enum sg_conv_dir dir = (enum sg_conv_dir)s->dir;
    int n = sg_conv_algo_count(dir);
    for (int i = 0; i < n; i++) {
        struct sg_conv_model m = model_of(card, s, i);
        perf_t p = {.algo = (cudnnConvolutionFwdAlgo_t)i,
                    .status = m.supported ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED,
                    .time = m.supported ? (float)(1e3 * expected_seconds(card, &m)) : -1.0f,
                    .memory = m.workspace_bytes,
                    .determinism =
                        sg_conv_deterministic(dir, i) ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC,
                    .mathType = CUDNN_DEFAULT_MATH};
        int at = i;
        while (at > 0 && p.time >= 0 && (out[at - 1].time < 0 || out[at - 1].time > p.time)) {
            out[at] = out[at - 1];
            at--;
        }
        out[at] = p;
    }
    return n;
}

int sg_conv_rank(const struct sg_card *card, const struct sg_conv_shape *s,
                 int order[SG_CONV_ALGOS_MAX])
{
    perf_t all[PERF_MAX];
    int n = rank_algorithms(card, s, all), supported = 0;
    for (int i = 0; i < n; i++) {
        if (all[i].status == CUDNN_STATUS_SUCCESS) {
            order[supported++] = (int)all[i].algo;
        }
    }
    return supported;
}

static cudnnStatus_t give_ranked(cudnnHandle_t h, const struct sg_conv_shape *s, int wanted,
                                 int *returned, void *out)
{
    perf_t all[PERF_MAX];
    SG_NEED(h && returned && out && wanted > 0, "convolution algorithms: an argument is null");
    int n = rank_algorithms(&h->card, s, all);
    n = n < wanted ? n : wanted;
    for (int i = 0; i < n; i++) {
        all[i].time = -1.0f; /* a heuristic promises an order, not times */
    }
    memcpy(out, all, (size_t)n * sizeof *all);
    *returned = n;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t workspace_size(cudnnHandle_t h, const struct sg_conv_shape *s, int algo,
                                    size_t *size)
{
    SG_NEED(h && size, "convolution workspace: an argument is null");
    struct sg_conv_model m = model_of(&h->card, s, algo);
    if (!m.supported) {
        return sg_dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED,
                             "algorithm %d does not support this convolution", algo);
    }
    *size = m.workspace_bytes;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- launches ---- */

static double conv_threads(const struct sg_conv_shape *s)
{
    const struct sg_tensor *out = s->dir == SG_CONV_FWD        ? &s->y
                                  : s->dir == SG_CONV_BWD_DATA ? &s->x
                                                               : &s->w;
    return (double)sg_count(out);
}

static cudnnStatus_t conv_prepare(const char *what, cudnnHandle_t h, struct sg_conv_shape *s,
                                  int algo, const void *ws, size_t ws_bytes)
{
    struct sg_conv_model m = model_of(&h->card, s, algo);
    if (!m.supported) {
        return sg_dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED,
                             "%s: algorithm %d does not support this shape", what, algo);
    }
    if (m.workspace_bytes > 0 && (!ws || ws_bytes < m.workspace_bytes)) {
        return sg_dnn_refuse(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT,
                             "%s: algorithm %d needs a workspace of %llu bytes, %zu were given",
                             what, algo, (unsigned long long)m.workspace_bytes, ws ? ws_bytes : 0);
    }
    s->algo = algo;
    s->workspace_bytes = m.workspace_bytes;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t conv_launch(const char *what, cudnnHandle_t h, struct sg_conv_args *a,
                                 int algo, void *ws, size_t ws_bytes, const void *alpha,
                                 const void *beta)
{
    static const enum sg_kernel_id first[] = {SG_K_CONV_FWD_0, SG_K_CONV_BWD_DATA_0,
                                              SG_K_CONV_BWD_FILTER_0};
    SG_NEED(h && alpha && beta && a->x && a->w && a->y, "%s: an argument is null", what);
    a->s.alpha = sg_dnn_scalar(alpha);
    a->s.beta = sg_dnn_scalar(beta);
    SG_TRY(conv_prepare(what, h, &a->s, algo, ws, ws_bytes));
    a->workspace = a->s.workspace_bytes ? sg_dnn_addr(ws) : 0;
    return sg_dnn_launch(h, (enum sg_kernel_id)((int)first[a->s.dir] + algo), a,
                         conv_threads(&a->s));
}

/* Runs every algorithm that fits and times it on the handle's stream, as cudnnFind* does. */
static cudnnStatus_t find_timed(cudnnHandle_t h, struct sg_conv_args *a, void *ws, size_t ws_bytes,
                                int wanted, int *returned, void *out)
{
    const float one = 1.0f, zero = 0.0f;
    perf_t all[PERF_MAX];
    SG_NEED(h && returned && out && wanted > 0, "cudnnFindConvolution*: an argument is null");
    int n = rank_algorithms(&h->card, &a->s, all);
    CUevent start, stop;
    if (h->drv->cuEventCreate(&start, 0) != CUDA_SUCCESS) {
        return CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER;
    }
    if (h->drv->cuEventCreate(&stop, 0) != CUDA_SUCCESS) {
        h->drv->cuEventDestroy(start);
        return CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER;
    }
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    for (int i = 0; i < n && status == CUDNN_STATUS_SUCCESS; i++) {
        if (all[i].status != CUDNN_STATUS_SUCCESS) {
            continue;
        }
        if (all[i].memory > ws_bytes) {
            all[i].status = CUDNN_STATUS_ALLOC_FAILED;
            all[i].time = -1.0f;
            continue;
        }
        h->drv->cuEventRecord(start, h->stream);
        status =
            conv_launch("cudnnFindConvolution*", h, a, (int)all[i].algo, ws, ws_bytes, &one, &zero);
        h->drv->cuEventRecord(stop, h->stream);
        if (status == CUDNN_STATUS_SUCCESS &&
            (h->drv->cuEventSynchronize(stop) != CUDA_SUCCESS ||
             h->drv->cuEventElapsedTime(&all[i].time, start, stop) != CUDA_SUCCESS)) {
            status = sg_dnn_refuse(CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER,
                                   "cudnnFindConvolution*: the timed run failed");
        }
    }
    h->drv->cuEventDestroy(start);
    h->drv->cuEventDestroy(stop);
    SG_TRY(status);
    for (int i = 1; i < n; i++) { /* by measured time, failed ones last */
        perf_t p = all[i];
        int at = i;
        while (at > 0 && p.time >= 0 && (all[at - 1].time < 0 || all[at - 1].time > p.time)) {
            all[at] = all[at - 1];
            at--;
        }
        all[at] = p;
    }
    n = n < wanted ? n : wanted;
    memcpy(out, all, (size_t)n * sizeof *all);
    *returned = n;
    return CUDNN_STATUS_SUCCESS;
}

/* cudnnFindConvolution* without buffers: allocates its own for the time of the call. */
static cudnnStatus_t find_alone(cudnnHandle_t h, struct sg_conv_args *a, int wanted, int *returned,
                                void *out)
{
    SG_NEED(h, "cudnnFindConvolution*: handle is null");
    size_t bytes[4] = {4 * (size_t)sg_extent(&a->s.x), 4 * (size_t)sg_extent(&a->s.w),
                       4 * (size_t)sg_extent(&a->s.y), 0};
    perf_t all[PERF_MAX];
    int n = rank_algorithms(&h->card, &a->s, all);
    for (int i = 0; i < n; i++) {
        if (all[i].status == CUDNN_STATUS_SUCCESS && all[i].memory > bytes[3]) {
            bytes[3] = all[i].memory;
        }
    }
    CUdeviceptr p[4] = {0};
    CUresult r = CUDA_SUCCESS;
    for (int i = 0; i < 4 && r == CUDA_SUCCESS; i++) {
        if (bytes[i] > 0) {
            r = h->drv->cuMemAlloc(&p[i], bytes[i]);
        }
    }
    if (r == CUDA_ERROR_OUT_OF_MEMORY && p[2] && !p[3]) {
        bytes[3] = 0; /* no room for workspaces: time the algorithms that need none */
        r = CUDA_SUCCESS;
    }
    cudnnStatus_t status;
    if (r == CUDA_SUCCESS) {
        const float zero = 0.0f;
        struct sg_fill_args fill = {.value = zero};
        const struct sg_tensor *t[3] = {&a->s.x, &a->s.w, &a->s.y};
        status = CUDNN_STATUS_SUCCESS;
        for (int i = 0; i < 3 && status == CUDNN_STATUS_SUCCESS; i++) {
            fill.y = p[i];
            fill.ty = *t[i];
            status = sg_dnn_launch(h, SG_K_SET, &fill, (double)sg_count(t[i]));
        }
        a->x = p[0];
        a->w = p[1];
        a->y = p[2];
        if (status == CUDNN_STATUS_SUCCESS) {
            status = find_timed(h, a, (void *)(uintptr_t)p[3], bytes[3], wanted, returned, out);
        }
    } else {
        status = sg_dnn_refuse(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED,
                               "cudnnFindConvolution*: no device memory for the trial");
    }
    for (int i = 0; i < 4; i++) {
        if (p[i]) {
            h->drv->cuMemFree(p[i]);
        }
    }
    return status;
}

/* ---- the three directions ---- */

#define TENSOR cudnnTensorDescriptor_t
#define FILTER cudnnFilterDescriptor_t

/* The calls of one direction, which differ in names and in what their operands are: two inputs, `a` and
 * `b`, and the result `c` in the order of the arguments, of kinds A, B and C; x, w and y are those three
 * as the convolution sees them. */
#define DIRECTION(Name, Algo, dir_, A, B, C, x, w, y)                                              \
    cudnnStatus_t cudnnConvolution##Name(                                                          \
        cudnnHandle_t handle, const void *alpha, const A aDesc, const void *a, const B bDesc,      \
        const void *b, const cudnnConvolutionDescriptor_t convDesc,                                \
        cudnnConvolution##Algo##Algo_t algo, void *workSpace, size_t workSpaceSizeInBytes,         \
        const void *beta, const C cDesc, void *c)                                                  \
    {                                                                                              \
        struct sg_conv_args args = {sg_dnn_addr(x), sg_dnn_addr(w), sg_dnn_addr(y), 0,             \
                                    {.dir = 0}};                                                   \
        SG_TRY(conv_shape(__func__, dir_, x##Desc, w##Desc, convDesc, y##Desc, &args.s));          \
        return conv_launch(__func__, handle, &args, (int)algo, workSpace, workSpaceSizeInBytes,    \
                           alpha, beta);                                                           \
    }                                                                                              \
    cudnnStatus_t cudnnGetConvolution##Name##WorkspaceSize(                                        \
        cudnnHandle_t handle, const A aDesc, const B bDesc,                                        \
        const cudnnConvolutionDescriptor_t convDesc, const C cDesc,                                \
        cudnnConvolution##Algo##Algo_t algo, size_t *size)                                         \
    {                                                                                              \
        struct sg_conv_shape s;                                                                    \
        SG_TRY(conv_shape(__func__, dir_, x##Desc, w##Desc, convDesc, y##Desc, &s));               \
        return workspace_size(handle, &s, (int)algo, size);                                        \
    }                                                                                              \
    cudnnStatus_t cudnnGetConvolution##Name##Algorithm_v7(                                         \
        cudnnHandle_t handle, const A aDesc, const B bDesc,                                        \
        const cudnnConvolutionDescriptor_t convDesc, const C cDesc, const int wanted,              \
        int *returned, cudnnConvolution##Algo##AlgoPerf_t *results)                                \
    {                                                                                              \
        struct sg_conv_shape s;                                                                    \
        SG_TRY(conv_shape(__func__, dir_, x##Desc, w##Desc, convDesc, y##Desc, &s));               \
        return give_ranked(handle, &s, wanted, returned, results);                                 \
    }                                                                                              \
    cudnnStatus_t cudnnFindConvolution##Name##Algorithm(                                           \
        cudnnHandle_t handle, const A aDesc, const B bDesc,                                        \
        const cudnnConvolutionDescriptor_t convDesc, const C cDesc, const int wanted,              \
        int *returned, cudnnConvolution##Algo##AlgoPerf_t *results)                                \
    {                                                                                              \
        struct sg_conv_args args = {0};                                                            \
        SG_TRY(conv_shape(__func__, dir_, x##Desc, w##Desc, convDesc, y##Desc, &args.s));          \
        return find_alone(handle, &args, wanted, returned, results);                               \
    }                                                                                              \
    cudnnStatus_t cudnnFindConvolution##Name##AlgorithmEx(                                         \
        cudnnHandle_t handle, const A aDesc, const void *a, const B bDesc, const void *b,          \
        const cudnnConvolutionDescriptor_t convDesc, const C cDesc, void *c, const int wanted,     \
        int *returned, cudnnConvolution##Algo##AlgoPerf_t *results, void *workSpace,               \
        size_t workSpaceSizeInBytes)                                                               \
    {                                                                                              \
        struct sg_conv_args args = {sg_dnn_addr(x), sg_dnn_addr(w), sg_dnn_addr(y), 0,             \
                                    {.dir = 0}};                                                   \
        SG_TRY(conv_shape(__func__, dir_, x##Desc, w##Desc, convDesc, y##Desc, &args.s));          \
        return find_timed(handle, &args, workSpace, workSpaceSizeInBytes, wanted, returned,        \
                          results);                                                                \
    }                                                                                              \
    cudnnStatus_t cudnnGetConvolution##Name##AlgorithmMaxCount(cudnnHandle_t handle, int *count)   \
    {                                                                                              \
        SG_NEED(count, "%s: the result pointer is null", __func__);                                \
        *count = sg_conv_algo_count(dir_);                                                         \
        return CUDNN_STATUS_SUCCESS;                                                               \
    }

DIRECTION(Forward, Fwd, SG_CONV_FWD, TENSOR, FILTER, TENSOR, a, b, c)
DIRECTION(BackwardData, BwdData, SG_CONV_BWD_DATA, FILTER, TENSOR, TENSOR, c, a, b)
DIRECTION(BackwardFilter, BwdFilter, SG_CONV_BWD_FILTER, TENSOR, TENSOR, FILTER, a, c, b)

/* ---- fused forward ---- */

cudnnStatus_t cudnnConvolutionBiasActivationForward(
    cudnnHandle_t handle, const void *alpha1, const cudnnTensorDescriptor_t xDesc, const void *x,
    const cudnnFilterDescriptor_t wDesc, const void *w, const cudnnConvolutionDescriptor_t convDesc,
    cudnnConvolutionFwdAlgo_t algo, void *workSpace, size_t workSpaceSizeInBytes,
    const void *alpha2, const cudnnTensorDescriptor_t zDesc, const void *z,
    const cudnnTensorDescriptor_t biasDesc, const void *bias,
    const cudnnActivationDescriptor_t activationDesc, const cudnnTensorDescriptor_t yDesc, void *y)
{
    struct sg_conv_fused_args a = {
        .x = sg_dnn_addr(x), .w = sg_dnn_addr(w), .y = sg_dnn_addr(y), .bias = sg_dnn_addr(bias)};
    SG_NEED(handle && alpha1 && alpha2 && x && w && y && bias && activationDesc &&
                activationDesc->set,
            "%s: an argument is null", __func__);
    SG_NEED(activationDesc->mode == CUDNN_ACTIVATION_RELU ||
                activationDesc->mode == CUDNN_ACTIVATION_IDENTITY,
            "%s: activation mode %d; RELU and IDENTITY are possible", __func__,
            (int)activationDesc->mode);
    SG_TRY(conv_shape(__func__, SG_CONV_FWD, xDesc, wDesc, convDesc, yDesc, &a.s));
    SG_TRY(sg_dnn_tensor(__func__, biasDesc, &a.biast));
    a.alpha2 = sg_dnn_scalar(alpha2);
    if (a.alpha2 != 0.0f) {
        SG_NEED(z, "%s: z is null and alpha2 is not 0", __func__);
        SG_TRY(sg_dnn_tensor(__func__, zDesc, &a.zt));
        SG_NEED(sg_dnn_same_shape(&a.zt, &a.s.y), "%s: z and y differ in shape", __func__);
        a.z = sg_dnn_addr(z);
    }
    a.s.alpha = sg_dnn_scalar(alpha1);
    struct sg_act act = sg_dnn_act(activationDesc);
    a.mode = act.mode;
    a.nan = act.nan;
    a.coef = act.coef;
    SG_TRY(conv_prepare(__func__, handle, &a.s, (int)algo, workSpace, workSpaceSizeInBytes));
    a.workspace = a.s.workspace_bytes ? sg_dnn_addr(workSpace) : 0;
    return sg_dnn_launch(handle, SG_K_CONV_FUSED, &a, conv_threads(&a.s));
}

/* ---- the gradient of the bias ---- */

cudnnStatus_t cudnnConvolutionBackwardBias(cudnnHandle_t handle, const void *alpha,
                                           const cudnnTensorDescriptor_t dyDesc, const void *dy,
                                           const void *beta, const cudnnTensorDescriptor_t dbDesc,
                                           void *db)
{
    struct sg_reduce_args a = {
        .a = sg_dnn_addr(dy), .c = sg_dnn_addr(db), .op = CUDNN_REDUCE_TENSOR_ADD};
    SG_NEED(handle && alpha && beta && dy && db, "%s: an argument is null", __func__);
    SG_TRY(sg_dnn_tensor(__func__, dyDesc, &a.ta));
    SG_TRY(sg_dnn_tensor(__func__, dbDesc, &a.tc));
    SG_NEED(a.tc.dim[1] == a.ta.dim[1] && sg_count(&a.tc) == a.tc.dim[1],
            "%s: the bias descriptor must be 1 x %lld x 1 x 1", __func__,
            (long long)a.ta.dim[1]);
    a.alpha = sg_dnn_scalar(alpha);
    a.beta = sg_dnn_scalar(beta);
    return sg_dnn_launch(handle, SG_K_BIAS_BWD, &a, (double)a.tc.dim[1] * 256);
}
