/* Tensors, blocks and lifetimes of a network.
 *
 * Feature maps: an in-place layer's output takes the block of its input, which needs that nobody
 * else reads the input and that the input's producer does not read its output again. Gradient maps:
 * a layer that can works in place on dY; an addition hands dY on to one of its inputs; otherwise
 * each feature map has a gradient block of its own, as in Caffe.
 */
#include <stdlib.h>
#include <string.h>
#include <stdio.h>

#include "trainer.h"

/* Room for one more element in an array that doubles. */
static void *grow(void *array, int count, size_t size)
{
    if (count & (count - 1))
        return array; /* not full: capacities are powers of two */
    size_t cap = count ? (size_t)count * 2 : 1;
    void *p = realloc(array, cap * size);
    if (!p) {
        tr_fail("out of host memory");
        exit(1);
    }
    return p;
}

int tr_tensor_new(struct tr_net *net, int n, int c, int h, int w)
{
    net->tensors = grow(net->tensors, net->ntensors, sizeof *net->tensors);
    net->tensors[net->ntensors] = (struct tr_tensor){
        .n = n, .c = c, .h = h, .w = w, .block = -1, .producer = -1, .grad = -1,
    };
    return net->ntensors++;
}

int tr_block_new(struct tr_net *net, size_t bytes)
{
    net->blocks = grow(net->blocks, net->nblocks, sizeof *net->blocks);
    net->blocks[net->nblocks] = (struct tr_block){ .bytes = bytes, .first = -1, .last = -1 };
    return net->nblocks++;
}

int tr_param_new(struct tr_net *net, const char *name, size_t count, double init, bool uniform,
                 bool trained)
{
    net->params = grow(net->params, net->nparams, sizeof *net->params);
    struct tr_param *p = &net->params[net->nparams];
    *p = (struct tr_param){ .count = count, .grad = -1, .uniform = uniform, .init = (float)init };
    snprintf(p->name, sizeof p->name, "%s", name);
    if (trained)
        p->grad = tr_block_new(net, count * sizeof(float));
    return net->nparams++;
}

struct tr_node *tr_node_new(struct tr_net *net, enum tr_kind kind, const int *in, int nin)
{
    net->nodes = grow(net->nodes, net->nnodes, sizeof *net->nodes);
    struct tr_node *node = &net->nodes[net->nnodes];
    *node = (struct tr_node){ .kind = kind, .nin = nin, .scratch = -1 };
    snprintf(node->name, sizeof node->name, "%s%d", tr_layers[kind].name, net->nnodes);
    for (int i = 0; i < nin; i++) {
        node->in[i] = in[i];
        net->tensors[in[i]].consumers++;
    }
    net->nnodes++;
    return node;
}

int tr_node_output(struct tr_net *net, struct tr_node *node, int n, int c, int h, int w)
{
    int id = tr_tensor_new(net, n, c, h, w);
    struct tr_tensor *y = &net->tensors[id];
    y->producer = (int)(node - net->nodes);
    y->needs_grad = node->nparam > 0;
    for (int i = 0; i < node->nin; i++)
        y->needs_grad |= net->tensors[node->in[i]].needs_grad;
    node->out[node->nout++] = id;
    return id;
}

bool tr_has_backward(const struct tr_net *net, const struct tr_node *node)
{
    bool any = node->nparam > 0;
    for (int k = 0; k < node->nin; k++)
        any |= net->tensors[node->in[k]].needs_grad;
    return any;
}

static bool may_share(const struct tr_net *net, const struct tr_node *node)
{
    const struct tr_tensor *x = &net->tensors[node->in[0]];
    return tr_layers[node->kind].can_inplace && x->consumers == 1 && x->producer >= 0 &&
           net->nodes[x->producer].kind != TR_INPUT &&
           !tr_layers[net->nodes[x->producer].kind].back_y;
}

static void assign_maps(struct tr_net *net)
{
    for (int i = 0; i < net->nnodes; i++) {
        struct tr_node *node = &net->nodes[i];
        node->inplace = node->nin > 0 && may_share(net, node);
        for (int k = 0; k < node->nout; k++) {
            struct tr_tensor *y = &net->tensors[node->out[k]];
            if (y->block >= 0)
                continue; /* the input and its slices */
            if (k == 0 && node->inplace)
                y->block = net->tensors[node->in[0]].block;
            else
                y->block = tr_block_new(net, tr_count(y) * sizeof(float));
        }
    }
}

static int gradient_block(struct tr_net *net, int tensor)
{
    return tr_block_new(net, tr_count(&net->tensors[tensor]) * sizeof(float));
}

static void assign_gradients(struct tr_net *net)
{
    for (int i = net->nnodes - 1; i >= 0; i--) {
        struct tr_node *node = &net->nodes[i];
        const struct tr_layer *layer = &tr_layers[node->kind];
        bool moved = false;
        for (int k = 0; k < node->nout; k++)
            if (net->tensors[node->out[k]].grad < 0 && net->tensors[node->out[k]].needs_grad &&
                node->kind == TR_CELL)
                net->tensors[node->out[k]].grad = gradient_block(net, node->out[k]);
        for (int k = 0; k < node->nin; k++) {
            struct tr_tensor *x = &net->tensors[node->in[k]];
            if (!x->needs_grad)
                continue;
            node->add_grad[k] = x->grad >= 0;
            if (x->grad >= 0)
                continue;
            if (layer->grad_inplace && !moved) {
                x->grad = net->tensors[node->out[0]].grad;
                node->move_grad[k] = moved = true;
            } else {
                int b = gradient_block(net, node->in[k]);
                net->tensors[node->in[k]].grad = b;
            }
        }
    }
}

