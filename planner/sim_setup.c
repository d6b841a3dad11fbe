/* The plan simulator's state at its beginning and end (sim_state.h). */
#include <stdlib.h>
#include <string.h>

#include "sim_state.h"

#define MOST_OPS (UINT32_MAX >> 6) /* so that absolute ops fit */

bool vm_sim_lingers(const struct vm_sim *s, const struct vm_page_unit *un)
{
    return s->m->unmap_waits && un->linger;
}

/* The op with which a lingering unit ends. */
static uint32_t end_op(const struct vm_page_units *u, const struct vm_page_unit *un)
{
    return (u->uses[un->use + un->nuses - 1].op + un->linger) % (uint32_t)u->nops;
}

static int index_ends(struct vm_sim *s)
{
    const struct vm_page_units *u = s->u;

    s->end_first = calloc(u->nops + 3, sizeof *s->end_first);
    s->ends = malloc((u->nunits + 1) * sizeof *s->ends);
    if (!s->end_first || !s->ends)
        return VM_ENOMEM;
    for (size_t i = 0; i < u->nunits; i++)
        if (vm_sim_lingers(s, &u->units[i]))
            s->end_first[end_op(u, &u->units[i]) + 2]++;
    for (size_t k = 2; k < u->nops + 3; k++)
        s->end_first[k] += s->end_first[k - 1];
    for (uint32_t i = 0; i < u->nunits; i++)
        if (vm_sim_lingers(s, &u->units[i]))
            s->ends[s->end_first[end_op(u, &u->units[i]) + 1]++] = i;
    return VM_OK;
}

int vm_sim_init(struct vm_sim *s)
{
    const struct vm_page_units *u = s->u;

    if (u->nops > MOST_OPS)
        return VM_EINVAL;
    s->nops = (uint32_t)u->nops;
    s->su = calloc(u->nunits + 1, sizeof *s->su);
    s->owner = malloc((u->nslots + 1) * sizeof *s->owner);
    s->end_at = malloc(VM_SIM_RUN_AHEAD * sizeof *s->end_at);
    s->move_first = calloc(u->nops + 2, sizeof *s->move_first);
    if (!s->su || !s->owner || !s->end_at || !s->move_first)
        return VM_ENOMEM;
    if (vm_sim_index_births(s) || index_ends(s))
        return VM_ENOMEM;
    memset(s->owner, 0xff, (u->nslots + 1) * sizeof *s->owner);
    for (size_t i = 0; i < s->nmoves; i++) {
        if (s->moves[i].op >= u->nops || s->moves[i].unit >= u->nunits ||
            (i && s->moves[i].op < s->moves[i - 1].op))
            return VM_EINVAL;
        s->move_first[s->moves[i].op + 1]++;
    }
    for (size_t k = 0; k < u->nops; k++)
        s->move_first[k + 1] += s->move_first[k];
    for (size_t i = 0; i < u->nunits; i++) {
        const struct vm_page_unit *un = &u->units[i];
        s->su[i].use = VM_NONE;
        s->su[i].clean = un->npages;
        if (!un->nuses && (un->flags & VM_UNIT_PINNED))
            s->free_pages += un->npages; /* taken below */
    }
    uint64_t pinned = s->free_pages;
    if (pinned > s->capacity)
        return VM_UNFIT;
    s->free_pages = s->capacity - pinned;
    return VM_OK;
}

void vm_sim_fini(struct vm_sim *s)
{
    free(s->su);
    free(s->owner);
    free(s->birth_at);
    free(s->births);
    free(s->end_first);
    free(s->ends);
    free(s->end_at);
    free(s->move_first);
    free(s->out.r);
    free(s->in.r);
    free(s->urgent.r);
    free(s->out_done.d);
    free(s->in_done.d);
    free(s->kept);
    vm_use_heap_fini(&s->heap);
}
