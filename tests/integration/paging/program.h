/* program.h: what the programs of this folder share. Each defines PROGRAM, its name in what it
 * prints, first. */
#ifndef PAGING_PROGRAM_H
#define PAGING_PROGRAM_H

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

/* Ends the program, naming the call, unless it worked. */
#define CHECK(call) check(call, #call)
static inline void check(CUresult r, const char *what)
{
    const char *name = "?";
    if (r == CUDA_SUCCESS)
        return;
    cuGetErrorName(r, &name);
    printf(PROGRAM ": %s: %s\n", what, name);
    exit(1);
}

/* Ends the program unless every byte of the block is `byte`; `host` has room for them. */
static inline void expect(CUdeviceptr p, int byte, unsigned char *host, size_t bytes,
                          const char *when)
{
    CHECK(cuMemcpyDtoH(host, p, bytes));
    for (size_t i = 0; i < bytes; i++)
        if (host[i] != (unsigned char)byte) {
            printf(PROGRAM ": %s: byte %zu is %d instead of %d\n", when, i, host[i], byte);
            exit(1);
        }
}

#endif
