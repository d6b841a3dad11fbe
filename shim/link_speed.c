#include "link_speed.h"

#include "chunk_pool.h"
#include "driver.h"
#include "host_pool.h"
#include "log.h"
#include "pager.h"
#include "residency.h"
#include "stream.h"

#define VM_PROBES 4 /* copies a measurement */
#define VM_MAPPED 4 /* pages mapped at a time  */

enum {
    BEGIN = 0, /* of the out stream, of the in stream */
    END = 2,
    STEP = 4, /* between the steps of mapping */
    EVENTS = 9
};

struct probe {
    uint32_t chunk, slot[2];
    CUevent e[EVENTS];
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

/* Issues VM_PROBES copies of so many bytes, half a page at most, in the directions asked for, and times each.
 * ns[i] = 0: not done. */
static bool copies(struct vm_device *d, const struct probe *p, bool out, bool in, size_t bytes,
                   double ns[2])
{
    CUstream s[2] = {d->out_stream, d->in_stream};
    bool want[2] = {out, in};
    CUdeviceptr a = d->chunks[p->chunk].alias;
    CUresult r = CUDA_SUCCESS;
    for (int i = 0; i < 2; i++)
        if (want[i] && r == CUDA_SUCCESS)
            r = vm_drv.p_cuEventRecord(p->e[BEGIN + i], s[i]);
    for (int k = 0; k < VM_PROBES && r == CUDA_SUCCESS; k++) {
        if (out)
            r = vm_drv.p_cuMemcpyDtoHAsync_v2(vm_host_slot_addr(d, p->slot[0]), a, bytes,
                                              s[0]);
        if (in && r == CUDA_SUCCESS)
            r = vm_drv.p_cuMemcpyHtoDAsync_v2(
                a + d->page_bytes / 2, vm_host_slot_addr(d, p->slot[1]), bytes, s[1]);
    }
    for (int i = 0; i < 2; i++) {
        float ms = 0;
        if (!want[i] || r != CUDA_SUCCESS)
            continue;
        r = vm_drv.p_cuEventRecord(p->e[END + i], s[i]);
        if (r == CUDA_SUCCESS && !wait_for(d, p->e[END + i]))
            return false;
        if (r == CUDA_SUCCESS)
            r = vm_drv.p_cuEventElapsedTime(&ms, p->e[BEGIN + i], p->e[END + i]);
        ns[i] = (double)ms * 1e6 / VM_PROBES;
    }
    return r == CUDA_SUCCESS;
}

/* Maps, makes accessible and unmaps n pages that show one chunk. Between two events on an idle stream lies the
 * host's time: ns[0] .. ns[2] receive that of the three steps, ns[3] that of nothing but an event. */
static bool map_some(struct vm_device *d, const struct probe *p, unsigned n, double ns[4])
{
    CUdeviceptr at = d->base + ((d->npages - n) << d->page_shift); /* the last pages are never used */
    CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d->ordinal},
                            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t bytes = (size_t)n << d->page_shift;
    unsigned mapped = 0;
    float ms;
    CUresult r = vm_drv.p_cuEventRecord(p->e[STEP + 0], d->in_stream);
    for (; mapped < n && r == CUDA_SUCCESS; mapped += r == CUDA_SUCCESS)
        r = vm_drv.p_cuMemMap(at + ((CUdeviceptr)mapped << d->page_shift), d->page_bytes, 0,
                              d->chunks[p->chunk].handle, 0);
    vm_drv.p_cuEventRecord(p->e[STEP + 1], d->in_stream);
    if (r == CUDA_SUCCESS)
        r = vm_drv.p_cuMemSetAccess(at, bytes, &desc, 1);
    vm_drv.p_cuEventRecord(p->e[STEP + 2], d->in_stream);
    if (mapped > 0 &&
        vm_drv.p_cuMemUnmap(at, (size_t)mapped << d->page_shift) != CUDA_SUCCESS)
        return false;
    vm_drv.p_cuEventRecord(p->e[STEP + 3], d->in_stream);
    if (r != CUDA_SUCCESS || vm_drv.p_cuEventRecord(p->e[STEP + 4], d->in_stream) != CUDA_SUCCESS ||
        !wait_for(d, p->e[STEP + 4]))
        return false;
    for (int i = 0; i < 4; i++) {
        if (vm_drv.p_cuEventElapsedTime(&ms, p->e[STEP + i], p->e[STEP + i + 1]) != CUDA_SUCCESS)
            return false;
        ns[i] = (double)ms * 1e6;
    }
    return true;
}

