/* The dual function of the liquid schedule. For any prices of room and of the link it bounds what a schedule
 * waits: each page takes the cheapest way through its gaps. It is concave, and the ways say where it rises:
 * the price of what they ask too much of is too low. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fluid_state.h"
#include "grow.h"

#define ROOM_STEP 0.03 /* of a room price, against a link's: a page at an event is worth far less than a ms */
#define ASKED_STEP 0.01 /* likewise, of a page that is copied while its op waits */
#define MOMENTUM 0.9   /* share of the direction before that is kept                */
#define AIM 0.04       /* the optimum is thought to be so much higher than the best */
#define PATIENCE 300   /* steps without a rise until they become shorter            */
#define SHORTER 0.8
#define LEAST 1e-3     /* shorter steps than that change nothing */
#define ERODED 0.01    /* of the slope: a direction that has shrunk below it leads nowhere far  */
#define FLAT 1e-6      /* of the first slope: what is below it is what rounding leaves          */
#define ROUNDING 1e-12 /* of all that is summed: more than rounding can add to the bound        */
#define ASCENT_STEPS 20000
#define ASCENT_WORK 4e9 /* steps x terms at most: some twenty seconds */

/* Ways of a page, as it stands at an event. */
enum way { AWAY, CLEAN, DIRTY };

/* Prices: of a page of room at each chosen event; then of a millisecond of each facet of the link in each
 * group of time; then of a page that is copied while the op waits that uses it. */
struct dual {
    struct fluid *f;
    size_t n;          /* chosen events */
    double *price;     /* EVENT_ROWS x n */
    double *slope;     /* likewise: how the function changes with each */
    double *out, *in;  /* n: of a page that passes the link, for copies of `batch` pages */
    uint32_t batch;
    uint8_t *came;     /* by step: enum way that AWAY came from, and 4 x the one that CLEAN came from */
    size_t cap_came;
};

static int dual_init(struct dual *d, struct fluid *f)
{
    size_t n = f->ev.n;
    double *store = calloc((2 * EVENT_ROWS + 2) * n + 1, sizeof *store);

    *d = (struct dual){.f = f, .n = n};
    if (!store)
        return VM_ENOMEM;
    d->price = store;
    d->slope = store + EVENT_ROWS * n;
    d->out = store + 2 * EVENT_ROWS * n;
    d->in = d->out + n;
    return VM_OK;
}

static void dual_fini(struct dual *d)
{
    free(d->price);
    free(d->came);
}

/* ---- prices -------------------------------------------------------------------------------------*/

/* None is below 0; room has a price only where it lacks; and a millisecond of the link is not worth more than
 * the millisecond that an op would have to wait for it. The nearest such facets' prices, or in proportion. */
static void make_feasible(struct dual *d, bool nearest)
{
    const struct vm_fluid_events *ev = &d->f->ev;
    double *asked = &d->price[vm_fluid_asked_at(d->f, 0)];

    for (size_t i = 0; i < d->n; i++) {
        double *a = &d->price[d->n + i], *b = &d->price[2 * d->n + i];
        if (d->price[i] < 0 || ev->over[i] <= 0)
            d->price[i] = 0;
        *a = *a > 0 ? *a : 0;
        *b = *b > 0 ? *b : 0;
        if (asked[i] < 0 || !(d->f->crossing < INFINITY))
            asked[i] = 0;
        double all = *a + *b;
        if (!ev->waits[i] || all <= 1)
            continue;
        if (!nearest) {
            *a /= all;
            *b /= all;
        } else {
            double v = *a - (all - 1) / 2;
            *a = v < 0 ? 0 : v > 1 ? 1 : v;
            *b = 1 - *a;
        }
    }
}

static void take_prices(struct dual *d)
{
    for (size_t i = 0; i < d->n; i++)
        d->price[i] = -d->f->y[i];
    for (size_t i = d->n; i < EVENT_ROWS * d->n; i++)
        d->price[i] = d->f->y[i];
    make_feasible(d, false);
}

static void price_pages(struct dual *d, uint32_t batch)
{
    const struct vm_fluid_facet *c = d->f->facet[batch];

    if (d->batch == batch)
        return;
    d->batch = batch;
    for (size_t i = 0; i < d->n; i++) {
        double a = d->price[d->n + i], b = d->price[2 * d->n + i];
        d->out[i] = a * c[0].out_ms + b * c[1].out_ms;
        d->in[i] = a * c[0].in_ms + b * c[1].in_ms;
    }
}

