/* The planner's plain data: what a trace is, what one iteration is, what a plan is.
 *
 * Everything below the shim speaks in these structures. They hold no pointer into CUDA, read no
 * environment and have no hidden owner: arrays are malloc'd, counted beside the pointer, and freed
 * by the matching vm_*_fini. Sizes are bytes, times are nanoseconds unless a name says otherwise.
 *
 * Errors of every planner function: negative is fatal (VM_ENOMEM, VM_EINVAL, ...), 0 is success,
 * positive is a named condition that the caller handles. Outputs are set only on success.
 */
#ifndef VM_PLANNER_MODEL_H
#define VM_PLANNER_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum vm_status {
    VM_OK = 0,
    VM_NOTFOUND = 1,  /* no period yet, no such block ...                              */
    VM_UNFIT = 2,     /* the budget is below the largest working set of one op         */
    VM_TIMEOUT = 3,   /* the time limit ended a search; the best found so far is given */
    VM_ENOMEM = -1,
    VM_EINVAL = -2,   /* malformed input; the function that found it wrote the reason  */
    VM_EIO = -3,
    VM_EVERSION = -4, /* the file is of a newer format                                 */
};

#define VM_NONE UINT32_MAX

/* A place for one line of explanation; `text` is always terminated. */
struct vm_error {
    char text[256];
};

/* ---- trace: what happened, in program order -------------------------------------------------*/

enum vm_event_kind {
    VM_EV_ALLOC = 1, /* block appears                                              */
    VM_EV_FREE,      /* block goes                                                 */
    VM_EV_OP,        /* launch, copy, memset or library call                       */
    VM_EV_STEP,      /* vmem_step(): the program says an iteration ends here       */
    VM_EV_HINT,      /* keep / dead / regenerable / pinned, for `block`            */
    VM_EV_SYNC,      /* the host waited for the device (stream, event or context)  */
};

enum vm_op_kind {
    VM_OP_LAUNCH = 1,
    VM_OP_COPY_HTOD,
    VM_OP_COPY_DTOH,
    VM_OP_COPY_DTOD,
    VM_OP_MEMSET,
    VM_OP_GRAPH,
    VM_OP_HOSTFUNC,
    VM_OP_OTHER,
};

enum vm_mode {
    VM_READ = 1,
    VM_WRITE = 2,
    VM_RW = 3,
    VM_TOTAL = 4,   /* with VM_WRITE: every byte of the block is overwritten and none is read first */
    VM_UNKNOWN = 8, /* the address was seen, the direction is not known: counts as VM_RW            */
};

/* What a block is for in the op that names it; learnt from typed library calls (cuDNN, cuBLAS). */
enum vm_role {
    VM_ROLE_NONE = 0,
    VM_ROLE_X,         /* feature map read                */
    VM_ROLE_Y,         /* feature map written             */
    VM_ROLE_W,         /* weights                         */
    VM_ROLE_DX,        /* gradient map written            */
    VM_ROLE_DY,        /* gradient map read               */
    VM_ROLE_DW,        /* weight gradient                 */
    VM_ROLE_WORKSPACE,
    VM_ROLE_STATE,     /* running statistics, RNG, masks  */
};

/* The layer kind of a typed library call. */
enum vm_layer {
    VM_LAYER_NONE = 0,
    VM_LAYER_CONV,
    VM_LAYER_POOL,
    VM_LAYER_ACT,
    VM_LAYER_NORM,
    VM_LAYER_LRN,
    VM_LAYER_DROPOUT,
    VM_LAYER_SOFTMAX,
    VM_LAYER_GEMM,
    VM_LAYER_BIAS,
    VM_LAYER_ELEMENTWISE,
    VM_LAYER_RNN,
};

enum vm_op_flags {
    VM_OPF_FORWARD = 1,
    VM_OPF_BACKWARD = 2,
    VM_OPF_PURE = 4,       /* same inputs give the same outputs and nothing else changes       */
    VM_OPF_CALL_BEGIN = 8, /* first op of a library call; its other ops follow without this bit */
    VM_OPF_BLOCKS = 16,    /* the call that issued it came back when the device was done with it    */
    VM_OPF_WAITED = 32,    /* the program waited for it before it went on                         */
};

enum vm_hint { VM_HINT_KEEP = 1, VM_HINT_DEAD, VM_HINT_REGENERABLE, VM_HINT_PINNED };

