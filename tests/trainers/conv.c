/* Convolution and bias. The backward pass computes dB, then dW, and only then allocates dX. */
#include "trainer.h"

static const float one = 1.0f, zero = 0.0f;

#define MAX_ALGOS 16

/* The fastest algorithm whose workspace is within the limit, from a list that the library sorted by
 * expected time; without --any-order a deterministic one. */
#define PICK(perf, count, limit, to, bytes)                                                        \
    do {                                                                                           \
        int pick_ = -1;                                                                            \
        for (int i_ = 0; i_ < (count) && pick_ < 0; i_++)                                          \
            if ((perf)[i_].status == CUDNN_STATUS_SUCCESS &&                                       \
                ((perf)[i_].determinism == CUDNN_DETERMINISTIC || t->opt.any_order) &&             \
                (perf)[i_].memory <= (limit))                                                      \
                pick_ = i_;                                                                        \
        if (pick_ < 0)                                                                             \
            return tr_fail("%s: no convolution algorithm within %zu bytes of workspace",           \
                           node->name, (size_t)(limit));                                           \
        (to) = (perf)[pick_].algo;                                                                 \
        (bytes) = (perf)[pick_].memory;                                                            \
    } while (0)

static int choose_algorithms(struct trainer *t, struct tr_node *node)
{
    struct tr_desc *d = &node->d;
    size_t limit = (size_t)t->opt.workspace;
    int n = 0;
    cudnnConvolutionFwdAlgoPerf_t fwd[MAX_ALGOS];
    TR_DNN(t, cudnnGetConvolutionForwardAlgorithm_v7(t->dnn, d->x, d->w, d->conv, d->y, MAX_ALGOS,
                                                     &n, fwd));
    PICK(fwd, n, limit, node->fwd, node->ws_fwd);
    cudnnConvolutionBwdDataAlgoPerf_t data[MAX_ALGOS];
    TR_DNN(t, cudnnGetConvolutionBackwardDataAlgorithm_v7(t->dnn, d->w, d->y, d->conv, d->x,
                                                          MAX_ALGOS, &n, data));
    PICK(data, n, limit, node->bwd_data, node->ws_data);
    cudnnConvolutionBwdFilterAlgoPerf_t filter[MAX_ALGOS];
    TR_DNN(t, cudnnGetConvolutionBackwardFilterAlgorithm_v7(t->dnn, d->x, d->y, d->conv, d->w,
                                                            MAX_ALGOS, &n, filter));
    PICK(filter, n, limit, node->bwd_filter, node->ws_filter);
    return 0;
}

int tr_conv_setup(struct trainer *t, struct tr_node *node)
{
    struct tr_desc *d = &node->d;
    const struct tr_tensor *x = &t->net.tensors[node->in[0]];
    const struct tr_tensor *y = &t->net.tensors[node->out[0]];
    TR_TRY(tr_desc4(t, &d->x, x->n, x->c, x->h, x->w));
    TR_TRY(tr_desc4(t, &d->y, y->n, y->c, y->h, y->w));
    TR_TRY(tr_desc4(t, &d->b, 1, y->c, 1, 1));
    TR_DNN(t, cudnnCreateFilterDescriptor(&d->w));
    TR_DNN(t, cudnnSetFilter4dDescriptor(d->w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, y->c, x->c,
                                         node->k, node->k));
    TR_DNN(t, cudnnCreateConvolutionDescriptor(&d->conv));
    TR_DNN(t, cudnnSetConvolution2dDescriptor(d->conv, node->pad, node->pad, node->stride,
                                              node->stride, 1, 1, CUDNN_CROSS_CORRELATION,
                                              CUDNN_DATA_FLOAT));
    TR_DNN(t, cudnnSetConvolutionMathType(d->conv, CUDNN_FMA_MATH));
    return choose_algorithms(t, node);
}

int tr_conv_forward(struct trainer *t, struct tr_node *node)
{
    struct tr_desc *d = &node->d;
    struct tr_param *p = t->net.params;
    float *x, *y;
    void *ws;
    TR_TRY(tr_need_tensor(t, node->in[0], &x));
    TR_TRY(tr_need_tensor(t, node->out[0], &y));
    TR_TRY(tr_workspace_get(t, node->ws_fwd, &ws));
    TR_DNN(t, cudnnConvolutionForward(t->dnn, &one, d->x, x, d->w, p[node->param[0]].w, d->conv,
                                      node->fwd, ws, node->ws_fwd, &zero, d->y, y));
    TR_TRY(tr_workspace_put(t, ws));
    if (node->bias)
        TR_DNN(t, cudnnAddTensor(t->dnn, &one, d->b, p[node->param[1]].w, &one, d->y, y));
    return 0;
}

int tr_bias_backward(struct trainer *t, struct tr_node *node, const float *dy, int param)
{
    float *db, beta;
    TR_TRY(tr_need_param_grad(t, param, &db, &beta));
    TR_DNN(t, cudnnConvolutionBackwardBias(t->dnn, &one, node->d.y, dy, &beta, node->d.b, db));
    return 0;
}

int tr_conv_backward(struct trainer *t, struct tr_node *node)
{
    struct tr_desc *d = &node->d;
    float *x, *dx, *dy, *dw, beta;
    void *ws;
    TR_TRY(tr_need_grad(t, node->out[0], &dy));
    if (node->bias)
        TR_TRY(tr_bias_backward(t, node, dy, node->param[1]));
    TR_TRY(tr_need_tensor(t, node->in[0], &x));
    TR_TRY(tr_need_param_grad(t, node->param[0], &dw, &beta));
    TR_TRY(tr_workspace_get(t, node->ws_filter, &ws));
    TR_DNN(t, cudnnConvolutionBackwardFilter(t->dnn, &one, d->x, x, d->y, dy, d->conv,
                                             node->bwd_filter, ws, node->ws_filter, &beta, d->w,
                                             dw));
    TR_TRY(tr_workspace_put(t, ws));
    if (!t->net.tensors[node->in[0]].needs_grad)
        return 0; /* the first layer computes no gradient of its input */
    TR_TRY(tr_need_grad(t, node->in[0], &dx));
    TR_TRY(tr_workspace_get(t, node->ws_data, &ws));
    TR_DNN(t, cudnnConvolutionBackwardData(t->dnn, &one, d->w, t->net.params[node->param[0]].w,
                                           d->y, dy, d->conv, node->bwd_data, ws, node->ws_data,
                                           node->add_grad[0] ? &one : &zero, d->x, dx));
    return tr_workspace_put(t, ws);
}
