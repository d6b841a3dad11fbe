/* Internal: one-pass packers that vm_pack_fast chooses from. Each fills offsets[] of all items that
 * are not fixed and not empty; the caller has set those. VM_OK or VM_ENOMEM. */
#ifndef VM_PLANNER_PACK_PASSES_H
#define VM_PLANNER_PACK_PASSES_H

#include "pack_sections.h"

struct vm_pass {
    const struct vm_pack_problem *p;
    const struct vm_sections *s;
    const uint32_t *fixed; /* items with a fixed offset, by that offset */
    size_t nfixed;
};

/* Best fit by birth (reverse = 0) or, with time turned round, by death. Items with gaps are taken
 * to be live throughout, fixed ones for all time. O(n log n). */
int vm_pass_online(const struct vm_pass *ps, int reverse, uint64_t *offsets);

enum vm_pass_order {
    VM_ORDER_LIFETIME,      /* longest first                                                    */
    VM_ORDER_PEAK_LIFETIME, /* those live where the load is within 1 % of its maximum first ... */
    VM_ORDER_SIZE,          /* largest first; first fit instead of best                         */
};

/* Gap-filling best fit in a given order, exact about gaps and fixed items. Looks at every placed
 * item that is live in the same stretch of time. */
int vm_pass_ordered(const struct vm_pass *ps, enum vm_pass_order order, uint64_t *offsets);
/* About how many placed items vm_pass_ordered would look at in all. */
double vm_pass_ordered_work(const struct vm_pass *ps, enum vm_pass_order order);

#endif
