#include "iteration.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "grow.h"
#include "liveness.h"

#define MAX_SAMPLES 15 /* repeats whose op times go into the median */

/* The stretch of the trace that becomes the iteration. */
struct window {
    const struct vm_trace *t;
    uint32_t *op_event; /* event of each op of the trace            */
    size_t *ops_before; /* ops before each event; nevents + 1       */
    size_t first_op, nops;
    size_t from, to;     /* events [from, to)                        */
    size_t samples_from; /* op positions whose times count           */
    size_t samples_to;
    bool whole;         /* the trace is the iteration: nothing wraps */
    uint32_t *block_of; /* trace block -> iteration block           */
    bool *lone;         /* trace block that wraps, without an older instance in the window */
};

static int fail(struct vm_error *why, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(why->text, sizeof why->text, format, ap);
    va_end(ap);
    return VM_EINVAL;
}

static void window_fini(struct window *w)
{
    free(w->op_event);
    free(w->ops_before);
    free(w->block_of);
    free(w->lone);
}

/* Indexes the ops of the trace. *nops gets their number. */
static int window_init(struct window *w, const struct vm_trace *t, size_t *nops)
{
    *w = (struct window){.t = t};
    w->op_event = malloc((t->nevents + 1) * sizeof *w->op_event);
    w->ops_before = malloc((t->nevents + 1) * sizeof *w->ops_before);
    w->block_of = malloc((t->nblocks + 1) * sizeof *w->block_of);
    w->lone = calloc(t->nblocks + 1, sizeof *w->lone);
    if (!w->op_event || !w->ops_before || !w->block_of || !w->lone) {
        window_fini(w);
        return VM_ENOMEM;
    }
    size_t n = 0;
    for (size_t i = 0; i < t->nevents; i++) {
        w->ops_before[i] = n;
        if (t->events[i].kind == VM_EV_OP)
            w->op_event[n++] = (uint32_t)i;
    }
    w->ops_before[t->nevents] = n;
    memset(w->block_of, 0xff, (t->nblocks + 1) * sizeof *w->block_of);
    *nops = n;
    return VM_OK;
}

static bool changes_memory(const struct vm_event *e)
{
    return e->kind == VM_EV_ALLOC || e->kind == VM_EV_FREE;
}

/* The event before which the gap in front of op `position` begins. */
static size_t gap_start(const struct window *w, size_t position)
{
    return position ? (size_t)w->op_event[position - 1] + 1 : 0;
}

/* Puts the end of the window where the live bytes are least in the last period, at the last such
 * place, and its beginning at the matching place one period earlier: the later, the farther from
 * whatever the first iteration did otherwise. Places between two ops match when as much is allocated and
 * freed between them and the op that follows: what was freed before may be the program's preparation. */
static void choose_boundary(struct window *w, size_t end, size_t period)
{
    const struct vm_trace *t = w->t;
    size_t first = gap_start(w, end - period), last = w->op_event[end - 1];
    uint64_t live = 0, least = UINT64_MAX;
    for (size_t b = 0; b < t->nblocks; b++)
        if (t->blocks[b].alloc_event == VM_NONE)
            live += t->blocks[b].size;
    for (size_t i = 0; i <= last; i++) {
        const struct vm_event *e = &t->events[i];
        if (i >= first && live <= least) {
            least = live;
            w->to = i;
        }
        if (e->kind == VM_EV_ALLOC)
            live += t->blocks[e->block].size;
        else if (e->kind == VM_EV_FREE)
            live -= t->blocks[e->block].size;
    }
    w->first_op = w->ops_before[w->to] - period;
    w->nops = period;
    size_t changes = 0;
    for (size_t i = w->to; t->events[i].kind != VM_EV_OP; i++)
        changes += changes_memory(&t->events[i]);
    w->from = w->op_event[w->first_op];
    while (changes && w->from > gap_start(w, w->first_op))
        changes -= changes_memory(&t->events[--w->from]);
}

