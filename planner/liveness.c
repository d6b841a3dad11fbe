#include "liveness.h"

#include <string.h>

#include "grow.h"

uint8_t vm_mode_merge(uint8_t a, uint8_t b)
{
    uint8_t m = a | b;
    if (m & (VM_READ | VM_UNKNOWN))
        m &= (uint8_t)~VM_TOTAL;
    return m;
}

bool vm_mode_reads(uint8_t mode)
{
    return (mode & (VM_READ | VM_UNKNOWN)) || ((mode & VM_WRITE) && !(mode & VM_TOTAL));
}

bool vm_mode_writes(uint8_t mode)
{
    return (mode & (VM_WRITE | VM_UNKNOWN)) != 0;
}

void vm_liveness_fini(struct vm_liveness *l)
{
    free(l->uses);
    free(l->first_use);
    free(l->gaps);
    free(l->alloc_bytes);
    free(l->live_bytes);
    free(l->work_bytes);
    memset(l, 0, sizeof *l);
}

/* Uses of a wrapping block in the order of its life: from its allocation to the end, then from the
 * beginning to its end. */
static bool in_second_part(const struct vm_iter_block *b, uint32_t op)
{
    return (b->flags & VM_BLK_WRAPS) && op < b->alloc_op;
}

static void append_use(struct vm_liveness *l, uint32_t *fill, uint32_t block, uint32_t op,
                       uint8_t mode)
{
    uint32_t n = fill[block];
    if (n > l->first_use[block] && l->uses[n - 1].op == op) {
        l->uses[n - 1].mode = vm_mode_merge(l->uses[n - 1].mode, mode);
        return;
    }
    l->uses[fill[block]++] = (struct vm_use){.op = op, .mode = mode};
}

/* Groups the accesses by block: counting sort, first parts before second parts. */
static int collect_uses(const struct vm_iteration *it, struct vm_liveness *l)
{
    size_t n = it->nblocks;
    uint32_t *fill = malloc((n + 1) * sizeof *fill);
    l->first_use = calloc(n + 2, sizeof *l->first_use);
    l->uses = malloc((it->naccesses + 1) * sizeof *l->uses);
    if (!fill || !l->first_use || !l->uses) {
        free(fill);
        return VM_ENOMEM;
    }
    for (size_t i = 0; i < it->naccesses; i++)
        l->first_use[it->accesses[i].block + 1]++;
    for (size_t b = 0; b < n; b++)
        l->first_use[b + 1] += l->first_use[b];
    memcpy(fill, l->first_use, (n + 1) * sizeof *fill);
    for (int part = 0; part < 2; part++)
        for (uint32_t i = 0; i < it->nops; i++)
            for (uint32_t k = 0; k < it->ops[i].nacc; k++) {
                const struct vm_access *a = &it->accesses[it->ops[i].acc + k];
                if (in_second_part(&it->blocks[a->block], i) == (part == 1))
                    append_use(l, fill, a->block, i + (part ? (uint32_t)it->nops : 0), a->mode);
            }
    /* close the holes that merged uses left */
    uint32_t to = 0;
    for (size_t b = 0; b < n; b++) {
        uint32_t from = l->first_use[b], end = fill[b];
        l->first_use[b] = to;
        memmove(l->uses + to, l->uses + from, (end - from) * sizeof *l->uses);
        to += end - from;
    }
    l->first_use[n] = to;
    l->nuses = to;
    free(fill);
    return VM_OK;
}

static void find_gaps(const struct vm_iteration *it, struct vm_liveness *l, uint32_t block)
{
    const struct vm_use *u = l->uses + l->first_use[block];
    size_t n = l->first_use[block + 1] - l->first_use[block];
    bool cyclic = (it->blocks[block].flags & VM_BLK_PERSISTENT) != 0;
    if (n == 0 || (n == 1 && !cyclic))
        return;
    size_t first = l->ngaps, count = cyclic ? n : n - 1;
    for (size_t i = 0; i < count; i++) {
        const struct vm_use *next = &u[(i + 1) % n];
        uint32_t to = next->op + (i + 1 == n ? (uint32_t)it->nops : 0);
        l->gaps[l->ngaps++] = (struct vm_gap){
            .block = block, .from = u[i].op, .to = to, .cold = vm_mode_reads(next->mode)};
    }
    /* Dirty: written since the last cold gap, or never away. A cyclic block needs a second round.
     */
    bool dirty = true, away = false;
    for (int round = 0; round < (cyclic ? 2 : 1); round++)
        for (size_t i = 0; i < count; i++) {
            struct vm_gap *g = &l->gaps[first + i];
            dirty = dirty || vm_mode_writes(u[i].mode);
            g->clean = g->cold && away && !dirty;
            if (g->cold) {
                away = true;
                dirty = false;
            } else {
                away = false; /* overwritten: a copy on the host is of no more use */
                dirty = true;
            }
        }
}

