#include "device.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "config.h"
#include "driver.h"
#include "executor.h"
#include "host_memory.h"
#include "host_pool.h"
#include "learn.h"
#include "page_size.h"
#include "recorder.h"
#include "replan.h"

struct vm_device *vm_devices[VM_MAX_DEVICES];
static atomic_uint ready_devices;
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

/* Pages of address space at most: bounds the page table (mapped lazily) to 512 MiB of host space.
 */
#define VM_MAX_PAGES (UINT64_C(1) << 22)
#define VM_MAX_SPACE (UINT64_C(1) << 42)
/* Address space at least, in budgets: half of it is for planned pools, and what is paged
 * out keeps its addresses. */
#define VM_LEAST_SPACE 4

void vm_nap(unsigned times)
{
    if (times < 64) {
        sched_yield();
        return;
    }
    struct timespec t = {0, times < 256 ? 5000 : 50000};
    nanosleep(&t, NULL);
}

bool vm_ctx_enter(struct vm_device *d)
{
    CUcontext now = NULL;
    if (vm_drv.p_cuCtxGetCurrent(&now) == CUDA_SUCCESS && now == d->ctx)
        return false;
    return vm_drv.p_cuCtxPushCurrent_v2(d->ctx) == CUDA_SUCCESS;
}

void vm_ctx_leave(bool pushed)
{
    CUcontext ignored;
    if (pushed)
        vm_drv.p_cuCtxPopCurrent_v2(&ignored);
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The budget: what the knob says, at most the card; else what is free less the reserve. */
static int find_budget(struct vm_device *d)
{
    const struct vm_config *c = vm_config();
    size_t free_bytes = 0, total = 0;
    if (vm_drv.p_cuMemGetInfo_v2(&free_bytes, &total) != CUDA_SUCCESS)
        return VM_NOTFOUND;
    d->total_bytes = total;
    uint64_t least = UINT64_C(256) << 20, share = total / 100 * 3;
    uint64_t reserve =
        vm_amount_of(&c->reserve, total, min_u64(share > least ? share : least, total / 8));
    uint64_t room = free_bytes > reserve ? free_bytes - reserve : free_bytes / 2;
    d->budget_set = c->budget.set;
    d->budget_bytes = vm_amount_of(&c->budget, total, room);
    if (d->budget_bytes > total) {
        vm_log(BUDGET_ABOVE_CARD, (unsigned long long)(d->budget_bytes >> 20),
               (unsigned long long)(total >> 20));
        d->budget_bytes = room;
        d->budget_set = false;
    }
    return 0;
}

static int choose_page(struct vm_device *d)
{
    CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d->ordinal}};
    size_t g = 0;
    if (vm_drv.p_cuMemGetAllocationGranularity(&g, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) !=
            CUDA_SUCCESS ||
        g == 0 || (g & (g - 1)) != 0)
        return VM_NOTFOUND;
    d->granularity = g;
    uint64_t page = g, want = vm_config()->chunk;
    if (want > 0) {
        while (page < want)
            page *= 2;
    } else {
        d->thrifty = !vm_policy_pages();
        page = vm_page_size(d->budget_bytes, g, !d->thrifty);
    }
    d->page_bytes = page;
    d->page_shift = (unsigned)__builtin_ctzll(page);
    d->max_chunks = d->budget_bytes / page;
    return d->max_chunks > 0 ? 0 : VM_UNFIT;
}

/* The address space of the blocks; where so much is refused, half of it, and so on while it is
 * VM_LEAST_SPACE budgets or more. */
static CUresult reserve_base(struct vm_device *d, uint64_t *pages)
{
    uint64_t want = min_u64(VM_MAX_PAGES, VM_MAX_SPACE >> d->page_shift);
    for (uint64_t n = want;; n /= 2) {
        CUresult r =
            vm_drv.p_cuMemAddressReserve(&d->base, n << d->page_shift, d->page_bytes, 0, 0);
        if (r == CUDA_SUCCESS) {
            *pages = n;
            if (n < want)
                vm_log(LESS_SPACE, d->ordinal, (unsigned long long)(n << d->page_shift >> 30),
                       (unsigned long long)(want << d->page_shift >> 30));
        }
        if (r == CUDA_SUCCESS || (n / 2) << d->page_shift < VM_LEAST_SPACE * d->budget_bytes)
            return r;
    }
}

