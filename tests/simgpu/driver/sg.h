/* sg.h: what the files of the simulated driver share. One process-wide state `sg`, guarded by one
 * lock that every exported call takes on entry (SG_CALL) and gives back on return.
 *
 * Work is a graph of operations (struct sg_op). Stream order, events, default-stream rules and
 * captured graphs all become edges of that graph when an operation is submitted; nothing executes
 * at call time. Timing mode plays the graph on a discrete-event queue; functional mode executes
 * ready operations in an order drawn from the seed, as late as it is allowed to.
 */
#ifndef SG_H
#define SG_H

#pragma GCC visibility push(default)
#include <cuda.h>
#include <cudaProfiler.h>
#pragma GCC visibility pop

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "../include/simgpu.h"
#include "presets.h"
#include "sg_names.h" /* generated: enum sg_id, SG_ID_COUNT */

#define SG_MAX_DEVICES 16
#define SG_MAX_PRIOS   6    /* greatest priority is -(SG_MAX_PRIOS - 1) */
#define SG_HOST        (-1) /* location of physical memory that lives on the host */

enum sg_mode { SG_TIMING, SG_FUNCTIONAL };
enum sg_engine_id { SG_ENG_COMPUTE, SG_ENG_H2D, SG_ENG_D2H, SG_ENG_COUNT, SG_ENG_NONE };

/* ---- configuration (config.c) ---- */
struct sg_config {
    struct sg_preset preset; /* a copy: memory and granularity may be overridden */
    enum sg_mode mode;
    uint64_t seed;
    size_t granularity;
    int ndevices;
    bool host_numa, unmap_sync, racecheck, race_abort, alias_entry;
    bool low_space; /* device addresses begin where real drivers put reservations */
    const char *report, *call_log, *kernel_log;
};

/* ---- physical memory (phys.c) ---- */
struct sg_shadow; /* race.c */
struct sg_phys {
    int device;      /* owner's ordinal or SG_HOST */
    size_t bytes;    /* as accounted */
    unsigned refs;   /* handles (cuMemCreate, Retain) or the one allocation that owns it */
    unsigned maps;   /* live mappings */
    uint64_t id;     /* CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID */
    int64_t file_at; /* functional mode: offset in the memory file, else -1 */
    int file;        /* of another process, -1: ours */
    bool foreign;    /* its bytes are on another process's account */
    CUmemAllocationProp prop;
    bool host_writes; /* the program may write it from the host at any time */
    struct sg_shadow *shadow;
};

/* ---- address space (vas.c) ---- */
enum sg_kind { SG_DEVICE, SG_VMM, SG_MANAGED, SG_POOL, SG_PINNED, SG_REGISTERED, SG_ARRAY };
struct sg_map {
    uint64_t va;
    size_t bytes;
    struct sg_phys *phys;
    unsigned char access[SG_MAX_DEVICES]; /* CUmemAccess_flags of each device */
    struct sg_clock *since; /* race check: what the host had seen when access was given; or NULL */
    uint64_t after;         /* SG_VMM: operations issued before it was made */
};
struct sg_range {
    uint64_t va;
    size_t bytes; /* as the program asked; reservations: as reserved */
    size_t span;  /* address space held, 0 when it is not ours (registered host memory) */
    enum sg_kind kind;
    struct sg_ctx *ctx;
    int device;
    uint64_t id; /* CU_POINTER_ATTRIBUTE_BUFFER_ID */
    unsigned flags;
    struct sg_map map;    /* every kind but SG_VMM */
    struct sg_map **page; /* SG_VMM: one entry a granule */
    size_t npages, page_bytes;
    struct sg_pool *pool; /* SG_POOL */
    struct sg_op *freed;  /* SG_POOL: the stream-ordered free that was issued for it ... */
    uint64_t freed_on;    /* ... and the id of its stream */
    struct sg_range *next_free;
    struct sg_array *array; /* SG_ARRAY: what it is the memory of */
    bool sync_memops, of_ipc,
        of_graph; /* of_graph: made by an allocation node, dies with its graphs */
};

