/* The trainer that also tells libvmem what it knows (include/vmem.h); harmless without libvmem.
 *
 * Statistics of batch normalisation are kept, blocks of --alloc upfront are declared dead after
 * their last use, and a feature map that one cheap layer made from an input that outlives it (and
 * whatever was then applied in place) is declared regenerable: the callback runs those layers again,
 * on a cuDNN handle of its own, because it may be called from within a call on the trainer's handle.
 */
#include <stdio.h>
#include <stdlib.h>

#include "trainer.h"
#include "vmem.h"

struct recipe {
    struct trainer *t;
    int first, last; /* nodes that write the block, in order */
};

static cudnnHandle_t handle;
static struct recipe *recipes; /* by block */
static int nrecipes;

static const float one = 1.0f, zero = 0.0f;

static int start(struct trainer *t)
{
    TR_DNN(t, cudnnCreate(&handle));
    nrecipes = t->net.nblocks;
    recipes = calloc((size_t)nrecipes, sizeof *recipes);
    if (!recipes)
        return tr_fail("out of host memory");
    for (int i = 0; i < nrecipes; i++)
        recipes[i] = (struct recipe){ t, -1, -1 };
    for (int i = 0; i < t->net.nparams; i++)
        if (t->net.params[i].grad < 0)
            vmem_keep(t->net.params[i].w);
    return 0;
}

static float *address(const struct trainer *t, int tensor)
{
    return t->net.blocks[t->net.tensors[tensor].block].p;
}

/* Runs node `v` forward again, with the arguments of the first time; its input is in place. */
static cudnnStatus_t again(struct trainer *t, const struct tr_node *v)
{
    const struct tr_desc *d = &v->d;
    const struct tr_param *p = t->net.params;
    float *x = address(t, v->in[0]), *y = address(t, v->out[0]);
    switch (v->kind) {
    case TR_BN: /* without running statistics: these were updated the first time */
        return cudnnBatchNormalizationForwardTraining(
            handle, CUDNN_BATCHNORM_SPATIAL, &one, &zero, d->x, x, d->y, y, d->b,
            p[v->param[0]].w, p[v->param[1]].w, 0.0, NULL, NULL, 1e-5, NULL, NULL);
    case TR_POOL:
        return cudnnPoolingForward(handle, d->pool, &one, d->x, x, &zero, d->y, y);
    case TR_LRN:
        return cudnnLRNCrossChannelForward(handle, d->lrn, CUDNN_LRN_CROSS_CHANNEL_DIM1, &one,
                                           d->x, x, &zero, d->y, y);
    default:
        return cudnnActivationForward(handle, d->act, &one, d->x, x, &zero, d->y, y);
    }
}

static void regenerate(void *ptr, size_t bytes, void *stream, void *user)
{
    struct recipe *r = user;
    cudnnStatus_t s = cudnnSetStream(handle, (cudaStream_t)stream);
    for (int i = r->first; i <= r->last && s == CUDNN_STATUS_SUCCESS; i++) {
        const struct tr_node *v = &r->t->net.nodes[i];
        if (i == r->first || (v->inplace && address(r->t, v->out[0]) == ptr))
            s = again(r->t, v);
    }
    if (s != CUDNN_STATUS_SUCCESS)
        tr_fail("regenerating %zu bytes: %s", bytes, cudnnGetErrorString(s));
    else if (ptr != address(r->t, r->t->net.nodes[r->first].out[0]))
        tr_fail("asked to regenerate a block that is gone");
}

static bool cheap(const struct tr_node *v)
{
    return v->kind == TR_BN || v->kind == TR_POOL || v->kind == TR_LRN || v->kind == TR_ACT;
}

/* After the last node that writes a block: can it be made again, until its own end? */
static void forward_done(struct trainer *t, int node)
{
    const struct tr_node *v = &t->net.nodes[node];
    int block = t->net.tensors[v->out[0]].block;
    struct recipe *r = &recipes[block];
    if (!v->inplace)
        r->first = cheap(v) ? node : -1;
    else if (v->kind != TR_ACT)
        r->first = -1;
    r->last = node;
    if (r->first < 0 || t->net.blocks[block].bytes < ((size_t)64 << 10))
        return;
    const struct tr_tensor *y = &t->net.tensors[v->out[0]];
    if (y->consumers == 1 && node + 1 < t->net.nnodes && t->net.nodes[node + 1].inplace &&
        t->net.nodes[node + 1].in[0] == v->out[0])
        return; /* the next node changes it first */
    const struct tr_node *f = &t->net.nodes[r->first];
    int source = t->net.tensors[f->in[0]].block;
    if (t->net.blocks[source].last >= t->net.blocks[block].last)
        vmem_regenerable(t->net.blocks[block].p, regenerate, r,
                         (uint64_t)(t->net.blocks[block].bytes / 50));
}

static void last_use(struct trainer *t, int block)
{
    void *p = t->net.blocks[block].p;
    if (recipes[block].first >= 0)
        vmem_regenerable(p, NULL, NULL, 0);
    if (t->opt.upfront)
        vmem_dead(p);
}

static void step(struct trainer *t)
{
    (void)t;
    vmem_step();
}

static void report(struct trainer *t)
{
    struct vmem_stats s = { .size = sizeof s };
    (void)t;
    if (vmem_get_stats(&s) == VMEM_OK)
        printf("vmem state %u iterations %llu planned %llu regenerated %llu dropped_bytes %llu "
               "out_bytes %llu in_bytes %llu\n",
               s.state, (unsigned long long)s.iterations,
               (unsigned long long)s.planned_iterations, (unsigned long long)s.regenerated,
               (unsigned long long)s.dropped_bytes, (unsigned long long)s.out_bytes,
               (unsigned long long)s.in_bytes);
    free(recipes);
    recipes = NULL;
    nrecipes = 0;
    cudnnDestroy(handle);
}

static const struct tr_hints table = { start, forward_done, last_use, step, report };
const struct tr_hints *const tr_hints = &table;
