/* cuDNN's backend API, with a double of the runtime behind the doors (double.c): what an execution
 * says of its blocks. Run with the double preloaded. Figures after the slash are roles. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "backend_use.h"

static size_t (*take)(char *, size_t);
static int failures, checks;

/* The last watched call, or "" if the last execution was only launches. */
static void expect_at(int line, const char *want)
{
    static char raw[1 << 16];
    char seen[1024] = "";
    int launches = 0;
    take(raw, sizeof raw);
    for (char *l = strtok(raw, "\n"); l; l = strtok(NULL, "\n")) {
        launches += strncmp(l, "launch", 6) == 0;
        if (strncmp(l, "libcall cudnnBackendExecute ", 28) == 0)
            snprintf(seen, sizeof seen, "%s", l + 28);
    }
    checks++;
    if (strcmp(seen, want) != 0 || launches != 1) {
        failures++;
        printf("FAILED at line %d: wanted \"%s\", saw \"%s\" and %d launches\n", line, want, seen,
               launches);
    }
}
#define EXPECT(want) expect_at(__LINE__, want)

/* x, y: 2x4x8x8; w: 4x4x3x3; bias: 1x4x1x1 */
enum { BYTES = 2 * 4 * 8 * 8 * 4, WORK = 1 << 20 };
static float *x, *y, *dy, *w, *bias, *work; /* b0 .. b5 */
static cudnnHandle_t dnn;
static const int64_t map[4] = {2, 4, 8, 8}, filter[4] = {4, 4, 3, 3}, vec[4] = {1, 4, 1, 1};

static void starts(void)
{
    float **all[] = {&x, &y, &dy, &w, &bias, &work};
    size_t sizes[] = {BYTES, BYTES, BYTES, 4 * 4 * 9 * 4, 16, WORK};
    for (int i = 0; i < 6; i++)
        if (cudaMalloc((void **)all[i], sizes[i]) || cudaMemset(*all[i], 0, sizes[i]))
            exit(3);
    BE_OK(cudnnCreate(&dnn));
    take((char[1 << 16]){0}, 1 << 16);
}

/* Plan of a graph of operations; everything that it was made of is gone when this returns. */
static be_t plan_of(int n, be_t *ops)
{
    int64_t bytes;
    be_t config[8], graph = be_graph(dnn, n, ops);
    int found = be_heuristics(graph, CUDNN_HEUR_MODE_A, 8, config);
    be_t plan = be_plan(dnn, config[0], &bytes);
    for (int i = 0; i < found; i++)
        cudnnBackendDestroyDescriptor(config[i]);
    for (int i = 0; i < n; i++)
        cudnnBackendDestroyDescriptor(ops[i]);
    cudnnBackendDestroyDescriptor(graph);
    return plan;
}

static be_t floats(int64_t uid, const int64_t *dim, int flags)
{
    return be_tensor(uid, CUDNN_DATA_FLOAT, 4, dim, NULL, flags);
}

static void execute(be_t plan, float *px, float *pw, float *py)
{
    const int64_t uids[4] = {'x', 'w', 'y', 'b'};
    void *const pointers[4] = {px, pw, py, bias};
    be_execute(dnn, plan, 4, uids, pointers, work);
}

