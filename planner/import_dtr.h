/* Import of an operator log as the DTR simulator reads them (JSON lines; Kirisame et al., "Dynamic
 * Tensor Rematerialization", ICLR 2021): one training iteration of a framework. */
#ifndef VM_PLANNER_IMPORT_DTR_H
#define VM_PLANNER_IMPORT_DTR_H

#include <stdio.h>

#include "model.h"

/* Turns the log into a trace: one block for each storage (aliases and copies of a handle share it),
 * one op for each CALL and MUTATE, with its time. A constant read before the first op existed before
 * the trace; a storage goes with its last handle. MUTATE writes in place. The result of a call is
 * written in full. Lines of an unknown instruction are ignored.
 * *t must be empty; on VM_EINVAL, VM_EIO or VM_ENOMEM it is empty again and *why says
 * "NAME:LINE: reason". Not to be called by two threads at once (cJSON keeps its last error). */
int vm_import_dtr(FILE *in, const char *name, struct vm_trace *t, struct vm_error *why);

#endif
