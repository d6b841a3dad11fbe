/* cublasLtMatmul at the doors: what the wrapper says of the call's blocks, from the layouts of a
 * stand-in for the library. Run with the double (double.c) preloaded. */
#include <cublasLt.h>
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static size_t (*take)(char *, size_t);
static int failures, checks;
static CUdeviceptr a, b, c, d, work; /* b0 .. b4; d holds 16 x 8 floats */

/* Runs one product and compares the line of the double. */
static void product(int line, cublasLtMatmulDescOpaque_t *desc, float beta,
                    cublasLtMatrixLayoutOpaque_t *out, const char *want)
{
    static char seen[4096];
    cublasLtMatrixLayoutOpaque_t m = {{CUDA_R_32F, CUBLASLT_ORDER_COL, 8, 8, 8, 1, 0, 0}};
    const float one = 1;
    take(seen, sizeof seen);
    cublasStatus_t s =
        cublasLtMatmul((cublasLtHandle_t)8, desc, &one, (void *)a, &m, (void *)b, &m, &beta,
                       (void *)c, out, (void *)d, out, NULL, (void *)work, 1024, NULL);
    take(seen, sizeof seen);
    checks++;
    if (s != CUBLAS_STATUS_ARCH_MISMATCH || strcmp(seen, want) != 0) {
        failures++;
        printf("FAILED at line %d: status %d, wanted \"%s\", saw \"%s\"\n", line, (int)s, want,
               seen);
    }
}
#define PRODUCT(...) product(__LINE__, __VA_ARGS__)

int main(void)
{
    CUcontext ctx;
    CUdeviceptr *all[] = {&a, &b, &c, &d, &work};
    size_t sizes[] = {256, 256, 512, 512, 1024};
    void *p = dlsym(RTLD_DEFAULT, "vmem_double_take");
    if (!p || cuInit(0) || cuDevicePrimaryCtxRetain(&ctx, 0) || cuCtxSetCurrent(ctx)) {
        printf("the double or the driver is missing\n");
        return 1;
    }
    memcpy(&take, &p, sizeof p);
    for (int i = 0; i < 5; i++)
        if (cuMemAlloc(all[i], sizes[i]))
            return 1;
    cublasLtMatmulDescOpaque_t host = {{0, CUDA_R_32F, CUBLASLT_POINTER_MODE_HOST}};
    cublasLtMatmulDescOpaque_t device = {{0, CUDA_R_32F, CUBLASLT_POINTER_MODE_DEVICE}};
    cublasLtMatrixLayoutOpaque_t whole = {{CUDA_R_32F, CUBLASLT_ORDER_COL, 16, 8, 16, 1, 0, 0}};
    cublasLtMatrixLayoutOpaque_t rows = {{CUDA_R_32F, CUBLASLT_ORDER_ROW, 8, 16, 16, 1, 0, 0}};
    cublasLtMatrixLayoutOpaque_t gaps = {{CUDA_R_32F, CUBLASLT_ORDER_COL, 8, 8, 16, 1, 0, 0}};
    cublasLtMatrixLayoutOpaque_t batch = {{CUDA_R_32F, CUBLASLT_ORDER_COL, 8, 8, 8, 2, 64, 0}};
    cublasLtMatrixLayoutOpaque_t tiled = {{CUDA_R_32F, CUBLASLT_ORDER_COL32, 16, 8, 16, 1, 0, 0}};
    cublasLtMatrixLayoutOpaque_t table = {{CUDA_R_32F, CUBLASLT_ORDER_COL, 16, 8, 16, 1, 0, 1}};
    const char *fresh = "libcall cublasLtMatmul layer=8 flags=0 b0:r/0 b1:r/0 b4:wt/7 b3:wt/0\n";
    const char *partial = "libcall cublasLtMatmul layer=8 flags=0 b0:r/0 b1:r/0 b4:wt/7 b3:w/0\n";
    const char *adds =
        "libcall cublasLtMatmul layer=8 flags=0 b0:r/0 b1:r/0 b2:r/0 b4:wt/7 b3:wt/0\n";
    PRODUCT(&host, 0, &whole, fresh);
    PRODUCT(&host, 0, &rows, fresh);
    PRODUCT(&host, 0, &batch, fresh);
    PRODUCT(&host, 0, &gaps, partial);
    PRODUCT(&host, 0, &tiled, partial);
    PRODUCT(&host, 0, &table, partial);
    PRODUCT(&host, 1, &whole, adds);
    PRODUCT(&device, 0, &whole, adds);
    /* The comparison itself can fail. */
    int before = failures;
    freopen("/dev/null", "w", stdout);
    PRODUCT(&host, 0, &whole, adds);
    freopen("/dev/stderr", "w", stdout);
    if (failures != before + 1)
        printf("the planted fault went unnoticed\n");
    failures = failures == before + 1 ? before : failures + 1;
    printf("%d checks, %d failures\n", checks, failures);
    return failures != 0;
}