static void convolutions(void)
{
    static const int fwd = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                     bwd_filter = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                     bwd_data = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
    be_t c = be_conv(1, 1, 1, CUDNN_CROSS_CORRELATION);
    be_t tx = floats('x', map, 0), tw = floats('w', filter, 0), ty = floats('y', map, 0), op, plan;
    op = be_conv_op(fwd, c, tx, tw, ty, 0);
    plan = plan_of(1, &op);
    execute(plan, x, w, y);
    EXPECT("layer=1 flags=5 b0:r/1 b3:r/3 b1:wt/2 b5:w/7");
    execute(plan, y, w, x); /* the same plan, another pack */
    EXPECT("layer=1 flags=5 b1:r/1 b3:r/3 b0:wt/2 b5:w/7");
    cudnnBackendDestroyDescriptor(plan);
    op = be_conv_op(fwd, c, tx, tw, ty, 0.5f); /* what y held counts */
    plan = plan_of(1, &op);
    execute(plan, x, w, y);
    EXPECT("layer=1 flags=1 b0:r/1 b3:r/3 b1:rw/2 b5:w/7");
    cudnnBackendDestroyDescriptor(plan);
    op = be_conv_op(bwd_filter, c, tx, tw, ty, 0);
    plan = plan_of(1, &op);
    execute(plan, x, w, dy);
    EXPECT("layer=1 flags=2 b0:r/1 b3:wt/6 b2:r/5 b5:w/7");
    cudnnBackendDestroyDescriptor(plan);
    op = be_conv_op(bwd_data, c, tx, tw, ty, 0);
    plan = plan_of(1, &op);
    execute(plan, x, w, dy);
    EXPECT("layer=1 flags=2 b0:wt/4 b3:r/3 b2:r/5");
    cudnnBackendDestroyDescriptor(plan);
    /* relu(convolution + bias): what is virtual has no block */
    be_t v0 = floats(100, map, BE_VIRTUAL), v1 = floats(101, map, BE_VIRTUAL),
         tb = floats('b', vec, 0);
    be_t fused[3] = {be_conv_op(fwd, c, tx, tw, v0, 0),
                     be_pointwise(CUDNN_POINTWISE_ADD, v0, tb, v1),
                     be_pointwise(CUDNN_POINTWISE_RELU_FWD, v1, NULL, ty)};
    plan = plan_of(3, fused);
    execute(plan, x, w, y);
    EXPECT("layer=1 flags=5 b0:r/1 b3:r/3 b4:r/0 b1:wt/0 b5:w/7");
    cudnnBackendDestroyDescriptor(plan);
}

static void other_graphs(void)
{
    be_t tx = floats('x', map, 0), tw = floats('w', map, 0), ty = floats('y', map, 0), op, plan;
    op = be_pointwise(CUDNN_POINTWISE_RELU_BWD, tx, tw, ty); /* x, the gradient, the result */
    plan = plan_of(1, &op);
    execute(plan, x, dy, y);
    EXPECT("layer=3 flags=2 b0:r/0 b2:r/5 b1:wt/4");
    cudnnBackendDestroyDescriptor(plan);
    op = be_matmul(tx, tw, ty);
    plan = plan_of(1, &op);
    execute(plan, x, dy, y);
    EXPECT("layer=8 flags=4 b0:r/0 b2:r/0 b1:wt/0");
    cudnnBackendDestroyDescriptor(plan);
    be_t v0 = floats(100, map, BE_VIRTUAL), v1 = floats(101, map, BE_VIRTUAL);
    be_t three[3] = {be_matmul(tx, tw, v0), be_matmul(v0, tw, v1), be_matmul(v1, tx, ty)};
    plan = plan_of(3, three); /* as many as only a gradient has */
    execute(plan, x, dy, y);
    EXPECT("layer=8 flags=2 b0:r/0 b2:r/0 b2:r/0 b0:r/0 b1:wt/0");
    cudnnBackendDestroyDescriptor(plan);
    /* rows of a wider tensor: not every byte is written */
    const int64_t rows[4] = {2, 4, 8, 4}, wide[4] = {256, 64, 8, 1};
    be_t narrow = floats('x', rows, 0), in = be_tensor('y', CUDNN_DATA_FLOAT, 4, rows, wide, 0);
    op = be_pointwise(CUDNN_POINTWISE_EXP, narrow, NULL, in);
    plan = plan_of(1, &op);
    execute(plan, x, w, y);
    EXPECT("layer=10 flags=4 b0:r/0 b1:w/0");
    /* more pointers than are noted: served by the launch alone */
    int64_t uids[40];
    void *pointers[40];
    for (int i = 0; i < 40; i++) {
        uids[i] = i == 38 ? 'x' : i == 39 ? 'y' : 1000 + i;
        pointers[i] = i == 38 ? x : y;
    }
    be_execute(dnn, plan, 40, uids, pointers, work);
    EXPECT("");
    cudnnBackendDestroyDescriptor(plan);
}

