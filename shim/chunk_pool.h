/* Physical memory: chunk handles, created on demand up to the budget and then remapped, never
 * released for one block's sake. The device's lock is held. */
#ifndef VM_SHIM_CHUNK_POOL_H
#define VM_SHIM_CHUNK_POOL_H

#include "device.h"

/* A free chunk, made now if the budget allows. 0 and *chunk; VM_NOTFOUND when there is none; the
 * driver's refusal to make one lowers the budget to what we have. */
int vm_chunk_take(struct vm_device *d, uint32_t *chunk);
void vm_chunk_give(struct vm_device *d, uint32_t chunk);
/* Free chunks plus those that may still be made. */
uint64_t vm_chunks_available(const struct vm_device *d);
/* Returns up to n free chunks to the driver; the number returned. The budget stays as it is. */
uint32_t vm_chunks_release(struct vm_device *d, uint32_t n);

#endif
