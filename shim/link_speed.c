#include "link_speed.h"

#include "chunk_pool.h"
#include "driver.h"
#include "host_pool.h"
#include "log.h"
#include "pager.h"
#include "residency.h"
#include "stream.h"

#define VM_PROBES 4 /* copies a measurement */

struct probe {
    uint32_t chunk, slot[2];
    CUevent begin[2], end[2]; /* of the out stream, of the in stream */
};

static bool wait_for(struct vm_device *d, CUevent e)
{
    for (unsigned times = 0;; times++) {
        CUresult r = vm_drv.p_cuEventQuery(e);
        if (r != CUDA_ERROR_NOT_READY)
            return r == CUDA_SUCCESS;
        pthread_mutex_unlock(&d->lock);
        vm_nap(times);
        pthread_mutex_lock(&d->lock);
    }
}

/* Issues VM_PROBES copies of a page in the directions asked for, and times each. ns[i] = 0: not
 * done. */
static bool copies(struct vm_device *d, const struct probe *p, bool out, bool in, double ns[2])
{
    CUstream s[2] = {d->out_stream, d->in_stream};
    bool want[2] = {out, in};
    CUdeviceptr a = d->chunks[p->chunk].alias;
    CUresult r = CUDA_SUCCESS;
    for (int i = 0; i < 2; i++)
        if (want[i] && r == CUDA_SUCCESS)
            r = vm_drv.p_cuEventRecord(p->begin[i], s[i]);
    for (int k = 0; k < VM_PROBES && r == CUDA_SUCCESS; k++) {
        if (out)
            r = vm_drv.p_cuMemcpyDtoHAsync_v2(vm_host_slot_addr(d, p->slot[0]), a,
                                              d->page_bytes / 2, s[0]);
        if (in && r == CUDA_SUCCESS)
            r = vm_drv.p_cuMemcpyHtoDAsync_v2(
                a + d->page_bytes / 2, vm_host_slot_addr(d, p->slot[1]), d->page_bytes / 2, s[1]);
    }
    for (int i = 0; i < 2; i++) {
        float ms = 0;
        if (!want[i] || r != CUDA_SUCCESS)
            continue;
        r = vm_drv.p_cuEventRecord(p->end[i], s[i]);
        if (r == CUDA_SUCCESS && !wait_for(d, p->end[i]))
            return false;
        if (r == CUDA_SUCCESS)
            r = vm_drv.p_cuEventElapsedTime(&ms, p->begin[i], p->end[i]);
        ns[i] = (double)ms * 1e6 / VM_PROBES;
    }
    return r == CUDA_SUCCESS;
}

/* Between two events on an idle stream lies the host's time for mapping and unmapping. */
static bool mapping(struct vm_device *d, const struct probe *p, double *map_ns, double *access_ns,
                    double *unmap_ns)
{
    CUdeviceptr at = d->base + ((d->npages - 1) << d->page_shift); /* the last page is never used */
    CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d->ordinal},
                            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUevent e[4] = {p->begin[0], p->end[0], p->begin[1], p->end[1]};
    float ms[3];
    CUresult r = vm_drv.p_cuEventRecord(e[0], d->in_stream);
    if (r == CUDA_SUCCESS)
        r = vm_drv.p_cuMemMap(at, d->page_bytes, 0, d->chunks[p->chunk].handle, 0);
    if (r != CUDA_SUCCESS)
        return false;
    vm_drv.p_cuEventRecord(e[1], d->in_stream);
    r = vm_drv.p_cuMemSetAccess(at, d->page_bytes, &desc, 1);
    vm_drv.p_cuEventRecord(e[2], d->in_stream);
    if (vm_drv.p_cuMemUnmap(at, d->page_bytes) != CUDA_SUCCESS || r != CUDA_SUCCESS)
        return false;
    if (vm_drv.p_cuEventRecord(e[3], d->in_stream) != CUDA_SUCCESS || !wait_for(d, e[3]))
        return false;
    for (int i = 0; i < 3; i++)
        if (vm_drv.p_cuEventElapsedTime(&ms[i], e[i], e[i + 1]) != CUDA_SUCCESS)
            return false;
    *map_ns = (double)ms[0] * 1e6;
    *access_ns = (double)ms[1] * 1e6;
    *unmap_ns = (double)ms[2] * 1e6;
    return true;
}