/* ---- the function -------------------------------------------------------------------------------*/

/* The cheapest way of one page of g through its steps: it is on the device without a copy (dirty), with one
 * (clean), or away. *end: which of the first two it ends as. */
static double cheapest(struct dual *d, const struct vm_fluid_group *g, enum way *end)
{
    const struct fluid *f = d->f;
    const uint8_t *place = f->places + g->place;
    double dirty = g->kind == VM_FLUID_CLEAN ? INFINITY : 0, away = INFINITY;
    double clean = g->kind == VM_FLUID_CLEAN ? 0 : INFINITY;

    for (size_t t = 0; t <= g->steps; t++) {
        size_t i = vm_fluid_event_at(f, g, t);
        if (t < g->steps && place[t] == HELD) {
            d->came[t] = AWAY | 4 * CLEAN; /* nothing changes */
            continue;
        }
        double saved = dirty + d->out[i], back = away + d->in[i], gone = away;
        if (t < g->steps && place[t] == ASKED)
            saved += d->price[vm_fluid_asked_at(f, i)];
        unsigned came = AWAY | 4 * CLEAN;
        if (saved < gone) {
            gone = saved;
            came = DIRTY | 4 * CLEAN;
        }
        if (clean < gone) {
            gone = clean;
            came = CLEAN | 4 * CLEAN;
        }
        bool inside = t < g->steps && place[t] == INSIDE;
        if (back < clean) {
            clean = back;
            came = (came & 3) | 4 * AWAY;
        }
        if (saved < clean) {
            clean = saved;
            came = (came & 3) | 4 * DIRTY;
        }
        away = inside ? gone - d->price[i] : INFINITY;
        d->came[t] = (uint8_t)came;
    }
    *end = clean < dirty ? CLEAN : DIRTY;
    return clean < dirty ? clean : dirty;
}

static void pass_link(struct dual *d, size_t i, double pages, bool out)
{
    const struct vm_fluid_facet *c = d->f->facet[d->batch];

    for (size_t k = 0; k < FACETS; k++)
        d->slope[(1 + k) * d->n + i] += pages * (out ? c[k].out_ms : c[k].in_ms);
}

/* Back along the way that cheapest() found: what it takes of room and link. */
static void follow(struct dual *d, const struct vm_fluid_group *g, enum way at)
{
    const uint8_t *place = d->f->places + g->place;

    for (size_t t = (size_t)g->steps + 1; t-- > 0 && at != DIRTY;) {
        size_t i = vm_fluid_event_at(d->f, g, t);
        enum way from = at == AWAY ? (enum way)(d->came[t] & 3) : (enum way)(d->came[t] >> 2);
        if (t < g->steps && place[t] == HELD)
            continue;
        if (at == AWAY)
            d->slope[i] -= g->pages;
        if (from == DIRTY)
            pass_link(d, i, g->pages, true);
        else if (at == CLEAN && from == AWAY)
            pass_link(d, i, g->pages, false);
        if (from == DIRTY && t < g->steps && place[t] == ASKED)
            d->slope[vm_fluid_asked_at(d->f, i)] += g->pages;
        at = from;
    }
}

/* Its value at d->price (ms), less what rounding may have added, and d->slope. */
static int value_of(struct dual *d, double *ms)
{
    struct fluid *f = d->f;
    double sum = 0, mass = 0, crossing = f->crossing < INFINITY ? f->crossing : 0;

    d->batch = 0;
    for (size_t i = 0; i < d->n; i++) {
        d->slope[i] = f->ev.over[i] > 0 ? (double)f->ev.over[i] : 0;
        sum += d->price[i] * d->slope[i];
        mass += d->price[i] * d->slope[i];
        for (size_t k = 1; k <= FACETS; k++) {
            d->slope[k * d->n + i] = -f->ev.run_ms[i];
            sum -= d->price[k * d->n + i] * f->ev.run_ms[i];
            mass += d->price[k * d->n + i] * f->ev.run_ms[i];
        }
        size_t asked = vm_fluid_asked_at(f, i);
        d->slope[asked] = -crossing;
        sum -= d->price[asked] * crossing;
        mass += d->price[asked] * crossing;
    }
    for (size_t i = 0; i < f->ng; i++) {
        enum way end;
        if (VM_GROW(d->came, d->cap_came, f->g[i].steps + 1))
            return VM_ENOMEM;
        price_pages(d, f->g[i].batch);
        double way = f->g[i].pages * cheapest(d, &f->g[i], &end);
        sum += way;
        mass += fabs(way);
        follow(d, &f->g[i], end);
    }
    *ms = sum - ROUNDING * mass;
    return VM_OK;
}

