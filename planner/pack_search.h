/* Internal: the state of one branch-and-bound search (pack_search.c) and how it is built. */
#ifndef VM_PLANNER_PACK_SEARCH_H
#define VM_PLANNER_PACK_SEARCH_H

#include "pack_sections.h"

struct vm_search_undo {
    uint64_t *at, old;
};

/* Items are numbered in the static order in which ties are broken. Arrays that the search changes
 * are 64 bits wide, so that one trail undoes them all. */
enum vm_branching {
    VM_BRANCH_LOWEST,       /* the item with the lowest support                                  */
    VM_BRANCH_LOWEST_TIGHT, /* the same; among equals the one in the tightest section            */
    VM_BRANCH_TIGHTEST,     /* one on the floor of the tightest section, however high that is    */
};

struct vm_search {
    enum vm_branching branching;
    uint32_t n, nsections;
    uint64_t capacity;
    uint32_t *original; /* number in the problem */
    uint64_t *size, *align, *fixed;
    uint32_t *twin;               /* ring of items that differ in their number only          */
    uint32_t *hull_lo, *hull_hi;  /* sections from its first to past its last               */
    uint32_t *rng_first;          /* its live ranges of sections                            */
    struct vm_section_range *rng;
    uint32_t *adj_first, *adj;    /* items that are ever live together with it              */
    uint32_t *sec_first, *sec_item; /* items live in a section: those born in it stand last, */
    uint32_t *sec_born;             /* from here on                                           */
    uint64_t *placed;
    uint64_t *offset;
    uint64_t *support;   /* lowest offset above what is placed: where it would be put       */
    uint64_t *least;     /* lowest offset it can have in any completion; >= support         */
    uint64_t *remaining; /* for each section: bytes of its items not yet placed             */
    uint64_t *floor, *arg; /* ... the least `least` among them, and whose it is             */
    double *weight;        /* ... 1 + the times it has failed; outlives a try               */
    double *slack;         /* a node's range minima of slack over weight                    */
    double slack_bias;     /* added to the slack before it is divided by the weight         */
    uint64_t *crossing;  /* items not yet placed that cross from section t to t + 1         */
    struct vm_search_undo *trail;
    size_t ntrail, captrail;
    uint32_t *arena;
    size_t arena_used;
    uint64_t nodes, node_limit;
    uint64_t expired_every; /* nodes between two questions */
    int (*expired)(void *arg);
    void *expired_arg;
    int no_memory, stop;
};

/* Static orders; each is a string of criteria, the most important first, larger values first:
 * W lifetime, A area, T greatest load it meets, Z size, C sections. Equal items stay in the problem's
 * order, or in one drawn from `seed` if that is not 0. VM_TIMEOUT: too large to be searched. */
int vm_search_init(struct vm_search *s, const struct vm_pack_problem *p, const struct vm_sections *sec,
                   uint64_t capacity, const char *order, uint64_t seed, struct vm_error *why);
void vm_search_fini(struct vm_search *s);
/* Searches one part: items[] (in the search's numbers) that meet no other item, in sections
 * [lo, hi). VM_OK leaves them placed, otherwise nothing has changed. */
int vm_search_part(struct vm_search *s, const uint32_t *items, uint32_t n, uint32_t lo, uint32_t hi);

#endif
