#include <criterion/criterion.h>

#include "plan_file.h"
#include "program.h"
#include "text_buffer.h"

static struct vm_plan make_plan(void)
{
    static uint64_t sigs[] = {1, UINT64_MAX, 3};
    static struct vm_plan_block blocks[] = {
        {.size = 100,
         .offset = 0,
         .free_op = 3,
         .alloc_ordinal = VM_NONE,
         .flags = VM_BLK_PERSISTENT,
         .reason = VM_WHY_FITS},
        {.size = 5000,
         .offset = 4096,
         .alloc_op = 1,
         .free_op = 4,
         .alloc_ordinal = 0,
         .flags = VM_BLK_WRAPS,
         .trace_block = 7,
         .reason = VM_WHY_CAPACITY},
    };
    static struct vm_plan_action actions[] = {
        {.op = 0, .page = 1, .npages = 2, .kind = VM_ACT_OUT, .reason = VM_WHY_CAPACITY},
        {.op = 1, .need_op = 4, .page = 1, .npages = 2, .kind = VM_ACT_IN},
        {.op = 2, .page = 0, .npages = 1, .kind = VM_ACT_DROP, .reason = VM_WHY_DEAD},
        {.op = 2, .page = 1, .npages = 2, .kind = VM_ACT_COPY, .reason = VM_WHY_CAPACITY},
    };
    static struct vm_iter_mem mem[] = {{0, 1, 1}, {1, 1, 0}};
    return (struct vm_plan){.policy = "auto",
                            .sigs = sigs,
                            .nops = 3,
                            .blocks = blocks,
                            .nblocks = 2,
                            .actions = actions,
                            .nactions = 4,
                            .mem = mem,
                            .nmem = 2,
                            .page_bytes = 4096,
                            .budget_pages = 2,
                            .pool_offset = 4096,
                            .pool_bytes = 8192,
                            .max_live_bytes = 5100,
                            .predicted_ns = 10,
                            .bound_ns = 9,
                            .compute_ns = 8,
                            .out_bytes = 8192,
                            .in_bytes = 8192,
                            .window_ns = 1000000};
}

static int read_text(const char *text, size_t n, struct vm_plan *p, struct vm_error *why)
{
    FILE *f = text_open(text, n);
    cr_assert(f);
    why->text[0] = 0;
    int rc = vm_plan_read(f, "p.json", p, why);
    fclose(f);
    return rc;
}

