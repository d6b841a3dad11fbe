/* vmem doctor: what libvmem finds on this machine. The second half runs in a child that has
 * libvmem.so preloaded, so that it sees what a program would see. */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd.h"
#include "complain.h"
#include "config.h"
#include "library.h"
#include "units.h"
#include "vm_names.h"
#include "vmem.h"

#define INSIDE "--inside" /* the child's mark; not for people */

static const char usage[] =
    "usage: vmem doctor [--lib PATH]\n\n"
    "Says which libvmem.so and which driver are used, which devices there are, whether every hook\n"
    "has its function in the driver, whether a block can be served, and which knobs are in force.\n"
    "Exit status: 0 all is well; 1 something is wrong (the line says what); 2 wrong use.\n";

static const char *const hooks[] = {
#define VM_ROW(kind, symbol, suffix, base, version, per_thread, door, params, args) #symbol,
#include "hooks.def"
#undef VM_ROW
};

static void line(const char *what, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void line(const char *what, const char *format, ...)
{
    va_list ap;
    printf("%-12s ", what);
    va_start(ap, format);
    vprintf(format, ap);
    va_end(ap);
    putchar('\n');
}

/* ---- knobs ------------------------------------------------------------------------------------*/

static void print_knobs(void)
{
    extern char **environ;
    struct vm_config config;
    size_t n;
    const struct vm_knob *knobs = vm_knobs(&n);
    fflush(stdout);
    vm_config_read(&config, environ, "doctor"); /* what is wrong goes to stderr, as in a program */
    line("knobs", "%u wrong or unknown (docs/knobs.md explains them)", config.errors);
    for (size_t i = 0; i < n; i++) {
        const char *set = getenv(knobs[i].name);
        printf("  %-18s %-12s %s\n", knobs[i].name,
               set && *set       ? set
               : *knobs[i].deflt ? knobs[i].deflt
                                 : "-",
               set && *set ? "set" : "default");
    }
}

/* ---- inside: the driver as a program sees it
 * ---------------------------------------------------*/

/* The file of the real driver in this process: the one libcuda that is not ours. */
static bool driver_path(const char *ours, char *out, size_t n)
{
    char row[PATH_MAX + 128];
    bool found = false;
    FILE *f = fopen("/proc/self/maps", "re");
    while (f && !found && fgets(row, sizeof row, f)) {
        char *path = strchr(row, '/');
        if (!path)
            continue;
        path[strcspn(path, "\n")] = 0;
        const char *name = strrchr(path, '/') + 1;
        if (strncmp(name, "libcuda.so", 10) == 0 && strcmp(path, ours) != 0) {
            snprintf(out, n, "%s", path);
            found = true;
        }
    }
    if (f)
        fclose(f);
    return found;
}

/* Calls `each` for every function in the dynamic symbol table of an ELF64 file; false: not
 * readable. The number of symbols is the distance from the symbol table to the string table behind
 * it, as linkers lay them out, or what the section header says. */
static bool each_symbol(const char *path, void (*each)(void *ctx, const char *name), void *ctx)
{
    struct stat st;
    bool ok = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0 || st.st_size < (off_t)sizeof(Elf64_Ehdr)) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    size_t bytes = (size_t)st.st_size;
    const char *base = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (base == MAP_FAILED)
        return false;
    const Elf64_Ehdr *h = (const void *)base;
    if (memcmp(h->e_ident, ELFMAG, SELFMAG) == 0 && h->e_ident[EI_CLASS] == ELFCLASS64 &&
        h->e_shentsize == sizeof(Elf64_Shdr) && h->e_shoff <= bytes &&
        h->e_shnum <= (bytes - h->e_shoff) / sizeof(Elf64_Shdr)) {
        const Elf64_Shdr *s = (const void *)(base + h->e_shoff);
        for (unsigned i = 0; i < h->e_shnum; i++) {
            if (s[i].sh_type != SHT_DYNSYM || s[i].sh_link >= h->e_shnum)
                continue;
            const Elf64_Shdr *names = &s[s[i].sh_link];
            if (s[i].sh_offset > bytes || s[i].sh_size > bytes - s[i].sh_offset ||
                names->sh_offset > bytes || names->sh_size > bytes - names->sh_offset ||
                names->sh_size == 0 || base[names->sh_offset + names->sh_size - 1] != 0)
                continue;
            const Elf64_Sym *sym = (const void *)(base + s[i].sh_offset);
            for (size_t k = 0; k < s[i].sh_size / sizeof *sym; k++)
                if (sym[k].st_shndx != SHN_UNDEF && ELF64_ST_TYPE(sym[k].st_info) == STT_FUNC &&
                    sym[k].st_name < names->sh_size)
                    each(ctx, base + names->sh_offset + sym[k].st_name);
            ok = true;
        }
    }
    munmap((void *)(uintptr_t)base, bytes);
    return ok;
}

