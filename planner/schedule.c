#include "schedule.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "belady.h"
#include "fluid.h"
#include "schedule_moves.h"
#include "schedule_polish.h"

#define FLUID_ROUNDS 6 /* times that moves made from a liquid schedule are timed again */
#define LONGEST 4 /* of the grids, the first that is solved with the most iterations at effort 1 */
#define POLISH_WORK 24e6 /* visits of uses that polishing costs, about: some seconds */
#define SHARE 0.4 /* of it, for each liquid schedule before the best is known: */
#define LOOK 0.25 /* so much of that shows what it is worth, */
#define WORTH 0.01 /* and it gets the rest if it takes no longer than the best by that share of the iteration */
#define NEAR 0.005 /* share of the iteration that a schedule may wait longer than the liquid one */

static bool better(const struct vm_schedule *a, const struct vm_schedule *b)
{
    return a->sim.iteration_ns < b->sim.iteration_ns;
}

/* What a set of evictions is made from. */
struct choice {
    uint64_t usable; /* pages */
    enum vm_belady_rule rule;
    struct vm_belady_wishes wishes;
};

/* The schedule of one choice. start_ns (nops, the caller's) receives its op starts. */
static int make(const struct vm_page_units *u, const struct vm_machine *m, uint64_t total,
                const struct choice *c, unsigned rounds, struct vm_schedule *out, double *start_ns)
{
    struct vm_eviction *list = NULL;
    size_t count;
    int rc = vm_belady(u, c->usable, c->rule, &c->wishes, &list, &count);

    if (!rc)
        rc = vm_schedule_time(u, m, total, c->usable, list, count, rounds, out, start_ns);
    free(list);
    return rc;
}

/* Does this use find undefined or dead contents? */
static bool is_fresh(const struct vm_page_units *u, const struct vm_page_unit *un, uint32_t use)
{
    if (use == un->use && !(un->flags & VM_UNIT_CYCLIC))
        return true;
    uint32_t before = vm_page_use_before(un, use);
    return !(u->uses[before].flags & VM_PU_LIVE_AFTER);
}

double vm_schedule_window(const struct vm_page_units *u, const struct vm_machine *m)
{
    uint64_t most = 0;

    for (uint32_t k = 0; k < u->nops; k++) {
        uint64_t fresh = 0;
        for (uint32_t r = u->op_first[k]; r < u->op_first[k + 1]; r++) {
            const struct vm_page_unit *un = &u->units[u->refs[r].unit];
            if (is_fresh(u, un, u->refs[r].use))
                fresh += un->npages;
        }
        most = fresh > most ? fresh : most;
    }
    return VM_SCHEDULE_WINDOW_NS + (double)most * (m->map_ns + m->access_ns + m->unmap_ns);
}

void vm_unfit_text(const struct vm_page_units *u, uint64_t capacity, struct vm_error *why)
{
    uint32_t op = 0;
    uint64_t work = vm_page_units_work(u, &op);

    if (why)
        snprintf(why->text, sizeof why->text,
                 "op %u alone needs %llu pages (%llu MiB), the budget has %llu (%llu MiB): "
                 "raise the budget or lower the batch size",
                 op, (unsigned long long)work, (unsigned long long)(work * u->page_bytes >> 20),
                 (unsigned long long)capacity,
                 (unsigned long long)(capacity * u->page_bytes >> 20));
}

/* ---- search -----------------------------------------------------------------------------------*/

/* The best schedule so far and what it came from. */
struct best {
    struct vm_schedule s;
    struct choice from;
    double *start_ns;
    double liquid_ns; /* no schedule waits less: the best bound of the liquid ones solved */
    double spared;    /* work that polishing the liquid ones did not need                 */
    bool have;
};

static bool good_enough(const struct best *b)
{
    return b->have && b->s.sim.iteration_ns <= 1.001 * b->s.sim.compute_ns;
}

