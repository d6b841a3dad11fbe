/* main.c: one seed: works out what it needs, sets the stage, starts itself again on it, and judges.
 *
 *   torture --seed N [--vmem LIBVMEM] [--driver LIBCUDA] [--faults] [--free] [--keep LIST]
 *           [--budget BYTES] [--plant RULES] [--heart FD] [--torch LIBC10] [--verbose]
 *
 * LIST names the intents that are carried out (ranges of world:first-last, separated by commas); the
 * others are left out. Without --vmem the program runs bare. Threads go by turns drawn from the seed;
 * with --free there are two at least and they run as they like, so that a run need not repeat;
 * with --torch libvmem.so finds PyTorch in the process (LIBC10 stands for it) and programs of one thread
 * allocate in captures. RULES are SIMGPU_FAULTS to prove that a check can fail. FD gets a byte every few intents. Exit status: 0
 * right; 3 a loud fault that a hidden access explains; 4 out of memory; anything else is a failure.
 */
#include "torture.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct options {
    uint64_t seed;
    const char *vmem, *driver, *keep, *plant, *torch;
    int faults, verbose, run;
    int free;        /* threads run freely */
    int heart;       /* file descriptor for signs of life, -1: none */
    uint64_t budget; /* 0: a share of the program's peak */
};

struct job {
    struct world world;
    struct program program;
    uint8_t *keep;
    uint64_t seed;
    int single;
};

static _Noreturn void usage(const char *why)
{
    fprintf(stderr, "torture: %s\nusage: torture --seed N [--vmem LIBVMEM] [--driver LIBCUDA] "
                    "[--faults] [--free] [--keep LIST] [--budget BYTES] [--plant RULES] [--heart FD] "
                    "[--torch LIBC10] [--verbose]\n", why);
    exit(EXIT_USAGE);
}

/* The intents of `world` that `list` names; NULL list: all. */
static uint8_t *parse_keep(const char *list, uint32_t world, uint32_t n)
{
    if (!list)
        return NULL;
    uint8_t *keep = calloc(n ? n : 1, 1);
    while (keep && *list) {
        char *end;
        unsigned long w = strtoul(list, &end, 10), first, last;
        if (*end != ':')
            usage("--keep wants a list such as 0:3-9,1:4-4");
        first = strtoul(end + 1, &end, 10);
        if (*end != '-')
            usage("--keep wants a list such as 0:3-9,1:4-4");
        last = strtoul(end + 1, &end, 10);
        for (unsigned long k = first; w == world && k <= last && k < n; k++)
            keep[k] = 1;
        list = *end == ',' ? end + 1 : end;
        if (*end && *end != ',')
            usage("--keep wants a list such as 0:3-9,1:4-4");
    }
    return keep;
}

static void *run_job(void *arg)
{
    struct job *j = arg;
    struct world *w = &j->world;
    turn_enter(w);
    if (!w->shared->dry)
        TRY(w, cuCtxSetCurrent(w->gpu->context));
    world_run(w, &j->program, j->keep);
    world_close(w);
    turn_leave(w);
    return NULL;
}

/* All worlds of the seed: by turns without a device, else each on its thread. */
static void run_worlds(const struct options *o, const struct settings *s, struct shared *shared,
                       struct job *jobs)
{
    pthread_t threads[WORLDS];
    for (uint32_t k = 0; k < s->worlds; k++) {
        struct job *j = &jobs[k];
        j->seed = o->seed;
        program_make(o->seed, k, s, &j->program);
        j->keep = parse_keep(o->keep, k, j->program.nintents);
        world_open(&j->world, shared, k, o->seed, s->worlds == 1);
        if (shared->dry || s->worlds == 1)
            run_job(j);
    }
    if (shared->dry || s->worlds == 1)
        return;
    for (uint32_t k = 0; k < s->worlds; k++)
        if (pthread_create(&threads[k], NULL, run_job, &jobs[k]) != 0)
            usage("cannot start a thread");
    for (uint32_t k = 0; k < s->worlds; k++)
        pthread_join(threads[k], NULL);
}

static void fini_jobs(const struct settings *s, struct job *jobs)
{
    for (uint32_t k = 0; k < s->worlds; k++) {
        program_fini(&jobs[k].program);
        free(jobs[k].keep);
    }
}

