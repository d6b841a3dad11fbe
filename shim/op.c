/* Operations on their way through: which blocks they touch, that those are resident when they are
 * issued, and what is known of them afterwards. The public part is in runtime.h. */
#include <stdlib.h>
#include <string.h>

#include "block.h"
#include "chunk_pool.h"
#include "driver.h"
#include "executor.h"
#include "graph.h"
#include "hints.h"
#include "libcall.h"
#include "log.h"
#include "pager.h"
#include "recorder.h"
#include "residency.h"
#include "runtime.h"
#include "scope.h"
#include "stream.h"
#include "trace.h"

/* ---- what the door collects -------------------------------------------------------------------
 */

void vm_op_init(struct vm_op *op, enum vm_op_kind kind, CUstream stream, bool per_thread_default)
{
    memset(op, 0, offsetof(struct vm_op, inline_acc));
    op->kind = (uint8_t)kind;
    op->stream = stream;
    if (!stream)
        op->stream = per_thread_default ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    op->per_thread = op->stream == CU_STREAM_PER_THREAD;
    op->acc = op->inline_acc;
    op->cap = VM_OP_INLINE_ACCESSES;
    op->nacc = 0;
    op->layer = op->flags = 0;
    op->g = 0;
    op->stream_state = NULL;
    op->start = NULL;
    op->timed_id = 0;
    op->lost = op->entered = op->captured = op->described = false;
    op->sig = vm_hash64(kind + 1u);
}

void vm_op_sign(struct vm_op *op, uint64_t value)
{
    op->sig = vm_hash64(op->sig * UINT64_C(0x9e3779b97f4a7c15) + value);
}

static struct vm_op_access *add_access(struct vm_op *op)
{
    if (op->nacc == op->cap) {
        unsigned cap = op->cap * 2;
        struct vm_op_access *p = malloc(cap * sizeof *p);
        if (!p) {
            op->lost = true;
            return NULL;
        }
        memcpy(p, op->acc, op->nacc * sizeof *p);
        if (op->acc != op->inline_acc)
            free(op->acc);
        op->acc = p;
        op->cap = cap;
    }
    return &op->acc[op->nacc++];
}

void vm_op_touch(struct vm_op *op, CUdeviceptr addr, size_t bytes, unsigned mode, unsigned role)
{
    struct vm_device *d = vm_device_of(addr);
    struct vm_op_access *a = d ? add_access(op) : NULL;
    if (a)
        *a = (struct vm_op_access){.addr = addr,
                                   .bytes = bytes,
                                   .block = VM_NO,
                                   .mode = (uint8_t)mode,
                                   .role = (uint8_t)role,
                                   .device = (uint8_t)d->ordinal};
}

void vm_op_touch_2d(struct vm_op *op, CUdeviceptr addr, size_t width, size_t height, size_t pitch,
                    unsigned mode)
{
    if (width == 0 || height == 0)
        return;
    if (width != pitch)
        mode &= ~(unsigned)VM_TOTAL;
    vm_op_touch(op, addr, width == pitch ? width * height : pitch * (height - 1) + width, mode,
                VM_ROLE_NONE);
}

void vm_op_scan(struct vm_op *op, const void *bytes, size_t n, bool doubtful)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i + sizeof(CUdeviceptr) <= n; i += sizeof(CUdeviceptr)) {
        CUdeviceptr v;
        memcpy(&v, p + i, sizeof v);
        struct vm_device *d = vm_device_of(v);
        struct vm_op_access *a = d ? add_access(op) : NULL;
        if (a)
            *a = (struct vm_op_access){.addr = v,
                                       .block = VM_NO,
                                       .mode = VM_RW | VM_UNKNOWN,
                                       .device = (uint8_t)d->ordinal,
                                       .scanned = 1,
                                       .doubtful = doubtful};
    }
}

/* ---- before ---------------------------------------------------------------------------------- */

static struct vm_device *device_of_op(const struct vm_op *op)
{
    return op->nacc > 0 ? vm_devices[op->acc[0].device] : vm_device_default();
}

