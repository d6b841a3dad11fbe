/* Page-locked host memory: a kernel can read it, and a table of device addresses in it names blocks
 * that no parameter shows. */
#ifndef VM_HOOKS_HOST_H
#define VM_HOOKS_HOST_H

#include <stddef.h>

/* Looks at every aligned word of a launch's parameters: where one points into page-locked memory,
 * the memory from there on (at most VMEM_ESCAPE_SCAN bytes) is searched for device addresses. Costs
 * two comparisons a word while none does. */
void vm_host_words(const void *params, size_t bytes);

#endif
