/* The simulator: what the host, the links and the memory do in small programs whose times are known. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "simulate.h"
#include "small.h"

enum { OP_NS = 10 * SMALL_TICK, COPY_NS = SMALL_TICK };

struct made {
    struct vm_iteration it;
    uint64_t *offsets;
    struct vm_page_units u;
};

/* nops ops of OP_NS; block i has pages[i] pages, one after another, is written by op first[i], read by op last[i],
 * freed after op freed[i]. */
struct program {
    uint32_t nops, nblocks;
    const uint32_t *pages, *first, *last, *freed;
};

static void make(const struct program *p, struct made *c)
{
    struct vm_error why = {""};
    uint64_t at = 0;

    memset(c, 0, sizeof *c);
    c->it.nops = p->nops;
    c->it.nblocks = p->nblocks;
    c->it.ops = calloc(p->nops, sizeof *c->it.ops);
    c->it.blocks = calloc(p->nblocks, sizeof *c->it.blocks);
    c->it.accesses = calloc((size_t)p->nops * p->nblocks, sizeof *c->it.accesses);
    c->offsets = calloc(p->nblocks, sizeof *c->offsets);
    for (uint32_t i = 0; i < p->nblocks; i++) {
        c->it.blocks[i] = (struct vm_iter_block){.size = (uint64_t)p->pages[i] * SMALL_PAGE,
                                                 .fixed_offset = VM_UNPLACED,
                                                 .alloc_op = p->first[i], .free_op = p->freed[i] + 1};
        c->offsets[i] = at;
        at += c->it.blocks[i].size;
    }
    for (uint32_t k = 0; k < p->nops; k++) {
        c->it.ops[k] = (struct vm_iter_op){.dur_ns = OP_NS, .acc = (uint32_t)c->it.naccesses};
        for (uint32_t i = 0; i < p->nblocks; i++)
            if (k == p->first[i] || k == p->last[i])
                c->it.accesses[c->it.naccesses++] = (struct vm_access){
                    .block = i, .mode = k == p->first[i] ? VM_WRITE | VM_TOTAL : VM_READ};
        c->it.ops[k].nacc = (uint32_t)c->it.naccesses - c->it.ops[k].acc;
    }
    cr_assert_eq(vm_page_units_build(&c->it, c->offsets, SMALL_PAGE, &c->u, &why), VM_OK, "%s", why.text);
}

static void made_free(struct made *c)
{
    vm_page_units_fini(&c->u);
    vm_iteration_fini(&c->it);
    free(c->offsets);
}

/* A block of four pages from op 0 to op 3, and ops between that need nothing. */
static void make_idle(struct made *c)
{
    static const uint32_t pages[] = {4}, first[] = {0}, last[] = {3}, freed[] = {3};
    struct program p = {4, 1, pages, first, last, freed};
    make(&p, c);
}

/* Simulates with `capacity` pages; the ops' starts go to start[] unless that is NULL. */
static struct vm_sim_result simulated(const struct made *c, const struct vm_machine *m, const struct vm_move *moves,
                                      size_t n, uint64_t capacity, double *start)
{
    struct vm_sim_options so = {.capacity_pages = capacity, .knows_dead = 1, .window_ns = OP_NS};
    struct vm_sim_result r;

    cr_assert_eq(vm_simulate(&c->u, m, moves, n, &so, &r, start, NULL), VM_OK);
    return r;
}

static double run(const struct made *c, const struct vm_machine *m, const struct vm_move *moves, size_t n,
                  double *out_done_ns)
{
    struct vm_sim_options so = {.capacity_pages = 4, .knows_dead = 1, .window_ns = OP_NS};
    struct vm_sim_result r;

    cr_assert_eq(vm_simulate(&c->u, m, moves, n, &so, &r, NULL, out_done_ns), VM_OK);
    return r.iteration_ns;
}

/* The host issues ahead, so its time for a call costs nothing; but it does once it has waited for the device. */
Test(simulate, a_host_that_waits_is_not_ahead)
{
    static const uint8_t flags[] = {0, VM_OPF_WAITED, VM_OPF_BLOCKS};
    struct vm_machine m = small_machine(1);

    m.call_ns = SMALL_TICK;
    for (size_t i = 0; i < sizeof flags; i++) {
        struct made c;
        make_idle(&c);
        c.u.op_flags[1] = flags[i];
        c.u.op_flags[3] = flags[i];
        double waits = flags[i] ? 2 * m.call_ns : 0;
        cr_assert_float_eq(run(&c, &m, NULL, 0, NULL), 4 * OP_NS + waits, 1, "flag %u", flags[i]);
        made_free(&c);
    }
}

