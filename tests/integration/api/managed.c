/* managed.c: memory that both sides touch, and what pointers say about themselves. */
#include "api.h"

#define WORDS 4096

static const char *kind(enum cudaMemoryType t)
{
    static const char *const names[] = {"unregistered", "host", "device", "managed"};
    return (unsigned)t < 4 ? names[t] : "?";
}

static void say(const char *what, const void *p)
{
    struct cudaPointerAttributes a;
    OK(cudaPointerGetAttributes(&a, p));
    printf("%s: %s, device pointer %d, host pointer %d\n", what, kind(a.type),
           a.devicePointer == p, a.hostPointer == p);
}

static void managed(void)
{
    uint32_t *p;
    OK(cudaMallocManaged((void **)&p, WORDS * 4, cudaMemAttachGlobal));
    for (uint32_t i = 0; i < WORDS; i++)
        p[i] = i;
    api_scale(0, p, 3, WORDS);
    OK(cudaDeviceSynchronize());
    printf("host writes, device scales, host reads: %d\n", api_is(p, 0, 3, WORDS));
    say("managed", p);
    OK(cudaMemset(p, 0, WORDS * 4));
    OK(cudaDeviceSynchronize());
    printf("set by the device: %d\n", api_is(p, 0, 0, WORDS));
    OK(cudaFree(p));
    EXPECT(cudaMallocManaged((void **)&p, 0, cudaMemAttachGlobal), cudaErrorInvalidValue);
    (void)cudaGetLastError();
}

static void mapped_host(void)
{
    uint32_t *host, *device;
    unsigned flags = 0;
    OK(cudaHostAlloc((void **)&host, WORDS * 4, cudaHostAllocMapped | cudaHostAllocPortable));
    OK(cudaHostGetDevicePointer((void **)&device, host, 0));
    for (uint32_t i = 0; i < WORDS; i++)
        host[i] = 1;
    api_scale(0, device, 5, WORDS);
    OK(cudaDeviceSynchronize());
    printf("a kernel on mapped host memory: %d\n", api_is(host, 5, 0, WORDS));
    OK(cudaHostGetFlags(&flags, host));
    printf("flags: mapped %d, portable %d\n", (flags & cudaHostAllocMapped) != 0,
           (flags & cudaHostAllocPortable) != 0);
    say("mapped host", host);
    OK(cudaFreeHost(host));
}

static void registered(void)
{
    void *p = NULL;
    TRUE_(posix_memalign(&p, 4096, WORDS * 4) == 0);
    memset(p, 1, WORDS * 4);
    say("before registration", p);
    OK(cudaHostRegister(p, WORDS * 4, cudaHostRegisterDefault));
    say("registered", p);
    EXPECT(cudaHostRegister(p, WORDS * 4, cudaHostRegisterDefault),
           cudaErrorHostMemoryAlreadyRegistered);
    uint32_t *d, back[WORDS];
    OK(cudaMalloc((void **)&d, WORDS * 4));
    OK(cudaMemcpyAsync(d, p, WORDS * 4, cudaMemcpyHostToDevice, 0));
    OK(cudaStreamSynchronize(0));
    OK(cudaHostUnregister(p));
    EXPECT(cudaHostUnregister(p), cudaErrorHostMemoryNotRegistered);
    (void)cudaGetLastError();
    OK(cudaMemcpy(back, d, WORDS * 4, cudaMemcpyDeviceToHost));
    printf("copied from registered memory: %d\n", api_is(back, 0x01010101u, 0, WORDS));
    say("device", d);
    struct cudaPointerAttributes a;
    OK(cudaPointerGetAttributes(&a, (char *)d + 100));
    printf("an inner address: %s, device %d\n", kind(a.type), a.device);
    OK(cudaFree(d));
    free(p);
}

int main(void)
{
    managed();
    mapped_host();
    registered();
    return 0;
}