static int reserve_space(struct vm_device *d)
{
    uint64_t pages = 0;
    size_t alias = d->max_chunks << d->page_shift;
    if (reserve_base(d, &pages) != CUDA_SUCCESS)
        return VM_NOTFOUND;
    void *t = MAP_FAILED;
    if (vm_drv.p_cuMemAddressReserve(&d->alias_base, alias, d->page_bytes, 0, 0) == CUDA_SUCCESS)
        t = mmap(NULL, pages * sizeof *d->pages, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (t == MAP_FAILED) {
        if (d->alias_base)
            vm_drv.p_cuMemAddressFree(d->alias_base, alias);
        vm_drv.p_cuMemAddressFree(d->base, pages << d->page_shift);
        return VM_NOTFOUND;
    }
    d->pages = t;
    d->npages = pages;
    d->pool_first = pages / 2;
    d->pool_next = d->pool_first;
    return vm_ranges_add(&d->page_space, 0, d->pool_first);
}

static int make_streams(struct vm_device *d)
{
    if (vm_drv.p_cuCtxGetCurrent(&d->ctx) != CUDA_SUCCESS || !d->ctx)
        return VM_NOTFOUND;
    if (vm_drv.p_cuStreamCreate(&d->out_stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return VM_NOTFOUND;
    if (vm_drv.p_cuStreamCreate(&d->in_stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
        vm_drv.p_cuStreamDestroy_v2(d->out_stream);
        return VM_NOTFOUND;
    }
    return 0;
}

static int make_ready(struct vm_device *d)
{
    int r = find_budget(d);
    if (r == 0)
        r = choose_page(d);
    if (r == 0)
        r = make_streams(d);
    if (r == 0)
        r = reserve_space(d);
    if (r == 0) {
        uint64_t host = vm_host_budget();
        d->host.limit_slots = host >> d->page_shift;
        vm_host_pool_init(d);
        d->float_chunks =
            vm_amount_of(&vm_config()->float_share, d->budget_bytes, d->budget_bytes / 32) >>
            d->page_shift;
        r = vm_recorder_new(d);
        if (r == 0)
            r = vm_learn_new(d);
        if (r == 0)
            r = vm_executor_new(d);
    }
    if (r == VM_UNFIT)
        vm_log(BUDGET_BELOW_PAGE, (unsigned long long)d->budget_bytes,
               (unsigned long long)d->page_bytes);
    else if (r != 0)
        vm_log(DEVICE_UNSERVED, d->ordinal);
    else
        vm_log(DEVICE_READY, d->ordinal, (unsigned long long)(d->budget_bytes >> 20),
               (unsigned long long)(d->page_bytes >> 10),
               (unsigned long long)((d->host.limit_slots << d->page_shift) >> 20));
    return r;
}

static struct vm_device *device_make(CUdevice ordinal)
{
    struct vm_device *d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    pthread_mutex_init(&d->lock, NULL);
    d->ordinal = ordinal;
    d->unmap_waits = true; /* until it is seen not to */
    d->unserved = make_ready(d) != 0;
    return d;
}

struct vm_device *vm_device_current(void)
{
    CUdevice ordinal;
    if (vm_drv.p_cuCtxGetDevice(&ordinal) != CUDA_SUCCESS || ordinal < 0 ||
        ordinal >= VM_MAX_DEVICES)
        return NULL;
    struct vm_device *d = __atomic_load_n(&vm_devices[ordinal], __ATOMIC_ACQUIRE);
    if (!d) {
        pthread_mutex_lock(&making);
        d = vm_devices[ordinal];
        if (!d) {
            d = device_make(ordinal);
            __atomic_store_n(&vm_devices[ordinal], d, __ATOMIC_RELEASE);
            if (d && !d->unserved) {
                __atomic_store_n(&d->reserved_bytes, d->npages << d->page_shift, __ATOMIC_RELEASE);
                atomic_fetch_or(&ready_devices, 1u << ordinal);
            }
        }
        pthread_mutex_unlock(&making);
    }
    return d && !d->unserved ? d : NULL;
}

struct vm_device *vm_device_of(CUdeviceptr p)
{
    unsigned ready = atomic_load_explicit(&ready_devices, memory_order_acquire);
    while (ready) {
        struct vm_device *d = vm_devices[__builtin_ctz(ready)];
        if (vm_device_holds(d, p))
            return d;
        ready &= ready - 1;
    }
    return NULL;
}

/* Can the process see one device only? Then no call can mean another. */
static bool single_device(void)
{
    static atomic_int count;
    int n = atomic_load_explicit(&count, memory_order_relaxed);
    if (n == 0) {
        if (!vm_drv.p_cuDeviceGetCount || vm_drv.p_cuDeviceGetCount(&n) != CUDA_SUCCESS)
            n = VM_MAX_DEVICES;
        atomic_store_explicit(&count, n, memory_order_relaxed);
    }
    return n == 1;
}

struct vm_device *vm_device_default(void)
{
    unsigned ready = atomic_load_explicit(&ready_devices, memory_order_acquire);
    if (!ready)
        return NULL;
    if (single_device())
        return vm_devices[__builtin_ctz(ready)];
    /* Another device's thread may ask before its own device is ready: only the context tells. */
    CUdevice ordinal;
    if (vm_drv.p_cuCtxGetDevice(&ordinal) != CUDA_SUCCESS || ordinal < 0 ||
        ordinal >= VM_MAX_DEVICES || !(ready & (1u << ordinal)))
        return NULL;
    return vm_devices[ordinal];
}

/* The context is going: the driver frees what it held; we forget the device without a call. */
void vm_device_forget(CUcontext ctx)
{
    for (unsigned i = 0; i < VM_MAX_DEVICES; i++) {
        struct vm_device *d = vm_devices[i];
        if (!d || d->ctx != ctx || d->unserved)
            continue;
        pthread_mutex_lock(&d->lock);
        vm_recorder_finish(d);
        d->broken = CUDA_ERROR_CONTEXT_IS_DESTROYED;
        pthread_mutex_unlock(&d->lock);
    }
}
