/* The knob table and the parsing of values: shim/config.c, without an environment of its own. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"

/* Runs vm_config_read and returns what it logged. */
static const char *read_with(struct vm_config *c, char *const *env, const char *program)
{
    static char text[8192];
    int fds[2];
    cr_assert_eq(pipe(fds), 0);
    vm_log_configure(VM_LOG_DEBUG, fds[1]);
    vm_config_read(c, env, program);
    vm_log_configure(VM_LOG_WARN, 2);
    close(fds[1]);
    size_t n = 0;
    ssize_t got;
    while ((got = read(fds[0], text + n, sizeof text - 1 - n)) > 0)
        n += (size_t)got;
    text[n] = 0;
    close(fds[0]);
    return text;
}

static unsigned lines(const char *s)
{
    unsigned n = 0;
    for (; *s; s++)
        n += *s == '\n';
    return n;
}

static const struct vm_knob *knob(const char *name)
{
    size_t n;
    const struct vm_knob *k = vm_knobs(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(k[i].name, name) == 0)
            return &k[i];
    cr_assert_fail("no knob %s", name);
    return NULL;
}

Test(config, empty_environment_gives_defaults)
{
    struct vm_config c;
    char *env[] = {"PATH=/bin", NULL};
    cr_assert_str_eq(read_with(&c, env, "x"), "");
    cr_assert(!c.off && !c.disabled && !c.errors);
    cr_assert(!c.budget.set);
    cr_assert_eq(c.warmup, 2);
    cr_assert_eq(c.escape_scan, 65536);
    cr_assert_eq(c.log, VM_LOG_WARN);
    cr_assert_str_eq(c.policy, "auto");
    cr_assert_str_eq(c.trace, "");
    cr_assert_eq(c.plan_wait, VM_PLAN_WAIT_AUTO);
    cr_assert_eq(c.backend, VM_BACKEND_AUTO);
}

Test(config, values_are_read)
{
    struct vm_config c;
    char *env[] = {"VMEM_BUDGET=1.5GiB",   "VMEM_HOST_BUDGET=60%", "VMEM_WARMUP=7",
                   "VMEM_POLICY=vdnn-all", "VMEM_CHUNK=2M",        "VMEM_PLAN_WAIT=1",
                   "VMEM_BACKEND=NUMA",    "VMEM_RESERVE=12.5%",   "VMEM_TRACE=/x/%p",
                   "VMEM_FLOAT=auto",      "VMEM_ESCAPE_SCAN=0",   "VMEM_LOG=",
                   NULL};
    cr_assert_str_eq(read_with(&c, env, "x"), "");
    cr_assert_eq(c.budget.bytes, UINT64_C(1610612736));
    cr_assert(c.budget.set);
    cr_assert_eq(c.host_budget.share_ppm, 600000);
    cr_assert_eq(c.reserve.share_ppm, 125000);
    cr_assert_eq(c.warmup, 7);
    cr_assert_str_eq(c.policy, "vdnn-all");
    cr_assert_eq(c.chunk, 2 << 20);
    cr_assert_eq(c.plan_wait, VM_PLAN_WAIT_YES);
    cr_assert_eq(c.backend, VM_BACKEND_NUMA);
    cr_assert(!c.float_share.set);
    cr_assert_eq(c.escape_scan, 0);
    cr_assert_eq(c.log, VM_LOG_WARN);
}

