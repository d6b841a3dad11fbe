/* The trace file: JSON lines, one object a line; docs/formats.md is the contract.
 *
 * The writer is plain C without stdio, so that libvmem.so can use it with write(2); the reader
 * needs cJSON and lives in the library vmplan_files, which libvmem.so does not link.
 */
#ifndef VM_PLANNER_TRACE_FILE_H
#define VM_PLANNER_TRACE_FILE_H

#include <stdbool.h>
#include <stdio.h>

#include "model.h"

#define VM_TRACE_VERSION 1

/* Takes `n` bytes of text; 0, or negative to end the writing with that value. */
typedef int (*vm_put_fn)(void *ctx, const char *text, size_t n);

/* What has been written so far; zero it before the first call. */
struct vm_trace_cursor {
    size_t events, names, blocks;
    bool started;
};

/* Writes what the file lacks of *t since the last call with the same cursor: the header line at the
 * first call, then names, blocks and events in order. Events whose dur_ns is still to be filled in
 * should be held back by the caller: `upto` bounds the events (SIZE_MAX = all).
 * 0 or what `put` returned. Not thread-safe on one trace. */
int vm_trace_write(const struct vm_trace *t, struct vm_trace_cursor *at, size_t upto, vm_put_fn put,
                   void *ctx);

/* Reads a whole trace from `in` into *t (empty on entry). On VM_EINVAL, VM_EVERSION, VM_EIO or
 * VM_ENOMEM *t is empty and *why says "NAME:LINE: reason". Fields it does not know are ignored,
 * lines of an unknown kind too. Not to be called by two threads at once (cJSON keeps its last
 * error). */
int vm_trace_read(FILE *in, const char *name, struct vm_trace *t, struct vm_error *why);

#endif