/* ---- modules (module.c) ---- */
struct sg_func {
    struct sg_module *mod;
    const struct simgpu_kernel *kernel;
    size_t param_bytes;
    int max_dynamic_shared;
};
struct sg_variable {
    const char *name;
    size_t bytes;
    struct sg_range *at[SG_MAX_DEVICES]; /* made at the first use on a device */
    const unsigned char *init;
};
struct sg_code;
struct sg_module {
    struct sg_ctx *ctx; /* NULL: a library, bound to no context */
    const struct simgpu_image *image;
    struct sg_code *code;    /* made from a fat binary; owned */
    void *file;              /* what was read from a file; owned */
    struct sg_func *funcs;   /* one for each kernel of the image */
    struct sg_func *kernels; /* libraries: the CUkernel of each */
    unsigned nfuncs, nvars;
    struct sg_variable *vars;
    unsigned users; /* operations pending or graph nodes that launch a function of it */
    bool unloaded;
};
struct sg_func *sg_func_of(CUfunction f); /* a CUfunction, or a CUkernel cast to one; else NULL */
void sg_module_unuse(struct sg_module *m);
/* Makes the operation of a launch; the parameters are copied. */
CUresult sg_kernel_op(struct sg_func *f, const unsigned grid[3], const unsigned block[3],
                      unsigned shared, void **params, void **extra, struct sg_op **out);

/* ---- work (sched.c, exec.c) ---- */
enum sg_op_kind {
    SG_OP_KERNEL,
    SG_OP_COPY,
    SG_OP_MEMSET,
    SG_OP_EVENT,
    SG_OP_HOSTFN,
    SG_OP_NOP,
    SG_OP_FREE,
    SG_OP_MEMOP
};
enum sg_op_state { SG_QUEUED, SG_READY, SG_RUNNING, SG_DONE };

struct sg_copy {
    uint64_t src, dst;
    size_t width, height, depth, spitch, dpitch, sslice, dslice;
    bool src_host, dst_host;         /* where each side lives */
    bool from_pageable, to_pageable; /* the host side is not page-locked */
    unsigned char *staged;           /* contents taken at issue (pageable host source); owned */
    int src_dev, dst_dev;
};
struct sg_memset {
    uint64_t dst;
    size_t pitch, width, height; /* width in elements */
    unsigned value, elem;
};
struct sg_kernel_op {
    struct sg_func *fn;
    const char *name;
    unsigned char *params; /* owned */
    size_t param_bytes;
    unsigned grid[3], block[3], shared;
    struct simgpu_work work;
    double link_ns; /* known when it starts */
};
struct sg_hostfn {
    CUhostFn fn;
    CUstreamCallback cb; /* instead of fn */
    CUstream cb_stream;
    void *data;
};
struct sg_memop { /* a write of a word, or a wait for it (memop.c) */
    uint64_t addr, value;
    unsigned bytes, condition;
    bool wait;
    struct sg_shared_event *event; /* instead of a word: record `value` of it (ipc_event.c) */
};
struct sg_clock; /* vector clock, race.c */

struct sg_op {
    enum sg_op_kind kind;
    enum sg_op_state state;
    unsigned refs, ndeps;
    struct sg_op **out; /* operations that wait for this one */
    unsigned nout, cout;
    struct sg_op **in; /* functional mode: what it waits for, with a reference each */
    unsigned nin, cin;
    unsigned mark, polls;
    uint64_t poll_epoch;
    struct sg_ctx *ctx;
    struct sg_stream *stream; /* alive as long as the operation is pending */
    int device, prio;
    uint64_t seq, issue_ns, ready_ns, start_ns, end_ns;
    double left_ns; /* work left at full rate */
    uint32_t correlation; /* number of the call that issued it (activity.c) */
    enum sg_engine_id engine;
    struct sg_op *next;  /* in an engine's queue */
    unsigned lane, tick; /* race check: position of the operation */
    struct sg_clock *clock;
    union {
        struct sg_kernel_op kernel;
        struct sg_copy copy;
        struct sg_memset memset;
        struct sg_hostfn hostfn;
        struct sg_memop memop;
        struct {
            struct sg_range *range; /* may be gone when the operation executes ... */
            uint64_t va;            /* ... unless this still leads to it */
        } freed;                    /* SG_OP_FREE */
    } u;
};

