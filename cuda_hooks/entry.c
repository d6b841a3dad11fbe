/* The exported functions of all rows of hooks.def but the RAW ones. */
#include "door.h"

atomic_int vm_doors_state = VM_DOORS_CLOSED;
atomic_bool vm_device_lost;

/* Inside libvmem, before cuInit and after a fork the call goes straight on. */
#define VM_ENTRY_DOOR(symbol, door, per_thread, params, args)                                      \
    VM_EXPORT CUresult symbol params                                                               \
    {                                                                                              \
        vm_fn_##symbol real = VM_REAL(symbol);                                                     \
        struct vm_scope scope = vm_enter();                                                        \
        CUresult result = scope.outer && vm_doors_open()                                           \
                              ? door_##door(real, per_thread, VM_UNPAREN args)                     \
                              : real args;                                                         \
        vm_leave(scope);                                                                           \
        return vm_noted(result);                                                                   \
    }

#define VM_ENTRY_DOOR0(symbol, door, per_thread, params, args)                                     \
    VM_EXPORT CUresult symbol params                                                               \
    {                                                                                              \
        vm_fn_##symbol real = VM_REAL(symbol);                                                     \
        struct vm_scope scope = vm_enter();                                                        \
        CUresult result =                                                                          \
            scope.outer && vm_doors_open() ? door_##door(real, per_thread) : real args;            \
        vm_leave(scope);                                                                           \
        return vm_noted(result);                                                                   \
    }

#define VM_ENTRY_RELIEVE(symbol, door, per_thread, params, args)                                   \
    VM_EXPORT CUresult symbol params                                                               \
    {                                                                                              \
        vm_fn_##symbol real = VM_REAL(symbol);                                                     \
        struct vm_scope scope = vm_enter();                                                        \
        CUresult result = real args;                                                               \
        if (result == CUDA_ERROR_OUT_OF_MEMORY && scope.outer && vm_doors_open())                  \
            while (result == CUDA_ERROR_OUT_OF_MEMORY && vm_rt_relieve())                          \
                result = real args;                                                                \
        vm_leave(scope);                                                                           \
        return vm_noted(result);                                                                   \
    }

#define VM_ENTRY_POKE(symbol, door, per_thread, params, args)                                      \
    VM_EXPORT CUresult symbol params                                                               \
    {                                                                                              \
        vm_fn_##symbol real = VM_REAL(symbol);                                                     \
        struct vm_scope scope = vm_enter();                                                        \
        if (scope.outer && vm_doors_open())                                                        \
            vm_rt_poke();                                                                          \
        CUresult result = real args;                                                               \
        vm_leave(scope);                                                                           \
        return vm_noted(result);                                                                   \
    }

#define VM_ENTRY_RAW(symbol, door, per_thread, params, args)

#define VM_ROW(kind, symbol, suffix, base, version, per_thread, door, params, args)                \
    VM_ENTRY_##kind(symbol, door, per_thread, params, args)
#include "hooks.def"
#undef VM_ROW