/* Adds `bytes` to [from, to) of a cyclic curve held as differences. */
static void add_span(uint64_t *diff, size_t nops, size_t from, size_t to, uint64_t bytes)
{
    if (from >= to)
        return;
    if (to - from >= nops) {
        diff[0] += bytes;
        return;
    }
    from %= nops;
    to = (to - 1) % nops + 1;
    diff[from] += bytes;
    if (to < nops)
        diff[to] -= bytes;
    if (to <= from)
        diff[0] += bytes;
}

static void curves(const struct vm_iteration *it, struct vm_liveness *l)
{
    size_t nops = it->nops;
    for (size_t b = 0; b < it->nblocks; b++) {
        const struct vm_iter_block *k = &it->blocks[b];
        add_span(l->alloc_bytes, nops, k->alloc_op, k->free_op, k->size);
        if (l->first_use[b] == l->first_use[b + 1] && (k->flags & VM_BLK_PERSISTENT))
            l->live_bytes[0] += k->size; /* nobody knows: its contents may matter later */
        for (uint32_t i = l->first_use[b]; i < l->first_use[b + 1]; i++) {
            size_t op = l->uses[i].op % nops;
            add_span(l->live_bytes, nops, op, op + 1, k->size);
            l->work_bytes[op] += k->size;
        }
    }
    for (size_t i = 0; i < l->ngaps; i++) {
        const struct vm_gap *g = &l->gaps[i];
        if (g->cold && g->to > g->from + 1)
            add_span(l->live_bytes, nops, (size_t)g->from + 1, g->to, it->blocks[g->block].size);
    }
    for (size_t i = 0; i < nops; i++) {
        if (i) {
            l->alloc_bytes[i] += l->alloc_bytes[i - 1];
            l->live_bytes[i] += l->live_bytes[i - 1];
        }
        if (l->alloc_bytes[i] > l->peak_alloc) {
            l->peak_alloc = l->alloc_bytes[i];
            l->peak_alloc_op = (uint32_t)i;
        }
        if (l->live_bytes[i] > l->peak_live) {
            l->peak_live = l->live_bytes[i];
            l->peak_live_op = (uint32_t)i;
        }
        if (l->work_bytes[i] > l->peak_work) {
            l->peak_work = l->work_bytes[i];
            l->peak_work_op = (uint32_t)i;
        }
    }
}

int vm_liveness_build(const struct vm_iteration *it, struct vm_liveness *out)
{
    struct vm_liveness l = {.nops = it->nops, .nblocks = it->nblocks};
    l.alloc_bytes = calloc(it->nops + 1, sizeof *l.alloc_bytes);
    l.live_bytes = calloc(it->nops + 1, sizeof *l.live_bytes);
    l.work_bytes = calloc(it->nops + 1, sizeof *l.work_bytes);
    int rc = l.alloc_bytes && l.live_bytes && l.work_bytes ? collect_uses(it, &l) : VM_ENOMEM;
    if (rc == VM_OK && !(l.gaps = malloc((l.nuses + 1) * sizeof *l.gaps)))
        rc = VM_ENOMEM;
    if (rc < 0) {
        vm_liveness_fini(&l);
        return rc;
    }
    for (uint32_t b = 0; b < it->nblocks; b++)
        find_gaps(it, &l, b);
    curves(it, &l);
    *out = l;
    return VM_OK;
}

uint64_t vm_liveness_work_pages(const struct vm_iteration *it, uint64_t page_bytes)
{
    uint64_t most = 0;
    for (size_t i = 0; i < it->nops; i++) {
        uint64_t pages = 0, small = 0;
        for (uint32_t k = 0; k < it->ops[i].nacc; k++) {
            uint64_t size = it->blocks[it->accesses[it->ops[i].acc + k].block].size;
            if (size < page_bytes)
                small += size;
            else
                pages += (size + page_bytes - 1) / page_bytes;
        }
        pages += (small + page_bytes - 1) / page_bytes;
        if (pages > most)
            most = pages;
    }
    return most;
}

uint64_t vm_liveness_excess(const struct vm_liveness *l, uint64_t budget)
{
    return l->peak_live > budget ? l->peak_live - budget : 0;
}
