/* The search against brute force, known optima and its own limits; the chunked variant. */
#include <criterion/criterion.h>

#include "instances.h"
#include "verify.h"

#include <stdlib.h>

static void expect_packed(struct instance *in, uint64_t capacity, const char *what)
{
    struct vm_error why;
    cr_assert_eq(vm_verify_packing(&in->p, in->offsets, capacity, NULL, &why), VM_OK, "%s: %s", what,
                 why.text);
}

/* At the brute-force optimum it finds a packing; one below it proves that there is none. */
Test(search, agrees_with_brute_force)
{
    struct random r = {test_seed()};
    for (int round = 0; round < 1500; round++) {
        unsigned kinds = (unsigned)round % 2 * WITH_GAPS | (unsigned)(round / 2 % 2) * WITH_ALIGN;
        struct instance in = random_instance(&r, 2 + random_below(&r, 5), 12, 9, kinds);
        uint64_t best = brute_force_height(&in.p);
        struct vm_pack_options opt = {.capacity = best};
        struct vm_pack_result res = {0};
        cr_assert_eq(vm_pack_search(&in.p, &opt, in.offsets, &res, NULL), VM_OK, "round %d", round);
        expect_packed(&in, best, "at the optimum");
        if (best > 1) {
            opt.capacity = best - 1;
            cr_assert_eq(vm_pack_search(&in.p, &opt, in.offsets, &res, NULL), VM_UNFIT, "round %d", round);
        }
        opt.capacity = 0;
        cr_assert_eq(vm_pack(&in.p, &opt, in.offsets, &res, NULL), VM_OK);
        cr_assert_eq(res.height, best, "round %d", round);
        cr_assert_eq(res.bound, best, "round %d: optimal and says so", round);
        expect_packed(&in, best, "vm_pack");
        free_instance(&in);
    }
}

Test(search, finds_known_optima)
{
    struct random r = {test_seed()};
    for (int round = 0; round < 30; round++) {
        struct instance in = guillotine_instance(&r, 25, 40, 64);
        struct vm_pack_options opt = {.capacity = 64, .max_nodes = 300000};
        struct vm_pack_result res = {0};
        cr_assert_eq(vm_pack_search(&in.p, &opt, in.offsets, &res, NULL), VM_OK, "round %d after %llu nodes",
                     round, (unsigned long long)res.nodes);
        expect_packed(&in, 64, "guillotine");
        free_instance(&in);
    }
}

Test(search, keeps_fixed_items_gaps_and_alignment)
{
    struct random r = {test_seed()};
    int solved = 0;
    for (int round = 0; round < 200; round++) {
        struct instance in = random_instance(&r, 30, 40, 50, WITH_GAPS | WITH_FIXED | WITH_ALIGN);
        struct vm_pack_options opt = {0};
        struct vm_pack_result res;
        struct vm_error why;
        cr_assert_eq(vm_pack_fast(&in.p, &opt, in.offsets, &res, &why), VM_OK, "%s", why.text);
        opt.capacity = res.height;
        opt.max_nodes = 20000;
        int status = vm_pack_search(&in.p, &opt, in.offsets, &res, &why);
        cr_assert(status == VM_OK || status == VM_TIMEOUT, "round %d: a packing of that height exists", round);
        if (status == VM_OK) {
            solved++;
            expect_packed(&in, opt.capacity, "search");
        }
        free_instance(&in);
    }
    cr_assert_geq(solved, 180);
}

static int after_calls(void *left)
{
    return --*(int *)left < 0;
}

Test(search, stops_when_told)
{
    struct random r = {test_seed()};
    struct instance in = guillotine_instance(&r, 150, 200, 4096); /* feasible, in 151 nodes at least */
    struct vm_pack_options opt = {.capacity = 4096, .max_nodes = 100};
    struct vm_pack_result res;
    cr_assert_eq(vm_pack_search(&in.p, &opt, in.offsets, &res, NULL), VM_TIMEOUT);
    cr_assert_eq(res.nodes, 100);
    int left = 0;
    opt.max_nodes = 0;
    opt.expired = after_calls;
    opt.expired_arg = &left;
    cr_assert_eq(vm_pack_search(&in.p, &opt, in.offsets, &res, NULL), VM_TIMEOUT);
    left = 0;
    cr_assert_eq(vm_pack(&in.p, &opt, in.offsets, &res, NULL), VM_TIMEOUT);
    expect_packed(&in, res.height, "the best found is given");
    opt.capacity = 0;
    left = 0;
    cr_assert_eq(vm_pack(&in.p, &opt, in.offsets, &res, NULL), VM_OK);
    expect_packed(&in, res.height, "the best found is given");
    free_instance(&in);
}

