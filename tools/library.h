/* Where libvmem.so is. */
#ifndef VM_TOOLS_LIBRARY_H
#define VM_TOOLS_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

/* Absolute path of libvmem.so: `wanted` if it is not NULL, else beside this program, in the build
 * tree it was built in, or where it is installed. false: not there; `out` then holds where it was
 * sought. */
bool library_find(const char *wanted, char *out, size_t n);

/* Puts the library in front of what LD_PRELOAD holds (once). false: out of memory. */
bool library_preload(const char *path);

#endif
