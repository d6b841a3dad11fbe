/* api.h: what the programs of this folder share: checks, and a few kernels of their own.
 *
 * The programs are ordinary CUDA programs: they know nothing of the simulator but the image that
 * stands for compiled kernels, and nothing of libvmem.so. Each prints what it found, in words that do
 * not depend on addresses or sizes of the card, so that two runs can be compared line by line.
 */
#ifndef API_H
#define API_H

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program, naming the call, unless it returns `want`. */
#define EXPECT(call, want)                                                                         \
    do {                                                                                           \
        cudaError_t got_ = (call);                                                                 \
        if (got_ != (want)) {                                                                      \
            fprintf(stderr, "%s:%d: %s: %s, not %s\n", __FILE__, __LINE__, #call,                  \
                    cudaGetErrorName(got_), cudaGetErrorName(want));                               \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define OK(call) EXPECT(call, cudaSuccess)

#define DRV_EXPECT(call, want)                                                                     \
    do {                                                                                           \
        CUresult got_ = (call);                                                                    \
        if (got_ != (want)) {                                                                      \
            fprintf(stderr, "%s:%d: %s: CUresult %d, not %d\n", __FILE__, __LINE__, #call,         \
                    (int)got_, (int)(want));                                                       \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define DRV(call) DRV_EXPECT(call, CUDA_SUCCESS)

#define TRUE_(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #what);                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* Kernels over 32-bit words, launched as nvcc's stubs would. `n` counts words. */
void api_fill(cudaStream_t s, uint32_t *dst, uint32_t value, uint64_t n);       /* dst[i] = value      */
void api_ramp(cudaStream_t s, uint32_t *dst, uint32_t first, uint64_t n);       /* dst[i] = first + i  */
void api_add(cudaStream_t s, uint32_t *dst, const uint32_t *a, const uint32_t *b,
             uint64_t n);                                                       /* dst[i] = a[i]+b[i]  */
void api_scale(cudaStream_t s, uint32_t *dst, uint32_t factor, uint64_t n);     /* dst[i] *= factor    */

/* The host stubs themselves, for calls that take a function; and the image for the driver API. */
extern const void *const api_fill_stub, *const api_ramp_stub, *const api_add_stub,
    *const api_scale_stub;
extern const void *const api_image;

/* 1 if every word of host memory equals value + step * i. */
int api_is(const uint32_t *p, uint32_t value, uint32_t step, uint64_t n);

#endif
