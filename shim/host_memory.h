/* How much pinned memory this process may take. */
#ifndef VM_SHIM_HOST_MEMORY_H
#define VM_SHIM_HOST_MEMORY_H

#include <stdint.h>

/* The knob VMEM_HOST_BUDGET, else 60 % of what the machine and its memory control group have.
 * Bytes. */
uint64_t vm_host_budget(void);

#endif
