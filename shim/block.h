/* Blocks and the page table: which allocation an address belongs to, and where allocations go.
 * All functions expect the device's lock to be held. */
#ifndef VM_SHIM_BLOCK_H
#define VM_SHIM_BLOCK_H

#include "device.h"

/* The live block that holds p, or VM_NO. O(1). */
uint32_t vm_block_find(const struct vm_device *d, CUdeviceptr p);

/* A new live block of `bytes` (> 0) at `offset` bytes from the reservation's base, or wherever
 * there is room when offset is VM_UNPLACED. 0 and *index; VM_NOTFOUND when the place is taken or
 * the address space is full; VM_ENOMEM. */
int vm_block_new(struct vm_device *d, uint64_t bytes, uint64_t offset, uint32_t *index);

/* The program freed it: its contents are dead, its address may be given out again. */
void vm_block_free(struct vm_device *d, uint32_t index);

/* May the block have been written? Unless it was seen to be, an operation may have done it unseen. */
bool vm_block_written(const struct vm_device *d, const struct vm_block *b);
/* Do the contents of the page matter? */
bool vm_page_matters(const struct vm_device *d, uint64_t page);
/* Last operation that touched / may have written anything on it; 0: none. */
uint64_t vm_page_touched(const struct vm_device *d, uint64_t page);
uint64_t vm_page_written(const struct vm_device *d, uint64_t page);
/* May not leave now: an operation in progress or a block that must stay. */
bool vm_page_pinned(const struct vm_device *d, uint64_t page);
/* Changes the state and keeps the owner's count of pages that are not resident. */
void vm_page_set_state(struct vm_device *d, uint64_t page, enum vm_page_state state);
/* The page was to stay once its copy out is done (vm_pager_copy): it is to leave, or has no copy to make. */
void vm_page_stays_not(struct vm_device *d, uint64_t page);
/* The page's mapping is read-only, or is not: keeps the owner's count of sealed pages. */
void vm_page_set_sealed(struct vm_device *d, uint64_t page, bool sealed);
/* Are all pages of the block resident? */
bool vm_block_resident(const struct vm_device *d, const struct vm_block *b);
/* Is any of its pages sealed? Then no operation may write it. */
bool vm_block_sealed(const struct vm_device *d, const struct vm_block *b);
/* Can an operation begin that uses the block, and writes it if `write`? */
bool vm_block_ready(const struct vm_device *d, const struct vm_block *b, bool write);
/* Pin or unpin all pages of a block for an operation (sticky = false) or for good. */
void vm_block_pin(struct vm_device *d, struct vm_block *b, bool sticky);
void vm_block_unpin(struct vm_device *d, struct vm_block *b, bool sticky);
/* Counts one access at operation g. */
void vm_block_touch(struct vm_device *d, struct vm_block *b, uint64_t g, bool write);

#endif
