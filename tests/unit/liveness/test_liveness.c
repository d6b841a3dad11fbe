#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "iteration.h"
#include "liveness.h"
#include "period.h"
#include "program.h"

static void iteration_of(struct program *p, struct vm_trace *t, struct vm_iteration *it)
{
    struct vm_period *runs;
    struct vm_error why;
    size_t n;
    program_trace(p, t);
    cr_assert_eq(vm_period_runs(t, &runs, &n), VM_OK);
    cr_assert_geq(n, 1);
    cr_assert_eq(vm_iteration_build(t, &runs[n - 1], it, &why), VM_OK, "%s", why.text);
    free(runs);
}

/* Live bytes while each op of the window ran, straight from the trace. A doubled iteration holds
 * the window twice. */
static void expect_alloc_curve(const struct vm_trace *t, const struct vm_iteration *it,
                               const struct vm_liveness *l)
{
    uint64_t live = 0;
    size_t j = 0, n = it->nops / it->periods;
    for (size_t b = 0; b < t->nblocks; b++)
        if (t->blocks[b].alloc_event == VM_NONE)
            live += t->blocks[b].size;
    for (size_t i = 0; i < t->nevents && j < n; i++) {
        if (t->events[i].kind == VM_EV_ALLOC) {
            live += t->blocks[t->events[i].block].size;
        } else if (t->events[i].kind == VM_EV_FREE) {
            live -= t->blocks[t->events[i].block].size;
        } else if (i == it->ops[j].event) {
            cr_assert_eq(live, l->alloc_bytes[j]);
            j++;
        }
    }
    cr_assert_eq(j, n);
    for (; j < it->nops; j++)
        cr_assert_eq(l->alloc_bytes[j], l->alloc_bytes[j - n]);
}

static const struct vm_access *access_to(const struct vm_iteration *it, size_t op, uint32_t block)
{
    for (uint32_t k = 0; k < it->ops[op].nacc; k++)
        if (it->accesses[it->ops[op].acc + k].block == block)
            return &it->accesses[it->ops[op].acc + k];
    return NULL;
}

/* Do the contents of `block` matter while op `i` runs? By the definition, walking op by op. */
static bool matters(const struct vm_iteration *it, uint32_t block, size_t i)
{
    const struct vm_iter_block *b = &it->blocks[block];
    bool persistent = b->flags & VM_BLK_PERSISTENT, wraps = b->flags & VM_BLK_WRAPS;
    if (access_to(it, i, block))
        return true;
    size_t now = wraps && i < b->alloc_op ? i + it->nops : i; /* time of this instance */
    if (!persistent && (now < b->alloc_op || now >= b->free_op))
        return false;
    bool used = persistent;
    for (size_t k = b->alloc_op; !persistent && k < now; k++)
        if (access_to(it, k % it->nops, block))
            used = true;
    if (!used)
        return false;
    size_t end = persistent ? now + it->nops + 1 : b->free_op;
    for (size_t k = now + 1; k < end; k++) {
        const struct vm_access *a = access_to(it, k % it->nops, block);
        if (a)
            return vm_mode_reads(a->mode);
    }
    return persistent; /* never used: nobody knows */
}

static void expect_live_curve(const struct vm_iteration *it, const struct vm_liveness *l)
{
    for (size_t i = 0; i < it->nops; i++) {
        uint64_t live = 0, work = 0;
        for (uint32_t b = 0; b < it->nblocks; b++) {
            live += matters(it, b, i) ? it->blocks[b].size : 0;
            work += access_to(it, i, b) ? it->blocks[b].size : 0;
        }
        cr_assert_eq(live, l->live_bytes[i], "op %zu of %zu: %lu, curve says %lu", i, it->nops,
                     (unsigned long)live, (unsigned long)l->live_bytes[i]);
        cr_assert_eq(work, l->work_bytes[i]);
    }
}

static void expect_gaps(const struct vm_iteration *it, const struct vm_liveness *l)
{
    for (size_t g = 0; g < l->ngaps; g++) {
        const struct vm_gap *gap = &l->gaps[g];
        cr_assert_lt(gap->from, gap->to);
        cr_assert(access_to(it, gap->from % it->nops, gap->block));
        cr_assert(access_to(it, gap->to % it->nops, gap->block));
        for (size_t i = (size_t)gap->from + 1; i < gap->to; i++)
            cr_assert_null(access_to(it, i % it->nops, gap->block));
        cr_assert(!gap->clean || gap->cold);
    }
}

