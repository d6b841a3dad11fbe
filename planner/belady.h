/* The pages that have to be away, by Belady's rule on the cyclic op sequence. */
#ifndef VM_PLANNER_BELADY_H
#define VM_PLANNER_BELADY_H

#include "page_units.h"

/* npages of `unit` are away during the gap after `use`, from op `need_op` on at the latest. */
struct vm_eviction {
    uint32_t unit;
    uint32_t use;     /* VM_NONE: the unit is not used at all in the iteration      */
    uint32_t npages;
    uint32_t need_op; /* op that needs the room, plus nops if in the next iteration */
    uint32_t dead;    /* the gap's contents are dead                                */
    uint32_t release; /* op after which they may leave; for the scheduler's use     */
    uint32_t lead;    /* ops before the gap's end at which they are to be back      */
};

enum vm_belady_rule {
    VM_BELADY_FARTHEST,  /* who is needed farthest in the future                                */
    VM_BELADY_IDLE       /* of those that need not come back before less room is lacking: who was */
                         /* used first, so that the copy out can begin early; else farthest       */
};

/* Wishes beyond the rule; both may be NULL. */
struct vm_belady_wishes {
    const uint32_t *lead;  /* per use: ops before it at which the unit's pages are back already */
    const uint32_t *extra; /* per op: pages to keep free beside what it needs                    */
};

/* Evictions of one iteration of the steady state with `capacity` pages. *list is malloc'd, the
 * caller frees it. VM_OK, VM_UNFIT (also where a wish does not fit), VM_ENOMEM. Thread-safe. O(uses log units). */
int vm_belady(const struct vm_page_units *u, uint64_t capacity, enum vm_belady_rule rule,
              const struct vm_belady_wishes *wishes, struct vm_eviction **list, size_t *count);

#endif