struct sg_engine {
    struct sg_op *running;
    struct sg_op *head[SG_MAX_PRIOS], *tail[SG_MAX_PRIOS];
    uint64_t updated_ns, busy_ns;
    double rate;
    unsigned gen;
};

struct sg_capture; /* graph.c */
struct sg_stream {
    struct sg_ctx *ctx;
    unsigned flags;
    int prio;
    uint64_t id;
    bool legacy, destroyed;
    struct sg_op *last;
    unsigned pending;
    unsigned lane;
    unsigned weight; /* functional mode: how favoured it is right now */
    struct sg_capture *capture;
    struct sg_gnode **front; /* capturing: the nodes that the next one depends on */
    unsigned nfront;
    struct sg_stream *next; /* of the context's streams */
};

struct sg_event {
    struct sg_ctx *ctx;
    unsigned flags;
    struct sg_op *op;        /* the last record; NULL: never recorded */
    uint64_t captured;       /* id of the capture it was last recorded in ... */
    struct sg_gnode **nodes; /* ... behind these nodes */
    unsigned nnodes;
    struct sg_shared_event *shared; /* CU_EVENT_INTERPROCESS, else NULL */
};

struct sg_ctx {
    int device;
    unsigned flags;
    unsigned primary_refs;
    bool primary, dead;
    uint64_t id;
    CUresult sticky;
    struct sg_stream *streams; /* all that are alive or pending */
    struct sg_stream *legacy;
    unsigned pending;
    uint32_t peers; /* bit of each device whose memory it may touch */
    size_t limits[16];
    CUfunc_cache cache_config;
    struct sg_clock *retired; /* race check: all that streams destroyed since did */
};

struct sg_device {
    int ordinal;
    size_t used, peak, reserved_ctx;
    struct sg_engine engine[SG_ENG_COUNT];
    struct sg_ctx *primary;
    unsigned primary_flags;
    struct sg_pool *default_pool, *pool;
    uint64_t out_bytes, in_bytes, d2d_bytes;
    bool lost;
    size_t graph_used, graph_high;
};

/* ---- everything ---- */
struct sg_state {
    pthread_mutex_t lock;
    pthread_cond_t moved; /* something completed, or a host function returned */
    bool configured, inited, config_bad;
    int pid;
    struct sg_config cfg;
    struct sg_device dev[SG_MAX_DEVICES];
    uint64_t host_ns, dev_ns;
    uint64_t seq, next_id;
    uint64_t calls[SG_ID_COUNT];
    uint64_t rng;
    unsigned hostfns; /* host functions that are executing, outside the lock */
    unsigned hostfns_pending;
    unsigned parked; /* waits for words that do not have their value yet */
    unsigned shared_records; /* of events of several processes, not yet reached */
    uint64_t entered;                          /* calls so far */
    uint64_t poll_epoch;                       /* calls so far that a loop of polls does not make */
    unsigned pending;                          /* operations not yet done */
    uint64_t races, undefined, early, late, illegal; /* findings */
    uint64_t kernels, copies;
    uint64_t host_used, host_limit;
    int memfile;
    bool ptds; /* the call under way is a per-thread-default-stream variant */
};
extern struct sg_state sg;
extern _Thread_local bool sg_in_callback;

/* ---- calls (call.c) ---- */
CUresult sg_enter(enum sg_id id, bool ptds);
CUresult sg_leave(enum sg_id id, CUresult r);
CUresult sg_refuse(enum sg_id id);
CUresult sg_not_modelled(enum sg_id id, const char *what);
void sg_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Defines an exported driver function. The body runs under the lock, after counting, cost, faults
 * and the initialisation check. SG_CALL_S also defines its per-thread-default-stream twin. */
