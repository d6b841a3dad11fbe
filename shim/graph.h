/* Pins of blocks that graphs name. Lock held. */
#ifndef VM_SHIM_GRAPH_H
#define VM_SHIM_GRAPH_H

#include "device.h"

/* An operation in a capture named the block: it stays on the device. */
void vm_graph_captured(struct vm_device *d, struct vm_block *b);
/* The program frees the block, but a graph will touch it when it is launched: it is `abandoned` from now on,
 * and freed when the last graph that names it goes. */
bool vm_graph_keeps(struct vm_device *d, struct vm_block *b);
/* While a capture is open, a thread may make our own calls only in relaxed mode (cuThreadExchangeStreamCaptureMode).
 * Ends with vm_capture_strict(), which takes what this one returned. */
struct vm_capture_mode {
    CUstreamCaptureMode mode;
    bool changed;
};
struct vm_capture_mode vm_capture_relaxed(const struct vm_device *d);
void vm_capture_strict(struct vm_capture_mode before);
/* A capture ended and d->captures was counted down; `graph` is NULL when nothing came of it. */
void vm_graph_capture_over(struct vm_device *d, CUgraph graph);

#endif