Test(config, each_bad_value_is_one_line_and_the_default)
{
    static const struct {
        const char *entry, *word;
    } cases[] = {
        {"VMEM_BUDGET=120%", "100%"},      {"VMEM_BUDGET=GiB", "size"},
        {"VMEM_BUDGET=5 parsecs", "unit"}, {"VMEM_BUDGET=99999999999999999999", "size"},
        {"VMEM_BUDGET=9999999999TiB", "large"}, {"VMEM_WARMUP=0", "small"},
        {"VMEM_WARMUP=3x", "whole"},       {"VMEM_CHUNK=50%", "unit"},
        {"VMEM_CHUNK=2GiB", "large"},      {"VMEM_OFF=2", "0 or 1"},
        {"VMEM_BACKEND=disk", "one of"},   {"VMEM_LOG=loud", "one of"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct vm_config c;
        char *env[] = {(char *)cases[i].entry, NULL};
        const char *log = read_with(&c, env, "x");
        cr_assert_eq(lines(log), 1, "%s: %s", cases[i].entry, log);
        cr_assert(strstr(log, cases[i].word), "%s: %s", cases[i].entry, log);
        cr_assert_eq(c.errors, 1);
        cr_assert(!c.budget.set && c.warmup == 2 && c.chunk == 0 && !c.off && c.backend == 0 &&
                  c.log == VM_LOG_WARN);
    }
}

Test(config, unknown_names_find_their_neighbour)
{
    static const struct {
        const char *entry, *near;
    } cases[] = {{"VMEM_BUDGT=1", "VMEM_BUDGET"},
                 {"VMEM_POLICE=1", "VMEM_POLICY"},
                 {"VMEM_OF=1", "VMEM_OFF"},
                 {"VMEM_STATSFILE", "VMEM_STATS_FILE"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct vm_config c;
        char *env[] = {(char *)cases[i].entry, NULL};
        const char *log = read_with(&c, env, "x");
        cr_assert_eq(lines(log), 1);
        cr_assert(strstr(log, cases[i].near), "%s: %s", cases[i].entry, log);
    }
    struct vm_config c;
    char *far[] = {"VMEM_ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJKLMNOPQRSTUVWX=1",
                   NULL};
    const char *log = read_with(&c, far, "x");
    cr_assert_eq(lines(log), 1);
    cr_assert(!strstr(log, "nearest"), "%s", log);
}

Test(config, off_strict_and_deny)
{
    struct vm_config c;
    char *off[] = {"VMEM_OFF=yes", NULL};
    read_with(&c, off, "x");
    cr_assert(c.disabled);
    char *strict[] = {"VMEM_STRICT=1", "VMEM_NOSUCH=1", NULL};
    read_with(&c, strict, "x");
    cr_assert(c.disabled);
    char *strict_fine[] = {"VMEM_STRICT=1", "VMEM_WARMUP=3", NULL};
    read_with(&c, strict_fine, "x");
    cr_assert(!c.disabled);
    char *deny[] = {"VMEM_DENY=resolve:nvidia-*:*rest", NULL};
    static const struct {
        const char *program;
        bool denied;
    } cases[] = {{"resolve", true},  {"resolver", false},  {"nvidia-smi", true}, {"nvidia-", true},
                 {"nvidia", false},  {"python3", false},   {"", false},          {"*rest", true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        read_with(&c, deny, cases[i].program);
        cr_assert_eq(c.disabled, cases[i].denied, "%s", cases[i].program);
    }
}

Test(config, every_default_is_valid)
{
    size_t n;
    const struct vm_knob *k = vm_knobs(&n);
    cr_assert_gt(n, 10);
    for (size_t i = 0; i < n; i++) {
        union {
            uint64_t bytes;
            struct vm_amount amount;
            const char *text;
        } field;
        const char *why = "";
        cr_assert_eq(vm_knob_parse(&k[i], k[i].deflt, &field, &why), 0, "%s: %s", k[i].name, why);
        cr_assert(strncmp(k[i].name, "VMEM_", 5) == 0 && *k[i].doc && *k[i].since);
    }
}

/* Texts drawn from a seed: never a crash, and what is accepted is in range. */
Test(config, any_text)
{
    static const char letters[] = "0123456789.%-+ eExKkMGTiB|autonyes\xff\"";
    unsigned seed = 20261129;
    const char *wanted = getenv("VMEM_TEST_SEED");
    if (wanted)
        seed = (unsigned)strtoul(wanted, NULL, 10);
    fprintf(stderr, "seed %u\n", seed);
    for (int round = 0; round < 20000; round++) {
        char text[24];
        size_t len = (size_t)rand_r(&seed) % (sizeof text - 1);
        for (size_t i = 0; i < len; i++)
            text[i] = letters[(size_t)rand_r(&seed) % (sizeof letters - 1)];
        text[len] = 0;
        const char *why = NULL;
        struct vm_amount amount = {1, 1, true};
        unsigned count = 1;
        int r = vm_knob_parse(knob("VMEM_BUDGET"), text, &amount, &why);
        cr_assert(r == 0 ? amount.share_ppm <= 1000000 : why && amount.bytes == 1, "\"%s\"", text);
        r = vm_knob_parse(knob("VMEM_WARMUP"), text, &count, &why);
        cr_assert(r == 0 ? count >= 1 && count <= 1000000 : count == 1, "\"%s\"", text);
    }
}

Test(config, amounts_and_paths)
{
    struct vm_amount a = {0, 0, false}, b = {100, 0, true}, s = {0, 600000, true};
    cr_assert_eq(vm_amount_of(&a, 1000, 77), 77);
    cr_assert_eq(vm_amount_of(&b, 1000, 77), 100);
    cr_assert_eq(vm_amount_of(&s, 1000, 77), 600);
    cr_assert_eq(vm_amount_of(&s, UINT64_MAX, 0) / 1000000, UINT64_MAX / 1000000 / 10 * 6 + 5);
    char out[32], want[32];
    cr_assert(vm_config_path(out, sizeof out, "/a/%p.b%"));
    snprintf(want, sizeof want, "/a/%d.b%%", (int)getpid());
    cr_assert_str_eq(out, want);
    cr_assert(!vm_config_path(out, 4, "/abc"));
    cr_assert(vm_config_path(out, 5, "/abc"));
}