struct unknown {
    void *ours;
    unsigned count;
    char first[64];
};

static void count_unknown(void *ctx, const char *name)
{
    struct unknown *u = ctx;
    Dl_info info, own;
    void *at;
    if (strncmp(name, "cu", 2) != 0)
        return;
    at = dlsym(u->ours, name);
    void *init = dlsym(u->ours, "cuInit");
    if (at && dladdr(at, &info) && dladdr(init, &own) && info.dli_fbase == own.dli_fbase)
        return;
    if (u->count++ == 0)
        snprintf(u->first, sizeof u->first, "%s", name);
}

static void print_hooks(void *ours, const char *path)
{
    unsigned missing = 0, total = sizeof hooks / sizeof *hooks;
    const char *first = NULL;
    struct unknown u = {.ours = ours};
    void *real = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    for (unsigned i = 0; i < total; i++)
        if (real && !dlsym(real, hooks[i])) {
            missing++;
            first = first ? first : hooks[i];
        }
    if (missing)
        line("hooks",
             "%u functions are hooked; this driver lacks %u of them (first: %s), they are of newer "
             "drivers",
             total, missing, first);
    else
        line("hooks", "%u functions are hooked, this driver has them all", total);
    if (!each_symbol(path, count_unknown, &u))
        line("", "the driver's symbol table cannot be read: names that are new in it are unknown");
    else if (u.count)
        line(
            "",
            "%u names of the driver are not known to libvmem (first: %s); calls to them go past it",
            u.count, u.first);
}

/* The driver's function as a program gets it, in a variable p_NAME. */
#define FUNCTION(ours, name) __typeof__(&name) p_##name = (__typeof__(&name))dlsym(ours, #name)

