#include "library.h"

#include <dlfcn.h>
#include <string.h>

static bool is_ours(void *p)
{
    Dl_info a, b;
    return !dladdr(p, &a) || !dladdr((void *)(uintptr_t)vm_library_real, &b) ||
           a.dli_fbase == b.dli_fbase;
}

/* The symbol in a library that is in the process; never loads one. */
static void *in_loaded(const char *library, const char *name)
{
    void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (!handle)
        return NULL;
    void *p = dlsym(handle, name);
    dlclose(handle); /* the count only: it was loaded before */
    return p && !is_ours(p) ? p : NULL;
}

vm_any_fn vm_library_real(const struct vm_library *lib, _Atomic(vm_any_fn) *slot, const char *name,
                          const void *caller)
{
    vm_any_fn fn = atomic_load_explicit(slot, memory_order_acquire);
    void *found = NULL, *first = NULL;
    unsigned copies = 0;
    Dl_info info;
    if (fn)
        return fn;
    for (const char *const *s = lib->sonames; *s; s++) {
        void *p = in_loaded(*s, name);
        if (p && !first)
            first = p;
        copies += p && p != found;
        found = p ? p : found;
    }
    if (copies > 1) { /* two versions: never cached, each caller gets its own */
        void *own = dladdr(caller, &info) ? in_loaded(info.dli_fname, name) : NULL;
        found = own ? own : first;
    } else if (!found) {
        found = dlsym(RTLD_NEXT, name);
        if (found && is_ours(found))
            found = NULL;
    }
    if (!found) {
        vm_log(LIB_ABSENT, name);
        return NULL;
    }
    memcpy(&fn, &found, sizeof fn);
    if (copies <= 1)
        atomic_store_explicit(slot, fn, memory_order_release);
    return fn;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    return (h ^ v) * UINT64_C(0x9e3779b97f4a7c15) ^ h >> 29;
}

bool vm_library_begin(struct vm_libcall *call, const char *name, unsigned layer, unsigned flags)
{
    struct vm_scope scope = vm_enter();
    if (!scope.outer || !vm_doors_open()) {
        vm_leave(scope);
        return false;
    }
    memset(call, 0, sizeof *call);
    call->name = name;
    call->layer = (uint8_t)layer;
    call->flags = (uint8_t)flags;
    call->sig = layer;
    for (const char *c = name; *c; c++)
        call->sig = (call->sig ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    vm_rt_libcall_begin(call);
    return true;
}

/* The library's own launches are the program's calls again. */
void vm_library_issue(void)
{
    struct vm_scope scope = {true};
    vm_leave(scope);
}

void vm_library_end(struct vm_libcall *call)
{
    struct vm_scope scope = vm_enter();
    vm_rt_libcall_end(call);
    vm_leave(scope);
}

void vm_library_touch(struct vm_libcall *call, const void *p, size_t bytes, unsigned mode,
                      unsigned role)
{
    call->sig = mix(call->sig, bytes);
    if (p)
        vm_rt_libcall_touch(call, p, bytes, mode, role);
}

bool vm_library_zero(const void *scalar, size_t bytes)
{
    static const unsigned char zeros[16];
    return scalar && bytes <= sizeof zeros && memcmp(scalar, zeros, bytes) == 0;
}