/* A host that waits works on, moving pages; one that stands in a call starts no copy until it comes back. */
Test(simulate, a_call_that_blocks_starts_no_copies)
{
    static const uint8_t flags[] = {0, VM_OPF_WAITED, VM_OPF_BLOCKS};
    static const double done[] = {OP_NS + 4 * COPY_NS, OP_NS + 4 * COPY_NS, 2 * OP_NS + 4 * COPY_NS};
    struct vm_machine m = small_machine(1);

    for (size_t i = 0; i < sizeof flags; i++) {
        struct made c;
        double out_done[2];
        make_idle(&c);
        c.u.op_flags[1] = flags[i];
        struct vm_move moves[] = {
            {.op = 0, .need_op = 2, .unit = 0, .use = 0, .npages = 4, .kind = VM_ACT_OUT},
            {.op = 2, .need_op = 3, .unit = 0, .use = 1, .npages = 4, .kind = VM_ACT_IN}};
        run(&c, &m, moves, 2, out_done);
        cr_assert_float_eq(out_done[0], done[i], 1, "flag %u: %.0f", flags[i], out_done[0]);
        made_free(&c);
    }
}

/* The flags of the iteration's ops are those of its page units. */
Test(simulate, flags_come_from_the_ops)
{
    struct made c;
    struct vm_error why = {""};

    make_idle(&c);
    c.it.ops[1].flags = VM_OPF_BLOCKS | VM_OPF_PURE;
    c.it.ops[2].flags = VM_OPF_WAITED;
    vm_page_units_fini(&c.u);
    cr_assert_eq(vm_page_units_build(&c.it, c.offsets, SMALL_PAGE, &c.u, &why), VM_OK);
    cr_assert_eq(c.u.op_flags[0], 0);
    cr_assert_eq(c.u.op_flags[1], VM_OPF_BLOCKS);
    cr_assert_eq(c.u.op_flags[2], VM_OPF_WAITED);
    made_free(&c);
}

/* What was used last by op 1 gives its room to op 2 for nothing if it is freed between the two; later, its
 * contents must be copied first, for the runtime cannot know that nobody reads them. */
Test(simulate, contents_count_until_their_block_is_freed)
{
    static const uint32_t pages[] = {4, 4}, first[] = {0, 2}, last[] = {1, 3};
    static const uint32_t freed[][2] = {{1, 3}, {2, 3}};
    static const uint32_t lingers[] = {0, 1}, copied[] = {0, 4};

    for (unsigned late = 0; late < 2; late++) {
        struct program p = {4, 2, pages, first, last, freed[late]};
        struct vm_machine m = small_machine(1);
        struct vm_sim_options so = {.capacity_pages = 4, .rule = VM_DEMAND_LRU};
        struct vm_sim_result r;
        struct made c;
        m.unmap_waits = true;
        make(&p, &c);
        cr_assert_eq(c.u.nunits, 2);
        cr_assert_eq(c.u.units[0].linger, lingers[late]);
        cr_assert_eq(c.u.units[1].linger, 0);
        cr_assert_eq(vm_simulate(&c.u, &m, NULL, 0, &so, &r, NULL, NULL), VM_OK);
        cr_assert_eq(r.out_pages, copied[late], "freed after op %u: %llu", freed[late][0],
                     (unsigned long long)r.out_pages);
        cr_assert_eq(r.in_pages, 0);
        cr_assert_float_eq(r.iteration_ns, 4 * OP_NS + copied[late] * COPY_NS, 1);
        made_free(&c);
    }
}

/* Two pages leave for what op 2 makes, which waits for their copies and for a call that unmaps them; two dead ones
 * are unmapped for op 0. */
Test(simulate, unmapping_costs_its_call_and_its_pages)
{
    static const uint32_t pages[] = {4, 4}, first[] = {0, 2}, last[] = {1, 3}, freed[] = {3, 3};
    struct program p = {4, 2, pages, first, last, freed};
    struct vm_machine m = small_machine(1);
    struct vm_sim_options so = {.capacity_pages = 6, .rule = VM_DEMAND_LRU};
    struct vm_sim_result r;
    struct made c;

    m.unmap_ns = 100;
    m.unmap_call_ns = 700;
    m.unmap_waits = true;
    make(&p, &c);
    cr_assert_eq(vm_simulate(&c.u, &m, NULL, 0, &so, &r, NULL, NULL), VM_OK);
    cr_assert_eq(r.out_pages, 2);
    cr_assert_float_eq(r.iteration_ns, 4 * OP_NS + 2 * COPY_NS + m.unmap_call_ns + 4 * m.unmap_ns, 1, "%.0f",
                       r.iteration_ns);
    made_free(&c);
}

