/* The runtime's state of one device, shared by the files of shim/. Everything here is guarded by
 * `lock` unless a comment says otherwise. The lock is never held while the host waits for the
 * device, nor across a call that the program made; the pager's own non-waiting driver calls may be
 * made under it.
 *
 * Words (DESIGN.md): a page is a unit of address space, a chunk a unit of physical memory, both
 * page_bytes large; a block is one allocation of the program and covers pages wholly (the page is
 * then its own) or in part (the page is shared). `g` is the number of operations seen so far:
 * "up to g" orders everything.
 */
#ifndef VM_SHIM_DEVICE_H
#define VM_SHIM_DEVICE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cuda.h>

#include "model.h"
#include "range.h"
#include "runtime.h"
#include "share.h"
#include "vmem.h"

#define VM_NO          UINT32_MAX
#define VM_GRANULE     512u /* allocations are aligned to this */
#define VM_MAX_DEVICES 16

/* vm_device.patience_ns of an operation that cannot begin otherwise: as long as it takes once the device is idle, or
 * even where it never is. */
#define VM_UNTIL_IDLE (UINT64_MAX - 1)
#define VM_FOR_EVER   UINT64_MAX

enum vm_page_state {
    VM_PG_EMPTY = 0, /* no chunk, no contents                                         */
    VM_PG_RESIDENT,  /* mapped: read-only if sealed, else read-write                  */
    VM_PG_WAIT_OUT,  /* as resident; leaves when its frontier is reached              */
    VM_PG_LEAVING,   /* mapped read-only; its copy to the host is in flight           */
    VM_PG_AWAY,      /* contents in its host slot only                                */
    VM_PG_COMING,    /* copy into a chunk in flight through the alias; not mapped yet */
};

enum vm_page_flags {
    VM_PGF_SHARED = 1,  /* more than one block, or one that does not cover it      */
    VM_PGF_WANT_IN = 2, /* in the queue of pages to bring back                     */
    VM_PGF_DROP = 4,    /* leaving without a copy: contents are dead or regenerable */
    VM_PGF_LOST = 8,    /* contents were dropped as dead: a read of them is an error */
    VM_PGF_ORPHAN = 16, /* no live block any more, a copy still in flight           */
    VM_PGF_KNOWN = 32,  /* a block has lived on it: its fields mean something       */
    VM_PGF_HOSTED = 64, /* away, and its host slot is mapped at its address         */
    VM_PGF_UNSURE = 128, /* has a chunk for an operation that will overwrite it; the contents are in
                            the host slot until that was issued                     */
};

struct vm_page {
    uint32_t chunk; /* VM_NO: none                                          */
    uint32_t host;  /* host slot, VM_NO: none                               */
    uint32_t owner; /* block that owns it alone; shared: index of vm_share  */
    uint32_t live;  /* live blocks on it                                    */
    uint32_t pins;  /* shared pages: operations in progress + sticky pins   */
    uint8_t state, flags;
    uint8_t stays; /* WAIT_OUT, LEAVING: only a copy is made, the page stays   */
    bool sealed : 1; /* mapped read-only: nothing wrote it, seen or unseen, since its copy was made */
    bool reseal : 1; /* it left with a copy that a seal would have spared: sealed when it comes back ... */
    bool to_write : 1; /* ... unless the operation that it comes back for writes it                  */
    uint64_t copied_g; /* the host slot holds the contents as of this g; 0: of none   */
    uint64_t touch_g;  /* shared: last operation that touched it; own: see the block  */
    uint64_t write_g;  /* shared: last operation that may have written it             */
    uint64_t fence_g;  /* operations up to here may still use what lived here before  */
    uint64_t out_g;    /* waiting to leave: its frontier; tells a stale queue entry    */
    uint64_t in_g;     /* to come back: operations issued when it was asked for, likewise */
};

struct vm_block {
    CUdeviceptr addr;
    uint64_t size;
    uint64_t first, last;  /* pages */
    uint64_t id;           /* serial number of the allocation */
    struct vm_range *node; /* place in the address allocator; NULL when placed by a plan */
    uint32_t trace;        /* index in the recorder's trace, VM_NONE if not recorded */
    uint32_t nonresident;  /* own pages that are not resident */
    uint32_t sealed;       /* own pages that are sealed       */
    uint32_t pins;         /* operations in progress          */
    uint32_t sticky;       /* reasons to stay resident for good */
    uint32_t plan_block;   /* index in the current plan, VM_NONE if it is not in it */
    uint32_t named_at;     /* where the last operation that named it has it in its list */
    uint64_t touch_g, write_g, born_g;
    uint64_t fence_g; /* operations up to here may still use what lived in its place before */
    uint32_t graphs; /* captures and graphs that name it */
    bool live, small, dead, kept, escaped, regenerating;
    bool unsure;    /* some of its pages are */
    bool captured;  /* allocated while a capture was open */
    bool abandoned; /* freed by the program; lives until no graph names it any more */
    vmem_regenerate_fn regenerate;
    void *regenerate_user;
    uint64_t regenerate_ns;
};

