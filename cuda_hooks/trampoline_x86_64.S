/* Driver functions that are not hooked: one jump each through vm_tramp_slots. An empty slot is filled
 * at its first use by vm_tramp_resolve(index), which finds the real function; every register that
 * can carry an argument survives that. Slots start empty, so loading the library relocates nothing.
 */
    .text

    .macro vm_tramp name, index
    .globl \name
    .type \name, @function
    .p2align 4
\name:
    .cfi_startproc
    endbr64
    movq vm_tramp_slots + 8 * \index(%rip), %r11
    testq %r11, %r11
    je .Lempty\@
    jmpq *%r11
.Lempty\@:
    movl $\index, %r11d
    jmp vm_tramp_fill
    .cfi_endproc
    .size \name, . - \name
    .endm

    .type vm_tramp_fill, @function
    .p2align 4
vm_tramp_fill:
    .cfi_startproc
    pushq %rbp
    .cfi_def_cfa_offset 16
    .cfi_offset %rbp, -16
    movq %rsp, %rbp
    .cfi_def_cfa_register %rbp
    subq $192, %rsp
    movq %rdi, -8(%rbp)
    movq %rsi, -16(%rbp)
    movq %rdx, -24(%rbp)
    movq %rcx, -32(%rbp)
    movq %r8, -40(%rbp)
    movq %r9, -48(%rbp)
    movq %rax, -56(%rbp)
    movaps %xmm0, -80(%rbp)
    movaps %xmm1, -96(%rbp)
    movaps %xmm2, -112(%rbp)
    movaps %xmm3, -128(%rbp)
    movaps %xmm4, -144(%rbp)
    movaps %xmm5, -160(%rbp)
    movaps %xmm6, -176(%rbp)
    movaps %xmm7, -192(%rbp)
    movl %r11d, %edi
    call vm_tramp_resolve
    movq %rax, %r11
    movq -8(%rbp), %rdi
    movq -16(%rbp), %rsi
    movq -24(%rbp), %rdx
    movq -32(%rbp), %rcx
    movq -40(%rbp), %r8
    movq -48(%rbp), %r9
    movq -56(%rbp), %rax
    movaps -80(%rbp), %xmm0
    movaps -96(%rbp), %xmm1
    movaps -112(%rbp), %xmm2
    movaps -128(%rbp), %xmm3
    movaps -144(%rbp), %xmm4
    movaps -160(%rbp), %xmm5
    movaps -176(%rbp), %xmm6
    movaps -192(%rbp), %xmm7
    leave
    .cfi_def_cfa %rsp, 8
    jmpq *%r11
    .cfi_endproc
    .size vm_tramp_fill, . - vm_tramp_fill

#define VM_TRAMP(name, index) vm_tramp name, index
#include "trampolines.inc"

    .section .note.GNU-stack, "", @progbits