/* Does unmapping wait for work that is in flight? Tried with copies that use other memory: if they are
 * all done when it returns, it does, or the host was slow, which errs on the safe side. */
static bool unmap_waits(struct vm_device *d, const struct probe *p)
{
    CUdeviceptr at = d->base + ((d->npages - 1) << d->page_shift), a = d->chunks[p->chunk].alias;
    uint32_t other;
    bool waits = true;
    if (vm_chunk_take(d, &other) != 0)
        return true;
    if (vm_drv.p_cuMemMap(at, d->page_bytes, 0, d->chunks[other].handle, 0) == CUDA_SUCCESS) {
        CUresult r = CUDA_SUCCESS;
        for (int k = 0; k < 4 * VM_PROBES && r == CUDA_SUCCESS; k++)
            r = vm_drv.p_cuMemcpyHtoDAsync_v2(a, vm_host_slot_addr(d, p->slot[1]), d->page_bytes,
                                              d->in_stream);
        CUresult recorded = vm_drv.p_cuEventRecord(p->end[1], d->in_stream);
        vm_drv.p_cuMemUnmap(at, d->page_bytes);
        if (recorded == CUDA_SUCCESS) {
            waits = vm_drv.p_cuEventQuery(p->end[1]) != CUDA_ERROR_NOT_READY;
            wait_for(d, p->end[1]);
        }
    }
    vm_chunk_give(d, other);
    return waits;
}

static void measure(struct vm_device *d, const struct probe *p)
{
    double one[2] = {0}, both[2] = {0}, small = (double)(d->page_bytes / 2);
    struct vm_machine *m = &d->link;
    if (copies(d, p, true, false, one) && copies(d, p, false, true, one) &&
        copies(d, p, true, true, both) && one[0] > 0 && one[1] > 0 && both[0] > 0 && both[1] > 0) {
        m->out_bps = small * 1e9 / one[0];
        m->in_bps = small * 1e9 / one[1];
        m->out_duplex_bps = small * 1e9 / both[0];
        m->in_duplex_bps = small * 1e9 / both[1];
    }
    /* The first time unmapping may wait for what the program has under way. */
    if (mapping(d, p, &m->map_ns, &m->access_ns, &m->unmap_ns))
        mapping(d, p, &m->map_ns, &m->access_ns, &m->unmap_ns);
    d->unmap_waits = m->unmap_waits = unmap_waits(d, p);
}

void vm_link_measure(struct vm_device *d)
{
    if (d->link.out_bps > 0)
        return;
    d->link.out_bps = d->link.in_bps = d->link.out_duplex_bps = d->link.in_duplex_bps = 12e9;
    if (!vm_drv.p_cuEventElapsedTime)
        return;
    struct probe p = {0};
    bool pushed = vm_ctx_enter(d), chunk = false, slots[2] = {false, false};
    if (vm_chunks_available(d) < 2)
        vm_make_free(d, 2);
    chunk = vm_chunk_take(d, &p.chunk) == 0;
    for (int i = 0; i < 2; i++) {
        slots[i] = vm_host_slot_take(d, &p.slot[i]) == 0;
        if (vm_drv.p_cuEventCreate(&p.begin[i], CU_EVENT_DEFAULT) != CUDA_SUCCESS)
            p.begin[i] = NULL;
        if (vm_drv.p_cuEventCreate(&p.end[i], CU_EVENT_DEFAULT) != CUDA_SUCCESS)
            p.end[i] = NULL;
    }
    if (chunk && slots[0] && slots[1] && p.begin[0] && p.begin[1] && p.end[0] && p.end[1])
        measure(d, &p);
    for (int i = 0; i < 2; i++) {
        if (p.begin[i])
            vm_drv.p_cuEventDestroy_v2(p.begin[i]);
        if (p.end[i])
            vm_drv.p_cuEventDestroy_v2(p.end[i]);
        if (slots[i])
            vm_host_slot_give(d, p.slot[i]);
    }
    if (chunk)
        vm_chunk_give(d, p.chunk);
    vm_ctx_leave(pushed);
    vm_log(LINK_SPEED, d->unmap_waits ? "waits" : "does not wait",
           (unsigned long long)(d->link.out_bps / 1e6), (unsigned long long)(d->link.in_bps / 1e6),
           (unsigned long long)(d->link.out_duplex_bps / 1e6),
           (unsigned long long)(d->link.in_duplex_bps / 1e6));
}
