#include "plan_build.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

uint64_t vm_iteration_max_live(const struct vm_iteration *it)
{
    int64_t *delta = calloc(it->nops + 2, sizeof *delta), now = 0, most = 0;

    if (!delta)
        return 0;
    for (size_t i = 0; i < it->nblocks; i++) {
        const struct vm_iter_block *b = &it->blocks[i];
        int64_t n = (int64_t)b->size;
        size_t from = b->alloc_op < it->nops ? b->alloc_op : it->nops;
        size_t to = b->free_op;
        if (to > it->nops) { /* lives on into the next iteration */
            now += n;
            delta[to - it->nops < it->nops ? to - it->nops : it->nops] -= n;
            to = it->nops;
        }
        delta[from] += n;
        delta[to] -= n;
    }
    for (size_t k = 0; k < it->nops; k++) {
        now += delta[k];
        if (now > most)
            most = now;
    }
    free(delta);
    return (uint64_t)most;
}

int vm_plan_begin(const char *policy, const struct vm_iteration *it, const struct vm_machine *m,
                  const uint64_t *offsets, uint64_t pool_offset, uint64_t pool_bytes,
                  struct vm_plan *plan)
{
    struct vm_plan p = {0};

    p.sigs = malloc((it->nops + 1) * sizeof *p.sigs);
    p.blocks = calloc(it->nblocks + 1, sizeof *p.blocks);
    p.mem = malloc((it->nmem + 1) * sizeof *p.mem);
    if (!p.sigs || !p.blocks || !p.mem) {
        free(p.sigs);
        free(p.blocks);
        free(p.mem);
        return VM_ENOMEM;
    }
    strncpy(p.policy, policy, sizeof p.policy - 1);
    p.nops = it->nops;
    p.nblocks = it->nblocks;
    p.nmem = it->nmem;
    for (size_t k = 0; k < it->nops; k++) {
        p.sigs[k] = it->ops[k].sig;
        p.compute_ns += it->ops[k].dur_ns;
    }
    for (size_t i = 0; i < it->nblocks; i++) {
        const struct vm_iter_block *b = &it->blocks[i];
        bool pinned = b->flags & (VM_BLK_PINNED | VM_BLK_KEEP);
        p.blocks[i] = (struct vm_plan_block){
            .size = b->size, .offset = offsets[i], .alloc_op = b->alloc_op, .free_op = b->free_op,
            .alloc_ordinal = b->alloc_ordinal, .flags = b->flags, .trace_block = b->trace_block,
            .reason = pinned ? VM_WHY_PINNED : VM_WHY_FITS};
    }
    if (it->nmem)
        memcpy(p.mem, it->mem, it->nmem * sizeof *p.mem);
    p.page_bytes = m->page_bytes;
    p.budget_pages = m->page_bytes ? m->device_bytes / m->page_bytes : 0;
    p.pool_offset = pool_offset;
    p.pool_bytes = pool_bytes;
    p.max_live_bytes = vm_iteration_max_live(it);
    p.predicted_ns = p.bound_ns = p.compute_ns;
    *plan = p;
    return VM_OK;
}

static bool continues(const struct vm_plan_action *a, const struct vm_plan_action *b)
{
    if (a->op != b->op || a->need_op != b->need_op || a->kind != b->kind || a->reason != b->reason)
        return false;
    return a->page + a->npages == b->page;
}

/* Pages that leave in pieces from the end downwards: the later piece lies before the earlier. */
static bool precedes(const struct vm_plan_action *a, const struct vm_plan_action *b)
{
    return a->kind != VM_ACT_IN && a->op == b->op && a->need_op == b->need_op &&
           a->kind == b->kind && a->reason == b->reason && b->page + b->npages == a->page;
}

static int cmp_page(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Gives every block the reason of what happens to its pages. */
static int block_reasons(const struct vm_iteration *it, const struct vm_page_units *u,
                         const struct vm_schedule *s, struct vm_plan *plan)
{
    uint64_t *shared = malloc((s->nmoves + 1) * sizeof *shared), pb = plan->page_bytes;
    uint8_t *why = calloc(it->nblocks + 1, 1);
    size_t n = 0;
    uint8_t shared_why = VM_WHY_CAPACITY;

    if (!shared || !why) {
        free(shared);
        free(why);
        return VM_ENOMEM;
    }
    for (size_t i = 0; i < s->nmoves; i++) {
        const struct vm_page_unit *un = &u->units[s->moves[i].unit];
        if (s->moves[i].kind == VM_ACT_IN || s->moves[i].kind == VM_ACT_COPY)
            continue;
        if (un->flags & VM_UNIT_SHARED) {
            shared[n++] = un->page;
            shared_why = s->moves[i].reason;
        } else if (why[un->block] != VM_WHY_CAPACITY && why[un->block] != VM_WHY_RULE) {
            why[un->block] = s->moves[i].reason;
        }
    }
    qsort(shared, n, sizeof *shared, cmp_page);
    for (size_t i = 0; i < it->nblocks; i++) {
        struct vm_plan_block *b = &plan->blocks[i];
        if (b->reason == VM_WHY_PINNED || !b->size)
            continue;
        uint64_t head = b->offset / pb, tail = (b->offset + b->size - 1) / pb;
        if (why[i])
            b->reason = why[i];
        else if (n && (bsearch(&head, shared, n, sizeof head, cmp_page) ||
                       bsearch(&tail, shared, n, sizeof tail, cmp_page)))
            b->reason = shared_why;
    }
    free(shared);
    free(why);
    return VM_OK;
}

int vm_plan_add_schedule(const struct vm_iteration *it, const struct vm_page_units *u,
                         const struct vm_schedule *s, struct vm_plan *plan)
{
    struct vm_plan_action *acts = malloc((s->nmoves + 1) * sizeof *acts);
    size_t n = 0;

    if (!acts)
        return VM_ENOMEM;
    for (size_t i = 0; i < s->nmoves; i++) {
        const struct vm_move *mv = &s->moves[i];
        struct vm_plan_action a = {.op = mv->op, .need_op = mv->need_op,
                                   .page = u->units[mv->unit].page + mv->first,
                                   .npages = mv->npages, .kind = mv->kind, .reason = mv->reason};
        if (n && continues(&acts[n - 1], &a)) {
            acts[n - 1].npages += a.npages;
        } else if (n && precedes(&acts[n - 1], &a)) {
            acts[n - 1].page = a.page;
            acts[n - 1].npages += a.npages;
        } else {
            acts[n++] = a;
        }
    }
    if (block_reasons(it, u, s, plan)) {
        free(acts);
        return VM_ENOMEM;
    }
    plan->actions = acts;
    plan->nactions = n;
    plan->predicted_ns = (uint64_t)s->sim.iteration_ns;
    plan->window_ns = n ? (uint64_t)s->window_ns : 0;
    plan->out_bytes = s->sim.out_pages * u->page_bytes;
    plan->in_bytes = s->sim.in_pages * u->page_bytes;
    return VM_OK;
}