Test(plan_file, comes_back_as_it_was)
{
    struct vm_plan p = make_plan(), back;
    struct text_buffer b = {0}, again = {0};
    struct vm_error why;
    cr_assert_eq(vm_plan_write(&p, text_put, &b), VM_OK);
    cr_assert_eq(read_text(b.text, b.n, &back, &why), VM_OK, "%s", why.text);
    cr_assert_eq(memcmp(p.sigs, back.sigs, 3 * sizeof *p.sigs), 0);
    cr_assert_eq(memcmp(p.blocks, back.blocks, 2 * sizeof *p.blocks), 0);
    cr_assert_eq(memcmp(p.actions, back.actions, 3 * sizeof *p.actions), 0);
    for (size_t i = 0; i < 2; i++) {
        cr_assert_eq(p.mem[i].op, back.mem[i].op);
        cr_assert_eq(p.mem[i].block, back.mem[i].block);
        cr_assert_eq(p.mem[i].is_free, back.mem[i].is_free);
    }
    cr_assert_str_eq(back.policy, "auto");
    const uint64_t numbers[][2] = {
        {p.page_bytes, back.page_bytes},         {p.budget_pages, back.budget_pages},
        {p.pool_offset, back.pool_offset},       {p.pool_bytes, back.pool_bytes},
        {p.max_live_bytes, back.max_live_bytes}, {p.predicted_ns, back.predicted_ns},
        {p.bound_ns, back.bound_ns},             {p.compute_ns, back.compute_ns},
        {p.out_bytes, back.out_bytes},           {p.in_bytes, back.in_bytes},
        {p.window_ns, back.window_ns},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        cr_assert_eq(numbers[i][0], numbers[i][1], "number %zu", i);
    cr_assert_eq(vm_plan_write(&back, text_put, &again), VM_OK);
    cr_assert_str_eq(b.text, again.text);
    vm_plan_fini(&back);
    free(b.text);
    free(again.text);
}

/* Replaces the first `from` in the written plan by `to` and expects the reason. */
static void expect_refused(const char *from, const char *to, const char *reason)
{
    struct vm_plan p = make_plan(), back;
    struct text_buffer b = {0}, c = {0};
    struct vm_error why;
    cr_assert_eq(vm_plan_write(&p, text_put, &b), VM_OK);
    char *at = strstr(b.text, from);
    cr_assert(at, "'%s' is not in the plan", from);
    text_put(&c, b.text, (size_t)(at - b.text));
    text_put(&c, to, strlen(to));
    text_put(&c, at + strlen(from), strlen(at + strlen(from)));
    int rc = read_text(c.text, c.n, &back, &why);
    cr_expect_lt(rc, 0, "'%s' was taken", to);
    cr_expect(strstr(why.text, reason), "'%s' gives '%s'", to, why.text);
    cr_expect_null(back.blocks);
    free(b.text);
    free(c.text);
}

Test(plan_file, what_does_not_hold_together_is_refused)
{
    expect_refused("\"version\":1", "\"version\":7", "p.json: is of format version 7");
    expect_refused("vmem-plan", "vmem-trace", "not a vmem-plan file");
    expect_refused("\"op\":2", "\"op\":3", "\"op\" is 3, at most 2");
    expect_refused("\"op\":2", "\"op\":0", "action 2 is out of order");
    expect_refused("\"do\":\"out\"", "\"do\":\"dance\"", "none of out, in, drop");
    expect_refused("\"need\":4", "\"need\":9", "\"need\" is 9, at most 6");
    expect_refused("\"alloc\":1,\"free\":4", "\"alloc\":3,\"free\":2", "freed before");
    expect_refused("\"offset\":4096", "\"offset\":100000", "outside the pool");
    expect_refused("[1,1,0]", "[1,2,0]", "\"mem\" is 2, at most 1");
    expect_refused("[0,1,1],[1,1,0]", "[1,1,1],[0,1,0]", "\"mem\" is out of order");
    expect_refused("\"sigs\":[", "\"sigs\":[-1,", "\"sigs\" is negative");
    expect_refused("\"pool_bytes\":8192,", "", "\"pool_bytes\" is missing");
    expect_refused("\"mem\":", "\"memo\":", "\"mem\" is no list");
    expect_refused("}\n", "", "ends in the middle");
}

Test(plan_file, damaged_files_are_survived, .timeout = 60)
{
    struct vm_plan p = make_plan(), back;
    struct text_buffer b = {0};
    struct vm_error why;
    unsigned random = 7;
    cr_assert_eq(vm_plan_write(&p, text_put, &b), VM_OK);
    for (int round = 0; round < 3000; round++) {
        struct text_buffer copy = {0};
        text_put(&copy, b.text, b.n);
        for (unsigned k = 0; k < 1 + program_random(&random, 3); k++)
            copy.text[program_random(&random, (unsigned)copy.n)] =
                "{}[],:\"0-9eE.\\u"[program_random(&random, 15)];
        if (read_text(copy.text, copy.n, &back, &why) == VM_OK) {
            for (size_t i = 0; i < back.nactions; i++)
                cr_assert_lt(back.actions[i].op, back.nops);
            for (size_t i = 0; i < back.nmem; i++)
                cr_assert_lt(back.mem[i].block, back.nblocks);
        } else {
            cr_assert_neq(why.text[0], 0);
        }
        vm_plan_fini(&back);
        free(copy.text);
    }
    free(b.text);
}
