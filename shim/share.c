#include "share.h"

#include <stdlib.h>

#include "model.h"

static size_t words_of(size_t bits)
{
    return (bits + 63) / 64;
}

int vm_share_new(struct vm_share *s, size_t granules)
{
    size_t words = words_of(granules);
    uint64_t *begins = calloc(words + words_of(words), sizeof *begins);
    uint32_t *block = malloc(granules * sizeof *block);
    if (!begins || !block) {
        free(begins);
        free(block);
        return VM_ENOMEM;
    }
    *s = (struct vm_share){begins, block};
    return 0;
}

void vm_share_put(struct vm_share *s, size_t granules, size_t at, uint32_t block)
{
    uint64_t *some = s->begins + words_of(granules);
    s->block[at] = block;
    s->begins[at / 64] |= UINT64_C(1) << at % 64;
    some[at / 64 / 64] |= UINT64_C(1) << at / 64 % 64;
}

void vm_share_remove(struct vm_share *s, size_t granules, size_t at)
{
    uint64_t *some = s->begins + words_of(granules);
    s->begins[at / 64] &= ~(UINT64_C(1) << at % 64);
    if (s->begins[at / 64] == 0)
        some[at / 64 / 64] &= ~(UINT64_C(1) << at / 64 % 64);
}

/* The last of the bits up to and with `at`; SIZE_MAX: none of its word. */
static size_t last_in_word(const uint64_t *bits, size_t at)
{
    uint64_t w = bits[at / 64] & (~UINT64_C(0) >> (63 - at % 64));
    return w ? (at & ~(size_t)63) + 63 - (size_t)__builtin_clzll(w) : SIZE_MAX;
}

uint32_t vm_share_find(const struct vm_share *s, size_t granules, size_t at)
{
    const uint64_t *some = s->begins + words_of(granules);
    size_t found = last_in_word(s->begins, at);
    for (size_t word = at / 64; found == SIZE_MAX && word > 0;) {
        size_t other = last_in_word(some, word - 1);
        if (other != SIZE_MAX)
            found = last_in_word(s->begins, other * 64 + 63);
        word = (word - 1) & ~(size_t)63; /* on with the summary's word before */
    }
    return found == SIZE_MAX ? VM_NONE : s->block[found];
}
