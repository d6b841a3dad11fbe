/* Host memory in slots of one page each, under the host budget: a few big pinned arenas, registered
 * with the driver one after the other as they are needed, or host-NUMA handles made in the same
 * steps. The device's lock is held. */
#ifndef VM_SHIM_HOST_POOL_H
#define VM_SHIM_HOST_POOL_H

#include "device.h"

/* 0 and *slot, VM_NOTFOUND when the host budget or the machine's memory is used up. */
int vm_host_slot_take(struct vm_device *d, uint32_t *slot);
void vm_host_slot_give(struct vm_device *d, uint32_t slot);
/* The backend that VMEM_BACKEND names; falls back to registered memory, with a line in the log. */
void vm_host_pool_init(struct vm_device *d);
/* Of a host-NUMA slot. */
CUmemGenericAllocationHandle vm_host_slot_handle(const struct vm_device *d, uint32_t slot);
char *vm_host_slot_addr(const struct vm_device *d, uint32_t slot);
/* Slots of these two follow each other in memory, so one copy can serve both. */
bool vm_host_slots_adjacent(const struct vm_device *d, uint32_t a, uint32_t b);

#endif