/* What op 2 makes waits for the chunks of a block that is freed and whose last op still runs: nothing leaves for it. */
Test(simulate, freed_blocks_are_room_that_is_coming)
{
    static const uint32_t pages[] = {4, 4, 4}, first[] = {0, 0, 2}, last[] = {1, 3, 3}, freed[] = {1, 3, 3};
    struct program p = {4, 3, pages, first, last, freed};

    for (unsigned waits = 0; waits < 2; waits++) {
        struct vm_machine m = small_machine(1);
        struct vm_sim_options so = {.capacity_pages = 8, .knows_dead = 1};
        struct vm_sim_result r;
        struct made c;
        m.unmap_waits = waits;
        make(&p, &c);
        cr_assert_eq(vm_simulate(&c.u, &m, NULL, 0, &so, &r, NULL, NULL), VM_OK);
        cr_assert_eq(r.out_pages, 0, "%u: %llu", waits, (unsigned long long)r.out_pages);
        cr_assert_float_eq(r.iteration_ns, 4 * OP_NS, 1, "%u: %.0f", waits, r.iteration_ns);
        made_free(&c);
    }
}

/* Where unmapping waits, a copy out carries as many pages as the executor's does: each has its fixed cost. */
Test(simulate, copies_out_are_as_long_as_the_executors)
{
    static const uint32_t pages[] = {VM_RUN_MOST + 1}, first[] = {0}, last[] = {9}, freed[] = {9};
    struct program p = {10, 1, pages, first, last, freed};
    struct vm_machine m = small_machine(1);
    struct vm_sim_options so = {.capacity_pages = VM_RUN_MOST + 1, .knows_dead = 1, .window_ns = OP_NS};
    struct vm_move moves[] = {
        {.op = 0, .need_op = 8, .unit = 0, .use = 0, .npages = VM_RUN_MOST + 1, .kind = VM_ACT_OUT},
        {.op = 8, .need_op = 9, .unit = 0, .use = 1, .npages = VM_RUN_MOST + 1, .kind = VM_ACT_IN}};
    struct vm_sim_result r;
    double done[2];
    struct made c;

    m.unmap_waits = true;
    m.copy_latency_ns = 100;
    make(&p, &c);
    cr_assert_eq(vm_simulate(&c.u, &m, moves, 2, &so, &r, NULL, done), VM_OK);
    cr_assert_float_eq(done[0], OP_NS + (VM_RUN_MOST + 1) * COPY_NS + 2 * m.copy_latency_ns, 1, "%.0f", done[0]);
    made_free(&c);
}

/* Op 4 makes a block on the chunks of one that is dead, while 16 pages come back for op 5, of which six are left:
 * the unmapping waits for the two that are issued, not for all. */
Test(simulate, unmapping_waits_for_few_of_the_pages_that_come)
{
    static const uint32_t pages[] = {16, 8, 8}, first[] = {0, 0, 4}, last[] = {5, 2, 5}, freed[] = {5, 2, 5};
    struct program p = {6, 3, pages, first, last, freed};
    struct vm_machine m = small_machine(1);
    struct vm_move moves[] = {
        {.op = 0, .need_op = 4, .unit = 0, .use = 0, .npages = 16, .kind = VM_ACT_OUT},
        {.op = 3, .need_op = 5, .unit = 0, .use = 1, .npages = 16, .kind = VM_ACT_IN}};
    struct made c;

    m.unmap_waits = true;
    make(&p, &c);
    cr_assert_eq(c.u.nunits, 3);
    struct vm_sim_result r = simulated(&c, &m, moves, 2, 24, NULL);
    cr_assert_eq(r.demand_pages, 0);
    cr_assert_float_eq(r.iteration_ns, 6 * OP_NS + VM_FLIGHTS * COPY_NS, 1, "%.0f", r.iteration_ns);
    made_free(&c);
}

/* Chunks were unmapped before op 4 for pages that come back for op 6. Two of them are in flight; of the chunks of the
 * others op 4, for which the device waits, takes what it needs and sends away nothing. */
