/* The op sequence as hashes: are two stretches equal, how far back does a period reach?
 * Internal to planner/period*.c. Polynomial hashes modulo 2^61 - 1 (Karp and Rabin 1987). */
#ifndef VM_PLANNER_PERIOD_SEQUENCE_H
#define VM_PLANNER_PERIOD_SEQUENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vm_sequence {
    uint64_t *prefix; /* prefix[i] = hash of the first i symbols; n + 1 entries */
    uint64_t *power;  /* base^i */
    size_t n, cap_prefix, cap_power;
};

/* Appends a symbol. 0 or VM_ENOMEM. */
int vm_sequence_push(struct vm_sequence *s, uint64_t symbol);
void vm_sequence_fini(struct vm_sequence *s);
/* Hash of [from, to), independent of where it stands. */
uint64_t vm_sequence_hash(const struct vm_sequence *s, size_t from, size_t to);
/* The longest L with [n - L, n) equal to the same stretch p earlier. O(log L). */
size_t vm_sequence_run(const struct vm_sequence *s, size_t p);
/* Is the last symbol equal to the one p before it? */
bool vm_sequence_repeats(const struct vm_sequence *s, size_t p);

/* Where a stretch was seen last: hash of its symbols -> position just after it. */
struct vm_last_seen {
    struct vm_last_seen_slot {
        uint64_t key; /* 0 = empty */
        size_t pos;
    } * slots;
    size_t nslots, used;
};

/* Previous position of the key (0 = none), which becomes `pos`. VM_ENOMEM or 0. */
int vm_last_seen_put(struct vm_last_seen *m, uint64_t key, size_t pos, size_t *previous);
void vm_last_seen_fini(struct vm_last_seen *m);

#endif
