/* Is a packing right? Shares no code with the packers: it knows items and offsets only. */
#ifndef VM_PLANNER_VERIFY_H
#define VM_PLANNER_VERIFY_H

#include "pack.h"

/* Checks that every item has an aligned offset, that fixed items are where they were, that nothing
 * ends above `capacity` (0 = any), and that no two items share a byte while both are live. Sets
 * *height (may be NULL). O(s log s) for s live spans. Thread-safe. VM_OK; VM_EINVAL with the first
 * fault in *why (may be NULL); VM_ENOMEM. */
int vm_verify_packing(const struct vm_pack_problem *p, const uint64_t *offsets, uint64_t capacity,
                      uint64_t *height, struct vm_error *why);

#endif
