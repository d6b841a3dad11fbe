/* Other people's formats, written from our data. */
#ifndef VM_PLANNER_EXPORT_H
#define VM_PLANNER_EXPORT_H

#include "model.h"
#include "trace_file.h"

/* Buffers of an iteration as CSV for static-allocation solvers: id,lower,upper,size with lower
 * inclusive and upper exclusive, in ops. A wrapping block gives two rows: its own id from allocation to
 * the end, and id + nblocks from the beginning to its end.
 * 0 or what `put` returned. */
int vm_export_buffers(const struct vm_iteration *it, vm_put_fn put, void *ctx);

#endif
