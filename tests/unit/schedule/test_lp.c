/* The linear program solver against programs whose optimum is known otherwise. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "lp.h"
#include "model.h"
#include "small.h"

#define ITEMS 24

static double draw(uint64_t *s)
{
    return 0.1 + (double)(small_random(s) % 1000) / 500;
}

/* The most worth that goes into a sack of size `room`, items divisible: greedily by worth per size. */
static double sack(const double *worth, const double *size, double room)
{
    int taken[ITEMS] = {0};
    double sum = 0;

    for (int k = 0; k < ITEMS && room > 0; k++) {
        int best = -1;
        for (int i = 0; i < ITEMS; i++)
            if (!taken[i] && (best < 0 || worth[i] / size[i] > worth[best] / size[best]))
                best = i;
        double share = fmin(1, room / size[best]);
        taken[best] = 1;
        sum += share * worth[best];
        room -= share * size[best];
    }
    return sum;
}

Test(lp, fractional_sack)
{
    for (uint64_t seed = 1; seed <= 50; seed++) {
        double cost[ITEMS], lower[ITEMS] = {0}, upper[ITEMS], size[ITEMS], worth[ITEMS], x[ITEMS], y[1];
        double lo = -INFINITY, hi = 0;
        uint32_t start[2] = {0, ITEMS}, column[ITEMS];
        uint64_t s = seed;
        for (uint32_t i = 0; i < ITEMS; i++) {
            worth[i] = draw(&s);
            size[i] = draw(&s);
            cost[i] = -worth[i];
            upper[i] = 1;
            column[i] = i;
            hi += 0.4 * size[i];
        }
        struct vm_lp lp = {ITEMS, 1, cost, lower, upper, &lo, &hi, start, column, size};
        struct vm_lp_result r;
        cr_assert_eq(vm_lp_solve(&lp, 20000, 1e-7, 0, x, y, &r), VM_OK);
        cr_assert_float_eq(-r.objective, sack(worth, size, hi), 1e-4, "seed %llu: %.6f, greedy %.6f",
                           (unsigned long long)seed, -r.objective, sack(worth, size, hi));
        cr_assert_geq(y[0], 0); /* the row binds from above */
    }
}

/* Least flow cost along a line of stations: x[i] units stay from i to i + 1; an equation for each station, one
 * column without an upper limit. The optimum buys all at the cheapest station so far. */
Test(lp, equations)
{
    enum { N = 12 };
    double cost[2 * N], lower[2 * N] = {0}, upper[2 * N], need[N], value[4 * N], x[2 * N], y[N];
    uint32_t start[N + 1] = {0}, column[4 * N], nnz = 0;
    double cheapest = INFINITY, expected = 0;
    uint64_t s = 7;
    for (uint32_t i = 0; i < N; i++) { /* bought[i], kept[i]: kept[i] = kept[i - 1] + bought[i] - need[i] */
        need[i] = draw(&s);
        cost[i] = draw(&s);
        cost[N + i] = 0;
        upper[i] = upper[N + i] = INFINITY;
        cheapest = fmin(cheapest, cost[i]);
        expected += cheapest * need[i];
        column[nnz] = i;
        value[nnz++] = 1;
        column[nnz] = N + i;
        value[nnz++] = -1;
        if (i) {
            column[nnz] = N + i - 1;
            value[nnz++] = 1;
        }
        start[i + 1] = nnz;
    }
    struct vm_lp lp = {2 * N, N, cost, lower, upper, need, need, start, column, value};
    struct vm_lp_result r;
    cr_assert_eq(vm_lp_solve(&lp, 50000, 1e-7, 0, x, y, &r), VM_OK);
    cr_assert_float_eq(r.objective, expected, 1e-4, "%.6f, expected %.6f", r.objective, expected);
    cr_assert_lt(r.infeasible, 1e-6);
}
