/* program.c: from a seed to the intents of a program. */
#include "torture.h"

#include <stdio.h>
#include <stdlib.h>

const char *const intent_names[INTENT_KINDS] = {
    "alloc", "free", "launch", "swap", "upload", "readback", "copy", "copy-2d", "memset",
    "sync", "graph-make", "graph-launch", "graph-drop", "table-copy", "table-store",
    "table-mapped", "gather", "poll"};

uint32_t rng_next(struct rng *r)
{
    /* splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014) */
    uint64_t z = r->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return (uint32_t)((z ^ z >> 31) >> 32);
}

uint32_t rng_below(struct rng *r, uint32_t n)
{
    return (uint32_t)((uint64_t)rng_next(r) * n >> 32);
}

void settings_make(uint64_t seed, uint32_t at_least, struct settings *s)
{
    struct rng r = {seed * 2 + 1};
    static const uint32_t granularities[] = {4096, 4096, 8192, 16384};
    s->worlds = rng_below(&r, 4) ? 1 : 2 + rng_below(&r, WORLDS - 1);
    if (s->worlds < at_least)
        s->worlds = at_least;
    s->budget_percent = 30 + rng_below(&r, 71);
    s->granularity = granularities[rng_below(&r, 4)];
    s->numa = (int)rng_below(&r, 2);
    s->hidden = rng_below(&r, 5) == 0;
    s->scratch = 0;
}

/* How often each kind is meant, against the sum. */
static const uint8_t weights[INTENT_KINDS] = {
    [DO_ALLOC] = 22,      [DO_FREE] = 9,       [DO_LAUNCH] = 24,     [DO_SWAP] = 5,
    [DO_UPLOAD] = 8,      [DO_READBACK] = 7,   [DO_COPY] = 6,        [DO_COPY_2D] = 3,
    [DO_MEMSET] = 6,      [DO_SYNC] = 3,       [DO_GRAPH_MAKE] = 2,  [DO_GRAPH_LAUNCH] = 4,
    [DO_GRAPH_DROP] = 1,  [DO_TABLE_COPY] = 2, [DO_TABLE_STORE] = 2, [DO_TABLE_MAPPED] = 2,
    [DO_GATHER] = 4,      [DO_POLL] = 2,
};

static uint32_t weight(int k, const struct settings *s)
{
    int more = s->scratch && (k == DO_GRAPH_MAKE || k == DO_GRAPH_LAUNCH || k == DO_GRAPH_DROP);
    return weights[k] * (more ? 4u : 1u);
}

static uint8_t pick_kind(struct rng *r, const struct settings *s)
{
    for (;;) {
        uint32_t sum = 0;
        for (int k = 0; k < INTENT_KINDS; k++)
            sum += weight(k, s);
        uint32_t at = rng_below(r, sum);
        int k = 0;
        while (at >= weight(k, s))
            at -= weight(k++, s);
        if ((k == DO_TABLE_STORE || k == DO_TABLE_MAPPED) && !s->hidden)
            continue;
        return (uint8_t)k;
    }
}

/* Sizes as in trainers: many small blocks, some of a few pages, few large ones. */
static uint32_t pick_words(struct rng *r)
{
    switch (rng_below(r, 8)) {
    case 0:
    case 1:
        return 1 + rng_below(r, 256);
    case 2:
        return 1024u << rng_below(r, 4);
    case 3:
    case 4:
        return 8192 + rng_below(r, MAX_WORDS - 8192 + 1);
    default:
        return 512 + rng_below(r, 8192);
    }
}

static struct intent pick(struct rng *r, uint32_t id, const struct settings *s)
{
    struct intent i = {.id = id};
    i.kind = pick_kind(r, s);
    /* most work on one stream, as programs do */
    i.stream = (uint8_t)(rng_below(r, 2) ? 1 : rng_below(r, STREAMS));
    i.variant = (uint8_t)rng_below(r, 256);
    i.nslots = (uint8_t)(1 + rng_below(r, MAX_ARGS - 1));
    for (int k = 0; k < MAX_ARGS; k++)
        i.slot[k] = (uint8_t)rng_below(r, SLOTS);
    i.words = pick_words(r);
    i.salt = rng_next(r);
    return i;
}

void program_make(uint64_t seed, uint32_t world, const struct settings *s, struct program *p)
{
    struct rng r = {seed * 2 + 2 + ((uint64_t)world << 40)};
    p->nphases = 1 + rng_below(&r, 3);
    p->nintents = 0;
    for (uint32_t k = 0; k < p->nphases; k++) {
        struct phase *ph = &p->phases[k];
        ph->first = p->nintents;
        ph->count = 20 + rng_below(&r, 40);
        ph->repeats = k == 0 || rng_below(&r, 3) ? 5 + rng_below(&r, 8) : 1;
        p->nintents += ph->count;
    }
    p->intents = malloc(p->nintents * sizeof *p->intents);
    if (!p->intents) {
        fprintf(stderr, "torture: out of memory\n");
        exit(EXIT_USAGE);
    }
    for (uint32_t i = 0; i < p->nintents; i++)
        p->intents[i] = pick(&r, i, s);
    /* every phase begins with blocks and contents to work on */
    for (uint32_t k = 0; k < p->nphases; k++) {
        for (uint32_t i = 0; i < 10; i++) {
            struct intent *x = &p->intents[p->phases[k].first + i];
            x->kind = i < 7 ? DO_ALLOC : DO_UPLOAD;
            x->slot[0] = (uint8_t)(i < 7 ? (i * 3 + k) % SLOTS : ((i - 7) * 6 + k) % SLOTS);
        }
    }
}

void program_fini(struct program *p)
{
    free(p->intents);
    p->intents = NULL;
}
