/* Random packing problems for the tests, from a printed seed. */
#ifndef VM_TESTS_PACK_INSTANCES_H
#define VM_TESTS_PACK_INSTANCES_H

#include "pack.h"

struct random {
    uint64_t state;
};
uint64_t random_next(struct random *r);
/* 0 .. n - 1 */
uint64_t random_below(struct random *r, uint64_t n);

/* VM_TEST_SEED, or a fixed one; printed. */
uint64_t test_seed(void);

enum instance_kind { WITH_GAPS = 1, WITH_FIXED = 2, WITH_ALIGN = 4 };

struct instance {
    struct vm_pack_problem p;
    struct vm_pack_item *items;
    struct vm_pack_span *gaps;
    uint64_t *offsets;
};

/* n items within `times` moments, sizes 1..max_size; `kinds` are instance_kind bits. Fixed items are
 * laid where none of them collides. The caller frees. */
struct instance random_instance(struct random *r, size_t n, uint64_t times, uint64_t max_size,
                                unsigned kinds);
/* A rectangle of times x height cut at random: its optimum is `height` exactly. */
struct instance guillotine_instance(struct random *r, size_t n, uint64_t times, uint64_t height);
void free_instance(struct instance *in);

/* The least height, by trying every order of placement; for at most 8 items without fixed ones. */
uint64_t brute_force_height(const struct vm_pack_problem *p);

#endif