Test(simulate, an_op_comes_before_fetches_for_later_ones)
{
    static const uint32_t pages[] = {16, 12, 12, 4}, first[] = {0, 0, 3, 4}, last[] = {6, 2, 6, 5};
    struct program p = {7, 4, pages, first, last, last};
    struct vm_machine m = small_machine(1);
    struct vm_move moves[] = {
        {.op = 0, .need_op = 3, .unit = 0, .use = 0, .npages = 16, .kind = VM_ACT_OUT},
        {.op = 3, .need_op = 6, .unit = 0, .use = 1, .npages = 16, .kind = VM_ACT_IN}};
    double start[7];
    struct made c;

    m.unmap_waits = true;
    make(&p, &c);
    struct vm_sim_result r = simulated(&c, &m, moves, 2, 28, start);
    cr_assert_eq(r.demand_pages, 0, "%llu", (unsigned long long)r.demand_pages);
    cr_assert_float_eq(start[4] - start[0], 4 * OP_NS, 1, "%.0f", start[4] - start[0]);
    cr_assert_float_eq(r.iteration_ns, 7 * OP_NS + 4 * COPY_NS, 1, "%.0f", r.iteration_ns);
    made_free(&c);
}

/* As above, but eight pages are on their way out as well, whose chunks would do for all: op 4 does not wait for them. */
Test(simulate, an_op_takes_free_chunks_though_others_are_coming)
{
    static const uint32_t pages[] = {16, 8, 4}, first[] = {0, 2, 4}, last[] = {6, 7, 5};
    struct program p = {8, 3, pages, first, last, last};
    struct vm_machine m = small_machine(1);
    struct vm_move moves[] = {
        {.op = 0, .need_op = 3, .unit = 0, .use = 0, .npages = 16, .kind = VM_ACT_OUT},
        {.op = 3, .need_op = 6, .unit = 0, .use = 1, .npages = 16, .kind = VM_ACT_IN},
        {.op = 3, .need_op = 7, .unit = 1, .use = 2, .npages = 8, .kind = VM_ACT_OUT}};
    double start[8];
    struct made c;

    m.unmap_waits = true;
    make(&p, &c);
    cr_assert_eq(c.u.units[1].use, 2);
    simulated(&c, &m, moves, 3, 26, start);
    cr_assert_float_eq(start[4] - start[3], OP_NS, 1, "%.0f", start[4] - start[3]);
    made_free(&c);
}

/* Op 5 waits for eight pages: four come at once, for the others four dead ones are unmapped. That comes after the
 * first four, so that the host maps all but the last of them while they come. */
Test(simulate, unmapping_comes_after_what_an_op_fetches)
{
    static const uint32_t pages[] = {8, 4, 4}, first[] = {0, 1, 2}, last[] = {5, 4, 3};
    struct program p = {6, 3, pages, first, last, last};
    struct vm_machine m = small_machine(1);
    struct vm_move moves[] = {
        {.op = 0, .need_op = 2, .unit = 0, .use = 0, .npages = 8, .kind = VM_ACT_OUT}};
    double start[6];
    struct made c;

    m.unmap_waits = true;
    m.map_ns = COPY_NS / 2;
    make(&p, &c);
    c.u.op_flags[4] = VM_OPF_BLOCKS;
    simulated(&c, &m, moves, 1, 12, start);
    cr_assert_float_eq(start[5] - start[4], OP_NS + 8 * COPY_NS + 2 * m.map_ns, 1, "%.0f", start[5] - start[4]);
    made_free(&c);
}

/* 16 pages come back for op 3 and leave 14 chunks, of which it needs 12 for what it makes. There
 * are enough, so it comes first: of the four pages that op 4 needs two take what it leaves, and
 * nothing is sent away. */
Test(simulate, fetches_leave_an_op_that_comes_first_its_room)
{
    static const uint32_t pages[] = {16, 4, 12}, first[] = {0, 1, 3}, last[] = {3, 4, 4};
    struct program p = {5, 3, pages, first, last, last};
    struct vm_machine m = small_machine(1);
    struct vm_move moves[] = {
        {.op = 0, .need_op = 2, .unit = 0, .use = 0, .npages = 16, .kind = VM_ACT_OUT},
        {.op = 1, .need_op = 2, .unit = 1, .use = 2, .npages = 4, .kind = VM_ACT_OUT},
        {.op = 2, .need_op = 3, .unit = 0, .use = 1, .npages = 16, .kind = VM_ACT_IN},
        {.op = 2, .need_op = 4, .unit = 1, .use = 3, .npages = 4, .kind = VM_ACT_IN}};
    double start[5];
    struct made c;

    make(&p, &c);
    struct vm_sim_result r = simulated(&c, &m, moves, 4, 30, start);
    cr_assert_eq(r.demand_pages, 0, "%llu", (unsigned long long)r.demand_pages);
    cr_assert_float_eq(start[3] - start[0], OP_NS + 32 * COPY_NS, 1, "%.0f", start[3] - start[0]);
    cr_assert_float_eq(start[4] - start[3], OP_NS + 2 * COPY_NS, 1, "%.0f", start[4] - start[3]);
    made_free(&c);
}

