/* Measures the packers for the benchmarks `pack` and `planner-scale`. Prints one JSON object.
 *
 *   pack_bench search FILE CAPACITY SECONDS   decide one capacity (search only)
 *   pack_bench best FILE SECONDS              fast packing, then search for at most SECONDS
 *   pack_bench fast FILE                      fast packing
 *   pack_bench oplog FILE SECONDS             an operator log (DTR) as buffers: like `best`
 *   pack_bench trace FILE SECONDS             one iteration of a trace: like `best`, and its blocks paged
 *   pack_bench scale KIND N                   generated iteration, KIND = training or tile:FILE: packed,
 *                                             then placed in pages and scheduled
 *
 * Times are CPU seconds of this thread; `q` is the time qsort takes for 10^6 random 64-bit keys,
 * measured in the same process. Every packing is verified. `trace` prints a second object. Exit status 1: it failed or was wrong. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "import_dtr.h"
#include "iteration.h"
#include "loaded.h"
#include "pack_csv.h"
#include "pack_scale.h"
#include "schedule.h"
#include "verify.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The yardstick: the least of three sorts. */
static double measure_q(void)
{
    enum { N = 1000000 };
    uint64_t *keys = malloc(N * sizeof *keys), x = 88172645463325252u;
    double best = 1e9;
    for (int round = 0; keys && round < 3; round++) {
        for (int i = 0; i < N; i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            keys[i] = x;
        }
        double start = now();
        qsort(keys, N, sizeof *keys, by_value);
        double took = now() - start;
        best = took < best ? took : best;
    }
    free(keys);
    return best;
}

static int past(void *deadline)
{
    return now() > *(double *)deadline;
}

static int report(const char *name, const struct vm_pack_problem *p, const uint64_t *offsets, int status,
                  const struct vm_pack_result *res, double seconds, const struct vm_error *why)
{
    struct vm_error fault = {{0}};
    uint64_t height = 0;
    if (status < 0) {
        fprintf(stderr, "pack_bench: %s: %s\n", name, why->text);
        return 1;
    }
    int placed = status == VM_OK;
    if (placed && vm_verify_packing(p, offsets, 0, &height, &fault)) {
        fprintf(stderr, "pack_bench: %s: the packing is wrong: %s\n", name, fault.text);
        return 1;
    }
    printf("{\"items\": %zu, \"solved\": %d, \"seconds\": %.6f, \"height\": %" PRIu64
           ", \"max_live\": %" PRIu64 ", \"bound\": %" PRIu64 ", \"nodes\": %" PRIu64 ", \"q\": %.6f}\n",
           p->nitems, placed, seconds, height, res->max_live, res->bound, res->nodes, measure_q());
    return 0;
}

enum way { WAY_SEARCH, WAY_BEST, WAY_FAST };

static int run_problem(const char *name, const struct vm_pack_problem *p, enum way way, uint64_t capacity,
                       double limit)
{
    uint64_t *offsets = calloc(p->nitems + 1, sizeof *offsets);
    double start = now(), deadline = start + limit;
    struct vm_pack_options opt = {.capacity = capacity, .expired = past, .expired_arg = &deadline};
    struct vm_pack_result res = {0};
    struct vm_error why = {{0}};
    int status = way == WAY_SEARCH ? vm_pack_search(p, &opt, offsets, &res, &why)
                 : way == WAY_BEST ? vm_pack(p, &opt, offsets, &res, &why)
                                   : vm_pack_fast(p, &opt, offsets, &res, &why);
    int rc = report(name, p, offsets, status, &res, now() - start, &why);
    free(offsets);
    return rc;
}

static FILE *open_or_say(const char *path)
{
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    if (!f)
        fprintf(stderr, "pack_bench: %s cannot be opened\n", path);
    return f;
}

static int run_csv(const char *path, enum way way, uint64_t capacity, double limit)
{
    struct vm_pack_csv csv;
    struct vm_error why;
    FILE *f = open_or_say(path);
    if (!f)
        return 1;
    int status = vm_pack_csv_read(f, path, &csv, &why);
    fclose(f);
    if (status) {
        fprintf(stderr, "pack_bench: %s\n", why.text);
        return 1;
    }
    int rc = run_problem(path, &csv.problem, way, capacity, limit);
    vm_pack_csv_fini(&csv);
    return rc;
}

/* The blocks of an iteration as a packing problem: time is the order of allocations and frees. A block
 * that is freed before it is allocated wraps: what lies between is a gap. */