/* Keeps s, which starts its ops at `start`, if it beats the best; both are taken over. */
static bool offer(struct best *b, struct vm_schedule *s, double *start, const struct choice *from)
{
    if (b->have && !better(s, &b->s)) {
        vm_schedule_fini(s);
        free(start);
        return false;
    }
    if (b->have)
        vm_schedule_fini(&b->s);
    free(b->start_ns);
    *b = (struct best){*s, *from, start, b->liquid_ns, b->spared, true};
    return true;
}

/* Makes a schedule from *c and keeps it if it beats the best. */
static int try_choice(const struct vm_page_units *u, const struct vm_machine *m, uint64_t total,
                      const struct choice *c, unsigned rounds, struct best *b, bool *improved)
{
    double *start = malloc((u->nops + 1) * sizeof *start);
    struct vm_schedule s;

    *improved = false;
    if (!start)
        return VM_ENOMEM;
    int rc = make(u, m, total, c, rounds, &s, start);
    if (rc)
        free(start);
    else
        *improved = offer(b, &s, start, c);
    return rc;
}

/* The rules, with more and more pages kept free. */
static int try_rules(const struct vm_page_units *u, const struct vm_machine *m, uint64_t total,
                     const struct vm_schedule_options *opt, struct best *b)
{
    static const double floats[] = {0, 0.005, 0.01, 0.02, 0.04, 0.08};
    uint64_t work = vm_page_units_work(u, NULL), last = UINT64_MAX;
    bool large = u->nuses > VM_LARGE_USES;
    size_t n = !opt->effort ? 1 : large ? 2 : sizeof floats / sizeof floats[0];
    unsigned rounds = opt->effort && !large ? 3 : 1;

    for (size_t i = 0; i < n; i++) {
        uint64_t fl = opt->float_pages + (uint64_t)(floats[i] * (double)total);
        uint64_t usable = total > fl && total - fl > work ? total - fl : work;
        if (usable == last)
            continue;
        last = usable;
        for (int rule = VM_BELADY_FARTHEST; rule <= VM_BELADY_IDLE; rule++) {
            struct choice c = {.usable = usable, .rule = (enum vm_belady_rule)rule};
            bool improved;
            int rc = try_choice(u, m, total, &c, rounds, b, &improved);
            if (rc && !b->have)
                return rc;
            if (!opt->effort || good_enough(b))
                return VM_OK;
        }
    }
    return VM_OK;
}

/* Ops that wait, longest first. */
struct wait {
    double ns;
    uint32_t op;
};

static int cmp_wait(const void *a, const void *b)
{
    const struct wait *x = a, *y = b;
    if (x->ns != y->ns)
        return x->ns > y->ns ? -1 : 1;
    return x->op < y->op ? -1 : x->op > y->op;
}

static size_t find_waits(const struct vm_page_units *u, const double *start, struct wait *w)
{
    size_t n = 0;
    double end = 0;

    for (uint32_t k = 0; k < u->nops; k++) {
        double ns = start[k] - end;
        if (ns > 1e-4 * (start[u->nops - 1] + (double)u->dur_ns[u->nops - 1]))
            w[n++] = (struct wait){ns, k};
        end = start[k] + (double)u->dur_ns[k];
    }
    qsort(w, n, sizeof *w, cmp_wait);
    return n;
}

/* Two ways to shorten the wait before op k: what it needs comes back `ops` ops earlier; or its room is
 * made so much earlier. Changes the wishes in lead[] or extra[]; false if nothing can be changed. */
