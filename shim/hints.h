/* What the program told us by vmem.h, as the rest of the runtime uses it. Lock held. */
#ifndef VM_SHIM_HINTS_H
#define VM_SHIM_HINTS_H

#include "device.h"

/* An operation that is not its regeneration wrote the block: the promise no longer holds. */
void vm_regenerable_written(struct vm_block *b);
/* May the block lose its contents rather than be copied, and does that pay? */
bool vm_block_droppable(const struct vm_device *d, const struct vm_block *b);
/* Calls the program back for each block of *op that lost its contents; the lock is given up
 * meanwhile. */
CUresult vm_regenerate(struct vm_device *d, struct vm_op *op, struct vm_stream *s);

#endif
