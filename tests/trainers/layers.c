/* All layers but convolution and the LSTM cell: set-up, forward and backward on cuDNN and cuBLAS. */
#include "trainer.h"

static const float one = 1.0f, zero = 0.0f;

#define BN_EPSILON  1e-5
#define BN_MOMENTUM 0.1

int tr_desc4(const struct trainer *t, cudnnTensorDescriptor_t *d, int n, int c, int h, int w)
{
    TR_DNN(t, cudnnCreateTensorDescriptor(d));
    TR_DNN(t, cudnnSetTensor4dDescriptor(*d, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, n, c, h, w));
    return 0;
}

static int desc_of(const struct trainer *t, cudnnTensorDescriptor_t *d, int tensor)
{
    const struct tr_tensor *x = &t->net.tensors[tensor];
    return tr_desc4(t, d, x->n, x->c, x->h, x->w);
}

static int setup_xy(struct trainer *t, struct tr_node *node)
{
    TR_TRY(desc_of(t, &node->d.x, node->in[0]));
    return desc_of(t, &node->d.y, node->out[0]);
}

/* Factor of the old contents of an input's gradient. */
static const float *beta_of(const struct tr_node *node, int input)
{
    return node->add_grad[input] ? &one : &zero;
}

static int need_xy(struct trainer *t, struct tr_node *node, float **x, float **y)
{
    TR_TRY(tr_need_tensor(t, node->in[0], x));
    return tr_need_tensor(t, node->out[0], y);
}

/* dY first, so that it exists where dX shares its block. */
static int need_grads(struct trainer *t, struct tr_node *node, float **dx, float **dy)
{
    TR_TRY(tr_need_grad(t, node->out[0], dy));
    return tr_need_grad(t, node->in[0], dx);
}

/* ---- input -----------------------------------------------------------------------------------*/

static int input_setup(struct trainer *t, struct tr_node *node)
{
    (void)t;
    (void)node;
    return 0;
}

static int input_forward(struct trainer *t, struct tr_node *node)
{
    const float *host[] = { t->host_x, t->host_labels };
    for (int k = 0; k < 2; k++) {
        float *dst;
        TR_TRY(tr_need_tensor(t, node->out[k], &dst));
        TR_CUDA(t, cudaMemcpyAsync(dst, host[k],
                                   tr_count(&t->net.tensors[node->out[k]]) * sizeof(float),
                                   cudaMemcpyHostToDevice, t->stream));
    }
    return 0;
}

/* ---- fully connected: y[n][out] = x[n][in] w[out][in]^T, row-major ---------------------------*/

static int fc_setup(struct trainer *t, struct tr_node *node)
{
    TR_TRY(setup_xy(t, node));
    return tr_desc4(t, &node->d.b, 1, node->outputs, 1, 1);
}

static int fc_forward(struct trainer *t, struct tr_node *node)
{
    const struct tr_tensor *xt = &t->net.tensors[node->in[0]];
    int n = xt->n, in = xt->c * xt->h * xt->w, out = node->outputs;
    float *x, *y;
    TR_TRY(need_xy(t, node, &x, &y));
    TR_BLAS(t, cublasSgemm(t->blas, CUBLAS_OP_T, CUBLAS_OP_N, out, n, in, &one,
                           t->net.params[node->param[0]].w, in, x, in, &zero, y, out));
    if (node->bias)
        TR_DNN(t, cudnnAddTensor(t->dnn, &one, node->d.b, t->net.params[node->param[1]].w, &one,
                                 node->d.y, y));
    return 0;
}

static int fc_backward(struct trainer *t, struct tr_node *node)
{
    const struct tr_tensor *xt = &t->net.tensors[node->in[0]];
    int n = xt->n, in = xt->c * xt->h * xt->w, out = node->outputs;
    float *x, *dx, *dy, *dw, beta;
    TR_TRY(tr_need_grad(t, node->out[0], &dy));
    if (node->bias)
        TR_TRY(tr_bias_backward(t, node, dy, node->param[1]));
    TR_TRY(tr_need_tensor(t, node->in[0], &x));
    TR_TRY(tr_need_param_grad(t, node->param[0], &dw, &beta));
    TR_BLAS(t, cublasSgemm(t->blas, CUBLAS_OP_N, CUBLAS_OP_T, in, out, n, &one, x, in, dy, out,
                           &beta, dw, in));
    if (!xt->needs_grad)
        return 0;
    TR_TRY(tr_need_grad(t, node->in[0], &dx));
    TR_BLAS(t, cublasSgemm(t->blas, CUBLAS_OP_N, CUBLAS_OP_N, in, n, out, &one,
                           t->net.params[node->param[0]].w, in, dy, out, beta_of(node, 0), dx, in));
    return 0;
}

