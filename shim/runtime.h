/* The runtime of one process, as the doors (cuda_hooks/) see it.
 *
 * A door does three things: recognise, tell the runtime before and after, forward. The runtime
 * knows blocks, pages and plans; it never knows which entry point an event came through.
 *
 * Conventions. Every function below expects to be called inside a vm_scope whose `outer` is set
 * (shim/scope.h) and with the context of the call current. Functions that answer a call in the
 * driver's stead return a CUresult and set *handled; with *handled == 0 the door forwards the call
 * unchanged. Nothing here is called with a lock of the door held. All functions are thread-safe.
 */
#ifndef VM_SHIM_RUNTIME_H
#define VM_SHIM_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cuda.h>

#include "model.h"

/* ---- life cycle ------------------------------------------------------------------------------*/

/* After the program's first cuInit succeeded. Reads nothing from the driver yet. */
void vm_rt_after_init(void);
/* True while the runtime takes part (not VMEM_OFF, not a forked child, not given up). One load. */
bool vm_rt_active(void);
/* The context that will be destroyed / primary context reset or released for the last time. */
void vm_rt_context_gone(CUcontext ctx);

/* ---- memory ----------------------------------------------------------------------------------*/

enum vm_alloc_kind {
    VM_ALLOC_SYNC,  /* cuMemAlloc, cuMemAllocPitch     */
    VM_ALLOC_ASYNC, /* cuMemAllocAsync on `stream`     */
};

/* Serve an allocation of `bytes` (> 0) on the current context's device. */
CUresult vm_rt_alloc(CUdeviceptr *out, size_t bytes, enum vm_alloc_kind kind, CUstream stream,
                     bool *handled);
/* Free; *handled == 0 when the pointer is not the base of one of our blocks. */
CUresult vm_rt_free(CUdeviceptr p, enum vm_alloc_kind kind, CUstream stream, bool *handled);
/* Which of our blocks holds `p`? Sets base and size and returns true; false if none. */
bool vm_rt_range(CUdeviceptr p, CUdeviceptr *base, size_t *bytes);
/* Is `p` an address that we give out, whether or not a block is there now? */
bool vm_rt_reserved(CUdeviceptr p);
/* The context and device that the block holding `p` was allocated in (for pointer queries), and a
 * number that no other block of the process has. */
bool vm_rt_owner(CUdeviceptr p, CUcontext *ctx, CUdevice *dev, uint64_t *id);
/* One story of memory: rewrites what the driver answered. NULL pointers are tolerated. */
void vm_rt_mem_info(size_t *free_bytes, size_t *total_bytes);
void vm_rt_total_mem(CUdevice dev, size_t *total_bytes);
/* A forwarded call just failed for lack of memory: give chunks back to the driver. True if any
 * memory was returned, so that the door repeats its call (at most until this says false). */
bool vm_rt_relieve(void);
/* Gives what the current context's device holds and neither a block nor work in flight uses back to the
 * driver. */
void vm_rt_trim(void);
/* From now on blocks take at most this share (0 to 1) of the current context's device as the program sees
 * it, and never more than the budget: what is above goes to the host, if the policy moves anything and as
 * far as it can. */
void vm_rt_limit(double share);
/* The block must not leave the device any more (texture, IPC, mapped-memory or module escape). */
void vm_rt_pin(CUdeviceptr p);
/* Makes the block resident, as an operation that touches it would. */
void vm_rt_fetch(CUdeviceptr p);

/* ---- operations ------------------------------------------------------------------------------*/

#define VM_OP_INLINE_ACCESSES 48

/* One operation about to be issued. Lives on the door's stack; vm_op_init makes it empty. */
struct vm_op {
    uint8_t kind;      /* enum vm_op_kind */
    bool blocking;     /* the call returns only when the device is done (synchronous copies)  */
    bool host_visible; /* its result can be seen by the host without a further CUDA call       */
    CUstream stream;   /* as the driver would use it: 0 is CU_STREAM_LEGACY unless _ptsz       */
    const char *name;  /* kernel name if known; static or module-lifetime storage              */
    uint64_t sig;
    /* accesses: addresses inside our reservations; vm_rt_op_before finds their blocks */
    struct vm_op_access {
        CUdeviceptr addr;
        size_t bytes;            /* 0: extent unknown                    */
        uint32_t block;          /* index, set by vm_rt_op_before        */
        uint8_t mode;            /* enum vm_mode bits                    */
        uint8_t role;            /* enum vm_role                         */
        uint8_t device;          /* ordinal of the device that owns it   */
        uint8_t scanned : 1;     /* found by vm_op_scan, not stated        */
        uint8_t doubtful : 1;    /* made resident, but plans do not count on it */
        uint8_t regenerates : 1; /* this operation had its block made anew */
    } * acc, inline_acc[VM_OP_INLINE_ACCESSES];
    unsigned nacc, cap;
    uint8_t layer, flags; /* filled in from the library call in progress */
    bool described;       /* there is one, which says what its launches use */
    /* the runtime's own state between before and after */
    uint64_t g;          /* serial number on its device */
    uint64_t planned_ns; /* how long the plan expects it to take; 0: not known */
    void *stream_state;
    CUevent start;     /* timing by events, NULL if not sampled */
    uint64_t timed_id; /* timing by a profiling interface, 0: not */
    bool per_thread;
    bool lost;     /* an access could not be noted: out of host memory */
    bool captured; /* goes into a graph, is not issued */
    bool entered;
};

