#include "resolve.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "door.h"
#include "config.h"

/* ---- tables ----------------------------------------------------------------------------------*/

const struct vm_hook_row vm_hook_rows[VM_HOOK_COUNT] = {
#define VM_ROW(kind, symbol, suffix, base, version, per_thread, door, params, args)                \
    [VM_R_##symbol] = {#symbol, #base, (vm_any_fn)symbol, version, per_thread},
#include "hooks.def"
#undef VM_ROW
};

static const char *const tramp_names[] = {
#define VM_TRAMP(name, index) #name,
#include "trampolines.inc"
#undef VM_TRAMP
};
#define TRAMPS (sizeof tramp_names / sizeof tramp_names[0])

/* Read by the jumps of trampoline_*.S; each slot is written once with a plain pointer store. */
extern _Atomic(vm_any_fn) vm_tramp_slots[];
_Atomic(vm_any_fn) vm_tramp_slots[TRAMPS];
/* Called by an empty slot's jump. */
vm_any_fn vm_tramp_resolve(unsigned index);

static _Atomic(vm_any_fn) real_functions[VM_HOOK_COUNT];
struct vm_uses vm_uses;

static struct {
    void *handle;
    char path[PATH_MAX];
    int version;
} driver;

static pthread_once_t driver_once = PTHREAD_ONCE_INIT;
/* Opening the driver runs its constructors; should they call us, they get an error, not a deadlock.
 */
static _Thread_local bool opening __attribute__((tls_model("initial-exec")));

/* ---- opening ---------------------------------------------------------------------------------*/

static CUresult missing_call(void)
{
    return CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND;
}

vm_any_fn vm_driver_symbol(const char *name)
{
    void *p = vm_driver_present() ? dlsym(driver.handle, name) : NULL;
    vm_any_fn fn = NULL;
    memcpy(&fn, &p, sizeof fn);
    return fn;
}

/* Fills the hook table and the doors' own functions. */
static void bind_functions(void)
{
    for (int i = 0; i < VM_HOOK_COUNT; i++) {
        const char *name = vm_hook_rows[i].symbol;
        vm_any_fn fn = driver.handle ? vm_driver_symbol(name) : vm_no_driver_answer(name);
        atomic_store_explicit(&real_functions[i], fn ? fn : (vm_any_fn)missing_call,
                              memory_order_release);
    }
#define VM_USE(symbol, params)                                                                     \
    vm_uses.symbol = (CUresult(*) params)(driver.handle ? vm_driver_symbol(#symbol) : NULL);
#include "uses.def"
#undef VM_USE
}

static void open_driver(void)
{
    opening = true;
    driver.handle = vm_find_driver(vm_config()->libcuda, driver.path, sizeof driver.path);
    if (driver.handle)
        vm_log(DRIVER_FOUND, driver.path);
    else
        vm_log(DRIVER_NONE);
    bind_functions();
    if (vm_uses.cuDriverGetVersion && vm_uses.cuDriverGetVersion(&driver.version) != CUDA_SUCCESS)
        driver.version = 0;
    opening = false;
}

bool vm_driver_present(void)
{
    if (!opening)
        pthread_once(&driver_once, open_driver);
    return driver.handle != NULL;
}

const char *vm_driver_path(void)
{
    return vm_driver_present() ? driver.path : "";
}

int vm_driver_version(void)
{
    return vm_driver_present() ? driver.version : 0;
}

vm_any_fn vm_real(int hook)
{
    vm_any_fn fn = atomic_load_explicit(&real_functions[hook], memory_order_acquire);
    if (fn)
        return fn;
    vm_driver_present();
    fn = atomic_load_explicit(&real_functions[hook], memory_order_acquire);
    return fn ? fn : vm_no_driver_answer(vm_hook_rows[hook].symbol);
}

vm_any_fn vm_tramp_resolve(unsigned index)
{
    const char *name = tramp_names[index];
    if (opening) /* the slot stays empty */
        return vm_no_driver_answer(name);
    vm_any_fn fn = vm_driver_present() ? vm_driver_symbol(name) : vm_no_driver_answer(name);
    if (!fn) {
        vm_log(DRIVER_ABSENT_CALL, name);
        fn = (vm_any_fn)missing_call;
    }
    atomic_store_explicit(&vm_tramp_slots[index], fn, memory_order_release);
    return fn;
}

/* ---- names -----------------------------------------------------------------------------------*/

static int compare_names(const void *key, const void *entry)
{
    return strcmp(key, *(const char *const *)entry);
}

bool vm_name_known(const char *name)
{
    if (bsearch(name, tramp_names, TRAMPS, sizeof tramp_names[0], compare_names))
        return true;
    for (int i = 0; i < VM_HOOK_COUNT; i++)
        if (strcmp(name, vm_hook_rows[i].symbol) == 0)
            return true;
    return false;
}

/* Number of dynamic symbols, from the GNU hash table: the last chain's end is the last symbol. */
static size_t symbols_by_gnu_hash(const uint32_t *hash)
{
    uint32_t nbuckets = hash[0], first = hash[1], bloom = hash[2], last = 0;
    const uint32_t *buckets = hash + 4 + bloom * (sizeof(ElfW(Addr)) / 4);
    const uint32_t *chains = buckets + nbuckets;
    for (uint32_t i = 0; i < nbuckets; i++)
        if (buckets[i] > last)
            last = buckets[i];
    if (last < first)
        return first;
    while (!(chains[last - first] & 1))
        last++;
    return last + 1;
}

void vm_driver_unknown_names(void (*each)(void *ctx, const char *name), void *ctx)
{
    struct link_map *map;
    const ElfW(Sym) *symbols = NULL;
    const char *texts = NULL;
    const uint32_t *hash = NULL, *gnu_hash = NULL;
    if (!vm_driver_present() || dlinfo(driver.handle, RTLD_DI_LINKMAP, &map) != 0)
        return;
    /* glibc has relocated these entries of the dynamic section to addresses. */
    for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
        const void *at = (const void *)d->d_un.d_ptr;
        if (d->d_tag == DT_SYMTAB)
            symbols = at;
        else if (d->d_tag == DT_STRTAB)
            texts = at;
        else if (d->d_tag == DT_HASH)
            hash = at;
        else if (d->d_tag == DT_GNU_HASH)
            gnu_hash = at;
    }
    if (!symbols || !texts || (!hash && !gnu_hash))
        return;
    size_t n = gnu_hash ? symbols_by_gnu_hash(gnu_hash) : hash[1];
    for (size_t i = 1; i < n; i++) {
        const char *name = texts + symbols[i].st_name;
        if (ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC && symbols[i].st_shndx != SHN_UNDEF &&
            name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z' &&
            !vm_name_known(name))
            each(ctx, name);
    }
}
