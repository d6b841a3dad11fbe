/* arrays.c: every copy form with an array on one side or both, while blocks of ordinary memory, the
 * other side of the copies among them, come and go. */
#include "api.h"

#define W      100u /* elements of a row, of four bytes */
#define H      37u
#define D      5u
#define ROW    (W * 4)
#define OTHERS 40
#define BIG    ((size_t)2 << 20)

static CUdeviceptr others[OTHERS];
static unsigned next;

/* Uses other memory, so that what was not used for a while may have to leave. */
static void churn(void)
{
    for (int i = 0; i < 24; i++, next++) {
        CUdeviceptr *p = &others[next % OTHERS];
        if (!*p)
            DRV(cuMemAlloc(p, BIG));
        DRV(cuMemsetD32(*p, next, BIG / 4));
    }
}

static void ramp(uint32_t *p, uint32_t first, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = first + (uint32_t)i;
}

static CUarray make(size_t w, size_t h, size_t d, unsigned flags)
{
    CUarray a;
    const CUDA_ARRAY3D_DESCRIPTOR what = {.Width = w,
                                          .Height = h,
                                          .Depth = d,
                                          .Format = CU_AD_FORMAT_UNSIGNED_INT32,
                                          .NumChannels = 1,
                                          .Flags = flags};
    DRV(cuArray3DCreate(&a, &what));
    return a;
}

