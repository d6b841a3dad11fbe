/* Pins of blocks that graphs name. Lock held. */
#ifndef VM_SHIM_GRAPH_H
#define VM_SHIM_GRAPH_H

#include "device.h"

/* An operation in a capture named the block: it stays on the device. */
void vm_graph_captured(struct vm_device *d, struct vm_block *b);
/* A capture ended and d->captures was counted down; `graph` is NULL when nothing came of it. */
void vm_graph_capture_over(struct vm_device *d, CUgraph graph);

#endif
