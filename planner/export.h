/* Other people's formats, written from our data. */
#ifndef VM_PLANNER_EXPORT_H
#define VM_PLANNER_EXPORT_H

#include "liveness.h"
#include "model.h"
#include "trace_file.h"

/* Buffers of an iteration as CSV for static-allocation solvers: id,lower,upper,size with lower
 * inclusive and upper exclusive, in ops. A wrapping block gives two rows: its own id from
 * allocation to the end, and id + nblocks from the beginning to its end. 0 or what `put` returned.
 */
int vm_export_buffers(const struct vm_iteration *it, vm_put_fn put, void *ctx);

/* The iteration as a Chrome trace (chrome://tracing, Perfetto): a slice an op on its stream's
 * track, one after the other, and counters of the bytes in use, cold and dead. `names` are the
 * trace's. *l is the iteration's liveness. 0 or what `put` returned. */
int vm_export_chrome(const struct vm_iteration *it, const struct vm_liveness *l, char *const *names,
                     vm_put_fn put, void *ctx);

/* The whole trace as a PyTorch memory snapshot (a pickle), for pytorch.org/memory_viz and
 * torch.cuda._memory_viz: blocks that are alive at its end as segments, allocations and frees as the trace of
 * device 0. Blocks carry the first operation that uses them in place of a stack. 0, VM_ENOMEM or what
 * `put` returned. */
int vm_export_memory_viz(const struct vm_trace *t, vm_put_fn put, void *ctx);

#endif