/* Is the block alive just before event `at`? */
static bool alive_at(const struct vm_trace_block *b, size_t at)
{
    return (b->alloc_event == VM_NONE || b->alloc_event < at) &&
           (b->free_event == VM_NONE || b->free_event >= at);
}

static bool within(const struct window *w, uint32_t event)
{
    return event != VM_NONE && event >= w->from && event < w->to;
}

static uint32_t op_at(const struct window *w, uint32_t event)
{
    return (uint32_t)(w->ops_before[event] - w->first_op);
}

static uint32_t new_block(struct vm_iteration *it, const struct window *w, uint32_t trace_block)
{
    const struct vm_trace_block *b = &w->t->blocks[trace_block];
    it->blocks[it->nblocks] = (struct vm_iter_block){.size = b->size,
                                                     .fixed_offset = VM_UNPLACED,
                                                     .alloc_ordinal = VM_NONE,
                                                     .flags = b->flags,
                                                     .trace_block = trace_block};
    return w->block_of[trace_block] = (uint32_t)it->nblocks++;
}

/* A wrapping block has two instances in the window: an older one that goes in it and a younger one
 * that appears in it and stays. They belong together when they were allocated at the same place. */
struct instance {
    size_t place; /* op position of the allocation, modulo the period; SIZE_MAX if unknown */
    uint64_t size;
    uint32_t block;
};

static int by_place(const void *a, const void *b)
{
    const struct instance *x = a, *y = b;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    if (x->size != y->size)
        return x->size < y->size ? -1 : 1;
    return (x->block > y->block) - (x->block < y->block);
}

static int by_size(const void *a, const void *b)
{
    const struct instance *x = a, *y = b;
    if (x->size != y->size)
        return x->size < y->size ? -1 : 1;
    return (x->block > y->block) - (x->block < y->block);
}

/* Joins equal keys of the two sorted lists; what is left over moves to their fronts. */
static void join(const struct window *w, struct vm_iteration *it, struct instance *old,
                 size_t *nold, struct instance *young, size_t *nyoung,
                 int (*order)(const void *, const void *))
{
    size_t i = 0, j = 0, left_old = 0, left_young = 0;
    bool use_place = order == by_place;
    qsort(old, *nold, sizeof *old, order);
    qsort(young, *nyoung, sizeof *young, order);
    while (i < *nold && j < *nyoung) {
        struct instance a = old[i], b = young[j];
        a.block = b.block = 0; /* compare the keys alone */
        int c = order(&a, &b);
        if (c == 0 && !(use_place && a.place == SIZE_MAX)) {
            uint32_t index = w->block_of[young[j].block];
            w->block_of[old[i].block] = index;
            it->blocks[index].free_op =
                (uint32_t)w->nops + op_at(w, w->t->blocks[old[i].block].free_event);
            i++;
            j++;
        } else if (c < 0 || (c == 0 && use_place)) {
            old[left_old++] = old[i++];
        } else {
            young[left_young++] = young[j++];
        }
    }
    while (i < *nold)
        old[left_old++] = old[i++];
    while (j < *nyoung)
        young[left_young++] = young[j++];
    *nold = left_old;
    *nyoung = left_young;
}

