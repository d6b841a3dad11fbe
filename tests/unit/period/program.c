#include "program.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LAYERS 8

struct maker {
    struct program *p;
    struct vm_trace *t;
    unsigned random;
    uint64_t next_id, next_addr;
    size_t ops;
    uint64_t width[MAX_LAYERS + 1];
    uint32_t w[MAX_LAYERS], v[MAX_LAYERS], dw[MAX_LAYERS];
    uint32_t input, ones;
    /* maps[step * (layers + 1) + layer]; gradient maps likewise */
    uint32_t *maps, *grads;
};

unsigned program_random(unsigned *state, unsigned below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

static uint32_t new_block(struct maker *m, uint64_t size)
{
    uint32_t b;
    int rc = vm_trace_add_alloc(m->t, m->next_id++, size, m->next_addr, 0, 0, &b);
    assert(rc == VM_OK);
    (void)rc;
    m->next_addr += (size + 511) & ~UINT64_C(511);
    return b;
}

static void drop_block(struct maker *m, uint32_t *b)
{
    int rc = vm_trace_add_free(m->t, *b, 0, 0);
    assert(rc == VM_OK);
    (void)rc;
    *b = VM_NONE;
}

static struct vm_access touch(uint32_t block, unsigned mode, unsigned role)
{
    return (struct vm_access){.block = block, .mode = (uint8_t)mode, .role = (uint8_t)role};
}

static void op(struct maker *m, unsigned kind, unsigned layer, const char *name, uint64_t size,
               unsigned n, const struct vm_access *named)
{
    struct vm_access acc[8];
    assert(n < 8);
    memcpy(acc, named, n * sizeof *acc);
    struct vm_event e = {.op_kind = (uint8_t)kind, .layer = (uint8_t)layer, .name = VM_NONE};
    size_t len = 0;
    while (name[len])
        len++;
    int rc = vm_trace_add_name(m->t, name, len, &e.name);
    assert(rc == VM_OK);
    if (m->p->unknown_all && kind == VM_OP_LAUNCH) {
        e.layer = VM_LAYER_NONE;
        for (unsigned i = 0; i < n; i++)
            acc[i] = touch(acc[i].block, VM_UNKNOWN, VM_ROLE_NONE);
        if (m->p->stale && program_random(&m->random, m->p->stale) == 0)
            acc[n++] = touch(m->w[program_random(&m->random, m->p->layers)], VM_UNKNOWN, 0);
    }
    e.sig = vm_hash64(size * 131 + e.name);
    e.dur_ns = 1000 + size / 100;
    rc = vm_trace_add_op(m->t, &e, acc, n, NULL);
    assert(rc == VM_OK);
    (void)rc;
    m->ops++;
}

static uint32_t *map_of(struct maker *m, uint32_t *maps, unsigned step, unsigned layer)
{
    return &maps[step * (m->p->layers + 1) + layer];
}

/* A map to write: in the upfront habit it is there already. */
static uint32_t produce(struct maker *m, uint32_t *map, uint64_t size)
{
    if (*map == VM_NONE)
        *map = new_block(m, size);
    return *map;
}

static void consumed(struct maker *m, uint32_t *map)
{
    if (!m->p->upfront)
        drop_block(m, map);
}

static void forward_step(struct maker *m, unsigned step)
{
    const struct program *p = m->p;
    for (unsigned l = 0; l < p->layers; l++) {
        uint32_t x = l ? *map_of(m, m->maps, step, l) : m->input;
        uint32_t y = produce(m, map_of(m, m->maps, step, l + 1), m->width[l + 1]);
        unsigned total = p->slices ? 0 : VM_TOTAL;
        struct vm_access a[4] = {touch(m->w[l], VM_READ, VM_ROLE_NONE), touch(x, VM_READ, 0),
                                 touch(y, VM_WRITE | total, 0), touch(m->ones, VM_READ, 0)};
        op(m, VM_OP_LAUNCH, VM_LAYER_GEMM, "gemm_forward", m->width[l] * m->width[l + 1],
           p->constants ? 4 : 3, a);
        struct vm_access b[1] = {touch(y, p->unknown_maps ? VM_UNKNOWN : VM_RW, 0)};
        op(m, VM_OP_LAUNCH, p->unknown_maps ? VM_LAYER_NONE : VM_LAYER_ACT, "relu_forward",
           m->width[l + 1], 1, b);
        for (unsigned i = 0; l == 0 && i < p->pieces; i++) {
            struct vm_access both[2] = {touch(y, VM_UNKNOWN, 0), touch(x, VM_UNKNOWN, 0)};
            op(m, VM_OP_LAUNCH, VM_LAYER_NONE, "piece", m->width[1], 1 + (i > 0), both);
        }
    }
}

static void backward_step(struct maker *m, unsigned step, bool first)
{
    const struct program *p = m->p;
    for (unsigned l = p->layers; l-- > 0;) {
        uint32_t dy = *map_of(m, m->grads, step, l + 1);
        uint32_t y = *map_of(m, m->maps, step, l + 1);
        uint32_t x = l ? *map_of(m, m->maps, step, l) : m->input;
        struct vm_access a[2] = {touch(y, VM_READ, 0), touch(dy, VM_RW, 0)};
        op(m, VM_OP_LAUNCH, VM_LAYER_ACT, "relu_backward", m->width[l + 1], 2, a);
        uint32_t dw = produce(m, &m->dw[l], m->width[l] * m->width[l + 1]);
        struct vm_access b[3] = {touch(x, VM_READ, 0), touch(dy, VM_READ, 0),
                                 touch(dw, first ? VM_WRITE | VM_TOTAL : VM_RW, VM_ROLE_DW)};
        op(m, VM_OP_LAUNCH, VM_LAYER_GEMM, "gemm_weights", m->width[l] * m->width[l + 1], 3, b);
        if (l) {
            uint32_t dx = produce(m, map_of(m, m->grads, step, l), m->width[l]);
            struct vm_access c[3] = {touch(m->w[l], VM_READ, 0), touch(dy, VM_READ, 0),
                                     touch(dx, VM_WRITE | (p->slices ? 0 : VM_TOTAL), 0)};
            op(m, VM_OP_LAUNCH, VM_LAYER_GEMM, "gemm_data", m->width[l] * m->width[l + 1], 3, c);
        }
        if (!p->slices) {
            consumed(m, map_of(m, m->grads, step, l + 1));
            consumed(m, map_of(m, m->maps, step, l + 1));
        }
    }
}

static void micro_batch(struct maker *m, unsigned index)
{
    const struct program *p = m->p;
    uint32_t old = m->input;
    if (p->rebinds)
        m->input = new_block(m, m->width[0]);
    struct vm_access up[1] = {touch(m->input, VM_WRITE | VM_TOTAL, 0)};
    op(m, VM_OP_COPY_HTOD, 0, "upload", m->width[0], 1, up);
    if (p->rebinds)
        drop_block(m, &old);
    for (unsigned s = 0; s < p->steps; s++)
        forward_step(m, s);
    for (unsigned s = p->steps; s-- > 0;) {
        uint32_t y = *map_of(m, m->maps, s, p->layers);
        uint32_t dy = produce(m, map_of(m, m->grads, s, p->layers), m->width[p->layers]);
        struct vm_access a[2] = {touch(y, VM_READ, 0), touch(dy, VM_WRITE | VM_TOTAL, 0)};
        if (s == p->steps - 1 || !p->slices)
            op(m, VM_OP_LAUNCH, VM_LAYER_SOFTMAX, "softmax", m->width[p->layers], 2, a);
        backward_step(m, s, index == 0 && s == p->steps - 1);
    }
    if (!p->quiet) {
        struct vm_access back[1] = {touch(m->ones, VM_READ, 0)};
        op(m, VM_OP_COPY_DTOH, 0, "loss", 4, 1, back);
    }
    if (p->slices && !p->upfront) /* with slices every step shares the block of its layer */
        for (unsigned l = 1; l <= p->layers; l++)
            for (unsigned s = 0; s < p->steps; s++) {
                uint32_t *y = map_of(m, m->maps, s, l), *dy = map_of(m, m->grads, s, l);
                if (s == 0) {
                    drop_block(m, y);
                    drop_block(m, dy);
                }
                *y = *dy = VM_NONE;
            }
}

static void update(struct maker *m)
{
    const struct program *p = m->p;
    for (unsigned l = 0; l < p->layers; l++) {
        uint64_t size = m->width[l] * m->width[l + 1];
        if (p->unknown_update) {
            struct vm_access a[3] = {touch(m->w[l], VM_UNKNOWN, 0), touch(m->v[l], VM_UNKNOWN, 0),
                                     touch(m->dw[l], VM_UNKNOWN, 0)};
            op(m, VM_OP_LAUNCH, 0, "fused_sgd", size, 3, a);
        } else {
            struct vm_access a[2] = {touch(m->dw[l], VM_READ, 0), touch(m->v[l], VM_RW, 0)};
            op(m, VM_OP_LAUNCH, VM_LAYER_ELEMENTWISE, "axpy", size, 2, a);
            struct vm_access b[2] = {touch(m->v[l], VM_READ, 0), touch(m->w[l], VM_RW, 0)};
            op(m, VM_OP_LAUNCH, VM_LAYER_ELEMENTWISE, "axpy", size, 2, b);
        }
        consumed(m, &m->dw[l]);
    }
}

static void share_slices(struct maker *m, uint32_t *maps)
{
    const struct program *p = m->p;
    for (unsigned l = 1; l <= p->layers; l++) {
        uint32_t b = new_block(m, m->width[l] * p->steps);
        for (unsigned s = 0; s < p->steps; s++)
            *map_of(m, maps, s, l) = b;
    }
}

static void set_up(struct maker *m)
{
    struct program *p = m->p;
    for (unsigned l = 0; l <= p->layers; l++) /* few sizes, so that layers look alike */
        m->width[l] = 4096u << program_random(&m->random, 2);
    m->ones = new_block(m, 512);
    m->input = new_block(m, m->width[0]);
    for (unsigned l = 0; l < p->layers; l++) {
        uint64_t size = m->width[l] * m->width[l + 1];
        m->w[l] = new_block(m, size);
        m->v[l] = new_block(m, size);
        m->dw[l] = p->upfront ? new_block(m, size) : VM_NONE;
        struct vm_access a[1] = {touch(m->w[l], VM_WRITE | VM_TOTAL, 0)};
        op(m, VM_OP_COPY_HTOD, 0, "upload", size, 1, a);
    }
    size_t n = (size_t)p->steps * (p->layers + 1);
    m->maps = malloc(n * sizeof *m->maps);
    m->grads = malloc(n * sizeof *m->grads);
    assert(m->maps && m->grads);
    for (size_t i = 0; i < n; i++)
        m->maps[i] = m->grads[i] = VM_NONE;
    if (p->upfront && !p->slices)
        for (unsigned s = 0; s < p->steps; s++)
            for (unsigned l = 1; l <= p->layers; l++) {
                *map_of(m, m->maps, s, l) = new_block(m, m->width[l]);
                *map_of(m, m->grads, s, l) = new_block(m, m->width[l]);
            }
    for (unsigned i = 0; i < p->setup_ops; i++) {
        struct vm_access a[1] = {touch(m->ones, VM_UNKNOWN, 0)};
        op(m, VM_OP_LAUNCH, 0, "set_up", program_random(&m->random, 7), 1, a);
    }
}

void program_trace(struct program *p, struct vm_trace *t)
{
    assert(p->layers >= 1 && p->layers <= MAX_LAYERS && p->steps >= 1 && p->accumulate >= 1);
    struct maker m = {.p = p, .t = t, .random = p->seed + 1, .next_id = 1, .next_addr = 1 << 20};
    set_up(&m);
    for (unsigned i = 0; i < p->iterations; i++) {
        size_t start = m.ops, first_batch = 0;
        for (unsigned k = 0; k < p->accumulate; k++) {
            if (p->slices && (!p->upfront || (i == 0 && k == 0))) {
                share_slices(&m, m.maps);
                share_slices(&m, m.grads);
            }
            micro_batch(&m, k);
            if (k == 0)
                first_batch = m.ops - start;
            if (i == 0 && k == 0 && p->first_differs)
                for (unsigned j = 0; j < 5 + program_random(&m.random, 20); j++) {
                    struct vm_access a[1] = {touch(m.w[0], VM_READ, 0)};
                    op(&m, VM_OP_LAUNCH, VM_LAYER_GEMM, "search", program_random(&m.random, 9), 1,
                       a);
                }
        }
        update(&m);
        if (p->marks)
            assert(vm_trace_add_step(t, 0) == VM_OK);
        p->period = m.ops - start;
        p->micro_batch = first_batch;
        if (i < 64)
            p->ends[i] = m.ops;
    }
    free(m.maps);
    free(m.grads);
}

void program_draw(struct program *p, unsigned seed)
{
    unsigned r = seed * 2654435761u + 12345;
    *p = (struct program){.seed = seed};
    p->layers = 1 + program_random(&r, MAX_LAYERS);
    p->steps = program_random(&r, 3) ? 1 : 2 + program_random(&r, 60);
    p->accumulate = program_random(&r, 2) ? 1 : 1 + program_random(&r, 6);
    p->iterations = 8;
    p->setup_ops = program_random(&r, 30);
    p->first_differs = program_random(&r, 2);
    p->upfront = program_random(&r, 2);
    p->slices = p->steps > 1 && program_random(&r, 2);
    p->quiet = program_random(&r, 2);
    p->unknown_update = program_random(&r, 2);
    p->unknown_maps = program_random(&r, 3) == 0;
    p->constants = program_random(&r, 2);
    p->rebinds = program_random(&r, 3) == 0;
}

void program_print(const struct program *p)
{
    printf(
        "seed %u: layers %u steps %u accumulate %u setup %u first_differs %d upfront %d slices %d "
        "quiet %d unknown maps/update/all %d/%d/%d marks %d constants %d rebinds %d: period %zu\n",
        p->seed, p->layers, p->steps, p->accumulate, p->setup_ops, p->first_differs, p->upfront,
        p->slices, p->quiet, p->unknown_maps, p->unknown_update, p->unknown_all, p->marks,
        p->constants, p->rebinds, p->period);
}
