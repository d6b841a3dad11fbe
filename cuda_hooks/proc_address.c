/* cuGetProcAddress: the driver answers with the caller's version and flags, and its answer is
 * exchanged for our function of the same ABI. Which pointer stands for which row of the hook table
 * is learnt from the driver itself, because the pointers that cuGetProcAddress gives need not be
 * those that dlsym gives. */
#include "door.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"

struct route {
    vm_any_fn real;
    int hook;
};

static struct {
    struct route at[2 * VM_HOOK_COUNT];
    size_t n;
} routes;
static pthread_once_t routes_once = PTHREAD_ONCE_INIT;

static int compare_routes(const void *a, const void *b)
{
    const struct route *x = a, *y = b;
    uintptr_t p = (uintptr_t)x->real, q = (uintptr_t)y->real;
    return p != q ? (p < q ? -1 : 1) : (x->hook > y->hook) - (x->hook < y->hook);
}

/* What the driver's own cuGetProcAddress gives for a row, NULL if it does not know this version. */
static vm_any_fn ask_driver(const struct vm_hook_row *row)
{
    void *p = NULL;
    vm_any_fn fn = NULL;
    CUdriverProcAddressQueryResult status;
    cuuint64_t flags = row->per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                       : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    /* An older driver would give the newest ABI it has, which is another one. */
    if (vm_driver_version() < row->version || !vm_driver_symbol("cuGetProcAddress_v2"))
        return NULL;
    if (VM_REAL(cuGetProcAddress_v2)(row->base, &p, row->version, flags, &status) != CUDA_SUCCESS)
        return NULL;
    memcpy(&fn, &p, sizeof fn);
    return fn;
}

static void add_route(vm_any_fn real, int hook)
{
    if (real)
        routes.at[routes.n++] = (struct route){real, hook};
}

static void learn_routes(void)
{
    for (int i = 0; i < VM_HOOK_COUNT; i++) {
        vm_any_fn by_name = vm_driver_symbol(vm_hook_rows[i].symbol);
        vm_any_fn by_query = ask_driver(&vm_hook_rows[i]);
        add_route(by_name, i);
        if (by_query != by_name)
            add_route(by_query, i);
    }
    qsort(routes.at, routes.n, sizeof routes.at[0], compare_routes);
}

/* Our function for the driver's answer; NULL when it is not hooked. Where one pointer serves
 * several rows (a driver may share code between twins), the name and the stream flag decide. */
static vm_any_fn route_of(vm_any_fn real, const char *symbol, cuuint64_t flags)
{
    pthread_once(&routes_once, learn_routes);
    bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    size_t low = 0, high = routes.n;
    const struct vm_hook_row *best = NULL;
    int best_score = -1;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if ((uintptr_t)routes.at[mid].real < (uintptr_t)real)
            low = mid + 1;
        else
            high = mid;
    }
    for (; low < routes.n && routes.at[low].real == real; low++) {
        const struct vm_hook_row *row = &vm_hook_rows[routes.at[low].hook];
        int score = 2 * (strcmp(row->base, symbol) == 0) + (row->per_thread == per_thread);
        if (score > best_score)
            best = row, best_score = score;
    }
    return best ? best->ours : NULL;
}

/* Without a driver: our own exported functions, which answer as such a machine does. */
static CUresult answer_without_driver(const char *symbol, void **pfn, int version,
                                      CUdriverProcAddressQueryResult *status)
{
    vm_any_fn fn = NULL;
    if (!symbol || !pfn)
        return CUDA_ERROR_INVALID_VALUE;
    if (strcmp(symbol, "cuGetProcAddress") == 0)
        fn = version >= 12000 ? (vm_any_fn)cuGetProcAddress_v2 : (vm_any_fn)cuGetProcAddress;
    else if (vm_name_known(symbol))
        fn = vm_no_driver_answer(symbol);
    else
        for (int i = 0; i < VM_HOOK_COUNT && !fn; i++)
            if (strcmp(vm_hook_rows[i].base, symbol) == 0)
                fn = vm_no_driver_answer(symbol);
    *pfn = NULL;
    memcpy(pfn, &fn, sizeof fn);
    if (status)
        *status = fn ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return fn ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

static void exchange(const char *symbol, cuuint64_t flags, void **pfn)
{
    vm_any_fn real = NULL, ours;
    if (!symbol || !pfn || !*pfn || vm_config()->disabled)
        return;
    memcpy(&real, pfn, sizeof real);
    ours = route_of(real, symbol, flags);
    if (ours)
        memcpy(pfn, &ours, sizeof ours);
}

VM_EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn, int driverVersion,
                                    cuuint64_t flags)
{
    struct vm_scope scope = vm_enter();
    CUresult r;
    if (!vm_driver_present()) {
        r = answer_without_driver(symbol, pfn, driverVersion, NULL);
    } else {
        r = VM_REAL(cuGetProcAddress)(symbol, pfn, driverVersion, flags);
        if (r == CUDA_SUCCESS && scope.outer)
            exchange(symbol, flags, pfn);
    }
    vm_leave(scope);
    return r;
}

VM_EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int driverVersion,
                                       cuuint64_t flags,
                                       CUdriverProcAddressQueryResult *symbolFound)
{
    struct vm_scope scope = vm_enter();
    CUresult r;
    if (!vm_driver_present()) {
        r = answer_without_driver(symbol, pfn, driverVersion, symbolFound);
    } else if (vm_driver_symbol("cuGetProcAddress_v2")) {
        r = VM_REAL(cuGetProcAddress_v2)(symbol, pfn, driverVersion, flags, symbolFound);
    } else { /* a driver before 12.0 */
        r = VM_REAL(cuGetProcAddress)(symbol, pfn, driverVersion, flags);
        if (symbolFound)
            *symbolFound = r == CUDA_SUCCESS ? CU_GET_PROC_ADDRESS_SUCCESS
                                             : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    }
    if (r == CUDA_SUCCESS && scope.outer && vm_driver_present())
        exchange(symbol, flags, pfn);
    vm_leave(scope);
    return r;
}