static bool ask_earlier(const struct vm_page_units *u, uint32_t k, uint32_t ops, uint32_t *lead)
{
    bool any = false;

    for (uint32_t r = u->op_first[k]; r < u->op_first[k + 1]; r++) {
        const struct vm_page_unit *un = &u->units[u->refs[r].unit];
        uint32_t use = u->refs[r].use, n = (uint32_t)u->nops;
        if (use == un->use && !(un->flags & VM_UNIT_CYCLIC))
            continue;
        uint32_t before = vm_page_use_before(un, use);
        uint32_t gap = (k + n - u->uses[before].op) % n;
        uint32_t most = gap ? gap - 1 : n - 1;
        if (!(u->uses[before].flags & VM_PU_LIVE_AFTER) || most < 2)
            continue;
        uint32_t want = ops < most ? ops : most;
        any |= want > lead[use];
        lead[use] = want > lead[use] ? want : lead[use];
    }
    return any;
}

static bool make_room_earlier(const struct vm_page_units *u, uint32_t k, uint32_t ops,
                              uint32_t *extra)
{
    uint32_t n = (uint32_t)u->nops, fresh = 0;
    bool any = false;

    for (uint32_t r = u->op_first[k]; r < u->op_first[k + 1]; r++) {
        const struct vm_page_unit *un = &u->units[u->refs[r].unit];
        if (is_fresh(u, un, u->refs[r].use))
            fresh += un->npages;
    }
    for (uint32_t i = 1; i <= ops && i < n && fresh; i++) {
        uint32_t j = (k + n - i) % n;
        any |= extra[j] < fresh;
        extra[j] = extra[j] > fresh ? extra[j] : fresh;
    }
    return any;
}

/* As many tries as take about a second or two on traces of any size. */
static unsigned refine_tries(const struct vm_page_units *u, unsigned effort)
{
    size_t n = 500000 / (u->nuses + 1000);

    n = n < 4 ? 4 : n > 150 ? 150 : n;
    return (unsigned)(effort > 1 ? 10 * n : n);
}

/* Local search: takes the longest waits one after the other, wishes for what they wait for earlier, and
 * keeps what makes the iteration shorter. */
static int refine(const struct vm_page_units *u, const struct vm_machine *m, uint64_t total,
                  unsigned tries, struct best *b)
{
    static const uint32_t steps[] = {2, 4, 8, 16, 32};
    uint32_t *lead = calloc(2 * (u->nuses + 1), sizeof *lead);
    uint32_t *extra = calloc(2 * (u->nops + 1), sizeof *extra);
    uint32_t *lead2 = lead ? lead + u->nuses + 1 : NULL, *extra2 = extra ? extra + u->nops + 1 : NULL;
    struct wait *w = malloc((u->nops + 1) * sizeof *w);
    int rc = lead && extra && w ? VM_OK : VM_ENOMEM;
    size_t n = rc ? 0 : find_waits(u, b->start_ns, w);

    for (size_t i = 0, moves = 0; !rc && tries && i < n && !good_enough(b); moves++) {
        size_t kind = moves / (sizeof steps / sizeof *steps) % 2;
        uint32_t ops = steps[moves % (sizeof steps / sizeof *steps)];
        bool improved = false;
        memcpy(lead2, lead, (u->nuses + 1) * sizeof *lead);
        memcpy(extra2, extra, (u->nops + 1) * sizeof *extra);
        if (kind ? make_room_earlier(u, w[i].op, ops, extra2) : ask_earlier(u, w[i].op, ops, lead2)) {
            struct choice c = b->from;
            c.wishes = (struct vm_belady_wishes){lead2, extra2};
            tries--;
            rc = try_choice(u, m, total, &c, 0, b, &improved);
            rc = rc == VM_UNFIT ? VM_OK : rc; /* the wish does not fit: not this way */
        }
        if (improved) {
            memcpy(lead, lead2, (u->nuses + 1) * sizeof *lead);
            memcpy(extra, extra2, (u->nops + 1) * sizeof *extra);
            n = find_waits(u, b->start_ns, w);
            i = 0;
            moves = SIZE_MAX; /* the loop makes it 0 */
        } else if (moves + 1 == 2 * sizeof steps / sizeof *steps) {
            i++;
            moves = SIZE_MAX;
        }
    }
    b->from.wishes = (struct vm_belady_wishes){NULL, NULL};
    free(lead);
    free(extra);
    free(w);
    return rc;
}

