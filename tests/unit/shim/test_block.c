/* Blocks and the page table, without a driver: look-up, sharing of pages, planned places. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <time.h>

#include "bare_device.h"

#define PAGES 1024u

static struct vm_device *device(void)
{
    return bare_device(PAGES, PAGES / 2);
}

static uint32_t block(struct vm_device *d, uint64_t bytes)
{
    uint32_t i = VM_NO;
    cr_assert_eq(vm_block_new(d, bytes, VM_UNPLACED, &i), 0);
    return i;
}

Test(block, every_address_inside_finds_it_and_none_outside)
{
    struct vm_device *d = device();
    uint64_t sizes[] = {1, 511, 512, 513, 4000, PAGE / 2, PAGE / 2 + 1, PAGE, PAGE + 1, 5 * PAGE - 3};
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint32_t b = block(d, sizes[i]);
        CUdeviceptr a = d->blocks[b].addr;
        cr_assert_eq(a % VM_GRANULE, 0);
        cr_assert_eq(vm_block_find(d, a), b);
        cr_assert_eq(vm_block_find(d, a + sizes[i] - 1), b);
        cr_assert_eq(vm_block_find(d, a + sizes[i] / 2), b);
        cr_assert_neq(vm_block_find(d, a + sizes[i]), b);
        cr_assert_neq(vm_block_find(d, a - 1), b);
    }
    cr_assert_eq(vm_block_find(d, d->base - 1), VM_NO);
    cr_assert_eq(vm_block_find(d, d->base + d->reserved_bytes), VM_NO);
}

Test(block, small_blocks_share_a_page_and_large_ones_own_theirs)
{
    struct vm_device *d = device();
    uint32_t a = block(d, 600), b = block(d, 600), c = block(d, 2 * PAGE);
    cr_assert_eq(d->blocks[a].first, d->blocks[b].first);
    cr_assert(vm_page_is_shared(&d->pages[d->blocks[a].first]));
    cr_assert_eq(d->pages[d->blocks[a].first].live, 2);
    cr_assert(!vm_page_is_shared(&d->pages[d->blocks[c].first]));
    cr_assert_eq(d->pages[d->blocks[c].first].chunk, VM_NO, "a fresh page has no chunk");
    cr_assert_eq(d->pages[d->blocks[c].first].host, VM_NO);
    CUdeviceptr at = d->blocks[a].addr;
    vm_block_free(d, a);
    cr_assert_eq(vm_block_find(d, at), VM_NO);
    cr_assert_eq(vm_block_find(d, d->blocks[b].addr), b);
}

Test(block, the_same_sequence_gets_the_same_places)
{
    struct vm_device *d = device();
    CUdeviceptr first[3];
    uint64_t sizes[3] = {3 * PAGE, 700, PAGE};
    for (int round = 0; round < 4; round++) {
        uint32_t b[3];
        for (int i = 0; i < 3; i++) {
            b[i] = block(d, sizes[i]);
            if (round == 0)
                first[i] = d->blocks[b[i]].addr;
            cr_assert_eq(d->blocks[b[i]].addr, first[i]);
        }
        for (int i = 0; i < 3; i++)
            vm_block_free(d, b[i]);
    }
    cr_assert_eq(d->block_bytes, 0);
}

Test(block, a_planned_place_that_is_taken_is_refused)
{
    struct vm_device *d = device();
    uint64_t at = (uint64_t)(PAGES / 2) * PAGE + 1024;
    uint32_t a = VM_NO, b = VM_NO, c = VM_NO;
    cr_assert_eq(vm_block_new(d, 3 * PAGE, at, &a), 0);
    cr_assert_eq(vm_block_new(d, 512, at + 3 * PAGE - 512, &b), VM_NOTFOUND);
    cr_assert_eq(b, VM_NO, "an output was set on failure");
    cr_assert_eq(vm_block_new(d, 512, at + 3 * PAGE, &b), 0, "the rest of a shared page is free");
    cr_assert_eq(vm_block_new(d, 512, at - 512, &c), 0);
    cr_assert_eq(vm_block_find(d, d->base + at - 1), c);
    cr_assert_eq(vm_block_find(d, d->base + at), a);
    cr_assert_eq(vm_block_find(d, d->base + at + 3 * PAGE), b);
    vm_block_free(d, a);
    cr_assert_eq(vm_block_new(d, 3 * PAGE, at, &a), 0, "its place is free again");
}

Test(block, residency_is_counted_by_page)
{
    struct vm_device *d = device();
    uint32_t i = block(d, 3 * PAGE);
    struct vm_block *b = &d->blocks[i];
    cr_assert_eq(b->nonresident, 3);
    for (uint64_t p = b->first; p <= b->last; p++)
        vm_page_set_state(d, p, VM_PG_RESIDENT);
    cr_assert(vm_block_resident(d, b));
    vm_page_set_state(d, b->first + 1, VM_PG_WAIT_OUT);
    cr_assert(!vm_block_resident(d, b));
    cr_assert_eq(b->nonresident, 1);
    cr_assert(!vm_page_matters(d, b->first), "nothing was written yet");
    vm_block_touch(d, b, 5, true);
    cr_assert(vm_page_matters(d, b->first));
    cr_assert_eq(vm_page_written(d, b->first), 5);
    b->dead = true;
    cr_assert(!vm_page_matters(d, b->first), "the program said its contents are dead");
}

Test(block, a_pin_on_a_shared_page_holds_it_for_its_neighbours_too)
{
    struct vm_device *d = device();
    uint32_t a = block(d, 600), b = block(d, 600);
    uint64_t page = d->blocks[a].first;
    vm_block_pin(d, &d->blocks[a], false);
    vm_block_pin(d, &d->blocks[b], true);
    cr_assert(vm_page_pinned(d, page));
    vm_block_unpin(d, &d->blocks[a], false);
    cr_assert(vm_page_pinned(d, page));
    vm_block_free(d, b);
    cr_assert(!vm_page_pinned(d, page), "a freed block's pins go with it");
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Least seconds of some rounds of putting a block of `bytes` down at `at` and taking it away. */
static double cost(struct vm_device *d, uint64_t bytes, uint64_t at)
{
    double best = 1e9;
    for (unsigned round = 0; round < 20; round++) {
        double begin = now();
        for (unsigned i = 0; i < 50; i++) {
            uint32_t b = VM_NO;
            cr_assert_eq(vm_block_new(d, bytes, at, &b), 0);
            cr_assert_eq(vm_block_find(d, d->base + at + bytes / 2), b);
            vm_block_free(d, b);
        }
        double took = now() - begin;
        best = took < best ? took : best;
    }
    return best;
}

/* A plan puts every tensor of an iteration down anew; half a page has 32,768 granules here. */
Test(block, a_place_on_a_shared_page_costs_the_same_whatever_its_size)
{
    struct vm_device *d = device();
    d->page_shift = 25;
    d->page_bytes = UINT64_C(1) << 25;
    d->reserved_bytes = d->npages << 25;
    uint64_t at = (d->npages / 2) << 25;
    uint32_t neighbour = VM_NO;
    cr_assert_eq(vm_block_new(d, 512, at, &neighbour), 0);
    double small = cost(d, 512, at + 512), large = cost(d, d->page_bytes / 2, at + 512);
    cr_assert_lt(large, 20 * small, "%g and %g s", small, large);
}
