#include "explain.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB 1048576.0

/* What happens to a block over the iteration. */
struct story {
    uint32_t block;
    uint64_t out_pages, in_pages, drop_pages;
    uint32_t out_op, back_op;   /* first departure, last op needing a return    */
    uint32_t cold_from, cold_to; /* longest stretch without a use, in op time    */
    double cold_ns;
};

struct teller {
    const struct vm_plan *p;
    const struct vm_iteration *it;
    const struct vm_machine *m;
    int (*put)(void *, const char *, size_t);
    void *arg;
    struct story *stories;
    double *prefix; /* op time before op k */
    uint64_t last_page;
    uint32_t *page_first; /* blocks by page: CSR over the pages of the plan's blocks */
    uint32_t *page_block;
    uint64_t base_page, npages;
};

__attribute__((format(printf, 2, 3))) static int say(struct teller *t, const char *format, ...)
{
    char line[512];
    va_list ap;

    va_start(ap, format);
    int n = vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    if (n < 0)
        return VM_EINVAL;
    return t->put(t->arg, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

static const char *reason_text(uint8_t reason)
{
    switch (reason) {
    case VM_WHY_FITS:
        return "its place is not needed";
    case VM_WHY_CAPACITY:
        return "capacity: what lives meanwhile exceeds the budget";
    case VM_WHY_LINK:
        return "link: there is no time to move it";
    case VM_WHY_TIME:
        return "time: it is never idle long enough to hide a move";
    case VM_WHY_RULE:
        return "the policy's rule";
    case VM_WHY_PINNED:
        return "pinned: it must not move";
    case VM_WHY_DEAD:
        return "its contents are dead, its place is reused without a copy";
    default:
        return "no reason recorded";
    }
}

/* ---- which block an action's pages belong to ---------------------------------------------------*/

static int index_pages(struct teller *t)
{
    const struct vm_plan *p = t->p;
    uint64_t lo = UINT64_MAX, hi = 0, pb = p->page_bytes ? p->page_bytes : 1;

    for (size_t i = 0; i < p->nactions; i++) {
        lo = p->actions[i].page < lo ? p->actions[i].page : lo;
        hi = p->actions[i].page + p->actions[i].npages > hi ? p->actions[i].page + p->actions[i].npages
                                                            : hi;
    }
    t->base_page = p->nactions ? lo : 0;
    t->npages = p->nactions ? hi - lo : 0;
    t->page_first = calloc(t->npages + 2, sizeof *t->page_first);
    if (!t->page_first)
        return VM_ENOMEM;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < p->nblocks; i++) {
            const struct vm_plan_block *b = &p->blocks[i];
            if (!b->size)
                continue;
            uint64_t from = b->offset / pb, to = (b->offset + b->size - 1) / pb + 1;
            from = from > lo ? from : lo;
            to = to < hi ? to : hi;
            for (uint64_t q = from; q < to; q++) {
                if (!pass)
                    t->page_first[q - lo + 1]++;
                else
                    t->page_block[t->page_first[q - lo]++] = (uint32_t)i;
            }
        }
        if (pass)
            break;
        for (uint64_t q = 0; q < t->npages; q++)
            t->page_first[q + 1] += t->page_first[q];
        t->page_block = malloc(((size_t)t->page_first[t->npages] + 1) * sizeof *t->page_block);
        if (!t->page_block)
            return VM_ENOMEM;
    }
    memmove(t->page_first + 1, t->page_first, t->npages * sizeof *t->page_first);
    t->page_first[0] = 0;
    return VM_OK;
}

static bool lives_at(const struct vm_plan *p, const struct vm_plan_block *b, uint32_t op)
{
    uint32_t n = (uint32_t)p->nops;

    if (b->flags & VM_BLK_PERSISTENT)
        return true;
    return (op >= b->alloc_op && op < b->free_op) || op + n < b->free_op;
}