static void one_dimension(void)
{
    static uint32_t in[4096], out[4096];
    CUarray a = make(4096, 0, 0, 0), b = make(4096, 0, 0, 0);
    CUdeviceptr p, q;
    CUstream s;
    DRV(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    DRV(cuMemAlloc(&p, sizeof in));
    DRV(cuMemAlloc(&q, sizeof in));
    ramp(in, 7, 4096);
    DRV(cuMemcpyHtoD(p, in, sizeof in));
    churn();
    DRV(cuMemcpyDtoA(a, 0, p, sizeof in));
    DRV(cuMemcpyAtoA(b, 0, a, 0, sizeof in));
    DRV(cuMemsetD8(q, 0, sizeof in));
    churn();
    DRV(cuMemcpyAtoD(q, b, 400, sizeof in - 400));
    DRV(cuMemcpyDtoH(out, q, sizeof out));
    printf("by way of two arrays: %d\n", api_is(out, 107, 1, 3996) && !out[3996]);
    DRV(cuMemcpyHtoAAsync(a, 4000, in, 96, s));
    DRV(cuMemcpyAtoHAsync(out, a, 0, sizeof out, s));
    DRV(cuStreamSynchronize(s));
    printf("asynchronous with the host: %d\n",
           api_is(out, 7, 1, 1000) && api_is(out + 1000, 7, 1, 24) && out[1024] == 1031);
    DRV(cuMemcpyHtoA(a, 0, in, sizeof in));
    DRV(cuMemcpyAtoH(out, a, 0, sizeof out));
    printf("blocking with the host: %d\n", api_is(out, 7, 1, 4096));
    DRV_EXPECT(cuMemcpyDtoA(a, 4, p, sizeof in), CUDA_ERROR_INVALID_VALUE);
    DRV_EXPECT(cuMemcpyAtoD(q, b, 0, 6), CUDA_ERROR_INVALID_VALUE);
    DRV(cuStreamDestroy(s));
    DRV(cuArrayDestroy(a));
    DRV(cuArrayDestroy(b));
    DRV(cuMemFree(p));
    DRV(cuMemFree(q));
}

static void two_dimensions(void)
{
    static uint32_t in[H][W], out[H][W];
    CUarray a;
    CUdeviceptr p;
    size_t pitch;
    const CUDA_ARRAY_DESCRIPTOR what = {W, H, CU_AD_FORMAT_UNSIGNED_INT32, 1};
    CUDA_ARRAY_DESCRIPTOR told;
    DRV(cuArrayCreate(&a, &what));
    DRV(cuArrayGetDescriptor(&told, a));
    printf("it tells its shape: %d\n",
           told.Width == W && told.Height == H && told.NumChannels == 1);
    DRV(cuMemAllocPitch(&p, &pitch, ROW, H, 4));
    ramp(&in[0][0], 11, W * H);
    CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                       .srcHost = in,
                       .srcPitch = ROW,
                       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                       .dstDevice = p,
                       .dstPitch = pitch,
                       .WidthInBytes = ROW,
                       .Height = H};
    DRV(cuMemcpy2D(&c));
    churn();
    c.srcMemoryType = CU_MEMORYTYPE_UNIFIED; /* rows of the block into the array */
    c.srcDevice = p;
    c.srcPitch = pitch;
    c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    c.dstArray = a;
    DRV(cuMemcpy2DAsync(&c, NULL));
    DRV(cuMemsetD8(p, 0, pitch * H));
    churn();
    /* a window of the array to another place of the block */
    c = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                        .srcArray = a,
                        .srcXInBytes = 40,
                        .srcY = 3,
                        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                        .dstDevice = p,
                        .dstPitch = pitch,
                        .dstY = 1,
                        .WidthInBytes = 80,
                        .Height = 9};
    DRV(cuMemcpy2DUnaligned(&c));
    c = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                        .srcDevice = p,
                        .srcPitch = pitch,
                        .dstMemoryType = CU_MEMORYTYPE_HOST,
                        .dstHost = out,
                        .dstPitch = ROW,
                        .WidthInBytes = ROW,
                        .Height = H};
    DRV(cuMemcpy2D(&c));
    int right = api_is(out[0], 0, 0, W) && api_is(out[10], 0, 0, W);
    for (unsigned y = 0; y < 9; y++)
        right &= api_is(out[1 + y], 11 + (3 + y) * W + 10, 1, 20) && !out[1 + y][20];
    printf("a window of it: %d\n", right);
    c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    c.srcArray = a;
    DRV(cuMemcpy2D(&c));
    printf("all of it: %d\n", api_is(&out[0][0], 11, 1, W * H));
    c.srcY = 1;
    DRV_EXPECT(cuMemcpy2D(&c), CUDA_ERROR_INVALID_VALUE);
    DRV_EXPECT(cuMemcpyAtoH(out, a, 0, 4), CUDA_ERROR_INVALID_VALUE);
    DRV(cuArrayDestroy(a));
    c.srcY = 0;
    DRV_EXPECT(cuMemcpy2D(&c), CUDA_ERROR_INVALID_HANDLE);
    DRV_EXPECT(cuArrayDestroy(a), CUDA_ERROR_INVALID_HANDLE);
    DRV(cuMemFree(p));
}

