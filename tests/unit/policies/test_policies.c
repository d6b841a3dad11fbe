/* Every policy on a small network: a chain of convolutions and pools with roles, as cuDNN calls give it. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "explain.h"
#include "policy.h"
#include "sweep.h"

enum { PAGE = 4096, LAYERS = 10, PAGES = 16 };

/* Layer i reads map i and makes map i + 1; every third is a pool. Backward: layer i reads map i and the
 * gradient of map i + 1, makes the gradient of map i. */
static struct vm_iteration network(bool roles)
{
    struct vm_iteration it = {.nops = 2 * LAYERS, .nblocks = 2 * (LAYERS + 1)};

    it.ops = calloc(it.nops, sizeof *it.ops);
    it.blocks = calloc(it.nblocks, sizeof *it.blocks);
    it.accesses = calloc(4 * it.nops, sizeof *it.accesses);
    for (uint32_t i = 0; i <= LAYERS; i++) {
        uint32_t dies = i < LAYERS ? 2 * LAYERS - i : LAYERS + 1;
        it.blocks[i] = (struct vm_iter_block){.size = PAGES * PAGE, .fixed_offset = VM_UNPLACED,
                                              .alloc_op = i ? i - 1 : 0, .free_op = dies};
        uint32_t made = i < LAYERS ? 2 * LAYERS - 1 - i : LAYERS;
        it.blocks[LAYERS + 1 + i] =
            (struct vm_iter_block){.size = PAGES * PAGE, .fixed_offset = VM_UNPLACED, .alloc_op = made,
                                   .free_op = made + 2 < it.nops ? made + 2 : (uint32_t)it.nops};
    }
    for (uint32_t k = 0; k < it.nops; k++) {
        uint32_t i = k < LAYERS ? k : 2 * LAYERS - 1 - k;
        bool back = k >= LAYERS;
        struct vm_access *a = &it.accesses[it.naccesses];
        it.ops[k] = (struct vm_iter_op){
            .sig = 100 + k, .dur_ns = 400000, .acc = (uint32_t)it.naccesses, .nacc = back ? 3 : 2,
            .kind = VM_OP_LAUNCH,
            .layer = roles ? (i % 3 == 2 ? VM_LAYER_POOL : VM_LAYER_CONV) : VM_LAYER_NONE,
            .flags = (uint8_t)(!roles ? 0 : VM_OPF_CALL_BEGIN | (back ? VM_OPF_BACKWARD : VM_OPF_FORWARD))};
        a[0] = (struct vm_access){.block = i, .mode = VM_READ, .role = roles ? VM_ROLE_X : 0};
        a[1] = (struct vm_access){.block = back ? LAYERS + 2 + i : i + 1,
                                  .mode = back ? VM_READ : VM_WRITE | VM_TOTAL,
                                  .role = roles ? (back ? VM_ROLE_DY : VM_ROLE_Y) : 0};
        if (back)
            a[2] = (struct vm_access){.block = LAYERS + 1 + i, .mode = VM_WRITE | VM_TOTAL,
                                      .role = roles ? VM_ROLE_DX : 0};
        it.naccesses += back ? 3 : 2;
    }
    return it;
}

static struct vm_machine machine(uint64_t pages)
{
    return (struct vm_machine){.device_bytes = pages * PAGE, .host_bytes = UINT64_MAX / 2,
                               .page_bytes = PAGE, .out_bps = 1e9, .in_bps = 1e9,
                               .out_duplex_bps = 0.9e9, .in_duplex_bps = 0.9e9};
}

static int make(const char *name, const struct vm_iteration *it, const struct vm_machine *m,
                struct vm_plan *p, struct vm_error *why)
{
    struct vm_policy_input in = {it, m, 0};
    const struct vm_policy *policy = vm_policy_find(name);
    cr_assert_not_null(policy, "%s", name);
    why->text[0] = '\0';
    return policy->plan(&in, p, why);
}

Test(policies, registry)
{
    unsigned n = 0;
    for (; vm_policy_all()[n]; n++) {
        const struct vm_policy *p = vm_policy_all()[n];
        cr_assert_eq(vm_policy_find(p->name), p);
        cr_assert(strlen(p->summary) > 10);
        cr_assert_eq(p->changes_sum, 0);
    }
    cr_assert_eq(n, 7);
    cr_assert_null(vm_policy_find("vdnn"));
    cr_assert_str_eq(vm_policy_all()[0]->name, "auto");
}

