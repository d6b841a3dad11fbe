/* world.c: one thread's blocks, streams and the order between them. */
#include "torture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- results ----------------------------------------------------------------------------------------*/

static void where(const struct world *w)
{
    if (w->current)
        fprintf(stderr, "torture: world %u, intent %u (%s): ", w->number, w->current->id,
                intent_names[w->current->kind]);
    else
        fprintf(stderr, "torture: world %u: ", w->number);
}

void torture_wrong(const struct world *w, const char *what, uint32_t word, uint32_t got,
                   uint32_t want)
{
    where(w);
    fprintf(stderr, "WRONG: %s, word %u is %#x, not %#x\n", what, word, got, want);
    fflush(NULL);
    _Exit(EXIT_WRONG);
}

void torture_check(const struct world *w, CUresult r, const char *call, const char *file, int line)
{
    if (r == CUDA_SUCCESS)
        return;
    where(w);
    fprintf(stderr, "%s:%d: CUresult %d from %s\n", file, line, (int)r, call);
    fflush(NULL);
    if (r == CUDA_ERROR_ILLEGAL_ADDRESS && w->shared->hidden_used)
        _Exit(EXIT_LOUD);
    _Exit(r == CUDA_ERROR_OUT_OF_MEMORY ? EXIT_MEMORY : EXIT_WRONG);
}

static void *need(void *p)
{
    if (p)
        return p;
    fprintf(stderr, "torture: out of host memory\n");
    _Exit(EXIT_USAGE);
}

/* ---- turns -------------------------------------------------------------------------------------------*/

static void turn_wait(struct world *w)
{
    while (w->shared->turn != w->number)
        pthread_cond_wait(&w->shared->moved, &w->shared->lock);
}

/* With the lock: whose turn it is next. */
static void turn_draw(const struct world *w)
{
    struct shared *s = w->shared;
    struct rng r = {s->seed * 2 + 5 + ((uint64_t)w->number << 56) + ((uint64_t)w->step << 24) + w->calls};
    while (s->alive) {
        s->turn = rng_below(&r, WORLDS);
        if (s->alive >> s->turn & 1)
            break;
    }
    pthread_cond_broadcast(&s->moved);
}

void turn_enter(struct world *w)
{
    w->in_turn = w->shared->turns;
    if (!w->in_turn)
        return;
    pthread_mutex_lock(&w->shared->lock);
    turn_wait(w);
    pthread_mutex_unlock(&w->shared->lock);
}

void turn_pass(struct world *w, int always)
{
    if (!w->in_turn)
        return;
    struct rng r = {w->shared->seed * 2 + 6 + ((uint64_t)w->step << 24) + w->calls++};
    if (!always && rng_below(&r, 4) != 0)
        return;
    pthread_mutex_lock(&w->shared->lock);
    turn_draw(w);
    turn_wait(w);
    pthread_mutex_unlock(&w->shared->lock);
}

void turn_leave(struct world *w)
{
    if (!w->in_turn)
        return;
    w->in_turn = 0;
    pthread_mutex_lock(&w->shared->lock);
    w->shared->alive &= ~(1u << w->number);
    turn_draw(w);
    pthread_mutex_unlock(&w->shared->lock);
}

/* ---- order --------------------------------------------------------------------------------------------*/

/* New work on `s` comes after everything issued on `t` so far. */
static void learn(struct world *w, int s, int t)
{
    for (int u = 0; u < STREAMS; u++)
        if (w->order[s][u] < w->order[t][u])
            w->order[s][u] = w->order[t][u];
    w->order[s][t] = w->now[t];
}

void order_host_sync(struct world *w, int s)
{
    if (!w->shared->dry)
        TRY(w, cuStreamSynchronize(w->streams[s]));
    for (int u = 0; u < STREAMS; u++)
        if (w->known[u] < w->order[s][u])
            w->known[u] = w->order[s][u];
    w->known[s] = w->now[s];
    for (int t = 0; t < STREAMS; t++)
        for (int u = 0; u < STREAMS; u++)
            if (w->order[t][u] < w->known[u])
                w->order[t][u] = w->known[u];
    buffers_settle(w);
}

void order_host_sync_all(struct world *w)
{
    for (int s = 0; s < STREAMS; s++)
        order_host_sync(w, s);
}

/* The legacy stream's operations wait for those of the blocking streams, and theirs for its. This
 * holds between operations: recording an event or waiting for a stream adds nothing to it. */
static int ordered(const struct world *w, int s, int t, uint64_t at)
{
    if (!at || s == t || w->order[s][t] >= at || (s == 0 && w->blocking[t]))
        return 1;
    return w->blocking[s] && (t == 0 ? w->legacy_now : w->legacy_order[t]) >= at;
}

/* Makes work on `s` wait for operation `at` of `t`, in one of the ways there are. */
static void order_after(struct world *w, int s, int t, uint64_t at)
{
    if (ordered(w, s, t, at))
        return;
    if (rng_below(&w->rng, 16) == 0) {
        order_host_sync(w, t);
        return;
    }
    if (!w->shared->dry) {
        TRY(w, cuEventRecord(w->events[t], w->streams[t]));
        TRY(w, cuStreamWaitEvent(w->streams[s], w->events[t], 0));
    }
    learn(w, s, t);
}

