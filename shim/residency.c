#include "residency.h"

#include "block.h"
#include "chunk_pool.h"
#include "executor.h"
#include "hints.h"
#include "hosted.h"
#include "log.h"
#include "pager.h"
#include "pager_queues.h"
#include "simulate.h"
#include "stream.h"

/* Fruitless looks after which a device counts as never idle. */
#define VM_RESTLESS 200u
static void pause_unlocked(struct vm_device *d, unsigned times)
{
    pthread_mutex_unlock(&d->lock);
    vm_nap(times);
    pthread_mutex_lock(&d->lock);
}

/* What one pass over an operation's pages found. */
struct pass {
    uint64_t most;    /* chunks that new contents may take       */
    uint64_t missing; /* chunks wanted and not to be had */
    bool waiting;     /* copies under way                */
    CUresult error;
    uint32_t lost; /* block whose contents were dropped, VM_NO: none */
};

/* captured: the operation goes into a graph; until that is launched, what it will overwrite counts.
 */
static void pass_block(struct vm_device *d, const struct vm_op_access *a, bool captured,
                       struct vm_stream *s, struct pass *p)
{
    const struct vm_block *b = &d->blocks[a->block];
    /* Only of pages that hold nothing else may the old contents be given up. */
    bool overwritten =
        (!captured && (a->mode & VM_TOTAL) != 0) || b->regenerating || !vm_block_written(d, b);
    if (vm_block_resident(d, b))
        return;
    if (vm_pager_fill(d, b->first, b->last - b->first + 1, &p->most) == 0)
        return;
    for (uint64_t page = b->first; page <= b->last && p->error == CUDA_SUCCESS; page++) {
        struct vm_page *pg = &d->pages[page];
        if (pg->state == VM_PG_RESIDENT)
            continue;
        if (pg->state == VM_PG_AWAY || (a->mode & VM_WRITE))
            pg->to_write = (a->mode & VM_WRITE) != 0;
        bool whole = overwritten && !vm_page_is_shared(pg);
        int r = vm_pager_step(d, page, s, whole, &p->most, &p->error);
        if (r == VM_NOTFOUND)
            p->missing++;
        else if (r == VM_PAGE_WAIT)
            p->waiting = true;
        else if (r == VM_PAGE_LOST)
            p->lost = a->block;
    }
}

static uint64_t pages_of_op(const struct vm_device *d, const struct vm_op *op)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < op->nacc; i++) {
        const struct vm_block *b = &d->blocks[op->acc[i].block];
        n += b->last - b->first + 1;
    }
    return n;
}

static unsigned long long kib(const struct vm_device *d, uint64_t pages)
{
    return (unsigned long long)((pages << d->page_shift) >> 10);
}

