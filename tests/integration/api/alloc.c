/* alloc.c: allocation and free: accounting, limits, pitch, what is refused. */
#include "api.h"

#define MIB ((size_t)1 << 20)

static void accounting(void)
{
    size_t free0, free1, free2, total;
    void *p[8];
    OK(cudaFree(NULL));
    OK(cudaMemGetInfo(&free0, &total));
    TRUE_(free0 && free0 <= total);
    for (int i = 0; i < 8; i++)
        OK(cudaMalloc(&p[i], 2 * MIB));
    OK(cudaMemGetInfo(&free1, &total));
    printf("16 MiB taken: free fell by at least that: %d\n", free0 - free1 >= 16 * MIB);
    for (int i = 0; i < 8; i++)
        OK(cudaFree(p[i]));
    OK(cudaMemGetInfo(&free2, &total));
    printf("given back: free is what it was: %d\n", free2 == free0);
}

static void limits(void)
{
    enum { MANY = 4096 };
    static void *p[MANY];
    size_t free0, total, sum = 0;
    int n = 0;
    OK(cudaMemGetInfo(&free0, &total));
    size_t piece = (free0 / 64 / MIB + 1) * MIB;
    void *big = (void *)1;
    EXPECT(cudaMalloc(&big, (size_t)1 << 50), cudaErrorMemoryAllocation);
    printf("more than any card has: refused, pointer untouched: %d\n", big == (void *)1);
    printf("last error: %s", cudaGetErrorName(cudaGetLastError()));
    printf(", then %s\n", cudaGetErrorName(cudaGetLastError()));
    while (n < MANY && cudaMalloc(&p[n], piece) == cudaSuccess)
        sum += piece, n++;
    printf("piece by piece: ended by %s, used most of it: %d\n",
           cudaGetErrorName(cudaGetLastError()), sum > free0 / 4 * 3);
    /* a process that ran out goes on: what exists works, what is freed can be had again */
    OK(cudaMemset(p[0], 7, piece));
    OK(cudaFree(p[--n]));
    OK(cudaMalloc(&p[n], piece));
    n++;
    while (n)
        OK(cudaFree(p[--n]));
    OK(cudaDeviceSynchronize());
    printf("all freed\n");
}

static void odd_cases(void)
{
    void *p = (void *)1;
    OK(cudaMalloc(&p, 0));
    printf("no bytes: null pointer: %d\n", p == NULL);
    EXPECT(cudaMalloc(NULL, 16), cudaErrorInvalidValue);
    OK(cudaMalloc(&p, 1));
    void *q;
    OK(cudaMalloc(&q, 1));
    printf("one byte each: apart and aligned to 256: %d\n",
           p != q && (uintptr_t)p % 256 == 0 && (uintptr_t)q % 256 == 0);
    OK(cudaFree(p));
    printf("freed twice: %s\n", cudaGetErrorName(cudaFree(p)));
    printf("an inner address: %s\n", cudaGetErrorName(cudaFree((char *)q + 1)));
    OK(cudaFree(q));
    int on_stack;
    printf("host memory freed: %s\n", cudaGetErrorName(cudaFree(&on_stack)));
    (void)cudaGetLastError();
}

static void pitch(void)
{
    void *p;
    size_t row;
    OK(cudaMallocPitch(&p, &row, 1000, 30));
    printf("pitch holds a row and is aligned: %d\n", row >= 1000 && row % 256 == 0);
    unsigned char host[30][1000], back[30][1000];
    for (int y = 0; y < 30; y++)
        for (int x = 0; x < 1000; x++)
            host[y][x] = (unsigned char)(x * 3 + y);
    OK(cudaMemcpy2D(p, row, host, 1000, 1000, 30, cudaMemcpyHostToDevice));
    OK(cudaMemcpy2D(back, 1000, p, row, 1000, 30, cudaMemcpyDeviceToHost));
    printf("rows come back: %d\n", memcmp(host, back, sizeof host) == 0);
    OK(cudaFree(p));
    struct cudaPitchedPtr v;
    OK(cudaMalloc3D(&v, (struct cudaExtent){100, 10, 5}));
    OK(cudaMemset3D(v, 9, (struct cudaExtent){100, 10, 5}));
    unsigned char line[100];
    OK(cudaMemcpy(line, (char *)v.ptr + v.pitch * (4 * 10 + 9), 100, cudaMemcpyDeviceToHost));
    printf("volume set: %d\n", line[0] == 9 && line[99] == 9);
    OK(cudaFree(v.ptr));
}

/* Contents stay while others come and go, with more in total than fits at once in a small budget. */
static void contents(void)
{
    enum { N = 24 };
    uint32_t *p[N], *host = malloc(MIB);
    TRUE_(host != NULL);
    for (int i = 0; i < N; i++) {
        OK(cudaMalloc((void **)&p[i], MIB));
        api_ramp(0, p[i], (uint32_t)i * 1000003u, MIB / 4);
        if (i >= 4 && i % 3 == 0) {
            OK(cudaFree(p[i - 4]));
            p[i - 4] = NULL;
        }
    }
    int good = 1;
    for (int i = 0; i < N; i++) {
        if (!p[i])
            continue;
        OK(cudaMemcpy(host, p[i], MIB, cudaMemcpyDeviceToHost));
        good &= api_is(host, (uint32_t)i * 1000003u, 1, MIB / 4);
        OK(cudaFree(p[i]));
    }
    printf("every block keeps its contents: %d\n", good);
    free(host);
}

int main(void)
{
    accounting();
    odd_cases();
    pitch();
    contents();
    limits();
    return 0;
}
