/* vmem trace: what a person wants to know of a trace. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chart.h"
#include "cmd.h"
#include "complain.h"
#include "export.h"
#include "loaded.h"
#include "units.h"
#include "words.h"

static const char usage[] =
    "usage: vmem trace [options] FILE\n\n"
    "Summarises a trace that libvmem.so wrote (VMEM_TRACE=FILE), or an operator log of the DTR "
    "simulator:\n"
    "the iterations found, the peak, what is live and cold over the iteration, the largest "
    "blocks.\n\n"
    "  --budget SIZE   say what would have to move under this budget (12GiB, or 60% of the peak)\n"
    "  --largest N     number of blocks listed (default 12)\n"
    "  --buffers FILE  write the iteration's blocks as CSV: id,lower,upper,size\n"
    "  --chrome FILE   write the iteration for chrome://tracing or Perfetto\n"
    "  --memory-viz FILE\n"
    "                  write the trace as PyTorch's memory snapshot, for pytorch.org/memory_viz\n";

struct options {
    const char *path, *budget, *buffers, *chrome, *memory_viz;
    size_t largest;
};

static const char *size_of(uint64_t bytes)
{
    static char buf[8][24];
    static unsigned next;
    return vm_size_text(bytes, buf[next++ % 8], sizeof buf[0]);
}

static const char *time_of(const struct loaded *l, uint64_t from_op, uint64_t to_op)
{
    static char buf[8][32];
    static unsigned next;
    char *b = buf[next++ % 8];
    uint64_t whole = l->start_ns[l->it.nops];
    size_t n = l->it.nops;
    uint64_t t = l->start_ns[to_op % n] + to_op / n * whole -
                 (l->start_ns[from_op % n] + from_op / n * whole);
    if (l->timed)
        return vm_time_text(t, b, sizeof buf[0]);
    snprintf(b, sizeof buf[0], "%" PRIu64 " ops", t);
    return b;
}

static void print_head(const struct loaded *l)
{
    const struct vm_trace *t = &l->trace;
    printf("%s: %zu events, %zu ops, %zu blocks", l->path, t->nevents, l->nops, t->nblocks);
    if (t->device[0])
        printf("; %s", t->device);
    if (t->clock[0])
        printf(" (%s times)", t->clock);
    printf("\n");
    if (!l->chosen) {
        printf("iterations  %s is taken as one (%zu ops)\n",
               l->imported ? "the operator log" : "none repeats; the whole trace", l->it.nops);
        return;
    }
    for (size_t i = 0; i < l->nruns; i++) {
        const struct vm_period *p = &l->runs[i];
        printf("%s%zu of %zu ops each, ops %zu to %zu, found at op %zu%s%s\n",
               i ? "            " : "iterations  ", p->repeats, p->ops,
               p->end - p->repeats * p->ops, p->end - 1, p->found,
               p->by_step ? " by vmem_step()" : "",
               l->nruns > 1 && p == l->chosen ? "  <- taken" : "");
    }
    if (l->it.periods > 1)
        printf("            some blocks outlive their successors' birth: shown are %u iterations "
               "as one\n",
               l->it.periods);
}

static void print_numbers(const struct loaded *l)
{
    const struct vm_liveness *v = &l->live;
    size_t persistent = 0, wraps = 0;
    uint64_t persistent_bytes = 0;
    for (size_t b = 0; b < l->it.nblocks; b++) {
        wraps += (l->it.blocks[b].flags & VM_BLK_WRAPS) != 0;
        if (l->it.blocks[b].flags & VM_BLK_PERSISTENT) {
            persistent++;
            persistent_bytes += l->it.blocks[b].size;
        }
    }
    if (l->timed)
        printf("op times    %s an iteration\n", time_of(l, 0, l->it.nops));
    printf("blocks      %zu: %zu persistent (%s), %zu allocated in it%s", l->it.nblocks, persistent,
           size_of(persistent_bytes), l->it.nblocks - persistent, wraps ? "" : "\n");
    if (wraps)
        printf(", %zu of them freed in the next\n", wraps);
    printf("allocated   %s at most, at op %u (%s)\n", size_of(v->peak_alloc), v->peak_alloc_op,
           loaded_op_name(l, v->peak_alloc_op));
    printf("live        %s at most, at op %u (%s)\n", size_of(v->peak_live), v->peak_live_op,
           loaded_op_name(l, v->peak_live_op));
    printf("largest op  %s, op %u (%s): no budget can be smaller\n\n", size_of(v->peak_work),
           v->peak_work_op, loaded_op_name(l, v->peak_work_op));
}

/* The longest cold stretch of a block; NULL if it has none. */
static const struct vm_gap *coldest(const struct loaded *l, uint32_t block, size_t *at)
{
    const struct vm_gap *best = NULL;
    const struct vm_liveness *v = &l->live;
    while (*at < v->ngaps && v->gaps[*at].block < block)
        ++*at;
    for (; *at < v->ngaps && v->gaps[*at].block == block; ++*at) {
        const struct vm_gap *g = &v->gaps[*at];
        if (g->cold && (!best || g->to - g->from > best->to - best->from))
            best = g;
    }
    return best;
}

