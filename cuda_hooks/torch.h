/* PyTorch: its caching allocator, and the functions it can use instead of it. */
#ifndef VM_HOOKS_TORCH_H
#define VM_HOOKS_TORCH_H

/* At the first cuInit, before the driver sees it: when PyTorch is in the process and VMEM_TORCH is 1,
 * its caching is switched off by the environment. What that does to settings of its allocator, or what
 * it costs to keep the cache, goes to the log. */
void vm_torch_prepare(void);

#endif
