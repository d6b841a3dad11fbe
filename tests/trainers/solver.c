/* Parameters: initial values, stochastic gradient descent with momentum, and the final checksum. */
#include <stdlib.h>

#include "trainer.h"

#define CHUNK ((size_t)1 << 20) /* floats that pass through the host at a time */

int tr_params_start(struct trainer *t)
{
    uint64_t rng = t->opt.seed;
    float *host = malloc(CHUNK * sizeof *host);
    if (!host)
        return tr_fail("out of host memory");
    for (int i = 0; i < t->net.nparams; i++) {
        struct tr_param *p = &t->net.params[i];
        TR_CUDA(t, cudaMalloc((void **)&p->w, p->count * sizeof(float)));
        for (size_t at = 0; at < p->count; at += CHUNK) {
            size_t n = p->count - at < CHUNK ? p->count - at : CHUNK;
            for (size_t k = 0; k < n; k++)
                host[k] = p->uniform ? (2.0f * tr_random_unit(&rng) - 1.0f) * p->init : p->init;
            TR_CUDA(t, cudaMemcpy(p->w + at, host, n * sizeof(float), cudaMemcpyHostToDevice));
        }
        if (p->grad < 0 || t->opt.forward_only)
            continue;
        TR_CUDA(t, cudaMalloc((void **)&p->v, p->count * sizeof(float)));
        TR_CUDA(t, cudaMemset(p->v, 0, p->count * sizeof(float)));
    }
    size_t batch = (size_t)t->net.batch;
    TR_CUDA(t, cudaMalloc((void **)&t->ones, batch * sizeof(float)));
    for (size_t at = 0; at < batch; at += CHUNK) {
        size_t n = batch - at < CHUNK ? batch - at : CHUNK;
        for (size_t k = 0; k < n; k++)
            host[k] = 1.0f;
        TR_CUDA(t, cudaMemcpy(t->ones + at, host, n * sizeof(float), cudaMemcpyHostToDevice));
    }
    free(host);
    return 0;
}

/* v = momentum v + g; w = w - rate v */
int tr_update(struct trainer *t)
{
    const float one = 1.0f, momentum = (float)t->opt.momentum, rate = -(float)t->opt.lr;
    t->step = 2 * t->net.nnodes + 1;
    for (int i = 0; i < t->net.nparams; i++) {
        struct tr_param *p = &t->net.params[i];
        if (!p->has_grad)
            continue;
        int n = (int)p->count;
        const float *g = t->net.blocks[p->grad].p;
        TR_BLAS(t, cublasSscal(t->blas, n, &momentum, p->v, 1));
        TR_BLAS(t, cublasSaxpy(t->blas, n, &one, g, 1, p->v, 1));
        TR_BLAS(t, cublasSaxpy(t->blas, n, &rate, p->v, 1, p->w, 1));
        p->has_grad = false;
    }
    return tr_memory_step_done(t, t->step);
}

/* A 64-bit digest of the bits of all parameters in order (32-bit words). */
int tr_checksum(struct trainer *t, uint64_t *sum)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    uint32_t *host = malloc(CHUNK * sizeof *host);
    if (!host)
        return tr_fail("out of host memory");
    TR_CUDA(t, cudaStreamSynchronize(t->stream));
    for (int i = 0; i < t->net.nparams; i++) {
        const struct tr_param *p = &t->net.params[i];
        for (size_t at = 0; at < p->count; at += CHUNK) {
            size_t n = p->count - at < CHUNK ? p->count - at : CHUNK;
            TR_CUDA(t, cudaMemcpy(host, p->w + at, n * sizeof *host, cudaMemcpyDeviceToHost));
            for (size_t k = 0; k < n; k++) {
                h = (h ^ host[k]) * UINT64_C(0x9ddfea08eb382d69);
                h ^= h >> 29;
            }
        }
    }
    free(host);
    *sum = h;
    return 0;
}

int tr_params_end(struct trainer *t)
{
    for (int i = 0; i < t->net.nparams; i++) {
        struct tr_param *p = &t->net.params[i];
        if (p->w)
            TR_CUDA(t, cudaFree(p->w));
        if (p->v)
            TR_CUDA(t, cudaFree(p->v));
        p->w = p->v = NULL;
    }
    return 0;
}
