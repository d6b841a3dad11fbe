/* The program's page-locked host memory, remembered by address. */
#include "host.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "door.h"

/* As kernels see it, and where the host reads it; the two differ only on systems without a unified
 * address space. Sorted by `base`. */
struct range {
    _Atomic(uint64_t) base, end, host;
};

/* Readers take no lock: they read between two equal, even values of `version` or try again. Writers
 * hold the lock. An array that became too small is kept, as readers may still be in it. */
static struct {
    pthread_mutex_t lock;
    atomic_uint version;
    _Atomic(struct range *) at;
    atomic_size_t n;
    size_t cap;
    _Atomic(uint64_t) low, high; /* all ranges lie in [low, high) */
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t get(_Atomic(uint64_t) *v)
{
    return atomic_load_explicit(v, memory_order_relaxed);
}

static void set(_Atomic(uint64_t) *v, uint64_t to)
{
    atomic_store_explicit(v, to, memory_order_relaxed);
}

static void copy_range(struct range *to, struct range *from)
{
    set(&to->base, get(&from->base));
    set(&to->end, get(&from->end));
    set(&to->host, get(&from->host));
}

/* Position of the first range that ends behind `p`. */
static size_t position(struct range *at, size_t n, uint64_t p)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (get(&at[mid].end) <= p)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static void begin_change(void)
{
    pthread_mutex_lock(&table.lock);
    atomic_fetch_add_explicit(&table.version, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}

static void end_change(void)
{
    size_t n = atomic_load_explicit(&table.n, memory_order_relaxed);
    struct range *at = atomic_load_explicit(&table.at, memory_order_relaxed);
    set(&table.low, n ? get(&at[0].base) : 0);
    set(&table.high, n ? get(&at[n - 1].end) : 0);
    atomic_fetch_add_explicit(&table.version, 1, memory_order_release);
    pthread_mutex_unlock(&table.lock);
}

/* Under the lock, in a change: room for one more. */
static bool make_room(void)
{
    size_t n = atomic_load_explicit(&table.n, memory_order_relaxed);
    struct range *at = atomic_load_explicit(&table.at, memory_order_relaxed);
    if (n < table.cap)
        return true;
    size_t cap = table.cap ? 2 * table.cap : 64;
    struct range *bigger = calloc(cap, sizeof *bigger);
    if (!bigger)
        return false;
    for (size_t i = 0; i < n; i++)
        copy_range(&bigger[i], &at[i]);
    atomic_store_explicit(&table.at, bigger, memory_order_release);
    table.cap = cap;
    return true;
}

static void add(uint64_t base, const void *host, size_t bytes)
{
    if (!base || !bytes || base + bytes < base)
        return;
    begin_change();
    if (make_room()) {
        size_t n = atomic_load_explicit(&table.n, memory_order_relaxed);
        struct range *at = atomic_load_explicit(&table.at, memory_order_relaxed);
        size_t i = position(at, n, base);
        for (size_t k = n; k > i; k--)
            copy_range(&at[k], &at[k - 1]);
        set(&at[i].base, base);
        set(&at[i].end, base + bytes);
        set(&at[i].host, (uintptr_t)host);
        atomic_store_explicit(&table.n, n + 1, memory_order_relaxed);
    } else {
        vm_log(NO_ROOM, "page-locked memory");
    }
    end_change();
}

/* Every range of the host memory that starts at `host`. */
static void drop(const void *host)
{
    begin_change();
    size_t n = atomic_load_explicit(&table.n, memory_order_relaxed), kept = 0;
    struct range *at = atomic_load_explicit(&table.at, memory_order_relaxed);
    for (size_t i = 0; i < n; i++)
        if (get(&at[i].host) != (uintptr_t)host) {
            if (kept != i)
                copy_range(&at[kept], &at[i]);
            kept++;
        }
    atomic_store_explicit(&table.n, kept, memory_order_relaxed);
    end_change();
}

/* Where the host reads what is at `p`, and how much is left there; NULL if it is not page-locked.
 */
static const void *host_of(uint64_t p, size_t *bytes)
{
    for (;;) {
        unsigned before = atomic_load_explicit(&table.version, memory_order_acquire);
        const char *found = NULL;
        if (!(before & 1)) {
            struct range *at = atomic_load_explicit(&table.at, memory_order_acquire);
            size_t n = atomic_load_explicit(&table.n, memory_order_relaxed);
            size_t i = position(at, n, p);
            if (i < n && get(&at[i].base) <= p) {
                found = (const char *)(uintptr_t)get(&at[i].host) + (p - get(&at[i].base));
                *bytes = get(&at[i].end) - p;
            }
        }
        atomic_thread_fence(memory_order_acquire);
        if (!(before & 1) && atomic_load_explicit(&table.version, memory_order_relaxed) == before)
            return found;
    }
}

void vm_host_words(const void *params, size_t bytes)
{
    uint64_t low = get(&table.low), span = get(&table.high) - low;
    if (!span)
        return;
    for (size_t at = 0; at + 8 <= bytes; at += 8) {
        uint64_t word;
        size_t left = 0;
        memcpy(&word, (const char *)params + at, sizeof word);
        if (word - low >= span)
            continue;
        const void *host = host_of(word, &left);
        if (host)
            vm_rt_escape_scan(host,
                              left < vm_config()->escape_scan ? left : vm_config()->escape_scan);
    }
}

/* ---- doors ------------------------------------------------------------------------------------*/

CUresult door_cuMemHostAlloc(vm_fn_cuMemHostAlloc real, bool per_thread, void **pp, size_t bytesize,
                             unsigned Flags)
{
    CUresult r = real(pp, bytesize, Flags);
    if (r == CUDA_SUCCESS)
        add((uintptr_t)*pp, *pp, bytesize);
    return r;
}

CUresult door_cuMemAllocHost_v2(vm_fn_cuMemAllocHost_v2 real, bool per_thread, void **pp,
                                size_t bytesize)
{
    CUresult r = real(pp, bytesize);
    if (r == CUDA_SUCCESS)
        add((uintptr_t)*pp, *pp, bytesize);
    return r;
}

CUresult door_cuMemHostRegister_v2(vm_fn_cuMemHostRegister_v2 real, bool per_thread, void *p,
                                   size_t bytesize, unsigned Flags)
{
    CUresult r = real(p, bytesize, Flags);
    if (r == CUDA_SUCCESS)
        add((uintptr_t)p, p, bytesize);
    return r;
}

/* Another address for kernels: remembered with the rest of the memory behind it. */
CUresult door_cuMemHostGetDevicePointer_v2(vm_fn_cuMemHostGetDevicePointer_v2 real, bool per_thread,
                                           CUdeviceptr *pdptr, void *p, unsigned Flags)
{
    CUresult r = real(pdptr, p, Flags);
    size_t left = 0;
    if (r == CUDA_SUCCESS && *pdptr != (uintptr_t)p && host_of((uintptr_t)p, &left) == p)
        add(*pdptr, p, left);
    return r;
}

CUresult door_cuMemFreeHost(vm_fn_cuMemFreeHost real, bool per_thread, void *p)
{
    drop(p);
    return real(p);
}

CUresult door_cuMemHostUnregister(vm_fn_cuMemHostUnregister real, bool per_thread, void *p)
{
    drop(p);
    return real(p);
}