static CUresult unfit(const struct vm_device *d, const struct vm_op *op)
{
    vm_log(OP_UNFIT, op->name ? op->name : "an operation", kib(d, pages_of_op(d, op)),
           kib(d, d->max_chunks));
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Sees to it that enough is leaving: dead pages for everybody who waits, contents only for the
 * operation itself, and where the policy moves none only when all the memory there is does not do.
 * False when nothing is on its way out and nothing more can be sent. */
static bool send_away(struct vm_device *d, uint64_t missing)
{
    uint64_t coming = vm_pager_leaving(d) + vm_chunks_available(d);
    uint64_t all = missing + vm_pager_wanted(d), sent = 0;
    if (coming < all)
        sent = vm_pager_recycle(d, all - coming);
    if (coming + sent < missing && (!d->thrifty || d->may_grow))
        sent += vm_pager_evict(d, missing - coming - sent);
    return sent > 0 || vm_pager_leaving(d) > 0;
}

/* Chunks the operation may take for contents that are not there yet. Pages that the plan brings
 * back come first: it counted on them when it let the operation begin. Unless that would be for
 * ever; see also may_begin. */
static uint64_t may_take(const struct vm_device *d, bool stuck)
{
    uint64_t there = vm_chunks_available(d), wanted = vm_pager_wanted(d);
    if (stuck)
        return UINT64_MAX;
    return there > wanted ? there - wanted : 0;
}

/* One pass over all its pages. */
static struct pass pass_op(struct vm_device *d, const struct vm_op *op, struct vm_stream *s, uint64_t most)
{
    struct pass p = {.lost = VM_NO, .most = most};
    for (unsigned i = 0; i < op->nacc && p.error == CUDA_SUCCESS; i++)
        pass_block(d, &op->acc[i], op->captured, s, &p);
    return p;
}

/* The device has nothing to do and there are chunks enough, though pages that come back later want them. */
static bool may_begin(struct vm_device *d, const struct pass *p)
{
    return p->missing > 0 && p->missing <= vm_chunks_available(d) && p->error == CUDA_SUCCESS && p->lost == VM_NO &&
           vm_streams_reached(d, d->g);
}

static CUresult one_round(struct vm_device *d, struct vm_op *op, struct vm_stream *s, bool *stuck,
                          bool *done)
{
    d->may_grow = *stuck;
    struct pass p = pass_op(d, op, s, may_take(d, *stuck));
    if (may_begin(d, &p))
        p = pass_op(d, op, s, UINT64_MAX);
    if (d->broken != CUDA_SUCCESS)
        return d->broken;
    if (p.error != CUDA_SUCCESS)
        return p.error;
    if (p.lost != VM_NO && d->blocks[p.lost].regenerate) {
        d->blocks[p.lost].regenerating = true;
        return CUDA_SUCCESS;
    }
    if (p.lost != VM_NO) {
        vm_log(CONTENTS_DROPPED, op->name ? op->name : "an operation",
               (unsigned long long)d->blocks[p.lost].size);
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    *done = p.missing == 0 && !p.waiting;
    d->missing = p.missing;
    if (p.missing == 0 || send_away(d, p.missing))
        return CUDA_SUCCESS;
    if (*stuck && !p.waiting && d->entered == 0 && d->in_flight.count == 0) {
        if (!vm_host_rest(d, op))
            return unfit(d, op);
        d->hosted_ops++;
        vm_log(OP_HOSTED, op->name ? op->name : "an operation", kib(d, pages_of_op(d, op)),
               kib(d, d->max_chunks));
        *done = true;
        return CUDA_SUCCESS;
    }
    *stuck = true;
    return CUDA_SUCCESS;
}

/* A wait on a capturing stream would go into the graph: the host waits instead. */
static CUresult order_captured(struct vm_device *d, const struct vm_op *op)
{
    uint64_t g = 0;
    for (unsigned i = 0; i < op->nacc; i++)
        if (d->blocks[op->acc[i].block].fence_g > g)
            g = d->blocks[op->acc[i].block].fence_g;
    for (unsigned times = 0; !vm_streams_reached(d, g); times++)
        pause_unlocked(d, times);
    return d->broken;
}

static CUresult order(struct vm_device *d, const struct vm_op *op, struct vm_stream *s)
{
    CUresult r = CUDA_SUCCESS;
    if (op->captured)
        return order_captured(d, op);
    for (unsigned i = 0; i < op->nacc && r == CUDA_SUCCESS; i++)
        r = vm_stream_join(d, s, d->blocks[op->acc[i].block].fence_g);
    return r;
}

/* The device has nothing to do: what is issued and copied from now on is counted. */
static void begin_anew(struct vm_device *d)
{
    d->ahead_ns = d->copied_ns[0] = d->copied_ns[1] = 0;
}

CUresult vm_block_unseal(struct vm_device *d, const struct vm_block *b)
{
    CUresult r = CUDA_SUCCESS;
    if (!vm_block_sealed(d, b))
        return r;
    for (uint64_t p = b->first, k; p <= b->last && r == CUDA_SUCCESS; p += k ? k : 1) {
        for (k = 0; p + k <= b->last; k++)
            if (!d->pages[p + k].sealed || d->pages[p + k].state != VM_PG_RESIDENT)
                break;
        if (k > 0)
            r = vm_pages_access(d, p, k, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    }
    return r;
}

/* What the operation writes may be written. */
static CUresult unseal(struct vm_device *d, const struct vm_op *op)
{
    CUresult r = CUDA_SUCCESS;
    for (unsigned i = 0; i < op->nacc && r == CUDA_SUCCESS; i++)
        if (vm_op_writes(op, i))
            r = vm_block_unseal(d, &d->blocks[op->acc[i].block]);
    return r;
}

CUresult vm_make_resident(struct vm_device *d, struct vm_op *op, struct vm_stream *s)
{
    unsigned times = 0;
    while (d->turn) /* another thread's operation is being served: one at a time cannot deadlock */
        pause_unlocked(d, times++);
    d->turn = true;
    bool pushed = vm_ctx_enter(d), done = false, stuck = false;
    CUresult r = CUDA_SUCCESS;
    for (times = 0; !done && r == CUDA_SUCCESS;) {
        r = one_round(d, op, s, &stuck, &done);
        if (done || r != CUDA_SUCCESS)
            break;
        /* It cannot begin without: an idle device may wait as long as it takes; a busy one only
         * when it does not come to rest. */
        d->patience_ns = times > VM_RESTLESS ? VM_FOR_EVER : VM_UNTIL_IDLE;
        if (vm_pager_pump(d))
            times = 0;
        else
            pause_unlocked(d, times++);
    }
    d->turn = false;
    d->may_grow = false;
    d->missing = 0;
    d->patience_ns = 0;
    if ((d->copied_ns[0] > 0 || d->copied_ns[1] > 0) && vm_streams_reached(d, d->g))
        begin_anew(d);
    if (r == CUDA_SUCCESS)
        r = unseal(d, op);
    if (r == CUDA_SUCCESS)
        r = vm_regenerate(d, op, s);
    if (r == CUDA_SUCCESS)
        r = order(d, op, s);
    vm_ctx_leave(pushed);
    return r;
}

void vm_hold_back(struct vm_device *d, uint64_t next_ns)
{
    uint64_t window = vm_executor_window(d);
    uint64_t limit = window > VM_AHEAD_NS || !window ? VM_AHEAD_NS : window;
    if ((!d->unmap_waits && !window) || d->ahead_ns + next_ns < limit || d->broken != CUDA_SUCCESS)
        return;
    bool pushed = vm_ctx_enter(d), idle = false;
    for (unsigned times = 0; !idle && vm_pager_busy(d) && d->broken == CUDA_SUCCESS;) {
        bool moved = vm_pager_pump(d);
        idle = vm_streams_reached(d, d->g);
        if (moved)
            times = 0;
        else if (!idle)
            pause_unlocked(d, times++);
    }
    /* The device rests: unmap what may go, start what may come, and on with the operation. */
    if (idle) {
        begin_anew(d);
        d->patience_ns = next_ns / 20;
        d->rest_ns = next_ns;
        if (vm_pager_pump(d))
            vm_pager_pump(d);
        d->patience_ns = d->rest_ns = 0;
    }
    vm_ctx_leave(pushed);
}

void vm_residency_float(struct vm_device *d)
{
    if (!d->pressure || d->thrifty || d->broken != CUDA_SUCCESS)
        return;
    uint64_t soon = vm_pager_leaving(d) + vm_chunks_available(d);
    if (soon < d->float_chunks)
        vm_pager_evict(d, d->float_chunks - soon);
}

uint64_t vm_make_free(struct vm_device *d, uint64_t chunks)
{
    unsigned times = 0;
    bool pushed = vm_ctx_enter(d);
    while (d->nfree_chunks < chunks && d->broken == CUDA_SUCCESS) {
        uint64_t coming = vm_pager_leaving(d) + d->nfree_chunks;
        if (coming < chunks && vm_pager_evict(d, chunks - coming) == 0 && vm_pager_leaving(d) == 0)
            break;
        d->patience_ns = VM_FOR_EVER;
        if (!vm_pager_pump(d))
            pause_unlocked(d, times++);
    }
    d->patience_ns = 0;
    vm_ctx_leave(pushed);
    return d->nfree_chunks;
}
