/* The real driver as the runtime calls it. Bound once by cuda_hooks/resolve, read-only afterwards.
 */
#ifndef VM_SHIM_DRIVER_H
#define VM_SHIM_DRIVER_H

#include <stdbool.h>
#include <cuda.h>

/* cuda.h renames some of these to their versioned names; here the exported name is meant. */
#define VM_DRV(required, name, params) CUresult(*p_##name) params;
struct vm_driver {
#include "driver.def"
};
#undef VM_DRV

extern struct vm_driver vm_drv;

/* Looks every row up with `find`. Returns the name of the first required call that is missing (the
 * runtime then stays in pass-through), or NULL when all are there. Call once, before any other
 * thread uses vm_drv. */
const char *vm_driver_bind(void *(*find)(const char *name));

#endif
