/* Device memory of the trainer, in the two habits that programs have: eager allocates a tensor when
 * it is produced and frees it at its last use; upfront allocates everything before the first
 * iteration and nothing after. */
#include <stdio.h>

#include "trainer.h"

static int allocate(struct trainer *t, struct tr_block *b)
{
    void *p = NULL;
    cudaError_t e = cudaMalloc(&p, b->bytes);
    if (e != cudaSuccess) {
        char call[64];
        snprintf(call, sizeof call, "cudaMalloc of %zu bytes", b->bytes);
        return tr_fail_cuda(t, call, e);
    }
    b->p = p;
    return 0;
}

int tr_need(struct trainer *t, int block, float **p)
{
    struct tr_block *b = &t->net.blocks[block];
    if (!b->p)
        TR_TRY(allocate(t, b));
    *p = b->p;
    return 0;
}

int tr_need_tensor(struct trainer *t, int tensor, float **p)
{
    const struct tr_tensor *x = &t->net.tensors[tensor];
    float *base;
    TR_TRY(tr_need(t, x->block, &base));
    *p = base + x->offset / sizeof(float);
    return 0;
}

int tr_need_grad(struct trainer *t, int tensor, float **p)
{
    return tr_need(t, t->net.tensors[tensor].grad, p);
}

int tr_need_param_grad(struct trainer *t, int param, float **p, float *beta)
{
    struct tr_param *w = &t->net.params[param];
    TR_TRY(tr_need(t, w->grad, p));
    *beta = w->has_grad ? 1.0f : 0.0f;
    w->has_grad = true;
    return 0;
}

int tr_workspace_get(struct trainer *t, size_t bytes, void **p)
{
    *p = NULL;
    if (bytes == 0)
        return 0;
    if (t->opt.upfront) {
        *p = t->workspace;
        return 0;
    }
    TR_CUDA(t, cudaMalloc(p, bytes));
    return 0;
}

int tr_workspace_put(struct trainer *t, void *p)
{
    if (p && !t->opt.upfront)
        TR_CUDA(t, cudaFree(p));
    return 0;
}

int tr_memory_step_done(struct trainer *t, int step)
{
    struct tr_net *net = &t->net;
    for (int i = net->ends_at[step]; i < net->ends_at[step + 1]; i++) {
        struct tr_block *b = &net->blocks[net->ends[i]];
        if (!b->p)
            continue;
        if (tr_hints)
            tr_hints->last_use(t, net->ends[i]);
        if (t->opt.upfront)
            continue;
        void *p = b->p;
        b->p = NULL;
        TR_CUDA(t, cudaFree(p));
    }
    return 0;
}

int tr_memory_start(struct trainer *t)
{
    struct tr_net *net = &t->net;
    for (int i = 0; i < net->nblocks; i++) {
        struct tr_block *b = &net->blocks[i];
        if (b->lasting || (t->opt.upfront && b->last >= 0))
            TR_TRY(allocate(t, b));
        if (b->lasting)
            TR_CUDA(t, cudaMemsetAsync(b->p, 0, b->bytes, t->stream));
    }
    if (t->opt.upfront && t->workspace_bytes)
        TR_CUDA(t, cudaMalloc(&t->workspace, t->workspace_bytes));
    return 0;
}

int tr_memory_end(struct trainer *t)
{
    for (int i = 0; i < t->net.nblocks; i++) {
        void *p = t->net.blocks[i].p;
        t->net.blocks[i].p = NULL;
        if (p)
            TR_CUDA(t, cudaFree(p));
    }
    if (t->workspace)
        TR_CUDA(t, cudaFree(t->workspace));
    if (t->dropout_states)
        TR_CUDA(t, cudaFree(t->dropout_states));
    if (t->ones)
        TR_CUDA(t, cudaFree(t->ones));
    t->workspace = t->dropout_states = NULL;
    t->ones = NULL;
    return 0;
}