/* Batch normalisation: the moments are written in training and read in inference. */
static void normalisation(int phase, const char *want)
{
    float *mean, *inverse;
    if (cudaMalloc((void **)&mean, 16) || cudaMalloc((void **)&inverse, 16) ||
        cudaMemset(mean, 0, 16) || cudaMemset(inverse, 0, 16))
        exit(3);
    be_t d = be_new(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
    be_set_enum(d, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, CUDNN_BATCH_NORM);
    be_set_enum(d, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, phase);
    be_set_desc(d, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, floats('x', map, 0));
    be_set_desc(d, CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, floats('m', vec, 0));
    be_set_desc(d, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, floats('v', vec, 0));
    be_set_desc(d, CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, floats('s', vec, 0));
    be_set_desc(d, CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, floats('b', vec, 0));
    be_set_desc(
        d, CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC,
        be_tensor('e', CUDNN_DATA_FLOAT, 4, (const int64_t[4]){1, 1, 1, 1}, NULL, BE_BY_VALUE));
    be_set_desc(d, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, floats('y', map, 0));
    be_t op = be_done(d), plan = plan_of(1, &op);
    float epsilon = 1e-5f;
    const int64_t uids[7] = {'x', 'm', 'v', 's', 'b', 'e', 'y'};
    void *const pointers[7] = {x, mean, inverse, bias, bias, &epsilon, y};
    take((char[1 << 16]){0}, 1 << 16);
    be_execute(dnn, plan, 7, uids, pointers, NULL);
    EXPECT(want);
    cudnnBackendDestroyDescriptor(plan);
    cudaFree(inverse);
    cudaFree(mean);
}

/* Several threads make, execute and forget graphs of their own; each execution is described. */
enum { THREADS = 4, ROUNDS = 20 };

static void *one_thread(void *unused)
{
    cudnnHandle_t handle;
    BE_OK(cudnnCreate(&handle));
    for (int i = 0; i < ROUNDS; i++) {
        be_t tx = floats('x', map, 0), ty = floats('y', map, 0);
        be_t op = be_pointwise(CUDNN_POINTWISE_EXP, tx, NULL, ty), config[1];
        be_t graph = be_graph(handle, 1, &op);
        int64_t bytes;
        be_heuristics(graph, CUDNN_HEUR_MODE_A, 1, config);
        be_t plan = be_plan(handle, config[0], &bytes);
        be_execute(handle, plan, 2, (const int64_t[2]){'x', 'y'}, (void *const[2]){x, y}, NULL);
        be_t all[] = {plan, config[0], graph, op, tx, ty};
        for (int k = 0; k < 6; k++)
            cudnnBackendDestroyDescriptor(all[k]);
    }
    return unused;
}

static void threads(void)
{
    static char raw[1 << 16];
    pthread_t t[THREADS];
    int described = 0;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&t[i], NULL, one_thread, NULL))
            exit(3);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    take(raw, sizeof raw);
    for (char *l = strtok(raw, "\n"); l; l = strtok(NULL, "\n"))
        described += strstr(l, "libcall cudnnBackendExecute layer=10 flags=4 b0:r/0 b1:wt/0") == l;
    checks++;
    if (described != THREADS * ROUNDS) {
        failures++;
        printf("FAILED: %d of %d executions described\n", described, THREADS * ROUNDS);
    }
}

int main(void)
{
    void *p = dlsym(RTLD_DEFAULT, "vmem_double_take");
    if (!p) {
        printf("the double is not preloaded\n");
        return 1;
    }
    memcpy(&take, &p, sizeof p);
    starts();
    convolutions();
    other_graphs();
    normalisation(CUDNN_NORM_FWD_TRAINING,
                  "layer=4 flags=1 b0:r/1 b6:wt/0 b7:wt/0 b4:r/3 b4:r/3 b1:wt/2");
    normalisation(CUDNN_NORM_FWD_INFERENCE,
                  "layer=4 flags=5 b0:r/1 b8:r/0 b9:r/0 b4:r/3 b4:r/3 b1:wt/2");
    threads();
    cudaDeviceSynchronize();
    printf("%d checks, %d failures\n", checks, failures);
    return failures || checks < 14;
}
