/* Kernels and their parameter layouts. */
#include "function.h"
#include "host.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "door.h"

/* ---- the table: handle -> function. Readers take no lock. -------------------------------------
 *
 * Open addressing, twice as many places as entries at least. A place's key is published after its
 * value. When it grows, readers of the old table may miss a new entry and then come to the lock.
 * Old tables and replaced functions are kept: readers may hold them, and their sum is bounded by
 * the size of the newest table and by the number of handles that were ever reused. */

struct place {
    _Atomic(uintptr_t) key;
    _Atomic(struct vm_function *) fn;
    atomic_uchar kernel; /* a CUkernel, not a CUfunction */
    atomic_uchar stale;  /* a module was unloaded since: ask again */
};

struct table {
    size_t mask, used;
    struct place places[];
};

static _Atomic(struct table *) current;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t hash_handle(uintptr_t h)
{
    uint64_t x = (uint64_t)h * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(x >> 20);
}

static struct place *find(struct table *t, uintptr_t key)
{
    if (!t)
        return NULL;
    for (size_t i = hash_handle(key);; i++) {
        struct place *p = &t->places[i & t->mask];
        uintptr_t k = atomic_load_explicit(&p->key, memory_order_acquire);
        if (k == key)
            return p;
        if (!k)
            return NULL;
    }
}

/* Under the lock: a free place for `key`, growing the table if needed. NULL: no memory. */
static struct place *make_room(uintptr_t key)
{
    struct table *t = atomic_load_explicit(&current, memory_order_relaxed);
    if (!t || 2 * (t->used + 1) > t->mask + 1) {
        size_t n = t ? 2 * (t->mask + 1) : 256;
        struct table *bigger = calloc(1, sizeof *bigger + n * sizeof(struct place));
        if (!bigger)
            return NULL;
        bigger->mask = n - 1;
        for (size_t i = 0; t && i <= t->mask; i++) {
            uintptr_t k = atomic_load_explicit(&t->places[i].key, memory_order_relaxed);
            if (!k)
                continue;
            size_t at = hash_handle(k);
            while (
                atomic_load_explicit(&bigger->places[at & bigger->mask].key, memory_order_relaxed))
                at++;
            struct place *p = &bigger->places[at & bigger->mask];
            atomic_init(&p->fn, atomic_load(&t->places[i].fn));
            atomic_init(&p->kernel, atomic_load(&t->places[i].kernel));
            atomic_init(&p->stale, atomic_load(&t->places[i].stale));
            atomic_init(&p->key, k);
            bigger->used++;
        }
        atomic_store_explicit(&current, bigger, memory_order_release);
        t = bigger;
    }
    size_t at = hash_handle(key);
    while (atomic_load_explicit(&t->places[at & t->mask].key, memory_order_relaxed))
        at++;
    t->used++;
    return &t->places[at & t->mask];
}

/* ---- asking the driver ------------------------------------------------------------------------*/

static uint64_t hash_text(const char *s)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * UINT64_C(0x100000001b3);
    return h;
}

static CUresult param_info(uintptr_t h, bool kernel, size_t i, size_t *offset, size_t *size)
{
    if (kernel)
        return vm_uses.cuKernelGetParamInfo
                   ? vm_uses.cuKernelGetParamInfo((CUkernel)h, i, offset, size)
                   : CUDA_ERROR_NOT_SUPPORTED;
    return vm_uses.cuFuncGetParamInfo((CUfunction)h, i, offset, size);
}

static const char *name_of(uintptr_t h, bool kernel)
{
    const char *name = NULL;
    if (kernel
            ? vm_uses.cuKernelGetName && vm_uses.cuKernelGetName(&name, (CUkernel)h) == CUDA_SUCCESS
            : vm_uses.cuFuncGetName(&name, (CUfunction)h) == CUDA_SUCCESS)
        return name ? name : "";
    return "";
}