struct vm_chunk {
    CUmemGenericAllocationHandle handle;
    CUdeviceptr alias; /* always mapped read-write: the way copies go in */
    uint64_t page;     /* who holds it, UINT64_MAX: free */
};

struct vm_tick {
    uint64_t g;
    CUevent event;
};

/* A stream the program issues work on. */
struct vm_stream {
    CUstream handle;
    uint64_t thread;         /* per-thread default stream: whose; else 0    */
    uint64_t last_g;         /* last operation issued on it                 */
    uint64_t first_g;        /* first operation since it was last seen idle */
    uint64_t done_g;         /* operations up to here are known to be done  */
    uint64_t host_visible_g; /* last whose result the host may look at   */
    uint64_t joined_g;       /* it waits already for all streams up to here */
    struct vm_tick *ticks;   /* recorded, not yet seen done: a ring        */
    unsigned head, count, cap;
    uint32_t number; /* small integer for traces */
    bool capturing;
    bool gone; /* destroyed; kept until its last tick is done */
};

/* Pages to bring back, in order: a ring. */
struct vm_queue {
    struct vm_wanted {
        uint64_t page, g; /* g: operations issued when it was asked for */
    } * items;
    size_t head, count, cap;
};

/* Pages that wait for their frontier: a binary heap, least g first, equal ones in order of entry.
 */
struct vm_waiting {
    struct vm_waiter {
        uint64_t g, seq, page;
    } * items;
    size_t count, cap;
    uint64_t seq;
};

struct vm_flight { /* one event over a few pages whose copies are in flight */
    CUevent event;
    CUevent begin; /* the copy is timed: both have timing; else NULL */
    bool duplex;   /* timed: the other direction was busy when it began */
    uint32_t others; /* timed: flights that the other direction had begun by then */
    uint64_t page;
    uint32_t npages;
    uint64_t g; /* out: the frontier the pages left at, which tells one departure from the next */
};

struct vm_flights {
    struct vm_flight *items;
    size_t head, count, cap;
};

struct vm_host_pool {
    bool numa;             /* slots are host-NUMA handles, mapped side by side at numa_base */
    CUdeviceptr numa_base; /* reserved for limit_slots pages */
    int numa_node;
    CUmemGenericAllocationHandle *handles;
    struct vm_arena {
        char *base;
        uint32_t first; /* its first slot */
    } *arenas;          /* in order */
    unsigned narenas;
    size_t cap_arenas;
    uint32_t nslots, in_use, peak;
    uint32_t *free_slots;
    uint32_t nfree, cap_free;
    uint64_t limit_slots;
    bool failed; /* the last growth failed: do not try at each eviction */
};

struct vm_recorder;
struct vm_executor;
struct vm_replan;
struct vm_graph_ref;
struct vm_graph_pins;
struct vm_learn;

struct vm_device {
    pthread_mutex_t lock;
    CUdevice ordinal;
    CUcontext ctx;   /* the pager's streams and events live here */
    bool unserved;   /* could not be made ready: forward everything */
    CUresult broken; /* sticky error of the device: forward everything */

    uint64_t page_bytes, granularity;
    unsigned page_shift;
    CUdeviceptr base;
    uint64_t reserved_bytes, npages;
    uint64_t pool_first, pool_next; /* pages for planned pools: the upper half of the space */
    CUdeviceptr alias_base;
    uint64_t total_bytes; /* of the card */
    uint64_t budget_bytes;
    bool budget_set;     /* by the user: the program sees it as the card's size */
    uint64_t max_chunks; /* of the budget */

    struct vm_page *pages;
    struct vm_share *shares;
    uint32_t nshares, cap_shares;
    uint32_t *spare_shares;
    uint32_t nspare_shares, cap_spare_shares;

    struct vm_block *blocks;
    uint32_t nblocks, cap_blocks;
    uint32_t *free_blocks;
    uint32_t nfree_blocks, cap_free_blocks;
    uint64_t next_id;

    struct vm_ranges page_space;  /* in pages    */
    struct vm_ranges small_space; /* in granules */