static void open_gpu(struct world *none, struct gpu *g, CUdevice device)
{
    CUmodule module;
    TRY(none, cuDevicePrimaryCtxRetain(&g->context, device));
    TRY(none, cuCtxSetCurrent(g->context));
    TRY(none, cuModuleLoadData(&module, torture_image));
    TRY(none, cuModuleGetFunction(&g->mix, module, "torture_mix"));
    TRY(none, cuModuleGetFunction(&g->swap, module, "torture_swap"));
    TRY(none, cuModuleGetFunction(&g->gather, module, "torture_gather"));
    TRY(none, cuModuleGetFunction(&g->store, module, "torture_store"));
}

static void open_devices(struct shared *s, uint32_t ngpus)
{
    struct world none;
    CUgraph graph;
    CUstream stream;
    memset(&none, 0, sizeof none);
    none.shared = s;
    TRY(&none, cuInit(0));
    s->ngpus = ngpus;
    for (uint32_t k = ngpus; k-- > 0;)
        open_gpu(&none, &s->gpus[k], (CUdevice)k);
    TRY(&none, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    TRY(&none, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    TRY(&none, cuStreamEndCapture(stream, &graph));
    TRY(&none, cuGraphDestroy(graph));
    TRY(&none, cuStreamDestroy(stream));
    s->graphs = 1;
}

/* Two of three programs with several threads deal them over two devices. Not drawn from the seed's
 * generator, so that the programs of older seeds stay what they were. */
static uint32_t gpus_of(const struct options *o, const struct settings *s)
{
    return s->worlds > 1 && o->seed % 3 != 0 ? GPUS : 1;
}

/* Captures that overlap keep their memory for good, so only programs of one thread have any. */
static int has_scratch(const struct options *o, const struct settings *s)
{
    return o->vmem && o->torch && s->worlds == 1;
}

static int run(const struct options *o, const struct settings *s)
{
    static struct job jobs[WORLDS];
    struct shared shared = {.verbose = o->verbose, .turns = s->worlds > 1 && !o->free,
                            .scratch = s->scratch,
                            .seed = o->seed, .heart = o->heart, .alive = (1u << s->worlds) - 1,
                            .lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};
    uint32_t done = 0, checked = 0;
    open_devices(&shared, gpus_of(o, s));
    run_worlds(o, s, &shared, jobs);
    for (uint32_t k = 0; k < s->worlds; k++) {
        done += jobs[k].world.done;
        checked += jobs[k].world.checked;
    }
    fini_jobs(s, jobs);
    if (o->verbose)
        fprintf(stderr, "torture: seed %llu: right, %u operations, %u comparisons\n",
                (unsigned long long)o->seed, done, checked);
    return EXIT_RIGHT;
}

/* ---- the stage ----------------------------------------------------------------------------------------*/

static void put(const char *name, unsigned long long value)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", value);
    setenv(name, text, 1);
}

/* One or two rules, of calls that libvmem.so makes for itself and must get over. */
static void put_faults(uint64_t seed, int verbose)
{
    static const char *const rules[] = {
        "cuMemCreate:%u=OUT_OF_MEMORY",   "cuMemCreate:p=0.02=OUT_OF_MEMORY",
        "cuMemMap:%u=OUT_OF_MEMORY",      "cuMemSetAccess:%u=OUT_OF_MEMORY",
        "cuMemHostRegister*:%u=OUT_OF_MEMORY", "cuMemHostAlloc:%u=OUT_OF_MEMORY",
        "cuEventCreate:%u=OUT_OF_MEMORY", "cuMemCreate:%u+=OUT_OF_MEMORY",
        "cuMemAddressReserve:%u=OUT_OF_MEMORY", "slow-copy=8@0.2",
    };
    struct rng r = {seed * 2 + 77};
    char text[256], one[96];
    text[0] = 0;
    for (uint32_t n = 1 + rng_below(&r, 2); n; n--) {
        snprintf(one, sizeof one, rules[rng_below(&r, sizeof rules / sizeof rules[0])],
                 1 + rng_below(&r, 40));
        if (text[0])
            strncat(text, ",", sizeof text - strlen(text) - 1);
        strncat(text, one, sizeof text - strlen(text) - 1);
    }
    setenv("SIMGPU_FAULTS", text, 1);
    if (verbose)
        fprintf(stderr, "torture: faults %s\n", text);
}

static void set_stage(const struct options *o, const struct settings *s)
{
    static struct job jobs[WORLDS];
    struct shared shared = {.dry = 1, .graphs = 1, .scratch = s->scratch, .heart = -1};
    run_worlds(o, s, &shared, jobs);
    uint64_t peak = 0, worst = 0;
    uint32_t intents = 0;
    for (uint32_t k = 0; k < s->worlds; k++) {
        peak += jobs[k].world.peak_words * 4;
        worst += jobs[k].world.worst_op_words * 4;
        intents = jobs[k].program.nintents > intents ? jobs[k].program.nintents : intents;
    }
    fini_jobs(s, jobs);
    /* room for what one operation of each thread touches, in whole pages */
    uint64_t floor = worst + (uint64_t)s->granularity * 12 * s->worlds;
    uint64_t budget = peak * s->budget_percent / 100 + (uint64_t)s->granularity * 4;
    if (budget < floor)
        budget = floor;
    if (o->budget)
        budget = o->budget;
    setenv("SIMGPU_PRESET", "h100-80g", 1);
    setenv("SIMGPU_MODE", "functional", 1);
    setenv("SIMGPU_MEMORY", "64MiB", 1);
    setenv("SIMGPU_CONTEXT", "0", 1);
    setenv("SIMGPU_RACECHECK", "1", 1);
    setenv("SIMGPU_RACE_ABORT", "1", 1);
    put("SIMGPU_GRANULARITY", s->granularity);
    put("SIMGPU_SEED", o->seed);
    put("SIMGPU_DEVICES", gpus_of(o, s));
    put("SIMGPU_HOST_NUMA", (unsigned long long)s->numa);
    if (o->plant)
        setenv("SIMGPU_FAULTS", o->plant, 1);
    else if (o->faults)
        put_faults(o->seed, o->verbose);
    if (!o->vmem)
        return;
    char preload[8192];
    snprintf(preload, sizeof preload, "%s%s%s", o->vmem, o->torch ? ":" : "", o->torch ? o->torch : "");
    setenv("LD_PRELOAD", preload, 1);
    setenv("VMEM_BACKEND", s->numa ? "numa" : "registered", 1);
    setenv("VMEM_HOST_BUDGET", "256MiB", 1);
    put("VMEM_BUDGET", budget);
    if (o->driver)
        setenv("VMEM_LIBCUDA", o->driver, 1);
    if (o->verbose)
        fprintf(stderr, "torture: peak %llu, budget %llu, worst operation %llu, %s, %u threads, "
                        "%u intents\n",
                (unsigned long long)peak, (unsigned long long)budget, (unsigned long long)worst,
                s->numa ? "numa" : "registered", s->worlds, intents);
}

static struct options parse(int argc, char **argv)
{
    struct options o = {.heart = -1};
    int seed_given = 0;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--seed") == 0) {
            char *end;
            o.seed = strtoull(value, &end, 10);
            if (end == value || *end)
                usage("--seed wants a number");
            seed_given = 1, i++;
        } else if (strcmp(argv[i], "--vmem") == 0) {
            o.vmem = value, i++;
        } else if (strcmp(argv[i], "--driver") == 0) {
            o.driver = value, i++;
        } else if (strcmp(argv[i], "--keep") == 0) {
            o.keep = value, i++;
        } else if (strcmp(argv[i], "--budget") == 0) {
            o.budget = strtoull(value, NULL, 10), i++;
        } else if (strcmp(argv[i], "--plant") == 0) {
            o.plant = value, i++;
        } else if (strcmp(argv[i], "--torch") == 0) {
            o.torch = value, i++;
        } else if (strcmp(argv[i], "--heart") == 0) {
            o.heart = atoi(value), i++;
        } else if (strcmp(argv[i], "--free") == 0) {
            o.free = 1;
        } else if (strcmp(argv[i], "--faults") == 0) {
            o.faults = 1;
        } else if (strcmp(argv[i], "--verbose") == 0) {
            o.verbose = 1;
        } else if (strcmp(argv[i], "--on-stage") == 0) {
            o.run = 1;
        } else {
            usage("unknown option");
        }
    }
    if (!seed_given)
        usage("--seed is missing");
    return o;
}

int main(int argc, char **argv)
{
    struct options o = parse(argc, argv);
    struct settings s;
    settings_make(o.seed, o.free ? 2 : 1, &s);
    s.scratch = has_scratch(&o, &s);
    if (o.run)
        return run(&o, &s);
    set_stage(&o, &s);
    char **again = calloc((size_t)argc + 2, sizeof *again);
    if (!again)
        usage("out of memory");
    memcpy(again, argv, (size_t)argc * sizeof *again);
    again[argc] = "--on-stage";
    execv("/proc/self/exe", again);
    fprintf(stderr, "torture: cannot start again: %s\n", strerror(errno));
    return EXIT_USAGE;
}