static bool add_words(struct vm_function **fn, size_t *cap, size_t index, size_t offset,
                      size_t size)
{
    size_t skip = (8 - offset % 8) % 8;
    struct vm_function *f = *fn;
    if (offset + size > f->param_bytes)
        f->param_bytes = (uint32_t)(offset + size);
    if (size < skip + 8)
        return true; /* no aligned word in it */
    if (f->nwords == *cap) {
        *cap = *cap ? 2 * *cap : 16;
        f = realloc(f, sizeof *f + *cap * sizeof f->words[0]);
        if (!f)
            return false;
        *fn = f;
    }
    f->words[f->nwords++] = (struct vm_param_words){(uint32_t)index, (uint16_t)skip,
                                                    (uint16_t)((size - skip) & ~(size_t)7)};
    return true;
}

static void forget(struct vm_function *fn)
{
    free(fn->numbers);
    free(fn->name);
    free(fn);
}

/* Learns name and layout. NULL with *error set when the driver refuses, or 0 without memory. */
static struct vm_function *ask(uintptr_t h, bool kernel, CUresult *error)
{
    struct vm_function *fn = calloc(1, sizeof *fn);
    size_t cap = 0, offset, size, i;
    CUresult r = CUDA_SUCCESS;
    *error = CUDA_SUCCESS;
    for (i = 0; fn && (r = param_info(h, kernel, i, &offset, &size)) == CUDA_SUCCESS; i++)
        if (size > UINT16_MAX || !add_words(&fn, &cap, i, offset, size)) {
            free(fn);
            return NULL;
        }
    if (!fn)
        return NULL;
    if (r != CUDA_ERROR_INVALID_VALUE) { /* the answer behind the last parameter */
        *error = r;
        free(fn);
        return NULL;
    }
    const char *name = name_of(h, kernel);
    fn->name = strdup(name);
    fn->name_hash = hash_text(name);
    int list = vm_torch_list_param(name);
    int offsets = vm_torch_offsets_param(name);
    for (uint32_t w = 0; w < fn->nwords; w++) {
        if ((int)fn->words[w].index == list && fn->words[w].skip == 0)
            fn->list = vm_torch_list_of(name, fn->words[w].bytes);
        if ((int)fn->words[w].index == offsets && fn->words[w].skip == 0)
            fn->offsets = vm_torch_offsets_of(name, fn->words[w].bytes);
    }
    if (strncmp(name, "_ZN2at", 6) == 0)
        fn->numbers = calloc(fn->param_bytes / 8 + 1, sizeof *fn->numbers);
    if (fn->name)
        return fn;
    forget(fn);
    return NULL;
}

static bool same(const struct vm_function *a, const struct vm_function *b)
{
    return a->name_hash == b->name_hash && a->param_bytes == b->param_bytes &&
           a->nwords == b->nwords &&
           memcmp(a->words, b->words, a->nwords * sizeof a->words[0]) == 0;
}

static const struct vm_function *learn(uintptr_t h)
{
    bool kernel = false;
    CUresult error;
    struct place *p = find(atomic_load_explicit(&current, memory_order_acquire), h);
    if (p)
        kernel = atomic_load(&p->kernel);
    struct vm_function *fn = ask(h, kernel, &error); /* no lock over driver calls */
    if (!fn && error != CUDA_SUCCESS) {              /* a handle that was the other kind before */
        CUresult other;
        fn = ask(h, !kernel, &other);
        if (fn || other == CUDA_SUCCESS)
            kernel = !kernel, error = other;
    }
    if (!fn) {
        if (error != CUDA_SUCCESS && error != CUDA_ERROR_INVALID_HANDLE)
            vm_log(LAUNCH_LAYOUT, name_of(h, kernel), (int)error);
        else if (error == CUDA_SUCCESS)
            vm_log(NO_ROOM, "a kernel launch");
        return NULL;
    }
    pthread_mutex_lock(&lock);
    p = find(atomic_load_explicit(&current, memory_order_relaxed), h);
    struct vm_function *old = p ? atomic_load(&p->fn) : NULL;
    if (old && same(old, fn)) { /* another thread was first, or the handle came back unchanged */
        forget(fn);
        fn = old;
        atomic_store(&p->stale, 0);
    } else if (p || (p = make_room(h))) {
        atomic_store(&p->fn, fn);
        atomic_store(&p->kernel, kernel);
        atomic_store(&p->stale, 0);
        atomic_store_explicit(&p->key, h, memory_order_release);
    } else {
        forget(fn);
        fn = NULL;
        vm_log(NO_ROOM, "a kernel launch");
    }
    pthread_mutex_unlock(&lock);
    return fn;
}

