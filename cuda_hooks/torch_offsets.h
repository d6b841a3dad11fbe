/* How PyTorch's kernels of iterators are told where in its tensors an element lies.
 *
 * They get an OffsetCalculator by value (aten/src/ATen/cuda/detail/OffsetCalculator.cuh): the
 * number of dimensions, a divider for each of 25, then the strides of each operand in each. It
 * holds no address, but of dimensions that there are not it shows what lay on the stack. A divider
 * is its number together with the multiplier and shift that stand for the division
 * (IntegerDivider.cuh), so that a calculator can be known by its contents. */
#ifndef VM_HOOKS_TORCH_OFFSETS_H
#define VM_HOOKS_TORCH_OFFSETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* No device address: the processors' user space ends at 2^47, and drivers put nothing below 2^32
 * (reservations of NVIDIA's begin at 0x302000000). */
static inline bool vm_cannot_be_address(uint64_t word)
{
    return word >> 32 == 0 || word >> 47;
}

/* A kernel's parameter that holds calculators. */
struct vm_torch_offsets {
    uint8_t kind;  /* 0: none */
    uint8_t args;  /* operands of the calculator */
    uint8_t param; /* index of the parameter */
    uint16_t bytes;
};

/* Bytes of a parameter in which there is no address: whole words, and the paddings next to them. */
struct vm_torch_gap {
    uint16_t from, to;
};
#define VM_TORCH_GAPS 2u

/* The parameter of the kernel of this (mangled) name that holds calculators; -1: none is known to.
 * Thread-safe. */
int vm_torch_offsets_param(const char *name);

/* Layout of that parameter, from its size; kind 0 where the size is none of theirs. Thread-safe. */
struct vm_torch_offsets vm_torch_offsets_of(const char *name, size_t bytes);

/* The gaps of one launch's parameter, in order; 0 of them where the contents are not what they
 * should be, and every word may be an address. Reads o->bytes of `value`. Thread-safe. */
unsigned vm_torch_offsets_gaps(const struct vm_torch_offsets *o, const void *value,
                               struct vm_torch_gap gaps[VM_TORCH_GAPS]);

#endif