static void tell_actions(struct teller *t)
{
    for (size_t i = 0; i < t->p->nactions; i++) {
        const struct vm_plan_action *a = &t->p->actions[i];
        for (uint64_t q = a->page; q < a->page + a->npages; q++)
            for (uint32_t j = t->page_first[q - t->base_page];
                 j < t->page_first[q - t->base_page + 1]; j++) {
                struct story *s = &t->stories[t->page_block[j]];
                uint32_t at = a->kind == VM_ACT_IN ? a->need_op % (uint32_t)t->p->nops : a->op;
                if (!lives_at(t->p, &t->p->blocks[s->block], at))
                    continue;
                if (a->kind == VM_ACT_OUT) {
                    s->out_pages++;
                    s->out_op = s->out_op == VM_NONE || a->op < s->out_op ? a->op : s->out_op;
                } else if (a->kind == VM_ACT_IN) {
                    s->in_pages++;
                    s->back_op = at;
                } else if (a->kind == VM_ACT_DROP) {
                    s->drop_pages++;
                }
            }
    }
}

/* ---- cold stretches ---------------------------------------------------------------------------*/

static void note_cold(struct teller *t, struct story *s, uint32_t from, uint32_t to, bool wraps)
{
    double ns = t->prefix[to] - t->prefix[from + 1] + (wraps ? t->prefix[t->it->nops] : 0);

    if (ns > s->cold_ns) {
        s->cold_ns = ns;
        s->cold_from = from;
        s->cold_to = to;
    }
}

static int find_cold(struct teller *t)
{
    const struct vm_iteration *it = t->it;
    uint32_t *first = malloc((it->nblocks + 1) * sizeof *first);
    uint32_t *last = malloc((it->nblocks + 1) * sizeof *last);

    if (!first || !last) {
        free(first);
        free(last);
        return VM_ENOMEM;
    }
    memset(first, 0xff, it->nblocks * sizeof *first);
    memset(last, 0xff, it->nblocks * sizeof *last);
    for (uint32_t k = 0; k < it->nops; k++)
        for (uint32_t i = it->ops[k].acc; i < it->ops[k].acc + it->ops[k].nacc; i++) {
            uint32_t b = it->accesses[i].block;
            if (first[b] == VM_NONE)
                first[b] = k;
            else if (last[b] != k)
                note_cold(t, &t->stories[b], last[b], k, false);
            last[b] = k;
        }
    for (uint32_t b = 0; b < it->nblocks; b++)
        if ((it->blocks[b].flags & VM_BLK_PERSISTENT) && first[b] != VM_NONE)
            note_cold(t, &t->stories[b], last[b], first[b], true);
    free(first);
    free(last);
    return VM_OK;
}

/* ---- the text ---------------------------------------------------------------------------------*/

static int tell_summary(struct teller *t)
{
    const struct vm_plan *p = t->p;
    double budget = (double)t->m->device_bytes, live = (double)p->max_live_bytes;
    double time = (double)p->predicted_ns, ops = (double)p->compute_ns, bound = (double)p->bound_ns;
    double out_ms = t->m->out_bps > 0 ? (double)p->out_bytes / t->m->out_bps * 1e3 : 0;
    double in_ms = t->m->in_bps > 0 ? (double)p->in_bytes / t->m->in_bps * 1e3 : 0;
    int rc = say(t, "policy %s: %zu ops, %zu blocks, at most %.1f MiB live at once, budget %.1f MiB\n",
                 p->policy, p->nops, p->nblocks, live / MIB, budget / MIB);

    if (!rc)
        rc = say(t,
                 "predicted iteration: %.3f ms, the ops alone %.3f ms (slowdown %.3f); no schedule is "
                 "faster than %.3f ms\n",
                 time / 1e6, ops / 1e6, ops > 0 ? time / ops : 1.0, bound / 1e6);
    if (!rc)
        rc = say(t, "moves out %.1f MiB (%.3f ms of link), in %.1f MiB (%.3f ms of link)\n",
                 (double)p->out_bytes / MIB, out_ms, (double)p->in_bytes / MIB, in_ms);
    if (rc)
        return rc;
    if (!p->nactions)
        return say(t, live <= budget ? "binds: nothing; all that lives at once fits the budget\n"
                                     : "binds: capacity; pages move on demand only\n");
    if (time > 1.01 * ops)
        return say(t, "binds: link; %.3f ms a iteration wait for copies\n", (time - ops) / 1e6);
    return say(t, "binds: capacity; the copies hide behind the ops\n");
}