Test(search, same_arguments_same_packing)
{
    struct random r = {test_seed()};
    struct instance in = random_instance(&r, 60, 60, 1000, WITH_GAPS);
    uint64_t again[60];
    struct vm_pack_options opt = {.max_nodes = 20000, .seed = 5};
    struct vm_pack_result one, two;
    cr_assert_eq(vm_pack(&in.p, &opt, in.offsets, &one, NULL), VM_OK);
    cr_assert_eq(vm_pack(&in.p, &opt, again, &two, NULL), VM_OK);
    cr_assert_eq(one.height, two.height);
    cr_assert_eq(one.nodes, two.nodes);
    cr_assert_arr_eq(in.offsets, again, sizeof again);
    free_instance(&in);
}

/* ---- chunked ----*/

static void expect_pages_apart(const struct instance *in, const uint32_t *pages, const size_t *first,
                               uint64_t page)
{
    for (size_t i = 0; i < in->p.nitems; i++) {
        cr_assert_eq(first[i + 1] - first[i], (in->items[i].size + page - 1) / page);
        for (size_t j = 0; j < i; j++) {
            struct vm_pack_item pair[] = {in->items[i], in->items[j]};
            pair[0].size = pair[1].size = 1;
            struct vm_pack_problem p = {pair, 2, in->gaps, in->p.ngaps};
            uint64_t live = 0;
            cr_assert_eq(vm_pack_max_live(&p, &live, NULL), VM_OK);
            for (size_t a = first[i]; live == 2 && a < first[i + 1]; a++)
                for (size_t b = first[j]; b < first[j + 1]; b++)
                    cr_assert_neq(pages[a], pages[b], "items %zu and %zu share page %u", i, j, pages[a]);
        }
    }
}

Test(pages, colour_with_as_many_as_are_live)
{
    struct random r = {test_seed()};
    for (int round = 0; round < 60; round++) {
        struct instance in = random_instance(&r, 60, 50, 90, round % 3 == 0 ? WITH_GAPS : 0);
        uint32_t *pages = NULL, npages = 0;
        size_t *first = NULL;
        cr_assert_eq(vm_pack_pages(&in.p, 16, &pages, &first, &npages, NULL), VM_OK);
        expect_pages_apart(&in, pages, first, 16);
        struct vm_pack_item rounded[60];
        for (size_t i = 0; i < in.p.nitems; i++) {
            rounded[i] = in.items[i];
            rounded[i].size = (in.items[i].size + 15) / 16;
        }
        struct vm_pack_problem p = {rounded, in.p.nitems, in.gaps, in.p.ngaps};
        uint64_t live = 0;
        cr_assert_eq(vm_pack_max_live(&p, &live, NULL), VM_OK);
        cr_assert_geq(npages, live);
        if (round % 3)
            cr_assert_eq(npages, live, "one span an item: as many pages as are live at once");
        free(pages);
        free(first);
        free_instance(&in);
    }
}

Test(pages, refuse_fixed_items_and_no_page)
{
    struct vm_pack_item item = {.size = 4, .upper = 1, .fixed = 8};
    struct vm_pack_problem p = {&item, 1, NULL, 0};
    uint32_t *pages = NULL, npages = 0;
    size_t *first = NULL;
    cr_assert_eq(vm_pack_pages(&p, 16, &pages, &first, &npages, NULL), VM_EINVAL);
    item.fixed = VM_UNPLACED;
    cr_assert_eq(vm_pack_pages(&p, 0, &pages, &first, &npages, NULL), VM_EINVAL);
    cr_assert_null(pages);
}
