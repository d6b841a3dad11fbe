#include <criterion/criterion.h>

#include "program.h"
#include "text_buffer.h"
#include "trace.h"
#include "trace_file.h"

static void write_all(const struct vm_trace *t, struct text_buffer *b)
{
    struct vm_trace_cursor at = {0};
    cr_assert_eq(vm_trace_write(t, &at, SIZE_MAX, text_put, b), VM_OK);
}

static int read_text(const char *text, size_t n, struct vm_trace *t, struct vm_error *why)
{
    FILE *f = text_open(text, n);
    cr_assert(f);
    why->text[0] = 0;
    memset(t, 0, sizeof *t);
    int rc = vm_trace_read(f, "some/t.jsonl", t, why);
    fclose(f);
    return rc;
}

static void expect_same(const struct vm_trace *a, const struct vm_trace *b)
{
    cr_assert_eq(a->nevents, b->nevents);
    cr_assert_eq(a->nblocks, b->nblocks);
    cr_assert_eq(a->naccesses, b->naccesses);
    cr_assert_eq(a->nnames, b->nnames);
    cr_assert_eq(memcmp(a->events, b->events, a->nevents * sizeof *a->events), 0);
    cr_assert_eq(memcmp(a->accesses, b->accesses, a->naccesses * sizeof *a->accesses), 0);
    cr_assert_eq(memcmp(a->blocks, b->blocks, a->nblocks * sizeof *a->blocks), 0);
    for (size_t i = 0; i < a->nnames; i++)
        cr_assert_str_eq(a->names[i], b->names[i]);
    cr_assert_eq(memcmp(&a->machine, &b->machine, sizeof a->machine), 0);
    cr_assert_str_eq(a->device, b->device);
    cr_assert_str_eq(a->clock, b->clock);
}

Test(trace, names_are_kept_once)
{
    struct vm_trace t = {0};
    uint32_t a, b;
    char text[16];
    for (unsigned round = 0; round < 2; round++)
        for (unsigned i = 0; i < 1000; i++) {
            int n = snprintf(text, sizeof text, "kernel%u", i);
            cr_assert_eq(vm_trace_add_name(&t, text, (size_t)n, &a), VM_OK);
            cr_assert_eq(a, i);
        }
    cr_assert_eq(t.nnames, 1000);
    cr_assert_eq(vm_trace_add_name(&t, "kernel1, not terminated", 7, &b), VM_OK);
    cr_assert_eq(b, 1);
    cr_assert_eq(vm_trace_add_name(&t, "kernel", 6, &b), VM_OK);
    cr_assert_eq(b, 1000);
    vm_trace_fini(&t);
}

Test(trace, what_does_not_fit_is_refused)
{
    struct vm_trace t = {0};
    struct vm_event e = {.name = VM_NONE};
    struct vm_access a = {0, VM_READ, 0, 0};
    uint32_t b;
    cr_assert_eq(vm_trace_add_free(&t, 0, 0, 0), VM_EINVAL);
    cr_assert_eq(vm_trace_add_op(&t, &e, &a, 1, NULL), VM_EINVAL);
    cr_assert_eq(vm_trace_add_alloc(&t, 5, 10, 0, 0, 0, &b), VM_OK);
    cr_assert_eq(vm_trace_add_op(&t, &e, &a, 1, NULL), VM_OK);
    e.name = 0;
    cr_assert_eq(vm_trace_add_op(&t, &e, &a, 1, NULL), VM_EINVAL, "there is no name");
    cr_assert_eq(vm_trace_add_hint(&t, b, 99, 0), VM_EINVAL);
    cr_assert_eq(vm_trace_add_free(&t, b, 0, 0), VM_OK);
    cr_assert_eq(vm_trace_add_free(&t, b, 0, 0), VM_EINVAL);
    e.name = VM_NONE;
    cr_assert_eq(vm_trace_add_op(&t, &e, &a, 1, NULL), VM_EINVAL);
    cr_assert_eq(t.nevents, 3);
    cr_assert_eq(t.naccesses, 1);
    vm_trace_fini(&t);
}

