#include "libcall.h"

#include <stddef.h>

static _Thread_local struct vm_libcall *current __attribute__((tls_model("initial-exec")));
static _Thread_local unsigned depth __attribute__((tls_model("initial-exec")));

void vm_rt_libcall_begin(struct vm_libcall *call)
{
    call->outer = current;
    call->ops_seen = 0;
    if (depth++ == 0)
        current = call;
}

void vm_rt_libcall_touch(struct vm_libcall *call, const void *devptr, size_t bytes, unsigned mode,
                         unsigned role)
{
    if (!devptr || call->nacc == sizeof call->acc / sizeof *call->acc)
        return;
    call->acc[call->nacc].addr = (CUdeviceptr)devptr;
    call->acc[call->nacc].bytes = bytes;
    call->acc[call->nacc].mode = (uint8_t)mode;
    call->acc[call->nacc].role = (uint8_t)role;
    call->nacc++;
}

void vm_rt_libcall_end(struct vm_libcall *call)
{
    if (--depth == 0)
        current = call->outer;
}

void vm_libcall_mode(CUdeviceptr base, uint64_t size, CUdeviceptr addr, uint8_t *mode,
                     uint8_t *role)
{
    (void)addr;
    unsigned found = 0, total = 1;
    uint8_t m = 0, r = VM_ROLE_NONE;
    for (unsigned i = 0; current && i < current->nacc; i++) {
        if (current->acc[i].addr - base >= size)
            continue;
        uint8_t mine = current->acc[i].mode;
        bool whole = current->acc[i].addr == base && current->acc[i].bytes >= size;
        if (!(mine & VM_TOTAL) || !whole)
            total = 0;
        m |= mine;
        if (!r)
            r = current->acc[i].role;
        found = 1;
        if (mine & VM_WRITE)
            current->acc[i].mode = VM_RW;
    }
    if (!found)
        return;
    *mode = total ? m : (uint8_t)(m & ~VM_TOTAL);
    *role = r;
}

void vm_libcall_sign(struct vm_op *op)
{
    if (!current)
        return;
    op->layer = current->layer;
    op->described = true;
    op->flags = current->flags;
    if (current->ops_seen++ == 0) {
        op->flags |= VM_OPF_CALL_BEGIN;
        vm_op_sign(op, current->sig);
    }
}
