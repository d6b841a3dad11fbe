#include <criterion/criterion.h>
#include <stdio.h>

#include "period.h"
#include "program.h"

/* Feeds event by event, as the recorder does. Every period reported on the way must be the right
 * one. Returns the position at which it was first found, 0 if never. */
static size_t found_at(const struct vm_trace *full, size_t right, size_t *wrong)
{
    struct vm_period_finder *f;
    struct vm_period now;
    size_t at = 0;
    struct vm_trace view = *full;
    *wrong = 0;
    cr_assert_eq(vm_period_finder_new(&f), VM_OK);
    for (size_t n = 1; n <= full->nevents; n++) {
        view.nevents = n;
        view.nblocks = 0;
        for (size_t b = 0; b < full->nblocks; b++) /* blocks are in order of their allocation */
            if (full->blocks[b].alloc_event < n)
                view.nblocks = b + 1;
            else
                break;
        int rc = vm_period_feed(f, &view, &now);
        cr_assert_geq(rc, 0);
        if (rc == VM_OK && now.ops != right)
            *wrong = now.ops;
        else if (rc == VM_OK && !at)
            at = now.found;
    }
    vm_period_finder_free(f);
    return at;
}

static void expect_within(struct program *p, unsigned iterations)
{
    struct vm_trace t = {0};
    size_t wrong;
    program_trace(p, &t);
    size_t at = found_at(&t, p->period, &wrong);
    if (wrong || at == 0 || at > p->ends[iterations - 1])
        program_print(p);
    cr_assert_eq(wrong, 0, "took %zu ops for the iteration, it is %zu", wrong, p->period);
    cr_assert_neq(at, 0, "never found");
    cr_assert_leq(at, p->ends[iterations - 1], "found at %zu, %u iterations end at %zu", at,
                  iterations, p->ends[iterations - 1]);
    vm_trace_fini(&t);
}

Test(period, plain_loop_is_found_in_two_iterations)
{
    struct program p = {.layers = 3, .steps = 1, .accumulate = 1, .iterations = 5};
    expect_within(&p, 2);
    p.upfront = true;
    expect_within(&p, 2);
}

Test(period, accumulated_gradient_is_not_taken_for_the_iteration)
{
    for (int upfront = 0; upfront < 2; upfront++)
        for (int quiet = 0; quiet < 2; quiet++)
            for (unsigned k = 2; k <= 16; k *= 2) {
                struct program p = {.layers = 4,
                                    .steps = 1,
                                    .accumulate = k,
                                    .iterations = 5,
                                    .upfront = upfront,
                                    .quiet = quiet,
                                    .first_differs = quiet};
                expect_within(&p, 3);
            }
}

Test(period, time_step_is_not_taken_for_the_iteration, .timeout = 60)
{
    for (int mode = 0; mode < 4; mode++) {
        struct program p = {.layers = 2,
                            .steps = 2048,
                            .accumulate = 1,
                            .iterations = 4,
                            .upfront = mode & 1,
                            .slices = mode & 2};
        expect_within(&p, 3);
    }
}

Test(period, drawn_programs_are_found_within_three_iterations, .timeout = 120)
{
    for (unsigned seed = 0; seed < 300; seed++) {
        struct program p;
        program_draw(&p, seed);
        expect_within(&p, 3);
    }
}

Test(period, untyped_programs_need_a_repeat_more)
{
    for (int upfront = 0; upfront < 2; upfront++) {
        struct program p = {.layers = 3,
                            .steps = 1,
                            .accumulate = 1,
                            .iterations = 6,
                            .upfront = upfront,
                            .unknown_all = true};
        expect_within(&p, 4);
    }
}

/* Kernels that count in 32 bits do a large tensor piece by piece, in equal launches. */
Test(period, pieces_of_one_tensor_are_not_taken_for_the_iteration)
{
    for (unsigned pieces = 8; pieces <= 128; pieces *= 2) {
        struct program p = {
            .layers = 8, .steps = 1, .accumulate = 1, .iterations = 5, .pieces = pieces};
        expect_within(&p, 3);
    }
}

