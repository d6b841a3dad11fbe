/* A range allocator for address space: offsets in [0, limit) counted in units, no memory behind
 * them.
 *
 * Good fit from size-class bins with immediate coalescing, in the manner of TLSF (Masmano et al.,
 * ECRTS 2004): allocation and free are O(1) whatever the number of ranges, and the same sequence of
 * calls gives the same addresses, which is what keeps a block's address stable from iteration to
 * iteration. Not thread-safe; the owner locks. */
#ifndef VM_SHIM_RANGE_H
#define VM_SHIM_RANGE_H

#include <stdint.h>

struct vm_range; /* one piece of the space, free or in use */

struct vm_ranges {
    struct vm_range *bins[64 * 4];
    uint64_t nonempty[4];
    struct vm_range *pool; /* spare nodes    */
    uint64_t used;         /* units in use   */
};

/* Makes [base, base + units) available; may be called again with further, disjoint ranges (they are
 * not coalesced with earlier ones). Negative when out of host memory. */
int vm_ranges_add(struct vm_ranges *r, uint64_t base, uint64_t units);
/* Takes `units` (> 0); sets *offset and returns the node to free it by, or NULL when there is no
 * room. */
struct vm_range *vm_ranges_take(struct vm_ranges *r, uint64_t units, uint64_t *offset);
void vm_ranges_give(struct vm_ranges *r, struct vm_range *node);
void vm_ranges_fini(struct vm_ranges *r);

#endif