static void expect_memory_order(const struct vm_iteration *it)
{
    uint32_t ordinal = 0, op = 0;
    unsigned *frees = calloc(it->nblocks + 1, sizeof *frees);
    for (size_t i = 0; i < it->nmem; i++) {
        const struct vm_iter_mem *m = &it->mem[i];
        cr_assert_lt(m->block, it->nblocks);
        cr_assert_geq(m->op, op);
        cr_assert_leq(m->op, it->nops);
        op = m->op;
        if (m->is_free)
            cr_assert_eq(++frees[m->block], 1);
        else
            cr_assert_eq(it->blocks[m->block].alloc_ordinal, ordinal++);
    }
    for (size_t b = 0; b < it->nblocks; b++)
        cr_assert_eq(frees[b], it->blocks[b].flags & VM_BLK_PERSISTENT ? 0 : 1,
                     "block %zu of %zu is freed %u times", b, it->nblocks, frees[b]);
    free(frees);
}

Test(iteration, drawn_programs_agree_with_a_walk_over_the_trace, .timeout = 120)
{
    unsigned wrapping = 0, doubled = 0;
    for (unsigned seed = 0; seed < 150; seed++) {
        struct program p;
        struct vm_trace t = {0};
        struct vm_iteration it;
        struct vm_liveness l;
        program_draw(&p, seed);
        p.steps = p.steps > 6 ? 6 : p.steps;
        iteration_of(&p, &t, &it);
        cr_assert_eq(it.nops, p.period * it.periods);
        doubled += it.periods == 2;
        cr_assert_eq(vm_liveness_build(&it, &l), VM_OK);
        expect_alloc_curve(&t, &it, &l);
        expect_live_curve(&it, &l);
        expect_gaps(&it, &l);
        expect_memory_order(&it);
        uint64_t least = UINT64_MAX, persistent = 0;
        for (size_t b = 0; b < it.nblocks; b++) {
            wrapping += (it.blocks[b].flags & VM_BLK_WRAPS) != 0 && !p.rebinds;
            cr_assert_leq(it.blocks[b].free_op, it.blocks[b].alloc_op + it.nops);
            if (it.blocks[b].flags & VM_BLK_PERSISTENT)
                persistent += it.blocks[b].size;
        }
        for (size_t i = 0; i < it.nops; i++)
            least = l.alloc_bytes[i] < least ? l.alloc_bytes[i] : least;
        cr_assert_leq(persistent, least);
        vm_liveness_fini(&l);
        vm_iteration_fini(&it);
        vm_trace_fini(&t);
    }
    cr_assert_eq(wrapping, 0, "but for rebinding, these programs have a place where nothing wraps");
    cr_assert_gt(doubled, 10, "too few blocks met their successors to prove anything");
}

static void add_op(struct vm_trace *t, unsigned kind, unsigned layer, uint64_t sig, uint64_t dur,
                   unsigned n, const struct vm_access *acc)
{
    struct vm_event e = {.op_kind = (uint8_t)kind,
                         .layer = (uint8_t)layer,
                         .sig = sig,
                         .dur_ns = dur,
                         .name = VM_NONE};
    cr_assert_eq(vm_trace_add_op(t, &e, acc, n, NULL), VM_OK);
}

/* A program that prefetches: the next input is allocated before the old one is freed, so that a
 * block crosses every place. The product takes 100 + i ns in iteration i. */
