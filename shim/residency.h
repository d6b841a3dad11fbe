/* Making an operation's blocks resident: the law that holds whatever a plan advised. */
#ifndef VM_SHIM_RESIDENCY_H
#define VM_SHIM_RESIDENCY_H

#include "device.h"
#include "runtime.h"

/* Every page of every block of *op becomes resident and the stream ordered behind whoever used the
 * memory before. The blocks are pinned already. Called with the lock, which is given up while
 * waiting. CUDA_ERROR_OUT_OF_MEMORY when the operation's blocks cannot be resident together. */
CUresult vm_make_resident(struct vm_device *d, struct vm_op *op, struct vm_stream *s);

/* May the operation write its i-th block? In a graph it may at any time. */
static inline bool vm_op_writes(const struct vm_op *op, unsigned i)
{
    return op->captured || (op->acc[i].mode & VM_WRITE) != 0;
}

/* What is resident of the block may be written again. The driver's error, if it refuses. */
CUresult vm_block_unseal(struct vm_device *d, const struct vm_block *b);

/* Before an operation of about next_ns is issued while pages wait to be moved: where unmapping
 * waits for the device, the host stays near it, or everything that waits would come late. Lock as
 * above. */
void vm_hold_back(struct vm_device *d, uint64_t next_ns);

/* Demand paging keeps a few chunks free ahead of need. */
void vm_residency_float(struct vm_device *d);

/* Frees `chunks` chunks (waiting if it must, the lock given up meanwhile); the number that is free.
 */
uint64_t vm_make_free(struct vm_device *d, uint64_t chunks);

#endif