static int print_device(void *ours, int ordinal)
{
    FUNCTION(ours, cuDeviceGet);
    FUNCTION(ours, cuDeviceGetName);
    FUNCTION(ours, cuDeviceTotalMem_v2);
    FUNCTION(ours, cuDeviceGetAttribute);
    FUNCTION(ours, cuMemGetAllocationGranularity);
    CUdevice device;
    char name[128] = "?", text[24], granularity[24];
    size_t total = 0, unit = 0;
    int vmm = 0, numa = 0;
    if (p_cuDeviceGet(&device, ordinal) != CUDA_SUCCESS)
        return complain(1, "doctor", "device %d cannot be opened", ordinal);
    p_cuDeviceGetName(name, sizeof name, device);
    p_cuDeviceTotalMem_v2(&total, device);
    p_cuDeviceGetAttribute(&vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
#if CUDA_VERSION >= 12030
    p_cuDeviceGetAttribute(&numa, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                           device);
#endif
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    if (vmm)
        p_cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    line("device", "%d: %s, %s; virtual memory management %s (pages of %s), host-NUMA handles %s",
         ordinal, name, vm_size_text(total, text, sizeof text), vmm ? "yes" : "no",
         vm_size_text(unit, granularity, sizeof granularity), numa ? "yes" : "no");
    if (!vmm)
        return complain(1, "doctor",
                        "device %d has no virtual memory management: libvmem cannot page on it",
                        ordinal);
    return 0;
}

/* Serves one small block and asks libvmem whether it was its own. */
static int try_block(void *ours)
{
    FUNCTION(ours, cuDevicePrimaryCtxRetain);
    FUNCTION(ours, cuDevicePrimaryCtxRelease_v2);
    FUNCTION(ours, cuCtxSetCurrent);
    FUNCTION(ours, cuMemAlloc_v2);
    FUNCTION(ours, cuMemFree_v2);
    FUNCTION(ours, cuMemsetD8_v2);
    FUNCTION(ours, cuMemcpyDtoH_v2);
    FUNCTION(ours, cuCtxSynchronize);
    struct vmem_stats stats = {.size = sizeof stats};
    CUcontext context;
    CUdeviceptr block;
    unsigned char back[4096] = {0};
    char budget[24];
    CUresult rc = p_cuDevicePrimaryCtxRetain(&context, 0);
    if (rc == CUDA_SUCCESS)
        rc = p_cuCtxSetCurrent(context);
    if (rc != CUDA_SUCCESS)
        return complain(1, "doctor", "no context on device 0: CUDA error %d", (int)rc);
    rc = p_cuMemAlloc_v2(&block, sizeof back);
    if (rc != CUDA_SUCCESS)
        return complain(1, "doctor", "a block of 4 KiB is refused: CUDA error %d", (int)rc);
    p_cuMemsetD8_v2(block, 0x5a, sizeof back);
    p_cuMemcpyDtoH_v2(back, block, sizeof back);
    p_cuCtxSynchronize();
    int seen = vmem_get_stats(&stats);
    p_cuMemFree_v2(block);
    p_cuDevicePrimaryCtxRelease_v2(0);
    if (seen == VMEM_ABSENT) {
        line("block",
             "served by the driver: libvmem stays out of this process (see VMEM_OFF, VMEM_DENY)");
        return 0;
    }
    if (seen != VMEM_OK || stats.block_bytes < sizeof back)
        return complain(1, "doctor", "a block was allocated past libvmem (%d)", seen);
    line("block", "served by libvmem; budget %s",
         vm_size_text(stats.budget_bytes, budget, sizeof budget));
    return 0;
}

static int look_inside(const char *lib)
{
    char path[PATH_MAX];
    int version = 0, count = 0, rc = 0;
    void *ours = dlopen("libcuda.so.1", RTLD_NOW);
    if (!ours)
        return complain(1, "doctor", "libvmem.so cannot be loaded: %s", dlerror());
    FUNCTION(ours, cuInit);
    FUNCTION(ours, cuDriverGetVersion);
    FUNCTION(ours, cuDeviceGetCount);
    if (!dlsym(ours, "vmem_get_stats"))
        return complain(1, "doctor", "'%s' was preloaded, but libcuda.so.1 is another library",
                        lib);
    CUresult init = p_cuInit(0);
    p_cuDriverGetVersion(&version);
    if (!driver_path(lib, path, sizeof path)) {
        line("driver",
             "none found: programs run as on a machine without a GPU (VMEM_LIBCUDA names one)");
        return 0;
    }
    line("driver", "%s, CUDA %d.%d", path, version / 1000, version % 1000 / 10);
    if (init != CUDA_SUCCESS)
        return complain(1, "doctor",
                        "cuInit answers CUDA error %d: is there a GPU, and may you use it?",
                        (int)init);
    print_hooks(ours, path);
    p_cuDeviceGetCount(&count);
    for (int i = 0; i < count; i++)
        rc |= print_device(ours, i);
    if (count == 0)
        line("device", "none");
    else
        rc |= try_block(ours);
    return rc;
}

/* ---- outside ----------------------------------------------------------------------------------*/

static int run_inside(const char *lib)
{
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child < 0)
        return complain(1, "doctor", "cannot start a process: %s", strerror(errno));
    if (child == 0) {
        library_preload(lib);
        execl("/proc/self/exe", "vmem", "doctor", INSIDE, lib, (char *)NULL);
        _exit(complain(1, "doctor", "cannot start itself: %s", strerror(errno)));
    }
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return complain(1, "doctor", "waiting failed: %s", strerror(errno));
    if (WIFSIGNALED(status))
        return complain(1, "doctor", "a process with libvmem.so preloaded died of signal %d",
                        WTERMSIG(status));
    return WEXITSTATUS(status);
}

int cmd_doctor(int argc, char **argv)
{
    char lib[PATH_MAX];
    const char *wanted = NULL;
    if (argc == 3 && strcmp(argv[1], INSIDE) == 0) {
        int rc = look_inside(argv[2]);
        fflush(stdout);
        return rc;
    }
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(usage, stdout);
            return 0;
        }
        if (strcmp(argv[i], "--lib") != 0)
            return complain(2, "doctor", "unknown option '%s'; `vmem doctor --help` lists them",
                            argv[i]);
        if (i + 1 >= argc)
            return complain(2, "doctor", "option '--lib' needs a value");
        wanted = argv[++i];
    }
    line("vmem", "%s", VM_VERSION);
    if (!library_find(wanted, lib, sizeof lib))
        return complain(1, "doctor", "libvmem.so is not there: %s; name it with --lib PATH", lib);
    line("library", "%s", lib);
    int rc = run_inside(lib);
    print_knobs();
    return rc;
}
