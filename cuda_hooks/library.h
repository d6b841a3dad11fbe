/* Calls of libraries above the driver (cuDNN, cuBLAS), watched by name.
 *
 * libvmem.so exports the names; a wrapper tells the runtime what the call reads and writes and then
 * calls the library that the program loaded. No library is opened here that was not in the process.
 */
#ifndef VM_HOOKS_LIBRARY_H
#define VM_HOOKS_LIBRARY_H

#include "door.h"

struct vm_library {
    const char *const *sonames; /* NULL-terminated, the newest first */
};

/* One thread's last answer for one function. */
struct vm_library_slot {
    vm_any_fn fn;
    const void *caller;
    unsigned long long loads; /* libraries loaded and unloaded until then */
};
#define VM_LIBRARY_SLOT(name)                                                                      \
    static _Thread_local struct vm_library_slot name __attribute__((tls_model("initial-exec")))

/* The library's function in the copy that was loaded under one of the SONAMEs; where several are
 * loaded, in the one that the caller is linked with; else after libvmem in the search order. NULL
 * (and one log line) if there is none. `slot` is the calling thread's and caches the answer until a
 * library comes or goes. */
vm_any_fn vm_library_real(const struct vm_library *lib, struct vm_library_slot *slot,
                          const char *name, const void *caller);

/* Begins a watched call. False: the call only passes (inside libvmem, or the doors are closed).
 * True: the scope is held; name the accesses, then vm_library_issue(), the call, vm_library_end().
 */
bool vm_library_begin(struct vm_libcall *call, const char *name, unsigned layer, unsigned flags);
void vm_library_issue(void);
void vm_library_end(struct vm_libcall *call);

/* An access; mixes its extent into the call's signature. NULL pointers are ignored. */
void vm_library_touch(struct vm_libcall *call, const void *p, size_t bytes, unsigned mode,
                      unsigned role);

/* Bytes of a scalar are all zero. */
bool vm_library_zero(const void *scalar, size_t bytes);

#endif