Test(policies, all_plan_what_fits)
{
    struct vm_iteration it = network(true);
    struct vm_machine m = machine(PAGES * 2 * (LAYERS + 1));
    for (unsigned i = 0; vm_policy_all()[i]; i++) {
        struct vm_plan p;
        struct vm_error why;
        cr_assert_eq(make(vm_policy_all()[i]->name, &it, &m, &p, &why), VM_OK, "%s", why.text);
        cr_assert_str_eq(p.policy, vm_policy_all()[i]->name);
        cr_assert_eq(p.nops, it.nops);
        cr_assert_eq(p.sigs[3], 103);
        cr_assert_eq(p.nblocks, it.nblocks);
        cr_assert_eq(p.compute_ns, 400000u * it.nops);
        bool moves = !strcmp(p.policy, "vdnn-all") || !strcmp(p.policy, "vdnn-conv");
        cr_assert_eq(p.nactions > 0, moves, "%s: %zu actions", p.policy, p.nactions);
        vm_plan_fini(&p);
    }
    vm_iteration_fini(&it);
}

Test(policies, pool_says_what_is_missing)
{
    struct vm_iteration it = network(true);
    struct vm_machine m = machine(PAGES * 5);
    struct vm_plan p;
    struct vm_error why;
    cr_assert_eq(make("pool", &it, &m, &p, &why), VM_UNFIT);
    cr_assert(strstr(why.text, "auto"), "%s", why.text);
    m.page_bytes = 3000;
    cr_assert_eq(make("auto", &it, &m, &p, &why), VM_EINVAL);
    m = machine(PAGES * 5);
    m.in_bps = 0;
    cr_assert_eq(make("auto", &it, &m, &p, &why), VM_EINVAL);
    cr_assert(strstr(why.text, "link"), "%s", why.text);
    m = machine(PAGES * 2);
    cr_assert_eq(make("auto", &it, &m, &p, &why), VM_UNFIT);
    vm_iteration_fini(&it);
}

static const struct vm_plan_action *action_of(const struct vm_plan *p, uint32_t block, int kind)
{
    uint64_t page = p->blocks[block].offset / p->page_bytes;
    for (size_t i = 0; i < p->nactions; i++)
        if (p->actions[i].kind == kind && p->actions[i].page <= page &&
            page < p->actions[i].page + p->actions[i].npages &&
            (kind == VM_ACT_IN ? p->actions[i].need_op >= p->blocks[block].alloc_op
                               : p->actions[i].op >= p->blocks[block].alloc_op) &&
            p->actions[i].op < p->blocks[block].free_op)
            return &p->actions[i];
    return NULL;
}

/* The paper's rules: X leaves after its last forward consumer; when layer m begins backward, the first
 * X below it that is away is fetched, and a convolution that is not away ends the search. */
Test(policies, vdnn_all_rules)
{
    struct vm_iteration it = network(true);
    struct vm_machine m = machine(PAGES * 2 * (LAYERS + 1));
    struct vm_plan p;
    struct vm_error why;
    cr_assert_eq(make("vdnn-all", &it, &m, &p, &why), VM_OK, "%s", why.text);
    cr_assert_str_empty(why.text);
    for (uint32_t i = 0; i + 2 < LAYERS; i++) {
        const struct vm_plan_action *out = action_of(&p, i, VM_ACT_OUT);
        const struct vm_plan_action *in = action_of(&p, i, VM_ACT_IN);
        cr_assert(out && in, "X of layer %u moves", i);
        cr_assert_eq(out->op, i);
        cr_assert_eq(out->reason, VM_WHY_RULE);
        cr_assert_eq(in->need_op, 2 * LAYERS - 1 - i);
        /* layer i + 1 begins backward one op before */
        cr_assert_eq(in->op, 2 * LAYERS - 2 - i, "X of layer %u comes from op %u", i, in->op);
    }
    vm_plan_fini(&p);
    cr_assert_eq(make("vdnn-conv", &it, &m, &p, &why), VM_OK);
    for (uint32_t i = 0; i + 2 < LAYERS; i++)
        cr_assert_eq(action_of(&p, i, VM_ACT_OUT) != NULL, i % 3 != 2, "layer %u", i);
    vm_plan_fini(&p);
    vm_iteration_fini(&it);
}

Test(policies, vdnn_without_roles_says_so)
{
    struct vm_iteration it = network(false);
    struct vm_machine m = machine(PAGES * 8);
    struct vm_plan p;
    struct vm_error why;
    cr_assert_eq(make("vdnn-all", &it, &m, &p, &why), VM_OK, "%s", why.text);
    cr_assert(strstr(why.text, "no layers"), "%s", why.text);
    cr_assert_gt(p.nactions, 0);
    vm_plan_fini(&p);
    vm_iteration_fini(&it);
}

