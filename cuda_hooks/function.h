/* What libvmem knows of a kernel: its name and where its parameters lie.
 *
 * Looked up at every launch without a lock; learnt from the driver at a kernel's first launch. */
#ifndef VM_HOOKS_FUNCTION_H
#define VM_HOOKS_FUNCTION_H

#include <stdatomic.h>
#include <stdint.h>

#include "vm_names.h"
#include "runtime.h"
#include "torch_lists.h"
#include "torch_offsets.h"

/* A parameter that can hold an address: aligned words from `skip` on, `bytes` of them in all. */
struct vm_param_words {
    uint32_t index; /* in kernelParams */
    uint16_t skip;
    uint16_t bytes;
};

/* A kernel of PyTorch's own (at::...) gets structures by value that are in part never written and show
 * what lay on the caller's stack, now and then an address of an earlier launch. Where the structure is
 * known (torch_lists.h, torch_offsets.h) such words are left out. Of the others, the type of a word is
 * fixed by the kernel's, so a word that once held what cannot be an address seldom holds one later: where
 * it seems to, that is doubtful. It is no more than doubtful, because addresses too are left unwritten
 * (the second result of a reduction that has one). */
struct vm_function {
    uint64_t name_hash; /* the same in every run */
    char *name;
    uint32_t param_bytes; /* size of the whole parameter block */
    uint32_t nwords;
    struct vm_torch_list list;
    struct vm_torch_offsets offsets;
    atomic_uchar *numbers; /* one for each word: it has held no address; NULL: not noted */
    struct vm_param_words words[];
};

/* NULL when the driver does not tell (it was logged) or no host memory was left. The answer stays
 * valid for the life of the process. Thread-safe; takes no lock when the function is known. */
const struct vm_function *vm_function_of(CUfunction f);

/* A launch's parameters, in either form, handed to vm_op_scan. */
void vm_function_scan(struct vm_op *op, const struct vm_function *fn, const unsigned grid[3],
                      void **params, void **extra);

/* Calls `each` for every aligned word of a launch's parameters: for graph nodes. */
void vm_function_words(CUfunction f, void **params, void **extra,
                       void (*each)(void *ctx, CUdeviceptr word), void *ctx);

#endif
