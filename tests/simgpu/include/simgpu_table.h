/* simgpu_table.h: a table of functions that the simulated driver hands to our other stand-ins
 * through cuGetExportTable (simgpu_card.h, simgpu_activity.h). */
#ifndef SIMGPU_TABLE_H
#define SIMGPU_TABLE_H

#include <cuda.h>
#include <dlfcn.h>
#include <string.h>

/* The table of this id, which lives as long as the process; NULL: `driver`, a handle of dlopen or
 * NULL, has none. */
static inline const void *simgpu_table(void *driver, CUuuid id)
{
    CUresult (*get)(const void **, const CUuuid *) = NULL;
    const void *table = NULL;
    void *symbol = driver ? dlsym(driver, "cuGetExportTable") : NULL;
    memcpy(&get, &symbol, sizeof get); /* the portable way from an object to a function pointer */
    return get && get(&table, &id) == CUDA_SUCCESS ? table : NULL;
}

#endif
