#include "pack_scale.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grow.h"
#include "pack_csv.h"

struct build {
    struct vm_iteration *it;
    size_t cap_ops, cap_accesses, cap_blocks, cap_mem;
    int failed;
};

static int room(struct build *b, void **at, size_t *cap, size_t need, size_t size)
{
    if (vm_grow(at, cap, need, size))
        b->failed = 1;
    return !b->failed;
}

static uint32_t add_op(struct build *b, uint64_t ns)
{
    struct vm_iteration *it = b->it;
    if (room(b, (void **)&it->ops, &b->cap_ops, it->nops + 1, sizeof *it->ops))
        it->ops[it->nops++] = (struct vm_iter_op){.dur_ns = ns, .sig = ns, .name = VM_NONE, .event = VM_NONE,
                                                  .kind = VM_OP_LAUNCH, .acc = (uint32_t)it->naccesses};
    return (uint32_t)it->nops - 1;
}

/* The last op touches the block. */
static void touch(struct build *b, uint32_t block, unsigned mode)
{
    struct vm_iteration *it = b->it;
    if (b->failed || !room(b, (void **)&it->accesses, &b->cap_accesses, it->naccesses + 1, sizeof *it->accesses))
        return;
    it->accesses[it->naccesses++] = (struct vm_access){.block = block, .mode = (uint8_t)mode};
    it->ops[it->nops - 1].nacc++;
}

static void add_mem(struct build *b, uint32_t block, int is_free)
{
    struct vm_iteration *it = b->it;
    if (!b->failed && room(b, (void **)&it->mem, &b->cap_mem, it->nmem + 1, sizeof *it->mem))
        it->mem[it->nmem++] =
            (struct vm_iter_mem){.op = (uint32_t)it->nops, .block = block, .is_free = (uint8_t)is_free};
}

static uint32_t add_block(struct build *b, uint64_t size, int persistent)
{
    struct vm_iteration *it = b->it;
    if (!room(b, (void **)&it->blocks, &b->cap_blocks, it->nblocks + 1, sizeof *it->blocks))
        return 0;
    it->blocks[it->nblocks] = (struct vm_iter_block){
        .size = size, .fixed_offset = VM_UNPLACED, .alloc_op = persistent ? 0 : (uint32_t)it->nops,
        .alloc_ordinal = VM_NONE, .flags = persistent ? VM_BLK_PERSISTENT : 0, .trace_block = VM_NONE};
    uint32_t block = (uint32_t)it->nblocks++;
    if (!persistent)
        add_mem(b, block, 0);
    return block;
}

static void end_block(struct build *b, uint32_t block)
{
    if (b->failed)
        return;
    b->it->blocks[block].free_op = (uint32_t)b->it->nops;
    add_mem(b, block, 1);
}

static void finish(struct build *b)
{
    struct vm_iteration *it = b->it;
    for (size_t k = 0; k < it->nblocks; k++)
        if (it->blocks[k].flags & VM_BLK_PERSISTENT)
            it->blocks[k].free_op = (uint32_t)it->nops;
    for (size_t k = 0; k < it->nops; k++)
        it->duration_ns += it->ops[k].dur_ns;
}

/* ---- a transformer ----*/

enum { LAYERS = 48, KEPT = 10, MATRICES = 6, BLOCKS_A_LAYER = KEPT + 6 + 4 };

struct transformer {
    uint32_t weight[LAYERS][MATRICES], grad[LAYERS][MATRICES], moment[LAYERS][MATRICES];
    uint32_t kept[LAYERS][KEPT];
    uint64_t random;
};

static uint64_t draw(struct transformer *t, uint64_t n)
{
    t->random = t->random * 6364136223846793005u + 1442695040888963407u;
    return (t->random >> 33) % n;
}

/* Bytes of what a layer keeps for the backward pass, for `tokens` tokens of width 1024 in 2 bytes. */
static uint64_t kept_bytes(unsigned k, uint64_t tokens)
{
    static const unsigned wide[KEPT] = {1, 3, 0, 1, 1, 1, 4, 4, 1, 1};
    return wide[k] ? tokens * 2048 * wide[k] : tokens * tokens * 2 + 512; /* 0: attention scores */
}

static void forward(struct build *b, struct transformer *t, unsigned l, uint64_t tokens)
{
    for (unsigned k = 0; k < KEPT; k++) {
        uint32_t scratch = k % 2 ? 0 : add_block(b, kept_bytes((k + 1) % KEPT, tokens) / 2 + 4096, 0);
        t->kept[l][k] = add_block(b, kept_bytes(k, tokens), 0);
        add_op(b, 20000 + kept_bytes(k, tokens) / 400);
        if (k % 2 == 0)
            touch(b, scratch, VM_RW);
        if (k > 0)
            touch(b, t->kept[l][k - 1], VM_READ);
        else if (l > 0)
            touch(b, t->kept[l - 1][KEPT - 1], VM_READ);
        touch(b, t->weight[l][k % MATRICES], VM_READ);
        touch(b, t->kept[l][k], VM_WRITE | VM_TOTAL);
        if (k % 2 == 0)
            end_block(b, scratch);
    }
}