const struct vm_function *vm_function_of(CUfunction f)
{
    uintptr_t h = (uintptr_t)f;
    if (!h)
        return NULL;
    struct place *p = find(atomic_load_explicit(&current, memory_order_acquire), h);
    if (p && !atomic_load_explicit(&p->stale, memory_order_acquire)) {
        const struct vm_function *fn = atomic_load_explicit(&p->fn, memory_order_acquire);
        if (fn)
            return fn;
    }
    return learn(h);
}

static void remember_kernel(CUkernel k)
{
    uintptr_t h = (uintptr_t)k;
    if (!h)
        return;
    pthread_mutex_lock(&lock);
    struct place *p = find(atomic_load_explicit(&current, memory_order_relaxed), h);
    if (!p && (p = make_room(h))) {
        atomic_store(&p->kernel, 1);
        atomic_store_explicit(&p->key, h, memory_order_release);
    } else if (p && !atomic_load(&p->kernel)) { /* the handle of a function that went */
        atomic_store(&p->kernel, 1);
        atomic_store(&p->stale, 1);
    } else if (!p) {
        vm_log(NO_ROOM, "a kernel handle");
    }
    pthread_mutex_unlock(&lock);
}

/* Handles may be reused for other kernels from now on: called before the driver frees them. */
static void forget_all(void)
{
    pthread_mutex_lock(&lock);
    struct table *t = atomic_load_explicit(&current, memory_order_relaxed);
    for (size_t i = 0; t && i <= t->mask; i++)
        if (atomic_load_explicit(&t->places[i].key, memory_order_relaxed))
            atomic_store(&t->places[i].stale, 1);
    pthread_mutex_unlock(&lock);
}

/* ---- parameters -------------------------------------------------------------------------------*/

/* The packed buffer of the `extra` form; NULL if there is none. */
static const void *packed_buffer(void **extra, size_t *bytes)
{
    const void *buffer = NULL;
    *bytes = 0;
    for (size_t i = 0; extra && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[i + 1];
        else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            *bytes = extra[i + 1] ? *(const size_t *)extra[i + 1] : 0;
    }
    return buffer;
}

static void scan(struct vm_op *op, const void *words, size_t bytes, bool doubtful)
{
    vm_op_scan(op, words, bytes, doubtful);
    vm_host_words(words, bytes);
}

/* Up to 2^40 lie what some drivers reserve and pairs of small numbers: there an address is what lies in
 * memory of ours. */
static bool is_number(CUdeviceptr word)
{
    return vm_cannot_be_address(word) || (word >> 40 == 0 && !vm_rt_reserved(word));
}

/* Words that may hold an address, doubtful ones where one has held a number; *number stands for the
 * first. */
static void scan_learning(struct vm_op *op, const char *from, size_t bytes, atomic_uchar *number)
{
    for (size_t at = 0; at + 8 <= bytes; at += 8, number++) {
        CUdeviceptr word;
        memcpy(&word, from + at, sizeof word);
        if (!word)
            continue;
        if (is_number(word))
            atomic_store_explicit(number, 1, memory_order_relaxed);
        else
            scan(op, from + at, sizeof word, atomic_load_explicit(number, memory_order_relaxed));
    }
}

/* A parameter of one of PyTorch's kernels: all but what holds no address, or was never written. */
static void scan_torch(struct vm_op *op, const struct vm_function *fn,
                       const struct vm_param_words *w, const char *value, atomic_uchar *numbers)
{
    struct vm_torch_gap gaps[VM_TORCH_GAPS];
    unsigned n = 0, at = w->skip, end = w->skip + w->bytes;
    if (fn->offsets.kind && fn->offsets.param == w->index)
        n = vm_torch_offsets_gaps(&fn->offsets, value, gaps);
    for (unsigned i = 0; i < n; i++) {
        scan_learning(op, value + at, gaps[i].from - at, numbers + (at - w->skip) / 8);
        at = gaps[i].to;
    }
    scan_learning(op, value + at, end - at, numbers + (at - w->skip) / 8);
}

