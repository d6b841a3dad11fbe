/* The recorder: what the program does, as a struct vm_trace (planner/model.h), with device times
 * (op_times.h), and the search for the iteration in it. Records until a plan is in force,
 * again when the program left its plan for good. The device's lock is held. */
#ifndef VM_SHIM_RECORDER_H
#define VM_SHIM_RECORDER_H

#include "device.h"

int vm_recorder_new(struct vm_device *d);
void vm_recorder_alloc(struct vm_device *d, struct vm_block *b);
void vm_recorder_free(struct vm_device *d, struct vm_block *b);
void vm_recorder_hint(struct vm_device *d, struct vm_block *b, unsigned hint);
void vm_recorder_step(struct vm_device *d);
/* Around an operation: starts and ends its time, adds it to the trace, looks for the iteration. */
void vm_recorder_before(struct vm_device *d, struct vm_op *op, struct vm_stream *s);
void vm_recorder_after(struct vm_device *d, struct vm_op *op, struct vm_stream *s, bool counted);
/* The host waits for the stream, NULL: for all; so it waits for the last operation if that is on it. */
void vm_recorder_waited(struct vm_device *d, const struct vm_stream *s);
/* Without the lock, now and then: leaves what only recording needed. */
void vm_recorder_settle(struct vm_device *d);
/* A plan is in force: nothing more to record; the trace file, if one is wanted, is written. */
void vm_recorder_stop(struct vm_device *d);
/* The program left its plan: forget and begin anew. */
void vm_recorder_restart(struct vm_device *d);
/* The process or the context ends: writes what there is. */
void vm_recorder_finish(struct vm_device *d);
/* Whole iterations seen while recording. */
uint64_t vm_recorder_iterations(const struct vm_device *d);
uint64_t vm_recorder_period(const struct vm_device *d);

#endif
