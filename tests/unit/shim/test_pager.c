/* The pager's queue of pages to bring back, without a driver: no copy begins here. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "bare_device.h"
#include "pager.h"

#define PAGES 64u

/* A block of one page that is on its way out, used last by operation 1 of 1. */
static uint64_t leaving_page(struct vm_device *d)
{
    uint32_t b = VM_NO;
    cr_assert_eq(vm_block_new(d, PAGE, VM_UNPLACED, &b), 0);
    d->g = 1;
    vm_block_touch(d, &d->blocks[b], d->g, false);
    vm_page_set_state(d, d->blocks[b].first, VM_PG_RESIDENT);
    vm_page_set_state(d, d->blocks[b].first, VM_PG_LEAVING);
    return d->blocks[b].first;
}

/* An operation brings the page back itself, and it leaves again. */
static void used_since(struct vm_device *d, uint64_t page)
{
    vm_page_set_state(d, page, VM_PG_RESIDENT);
    vm_block_touch(d, &d->blocks[d->pages[page].owner], ++d->g, false);
    vm_page_set_state(d, page, VM_PG_LEAVING);
}

static struct vm_device *device(void)
{
    return bare_device(PAGES, PAGES);
}

static uint64_t wanted_then(struct vm_device *d)
{
    vm_pager_pump(d);
    return vm_pager_wanted(d);
}

Test(pager, a_page_that_leaves_still_is_waited_for)
{
    struct vm_device *d = device();
    uint64_t page = leaving_page(d);
    cr_assert_eq(vm_pager_in(d, page, false), 0);
    cr_assert_eq(vm_pager_in(d, page, false), 0, "asked for twice");
    cr_assert_eq(wanted_then(d), 1);
    d->g++; /* an operation that does not use it */
    cr_assert_eq(wanted_then(d), 1);
}

Test(pager, a_wish_ends_with_the_operation_it_was_for)
{
    struct vm_device *d = device();
    uint64_t page = leaving_page(d), behind = leaving_page(d);
    cr_assert_eq(vm_pager_in(d, page, false), 0);
    cr_assert_eq(vm_pager_in(d, behind, false), 0);
    used_since(d, page);
    cr_assert_eq(wanted_then(d), 1, "only the one behind it is wanted");
    vm_page_set_state(d, behind, VM_PG_RESIDENT);
    cr_assert_eq(wanted_then(d), 0);
}

Test(pager, a_page_can_be_asked_for_anew_while_the_old_wish_stands_in_the_queue)
{
    struct vm_device *d = device();
    uint64_t page = leaving_page(d), first = leaving_page(d);
    cr_assert_eq(vm_pager_in(d, first, false), 0); /* keeps the others from their turn */
    cr_assert_eq(vm_pager_in(d, page, false), 0);
    used_since(d, page);
    cr_assert_eq(vm_pager_in(d, page, false), 0);
    vm_page_set_state(d, first, VM_PG_RESIDENT);
    cr_assert_eq(wanted_then(d), 1, "the new wish");
    used_since(d, page);
    cr_assert_eq(wanted_then(d), 0);
    cr_assert_eq(vm_pager_in(d, page, false), 0);
    cr_assert_eq(wanted_then(d), 1, "and once more");
}