/* Finds each access's block, takes modes from the library call in progress, merges repeats. An
 * optimizer's launch may name a thousand blocks, so a block knows where it stands in the list: an
 * entry that is there and names it is its own, whatever operation left the number (Briggs and
 * Torczon's sparse sets, 1993). */
static void resolve(struct vm_device *d, struct vm_op *op)
{
    unsigned n = 0;
    for (unsigned i = 0; i < op->nacc; i++) {
        struct vm_op_access a = op->acc[i];
        if (a.device != d->ordinal)
            continue; /* another device's block: vm_rt_op_before saw to it */
        a.block = vm_block_find(d, a.addr);
        if (a.block == VM_NO)
            continue;
        struct vm_block *b = &d->blocks[a.block];
        if (a.scanned)
            vm_libcall_mode(b->addr, b->size, a.addr, &a.mode, &a.role);
        else if ((a.mode & VM_TOTAL) && (a.addr != b->addr || a.bytes < b->size))
            a.mode &= (uint8_t)~VM_TOTAL;
        if (b->named_at >= n || op->acc[b->named_at].block != a.block) {
            b->named_at = n;
            op->acc[n++] = a;
            continue;
        }
        /* Read and overwritten by one operation: the old contents count. */
        struct vm_op_access *o = &op->acc[b->named_at];
        bool total = (o->mode & VM_TOTAL) && (a.mode & VM_TOTAL);
        o->mode |= a.mode;
        o->doubtful &= a.doubtful;
        if (!total)
            o->mode &= (uint8_t)~VM_TOTAL;
        if (!o->role)
            o->role = a.role;
    }
    op->nacc = n;
}

/* Blocks of other devices (peer copies) stay where they are for good: no plan spans devices. */
static void settle_foreign(struct vm_device *d, struct vm_op *op)
{
    for (unsigned i = 0; i < op->nacc; i++)
        if (op->acc[i].device != d->ordinal)
            vm_rt_pin(op->acc[i].addr);
}

static bool all_resident(struct vm_device *d, const struct vm_op *op, const struct vm_stream *s)
{
    for (unsigned i = 0; i < op->nacc; i++) {
        const struct vm_block *b = &d->blocks[op->acc[i].block];
        if (!vm_block_ready(d, b, vm_op_writes(op, i)) || b->fence_g > s->joined_g)
            return false;
    }
    return true;
}

static void unpin_all(struct vm_device *d, const struct vm_op *op)
{
    for (unsigned i = 0; i < op->nacc; i++)
        vm_block_unpin(d, &d->blocks[op->acc[i].block], false);
}

/* Whether it was issued is known: what it was to overwrite is overwritten, or is what it was. */
static void settle(struct vm_device *d, const struct vm_op *op, bool issued)
{
    bool any = false;
    for (unsigned i = 0; i < op->nacc; i++)
        any |= d->blocks[op->acc[i].block].unsure;
    if (!any)
        return;
    bool pushed = vm_ctx_enter(d);
    for (unsigned i = 0; i < op->nacc; i++)
        if (d->blocks[op->acc[i].block].unsure)
            vm_pager_settle(d, &d->blocks[op->acc[i].block], issued);
    vm_ctx_leave(pushed);
}

/* Inside a capture nothing is issued: what is named stays resident as long as it lives. */
static void pin_captured(struct vm_device *d, const struct vm_op *op)
{
    for (unsigned i = 0; i < op->nacc; i++)
        vm_graph_captured(d, &d->blocks[op->acc[i].block]);
}

static CUresult make_resident(struct vm_device *d, struct vm_op *op, struct vm_stream *s)
{
    struct vm_capture_mode before = vm_capture_relaxed(d);
    CUresult r = vm_make_resident(d, op, s);
    vm_capture_strict(before);
    return r;
}

