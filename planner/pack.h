/* Placement: where in a pool each block lives when all lifetimes are known (static allocation, the
 * literature's offline dynamic storage allocation; NP-complete, Garey & Johnson SR2).
 *
 * A problem is a list of items. An item occupies [offset, offset + size) during its live spans and
 * keeps that one place for all of them; two items may share bytes only when they are never live at
 * the same time. Times and offsets are plain integers without a unit; sizes are in the unit of the
 * offsets (bytes for the shim). Every function here is thread-safe: it works on its arguments only,
 * reads no clock of its own, keeps no state and is deterministic for equal arguments. */
#ifndef VM_PLANNER_PACK_H
#define VM_PLANNER_PACK_H

#include "model.h"

/* Half-open span of time. */
struct vm_pack_span {
    uint64_t lower, upper;
};

struct vm_pack_item {
    uint64_t size;         /* 0 is allowed: such an item is placed at its alignment's 0    */
    uint64_t lower, upper; /* first moment it is live, first moment after its last         */
    uint64_t align;        /* offset must be a multiple; 0 and 1 mean none                 */
    uint64_t fixed;        /* offset it already has, or VM_UNPLACED                        */
    uint32_t gap, ngaps;   /* spans inside [lower, upper) in which it is not live: indices */
                           /* into vm_pack_problem.gaps, ascending and disjoint            */
};

struct vm_pack_problem {
    const struct vm_pack_item *items;
    size_t nitems;
    const struct vm_pack_span *gaps; /* may be NULL when no item has a gap */
    size_t ngaps;
};

struct vm_pack_options {
    uint64_t capacity;  /* highest end allowed; 0 = no limit, the height is made as small as possible */
    uint64_t max_nodes; /* nodes the search may visit; 0 = no limit of that kind                       */
    uint64_t seed;      /* the order in which equal choices are tried; any value is as good           */
    /* Asked now and then by the search; non-zero ends it. NULL = never. */
    int (*expired)(void *arg);
    void *expired_arg;
};

struct vm_pack_result {
    uint64_t height;   /* highest end over all items                                      */
    uint64_t max_live; /* the most bytes live at once: no packing is lower than this      */
    uint64_t bound;    /* proved: no packing is lower; at least max_live                  */
    uint64_t nodes;    /* nodes the search visited                                        */
};

/* The most bytes live at any one time. VM_OK, VM_ENOMEM, or VM_EINVAL with the reason in *why (which
 * may be NULL). */
int vm_pack_max_live(const struct vm_pack_problem *p, uint64_t *bytes, struct vm_error *why);

/* A good packing in about n log n steps: the one for replanning while the program trains. offsets[]
 * (nitems, the caller's) and *res are set on success. VM_OK; VM_UNFIT when opt->capacity is not kept
 * (offsets are those of the best packing found, for the caller to look at); VM_EINVAL / VM_ENOMEM
 * with the reason in *why. Gap-filling best fit, after the blocks that are live where the load is
 * near its maximum have been placed; then by lifetime. */
int vm_pack_fast(const struct vm_pack_problem *p, const struct vm_pack_options *opt,
                 uint64_t *offsets, struct vm_pack_result *res, struct vm_error *why);

/* Branch and bound for one capacity (opt->capacity, must not be 0): finds a packing within it or
 * proves that none exists. VM_OK; VM_UNFIT = proved impossible; VM_TIMEOUT = nodes or time ran out
 * first, or more than 8192 items (offsets are then not set). The search looks at packings that are
 * pushed down as far as they go; after Moffitt, "MiniMalloc: A Lightweight Memory Allocator for
 * Hardware-Accelerated Machine Learning", ASPLOS 2023. Recurses once an item. */
int vm_pack_search(const struct vm_pack_problem *p, const struct vm_pack_options *opt,
                   uint64_t *offsets, struct vm_pack_result *res, struct vm_error *why);

/* Both: the fast packing, then, while it is above its lower bound (or above opt->capacity) and time
 * allows, searches at lower and lower heights. VM_OK with the best packing found (res->height ==
 * res->bound says that it is optimal); VM_UNFIT = proved that the capacity cannot be kept;
 * VM_TIMEOUT = capacity not kept and not disproved; offsets hold the best packing found in all three. */
int vm_pack(const struct vm_pack_problem *p, const struct vm_pack_options *opt, uint64_t *offsets,
            struct vm_pack_result *res, struct vm_error *why);

/* The chunked variant: a block may lie on any pages, so placement is colouring. pages[] receives,
 * for item i at pages[first[i]] .. pages[first[i + 1]], the page numbers it occupies (the same for
 * all of its live spans); both arrays are malloc'd and the caller frees them. *npages is the number
 * of different pages used; with one live span per item it equals the most pages live at once, which
 * no assignment can beat (interval graphs are perfect; left-edge order is optimal). Items with
 * `fixed` are not allowed here (VM_EINVAL): a colour has no order. */
int vm_pack_pages(const struct vm_pack_problem *p, uint64_t page_bytes, uint32_t **pages,
                  size_t **first, uint32_t *npages, struct vm_error *why);

/* Places the blocks of an iteration in a pool that begins at pool_offset (bytes from the
 * reservation's base). Time is cyclic: a block that wraps is live at both ends of the iteration and
 * keeps one place. Blocks with a fixed_offset stay there and are obstacles where they reach into the
 * pool. offsets[] (it->nblocks, the caller's) receives bytes from the reservation's base;
 * *pool_bytes the pool's length, up to the last byte placed here.
 *
 * vm_place: for paging. Blocks of at least m->page_bytes begin on a page and own their pages; smaller
 * ones share pages with others that are live and cold at similar times. Successive lifetimes reuse
 * the same pages. m->page_bytes must be a power of two.
 * vm_place_contiguous: for `pool` (no paging): 512-byte alignment, smallest height.
 *
 * VM_OK, VM_EINVAL, VM_ENOMEM (reason in *why). `search_nodes` of vm_place_contiguous bounds the
 * search after the fast packing; 0 = no search. */
int vm_place(const struct vm_iteration *it, const struct vm_machine *m, uint64_t pool_offset,
             uint64_t *offsets, uint64_t *pool_bytes, struct vm_error *why);
int vm_place_contiguous(const struct vm_iteration *it, uint64_t pool_offset, uint64_t search_nodes,
                        uint64_t *offsets, uint64_t *pool_bytes, struct vm_error *why);

#endif
