/* Schedules: what their moves must keep, and how good they are where the answer is known. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bound.h"
#include "schedule.h"
#include "small.h"

/* A chain as a network trains: op k makes map k (pages each), the way back reads them in reverse. */
static void chain(struct vm_iteration *it, uint64_t **offsets, uint32_t layers, uint32_t pages,
                  uint64_t op_ns)
{
    uint32_t n = 2 * layers;

    memset(it, 0, sizeof *it);
    it->nops = n;
    it->nblocks = layers;
    it->ops = calloc(n, sizeof *it->ops);
    it->blocks = calloc(layers, sizeof *it->blocks);
    it->accesses = calloc(2 * n, sizeof *it->accesses);
    *offsets = calloc(layers, sizeof **offsets);
    for (uint32_t i = 0; i < layers; i++) {
        it->blocks[i] = (struct vm_iter_block){.size = (uint64_t)pages * SMALL_PAGE,
                                               .fixed_offset = VM_UNPLACED, .alloc_op = i,
                                               .free_op = n - i};
        (*offsets)[i] = (uint64_t)i * pages * SMALL_PAGE;
    }
    for (uint32_t k = 0; k < n; k++) {
        it->ops[k] = (struct vm_iter_op){.dur_ns = op_ns, .acc = (uint32_t)it->naccesses};
        uint32_t i = k < layers ? k : n - 1 - k;
        if (k < layers && k > 0)
            it->accesses[it->naccesses++] = (struct vm_access){.block = k - 1, .mode = VM_READ};
        it->accesses[it->naccesses++] =
            (struct vm_access){.block = i, .mode = k < layers ? VM_WRITE | VM_TOTAL : VM_READ};
        it->ops[k].nacc = (uint32_t)it->naccesses - it->ops[k].acc;
    }
}

struct made {
    struct vm_iteration it;
    uint64_t *offsets;
    struct vm_page_units u;
};

static void made_chain(struct made *c, uint32_t layers, uint32_t pages, uint64_t op_ns)
{
    struct vm_error why = {""};
    chain(&c->it, &c->offsets, layers, pages, op_ns);
    cr_assert_eq(vm_page_units_build(&c->it, c->offsets, SMALL_PAGE, &c->u, &why), VM_OK, "%s",
                 why.text);
}

static void made_free(struct made *c)
{
    vm_page_units_fini(&c->u);
    vm_iteration_fini(&c->it);
    free(c->offsets);
}

static struct vm_schedule plan(struct made *c, const struct vm_machine *m, uint64_t capacity)
{
    struct vm_schedule_options opt = {.capacity_pages = capacity, .effort = 1};
    struct vm_schedule s;
    struct vm_error why = {""};
    cr_assert_eq(vm_schedule_build(&c->u, m, &opt, &s, &why), VM_OK, "%s", why.text);
    return s;
}

/* A page takes a tick each way; an op that lasts as long as its map's copy hides every copy. */
Test(schedule, chain_hides_copies)
{
    struct made c;
    struct vm_machine m = small_machine(1);
    made_chain(&c, 20, 4, 5 * SMALL_TICK);
    struct vm_schedule s = plan(&c, &m, 40);
    cr_assert_geq(s.sim.out_pages, 40); /* 80 pages live at the turn, 40 fit */
    cr_assert(s.sim.iteration_ns <= 1.005 * s.sim.compute_ns, "%.0f against %.0f",
              s.sim.iteration_ns, s.sim.compute_ns);
    cr_assert_eq(s.sim.demand_pages, 0);
    vm_schedule_fini(&s);
    made_free(&c);
}

/* Where unmapping waits for the device, every page that leaves keeps it waiting while it is unmapped;
 * elsewhere the host does it meanwhile. */
Test(schedule, unmapping_that_waits_is_paid_between_ops)
{
    struct made c;
    struct vm_machine m = small_machine(1);
    made_chain(&c, 20, 4, 10 * SMALL_TICK);
    m.unmap_ns = SMALL_TICK / 2;
    struct vm_schedule s = plan(&c, &m, 40);
    cr_assert(s.sim.iteration_ns <= 1.005 * s.sim.compute_ns, "%.0f against %.0f",
              s.sim.iteration_ns, s.sim.compute_ns);
    vm_schedule_fini(&s);
    m.unmap_waits = true;
    s = plan(&c, &m, 40);
    double least = s.sim.compute_ns + (double)s.sim.out_pages * m.unmap_ns;
    cr_assert_geq(s.sim.out_pages, 40);
    cr_assert(s.sim.iteration_ns >= least && s.sim.iteration_ns <= 1.2 * least, "%.0f against %.0f",
              s.sim.iteration_ns, least);
    cr_assert_eq(s.sim.demand_pages, 0);
    vm_schedule_fini(&s);
    made_free(&c);
}

