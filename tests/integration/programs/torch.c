/* A program with PyTorch in it, as far as libvmem can tell.
 *
 *   torch LIBRARY            loads LIBRARY, initialises CUDA, prints what became of the environment
 *   torch LIBRARY thread     the same with a second thread running
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

static void *wait_forever(void *arg)
{
    (void)arg;
    for (;;)
        pause();
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
        pthread_create(&t, NULL, wait_forever, NULL) != 0)
        return 1;
    printf("init %d\n", (int)cuInit(0));
    const char *value = getenv("PYTORCH_NO_CUDA_MEMORY_CACHING");
    printf("caching %s\n", value ? value : "untouched");
    return argc > 2 && strcmp(argv[2], "allocate") == 0 ? allocate() : 0;
}
