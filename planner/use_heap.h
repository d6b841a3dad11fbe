/* A heap of units by the op they are needed at next, farthest first (Belady's order). Entries are
 * never changed: a unit's older entries are told from its newest by their stamp and skipped by the
 * caller. Not thread-safe; one owner. */
#ifndef VM_PLANNER_USE_HEAP_H
#define VM_PLANNER_USE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vm_use_entry {
    uint64_t key;
    uint32_t unit, stamp;
};

struct vm_use_heap {
    struct vm_use_entry *e;
    size_t n, cap;
};

/* 0 or VM_ENOMEM. */
int vm_use_heap_push(struct vm_use_heap *h, uint64_t key, uint32_t unit, uint32_t stamp);
/* Takes the entry with the largest key (of equal keys the lowest unit); false when empty. */
bool vm_use_heap_pop(struct vm_use_heap *h, struct vm_use_entry *out);
/* Keeps only entries for which keep(arg, entry) is true: call it when stale ones may outnumber the rest. */
void vm_use_heap_filter(struct vm_use_heap *h, bool (*keep)(void *arg, const struct vm_use_entry *e),
                        void *arg);
void vm_use_heap_fini(struct vm_use_heap *h);

#endif
