/* Who lies where on a shared page, against a plain map of its granules. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "model.h"
#include "share.h"

static uint64_t seed_of_run(void)
{
    const char *s = getenv("TEST_SEED");
    uint64_t seed = s ? strtoull(s, NULL, 10) : 20261130;
    fprintf(stderr, "TEST_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

static uint64_t next(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

static uint32_t plain_find(const uint32_t *map, size_t at)
{
    for (size_t i = at + 1; i-- > 0;)
        if (map[i] != VM_NONE)
            return map[i];
    return VM_NONE;
}

/* Few beginnings in many granules, so that whole words of the summary are empty, and many in few. */
Test(share, finds_the_last_beginning)
{
    static const size_t sizes[] = {1, 8, 63, 64, 65, 4096, 4097, 70001};
    uint64_t x = seed_of_run();
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        size_t n = sizes[k];
        struct vm_share s;
        uint32_t *map = malloc(n * sizeof *map);
        cr_assert_eq(vm_share_new(&s, n), 0);
        for (size_t i = 0; i < n; i++)
            map[i] = VM_NONE;
        for (unsigned step = 0; step < 4000; step++) {
            size_t at = next(&x) % (next(&x) & 1 ? n : n < 100 ? n : 100);
            if (map[at] != VM_NONE) {
                vm_share_remove(&s, n, at);
                map[at] = VM_NONE;
            } else if (next(&x) % 4 == 0) {
                vm_share_put(&s, n, at, step);
                map[at] = step;
            }
            at = next(&x) % n;
            cr_assert_eq(vm_share_find(&s, n, at), plain_find(map, at), "%zu of %zu", at, n);
        }
        free(map);
        free(s.begins);
        free(s.block);
    }
}
