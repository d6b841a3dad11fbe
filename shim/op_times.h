/* How long recorded operations took on the device: by a profiling interface where the user asked for it
 * and it is to be had (timing.h), else by pairs of events around operations. Events are left out where
 * enough is known: an operation whose signature took the same time again and again is measured now and
 * then only; planner/iteration.c fills the gaps. The device's lock is held unless a comment says
 * otherwise. */
#ifndef VM_SHIM_OP_TIMES_H
#define VM_SHIM_OP_TIMES_H

#include "device.h"

struct vm_op_times;

int vm_op_times_new(struct vm_device *d, struct vm_op_times **out);
void vm_op_times_free(struct vm_op_times *t);
/* Before the operation's driver call; may give the lock up once, to begin. */
void vm_op_times_before(struct vm_op_times *t, struct vm_device *d, struct vm_op *op,
                        struct vm_stream *s);
/* After it: it became this event of the trace; or it did not count. One of the two, on the same thread. */
void vm_op_times_after(struct vm_op_times *t, struct vm_device *d, struct vm_op *op,
                       struct vm_stream *s, uint32_t event);
void vm_op_times_cancel(struct vm_op_times *t, struct vm_op *op);
/* Asks for times that are not here yet; gives the lock up meanwhile. */
void vm_op_times_flush(struct vm_op_times *t, struct vm_device *d);
/* Writes what is known into the trace. */
void vm_op_times_collect(struct vm_op_times *t, struct vm_trace *trace);
/* The recording ends: forgets the trace's events, gives back what measuring held. */
void vm_op_times_drop(struct vm_op_times *t);
/* Without the lock: leaves the profiler if the recording has ended. One load where nothing is to do. */
void vm_op_times_settle(struct vm_op_times *t);

#endif
