/* backend_use.h: a program's side of cuDNN's backend API: descriptors in one call each. Every
 * failure ends the program with the line and the status. Also used by tests/integration. */
#ifndef SIMDNN_BACKEND_USE_H
#define SIMDNN_BACKEND_USE_H

#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>

#define BE_OK(call)                                                                                \
    do {                                                                                           \
        cudnnStatus_t be_status_ = (call);                                                         \
        if (be_status_ != CUDNN_STATUS_SUCCESS) {                                                  \
            char be_text_[256] = "";                                                               \
            cudnnGetLastErrorString(be_text_, sizeof be_text_);                                    \
            fprintf(stderr, "%s:%d: %s answered %d: %s\n", __FILE__, __LINE__, #call,              \
                    (int)be_status_, be_text_);                                                    \
            exit(3);                                                                               \
        }                                                                                          \
    } while (0)

typedef cudnnBackendDescriptor_t be_t;

static inline be_t be_new(int kind)
{
    be_t d;
    BE_OK(cudnnBackendCreateDescriptor((cudnnBackendDescriptorType_t)kind, &d));
    return d;
}

static inline void be_set(be_t d, int name, int type, int64_t count, const void *data)
{
    BE_OK(cudnnBackendSetAttribute(d, (cudnnBackendAttributeName_t)name,
                                   (cudnnBackendAttributeType_t)type, count, data));
}

static inline void be_set_int(be_t d, int name, int64_t v)
{
    be_set(d, name, CUDNN_TYPE_INT64, 1, &v);
}

/* An enumeration, or a 32-bit integer. */
static inline void be_set_enum(be_t d, int name, int type, int v)
{
    be_set(d, name, type, 1, &v);
}

static inline void be_set_desc(be_t d, int name, be_t v)
{
    be_set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &v);
}

static inline be_t be_done(be_t d)
{
    BE_OK(cudnnBackendFinalize(d));
    return d;
}

enum { BE_VIRTUAL = 1, BE_BY_VALUE = 2 };

static inline be_t be_tensor(int64_t uid, int type, int ndims, const int64_t *dim,
                             const int64_t *str, int flags)
{
    be_t d = be_new(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int64_t packed[8];
    for (int i = ndims - 1; i >= 0; i--) {
        packed[i] = i == ndims - 1 ? 1 : packed[i + 1] * dim[i + 1];
    }
    be_set_int(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, uid);
    be_set_int(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 16);
    be_set_enum(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    be_set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, ndims, dim);
    be_set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, ndims, str ? str : packed);
    unsigned char yes = 1;
    if (flags & BE_VIRTUAL) {
        be_set(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    }
    if (flags & BE_BY_VALUE) {
        be_set(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    }
    return be_done(d);
}

static inline be_t be_conv(int64_t pad, int64_t stride, int64_t dilation, int mode)
{
    const int64_t p[2] = {pad, pad}, s[2] = {stride, stride}, l[2] = {dilation, dilation};
    be_t d = be_new(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    be_set_int(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2);
    be_set_enum(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    be_set_enum(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, mode);
    be_set(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, p);
    be_set(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, p);
    be_set(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, s);
    be_set(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, l);
    return be_done(d);
}

/* A convolution of a kind (CUDNN_BACKEND_OPERATION_CONVOLUTION_*) with its three tensors. */
static inline be_t be_conv_op(int kind, be_t conv, be_t x, be_t w, be_t y, float beta)
{
    static const int names[3][5] = {
        {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
        {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA}};
    const int *n = names[kind - CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR];
    be_t d = be_new(kind);
    be_set_desc(d, n[0], conv);
    be_set_desc(d, n[1], x);
    be_set_desc(d, n[2], w);
    be_set_desc(d, n[3], y);
    be_set(d, n[4], CUDNN_TYPE_FLOAT, 1, &beta);
    return be_done(d);
}

/* y = mode(x, b); b may be NULL. Backward modes: x is the input, b the gradient, y the result. */
static inline be_t be_pointwise(int mode, be_t x, be_t b, be_t y)
{
    be_t p = be_new(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    be_set_enum(p, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    be_set_enum(p, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    be_done(p);
    be_t d = be_new(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    int backward = mode >= CUDNN_POINTWISE_RELU_BWD && mode < CUDNN_POINTWISE_CMP_EQ;
    be_set_desc(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, p);
    be_set_desc(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b) {
        be_set_desc(d,
                    backward ? CUDNN_ATTR_OPERATION_POINTWISE_DYDESC
                             : CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                    b);
    }
    be_set_desc(
        d, backward ? CUDNN_ATTR_OPERATION_POINTWISE_DXDESC : CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
        y);
    cudnnBackendDestroyDescriptor(p);
    return be_done(d);
}

static inline be_t be_matmul(be_t a, be_t b, be_t c)
{
    be_t m = be_new(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    be_set_enum(m, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    be_done(m);
    be_t d = be_new(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    be_set_desc(d, CUDNN_ATTR_OPERATION_MATMUL_DESC, m);
    be_set_desc(d, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    be_set_desc(d, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    be_set_desc(d, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    cudnnBackendDestroyDescriptor(m);
    return be_done(d);
}

static inline be_t be_reduce(int op, be_t x, be_t y)
{
    be_t r = be_new(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    be_set_enum(r, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, op);
    be_set_enum(r, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    be_done(r);
    be_t d = be_new(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    be_set_desc(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, r);
    be_set_desc(d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    be_set_desc(d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    cudnnBackendDestroyDescriptor(r);
    return be_done(d);
}

static inline be_t be_graph(cudnnHandle_t handle, int n, const be_t *ops)
{
    be_t d = be_new(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    be_set(d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    be_set(d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, ops);
    return be_done(d);
}

/* Configurations that the heuristics propose, at most `max`, into out; their number. */
static inline int be_heuristics(be_t graph, int mode, int max, be_t *out)
{
    int64_t n = 0;
    be_t h = be_new(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    be_set_desc(h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    be_set_enum(h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
    be_done(h);
    for (int i = 0; i < max; i++) {
        out[i] = be_new(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    }
    BE_OK(cudnnBackendGetAttribute(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                   max, &n, out));
    for (int64_t i = n; i < max; i++) {
        cudnnBackendDestroyDescriptor(out[i]);
    }
    cudnnBackendDestroyDescriptor(h);
    return (int)n;
}

static inline be_t be_plan(cudnnHandle_t handle, be_t config, int64_t *workspace)
{
    be_t d = be_new(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    be_set(d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    be_set_desc(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    be_done(d);
    BE_OK(cudnnBackendGetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                   NULL, workspace));
    return d;
}

static inline void be_execute(cudnnHandle_t handle, be_t plan, int n, const int64_t *uids,
                              void *const *pointers, void *workspace)
{
    be_t d = be_new(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    be_set(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, uids);
    be_set(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, pointers);
    be_set(d, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    be_done(d);
    BE_OK(cudnnBackendExecute(handle, plan, d));
    cudnnBackendDestroyDescriptor(d);
}

#endif