static CUresult enter_op(struct vm_device *d, struct vm_op *op)
{
    struct vm_stream *s = vm_stream_get(d, op->stream, op->per_thread);
    if (!s)
        return CUDA_ERROR_OUT_OF_MEMORY;
    op->stream_state = s;
    op->captured = vm_stream_is_capturing(d, s);
    resolve(d, op);
    for (unsigned i = 0; i < op->nacc; i++)
        vm_block_pin(d, &d->blocks[op->acc[i].block], false);
    op->planned_ns = vm_executor_duration(d, op->sig);
    if (op->planned_ns > 0 && vm_pager_busy(d) && !op->captured)
        vm_hold_back(d, op->planned_ns);
    CUresult r = CUDA_SUCCESS;
    if (!all_resident(d, op, s))
        r = make_resident(d, op, s);
    if (r == CUDA_SUCCESS && op->captured)
        pin_captured(d, op);
    if (r != CUDA_SUCCESS) {
        settle(d, op, false);
        unpin_all(d, op);
        return r;
    }
    if (!op->captured)
        vm_recorder_before(d, op, s);
    op->entered = true;
    d->entered++;
    return CUDA_SUCCESS;
}

static void op_fini(struct vm_op *op)
{
    if (op->acc != op->inline_acc)
        free(op->acc);
    op->acc = op->inline_acc;
    op->nacc = 0;
}

CUresult vm_rt_op_before(struct vm_op *op)
{
    struct vm_device *d = device_of_op(op);
    if (!d || d->broken != CUDA_SUCCESS)
        return CUDA_SUCCESS;
    if (op->lost) {
        vm_log(NO_ROOM, op->name ? op->name : "an operation");
        op_fini(op);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    settle_foreign(d, op);
    vm_libcall_sign(op);
    pthread_mutex_lock(&d->lock);
    CUresult r = enter_op(d, op);
    pthread_mutex_unlock(&d->lock);
    if (r != CUDA_SUCCESS)
        op_fini(op);
    else if (op->blocking)
        vm_rt_wait_stream(op->stream, false);
    return r;
}

/* ---- after ----------------------------------------------------------------------------------- */

static void note_op(struct vm_device *d, struct vm_op *op, struct vm_stream *s)
{
    op->g = ++d->g;
    d->ahead_ns += op->planned_ns;
    vm_stream_issued(s, op->g);
    if (op->host_visible)
        s->host_visible_g = op->g;
    if ((op->kind == VM_OP_LAUNCH && !op->described) || op->kind == VM_OP_GRAPH)
        d->opaque_g = op->g;
    for (unsigned i = 0; i < op->nacc; i++) {
        struct vm_block *b = &d->blocks[op->acc[i].block];
        bool write = (op->acc[i].mode & VM_WRITE) != 0;
        if (!b->live)
            continue;
        vm_block_touch(d, b, op->g, write);
        if (write && !b->regenerating)
            vm_regenerable_written(b);
    }
}

void vm_rt_op_after(struct vm_op *op, CUresult result)
{
    struct vm_device *d = device_of_op(op);
    if (!op->entered || !d) {
        op_fini(op);
        return;
    }
    pthread_mutex_lock(&d->lock);
    struct vm_stream *s = op->stream_state;
    bool counted = result == CUDA_SUCCESS && !op->captured;
    if (counted)
        note_op(d, op, s);
    settle(d, op, counted);
    unpin_all(d, op);
    d->entered--;
    bool following = counted && d->broken == CUDA_SUCCESS;
    bool planned = following && vm_executor_op(d, op);
    vm_recorder_after(d, op, s, counted); /* may make a plan that begins with the next operation */
    if (following) {
        /* a stream may join an open capture and leaves no more ticks then */
        if ((d->pressure && !planned) || s->thread || d->captures > 0)
            vm_stream_tick(d, s);
        if (!planned)
            vm_residency_float(d);
        if (vm_pager_busy(d) && d->captures == 0) {
            bool pushed = vm_ctx_enter(d);
            vm_pager_pump(d);
            vm_ctx_leave(pushed);
        }
    }
    pthread_mutex_unlock(&d->lock);
    vm_recorder_settle(d);
    op_fini(op);
}
