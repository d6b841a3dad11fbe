/* Small random iterations, and the true optimum of very small ones by exhaustive search. */
#ifndef VM_TESTS_SCHEDULE_SMALL_H
#define VM_TESTS_SCHEDULE_SMALL_H

#include <stdint.h>

#include "page_units.h"

#define SMALL_PAGE 4096u
#define SMALL_TICK 1000u /* ns */
#define SMALL_OPS 8u     /* ops of an iteration that is searched, at most */

struct small_shape {
    uint32_t ops, blocks, max_pages, max_accesses, max_ticks;
};

uint64_t small_random(uint64_t *state);

/* A random iteration whose blocks lie on pages of their own; offsets[] is malloc'd. The caller frees with
 * vm_iteration_fini and free. */
void small_iteration(uint64_t seed, const struct small_shape *shape, struct vm_iteration *it,
                     uint64_t **offsets);

/* A machine on which a page takes `ticks` ticks each way. */
struct vm_machine small_machine(uint32_t ticks);

/* The searches below know what the executor can do: a page is copied out only in order to leave, and not
 * while an op uses it. */

/* The fewest ticks from the start of an iteration to the start of the one `iterations` later, over all
 * schedules and all first states, with `capacity` pages: breadth-first over all states. Units must be of
 * one page, at most 6 of them. UINT32_MAX if more than max_states states were met. */
uint32_t small_optimum(const struct vm_page_units *u, uint32_t capacity, uint32_t copy_ticks,
                       uint32_t iterations, uint32_t max_states);

/* The fewest ticks in which `iterations` iterations end as they began: with the same pages on the device
 * and on the host and nothing in flight. Over all first states; the rest as above. */
uint32_t small_cycle(const struct vm_page_units *u, uint32_t capacity, uint32_t copy_ticks,
                     uint32_t iterations, uint32_t max_states);

#endif