Test(trace, forgetting_keeps_what_is_alive)
{
    struct vm_trace t = {0};
    uint32_t b[4], remap[4];
    for (unsigned i = 0; i < 4; i++)
        cr_assert_eq(vm_trace_add_alloc(&t, 10 + i, 100 * i, 0, 0, 0, &b[i]), VM_OK);
    cr_assert_eq(vm_trace_add_free(&t, b[1], 0, 0), VM_OK);
    cr_assert_eq(vm_trace_add_hint(&t, b[3], VM_HINT_PINNED, 0), VM_OK);
    vm_trace_forget(&t, remap);
    cr_assert_eq(t.nevents, 0);
    cr_assert_eq(t.nblocks, 3);
    cr_assert_eq(remap[0], 0);
    cr_assert_eq(remap[1], VM_NONE);
    cr_assert_eq(remap[3], 2);
    cr_assert_eq(t.blocks[2].id, 13);
    cr_assert_eq(t.blocks[2].flags, VM_BLK_PINNED);
    cr_assert_eq(t.blocks[2].alloc_event, VM_NONE);
    vm_trace_fini(&t);
}

Test(trace_file, drawn_programs_come_back_as_they_were)
{
    for (unsigned seed = 0; seed < 40; seed++) {
        struct program p;
        struct vm_trace t = {0}, back;
        struct text_buffer text = {0}, again = {0};
        struct vm_error why;
        program_draw(&p, seed);
        p.iterations = 2;
        p.marks = seed % 2;
        program_trace(&p, &t);
        strcpy(t.device, "Simulated \"X\" \\ 12G");
        strcpy(t.clock, "simulated");
        t.machine = (struct vm_machine){.device_bytes = UINT64_C(12) << 30,
                                        .host_bytes = 1,
                                        .page_bytes = 2 << 20,
                                        .page_least = 1 << 16,
                                        .out_bps = 12.8e9,
                                        .in_bps = 12345678901.000244140625,
                                        .copy_latency_ns = 0.1,
                                        .map_ns = 1.0 / 3,
                                        .unmap_call_ns = 250000.5,
                                        .access_call_ns = 7,
                                        .call_ns = 1700.5};
        write_all(&t, &text);
        cr_assert_eq(read_text(text.text, text.n, &back, &why), VM_OK, "%s", why.text);
        expect_same(&t, &back);
        write_all(&back, &again);
        cr_assert_eq(text.n, again.n);
        cr_assert_eq(memcmp(text.text, again.text, text.n), 0);
        free(text.text);
        free(again.text);
        vm_trace_fini(&t);
        vm_trace_fini(&back);
    }
}

Test(trace_file, odd_values_come_back_as_they_were)
{
    struct vm_trace t = {0}, back;
    struct text_buffer text = {0};
    struct vm_error why;
    uint32_t b, c, name;
    char odd[256];
    for (int i = 1; i < 256; i++)
        odd[i - 1] = (char)i;
    cr_assert_eq(vm_trace_add_block(&t, UINT64_MAX, 7, UINT64_MAX - 1, &b), VM_OK);
    cr_assert_eq(vm_trace_add_name(&t, odd, 255, &name), VM_OK);
    cr_assert_eq(vm_trace_add_alloc(&t, 0, 1, 0, 3, UINT64_MAX, &c), VM_OK);
    struct vm_event e = {.op_kind = VM_OP_MEMSET,
                         .sig = UINT64_MAX,
                         .name = name,
                         .stream = 9,
                         .flags = VM_OPF_PURE | VM_OPF_CALL_BEGIN | VM_OPF_BLOCKS | VM_OPF_WAITED,
                         .layer = VM_LAYER_RNN,
                         .dur_ns = 1};
    struct vm_access a[2] = {{b, VM_WRITE | VM_TOTAL, VM_ROLE_STATE, 0}, {c, VM_UNKNOWN, 0, 0}};
    cr_assert_eq(vm_trace_add_op(&t, &e, a, 2, NULL), VM_OK);
    cr_assert_eq(vm_trace_add_hint(&t, c, VM_HINT_REGENERABLE, 0), VM_OK);
    cr_assert_eq(vm_trace_add_sync(&t, 9, 5), VM_OK);
    cr_assert_eq(vm_trace_add_block(&t, 12, 7, 0, &b), VM_OK);
    t.blocks[b].flags = VM_BLK_PINNED | VM_BLK_KEEP;
    write_all(&t, &text);
    cr_assert_eq(read_text(text.text, text.n, &back, &why), VM_OK, "%s", why.text);
    expect_same(&t, &back);
    vm_trace_fini(&t);
    vm_trace_fini(&back);
    free(text.text);
}

