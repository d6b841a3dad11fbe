#include "cost.h"

#include <math.h>
#include <string.h>

#define FADE    0.957 /* half in 16 samples                                             */
#define GAIN    0.5   /* share of an iteration's error that is corrected at once        */
#define STALL   0.02  /* of the op time: below it a stall is too small to learn from    */
#define EXPLAINS 0.5 /* of the squares that are left without it: another fixed part is believed   */
#define OPS_MOST   4.0  /* op times are at most so many times what was recorded, and at least the inverse */
#define STALL_MOST 32.0 /* likewise: a plan may foresee next to none */

void vm_cost_init(struct vm_cost *c, const struct vm_machine *m)
{
    memset(c, 0, sizeof *c);
    c->machine = *m;
    c->op_scale = c->stall_scale = 1;
}

static void line_add(struct vm_cost_line *l, double x, double y)
{
    l->n = l->n * FADE + 1;
    l->x = l->x * FADE + x;
    l->y = l->y * FADE + y;
    l->xx = l->xx * FADE + x * x;
    l->xy = l->xy * FADE + x * y;
    l->yy = l->yy * FADE + y * y;
}

/* Sum of the squares that slope and intercept leave. */
static double left_over(const struct vm_cost_line *l, double s, double f)
{
    return l->yy - 2 * s * l->xy - 2 * f * l->y + s * s * l->xx + 2 * s * f * l->x + f * f * l->n;
}

/* Slope and intercept, the latter not below 0. `fixed` stays as it was where there was one size only, or where
 * another would not explain much more of what was seen: sizes that are nearly the same tell little about it.
 * False without samples. */
static bool line_fit(const struct vm_cost_line *l, double *slope, double *fixed)
{
    if (l->n < 1 || l->x <= 0)
        return false;
    double var = l->n * l->xx - l->x * l->x;
    if (var < 1e-6 * l->n * l->xx) {
        double s = (l->y - *fixed * l->n) / l->x;
        *slope = s > 0 ? s : l->y / l->x;
        return *slope > 0;
    }
    double s = (l->n * l->xy - l->x * l->y) / var, f = (l->y - s * l->x) / l->n;
    if (f < 0) {
        f = 0;
        s = l->xy / l->xx;
    }
    double kept = (l->xy - *fixed * l->x) / l->xx;
    if (kept > 0 && left_over(l, s, f) > EXPLAINS * left_over(l, kept, *fixed)) {
        *slope = kept;
        return true;
    }
    if (!(s > 0))
        return false;
    *slope = s;
    *fixed = f;
    return true;
}

void vm_cost_copy(struct vm_cost *c, bool out, bool duplex, uint64_t bytes, double ns)
{
    if (!bytes || !(ns > 0) || !isfinite(ns))
        return;
    if (duplex)
        line_add(out ? &c->out_duplex : &c->in_duplex, (double)bytes, ns);
    else
        line_add(out ? &c->out : &c->in, (double)bytes, ns);
}

void vm_cost_map(struct vm_cost *c, bool unmap, uint64_t pages, double ns)
{
    if (pages && ns > 0 && isfinite(ns))
        line_add(unmap ? &c->unmap : &c->map, (double)pages, ns);
}

static double clamp(double x, double most)
{
    return x < 1 / most ? 1 / most : x > most ? most : x;
}

double vm_cost_predict(const struct vm_cost *c, double predicted_ns, double compute_ns)
{
    double stall = predicted_ns > compute_ns ? predicted_ns - compute_ns : 0;

    return compute_ns * c->op_scale + stall * c->stall_scale;
}

int vm_cost_correct(struct vm_cost *c, double predicted_ns, double compute_ns, double measured_ns)
{
    if (!(compute_ns > 0) || !(measured_ns > 0) || !(predicted_ns >= compute_ns * (1 - 1e-9)) ||
        !isfinite(predicted_ns) || !isfinite(measured_ns))
        return VM_EINVAL;
    double stall = predicted_ns - compute_ns, ops = compute_ns * c->op_scale;
    c->last_error = fabs(vm_cost_predict(c, predicted_ns, compute_ns) - measured_ns) / measured_ns;
    c->iterations++;
    if (stall < STALL * compute_ns) {
        double seen = (measured_ns - stall * c->stall_scale) / compute_ns;
        c->op_scale = clamp(c->op_scale + GAIN * (seen - c->op_scale), OPS_MOST);
        return VM_OK;
    }
    double seen = (measured_ns - ops) / stall;
    c->stall_scale = clamp(c->stall_scale + GAIN * (seen - c->stall_scale), STALL_MOST);
    return VM_OK;
}

/* A link's speed alone and while the other is busy. Where only one of the two was seen, the other keeps
 * its share of it. */
static void fit_link(const struct vm_cost_line *alone, const struct vm_cost_line *both, double *bps,
                     double *duplex, double *latency)
{
    double slope, fixed = *latency, share = *bps > 0 && *duplex > 0 ? *duplex / *bps : 1;
    bool have = line_fit(alone, &slope, &fixed);

    if (have) {
        *bps = 1e9 / slope;
        *duplex = *bps * share;
        *latency = fixed;
    }
    fixed = *latency;
    if (!line_fit(both, &slope, &fixed))
        return;
    *duplex = 1e9 / slope;
    if (!have)
        *bps = *duplex / share;
}

void vm_cost_machine(const struct vm_cost *c, struct vm_machine *m)
{
    double slope, fixed, out_latency, in_latency;

    *m = c->machine;
    fixed = m->access_call_ns;
    out_latency = in_latency = m->copy_latency_ns;
    fit_link(&c->out, &c->out_duplex, &m->out_bps, &m->out_duplex_bps, &out_latency);
    fit_link(&c->in, &c->in_duplex, &m->in_bps, &m->in_duplex_bps, &in_latency);
    m->copy_latency_ns = out_latency > in_latency ? out_latency : in_latency;
    if (line_fit(&c->map, &slope, &fixed)) {
        double given = m->map_ns + m->access_ns, share = given > 0 ? m->map_ns / given : 0;
        m->map_ns = slope * share;
        m->access_ns = slope - m->map_ns;
        m->access_call_ns = fixed;
    }
    fixed = m->unmap_call_ns;
    if (line_fit(&c->unmap, &slope, &fixed)) {
        m->unmap_ns = slope;
        m->unmap_call_ns = fixed;
    }
}

static bool far(double a, double b, double share)
{
    return a > 0 && b > 0 && fabs(a - b) > share * b;
}

bool vm_cost_strays(const struct vm_cost *c, const struct vm_machine *used, double share)
{
    struct vm_machine m;

    vm_cost_machine(c, &m);
    return far(m.out_bps, used->out_bps, share) || far(m.in_bps, used->in_bps, share) ||
           far(m.out_duplex_bps, used->out_duplex_bps, 2 * share) ||
           far(m.in_duplex_bps, used->in_duplex_bps, 2 * share);
}
