/* A device with a page table and no driver. */
#ifndef VM_TESTS_SHIM_BARE_DEVICE_H
#define VM_TESTS_SHIM_BARE_DEVICE_H

#include <criterion/criterion.h>
#include <stdlib.h>

#include "block.h"

#define PAGE 8192u

/* `pages` pages, the first `free` of which blocks may be given. Never freed: each test is a process. */
static inline struct vm_device *bare_device(uint64_t pages, uint64_t free)
{
    struct vm_device *d = calloc(1, sizeof *d);
    d->page_bytes = PAGE;
    d->page_shift = 13;
    d->npages = pages;
    d->base = 0x100000000;
    d->reserved_bytes = pages * PAGE;
    d->pages = calloc(pages, sizeof *d->pages);
    cr_assert_eq(vm_ranges_add(&d->page_space, 0, free), 0);
    return d;
}

#endif
