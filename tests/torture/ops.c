/* ops.c: the intents: each checked against the state, ordered, issued, and done on the model. */
#include "torture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t host_address(const void *p)
{
    return (uint64_t)(uintptr_t)p;
}

/* The world has given up on this intent: it is not possible now. */
static void skip(struct world *w)
{
    w->skipped++;
}

void launch(struct world *w, CUfunction f, void *args, size_t bytes, uint32_t words, int s,
            int packed)
{
    if (w->shared->dry)
        return;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, args, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    void *list[8];
    unsigned n = 0;
    /* where each parameter starts; the first kernel takes one structure */
    size_t offset, size;
    for (; !packed && n < 8 && cuFuncGetParamInfo(f, n, &offset, &size) == CUDA_SUCCESS; n++)
        list[n] = (char *)args + offset;
    TRY(w, cuLaunchKernel(f, (words + 255) / 256, 1, 1, 256, 1, 1, 0, w->streams[s],
                          packed ? NULL : list, packed ? extra : NULL));
}

/* ---- kernels ------------------------------------------------------------------------------------------*/

static void do_launch(struct world *w, const struct intent *i)
{
    struct slot *dst = &w->slots[i->slot[0]];
    int s = i->stream, total = !dst->defined || (i->variant & 3) == 0, n = 0;
    struct slot *src[4];
    if (!dst->live)
        return skip(w);
    for (int k = 1; k < i->nslots && n < 4; k++) {
        struct slot *b = &w->slots[i->slot[k]];
        if (b->live && b->defined && b != dst)
            src[n++] = b;
    }
    struct mix_args device = {.dst = dst->p, .words = dst->words, .salt = i->salt,
                              .total = (uint32_t)total, .nsrc = (uint32_t)n};
    struct mix_args model = device;
    model.dst = host_address(dst->model);
    for (int k = 0; k < n; k++) {
        order_touch(w, src[k], s, 1);
        device.src[k] = src[k]->p;
        model.src[k] = host_address(src[k]->model);
        device.src_words[k] = model.src_words[k] = src[k]->words;
    }
    order_touch(w, dst, s, total ? 2 : 3);
    order_issue(w, s);
    launch(w, w->gpu->mix, &device, sizeof device, dst->words, s, i->variant >> 2 & 1);
    mix_compute(&model);
    for (int k = 0; k < n; k++)
        order_mark(w, src[k], s, 1);
    order_mark(w, dst, s, 3);
    dst->defined = 1;
}

static void do_swap(struct world *w, const struct intent *i)
{
    struct slot *a = &w->slots[i->slot[0]], *b = &w->slots[i->slot[1]];
    int s = i->stream;
    if (a == b || !a->live || !b->live || !a->defined || !b->defined)
        return skip(w);
    struct swap_args args = {a->p, b->p, a->words < b->words ? a->words : b->words, i->salt};
    order_touch(w, a, s, 3);
    order_touch(w, b, s, 3);
    order_issue(w, s);
    launch(w, w->gpu->swap, &args, sizeof args, args.words, s, i->variant & 1);
    args.a = host_address(a->model);
    args.b = host_address(b->model);
    swap_compute(&args);
    order_mark(w, a, s, 3);
    order_mark(w, b, s, 3);
}

/* ---- copies ---------------------------------------------------------------------------------------------*/

/* A part of a block, or all of it where it must be whole. */
static void part(const struct intent *i, const struct slot *b, int whole, uint32_t *first,
                 uint32_t *count)
{
    struct rng r = {i->salt};
    *first = 0;
    *count = b->words;
    if (!whole && (i->variant & 1)) {
        *first = rng_below(&r, b->words);
        *count = 1 + rng_below(&r, b->words - *first);
    }
}

static void fill_random(uint32_t *p, uint32_t n, uint32_t salt)
{
    struct rng r = {salt};
    for (uint32_t k = 0; k < n; k++)
        p[k] = rng_next(&r);
}

