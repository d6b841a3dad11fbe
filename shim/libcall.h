/* The library call (cuDNN, cuBLAS) in progress on this thread, as operations see it. */
#ifndef VM_SHIM_LIBCALL_H
#define VM_SHIM_LIBCALL_H

#include "runtime.h"

/* If the call names the block [base, base + size), its word on direction and role replaces the
 * guess in *mode and *role. A total write is believed once: the call's further operations on the
 * block may read what its first one wrote. */
void vm_libcall_mode(CUdeviceptr base, uint64_t size, CUdeviceptr addr, uint8_t *mode,
                     uint8_t *role);
/* Gives the operation the call's layer and flags. */
void vm_libcall_sign(struct vm_op *op);

#endif