/* Refines the best, and both rules with nothing kept free: there a wish is likelier to fit. */
static int refine_all(const struct vm_page_units *u, const struct vm_machine *m, uint64_t total,
                      unsigned tries, struct best *b)
{
    int rc = refine(u, m, total, tries, b);

    for (int rule = VM_BELADY_FARTHEST; rule <= VM_BELADY_IDLE && !rc && !good_enough(b); rule++) {
        struct choice c = {.usable = total, .rule = (enum vm_belady_rule)rule};
        struct best other = {.have = false};
        bool improved;
        if (b->from.usable == total && b->from.rule == c.rule)
            continue;
        rc = try_choice(u, m, total, &c, 1, &other, &improved);
        if (!rc)
            rc = refine(u, m, total, tries, &other);
        if (other.have && !rc && better(&other.s, &b->s)) {
            struct best swap = *b;
            *b = other;
            other = swap;
        }
        if (other.have)
            vm_schedule_fini(&other.s);
        free(other.start_ns);
    }
    return rc;
}

/* An iteration that takes no longer is near enough to the bound, or to no wait at all. */
static double near_ns(const struct best *b)
{
    return b->s.sim.compute_ns + b->liquid_ns + NEAR * b->s.sim.iteration_ns;
}

/* Polishes s by trials that cost about `work` visits of uses; fewer where there is little to try. */
static int polish(const struct vm_page_units *u, const struct vm_machine *m, uint64_t total, double work,
                  bool walks, double enough_ns, struct vm_schedule *s, double *start_ns)
{
    double each = (double)u->nuses + 8.0 * (double)s->nmoves + 0.5 * (double)(s->in_pages + s->out_pages);
    double n = work / (each + 1), most = 0.25 * (double)s->nmoves * (double)s->nmoves + 50;

    n = n < most ? n : most;
    return vm_schedule_polish(u, m, total, (unsigned)n, walks, enough_ns, s, start_ns);
}

/* Polishes s by LOOK of the work, and by the rest if it may become the best. */
static int polish_liquid(const struct vm_page_units *u, const struct vm_machine *m, uint64_t total, double work,
                         struct vm_schedule *s, double *start_ns, struct best *b)
{
    int rc = polish(u, m, total, LOOK * work, false, near_ns(b), s, start_ns);

    if (rc)
        return rc;
    if (s->sim.iteration_ns <= (1 + WORTH) * b->s.sim.iteration_ns)
        return polish(u, m, total, (1 - LOOK) * work, false, near_ns(b), s, start_ns);
    b->spared += (1 - LOOK) * work;
    return VM_OK;
}

/* Makes a schedule from what is to leave, timed again `rounds` times, polishes it (work 0: it does not), and keeps
 * it if it beats the best. */
static int try_list(const struct vm_page_units *u, const struct vm_machine *m, uint64_t total,
                    struct vm_eviction *list, size_t n, unsigned rounds, double work, struct best *b)
{
    struct choice from = {.usable = total};
    struct vm_schedule s;
    double *start = malloc((u->nops + 1) * sizeof *start);
    int rc = start ? vm_schedule_time(u, m, total, total, list, n, rounds, &s, start) : VM_ENOMEM;

    if (!rc && work > 0) {
        rc = polish_liquid(u, m, total, work, &s, start, b);
        if (rc)
            vm_schedule_fini(&s);
    }
    if (rc)
        free(start);
    else
        offer(b, &s, start, &from);
    return rc;
}

/* The schedule of a liquid one. *end: none on a finer grid would be much better; *full: there is no finer one. */
static int try_fluid(const struct vm_page_units *u, const struct vm_machine *m, uint64_t total,
                     const struct vm_fluid_options *opt, double work, struct best *b, bool *end, bool *full)
{
    struct vm_fluid f = {0};
    int rc = vm_fluid_solve(u, m, total, opt, &f);

    b->liquid_ns = f.stall_ns > b->liquid_ns ? f.stall_ns : b->liquid_ns;
    if (!rc)
        rc = try_list(u, m, total, f.list, f.count, FLUID_ROUNDS, work, b);
    *end = f.done;
    *full = f.full;
    vm_fluid_fini(&f);
    if (!rc)
        *end |= b->s.sim.iteration_ns <= near_ns(b);
    return rc;
}

