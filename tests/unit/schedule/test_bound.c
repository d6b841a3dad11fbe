/* The lower bound against exhaustive search and against simulated schedules. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "bound.h"
#include "schedule.h"
#include "small.h"

struct tiny {
    struct vm_iteration it;
    uint64_t *offsets;
    struct vm_page_units u;
};

static void tiny_make(struct tiny *t, uint64_t seed, const struct small_shape *shape)
{
    struct vm_error why = {""};
    small_iteration(seed, shape, &t->it, &t->offsets);
    cr_assert_eq(vm_page_units_build(&t->it, t->offsets, SMALL_PAGE, &t->u, &why), VM_OK, "%s",
                 why.text);
}

static void tiny_free(struct tiny *t)
{
    vm_page_units_fini(&t->u);
    vm_iteration_fini(&t->it);
    free(t->offsets);
}

/* Is the time of an iteration under the best schedule that repeats ever below the bound, and how often
 * equal? */
Test(bound, exhaustive)
{
    static const struct small_shape shape = {4, 5, 1, 2, 3};
    unsigned cases = 0, equal = 0;

    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct tiny t;
        tiny_make(&t, seed, &shape);
        uint32_t work = (uint32_t)vm_page_units_work(&t.u, NULL), ticks = 1 + (uint32_t)(seed % 3);
        uint32_t peak = (uint32_t)vm_page_units_peak(&t.u);
        for (uint32_t cap = work; cap < peak; cap++) {
            struct vm_machine m = small_machine(ticks);
            struct vm_bound b;
            cr_assert_eq(vm_bound_build(&t.u, &m, cap, 0, &b), VM_OK);
            uint32_t best = small_cycle(&t.u, cap, ticks, 1, 20000);
            if (best == UINT32_MAX)
                continue;
            double bound = b.ns / SMALL_TICK;
            cr_assert(bound <= best + 1e-6, "seed %llu, %u pages, copy %u: bound %.2f, optimum %u",
                      (unsigned long long)seed, cap, ticks, bound, best);
            cases++;
            equal += bound > best - 1e-2;
        }
        tiny_free(&t);
    }
    printf("bound: %u small cases, equal to the optimum in %u\n", cases, equal);
    cr_assert_gt(cases, 100);
    cr_assert_geq(equal * 100, cases * 60);
}

/* With room for everything the search must find the ops alone: it can be believed. */
Test(bound, search_without_pressure)
{
    static const struct small_shape shape = {4, 5, 1, 2, 3};

    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct tiny t;
        tiny_make(&t, seed, &shape);
        uint32_t all = small_optimum(&t.u, (uint32_t)vm_page_units_peak(&t.u), 2, 1, 400000);
        double sum = 0;
        for (size_t k = 0; k < t.u.nops; k++)
            sum += (double)t.u.dur_ns[k] / SMALL_TICK;
        cr_assert_float_eq(all, sum, 1e-9, "seed %llu", (unsigned long long)seed);
        tiny_free(&t);
    }
}

/* A planted failure: the bound for one page less is not a bound, and the comparison notices. */
Test(bound, planted_failure)
{
    static const struct small_shape shape = {4, 5, 1, 2, 3};
    unsigned caught = 0;

    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct tiny t;
        tiny_make(&t, seed, &shape);
        uint32_t work = (uint32_t)vm_page_units_work(&t.u, NULL);
        uint32_t peak = (uint32_t)vm_page_units_peak(&t.u);
        struct vm_machine m = small_machine(2);
        struct vm_bound b;
        if (work + 1 <= peak && vm_bound_build(&t.u, &m, work, 0, &b) == VM_OK) {
            uint32_t best = small_cycle(&t.u, work + 1, 2, 1, 20000);
            caught += best != UINT32_MAX && b.ns / SMALL_TICK > best + 1e-6;
        }
        tiny_free(&t);
    }
    cr_assert_gt(caught, 10);
}

/* On larger iterations no simulated schedule is faster than the bound. */
Test(bound, below_simulation)
{
    unsigned cases = 0;

    for (uint64_t seed = 1; seed <= 120; seed++) {
        uint32_t pages = seed % 3 ? 5 : 40; /* more than may be copied while the op waits that uses them */
        struct small_shape shape = {10 + (uint32_t)(seed % 40), 12 + (uint32_t)(seed % 31), pages, 4, 6};
        struct tiny t;
        tiny_make(&t, seed, &shape);
        uint64_t work = vm_page_units_work(&t.u, NULL), peak = vm_page_units_peak(&t.u);
        for (uint64_t cap = work; cap <= peak; cap += 1 + (peak - work) / 4) {
            struct vm_machine m = small_machine(1 + (uint32_t)(seed % 3));
            m.unmap_waits = seed % 5 == 0;
            struct vm_schedule_options opt = {.capacity_pages = cap, .effort = 1};
            struct vm_schedule s;
            struct vm_bound b;
            struct vm_error why = {""};
            /* most as a caller in a hurry asks */
            cr_assert_eq(vm_bound_build(&t.u, &m, cap, seed % 8 ? 64 : 0, &b), VM_OK);
            cr_assert_eq(vm_schedule_build(&t.u, &m, &opt, &s, &why), VM_OK, "seed %llu cap %llu: %s",
                         (unsigned long long)seed, (unsigned long long)cap, why.text);
            cr_assert(s.sim.iteration_ns >= b.ns * (1 - 1e-9), "seed %llu, %llu pages: %.0f < %.0f",
                      (unsigned long long)seed, (unsigned long long)cap, s.sim.iteration_ns, b.ns);
            cr_assert_leq(s.sim.peak_pages, cap);
            vm_schedule_fini(&s);
            cases++;
        }
        tiny_free(&t);
    }
    printf("bound: %u simulated schedules, none below it\n", cases);
}

