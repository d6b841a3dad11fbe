/* --sizes: what a network needs, from the shapes of its layers, without running it.
 *
 * largest_op_bytes is the largest sum of the operands of one library call; no memory smaller than
 * that can train the network. live_peak_bytes is the most that is allocated at once under eager. */
#include <stdio.h>
#include <stdlib.h>

#include "trainer.h"

static size_t block_bytes(const struct trainer *t, int block)
{
    return block < 0 ? 0 : t->net.blocks[block].bytes;
}

static size_t map(const struct trainer *t, int tensor)
{
    return tr_count(&t->net.tensors[tensor]) * sizeof(float);
}

static size_t weights(const struct trainer *t, const struct tr_node *v, int i)
{
    return i < v->nparam ? t->net.params[v->param[i]].count * sizeof(float) : 0;
}

static size_t largest(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Operands of the node's largest call, forward and backward. */
static size_t node_bytes(const struct trainer *t, const struct tr_node *v)
{
    size_t y = map(t, v->out[0]), x = v->nin ? map(t, v->in[0]) : 0;
    size_t w = weights(t, v, 0), inplace = v->inplace ? 0 : x;
    bool dx = v->nin && t->net.tensors[v->in[0]].needs_grad && !t->opt.forward_only;
    bool train = !t->opt.forward_only;
    switch (v->kind) {
    case TR_INPUT: return y;
    case TR_CONV:
        return largest(x + w + y + v->ws_fwd,
                       largest(train ? x + y + w + v->ws_filter : 0, dx ? y + w + x + v->ws_data : 0));
    case TR_FC: return x + w + y;
    case TR_ACT: return largest(inplace + y, dx ? 2 * y + (v->move_grad[0] ? 0 : x) : 0);
    case TR_POOL:
    case TR_LRN: return dx ? 2 * (x + y) : x + y;
    case TR_BN: return (dx ? 2 * x + y : x + y) + 6 * w;
    case TR_DROPOUT: return inplace + y + block_bytes(t, v->saved[0]);
    case TR_ADD: return inplace + x + y;
    case TR_CONCAT: {
        size_t most = 0;
        for (int k = 0; k < v->nin; k++)
            most = largest(most, map(t, v->in[k]));
        return most + y;
    }
    case TR_CELL: /* gates with their weights and the wider of the two inputs; or gates and dG */
        return largest(4 * y + largest(map(t, v->in[0]) + w, map(t, v->in[1]) + weights(t, v, 1)),
                       train ? 8 * y : 0);
    default: return 3 * y;
    }
}

/* Bytes alive at each step: blocks from their first to their last use. */
static size_t live_peak(const struct trainer *t, size_t always)
{
    const struct tr_net *net = &t->net;
    int steps = 2 * net->nnodes + 2, n = net->nnodes;
    long long *delta = calloc((size_t)steps + 2, sizeof *delta), live = 0, peak = 0;
    if (!delta)
        return 0;
    for (int i = 0; i < net->nblocks; i++) {
        const struct tr_block *b = &net->blocks[i];
        if (b->lasting || b->last < 0)
            continue;
        delta[b->first] += (long long)b->bytes;
        delta[b->last + 1] -= (long long)b->bytes;
    }
    for (int s = 0; s < steps; s++) {
        const struct tr_node *v = s < n ? &net->nodes[s] : s < 2 * n ? &net->nodes[2 * n - 1 - s] : NULL;
        size_t ws = !v ? 0 : s < n ? v->ws_fwd : largest(v->ws_filter, v->ws_data);
        live += delta[s];
        peak = live + (long long)ws > peak ? live + (long long)ws : peak;
    }
    free(delta);
    return (size_t)peak + always;
}

void tr_sizes_print(const struct trainer *t)
{
    const struct tr_net *net = &t->net;
    size_t maps = 0, grads = 0, other = 0, params = 0, trained = 0, lasting = 0, op = 0;
    char *kind = calloc((size_t)net->nblocks, 1);
    if (!kind)
        return;
    for (int i = 0; i < net->ntensors; i++) {
        if (net->tensors[i].block >= 0)
            kind[net->tensors[i].block] = 'm';
        if (net->tensors[i].grad >= 0)
            kind[net->tensors[i].grad] = 'g';
    }
    for (int i = 0; i < net->nparams; i++) {
        params += net->params[i].count * sizeof(float);
        trained += net->params[i].grad >= 0 ? net->params[i].count * sizeof(float) : 0;
        if (net->params[i].grad >= 0)
            kind[net->params[i].grad] = 'p';
        op = largest(op, 2 * net->params[i].count * sizeof(float));
    }
    for (int i = 0; i < net->nblocks; i++) {
        const struct tr_block *b = &net->blocks[i];
        if (b->lasting)
            lasting += b->bytes;
        else if (b->last < 0 || kind[i] == 'p')
            continue;
        else if (kind[i] == 'm')
            maps += b->bytes;
        else if (kind[i] == 'g')
            grads += b->bytes;
        else
            other += b->bytes;
    }
    for (int i = 0; i < net->nnodes; i++)
        op = largest(op, node_bytes(t, &net->nodes[i]));
    size_t momentum = t->opt.forward_only ? 0 : trained;
    printf("nodes %d\nmap_bytes %zu\ngradient_map_bytes %zu\nsaved_bytes %zu\nweight_bytes %zu\n"
           "momentum_bytes %zu\nworkspace_bytes %zu\nlargest_op_bytes %zu\nlive_peak_bytes %zu\n"
           "upfront_bytes %zu\n",
           net->nnodes, maps, grads, other, params, momentum, t->workspace_bytes, op,
           live_peak(t, params + momentum + lasting),
           maps + grads + other + params + 2 * momentum + lasting + t->workspace_bytes);
    free(kind);
}
