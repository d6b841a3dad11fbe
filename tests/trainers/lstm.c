/* One LSTM cell (Hochreiter and Schmidhuber, with forget gate): gates by two matrix products,
 * everything else by cuDNN activations and element-wise products.
 *
 * Inputs x, h', c'; outputs h, c. Rows of the gates are [input, forget, output, candidate] of H each.
 * Parameters, shared by the cells of a layer: wx[4H][F], wh[4H][H], b[4H].
 */
#include "trainer.h"

static const float one = 1.0f, zero = 0.0f;

enum { X, H_PREV, C_PREV };          /* inputs     */
enum { GATES, TANH_C };              /* saved      */
enum { WX, WH, B };                  /* parameters */

int tr_cell_setup(struct trainer *t, struct tr_node *node)
{
    struct tr_desc *d = &node->d;
    int n = t->net.batch, h = node->outputs;
    TR_DNN(t, cudnnCreateTensorDescriptor(&d->x)); /* the three sigmoid gates, in place */
    TR_DNN(t, cudnnSetTensor4dDescriptorEx(d->x, CUDNN_DATA_FLOAT, n, 3 * h, 1, 1, 4 * h, 1, 1, 1));
    TR_DNN(t, cudnnCreateTensorDescriptor(&d->z)); /* one gate */
    TR_DNN(t, cudnnSetTensor4dDescriptorEx(d->z, CUDNN_DATA_FLOAT, n, h, 1, 1, 4 * h, 1, 1, 1));
    TR_TRY(tr_desc4(t, &d->y, n, h, 1, 1));
    TR_DNN(t, cudnnCreateActivationDescriptor(&d->act));
    TR_DNN(t, cudnnSetActivationDescriptor(d->act, CUDNN_ACTIVATION_SIGMOID,
                                           CUDNN_NOT_PROPAGATE_NAN, 0.0));
    TR_DNN(t, cudnnCreateActivationDescriptor(&d->act2));
    TR_DNN(t, cudnnSetActivationDescriptor(d->act2, CUDNN_ACTIVATION_TANH, CUDNN_NOT_PROPAGATE_NAN,
                                           0.0));
    TR_DNN(t, cudnnCreateOpTensorDescriptor(&d->mul));
    TR_DNN(t, cudnnSetOpTensorDescriptor(d->mul, CUDNN_OP_TENSOR_MUL, CUDNN_DATA_FLOAT,
                                         CUDNN_NOT_PROPAGATE_NAN));
    size_t row = (size_t)n * (size_t)h * sizeof(float);
    node->saved[node->nsaved++] = tr_block_new(&t->net, 4 * row);
    node->saved[node->nsaved++] = tr_block_new(&t->net, row);
    node->scratch = tr_block_new(&t->net, 4 * row);
    return 0;
}

/* out = a * b + beta * out, element by element. */
static int multiply(struct trainer *t, struct tr_node *node, cudnnTensorDescriptor_t da,
                    const float *a, cudnnTensorDescriptor_t db, const float *b, const float *beta,
                    cudnnTensorDescriptor_t dout, float *out)
{
    TR_DNN(t, cudnnOpTensor(t->dnn, node->d.mul, &one, da, a, &one, db, b, beta, dout, out));
    return 0;
}

int tr_cell_forward(struct trainer *t, struct tr_node *node)
{
    struct tr_desc *d = &node->d;
    const struct tr_param *p = t->net.params;
    const float *wx = p[node->param[WX]].w, *wh = p[node->param[WH]].w, *b = p[node->param[B]].w;
    int n = t->net.batch, h = node->outputs, f = t->net.tensors[node->in[X]].c, h4 = 4 * h;
    float *x, *hp, *cp, *g, *tc, *hy, *cy;
    TR_TRY(tr_need_tensor(t, node->in[X], &x));
    TR_TRY(tr_need_tensor(t, node->in[H_PREV], &hp));
    TR_TRY(tr_need_tensor(t, node->in[C_PREV], &cp));
    TR_TRY(tr_need(t, node->saved[GATES], &g));
    TR_BLAS(t, cublasSgemm(t->blas, CUBLAS_OP_N, CUBLAS_OP_N, h4, n, 1, &one, b, h4, t->ones, 1,
                           &zero, g, h4));
    TR_BLAS(t, cublasSgemm(t->blas, CUBLAS_OP_T, CUBLAS_OP_N, h4, n, f, &one, wx, f, x, f, &one, g,
                           h4));
    TR_BLAS(t, cublasSgemm(t->blas, CUBLAS_OP_T, CUBLAS_OP_N, h4, n, h, &one, wh, h, hp, h, &one, g,
                           h4));
    TR_DNN(t, cudnnActivationForward(t->dnn, d->act, &one, d->x, g, &zero, d->x, g));
    TR_DNN(t, cudnnActivationForward(t->dnn, d->act2, &one, d->z, g + 3 * h, &zero, d->z,
                                     g + 3 * h));
    TR_TRY(tr_need_tensor(t, node->out[1], &cy));
    TR_TRY(multiply(t, node, d->z, g + h, d->y, cp, &zero, d->y, cy));
    TR_TRY(multiply(t, node, d->z, g, d->z, g + 3 * h, &one, d->y, cy));
    TR_TRY(tr_need(t, node->saved[TANH_C], &tc));
    TR_DNN(t, cudnnActivationForward(t->dnn, d->act2, &one, d->y, cy, &zero, d->y, tc));
    TR_TRY(tr_need_tensor(t, node->out[0], &hy));
    return multiply(t, node, d->z, g + 2 * h, d->y, tc, &zero, d->y, hy);
}

