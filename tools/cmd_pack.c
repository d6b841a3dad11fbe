/* vmem plan --pack: places buffers with known lifetimes. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd.h"
#include "complain.h"
#include "pack_csv.h"
#include "units.h"
#include "verify.h"

static const char usage[] =
    "usage: vmem plan --pack FILE.csv [options]\n\n"
    "Gives every buffer of FILE a place such that no two that are live together overlap. FILE has the\n"
    "columns id,lower,upper,size (live from lower up to, not including, upper) and may have offset (a\n"
    "place it already has), alignment and gaps (like \"7-9 12-14\": not live, place kept).\n\n"
    "  --capacity SIZE   the highest end allowed; without it the height is made as small as possible\n"
    "  --time-limit S    seconds to search in (10)\n"
    "  --seed N          the order in which equal buffers are tried\n"
    "  -o FILE           where id,lower,upper,size,offset is written (standard output)\n\n"
    "The result is checked by a verifier that shares no code with the packer. Exit status 1: the\n"
    "capacity cannot be kept, or no packing was found in time.\n";

struct pack_options {
    const char *path, *out, *capacity, *limit, *seed;
};

static int take_options(int argc, char **argv, struct pack_options *o)
{
    const struct {
        const char *name;
        const char **to;
    } valued[] = {{"--capacity", &o->capacity}, {"--time-limit", &o->limit}, {"--seed", &o->seed},
                  {"-o", &o->out},              {"--pack", &o->path}};
    for (int i = 1; i < argc; i++) {
        const char **to = NULL;
        for (size_t k = 0; k < sizeof valued / sizeof *valued; k++)
            if (strcmp(argv[i], valued[k].name) == 0)
                to = valued[k].to;
        if (!to)
            return complain(2, "plan --pack", "unknown option '%s'; `vmem plan --pack --help` lists them",
                            argv[i]);
        if (i + 1 >= argc)
            return complain(2, "plan --pack", "option '%s' needs a value", argv[i]);
        *to = argv[++i];
    }
    if (!o->path)
        return complain(2, "plan --pack", "which file? usage: vmem plan --pack FILE.csv");
    return 0;
}

static int take_numbers(const struct pack_options *o, struct vm_pack_options *opt, double *seconds)
{
    char *end = NULL;
    *seconds = 10;
    if (o->capacity && (vm_size_parse(o->capacity, 0, &opt->capacity) < 0 || opt->capacity == 0 ||
                        opt->capacity > INT64_MAX))
        return complain(2, "plan --pack", "--capacity cannot be '%s': not a size such as 1048576 or 12GiB",
                        o->capacity);
    if (o->limit) {
        *seconds = strtod(o->limit, &end);
        if (end == o->limit || *end || !(*seconds >= 0 && *seconds <= 1e9))
            return complain(2, "plan --pack", "--time-limit cannot be '%s': not a number of seconds",
                            o->limit);
    }
    if (o->seed) {
        errno = 0;
        opt->seed = strtoull(o->seed, &end, 0);
        if (end == o->seed || *end || errno || *o->seed == '-')
            return complain(2, "plan --pack", "--seed cannot be '%s': not a whole number", o->seed);
    }
    return 0;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int past(void *deadline)
{
    return now() > *(const double *)deadline;
}

static int read_file(const char *path, struct vm_pack_csv *csv)
{
    struct vm_error why;
    FILE *f = fopen(path, "re");
    if (!f)
        return complain(1, "plan --pack", "cannot read '%s': %s", path, strerror(errno));
    int status = vm_pack_csv_read(f, path, csv, &why);
    fclose(f);
    return status ? complain(1, "plan --pack", "%s", why.text) : 0;
}

static int write_file(const char *path, const struct vm_pack_csv *csv, const uint64_t *offsets)
{
    FILE *f = path ? fopen(path, "we") : stdout;
    if (!f)
        return complain(1, "plan --pack", "cannot write '%s': %s", path, strerror(errno));
    int status = vm_pack_csv_write(f, csv, offsets);
    if ((path && fclose(f) != 0) || status)
        return complain(1, "plan --pack", "cannot write '%s': %s", path ? path : "standard output",
                        strerror(errno));
    return 0;
}

/* One line about the result, on standard output unless the buffers go there. */
static void summarise(const struct pack_options *o, const struct vm_pack_csv *csv,
                      const struct vm_pack_result *res, double seconds)
{
    double over = res->max_live ? 100 * ((double)res->height / (double)res->max_live - 1) : 0;
    fprintf(o->out ? stdout : stderr,
            "%zu buffers in %" PRIu64 " bytes; most live at once %" PRIu64 " (%.3f %% over); %s; "
            "%" PRIu64 " nodes, %.3f s\n",
            csv->problem.nitems, res->height, res->max_live, over,
            res->height == res->bound ? "no packing is lower" : "a lower one may exist", res->nodes, seconds);
}

static int pack(const struct pack_options *o, struct vm_pack_options *opt, double limit,
                const struct vm_pack_csv *csv, uint64_t *offsets)
{
    struct vm_pack_result res;
    struct vm_error why;
    double start = now(), deadline = start + limit;
    opt->expired = past;
    opt->expired_arg = &deadline;
    int status = vm_pack(&csv->problem, opt, offsets, &res, &why);
    if (status < 0)
        return complain(1, "plan --pack", "%s: %s", o->path, why.text);
    if (status == VM_UNFIT)
        return complain(1, "plan --pack", "%s: capacity %s is impossible: at least %" PRIu64 " bytes are needed",
                        o->path, o->capacity, res.bound);
    if (status == VM_TIMEOUT)
        return complain(1, "plan --pack",
                        "%s: no packing within %s was found in %g s (best: %" PRIu64
                        "); give it more with --time-limit",
                        o->path, o->capacity, limit, res.height);
    if (vm_verify_packing(&csv->problem, offsets, opt->capacity, NULL, &why))
        return complain(1, "plan --pack", "%s: the packing is wrong, please report it: %s", o->path, why.text);
    int rc = write_file(o->out, csv, offsets);
    if (rc == 0)
        summarise(o, csv, &res, now() - start);
    return rc;
}

int cmd_pack(int argc, char **argv)
{
    struct pack_options o = {0};
    struct vm_pack_options opt = {0};
    struct vm_pack_csv csv;
    double limit = 0;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(usage, stdout);
            return 0;
        }
    int rc = take_options(argc, argv, &o);
    if (rc == 0)
        rc = take_numbers(&o, &opt, &limit);
    if (rc == 0)
        rc = read_file(o.path, &csv);
    if (rc)
        return rc;
    uint64_t *offsets = malloc((csv.problem.nitems + 1) * sizeof *offsets);
    rc = offsets ? pack(&o, &opt, limit, &csv, offsets) : complain(1, "plan --pack", "out of memory");
    free(offsets);
    vm_pack_csv_fini(&csv);
    return rc;
}