static struct vm_pack_item *items_of(const struct vm_iteration *it, struct vm_pack_span *gaps, size_t *n)
{
    struct vm_pack_item *items = calloc(it->nblocks + 1, sizeof *items);
    for (size_t b = 0; items && b < it->nblocks; b++)
        items[b] = (struct vm_pack_item){.size = it->blocks[b].size, .upper = it->nmem + 2,
                                         .fixed = VM_UNPLACED};
    for (size_t k = 0; items && k < it->nmem; k++) {
        if (it->mem[k].is_free)
            items[it->mem[k].block].upper = k + 1;
        else
            items[it->mem[k].block].lower = k + 1;
    }
    for (size_t b = 0; items && b < it->nblocks; b++)
        if (items[b].upper <= items[b].lower) {
            gaps[b] = (struct vm_pack_span){items[b].upper, items[b].lower};
            items[b].gap = (uint32_t)b;
            items[b].ngaps = 1;
            items[b].lower = 0;
            items[b].upper = it->nmem + 2;
        }
    *n = it->nblocks;
    return items;
}

static int run_oplog(const char *path, double limit)
{
    struct vm_trace t = {0};
    struct vm_iteration it = {0};
    struct vm_error why;
    FILE *f = open_or_say(path);
    if (!f)
        return 1;
    int status = vm_import_dtr(f, path, &t, &why);
    fclose(f);
    if (status == VM_OK)
        status = vm_iteration_whole(&t, &it, &why);
    if (status) {
        fprintf(stderr, "pack_bench: %s\n", why.text);
        return 1;
    }
    size_t n = 0;
    struct vm_pack_span *gaps = calloc(it.nblocks + 1, sizeof *gaps);
    struct vm_pack_item *items = items_of(&it, gaps, &n);
    struct vm_pack_problem p = {.items = items, .nitems = n, .gaps = gaps, .ngaps = n};
    int rc = run_problem(path, &p, WAY_BEST, 0, limit);
    free(items);
    free(gaps);
    vm_iteration_fini(&it);
    vm_trace_fini(&t);
    return rc;
}

static long peak_kib(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_maxrss;
}

/* Half the peak as the budget: pages must move. */
static int plan_schedule(const struct vm_iteration *it, const struct vm_machine *m, const uint64_t *offsets,
                         struct vm_error *why)
{
    struct vm_page_units u = {0};
    struct vm_schedule s = {0};
    int status = vm_page_units_build(it, offsets, m->page_bytes, &u, why);
    if (status)
        return status;
    uint64_t peak = vm_page_units_peak(&u), work = vm_page_units_work(&u, NULL);
    struct vm_schedule_options opt = {.capacity_pages = peak / 2 > work + 64 ? peak / 2 : work + 64};
    status = vm_schedule_build(&u, m, &opt, &s, why);
    vm_schedule_fini(&s);
    vm_page_units_fini(&u);
    return status;
}

/* The most bytes live at once when blocks of a page or more take whole pages. */
static int rounded_live(const struct vm_pack_problem *p, struct vm_pack_item *items, uint64_t page,
                        uint64_t *bytes, struct vm_error *why)
{
    struct vm_pack_problem rounded = *p;
    rounded.items = items;
    for (size_t i = 0; i < p->nitems; i++)
        if (items[i].size >= page)
            items[i].size = (items[i].size + page - 1) / page * page;
    return vm_pack_max_live(&rounded, bytes, why);
}

struct scale_result {
    double pack, place, schedule, q; /* seconds */
    long kib_before, kib_pack, kib_place, kib_after;
    uint64_t height, live, pool, rounded; /* packed and live; paged pool and live in whole pages */
};

static int measure_scale(const struct vm_iteration *it, struct vm_pack_item *items, uint64_t *offsets,
                         struct scale_result *r, struct vm_error *why)
{
    struct vm_machine m = {.page_bytes = (uint64_t)2 << 20, .out_bps = 12.8e9, .in_bps = 12.8e9,
                           .out_duplex_bps = 11e9, .in_duplex_bps = 11e9};
    struct vm_pack_problem p = {.items = items, .nitems = it->nblocks}; /* nothing wraps */
    struct vm_pack_options opt = {0};
    struct vm_pack_result res;
    r->q = measure_q();
    r->kib_before = peak_kib();
    double start = now();
    int status = vm_pack_fast(&p, &opt, offsets, &res, why);
    r->pack = now() - start;
    r->kib_pack = peak_kib();
    if (status == VM_OK)
        status = vm_verify_packing(&p, offsets, 0, &r->height, why);
    if (status)
        return status;
    r->live = res.max_live;
    start = now();
    status = vm_place(it, &m, 0, offsets, &r->pool, why);
    r->place = now() - start;
    r->kib_place = peak_kib();
    start = now();
    if (status == VM_OK)
        status = plan_schedule(it, &m, offsets, why);
    r->schedule = now() - start;
    r->kib_after = peak_kib();
    if (status == VM_OK)
        status = vm_verify_packing(&p, offsets, 0, NULL, why);
    return status ? status : rounded_live(&p, items, m.page_bytes, &r->rounded, why);
}

