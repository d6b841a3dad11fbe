/* pools.c: stream-ordered allocation: reuse behind the stream, pools, attributes, trimming. */
#include "api.h"

#define WORDS 65536

static void ordered(void)
{
    cudaStream_t a, b;
    cudaEvent_t done;
    uint32_t *p, *q, *host = malloc(WORDS * 4);
    TRUE_(host != NULL);
    OK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    OK(cudaMallocAsync((void **)&p, WORDS * 4, a));
    api_ramp(a, p, 5, WORDS);
    OK(cudaEventRecord(done, a));
    OK(cudaStreamWaitEvent(b, done, 0));
    OK(cudaMemcpyAsync(host, p, WORDS * 4, cudaMemcpyDeviceToHost, b));
    OK(cudaStreamSynchronize(b));
    printf("one stream allocates, another reads: %d\n", api_is(host, 5, 1, WORDS));
    OK(cudaFreeAsync(p, a));
    OK(cudaMallocAsync((void **)&q, WORDS * 4, a));
    api_fill(a, q, 77, WORDS);
    OK(cudaMemcpyAsync(host, q, WORDS * 4, cudaMemcpyDeviceToHost, a));
    OK(cudaStreamSynchronize(a));
    printf("allocated again after a free in the stream: %d\n", api_is(host, 77, 0, WORDS));
    OK(cudaFree(q)); /* an asynchronous allocation may be freed the ordinary way */
    OK(cudaMallocAsync((void **)&p, 0, a));
    printf("no bytes: null pointer: %d\n", p == NULL);
    OK(cudaFreeAsync(NULL, a));
    OK(cudaEventDestroy(done));
    OK(cudaStreamDestroy(a));
    OK(cudaStreamDestroy(b));
    free(host);
}

static void many(void)
{
    enum { N = 200 };
    cudaStream_t s;
    uint32_t sum = 0, want = 0, host;
    OK(cudaStreamCreate(&s));
    for (uint32_t i = 0; i < N; i++) {
        uint32_t *p;
        OK(cudaMallocAsync((void **)&p, 256 + i * 64, s));
        api_fill(s, p, i, 4);
        OK(cudaMemcpyAsync(&host, p + 3, 4, cudaMemcpyDeviceToHost, s));
        OK(cudaFreeAsync(p, s));
        OK(cudaStreamSynchronize(s));
        sum += host;
        want += i;
    }
    printf("short lives, one after another: %d\n", sum == want);
    OK(cudaStreamDestroy(s));
}

static void own_pool(void)
{
    struct cudaMemPoolProps props = {0};
    cudaMemPool_t pool, found;
    uint64_t keep = (uint64_t)1 << 20, read = 0;
    uint32_t *p, word = 0;
    props.allocType = cudaMemAllocationTypePinned;
    props.location.type = cudaMemLocationTypeDevice;
    props.location.id = 0;
    OK(cudaMemPoolCreate(&pool, &props));
    OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &read));
    printf("threshold reads back: %d\n", read == keep);
    OK(cudaMallocFromPoolAsync((void **)&p, 4096, pool, 0));
    api_fill(0, p, 31, 1024);
    OK(cudaMemcpy(&word, p + 1023, 4, cudaMemcpyDeviceToHost));
    printf("memory of an own pool works: %d\n", word == 31);
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &read));
    printf("in use while allocated: %d\n", read >= 4096);
    OK(cudaFreeAsync(p, 0));
    OK(cudaStreamSynchronize(0));
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &read));
    printf("in use after the free: %d\n", (int)read);
    OK(cudaMemPoolTrimTo(pool, 0));
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &read));
    printf("reserved after trimming: %d\n", (int)read);
    OK(cudaMemPoolDestroy(pool));
    OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    OK(cudaDeviceGetMemPool(&found, 0));
    printf("the current pool is the default one: %d\n", pool == found);
}

int main(void)
{
    int supported = 0;
    OK(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, 0));
    printf("pools supported: %d\n", supported);
    ordered();
    many();
    own_pool();
    return 0;
}