/* Layers from a graph's node, boxes from a batch. */
static void three_dimensions(CUcontext context)
{
    static uint32_t in[D][H][W], out[D][H][W];
    CUarray a = make(W, H, D, CUDA_ARRAY3D_LAYERED);
    CUDA_ARRAY3D_DESCRIPTOR told;
    CUdeviceptr p;
    CUstream s;
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode node;
    DRV(cuStreamCreate(&s, CU_STREAM_DEFAULT));
    DRV(cuArray3DGetDescriptor(&told, a));
    printf("layers: %d\n", told.Depth == D && told.Flags == CUDA_ARRAY3D_LAYERED);
    DRV_EXPECT(cuArrayGetDescriptor(&(CUDA_ARRAY_DESCRIPTOR){0}, a), CUDA_ERROR_INVALID_VALUE);
    DRV(cuMemAlloc(&p, sizeof in));
    ramp(&in[0][0][0], 23, W * H * D);
    DRV(cuMemcpyHtoD(p, in, sizeof in));
    churn();
    const CUDA_MEMCPY3D c = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                             .srcDevice = p,
                             .srcPitch = ROW,
                             .srcHeight = H,
                             .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                             .dstArray = a,
                             .WidthInBytes = ROW,
                             .Height = H,
                             .Depth = D};
    DRV(cuGraphCreate(&graph, 0));
    DRV(cuGraphAddMemcpyNode(&node, graph, NULL, 0, &c, context));
    DRV(cuGraphInstantiate(&exec, graph, 0));
    churn();
    DRV(cuGraphLaunch(exec, s));
    DRV(cuStreamSynchronize(s));
    DRV(cuGraphExecDestroy(exec));
    DRV(cuGraphDestroy(graph));
    DRV(cuMemsetD8(p, 0, sizeof in));
    churn();
    CUDA_MEMCPY3D_BATCH_OP op = {.extent = {W, H, 2}}; /* in elements, as an array is named */
    op.src.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    op.src.op.array.array = a;
    op.src.op.array.offset = (CUoffset3D){0, 0, 3};
    op.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    op.dst.op.ptr.ptr = p;
    op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    DRV(cuMemcpy3DBatchAsync(1, &op, 0, s));
    DRV(cuMemcpyDtoHAsync(out, p, sizeof out, s));
    DRV(cuStreamSynchronize(s));
    printf("two layers by a batch: %d\n",
           api_is(&out[0][0][0], 23 + 3 * H * W, 1, 2 * H * W) && !out[2][0][0]);
    DRV(cuArrayDestroy(a));
    DRV(cuMemFree(p));
    DRV(cuStreamDestroy(s));
}

/* Objects over arrays keep what they were told. */
static void objects(void)
{
    CUarray a = make(W, H, 0, CUDA_ARRAY3D_SURFACE_LDST), plain = make(W, H, 0, 0);
    CUtexObject t;
    CUsurfObject s;
    CUDA_RESOURCE_DESC r;
    CUDA_TEXTURE_DESC how;
    memset(&r, 0, sizeof r);
    memset(&how, 0, sizeof how);
    r.resType = CU_RESOURCE_TYPE_ARRAY;
    r.res.array.hArray = a;
    DRV(cuTexObjectCreate(&t, &r, &how, NULL));
    DRV(cuSurfObjectCreate(&s, &r));
    memset(&r, 0, sizeof r);
    DRV(cuSurfObjectGetResourceDesc(&r, s));
    printf("a surface tells its array: %d\n", r.res.array.hArray == a);
    r.res.array.hArray = plain;
    DRV_EXPECT(cuSurfObjectCreate(&s, &r), CUDA_ERROR_INVALID_VALUE); /* not made for it */
    DRV(cuTexObjectGetResourceDesc(&r, t));
    printf("a texture too: %d\n", r.res.array.hArray == a);
    DRV(cuTexObjectDestroy(t));
    DRV(cuSurfObjectDestroy(s));
    DRV(cuArrayDestroy(a));
    DRV(cuArrayDestroy(plain));
}

int main(void)
{
    CUcontext context;
    static uint32_t host[BIG / 4];
    int right = 1;
    DRV(cuInit(0));
    DRV(cuDevicePrimaryCtxRetain(&context, 0));
    DRV(cuCtxSetCurrent(context));
    one_dimension();
    two_dimensions();
    three_dimensions(context);
    objects();
    for (unsigned i = 0; i < OTHERS; i++) {
        DRV(cuMemcpyDtoH(host, others[i], BIG));
        unsigned last = next - 1 - (next - 1 - i) % OTHERS;
        right &= api_is(host, last, 0, BIG / 4);
        DRV(cuMemFree(others[i]));
    }
    printf("the others kept theirs: %d\n", right);
    CUDA_ARRAY3D_DESCRIPTOR bad = {.Width = 4, .NumChannels = 3, .Format = CU_AD_FORMAT_FLOAT};
    CUarray a;
    DRV_EXPECT(cuArray3DCreate(&a, &bad), CUDA_ERROR_INVALID_VALUE);
    bad.NumChannels = 1;
    bad.Width = 0;
    DRV_EXPECT(cuArray3DCreate(&a, &bad), CUDA_ERROR_INVALID_VALUE);
    return 0;
}