enum grid_use { ALWAYS, POLISHED, PATIENT };

/* Is a grid of that use tried? What a coarse one more finds pays only where it is polished. */
static bool is_tried(enum grid_use use, unsigned effort, bool polished)
{
    return use == ALWAYS || (use == POLISHED ? polished : effort > 1);
}

/* Liquid schedules on ever finer grids, which know better when: until a schedule waits hardly longer. */
static int try_fluids(const struct vm_page_units *u, const struct vm_machine *m, uint64_t total,
                      unsigned effort, double work, struct best *b)
{
    static const struct {
        size_t terms;
        unsigned iterations;
        enum grid_use use;
    } grid[] = {{400, 2000, ALWAYS},  {800, 2000, POLISHED}, {1200, 2000, ALWAYS},
                {3200, 3000, ALWAYS}, {8000, 6000, ALWAYS},  {14000, 6000, ALWAYS},
                {800, 8000, PATIENT}, {6400, 8000, PATIENT}, {16000, 16000, PATIENT}};
    bool end = false, full = false;
    int rc = VM_OK;

    for (size_t i = 0; i < sizeof grid / sizeof *grid && !rc && !end && !good_enough(b); i++) {
        struct vm_fluid_options opt = {
            .terms = grid[i].terms, .iterations = grid[i].iterations, .tolerance = 1e-4};
        if (!is_tried(grid[i].use, effort, work > 0))
            continue;
        rc = try_fluid(u, m, total, &opt, work, b, &end, &full);
        if (full && i < LONGEST - 1) /* the same grid, with more iterations */
            i = LONGEST - 1;
        else if (full && i >= LONGEST)
            end = true;
    }
    return rc;
}

int vm_schedule_build(const struct vm_page_units *u, const struct vm_machine *m,
                      const struct vm_schedule_options *opt, struct vm_schedule *out,
                      struct vm_error *why)
{
    uint64_t total = opt->capacity_pages ? opt->capacity_pages : m->device_bytes / u->page_bytes;
    /* Where unmapping waits, pages go when the device rests: finer moves than polishing makes are lost in the run. */
    double work = m->unmap_waits ? 0 : opt->effort > 1 ? 4 * POLISH_WORK : POLISH_WORK;
    struct best b = {.have = false};

    if (vm_page_units_work(u, NULL) > total) {
        vm_unfit_text(u, total, why);
        return VM_UNFIT;
    }
    int rc = try_rules(u, m, total, opt, &b);
    if (!rc && opt->effort && !good_enough(&b))
        rc = refine_all(u, m, total, refine_tries(u, opt->effort), &b);
    if (!rc && opt->effort && !good_enough(&b) && u->nuses <= VM_LARGE_USES)
        rc = try_fluids(u, m, total, opt->effort, SHARE * work, &b);
    if (!rc && opt->effort && work > 0 && !good_enough(&b) && u->nuses <= VM_LARGE_USES)
        rc = polish(u, m, total, work + b.spared, true, near_ns(&b), &b.s, b.start_ns);
    /* No moves: everything is fetched when an op needs it, and what is needed last leaves. Where unmapping waits for
     * the copies in flight, moves that are just right for the links can cost more than they save. */
    if (!rc && opt->effort && !good_enough(&b))
        rc = try_list(u, m, total, NULL, 0, 0, 0, &b);
    free(b.start_ns);
    if (rc) {
        if (b.have)
            vm_schedule_fini(&b.s);
        return rc;
    }
    *out = b.s;
    return VM_OK;
}
