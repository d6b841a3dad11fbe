/* A plan in words: for every block why it stays or goes, what that costs, and what binds. */
#ifndef VM_PLANNER_EXPLAIN_H
#define VM_PLANNER_EXPLAIN_H

#include "model.h"

/* Writes lines of text (each ended by a newline) through put(arg, text, length); put returns 0 or a
 * negative status that ends the explanation and is returned. *it is the iteration the plan was made
 * from, *m the machine. VM_OK, VM_EINVAL if plan and iteration do not belong together, VM_ENOMEM.
 * Thread-safe. */
int vm_plan_explain(const struct vm_plan *p, const struct vm_iteration *it,
                    const struct vm_machine *m, int (*put)(void *arg, const char *text, size_t n),
                    void *arg);

#endif
