/* sg_sched.h: between operations (op.c) and the two ways to play them (sched.c, late.c). */
#ifndef SG_SCHED_H
#define SG_SCHED_H

#include "sg.h"

void sg_sched_ready(struct sg_op *op, uint64_t at); /* all it waits for is done */
void sg_sched_bound(struct sg_stream *s);           /* a full queue makes the host wait */
void sg_op_done(struct sg_op *op, uint64_t at);
/* Runs a host function outside the lock. */
void sg_run_hostfn(struct sg_op *op);

/* functional mode (late.c) */
void sg_late_ready(struct sg_op *op);
bool sg_late_step(struct sg_op *target, bool only_needed);
bool sg_late_need(struct sg_op *target); /* marks what target waits for */

#endif
