#include "sweep.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "complain.h"
#include "page_size.h"
#include "policy.h"
#include "units.h"

#define FIRST_SHARE 100 /* per cent of the peak */
#define LAST_SHARE  20
#define STEP        10

static bool takes_part(const struct vm_policy *p)
{
    return p->may_page || p->uses_plan; /* `none` places nothing: it has no budget */
}

static void print_title(const struct loaded *l)
{
    char a[24], b[24];
    printf("%s: predicted slowdown against the op times alone (%s an iteration); peak %s\n",
           l->path, vm_time_text(l->it.duration_ns, a, sizeof a),
           vm_size_text(l->live.peak_alloc, b, sizeof b));
    printf("%6s %10s", "budget", "");
    for (const struct vm_policy *const *p = vm_policy_all(); *p; p++)
        if (takes_part(*p))
            printf(" %10s", (*p)->name);
    printf(" %10s\n", "bound");
}

/* One cell; the plan's bound goes to *bound when there is one. VM_OK, VM_UNFIT or negative. */
static int cell(const struct loaded *l, const struct vm_machine *m, const struct vm_policy *policy,
                int share, FILE *csv, double *bound)
{
    struct vm_error why;
    struct vm_plan plan = {.nops = 0};
    struct vm_machine own = *m;
    struct vm_policy_input in = {&l->it, &own, 0};
    if (m->page_least)
        own.page_bytes = vm_page_size(m->device_bytes, m->page_least, policy->may_page);
    int rc = policy->plan(&in, &plan, &why);
    if (rc < 0)
        return rc;
    if (rc != VM_OK) {
        printf(" %10s", "-");
        return VM_UNFIT;
    }
    double slowdown = plan.compute_ns ? (double)plan.predicted_ns / (double)plan.compute_ns : 0;
    if (plan.compute_ns && plan.bound_ns)
        *bound = (double)plan.bound_ns / (double)plan.compute_ns;
    printf(" %10.3f", slowdown);
    if (csv)
        fprintf(csv, "%llu,%d,%s,%llu,%llu,%llu,%.6f,%llu,%llu\n",
                (unsigned long long)m->device_bytes, share, policy->name,
                (unsigned long long)plan.predicted_ns, (unsigned long long)plan.compute_ns,
                (unsigned long long)plan.bound_ns, slowdown, (unsigned long long)plan.out_bytes,
                (unsigned long long)plan.in_bytes);
    vm_plan_fini(&plan);
    return VM_OK;
}

static int row(const struct loaded *l, struct vm_machine m, int share, FILE *csv)
{
    char text[24];
    double bound = 0;
    m.device_bytes = l->live.peak_alloc / 100 * (uint64_t)share;
    if (share == 100) /* all of it, in whole pages, and some to round up small blocks */
        m.device_bytes = l->live.peak_alloc + l->live.peak_alloc / 50 + 2 * m.page_bytes;
    printf("%5d%% %10s", share, vm_size_text(m.device_bytes, text, sizeof text));
    for (const struct vm_policy *const *p = vm_policy_all(); *p; p++)
        if (takes_part(*p) && cell(l, &m, *p, share, csv, &bound) < 0)
            return complain(1, "plan", "policy %s failed: out of memory", (*p)->name);
    if (bound > 0)
        printf(" %10.3f\n", bound);
    else
        printf(" %10s\n", "-");
    return 0;
}

int sweep(const struct loaded *l, const struct vm_machine *m, const char *path)
{
    FILE *csv = NULL;
    int rc = 0;
    if (!l->timed)
        return complain(1, "plan", "'%s' has no op times: nothing can be predicted", l->path);
    if (path && !(csv = fopen(path, "we")))
        return complain(1, "plan", "cannot write '%s': %s", path, strerror(errno));
    if (csv)
        fprintf(csv, "budget_bytes,budget_percent,policy,predicted_ns,compute_ns,bound_ns,slowdown,"
                     "out_bytes,in_bytes\n");
    print_title(l);
    for (int share = FIRST_SHARE; share >= LAST_SHARE && rc == 0; share -= STEP)
        rc = row(l, *m, share, csv);
    if (rc == 0)
        printf("  -: the budget is smaller than the largest op needs, or (pool) than what is alive "
               "at once\n");
    if (csv && fclose(csv) != 0 && rc == 0)
        rc = complain(1, "plan", "cannot write '%s': %s", path, strerror(errno));
    return rc;
}