void order_touch(struct world *w, struct slot *b, int s, int mode)
{
    if (b->writer >= 0)
        order_after(w, s, b->writer, b->writer_at);
    if (mode & 2)
        for (int t = 0; t < STREAMS; t++)
            order_after(w, s, t, b->read_at[t]);
    w->op_words += b->words;
}

void order_issue(struct world *w, int s)
{
    for (int t = 1; t < STREAMS && s == 0; t++)
        if (w->blocking[t])
            learn(w, 0, t);
    for (int t = 0; t < STREAMS && w->blocking[s]; t++) {
        uint64_t before = t == 0 ? w->legacy_now : w->legacy_order[t];
        if (w->order[s][t] < before)
            w->order[s][t] = before;
    }
    order_issue_memory(w, s);
    if (s == 0) {
        memcpy(w->legacy_order, w->order[0], sizeof w->legacy_order);
        w->legacy_now = w->now[0];
    }
    /* blocks of graphs and blocks whose address escaped stay; the operation's come on top */
    w->op_words += w->scratch_words;
    for (int i = 0; i < SLOTS; i++)
        if (w->slots[i].live && (w->slots[i].held || w->slots[i].escaped))
            w->op_words += w->slots[i].words;
    if (w->op_words > w->worst_op_words)
        w->worst_op_words = w->op_words;
    w->op_words = 0;
}

void order_issue_memory(struct world *w, int s)
{
    w->now[s]++;
}

void order_mark(struct world *w, struct slot *b, int s, int mode)
{
    if (mode & 2) {
        b->writer = s;
        b->writer_at = w->now[s];
        memset(b->read_at, 0, sizeof b->read_at);
    } else {
        b->read_at[s] = w->now[s];
    }
}

/* ---- pinned buffers -------------------------------------------------------------------------------------*/

void buffers_settle(struct world *w)
{
    for (int i = 0; i < BUFFERS; i++) {
        struct buffer *b = &w->buffers[i];
        if (!b->busy || w->known[b->stream] < b->at)
            continue;
        b->busy = 0;
        if (w->shared->dry)
            continue;
        for (uint32_t k = 0; b->check && k < b->words; k++)
            if (b->pinned[k] != b->expected[k]) {
                fprintf(stderr, "torture: read back by intent %u\n", b->intent);
                torture_wrong(w, "an asynchronous copy to the host", k, b->pinned[k],
                              b->expected[k]);
            }
        w->checked += b->check != 0;
        /* whoever still read this buffer would read nonsense */
        memset(b->pinned, 0xd5, MAX_WORDS * 4);
    }
}

/* A free buffer for an operation about to be issued on `s`; waits for one if all are under way. */
struct buffer *buffer_take(struct world *w, int s)
{
    struct buffer *b = NULL;
    for (int i = 0; i < BUFFERS && !b; i++)
        if (!w->buffers[i].busy)
            b = &w->buffers[i];
    if (!b) {
        order_host_sync(w, w->buffers[0].stream);
        b = &w->buffers[0];
    }
    b->busy = 1;
    b->check = 0;
    b->stream = s;
    b->at = UINT64_MAX; /* set when the operation is issued */
    b->intent = w->current ? w->current->id : 0;
    return b;
}

/* ---- blocks ---------------------------------------------------------------------------------------------*/

int slot_alloc(struct world *w, struct slot *b, uint32_t words, int s, int variant)
{
    memset(b, 0, sizeof *b);
    b->words = words;
    b->writer = -1;
    b->born = ++w->lives;
    b->async = variant & 1;
    if (!w->shared->dry) {
        size_t bytes = (size_t)words * 4 + (size_t)(variant >> 2 & 3); /* an odd end at times */
        if (variant & 1)
            TRY(w, cuMemAllocAsync(&b->p, bytes, w->streams[s]));
        else
            TRY(w, cuMemAlloc(&b->p, bytes));
    } else {
        b->p = (CUdeviceptr)b->born << 20;
    }
    b->model = need(malloc((size_t)words * 4));
    if (variant & 1) { /* the others must come after the allocation */
        order_issue_memory(w, s);
        order_mark(w, b, s, 2);
    }
    b->live = 1;
    w->live_words += words;
    if (w->live_words > w->peak_words)
        w->peak_words = w->live_words;
    return 1;
}

void slot_free(struct world *w, struct slot *b, int s, int variant)
{
    if (b->async && (variant & 1)) { /* only what was allocated in a stream may be freed in one */
        order_touch(w, b, s, 2);
        w->op_words = 0;
        order_issue_memory(w, s);
        if (!w->shared->dry)
            TRY(w, cuMemFreeAsync(b->p, w->streams[s]));
    } else if (!w->shared->dry) {
        TRY(w, cuMemFree(b->p)); /* waits, or behaves as if it had */
    }
    w->live_words -= b->words;
    free(b->model);
    memset(b, 0, sizeof *b);
}

