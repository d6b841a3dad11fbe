/* The fast packers and the verifier that watches over them. */
#include <criterion/criterion.h>

#include "instances.h"
#include "verify.h"

#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static struct vm_pack_item item(uint64_t lower, uint64_t upper, uint64_t size)
{
    return (struct vm_pack_item){.size = size, .lower = lower, .upper = upper, .fixed = VM_UNPLACED};
}

static void expect_good(struct instance *in, const char *what)
{
    struct vm_pack_options opt = {0};
    struct vm_pack_result res;
    struct vm_error why = {{0}};
    uint64_t height = 0, live = 0;
    cr_assert_eq(vm_pack_fast(&in->p, &opt, in->offsets, &res, &why), VM_OK, "%s: %s", what, why.text);
    cr_assert_eq(vm_verify_packing(&in->p, in->offsets, 0, &height, &why), VM_OK, "%s: %s", what,
                 why.text);
    cr_assert_eq(height, res.height);
    cr_assert_geq(res.height, res.bound);
    cr_assert_geq(res.bound, res.max_live);
    cr_assert_eq(vm_pack_max_live(&in->p, &live, &why), VM_OK);
    cr_assert_eq(live, res.max_live);
}

Test(fast, packs_random_problems_of_every_kind)
{
    struct random r = {test_seed()};
    for (int round = 0; round < 400; round++) {
        unsigned kinds = (unsigned)round % 8;
        struct instance in = random_instance(&r, 1 + random_below(&r, 200),
                                             3 + random_below(&r, 100), 60, kinds);
        char what[40];
        snprintf(what, sizeof what, "round %d", round);
        expect_good(&in, what);
        free_instance(&in);
    }
}

Test(fast, reaches_the_load_where_blocks_nest)
{
    struct instance in = {0};
    struct vm_pack_item items[64];
    uint64_t offsets[64];
    for (uint64_t i = 0; i < 64; i++)
        items[i] = item(i, 200 - i, 3 + i % 5);
    in.items = items;
    in.offsets = offsets;
    in.p = (struct vm_pack_problem){items, 64, NULL, 0};
    struct vm_pack_options opt = {0};
    struct vm_pack_result res;
    cr_assert_eq(vm_pack_fast(&in.p, &opt, offsets, &res, NULL), VM_OK);
    cr_assert_eq(res.height, res.max_live);
}

Test(fast, load_counts_gaps_and_half_open_ends)
{
    struct vm_pack_span gap = {2, 8};
    struct vm_pack_item items[] = {item(0, 10, 5), item(2, 8, 7), item(10, 12, 9)};
    items[0].ngaps = 1;
    struct vm_pack_problem p = {items, COUNT(items), &gap, 1};
    uint64_t live = 0;
    cr_assert_eq(vm_pack_max_live(&p, &live, NULL), VM_OK);
    cr_assert_eq(live, 9);
}

Test(fast, capacity_that_is_not_kept_is_unfit)
{
    struct vm_pack_item items[] = {item(0, 2, 5), item(1, 3, 7)};
    struct vm_pack_problem p = {items, COUNT(items), NULL, 0};
    struct vm_pack_options opt = {.capacity = 11};
    struct vm_pack_result res;
    uint64_t offsets[COUNT(items)];
    cr_assert_eq(vm_pack_fast(&p, &opt, offsets, &res, NULL), VM_UNFIT);
    opt.capacity = 12;
    cr_assert_eq(vm_pack_fast(&p, &opt, offsets, &res, NULL), VM_OK);
}

Test(fast, refuses_bad_problems_with_the_item)
{
    struct vm_pack_span gaps[] = {{1, 3}, {0, 2}, {4, 4}};
    struct vm_pack_item bad[8];
    for (size_t i = 0; i < COUNT(bad); i++)
        bad[i] = item(0, 5, 4);
    bad[0].upper = 0;
    bad[1].size = UINT64_MAX;
    bad[2].fixed = UINT64_MAX - 2;
    bad[3].fixed = 3, bad[3].align = 2;
    bad[4].gap = 3, bad[4].ngaps = 1;
    bad[5].gap = 1, bad[5].ngaps = 1;
    bad[6].gap = 2, bad[6].ngaps = 1;
    bad[7].gap = 0, bad[7].ngaps = 2;
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct vm_pack_item items[] = {item(0, 5, 4), bad[i]};
        struct vm_pack_problem p = {items, 2, gaps, COUNT(gaps)};
        struct vm_pack_options opt = {0};
        struct vm_pack_result res = {.height = 77};
        struct vm_error why = {{0}};
        uint64_t offsets[2];
        cr_assert_eq(vm_pack_fast(&p, &opt, offsets, &res, &why), VM_EINVAL, "case %zu", i);
        cr_assert(strstr(why.text, "item 1"), "case %zu: %s", i, why.text);
        cr_assert_eq(res.height, 77);
    }
}