    struct vm_chunk *chunks;
    uint32_t nchunks, cap_chunks; /* entries, holes included */
    uint32_t live_chunks;         /* with a handle           */
    uint32_t *holes;
    uint32_t nholes;
    uint32_t *free_chunks;
    uint32_t nfree_chunks;
    uint64_t opaque_g;   /* last operation that may have written what nobody saw   */
    uint64_t dead_pages; /* resident pages with no live block: chunks for the asking */
    uint64_t staying;    /* pages that are copied out and stay: vm_page.stays        */
    bool thrifty;        /* the policy moves nothing: dead pages' chunks before new ones, those before contents */
    bool may_grow;       /* thrifty, and the operation being served cannot begin otherwise     */
    uint64_t missing;    /* chunks that the operation being served lacks */
    bool turn;           /* a thread is making an operation's pages resident */

    struct vm_host_pool host;

    struct vm_stream **streams;
    unsigned nstreams, cap_streams;
    uint32_t next_stream;
    CUstream out_stream, in_stream;
    CUevent *events; /* spare, without timing */
    unsigned nevents, cap_events;

    struct vm_waiting out_wait;   /* contents that leave when their frontier is reached */
    struct vm_waiting dead_wait;  /* pages without contents that do                     */
    struct vm_waiting unmap_wait; /* pages that may be unmapped: copied out, clean or dead */
    bool unmap_waits;     /* cuMemUnmap was seen to wait for the device, or it is not known yet */
    uint64_t patience_ns; /* how long an idle device may be kept from its next operation for that */
    struct vm_flights out_flight, in_flight;
    struct vm_queue in_wait;

    uint64_t g;          /* operations issued so far */
    uint64_t ahead_ns;   /* planned time of those issued since the device was last seen idle */
    uint64_t copied_ns[2]; /* link time of the copies begun since then: in, out              */
    uint64_t rest_ns; /* the device is at rest before an operation of this length; 0: it is not */
    unsigned captures;   /* stream captures that are open */
    bool captures_mixed; /* several were open at once     */
    struct vm_graph_pins *capture_pins; /* named in the captures that are open */
    struct vm_graph_ref *graphs;
    unsigned ngraphs, cap_graphs;
    unsigned entered;      /* operations between before and after */
    bool pressure;         /* something had to leave: from now on every operation leaves a tick */
    uint64_t float_chunks; /* chunks that demand paging tries to keep free */

    /* what `vmem_get_stats`, the statistics file and the log report */
    uint64_t block_bytes, peak_block_bytes;
    uint64_t mapped_chunks, peak_chunks;
    uint64_t out_bytes, in_bytes, demand_moves, dropped_bytes, regenerated;
    uint64_t failed_moves;
    uint64_t hosted_ops; /* operations that did not fit and used host memory in part */

    void *scratch; /* candidates, when choosing what leaves */
    uint32_t cap_scratch;
    /* The plan's answer to "how many operations until this page is used"; false: it does not know.
     */
    bool (*next_use)(struct vm_device *d, uint64_t page, uint64_t *next);

    struct vm_machine link; /* speeds and costs as measured; zero until then */
    struct vm_recorder *recorder;
    struct vm_executor *executor;
    struct vm_learn *learn;
    struct vm_replan *replan; /* a plan in the making, or NULL */
};

static inline uint64_t vm_page_of(const struct vm_device *d, CUdeviceptr p)
{
    return (p - d->base) >> d->page_shift;
}

static inline CUdeviceptr vm_page_addr(const struct vm_device *d, uint64_t page)
{
    return d->base + (page << d->page_shift);
}

/* Unsigned arithmetic makes this one comparison. */
static inline bool vm_device_holds(const struct vm_device *d, CUdeviceptr p)
{
    return p - d->base < d->reserved_bytes;
}

static inline bool vm_page_is_shared(const struct vm_page *pg)
{
    return (pg->flags & VM_PGF_SHARED) != 0;
}

/* The devices the runtime serves, by ordinal; entries are made on first use and never freed. */
extern struct vm_device *vm_devices[VM_MAX_DEVICES];

/* Gives the processor away for a moment, longer the more often it was called in a row. Call without
 * the lock. */
void vm_nap(unsigned times);

/* Device of the current context, made ready on first use; NULL when it cannot be served (the caller
 * then forwards). Takes and releases the device's lock. */
struct vm_device *vm_device_current(void);
/* The ready device whose reservation holds p, or NULL. No lock needed. */
struct vm_device *vm_device_of(CUdeviceptr p);
/* The device an operation without addresses of ours belongs to: the only one, or the current
 * context's if it is ready; NULL if none. */
struct vm_device *vm_device_default(void);

/* Makes the device's own context current for the pager's calls if it is not; undo with
 * vm_ctx_leave. */
/* Is it a simulated GPU? By the UUID it gives itself. */
bool vm_device_simulated(const struct vm_device *d);
/* The context is being destroyed: nothing of its device is served any more. */
void vm_device_forget(CUcontext ctx);

bool vm_ctx_enter(struct vm_device *d);
void vm_ctx_leave(bool pushed);

#endif