/* ---- activation ------------------------------------------------------------------------------*/

static int act_setup(struct trainer *t, struct tr_node *node)
{
    TR_TRY(setup_xy(t, node));
    TR_DNN(t, cudnnCreateActivationDescriptor(&node->d.act));
    TR_DNN(t, cudnnSetActivationDescriptor(node->d.act, node->mode, CUDNN_NOT_PROPAGATE_NAN, 0.0));
    return 0;
}

static int act_forward(struct trainer *t, struct tr_node *node)
{
    float *x, *y;
    TR_TRY(need_xy(t, node, &x, &y));
    TR_DNN(t, cudnnActivationForward(t->dnn, node->d.act, &one, node->d.x, x, &zero, node->d.y, y));
    return 0;
}

/* The derivatives of ReLU, tanh and the sigmoid follow from y alone, so y stands in for x. */
static int act_backward(struct trainer *t, struct tr_node *node)
{
    float *y, *dx, *dy;
    TR_TRY(tr_need_tensor(t, node->out[0], &y));
    TR_TRY(need_grads(t, node, &dx, &dy));
    TR_DNN(t, cudnnActivationBackward(t->dnn, node->d.act, &one, node->d.y, y, node->d.y, dy,
                                      node->d.x, y, beta_of(node, 0), node->d.x, dx));
    return 0;
}

/* ---- pooling ---------------------------------------------------------------------------------*/

static int pool_setup(struct trainer *t, struct tr_node *node)
{
    TR_TRY(setup_xy(t, node));
    TR_DNN(t, cudnnCreatePoolingDescriptor(&node->d.pool));
    TR_DNN(t, cudnnSetPooling2dDescriptor(node->d.pool,
                                          node->average
                                              ? CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING
                                              : CUDNN_POOLING_MAX_DETERMINISTIC,
                                          CUDNN_NOT_PROPAGATE_NAN, node->k, node->k, node->pad,
                                          node->pad, node->stride, node->stride));
    return 0;
}

static int pool_forward(struct trainer *t, struct tr_node *node)
{
    float *x, *y;
    TR_TRY(need_xy(t, node, &x, &y));
    TR_DNN(t, cudnnPoolingForward(t->dnn, node->d.pool, &one, node->d.x, x, &zero, node->d.y, y));
    return 0;
}

static int pool_backward(struct trainer *t, struct tr_node *node)
{
    float *x, *y, *dx, *dy;
    TR_TRY(need_xy(t, node, &x, &y));
    TR_TRY(need_grads(t, node, &dx, &dy));
    TR_DNN(t, cudnnPoolingBackward(t->dnn, node->d.pool, &one, node->d.y, y, node->d.y, dy,
                                   node->d.x, x, beta_of(node, 0), node->d.x, dx));
    return 0;
}

/* ---- local response normalisation ------------------------------------------------------------*/

static int lrn_setup(struct trainer *t, struct tr_node *node)
{
    TR_TRY(setup_xy(t, node));
    TR_DNN(t, cudnnCreateLRNDescriptor(&node->d.lrn));
    TR_DNN(t, cudnnSetLRNDescriptor(node->d.lrn, (unsigned)node->k, node->a, node->b, node->c));
    return 0;
}

static int lrn_forward(struct trainer *t, struct tr_node *node)
{
    float *x, *y;
    TR_TRY(need_xy(t, node, &x, &y));
    TR_DNN(t, cudnnLRNCrossChannelForward(t->dnn, node->d.lrn, CUDNN_LRN_CROSS_CHANNEL_DIM1, &one,
                                          node->d.x, x, &zero, node->d.y, y));
    return 0;
}

static int lrn_backward(struct trainer *t, struct tr_node *node)
{
    float *x, *y, *dx, *dy;
    TR_TRY(need_xy(t, node, &x, &y));
    TR_TRY(need_grads(t, node, &dx, &dy));
    TR_DNN(t, cudnnLRNCrossChannelBackward(t->dnn, node->d.lrn, CUDNN_LRN_CROSS_CHANNEL_DIM1, &one,
                                           node->d.y, y, node->d.y, dy, node->d.x, x,
                                           beta_of(node, 0), node->d.x, dx));
    return 0;
}

