/* The cost model learns a machine it is not told. */
#include <criterion/criterion.h>
#include <math.h>

#include "cost.h"
#include "small.h"

static struct vm_machine told(void)
{
    return (struct vm_machine){.page_bytes = 2 << 20, .out_bps = 10e9, .in_bps = 10e9,
                               .out_duplex_bps = 9e9, .in_duplex_bps = 8e9, .copy_latency_ns = 5000,
                               .map_ns = 1000, .access_ns = 3000, .unmap_ns = 2000};
}

Test(cost, keeps_what_it_was_told)
{
    struct vm_machine m = told(), n;
    struct vm_cost c;
    vm_cost_init(&c, &m);
    vm_cost_machine(&c, &n);
    cr_assert_float_eq(n.out_bps, m.out_bps, 1);
    cr_assert_float_eq(n.in_duplex_bps, m.in_duplex_bps, 1);
    cr_assert_float_eq(n.access_ns, m.access_ns, 1e-9);
}

Test(cost, learns_links_from_noisy_copies)
{
    struct vm_machine m = told(), n;
    struct vm_cost c;
    uint64_t seed = 7;
    vm_cost_init(&c, &m);
    for (int i = 0; i < 500; i++) {
        uint64_t bytes = (1 + small_random(&seed) % 8) << 21;
        double noise = 1 + ((double)(small_random(&seed) % 1000) / 1000 - 0.5) * 0.02;
        vm_cost_copy(&c, true, false, bytes, (12000 + (double)bytes / 12.8) * noise);
        vm_cost_copy(&c, true, true, bytes, (12000 + (double)bytes / 9.6) * noise);
        vm_cost_copy(&c, false, false, bytes, (12000 + (double)bytes / 11.0) * noise);
        vm_cost_map(&c, false, 1 + (uint64_t)i % 5, 40000.0 * (1 + i % 5));
        vm_cost_map(&c, true, 1 + (uint64_t)i % 5, 34000.0 * (1 + i % 5));
    }
    vm_cost_machine(&c, &n);
    cr_assert(fabs(n.out_bps / 12.8e9 - 1) < 0.02, "%.3g", n.out_bps);
    cr_assert(fabs(n.in_bps / 11.0e9 - 1) < 0.02, "%.3g", n.in_bps);
    cr_assert(fabs(n.in_duplex_bps / n.in_bps - 0.8) < 1e-6, "not seen: the share it was told");
    cr_assert(fabs(n.out_duplex_bps / 9.6e9 - 1) < 0.02, "%.3g", n.out_duplex_bps);
    cr_assert(fabs(n.map_ns + n.access_ns - 40000) < 400);
    cr_assert(fabs(n.unmap_ns - 34000) < 340);
}

/* One size of copy gives no intercept: the told latency is kept. */
Test(cost, one_size_of_copies)
{
    struct vm_machine m = told(), n;
    struct vm_cost c;
    vm_cost_init(&c, &m);
    for (int i = 0; i < 10; i++)
        vm_cost_copy(&c, true, false, 2 << 20, 5000 + (2 << 20) / 12.8);
    vm_cost_machine(&c, &n);
    cr_assert(fabs(n.out_bps / 12.8e9 - 1) < 1e-3, "%.4g", n.out_bps);
    cr_assert_float_eq(n.copy_latency_ns, 5000, 1);
}

/* Nor do sizes that are nearly the same, where each copy takes a little more or less for other reasons. */
Test(cost, sizes_of_copies_that_are_nearly_the_same)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct vm_machine m = told(), n;
        struct vm_cost c;
        uint64_t random = seed;
        vm_cost_init(&c, &m);
        for (int i = 0; i < 40; i++) {
            uint64_t bytes = (7 + small_random(&random) % 2) << 20;
            double noise = 1 + ((double)(small_random(&random) % 1000) / 1000 - 0.5) * 0.2;
            vm_cost_copy(&c, true, false, bytes, 5000 + (double)bytes / 12.8 * noise);
        }
        vm_cost_machine(&c, &n);
        cr_assert(fabs(n.out_bps / 12.8e9 - 1) < 0.05, "seed %d: %.4g", (int)seed, n.out_bps);
        cr_assert_float_eq(n.copy_latency_ns, 5000, 1);
    }
}

