/* Allocation, free and what is told of memory (runtime.h). */
#include "memory.h"

#include <stdatomic.h>
#include <string.h>

#include "block.h"
#include "chunk_pool.h"
#include "config.h"
#include "executor.h"
#include "graph.h"
#include "log.h"
#include "pager.h"
#include "recorder.h"
#include "replan.h"
#include "residency.h"
#include "runtime.h"
#include "stream.h"

/* Everything asked for must have a place somewhere: on the device or, if the policy pages, the
 * host. */
static bool room_for(const struct vm_device *d, size_t bytes)
{
    uint64_t all = d->max_chunks << d->page_shift;
    if (vm_policy_pages())
        all += d->host.limit_slots << d->page_shift;
    return bytes <= all && d->block_bytes <= all - bytes;
}

/* ---- captures -------------------------------------------------------------------------------- */

static atomic_bool captures_served;

void vm_rt_serve_captures(void)
{
    atomic_store_explicit(&captures_served, true, memory_order_relaxed);
}

bool vm_captures_served(void)
{
    return atomic_load_explicit(&captures_served, memory_order_relaxed);
}

static void born_captured(struct vm_device *d, struct vm_block *b)
{
    vm_log(TORCH_CAPTURE);
    b->captured = true;
    vm_graph_captured(d, b);
}

/* ---- allocation ------------------------------------------------------------------------------ */

/* captured: it will outlive any place that a plan has for it. */
static int place(struct vm_device *d, size_t bytes, bool captured, uint32_t *index)
{
    uint32_t plan_block = VM_NONE;
    uint64_t at = captured ? VM_UNPLACED : vm_executor_place(d, bytes, &plan_block);
    int r = at == VM_UNPLACED ? VM_NOTFOUND : vm_block_new(d, bytes, at, index);
    if (r == 0)
        d->blocks[*index].plan_block = plan_block;
    else if (r == VM_NOTFOUND)
        r = vm_block_new(d, bytes, VM_UNPLACED, index);
    return r;
}

CUresult vm_rt_alloc(CUdeviceptr *out, size_t bytes, enum vm_alloc_kind kind, CUstream stream,
                     bool *handled)
{
    (void)stream;
    *handled = false;
    struct vm_device *d = vm_device_current();
    if (!d || d->broken != CUDA_SUCCESS)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&d->lock);
    bool captured = kind == VM_ALLOC_SYNC && d->captures > 0;
    if (captured && !vm_captures_served()) {
        /* Whether a capture allows it is the driver's to say; a graph's blocks could not move
         * anyway. */
        pthread_mutex_unlock(&d->lock);
        return CUDA_SUCCESS;
    }
    *handled = true;
    struct vm_capture_mode before = vm_capture_relaxed(d);
    uint32_t i = VM_NO;
    int r = room_for(d, bytes) ? place(d, bytes, captured, &i) : VM_NOTFOUND;
    if (r == 0) {
        struct vm_block *b = &d->blocks[i];
        *out = b->addr;
        vm_recorder_alloc(d, b);
        if (captured)
            born_captured(d, b);
        /* As long as nothing has to go for it the memory is there at once, as without us. Under a plan
         * that means: unless pages on their way back want it. And the device works meanwhile. */
        uint64_t there = vm_chunks_available(d), wanted = vm_pager_wanted(d);
        uint64_t most = !vm_executor_pages(d) ? UINT64_MAX : there > wanted ? there - wanted : 0;
        vm_pager_fill(d, b->first, b->last - b->first + 1, &most);
        vm_block_unseal(d, b); /* where it takes over pages; if refused, its first write tries again */
    } else {
        vm_log(ALLOC_REFUSED, (unsigned long long)bytes, (unsigned long long)(d->block_bytes >> 20),
               (unsigned long long)((d->max_chunks << d->page_shift) >> 20),
               (unsigned long long)((d->host.limit_slots << d->page_shift) >> 20));
    }
    vm_capture_strict(before);
    pthread_mutex_unlock(&d->lock);
    return r == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void vm_memory_release(struct vm_device *d, uint32_t index)
{
    vm_recorder_free(d, &d->blocks[index]);
    vm_executor_freed(d, &d->blocks[index]);
    vm_block_free(d, index);
    /* Where memory is short its chunks go on as soon as the operations before this are done. */
    if (d->pressure || vm_executor_pages(d))
        vm_streams_tick(d);
}

