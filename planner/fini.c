/* Freeing what model.h describes. */
#include <stdlib.h>
#include <string.h>

#include "model.h"

void vm_trace_fini(struct vm_trace *t)
{
    for (size_t i = 0; i < t->nnames; i++)
        free(t->names[i]);
    free(t->names);
    free(t->name_slots);
    free(t->events);
    free(t->accesses);
    free(t->blocks);
    memset(t, 0, sizeof *t);
}

void vm_iteration_fini(struct vm_iteration *it)
{
    free(it->ops);
    free(it->accesses);
    free(it->blocks);
    free(it->mem);
    memset(it, 0, sizeof *it);
}

void vm_plan_fini(struct vm_plan *p)
{
    free(p->sigs);
    free(p->blocks);
    free(p->actions);
    free(p->mem);
    memset(p, 0, sizeof *p);
}