static int tell_block(struct teller *t, const struct story *s)
{
    const struct vm_plan_block *b = &t->p->blocks[s->block];
    double pb = (double)t->p->page_bytes;
    double out_ms = t->m->out_bps > 0 ? (double)s->out_pages * pb / t->m->out_bps * 1e3 : 0;
    double in_ms = t->m->in_bps > 0 ? (double)s->in_pages * pb / t->m->in_bps * 1e3 : 0;
    char life[48], cold[80] = "";

    if (b->flags & VM_BLK_PERSISTENT)
        snprintf(life, sizeof life, "always alive");
    else
        snprintf(life, sizeof life, "ops %u..%u", b->alloc_op, b->free_op - 1);
    if (s->cold_ns > 0)
        snprintf(cold, sizeof cold, "; unused longest between ops %u and %u, %.3f ms", s->cold_from,
                 s->cold_to, s->cold_ns / 1e6);
    if (s->out_pages || s->in_pages)
        return say(t,
                   "block %u, %.3f MiB, %s: goes after op %u, is back for op %u; %.1f MiB out (%.3f ms), "
                   "%.1f MiB in (%.3f ms)%s: %s\n",
                   s->block, (double)b->size / MIB, life, s->out_op == VM_NONE ? 0 : s->out_op,
                   s->back_op == VM_NONE ? 0 : s->back_op, (double)s->out_pages * pb / MIB, out_ms,
                   (double)s->in_pages * pb / MIB, in_ms, cold, reason_text(b->reason));
    if (s->drop_pages)
        return say(t, "block %u, %.3f MiB, %s: gives up %.1f MiB without a copy: %s\n", s->block,
                   (double)b->size / MIB, life, (double)s->drop_pages * pb / MIB,
                   reason_text(VM_WHY_DEAD));
    bool idle = b->reason == VM_WHY_FITS && t->p->nactions && s->cold_ns <= 0;
    return say(t, "block %u, %.3f MiB, %s: stays, costs nothing%s: %s\n", s->block,
               (double)b->size / MIB, life, cold, reason_text(idle ? VM_WHY_TIME : b->reason));
}

static int cmp_size(const void *a, const void *b, void *arg)
{
    const struct vm_plan_block *blocks = arg;
    const struct story *x = a, *y = b;
    uint64_t sx = blocks[x->block].size, sy = blocks[y->block].size;
    if (sx != sy)
        return sx > sy ? -1 : 1;
    return x->block < y->block ? -1 : x->block > y->block;
}

int vm_plan_explain(const struct vm_plan *p, const struct vm_iteration *it,
                    const struct vm_machine *m, int (*put)(void *arg, const char *text, size_t n),
                    void *arg)
{
    struct teller t = {.p = p, .it = it, .m = m, .put = put, .arg = arg};
    int rc = VM_ENOMEM;

    if (p->nblocks != it->nblocks || p->nops != it->nops)
        return VM_EINVAL;
    t.stories = calloc(p->nblocks + 1, sizeof *t.stories);
    t.prefix = calloc(it->nops + 2, sizeof *t.prefix);
    if (t.stories && t.prefix) {
        for (uint32_t i = 0; i < p->nblocks; i++) {
            t.stories[i].block = i;
            t.stories[i].out_op = t.stories[i].back_op = VM_NONE;
        }
        for (size_t k = 0; k < it->nops; k++)
            t.prefix[k + 1] = t.prefix[k] + (double)it->ops[k].dur_ns;
        rc = index_pages(&t);
    }
    if (!rc)
        rc = find_cold(&t);
    if (!rc) {
        tell_actions(&t);
        rc = tell_summary(&t);
        qsort_r(t.stories, p->nblocks, sizeof *t.stories, cmp_size, p->blocks);
    }
    for (size_t i = 0; i < p->nblocks && !rc; i++)
        rc = tell_block(&t, &t.stories[i]);
    free(t.stories);
    free(t.prefix);
    free(t.page_first);
    free(t.page_block);
    return rc;
}