/* What n pages at once take more than one is what each takes; the rest is the call's. */
static void split(double one, double some, double call, double *page_ns, double *call_ns)
{
    double page = (some - one) / (VM_MAPPED - 1);
    if (page < 0 || page > one - call)
        page = one > call ? one - call : 0;
    *page_ns = page;
    *call_ns = one - page - call > 0 ? one - page - call : 0;
}

static void mapping(struct vm_device *d, const struct probe *p)
{
    double one[4], some[4];
    struct vm_machine *m = &d->link;
    /* The first time unmapping may wait for what the program has under way. */
    if (!map_some(d, p, 1, one) || !map_some(d, p, 1, one) || !map_some(d, p, VM_MAPPED, some))
        return;
    m->call_ns = one[3];
    m->map_ns = (some[0] - one[3]) / VM_MAPPED;
    if (m->map_ns < 0)
        m->map_ns = 0;
    split(one[1], some[1], one[3], &m->access_ns, &m->access_call_ns);
    split(one[2], some[2], one[3], &m->unmap_ns, &m->unmap_call_ns);
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
        CUresult recorded = vm_drv.p_cuEventRecord(p->e[END + 1], d->in_stream);
        vm_drv.p_cuMemUnmap(at, d->page_bytes);
        if (recorded == CUDA_SUCCESS) {
            waits = vm_drv.p_cuEventQuery(p->e[END + 1]) != CUDA_ERROR_NOT_READY;
            wait_for(d, p->e[END + 1]);
        }
    }
    vm_chunk_give(d, other);
    return waits;
}

/* What a copy costs beside its bytes, from copies of two sizes one way. */
static double latency(double small_ns, double large_ns, double small, double large)
{
    double fixed = small_ns - (large_ns - small_ns) / (large - small) * small;
    return fixed > 0 && large_ns > small_ns ? fixed : 0;
}

static void measure_copies(struct vm_device *d, const struct probe *p)
{
    struct vm_machine *m = &d->link;
    size_t large = d->page_bytes / 2, small = d->page_bytes / 8;
    double few[2] = {0}, one[2] = {0}, both[2] = {0}, n = (double)large;
    if (!copies(d, p, true, false, small, few) || !copies(d, p, true, false, large, one) ||
        !copies(d, p, false, true, small, few) || !copies(d, p, false, true, large, one) ||
        !copies(d, p, true, true, large, both))
        return;
    double out = latency(few[0], one[0], (double)small, n), in = latency(few[1], one[1], (double)small, n);
    double fixed = out < in ? out : in;
    if (one[0] <= fixed || one[1] <= fixed || both[0] <= fixed || both[1] <= fixed)
        return;
    m->copy_latency_ns = fixed;
    m->out_bps = n * 1e9 / (one[0] - fixed);
    m->in_bps = n * 1e9 / (one[1] - fixed);
    m->out_duplex_bps = n * 1e9 / (both[0] - fixed);
    m->in_duplex_bps = n * 1e9 / (both[1] - fixed);
}

static void measure(struct vm_device *d, const struct probe *p)
{
    measure_copies(d, p);
    mapping(d, p);
    d->unmap_waits = d->link.unmap_waits = unmap_waits(d, p);
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
    for (int i = 0; i < 2; i++)
        slots[i] = vm_host_slot_take(d, &p.slot[i]) == 0;
    unsigned events = 0;
    while (events < EVENTS && vm_drv.p_cuEventCreate(&p.e[events], CU_EVENT_DEFAULT) == CUDA_SUCCESS)
        events++;
    if (chunk && slots[0] && slots[1] && events == EVENTS)
        measure(d, &p);
    while (events > 0)
        vm_drv.p_cuEventDestroy_v2(p.e[--events]);
    for (int i = 0; i < 2; i++)
        if (slots[i])
            vm_host_slot_give(d, p.slot[i]);
    if (chunk)
        vm_chunk_give(d, p.chunk);
    vm_ctx_leave(pushed);
    vm_log(LINK_SPEED, d->unmap_waits ? "waits" : "does not wait",
           (unsigned long long)(d->link.out_bps / 1e6), (unsigned long long)(d->link.in_bps / 1e6),
           (unsigned long long)(d->link.out_duplex_bps / 1e6),
           (unsigned long long)(d->link.in_duplex_bps / 1e6));
}