/* ---- batch normalisation; parameters: scale, shift, running mean and variance ----------------*/

static int bn_setup(struct trainer *t, struct tr_node *node)
{
    size_t bytes = (size_t)t->net.tensors[node->in[0]].c * sizeof(float);
    TR_TRY(setup_xy(t, node));
    TR_TRY(tr_desc4(t, &node->d.b, 1, t->net.tensors[node->in[0]].c, 1, 1));
    for (int i = 0; i < 2; i++) /* mean and inverse deviation of the batch */
        node->saved[node->nsaved++] = tr_block_new(&t->net, bytes);
    return 0;
}

static int bn_forward(struct trainer *t, struct tr_node *node)
{
    struct tr_param *p = t->net.params;
    float *x, *y, *mean, *dev;
    TR_TRY(need_xy(t, node, &x, &y));
    TR_TRY(tr_need(t, node->saved[0], &mean));
    TR_TRY(tr_need(t, node->saved[1], &dev));
    TR_DNN(t, cudnnBatchNormalizationForwardTraining(
                  t->dnn, CUDNN_BATCHNORM_SPATIAL, &one, &zero, node->d.x, x, node->d.y, y,
                  node->d.b, p[node->param[0]].w, p[node->param[1]].w, BN_MOMENTUM,
                  p[node->param[2]].w, p[node->param[3]].w, BN_EPSILON, mean, dev));
    return 0;
}

static int bn_backward(struct trainer *t, struct tr_node *node)
{
    float *x, *dx, *dy, *mean, *dev, *dscale, *dshift, beta;
    TR_TRY(tr_need_tensor(t, node->in[0], &x));
    TR_TRY(need_grads(t, node, &dx, &dy));
    TR_TRY(tr_need(t, node->saved[0], &mean));
    TR_TRY(tr_need(t, node->saved[1], &dev));
    TR_TRY(tr_need_param_grad(t, node->param[0], &dscale, &beta));
    TR_TRY(tr_need_param_grad(t, node->param[1], &dshift, &beta));
    TR_DNN(t, cudnnBatchNormalizationBackward(
                  t->dnn, CUDNN_BATCHNORM_SPATIAL, &one, beta_of(node, 0), &one, &beta, node->d.x,
                  x, node->d.y, dy, node->d.x, dx, node->d.b, t->net.params[node->param[0]].w,
                  dscale, dshift, BN_EPSILON, mean, dev));
    return 0;
}

/* ---- dropout ---------------------------------------------------------------------------------*/

static int dropout_setup(struct trainer *t, struct tr_node *node)
{
    size_t bytes = 0;
    TR_TRY(setup_xy(t, node));
    if (!t->dropout_states) {
        TR_DNN(t, cudnnDropoutGetStatesSize(t->dnn, &t->dropout_bytes));
        TR_CUDA(t, cudaMalloc(&t->dropout_states, t->dropout_bytes));
    }
    TR_DNN(t, cudnnCreateDropoutDescriptor(&node->d.dropout));
    /* One generator for all dropout layers: only the first descriptor seeds it. */
    bool first = true;
    for (const struct tr_node *v = t->net.nodes; v < node; v++)
        first &= v->kind != TR_DROPOUT;
    if (first)
        TR_DNN(t, cudnnSetDropoutDescriptor(node->d.dropout, t->dnn, (float)node->a,
                                            t->dropout_states, t->dropout_bytes, t->opt.seed));
    else
        TR_DNN(t, cudnnRestoreDropoutDescriptor(node->d.dropout, t->dnn, (float)node->a,
                                                t->dropout_states, t->dropout_bytes,
                                                t->opt.seed));
    TR_DNN(t, cudnnDropoutGetReserveSpaceSize(node->d.x, &bytes));
    node->saved[node->nsaved++] = tr_block_new(&t->net, bytes);
    return 0;
}

static int dropout_forward(struct trainer *t, struct tr_node *node)
{
    float *x, *y, *mask;
    TR_TRY(need_xy(t, node, &x, &y));
    TR_TRY(tr_need(t, node->saved[0], &mask));
    TR_DNN(t, cudnnDropoutForward(t->dnn, node->d.dropout, node->d.x, x, node->d.y, y, mask,
                                  t->net.blocks[node->saved[0]].bytes));
    return 0;
}

