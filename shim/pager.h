/* The pager: the only code that maps, unmaps or copies. The device's lock is held, and none of
 * these waits for the device.
 *
 * A page leaves so: its frontier is awaited; then it is made read-only, copied to its host slot,
 * and unmapped once the copy is done. It comes back so: copied into a free chunk through the
 * chunk's alias, and mapped at its own address once that copy is done. So an access that nobody
 * announced finds the right bytes or faults; it never finds wrong ones (DESIGN.md section 5). A
 * move that the driver refuses leaves the page where its contents are.
 */
#ifndef VM_SHIM_PAGER_H
#define VM_SHIM_PAGER_H

#include "device.h"

/* The page is to leave once all operations up to g are done. drop: without a copy. No effect on a
 * page that is not resident. 0 or VM_ENOMEM. */
int vm_pager_out(struct vm_device *d, uint64_t page, uint64_t g, bool drop);
/* The page is to be copied out once all operations up to g are done, and stays: it can leave later without a
 * copy if nothing writes it before. An operation that uses it ends the wait for that. No effect on a
 * page that is not resident, or has its copy. 0 or VM_ENOMEM. */
int vm_pager_copy(struct vm_device *d, uint64_t page, uint64_t g);
/* The page is to come back when its turn comes, unless an operation uses it before; to_write: for an
 * operation that writes it. 0 or VM_ENOMEM. */
int vm_pager_in(struct vm_device *d, uint64_t page, bool to_write);
/* Gives empty pages among n from `page` chunks that are free or may still be made, at most *most of
 * them, which is counted down; the number of pages that are not resident afterwards. A run of pages
 * is made accessible in one call. */
uint64_t vm_pager_fill(struct vm_device *d, uint64_t page, uint64_t n, uint64_t *most);
/* Chunks that pages on their way back will need. */
uint64_t vm_pager_wanted(const struct vm_device *d);
/* The page died while operations may still use it in host memory: it is unmapped behind them. */
void vm_pager_bury(struct vm_device *d, uint64_t page);
/* Sends up to n dead pages away; the number sent. */
uint64_t vm_pager_recycle(struct vm_device *d, uint64_t n);
/* Works off what is due; true if anything moved on. */
bool vm_pager_pump(struct vm_device *d);
/* Is anything under way or waiting? */
bool vm_pager_busy(const struct vm_device *d);

/* For vm_rt_op_before: one step towards the page being resident for an operation on `s`.
 * `overwritten`: the operation writes every byte, contents need not come back. 0: it is resident;
 * VM_NOTFOUND: a chunk is needed and there is none; VM_PAGE_WAIT: under way; negative: the driver
 * refused, *error says with what. *most: chunks that pages without contents may take, counted down.
 */
#define VM_PAGE_WAIT 8
#define VM_PAGE_LOST 9 /* its contents were dropped as dead and the operation may read them */
int vm_pager_step(struct vm_device *d, uint64_t page, struct vm_stream *s, bool overwritten,
                  uint64_t *most, CUresult *error);

/* An operation that was to overwrite the block was issued, or was not: then the contents that had been
 * away, and were not brought back for it, are what they were. */
void vm_pager_settle(struct vm_device *d, struct vm_block *b, bool issued);

/* Pages whose chunks become free by what is under way already. */
uint64_t vm_pager_leaving(const struct vm_device *d);
/* Sends up to n pages away that no operation in progress uses; the number sent. Dead pages first,
 * then by the plan's next use if there is one, else least recently used. */
uint64_t vm_pager_evict(struct vm_device *d, uint64_t n);

#endif
