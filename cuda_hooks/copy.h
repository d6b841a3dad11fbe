/* Copies and fills as ops: what the entry points have in common. */
#ifndef VM_HOOKS_COPY_H
#define VM_HOOKS_COPY_H

#include "door.h"

/* Runs `call` between before and after; `result` receives the program's answer. `op` was described.
 */
#define VM_ISSUE(result, op, call)                                                                 \
    do {                                                                                           \
        (result) = vm_rt_op_before(op);                                                            \
        if ((result) == CUDA_SUCCESS) {                                                            \
            (result) = (call);                                                                     \
            vm_rt_op_after(op, result);                                                            \
        }                                                                                          \
    } while (0)

/* Host data about to be copied to the device: searched for device addresses if it is small enough
 * (VMEM_ESCAPE_SCAN). The caller knows that it is host memory. */
void vm_copy_escape(const void *host, size_t bytes);
/* The same where the source may also be device or managed memory that is not ours. */
void vm_copy_escape_unknown(CUdeviceptr src, size_t bytes);

/* The block holds `p`. */
static inline bool vm_copy_ours(CUdeviceptr p)
{
    CUdeviceptr base;
    size_t bytes;
    return p && vm_rt_range(p, &base, &bytes);
}

#endif
