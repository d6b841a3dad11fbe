/* PyTorch: its caching allocator, and the functions it can use instead of it. */
#ifndef VM_HOOKS_TORCH_H
#define VM_HOOKS_TORCH_H

/* At each cuInit, before the driver sees it: when PyTorch is in the process, no allocator was
 * chosen and no second thread runs, its caching is switched off by the environment; the log says
 * so. */
void vm_torch_prepare(void);

#endif
