/* Do two neighbouring stretches of ops look like two training iterations? Internal to period*.c. */
#ifndef VM_PLANNER_PERIOD_CHECK_H
#define VM_PLANNER_PERIOD_CHECK_H

#include <stdbool.h>

#include "model.h"

/* What the finder remembers of an op and of a block. */
struct vm_seen_op {
    uint32_t event;
    uint32_t live_count; /* blocks alive when it was issued */
    uint64_t live_bytes;
};

struct vm_seen_block {
    uint32_t birth;    /* number of ops issued before its allocation */
    uint32_t epoch;    /* check that `use` belongs to       */
    uint32_t op_epoch; /* op that `op_mode` belongs to      */
    uint8_t op_mode;   /* accesses of one op, merged        */
    uint8_t use;       /* what this check saw (USE_ bits)   */
};

enum vm_verdict {
    VM_REPEAT_FOREIGN, /* other long-lived blocks at the same places: not the same work again */
    VM_REPEAT_GROWS, /* the live set does not come back                                          */
    VM_REPEAT_IDLE,  /* no weight is updated: a time step, a micro-batch, inference              */
    VM_REPEAT_PARTIAL, /* most weights are left alone, a few may be updated                       */
    VM_REPEAT_UNTYPED, /* modes are unknown: something long-lived may be updated */
    VM_REPEAT_TRAINING, /* weights are read and updated */
};

struct vm_check {
    struct vm_seen_op *ops;
    size_t nops, cap_ops;
    struct vm_seen_block *blocks;
    size_t nblocks, cap_blocks;
    uint32_t epoch, op_epoch;
    size_t stale; /* ops of this check whose accesses differ, all of them of unknown direction */
};

/* Is it a kind of layer (enum vm_layer) that reads weights? */
bool vm_layer_has_weights(unsigned layer);

/* Compares the ops [n - p, n) with [n - 2p, n - p), whose signatures are equal; n = c->nops.
 * O(p + accesses). */
enum vm_verdict vm_check_repeat(struct vm_check *c, const struct vm_trace *t, size_t p);

#endif