/* Op 3, whose call blocks, waits for eight pages that it fetches itself. The four of the schedule
 * begin only once it is issued, as the executor first looks what the op can take: so they come
 * after its call. */
Test(simulate, fetches_begin_after_an_op_that_waited_for_its_own)
{
    static const uint32_t pages[] = {4, 8}, first[] = {1, 1}, last[] = {4, 3};
    struct program p = {5, 2, pages, first, last, last};
    struct vm_machine m = small_machine(1);
    struct vm_move moves[] = {
        {.op = 1, .need_op = 2, .unit = 0, .use = 0, .npages = 4, .kind = VM_ACT_OUT},
        {.op = 1, .need_op = 2, .unit = 1, .use = 2, .npages = 8, .kind = VM_ACT_OUT},
        {.op = 2, .need_op = 4, .unit = 0, .use = 1, .npages = 4, .kind = VM_ACT_IN}};
    double start[5];
    struct made c;

    m.unmap_waits = true;
    make(&p, &c);
    c.u.op_flags[3] = VM_OPF_BLOCKS;
    struct vm_sim_result r = simulated(&c, &m, moves, 3, 12, start);
    cr_assert_eq(r.demand_pages, 8, "%llu", (unsigned long long)r.demand_pages);
    cr_assert_float_eq(start[4] - start[3], OP_NS + 4 * COPY_NS, 1, "%.0f", start[4] - start[3]);
    made_free(&c);
}

/* Op 4 makes a block on all chunks, and eight pages are coming for op 6. It waits for the two in
 * flight, which leave again; no more of them begin, though there are chunks. */
Test(simulate, no_fetch_for_later_begins_before_an_op_that_needs_all)
{
    static const uint32_t pages[] = {8, 12}, first[] = {2, 4}, last[] = {6, 5};
    struct program p = {7, 2, pages, first, last, last};
    struct vm_machine m = small_machine(1);
    struct vm_move moves[] = {
        {.op = 2, .need_op = 3, .unit = 0, .use = 0, .npages = 8, .kind = VM_ACT_OUT},
        {.op = 3, .need_op = 6, .unit = 0, .use = 1, .npages = 8, .kind = VM_ACT_IN}};
    double start[7];
    struct made c;

    m.unmap_waits = true;
    make(&p, &c);
    struct vm_sim_result r = simulated(&c, &m, moves, 2, 12, start);
    cr_assert_eq(r.in_pages, 8 + VM_FLIGHTS, "%llu", (unsigned long long)r.in_pages);
    cr_assert_float_eq(start[4] - start[3], OP_NS + VM_FLIGHTS * COPY_NS, 1, "%.0f",
                       start[4] - start[3]);
    made_free(&c);
}

/* Op 2 lacks chunks and nothing leaves, but the host is still busy with unmapping: the op comes
 * before the schedule's fetches only when that is over. The iterations settle so that op 2 waits
 * for no more than the unmapping; if it came first at once, each would send away pages that the
 * schedule brings. */
Test(simulate, fetches_come_first_while_the_host_unmaps)
{
    static const uint32_t pages[] = {8, 16}, first[] = {0, 2}, last[] = {4, 3};
    struct program p = {5, 2, pages, first, last, last};
    struct vm_machine m = small_machine(1);
    struct vm_move moves[] = {
        {.op = 0, .need_op = 1, .unit = 0, .use = 0, .npages = 8, .kind = VM_ACT_OUT},
        {.op = 1, .need_op = 4, .unit = 0, .use = 1, .npages = 8, .kind = VM_ACT_IN}};
    double start[5];
    struct made c;

    m.unmap_waits = true;
    m.unmap_ns = COPY_NS / 4;
    make(&p, &c);
    c.u.op_flags[0] = VM_OPF_BLOCKS;
    struct vm_sim_result r = simulated(&c, &m, moves, 2, 19, start);
    cr_assert_eq(r.demand_pages, 0, "%llu", (unsigned long long)r.demand_pages);
    cr_assert_float_eq(start[2] - start[1], OP_NS + 8 * m.unmap_ns, 1, "%.0f", start[2] - start[1]);
    made_free(&c);
}

