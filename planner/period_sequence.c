#include "period_sequence.h"

#include "grow.h"
#include "trace.h"

#define PRIME ((UINT64_C(1) << 61) - 1)
#define BASE  UINT64_C(0x1b873593cc9e2d51)

__extension__ typedef unsigned __int128 wide;

static uint64_t reduce(uint64_t x)
{
    x = (x & PRIME) + (x >> 61);
    return x >= PRIME ? x - PRIME : x;
}

static uint64_t multiply(uint64_t a, uint64_t b)
{
    wide p = (wide)a * b;
    return reduce((uint64_t)(p & PRIME) + (uint64_t)(p >> 61));
}

int vm_sequence_push(struct vm_sequence *s, uint64_t symbol)
{
    if (VM_GROW(s->prefix, s->cap_prefix, s->n + 2) < 0 ||
        VM_GROW(s->power, s->cap_power, s->n + 2) < 0)
        return VM_ENOMEM;
    if (s->n == 0) {
        s->prefix[0] = 0;
        s->power[0] = 1;
    }
    uint64_t base = reduce(BASE);
    s->power[s->n + 1] = multiply(s->power[s->n], base);
    s->prefix[s->n + 1] = reduce(multiply(s->prefix[s->n], base) + reduce(vm_hash64(symbol)));
    s->n++;
    return VM_OK;
}

void vm_sequence_fini(struct vm_sequence *s)
{
    free(s->prefix);
    free(s->power);
    *s = (struct vm_sequence){0};
}

uint64_t vm_sequence_hash(const struct vm_sequence *s, size_t from, size_t to)
{
    return reduce(s->prefix[to] + PRIME - multiply(s->prefix[from], s->power[to - from]));
}

static bool equal(const struct vm_sequence *s, size_t length, size_t p)
{
    size_t from = s->n - length;
    return vm_sequence_hash(s, from, s->n) == vm_sequence_hash(s, from - p, s->n - p);
}

size_t vm_sequence_run(const struct vm_sequence *s, size_t p)
{
    if (p == 0 || p >= s->n)
        return 0;
    size_t most = s->n - p, good = 0, step = 1;
    while (good + step <= most && equal(s, good + step, p)) {
        good += step;
        step *= 2;
    }
    /* good matches; good + step does not (or is beyond the beginning) */
    size_t bad = good + step <= most ? good + step : most + 1;
    while (bad - good > 1) {
        size_t mid = good + (bad - good) / 2;
        if (equal(s, mid, p))
            good = mid;
        else
            bad = mid;
    }
    return good;
}

bool vm_sequence_repeats(const struct vm_sequence *s, size_t p)
{
    return p < s->n && equal(s, 1, p);
}

static struct vm_last_seen_slot *find_slot(const struct vm_last_seen *m, uint64_t key)
{
    size_t mask = m->nslots - 1, i = vm_hash64(key) & mask;
    while (m->slots[i].key != 0 && m->slots[i].key != key)
        i = (i + 1) & mask;
    return &m->slots[i];
}

int vm_last_seen_put(struct vm_last_seen *m, uint64_t key, size_t pos, size_t *previous)
{
    if (key == 0)
        key = PRIME; /* never a hash: keeps 0 free for empty slots */
    if (2 * (m->used + 1) > m->nslots) {
        struct vm_last_seen bigger = {.nslots = m->nslots ? m->nslots * 2 : 256, .used = m->used};
        bigger.slots = calloc(bigger.nslots, sizeof *bigger.slots);
        if (!bigger.slots)
            return VM_ENOMEM;
        for (size_t i = 0; i < m->nslots; i++)
            if (m->slots[i].key != 0)
                *find_slot(&bigger, m->slots[i].key) = m->slots[i];
        free(m->slots);
        *m = bigger;
    }
    struct vm_last_seen_slot *slot = find_slot(m, key);
    *previous = slot->pos;
    if (slot->key == 0) {
        slot->key = key;
        m->used++;
    }
    slot->pos = pos;
    return VM_OK;
}

void vm_last_seen_fini(struct vm_last_seen *m)
{
    free(m->slots);
    *m = (struct vm_last_seen){0};
}