static void prefetching(struct vm_trace *t, unsigned iterations)
{
    uint32_t w, x, next, y;
    cr_assert_eq(vm_trace_add_block(t, 1, 1 << 20, 0, &w), VM_OK);
    cr_assert_eq(vm_trace_add_alloc(t, 2, 5000, 0, 0, 0, &x), VM_OK);
    add_op(t, VM_OP_COPY_HTOD, 0, 1, 50, 1, &(struct vm_access){x, VM_WRITE | VM_TOTAL, 0, 0});
    for (unsigned i = 0; i < iterations; i++) {
        cr_assert_eq(vm_trace_add_alloc(t, 1000 + 2 * i, 7000, 0, 0, 0, &y), VM_OK);
        struct vm_access a[3] = {
            {w, VM_READ, VM_ROLE_W, 0}, {x, VM_READ, 0, 0}, {y, VM_WRITE | VM_TOTAL, 0, 0}};
        add_op(t, VM_OP_LAUNCH, VM_LAYER_GEMM, 2, 100 + i, 3, a);
        cr_assert_eq(vm_trace_add_alloc(t, 1001 + 2 * i, 5000, 0, 0, 0, &next), VM_OK);
        add_op(t, VM_OP_COPY_HTOD, 0, 1, 50, 1,
               &(struct vm_access){next, VM_WRITE | VM_TOTAL, 0, 0});
        struct vm_access c[3] = {{w, VM_RW, 0, 0}, {y, VM_READ, 0, 0}, {x, VM_READ, 0, 0}};
        add_op(t, VM_OP_LAUNCH, VM_LAYER_ELEMENTWISE, 3, 70, 3, c);
        cr_assert_eq(vm_trace_add_free(t, y, 0, 0), VM_OK);
        cr_assert_eq(vm_trace_add_free(t, x, 0, 0), VM_OK);
        x = next;
    }
}

/* The same with the old input freed before the new one is used, but after it is allocated: the two
 * are alive together, so the iteration is doubled and each gets a place. */
Test(iteration, a_block_that_meets_its_successor_doubles_the_iteration)
{
    struct vm_trace t = {0};
    struct vm_iteration it;
    struct vm_liveness l;
    struct vm_period *runs;
    struct vm_error why;
    size_t n, wraps = 0;
    prefetching(&t, 8);
    cr_assert_eq(vm_period_runs(&t, &runs, &n), VM_OK);
    cr_assert_eq(n, 1);
    cr_assert_eq(runs[0].ops, 3);
    cr_assert_eq(vm_iteration_build(&t, &runs[0], &it, &why), VM_OK);
    cr_assert_eq(it.periods, 2);
    cr_assert_eq(it.nops, 6);
    cr_assert_eq(it.nblocks, 5, "a weight, two inputs, two outputs");
    for (size_t b = 0; b < it.nblocks; b++) {
        const struct vm_iter_block *k = &it.blocks[b];
        cr_assert_leq(k->free_op, k->alloc_op + it.nops);
        wraps += (k->flags & VM_BLK_WRAPS) != 0;
        cr_assert(!(k->flags & VM_BLK_WRAPS) || k->size == 5000);
    }
    cr_assert_eq(wraps, 1);
    cr_assert_eq(vm_liveness_build(&it, &l), VM_OK);
    expect_live_curve(&it, &l);
    expect_gaps(&it, &l);
    expect_memory_order(&it);
    for (size_t b = 1; b < it.nblocks; b++) {
        const struct vm_use *u = l.uses + l.first_use[b];
        cr_assert_eq(l.first_use[b + 1] - l.first_use[b], it.blocks[b].size == 5000 ? 3 : 2);
        cr_assert_eq(u[0].mode, VM_WRITE | VM_TOTAL, "each instance is written first");
    }
    /* both inputs are there while the update runs, and the curve counts them both */
    cr_assert_eq(l.peak_alloc, (1 << 20) + 7000 + 2 * 5000);
    vm_liveness_fini(&l);
    vm_iteration_fini(&it);
    free(runs);
    vm_trace_fini(&t);
}

/* Two iterations are all there is, and the first has no older input to free: what the second frees
 * belongs to the block that the first allocated. */
Test(iteration, two_iterations_are_enough)
{
    for (unsigned seed = 0; seed < 60; seed++) {
        struct program p;
        struct vm_trace t = {0};
        struct vm_iteration it;
        struct vm_liveness l;
        program_draw(&p, seed);
        p.steps = p.accumulate = 1;
        p.iterations = 2;
        p.first_differs = p.unknown_maps = false;
        p.rebinds = true;
        iteration_of(&p, &t, &it);
        cr_assert_eq(vm_liveness_build(&it, &l), VM_OK);
        expect_live_curve(&it, &l);
        expect_memory_order(&it);
        cr_assert_eq(it.periods, 2, "seed %u: an input meets the next", seed);
        for (size_t b = 0; b < it.nblocks; b++)
            if (it.blocks[b].alloc_ordinal != VM_NONE) /* not the one from before the loop */
                cr_assert_geq(l.first_use[b + 1] - l.first_use[b], 2, "a use is missing");
        vm_liveness_fini(&l);
        vm_iteration_fini(&it);
        vm_trace_fini(&t);
    }
}