int vm_fluid_dual_bound(struct fluid *f, double *ms)
{
    struct dual d;
    int rc = dual_init(&d, f);

    if (!rc) {
        take_prices(&d);
        rc = value_of(&d, ms);
    }
    dual_fini(&d);
    return rc;
}

/* ---- ascent -------------------------------------------------------------------------------------*/

/* The coarse prices: of room at the same events, of the link throughout the coarser groups of time. */
static void refine_prices(const struct fluid *coarse, struct dual *d)
{
    size_t n = coarse->ev.n, c = 0;

    for (size_t i = 0; i < d->n; i++) {
        while (c < n && coarse->ev.event[c] < d->f->ev.event[i])
            c++;
        if (c < n && coarse->ev.event[c] == d->f->ev.event[i])
            d->price[i] = -coarse->y[c];
        for (size_t k = 1; k <= FACETS; k++)
            d->price[k * d->n + i] = coarse->y[k * n + c % n];
        if (c < n && coarse->ev.event[c] == d->f->ev.event[i])
            d->price[vm_fluid_asked_at(d->f, i)] = coarse->y[vm_fluid_asked_at(coarse, c)];
    }
    make_feasible(d, false);
}

static double scale_of(const struct dual *d, size_t i)
{
    return i < d->n ? ROOM_STEP : i < vm_fluid_asked_at(d->f, 0) ? 1 : ASKED_STEP;
}

/* One step up: along the slope, and the directions of the steps before, as far as a function that is `lack` below
 * its optimum may have to go. *steep: the square of the first slope; 0 before. False: the slope is flat. */
static bool climb(struct dual *d, double *direction, double lack, double *steep)
{
    size_t all = EVENT_ROWS * d->n;
    double size = 0, slope = 0;

    for (size_t i = 0; i < all; i++) {
        double scale = scale_of(d, i), s = d->slope[i] * scale;
        if (d->price[i] <= 0 && s < 0)
            s = 0;
        if (i < d->n && d->f->ev.over[i] <= 0)
            s = 0;
        direction[i] = MOMENTUM * direction[i] + (1 - MOMENTUM) * s;
        size += direction[i] * direction[i];
        slope += s * s;
    }
    *steep = *steep > 0 ? *steep : slope;
    if (slope <= FLAT * FLAT * *steep)
        return false;
    size = size > ERODED * ERODED * slope ? size : ERODED * ERODED * slope;
    for (size_t i = 0; i < all; i++)
        d->price[i] += lack / size * scale_of(d, i) * direction[i];
    make_feasible(d, true);
    return true;
}

static int ascend(struct dual *d, double *best, double *best_price, double *direction)
{
    size_t all = EVENT_ROWS * d->n;
    double most = ASCENT_WORK / ((double)d->f->gaps.terms + 1), now, length = 1, steep = 0;
    unsigned steps = most < ASCENT_STEPS ? (unsigned)most : ASCENT_STEPS, since = 0;
    int rc = value_of(d, &now);

    *best = now;
    memcpy(best_price, d->price, all * sizeof *best_price);
    while (!rc && steps-- && length > LEAST && *best > 0) {
        if (!climb(d, direction, length * ((1 + AIM) * *best - now), &steep))
            break;
        rc = value_of(d, &now);
        if (!rc && now > *best) {
            *best = now;
            memcpy(best_price, d->price, all * sizeof *best_price);
            since = 0;
        } else if (!rc && ++since == PATIENCE) {
            since = 0;
            length *= SHORTER;
            memcpy(d->price, best_price, all * sizeof *best_price);
            memset(direction, 0, all * sizeof *direction);
            rc = value_of(d, &now);
        }
    }
    return rc;
}

int vm_fluid_ascend(const struct fluid *coarse, struct fluid *fine, double *ms)
{
    struct dual d;
    int rc = dual_init(&d, fine);
    double *store = calloc(2 * EVENT_ROWS * fine->ev.n + 1, sizeof *store), best;

    rc = store ? rc : VM_ENOMEM;
    if (!rc) {
        refine_prices(coarse, &d);
        rc = ascend(&d, &best, store, store + EVENT_ROWS * fine->ev.n);
    }
    if (!rc && best > *ms)
        *ms = best;
    free(store);
    dual_fini(&d);
    return rc;
}