static int dropout_backward(struct trainer *t, struct tr_node *node)
{
    float *dx, *dy, *mask;
    TR_TRY(need_grads(t, node, &dx, &dy));
    TR_TRY(tr_need(t, node->saved[0], &mask));
    TR_DNN(t, cudnnDropoutBackward(t->dnn, node->d.dropout, node->d.y, dy, node->d.x, dx, mask,
                                   t->net.blocks[node->saved[0]].bytes));
    return 0;
}

/* ---- addition of two feature maps ------------------------------------------------------------*/

static int add_setup(struct trainer *t, struct tr_node *node)
{
    TR_TRY(setup_xy(t, node));
    TR_DNN(t, cudnnCreateOpTensorDescriptor(&node->d.add));
    TR_DNN(t, cudnnSetOpTensorDescriptor(node->d.add, CUDNN_OP_TENSOR_ADD, CUDNN_DATA_FLOAT,
                                         CUDNN_NOT_PROPAGATE_NAN));
    return 0;
}

static int add_forward(struct trainer *t, struct tr_node *node)
{
    float *a, *b, *y;
    TR_TRY(tr_need_tensor(t, node->in[1], &b));
    TR_TRY(need_xy(t, node, &a, &y));
    if (node->inplace)
        TR_DNN(t, cudnnAddTensor(t->dnn, &one, node->d.x, b, &one, node->d.y, y));
    else
        TR_DNN(t, cudnnOpTensor(t->dnn, node->d.add, &one, node->d.x, a, &one, node->d.x, b, &zero,
                                node->d.y, y));
    return 0;
}

static int add_backward(struct trainer *t, struct tr_node *node)
{
    for (int k = 0; k < 2; k++) {
        float *dx, *dy;
        if (node->move_grad[k] || !t->net.tensors[node->in[k]].needs_grad)
            continue;
        TR_TRY(tr_need_grad(t, node->out[0], &dy));
        TR_TRY(tr_need_grad(t, node->in[k], &dx));
        size_t count = tr_count(&t->net.tensors[node->in[k]]);
        if (node->add_grad[k])
            TR_BLAS(t, cublasSaxpy(t->blas, (int)count, &one, dy, 1, dx, 1));
        else
            TR_CUDA(t, cudaMemcpyAsync(dx, dy, count * sizeof(float), cudaMemcpyDeviceToDevice,
                                       t->stream));
    }
    return 0;
}

/* ---- concatenation of channels ---------------------------------------------------------------*/

static int concat_setup(struct trainer *t, struct tr_node *node)
{
    return desc_of(t, &node->d.y, node->out[0]);
}

/* Copies input k to (or from) its slice of the rows of the output. */
static int concat_copy(struct trainer *t, struct tr_node *node, int k, float *part, float *whole,
                       bool gather)
{
    const struct tr_tensor *x = &t->net.tensors[node->in[k]];
    const struct tr_tensor *y = &t->net.tensors[node->out[0]];
    size_t row = (size_t)x->c * (size_t)x->h * (size_t)x->w * sizeof(float);
    size_t pitch = (size_t)y->c * (size_t)y->h * (size_t)y->w * sizeof(float);
    if (gather)
        TR_CUDA(t, cudaMemcpy2DAsync(whole, pitch, part, row, row, (size_t)x->n,
                                     cudaMemcpyDeviceToDevice, t->stream));
    else
        TR_CUDA(t, cudaMemcpy2DAsync(part, row, whole, pitch, row, (size_t)x->n,
                                     cudaMemcpyDeviceToDevice, t->stream));
    return 0;
}

static size_t slice_offset(struct trainer *t, const struct tr_node *node, int k)
{
    size_t at = 0;
    for (int i = 0; i < k; i++) {
        const struct tr_tensor *x = &t->net.tensors[node->in[i]];
        at += (size_t)x->c * (size_t)x->h * (size_t)x->w;
    }
    return at;
}

static int concat_forward(struct trainer *t, struct tr_node *node)
{
    float *x, *y;
    TR_TRY(tr_need_tensor(t, node->out[0], &y));
    for (int k = 0; k < node->nin; k++) {
        TR_TRY(tr_need_tensor(t, node->in[k], &x));
        TR_TRY(concat_copy(t, node, k, x, y + slice_offset(t, node, k), true));
    }
    return 0;
}

