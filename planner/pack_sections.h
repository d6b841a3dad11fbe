/* Internal to the packers: time cut into sections.
 *
 * A section is a stretch of time in which blocks only appear; the next one begins with the first
 * birth after a death. Two items are live together exactly when they share a section, and the load
 * of a section is the load at its end, so nothing about conflicts or peaks is lost by counting time
 * in sections. */
#ifndef VM_PLANNER_PACK_SECTIONS_H
#define VM_PLANNER_PACK_SECTIONS_H

#include "pack.h"

struct vm_section_range {
    uint32_t lo, hi; /* sections [lo, hi) */
};

struct vm_sections {
    size_t nitems;
    uint32_t nsections;
    uint32_t *first;                 /* item i owns ranges[first[i]] .. ranges[first[i + 1]] */
    struct vm_section_range *ranges; /* ascending and disjoint within an item                */
    uint64_t *load;                  /* bytes live in each section                           */
    uint64_t max_live;
};

/* Checks the problem and cuts it. VM_OK, VM_ENOMEM, VM_EINVAL with the reason in *why (may be NULL). */
int vm_sections_init(struct vm_sections *s, const struct vm_pack_problem *p, struct vm_error *why);
void vm_sections_fini(struct vm_sections *s);

/* Do items a and b share a section? */
int vm_sections_conflict(const struct vm_sections *s, size_t a, size_t b);

/* Sorts n keys ascending and carries `value` along; stable; O(n) per key byte that differs.
 * `scratch` holds n more. */
struct vm_sort_pair {
    uint64_t key;
    uint32_t value;
};
void vm_sort_pairs(struct vm_sort_pair *pairs, struct vm_sort_pair *scratch, size_t n);

/* The least multiple of `align` that is >= x, UINT64_MAX when there is none. */
static inline uint64_t vm_align_up(uint64_t x, uint64_t align)
{
    if (align <= 1)
        return x;
    uint64_t rest = x % align;
    if (rest == 0)
        return x;
    return x > UINT64_MAX - (align - rest) ? UINT64_MAX : x + (align - rest);
}

/* Writes the reason for a refusal; why may be NULL. Returns `status`. */
int vm_pack_refuse(struct vm_error *why, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
