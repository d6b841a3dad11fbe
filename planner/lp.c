#include "lp.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

#define RUIZ_PASSES 10
#define CHECK_EVERY 40 /* iterations between two looks at the error */

/* A point: x, y and their products with the matrix. */
struct point {
    double *x, *y, *ax, *aty;
};

struct error {
    double primal, dual, gap, objective, size;
    double all; /* weighted sum, as restarts compare it */
};

struct solver {
    size_t n, m, nnz;
    uint32_t *start, *column;   /* by row    */
    uint32_t *tstart, *row;     /* by column */
    double *value, *tvalue;
    double *cost, *lower, *upper, *lo, *hi; /* scaled */
    double *dcol, *drow;
    struct point now, trial, sum, origin; /* origin: where the last restart was */
    double weight;  /* sum of the steps in `sum` */
    double step, omega, norm_rhs, norm_cost;
    double *store;
    uint32_t *istore;
};

/* The square root, and others, without libm: libvmem.so needs libc only. */
static double root(double v)
{
    double scale = 1, x = 1.5;

    if (!(v > 0) || !isfinite(v))
        return v > 0 ? v : 0;
    for (; v >= 4; v /= 4)
        scale *= 2;
    for (; v < 1; v *= 4)
        scale /= 2;
    for (int i = 0; i < 6; i++) /* Newton, from within 50 % */
        x = 0.5 * (x + v / x);
    return scale * x;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double size_of(double v)
{
    return v < 0 ? -v : v;
}

/* ---- set-up -----------------------------------------------------------------------------------*/

static double *cut(double **p, size_t n)
{
    double *at = *p;
    *p += n;
    return at;
}

static void cut_point(double **p, struct point *pt, size_t n, size_t m)
{
    pt->x = cut(p, n);
    pt->aty = cut(p, n);
    pt->y = cut(p, m);
    pt->ax = cut(p, m);
}

static int allocate(struct solver *s)
{
    size_t n = s->n, m = s->m;
    double *p = calloc(2 * s->nnz + 4 * n + 3 * m + 8 * (n + m) + 1, sizeof *p);
    uint32_t *q = calloc(2 * s->nnz + n + m + 3, sizeof *q);

    s->store = p;
    s->istore = q;
    if (!p || !q)
        return VM_ENOMEM;
    s->value = cut(&p, s->nnz);
    s->tvalue = cut(&p, s->nnz);
    s->cost = cut(&p, n);
    s->lower = cut(&p, n);
    s->upper = cut(&p, n);
    s->dcol = cut(&p, n);
    s->lo = cut(&p, m);
    s->hi = cut(&p, m);
    s->drow = cut(&p, m);
    cut_point(&p, &s->now, n, m);
    cut_point(&p, &s->trial, n, m);
    cut_point(&p, &s->sum, n, m);
    cut_point(&p, &s->origin, n, m);
    s->column = q;
    s->row = q + s->nnz;
    s->start = q + 2 * s->nnz;
    s->tstart = s->start + m + 1;
    return VM_OK;
}

/* One pass of scaling: rows and columns by the square root of their largest entry, or of their sum. */
static void scale_once(struct solver *s, bool sums, double *r, double *c)
{
    memset(r, 0, s->m * sizeof *r);
    memset(c, 0, s->n * sizeof *c);
    for (size_t i = 0; i < s->m; i++)
        for (uint32_t k = s->start[i]; k < s->start[i + 1]; k++) {
            double v = size_of(s->value[k]);
            double *cj = &c[s->column[k]];
            r[i] = sums ? r[i] + v : larger(r[i], v);
            *cj = sums ? *cj + v : larger(*cj, v);
        }
    for (size_t i = 0; i < s->m; i++) {
        r[i] = r[i] > 0 ? 1 / root(r[i]) : 1;
        s->drow[i] *= r[i];
    }
    for (size_t j = 0; j < s->n; j++) {
        c[j] = c[j] > 0 ? 1 / root(c[j]) : 1;
        s->dcol[j] *= c[j];
    }
    for (size_t i = 0; i < s->m; i++)
        for (uint32_t k = s->start[i]; k < s->start[i + 1]; k++)
            s->value[k] *= r[i] * c[s->column[k]];
}

static void transpose(struct solver *s)
{
    for (size_t k = 0; k < s->nnz; k++)
        s->tstart[s->column[k] + 1]++;
    for (size_t j = 0; j < s->n; j++)
        s->tstart[j + 1] += s->tstart[j];
    for (size_t i = 0; i < s->m; i++)
        for (uint32_t k = s->start[i]; k < s->start[i + 1]; k++) {
            uint32_t at = s->tstart[s->column[k]]++;
            s->row[at] = (uint32_t)i;
            s->tvalue[at] = s->value[k];
        }
    for (size_t j = s->n; j > 0; j--)
        s->tstart[j] = s->tstart[j - 1];
    s->tstart[0] = 0;
}

static void prepare(struct solver *s, const struct vm_lp *lp)
{
    double most = 0;

    memcpy(s->start, lp->start, (s->m + 1) * sizeof *s->start);
    memcpy(s->column, lp->column, s->nnz * sizeof *s->column);
    memcpy(s->value, lp->value, s->nnz * sizeof *s->value);
    for (size_t i = 0; i < s->m; i++)
        s->drow[i] = 1;
    for (size_t j = 0; j < s->n; j++)
        s->dcol[j] = 1;
    for (int i = 0; i < RUIZ_PASSES; i++)
        scale_once(s, false, s->trial.y, s->trial.x);
    scale_once(s, true, s->trial.y, s->trial.x);
    transpose(s);
    for (size_t i = 0; i < s->m; i++) {
        s->lo[i] = lp->lo[i] * s->drow[i];
        s->hi[i] = lp->hi[i] * s->drow[i];
        double b = isfinite(s->hi[i]) ? s->hi[i] : isfinite(s->lo[i]) ? s->lo[i] : 0;
        s->norm_rhs += b * b;
    }
    for (size_t j = 0; j < s->n; j++) {
        s->cost[j] = lp->cost[j] * s->dcol[j];
        s->lower[j] = lp->lower[j] / s->dcol[j];
        s->upper[j] = lp->upper[j] / s->dcol[j];
        s->norm_cost += s->cost[j] * s->cost[j];
        s->now.x[j] = s->lower[j];
    }
    for (size_t k = 0; k < s->nnz; k++)
        most = larger(most, size_of(s->value[k]));
    s->norm_rhs = root(s->norm_rhs);
    s->norm_cost = root(s->norm_cost);
    s->omega = s->norm_cost > 0 && s->norm_rhs > 0 ? s->norm_cost / s->norm_rhs : 1;
    s->step = most > 0 ? 1 / most : 1;
}

/* ---- iterations -------------------------------------------------------------------------------*/

static void times(const struct solver *s, const double *x, double *ax)
{
    for (size_t i = 0; i < s->m; i++) {
        double v = 0;
        for (uint32_t k = s->start[i]; k < s->start[i + 1]; k++)
            v += s->value[k] * x[s->column[k]];
        ax[i] = v;
    }
}

static void times_transposed(const struct solver *s, const double *y, double *aty)
{
    for (size_t j = 0; j < s->n; j++) {
        double v = 0;
        for (uint32_t k = s->tstart[j]; k < s->tstart[j + 1]; k++)
            v += s->tvalue[k] * y[s->row[k]];
        aty[j] = v;
    }
}

static double clamp(double v, double lo, double hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

/* The next point with the present step into s->trial. How long a step it would bear. */
static double try_step(struct solver *s)
{
    const struct point *p = &s->now;
    struct point *t = &s->trial;
    double tau = s->step / s->omega, sigma = s->step * s->omega, dx2 = 0, dy2 = 0, cross = 0;

    for (size_t j = 0; j < s->n; j++) {
        t->x[j] = clamp(p->x[j] - tau * (s->cost[j] + p->aty[j]), s->lower[j], s->upper[j]);
        dx2 += (t->x[j] - p->x[j]) * (t->x[j] - p->x[j]);
    }
    times(s, t->x, t->ax);
    for (size_t i = 0; i < s->m; i++) {
        double v = p->y[i] / sigma + 2 * t->ax[i] - p->ax[i];
        t->y[i] = sigma * (v - clamp(v, s->lo[i], s->hi[i]));
        dy2 += (t->y[i] - p->y[i]) * (t->y[i] - p->y[i]);
    }
    times_transposed(s, t->y, t->aty);
    for (size_t j = 0; j < s->n; j++)
        cross += (t->x[j] - p->x[j]) * (t->aty[j] - p->aty[j]);
    cross = size_of(cross);
    return cross > 0 ? (s->omega * dx2 + dy2 / s->omega) / (2 * cross) : INFINITY;
}

static void add_to_sum(struct solver *s)
{
    double w = s->step;

    for (size_t j = 0; j < s->n; j++) {
        s->sum.x[j] += w * s->now.x[j];
        s->sum.aty[j] += w * s->now.aty[j];
    }
    for (size_t i = 0; i < s->m; i++) {
        s->sum.y[i] += w * s->now.y[i];
        s->sum.ax[i] += w * s->now.ax[i];
    }
    s->weight += w;
}

static void iterate(struct solver *s, unsigned k)
{
    for (;;) {
        double bears = try_step(s), used = s->step;
        double less = 1 / root(root(k + 2)); /* ever closer to what it bears, ever fewer changes */
        double a = (1 - less) * bears, b = (1 + less * less) * used;
        if (used <= bears) {
            struct point swap = s->now;
            s->now = s->trial;
            s->trial = swap;
            add_to_sum(s); /* weighted by the step that was made */
        }
        s->step = a < b ? a : b;
        if (used <= bears)
            return;
    }
}

/* ---- errors and restarts ----------------------------------------------------------------------*/

static struct error error_of(const struct solver *s, const struct point *p, double scale)
{
    struct error e = {0};
    double dual = 0, primal2 = 0, dual2 = 0;

    for (size_t i = 0; i < s->m; i++) {
        double ax = p->ax[i] * scale, y = p->y[i] * scale, off = ax - clamp(ax, s->lo[i], s->hi[i]);
        primal2 += off * off;
        if (y > 0)
            dual -= y * s->hi[i];
        else if (y < 0)
            dual -= y * s->lo[i];
    }
    for (size_t j = 0; j < s->n; j++) {
        double g = s->cost[j] + p->aty[j] * scale;
        e.objective += s->cost[j] * p->x[j] * scale;
        if (g >= 0)
            dual += g * s->lower[j];
        else if (isfinite(s->upper[j]))
            dual += g * s->upper[j];
        else
            dual2 += g * g;
    }
    e.primal = root(primal2);
    e.dual = root(dual2);
    e.gap = size_of(e.objective - dual);
    e.size = size_of(e.objective) + size_of(dual);
    e.all = root(s->omega * s->omega * primal2 + dual2 / (s->omega * s->omega) + e.gap * e.gap);
    return e;
}

static void copy_point(const struct solver *s, struct point *to, const struct point *from, double scale)
{
    for (size_t j = 0; j < s->n; j++) {
        to->x[j] = from->x[j] * scale;
        to->aty[j] = from->aty[j] * scale;
    }
    for (size_t i = 0; i < s->m; i++) {
        to->y[i] = from->y[i] * scale;
        to->ax[i] = from->ax[i] * scale;
    }
}

static void forget_sum(struct solver *s)
{
    memset(s->sum.x, 0, s->n * sizeof *s->sum.x);
    memset(s->sum.aty, 0, s->n * sizeof *s->sum.aty);
    memset(s->sum.y, 0, s->m * sizeof *s->sum.y);
    memset(s->sum.ax, 0, s->m * sizeof *s->sum.ax);
    s->weight = 0;
}

/* Begins anew from s->now: the balance of the two step lengths follows how far each side went. */
static void restart(struct solver *s)
{
    double dx = 0, dy = 0;

    for (size_t j = 0; j < s->n; j++)
        dx += (s->now.x[j] - s->origin.x[j]) * (s->now.x[j] - s->origin.x[j]);
    for (size_t i = 0; i < s->m; i++)
        dy += (s->now.y[i] - s->origin.y[i]) * (s->now.y[i] - s->origin.y[i]);
    if (dx > 1e-20 && dy > 1e-20)
        s->omega = root(root(dy / dx) * s->omega);
    copy_point(s, &s->origin, &s->now, 1);
    forget_sum(s);
}

static struct error run(struct solver *s, unsigned iterations, double tolerance, double matters,
                        unsigned *done)
{
    struct error start = error_of(s, &s->now, 1), before = start, e = start;
    unsigned since = 0, k = 0;

    copy_point(s, &s->origin, &s->now, 1);
    while (k < iterations) {
        iterate(s, k++);
        since++;
        if (k % CHECK_EVERY && k < iterations)
            continue;
        struct error cur = error_of(s, &s->now, 1), avg = error_of(s, &s->sum, 1 / s->weight);
        bool mean = avg.all < cur.all;
        e = mean ? avg : cur;
        bool solved = e.primal <= tolerance * (1 + s->norm_rhs) && e.gap <= tolerance * (matters + e.size) &&
                      e.dual <= tolerance * (1 + s->norm_cost);
        if (solved || k == iterations || e.all <= 0.2 * start.all ||
            (e.all <= 0.8 * start.all && e.all > before.all) || since >= 0.36 * k) {
            if (mean)
                copy_point(s, &s->now, &s->sum, 1 / s->weight);
            if (solved)
                break;
            restart(s);
            start = e;
            since = 0;
        }
        before = e;
    }
    *done = k;
    return e;
}

int vm_lp_solve(const struct vm_lp *lp, unsigned iterations, double tolerance, double matters, double *x,
                double *y, struct vm_lp_result *res)
{
    struct solver s = {.n = lp->nvars, .m = lp->nrows, .nnz = lp->start[lp->nrows]};
    int rc = allocate(&s);

    if (!rc) {
        prepare(&s, lp);
        times(&s, s.now.x, s.now.ax);
        struct error e = run(&s, iterations, tolerance, matters, &res->iterations);
        res->objective = e.objective;
        res->infeasible = e.primal / (1 + s.norm_rhs);
        res->gap = e.size > 0 ? e.gap / e.size : 0;
        for (size_t j = 0; j < s.n; j++)
            x[j] = s.now.x[j] * s.dcol[j];
        for (size_t i = 0; i < s.m; i++)
            y[i] = s.now.y[i] * s.drow[i];
    }
    free(s.store);
    free(s.istore);
    return rc;
}