Test(trace_file, written_piece_by_piece_it_is_the_same)
{
    struct program p;
    struct vm_trace t = {0};
    struct text_buffer whole = {0}, pieces = {0};
    struct vm_trace_cursor at = {0};
    program_draw(&p, 3);
    program_trace(&p, &t);
    write_all(&t, &whole);
    for (size_t n = 0; n < t.nevents + 7; n += 7)
        cr_assert_eq(vm_trace_write(&t, &at, n, text_put, &pieces), VM_OK);
    cr_assert_eq(whole.n, pieces.n);
    cr_assert_eq(memcmp(whole.text, pieces.text, whole.n), 0);
    struct text_buffer full = {.fail_at = whole.n / 2};
    memset(&at, 0, sizeof at);
    cr_assert_eq(vm_trace_write(&t, &at, SIZE_MAX, text_put, &full), VM_EIO);
    free(whole.text);
    free(pieces.text);
    free(full.text);
    vm_trace_fini(&t);
}

#define HEAD "{\"format\":\"vmem-trace\",\"version\":1}\n"
#define A1   "{\"ev\":\"alloc\",\"id\":1,\"size\":100}\n"

Test(trace_file, lies_get_a_line_with_the_place_and_the_reason)
{
    static const struct {
        const char *text, *reason; /* reason: what the message must hold */
        int rc;
    } rows[] = {
        {"", "t.jsonl:1: is empty", VM_EINVAL},
        {"\n\n", "is empty", VM_EINVAL},
        {"hello\n", ":1: no JSON object (column 1)", VM_EINVAL},
        {"{\"format\":\"vmem-plan\",\"version\":1}\n", ":1: not a vmem-trace file", VM_EINVAL},
        {"{\"format\":\"vmem-trace\"}\n", "\"version\" is missing", VM_EINVAL},
        {"{\"format\":\"vmem-trace\",\"version\":2}\n",
         "version 2; this program reads up to version 1", VM_EVERSION},
        {"{\"format\":\"vmem-trace\",\"version\":0}\n", "version 0", VM_EINVAL},
        {"{\"format\":\"vmem-trace\",\"version\":1,\"machine\":{\"page_least\":3000}}\n",
         "\"page_least\" is not a power of two from 512", VM_EINVAL},
        {HEAD "{\"ev\":\"alloc\",\"id\":1,\"size\":-5}\n", ":2: \"size\" is negative", VM_EINVAL},
        {HEAD "{\"ev\":\"alloc\",\"id\":1,\"size\":1.5}\n", ":2: \"size\" is not a whole",
         VM_EINVAL},
        {HEAD "{\"ev\":\"alloc\",\"id\":1,\"size\":1e300}\n", ":2: \"size\" is too large",
         VM_EINVAL},
        {HEAD "{\"ev\":\"alloc\",\"id\":1,\"size\":1e999}\n", ":2: \"size\" is too large",
         VM_EINVAL},
        {HEAD "{\"ev\":\"alloc\",\"id\":1,\"size\":\"0xffffffffffff\"}\n", "at most", VM_EINVAL},
        {HEAD "{\"ev\":\"alloc\",\"id\":1,\"size\":NaN}\n", ":2: no JSON object", VM_EINVAL},
        {HEAD "{\"ev\":\"alloc\",\"id\":1,\"size\":\"12\"}\n", "is no number", VM_EINVAL},
        {HEAD "{\"ev\":\"alloc\",\"id\":1}\n", "\"size\" is missing", VM_EINVAL},
        {HEAD A1 A1, ":3: block 1 is there already", VM_EINVAL},
        {HEAD A1 "{\"ev\":\"block\",\"id\":1,\"size\":1}\n", ":3: block 1 is there already",
         VM_EINVAL},
        {HEAD "{\"ev\":\"free\",\"id\":1}\n", ":2: block 1 is freed before it is allocated",
         VM_EINVAL},
        {HEAD A1 "{\"ev\":\"free\",\"id\":1}\n{\"ev\":\"free\",\"id\":1}\n",
         ":4: block 1 is freed after it was freed", VM_EINVAL},
        {HEAD A1 "{\"ev\":\"op\",\"sig\":\"0x1\",\"acc\":[[2,\"r\"]]}\n",
         ":3: block 2 is used before it is allocated", VM_EINVAL},
        {HEAD A1 "{\"ev\":\"op\",\"sig\":\"0x1\",\"acc\":[[1,\"x\"]]}\n", "'x' is no access mode",
         VM_EINVAL},
        {HEAD A1 "{\"ev\":\"op\",\"sig\":\"0x1\",\"acc\":[[1,\"rt\"]]}\n", "\"rt\" is no access",
         VM_EINVAL},
        {HEAD A1 "{\"ev\":\"op\",\"sig\":\"0x1\",\"acc\":[1,2]}\n", "\"acc\" is no list",
         VM_EINVAL},
        {HEAD A1 "{\"ev\":\"op\",\"sig\":\"0x1\",\"acc\":{}}\n", "\"acc\" is no list", VM_EINVAL},
        {HEAD A1 "{\"ev\":\"op\",\"acc\":[]}\n", "\"sig\" is missing", VM_EINVAL},
        {HEAD "{\"ev\":\"op\",\"sig\":\"0x1\",\"name\":0}\n", "before there is one", VM_EINVAL},
        {HEAD "{\"ev\":\"name\",\"name\":1,\"text\":\"a\"}\n", "out of order, 0 is next",
         VM_EINVAL},
        {HEAD "{\"ev\":\"op\",\"sig\":\"0xfffffffffffffffff\"}\n", "\"sig\" is no number",
         VM_EINVAL},
        {HEAD "{\"ev\":\"op\",\"sig\":\"0x-1\"}\n", "\"sig\" is no number", VM_EINVAL},
        {HEAD "{\"ev\":\"op\",\"sig\":\"0x1\",\"stream\":70000}\n", "at most 65535", VM_EINVAL},
        {HEAD "[1]\n", ":2: no JSON object", VM_EINVAL},
        {HEAD "{}\n", "\"ev\" is missing", VM_EINVAL},
        {HEAD "{\"ev\":\"step\"} {\"ev\":\"step\"}\n", ":2: more than one JSON object", VM_EINVAL},
        {HEAD A1 "{\"ev\":\"free\",\"i", ":3: ends in the middle of its JSON object", VM_EINVAL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct vm_trace t;
        struct vm_error why;
        int rc = read_text(rows[i].text, strlen(rows[i].text), &t, &why);
        cr_expect_eq(rc, rows[i].rc, "row %zu: %d", i, rc);
        cr_expect(strstr(why.text, rows[i].reason), "row %zu says '%s', not '%s'", i, why.text,
                  rows[i].reason);
        cr_expect_null(strchr(why.text, '\n'));
        cr_expect_eq(t.nevents + t.nblocks + (t.events != NULL), 0, "row %zu leaves something", i);
    }
}

Test(trace_file, zero_bytes_and_terminal_controls_stay_out_of_messages)
{
    struct vm_trace t;
    struct vm_error why;
    static const char zero[] = HEAD "{\"ev\":\"st\0ep\"}\n";
    cr_assert_eq(read_text(zero, sizeof zero - 1, &t, &why), VM_EINVAL);
    cr_assert(strstr(why.text, ":2: holds a zero byte"));
    static const char control[] =
        HEAD A1 "{\"ev\":\"op\",\"sig\":\"0x1\",\"acc\":[[1,\"\\u001b[2J\"]]}\n";
    cr_assert_eq(read_text(control, sizeof control - 1, &t, &why), VM_EINVAL);
    for (const char *c = why.text; *c; c++)
        cr_assert_geq((unsigned char)*c, 0x20);
}

Test(trace_file, deep_nesting_and_long_lines_are_survived)
{
    struct vm_trace t;
    struct vm_error why;
    struct text_buffer b = {0};
    text_put(&b, HEAD, strlen(HEAD));
    for (int i = 0; i < 200000; i++)
        text_put(&b, "{\"a\":[", 6);
    cr_assert_eq(read_text(b.text, b.n, &t, &why), VM_EINVAL);
    b.n = 0;
    text_put(&b, HEAD "{\"ev\":\"", strlen(HEAD) + 7);
    for (int i = 0; i < 17 << 10; i++)
        for (int k = 0; k < 16; k++)
            text_put(&b, "0123456789012345678901234567890123456789012345678901234567890123", 64);
    cr_assert_eq(read_text(b.text, b.n, &t, &why), VM_EINVAL);
    cr_assert(strstr(why.text, ":2: longer than 16 MiB"), "%s", why.text);
    free(b.text);
}

Test(trace_file, what_is_unknown_is_passed_over)
{
    static const char text[] = "{\"format\":\"vmem-trace\",\"version\":1,\"made_by\":{\"x\":[1,2]},"
                               "\"machine\":{\"warp\":9}}\n"
                               "{\"ev\":\"weather\",\"rain\":true}\n"
                               "{\"ev\":\"alloc\",\"id\":1,\"size\":100,\"colour\":\"red\","
                               "\"flags\":[\"round\",\"keep\"]}\n"
                               "{\"ev\":\"op\",\"op\":\"teleport\",\"layer\":\"onion\",\"sig\":"
                               "\"0x1\",\"flags\":[\"odd\"],"
                               "\"acc\":[[1,\"r\",\"hero\",5]]}\n\n"
                               "{\"ev\":\"hint\",\"id\":1,\"hint\":\"polish\"}\n";
    struct vm_trace t;
    struct vm_error why;
    cr_assert_eq(read_text(text, sizeof text - 1, &t, &why), VM_OK, "%s", why.text);
    cr_assert_eq(t.nevents, 2);
    cr_assert_eq(t.events[1].op_kind, VM_OP_OTHER);
    cr_assert_eq(t.events[1].layer, VM_LAYER_NONE);
    cr_assert_eq(t.accesses[0].role, VM_ROLE_NONE);
    cr_assert_eq(t.blocks[0].flags, VM_BLK_KEEP);
    vm_trace_fini(&t);
}

/* Any byte changed, any cut: an answer, never a crash; and when it is taken, it holds together. */
Test(trace_file, damaged_files_are_survived, .timeout = 120)
{
    struct program p = {.layers = 2, .steps = 1, .accumulate = 1, .iterations = 2};
    struct vm_trace t = {0};
    struct text_buffer b = {0};
    unsigned random = 20261129;
    program_trace(&p, &t);
    write_all(&t, &b);
    for (int round = 0; round < 3000; round++) {
        struct vm_trace back;
        struct vm_error why;
        struct text_buffer copy = {0};
        text_put(&copy, b.text, b.n);
        for (unsigned k = 0; k < 1 + program_random(&random, 4); k++)
            copy.text[program_random(&random, (unsigned)copy.n)] =
                "{}[],:\"0-9eE.\\u\n rwx"[program_random(&random, 20)];
        if (round % 3 == 0)
            copy.n = program_random(&random, (unsigned)copy.n);
        int rc = read_text(copy.text, copy.n, &back, &why);
        if (rc == VM_OK)
            for (size_t i = 0; i < back.naccesses; i++)
                cr_assert_lt(back.accesses[i].block, back.nblocks);
        else
            cr_assert_neq(why.text[0], 0, "round %d", round);
        vm_trace_fini(&back);
        free(copy.text);
    }
    free(b.text);
    vm_trace_fini(&t);
}