/* Untyped kernels between typed products make maps look like weights: a micro-batch may be believed
 * once, but the finder leaves it for good and ends with the iteration. */
Test(period, stale_addresses_are_overlooked)
{
    for (unsigned seed = 1; seed <= 20; seed++) {
        struct program p = {.layers = 8,
                            .steps = 40,
                            .accumulate = 1,
                            .iterations = 6,
                            .stale = 200,
                            .seed = seed,
                            .unknown_all = true};
        expect_within(&p, 4);
    }
}

Test(period, false_start_is_left_behind)
{
    for (unsigned k = 2; k <= 12; k++) {
        struct program p = {.layers = 3,
                            .steps = 1,
                            .accumulate = k,
                            .iterations = 16,
                            .upfront = true,
                            .unknown_all = true};
        struct vm_trace t = {0};
        struct vm_period *runs;
        size_t n;
        program_trace(&p, &t);
        cr_assert_eq(vm_period_runs(&t, &runs, &n), VM_OK);
        cr_assert_gt(n, 0);
        if (runs[n - 1].ops != p.period)
            program_print(&p);
        cr_assert_eq(runs[n - 1].ops, p.period, "accumulate %u ends with %zu, not %zu", k,
                     runs[n - 1].ops, p.period);
        cr_assert_geq(runs[n - 1].repeats, 4);
        free(runs);
        vm_trace_fini(&t);
    }
}

/* The recorder begins anew when the program leaves a plan; what it knows goes with it. */
Test(period, distrust_outlives_the_finder)
{
    struct program p = {.layers = 3,
                        .steps = 1,
                        .accumulate = 4,
                        .iterations = 4,
                        .upfront = true,
                        .unknown_all = true};
    struct vm_trace t = {0};
    program_trace(&p, &t);
    for (int distrust = 0; distrust < 2; distrust++) {
        struct vm_period_finder *f;
        struct vm_period now;
        size_t first = 0;
        cr_assert_eq(vm_period_finder_new(&f), VM_OK);
        if (distrust)
            vm_period_distrust(f, p.micro_batch, 4);
        struct vm_trace view = t;
        for (view.nevents = 1; view.nevents <= t.nevents && !first; view.nevents++)
            if (vm_period_feed(f, &view, &now) == VM_OK)
                first = now.ops;
        cr_assert_eq(first, distrust ? p.period : p.micro_batch);
        vm_period_finder_free(f);
    }
    vm_trace_fini(&t);
}

Test(period, marks_win)
{
    /* marks around micro-batches: what the program says counts */
    struct vm_trace t = {0};
    struct program p = {.layers = 3, .steps = 1, .accumulate = 1, .iterations = 5, .marks = true};
    program_trace(&p, &t);
    struct vm_period_finder *f;
    struct vm_period now;
    cr_assert_eq(vm_period_finder_new(&f), VM_OK);
    cr_assert_eq(vm_period_feed(f, &t, &now), VM_OK);
    cr_assert_eq(now.ops, p.period);
    vm_period_finder_free(f);
    vm_trace_fini(&t);
}

Test(period, inference_has_no_iteration)
{
    struct vm_trace t = {0};
    uint32_t w, x, y;
    cr_assert_eq(vm_trace_add_block(&t, 1, 1 << 20, 0, &w), VM_OK);
    cr_assert_eq(vm_trace_add_block(&t, 2, 1 << 20, 0, &x), VM_OK);
    cr_assert_eq(vm_trace_add_block(&t, 3, 1 << 20, 0, &y), VM_OK);
    for (unsigned i = 0; i < 400; i++) {
        struct vm_event e = {.op_kind = VM_OP_COPY_HTOD, .sig = 1, .name = VM_NONE};
        struct vm_access a[3] = {{x, VM_WRITE | VM_TOTAL, 0, 0}};
        cr_assert_eq(vm_trace_add_op(&t, &e, a, 1, NULL), VM_OK);
        e = (struct vm_event){
            .op_kind = VM_OP_LAUNCH, .layer = VM_LAYER_GEMM, .sig = 2, .name = VM_NONE};
        a[0] = (struct vm_access){w, VM_READ, VM_ROLE_W, 0};
        a[1] = (struct vm_access){x, VM_READ, 0, 0};
        a[2] = (struct vm_access){y, VM_WRITE | VM_TOTAL, 0, 0};
        cr_assert_eq(vm_trace_add_op(&t, &e, a, 3, NULL), VM_OK);
    }
    struct vm_period *runs;
    size_t n;
    cr_assert_eq(vm_period_runs(&t, &runs, &n), VM_OK);
    cr_assert_eq(n, 0);
    free(runs);
    vm_trace_fini(&t);
}