struct ranked {
    uint32_t block;
    const struct vm_gap *gap;
    uint64_t weight;
};

static int by_weight(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return (x->block > y->block) - (x->block < y->block);
}

static void print_block_row(const struct loaded *l, uint32_t b, const struct vm_gap *gap)
{
    const struct vm_iter_block *k = &l->it.blocks[b];
    char life[32] = "persistent", cold[64] = "never cold";
    if (!(k->flags & VM_BLK_PERSISTENT))
        snprintf(life, sizeof life, "ops %u-%u", k->alloc_op, k->free_op);
    if (gap)
        snprintf(cold, sizeof cold, "ops %u-%u, %s", gap->from, gap->to,
                 time_of(l, (uint64_t)gap->from + 1, gap->to));
    const struct vm_use *first = l->live.uses + l->live.first_use[b];
    bool used = l->live.first_use[b + 1] > l->live.first_use[b];
    printf("%10s  %-18s %-28s %.40s\n", size_of(k->size), life, cold,
           used ? loaded_op_name(l, first->op) : "not used");
}

static bool print_largest(const struct loaded *l, size_t n)
{
    size_t at = 0;
    struct ranked *r = malloc((l->it.nblocks + 1) * sizeof *r);
    if (!r)
        return false;
    for (uint32_t b = 0; b < l->it.nblocks; b++)
        r[b] = (struct ranked){b, coldest(l, b, &at), l->it.blocks[b].size};
    qsort(r, l->it.nblocks, sizeof *r, by_weight);
    if (n > l->it.nblocks)
        n = l->it.nblocks;
    printf("\nlargest %zu of %zu blocks\n%10s  %-18s %-28s %s\n", n, l->it.nblocks, "size", "lives",
           "longest cold stretch", "first used by");
    for (size_t i = 0; i < n; i++)
        print_block_row(l, r[i].block, r[i].gap);
    free(r);
    return true;
}

/* Is op inside the stretch, in cyclic time? */
static bool covers(const struct vm_gap *g, uint32_t op, uint32_t nops)
{
    return (op > g->from && op < g->to) || (op + nops > g->from && op + nops < g->to);
}

/* Bytes times the time they lie idle (in the unit of start_ns): what moving them is worth. */
static uint64_t gap_weight(const struct loaded *l, const struct vm_gap *g)
{
    size_t n = l->it.nops;
    uint64_t from = l->start_ns[(g->from + 1) % n] + (g->from + 1) / n * l->start_ns[n];
    uint64_t to = l->start_ns[g->to % n] + g->to / n * l->start_ns[n];
    double weight = (double)l->it.blocks[g->block].size * (double)(to > from ? to - from : 0);
    return weight < 1e19 ? (uint64_t)weight : (uint64_t)1e19;
}

/* The stretches that would make the worst moment fit: most idle bytes first. */
static bool print_movers(const struct loaded *l, uint64_t excess, size_t most)
{
    const struct vm_liveness *v = &l->live;
    struct ranked *r = malloc((v->ngaps + 1) * sizeof *r);
    size_t n = 0, shown = 0;
    uint64_t moved = 0;
    if (!r)
        return false;
    for (size_t i = 0; i < v->ngaps; i++) {
        const struct vm_gap *g = &v->gaps[i];
        if (g->cold && covers(g, v->peak_live_op, (uint32_t)l->it.nops))
            r[n++] = (struct ranked){g->block, g, gap_weight(l, g)};
    }
    qsort(r, n, sizeof *r, by_weight);
    printf(
        "\n  what lies coldest across that moment (bytes times idle time)\n%10s  %-18s %-28s %s\n",
        "size", "lives", "cold", "first used by");
    for (size_t i = 0; i < n && moved < excess; i++) {
        moved += l->it.blocks[r[i].block].size;
        if (shown++ < most)
            print_block_row(l, r[i].block, r[i].gap);
    }
    if (shown > most)
        printf("            and %zu more\n", shown - most);
    if (moved < excess)
        printf("  even with all of them away %s too much is left: blocks without a use in the "
               "iteration have "
               "to go as well\n",
               size_of(excess - moved));
    free(r);
    return true;
}