/* Only the addresses in use. False: this launch passes no list of the kind after all. */
static bool scan_list(struct vm_op *op, const struct vm_torch_list *l, const char *value,
                      const unsigned grid[3])
{
    int used = vm_torch_list_used(l, value, grid);
    if (used < 0)
        return false;
    for (unsigned row = 0; row < l->rows; row++)
        scan(op, value + row * l->places * sizeof(CUdeviceptr), (size_t)used * sizeof(CUdeviceptr),
             false);
    if (l->extra_at)
        scan(op, value + l->extra_at, (size_t)used * sizeof(CUdeviceptr), false);
    return true;
}

void vm_function_scan(struct vm_op *op, const struct vm_function *fn, const unsigned grid[3],
                      void **params, void **extra)
{
    if (params) {
        size_t seen = 0;
        for (uint32_t i = 0; i < fn->nwords; i++) {
            const struct vm_param_words *w = &fn->words[i];
            const char *value = params[w->index];
            size_t first = seen;
            seen += w->bytes / 8;
            if (!value)
                continue;
            if (fn->list.rows && fn->list.param == w->index &&
                scan_list(op, &fn->list, value, grid))
                continue;
            if (fn->numbers)
                scan_torch(op, fn, w, value, fn->numbers + first);
            else
                scan(op, value + w->skip, w->bytes, false);
        }
        return;
    }
    size_t bytes;
    const void *buffer = packed_buffer(extra, &bytes);
    if (!buffer)
        return;
    scan(op, buffer, bytes & ~(size_t)7, false);
}

static void words_of(const void *from, size_t bytes, void (*each)(void *, CUdeviceptr), void *ctx)
{
    for (size_t at = 0; at + 8 <= bytes; at += 8) {
        CUdeviceptr word;
        memcpy(&word, (const char *)from + at, sizeof word);
        each(ctx, word);
    }
}

void vm_function_words(CUfunction f, void **params, void **extra, void (*each)(void *, CUdeviceptr),
                       void *ctx)
{
    const struct vm_function *fn = params ? vm_function_of(f) : NULL;
    for (uint32_t i = 0; fn && i < fn->nwords; i++)
        if (params[fn->words[i].index])
            words_of((const char *)params[fn->words[i].index] + fn->words[i].skip,
                     fn->words[i].bytes, each, ctx);
    size_t bytes;
    const void *buffer = packed_buffer(extra, &bytes);
    if (buffer)
        words_of(buffer, bytes, each, ctx);
}

/* ---- doors ------------------------------------------------------------------------------------*/

CUresult door_cuLibraryGetKernel(vm_fn_cuLibraryGetKernel real, bool per_thread, CUkernel *pKernel,
                                 CUlibrary library, const char *name)
{
    CUresult r;
    VM_RETRY(r, real(pKernel, library, name));
    if (r == CUDA_SUCCESS && pKernel)
        remember_kernel(*pKernel);
    return r;
}

CUresult door_cuLibraryEnumerateKernels(vm_fn_cuLibraryEnumerateKernels real, bool per_thread,
                                        CUkernel *kernels, unsigned numKernels, CUlibrary lib)
{
    CUresult r;
    if (kernels)
        memset(kernels, 0, numKernels * sizeof kernels[0]); /* fewer may be filled in */
    VM_RETRY(r, real(kernels, numKernels, lib));
    for (unsigned i = 0; r == CUDA_SUCCESS && kernels && i < numKernels; i++)
        remember_kernel(kernels[i]);
    return r;
}

CUresult door_cuModuleUnload(vm_fn_cuModuleUnload real, bool per_thread, CUmodule hmod)
{
    forget_all();
    return real(hmod);
}

CUresult door_cuLibraryUnload(vm_fn_cuLibraryUnload real, bool per_thread, CUlibrary library)
{
    forget_all();
    return real(library);
}
