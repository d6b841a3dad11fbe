/* The JSON report, written when the process ends. Every figure in it is simulated. */
#include "sg.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* %p in the name stands for the process id: one report for each of several processes. */
static void report_name(char *out, size_t n)
{
    const char *p = strstr(sg.cfg.report, "%p");
    if (p)
        snprintf(out, n, "%.*s%d%s", (int)(p - sg.cfg.report), sg.cfg.report, (int)getpid(), p + 2);
    else
        snprintf(out, n, "%s", sg.cfg.report);
}

static void device_report(FILE *f, const struct sg_device *d)
{
    static const char *const engines[SG_ENG_COUNT] = {"compute", "h2d", "d2h"};
    fprintf(f,
            "  {\"device\": %d, \"peak_physical_bytes\": %zu, \"physical_bytes\": %zu, "
            "\"out_bytes\": %llu, \"in_bytes\": %llu, \"d2d_bytes\": %llu, \"busy_ns\": {",
            d->ordinal, d->peak, d->used + d->reserved_ctx, (unsigned long long)d->out_bytes,
            (unsigned long long)d->in_bytes, (unsigned long long)d->d2d_bytes);
    for (int e = 0; e < SG_ENG_COUNT; e++)
        fprintf(f, "%s\"%s\": %llu", e ? ", " : "", engines[e],
                (unsigned long long)d->engine[e].busy_ns);
    fprintf(f, "}}");
}

void sg_kernel_log(const struct sg_op *op)
{
    static FILE *f;
    static bool failed;
    const struct sg_kernel_op *k = &op->u.kernel;
    if (!f && !failed) {
        f = fopen(sg.cfg.kernel_log, "we");
        failed = !f;
        if (failed)
            sg_note("simgpu: SIMGPU_KERNEL_LOG=%s cannot be opened", sg.cfg.kernel_log);
    }
    if (f)
        fprintf(f, "%d %.17g %.17g %.17g %llu %s\n", k->work.kclass, k->work.flops, k->work.bytes,
                op->left_ns, (unsigned long long)op->start_ns, k->name);
}

static void report_write(void)
{
    char name[4096];
    report_name(name, sizeof name);
    FILE *f = fopen(name, "we");
    if (!f) {
        sg_note("simgpu: SIMGPU_REPORT=%s cannot be written", name);
        return;
    }
    const struct sg_device *d = &sg.dev[0];
    fprintf(f, "{\"simulated\": true, \"preset\": \"%s\", \"mode\": \"%s\", \"seed\": %llu,\n",
            sg.cfg.preset.name, sg.cfg.mode == SG_TIMING ? "timing" : "functional",
            (unsigned long long)sg.cfg.seed);
    fprintf(f, " \"memory_bytes\": %zu, \"context_bytes\": %zu, \"peak_physical_bytes\": %zu,\n",
            sg.cfg.preset.memory, sg.cfg.preset.context_bytes, d->peak);
    fprintf(f, " \"out_bytes\": %llu, \"in_bytes\": %llu, \"virtual_time_ns\": %llu,\n",
            (unsigned long long)d->out_bytes, (unsigned long long)d->in_bytes,
            (unsigned long long)(sg.host_ns > sg.dev_ns ? sg.host_ns : sg.dev_ns));
    fprintf(f,
            " \"kernels\": %llu, \"copies\": %llu, \"races\": %llu, \"undefined_reads\": %llu, "
            "\"early_frees\": %llu, \"late_maps\": %llu, \"illegal_addresses\": %llu,\n",
            (unsigned long long)sg.kernels, (unsigned long long)sg.copies,
            (unsigned long long)sg.races, (unsigned long long)sg.undefined,
            (unsigned long long)sg.early, (unsigned long long)sg.late,
            (unsigned long long)sg.illegal);
    fprintf(f, " \"devices\": [\n");
    for (int i = 0; i < sg.cfg.ndevices; i++) {
        device_report(f, &sg.dev[i]);
        fprintf(f, "%s\n", i + 1 < sg.cfg.ndevices ? "," : "");
    }
    fprintf(f, " ],\n \"calls\": {");
    bool first = true;
    for (int i = 0; i < SG_ID_COUNT; i++) {
        if (!sg.calls[i])
            continue;
        fprintf(f, "%s\n  \"%s\": %llu", first ? "" : ",", sg_names[i],
                (unsigned long long)sg.calls[i]);
        first = false;
    }
    fprintf(f, "\n }}\n");
    fclose(f);
}

__attribute__((destructor)) static void at_exit(void)
{
    if (sg.inited && sg.pid == (int)getpid())
        sg_machine_leave();
    if (sg.inited && sg.cfg.report && *sg.cfg.report && sg.pid == (int)getpid())
        report_write();
}