static bool print_budget(const struct loaded *l, uint64_t budget, size_t most)
{
    const struct vm_liveness *v = &l->live;
    uint64_t excess = vm_liveness_excess(v, budget);
    printf("\nunder a budget of %s\n", size_of(budget));
    if (v->peak_work > budget) {
        printf("  op %u (%s) alone needs %s: it cannot run\n", v->peak_work_op,
               loaded_op_name(l, v->peak_work_op), size_of(v->peak_work));
        return true;
    }
    if (excess == 0) {
        printf(v->peak_alloc > budget
                   ? "  nothing has to move if dead contents are dropped; what is live fits\n"
                   : "  it fits: nothing has to move\n");
        return true;
    }
    printf("  %s of %s has to be away at op %u (%s)\n", size_of(excess), size_of(v->peak_live),
           v->peak_live_op, loaded_op_name(l, v->peak_live_op));
    printf("  so at least %s moves out and back in each iteration", size_of(excess));
    double bps = l->trace.machine.out_bps;
    if (bps > 0 && l->timed) {
        char link[24], own[24];
        printf(": %s of link time each way at %.1f GB/s, beside %s of op times",
               vm_time_text((uint64_t)((double)excess / bps * 1e9), link, sizeof link), bps / 1e9,
               vm_time_text(l->start_ns[l->it.nops], own, sizeof own));
    }
    printf("\n  (`vmem plan` says which blocks, when, and what it costs)\n");
    return print_movers(l, excess, most);
}

static int file_put(void *ctx, const char *text, size_t n)
{
    return fwrite(text, 1, n, ctx) == n ? 0 : VM_EIO;
}

static int put_buffers(const struct loaded *l, FILE *f)
{
    return vm_export_buffers(&l->it, file_put, f);
}

static int put_chrome(const struct loaded *l, FILE *f)
{
    return vm_export_chrome(&l->it, &l->live, l->trace.names, file_put, f);
}

static int put_memory_viz(const struct loaded *l, FILE *f)
{
    return vm_export_memory_viz(&l->trace, file_put, f);
}

/* Opens, lets `put` write, closes; one line when any of it fails. No path: nothing is wanted. */
static int write_file(const struct loaded *l, const char *path,
                      int (*put)(const struct loaded *l, FILE *f))
{
    if (!path)
        return 0;
    FILE *f = fopen(path, "we");
    if (!f)
        return complain(1, "trace", "cannot write '%s': %s", path, strerror(errno));
    int rc = put(l, f);
    if (fclose(f) != 0 || rc < 0)
        return complain(1, "trace", "cannot write '%s': %s", path, strerror(errno));
    return 0;
}

/* Takes the value of an option that needs one; NULL if it is missing. */
static const char *value_of(int argc, char **argv, int *i)
{
    return *i + 1 < argc ? argv[++*i] : NULL;
}

static int take_options(int argc, char **argv, struct options *o)
{
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *v = NULL;
        if (a[0] != '-' || !a[1]) {
            if (o->path)
                return complain(2, "trace", "one file, please: '%s' or '%s'?", o->path, a);
            o->path = a;
            continue;
        }
        bool known = strcmp(a, "--budget") == 0 || strcmp(a, "--largest") == 0 ||
                     strcmp(a, "--buffers") == 0 || strcmp(a, "--chrome") == 0 ||
                     strcmp(a, "--memory-viz") == 0;
        if (!known)
            return complain(2, "trace", "unknown option '%s'; `vmem trace --help` lists them", a);
        if (!(v = value_of(argc, argv, &i)))
            return complain(2, "trace", "option '%s' needs a value", a);
        if (strcmp(a, "--budget") == 0) {
            o->budget = v;
        } else if (strcmp(a, "--buffers") == 0) {
            o->buffers = v;
        } else if (strcmp(a, "--chrome") == 0) {
            o->chrome = v;
        } else if (strcmp(a, "--memory-viz") == 0) {
            o->memory_viz = v;
        } else {
            char *end;
            long n = strtol(v, &end, 10);
            if (*end || n < 0 || n > 1000000 || end == v)
                return complain(2, "trace",
                                "--largest cannot be '%s': not a number from 0 to 1000000", v);
            o->largest = (size_t)n;
        }
    }
    if (!o->path)
        return complain(2, "trace", "which file? usage: vmem trace [options] FILE");
    return 0;
}

int cmd_trace(int argc, char **argv)
{
    struct options o = {.largest = 12};
    struct loaded l = {0};
    uint64_t budget = 0;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(usage, stdout);
            return 0;
        }
    int rc = take_options(argc, argv, &o);
    if (rc)
        return rc;
    rc = loaded_read(&l, "trace", o.path);
    if (rc == 0 && o.budget &&
        (vm_size_parse(o.budget, l.live.peak_alloc, &budget) < 0 || budget == 0))
        rc = complain(2, "trace", "--budget cannot be '%s': not a size such as 12GiB or 60%%",
                      o.budget);
    if (rc == 0) {
        print_head(&l);
        print_numbers(&l);
        chart_print(&l, budget);
        if (!print_largest(&l, o.largest) || (budget && !print_budget(&l, budget, o.largest)))
            rc = complain(1, "trace", "out of memory");
    }
    if (rc == 0)
        rc = write_file(&l, o.buffers, put_buffers);
    if (rc == 0)
        rc = write_file(&l, o.chrome, put_chrome);
    if (rc == 0)
        rc = write_file(&l, o.memory_viz, put_memory_viz);
    loaded_free(&l);
    return rc;
}
