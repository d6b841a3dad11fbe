/* The liquid schedule: its whole pages leave room for every op, and its bound comes near what it found. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "fluid.h"
#include "small.h"

/* Pages at the start of each op if nothing were away. */
static void fill(const struct vm_page_units *u, int64_t *occ)
{
    uint32_t n = (uint32_t)u->nops;

    for (size_t i = 0; i < u->nunits; i++)
        for (uint32_t use = u->units[i].use; use < u->units[i].use + u->units[i].nuses; use++) {
            unsigned wraps;
            uint32_t next = vm_page_next_use(u, &u->units[i], use, &wraps), d = 1;
            if (next != VM_NONE && (u->uses[use].flags & VM_PU_LIVE_AFTER)) {
                d = (u->uses[next].op + n - u->uses[use].op) % n;
                d = d ? d : n;
            }
            for (uint32_t k = 0; k < d; k++)
                occ[(u->uses[use].op + k) % n] += u->units[i].npages;
        }
}

static void check(const struct vm_page_units *u, const struct vm_fluid *f, uint64_t cap, uint64_t seed)
{
    uint32_t n = (uint32_t)u->nops;
    int64_t *occ = calloc(n, sizeof *occ);

    fill(u, occ);
    for (size_t i = 0; i < f->count; i++) {
        const struct vm_eviction *e = &f->list[i];
        if (e->use == VM_NONE)
            continue;
        unsigned wraps;
        uint32_t next = vm_page_next_use(u, &u->units[e->unit], e->use, &wraps);
        uint32_t d = (u->uses[next].op + n - u->uses[e->use].op) % n;
        uint32_t back = u->uses[e->use].op + (d ? d : n) - e->lead;
        cr_assert(e->npages > 0 && e->need_op > u->uses[e->use].op && e->need_op < back);
        for (uint32_t k = e->need_op; k < back; k++)
            occ[k % n] -= e->npages;
    }
    for (uint32_t k = 0; k < n; k++)
        cr_assert_leq(occ[k], (int64_t)cap, "seed %llu: op %u finds %lld pages of %llu",
                      (unsigned long long)seed, k, (long long)occ[k], (unsigned long long)cap);
    free(occ);
}

Test(fluid, room_and_bound)
{
    unsigned cases = 0, near = 0;

    for (uint64_t seed = 1; seed <= 30; seed++) {
        struct small_shape shape = {8 + (uint32_t)(seed % 20), 10 + (uint32_t)(seed % 13), 6, 4, 5};
        struct vm_iteration it;
        uint64_t *offsets;
        struct vm_page_units u;
        struct vm_error why = {""};
        small_iteration(seed, &shape, &it, &offsets);
        cr_assert_eq(vm_page_units_build(&it, offsets, SMALL_PAGE, &u, &why), VM_OK, "%s", why.text);
        uint64_t work = vm_page_units_work(&u, NULL), peak = vm_page_units_peak(&u);
        for (uint64_t cap = work; cap < peak; cap += 1 + (peak - work) / 2) {
            struct vm_machine m = small_machine(1 + (uint32_t)(seed % 3));
            struct vm_fluid_options opt = {.terms = 100000, .iterations = 4000, .tolerance = 1e-4};
            struct vm_fluid f;
            cr_assert_eq(vm_fluid_solve(&u, &m, cap, &opt, &f), VM_OK);
            check(&u, &f, cap, seed);
            double all = f.found_ns;
            for (size_t k = 0; k < u.nops; k++)
                all += (double)u.dur_ns[k];
            near += f.found_ns - f.stall_ns < 0.05 * all && f.stall_ns - f.found_ns < 0.05 * all;
            cases++;
            vm_fluid_fini(&f);
        }
        vm_page_units_fini(&u);
        vm_iteration_fini(&it);
        free(offsets);
    }
    printf("fluid: %u cases, solved nearly in %u\n", cases, near);
    cr_assert_geq(near * 100, cases * 75);
}

Test(fluid, says_what_it_cannot)
{
    static const struct small_shape shape = {8, 6, 3, 3, 3};
    struct vm_iteration it;
    uint64_t *offsets;
    struct vm_page_units u;
    struct vm_error why = {""};
    struct vm_machine m = small_machine(1);
    struct vm_fluid_options opt = {.terms = 1000, .iterations = 10, .tolerance = 1e-4};
    struct vm_fluid f = {.count = 77};
    small_iteration(3, &shape, &it, &offsets);
    cr_assert_eq(vm_page_units_build(&it, offsets, SMALL_PAGE, &u, &why), VM_OK);
    cr_assert_eq(vm_fluid_solve(&u, &m, vm_page_units_work(&u, NULL) - 1, &opt, &f), VM_UNFIT);
    m.in_bps = 0;
    cr_assert_eq(vm_fluid_solve(&u, &m, 1000, &opt, &f), VM_EINVAL);
    cr_assert_eq(f.count, 77, "outputs are set only on success");
    vm_page_units_fini(&u);
    vm_iteration_fini(&it);
    free(offsets);
}