void vm_op_init(struct vm_op *op, enum vm_op_kind kind, CUstream stream, bool per_thread_default);
/* Add what the call states: [addr, addr+bytes) with a mode; ignored if not ours. A
 * VM_WRITE|VM_TOTAL that does not cover the whole block loses VM_TOTAL. bytes 0 = the whole block,
 * extent unknown. */
void vm_op_touch(struct vm_op *op, CUdeviceptr addr, size_t bytes, unsigned mode, unsigned role);
/* A rectangle of `height` rows of `width` bytes, `pitch` apart. */
void vm_op_touch_2d(struct vm_op *op, CUdeviceptr addr, size_t width, size_t height, size_t pitch,
                    unsigned mode);
/* Look every aligned 8-byte word of a parameter up in the page table; hits count as VM_UNKNOWN,
 * unless the library call in progress on this thread named the block. Doubtful words are most likely no
 * addresses: what they hit is made resident and counts as written, but is not recorded. */
void vm_op_scan(struct vm_op *op, const void *bytes, size_t n, bool doubtful);
/* Mix values into the signature. */
void vm_op_sign(struct vm_op *op, uint64_t value);

/* Before forwarding: makes every block resident and orders the stream after their copies. On
 * anything but CUDA_SUCCESS the door returns that code and does not forward (and does not call
 * vm_rt_op_after). */
CUresult vm_rt_op_before(struct vm_op *op);
/* After forwarding, with the driver's answer. Frees what vm_op_* allocated. */
void vm_rt_op_after(struct vm_op *op, CUresult result);

/* A library call (cuDNN, cuBLAS) begins / ends on this thread: its launches take modes and roles
 * from it. Calls nest; only the outermost counts. The struct lives on the hook's stack. */
#define VM_LIBCALL_ACCESSES 32 /* further ones are not described */
struct vm_libcall {
    uint64_t sig;
    const char *name;
    uint8_t layer; /* enum vm_layer    */
    uint8_t flags; /* enum vm_op_flags */
    unsigned nacc;
    struct {
        CUdeviceptr addr;
        size_t bytes;
        uint8_t mode, role;
    } acc[VM_LIBCALL_ACCESSES];
    struct vm_libcall *outer;
    unsigned ops_seen;
};
void vm_rt_libcall_begin(struct vm_libcall *call);
void vm_rt_libcall_touch(struct vm_libcall *call, const void *devptr, size_t bytes, unsigned mode,
                         unsigned role);
void vm_rt_libcall_end(struct vm_libcall *call);

/* Device addresses in data that the program copies to the device (pointer tables): pins the blocks.
 */
void vm_rt_escape_scan(const void *host, size_t bytes);

/* ---- streams, synchronisation ---------------------------------------------------------------- */

void vm_rt_stream_created(CUstream s);
void vm_rt_stream_destroyed(CUstream s); /* before the driver destroys it */
/* Called before a call in which the host will wait: works off due page moves until the thing to
 * wait for is reached, so that the forwarded call then returns at once. Never fails. */
void vm_rt_wait_stream(CUstream s, bool per_thread_default);
void vm_rt_wait_event(CUevent e);
void vm_rt_wait_context(void);
/* After such a call returned: everything issued before it is done. */
void vm_rt_synced(void);
/* Any other call that passes by: a chance to work off due moves. Cheap when nothing is due. */
void vm_rt_poke(void);

/* ---- capture and graphs ---------------------------------------------------------------------- */

/* A capture is about to begin on `s`, which counts as capturing from now on: what streams have under way can be
 * waited for only from marks left now. False: it was capturing before, or nothing is known of it. */
bool vm_rt_capture_soon(CUstream s);
/* It ended (`graph` NULL: it was invalidated, or did not begin after all). While one is open the runtime
 * records and moves nothing by itself. Blocks named in a capture, or by a node of a graph, stay on the
 * device until the graph and all executables made from it are gone. */
void vm_rt_capture_end(CUstream s, CUgraph graph);
bool vm_rt_capturing(CUstream s);
/* From now on vm_rt_alloc serves VM_ALLOC_SYNC also while a capture is open, where the driver would refuse
 * it: the program's own allocator would have had the memory. Such a block counts as named by the
 * capture, and it, as any that is freed in a capture which names it, stays until the graphs are gone. */
void vm_rt_serve_captures(void);
/* A node of `graph` names this address / the executable made from a graph / either goes. */
void vm_rt_graph_names(CUgraph graph, CUdeviceptr p);
void vm_rt_graph_instantiated(CUgraphExec exec, CUgraph graph);
void vm_rt_graph_gone(CUgraph graph);
void vm_rt_graph_exec_gone(CUgraphExec exec);

/* ---- the program's own words (include/vmem.h) ------------------------------------------------ */

void vm_rt_step(void);

#endif
