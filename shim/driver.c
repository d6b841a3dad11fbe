#include "driver.h"

struct vm_driver vm_drv;

const char *vm_driver_bind(void *(*find)(const char *name))
{
    const char *missing = NULL;
    void *p;
    /* A function pointer out of a void pointer: what dlsym's contract allows, spelt for -Wpedantic.
     */
#define VM_DRV(required, name, params)                                                             \
    p = find(#name);                                                                               \
    __builtin_memcpy(&vm_drv.p_##name, &p, sizeof p);                                              \
    if (!p && (required) && !missing)                                                              \
        missing = #name;
#include "driver.def"
#undef VM_DRV
    return missing;
}
