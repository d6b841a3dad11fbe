#define VMEM_BUILDING
#include "hints.h"

#include "block.h"
#include "executor.h"
#include "recorder.h"
#include "scope.h"
#include "vmem.h"

#define VM_API __attribute__((visibility("default")))

void vm_regenerable_written(struct vm_block *b)
{
    b->regenerate = NULL;
}

bool vm_block_droppable(const struct vm_device *d, const struct vm_block *b)
{
    if (!b->regenerate || b->regenerating || b->pins > 0 || b->sticky > 0)
        return false;
    /* Two trips over the link at the speed measured, or the rate of a PCIe 3 link until it is. */
    double bps = d->link.in_bps > 0 ? d->link.in_bps : 12e9;
    return (double)b->regenerate_ns < 2e9 * (double)b->size / bps;
}

static CUresult regenerate_block(struct vm_device *d, uint32_t index, struct vm_stream *s)
{
    struct vm_block b = d->blocks[index];
    int depth = vm_scope_depth;
    pthread_mutex_unlock(&d->lock);
    vm_scope_depth = 0; /* what the program calls from here on is its own */
    b.regenerate((void *)b.addr, b.size, s->handle, b.regenerate_user);
    vm_scope_depth = depth;
    pthread_mutex_lock(&d->lock);
    d->blocks[index].regenerating = false;
    d->regenerated++;
    return d->broken;
}

CUresult vm_regenerate(struct vm_device *d, struct vm_op *op, struct vm_stream *s)
{
    CUresult r = CUDA_SUCCESS;
    for (unsigned i = 0; i < op->nacc && r == CUDA_SUCCESS; i++)
        if (d->blocks[op->acc[i].block].regenerating && !op->acc[i].regenerates) {
            op->acc[i].regenerates = 1;
            r = regenerate_block(d, op->acc[i].block, s);
        }
    return r;
}

/* ---- the exported functions -------------------------------------------------------------------
 */

/* Runs `what` on the block that holds ptr, with the lock. */
static int with_block(const void *ptr, void (*what)(struct vm_device *, struct vm_block *, void *),
                      void *arg)
{
    if (!ptr)
        return VMEM_EINVAL;
    if (!vm_rt_active())
        return VMEM_ABSENT;
    CUdeviceptr p = (CUdeviceptr)ptr;
    struct vm_device *d = vm_device_of(p);
    if (!d)
        return VMEM_UNKNOWN;
    pthread_mutex_lock(&d->lock);
    uint32_t i = vm_block_find(d, p);
    if (i != VM_NO)
        what(d, &d->blocks[i], arg);
    pthread_mutex_unlock(&d->lock);
    return i == VM_NO ? VMEM_UNKNOWN : VMEM_OK;
}

static void keep(struct vm_device *d, struct vm_block *b, void *arg)
{
    (void)arg;
    if (!b->kept)
        vm_block_pin(d, b, true);
    b->kept = true;
    vm_recorder_hint(d, b, VM_HINT_KEEP);
}

static void dead(struct vm_device *d, struct vm_block *b, void *arg)
{
    (void)arg;
    b->dead = true;
    vm_recorder_hint(d, b, VM_HINT_DEAD);
}

struct regenerable {
    vmem_regenerate_fn fn;
    void *user;
    uint64_t cost_ns;
};

static void regenerable(struct vm_device *d, struct vm_block *b, void *arg)
{
    const struct regenerable *r = arg;
    b->regenerate = r->fn;
    b->regenerate_user = r->user;
    b->regenerate_ns = r->cost_ns;
    if (r->fn)
        vm_recorder_hint(d, b, VM_HINT_REGENERABLE);
}

VM_API int vmem_keep(const void *ptr)
{
    int r = with_block(ptr, keep, NULL);
    if (r == VMEM_OK)
        vm_rt_fetch((CUdeviceptr)ptr); /* to stay where it is, it must be there */
    return r;
}

VM_API int vmem_dead(const void *ptr)
{
    return with_block(ptr, dead, NULL);
}

VM_API int vmem_regenerable(const void *ptr, vmem_regenerate_fn fn, void *user, uint64_t cost_ns)
{
    struct regenerable r = {fn, user, cost_ns};
    return with_block(ptr, regenerable, &r);
}

VM_API int vmem_step(void)
{
    if (!vm_rt_active())
        return VMEM_ABSENT;
    vm_rt_step();
    return VMEM_OK;
}

VM_API int vmem_get_stats(struct vmem_stats *out)
{
    if (!out || out->size < sizeof *out)
        return VMEM_EINVAL;
    if (!vm_rt_active())
        return VMEM_ABSENT;
    struct vmem_stats s = {.size = sizeof s};
    for (unsigned i = 0; i < VM_MAX_DEVICES; i++) {
        struct vm_device *d = vm_devices[i];
        if (!d || d->unserved)
            continue;
        pthread_mutex_lock(&d->lock);
        vm_device_stats(d, &s);
        pthread_mutex_unlock(&d->lock);
    }
    *out = s;
    return VMEM_OK;
}

void vm_rt_step(void)
{
    struct vm_device *d = vm_device_default();
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    vm_recorder_step(d);
    pthread_mutex_unlock(&d->lock);
}
