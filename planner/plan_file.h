/* The plan file: one JSON object; docs/formats.md is the contract. */
#ifndef VM_PLANNER_PLAN_FILE_H
#define VM_PLANNER_PLAN_FILE_H

#include <stdio.h>

#include "model.h"
#include "trace_file.h"

#define VM_PLAN_VERSION 1

/* 0, VM_ENOMEM, or what `put` returned. No stdio. Thread-safe. */
int vm_plan_write(const struct vm_plan *p, vm_put_fn put, void *ctx);

/* Reads and checks a plan (every index in range, actions in order, blocks inside the pool). On
 * failure *p is empty and *why says "NAME: reason". Lives in vmplan_files (needs cJSON). */
int vm_plan_read(FILE *in, const char *name, struct vm_plan *p, struct vm_error *why);

#endif
