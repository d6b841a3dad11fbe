/* events.c: streams, events and host functions: what orders what, what is ready when. */
#include "api.h"

#include <stdatomic.h>

#define WORDS 16384
#define BYTES ((size_t)WORDS * 4)

static void between_streams(void)
{
    cudaStream_t a, b;
    cudaEvent_t e;
    uint32_t *p, *q, *host;
    OK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    OK(cudaMalloc((void **)&p, BYTES));
    OK(cudaMalloc((void **)&q, BYTES));
    OK(cudaMallocHost((void **)&host, BYTES));
    int good = 1;
    for (uint32_t round = 0; round < 20; round++) {
        api_ramp(a, p, round, WORDS);
        OK(cudaEventRecord(e, a));
        OK(cudaStreamWaitEvent(b, e, 0));
        api_add(b, q, p, p, WORDS);
        OK(cudaMemcpyAsync(host, q, BYTES, cudaMemcpyDeviceToHost, b));
        OK(cudaEventRecord(e, b));
        OK(cudaStreamWaitEvent(a, e, 0)); /* the next round overwrites p */
        OK(cudaEventSynchronize(e));
        good &= api_is(host, 2 * round, 2, WORDS);
    }
    printf("twenty rounds over two streams: %d\n", good);
    printf("an event that was recorded and waited for: %s\n", cudaGetErrorName(cudaEventQuery(e)));
    OK(cudaStreamSynchronize(a));
    OK(cudaEventDestroy(e));
    OK(cudaStreamDestroy(a));
    OK(cudaStreamDestroy(b));
    OK(cudaFree(p));
    OK(cudaFree(q));
    OK(cudaFreeHost(host));
}

/* The legacy default stream waits for the others and they for it. */
static void default_stream(void)
{
    cudaStream_t s;
    uint32_t *p, word;
    OK(cudaStreamCreate(&s));
    OK(cudaMalloc((void **)&p, BYTES));
    api_ramp(s, p, 1, WORDS);
    api_scale(0, p, 2, WORDS);
    api_scale(s, p, 5, WORDS);
    OK(cudaMemcpy(&word, p + WORDS - 1, 4, cudaMemcpyDeviceToHost));
    printf("the default stream in between: %d\n", word == WORDS * 10);
    OK(cudaStreamDestroy(s));
    OK(cudaFree(p));
}

static void timing(void)
{
    cudaEvent_t a, b, untimed;
    uint32_t *p;
    float ms = -1;
    OK(cudaEventCreate(&a));
    OK(cudaEventCreate(&b));
    OK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
    OK(cudaMalloc((void **)&p, BYTES));
    printf("never recorded: %s\n", cudaGetErrorName(cudaEventQuery(a)));
    OK(cudaEventRecord(a, 0));
    for (int i = 0; i < 50; i++)
        api_fill(0, p, 1, WORDS);
    OK(cudaEventRecord(b, 0));
    OK(cudaEventSynchronize(b));
    OK(cudaEventElapsedTime(&ms, a, b));
    printf("fifty kernels take some time: %d\n", ms > 0);
    OK(cudaEventRecord(untimed, 0));
    OK(cudaEventSynchronize(untimed));
    printf("without timing: %s\n", cudaGetErrorName(cudaEventElapsedTime(&ms, a, untimed)));
    cudaError_t e;
    int polls = 0;
    api_fill(0, p, 2, WORDS);
    OK(cudaEventRecord(b, 0));
    while ((e = cudaEventQuery(b)) == cudaErrorNotReady && polls < 1000000)
        polls++;
    printf("polled until ready: %s\n", cudaGetErrorName(e));
    (void)cudaGetLastError();
    OK(cudaEventDestroy(a));
    OK(cudaEventDestroy(b));
    OK(cudaEventDestroy(untimed));
    OK(cudaFree(p));
}

static atomic_uint called;
static uint32_t *seen_by_host;

static void CUDART_CB host_function(void *user)
{
    uint32_t *p = user;
    atomic_store(&called, p[0]);
    p[1] = p[0] * 2; /* read by the copy that follows in the stream */
}

static void CUDART_CB callback(cudaStream_t s, cudaError_t status, void *user)
{
    if (status == cudaSuccess)
        atomic_fetch_add((atomic_uint *)user, 1000);
}

static void host_functions(void)
{
    cudaStream_t s;
    uint32_t *p, back[2];
    OK(cudaStreamCreate(&s));
    OK(cudaMalloc((void **)&p, 8));
    OK(cudaMallocHost((void **)&seen_by_host, 8));
    api_fill(s, p, 21, 2);
    OK(cudaMemcpyAsync(seen_by_host, p, 8, cudaMemcpyDeviceToHost, s));
    OK(cudaLaunchHostFunc(s, host_function, seen_by_host));
    OK(cudaMemcpyAsync(p, seen_by_host, 8, cudaMemcpyHostToDevice, s));
    OK(cudaStreamAddCallback(s, callback, &called, 0));
    OK(cudaStreamSynchronize(s));
    OK(cudaMemcpy(back, p, 8, cudaMemcpyDeviceToHost));
    printf("the host function ran between two copies: %d %d\n", back[0] == 21, back[1] == 42);
    printf("and the callback after them: %u\n", atomic_load(&called));
    OK(cudaStreamDestroy(s));
    OK(cudaFree(p));
    OK(cudaFreeHost(seen_by_host));
}

static void priorities(void)
{
    int least, greatest, p = 0;
    unsigned flags = 0;
    cudaStream_t s;
    OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    OK(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, greatest));
    OK(cudaStreamGetPriority(s, &p));
    OK(cudaStreamGetFlags(s, &flags));
    printf("priority and flags read back: %d %d\n", p == greatest, flags == cudaStreamNonBlocking);
    printf("idle: %s\n", cudaGetErrorName(cudaStreamQuery(s)));
    OK(cudaStreamDestroy(s));
}

int main(void)
{
    between_streams();
    default_stream();
    timing();
    host_functions();
    priorities();
    return 0;
}
