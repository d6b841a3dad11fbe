/* What an operation does when it executes: the touches are checked first, then, in functional mode,
 * the bytes move. A touch that fails makes the context's error sticky, as on hardware. */
#include "sg.h"

#include <setjmp.h>
#include <string.h>

struct touching {
    struct sg_op *op;
    size_t host_bytes;
    jmp_buf out;
};

static void illegal(struct sg_op *op, const char *why, uint64_t va, size_t bytes, uint64_t bad,
                    int mode)
{
    char who[224];
    sg_op_describe(op, who, sizeof who);
    sg.illegal++;
    if (op->ctx->sticky == CUDA_SUCCESS)
        sg_note("simgpu: illegal address: %s %s %#llx+%zu: %s at %#llx", who,
                mode == SIMGPU_READ ? "reads" : "writes", (unsigned long long)va, bytes, why,
                (unsigned long long)bad);
    op->ctx->sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
}

static bool touch(struct sg_op *op, uint64_t va, size_t bytes, int mode, size_t *host_bytes)
{
    uint64_t bad;
    if (!bytes)
        return true;
    const char *why = sg_touch(op, op->device, va, bytes, mode, &bad, host_bytes);
    if (why)
        illegal(op, why, va, bytes, bad, mode);
    return !why;
}

/* Called by a kernel's touches(); a failure leaves it at once, before it follows a bad pointer. */
static void kernel_touch(void *ctx, uint64_t addr, size_t bytes, int mode)
{
    struct touching *t = ctx;
    if (!touch(t->op, addr, bytes, mode, &t->host_bytes))
        longjmp(t->out, 1);
}

static void run_kernel(struct sg_op *op)
{
    struct sg_kernel_op *k = &op->u.kernel;
    const struct simgpu_kernel *kernel = k->fn->kernel;
    struct simgpu_launch l = {.params = k->params,
                              .param_bytes = k->param_bytes,
                              .shared_bytes = k->shared,
                              .functional = sg.cfg.mode == SG_FUNCTIONAL};
    memcpy(l.grid, k->grid, sizeof l.grid);
    memcpy(l.block, k->block, sizeof l.block);
    struct touching t = {.op = op};
    sg.kernels++;
    if (kernel->touches) {
        if (setjmp(t.out))
            return;
        kernel->touches(&l, kernel_touch, &t);
    }
    k->link_ns = (double)t.host_bytes / sg.cfg.preset.pcie * 1e9;
    if (l.functional && kernel->body)
        kernel->body(&l);
}

static size_t extent(size_t width, size_t height, size_t depth, size_t pitch, size_t slice)
{
    return (depth - 1) * slice + (height - 1) * pitch + width;
}

/* One side of a copy: a whole range where rows are dense, else each row. */
static bool touch_side(struct sg_op *op, bool dst)
{
    const struct sg_copy *c = &op->u.copy;
    uint64_t at = dst ? c->dst : c->src;
    size_t pitch = dst ? c->dpitch : c->spitch, slice = dst ? c->dslice : c->sslice;
    int mode = dst ? SIMGPU_WRITE : SIMGPU_READ;
    size_t host_bytes = 0;
    bool pinned;
    if ((dst ? c->dst_host : c->src_host) && (sg_is_host(at, &pinned), !pinned))
        return true; /* pageable memory: the host's own affair */
    if ((c->height <= 1 || pitch == c->width) && (c->depth <= 1 || slice == pitch * c->height))
        return touch(op, at, extent(c->width, c->height, c->depth, pitch, slice), mode,
                     &host_bytes);
    for (size_t z = 0; z < c->depth; z++)
        for (size_t y = 0; y < c->height; y++)
            if (!touch(op, at + z * slice + y * pitch, c->width, mode, &host_bytes))
                return false;
    return true;
}

/* Timing mode: device memory holds nothing, and a program that reads results from it sees zeroes. Not so
 * in page-locked blocks so large that they show the same few pages everywhere, or would fill the host
 * where they are the program's own. */
static void arrive_empty(const struct sg_copy *c)
{
    const struct sg_range *r = sg_range_find(c->dst);
    if (r && (r->bytes > SG_ALIAS_BYTES || (r->kind != SG_PINNED && r->kind != SG_REGISTERED)))
        return;
    for (size_t z = 0; z < c->depth; z++)
        for (size_t y = 0; y < c->height; y++)
            memset((unsigned char *)c->dst + z * c->dslice + y * c->dpitch, 0, c->width);
}

