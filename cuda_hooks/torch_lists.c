#include "torch_lists.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define FOREACH "multi_tensor_apply_kernelI"
#define CAT     "CatArrayBatchedCopy"

/* Places by number of rows, as PyTorch is built for parameters of up to 4 KiB and of up to 32 KiB. */
static const struct build {
    uint16_t places[5], with_scalars[5], with_complex[2];
    uint16_t blocks, index_bytes;
} builds[] = {
    {{110, 64, 48, 36, 30}, {96, 64, 48, 36, 30}, {72, 60}, 320, 1},
    {{770, 448, 336, 252, 210}, {672, 448, 336, 252, 210}, {504, 420}, 2240, 2},
};

static size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* The number of the next "Li<number>E" of a mangled name; *at moves behind it. -1: none. */
static long next_number(const char **at)
{
    for (const char *p = *at; (p = strstr(p, "Li")) != NULL; p++) {
        char *end;
        long n = strtol(p + 2, &end, 10);
        if (end > p + 2 && *end == 'E') {
            *at = end + 1;
            return n;
        }
    }
    return -1;
}

int vm_torch_list_param(const char *name)
{
    return strstr(name, FOREACH) ? 0 : strstr(name, CAT) ? 1 : -1;
}

/* Rows, then the tensors' lengths, then what the kind adds, then index and chunk of each block. */
static bool fits(const struct build *b, uint16_t places, unsigned rows, size_t added, bool start,
                 size_t unit, size_t bytes, struct vm_torch_list *out)
{
    size_t index_at = (rows + 1) * 8u * places + added * places;
    size_t size = round_up(index_at + (size_t)b->blocks * b->index_bytes, 4) + 4u * b->blocks;
    if (round_up(size + (start ? 4 : 0), unit) != bytes)
        return false;
    *out = (struct vm_torch_list){.rows = (uint8_t)rows,
                                  .places = places,
                                  .blocks = b->blocks,
                                  .index_at = (uint16_t)index_at,
                                  .index_bytes = b->index_bytes};
    return true;
}

static struct vm_torch_list foreach_list(const char *kind, size_t bytes)
{
    struct vm_torch_list l = {0};
    const char *at = strstr(kind, "Metadata");
    if (!at)
        return l;
    bool fused = memmem(kind, (size_t)(at - kind), "FusedOptimizer", 14) != NULL;
    bool scalars = memmem(kind, (size_t)(at - kind), "ScalarList", 10) != NULL;
    bool of_complex = strncmp(at, "MetadataIN3c107complexIdE", 25) == 0;
    long rows = next_number(&at);
    if (rows < 1 || rows > 5)
        return l;
    for (size_t i = 0; i < sizeof builds / sizeof *builds && l.rows == 0; i++) {
        const struct build *b = &builds[i];
        unsigned n = (unsigned)rows;
        if (fused) {
            if (fits(b, b->places[n - 1], n, 8, true, 8, bytes, &l))
                l.extra_at = (uint16_t)((n + 1) * 8u * b->places[n - 1]);
        } else if (!scalars) {
            fits(b, b->places[n - 1], n, 0, true, 8, bytes, &l);
        } else if (of_complex) {
            fits(b, n <= 2 ? b->with_complex[n - 1] : b->with_scalars[n - 1], n, 16, false, 16,
                 bytes, &l);
        } else {
            for (size_t scalar = 1; scalar <= 8 && l.rows == 0; scalar *= 2)
                fits(b, b->with_scalars[n - 1], n, scalar, false, 8, bytes, &l);
        }
    }
    return l;
}

/* Addresses; then offset, size, length and a flag of each input; then sizes and strides, four each. */
static struct vm_torch_list cat_list(const char *at, size_t bytes)
{
    struct vm_torch_list l = {0};
    long dims = next_number(&at), places = next_number(&at), strides = next_number(&at);
    if (dims < 1 || places < 1 || places > UINT16_MAX || strides < 1 || strides > places)
        return l;
    for (size_t index = 4; index <= 8; index *= 2) {
        size_t n = (size_t)places, size = round_up(n * (8 + 3 * index + 1), index);
        if (round_up(size + (size_t)strides * 8 * index, 8) == bytes)
            l = (struct vm_torch_list){.rows = 1, .param = 1, .places = (uint16_t)n};
    }
    return l;
}

struct vm_torch_list vm_torch_list_of(const char *name, size_t bytes)
{
    const char *foreach = strstr(name, FOREACH), *cat = strstr(name, CAT);
    if (foreach)
        return foreach_list(foreach + strlen(FOREACH), bytes);
    return cat ? cat_list(cat + strlen(CAT), bytes) : (struct vm_torch_list){0};
}

int vm_torch_list_used(const struct vm_torch_list *l, const void *value, const unsigned grid[3])
{
    if (l->blocks == 0)
        return grid[1] >= 1 && grid[1] <= l->places ? (int)grid[1] : -1;
    if (grid[0] < 1 || grid[0] > l->blocks || grid[1] != 1 || grid[2] != 1)
        return -1;
    /* Each tensor has at least one block of threads, and they come in order. */
    const unsigned char *at = (const unsigned char *)value + l->index_at;
    unsigned last = 0;
    for (unsigned i = 0; i < grid[0]; i++, at += l->index_bytes) {
        uint16_t tensor = *at;
        if (l->index_bytes == 2)
            memcpy(&tensor, at, 2);
        if (tensor > last + (i > 0) || tensor < last)
            return -1;
        last = tensor;
    }
    return last < l->places ? (int)last + 1 : -1;
}
