/* Lists of tensors in the parameters of PyTorch's kernels.
 *
 * Its foreach and fused kernels (ATen/native/cuda/MultiTensorApply.cuh) and its cat kernels
 * (ATen/native/cuda/Shape.cu) get a structure by value that has places for hundreds of addresses. It
 * lies on the caller's stack and is not cleared: behind the places in use stand addresses of earlier
 * launches. Taken for accesses, they would change from iteration to iteration and make an optimizer's
 * launch look several times as large as it is.
 *
 * Nothing here is believed on the kernel's name alone: the structure's size must be that of a layout we
 * know, and the indices in it must be such a list's. Otherwise every word counts, as anywhere else. */
#ifndef VM_HOOKS_TORCH_LISTS_H
#define VM_HOOKS_TORCH_LISTS_H

#include <stddef.h>
#include <stdint.h>

struct vm_torch_list {
    uint8_t rows;    /* lists of addresses, each of `places`; 0: the kernel has none */
    uint8_t param;   /* index of the parameter                                        */
    uint16_t places;
    uint16_t blocks;      /* places for thread blocks; 0: grid.y counts the addresses in use    */
    uint16_t index_at;    /* where the tensor of each thread block stands, in bytes             */
    uint16_t index_bytes; /* of one of these                                                    */
    uint16_t extra_at;    /* one more list of addresses; 0: none                                */
};

/* Which parameter of a kernel of this (mangled) name could be a list: its index, -1 for none. */
int vm_torch_list_param(const char *name);
/* The layout of that parameter, which has `bytes` bytes; rows is 0 if it is not one we know. */
struct vm_torch_list vm_torch_list_of(const char *name, size_t bytes);
/* Addresses in use in each row, by what one launch passes; -1 when it does not look like a list. */
int vm_torch_list_used(const struct vm_torch_list *l, const void *value, const unsigned grid[3]);

#endif
