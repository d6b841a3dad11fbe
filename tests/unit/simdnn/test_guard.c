/* The checks of host_card catch planted faults; refusals of bad descriptors; costs follow the
 * shapes. */
#include "common.h"

#include "conv.h"
#include "kernels.h"

/* Kernels that copy 64 floats and lie about what they touch. */
struct copy_args {
    uint64_t from, to;
};

static void copy_body(const struct simgpu_launch *l)
{
    struct copy_args a;
    memcpy(&a, l->params, sizeof a);
    memcpy((void *)(uintptr_t)a.to, (const void *)(uintptr_t)a.from, 256);
}

static void copy_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    *work = (struct simgpu_work){.bytes = 512};
}

static void touch_both(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx,
                       size_t from_bytes, size_t to_bytes)
{
    struct copy_args a;
    memcpy(&a, l->params, sizeof a);
    touch(ctx, a.from, from_bytes, SIMGPU_READ);
    touch(ctx, a.to, to_bytes, SIMGPU_WRITE);
}

static void honest(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    touch_both(l, touch, ctx, 256, 256);
}

static void reads_more(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    touch_both(l, touch, ctx, 252, 256);
}

static void writes_more(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    touch_both(l, touch, ctx, 256, 252);
}

static void writes_less(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    touch_both(l, touch, ctx, 256, 260);
}

Test(guard, lies_about_ranges_are_caught)
{
    static const struct simgpu_param params[] = {{0, 8}, {8, 8}};
    void (*const touches[])(const struct simgpu_launch *, simgpu_touch_fn,
                            void *) = {honest, reads_more, writes_more, writes_less};
    for (int i = 0; i < 4; i++) {
        card_reset(1);
        float *from = card_random(64), *to = card_random(128), want = from[63];
        struct simgpu_kernel k = {"liar", params, 2, touches[i], copy_body, copy_cost};
        struct copy_args a = {(uint64_t)(uintptr_t)from, (uint64_t)(uintptr_t)to};
        card_run(&k, &a);
        cr_assert_eq(card_faults() > 0, i > 0, "lie %d: %u faults", i, card_faults());
        if (i == 0) {
            cr_assert_float_eq(to[63], want, 0);
        }
    }
}

Test(guard, refusals_name_the_reason)
{
    card_reset(1);
    cudnnHandle_t h;
    char why[256];
    OK(cudnnCreate(&h));
    card_keep(h, drop_handle);
    cudnnTensorDescriptor_t unset, half, ok;
    cudnnActivationDescriptor_t act;
    NEW(TensorDescriptor, unset);
    NEW(TensorDescriptor, half);
    NEW(TensorDescriptor, ok);
    OK(cudnnSetTensor4dDescriptor(half, CUDNN_TENSOR_NCHW, CUDNN_DATA_HALF, 1, 2, 3, 4));
    OK(cudnnSetTensor4dDescriptor(ok, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 2, 3, 4));
    NEW(ActivationDescriptor, act);
    OK(cudnnSetActivationDescriptor(act, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0));
    float *x = card_random(24), one = 1, zero = 0;
    cr_assert_eq((int)cudnnActivationForward(h, act, &one, unset, x, &zero, ok, x),
                 CUDNN_STATUS_BAD_PARAM);
    cudnnGetLastErrorString(why, sizeof why);
    cr_assert(strstr(why, "cudnnActivationForward") && strstr(why, "never set"), "%s", why);
    cr_assert_eq((int)cudnnActivationForward(h, act, &one, half, x, &zero, ok, x),
                 CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
    cr_assert_eq(
        (int)cudnnSetTensor4dDescriptor(ok, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, 1, 0, 3, 4),
        CUDNN_STATUS_BAD_PARAM);
    cr_assert_eq(card_launches(), 0u);
    size_t bytes;
    OK(cudnnGetTensorSizeInBytes(half, &bytes));
    cr_assert_eq(bytes, 48u);
    cr_assert_str_eq(cudnnGetErrorString(CUDNN_STATUS_BAD_PARAM), "CUDNN_STATUS_BAD_PARAM");
    cr_assert_geq(cudnnGetVersion(), (size_t)CUDNN_VERSION);
}

/* 3x3 convolution of VGG's kind; the direct products count at least the plain multiply-adds. */
Test(guard, costs_follow_the_shapes)
{
    struct sg_conv_shape s = {.x = {.dim = {64, 128, 1, 56, 56}},
                              .y = {.dim = {64, 256, 1, 56, 56}},
                              .w = {.dim = {256, 128, 1, 3, 3}},
                              .pad = {0, 1, 1},
                              .stride = {1, 1, 1},
                              .dilation = {1, 1, 1},
                              .groups = 1};
    double plain = 2.0 * 64 * 256 * 128 * 9 * 56 * 56;
    for (int dir = SG_CONV_FWD; dir <= SG_CONV_BWD_FILTER; dir++) {
        struct sg_conv_model direct = sg_conv_model(&s, (enum sg_conv_dir)dir, 1);
        cr_assert(direct.supported && direct.flops >= plain && direct.flops < 1.2 * plain,
                  "direction %d: %g of %g", dir, direct.flops, plain);
    }
    struct sg_conv_model fast = sg_conv_model(&s, SG_CONV_FWD, CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD);
    cr_assert(fast.supported && fast.kclass == SIMGPU_CLASS_CONV_FAST && fast.flops < plain / 1.4);
    /* transforms in parts bound the workspace and pay by transforming again */
    struct sg_conv_model whole = sg_conv_model(&s, SG_CONV_FWD, CUDNN_CONVOLUTION_FWD_ALGO_FFT);
    struct sg_conv_model parts =
        sg_conv_model(&s, SG_CONV_FWD, CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING);
    cr_assert(whole.supported && parts.supported);
    cr_assert(parts.workspace_bytes <= 192u << 20 && whole.workspace_bytes > 192u << 20,
              "%llu and %llu", (unsigned long long)parts.workspace_bytes,
              (unsigned long long)whole.workspace_bytes);
    cr_assert(parts.flops < plain && whole.flops < plain);
    s.stride[2] = 2;
    cr_assert(!sg_conv_model(&s, SG_CONV_FWD, CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD).supported);
    cr_assert(!sg_conv_model(&s, SG_CONV_FWD, CUDNN_CONVOLUTION_FWD_ALGO_FFT).supported);
}