/* Gradients of the four gates' arguments into dg, and of c' where it is wanted. */
static int gates_backward(struct trainer *t, struct tr_node *node, float *dg)
{
    struct tr_desc *d = &node->d;
    const struct tr_tensor *c = &t->net.tensors[node->out[1]];
    int h = node->outputs;
    float *g, *tc, *cp, *dh, *dc, *dcp;
    TR_TRY(tr_need(t, node->saved[GATES], &g));
    TR_TRY(tr_need(t, node->saved[TANH_C], &tc));
    TR_TRY(tr_need_tensor(t, node->in[C_PREV], &cp));
    TR_TRY(tr_need_grad(t, node->out[0], &dh));
    TR_TRY(tr_need_grad(t, node->out[1], &dc));
    TR_TRY(multiply(t, node, d->y, dh, d->y, tc, &zero, d->z, dg + 2 * h));
    TR_TRY(multiply(t, node, d->y, dh, d->z, g + 2 * h, &zero, d->y, dh));
    TR_DNN(t, cudnnActivationBackward(t->dnn, d->act2, &one, d->y, tc, d->y, dh, d->y, tc,
                                      c->consumers ? &one : &zero, d->y, dc));
    TR_TRY(multiply(t, node, d->y, dc, d->y, cp, &zero, d->z, dg + h));
    TR_TRY(multiply(t, node, d->y, dc, d->z, g + 3 * h, &zero, d->z, dg));
    TR_TRY(multiply(t, node, d->y, dc, d->z, g, &zero, d->z, dg + 3 * h));
    if (t->net.tensors[node->in[C_PREV]].needs_grad) {
        TR_TRY(tr_need_grad(t, node->in[C_PREV], &dcp));
        TR_TRY(multiply(t, node, d->y, dc, d->z, g + h, node->add_grad[C_PREV] ? &one : &zero,
                        d->y, dcp));
    }
    TR_DNN(t, cudnnActivationBackward(t->dnn, d->act, &one, d->x, g, d->x, dg, d->x, g, &zero,
                                      d->x, dg));
    TR_DNN(t, cudnnActivationBackward(t->dnn, d->act2, &one, d->z, g + 3 * h, d->z, dg + 3 * h,
                                      d->z, g + 3 * h, &zero, d->z, dg + 3 * h));
    return 0;
}

/* One of the two products: weights' gradient, and the gradient of the input where it is wanted. */
static int product_backward(struct trainer *t, struct tr_node *node, int input, int param,
                            const float *dg)
{
    const struct tr_tensor *xt = &t->net.tensors[node->in[input]];
    int n = t->net.batch, f = xt->c, h4 = 4 * node->outputs;
    float *x, *dx, *dw, beta;
    TR_TRY(tr_need_tensor(t, node->in[input], &x));
    TR_TRY(tr_need_param_grad(t, param, &dw, &beta));
    TR_BLAS(t, cublasSgemm(t->blas, CUBLAS_OP_N, CUBLAS_OP_T, f, h4, n, &one, x, f, dg, h4, &beta,
                           dw, f));
    if (!xt->needs_grad)
        return 0;
    TR_TRY(tr_need_grad(t, node->in[input], &dx));
    TR_BLAS(t, cublasSgemm(t->blas, CUBLAS_OP_N, CUBLAS_OP_N, f, n, h4, &one,
                           t->net.params[param].w, f, dg, h4, node->add_grad[input] ? &one : &zero,
                           dx, f));
    return 0;
}

int tr_cell_backward(struct trainer *t, struct tr_node *node)
{
    int n = t->net.batch, h4 = 4 * node->outputs;
    float *dg, *db, beta;
    TR_TRY(tr_need(t, node->scratch, &dg));
    TR_TRY(gates_backward(t, node, dg));
    TR_TRY(tr_need_param_grad(t, node->param[B], &db, &beta));
    TR_BLAS(t, cublasSgemm(t->blas, CUBLAS_OP_N, CUBLAS_OP_N, h4, 1, n, &one, dg, h4, t->ones, n,
                           &beta, db, h4));
    TR_TRY(product_backward(t, node, X, node->param[WX], dg));
    return product_backward(t, node, H_PREV, node->param[WH], dg);
}
