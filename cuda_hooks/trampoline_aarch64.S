/* Driver functions that are not hooked: one jump each through vm_tramp_slots. An empty slot is filled
 * at its first use by vm_tramp_resolve(index), which finds the real function; every register that
 * can carry an argument survives that. Slots start empty, so loading the library relocates nothing.
 */
    .text

    .macro vm_tramp name, index
    .globl \name
    .type \name, %function
    .p2align 4
\name:
    .cfi_startproc
    hint #34 /* bti c */
    adrp x16, vm_tramp_slots + 8 * \index
    ldr x16, [x16, :lo12:vm_tramp_slots + 8 * \index]
    cbz x16, .Lempty\@
    br x16
.Lempty\@:
    mov w17, #\index
    b vm_tramp_fill
    .cfi_endproc
    .size \name, . - \name
    .endm

    .type vm_tramp_fill, %function
    .p2align 4
vm_tramp_fill:
    .cfi_startproc
    stp x29, x30, [sp, #-224]!
    .cfi_def_cfa_offset 224
    .cfi_offset 29, -224
    .cfi_offset 30, -216
    mov x29, sp
    stp x0, x1, [sp, #16]
    stp x2, x3, [sp, #32]
    stp x4, x5, [sp, #48]
    stp x6, x7, [sp, #64]
    str x8, [sp, #80]
    stp q0, q1, [sp, #96]
    stp q2, q3, [sp, #128]
    stp q4, q5, [sp, #160]
    stp q6, q7, [sp, #192]
    mov w0, w17
    bl vm_tramp_resolve
    mov x16, x0
    ldp x0, x1, [sp, #16]
    ldp x2, x3, [sp, #32]
    ldp x4, x5, [sp, #48]
    ldp x6, x7, [sp, #64]
    ldr x8, [sp, #80]
    ldp q0, q1, [sp, #96]
    ldp q2, q3, [sp, #128]
    ldp q4, q5, [sp, #160]
    ldp q6, q7, [sp, #192]
    ldp x29, x30, [sp], #224
    .cfi_restore 29
    .cfi_restore 30
    .cfi_def_cfa_offset 0
    br x16
    .cfi_endproc
    .size vm_tramp_fill, . - vm_tramp_fill

#define VM_TRAMP(name, index) vm_tramp name, index
#include "trampolines.inc"

    .section .note.GNU-stack, "", %progbits
