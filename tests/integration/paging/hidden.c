/* A kernel writes a block whose address it has from nowhere that can be seen, after the block came back for a
 * read: the copy on the host is not what the block holds any more.
 *
 *   hidden BLOCKS BYTES ROUNDS
 *
 * The first block leaves and comes back ROUNDS times before the write; 0: the write comes before anything left;
 * "fresh": the write is the first into a block that takes the place of one that came back. Ends with "hidden: written" where the write is there after
 * the block left and came back, "hidden: fault" where the kernel was stopped, or a line that says what is
 * wrong. */
#include <simgpu.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROGRAM "hidden"
#include "program.h"

#define MASK 0x5a5a5a5a5a5a5a5aull

struct args {
    uint64_t masked, bytes;
};

static void touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct args a;
    memcpy(&a, l->params, sizeof a);
    touch(ctx, a.masked ^ MASK, a.bytes, SIMGPU_WRITE);
}

static void body(const struct simgpu_launch *l)
{
    struct args a;
    memcpy(&a, l->params, sizeof a);
    memset((void *)(uintptr_t)(a.masked ^ MASK), 0x77, a.bytes);
}

static const struct simgpu_param params[] = {{0, 8}, {8, 8}};
static const struct simgpu_kernel kernel = {"poke", params, 2, touches, body, NULL};
static const struct simgpu_image image = {SIMGPU_IMAGE_MAGIC, SIMGPU_IMAGE_VERSION, 1, &kernel};

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    size_t n = strtoul(argv[1], NULL, 10), bytes = strtoul(argv[2], NULL, 10);
    int fresh = strcmp(argv[3], "fresh") == 0;
    size_t rounds = fresh ? 3 : strtoul(argv[3], NULL, 10);
    CUcontext ctx;
    CUmodule module;
    CUfunction poke;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&ctx, 0));
    CHECK(cuCtxSetCurrent(ctx));
    CHECK(cuModuleLoadData(&module, &image));
    CHECK(cuModuleGetFunction(&poke, module, "poke"));
    CUdeviceptr *block = malloc(n * sizeof *block);
    unsigned char *host = malloc(bytes);
    if (!block || !host)
        return 2;
    for (size_t i = 0; i < (rounds ? n : 1); i++) {
        CHECK(cuMemAlloc(&block[i], bytes));
        CHECK(cuMemsetD8(block[i], (unsigned char)(i + 1), bytes));
    }
    for (size_t k = 0; k < rounds; k++)
        for (size_t i = n; i-- > 0;)
            expect(block[i], (int)i + 1, host, bytes, "before");
    if (fresh) {
        CUdeviceptr old = block[0];
        CHECK(cuMemFree(old));
        CHECK(cuMemAlloc(&block[0], bytes));
        if (block[0] != old) {
            printf("hidden: the new block is elsewhere\n");
            return 1;
        }
    }
    struct args a = {block[0] ^ MASK, bytes};
    void *args[] = {&a.masked, &a.bytes};
    CHECK(cuLaunchKernel(poke, 1, 1, 1, 32, 1, 1, 0, NULL, args, NULL));
    CUresult r = cuCtxSynchronize();
    if (r == CUDA_ERROR_ILLEGAL_ADDRESS) {
        printf("hidden: fault\n");
        return 0;
    }
    CHECK(r);
    for (size_t i = 1; !rounds && i < n; i++) {
        CHECK(cuMemAlloc(&block[i], bytes));
        CHECK(cuMemsetD8(block[i], (unsigned char)(i + 1), bytes));
    }
    for (size_t i = 1; i < n; i++)
        expect(block[i], (int)i + 1, host, bytes, "another block");
    expect(block[0], 0x77, host, bytes, "after the hidden write");
    printf("hidden: written\n");
    return 0;
}