/* vdnn-dyn takes the first of nothing, conv, all that runs without demand paging. */
Test(policies, vdnn_dyn_keeps_what_fits)
{
    struct vm_iteration it = network(true);
    struct vm_plan p, all;
    struct vm_error why;
    struct vm_machine m = machine(PAGES * 2 * (LAYERS + 1));
    cr_assert_eq(make("vdnn-dyn", &it, &m, &p, &why), VM_OK);
    cr_assert_eq(p.nactions, 0);
    vm_plan_fini(&p);
    m = machine(PAGES * 5);
    cr_assert_eq(make("vdnn-dyn", &it, &m, &p, &why), VM_OK);
    cr_assert_eq(make("vdnn-all", &it, &m, &all, &why), VM_OK);
    cr_assert_gt(p.nactions, 0);
    cr_assert_leq(p.nactions, all.nactions);
    vm_plan_fini(&p);
    vm_plan_fini(&all);
    vm_iteration_fini(&it);
}

Test(policies, auto_is_never_slower)
{
    struct vm_iteration it = network(true);
    static const char *const others[] = {"lru", "vdnn-all", "vdnn-conv", "vdnn-dyn"};
    for (uint64_t pages = 3 * PAGES; pages <= 12 * PAGES; pages += PAGES / 2) {
        struct vm_machine m = machine(pages);
        struct vm_plan mine, p;
        struct vm_error why;
        cr_assert_eq(make("auto", &it, &m, &mine, &why), VM_OK, "%s", why.text);
        cr_assert_geq(mine.predicted_ns + 1, mine.bound_ns);
        for (size_t i = 0; i < 4; i++) {
            cr_assert_eq(make(others[i], &it, &m, &p, &why), VM_OK, "%s", why.text);
            cr_assert((double)mine.predicted_ns <= (double)p.predicted_ns * 1.001, "%llu pages: %llu, %s %llu",
                      (unsigned long long)pages, (unsigned long long)mine.predicted_ns, others[i],
                      (unsigned long long)p.predicted_ns);
            vm_plan_fini(&p);
        }
        vm_plan_fini(&mine);
    }
    vm_iteration_fini(&it);
}

/* ---- explanation and sweep ------------------------------------------------------------------- */

struct text {
    char *s;
    size_t n;
};

static int collect(void *arg, const char *s, size_t n)
{
    struct text *t = arg;
    t->s = realloc(t->s, t->n + n + 1);
    memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = '\0';
    return 0;
}

static int refuse(void *arg, const char *s, size_t n)
{
    (void)arg;
    (void)s;
    (void)n;
    return VM_EIO;
}

Test(policies, explains_every_block)
{
    struct vm_iteration it = network(true);
    struct vm_machine m = machine(PAGES * 6);
    struct vm_plan p;
    struct vm_error why;
    struct text t = {NULL, 0};
    cr_assert_eq(make("auto", &it, &m, &p, &why), VM_OK);
    cr_assert_eq(vm_plan_explain(&p, &it, &m, collect, &t), VM_OK);
    for (uint32_t i = 0; i < it.nblocks; i++) {
        char line[32];
        snprintf(line, sizeof line, "block %u, ", i);
        cr_assert_not_null(strstr(t.s, line), "%s is not explained", line);
    }
    cr_assert(strstr(t.s, "binds: "));
    cr_assert(strstr(t.s, "goes after op") && strstr(t.s, "stays"));
    cr_assert(strstr(t.s, "capacity: what lives meanwhile exceeds the budget"));
    cr_assert_null(strstr(t.s, "no reason recorded"));
    cr_assert_eq(vm_plan_explain(&p, &it, &m, refuse, NULL), VM_EIO);
    it.nops--;
    cr_assert_eq(vm_plan_explain(&p, &it, &m, collect, &t), VM_EINVAL);
    it.nops++;
    free(t.s);
    vm_plan_fini(&p);
    vm_iteration_fini(&it);
}

struct rows {
    unsigned n, unfit, autos;
    uint64_t last_auto;
};

static int row(void *arg, const struct vm_sweep_row *r)
{
    struct rows *rows = arg;
    rows->n++;
    rows->unfit += r->rc == VM_UNFIT;
    if (r->rc == 0)
        cr_assert_geq(r->predicted_ns + 1, r->bound_ns, "%s at %.2f", r->policy->name, r->fraction);
    if (!strcmp(r->policy->name, "auto") && r->rc == 0) {
        cr_assert((double)r->predicted_ns >= (double)rows->last_auto * 0.98, "less memory cannot be faster");
        rows->last_auto = r->predicted_ns;
        rows->autos++;
    }
    return 0;
}

Test(policies, sweep)
{
    struct vm_iteration it = network(true);
    struct vm_machine m = machine(1);
    static const double fractions[] = {1.0, 0.7, 0.5, 0.4, 0.1};
    struct rows rows = {0};
    struct vm_error why;
    cr_assert_eq(vm_sweep(&it, &m, 0, fractions, 5, row, &rows, &why), VM_OK, "%s", why.text);
    cr_assert_eq(rows.n, 5 * 6); /* none has nothing to say */
    cr_assert_eq(rows.autos, 4);
    cr_assert_geq(rows.unfit, 6); /* a tenth of the peak holds no op */
    vm_iteration_fini(&it);
}