/* The block that holds p and that the program has not freed. */
static uint32_t block_of(const struct vm_device *d, CUdeviceptr p)
{
    uint32_t i = vm_block_find(d, p);
    return i != VM_NO && d->blocks[i].abandoned ? VM_NO : i;
}

/* cudaFree waits for the device, and programs rely on it where the host can see results. */
static void wait_host_visible(struct vm_device *d)
{
    uint64_t g = vm_streams_host_visible(d);
    if (g == 0)
        return;
    bool pushed = vm_ctx_enter(d);
    for (unsigned times = 0; !vm_streams_reached(d, g); times++) {
        vm_pager_pump(d);
        pthread_mutex_unlock(&d->lock);
        vm_nap(times);
        pthread_mutex_lock(&d->lock);
    }
    vm_ctx_leave(pushed);
}

CUresult vm_rt_free(CUdeviceptr p, enum vm_alloc_kind kind, CUstream stream, bool *handled)
{
    (void)stream;
    *handled = false;
    struct vm_device *d = vm_device_of(p);
    if (!d)
        return CUDA_SUCCESS;
    if (d->broken != CUDA_SUCCESS) { /* the context is lost or gone, and the block with it */
        *handled = true;
        return d->broken;
    }
    pthread_mutex_lock(&d->lock);
    struct vm_capture_mode before = vm_capture_relaxed(d);
    if (kind == VM_ALLOC_SYNC)
        wait_host_visible(d);
    uint32_t i = block_of(d, p);
    if (i != VM_NO && d->blocks[i].addr == p) {
        *handled = true;
        if (!vm_graph_keeps(d, &d->blocks[i]))
            vm_memory_release(d, i);
    }
    vm_capture_strict(before);
    pthread_mutex_unlock(&d->lock);
    return CUDA_SUCCESS;
}

bool vm_rt_range(CUdeviceptr p, CUdeviceptr *base, size_t *bytes)
{
    struct vm_device *d = vm_device_of(p);
    if (!d)
        return false;
    pthread_mutex_lock(&d->lock);
    uint32_t i = block_of(d, p);
    if (i != VM_NO) {
        *base = d->blocks[i].addr;
        *bytes = d->blocks[i].size;
    }
    pthread_mutex_unlock(&d->lock);
    return i != VM_NO;
}

bool vm_rt_reserved(CUdeviceptr p)
{
    return vm_device_of(p) != NULL;
}

bool vm_rt_owner(CUdeviceptr p, CUcontext *ctx, CUdevice *dev, uint64_t *id)
{
    struct vm_device *d = vm_device_of(p);
    if (!d)
        return false;
    pthread_mutex_lock(&d->lock);
    uint32_t i = block_of(d, p);
    if (i != VM_NO) {
        *ctx = d->ctx;
        *dev = d->ordinal;
        *id = d->blocks[i].id + 1;
    }
    pthread_mutex_unlock(&d->lock);
    return i != VM_NO;
}

void vm_rt_mem_info(size_t *free_bytes, size_t *total_bytes)
{
    struct vm_device *d = vm_device_current();
    if (!d || d->broken != CUDA_SUCCESS)
        return;
    pthread_mutex_lock(&d->lock);
    if (d->budget_set) {
        if (total_bytes)
            *total_bytes = d->budget_bytes;
        if (free_bytes)
            *free_bytes = d->budget_bytes > d->block_bytes ? d->budget_bytes - d->block_bytes : 0;
    } else if (free_bytes) {
        uint64_t ours = *free_bytes + ((uint64_t)d->live_chunks << d->page_shift);
        *free_bytes = ours > d->block_bytes ? ours - d->block_bytes : 0;
    }
    pthread_mutex_unlock(&d->lock);
}

void vm_rt_total_mem(CUdevice dev, size_t *total_bytes)
{
    (void)dev;
    const struct vm_amount *b = &vm_config()->budget;
    if (!total_bytes || !b->set)
        return;
    uint64_t budget = vm_amount_of(b, *total_bytes, *total_bytes);
    if (budget > 0 && budget < *total_bytes)
        *total_bytes = budget;
}

