/* The meaning of a repeat.
 *
 * In one iteration of training every weight is read by its layers and then changed in place by the
 * optimizer, which is no layer. In a micro-batch of an accumulated gradient, or in one time step of
 * an unrolled network, weights are only read. Everything else that lives long tells us nothing:
 * activations that were allocated upfront are overwritten in both, gradient sums grow in both,
 * constants stay in both. So we look for blocks that layers with weights read, that no layer
 * writes, and ask whether something changes them.
 */
#include "period_check.h"

enum {
    USE_WEIGHT = 1,   /* read, and not written, as a weight by an op of a layer */
    USE_CHANGED = 2,  /* read and written outside layers                        */
    USE_MAYBE = 4,    /* touched in an unknown direction outside layers         */
    USE_REPLACED = 8, /* overwritten without being read                         */
    USE_OUTPUT = 16,  /* written by a layer                                     */
    USE_COUNTED = 32,
};

/* The live set may gain this much a repeat: programs keep losses and counters. */
#define SLACK_BLOCKS 2
#define SLACK_BYTES  8192

bool vm_layer_has_weights(unsigned layer)
{
    return layer == VM_LAYER_CONV || layer == VM_LAYER_GEMM || layer == VM_LAYER_RNN;
}

/* Optimizers are made of element-wise calls, bias calls (axpy-like), copies and plain kernels. */
static bool layer_makes_maps(unsigned layer)
{
    return layer != VM_LAYER_NONE && layer != VM_LAYER_ELEMENTWISE && layer != VM_LAYER_BIAS;
}

/* Same block, or two blocks of one size of which the later was born within the two stretches (after
 * the first op of the first: what was there before may be a tensor that was allocated upfront). */
static bool corresponds(const struct vm_check *c, const struct vm_trace *t, size_t p,
                        uint32_t before, uint32_t now)
{
    if (before == now)
        return true;
    return c->blocks[now].birth > c->nops - 2 * p && t->blocks[now].size == t->blocks[before].size;
}

/* Parameters that a kernel was given but does not use may hold addresses of earlier work. They look
 * like accesses of unknown direction and change from repeat to repeat: one op in so many may differ
 * by them. */
#define STALE_SHARE 64

static bool nothing_typed(const struct vm_access *acc, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        if (!(acc[k].mode & VM_UNKNOWN))
            return false;
    return true;
}

static bool same_accesses(const struct vm_check *c, const struct vm_trace *t, size_t p,
                          const struct vm_event *before, const struct vm_event *now)
{
    const struct vm_access *old = t->accesses + before->acc, *acc = t->accesses + now->acc;
    if (now->nacc != before->nacc)
        return false;
    for (uint32_t k = 0; k < now->nacc; k++)
        if (!corresponds(c, t, p, old[k].block, acc[k].block))
            return false;
    return true;
}

static bool live_set_returns(const struct vm_check *c, size_t p)
{
    const struct vm_seen_op *a = &c->ops[c->nops - p - 1], *b = &c->ops[c->nops - 1];
    uint64_t more = a->live_bytes > b->live_bytes ? a->live_bytes - b->live_bytes
                                                  : b->live_bytes - a->live_bytes;
    uint32_t count = a->live_count > b->live_count ? a->live_count - b->live_count
                                                   : b->live_count - a->live_count;
    return more <= SLACK_BYTES && count <= SLACK_BLOCKS;
}

/* Merges the accesses of one op to each block, then notes what they mean for long-lived blocks. */
static bool look_at_op(struct vm_check *c, const struct vm_trace *t, size_t p, size_t i)
{
    const struct vm_event *now = &t->events[c->ops[i].event];
    const struct vm_event *before = &t->events[c->ops[i - p].event];
    const struct vm_access *acc = t->accesses + now->acc, *old = t->accesses + before->acc;
    if (!same_accesses(c, t, p, before, now)) {
        c->stale++;
        return c->stale <= p / STALE_SHARE && nothing_typed(acc, now->nacc) &&
               nothing_typed(old, before->nacc);
    }
    c->op_epoch++;
    for (uint32_t k = 0; k < now->nacc; k++) {
        struct vm_seen_block *b = &c->blocks[acc[k].block];
        if (b->op_epoch != c->op_epoch) {
            b->op_epoch = c->op_epoch;
            b->op_mode = 0;
        }
        b->op_mode |= acc[k].mode;
    }
    for (uint32_t k = 0; k < now->nacc; k++) {
        struct vm_seen_block *b = &c->blocks[acc[k].block];
        if (acc[k].block != old[k].block)
            continue;
        if (b->epoch != c->epoch) {
            b->epoch = c->epoch;
            b->use = 0;
        }
        bool unknown = (b->op_mode & VM_UNKNOWN) != 0, reads = (b->op_mode & VM_READ) != 0;
        bool writes = (b->op_mode & VM_WRITE) != 0;
        if (reads && !writes && !unknown &&
            (vm_layer_has_weights(now->layer) || acc[k].role == VM_ROLE_W))
            b->use |= USE_WEIGHT;
        if (writes && layer_makes_maps(now->layer))
            b->use |= USE_OUTPUT;
        else if (unknown)
            b->use |= USE_MAYBE;
        else if (reads && writes)
            b->use |= USE_CHANGED;
        else if (writes)
            b->use |= USE_REPLACED;
    }
    return true;
}

/* Bytes of the blocks that look like weights, and of those that change. */
struct weights {
    uint64_t all, updated, maybe;
    bool something_changed; /* any long-lived block, weight or not */
};

static void count_weights(struct vm_check *c, const struct vm_trace *t, const struct vm_event *e,
                          struct weights *w)
{
    for (uint32_t k = 0; k < e->nacc; k++) {
        uint32_t index = t->accesses[e->acc + k].block;
        struct vm_seen_block *b = &c->blocks[index];
        if (b->epoch != c->epoch || (b->use & USE_COUNTED))
            continue;
        b->use |= USE_COUNTED;
        if (b->use & (USE_CHANGED | USE_MAYBE))
            w->something_changed = true;
        if (!(b->use & USE_WEIGHT) || (b->use & (USE_OUTPUT | USE_REPLACED)))
            continue;
        w->all += t->blocks[index].size;
        if (b->use & USE_CHANGED)
            w->updated += t->blocks[index].size;
        else if (b->use & USE_MAYBE)
            w->maybe += t->blocks[index].size;
    }
}

enum vm_verdict vm_check_repeat(struct vm_check *c, const struct vm_trace *t, size_t p)
{
    size_t n = c->nops;
    c->epoch++;
    c->stale = 0;
    for (size_t i = n - p; i < n; i++)
        if (!look_at_op(c, t, p, i))
            return VM_REPEAT_FOREIGN;
    if (!live_set_returns(c, p))
        return VM_REPEAT_GROWS;

    struct weights w = {0};
    for (size_t i = n - p; i < n; i++)
        count_weights(c, t, &t->events[c->ops[i].event], &w);
    if (w.all == 0)
        return w.something_changed ? VM_REPEAT_UNTYPED : VM_REPEAT_IDLE;
    if (w.updated + w.maybe == 0)
        return VM_REPEAT_IDLE;
    if (w.updated >= w.all / 10 || w.updated + w.maybe >= w.all - w.all / 10)
        return VM_REPEAT_TRAINING;
    return VM_REPEAT_PARTIAL;
}
