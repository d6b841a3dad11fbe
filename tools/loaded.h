/* A trace file (or an operator log of the DTR simulator), read and looked through: what `vmem
 * trace` and `vmem plan` start from. */
#ifndef VM_TOOLS_LOADED_H
#define VM_TOOLS_LOADED_H

#include "iteration.h"
#include "liveness.h"
#include "period.h"

struct loaded {
    const char *path;
    struct vm_trace trace;
    struct vm_period *runs; /* every run of a period in it */
    size_t nruns, nops;
    const struct vm_period
        *chosen; /* the run that covers most ops; NULL: the whole trace is taken */
    struct vm_iteration it;
    struct vm_liveness live;
    uint64_t *start_ns; /* nops + 1: when each op of the iteration starts, by the sum of op times
                           before it; op numbers where no times were recorded */
    bool timed;
    bool imported; /* an operator log: one iteration by nature */
};

/* 0, or the exit status after one line on stderr. *l is the caller's (loaded_free), also on
 * failure. */
int loaded_read(struct loaded *l, const char *command, const char *path);
void loaded_free(struct loaded *l);

/* Name of an op of the iteration; "op" where it has none. */
const char *loaded_op_name(const struct loaded *l, uint32_t op);

#endif