bool vm_rt_relieve(void)
{
    struct vm_device *d = vm_device_default();
    if (!d || d->broken != CUDA_SUCCESS)
        return false;
    pthread_mutex_lock(&d->lock);
    /* Small steps: the caller repeats its call after each and comes back if that was not enough. */
    uint64_t step = (UINT64_C(64) << 20) >> d->page_shift, n = d->nfree_chunks;
    if (step == 0)
        step = 1;
    if (n < step && vm_policy_pages())
        n = vm_make_free(d, step);
    uint32_t given = vm_chunks_release(d, (uint32_t)(n < step ? n : step));
    if (given > 0) {
        d->max_chunks = d->live_chunks;
        vm_log(RELIEVED, (unsigned long long)(((uint64_t)given << d->page_shift) >> 20));
    }
    pthread_mutex_unlock(&d->lock);
    return given > 0;
}

void vm_rt_trim(void)
{
    struct vm_device *d = vm_device_current();
    if (!d || d->broken != CUDA_SUCCESS)
        return;
    pthread_mutex_lock(&d->lock);
    bool pushed = vm_ctx_enter(d);
    vm_pager_recycle(d, UINT64_MAX);
    /* Nobody waits for it: what the device still uses stays. */
    d->patience_ns = VM_UNTIL_IDLE;
    while (vm_pager_pump(d))
        ;
    d->patience_ns = 0;
    vm_chunks_release(d, d->nfree_chunks);
    vm_ctx_leave(pushed);
    pthread_mutex_unlock(&d->lock);
}

void vm_rt_limit(double share)
{
    struct vm_device *d = vm_device_current();
    if (!d || d->broken != CUDA_SUCCESS)
        return;
    pthread_mutex_lock(&d->lock);
    uint64_t seen = d->budget_set ? d->budget_bytes : d->total_bytes;
    uint64_t bytes = (uint64_t)(share * (double)seen);
    uint64_t most = (bytes < d->budget_bytes ? bytes : d->budget_bytes) >> d->page_shift;
    uint64_t above = d->live_chunks > most ? d->live_chunks - most : 0;
    d->max_chunks = most;
    bool pushed = vm_ctx_enter(d);
    if (above > d->nfree_chunks && vm_policy_pages())
        vm_make_free(d, above);
    vm_chunks_release(d, above < d->nfree_chunks ? (uint32_t)above : d->nfree_chunks);
    vm_ctx_leave(pushed);
    if (d->max_chunks < d->live_chunks) /* some cannot go */
        d->max_chunks = d->live_chunks;
    vm_log(LIMITED, (unsigned)d->ordinal,
           (unsigned long long)((d->max_chunks << d->page_shift) >> 20));
    pthread_mutex_unlock(&d->lock);
}

/* As an operation that touches the block would; the block stays pinned if `stay`. */
static void fetch(CUdeviceptr p, bool stay)
{
    struct vm_device *d = vm_device_of(p);
    if (!d || d->broken != CUDA_SUCCESS)
        return;
    pthread_mutex_lock(&d->lock);
    uint32_t i = vm_block_find(d, p);
    struct vm_stream *s = vm_stream_get(d, CU_STREAM_LEGACY, false);
    if (i != VM_NO && s && !d->blocks[i].escaped) {
        struct vm_op op;
        vm_op_init(&op, VM_OP_OTHER, NULL, false);
        op.acc[0] = (struct vm_op_access){
            .addr = p, .block = i, .mode = VM_RW, .device = (uint8_t)d->ordinal};
        op.nacc = 1;
        vm_block_pin(d, &d->blocks[i], stay);
        d->blocks[i].escaped = stay;
        if (!vm_block_ready(d, &d->blocks[i], true) && vm_make_resident(d, &op, s) != CUDA_SUCCESS)
            vm_log(PIN_FAILED, (unsigned long long)d->blocks[i].size);
        if (!stay)
            vm_block_unpin(d, &d->blocks[i], false);
    }
    pthread_mutex_unlock(&d->lock);
}

void vm_rt_pin(CUdeviceptr p)
{
    fetch(p, true);
}

void vm_rt_fetch(CUdeviceptr p)
{
    fetch(p, false);
}

void vm_rt_escape_scan(const void *host, size_t bytes)
{
    const unsigned char *p = host;
    for (size_t i = 0; i + sizeof(CUdeviceptr) <= bytes; i += sizeof(CUdeviceptr)) {
        CUdeviceptr v;
        memcpy(&v, p + i, sizeof v);
        if (vm_device_of(v))
            vm_rt_pin(v);
    }
}