struct vm_access {
    uint32_t block; /* index into vm_trace.blocks (or vm_iteration.blocks) */
    uint8_t mode;   /* enum vm_mode bits  */
    uint8_t role;   /* enum vm_role       */
    uint16_t reserved;
};

struct vm_event {
    uint8_t kind;     /* enum vm_event_kind */
    uint8_t op_kind;  /* enum vm_op_kind, for VM_EV_OP; enum vm_hint, for VM_EV_HINT */
    uint8_t layer;    /* enum vm_layer    */
    uint8_t flags;    /* enum vm_op_flags */
    uint32_t stream;  /* small integer, 0 = the first stream seen */
    uint64_t sig;     /* op: hash of function, grid, sizes, direction; alloc: hash of the size */
    uint32_t block;   /* alloc / free / hint */
    uint32_t name;    /* index into vm_trace.names, VM_NONE if unnamed */
    uint32_t acc;     /* first access, index into vm_trace.accesses    */
    uint32_t nacc;
    uint64_t dur_ns;  /* device time of the op; 0 = not measured */
    uint64_t host_ns; /* host time of the event since the trace began; 0 = not recorded */
};

struct vm_trace_block {
    uint64_t id;   /* as recorded; unique in the trace */
    uint64_t size; /* bytes the program asked for      */
    uint64_t addr; /* device address, 0 if not known   */
    uint32_t alloc_event, free_event; /* VM_NONE: existed before / still alive */
    uint32_t flags; /* enum vm_block_flags */
    uint32_t reserved;
};

enum vm_block_flags {
    VM_BLK_PINNED = 1,      /* never leaves the device (escaped address, capture ...) */
    VM_BLK_PERSISTENT = 2,  /* alive before the iteration and after it                */
    VM_BLK_KEEP = 4,        /* vmem_keep()                                            */
    VM_BLK_REGENERABLE = 8, /* vmem_regenerable()                                     */
    VM_BLK_WRAPS = 16,      /* allocated in one iteration, freed in the next          */
};

/* The device the trace was taken on, or the one to plan for. 0 = not known. */
struct vm_machine {
    uint64_t device_bytes;    /* budget for everything we place                      */
    uint64_t host_bytes;      /* pinned memory allowed                               */
    uint64_t page_bytes;      /* unit of mapping and moving (one chunk)              */
    uint64_t page_least;      /* page_bytes follows from the budget and this (page_size.h); 0 = it is given */
    double out_bps, in_bps;   /* one-way link speed alone, bytes a second            */
    double out_duplex_bps, in_duplex_bps; /* while both directions are busy          */
    double copy_latency_ns;   /* fixed cost of one copy on its engine                */
    double map_ns, unmap_ns, access_ns;   /* host cost for each page mapped / unmapped / made accessible */
    double unmap_call_ns, access_call_ns; /* host cost of one call beside its pages; mapping is a call a page */
    double call_ns;           /* host cost of one driver call                        */
    bool unmap_waits;         /* unmapping waits for the device: done between ops only */
};

struct vm_trace {
    struct vm_event *events;
    size_t nevents, cap_events;
    struct vm_access *accesses;
    size_t naccesses, cap_accesses;
    struct vm_trace_block *blocks;
    size_t nblocks, cap_blocks;
    char **names;
    size_t nnames, cap_names;
    uint32_t *name_slots; /* hash table over names, kept by planner/trace.c */
    size_t nslots;
    struct vm_machine machine;
    char device[64];
    char clock[32]; /* "simulated" or "device" */
};

/* ---- one iteration --------------------------------------------------------------------------*/

struct vm_iter_op {
    uint64_t sig;
    uint64_t dur_ns;
    uint32_t stream;
    uint32_t name;
    uint32_t acc, nacc; /* into vm_iteration.accesses, block = index into vm_iteration.blocks */
    uint32_t event;     /* event index in the trace it was built from, VM_NONE if none */
    uint8_t kind, layer, flags, reserved;
};

/* Time inside an iteration is the op index: a block lives in [alloc_op, free_op): it appears just
 * before op alloc_op and goes just before op free_op. Persistent blocks have alloc_op 0 and free_op
 * nops. A wrapping block has free_op > nops: it is freed before op free_op - nops of the next
 * iteration, so the iteration starts with the previous instance still alive. */
