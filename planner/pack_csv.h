/* Packing problems as text: `id,lower,upper,size[,offset]`, one block a line after a line of column
 * names, as published problem sets have it. */
#ifndef VM_PLANNER_PACK_CSV_H
#define VM_PLANNER_PACK_CSV_H

#include <stdio.h>

#include "pack.h"

struct vm_pack_csv {
    struct vm_pack_problem problem; /* points into what follows */
    struct vm_pack_item *items;
    struct vm_pack_span *gaps;
    char **ids; /* for each item, as written */
};

/* Reads a whole file. Columns may stand in any order: id, lower, upper, size are required; `offset`
 * fixes a block where it is not empty; `alignment` (a number) and `gaps` (like "7-9 12-14") may be
 * there; other columns are ignored. Lifetimes are half-open. On VM_OK the caller frees *out with
 * vm_pack_csv_fini. VM_EINVAL, VM_EIO, VM_ENOMEM: *why says "NAME:LINE: reason". Thread-safe. */
int vm_pack_csv_read(FILE *in, const char *name, struct vm_pack_csv *out, struct vm_error *why);
void vm_pack_csv_fini(struct vm_pack_csv *csv);

/* Writes id,lower,upper,size,offset. VM_OK or VM_EIO. */
int vm_pack_csv_write(FILE *to, const struct vm_pack_csv *csv, const uint64_t *offsets);

#endif