Test(schedule, moves_nothing_that_fits)
{
    struct made c;
    struct vm_machine m = small_machine(1);
    made_chain(&c, 12, 3, SMALL_TICK);
    struct vm_schedule s = plan(&c, &m, 36);
    cr_assert_eq(s.nmoves, 0);
    cr_assert_float_eq(s.sim.iteration_ns, s.sim.compute_ns, 1);
    vm_schedule_fini(&s);
    made_free(&c);
}

/* Where the link binds, the schedule stays within 5 % of the bound's stall or 2 % of the iteration. */
Test(schedule, chain_near_bound)
{
    for (uint32_t ticks = 2; ticks <= 6; ticks += 2)
        for (uint64_t cap = 64; cap <= 256; cap += 64) {
            struct made c;
            struct vm_machine m = small_machine(ticks);
            struct vm_bound b;
            made_chain(&c, 40, 8, 10 * SMALL_TICK);
            struct vm_schedule s = plan(&c, &m, cap);
            cr_assert_eq(vm_bound_build(&c.u, &m, cap, 0, &b), VM_OK);
            double over = s.sim.iteration_ns - b.ns, stall = b.ns - b.compute_ns;
            cr_assert(over <= 0.05 * stall || over <= 0.02 * s.sim.iteration_ns,
                      "copy %u, %llu pages: %.0f against a bound of %.0f", ticks,
                      (unsigned long long)cap, s.sim.iteration_ns, b.ns);
            vm_schedule_fini(&s);
            made_free(&c);
        }
}

#define LONG 5000 /* ticks: what the host runs ahead is short against it */

/* Weights of four pages: written by op 3, used by op 1 after a long op 0; in op 2 something else needs their
 * place. */
static void made_weights(struct made *c, uint8_t mode)
{
    static const uint64_t ticks[] = {20 * LONG, LONG, LONG, LONG};
    struct vm_error why = {""};

    memset(c, 0, sizeof *c);
    c->it.nops = 4;
    c->it.nblocks = 2;
    c->it.ops = calloc(4, sizeof *c->it.ops);
    c->it.blocks = calloc(2, sizeof *c->it.blocks);
    c->it.accesses = calloc(3, sizeof *c->it.accesses);
    c->offsets = calloc(2, sizeof *c->offsets);
    c->it.blocks[0] = (struct vm_iter_block){.size = 4 * SMALL_PAGE, .fixed_offset = VM_UNPLACED,
                                             .free_op = 4, .flags = VM_BLK_PERSISTENT,
                                             .alloc_ordinal = VM_NONE};
    c->it.blocks[1] = (struct vm_iter_block){.size = 4 * SMALL_PAGE, .fixed_offset = VM_UNPLACED,
                                             .alloc_op = 2, .free_op = 3};
    c->offsets[1] = 4 * SMALL_PAGE;
    for (uint32_t k = 0; k < 4; k++)
        c->it.ops[k] = (struct vm_iter_op){.dur_ns = ticks[k] * SMALL_TICK, .acc = k ? k - 1 : 0,
                                           .nacc = k > 0};
    c->it.accesses[0] = (struct vm_access){.block = 0, .mode = mode};
    c->it.accesses[1] = (struct vm_access){.block = 1, .mode = VM_WRITE | VM_TOTAL};
    c->it.accesses[2] = (struct vm_access){.block = 0, .mode = VM_RW};
    c->it.naccesses = 3;
    cr_assert_eq(vm_page_units_build(&c->it, c->offsets, SMALL_PAGE, &c->u, &why), VM_OK, "%s",
                 why.text);
}

/* The link is idle during op 0: the weights are copied then and stay, so that they make room at once later. */
Test(schedule, copies_early_what_is_to_leave_later)
{
    struct made c;
    struct vm_machine m = small_machine(LONG);
    struct vm_bound b;
    uint32_t copied = 0;

    made_weights(&c, VM_READ);
    struct vm_schedule s = plan(&c, &m, 4);
    for (size_t i = 0; i < s.nmoves; i++)
        if (s.moves[i].kind == VM_ACT_COPY) {
            cr_assert_eq(s.moves[i].op, 3);
            cr_assert_eq(s.moves[i].first + s.moves[i].npages, 4 - copied, "from the end downwards");
            copied += s.moves[i].npages;
        }
    cr_assert_eq(copied, 4, "%u, %.0f, %llu out", copied, s.sim.iteration_ns, (unsigned long long)s.sim.out_pages);
    cr_assert_eq(s.sim.out_pages, 4);
    cr_assert_eq(vm_bound_build(&c.u, &m, 4, 0, &b), VM_OK);
    cr_assert_float_eq(s.sim.iteration_ns / SMALL_TICK / LONG, 23 + 4, 0.01, "%.0f", s.sim.iteration_ns);
    cr_assert(b.ns <= s.sim.iteration_ns && b.ns > 0.99 * s.sim.iteration_ns, "%.0f", b.ns);
    vm_schedule_fini(&s);
    made_free(&c);
}

