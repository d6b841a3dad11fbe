/* vmem plan: what a policy would do with a trace. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "complain.h"
#include "explain.h"
#include "loaded.h"
#include "page_size.h"
#include "plan_file.h"
#include "policy.h"
#include "sweep.h"
#include "units.h"

static const char usage[] =
    "usage: vmem plan [options] TRACE\n"
    "       vmem plan --pack FILE.csv [options]   (vmem plan --pack --help tells more)\n\n"
    "Plans one iteration of a trace under a budget, and says what it would cost.\n\n"
    "  --budget SIZE       device memory (12GiB, or 60% of the peak; default: the trace's device)\n"
    "  --policy NAME       one of the policies below (default auto)\n"
    "  --explain           for every block why it stays, moves or goes, and what that costs\n"
    "  --sweep             predicted slowdown of every policy over budgets from 100 % to 20 % of the peak\n"
    "  --host-budget SIZE  pinned host memory (default: the trace's, else no limit)\n"
    "  --page SIZE         unit of mapping and moving (default: what goes with the budget, else the trace's)\n"
    "  --link OUT[,IN]     link speed in GB/s, 10^9 bytes (default: the trace's, else 12.8)\n"
    "  -o FILE             write the plan (with --sweep: the curve, as CSV)\n\n"
    "policies\n";

struct options {
    const char *path, *out, *budget, *host, *page, *link, *policy;
    bool explain, sweep;
};

static void help(void)
{
    fputs(usage, stdout);
    for (const struct vm_policy *const *p = vm_policy_all(); *p; p++)
        printf("  %-12s %s\n", (*p)->name, (*p)->summary);
}

static int take_options(int argc, char **argv, struct options *o)
{
    const struct {
        const char *name;
        const char **to;
    } valued[] = {{"--budget", &o->budget}, {"--policy", &o->policy}, {"--host-budget", &o->host},
                  {"--page", &o->page},     {"--link", &o->link},     {"-o", &o->out}};
    for (int i = 1; i < argc; i++) {
        const char **to = NULL;
        if (strcmp(argv[i], "--explain") == 0) {
            o->explain = true;
            continue;
        }
        if (strcmp(argv[i], "--sweep") == 0) {
            o->sweep = true;
            continue;
        }
        if (argv[i][0] != '-' || !argv[i][1]) {
            if (o->path)
                return complain(2, "plan", "one trace, please: '%s' or '%s'?", o->path, argv[i]);
            o->path = argv[i];
            continue;
        }
        for (size_t k = 0; k < sizeof valued / sizeof *valued; k++)
            if (strcmp(argv[i], valued[k].name) == 0)
                to = valued[k].to;
        if (!to)
            return complain(2, "plan", "unknown option '%s'; `vmem plan --help` lists them", argv[i]);
        if (i + 1 >= argc)
            return complain(2, "plan", "option '%s' needs a value", argv[i]);
        *to = argv[++i];
    }
    if (!o->path)
        return complain(2, "plan", "which trace? usage: vmem plan [options] TRACE");
    return 0;
}

static int take_size(const char *option, const char *text, uint64_t whole, uint64_t *to)
{
    if (text && (vm_size_parse(text, whole, to) < 0 || *to == 0))
        return complain(2, "plan", "%s cannot be '%s': not a size such as 12GiB%s", option, text,
                        whole ? " or 60%" : "");
    return 0;
}

static int take_link(const char *text, struct vm_machine *m)
{
    char *end;
    double out, in;
    if (!text)
        return 0;
    out = in = strtod(text, &end);
    if (end != text && *end == ',')
        in = strtod(end + 1, &end);
    if (end == text || *end || !(out > 0 && out < 1e6) || !(in > 0 && in < 1e6))
        return complain(2, "plan", "--link cannot be '%s': not a speed in GB/s such as 12.8 or 25,24", text);
    m->out_bps = m->out_duplex_bps = out * 1e9;
    m->in_bps = m->in_duplex_bps = in * 1e9;
    return 0;
}

/* The trace's machine with the options over it, and usual values for what neither knows. */
static int make_machine(const struct options *o, const struct loaded *l, struct vm_machine *m)
{
    *m = l->trace.machine;
    if (m->page_bytes == 0)
        m->page_bytes = 2 << 20;
    if (m->out_bps <= 0)
        m->out_bps = 12.8e9;
    if (m->in_bps <= 0)
        m->in_bps = m->out_bps;
    if (m->out_duplex_bps <= 0)
        m->out_duplex_bps = m->out_bps;
    if (m->in_duplex_bps <= 0)
        m->in_duplex_bps = m->in_bps;
    int rc = take_size("--budget", o->budget, l->live.peak_alloc, &m->device_bytes);
    if (!rc)
        rc = take_size("--host-budget", o->host, 0, &m->host_bytes);
    if (o->page)
        m->page_least = 0;
    if (m->page_least && o->budget)
        m->page_bytes = vm_page_size(m->device_bytes, m->page_least, vm_policy_find(o->policy)->may_page);
    if (!rc)
        rc = take_size("--page", o->page, 0, &m->page_bytes);
    if (!rc)
        rc = take_link(o->link, m);
    if (!rc && (m->page_bytes < 512 || (m->page_bytes & (m->page_bytes - 1))))
        rc = complain(2, "plan", "--page cannot be '%s': not a power of two from 512", o->page);
    if (!rc && m->device_bytes == 0 && !o->sweep)
        rc = complain(2, "plan", "the trace names no device memory: give --budget SIZE");
    if (m->host_bytes == 0)
        m->host_bytes = UINT64_MAX / 2;
    return rc;
}

