/* Budget against predicted slowdown, for all policies. */
#ifndef VM_TOOLS_SWEEP_H
#define VM_TOOLS_SWEEP_H

#include "loaded.h"

/* Prints the table and, if path is not NULL, writes it as CSV. The exit status. */
int sweep(const struct loaded *l, const struct vm_machine *m, const char *path);

#endif
