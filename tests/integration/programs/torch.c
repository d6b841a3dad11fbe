/* A program with PyTorch in it, as far as libvmem can tell.
 *
 *   torch LIBRARY            loads LIBRARY, initialises CUDA, prints what became of the environment
 *   torch LIBRARY thread     the same while a second thread reads the environment
 *   torch LIBRARY allocate   uses libvmem's allocator pair as
 * torch.cuda.memory.CUDAPluggableAllocator does
 */
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* Every variable of the start must be there at any time. */
static void *read_forever(void *arg)
{
    for (;;) {
        if (!getenv("LD_PRELOAD") || !getenv(arg))
            _exit(3);
    }
    return NULL;
}

static int allocate(void)
{
    void *(*take)(ssize_t, int, CUstream);
    void (*give)(void *, ssize_t, int, CUstream);
    void *p = dlsym(RTLD_DEFAULT, "vmem_torch_malloc"), *q = dlsym(RTLD_DEFAULT, "vmem_torch_free");
    unsigned char in[1000], out[1000] = {0};
    CUcontext before = NULL, after = NULL;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    if (!p || !q)
        return 1;
    memcpy(&take, &p, sizeof p);
    memcpy(&give, &q, sizeof q);
    cuCtxGetCurrent(&before);
    void *block = take(1000, 0, NULL);
    cuCtxGetCurrent(&after);
    printf("current context kept %d\n", before == after);
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (unsigned char)(i * 7);
    CUcontext ctx;
    if (cuDevicePrimaryCtxRetain(&ctx, 0) || cuCtxSetCurrent(ctx) ||
        cuMemGetAddressRange(&base, &bytes, (CUdeviceptr)block) ||
        cuMemcpyHtoD((CUdeviceptr)block, in, 1000) || cuMemcpyDtoH(out, (CUdeviceptr)block, 1000))
        return 1;
    printf("block of %zu bytes, contents kept %d\n", bytes, memcmp(in, out, sizeof in) == 0);
    give(block, 1000, 0, NULL);
    printf("freed %d\n", cuMemGetAddressRange(&base, &bytes, (CUdeviceptr)block) != CUDA_SUCCESS);
    printf("nothing for nothing %d, for too much %d\n", take(0, 0, NULL) == NULL,
           take((ssize_t)1 << 60, 0, NULL) == NULL);
    give(NULL, 0, 0, NULL);
    return 0;
}

int main(int argc, char **argv)
{
    pthread_t t;
    if (argc < 2 || !dlopen(argv[1], RTLD_NOW | RTLD_LOCAL)) {
        printf("%s\n", argc < 2 ? "no library" : dlerror());
        return 1;
    }
    if (argc > 2 && strcmp(argv[2], "thread") == 0 &&
        (setenv("SET_BEFORE", "1", 1) != 0 ||
         pthread_create(&t, NULL, read_forever, "SET_BEFORE") != 0))
        return 1;
    printf("init %d\n", (int)cuInit(0));
    /* The program may go on to change its environment (with a reader it would be its own race). */
    if (argc == 2 && (setenv("SET_AFTER", "1", 1) != 0 || !getenv("SET_AFTER")))
        return 1;
    const char *value = getenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
    printf("caching %s\n", value ? value : "untouched");
    return argc > 2 && strcmp(argv[2], "allocate") == 0 ? allocate() : 0;
}
