/* Slots of pinned host memory: as many as the budget allows, each with a place of its own. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "driver.h"
#include "host_pool.h"

static uint64_t registered;

static CUresult registers(void *p, size_t bytes, unsigned flags)
{
    (void)p;
    (void)flags;
    registered += bytes;
    return CUDA_SUCCESS;
}

static int by_address(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* Of address space only: nobody touches the slots. */
Test(host_pool, gives_all_of_a_large_budget)
{
    const uint32_t slots = 10000;
    struct vm_device *d = calloc(1, sizeof *d);
    char **at = malloc(slots * sizeof *at);
    cr_assert(d && at);
    vm_drv.p_cuMemHostRegister_v2 = registers;
    d->page_bytes = UINT64_C(32) << 20;
    d->page_shift = 25;
    d->host.limit_slots = slots;
    uint32_t adjacent = 0;
    for (uint32_t i = 0; i < slots; i++) {
        uint32_t slot = UINT32_MAX;
        cr_assert_eq(vm_host_slot_take(d, &slot), 0, "slot %u", i);
        cr_assert_eq(slot, i);
        at[i] = vm_host_slot_addr(d, slot);
        adjacent += i > 0 && vm_host_slots_adjacent(d, i - 1, i);
    }
    uint32_t none;
    cr_assert_neq(vm_host_slot_take(d, &none), 0, "more than the budget");
    cr_assert_eq(registered, slots * d->page_bytes);
    cr_assert_geq(adjacent, slots - slots / 32 - 1, "%u", adjacent);
    qsort(at, slots, sizeof *at, by_address);
    for (uint32_t i = 1; i < slots; i++)
        cr_assert_geq(at[i] - at[i - 1], (ptrdiff_t)d->page_bytes);
    for (uint32_t i = 0; i < slots; i++)
        vm_host_slot_give(d, i);
    cr_assert_eq(vm_host_slot_take(d, &none), 0);
    free(at);
}