static void use(struct tr_net *net, int block, int step)
{
    if (block < 0)
        return;
    struct tr_block *b = &net->blocks[block];
    if (b->first < 0 || step < b->first)
        b->first = step;
    if (step > b->last)
        b->last = step;
}

static void use_backward(struct tr_net *net, const struct tr_node *node, int step)
{
    const struct tr_layer *layer = &tr_layers[node->kind];
    if (!tr_has_backward(net, node))
        return;
    for (int k = 0; k < node->nin; k++) {
        const struct tr_tensor *x = &net->tensors[node->in[k]];
        if (layer->back_x)
            use(net, x->block, step);
        use(net, x->needs_grad ? x->grad : -1, step);
    }
    for (int k = 0; k < node->nout; k++) {
        if (layer->back_y)
            use(net, net->tensors[node->out[k]].block, step);
        use(net, net->tensors[node->out[k]].grad, step);
    }
    for (int k = 0; k < node->nsaved; k++)
        use(net, node->saved[k], step);
    use(net, node->scratch, step);
}

static void assign_lifetimes(struct trainer *t)
{
    struct tr_net *net = &t->net;
    int n = net->nnodes;
    for (int i = 0; i < n; i++) {
        const struct tr_node *node = &net->nodes[i];
        for (int k = 0; k < node->nin; k++)
            use(net, net->tensors[node->in[k]].block, i);
        for (int k = 0; k < node->nout; k++)
            use(net, net->tensors[node->out[k]].block, i);
        for (int k = 0; k < node->nsaved; k++)
            use(net, node->saved[k], i);
        if (!t->opt.forward_only)
            use_backward(net, node, 2 * n - 1 - i);
    }
    const struct tr_node *loss = &net->nodes[n - 1];
    use(net, net->tensors[loss->out[0]].block, 2 * n); /* probabilities are read at the end */
    for (int i = 0; i < net->nparams && !t->opt.forward_only; i++)
        use(net, net->params[i].grad, 2 * n + 1);
}

/* Counting sort of the blocks by last step. */
static int sort_ends(struct tr_net *net)
{
    int steps = 2 * net->nnodes + 2;
    net->ends_at = calloc((size_t)steps + 2, sizeof *net->ends_at);
    net->ends = calloc((size_t)net->nblocks + 1, sizeof *net->ends);
    if (!net->ends_at || !net->ends)
        return tr_fail("out of host memory");
    for (int i = 0; i < net->nblocks; i++)
        if (net->blocks[i].last >= 0 && !net->blocks[i].lasting)
            net->ends_at[net->blocks[i].last + 2]++;
    for (int s = 2; s <= steps + 1; s++)
        net->ends_at[s] += net->ends_at[s - 1];
    for (int i = 0; i < net->nblocks; i++)
        if (net->blocks[i].last >= 0 && !net->blocks[i].lasting)
            net->ends[net->ends_at[net->blocks[i].last + 1]++] = i;
    return 0;
}

int tr_net_finish(struct trainer *t)
{
    struct tr_net *net = &t->net;
    for (int i = 0; i < net->nnodes - 1; i++)
        if (net->tensors[net->nodes[i].out[0]].consumers == 0)
            return tr_fail("%s: the output of %s is never used", net->name, net->nodes[i].name);
    assign_maps(net);
    for (int k = 0; t->opt.input_gradient && k < net->nodes[0].nout; k++)
        net->tensors[net->nodes[0].out[k]].needs_grad = true;
    if (!t->opt.forward_only)
        assign_gradients(net);
    for (int i = 0; i < net->nnodes; i++) {
        struct tr_node *node = &net->nodes[i];
        TR_TRY(tr_layers[node->kind].setup(t, node));
        size_t ws = node->ws_fwd;
        if (!t->opt.forward_only) {
            ws = node->ws_data > ws ? node->ws_data : ws;
            ws = node->ws_filter > ws ? node->ws_filter : ws;
        }
        t->workspace_bytes = ws > t->workspace_bytes ? ws : t->workspace_bytes;
    }
    assign_lifetimes(t);
    return sort_ends(net);
}

static void desc_fini(struct tr_desc *d)
{
    cudnnTensorDescriptor_t tensors[] = { d->x, d->y, d->b, d->z };
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (tensors[i])
            cudnnDestroyTensorDescriptor(tensors[i]);
    if (d->w)
        cudnnDestroyFilterDescriptor(d->w);
    if (d->conv)
        cudnnDestroyConvolutionDescriptor(d->conv);
    if (d->pool)
        cudnnDestroyPoolingDescriptor(d->pool);
    if (d->act)
        cudnnDestroyActivationDescriptor(d->act);
    if (d->act2)
        cudnnDestroyActivationDescriptor(d->act2);
    if (d->lrn)
        cudnnDestroyLRNDescriptor(d->lrn);
    if (d->dropout)
        cudnnDestroyDropoutDescriptor(d->dropout);
    if (d->add)
        cudnnDestroyOpTensorDescriptor(d->add);
    if (d->mul)
        cudnnDestroyOpTensorDescriptor(d->mul);
}

void tr_net_fini(struct tr_net *net)
{
    for (int i = 0; i < net->nnodes; i++)
        desc_fini(&net->nodes[i].d);
    free(net->nodes);
    free(net->tensors);
    free(net->blocks);
    free(net->params);
    free(net->ends);
    free(net->ends_at);
    *net = (struct tr_net){ 0 };
}
