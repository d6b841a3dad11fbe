/* The unit of mapping and moving that goes with a budget. */
#ifndef VM_PLANNER_PAGE_SIZE_H
#define VM_PLANNER_PAGE_SIZE_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes: `least` (a power of two above 0: what the device maps at the least) times a power of two. `moves`: contents
 * move to the host and back; else every page is mapped once. Thread-safe. */
uint64_t vm_page_size(uint64_t budget_bytes, uint64_t least, bool moves);

#endif