/* Two input buffers taken in turn: the iteration that repeats is two of the program's. */
Test(period, alternating_buffers_double_the_period)
{
    struct vm_trace t = {0};
    uint32_t w, x[2];
    cr_assert_eq(vm_trace_add_block(&t, 1, 1 << 20, 0, &w), VM_OK);
    cr_assert_eq(vm_trace_add_block(&t, 2, 1 << 20, 0, &x[0]), VM_OK);
    cr_assert_eq(vm_trace_add_block(&t, 3, 1 << 20, 0, &x[1]), VM_OK);
    for (unsigned i = 0; i < 10; i++) {
        struct vm_event e = {.op_kind = VM_OP_COPY_HTOD, .sig = 1, .name = VM_NONE};
        struct vm_access a[2] = {{x[i % 2], VM_WRITE | VM_TOTAL, 0, 0}};
        cr_assert_eq(vm_trace_add_op(&t, &e, a, 1, NULL), VM_OK);
        e = (struct vm_event){
            .op_kind = VM_OP_LAUNCH, .layer = VM_LAYER_GEMM, .sig = 2, .name = VM_NONE};
        a[0].mode = VM_READ;
        a[1] = (struct vm_access){w, VM_READ, VM_ROLE_W, 0};
        cr_assert_eq(vm_trace_add_op(&t, &e, a, 2, NULL), VM_OK);
        e = (struct vm_event){
            .op_kind = VM_OP_LAUNCH, .layer = VM_LAYER_ELEMENTWISE, .sig = 3, .name = VM_NONE};
        a[1].mode = VM_RW;
        cr_assert_eq(vm_trace_add_op(&t, &e, &a[1], 1, NULL), VM_OK);
    }
    struct vm_period *runs;
    size_t n;
    cr_assert_eq(vm_period_runs(&t, &runs, &n), VM_OK);
    cr_assert_eq(n, 1);
    cr_assert_eq(runs[0].ops, 6);
    free(runs);
    vm_trace_fini(&t);
}

/* An evaluation between epochs: the run ends, and the same period is found again. */
Test(period, is_found_again_after_an_interruption)
{
    struct vm_trace t = {0};
    struct program p = {.layers = 3, .steps = 1, .accumulate = 1, .iterations = 6, .upfront = true};
    program_trace(&p, &t);
    struct vm_trace twice = {0};
    uint32_t b;
    for (size_t i = 0; i < t.nblocks; i++)
        cr_assert_eq(vm_trace_add_block(&twice, i, t.blocks[i].size, 0, &b), VM_OK);
    for (int round = 0; round < 2; round++)
        for (size_t i = 0; i < t.nevents; i++)
            if (t.events[i].kind == VM_EV_OP) {
                struct vm_event e = t.events[i];
                e.name = VM_NONE;
                cr_assert_eq(vm_trace_add_op(&twice, &e, t.accesses + e.acc, e.nacc, NULL), VM_OK);
            }
    struct vm_period *runs;
    size_t n;
    cr_assert_eq(vm_period_runs(&twice, &runs, &n), VM_OK);
    cr_assert_eq(n, 2);
    for (size_t i = 0; i < n; i++) {
        cr_assert_eq(runs[i].ops, p.period);
        cr_assert_geq(runs[i].repeats, 6);
    }
    free(runs);
    vm_trace_fini(&t);
    vm_trace_fini(&twice);
}
