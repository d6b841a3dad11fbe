/* The guard every door must hold: a thread that is already inside libvmem (or inside a driver call
 * that libvmem made) goes straight to the real function. */
#ifndef VM_SHIM_SCOPE_H
#define VM_SHIM_SCOPE_H

#include <stdbool.h>

/* initial-exec: no allocation, no call, usable from any thread at any time. */
extern _Thread_local int vm_scope_depth __attribute__((tls_model("initial-exec")));

struct vm_scope {
    bool outer; /* this is the program's own call, not one that we caused */
};

static inline struct vm_scope vm_enter(void)
{
    struct vm_scope s = {vm_scope_depth++ == 0};
    return s;
}

static inline void vm_leave(struct vm_scope s)
{
    (void)s;
    vm_scope_depth--;
}

#endif
