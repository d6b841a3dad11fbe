/* textures.c: a kernel that reads a block through a texture object, of which its parameters say nothing
 * but a number, while other blocks come and go. */
#include "api.h"
#include "simgpu.h"

#define WORDS  (1u << 18)
#define OTHERS 40

/* What the texture unit would know. */
static struct {
    CUtexObject object;
    CUdeviceptr memory;
} bound;

struct args {
    uint64_t texture, dst, n;
};

static struct args get(const struct simgpu_launch *l)
{
    struct args a;
    memcpy(&a, l->params, sizeof a);
    return a;
}

static void touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct args a = get(l);
    if (a.texture == bound.object)
        touch(ctx, bound.memory, a.n * 4, SIMGPU_READ);
    touch(ctx, a.dst, a.n * 4, SIMGPU_WRITE);
}

static void body(const struct simgpu_launch *l)
{
    struct args a = get(l);
    for (uint64_t i = 0; i < a.n; i++)
        ((uint32_t *)(uintptr_t)a.dst)[i] = ((uint32_t *)(uintptr_t)bound.memory)[i] + 1;
}

static const struct simgpu_param params[] = {{0, 8}, {8, 8}, {16, 8}};
static const struct simgpu_kernel kernel = {"fetch", params, 3, touches, body, NULL};
static const struct simgpu_image image = {SIMGPU_IMAGE_MAGIC, SIMGPU_IMAGE_VERSION, 1, &kernel};

static CUtexObject bind(CUdeviceptr p)
{
    CUDA_RESOURCE_DESC r;
    CUDA_TEXTURE_DESC t;
    CUtexObject o;
    memset(&r, 0, sizeof r);
    memset(&t, 0, sizeof t);
    r.resType = CU_RESOURCE_TYPE_LINEAR;
    r.res.linear.devPtr = p;
    r.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT32;
    r.res.linear.numChannels = 1;
    r.res.linear.sizeInBytes = WORDS * 4;
    DRV(cuTexObjectCreate(&o, &r, &t, NULL));
    memset(&r, 0, sizeof r);
    DRV(cuTexObjectGetResourceDesc(&r, o));
    printf("the object tells its memory: %d\n",
           r.res.linear.devPtr == p && r.res.linear.sizeInBytes == WORDS * 4);
    return o;
}

int main(void)
{
    static uint32_t host[WORDS];
    CUcontext context;
    CUmodule module;
    CUfunction fetch;
    CUdeviceptr source, result, others[OTHERS];
    int right = 1;
    DRV(cuInit(0));
    DRV(cuDevicePrimaryCtxRetain(&context, 0));
    DRV(cuCtxSetCurrent(context));
    DRV(cuModuleLoadData(&module, &image));
    DRV(cuModuleGetFunction(&fetch, module, "fetch"));
    DRV(cuMemAlloc(&source, WORDS * 4));
    DRV(cuMemsetD32(source, 41, WORDS));
    CUtexObject o = bind(source);
    bound.object = o;
    bound.memory = source;
    for (int i = 0; i < OTHERS; i++) {
        DRV(cuMemAlloc(&others[i], WORDS * 4));
        DRV(cuMemsetD32(others[i], (unsigned)i, WORDS));
    }
    DRV(cuMemAlloc(&result, WORDS * 4));
    uint64_t n = WORDS;
    void *args[] = {&o, &result, &n};
    DRV(cuLaunchKernel(fetch, WORDS / 256, 1, 1, 256, 1, 1, 0, NULL, args, NULL));
    DRV(cuMemcpyDtoH(host, result, sizeof host));
    printf("read through the texture: %d\n", api_is(host, 42, 0, WORDS));
    for (int i = 0; i < OTHERS; i++) {
        DRV(cuMemcpyDtoH(host, others[i], sizeof host));
        right &= api_is(host, (uint32_t)i, 0, WORDS);
        DRV(cuMemFree(others[i]));
    }
    printf("the others kept theirs: %d\n", right);
    DRV(cuTexObjectDestroy(o));
    printf("destroyed twice: CUresult %d\n", (int)cuTexObjectDestroy(o));
    DRV(cuMemFree(source));
    DRV(cuMemFree(result));
    return 0;
}
