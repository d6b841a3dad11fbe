/* Blocks of which only a few fit; one whose contents are away is overwritten, and the driver refuses that
 * call: the contents are what they were. Then the call succeeds.
 *
 *   refused BLOCKS BYTES
 *
 * The first cuMemsetD8Async must fail, by a fault of the simulated GPU. Ends with "refused: ok" or a line
 * that says what is wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROGRAM "refused"
#include "program.h"

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    size_t n = strtoul(argv[1], NULL, 10), bytes = strtoul(argv[2], NULL, 10);
    CUdevice dev;
    CUcontext ctx;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&dev, 0));
    CHECK(cuDevicePrimaryCtxRetain(&ctx, dev));
    CHECK(cuCtxSetCurrent(ctx));
    CUdeviceptr *block = malloc(n * sizeof *block);
    unsigned char *host = malloc(bytes);
    if (!block || !host)
        return 2;
    for (size_t i = 0; i < n; i++) {
        CHECK(cuMemAlloc(&block[i], bytes));
        memset(host, (int)i + 1, bytes);
        CHECK(cuMemcpyHtoD(block[i], host, bytes));
    }
    if (cuMemsetD8Async(block[0], 0x5a, bytes, NULL) == CUDA_SUCCESS) {
        printf("refused: the call was not refused\n");
        return 1;
    }
    expect(block[0], 1, host, bytes, "after the refusal");
    for (size_t i = 1; i < n; i++)
        expect(block[i], (int)i + 1, host, bytes, "another block");
    CHECK(cuMemsetD8Async(block[0], 0x5a, bytes, NULL));
    for (size_t i = n; i-- > 1;)
        expect(block[i], (int)i + 1, host, bytes, "another block, later");
    expect(block[0], 0x5a, host, bytes, "overwritten");
    for (size_t i = 0; i < n; i++)
        CHECK(cuMemFree(block[i]));
    printf("refused: ok\n");
    return 0;
}
