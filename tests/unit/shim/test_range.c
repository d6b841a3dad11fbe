/* The address range allocator against a plain map of units. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "range.h"

#define UNITS 4096

static uint64_t seed_of_run(void)
{
    const char *s = getenv("TEST_SEED");
    uint64_t seed = s ? strtoull(s, NULL, 10) : 20261129;
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

Test(range, never_hands_out_a_unit_twice)
{
    struct vm_ranges r = {0};
    unsigned char map[UNITS] = {0};
    struct {
        struct vm_range *node;
        uint64_t at, n;
    } held[512];
    unsigned nheld = 0;
    uint64_t used = 0, x = seed_of_run();
    cr_assert_eq(vm_ranges_add(&r, 0, UNITS), 0);
    for (int step = 0; step < 200000; step++) {
        if (nheld < 512 && (next(&x) & 1)) {
            uint64_t n = 1 + next(&x) % (next(&x) & 7 ? 16 : 400), at = 0;
            struct vm_range *node = vm_ranges_take(&r, n, &at);
            if (!node)
                continue;
            cr_assert(at + n <= UNITS);
            for (uint64_t i = at; i < at + n; i++) {
                cr_assert_eq(map[i], 0, "unit %llu given out twice at step %d",
                             (unsigned long long)i, step);
                map[i] = 1;
            }
            held[nheld].node = node;
            held[nheld].at = at;
            held[nheld++].n = n;
            used += n;
        } else if (nheld > 0) {
            unsigned k = (unsigned)(next(&x) % nheld);
            memset(map + held[k].at, 0, held[k].n);
            used -= held[k].n;
            vm_ranges_give(&r, held[k].node);
            held[k] = held[--nheld];
        }
        cr_assert_eq(r.used, used);
    }
    while (nheld > 0)
        vm_ranges_give(&r, held[--nheld].node);
    uint64_t at = 1;
    cr_assert_not_null(vm_ranges_take(&r, UNITS, &at), "freed ranges did not coalesce");
    cr_assert_eq(at, 0);
}

Test(range, same_calls_give_same_addresses)
{
    uint64_t first[64];
    for (int round = 0; round < 3; round++) {
        struct vm_ranges r = {0};
        cr_assert_eq(vm_ranges_add(&r, 0, UNITS), 0);
        struct vm_range *n[64];
        uint64_t at;
        for (int i = 0; i < 64; i++) {
            n[i] = vm_ranges_take(&r, (uint64_t)(i * 7 % 23 + 1), &at);
            cr_assert_not_null(n[i]);
            if (round == 0)
                first[i] = at;
            cr_assert_eq(first[i], at);
        }
        for (int i = 0; i < 64; i++)
            vm_ranges_give(&r, n[i]);
        vm_ranges_fini(&r);
    }
}

Test(range, says_no_when_nothing_fits)
{
    struct vm_ranges r = {0};
    uint64_t at = 77;
    cr_assert_null(vm_ranges_take(&r, 1, &at));
    cr_assert_eq(vm_ranges_add(&r, 100, 10), 0);
    cr_assert_null(vm_ranges_take(&r, 11, &at));
    cr_assert_eq(at, 77, "an output was set on failure");
    struct vm_range *n = vm_ranges_take(&r, 10, &at);
    cr_assert_not_null(n);
    cr_assert_eq(at, 100);
    vm_ranges_give(&r, n);
    vm_ranges_fini(&r);
}
