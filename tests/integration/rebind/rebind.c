/* A trainer in the habit of Python programs: a name is bound to the new block before the old one
 * goes. Prints a sum over the bits of what it computes, each iteration and at the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cublas_v2.h>
#include <cuda_runtime.h>

#define N      256 /* side of the matrices */
#define LAYERS 6
#define BYTES  ((size_t)N * N * sizeof(float))
#define CHECK(x)                                                                                   \
    do {                                                                                           \
        if ((x) != 0) {                                                                            \
            fprintf(stderr, "%s failed\n", #x);                                                    \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static float host[N * N];
static float *w[LAYERS], *y[LAYERS], *x, *loss;
static cublasHandle_t blas;

static const float one = 1, zero = 0, rate = -1e-3f, shrink = 1.0f / N;

static float *new_block(void)
{
    float *p;
    CHECK(cudaMalloc((void **)&p, BYTES));
    return p;
}

/* x = other, and what x was is freed afterwards. */
static void rebind(float **name, float *other)
{
    float *old = *name;
    *name = other;
    CHECK(cudaFree(old));
}

static void multiply(cublasOperation_t op_b, const float *a, const float *b, float *c)
{
    CHECK(cublasSgemm(blas, CUBLAS_OP_N, op_b, N, N, N, &shrink, a, N, b, N, &zero, c, N));
}

static void set_up(void)
{
    CHECK(cublasCreate(&blas));
    for (int l = 0; l < LAYERS; l++) {
        w[l] = new_block();
        for (int i = 0; i < N * N; i++)
            host[i] = (float)((i * 7 + l * 13) % 11 - 5) / 5;
        CHECK(cudaMemcpy(w[l], host, BYTES, cudaMemcpyHostToDevice));
    }
}

static void iterate(int k)
{
    float *next = new_block(), *sum, *g;
    for (int i = 0; i < N * N; i++)
        host[i] = (float)((i + k) % 17 - 8) / 8;
    CHECK(cudaMemcpy(next, host, BYTES, cudaMemcpyHostToDevice));
    rebind(&x, next);
    for (int l = 0; l < LAYERS; l++) {
        y[l] = new_block();
        multiply(CUBLAS_OP_N, w[l], l ? y[l - 1] : x, y[l]);
    }
    sum = new_block();
    CHECK(cublasScopy(blas, N * N, y[LAYERS - 1], 1, sum, 1));
    CHECK(cublasSaxpy(blas, N * N, &one, x, 1, sum, 1));
    rebind(&loss, sum);
    for (int l = LAYERS; l-- > 0;) {
        g = new_block();
        multiply(CUBLAS_OP_T, y[l], l ? y[l - 1] : x, g);
        CHECK(cublasSaxpy(blas, N * N, &rate, g, 1, w[l], 1));
        CHECK(cudaFree(g));
        CHECK(cudaFree(y[l]));
    }
}

static unsigned add_bits(unsigned sum, const float *block)
{
    CHECK(cudaMemcpy(host, block, BYTES, cudaMemcpyDeviceToHost));
    for (int i = 0; i < N * N; i++) {
        unsigned bits;
        memcpy(&bits, &host[i], sizeof bits);
        sum = sum * 31 + bits;
    }
    return sum;
}

int main(int argc, char **argv)
{
    unsigned sum = 0;
    set_up();
    for (int k = 0; k < (argc > 1 ? atoi(argv[1]) : 8); k++) {
        iterate(k);
        printf("iter %d %08x\n", k + 1, add_bits(0, loss));
    }
    for (int l = 0; l < LAYERS; l++)
        sum = add_bits(sum, w[l]);
    printf("checksum %08x\n", sum);
    return 0;
}