/* A block that crosses every place but is gone before its successor comes wraps, once. */
Test(iteration, a_wrapping_block_is_one_block)
{
    struct vm_trace t = {0};
    struct vm_iteration it;
    struct vm_liveness l;
    struct vm_period *runs;
    struct vm_error why;
    uint32_t w, big, x = VM_NONE;
    size_t n, wraps = 0;
    cr_assert_eq(vm_trace_add_block(&t, 1, 1 << 20, 0, &w), VM_OK);
    for (unsigned i = 0; i < 8; i++) {
        struct vm_access a[3] = {{w, VM_READ, VM_ROLE_W, 0}, {x, VM_READ, 0, 0}};
        cr_assert_eq(vm_trace_add_alloc(&t, 100 + 2 * i, 9000, 0, 0, 0, &big), VM_OK);
        a[2] = (struct vm_access){big, VM_WRITE | VM_TOTAL, 0, 0};
        add_op(&t, VM_OP_LAUNCH, VM_LAYER_GEMM, 1, 10, 1, &a[2]);
        if (i) {
            add_op(&t, VM_OP_LAUNCH, VM_LAYER_GEMM, 2, 10, 2, a);
            cr_assert_eq(vm_trace_add_free(&t, x, 0, 0), VM_OK);
        }
        cr_assert_eq(vm_trace_add_alloc(&t, 101 + 2 * i, 5000, 0, 0, 0, &x), VM_OK);
        add_op(&t, VM_OP_LAUNCH, VM_LAYER_ELEMENTWISE, 3, 10, 1,
               &(struct vm_access){x, VM_WRITE | VM_TOTAL, 0, 0});
        cr_assert_eq(vm_trace_add_free(&t, big, 0, 0), VM_OK);
        add_op(&t, VM_OP_LAUNCH, VM_LAYER_ELEMENTWISE, 4, 10, 1,
               &(struct vm_access){w, VM_RW, 0, 0});
    }
    cr_assert_eq(vm_period_runs(&t, &runs, &n), VM_OK);
    cr_assert_eq(n, 1);
    cr_assert_eq(runs[0].ops, 4);
    cr_assert_eq(vm_iteration_build(&t, &runs[0], &it, &why), VM_OK);
    cr_assert_eq(it.periods, 1);
    cr_assert_eq(it.nblocks, 3);
    for (size_t b = 0; b < it.nblocks; b++)
        if (it.blocks[b].flags & VM_BLK_WRAPS) {
            wraps++;
            cr_assert_eq(it.blocks[b].size, 5000);
            cr_assert_gt(it.blocks[b].free_op, it.nops);
        }
    cr_assert_eq(wraps, 1);
    cr_assert_eq(vm_liveness_build(&it, &l), VM_OK);
    expect_live_curve(&it, &l);
    expect_gaps(&it, &l);
    vm_liveness_fini(&l);
    vm_iteration_fini(&it);
    free(runs);
    vm_trace_fini(&t);
}

/* The last blocks of an iteration go before the next one's input comes; before the first there are none
 * to go. Each block of the iteration is allocated and freed in it all the same. */