static void print_plan(const struct loaded *l, const struct vm_machine *m, const struct vm_plan *p)
{
    char a[24], b[24], c[24], d[24];
    size_t counts[8] = {0};
    for (size_t i = 0; i < p->nactions; i++)
        counts[p->actions[i].kind & 7]++;
    printf("%s: policy %s, budget %s (%llu pages of %s), peak %s\n", l->path, p->policy,
           vm_size_text(m->device_bytes, a, sizeof a), (unsigned long long)p->budget_pages,
           vm_size_text(p->page_bytes, b, sizeof b), vm_size_text(l->live.peak_alloc, c, sizeof c));
    if (l->timed && p->compute_ns)
        printf("iteration   %s predicted; the op times alone are %s (%.3f times); no schedule takes less "
               "than %s\n",
               vm_time_text(p->predicted_ns, a, sizeof a), vm_time_text(p->compute_ns, b, sizeof b),
               (double)p->predicted_ns / (double)p->compute_ns,
               vm_time_text(p->bound_ns, c, sizeof c));
    printf("moves       %s out, %s in an iteration (%zu out, %zu in, %zu drop, %zu copy actions)\n",
           vm_size_text(p->out_bytes, a, sizeof a), vm_size_text(p->in_bytes, b, sizeof b),
           counts[VM_ACT_OUT], counts[VM_ACT_IN], counts[VM_ACT_DROP],
           counts[VM_ACT_COPY]);
    printf("placement   %zu blocks in %s of addresses; %s live at most\n", p->nblocks,
           vm_size_text(p->pool_bytes, a, sizeof a), vm_size_text(p->max_live_bytes, d, sizeof d));
}

static int file_put(void *ctx, const char *text, size_t n)
{
    return fwrite(text, 1, n, ctx) == n ? 0 : VM_EIO;
}

static int write_plan(const struct vm_plan *p, const char *path)
{
    FILE *f = fopen(path, "we");
    if (!f)
        return complain(1, "plan", "cannot write '%s': %s", path, strerror(errno));
    int rc = vm_plan_write(p, file_put, f);
    if (fclose(f) != 0 || rc < 0)
        return complain(1, "plan", "cannot write '%s': %s", path, strerror(errno));
    return 0;
}

static int make_plan(const struct options *o, const struct loaded *l, const struct vm_machine *m)
{
    struct vm_error why = {""};
    struct vm_plan plan = {.nops = 0};
    const struct vm_policy *policy = vm_policy_find(o->policy);
    struct vm_policy_input in = {&l->it, m, 0};
    int rc = policy->plan(&in, &plan, &why);
    if (rc != VM_OK)
        return complain(1, "plan", "%s: policy %s: %s", l->path, policy->name,
                        why.text[0] ? why.text : "out of memory");
    print_plan(l, m, &plan);
    rc = 0;
    if (o->explain && vm_plan_explain(&plan, &l->it, m, file_put, stdout) < 0)
        rc = complain(1, "plan", "the explanation cannot be written");
    if (rc == 0 && o->out)
        rc = write_plan(&plan, o->out);
    vm_plan_fini(&plan);
    return rc;
}

int cmd_plan(int argc, char **argv)
{
    struct options o = {.policy = "auto"};
    struct loaded l = {0};
    struct vm_machine m;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--pack") == 0)
            return cmd_pack(argc, argv);
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            help();
            return 0;
        }
    int rc = take_options(argc, argv, &o);
    if (rc)
        return rc;
    if (!vm_policy_find(o.policy))
        return complain(2, "plan", "there is no policy '%s'; `vmem plan --help` lists them", o.policy);
    rc = loaded_read(&l, "plan", o.path);
    if (rc == 0)
        rc = make_machine(&o, &l, &m);
    if (rc == 0)
        rc = o.sweep ? sweep(&l, &m, o.out) : make_plan(&o, &l, &m);
    loaded_free(&l);
    return rc;
}