Test(fast, refuses_fixed_items_that_collide)
{
    struct vm_pack_item items[] = {item(0, 5, 4), item(4, 6, 4), item(5, 9, 4)};
    items[0].fixed = 10;
    items[2].fixed = 12; /* not live with item 0 */
    struct vm_pack_problem p = {items, COUNT(items), NULL, 0};
    struct vm_pack_options opt = {0};
    struct vm_pack_result res;
    struct vm_error why = {{0}};
    uint64_t offsets[COUNT(items)];
    cr_assert_eq(vm_pack_fast(&p, &opt, offsets, &res, &why), VM_OK);
    items[1].fixed = 8;
    cr_assert_eq(vm_pack_fast(&p, &opt, offsets, &res, &why), VM_EINVAL);
    cr_assert(strstr(why.text, "fixed on the same bytes"), "%s", why.text);
}

Test(fast, sizes_near_the_end_of_the_number_range)
{
    struct vm_pack_item items[] = {item(0, UINT64_MAX, (uint64_t)1 << 61), item(5, 6, (uint64_t)1 << 61)};
    struct vm_pack_problem p = {items, COUNT(items), NULL, 0};
    struct vm_pack_options opt = {0};
    struct vm_pack_result res;
    uint64_t offsets[COUNT(items)];
    cr_assert_eq(vm_pack_fast(&p, &opt, offsets, &res, NULL), VM_OK);
    cr_assert_eq(res.height, (uint64_t)1 << 62);
    items[0].size = items[1].size = (uint64_t)1 << 62;
    cr_assert_eq(vm_pack_fast(&p, &opt, offsets, &res, NULL), VM_EINVAL);
}

/* Planted faults: each must be found by the verifier. */
Test(verify, finds_every_planted_fault)
{
    struct vm_pack_span gap = {2, 8};
    struct vm_pack_item items[] = {item(0, 10, 8), item(2, 8, 8), item(7, 12, 8)};
    items[0].ngaps = 1;
    items[1].align = 4;
    items[2].fixed = 8;
    struct vm_pack_problem p = {items, COUNT(items), &gap, 1};
    uint64_t right[] = {0, 0, 8}, height = 0;
    struct vm_error why;
    cr_assert_eq(vm_verify_packing(&p, right, 16, &height, &why), VM_OK, "%s", why.text);
    cr_assert_eq(height, 16);
    static const struct {
        uint64_t offsets[3], capacity;
        const char *reason;
    } wrong[] = {
        {{0, 4, 8}, 16, "overlap at time 7"},  {{1, 0, 8}, 16, "overlap at time 8"},
        {{0, 2, 8}, 16, "not aligned"},        {{0, 0, 16}, 30, "was fixed"},
        {{0, 0, 8}, 15, "above the capacity"}, {{UINT64_MAX, 0, 8}, 16, "no place"},
        {{4, 0, 8}, 16, "overlap at time 8"},  {{UINT64_MAX - 3, 0, 8}, 16, "no place"},
    };
    for (size_t k = 0; k < COUNT(wrong); k++) {
        cr_assert_eq(vm_verify_packing(&p, wrong[k].offsets, wrong[k].capacity, &height, &why),
                     VM_EINVAL, "fault %zu", k);
        cr_assert(strstr(why.text, wrong[k].reason), "fault %zu: %s", k, why.text);
    }
}

/* The sweep finds one overlap hidden among many live neighbours. */
Test(verify, finds_one_byte_among_thousands)
{
    enum { N = 3000 };
    static struct vm_pack_item items[N];
    static uint64_t offsets[N];
    struct random r = {test_seed()};
    for (uint64_t i = 0; i < N; i++) {
        items[i] = item(random_below(&r, 50), 60 + random_below(&r, 50), 10);
        offsets[i] = i * 10;
    }
    struct vm_pack_problem p = {items, N, NULL, 0};
    struct vm_error why;
    cr_assert_eq(vm_verify_packing(&p, offsets, 0, NULL, &why), VM_OK, "%s", why.text);
    for (int round = 0; round < 200; round++) {
        uint64_t i = 1 + random_below(&r, N - 1);
        offsets[i]--;
        cr_assert_eq(vm_verify_packing(&p, offsets, 0, NULL, &why), VM_EINVAL);
        offsets[i]++;
    }
}
