/* How full the device is at every op: range addition and "how far back is there room?".
 * A segment tree with lazy sums over op indices 0..n-1. Not thread-safe; one owner. */
#ifndef VM_PLANNER_SLACK_TREE_H
#define VM_PLANNER_SLACK_TREE_H

#include <stddef.h>
#include <stdint.h>

struct vm_slack_tree {
    int64_t *max, *add;
    size_t n, leaves;
};

/* Begins with values[0..n). 0 or VM_ENOMEM. */
int vm_slack_tree_init(struct vm_slack_tree *t, const int64_t *values, size_t n);
void vm_slack_tree_fini(struct vm_slack_tree *t);
/* Adds v to [lo, hi). */
void vm_slack_tree_add(struct vm_slack_tree *t, size_t lo, size_t hi, int64_t v);
/* The largest value in [lo, hi); INT64_MIN if empty. */
int64_t vm_slack_tree_max(const struct vm_slack_tree *t, size_t lo, size_t hi);
/* The largest index i in [lo, hi) whose value exceeds `limit`, plus 1; lo if there is none. */
size_t vm_slack_tree_room_from(const struct vm_slack_tree *t, size_t lo, size_t hi, int64_t limit);

#endif
