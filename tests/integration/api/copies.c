/* copies.c: every kind of copy and memset, pinned and pageable, one and two dimensions, between
 * devices; and what each direction refuses. */
#include "api.h"

#define WORDS 32768
#define BYTES ((size_t)WORDS * 4)

static uint32_t host[WORDS], back[WORDS];

static void kinds(void)
{
    uint32_t *a, *b, *pinned;
    OK(cudaMalloc((void **)&a, BYTES));
    OK(cudaMalloc((void **)&b, BYTES));
    OK(cudaMallocHost((void **)&pinned, BYTES));
    for (uint32_t i = 0; i < WORDS; i++)
        host[i] = 17 + i;
    OK(cudaMemcpy(a, host, BYTES, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(b, a, BYTES, cudaMemcpyDeviceToDevice));
    OK(cudaMemcpy(back, b, BYTES, cudaMemcpyDeviceToHost));
    printf("to the device, across, back: %d\n", api_is(back, 17, 1, WORDS));
    memset(pinned, 0, BYTES);
    OK(cudaMemcpy(pinned, host, BYTES, cudaMemcpyHostToHost));
    printf("host to host: %d\n", api_is(pinned, 17, 1, WORDS));
    api_scale(0, a, 2, WORDS);
    OK(cudaMemcpy(b, a, BYTES, cudaMemcpyDefault));
    OK(cudaMemcpy(back, b, BYTES, cudaMemcpyDefault));
    printf("by address alone: %d\n", api_is(back, 34, 2, WORDS));
    OK(cudaMemcpyAsync(a, pinned, BYTES, cudaMemcpyHostToDevice, 0));
    api_scale(0, a, 3, WORDS);
    OK(cudaMemcpyAsync(pinned, a, BYTES, cudaMemcpyDeviceToHost, 0));
    OK(cudaStreamSynchronize(0));
    printf("asynchronous, pinned: %d\n", api_is(pinned, 51, 3, WORDS));
    /* inner ranges at odd offsets */
    OK(cudaMemset(a, 0, BYTES));
    OK(cudaMemcpy((char *)a + 3, "abcdefg", 7, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(back, a, 16, cudaMemcpyDeviceToHost));
    printf("odd offset: %d\n", memcmp(back, "\0\0\0abcdefg\0\0\0\0\0\0", 16) == 0);
    OK(cudaMemcpy(a, host, 0, cudaMemcpyHostToDevice));
    OK(cudaFree(a));
    OK(cudaFree(b));
    OK(cudaFreeHost(pinned));
}

/* Pageable sources are read before an asynchronous copy returns; pinned ones when it runs. */
static void when_read(void)
{
    uint32_t *d;
    OK(cudaMalloc((void **)&d, BYTES));
    for (uint32_t i = 0; i < WORDS; i++)
        host[i] = 1;
    OK(cudaMemcpyAsync(d, host, BYTES, cudaMemcpyHostToDevice, 0));
    memset(host, 0, BYTES);
    OK(cudaMemcpy(back, d, BYTES, cudaMemcpyDeviceToHost));
    printf("a pageable source may change after the call: %d\n", api_is(back, 1, 0, WORDS));
    OK(cudaFree(d));
}

static void planes(void)
{
    enum { W = 100, H = 37, P = 160 };
    static unsigned char src[H][W], dst[H][W];
    unsigned char *d;
    OK(cudaMalloc((void **)&d, P * H));
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            src[y][x] = (unsigned char)(x + 3 * y);
    OK(cudaMemset(d, 0xee, P * H));
    OK(cudaMemcpy2DAsync(d, P, src, W, W, H, cudaMemcpyHostToDevice, 0));
    OK(cudaMemcpy2D(dst, W, d, P, W, H, cudaMemcpyDeviceToHost));
    unsigned char gap;
    OK(cudaMemcpy(&gap, d + W, 1, cudaMemcpyDeviceToHost));
    printf("rows copied, gaps untouched: %d\n", memcmp(src, dst, sizeof src) == 0 && gap == 0xee);
    OK(cudaMemset2D(d + 2 * P, P, 5, 10, 3));
    OK(cudaMemcpy2D(dst, W, d, P, W, H, cudaMemcpyDefault));
    printf("a window set: %d\n", dst[2][0] == 5 && dst[4][9] == 5 && dst[4][10] == src[4][10] &&
                                     dst[5][0] == src[5][0]);
    EXPECT(cudaMemcpy2D(d, W - 1, src, W, W, H, cudaMemcpyHostToDevice), cudaErrorInvalidPitchValue);
    struct cudaMemcpy3DParms p = {0};
    p.srcPtr = (struct cudaPitchedPtr){d, P, W, H};
    p.dstPtr = (struct cudaPitchedPtr){dst, W, W, H};
    p.extent = (struct cudaExtent){W, H, 1};
    p.kind = cudaMemcpyDeviceToHost;
    memset(dst, 0, sizeof dst);
    OK(cudaMemcpy3D(&p));
    printf("as a volume: %d\n", dst[0][5] == src[0][5] && dst[H - 1][W - 1] == src[H - 1][W - 1]);
    OK(cudaFree(d));
    (void)cudaGetLastError();
}

static void sets(void)
{
    uint32_t *d;
    OK(cudaMalloc((void **)&d, BYTES));
    OK(cudaMemset(d, 0x12, BYTES));
    OK(cudaMemsetAsync((char *)d + 8, 0x34, 4, 0));
    OK(cudaMemcpy(back, d, BYTES, cudaMemcpyDeviceToHost));
    printf("set, then in part again: %d\n",
           back[1] == 0x12121212u && back[2] == 0x34343434u && back[3] == 0x12121212u);
    OK(cudaMemset(d, 0, 0));
    OK(cudaFree(d));
}

static void refused(void)
{
    uint32_t *d;
    OK(cudaMalloc((void **)&d, BYTES));
    printf("no such direction: %s\n",
           cudaGetErrorName(cudaMemcpy(d, host, 4, (enum cudaMemcpyKind)9)));
    OK(cudaFree(d));
    (void)cudaGetLastError();
}

static void devices(void)
{
    int n = 0, can = 0;
    uint32_t *a, *b;
    OK(cudaGetDeviceCount(&n));
    if (n < 2)
        return;
    OK(cudaDeviceCanAccessPeer(&can, 0, 1));
    OK(cudaSetDevice(0));
    OK(cudaMalloc((void **)&a, BYTES));
    api_ramp(0, a, 3, WORDS);
    OK(cudaDeviceSynchronize());
    OK(cudaSetDevice(1));
    OK(cudaMalloc((void **)&b, BYTES));
    OK(cudaMemcpyPeer(b, 1, a, 0, BYTES));
    api_scale(0, b, 2, WORDS);
    OK(cudaMemcpyPeerAsync(a, 0, b, 1, BYTES, 0));
    OK(cudaDeviceSynchronize());
    OK(cudaSetDevice(0));
    OK(cudaMemcpy(back, a, BYTES, cudaMemcpyDeviceToHost));
    printf("to the second device and back: %d\n", api_is(back, 6, 2, WORDS));
    OK(cudaFree(a));
    OK(cudaFree(b));
}

int main(void)
{
    kinds();
    when_read();
    planes();
    sets();
    refused();
    devices();
    return 0;
}
