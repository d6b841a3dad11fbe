/* The real driver: found, opened and looked into once, at the first call of anything.
 *
 * Every function is thread-safe. Nothing here runs when the library is merely loaded.
 */
#ifndef VM_HOOKS_RESOLVE_H
#define VM_HOOKS_RESOLVE_H

#include <stdbool.h>
#include <stddef.h>

typedef void (*vm_any_fn)(void);

/* The driver's function for a row of the hook table (enum vm_hook). Never NULL: without a driver,
 * or where the driver lacks it, a function that returns the fitting error. */
vm_any_fn vm_real(int hook);

/* The driver's function by exported name, NULL if it has none or there is no driver. */
vm_any_fn vm_driver_symbol(const char *name);

/* Opens the driver if that was not done. False: there is none on this machine. */
bool vm_driver_present(void);
/* Its path, "" if none; its version as cuDriverGetVersion tells, 0 if none. */
const char *vm_driver_path(void);
int vm_driver_version(void);

/* True for an exported name that libvmem has (hooked or jumped through). */
bool vm_name_known(const char *name);
/* Calls `each` for every function that the driver exports and libvmem does not have. */
void vm_driver_unknown_names(void (*each)(void *ctx, const char *name), void *ctx);

/* What a machine without a driver answers to this function; never NULL. */
vm_any_fn vm_no_driver_answer(const char *name);

/* ---- find_driver.c ----------------------------------------------------------------------------*/

/* Opens the first real libcuda.so.1: `wanted` if it is not empty, then where the loader would look.
 * NULL if there is none. `path` (n bytes) receives where it was found. Never opens libvmem itself.
 */
void *vm_find_driver(const char *wanted, char *path, size_t n);

#endif