/* Walks the layer back; the gradient of its output comes in, that of its input goes out. */
static uint32_t backward(struct build *b, struct transformer *t, unsigned l, uint64_t tokens, uint32_t dy)
{
    for (unsigned k = KEPT; k-- > 0;) {
        uint32_t dx = dy;
        if (k % 2 == 0)
            dx = add_block(b, kept_bytes(k ? k - 1 : KEPT - 1, tokens), 0);
        add_op(b, 40000 + kept_bytes(k, tokens) / 200);
        touch(b, t->kept[l][k], VM_READ);
        touch(b, dy, VM_RW);
        touch(b, t->weight[l][k % MATRICES], VM_READ);
        touch(b, t->grad[l][k % MATRICES], VM_RW);
        if (dx != dy) {
            touch(b, dx, VM_WRITE | VM_TOTAL);
            end_block(b, dy);
        }
        end_block(b, t->kept[l][k]);
        dy = dx;
    }
    return dy;
}

static void train(struct build *b, size_t n)
{
    struct transformer *t = calloc(1, sizeof *t);
    if (!t) {
        b->failed = 1;
        return;
    }
    t->random = 1;
    for (unsigned l = 0; l < LAYERS; l++)
        for (unsigned k = 0; k < MATRICES; k++) {
            uint64_t bytes = (uint64_t)1024 * 2048 * (1 + k % 4);
            t->weight[l][k] = add_block(b, bytes, 1);
            t->grad[l][k] = add_block(b, bytes, 1);
            t->moment[l][k] = add_block(b, 4 * bytes, 1);
        }
    while (b->it->nblocks + (size_t)LAYERS * BLOCKS_A_LAYER / 2 < n && !b->failed) {
        uint64_t tokens = 512 + 64 * draw(t, 25);
        for (unsigned l = 0; l < LAYERS; l++)
            forward(b, t, l, tokens);
        uint32_t dy = add_block(b, kept_bytes(KEPT - 1, tokens), 0);
        for (unsigned l = LAYERS; l-- > 0;)
            dy = backward(b, t, l, tokens, dy);
        end_block(b, dy);
    }
    for (unsigned l = 0; l < LAYERS && !b->failed; l++)
        for (unsigned k = 0; k < MATRICES; k++) {
            add_op(b, 30000);
            touch(b, t->weight[l][k], VM_RW);
            touch(b, t->grad[l][k], VM_RW);
            touch(b, t->moment[l][k], VM_RW);
        }
    free(t);
}

/* ---- a file repeated in time ----*/

struct moment {
    uint64_t time;
    uint32_t block;
    int birth;
};

static int by_time(const void *a, const void *b)
{
    const struct moment *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    if (x->birth != y->birth)
        return x->birth - y->birth;
    return x->block < y->block ? -1 : x->block > y->block;
}

/* Births and deaths become allocations and frees; each moment is an op that writes what was born at it
 * and reads what dies after it. */
static void play(struct build *b, const struct vm_pack_csv *csv, struct moment *m, size_t n, uint64_t scale)
{
    uint32_t *block = malloc((csv->problem.nitems + 1) * sizeof *block);
    size_t k = 0;
    while (block && k < 2 * n && !b->failed) {
        uint64_t now = m[k].time;
        for (; k < 2 * n && m[k].time == now && !m[k].birth; k++)
            end_block(b, block[m[k].block]);
        size_t births = k;
        for (; k < 2 * n && m[k].time == now; k++)
            block[m[k].block] = add_block(b, csv->items[m[k].block].size * scale / 8, 0);
        add_op(b, 10000);
        for (size_t j = births; j < k; j++)
            touch(b, block[m[j].block], VM_WRITE | VM_TOTAL);
        for (size_t j = k; j < 2 * n && (j == k || m[j].time == m[k].time) && !m[j].birth; j++)
            if (m[j].time != now)
                touch(b, block[m[j].block], VM_READ);
    }
    free(block);
}

static int by_lower(const void *a, const void *b)
{
    const struct vm_pack_item *x = a, *y = b;
    return x->lower < y->lower ? -1 : x->lower > y->lower;
}

static int tile(struct build *b, const char *path, size_t n)
{
    struct vm_pack_csv csv;
    struct vm_error why;
    FILE *f = fopen(path, "r");
    if (!f || vm_pack_csv_read(f, path, &csv, &why)) {
        fprintf(stderr, "pack_bench: %s\n", f ? why.text : path);
        if (f)
            fclose(f);
        return 1;
    }
    fclose(f);
    qsort(csv.items, csv.problem.nitems, sizeof *csv.items, by_lower);
    struct moment *m = malloc((2 * csv.problem.nitems + 1) * sizeof *m);
    for (uint64_t scale = 8; m && b->it->nblocks < n && !b->failed; scale = scale % 16 + 3) {
        size_t part = n - b->it->nblocks < csv.problem.nitems ? n - b->it->nblocks : csv.problem.nitems;
        for (size_t i = 0; i < part; i++) {
            m[2 * i] = (struct moment){csv.items[i].lower, (uint32_t)i, 1};
            m[2 * i + 1] = (struct moment){csv.items[i].upper, (uint32_t)i, 0};
        }
        qsort(m, 2 * part, sizeof *m, by_time);
        play(b, &csv, m, part, scale);
    }
    free(m);
    vm_pack_csv_fini(&csv);
    return 0;
}

int make_scale_iteration(const char *kind, size_t n, struct vm_iteration *it)
{
    *it = (struct vm_iteration){0};
    struct build b = {.it = it};
    if (strncmp(kind, "tile:", 5) == 0) {
        if (tile(&b, kind + 5, n))
            return 1;
    } else {
        train(&b, n);
    }
    finish(&b);
    if (b.failed)
        fprintf(stderr, "pack_bench: no memory for %zu blocks\n", n);
    return b.failed;
}