/* Op 2 fetches eight pages: four dead ones are unmapped for the first four, four others leave for
 * the rest. Their copy begins after the unmapping: the copy out before it is long done, so that it
 * was not issued behind one. */
Test(simulate, a_copy_behind_nothing_waits_for_the_host)
{
    static const uint32_t pages[] = {4, 8, 8}, first[] = {0, 1, 0}, last[] = {1, 3, 2};
    struct program p = {4, 3, pages, first, last, last};
    struct vm_machine m = small_machine(1);
    double start[4];
    struct made c;

    m.unmap_ns = COPY_NS / 4;
    make(&p, &c);
    simulated(&c, &m, NULL, 0, 12, start);
    double wait = 2 * (4 * m.unmap_ns + 4 * COPY_NS);
    cr_assert_float_eq(start[2] - start[1], OP_NS + wait, 1, "%.0f", start[2] - start[1]);
    made_free(&c);
}

/* A page that was copied and stayed is read-only: an op that writes it pays for that, once the host is not ahead. One
 * that left and comes back for the op that writes it is not. */
Test(simulate, what_is_read_only_costs_before_it_is_written)
{
    static const uint32_t pages[] = {4}, first[] = {0}, last[] = {7};
    struct program p = {8, 1, pages, first, last, last};
    struct vm_machine m = small_machine(1);
    struct vm_sim_options so = {.capacity_pages = 4, .knows_dead = 1, .window_ns = OP_NS};
    struct vm_move moves[] = {
        {.op = 0, .need_op = 7, .unit = 0, .use = 0, .npages = 4, .kind = VM_ACT_COPY},
        {.op = 0, .need_op = 4, .unit = 0, .use = 0, .npages = 4, .kind = VM_ACT_OUT},
        {.op = 4, .need_op = 7, .unit = 0, .use = 1, .npages = 4, .kind = VM_ACT_IN}};

    m.access_ns = 100;
    m.access_call_ns = 300;
    m.unmap_waits = true;
    for (unsigned leaves = 0; leaves < 2; leaves++)
        for (unsigned written = 0; written < 2; written++) {
            struct vm_sim_result r;
            double start[8];
            struct made c;
            make(&p, &c);
            c.u.op_flags[6] = VM_OPF_BLOCKS;
            c.u.uses[1].flags |= written ? VM_PU_WRITE : 0;
            cr_assert_eq(vm_simulate(&c.u, &m, moves, leaves ? 3 : 1, &so, &r, start, NULL), VM_OK);
            double cost = written && !leaves ? 4 * m.access_ns + m.access_call_ns : 0;
            cr_assert_float_eq(start[7] - start[6], OP_NS + cost, 1, "%u %u: %.0f", leaves, written,
                               start[7] - start[6]);
            made_free(&c);
        }
}

/* Whoever only asks whether an iteration is short enough need not see it settle. */
Test(simulate, a_limit_ends_it_early)
{
    static const uint32_t pages[] = {3, 3}, first[] = {0, 1}, last[] = {2, 3}, freed[] = {2, 3};
    struct program p = {4, 2, pages, first, last, freed};
    struct vm_machine m = small_machine(100);
    struct vm_sim_options so = {.capacity_pages = 4, .knows_dead = 1, .window_ns = OP_NS};
    struct vm_sim_result all, r;
    struct made c;

    make(&p, &c);
    cr_assert_eq(vm_simulate(&c.u, &m, NULL, 0, &so, &all, NULL, NULL), VM_OK);
    cr_assert(all.iteration_ns > 4 * OP_NS && all.iterations > 2, "%.0f in %u", all.iteration_ns, all.iterations);
    so.limit_ns = 1.01 * all.iteration_ns;
    cr_assert_eq(vm_simulate(&c.u, &m, NULL, 0, &so, &r, NULL, NULL), VM_OK);
    cr_assert_eq(r.iterations, all.iterations);
    cr_assert_float_eq(r.iteration_ns, all.iteration_ns, 1);
    so.limit_ns = 0.9 * all.iteration_ns;
    cr_assert_eq(vm_simulate(&c.u, &m, NULL, 0, &so, &r, NULL, NULL), VM_OK);
    cr_assert_eq(r.iterations, 2);
    cr_assert_gt(r.iteration_ns, so.limit_ns);
    made_free(&c);
}