/* ---- what may be copied while an op waits -------------------------------------------------------*/

enum { HALF = 64 }; /* pages of a block; the device holds two of them */

struct asked_op {
    uint32_t nacc;
    struct vm_access acc[3];
};

/* Op 0 writes A; op 1 uses A and D, which has to come; op 2 fills the device with what dies after it; op 3 needs A
 * again, and fills the rest. A must leave before op 2: if it could be copied while op 1 waits for D, nothing would
 * wait for that. */
static void asked_make(struct tiny *t)
{
    enum { A, D, X, B, C, Y, NBLOCKS };
    static const uint32_t alloc_op[NBLOCKS] = {0, 0, 0, 2, 2, 3}, free_op[NBLOCKS] = {4, 4, 1, 3, 3, 4};
    static const struct asked_op ops[] = {
        {2, {{.block = A, .mode = VM_WRITE | VM_TOTAL}, {.block = X, .mode = VM_WRITE | VM_TOTAL}}},
        {2, {{.block = A, .mode = VM_READ}, {.block = D, .mode = VM_READ}}},
        {2, {{.block = B, .mode = VM_WRITE | VM_TOTAL}, {.block = C, .mode = VM_WRITE | VM_TOTAL}}},
        {2, {{.block = A, .mode = VM_READ}, {.block = Y, .mode = VM_WRITE | VM_TOTAL}}}};
    struct vm_error why = {""};

    *t = (struct tiny){.it = {.nops = 4, .nblocks = NBLOCKS}};
    t->it.ops = calloc(4, sizeof *t->it.ops);
    t->it.blocks = calloc(NBLOCKS, sizeof *t->it.blocks);
    t->it.accesses = calloc(12, sizeof *t->it.accesses);
    t->offsets = calloc(NBLOCKS, sizeof *t->offsets);
    for (uint32_t i = 0; i < NBLOCKS; i++) {
        t->it.blocks[i] = (struct vm_iter_block){.size = (uint64_t)HALF * SMALL_PAGE,
                                                 .fixed_offset = VM_UNPLACED,
                                                 .alloc_op = alloc_op[i],
                                                 .free_op = free_op[i],
                                                 .flags = i == D ? VM_BLK_PERSISTENT : 0};
        t->offsets[i] = (uint64_t)i * HALF * SMALL_PAGE;
    }
    for (uint32_t k = 0; k < 4; k++) {
        t->it.ops[k] = (struct vm_iter_op){
            .dur_ns = SMALL_TICK, .acc = (uint32_t)t->it.naccesses, .nacc = ops[k].nacc};
        for (uint32_t j = 0; j < ops[k].nacc; j++)
            t->it.accesses[t->it.naccesses++] = ops[k].acc[j];
    }
    cr_assert_eq(vm_page_units_build(&t->it, t->offsets, SMALL_PAGE, &t->u, &why), VM_OK, "%s", why.text);
}

/* The bound knows that the op's own pages do not leave while it waits: but for those that a copy or two may hold,
 * A costs its time on the link. Nor does it claim more than a schedule does. */
Test(bound, no_copy_of_what_the_op_that_waits_uses)
{
    struct vm_machine m = small_machine(1);
    struct vm_schedule_options opt = {.capacity_pages = 2 * HALF, .effort = 1};
    struct vm_schedule s;
    struct vm_bound knows, not;
    struct vm_error why = {""};
    struct tiny t;
    const double crossing = 2 * VM_COPY_PAGES;

    asked_make(&t);
    cr_assert_eq(vm_bound_build(&t.u, &m, 2 * HALF, 0, &knows), VM_OK);
    cr_assert_eq(vm_schedule_build(&t.u, &m, &opt, &s, &why), VM_OK, "%s", why.text);
    m.unmap_waits = 1; /* there the host may come too late for the rule */
    cr_assert_eq(vm_bound_build(&t.u, &m, 2 * HALF, 0, &not), VM_OK);
    printf("bound: ticks an iteration %.2f, without the rule %.2f, simulated %.2f\n", knows.ns / SMALL_TICK,
           not.ns / SMALL_TICK, s.sim.iteration_ns / SMALL_TICK);
    cr_assert_float_eq(not.ns / SMALL_TICK, 4 + 2 * HALF, 0.2);
    cr_assert_float_eq(knows.ns / SMALL_TICK, 4 + 3 * HALF - crossing, 0.2);
    cr_assert_geq(s.sim.iteration_ns, knows.ns);
    cr_assert_leq(s.sim.iteration_ns / SMALL_TICK, 4 + 3 * HALF + 1);
    vm_schedule_fini(&s);
    tiny_free(&t);
}
