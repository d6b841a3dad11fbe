/* graphs.c: graphs captured from streams, and tables of addresses that kernels follow. */
#include "torture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- graphs -------------------------------------------------------------------------------------------*/

static int usable(const struct slot *b)
{
    return b->live && b->defined;
}

static int mode_of(const struct graph *g, int slot)
{
    return (int)(g->modes >> (2 * slot) & 3);
}

static void add_mode(struct graph *g, int slot, int mode)
{
    g->modes |= (uint64_t)mode << (2 * slot);
}

/* Draws one operation over slots that are all usable. */
static void draw_sub(struct rng *r, const struct intent *i, struct graph *g)
{
    struct sub *u = &g->subs[g->nsubs++];
    u->kind = (enum sub_kind)rng_below(r, 4);
    u->slot[0] = i->slot[rng_below(r, i->nslots)];
    u->slot[1] = i->slot[rng_below(r, i->nslots)];
    u->slot[2] = i->slot[rng_below(r, i->nslots)];
    u->salt = rng_next(r);
    u->total = rng_below(r, 2);
    if (u->slot[0] == u->slot[1] || u->slot[0] == u->slot[2])
        u->kind = SUB_FILL;
    add_mode(g, u->slot[0], 3);
    if (u->kind != SUB_FILL)
        add_mode(g, u->slot[1], u->kind == SUB_SWAP ? 3 : 1);
    if (u->kind == SUB_MIX)
        add_mode(g, u->slot[2], 1);
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Words of a block that is allocated in the capture, and freed in it or right after: contents go through it. */
static uint32_t scratch_words(const struct world *w, const struct sub *u)
{
    if (!w->shared->scratch || !(u->salt & 1) || (u->kind != SUB_COPY && u->kind != SUB_FILL))
        return 0;
    uint32_t n = w->slots[u->slot[0]].words;
    return u->kind == SUB_FILL ? n : least(n, w->slots[u->slot[1]].words);
}

/* Where libvmem.so could not serve the device (a call of its own failed) the driver refuses: no memory. */
static CUresult allocate_captured(CUdeviceptr *p, size_t bytes)
{
    CUresult r = cuMemAlloc(p, bytes);
    return r == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ? CUDA_ERROR_OUT_OF_MEMORY : r;
}

static void by_scratch(struct world *w, const struct sub *u, int s, CUdeviceptr *later)
{
    CUdeviceptr scratch;
    uint32_t words = scratch_words(w, u);
    TRY(w, allocate_captured(&scratch, (size_t)words * 4));
    if (u->kind == SUB_FILL)
        TRY(w, cuMemsetD32Async(scratch, u->salt, words, w->streams[s]));
    else
        TRY(w, cuMemcpyDtoDAsync(scratch, w->slots[u->slot[1]].p, (size_t)words * 4, w->streams[s]));
    TRY(w, cuMemcpyDtoDAsync(w->slots[u->slot[0]].p, scratch, (size_t)words * 4, w->streams[s]));
    if (u->salt & 2)
        TRY(w, cuMemFree(scratch));
    else
        *later = scratch;
}

/* Issues one operation into the capture on stream `s`, or does it on the model. */
static void run_sub(struct world *w, const struct sub *u, int s, int on_model, CUdeviceptr *later)
{
    struct slot *a = &w->slots[u->slot[0]], *b = &w->slots[u->slot[1]], *c = &w->slots[u->slot[2]];
#define PTR(x) (on_model ? (uint64_t)(uintptr_t)(x)->model : (x)->p)
    uint32_t n = least(a->words, b->words);
    switch (u->kind) {
    case SUB_MIX: {
        struct mix_args m = {.dst = PTR(a), .words = a->words, .salt = u->salt, .total = u->total,
                             .nsrc = 2, .src = {PTR(b), PTR(c)}, .src_words = {b->words, c->words}};
        if (on_model)
            mix_compute(&m);
        else
            launch(w, w->gpu->mix, &m, sizeof m, a->words, s, 0);
        break;
    }
    case SUB_SWAP: {
        struct swap_args m = {PTR(a), PTR(b), n, u->salt};
        if (on_model)
            swap_compute(&m);
        else
            launch(w, w->gpu->swap, &m, sizeof m, n, s, 1);
        break;
    }
    case SUB_FILL:
        for (uint32_t k = 0; on_model && k < a->words; k++)
            a->model[k] = u->salt;
        if (!on_model && scratch_words(w, u) > 0)
            by_scratch(w, u, s, later);
        else if (!on_model && !w->shared->dry)
            TRY(w, cuMemsetD32Async(a->p, u->salt, a->words, w->streams[s]));
        break;
    case SUB_COPY:
        if (on_model)
            memcpy(a->model, b->model, (size_t)n * 4);
        else if (scratch_words(w, u) > 0)
            by_scratch(w, u, s, later);
        else if (!w->shared->dry)
            TRY(w, cuMemcpyDtoDAsync(a->p, b->p, (size_t)n * 4, w->streams[s]));
        break;
    }
#undef PTR
}

/* Two streams in the capture where the last operation shares no slot with the others. */
static int splits(const struct graph *g)
{
    uint64_t before = 0, last = 0;
    for (uint32_t k = 0; k < g->nsubs; k++) {
        const struct sub *u = &g->subs[k];
        uint64_t touched = (uint64_t)1 << u->slot[0];
        if (u->kind != SUB_FILL)
            touched |= (uint64_t)1 << u->slot[1];
        if (u->kind == SUB_MIX)
            touched |= (uint64_t)1 << u->slot[2];
        if (k + 1 < g->nsubs)
            before |= touched;
        else
            last = touched;
    }
    return g->nsubs > 1 && !(before & last);
}

static void capture(struct world *w, struct graph *g, int s)
{
    CUgraph graph;
    CUdeviceptr later[sizeof g->subs / sizeof g->subs[0]] = {0};
    int other = s % (STREAMS - 1) + 1;
    int split = splits(g);
    TRY(w, cuStreamBeginCapture(w->streams[s], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    if (split) {
        TRY(w, cuEventRecord(w->inner[0], w->streams[s]));
        TRY(w, cuStreamWaitEvent(w->streams[other], w->inner[0], 0));
    }
    for (uint32_t k = 0; k < g->nsubs; k++)
        run_sub(w, &g->subs[k], split && k + 1 == g->nsubs ? other : s, 0, &later[k]);
    if (split) {
        TRY(w, cuEventRecord(w->inner[1], w->streams[other]));
        TRY(w, cuStreamWaitEvent(w->streams[s], w->inner[1], 0));
    }
    TRY(w, cuStreamEndCapture(w->streams[s], &graph));
    for (uint32_t k = 0; k < g->nsubs; k++)
        if (later[k])
            TRY(w, cuMemFree(later[k]));
    TRY(w, cuGraphInstantiateWithFlags(&g->exec, graph, 0));
    TRY(w, cuGraphDestroy(graph));
}

static int graph_make(struct world *w, struct graph *g, const struct intent *i)
{
    struct rng r = {i->salt};
    int s = i->stream ? i->stream : 1; /* the legacy stream cannot be captured */
    struct intent over = *i;
    over.nslots = 0;
    for (int k = 0; k < i->nslots; k++)
        if (usable(&w->slots[i->slot[k]]))
            over.slot[over.nslots++] = i->slot[k];
    if (over.nslots == 0 || (over.nslots < i->nslots && !w->shared->scratch))
        return 0;
    if (g->live)
        graph_drop(w, g);
    memset(g, 0, sizeof *g);
    uint32_t n = 1 + rng_below(&r, 5);
    while (g->nsubs < n)
        draw_sub(&r, &over, g);
    for (uint32_t k = 0; k < n; k++)
        g->scratch_words += scratch_words(w, &g->subs[k]);
    w->scratch_words += g->scratch_words;
    if (!w->shared->dry)
        capture(w, g, s);
    for (int k = 0; k < SLOTS; k++)
        w->slots[k].held += mode_of(g, k) != 0;
    g->live = 1;
    return 1;
}

static void graph_launch(struct world *w, struct graph *g, int s)
{
    for (int k = 0; k < SLOTS; k++)
        if (mode_of(g, k))
            order_touch(w, &w->slots[k], s, mode_of(g, k));
    order_issue(w, s);
    if (!w->shared->dry)
        TRY(w, cuGraphLaunch(g->exec, w->streams[s]));
    for (uint32_t k = 0; k < g->nsubs; k++)
        run_sub(w, &g->subs[k], s, 1, NULL);
    for (int k = 0; k < SLOTS; k++)
        if (mode_of(g, k))
            order_mark(w, &w->slots[k], s, mode_of(g, k));
}

void graph_drop(struct world *w, struct graph *g)
{
    if (!w->shared->dry)
        TRY(w, cuGraphExecDestroy(g->exec));
    for (int k = 0; k < SLOTS; k++)
        w->slots[k].held -= mode_of(g, k) != 0;
    w->scratch_words -= g->scratch_words;
    g->live = 0;
}

void do_graph(struct world *w, const struct intent *i)
{
    struct graph *g = &w->graphs[i->variant % GRAPHS];
    if (!w->shared->graphs || (i->kind != DO_GRAPH_MAKE && !g->live)) {
        w->skipped++;
        return;
    }
    if (i->kind == DO_GRAPH_MAKE)
        w->skipped += !graph_make(w, g, i);
    else if (i->kind == DO_GRAPH_LAUNCH)
        graph_launch(w, g, i->stream);
    else
        graph_drop(w, g);
}

/* ---- tables -------------------------------------------------------------------------------------------*/

#define TABLE_BYTES (ENTRIES * sizeof(struct table_entry))

static struct table_entry *model_entries(struct table *t)
{
    return (struct table_entry *)(void *)t->block.model;
}

static void table_open(struct world *w, struct table *t, int mapped)
{
    if (t->block.live)
        return;
    memset(t, 0, sizeof *t);
    t->mapped = mapped;
    if (!mapped) {
        slot_alloc(w, &t->block, TABLE_BYTES / 4, 1, 0);
        return;
    }
    t->block.words = TABLE_BYTES / 4;
    t->block.writer = -1;
    t->block.live = 1;
    t->block.model = malloc(TABLE_BYTES);
    if (!t->block.model)
        _Exit(EXIT_USAGE);
    if (w->shared->dry)
        return;
    TRY(w, cuMemHostAlloc((void **)&t->host, TABLE_BYTES, CU_MEMHOSTALLOC_DEVICEMAP));
    TRY(w, cuMemHostGetDevicePointer(&t->block.p, t->host, 0));
}

void table_drop(struct world *w, struct table *t)
{
    if (!t->block.live)
        return;
    if (!t->mapped) {
        slot_free(w, &t->block, 0, 0);
    } else {
        free(t->block.model);
        if (!w->shared->dry)
            TRY(w, cuMemFreeHost(t->host));
    }
    memset(t, 0, sizeof *t);
}

/* Takes the usable slots of the intent as the table's targets. */
static int table_targets(struct world *w, struct table *t, const struct intent *i,
                         struct table_entry *device)
{
    int n = 0;
    for (int k = 0; k < i->nslots && n < ENTRIES; k++) {
        struct slot *b = &w->slots[i->slot[k]];
        if (!usable(b))
            continue;
        b->escaped = 1;
        device[n] = (struct table_entry){b->p, b->words};
        model_entries(t)[n] = (struct table_entry){(uint64_t)(uintptr_t)b->model, b->words};
        t->target[n] = i->slot[k];
        t->target_born[n++] = b->born;
    }
    t->entries = n;
    return n;
}

/* Fills a table: by a copy, by kernels that store one address each, or by the host itself. */
static int table_fill(struct world *w, struct table *t, const struct intent *i)
{
    struct table_entry device[ENTRIES];
    memset(device, 0, sizeof device);
    table_open(w, t, i->kind == DO_TABLE_MAPPED);
    if (t->mapped != (i->kind == DO_TABLE_MAPPED))
        return 0;
    if (t->mapped)
        order_host_sync_all(w); /* nobody may still read what the host overwrites */
    if (!table_targets(w, t, i, device))
        return 0;
    int s = i->stream;
    if (t->mapped) {
        if (!w->shared->dry)
            memcpy(t->host, device, sizeof device);
        return 1;
    }
    if (i->kind == DO_TABLE_COPY) {
        order_touch(w, &t->block, 0, 2);
        order_issue(w, 0);
        if (!w->shared->dry)
            TRY(w, cuMemcpyHtoD(t->block.p, device, sizeof device));
        order_mark(w, &t->block, 0, 2);
        return 1;
    }
    order_touch(w, &t->block, s, 3);
    for (int k = 0; k < t->entries; k++) {
        struct store_args a = {t->block.p, device[k].address, (uint32_t)k,
                               (uint32_t)device[k].words};
        /* the target's address is in the parameters: to the order rules it is not touched */
        order_issue(w, s);
        launch(w, w->gpu->store, &a, sizeof a, 1, s, k & 1);
    }
    order_mark(w, &t->block, s, 3);
    return 1;
}

static int table_gather(struct world *w, struct table *t, const struct intent *i)
{
    struct slot *dst = &w->slots[i->slot[0]];
    int s = i->stream;
    if (!t->block.live || !t->entries || !dst->live)
        return 0;
    for (int k = 0; k < t->entries; k++) {
        const struct slot *b = &w->slots[t->target[k]];
        if (!usable(b) || b->born != t->target_born[k] || b == dst)
            return 0;
    }
    uint32_t stores = (i->variant >> 1 & 3) == 0;
    int mode = stores ? 3 : 1;
    order_touch(w, &t->block, s, 1);
    for (int k = 0; k < t->entries; k++)
        order_touch(w, &w->slots[t->target[k]], s, mode);
    order_touch(w, dst, s, 2);
    order_issue(w, s);
    struct gather_args g = {t->block.p, dst->p, (uint32_t)t->entries, dst->words, i->salt, stores};
    w->shared->hidden_used = 1;
    launch(w, w->gpu->gather, &g, sizeof g, dst->words, s, i->variant & 1);
    g.table = (uint64_t)(uintptr_t)t->block.model;
    g.dst = (uint64_t)(uintptr_t)dst->model;
    gather_compute(&g);
    order_mark(w, &t->block, s, 1);
    for (int k = 0; k < t->entries; k++)
        order_mark(w, &w->slots[t->target[k]], s, mode);
    order_mark(w, dst, s, 3);
    dst->defined = 1;
    return 1;
}

void do_table(struct world *w, const struct intent *i)
{
    struct table *t = &w->tables[i->variant >> 4 & (TABLES - 1)];
    int done = i->kind == DO_GATHER ? table_gather(w, t, i) : table_fill(w, t, i);
    w->skipped += !done;
}
