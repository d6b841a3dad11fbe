/* When do the contents of a block matter? Uses, cold and dead intervals, bytes over the iteration.
 *
 * Time is cyclic: positions run from 0 to nops and on into the next iteration (position + nops), as
 * in struct vm_iter_block. Between two uses a block's contents are *cold* if the later use may read
 * them, *dead* if it overwrites every byte first (or the block is freed). A block's first
 * use after its allocation finds nothing: the stretch before it is dead as well. A persistent block
 * without a use has no gap; it counts as live, because nobody knows what comes.
 */
#ifndef VM_PLANNER_LIVENESS_H
#define VM_PLANNER_LIVENESS_H

#include <stdbool.h>

#include "model.h"

struct vm_use {
    uint32_t op;  /* 0..nops-1; of a wrapping block: 0..2*nops-1, in the order of its life */
    uint8_t mode; /* all accesses of the op to the block, merged (vm_mode_merge)  */
};

/* The stretch between two neighbouring uses of a block: ops (from, to) touch it not. */
struct vm_gap {
    uint32_t block;
    uint32_t from, to; /* op that used it last, op that needs it next; to > from, may be >= nops */
    bool cold;         /* contents matter; else dead: they may go without a copy                 */
    bool clean; /* cold, and only read since the cold gap before: a copy made then still holds */
};

struct vm_liveness {
    struct vm_use *uses; /* grouped by block, in op order                     */
    uint32_t *first_use; /* nblocks + 1 entries into uses                     */
    size_t nuses;
    struct vm_gap *gaps; /* grouped by block, in op order                     */
    size_t ngaps;
    uint64_t *alloc_bytes; /* nops: bytes of blocks that exist while op i runs  */
    uint64_t *live_bytes;  /* nops: bytes of blocks used by op i or cold then: what no policy that
                              only  moves can avoid keeping somewhere                 */
    uint64_t *work_bytes;  /* nops: bytes of the blocks that op i names         */
    uint64_t peak_alloc, peak_live, peak_work;
    uint32_t peak_alloc_op, peak_live_op, peak_work_op;
    size_t nops, nblocks;
};

/* Mode of two accesses of one op to one block: reads and unknown directions void VM_TOTAL. */
uint8_t vm_mode_merge(uint8_t a, uint8_t b);
/* Does an access with this mode need the contents that it finds? A write that is not total keeps
 * some. */
bool vm_mode_reads(uint8_t mode);
bool vm_mode_writes(uint8_t mode);

/* O(ops + accesses + blocks). 0 or VM_ENOMEM. Thread-safe; *out is the caller's. */
int vm_liveness_build(const struct vm_iteration *it, struct vm_liveness *out);
void vm_liveness_fini(struct vm_liveness *l);

/* The largest working set of one op in pages, each block rounded up to whole pages, the
 * blocks smaller than a page summed first. */
uint64_t vm_liveness_work_pages(const struct vm_iteration *it, uint64_t page_bytes);

/* Bytes that have to be away from the device at some moment under `budget` (the largest excess of
 * live bytes), a lower bound of what moves out in each iteration; 0 if it fits. */
uint64_t vm_liveness_excess(const struct vm_liveness *l, uint64_t budget);

#endif
