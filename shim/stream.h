/* Streams and what is known of their progress. A *tick* is an event recorded behind the operations
 * up to some g; no tick is recorded unless somebody needs to know. The device's lock is held. */
#ifndef VM_SHIM_STREAM_H
#define VM_SHIM_STREAM_H

#include "device.h"

/* The stream as the program named it, made known at first sight; NULL when out of host memory. */
struct vm_stream *vm_stream_get(struct vm_device *d, CUstream handle, bool per_thread);
void vm_stream_forget(struct vm_device *d, CUstream handle);

/* Operation g was issued on s. */
void vm_stream_issued(struct vm_stream *s, uint64_t g);
/* Leaves a tick behind everything issued on s. 0, or positive when it could not. */
int vm_stream_tick(struct vm_device *d, struct vm_stream *s);
/* Leaves a tick on every stream with work that has none: the frontier of now. */
void vm_streams_tick(struct vm_device *d);
/* Are all operations up to g, on every stream, done? Never waits; leaves ticks where it needs them.
 */
bool vm_streams_reached(struct vm_device *d, uint64_t g);
/* Makes `s` wait, on the device, for what the other streams were given up to g. */
CUresult vm_stream_join(struct vm_device *d, struct vm_stream *s, uint64_t g);
/* The host waited for the whole context: operations up to g are done on every stream. */
void vm_streams_idle(struct vm_device *d, uint64_t g);
/* Last operation whose result the host may be looking at without a further call; 0 if all are done.
 */
uint64_t vm_streams_host_visible(struct vm_device *d);

/* Does what is issued on s go into a graph? Asks the driver only while a capture is open. */
bool vm_stream_is_capturing(struct vm_device *d, struct vm_stream *s);

/* Spare events without timing. NULL when the driver has none. */
CUevent vm_event_take(struct vm_device *d);
void vm_event_give(struct vm_device *d, CUevent e);

#endif