Test(iteration, the_first_iteration_follows_no_other)
{
    struct vm_trace t = {0};
    struct vm_iteration it;
    struct vm_period *runs;
    struct vm_error why;
    uint32_t w, x, y;
    size_t n, allocs = 0, frees = 0;
    cr_assert_eq(vm_trace_add_block(&t, 1, 1 << 20, 0, &w), VM_OK);
    add_op(&t, VM_OP_COPY_HTOD, 0, 9, 10, 1, &(struct vm_access){w, VM_WRITE | VM_TOTAL, 0, 0});
    for (unsigned i = 0; i < 2; i++) {
        cr_assert_eq(vm_trace_add_alloc(&t, 100 + 2 * i, 5000, 0, 0, 0, &x), VM_OK);
        add_op(&t, VM_OP_COPY_HTOD, 0, 1, 10, 1, &(struct vm_access){x, VM_WRITE | VM_TOTAL, 0, 0});
        cr_assert_eq(vm_trace_add_alloc(&t, 101 + 2 * i, 9000, 0, 0, 0, &y), VM_OK);
        struct vm_access a[3] = {
            {w, VM_READ, VM_ROLE_W, 0}, {x, VM_READ, 0, 0}, {y, VM_WRITE | VM_TOTAL, 0, 0}};
        add_op(&t, VM_OP_LAUNCH, VM_LAYER_GEMM, 2, 10, 3, a);
        struct vm_access c[2] = {{w, VM_RW, 0, 0}, {y, VM_READ, 0, 0}};
        add_op(&t, VM_OP_LAUNCH, VM_LAYER_ELEMENTWISE, 3, 10, 2, c);
        cr_assert_eq(vm_trace_add_free(&t, y, 0, 0), VM_OK);
        cr_assert_eq(vm_trace_add_free(&t, x, 0, 0), VM_OK);
    }
    cr_assert_eq(vm_period_runs(&t, &runs, &n), VM_OK);
    cr_assert_eq(n, 1);
    cr_assert_eq(vm_iteration_build(&t, &runs[0], &it, &why), VM_OK);
    cr_assert_eq(it.nblocks, 3);
    for (size_t i = 0; i < it.nmem; i++) {
        allocs += !it.mem[i].is_free;
        frees += it.mem[i].is_free;
    }
    cr_assert_eq(allocs, 2, "%zu allocations", allocs);
    cr_assert_eq(frees, 2, "%zu frees", frees);
    vm_iteration_fini(&it);
    free(runs);
    vm_trace_fini(&t);
}

/* The new input is allocated and the old one freed with no op between: they are alive together all the same. */
Test(iteration, successors_that_meet_between_two_ops)
{
    struct vm_trace t = {0};
    struct vm_iteration it;
    struct vm_period *runs;
    struct vm_error why;
    uint32_t w, x, next, y;
    size_t n, inputs = 0;
    cr_assert_eq(vm_trace_add_block(&t, 1, 1 << 20, 0, &w), VM_OK);
    cr_assert_eq(vm_trace_add_alloc(&t, 2, 5000, 0, 0, 0, &x), VM_OK);
    for (unsigned i = 0; i < 6; i++) {
        cr_assert_eq(vm_trace_add_alloc(&t, 1000 + 2 * i, 5000, 0, 0, 0, &next), VM_OK);
        cr_assert_eq(vm_trace_add_free(&t, x, 0, 0), VM_OK);
        add_op(&t, VM_OP_COPY_HTOD, 0, 1, 50, 1, &(struct vm_access){next, VM_WRITE | VM_TOTAL, 0, 0});
        cr_assert_eq(vm_trace_add_alloc(&t, 1001 + 2 * i, 7000, 0, 0, 0, &y), VM_OK);
        struct vm_access a[3] = {
            {w, VM_READ, VM_ROLE_W, 0}, {next, VM_READ, 0, 0}, {y, VM_WRITE | VM_TOTAL, 0, 0}};
        add_op(&t, VM_OP_LAUNCH, VM_LAYER_GEMM, 2, 100, 3, a);
        struct vm_access c[2] = {{w, VM_RW, 0, 0}, {y, VM_READ, 0, 0}};
        add_op(&t, VM_OP_LAUNCH, VM_LAYER_ELEMENTWISE, 3, 70, 2, c);
        cr_assert_eq(vm_trace_add_free(&t, y, 0, 0), VM_OK);
        x = next;
    }
    cr_assert_eq(vm_period_runs(&t, &runs, &n), VM_OK);
    cr_assert_eq(n, 1);
    cr_assert_eq(vm_iteration_build(&t, &runs[0], &it, &why), VM_OK);
    cr_assert_eq(it.periods, 2, "each of the two inputs needs a place of its own");
    for (size_t b = 0; b < it.nblocks; b++)
        inputs += it.blocks[b].size == 5000;
    cr_assert_eq(inputs, 2);
    expect_memory_order(&it);
    vm_iteration_fini(&it);
    free(runs);
    vm_trace_fini(&t);
}

