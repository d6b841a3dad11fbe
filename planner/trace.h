/* Growing a struct vm_trace event by event.
 *
 * Every function is amortised O(1), allocates through malloc only and leaves the trace as it was
 * when it fails. None is thread-safe on one trace: the recorder holds its own lock. A zeroed
 * struct vm_trace is an empty trace; vm_trace_fini (model.h) makes it one again.
 */
#ifndef VM_PLANNER_TRACE_H
#define VM_PLANNER_TRACE_H

#include "model.h"

/* Index of the name in t->names; the text is copied, equal texts get equal indices. `len` bytes at
 * `text` (need not be terminated). 0 or VM_ENOMEM. */
int vm_trace_add_name(struct vm_trace *t, const char *text, size_t len, uint32_t *index);

/* A block that is alive before the trace begins (no event). `id` is the caller's and must be unique
 * in the trace; *block gets the index by which events name it. 0 or VM_ENOMEM. */
int vm_trace_add_block(struct vm_trace *t, uint64_t id, uint64_t size, uint64_t addr,
                       uint32_t *block);

/* A block appears: adds it and its VM_EV_ALLOC event (sig = hash of the size). 0 or VM_ENOMEM. */
int vm_trace_add_alloc(struct vm_trace *t, uint64_t id, uint64_t size, uint64_t addr,
                       uint32_t stream, uint64_t host_ns, uint32_t *block);

/* The block goes. VM_EINVAL if there is no such block or it has gone before. */
int vm_trace_add_free(struct vm_trace *t, uint32_t block, uint32_t stream, uint64_t host_ns);

/* An operation. Of *op everything counts but kind, acc and nacc, which are set from the arguments;
 * op->name must be VM_NONE or an index that vm_trace_add_name gave. The accesses are copied.
 * *event gets its index, by which the recorder can fill in dur_ns later; may be NULL.
 * VM_EINVAL if an access names a block that does not exist or has gone. */
int vm_trace_add_op(struct vm_trace *t, const struct vm_event *op, const struct vm_access *acc,
                    uint32_t nacc, uint32_t *event);

/* vmem_step(), a host wait, a hint (enum vm_hint) for a block. */
int vm_trace_add_step(struct vm_trace *t, uint64_t host_ns);
int vm_trace_add_sync(struct vm_trace *t, uint32_t stream, uint64_t host_ns);
int vm_trace_add_hint(struct vm_trace *t, uint32_t block, unsigned hint, uint64_t host_ns);

/* Forgets all events, accesses and blocks that have gone; blocks still alive become blocks that
 * were alive before the trace began, in the same order. remap[old index] (t->nblocks entries on
 * entry, the caller's array) gets the new index or VM_NONE. For a recorder that runs long: never
 * fails. */
void vm_trace_forget(struct vm_trace *t, uint32_t *remap);

/* 64-bit mixing used for signatures in traces (alloc events, period detection). */
static inline uint64_t vm_hash64(uint64_t x)
{
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    return x;
}

#endif