/* ---- life -------------------------------------------------------------------------------------------------*/

void world_open(struct world *w, struct shared *s, uint32_t number, uint64_t seed, int single)
{
    memset(w, 0, sizeof *w);
    w->shared = s;
    w->gpu = &s->gpus[s->ngpus > 0 ? number % s->ngpus : 0];
    w->number = number;
    w->rng.state = seed * 2 + 3 + ((uint64_t)number << 40);
    for (int i = 1; i < STREAMS; i++)
        w->blocking[i] = single && rng_below(&w->rng, 3) == 0;
    for (int i = 0; i < BUFFERS; i++)
        w->buffers[i].expected = need(malloc(MAX_WORDS * 4));
    if (s->dry)
        return;
    TRY(w, cuCtxSetCurrent(w->gpu->context));
    for (int i = 1; i < STREAMS; i++)
        TRY(w, cuStreamCreate(&w->streams[i],
                              w->blocking[i] ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < STREAMS; i++)
        TRY(w, cuEventCreate(&w->events[i], CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < 2; i++)
        TRY(w, cuEventCreate(&w->inner[i], CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < BUFFERS; i++)
        TRY(w, cuMemHostAlloc((void **)&w->buffers[i].pinned, MAX_WORDS * 4, 0));
}

/* What a trainer frees at the end of an iteration, so that the same set lives at the next. */
static void end_of_repeat(struct world *w)
{
    for (int i = SLOTS / 2; i < SLOTS; i++)
        if (w->slots[i].live && !w->slots[i].held)
            slot_free(w, &w->slots[i], 1, (int)rng_below(&w->rng, 4));
}

/* The last look at each block is an operation too, beside what graphs and escaped addresses hold. */
static void count_last_looks(struct world *w)
{
    for (int k = 0; k < SLOTS; k++) {
        if (!w->slots[k].live)
            continue;
        w->op_words = w->slots[k].words + w->scratch_words;
        for (int i = 0; i < SLOTS; i++)
            if (w->slots[i].live && (w->slots[i].held || w->slots[i].escaped))
                w->op_words += w->slots[i].words;
        if (w->op_words > w->worst_op_words)
            w->worst_op_words = w->op_words;
    }
    w->op_words = 0;
}

static void next_step(struct world *w)
{
    w->step++;
    w->calls = 0;
    if (w->shared->heart >= 0 && w->step % 8 == 0)
        (void)!write(w->shared->heart, "", 1);
    turn_pass(w, 1);
}

void world_run(struct world *w, const struct program *p, const uint8_t *keep)
{
    for (uint32_t k = 0; k < p->nphases; k++) {
        const struct phase *ph = &p->phases[k];
        for (uint32_t n = 0; n < ph->repeats; n++) {
            /* how things are ordered repeats with the iteration, as it does in a program */
            w->rng.state = ((uint64_t)ph->first << 32) + w->number;
            for (uint32_t i = 0; i < ph->count; i++) {
                w->current = &p->intents[ph->first + i];
                next_step(w); /* of what is left out too: the others' order stays */
                if (!keep || keep[w->current->id])
                    do_intent(w, w->current);
            }
            next_step(w);
            end_of_repeat(w);
        }
    }
    w->current = NULL;
    count_last_looks(w);
}

static void check_slot(struct world *w, struct slot *b)
{
    static _Thread_local uint32_t back[MAX_WORDS];
    if (!b->live || !b->defined)
        return;
    TRY(w, cuMemcpyDtoH(back, b->p, (size_t)b->words * 4));
    for (uint32_t k = 0; k < b->words; k++)
        if (back[k] != b->model[k]) {
            fprintf(stderr, "torture: slot %d of %u words at %#llx\n", (int)(b - w->slots), b->words,
                    (unsigned long long)b->p);
            torture_wrong(w, "a block at the end", k, back[k], b->model[k]);
        }
    w->checked++;
}

void world_close(struct world *w)
{
    order_host_sync_all(w);
    for (int i = 0; i < SLOTS; i++)
        if (!w->shared->dry)
            check_slot(w, &w->slots[i]);
    for (int i = 0; i < GRAPHS; i++)
        if (w->graphs[i].live)
            graph_drop(w, &w->graphs[i]);
    for (int i = 0; i < TABLES; i++)
        table_drop(w, &w->tables[i]);
    for (int i = 0; i < SLOTS; i++)
        if (w->slots[i].live)
            slot_free(w, &w->slots[i], 0, 0);
    for (int i = 0; i < BUFFERS; i++) {
        free(w->buffers[i].expected);
        if (!w->shared->dry)
            TRY(w, cuMemFreeHost(w->buffers[i].pinned));
    }
    if (w->shared->dry)
        return;
    for (int i = 1; i < STREAMS; i++)
        TRY(w, cuStreamDestroy(w->streams[i]));
    for (int i = 0; i < STREAMS; i++)
        TRY(w, cuEventDestroy(w->events[i]));
    for (int i = 0; i < 2; i++)
        TRY(w, cuEventDestroy(w->inner[i]));
}