static int run_scale(const char *kind, size_t n)
{
    struct vm_iteration it;
    struct vm_error why = {{0}};
    struct scale_result r = {0};
    if (make_scale_iteration(kind, n, &it))
        return 1;
    size_t nitems = 0;
    struct vm_pack_item *items = items_of(&it, NULL, &nitems);
    uint64_t *offsets = calloc(it.nblocks + 1, sizeof *offsets);
    int status = measure_scale(&it, items, offsets, &r, &why);
    if (status)
        fprintf(stderr, "pack_bench: %s of %zu: %s\n", kind, n, why.text);
    else
        printf("{\"items\": %zu, \"ops\": %zu, \"pack_seconds\": %.6f, \"place_seconds\": %.6f, "
               "\"schedule_seconds\": %.6f, \"height\": %" PRIu64 ", \"max_live\": %" PRIu64
               ", \"pool_bytes\": %" PRIu64 ", \"rounded_live\": %" PRIu64
               ", \"q\": %.6f, \"pack_bytes_per_block\": %.1f, \"place_bytes_per_block\": %.1f, "
               "\"bytes_per_block\": %.1f}\n",
               it.nblocks, it.nops, r.pack, r.place, r.schedule, r.height, r.live, r.pool, r.rounded, r.q,
               (double)(r.kib_pack - r.kib_before) * 1024 / (double)it.nblocks,
               (double)(r.kib_place - r.kib_before) * 1024 / (double)it.nblocks,
               (double)(r.kib_after - r.kib_before) * 1024 / (double)it.nblocks);
    free(items);
    free(offsets);
    vm_iteration_fini(&it);
    return status != VM_OK;
}

/* One iteration of a recorded trace. Paged first, in pages of 2 MiB, with the blocks where the program
 * put them free to move; `paged` is the pool over the most bytes live in whole pages. */
static int run_trace(const char *path, double limit)
{
    struct loaded l = {0};
    struct vm_machine m = {.page_bytes = (uint64_t)2 << 20};
    struct vm_error why = {{0}};
    uint64_t pool = 0, rounded = 0;
    size_t n = 0;
    if (loaded_read(&l, "bench", path))
        return 1;
    for (size_t b = 0; b < l.it.nblocks; b++)
        l.it.blocks[b].fixed_offset = VM_UNPLACED;
    struct vm_pack_span *gaps = calloc(l.it.nblocks + 1, sizeof *gaps);
    struct vm_pack_item *items = items_of(&l.it, gaps, &n);
    uint64_t *offsets = calloc(n + 1, sizeof *offsets);
    struct vm_pack_problem p = {.items = items, .nitems = n, .gaps = gaps, .ngaps = n};
    int status = vm_place(&l.it, &m, 0, offsets, &pool, &why);
    if (status == VM_OK)
        status = vm_verify_packing(&p, offsets, 0, NULL, &why);
    int rc = status != VM_OK;
    if (rc)
        fprintf(stderr, "pack_bench: %s: %s\n", path, why.text);
    else
        rc = run_problem(path, &p, WAY_BEST, 0, limit);
    if (rc == 0 && rounded_live(&p, items, m.page_bytes, &rounded, &why) == VM_OK)
        printf("{\"pool_bytes\": %" PRIu64 ", \"rounded_live\": %" PRIu64 "}\n", pool,
               (rounded + m.page_bytes - 1) / m.page_bytes * m.page_bytes);
    free(items);
    free(gaps);
    free(offsets);
    loaded_free(&l);
    return rc;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "search") == 0 && argc == 5)
        return run_csv(argv[2], WAY_SEARCH, strtoull(argv[3], NULL, 10), atof(argv[4]));
    if (strcmp(what, "best") == 0 && argc == 4)
        return run_csv(argv[2], WAY_BEST, 0, atof(argv[3]));
    if (strcmp(what, "fast") == 0 && argc == 3)
        return run_csv(argv[2], WAY_FAST, 0, 0);
    if (strcmp(what, "oplog") == 0 && argc == 4)
        return run_oplog(argv[2], atof(argv[3]));
    if (strcmp(what, "trace") == 0 && argc == 4)
        return run_trace(argv[2], atof(argv[3]));
    if (strcmp(what, "scale") == 0 && argc == 4)
        return run_scale(argv[2], strtoull(argv[3], NULL, 10));
    fprintf(stderr, "usage: pack_bench search FILE CAPACITY SECONDS | best FILE SECONDS | fast FILE | "
                    "oplog FILE SECONDS | trace FILE SECONDS | scale KIND N\n");
    return 2;
}
