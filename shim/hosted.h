/* The host-NUMA backend: a page that is away is not unmapped but mapped, at its own address, on the
 * host-NUMA handle that holds its contents. A late access is slow then, but right. Lock held. */
#ifndef VM_SHIM_HOSTED_H
#define VM_SHIM_HOSTED_H

#include "device.h"

/* The page is away and unmapped: maps its host slot in its place, if the backend can. What the
 * driver refuses leaves the page unmapped: a late access faults. */
void vm_host_page(struct vm_device *d, uint64_t page);
/* Takes the host slot's mapping away again. No effect on a page that is not hosted. */
void vm_unhost_page(struct vm_device *d, uint64_t page);
/* Last resort for an operation that does not fit the budget: its pages that found no chunk are used
 * where they are, in host memory. False when one cannot be (no such backend, host budget used up).
 */
bool vm_host_rest(struct vm_device *d, const struct vm_op *op);

#endif
