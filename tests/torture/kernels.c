/* kernels.c: the kernels of the random programs. Their arithmetic is one set of functions, which the
 * simulated device runs on device memory and the model on its own. */
#include "torture.h"

#include "simgpu.h"

#include <string.h>

static uint32_t *at(uint64_t address)
{
    return (uint32_t *)(uintptr_t)address;
}

static uint32_t stir(uint32_t h, uint32_t v)
{
    h = (h ^ v) * 0x85EBCA6Bu;
    return h ^ h >> 13;
}

void mix_compute(const struct mix_args *a)
{
    uint32_t *dst = at(a->dst);
    for (uint32_t i = 0; i < a->words; i++) {
        uint32_t h = stir(a->salt, i);
        for (uint32_t k = 0; k < a->nsrc; k++)
            h = stir(h, at(a->src[k])[(i * 7 + k) % a->src_words[k]]);
        dst[i] = a->total ? h : stir(h, dst[i]);
    }
}

void swap_compute(const struct swap_args *s)
{
    uint32_t *a = at(s->a), *b = at(s->b);
    for (uint32_t i = 0; i < s->words; i++) {
        uint32_t old = a[i];
        a[i] = stir(s->salt, b[i]);
        b[i] = stir(s->salt + i, old);
    }
}

void gather_compute(const struct gather_args *g)
{
    const struct table_entry *table = (const struct table_entry *)(uintptr_t)g->table;
    uint32_t *dst = at(g->dst);
    for (uint32_t i = 0; i < g->words; i++) {
        uint32_t h = stir(g->salt, i);
        for (uint32_t k = 0; k < g->entries; k++)
            h = stir(h, at(table[k].address)[i % table[k].words]);
        dst[i] = h;
    }
    for (uint32_t k = 0; g->stores && k < g->entries; k++)
        for (uint64_t i = 0; i < table[k].words; i++)
            at(table[k].address)[i] = stir(g->salt + k, at(table[k].address)[i]);
}

/* ---- as kernels -----------------------------------------------------------------------------------*/

#define ARGS(type, name, launch)                                                                   \
    type name;                                                                                     \
    memcpy(&name, (launch)->params, sizeof name)

static void mix_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    ARGS(struct mix_args, a, l);
    for (uint32_t k = 0; k < a.nsrc; k++)
        touch(ctx, a.src[k], (size_t)a.src_words[k] * 4, SIMGPU_READ);
    touch(ctx, a.dst, (size_t)a.words * 4, a.total ? SIMGPU_WRITE : SIMGPU_RW);
}

static void mix_body(const struct simgpu_launch *l)
{
    ARGS(struct mix_args, a, l);
    mix_compute(&a);
}

static void swap_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    ARGS(struct swap_args, a, l);
    touch(ctx, a.a, (size_t)a.words * 4, SIMGPU_RW);
    touch(ctx, a.b, (size_t)a.words * 4, SIMGPU_RW);
}

static void swap_body(const struct simgpu_launch *l)
{
    ARGS(struct swap_args, a, l);
    swap_compute(&a);
}

static void gather_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    ARGS(struct gather_args, a, l);
    touch(ctx, a.table, a.entries * sizeof(struct table_entry), SIMGPU_READ);
    if (l->functional) {
        const struct table_entry *e = (const struct table_entry *)(uintptr_t)a.table;
        for (uint32_t k = 0; k < a.entries; k++)
            touch(ctx, e[k].address, (size_t)e[k].words * 4, a.stores ? SIMGPU_RW : SIMGPU_READ);
    }
    touch(ctx, a.dst, (size_t)a.words * 4, SIMGPU_WRITE);
}

static void gather_body(const struct simgpu_launch *l)
{
    ARGS(struct gather_args, a, l);
    gather_compute(&a);
}

static void store_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    ARGS(struct store_args, a, l);
    touch(ctx, a.table + a.index * sizeof(struct table_entry), sizeof(struct table_entry),
          SIMGPU_WRITE);
}

static void store_body(const struct simgpu_launch *l)
{
    ARGS(struct store_args, a, l);
    struct table_entry *e = (struct table_entry *)(uintptr_t)a.table + a.index;
    e->address = a.address;
    e->words = a.words;
}

/* One structure by value each: what C++ kernels' functors look like to the driver. */
static const struct simgpu_param mix_params[] = {{0, sizeof(struct mix_args)}};
/* Separate parameters at the same places. */
static const struct simgpu_param swap_params[] = {{0, 8}, {8, 8}, {16, 4}, {20, 4}};
static const struct simgpu_param gather_params[] = {{0, 8}, {8, 8}, {16, 4}, {20, 4}, {24, 4}, {28, 4}};
static const struct simgpu_param store_params[] = {{0, 8}, {8, 8}, {16, 4}, {20, 4}};

static const struct simgpu_kernel kernels[] = {
    {"torture_mix", mix_params, 1, mix_touches, mix_body, NULL},
    {"torture_swap", swap_params, 4, swap_touches, swap_body, NULL},
    {"torture_gather", gather_params, 6, gather_touches, gather_body, NULL},
    {"torture_store", store_params, 4, store_touches, store_body, NULL},
};
static const struct simgpu_image image = {SIMGPU_IMAGE_MAGIC, SIMGPU_IMAGE_VERSION,
                                          sizeof kernels / sizeof kernels[0], kernels};
const void *const torture_image = &image;
