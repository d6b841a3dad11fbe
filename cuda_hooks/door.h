/* What every file of cuda_hooks/ shares: the hook table's types, the real functions, the way in.
 *
 * For each row of hooks.def there is
 *   vm_fn_<symbol>            its type
 *   VM_R_<symbol>             its position in the tables
 *   VM_REAL(<symbol>)         the driver's function; never NULL (see resolve.h)
 *   door_<symbol>(real, per_thread, ...)   for DOOR rows: what libvmem does about the call. Called
 *                             with the scope held and the runtime taking part; `per_thread` says
 *                             that stream 0 means the calling thread's default stream.
 */
#ifndef VM_HOOKS_DOOR_H
#define VM_HOOKS_DOOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vm_names.h"
#if CUDA_VERSION < 12080
#error "the hook table needs the headers of CUDA 12.8 or newer (drivers from 12.4 on are served)"
#endif
#include "runtime.h"
#include "scope.h"
#include "log.h"
#include "resolve.h"

#define VM_EXPORT       __attribute__((visibility("default")))
#define VM_UNPAREN(...) __VA_ARGS__

enum vm_hook {
#define VM_ROW(kind, symbol, suffix, base, version, per_thread, door, params, args) VM_R_##symbol,
#include "hooks.def"
#undef VM_ROW
    VM_HOOK_COUNT
};

#define VM_ROW(kind, symbol, suffix, base, version, per_thread, door, params, args)                \
    typedef CUresult(*vm_fn_##symbol) params;                                                      \
    VM_EXPORT CUresult symbol params;
#include "hooks.def"
#undef VM_ROW

#define VM_REAL(symbol) ((vm_fn_##symbol)vm_real((int)VM_R_##symbol))

#define VM_DECLARE_DOOR(symbol, door, params)                                                      \
    CUresult door_##door(vm_fn_##symbol real, bool per_thread, VM_UNPAREN params);
#define VM_DECLARE_DOOR0(symbol, door, params)                                                     \
    CUresult door_##door(vm_fn_##symbol real, bool per_thread);
#define VM_DECLARE_RELIEVE(symbol, door, params)
#define VM_DECLARE_POKE(symbol, door, params)
#define VM_DECLARE_RAW(symbol, door, params)
#define VM_ROW(kind, symbol, suffix, base, version, per_thread, door, params, args)                \
    VM_DECLARE_##kind(symbol, door, params)
#include "hooks.def"
#undef VM_ROW

/* The same table as data, for cuGetProcAddress and the doctor. */
struct vm_hook_row {
    const char *symbol, *base;
    vm_any_fn ours;
    int version;
    bool per_thread;
};
extern const struct vm_hook_row vm_hook_rows[VM_HOOK_COUNT];

/* ---- whether libvmem takes part ---------------------------------------------------------------*/

enum vm_doors_state {
    VM_DOORS_CLOSED, /* no cuInit yet, or switched off, or a forked child: everything passes */
    VM_DOORS_OPEN,
};
extern atomic_int vm_doors_state;

static inline bool vm_doors_open(void)
{
    return atomic_load_explicit(&vm_doors_state, memory_order_acquire) == VM_DOORS_OPEN &&
           vm_rt_active();
}

/* Set once the driver reported an error that a context does not survive: from then on allocations
 * are the driver's to refuse. Cleared when a context goes. */
extern atomic_bool vm_device_lost;

static inline CUresult vm_noted(CUresult r)
{
    if (r == CUDA_ERROR_ILLEGAL_ADDRESS || r == CUDA_ERROR_LAUNCH_TIMEOUT ||
        r == CUDA_ERROR_ASSERT || r == CUDA_ERROR_ECC_UNCORRECTABLE ||
        (r >= CUDA_ERROR_HARDWARE_STACK_ERROR && r <= CUDA_ERROR_LAUNCH_FAILED))
        atomic_store_explicit(&vm_device_lost, true, memory_order_relaxed);
    return r;
}

/* ---- driver functions that the doors call themselves ------------------------------------------*/

/* NULL where the driver does not have one. Bound with the hook table (resolve.c). */
#define VM_USE(symbol, params) CUresult(*symbol) params;
struct vm_uses {
#include "uses.def"
};
#undef VM_USE
extern struct vm_uses vm_uses;

/* Stream 0 of a per-thread entry point, by its own name. */
static inline CUstream vm_stream_of(CUstream stream, bool per_thread)
{
    return per_thread && !stream ? CU_STREAM_PER_THREAD : stream;
}

/* Repeats `call` while the driver is out of memory and the runtime can give some back. */
#define VM_RETRY(result, call)                                                                     \
    do                                                                                             \
        (result) = (call);                                                                         \
    while ((result) == CUDA_ERROR_OUT_OF_MEMORY && vm_rt_relieve())

#endif
