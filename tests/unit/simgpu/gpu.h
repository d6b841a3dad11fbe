/* gpu.h: what the simulated driver's tests share: a small image of kernels, and starting up. Each
 * Criterion test is its own process, so the environment can be set before the first call. */
#ifndef TEST_GPU_H
#define TEST_GPU_H

#include <criterion/criterion.h>
#include <cuda.h>
#include <simgpu.h>
#include <stdlib.h>
#include <string.h>

#define OK(call) cr_assert_eq((call), CUDA_SUCCESS, "%s", #call)
#define FAILS(call, error)                                                                         \
    do {                                                                                           \
        CUresult got_ = (call);                                                                    \
        cr_assert_eq(got_, (error), "%s gave %d", #call, got_);                                    \
    } while (0)

/* add: dst[i] = dst[i] + value for n words. move: dst[i] = src[i]. chase: *(*(table)) = value.
 * hidden: writes through a pointer that it does not declare. work: takes the ns that it is told. */
enum { K_ADD, K_MOVE, K_CHASE, K_HIDDEN, K_WORK, K_COUNT };
extern const struct simgpu_image test_image;
extern const char *const test_kernel_names[K_COUNT];

struct gpu {
    CUcontext ctx;
    CUmodule mod;
    CUfunction fn[K_COUNT];
};

/* env: NAME, VALUE, ..., NULL: set before cuInit. */
struct gpu gpu_start(const char *const *env);
#define START(...) gpu_start((const char *const[]){__VA_ARGS__, NULL})

void gpu_add(const struct gpu *g, CUdeviceptr dst, unsigned value, unsigned n, CUstream s);
void gpu_move(const struct gpu *g, CUdeviceptr dst, CUdeviceptr src, unsigned n, CUstream s);
void gpu_work(const struct gpu *g, double ns, CUdeviceptr dst, unsigned n, CUstream s);

/* Runs body in a child with stderr in a file; gives the exit status and the text (static). */
const char *gpu_stderr_of(void (*body)(void), int *status);

#endif