struct vm_iter_block {
    uint64_t size;
    uint64_t fixed_offset; /* place it already has (bytes from the reservation's base) or VM_UNPLACED */
    uint32_t alloc_op, free_op;
    uint32_t alloc_ordinal; /* order among the iteration's allocations, VM_NONE if persistent */
    uint32_t flags;         /* enum vm_block_flags */
    uint32_t trace_block;   /* index into vm_trace.blocks */
    uint32_t reserved;
};
#define VM_UNPLACED UINT64_MAX

/* The order of allocations and frees among the ops, for the executor to match. */
struct vm_iter_mem {
    uint32_t op;    /* happens just before this op (0..nops; nops = after the last) */
    uint32_t block; /* index into vm_iteration.blocks */
    uint8_t is_free;
};

struct vm_iteration {
    struct vm_iter_op *ops;
    size_t nops;
    struct vm_access *accesses;
    size_t naccesses;
    struct vm_iter_block *blocks;
    size_t nblocks;
    struct vm_iter_mem *mem; /* in program order */
    size_t nmem;
    uint64_t duration_ns;    /* sum of op times on the busiest stream */
    uint32_t periods;        /* the program's iterations in it: 1, or 2 if a block is still alive when
                                its successor appears, so that the two need places of their own */
};

/* ---- plan -----------------------------------------------------------------------------------*/

enum vm_action_kind {
    VM_ACT_OUT = 1, /* after op `op` was issued: copy pages to the host, then free their chunks    */
    VM_ACT_IN,      /* from op `op` on, as soon as chunks are free: bring pages back, in plan order */
    VM_ACT_DROP,    /* after op `op` was issued: contents are dead, free the chunks without a copy  */
    VM_ACT_COPY,    /* after op `op` was issued: copy pages to the host; they stay. A later OUT needs no
                       copy unless they are written in between                                  */
};

/* Why the policy did it; `vmem plan --explain` turns it into words. */
enum vm_reason {
    VM_WHY_NONE = 0,
    VM_WHY_FITS,       /* stays: the budget does not need its place      */
    VM_WHY_CAPACITY,   /* goes: live bytes exceed the budget meanwhile   */
    VM_WHY_LINK,       /* stays: the link has no time for it             */
    VM_WHY_TIME,       /* stays: its cold interval is too short to hide  */
    VM_WHY_RULE,       /* the policy's fixed rule (vdnn-all, lru ...)    */
    VM_WHY_PINNED,
    VM_WHY_DEAD,
};

struct vm_plan_action {
    uint32_t op;      /* op it hangs on                                                 */
    uint32_t need_op; /* IN: op that needs the pages (may be op + nops: next iteration) */
    uint64_t page;    /* first page, counted from the reservation's base                */
    uint32_t npages;
    uint8_t kind;     /* enum vm_action_kind */
    uint8_t reason;   /* enum vm_reason      */
    uint16_t reserved;
};

struct vm_plan_block {
    uint64_t size;
    uint64_t offset;        /* bytes from the reservation's base             */
    uint32_t alloc_op, free_op;
    uint32_t alloc_ordinal; /* VM_NONE for persistent blocks                 */
    uint32_t flags;
    uint32_t trace_block;
    uint8_t reason;         /* for --explain: why it stays or goes as a whole */
    uint8_t reserved[3];
};

struct vm_plan {
    char policy[32];
    uint64_t *sigs;   /* the op sequence it was made for */
    size_t nops;
    struct vm_plan_block *blocks;
    size_t nblocks;
    struct vm_plan_action *actions; /* sorted by op; OUT and DROP of an op before its INs */
    size_t nactions;
    struct vm_iter_mem *mem;
    size_t nmem;
    uint64_t page_bytes, budget_pages;
    uint64_t pool_offset, pool_bytes; /* the range planned blocks were packed into */
    uint64_t max_live_bytes;
    uint64_t predicted_ns, bound_ns, compute_ns;
    uint64_t out_bytes, in_bytes;
    uint64_t window_ns; /* while pages move, issue an op only when the ops issued and not finished take
                           no longer than this: contents far ahead take room that returning pages
                           need sooner; 0 = no limit */
};

void vm_trace_fini(struct vm_trace *t);
void vm_iteration_fini(struct vm_iteration *it);
void vm_plan_fini(struct vm_plan *p);

#endif
