/* The link's speeds and the driver's mapping costs, measured once, when a plan first needs them. */
#ifndef VM_SHIM_LINK_SPEED_H
#define VM_SHIM_LINK_SPEED_H

#include "device.h"

/* Fills d->link unless it is filled. Takes some ten copies of a page; the lock is given up while
 * they run. What cannot be measured stays at the rate of a PCIe 3 x16 link. Lock held. */
void vm_link_measure(struct vm_device *d);

#endif
