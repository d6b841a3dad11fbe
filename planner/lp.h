/* Linear programs, solved nearly: minimise cost.x, where lo <= A x <= hi and lower <= x <= upper.
 *
 * The primal-dual hybrid gradient method with averaging, restarts and a step that adapts (Applegate et
 * al., "Practical large-scale linear programming using primal-dual hybrid gradient", 2021), on rows and
 * columns scaled to like size (Ruiz 2001; Pock & Chambolle 2011). An iteration costs two passes over
 * the matrix and needs no more memory than it; some hundreds give three digits. What comes out satisfies the
 * rows up to a tolerance only: whoever needs a bound evaluates the dual function at `y`.
 */
#ifndef VM_PLANNER_LP_H
#define VM_PLANNER_LP_H

#include <stddef.h>
#include <stdint.h>

struct vm_lp {
    size_t nvars, nrows;
    const double *cost, *lower, *upper; /* nvars; lower is finite, upper may be INFINITY  */
    const double *lo, *hi;              /* nrows; -INFINITY and INFINITY are allowed        */
    const uint32_t *start;              /* nrows + 1                                        */
    const uint32_t *column;             /* start[nrows]                                     */
    const double *value;
};

struct vm_lp_result {
    double objective;  /* cost.x                                                          */
    double infeasible; /* violation of the rows, against their size (both 2-norms, scaled) */
    double gap;        /* of primal and dual objective, against their size                */
    unsigned iterations;
};

/* At most `iterations`, fewer if violation and gap fall below `tolerance`; objectives that differ by less than
 * tolerance x `matters` count as equal. x (nvars) and y (nrows) are
 * the caller's; y[i] > 0 where hi binds, < 0 where lo does. VM_OK or VM_ENOMEM. Thread-safe. */
int vm_lp_solve(const struct vm_lp *lp, unsigned iterations, double tolerance, double matters, double *x,
                double *y, struct vm_lp_result *res);

#endif