/* A copy that stays is of no use once the pages are written. */
Test(schedule, writes_make_copies_stale)
{
    for (unsigned written = 0; written < 2; written++) {
        struct made c;
        struct vm_machine m = small_machine(LONG);
        struct vm_sim_options so = {.capacity_pages = 4, .knows_dead = 1,
                                    .window_ns = SMALL_TICK};
        struct vm_sim_result r;
        made_weights(&c, written ? VM_RW : VM_READ);
        struct vm_move moves[] = {
            {.op = 1, .need_op = 2, .unit = 0, .use = 0, .npages = 4, .kind = VM_ACT_OUT},
            {.op = 2, .need_op = 3, .unit = 0, .use = 1, .npages = 4, .kind = VM_ACT_IN},
            {.op = 3, .need_op = 6, .unit = 0, .use = 1, .npages = 4, .kind = VM_ACT_COPY}};
        cr_assert_eq(vm_simulate(&c.u, &m, moves, 3, &so, &r, NULL, NULL), VM_OK);
        cr_assert_eq(r.out_pages, written ? 8 : 4, "%u: %llu out, %llu demand", written, (unsigned long long)r.out_pages, (unsigned long long)r.demand_pages);
        cr_assert_eq(r.in_pages, 4);
        cr_assert_eq(r.demand_pages, 0);
        made_free(&c);
    }
}

Test(schedule, says_what_does_not_fit)
{
    struct made c;
    struct vm_machine m = small_machine(1);
    struct vm_schedule_options opt = {.capacity_pages = 7};
    struct vm_schedule s;
    struct vm_error why = {""};
    made_chain(&c, 6, 4, SMALL_TICK);
    cr_assert_eq(vm_schedule_build(&c.u, &m, &opt, &s, &why), VM_UNFIT);
    cr_assert(strstr(why.text, "8 pages") && strstr(why.text, "7"), "%s", why.text);
    made_free(&c);
}

static void check_moves(const struct made *c, const struct vm_schedule *s, uint64_t seed)
{
    int64_t *gone = calloc(c->u.nuses + 1, sizeof *gone);

    for (size_t i = 0; i < s->nmoves; i++) {
        const struct vm_move *mv = &s->moves[i];
        const struct vm_page_unit *un = &c->u.units[mv->unit];
        cr_assert(i == 0 || s->moves[i - 1].op <= mv->op, "seed %llu", (unsigned long long)seed);
        cr_assert(i == 0 || s->moves[i - 1].op < mv->op || s->moves[i - 1].kind != VM_ACT_IN ||
                  mv->kind == VM_ACT_IN);
        cr_assert(mv->npages > 0 && mv->first + mv->npages <= un->npages);
        if (mv->use == VM_NONE)
            continue;
        if (mv->kind == VM_ACT_OUT)
            gone[mv->use] += mv->npages;
        if (mv->kind == VM_ACT_IN)
            gone[mv->use > un->use ? mv->use - 1 : un->use + un->nuses - 1] -= mv->npages;
    }
    for (size_t i = 0; i < c->u.nuses; i++)
        cr_assert_eq(gone[i], 0, "seed %llu: gap after use %zu: %lld pages do not come back",
                     (unsigned long long)seed, i, (long long)gone[i]);
    free(gone);
}

/* Random iterations: what goes comes back, nothing exceeds the budget, and no policy-free demand paging
 * is faster. Every other one where unmapping waits for the device. */
Test(schedule, random_iterations)
{
    unsigned cases = 0;

    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct small_shape shape = {8 + (uint32_t)(seed % 30), 10 + (uint32_t)(seed % 23), 6, 4, 5};
        struct made c;
        struct vm_error why = {""};
        small_iteration(seed, &shape, &c.it, &c.offsets);
        cr_assert_eq(vm_page_units_build(&c.it, c.offsets, SMALL_PAGE, &c.u, &why), VM_OK);
        uint64_t work = vm_page_units_work(&c.u, NULL), peak = vm_page_units_peak(&c.u);
        for (uint64_t cap = work; cap <= peak; cap += 1 + (peak - work) / 3) {
            struct vm_machine m = small_machine(1 + (uint32_t)(seed % 4));
            m.unmap_waits = cases % 2 == 1;
            m.unmap_ns = m.unmap_waits ? SMALL_TICK / 10 : 0;
            struct vm_sim_options lru = {.capacity_pages = cap, .rule = VM_DEMAND_LRU};
            struct vm_sim_result r;
            struct vm_schedule s = plan(&c, &m, cap);
            check_moves(&c, &s, seed);
            cr_assert_leq(s.sim.peak_pages, cap);
            cr_assert_eq(vm_simulate(&c.u, &m, NULL, 0, &lru, &r, NULL, NULL), VM_OK);
            cr_assert(s.sim.iteration_ns <= r.iteration_ns * 1.02, "seed %llu, %llu pages: %.0f, lru %.0f",
                      (unsigned long long)seed, (unsigned long long)cap, s.sim.iteration_ns,
                      r.iteration_ns);
            vm_schedule_fini(&s);
            cases++;
        }
        made_free(&c);
    }
    printf("schedule: %u random cases\n", cases);
}
