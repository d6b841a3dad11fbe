#include "library.h"

#include <dlfcn.h>
#include <link.h>
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

/* The symbol in what the caller is linked with. */
static void *of_caller(const void *caller, const char *name)
{
    Dl_info info;
    return dladdr(caller, &info) ? in_loaded(info.dli_fname, name) : NULL;
}

static int first_object(struct dl_phdr_info *info, size_t size, void *loads)
{
    *(unsigned long long *)loads = info->dlpi_adds + info->dlpi_subs;
    return 1; /* the counters are the same for every object */
}

/* Searches; *shared is set when every caller gets this answer. */
static void *search(const struct vm_library *lib, const char *name, const void *caller,
                    bool *shared)
{
    void *found = NULL, *first = NULL;
    unsigned copies = 0;
    for (const char *const *s = lib->sonames; *s; s++) {
        void *p = in_loaded(*s, name);
        if (p && !first)
            first = p;
        copies += p && p != found;
        found = p ? p : found;
    }
    *shared = copies == 1;
    if (copies == 1)
        return found;
    found = of_caller(caller, name); /* several versions, or a SONAME that is not known here */
    if (found || first)
        return found ? found : first;
    found = dlsym(RTLD_NEXT, name);
    return found && !is_ours(found) ? found : NULL;
}

vm_any_fn vm_library_real(const struct vm_library *lib, struct vm_library_slot *slot,
                          const char *name, const void *caller)
{
    unsigned long long loads = 0;
    bool shared = false;
    dl_iterate_phdr(first_object, &loads);
    if (slot->fn && slot->loads == loads && (!slot->caller || slot->caller == caller))
        return slot->fn;
    void *found = search(lib, name, caller, &shared);
    if (!found) {
        vm_log(LIB_ABSENT, name);
        return NULL;
    }
    memcpy(&slot->fn, &found, sizeof found);
    slot->caller = shared ? NULL : caller;
    slot->loads = loads;
    return slot->fn;
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
