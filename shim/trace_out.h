/* The trace file (out_file.h): opened at the start, so that a bad path is reported at once, and written when
 * the recording ends. */
#ifndef VM_SHIM_TRACE_OUT_H
#define VM_SHIM_TRACE_OUT_H

#include "model.h"

struct vm_trace_out;

/* NULL when path is empty or cannot be written (one line was logged). %p becomes the process id;
 * further devices get ".devN" behind the name. */
struct vm_trace_out *vm_trace_out_open(const char *path, int device);
/* Writes the trace, renames the file into place, frees *o. What fails is logged; nothing is kept
 * then. */
void vm_trace_out_close(struct vm_trace_out *o, const struct vm_trace *t);

#endif