static void do_upload(struct world *w, const struct intent *i)
{
    static _Thread_local uint32_t pageable[MAX_WORDS];
    struct slot *b = &w->slots[i->slot[0]];
    uint32_t first, n;
    int how = (i->variant >> 1) % 3, s = how == 0 ? 0 : i->stream;
    if (!b->live)
        return skip(w);
    part(i, b, !b->defined, &first, &n);
    struct buffer *pinned = how == 2 ? buffer_take(w, s) : NULL;
    order_touch(w, b, s, b->defined ? 3 : 2);
    order_issue(w, s);
    uint32_t *source = pinned && !w->shared->dry ? pinned->pinned : pageable;
    fill_random(source, n, i->salt);
    CUdeviceptr to = b->p + (CUdeviceptr)first * 4;
    memcpy(b->model + first, source, (size_t)n * 4);
    if (!w->shared->dry && how == 0)
        TRY(w, cuMemcpyHtoD(to, source, (size_t)n * 4));
    else if (!w->shared->dry)
        TRY(w, cuMemcpyHtoDAsync(to, source, (size_t)n * 4, w->streams[s]));
    if (pinned)
        pinned->at = w->now[s];
    else
        memset(pageable, 0xa7, sizeof pageable); /* a pageable source was read already */
    order_mark(w, b, s, 3);
    b->defined = 1;
}

static void compare(struct world *w, const char *what, const uint32_t *got, const uint32_t *want,
                    uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        if (got[k] != want[k])
            torture_wrong(w, what, k, got[k], want[k]);
    w->checked++;
}

static void do_readback(struct world *w, const struct intent *i)
{
    static _Thread_local uint32_t back[MAX_WORDS];
    struct slot *b = &w->slots[i->slot[0]];
    uint32_t first, n;
    int how = (i->variant >> 1) % 3, s = how == 0 ? 0 : i->stream;
    if (!b->live || !b->defined)
        return skip(w);
    part(i, b, 0, &first, &n);
    struct buffer *pinned = how == 2 ? buffer_take(w, s) : NULL;
    order_touch(w, b, s, 1);
    order_issue(w, s);
    CUdeviceptr from = b->p + (CUdeviceptr)first * 4;
    if (pinned) {
        memcpy(pinned->expected, b->model + first, (size_t)n * 4);
        pinned->words = n;
        pinned->check = 1;
        pinned->at = w->now[s];
        if (!w->shared->dry)
            TRY(w, cuMemcpyDtoHAsync(pinned->pinned, from, (size_t)n * 4, w->streams[s]));
    } else if (!w->shared->dry) {
        if (how == 0)
            TRY(w, cuMemcpyDtoH(back, from, (size_t)n * 4));
        else
            TRY(w, cuMemcpyDtoHAsync(back, from, (size_t)n * 4, w->streams[s]));
    }
    order_mark(w, b, s, 1);
    if (pinned)
        return;
    if (how != 0)
        order_host_sync(w, s);
    if (!w->shared->dry)
        compare(w, "a copy to the host", back, b->model + first, n);
}

static void do_copy(struct world *w, const struct intent *i)
{
    struct slot *dst = &w->slots[i->slot[0]], *src = &w->slots[i->slot[1]];
    int s = i->stream;
    if (dst == src || !dst->live || !src->live || !src->defined)
        return skip(w);
    uint32_t n = dst->words < src->words ? dst->words : src->words, first = 0;
    if (!dst->defined && n < dst->words)
        return skip(w);
    if (dst->defined && (i->variant & 1)) {
        first = i->salt % n;
        n = 1 + (i->salt >> 8) % (n - first);
    }
    order_touch(w, src, s, 1);
    order_touch(w, dst, s, 3);
    order_issue(w, s);
    if (!w->shared->dry) {
        CUdeviceptr to = dst->p + (CUdeviceptr)first * 4, from = src->p + (CUdeviceptr)first * 4;
        if (i->variant & 2)
            TRY(w, cuMemcpyAsync(to, from, (size_t)n * 4, w->streams[s]));
        else
            TRY(w, cuMemcpyDtoDAsync(to, from, (size_t)n * 4, w->streams[s]));
    }
    memcpy(dst->model + first, src->model + first, (size_t)n * 4);
    order_mark(w, src, s, 1);
    order_mark(w, dst, s, 3);
    dst->defined = 1;
}