static void run_copy(struct sg_op *op)
{
    struct sg_copy *c = &op->u.copy;
    size_t bytes = c->width * c->height * c->depth;
    struct sg_device *d = &sg.dev[op->device];
    sg.copies++;
    if (!bytes || !touch_side(op, false) || !touch_side(op, true))
        return;
    if (op->engine == SG_ENG_H2D)
        d->in_bytes += bytes;
    else if (op->engine == SG_ENG_D2H)
        d->out_bytes += bytes;
    else
        d->d2d_bytes += bytes;
    bool dense = (c->height <= 1 || c->spitch == c->width) && c->depth <= 1;
    if (sg.cfg.racecheck && dense && c->dpitch == c->spitch)
        sg_race_copied(c->dst, c->src, bytes);
    bool contents = sg.cfg.mode == SG_FUNCTIONAL || (c->src_host && c->dst_host);
    if (!contents) {
        if (c->dst_host)
            arrive_empty(c);
        return;
    }
    const unsigned char *src = c->staged ? c->staged : (const unsigned char *)c->src;
    size_t spitch = c->staged ? c->width : c->spitch;
    size_t sslice = c->staged ? c->width * c->height : c->sslice;
    for (size_t z = 0; z < c->depth; z++)
        for (size_t y = 0; y < c->height; y++)
            memmove((unsigned char *)c->dst + z * c->dslice + y * c->dpitch,
                    src + z * sslice + y * spitch, c->width);
}

static void run_memset(struct sg_op *op)
{
    const struct sg_memset *m = &op->u.memset;
    size_t row = m->width * m->elem, host_bytes = 0;
    for (size_t y = 0; y < m->height; y++) {
        uint64_t at = m->dst + y * m->pitch;
        if (!touch(op, at, row, SIMGPU_WRITE, &host_bytes))
            return;
        if (sg.cfg.mode != SG_FUNCTIONAL)
            continue;
        unsigned char *p = (unsigned char *)at;
        for (size_t x = 0; m->elem > 1 && x < m->width; x++)
            memcpy(p + x * m->elem, &m->value, m->elem); /* little endian */
        if (m->elem == 1)
            memset(p, (int)(m->value & 0xff), row);
    }
}

static void run_memop(struct sg_op *op)
{
    const struct sg_memop *m = &op->u.memop;
    size_t host_bytes = 0;
    if (m->wait) {
        uint64_t bad;
        const char *why =
            sg_touch(NULL, op->device, m->addr, m->bytes, SIMGPU_READ, &bad, &host_bytes);
        if (why)
            illegal(op, why, m->addr, m->bytes, bad, SIMGPU_READ);
    } else if (touch(op, m->addr, m->bytes, SIMGPU_WRITE, &host_bytes)) {
        sg_memop_store(m);
    }
}

void sg_execute(struct sg_op *op)
{
    if (op->kind == SG_OP_FREE) {
        sg_pool_freed(op);
        return;
    }
    if (op->kind == SG_OP_MEMOP && op->u.memop.event) {
        sg_shared_event_play(&op->u.memop); /* a lost context too: others may wait for it */
        return;
    }
    if (op->ctx->sticky != CUDA_SUCCESS)
        return;
    if (sg.dev[op->device].lost) {
        op->ctx->sticky = CUDA_ERROR_DEVICE_UNAVAILABLE;
        return;
    }
    if (op->kind == SG_OP_KERNEL)
        run_kernel(op);
    else if (op->kind == SG_OP_COPY)
        run_copy(op);
    else if (op->kind == SG_OP_MEMSET)
        run_memset(op);
    else if (op->kind == SG_OP_MEMOP)
        run_memop(op);
}

static double copy_ns(struct sg_op *op)
{
    const struct sg_preset *p = &sg.cfg.preset;
    const struct sg_copy *c = &op->u.copy;
    double bytes = (double)(c->width * c->height * c->depth);
    double rate = p->pcie;
    if (c->src_host && c->dst_host)
        return 0; /* the host did it */
    if (op->engine == SG_ENG_COMPUTE)
        rate = p->bandwidth / 2 * 0.85; /* read and written */
    else if (c->from_pageable || c->to_pageable)
        rate = p->pageable;
    return sg_prices.copy_start + bytes / rate * 1e9 * sg_fault_copy_factor();
}

/* Roofline: the longer of arithmetic and memory traffic, at the shares the class reaches. */
double sg_duration(struct sg_op *op)
{
    const struct sg_preset *p = &sg.cfg.preset;
    switch (op->kind) {
    case SG_OP_KERNEL: {
        const struct simgpu_work *w = &op->u.kernel.work;
        double link = op->u.kernel.link_ns; /* what it touches on the host crosses the link */
        if (w->ns > 0)
            return sg_prices.kernel_start + (w->ns > link ? w->ns : link);
        const struct sg_class_rate *r = &p->rates[w->kclass];
        double compute = w->flops / (p->flops * r->flops) * 1e9;
        double memory = w->bytes / (p->bandwidth * r->bytes) * 1e9;
        double longest = compute > memory ? compute : memory;
        return sg_prices.kernel_start + (longest > link ? longest : link);
    }
    case SG_OP_COPY:
        return copy_ns(op);
    case SG_OP_MEMSET: {
        const struct sg_memset *m = &op->u.memset;
        return sg_prices.kernel_start +
               (double)(m->width * m->elem * m->height) / (p->bandwidth * 0.85) * 1e9;
    }
    default:
        return 0;
    }
}