Test(iteration, op_times_are_medians_of_the_repeats)
{
    struct vm_trace t = {0};
    struct vm_iteration it;
    struct vm_period *runs;
    struct vm_error why;
    size_t n;
    prefetching(&t, 9);
    cr_assert_eq(vm_period_runs(&t, &runs, &n), VM_OK);
    cr_assert_eq(vm_iteration_build(&t, &runs[0], &it, &why), VM_OK);
    for (size_t i = 0; i < it.nops; i++)
        if (it.ops[i].sig == 2)
            cr_assert(it.ops[i].dur_ns >= 103 && it.ops[i].dur_ns <= 105, "median is %lu",
                      (unsigned long)it.ops[i].dur_ns);
    cr_assert(it.duration_ns >= 223 * it.periods && it.duration_ns <= 225 * it.periods);
    vm_iteration_fini(&it);
    free(runs);
    vm_trace_fini(&t);
}

/* One repeat in which the host was seen to wait says it of the op; other flags are those of its own event. */
Test(iteration, waits_are_known_from_any_repeat)
{
    struct vm_trace t = {0};
    struct vm_iteration it;
    struct vm_period *runs;
    struct vm_error why;
    size_t n, seen = 0, waits = 0;
    prefetching(&t, 9);
    cr_assert_eq(vm_period_runs(&t, &runs, &n), VM_OK);
    for (size_t i = 0; i < t.nevents && seen < 7; i++)
        if (t.events[i].kind == VM_EV_OP && t.events[i].sig == 2 && ++seen == 7)
            t.events[i].flags |= VM_OPF_BLOCKS | VM_OPF_PURE;
    cr_assert_eq(seen, 7);
    cr_assert_eq(vm_iteration_build(&t, &runs[0], &it, &why), VM_OK);
    for (size_t i = 0; i < it.nops; i++) {
        bool blocks = it.ops[i].flags & VM_OPF_BLOCKS, pure = it.ops[i].flags & VM_OPF_PURE;
        cr_assert_eq(blocks, it.ops[i].sig == 2);
        cr_assert_eq(pure, (t.events[it.ops[i].event].flags & VM_OPF_PURE) != 0);
        waits += blocks;
    }
    cr_assert_eq(waits, it.periods);
    vm_iteration_fini(&it);
    free(runs);
    vm_trace_fini(&t);
}

/* An op that was measured nowhere takes the time of the same work elsewhere; unknown work stays unknown. */
Test(iteration, gaps_between_measured_times_are_filled)
{
    struct vm_trace t = {0};
    struct vm_iteration it;
    struct vm_error why;
    uint32_t w;
    static const uint64_t sigs[] = {7, 7, 8, 7, 9, 8, 7}, ns[] = {100, 0, 30, 104, 0, 0, 102};
    static const uint64_t filled[] = {100, 102, 30, 104, 0, 30, 102};
    cr_assert_eq(vm_trace_add_block(&t, 1, 4096, 0, &w), VM_OK);
    for (size_t i = 0; i < 7; i++)
        add_op(&t, VM_OP_LAUNCH, 0, sigs[i], ns[i], 1, &(struct vm_access){w, VM_RW, 0, 0});
    cr_assert_eq(vm_iteration_whole(&t, &it, &why), VM_OK);
    for (size_t i = 0; i < 7; i++)
        cr_assert_eq(it.ops[i].dur_ns, filled[i], "op %zu: %lu", i, (unsigned long)it.ops[i].dur_ns);
    vm_iteration_fini(&it);
    vm_trace_fini(&t);
}

Test(iteration, a_period_outside_the_trace_is_refused)
{
    struct vm_trace t = {0};
    struct vm_iteration it;
    struct vm_error why;
    struct vm_period bad[] = {{.ops = 0, .end = 3, .repeats = 2},
                              {.ops = 3, .end = 500, .repeats = 2},
                              {.ops = 20, .end = 24, .repeats = 2},
                              {.ops = SIZE_MAX, .end = 24, .repeats = 2}};
    prefetching(&t, 8);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        why.text[0] = 0;
        cr_assert_eq(vm_iteration_build(&t, &bad[i], &it, &why), VM_EINVAL);
        cr_assert_neq(why.text[0], 0);
    }
    vm_trace_fini(&t);
}

