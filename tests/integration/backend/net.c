/* A small convolutional network trained through cuDNN's backend API by hand, as a framework's
 * frontend does it: a graph and a plan for each operation, made once; feature maps allocated and
 * freed in each iteration; a variant pack for each execution. usage: net ITERATIONS */
#include <cuda_runtime_api.h>
#include <string.h>

#include "backend_use.h"

enum { LAYERS = 4, N = 8, C = 8, SIZE = 24 };
static const int64_t map[4] = {N, C, SIZE, SIZE}, filter[4] = {C, C, 3, 3}, one[4] = {1, 1, 1, 1};
static const size_t map_bytes = (size_t)N * C * SIZE * SIZE * sizeof(float),
                    filter_bytes = (size_t)C * C * 9 * sizeof(float);
static cudnnHandle_t dnn;

/* One plan and the workspace that it wants. */
struct plan {
    be_t plan;
    int64_t workspace;
};

static void *device(size_t bytes)
{
    void *p;
    if (cudaMalloc(&p, bytes) != cudaSuccess) {
        fprintf(stderr, "no room for %zu bytes\n", bytes);
        exit(4);
    }
    return p;
}

static void run(const struct plan *p, int n, const int64_t *uids, void *const *pointers)
{
    void *workspace = p->workspace ? device((size_t)p->workspace) : NULL;
    be_execute(dnn, p->plan, n, uids, pointers, workspace);
    if (workspace)
        cudaFree(workspace);
}

static struct plan plan_of(int n, const be_t *ops)
{
    struct plan p;
    be_t config[8], graph = be_graph(dnn, n, ops);
    int found = be_heuristics(graph, CUDNN_HEUR_MODE_A, 8, config);
    p.plan = be_plan(dnn, config[0], &p.workspace);
    for (int i = 0; i < found; i++)
        cudnnBackendDestroyDescriptor(config[i]);
    cudnnBackendDestroyDescriptor(graph);
    return p;
}

static struct plan forward, to_data, to_filter, slope,
    step; /* of every layer: their shapes agree */

static void make_plans(void)
{
    be_t c = be_conv(1, 1, 1, CUDNN_CROSS_CORRELATION);
    be_t x = be_tensor('x', CUDNN_DATA_FLOAT, 4, map, NULL, 0),
         w = be_tensor('w', CUDNN_DATA_FLOAT, 4, filter, NULL, 0),
         y = be_tensor('y', CUDNN_DATA_FLOAT, 4, map, NULL, 0),
         v = be_tensor('v', CUDNN_DATA_FLOAT, 4, map, NULL, BE_VIRTUAL);
    be_t fused[2] = {
        be_conv_op(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, c, x, w, v, 0),
        be_pointwise(CUDNN_POINTWISE_RELU_FWD, v, NULL, y)};
    forward = plan_of(2, fused);
    be_t op =
        be_conv_op(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, c, x, w, y, 0);
    to_data = plan_of(1, &op);
    op = be_conv_op(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, c, x, w, y, 0);
    to_filter = plan_of(1, &op);
    be_t dy = be_tensor('w', CUDNN_DATA_FLOAT, 4, map, NULL, 0);
    op = be_pointwise(CUDNN_POINTWISE_RELU_BWD, x, dy, y);
    slope = plan_of(1, &op);
    be_t dw = be_tensor('y', CUDNN_DATA_FLOAT, 4, filter, NULL, 0),
         rate = be_tensor('r', CUDNN_DATA_FLOAT, 4, one, NULL, BE_BY_VALUE),
         scaled = be_tensor('v', CUDNN_DATA_FLOAT, 4, filter, NULL, BE_VIRTUAL),
         next = be_tensor('z', CUDNN_DATA_FLOAT, 4, filter, NULL, 0);
    be_t update[2] = {be_pointwise(CUDNN_POINTWISE_MUL, dw, rate, scaled),
                      be_pointwise(CUDNN_POINTWISE_SUB, w, scaled, next)};
    step = plan_of(2, update);
}

/* One iteration: the loss is half the square of the last map. */
static void iterate(void *input, void *w[LAYERS])
{
    const int64_t three[3] = {'x', 'w', 'y'}, four[4] = {'w', 'y', 'r', 'z'};
    float rate = 1e-5f;
    void *y[LAYERS + 1] = {input};
    for (int l = 0; l < LAYERS; l++) {
        y[l + 1] = device(map_bytes);
        run(&forward, 3, three, (void *const[3]){y[l], w[l], y[l + 1]});
    }
    void *dy = device(map_bytes);
    cudaMemcpyAsync(dy, y[LAYERS], map_bytes, cudaMemcpyDeviceToDevice, 0);
    for (int l = LAYERS - 1; l >= 0; l--) {
        void *dz = device(map_bytes), *dx = device(map_bytes), *dw = device(filter_bytes);
        run(&slope, 3, three, (void *const[3]){y[l + 1], dy, dz});
        run(&to_filter, 3, three, (void *const[3]){y[l], dw, dz});
        run(&to_data, 3, three, (void *const[3]){dx, w[l], dz});
        run(&step, 4, four, (void *const[4]){w[l], dw, &rate, w[l]});
        cudaFree(dw);
        cudaFree(dz);
        cudaFree(dy);
        cudaFree(y[l + 1]);
        dy = dx;
    }
    cudaFree(dy);
}

static void fill(void *p, size_t bytes, unsigned seed)
{
    float *host = malloc(bytes);
    for (size_t i = 0; i < bytes / sizeof *host; i++) {
        seed = seed * 1664525u + 1013904223u;
        host[i] = (float)(seed >> 8) / (float)(1 << 24) - 0.5f;
    }
    cudaMemcpy(p, host, bytes, cudaMemcpyHostToDevice);
    free(host);
}

static unsigned long long digest(const void *p, size_t bytes)
{
    unsigned long long h = 1469598103934665603ull;
    unsigned char *host = malloc(bytes);
    cudaMemcpy(host, p, bytes, cudaMemcpyDeviceToHost);
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ host[i]) * 1099511628211ull;
    free(host);
    return h;
}

int main(int argc, char **argv)
{
    int iterations = argc > 1 ? atoi(argv[1]) : 10;
    BE_OK(cudnnCreate(&dnn));
    make_plans();
    void *input = device(map_bytes), *w[LAYERS];
    fill(input, map_bytes, 1);
    for (int l = 0; l < LAYERS; l++) {
        w[l] = device(filter_bytes);
        fill(w[l], filter_bytes, 2 + (unsigned)l);
    }
    for (int i = 0; i < iterations; i++) {
        iterate(input, w);
        printf("iteration %d", i);
        for (int l = 0; l < LAYERS; l++)
            printf(" %016llx", digest(w[l], filter_bytes));
        printf("\n");
    }
    return cudaDeviceSynchronize() != cudaSuccess;
}
