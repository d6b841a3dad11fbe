/* The older runtime writes CUDA 12's structures, which are shorter than those of the header we have: the bytes
 * behind them belong to the caller. usage: abi12 LIBCUDART.SO.12 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* cudaPointerAttributes as CUDA 12 has it. */
struct attributes {
    int type, device;
    void *device_pointer, *host_pointer;
};

int main(int argc, char **argv)
{
    void *so = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    void *names[2] = {so ? dlsym(so, "cudaMalloc") : NULL, so ? dlsym(so, "cudaPointerGetAttributes") : NULL};
    int (*take)(void **, size_t);
    int (*query)(struct attributes *, const void *);
    if (!names[0] || !names[1]) {
        printf("%s\n", argc > 1 ? dlerror() : "no library given");
        return 1;
    }
    memcpy(&take, &names[0], sizeof take);
    memcpy(&query, &names[1], sizeof query);
    struct {
        struct attributes a;
        unsigned char behind[256];
    } out;
    void *p = NULL;
    memset(&out, 0x5a, sizeof out);
    if (take(&p, 4096) != 0 || query(&out.a, p) != 0)
        return 2;
    for (size_t i = 0; i < sizeof out.behind; i++)
        if (out.behind[i] != 0x5a) {
            printf("byte %zu behind the structure was written\n", i);
            return 3;
        }
    const int device_memory = 2; /* cudaMemoryTypeDevice */
    if (out.a.type != device_memory || out.a.device != 0 || out.a.device_pointer != p || out.a.host_pointer) {
        printf("type %d, device %d, %p, %p for %p\n", out.a.type, out.a.device, out.a.device_pointer,
               out.a.host_pointer, p);
        return 4;
    }
    return 0;
}
