/* Blocks' ends, beside the doors' calls of runtime.h. The device's lock is held. */
#ifndef VM_SHIM_MEMORY_H
#define VM_SHIM_MEMORY_H

#include "device.h"

/* The block is gone for good: recorder, plan and page table are told. */
void vm_memory_release(struct vm_device *d, uint32_t index);

/* Was vm_rt_serve_captures() called? Needs no lock. */
bool vm_captures_served(void);

#endif