static void join_instances(struct window *w, struct vm_iteration *it, struct instance *old,
                           size_t nold, struct instance *young, size_t nyoung)
{
    if (!w->whole) {
        join(w, it, old, &nold, young, &nyoung, by_place);
        join(w, it, old, &nold, young, &nyoung, by_size);
    }
    for (size_t i = 0; i < nold; i++) { /* seen only going: in this iteration alone */
        uint32_t b = new_block(it, w, old[i].block);
        it->blocks[b].free_op = op_at(w, w->t->blocks[old[i].block].free_event);
    }
    /* its own end if that was seen, else its place in the next iteration */
    for (size_t j = 0; j < nyoung; j++) {
        struct vm_iter_block *b = &it->blocks[w->block_of[young[j].block]];
        uint32_t gone = w->t->blocks[young[j].block].free_event;
        b->free_op = w->whole ? (uint32_t)w->nops : (uint32_t)w->nops + b->alloc_op;
        if (!w->whole && gone != VM_NONE && gone >= w->to &&
            w->ops_before[gone] - w->first_op <= 2 * w->nops)
            b->free_op = (uint32_t)(w->ops_before[gone] - w->first_op);
        if (b->free_op <= w->nops) /* freed between the last op and the next one's first */
            b->flags &= ~(uint32_t)VM_BLK_WRAPS;
        else
            w->lone[young[j].block] = true;
    }
    for (size_t i = 0; i < it->nblocks; i++) { /* allocated after the last op: the next one's */
        struct vm_iter_block *b = &it->blocks[i];
        if (b->flags & VM_BLK_WRAPS && b->alloc_op == w->nops) {
            b->alloc_op = 0;
            b->free_op -= (uint32_t)w->nops;
            b->flags &= ~(uint32_t)VM_BLK_WRAPS;
        }
    }
}

static int collect_blocks(struct window *w, struct vm_iteration *it)
{
    const struct vm_trace *t = w->t;
    struct instance *old = malloc((t->nblocks + 1) * sizeof *old);
    struct instance *young = malloc((t->nblocks + 1) * sizeof *young);
    it->blocks = malloc((t->nblocks + 1) * sizeof *it->blocks);
    if (!old || !young || !it->blocks) {
        free(old);
        free(young);
        return VM_ENOMEM;
    }
    size_t nold = 0, nyoung = 0;
    uint32_t ordinal = 0;
    for (uint32_t i = 0; i < t->nblocks; i++) {
        const struct vm_trace_block *b = &t->blocks[i];
        bool before = alive_at(b, w->from), freed = within(w, b->free_event);
        if (before && !freed) {
            struct vm_iter_block *p = &it->blocks[new_block(it, w, i)];
            p->free_op = (uint32_t)w->nops;
            p->flags |= VM_BLK_PERSISTENT;
        } else if (before) {
            size_t place = SIZE_MAX;
            if (b->alloc_event != VM_NONE)
                place = (w->ops_before[b->alloc_event] + w->nops * (w->first_op / w->nops + 1) -
                         w->first_op) %
                        w->nops;
            old[nold++] = (struct instance){place, b->size, i};
        }
    }
    for (size_t i = w->from; i < w->to; i++) {
        if (t->events[i].kind != VM_EV_ALLOC)
            continue;
        uint32_t index = t->events[i].block;
        struct vm_iter_block *p = &it->blocks[new_block(it, w, index)];
        p->alloc_ordinal = ordinal++;
        p->alloc_op = op_at(w, (uint32_t)i);
        if (within(w, t->blocks[index].free_event)) {
            p->free_op = op_at(w, t->blocks[index].free_event);
        } else {
            p->flags |= VM_BLK_WRAPS;
            young[nyoung++] = (struct instance){p->alloc_op % w->nops, p->size, index};
        }
    }
    join_instances(w, it, old, nold, young, nyoung);
    free(old);
    free(young);
    return VM_OK;
}