#define SG_ENTRY_(name, params, args, body, pt)                                                    \
    CUresult CUDAAPI name params                                                                   \
    {                                                                                              \
        CUresult result_ = sg_enter(SG_ID_##name, pt);                                             \
        if (result_ == CUDA_SUCCESS)                                                               \
            result_ = body args;                                                                   \
        return sg_leave(SG_ID_##name, result_);                                                    \
    }
#define SG_CALL(name, params, args)                                                                \
    static CUresult sg_body_##name params;                                                         \
    SG_ENTRY_(name, params, args, sg_body_##name, false)                                           \
    static CUresult sg_body_##name params
#define SG_CALL_S(name, twin, params, args)                                                        \
    static CUresult sg_body_##name params;                                                         \
    SG_ENTRY_(name, params, args, sg_body_##name, false)                                           \
    SG_ENTRY_(twin, params, args, sg_body_##name, true)                                            \
    static CUresult sg_body_##name params

#define SG_CHECK(cond, error)                                                                      \
    do {                                                                                           \
        if (!(cond))                                                                               \
            return (error);                                                                        \
    } while (0)
#define SG_TRY(call)                                                                               \
    do {                                                                                           \
        CUresult try_ = (call);                                                                    \
        if (try_ != CUDA_SUCCESS)                                                                  \
            return try_;                                                                           \
    } while (0)

/* ---- handles (handle.c): a handle is valid from add to drop; lookups are O(1) ---- */
enum sg_handle_type {
    SG_H_CTX = 1,
    SG_H_STREAM,
    SG_H_EVENT,
    SG_H_MODULE,
    SG_H_FUNC,
    SG_H_LIBRARY,
    SG_H_KERNEL,
    SG_H_PHYS,
    SG_H_POOL,
    SG_H_GRAPH,
    SG_H_EXEC,
    SG_H_NODE,
    SG_H_USER,
    SG_H_TEXTURE,
    SG_H_SURFACE,
    SG_H_ARRAY
};
void sg_handle_add(enum sg_handle_type t, const void *p);
bool sg_handle_is(enum sg_handle_type t, const void *p);
void sg_handle_drop(enum sg_handle_type t, const void *p);

/* ---- configuration, report ---- */
CUresult sg_configure(void);
CUresult sg_faults_parse(const char *text, char *why, size_t n);
/* SG_SKIPPED: the call is to do nothing and say that it worked (sg_leave turns it into success). */
#define SG_SKIPPED ((CUresult)-1)
CUresult sg_fault_for(enum sg_id id);
double sg_fault_copy_factor(void);
size_t sg_fault_host_limit(void);
uint64_t sg_random(void);
double sg_random_unit(void);
void sg_kernel_log(const struct sg_op *op); /* report.c: SIMGPU_KERNEL_LOG, as a kernel starts */
extern const char *const sg_names[SG_ID_COUNT];

/* ---- devices (device.c) ---- */
int sg_shared_limit(void); /* bytes of shared memory that one block may have */
void sg_device_uuid(int ordinal, unsigned char uuid[16]);
const void *sg_card_table(const CUuuid *id); /* card.c: NULL: not its id */

/* ---- contexts (context.c) ---- */
CUresult sg_current(struct sg_ctx **out); /* current context; its sticky error if it has one */
struct sg_ctx *sg_current_raw(void);
void sg_ctx_purge(struct sg_ctx *c); /* frees what the context owns */

/* ---- physical memory ---- */
CUresult sg_phys_new(int device, size_t bytes, bool bare, struct sg_phys **out);
void sg_phys_unref(struct sg_phys *p);
void sg_phys_gone_map(struct sg_phys *p);
size_t sg_phys_round(size_t bytes);
int sg_file(void);

/* ---- other processes (machine.c) ---- */
CUresult sg_machine_join(const char **why);
size_t sg_machine_others(int device);
void sg_machine_lock(void);
void sg_machine_unlock(void);
void sg_machine_leave(void);

/* ---- address space ---- */
struct sg_range *sg_range_find(uint64_t va); /* the range that holds va, or NULL */
struct sg_range *sg_range_at(size_t i);      /* by rank; NULL past the end */
bool sg_va_plausible(uint64_t va);           /* where device addresses lie; mapped or not */
CUresult sg_range_new(enum sg_kind kind, size_t bytes, size_t align, uint64_t hint, int device,
                      struct sg_range **out);                              /* takes address space */
CUresult sg_range_adopt(uint64_t va, size_t bytes, struct sg_range **out); /* host registration */
void sg_range_free(struct sg_range *r);
struct sg_map *sg_map_at(const struct sg_range *r, uint64_t va);
CUresult sg_map_attach(struct sg_map *m, struct sg_phys *p, bool accessible);
void sg_map_detach(struct sg_map *m);
CUresult sg_map_protect(struct sg_map *m);
bool sg_is_host(uint64_t va, bool *pinned); /* lives on the host; page-locked? */
/* Checks that `device` may touch [va, va+bytes) in `mode`; on failure *bad is the first address
 * that it may not, and the text says why. With op != NULL the race checker sees the access. */
const char *sg_touch(struct sg_op *op, int device, uint64_t va, size_t bytes, int mode,
                     uint64_t *bad, size_t *host_bytes);

/* ---- streams and work ---- */
CUresult sg_stream_of(CUstream s, struct sg_stream **out); /* resolves 0, LEGACY, PER_THREAD */
struct sg_stream *sg_stream_new(struct sg_ctx *c, unsigned flags, int prio);
void sg_stream_release(struct sg_stream *s); /* frees it once destroyed and drained */
struct sg_op *sg_op_new(enum sg_op_kind kind, enum sg_engine_id engine);
void sg_op_unref(struct sg_op *op);
void sg_op_after(struct sg_op *op, struct sg_op *pred);
CUresult sg_submit(struct sg_stream *s, struct sg_op *op); /* takes the reference of op */
void sg_enqueue_wait(struct sg_stream *s, struct sg_op *op, struct sg_op *other);
/* The two halves of an enqueue whose edges the caller makes in between. */
void sg_enqueue_begin(struct sg_stream *s, struct sg_op *op, unsigned lane);
void sg_enqueue_end(struct sg_op *op);
CUresult sg_wait(struct sg_op *op);     /* the host waits; op may be NULL */
CUresult sg_wait_ctx(struct sg_ctx *c); /* for everything the context has pending */
bool sg_poll(struct sg_op *op);         /* true: done */
bool sg_play_one(void);                 /* one step of the device, whatever it is; false: none */
void sg_advance(void);                  /* plays device events up to the host's clock */
void sg_host_spend(uint64_t ns);
void sg_execute(struct sg_op *op);    /* exec.c: effects of the op; functional: contents too */
double sg_duration(struct sg_op *op); /* exec.c: ns at full rate, known when it starts */
void sg_op_describe(const struct sg_op *op, char *buf, size_t n);

/* ---- events of several processes (ipc_event.c) ---- */
CUresult sg_shared_event_new(struct sg_shared_event **out);
void sg_shared_event_unref(struct sg_shared_event *s);
/* The next record, or a wait for the last one; NULL: no memory. */
struct sg_op *sg_shared_event_op(struct sg_shared_event *s, bool wait);
bool sg_shared_event_reached(const struct sg_shared_event *s, uint64_t n);
void sg_shared_event_play(const struct sg_memop *m);           /* such an operation executes */
void sg_shared_event_drop(struct sg_memop *m);                 /* and is forgotten */
bool sg_shared_event_done(const struct sg_shared_event *s);    /* the last record was reached */
void sg_shared_event_wait(const struct sg_shared_event *s);    /* the host waits for that */

/* ---- operations on words (memop.c) ---- */
bool sg_memop_ready(const struct sg_op *op);
void sg_memop_park(struct sg_op *op);
void sg_memop_recheck(void);
void sg_memop_store(const struct sg_memop *m);

/* ---- capture (capture.c) ---- */
CUresult sg_capture_add(struct sg_stream *s, struct sg_op *op); /* takes the reference of op */
CUresult sg_capture_alloc(struct sg_stream *s, size_t bytes, CUdeviceptr *out);
CUresult sg_capture_free(struct sg_stream *s, CUdeviceptr ptr);
bool sg_capture_blocks(
    struct sg_ctx *c); /* a capture forbids this unsafe call (and is now invalid) */
CUresult sg_capture_check_sync(struct sg_stream *s);
CUresult sg_capture_check_legacy(struct sg_stream *s);
CUresult sg_capture_event_record(struct sg_stream *s, struct sg_event *e);
CUresult sg_capture_event_wait(struct sg_stream *s, struct sg_event *e);

/* ---- pools (pool.c) ---- */
CUresult sg_pool_of_device(int device, struct sg_pool **out);
void sg_pool_free_now(struct sg_range *r); /* cuMemFree of pool memory: everything is done */
void sg_pool_freed(struct sg_op *op);      /* a stream-ordered free executes */
void sg_pool_idle(void);                   /* the host synchronised: unused memory goes back */
bool sg_pool_release_some(int device);     /* unused memory of any pool goes back; false: none */

/* ---- allocation (memory.c) ---- */
/* Timing mode: a page-locked block above this size shows the same few pages everywhere. */
#define SG_ALIAS_BYTES ((size_t)64 << 20)
CUresult sg_copy_op(const CUDA_MEMCPY3D *p, struct sg_ctx *c, struct sg_op **out); /* copy.c */
CUresult sg_memset_op(const CUDA_MEMSET_NODE_PARAMS_v1 *p, struct sg_op **out);
CUresult sg_alloc(enum sg_kind kind, struct sg_ctx *c, size_t bytes, struct sg_range **out);
void sg_dealloc(struct sg_range *r);
void sg_array_forget(struct sg_array *a); /* array.c: its memory goes */

/* ---- what CUPTI is told (activity.c) ---- */
struct simgpu_activity;
struct sg_told { /* what is to be told once the lock is given back */
    void (*sink)(const struct simgpu_activity *);
    const struct sg_ctx *ctx; /* a context that was made, or ended; or NULL */
    bool ends;
    uint32_t device, id;
    uint64_t now_ns;
};
void sg_activity_call_begins(void);
void sg_activity_call_ends(enum sg_id id, CUresult r, struct sg_told *after);
void sg_activity_tell(const struct sg_told *t);
uint32_t sg_activity_correlation(void);
void sg_activity_context(struct sg_ctx *c, bool ends);
void sg_activity_op(const struct sg_op *op);
const void *sg_activity_table(const CUuuid *id); /* NULL: another's */

/* ---- race check (race.c) ---- */
void sg_race_issue(struct sg_op *op, unsigned lane); /* its clock starts at what the host saw */
void sg_race_join(struct sg_op *op, const struct sg_op *pred);
void sg_race_host_saw(const struct sg_op *op);
/* Nothing reaches memory through a mapping before access was given to it. */
void sg_race_mapped(struct sg_map *m);
void sg_race_unmapped(struct sg_map *m);
void sg_race_through(struct sg_op *op, const struct sg_map *m, uint64_t va);
void sg_race_sealed(struct sg_phys *p);
void sg_race_access(struct sg_op *op, struct sg_phys *p, uint64_t off, size_t bytes, int mode,
                    uint64_t va);
void sg_race_host_write(struct sg_phys *p, uint64_t off, size_t bytes);
void sg_race_free(struct sg_phys *p, uint64_t off, size_t bytes, uint64_t va, const char *what);
void sg_race_forget(struct sg_phys *p);
void sg_race_undefine(uint64_t va, size_t bytes); /* the bytes hold nothing any more */
void sg_race_copied(uint64_t dst, uint64_t src, size_t bytes);
unsigned sg_race_lane_new(void);
void sg_race_lane_drop(unsigned lane);
void sg_race_clock_free(struct sg_op *op);
void sg_race_retire(struct sg_ctx *c, const struct sg_op *op);
void sg_race_join_retired(struct sg_op *op, const struct sg_ctx *c); /* op NULL: the host */

#endif
