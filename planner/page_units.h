/* From blocks to pages: the units that a schedule moves.
 *
 * A unit is a run of neighbouring pages that live and are used together: the pages of one large
 * block during one lifetime, or a single page that several blocks share at the same time. A page
 * that successive lifetimes use in turn belongs to as many units, one for each.
 *
 * Time is the op index, cyclic: the stretch after a unit's last use reaches into the next iteration if
 * the unit is `cyclic`, and is dead otherwise (the blocks are gone). Contents that nobody will read
 * before they are overwritten in every byte are dead and never copied.
 */
#ifndef VM_PLANNER_PAGE_UNITS_H
#define VM_PLANNER_PAGE_UNITS_H

#include "model.h"

/* Pages that one copy carries at most: larger ones free room late, smaller ones pay latency often. */
#define VM_COPY_PAGES 8

enum vm_page_use_flags {
    VM_PU_WRITE = 1,     /* changes contents: the host copy, if any, is stale afterwards     */
    VM_PU_LIVE_AFTER = 2 /* contents are needed by the unit's next use (cyclic)              */
};

/* One op's use of a unit: all its pages must be on the device. */
struct vm_page_use {
    uint32_t op;
    uint32_t flags;
};

enum vm_page_unit_flags {
    VM_UNIT_CYCLIC = 1, /* holds a block that exists at the iteration's boundary for good   */
    VM_UNIT_PINNED = 2, /* never leaves                                                     */
    VM_UNIT_SHARED = 4  /* several blocks on one page                                       */
};

struct vm_page_unit {
    uint64_t page; /* first page, counted from the reservation's base              */
    uint32_t npages;
    uint32_t use, nuses; /* into vm_page_units.uses: in op order from its birth on      */
    uint32_t slot;       /* number of its first page among those in use, in order of page  */
    uint32_t block;      /* a block on it (the only one unless shared)                  */
    uint32_t flags;
    uint32_t linger;     /* ops after its last one that are issued before its block is freed: until then its
                            contents may matter for all that the runtime knows; 0 if cyclic or shared */
};

struct vm_page_ref {
    uint32_t unit;
    uint32_t use; /* index into vm_page_units.uses */
};

struct vm_page_units {
    struct vm_page_unit *units;
    size_t nunits;
    struct vm_page_use *uses;
    size_t nuses;
    uint32_t *op_first;       /* nops + 1: refs of op k are op_first[k] .. op_first[k + 1] */
    struct vm_page_ref *refs; /* nuses */
    const uint64_t *dur_ns;   /* nops op times; owned by this structure */
    uint64_t *dur_store;
    uint8_t *op_flags;        /* nops: VM_OPF_BLOCKS and VM_OPF_WAITED of each op */
    size_t nops;
    uint64_t nslots;          /* distinct pages that units stand on */
    uint64_t page_bytes;
};

/* Builds the units of `it` placed at offsets[] (nblocks, bytes from the reservation's base) on pages
 * of page_bytes. 0, VM_EINVAL (a block without a place, an access out of range; reason in *why) or
 * VM_ENOMEM. O((blocks + accesses) log). Thread-safe; *out is the caller's (vm_page_units_fini). */
int vm_page_units_build(const struct vm_iteration *it, const uint64_t *offsets, uint64_t page_bytes,
                        struct vm_page_units *out, struct vm_error *why);
void vm_page_units_fini(struct vm_page_units *u);

/* Index of the use after `use` of `unit`, or VM_NONE after the last one of a unit that ends. *wraps is
 * set to 1 where that use is in the next iteration, else 0. */
uint32_t vm_page_next_use(const struct vm_page_units *u, const struct vm_page_unit *unit,
                          uint32_t use, unsigned *wraps);

/* Index of the use before `use` of `unit`: of one that ends, the last one before its first. */
static inline uint32_t vm_page_use_before(const struct vm_page_unit *unit, uint32_t use)
{
    return use > unit->use ? use - 1 : unit->use + unit->nuses - 1;
}

/* Pages that op k needs at once, the most over all ops, and the op where that is (NULL is allowed). */
uint64_t vm_page_units_work(const struct vm_page_units *u, uint32_t *op);
/* The most pages that hold contents that matter, or are in use, at one op; without any paging this
 * is what the device must hold. */
uint64_t vm_page_units_peak(const struct vm_page_units *u);
/* The same for every op: pages[0..nops). VM_OK or VM_ENOMEM. */
int vm_page_units_curve(const struct vm_page_units *u, uint32_t *pages);

#endif