/* A branch that nothing else reads gets a copy of its slice; else the slice is added. */
static int concat_backward(struct trainer *t, struct tr_node *node)
{
    const struct tr_tensor *y = &t->net.tensors[node->out[0]];
    for (int k = 0; k < node->nin; k++) {
        const struct tr_tensor *x = &t->net.tensors[node->in[k]];
        float *dx, *dy;
        if (!x->needs_grad)
            continue;
        TR_TRY(tr_need_grad(t, node->out[0], &dy));
        TR_TRY(tr_need_grad(t, node->in[k], &dx));
        dy += slice_offset(t, node, k);
        if (!node->add_grad[k]) {
            TR_TRY(concat_copy(t, node, k, dx, dy, false));
            continue;
        }
        cudnnTensorDescriptor_t slice = NULL, part = NULL;
        TR_TRY(desc_of(t, &part, node->in[k]));
        TR_DNN(t, cudnnCreateTensorDescriptor(&slice));
        TR_DNN(t, cudnnSetTensor4dDescriptorEx(slice, CUDNN_DATA_FLOAT, x->n, x->c, x->h, x->w,
                                               y->c * y->h * y->w, x->h * x->w, x->w, 1));
        TR_DNN(t, cudnnAddTensor(t->dnn, &one, slice, dy, &one, part, dx));
        TR_DNN(t, cudnnDestroyTensorDescriptor(slice));
        TR_DNN(t, cudnnDestroyTensorDescriptor(part));
    }
    return 0;
}

/* ---- softmax and the cross-entropy loss; inputs: logits, one-hot labels ----------------------*/

static int softmax_setup(struct trainer *t, struct tr_node *node)
{
    return add_setup(t, node);
}

static int softmax_forward(struct trainer *t, struct tr_node *node)
{
    float *x, *y;
    TR_TRY(need_xy(t, node, &x, &y));
    TR_DNN(t, cudnnSoftmaxForward(t->dnn, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_INSTANCE, &one,
                                  node->d.x, x, &zero, node->d.y, y));
    return 0;
}

/* The gradient of the mean loss: (probability - label) / samples of the update. */
static int softmax_backward(struct trainer *t, struct tr_node *node)
{
    float *p, *label, *dx;
    float scale = 1.0f / (float)(t->net.batch * t->opt.accumulate), minus = -scale;
    TR_TRY(tr_need_tensor(t, node->out[0], &p));
    TR_TRY(tr_need_tensor(t, node->in[1], &label));
    TR_TRY(tr_need_grad(t, node->in[0], &dx));
    TR_DNN(t, cudnnOpTensor(t->dnn, node->d.add, &scale, node->d.y, p, &minus, node->d.y, label,
                            &zero, node->d.x, dx));
    return 0;
}

const struct tr_layer tr_layers[TR_KINDS] = {
    [TR_INPUT] = { "input", input_setup, input_forward, NULL, .back_x = 0 },
    [TR_CONV] = { "conv", tr_conv_setup, tr_conv_forward, tr_conv_backward, .back_x = 1 },
    [TR_FC] = { "fc", fc_setup, fc_forward, fc_backward, .back_x = 1 },
    [TR_ACT] = { "act", act_setup, act_forward, act_backward, .back_y = 1, .can_inplace = 1,
                .grad_inplace = 1 },
    [TR_POOL] = { "pool", pool_setup, pool_forward, pool_backward, .back_x = 1, .back_y = 1 },
    [TR_LRN] = { "lrn", lrn_setup, lrn_forward, lrn_backward, .back_x = 1, .back_y = 1 },
    [TR_BN] = { "bn", bn_setup, bn_forward, bn_backward, .back_x = 1 },
    [TR_DROPOUT] = { "dropout", dropout_setup, dropout_forward, dropout_backward,
                     .can_inplace = 1, .grad_inplace = 1 },
    [TR_ADD] = { "add", add_setup, add_forward, add_backward, .can_inplace = 1, .grad_inplace = 1 },
    [TR_CONCAT] = { "concat", concat_setup, concat_forward, concat_backward, .back_x = 0 },
    [TR_CELL] = { "cell", tr_cell_setup, tr_cell_forward, tr_cell_backward, .back_x = 1 },
    [TR_SOFTMAX] = { "softmax", softmax_setup, softmax_forward, softmax_backward, .back_x = 1,
                     .back_y = 1 },
};