Test(cost, corrects_predictions)
{
    struct vm_machine m = told();
    struct vm_cost c;
    vm_cost_init(&c, &m);
    for (int i = 0; i < 12; i++) { /* ops take 1.1 of what was recorded; stalls 1.5 of what is predicted */
        cr_assert_eq(vm_cost_correct(&c, 100e6, 100e6, 110e6), VM_OK);
        cr_assert_eq(vm_cost_correct(&c, 150e6, 100e6, 110e6 + 75e6), VM_OK);
    }
    cr_assert(c.last_error < 1e-3, "%g", c.last_error);
    cr_assert(fabs(vm_cost_predict(&c, 120e6, 100e6) - 140e6) < 0.5e6);
    struct vm_machine n;
    vm_cost_machine(&c, &n);
    cr_assert_float_eq(n.out_bps, m.out_bps, 1, "a stall says nothing of the links");
}

/* A link that becomes three times as slow is noticed within twenty copies, however many went before. */
Test(cost, notices_another_speed)
{
    struct vm_machine m = told(), n;
    struct vm_cost c;
    vm_cost_init(&c, &m);
    for (int i = 0; i < 1000; i++)
        vm_cost_copy(&c, i % 2, false, 2 << 20, 5000 + (2 << 20) / 10.0);
    cr_assert(!vm_cost_strays(&c, &m, 0.1));
    for (int i = 0; i < 20; i++)
        vm_cost_copy(&c, false, true, 2 << 20, 5000 + (2 << 20) / 8.0 * 3);
    cr_assert(vm_cost_strays(&c, &m, 0.1));
    vm_cost_machine(&c, &n);
    cr_assert(fabs(n.in_duplex_bps / (8e9 / 3) - 1) < 0.02, "%.3g", n.in_duplex_bps);
    cr_assert_float_eq(n.out_bps, m.out_bps, 1e7, "the other direction is as it was");
    cr_assert(!vm_cost_strays(&c, &n, 0.1));
}

Test(cost, refuses_nonsense)
{
    struct vm_machine m = told();
    struct vm_cost c, before;
    vm_cost_init(&c, &m);
    before = c;
    cr_assert_eq(vm_cost_correct(&c, NAN, 1, 1), VM_EINVAL);
    cr_assert_eq(vm_cost_correct(&c, 1, 0, 1), VM_EINVAL);
    cr_assert_eq(vm_cost_correct(&c, 1, 2, 1), VM_EINVAL);
    cr_assert_eq(vm_cost_correct(&c, 2, 1, INFINITY), VM_EINVAL);
    vm_cost_copy(&c, true, false, 0, 5);
    vm_cost_copy(&c, true, true, 5, -1);
    vm_cost_map(&c, true, 1, NAN);
    cr_assert_arr_eq((char *)&c, (char *)&before, sizeof c);
    for (int i = 0; i < 50; i++)
        vm_cost_correct(&c, 1e6, 1e6, 1e12);
    cr_assert_leq(c.op_scale, 4.0);
}

/* What does not grow with the pages is the call's. */
Test(cost, a_call_has_a_price_of_its_own)
{
    struct vm_machine m = told(), n;
    struct vm_cost c;
    m.access_call_ns = 1000;
    m.unmap_call_ns = 2000;
    vm_cost_init(&c, &m);
    vm_cost_machine(&c, &n);
    cr_assert_float_eq(n.access_call_ns, 1000, 1e-9, "as told while nothing was measured");
    cr_assert_float_eq(n.unmap_call_ns, 2000, 1e-9);
    for (int i = 0; i < 40; i++) {
        vm_cost_map(&c, false, 1 + (uint64_t)i % 5, 7000 + 40000.0 * (1 + i % 5));
        vm_cost_map(&c, true, 1 + (uint64_t)i % 5, 90000 + 34000.0 * (1 + i % 5));
    }
    vm_cost_machine(&c, &n);
    cr_assert(fabs(n.map_ns + n.access_ns - 40000) < 400);
    cr_assert(fabs(n.access_call_ns - 7000) < 400, "%.0f", n.access_call_ns);
    cr_assert(fabs(n.unmap_ns - 34000) < 340);
    cr_assert(fabs(n.unmap_call_ns - 90000) < 900, "%.0f", n.unmap_call_ns);
}