static int compare_times(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Median of the measured times of op `j` over the repeats; 0 if none was measured. */
static uint64_t median_time(const struct window *w, size_t j)
{
    uint64_t sample[MAX_SAMPLES];
    size_t n = 0, q = (w->first_op + j - w->samples_from) % w->nops + w->samples_from;
    for (; q < w->samples_to && n < MAX_SAMPLES; q += w->nops) {
        uint64_t ns = w->t->events[w->op_event[q]].dur_ns;
        if (ns)
            sample[n++] = ns;
    }
    if (n == 0)
        return 0;
    qsort(sample, n, sizeof *sample, compare_times);
    return sample[(n - 1) / 2];
}

/* What is known of the host's waits for op j from any repeat: not each was looked at. */
static uint8_t host_waits(const struct window *w, size_t j)
{
    unsigned flags = 0;
    for (size_t q = (w->first_op + j - w->samples_from) % w->nops + w->samples_from; q < w->samples_to;
         q += w->nops)
        flags |= w->t->events[w->op_event[q]].flags;
    return (uint8_t)(flags & (VM_OPF_BLOCKS | VM_OPF_WAITED));
}

struct sig_time {
    uint64_t sig, ns;
};

static int compare_sig_times(const void *a, const void *b)
{
    const struct sig_time *x = a, *y = b;
    return x->sig != y->sig ? (x->sig > y->sig) - (x->sig < y->sig) : compare_times(&x->ns, &y->ns);
}

/* Ops that were not measured in any repeat take the median time of the same work elsewhere in the trace. */
static int fill_times(const struct vm_trace *t, struct vm_iteration *it)
{
    struct sig_time *known = NULL;
    size_t n = 0;
    for (size_t j = 0; j < it->nops; j++) {
        if (it->ops[j].dur_ns)
            continue;
        if (!known) {
            known = malloc((t->nevents + 1) * sizeof *known);
            if (!known)
                return VM_ENOMEM;
            for (size_t i = 0; i < t->nevents; i++)
                if (t->events[i].kind == VM_EV_OP && t->events[i].dur_ns)
                    known[n++] = (struct sig_time){t->events[i].sig, t->events[i].dur_ns};
            qsort(known, n, sizeof *known, compare_sig_times);
        }
        size_t from = 0, to = n; /* the first of this signature */
        while (from < to) {
            size_t mid = (from + to) / 2;
            if (known[mid].sig < it->ops[j].sig)
                from = mid + 1;
            else
                to = mid;
        }
        for (to = from; to < n && known[to].sig == it->ops[j].sig; to++)
            ;
        if (to > from)
            it->ops[j].dur_ns = known[from + (to - from - 1) / 2].ns;
    }
    free(known);
    return VM_OK;
}

/* Is this trace block the instance of a wrapping block that the iteration before left? */
static bool is_older(const struct window *w, const struct vm_iteration *it, uint32_t trace_block)
{
    const struct vm_iter_block *b = &it->blocks[w->block_of[trace_block]];
    return (b->flags & VM_BLK_WRAPS) && b->trace_block != trace_block;
}

/* Where each block stands among the accesses of the op being made. */
struct merging {
    uint32_t *op;    /* last op that named the block */
    uint32_t *place; /* and its access               */
};

static void add_access(struct vm_iteration *it, struct merging *m, uint32_t op, struct vm_access a)
{
    struct vm_access *first = &it->accesses[m->place[a.block]];
    if (m->op[a.block] == op && first->reserved == a.reserved) {
        first->mode = vm_mode_merge(first->mode, a.mode);
        if (first->role == VM_ROLE_NONE)
            first->role = a.role;
        return;
    }
    m->op[a.block] = op;
    m->place[a.block] = (uint32_t)it->naccesses;
    it->accesses[it->naccesses++] = a;
}

/* An address of unknown direction that the op of the neighbouring repeat does not show, nor one of a
 * block of that size: a parameter that happened to hold it (period_check.c). */
static bool is_stale(const struct window *w, size_t j, struct vm_access a)
{
    size_t at = w->first_op + j;
    if (w->whole || !(a.mode & VM_UNKNOWN))
        return false;
    at = at >= w->samples_from + w->nops ? at - w->nops : at + w->nops;
    if (at >= w->samples_to)
        return false;
    const struct vm_event *e = &w->t->events[w->op_event[at]];
    for (uint32_t k = 0; k < e->nacc; k++) {
        uint32_t other = w->t->accesses[e->acc + k].block;
        if (other == a.block || w->t->blocks[other].size == w->t->blocks[a.block].size)
            return false;
    }
    return true;
}

/* The accesses of op j, those to older instances marked in `reserved`. An older instance that is
 * not in the window shows itself one period later, as the use of a block that was young in it. */
static void add_accesses(const struct window *w, struct vm_iteration *it, struct merging *m,
                         size_t j)
{
    const struct vm_trace *t = w->t;
    size_t later = w->first_op + w->nops + j;
    const struct vm_event *e = &t->events[w->op_event[w->first_op + j]];
    for (uint32_t k = 0; k < e->nacc; k++) {
        struct vm_access a = t->accesses[e->acc + k];
        if (is_stale(w, j, a))
            continue;
        a.reserved = is_older(w, it, a.block);
        a.block = w->block_of[a.block];
        add_access(it, m, (uint32_t)j, a);
    }
    if (w->whole || later >= w->samples_to)
        return;
    e = &t->events[w->op_event[later]];
    for (uint32_t k = 0; k < e->nacc; k++) {
        struct vm_access a = t->accesses[e->acc + k];
        if (!w->lone[a.block])
            continue;
        a.reserved = 1;
        a.block = w->block_of[a.block];
        add_access(it, m, (uint32_t)j, a);
    }
}

static size_t most_accesses(const struct window *w)
{
    size_t most = 0;
    for (size_t q = w->first_op; q < w->first_op + 2 * w->nops && q < w->samples_to; q++)
        most += w->t->events[w->op_event[q]].nacc;
    return most;
}

static int collect_ops(const struct window *w, struct vm_iteration *it)
{
    it->ops = malloc((w->nops + 1) * sizeof *it->ops);
    it->accesses = malloc((most_accesses(w) + 1) * sizeof *it->accesses);
    struct merging m = {.op = malloc((it->nblocks + 1) * sizeof *m.op),
                        .place = calloc(it->nblocks + 1, sizeof *m.place)};
    bool ok = it->ops && it->accesses && m.op && m.place;
    if (ok)
        memset(m.op, 0xff, (it->nblocks + 1) * sizeof *m.op);
    for (size_t j = 0; ok && j < w->nops; j++) {
        uint32_t event = w->op_event[w->first_op + j];
        const struct vm_event *e = &w->t->events[event];
        struct vm_iter_op *op = &it->ops[it->nops++];
        *op = (struct vm_iter_op){.sig = e->sig,
                                  .dur_ns = median_time(w, j),
                                  .stream = e->stream,
                                  .name = e->name,
                                  .acc = (uint32_t)it->naccesses,
                                  .event = event,
                                  .kind = e->op_kind,
                                  .layer = e->layer,
                                  .flags = e->flags | host_waits(w, j)};
        add_accesses(w, it, &m, j);
        op->nacc = (uint32_t)it->naccesses - op->acc;
    }
    free(m.op);
    free(m.place);
    return ok ? VM_OK : VM_ENOMEM;
}

static int add_memory(struct vm_iteration *it, size_t *cap, uint32_t op, uint32_t block,
                      bool is_free)
{
    if (VM_GROW(it->mem, *cap, it->nmem + 1) < 0)
        return VM_ENOMEM;
    size_t at = it->nmem++;
    for (; at > 0 && it->mem[at - 1].op > op; at--)
        it->mem[at] = it->mem[at - 1];
    it->mem[at] = (struct vm_iter_mem){.op = op, .block = block, .is_free = is_free};
    return VM_OK;
}

static int collect_memory(const struct window *w, struct vm_iteration *it)
{
    size_t cap = 0;
    for (size_t i = w->from; i < w->to; i++) {
        const struct vm_event *e = &w->t->events[i];
        if (changes_memory(e) && add_memory(it, &cap, op_at(w, (uint32_t)i), w->block_of[e->block],
                                            e->kind == VM_EV_FREE) < 0)
            return VM_ENOMEM;
    }
    /* frees of older instances that are not in the window, where the younger ones were freed */
    for (uint32_t i = 0; i < it->nblocks; i++) {
        const struct vm_iter_block *b = &it->blocks[i];
        if (w->lone[b->trace_block] && w->t->blocks[b->trace_block].free_event != VM_NONE &&
            b->free_op >= w->nops &&
            add_memory(it, &cap, b->free_op - (uint32_t)w->nops, i, true) < 0)
            return VM_ENOMEM;
    }
    return VM_OK;
}

static int busiest_stream(struct vm_iteration *it)
{
    uint64_t *busy = NULL;
    size_t cap = 0, n = 0;
    for (size_t i = 0; i < it->nops; i++) {
        uint32_t s = it->ops[i].stream;
        if (s > 65535)
            s = 65535; /* streams beyond count as one */
        if (VM_GROW(busy, cap, (size_t)s + 1) < 0) {
            free(busy);
            return VM_ENOMEM;
        }
        for (; n <= s; n++)
            busy[n] = 0;
        busy[s] += it->ops[i].dur_ns;
        if (busy[s] > it->duration_ns)
            it->duration_ns = busy[s];
    }
    free(busy);
    return VM_OK;
}

/* Does a block live on after its successor has been allocated? Then one place cannot serve both. Where both
 * happen before the same op, their order says. */
static bool outlives_successor(const struct vm_iteration *it)
{
    for (size_t i = 0; i < it->nblocks; i++)
        if (it->blocks[i].free_op > it->blocks[i].alloc_op + it->nops)
            return true;
    for (size_t i = 0, from = 0; i < it->nmem; i++) {
        const struct vm_iter_mem *m = &it->mem[i];
        if (m->op != it->mem[from].op)
            from = i;
        if (!m->is_free || !(it->blocks[m->block].flags & VM_BLK_WRAPS))
            continue;
        for (size_t k = from; k < i; k++)
            if (it->mem[k].block == m->block && !it->mem[k].is_free)
                return true;
    }
    return false;
}

/* Index in the doubled iteration of the instance of block b that was born in round c (modulo 2).
 * Persistent blocks come first and have one. */
static uint32_t instance(const struct vm_iteration *it, uint32_t persistent, uint32_t b, unsigned c)
{
    return b < persistent || (c & 1) == 0 ? b : b + (uint32_t)it->nblocks - persistent;
}

static uint32_t count_persistent(const struct vm_iteration *it)
{
    uint32_t n = 0;
    while (n < it->nblocks && (it->blocks[n].flags & VM_BLK_PERSISTENT))
        n++;
    return n;
}

static void double_blocks(const struct vm_iteration *it, struct vm_iteration *out)
{
    uint32_t nops = (uint32_t)it->nops, persistent = count_persistent(it), allocs = 0;
    for (size_t i = 0; i < it->nmem; i++)
        allocs += !it->mem[i].is_free;
    for (unsigned c = 0; c < 2; c++)
        for (uint32_t b = c ? persistent : 0; b < it->nblocks; b++) {
            struct vm_iter_block k = it->blocks[b];
            if (b < persistent) {
                k.free_op = 2 * nops;
            } else {
                k.alloc_op += c * nops;
                k.free_op += c * nops;
                if (k.alloc_ordinal != VM_NONE)
                    k.alloc_ordinal += c * allocs;
                k.flags &= ~(uint32_t)VM_BLK_WRAPS;
                if (k.free_op > 2 * nops)
                    k.flags |= VM_BLK_WRAPS;
            }
            out->blocks[out->nblocks++] = k;
        }
}

/* Two rounds of the program as one iteration, so that both instances have a place of their own. */
static int double_iteration(struct vm_iteration *it)
{
    struct vm_iteration out = {.periods = 2, .duration_ns = 2 * it->duration_ns};
    out.ops = malloc((2 * it->nops + 1) * sizeof *out.ops);
    out.accesses = malloc((2 * it->naccesses + 1) * sizeof *out.accesses);
    out.blocks = malloc((2 * it->nblocks + 1) * sizeof *out.blocks);
    out.mem = malloc((2 * it->nmem + 1) * sizeof *out.mem);
    if (!out.ops || !out.accesses || !out.blocks || !out.mem) {
        vm_iteration_fini(&out);
        return VM_ENOMEM;
    }
    uint32_t persistent = count_persistent(it);
    double_blocks(it, &out);
    for (unsigned c = 0; c < 2; c++) {
        for (size_t i = 0; i < it->nops; i++) {
            struct vm_iter_op op = it->ops[i];
            op.acc += c * (uint32_t)it->naccesses;
            out.ops[out.nops++] = op;
        }
        for (size_t i = 0; i < it->naccesses; i++) {
            struct vm_access a = it->accesses[i];
            a.block = instance(it, persistent, a.block, a.reserved ? c + 1 : c);
            out.accesses[out.naccesses++] = a;
        }
        for (size_t i = 0; i < it->nmem; i++) {
            struct vm_iter_mem m = it->mem[i];
            bool older = m.is_free && (it->blocks[m.block].flags & VM_BLK_WRAPS);
            m.block = instance(it, persistent, m.block, older ? c + 1 : c);
            m.op += c * (uint32_t)it->nops;
            out.mem[out.nmem++] = m;
        }
    }
    vm_iteration_fini(it);
    *it = out;
    return VM_OK;
}

static int build(struct window *w, struct vm_iteration *it)
{
    struct vm_iteration out = {.periods = 1};
    int rc = collect_blocks(w, &out);
    if (rc == VM_OK)
        rc = collect_ops(w, &out);
    if (rc == VM_OK)
        rc = fill_times(w->t, &out);
    if (rc == VM_OK)
        rc = collect_memory(w, &out);
    if (rc == VM_OK)
        rc = busiest_stream(&out);
    if (rc == VM_OK && outlives_successor(&out))
        rc = double_iteration(&out);
    for (size_t i = 0; i < out.naccesses; i++)
        out.accesses[i].reserved = 0;
    if (rc == VM_OK)
        *it = out;
    else
        vm_iteration_fini(&out);
    return rc;
}

int vm_iteration_build(const struct vm_trace *t, const struct vm_period *p, struct vm_iteration *it,
                       struct vm_error *why)
{
    struct window w;
    size_t nops;
    int rc = window_init(&w, t, &nops);
    if (rc < 0)
        return rc;
    if (p->ops == 0 || p->repeats < 2 || p->end > nops || p->ops > p->end / 2) {
        window_fini(&w);
        return fail(why,
                    "a period of %zu ops that ends at op %zu does not fit into a trace of %zu ops",
                    p->ops, p->end, nops);
    }
    size_t repeats = p->repeats < MAX_SAMPLES ? p->repeats : MAX_SAMPLES;
    if (repeats > p->end / p->ops)
        repeats = p->end / p->ops;
    w.samples_from = p->end - repeats * p->ops;
    w.samples_to = p->end;
    choose_boundary(&w, p->end, p->ops);
    rc = build(&w, it);
    window_fini(&w);
    return rc;
}

int vm_iteration_whole(const struct vm_trace *t, struct vm_iteration *it, struct vm_error *why)
{
    struct window w;
    size_t nops;
    int rc = window_init(&w, t, &nops);
    if (rc < 0)
        return rc;
    if (nops == 0) {
        window_fini(&w);
        return fail(why, "the trace has no operation");
    }
    w.nops = w.samples_to = nops;
    w.to = t->nevents;
    w.whole = true;
    rc = build(&w, it);
    window_fini(&w);
    return rc;
}

static void *copy_of(const void *items, size_t n, size_t size)
{
    void *p = malloc((n + 1) * size);
    if (p && n)
        memcpy(p, items, n * size);
    return p;
}

int vm_iteration_copy(const struct vm_iteration *it, struct vm_iteration *out)
{
    struct vm_iteration c = *it;
    c.ops = copy_of(it->ops, it->nops, sizeof *it->ops);
    c.accesses = copy_of(it->accesses, it->naccesses, sizeof *it->accesses);
    c.blocks = copy_of(it->blocks, it->nblocks, sizeof *it->blocks);
    c.mem = copy_of(it->mem, it->nmem, sizeof *it->mem);
    if (!c.ops || !c.accesses || !c.blocks || !c.mem) {
        vm_iteration_fini(&c);
        return VM_ENOMEM;
    }
    *out = c;
    return VM_OK;
}
