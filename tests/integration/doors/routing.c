/* cuGetProcAddress under libvmem.so, for every name, many versions and both kinds of stream: what
 * the driver answers is either exchanged for our function of the same ABI, or handed on as it is.
 *
 * Run with the preload; argv[1] is the driver's path. */
#include <cuda.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef CUresult (*query_fn)(const char *, void **, int, cuuint64_t,
                             CUdriverProcAddressQueryResult *);
typedef CUresult (*query_v1_fn)(const char *, void **, int, cuuint64_t);

struct row {
    const char *symbol, *base;
    int version;
    bool per_thread;
};
static const struct row rows[] = {
#define VM_ROW(kind, symbol, suffix, base, version, per_thread, door, params, args)                \
    {#symbol, #base, version, per_thread},
#include "hooks.def"
#undef VM_ROW
};
#define ROWS (sizeof rows / sizeof rows[0])

static const char *const passing[] = {"cuDeviceGetCount",
                                      "cuDeviceGetAttribute",
                                      "cuGetErrorName",
                                      "cuGetExportTable",
                                      "cuMemCreate_",
                                      "cuCtxGetCurrent",
                                      "",
                                      "cu",
                                      "cuMemAddressReserve",
                                      "cuDriverGetVersion"};
static const int versions[] = {2000,  3020,  4000,  5000,  6000,  7000,  8000,  9000,  10000,
                               10010, 11000, 11010, 11020, 11030, 11040, 11060, 11070, 12000,
                               12020, 12030, 12040, 12050, 12080, 13000, 13010, 99000};

static void *driver, *us;
static query_fn real_query, our_query;
static int driver_version, failures, checks, exchanged, passed;

static void fail(const char *what, const char *symbol, int version, cuuint64_t flags)
{
    failures++;
    printf("FAILED: %s: %s version %d flags %lu\n", what, symbol, version, (unsigned long)flags);
}

static void *ask(query_fn query, const char *symbol, int version, cuuint64_t flags)
{
    void *p = NULL;
    CUdriverProcAddressQueryResult status;
    return query(symbol, &p, version, flags, &status) == CUDA_SUCCESS ? p : NULL;
}

/* The row that the driver's pointer stands for; with several, the one that the question is about.
 */
static const struct row *row_of(const void *p, const char *symbol, cuuint64_t flags)
{
    const struct row *found = NULL;
    bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    for (size_t i = 0; i < ROWS; i++) {
        const struct row *r = &rows[i];
        void *q = NULL;
        if (driver_version >= r->version)
            q = ask(real_query, r->base, r->version, r->per_thread ? 2 : 1);
        if (dlsym(driver, r->symbol) != p && q != p)
            continue;
        if (!found || (strcmp(r->base, symbol) == 0 && r->per_thread == per_thread))
            found = r;
    }
    return found;
}

/* NULL when `ours` is the right answer, else what is wrong with it. */
static const char *judge(const void *real, const void *ours, const char *symbol, cuuint64_t flags)
{
    const struct row *r = real ? row_of(real, symbol, flags) : NULL;
    Dl_info info;
    if (!r)
        return ours == real ? NULL : "not handed on as it is";
    if (!dladdr(ours, &info) || info.dli_fbase != us)
        return "not exchanged";
    if (!info.dli_sname || strcmp(info.dli_sname, r->symbol) != 0)
        return "exchanged for another function";
    return NULL;
}

static void compare(const char *symbol, int version, cuuint64_t flags)
{
    void *p = (void *)1, *q = (void *)1;
    CUdriverProcAddressQueryResult s = 77, t = 77;
    CUresult a = real_query(symbol, &p, version, flags, &s);
    CUresult b = our_query(symbol, &q, version, flags, &t);
    checks++;
    if (a != b || s != t) {
        fail("another result", symbol, version, flags);
        return;
    }
    const char *wrong =
        judge(a == CUDA_SUCCESS ? p : NULL, a == CUDA_SUCCESS ? q : NULL, symbol, flags);
    if (wrong)
        fail(wrong, symbol, version, flags);
    else if (a == CUDA_SUCCESS)
        *(p == q ? &passed : &exchanged) += 1;
}

/* The older form answers the same where both exist. */
static void compare_v1(query_v1_fn query, const char *symbol, int version, cuuint64_t flags)
{
    void *p = NULL, *q = NULL;
    CUdriverProcAddressQueryResult status;
    CUresult a = query(symbol, &p, version, flags);
    CUresult b = our_query(symbol, &q, version, flags, &status);
    checks++;
    if (a == CUDA_SUCCESS && (b != CUDA_SUCCESS || p != q))
        fail("the old form answers otherwise", symbol, version, flags);
}

static void compare_all(void)
{
    static const cuuint64_t flags[] = {0, 1, 2};
    void *q = NULL;
    query_v1_fn v1;
    q = ask(our_query, "cuGetProcAddress", 11030, 0);
    memcpy(&v1, &q, sizeof v1);
    if (!q)
        fail("no old form", "cuGetProcAddress", 11030, 0);
    for (size_t v = 0; v < sizeof versions / sizeof versions[0]; v++)
        for (size_t f = 0; f < 3; f++) {
            for (size_t i = 0; i < ROWS; i++)
                if (i == 0 || strcmp(rows[i].base, rows[i - 1].base) != 0) {
                    compare(rows[i].base, versions[v], flags[f]);
                    if (v1)
                        compare_v1(v1, rows[i].base, versions[v], flags[f]);
                }
            for (size_t i = 0; i < sizeof passing / sizeof passing[0]; i++)
                compare(passing[i], versions[v], flags[f]);
        }
}

/* The judge itself must see what is wrong. */
static void planted(void)
{
    void *real = ask(real_query, "cuLaunchKernel", 7000, 1);
    void *twin = ask(our_query, "cuLaunchKernel", 7000, 2);
    void *other = ask(our_query, "cuMemAlloc", 3020, 1);
    void *right = ask(our_query, "cuLaunchKernel", 7000, 1);
    void *plain = ask(real_query, "cuDeviceGetCount", 2000, 1);
    checks++;
    if (!judge(real, twin, "cuLaunchKernel", 1) || !judge(real, other, "cuLaunchKernel", 1) ||
        !judge(real, real, "cuLaunchKernel", 1) || !judge(plain, right, "cuDeviceGetCount", 1) ||
        judge(real, right, "cuLaunchKernel", 1))
        fail("the planted fault went unnoticed", "cuLaunchKernel", 7000, 1);
}

int main(int argc, char **argv)
{
    Dl_info info;
    CUresult (*version)(int *);
    void *p;
    if (argc < 2 || !(driver = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL))) {
        printf("no driver: %s\n", argc < 2 ? "no path" : dlerror());
        return 1;
    }
    p = dlsym(driver, "cuGetProcAddress_v2");
    memcpy(&real_query, &p, sizeof p);
    p = dlsym(driver, "cuDriverGetVersion");
    memcpy(&version, &p, sizeof p);
    p = dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2");
    memcpy(&our_query, &p, sizeof p);
    if (!real_query || !our_query || !dladdr(p, &info) || real_query == our_query ||
        version(&driver_version) != CUDA_SUCCESS) {
        printf("libvmem.so is not in front of the driver\n");
        return 1;
    }
    us = info.dli_fbase;
    compare_all();
    planted();
    printf("%d answers compared: %d exchanged, %d handed on, %d failures\n", checks, exchanged,
           passed, failures);
    return failures || !exchanged || !passed;
}