/* A window of rows between two blocks seen as planes. */
static void do_copy_2d(struct world *w, const struct intent *i)
{
    struct slot *dst = &w->slots[i->slot[0]], *src = &w->slots[i->slot[1]];
    int s = i->stream;
    if (dst == src || !dst->live || !src->live || !src->defined || !dst->defined)
        return skip(w);
    struct rng r = {i->salt};
    uint32_t width = 1 + rng_below(&r, 64), dpitch = width + rng_below(&r, 64);
    uint32_t spitch = width + rng_below(&r, 64);
    uint32_t rows = dst->words / dpitch < src->words / spitch ? dst->words / dpitch
                                                              : src->words / spitch;
    if (!rows)
        return skip(w);
    order_touch(w, src, s, 1);
    order_touch(w, dst, s, 3);
    order_issue(w, s);
    CUDA_MEMCPY2D c;
    memset(&c, 0, sizeof c);
    c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    c.srcDevice = src->p;
    c.srcPitch = (size_t)spitch * 4;
    c.dstDevice = dst->p;
    c.dstPitch = (size_t)dpitch * 4;
    c.WidthInBytes = (size_t)width * 4;
    c.Height = rows;
    if (!w->shared->dry)
        TRY(w, cuMemcpy2DAsync(&c, w->streams[s]));
    for (uint32_t y = 0; y < rows; y++)
        memcpy(dst->model + (size_t)y * dpitch, src->model + (size_t)y * spitch, (size_t)width * 4);
    order_mark(w, src, s, 1);
    order_mark(w, dst, s, 3);
}

static void do_memset(struct world *w, const struct intent *i)
{
    struct slot *b = &w->slots[i->slot[0]];
    uint32_t first, n;
    int s = i->stream;
    if (!b->live)
        return skip(w);
    part(i, b, !b->defined, &first, &n);
    order_touch(w, b, s, b->defined ? 3 : 2);
    order_issue(w, s);
    CUdeviceptr to = b->p + (CUdeviceptr)first * 4;
    unsigned char byte = (unsigned char)i->salt;
    if (i->variant & 2) {
        memset(b->model + first, byte, (size_t)n * 4);
        if (!w->shared->dry)
            TRY(w, cuMemsetD8Async(to, byte, (size_t)n * 4, w->streams[s]));
    } else {
        for (uint32_t k = 0; k < n; k++)
            b->model[first + k] = i->salt;
        if (!w->shared->dry)
            TRY(w, cuMemsetD32Async(to, i->salt, n, w->streams[s]));
    }
    order_mark(w, b, s, 3);
    b->defined = 1;
}

/* ---- waiting ----------------------------------------------------------------------------------------------*/

static void do_sync(struct world *w, const struct intent *i)
{
    if (i->variant % 3 == 0) {
        if (!w->shared->dry)
            TRY(w, cuCtxSynchronize());
        order_host_sync_all(w);
    } else {
        order_host_sync(w, i->stream);
    }
}

static void do_poll(struct world *w, const struct intent *i)
{
    if (w->shared->dry)
        return;
    CUresult r = cuStreamQuery(w->streams[i->stream]);
    if (r != CUDA_ERROR_NOT_READY)
        TRY(w, r);
    size_t free_bytes, total;
    TRY(w, cuMemGetInfo(&free_bytes, &total));
}

static void do_alloc(struct world *w, const struct intent *i)
{
    struct slot *b = &w->slots[i->slot[0]];
    if (b->live)
        return skip(w);
    slot_alloc(w, b, i->words, i->stream, i->variant);
}

static void do_free(struct world *w, const struct intent *i)
{
    struct slot *b = &w->slots[i->slot[0]];
    if (!b->live || b->held)
        return skip(w);
    slot_free(w, b, i->stream, i->variant);
}

void do_intent(struct world *w, const struct intent *i)
{
    static void (*const doers[INTENT_KINDS])(struct world *, const struct intent *) = {
        [DO_ALLOC] = do_alloc,          [DO_FREE] = do_free,
        [DO_LAUNCH] = do_launch,        [DO_SWAP] = do_swap,
        [DO_UPLOAD] = do_upload,        [DO_READBACK] = do_readback,
        [DO_COPY] = do_copy,            [DO_COPY_2D] = do_copy_2d,
        [DO_MEMSET] = do_memset,        [DO_SYNC] = do_sync,
        [DO_GRAPH_MAKE] = do_graph,     [DO_GRAPH_LAUNCH] = do_graph,
        [DO_GRAPH_DROP] = do_graph,     [DO_TABLE_COPY] = do_table,
        [DO_TABLE_STORE] = do_table,    [DO_TABLE_MAPPED] = do_table,
        [DO_GATHER] = do_table,         [DO_POLL] = do_poll,
    };
    uint32_t skipped = w->skipped;
    doers[i->kind](w, i);
    int done = w->skipped == skipped;
    w->done += (uint32_t)done;
    if (w->shared->verbose && !w->shared->dry && done)
        fprintf(stderr, "torture: world %u: %u %s stream %u slots %u %u %u words %u variant %u\n",
                w->number, i->id, intent_names[i->kind], i->stream, i->slot[0], i->slot[1],
                i->slot[2], i->words, i->variant);
}
