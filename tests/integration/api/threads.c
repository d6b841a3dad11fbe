/* threads.c: several threads, each with its streams and blocks, on one device; and on several. */
#include "api.h"

#include <pthread.h>

#define THREADS 6
#define ROUNDS  30
#define WORDS   4096

struct job {
    unsigned number;
    int device;
    int good;
};

static void *run(void *arg)
{
    struct job *j = arg;
    cudaStream_t s;
    uint32_t *host;
    int device = -1;
    OK(cudaSetDevice(j->device));
    OK(cudaGetDevice(&device));
    j->good = device == j->device;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaMallocHost((void **)&host, WORDS * 4));
    for (uint32_t r = 0; r < ROUNDS; r++) {
        uint32_t *a, *b, mark = j->number * 1000 + r;
        OK(cudaMalloc((void **)&a, WORDS * 4 + j->number * 512));
        OK(cudaMallocAsync((void **)&b, WORDS * 4, s));
        api_ramp(s, a, mark, WORDS);
        api_add(s, b, a, a, WORDS);
        OK(cudaMemcpyAsync(host, b, WORDS * 4, cudaMemcpyDeviceToHost, s));
        OK(cudaFreeAsync(b, s));
        OK(cudaStreamSynchronize(s));
        j->good &= api_is(host, mark * 2, 2, WORDS);
        OK(cudaFree(a));
    }
    OK(cudaFreeHost(host));
    OK(cudaStreamDestroy(s));
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];
    struct job jobs[THREADS];
    int devices = 0, good = 1;
    OK(cudaGetDeviceCount(&devices));
    for (unsigned i = 0; i < THREADS; i++) {
        jobs[i] = (struct job){i, (int)i % devices, 0};
        TRUE_(pthread_create(&t[i], NULL, run, &jobs[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        TRUE_(pthread_join(t[i], NULL) == 0);
        good &= jobs[i].good;
    }
    printf("%d threads, %d rounds each: %d\n", THREADS, ROUNDS, good);
    return 0;
}