Test(iteration, a_whole_trace_keeps_what_was_there_and_never_went)
{
    struct vm_trace t = {0};
    struct vm_iteration it;
    struct vm_error why;
    uint32_t kept, given, made;
    cr_assert_eq(vm_iteration_whole(&t, &it, &why), VM_EINVAL);
    cr_assert_eq(vm_trace_add_block(&t, 1, 10, 0, &kept), VM_OK);
    cr_assert_eq(vm_trace_add_block(&t, 2, 20, 0, &given), VM_OK);
    add_op(&t, VM_OP_LAUNCH, 0, 1, 1, 1, &(struct vm_access){given, VM_READ, 0, 0});
    cr_assert_eq(vm_trace_add_free(&t, given, 0, 0), VM_OK);
    cr_assert_eq(vm_trace_add_alloc(&t, 3, 30, 0, 0, 0, &made), VM_OK);
    add_op(&t, VM_OP_LAUNCH, 0, 2, 1, 1, &(struct vm_access){made, VM_WRITE, 0, 0});
    cr_assert_eq(vm_iteration_whole(&t, &it, &why), VM_OK);
    cr_assert_eq(it.nblocks, 3);
    for (size_t b = 0; b < 3; b++) {
        const struct vm_iter_block *k = &it.blocks[b];
        cr_assert_eq(k->alloc_op, k->size == 30 ? 1 : 0);
        cr_assert_eq(k->free_op, k->size == 20 ? 1 : 2);
        cr_assert_eq(k->flags, k->size == 10 ? VM_BLK_PERSISTENT : 0);
    }
    vm_iteration_fini(&it);
    vm_trace_fini(&t);
}

/* one persistent block, written at 0, read at 2 and 4, changed at 6 */
Test(liveness, cold_dead_and_clean)
{
    struct vm_access acc[] = {
        {0, VM_WRITE | VM_TOTAL, 0, 0}, {0, VM_READ, 0, 0}, {0, VM_READ, 0, 0}, {0, VM_RW, 0, 0}};
    struct vm_iter_op ops[8] = {{0}};
    for (uint32_t i = 0; i < 4; i++) {
        ops[2 * i].acc = i;
        ops[2 * i].nacc = 1;
    }
    struct vm_iter_block block = {.size = 10, .free_op = 8, .flags = VM_BLK_PERSISTENT};
    struct vm_iteration it = {
        .ops = ops, .nops = 8, .accesses = acc, .naccesses = 4, .blocks = &block, .nblocks = 1};
    struct vm_liveness l;
    cr_assert_eq(vm_liveness_build(&it, &l), VM_OK);
    cr_assert_eq(l.ngaps, 4);
    cr_assert(l.gaps[0].cold && !l.gaps[0].clean, "written just before");
    cr_assert(l.gaps[1].cold && l.gaps[1].clean, "only read since the gap before");
    cr_assert(l.gaps[2].cold && l.gaps[2].clean);
    cr_assert(!l.gaps[3].cold, "overwritten in the next iteration");
    cr_assert_eq(l.gaps[3].to, 8);
    cr_assert_eq(l.live_bytes[3], 10);
    cr_assert_eq(l.live_bytes[7], 0);
    cr_assert_eq(vm_liveness_excess(&l, 4), 6);
    cr_assert_eq(vm_liveness_excess(&l, 10), 0);
    vm_liveness_fini(&l);
}

Test(liveness, a_partial_write_keeps_the_contents_alive)
{
    cr_assert(vm_mode_reads(VM_WRITE));
    cr_assert(!vm_mode_reads(VM_WRITE | VM_TOTAL));
    cr_assert(vm_mode_reads(VM_UNKNOWN) && vm_mode_writes(VM_UNKNOWN));
    cr_assert(!vm_mode_writes(VM_READ));
    cr_assert_eq(vm_mode_merge(VM_READ, VM_WRITE | VM_TOTAL), VM_RW);
    cr_assert_eq(vm_mode_merge(VM_WRITE | VM_TOTAL, VM_UNKNOWN), VM_WRITE | VM_UNKNOWN);
}

Test(liveness, working_set_in_pages_puts_small_blocks_together)
{
    struct vm_access acc[] = {{0, VM_READ, 0, 0}, {1, VM_READ, 0, 0}, {2, VM_WRITE, 0, 0}};
    struct vm_iter_op op = {.nacc = 3};
    struct vm_iter_block blocks[] = {{.size = 100}, {.size = 200}, {.size = 4097}};
    struct vm_iteration it = {
        .ops = &op, .nops = 1, .accesses = acc, .naccesses = 3, .blocks = blocks, .nblocks = 3};
    cr_assert_eq(vm_liveness_work_pages(&it, 4096), 3);
    cr_assert_eq(vm_liveness_work_pages(&it, 100), 1 + 2 + 41);
}
