/* The unit of mapping that goes with a budget. */
#include <criterion/criterion.h>

#include "page_size.h"
#include "small.h"

Test(page_size, by_the_budget)
{
    const uint64_t mib = 1 << 20, gib = 1 << 30;
    static const struct {
        uint64_t budget_mib;
        bool moves;
        uint64_t page_mib;
    } want[] = {{512, true, 2},          {1024, true, 4},     {2048, true, 4},  {12288, true, 16},
                {64 * 1024, true, 32},   {1 << 20, true, 32}, {512, false, 2},  {128 * 1024, false, 2},
                {128 * 1024 + 2, false, 4}};

    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        cr_assert_eq(vm_page_size(want[i].budget_mib * mib, 2 * mib, want[i].moves), want[i].page_mib * mib,
                     "%llu MiB", (unsigned long long)want[i].budget_mib);
    cr_assert_eq(vm_page_size(gib, 64 * mib, true), 64 * mib, "what the device maps at the least");
}

/* Some hundreds of pages where there is a choice, and never fewer because of a smaller least page. */
Test(page_size, any_budget)
{
    uint64_t seed = 5;

    for (int i = 0; i < 2000; i++) {
        uint64_t budget = small_random(&seed) >> (24 + small_random(&seed) % 16);
        uint64_t least = UINT64_C(1) << (9 + small_random(&seed) % 13);
        for (int moves = 0; moves < 2; moves++) {
            uint64_t page = vm_page_size(budget, least, moves), n = budget / page;
            cr_assert(page >= least && page % least == 0 && !(page & (page - 1)));
            if (page == least)
                continue;
            cr_assert_geq(n, moves ? 256 : 32768);
            if (!moves)
                cr_assert_leq(n, 65536);
            else if (page < 32 << 20)
                cr_assert_lt(n, 1024);
        }
    }
}
