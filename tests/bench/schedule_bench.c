/* schedule_bench PAGE OUT_GBPS OUT_DUPLEX IN_GBPS IN_DUPLEX TRACE
 *
 * Plans one iteration of a trace, or of an operator log of the DTR simulator, with `auto` under 90, 70, 50,
 * 40 and 30 % of its peak and prints, for each budget, one JSON object a line: what the simulated iteration
 * takes, what the lower bound says, what moved. Driven by schedule.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bound.h"
#include "loaded.h"
#include "pack.h"
#include "schedule.h"

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void one_budget(const struct vm_page_units *u, const struct vm_machine *m, uint64_t peak,
                       unsigned percent)
{
    struct vm_schedule_options opt = {.capacity_pages = peak * percent / 100, .effort = 1};
    struct vm_schedule s;
    struct vm_bound b;
    struct vm_error why = {""};
    double t0 = seconds();
    int rc = vm_schedule_build(u, m, &opt, &s, &why);
    double t1 = seconds();

    printf("{\"percent\":%u,\"budget_pages\":%llu,\"peak_pages\":%llu,\"work_pages\":%llu,\"rc\":%d",
           percent, (unsigned long long)opt.capacity_pages, (unsigned long long)peak,
           (unsigned long long)vm_page_units_work(u, NULL), rc);
    if (rc) {
        printf(",\"why\":\"%s\"}\n", why.text);
        return;
    }
    rc = vm_bound_build(u, m, opt.capacity_pages, 0, &b);
    printf(",\"compute_ns\":%.0f,\"iteration_ns\":%.0f,\"bound_ns\":%.0f,\"out_pages\":%llu,"
           "\"in_pages\":%llu,\"demand_pages\":%llu,\"moves\":%zu,\"schedule_s\":%.4f,\"bound_s\":%.4f,"
           "\"bound_rc\":%d}\n",
           s.sim.compute_ns, s.sim.iteration_ns, rc ? 0.0 : b.ns, (unsigned long long)s.sim.out_pages,
           (unsigned long long)s.sim.in_pages, (unsigned long long)s.sim.demand_pages, s.nmoves,
           t1 - t0, seconds() - t1, rc);
    vm_schedule_fini(&s);
}

int main(int argc, char **argv)
{
    static const unsigned percents[] = {90, 70, 50, 40, 30};
    struct loaded l = {0};
    struct vm_page_units u;
    struct vm_error why = {""};
    uint64_t *offsets, pool;

    if (argc < 7) {
        fputs("usage: schedule_bench PAGE OUT OUT_DUPLEX IN IN_DUPLEX TRACE\n", stderr);
        return 2;
    }
    struct vm_machine m = {.device_bytes = UINT64_MAX / 2, .host_bytes = UINT64_MAX / 2,
                           .page_bytes = strtoull(argv[1], NULL, 0), .out_bps = atof(argv[2]) * 1e9,
                           .out_duplex_bps = atof(argv[3]) * 1e9, .in_bps = atof(argv[4]) * 1e9,
                           .in_duplex_bps = atof(argv[5]) * 1e9, .copy_latency_ns = 8000};
    int rc = loaded_read(&l, "schedule_bench", argv[6]);
    if (rc)
        return rc;
    offsets = malloc((l.it.nblocks + 1) * sizeof *offsets);
    rc = offsets ? vm_place(&l.it, &m, 0, offsets, &pool, &why) : VM_ENOMEM;
    if (!rc)
        rc = vm_page_units_build(&l.it, offsets, m.page_bytes, &u, &why);
    if (rc) {
        fprintf(stderr, "schedule_bench: %s\n", why.text);
        return 1;
    }
    memset(u.op_flags, 0, u.nops); /* the bound knows of no host that waits */
    for (size_t i = 0; i < sizeof percents / sizeof *percents; i++)
        one_budget(&u, &m, vm_page_units_peak(&u), percents[i]);
    vm_page_units_fini(&u);
    loaded_free(&l);
    free(offsets);
    return 0;
}
