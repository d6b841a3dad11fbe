/* Where the real libcuda.so.1 is. A dlopen by SONAME would give libvmem itself, which carries that
 * SONAME, so the loader's search is repeated here by path. */
#include "resolve.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"

#define SONAME "libcuda.so.1"

/* Deep binding keeps the driver's own calls inside the driver. Sanitizer runtimes refuse it. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DEEPBIND 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define DEEPBIND 0
#endif
#endif
#ifndef DEEPBIND
#define DEEPBIND RTLD_DEEPBIND
#endif

static const char *const usual_folders[] = {
#if defined(__x86_64__)
    "/usr/lib/x86_64-linux-gnu",
#elif defined(__aarch64__)
    "/usr/lib/aarch64-linux-gnu",
#endif
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib/nvidia",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
};

struct search {
    char *path; /* receives the place of the driver */
    size_t n;
    dev_t own_dev;
    ino_t own_ino;
    void *own_base;
    const char *why; /* reason why the last candidate was refused */
};

static void know_ourselves(struct search *s)
{
    Dl_info info;
    struct stat st;
    if (!dladdr((void *)(uintptr_t)vm_find_driver, &info))
        return;
    s->own_base = info.dli_fbase;
    if (stat(info.dli_fname, &st) == 0) {
        s->own_dev = st.st_dev;
        s->own_ino = st.st_ino;
    }
}

/* Opens `path` if it is a driver and not us. */
static void *try_path(struct search *s, const char *path)
{
    struct stat st;
    Dl_info info;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) {
        s->why = "no such file";
        return NULL;
    }
    if (st.st_dev == s->own_dev && st.st_ino == s->own_ino) {
        s->why = "this is libvmem itself";
        return NULL;
    }
    void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL | DEEPBIND);
    if (!handle) {
        s->why = dlerror();
        return NULL;
    }
    void *init = dlsym(handle, "cuInit");
    if (!init || !dladdr(init, &info) || info.dli_fbase == s->own_base) {
        s->why = init ? "this is libvmem itself" : "it has no cuInit";
        dlclose(handle);
        return NULL;
    }
    vm_format(s->path, s->n, "%s", path);
    return handle;
}

static void *try_folder(struct search *s, const char *folder, size_t len)
{
    char path[PATH_MAX];
    if (!len)
        folder = ".", len = 1; /* an empty element of a library path is the current folder */
    if (len + sizeof "/" SONAME > sizeof path)
        return NULL;
    memcpy(path, folder, len);
    memcpy(path + len, "/" SONAME, sizeof "/" SONAME);
    if (path[0] != '/') { /* by absolute path only, so that nothing is searched again */
        char *real = realpath(path, NULL);
        void *handle = real ? try_path(s, real) : NULL;
        free(real);
        return handle;
    }
    return try_path(s, path);
}

static void *try_library_path(struct search *s)
{
    const char *list = getenv("LD_LIBRARY_PATH");
    void *handle = NULL;
    while (list && *list && !handle) {
        size_t len = strcspn(list, ":;");
        handle = try_folder(s, list, len);
        list += len + (list[len] != 0);
    }
    return handle;
}

/* The folders the loader searches for the main program: its run path among them. */
static void *try_run_path(struct search *s)
{
    Dl_serinfo size, *list = NULL;
    void *handle = NULL, *self = dlopen(NULL, RTLD_LAZY);
    if (self && dlinfo(self, RTLD_DI_SERINFOSIZE, &size) == 0 && (list = malloc(size.dls_size))) {
        list->dls_size = size.dls_size;
        list->dls_cnt = size.dls_cnt;
        if (dlinfo(self, RTLD_DI_SERINFO, list) == 0)
            for (unsigned i = 0; i < list->dls_cnt && !handle; i++) {
                const char *folder = list->dls_serpath[i].dls_name;
                handle = try_folder(s, folder, strlen(folder));
            }
    }
    free(list);
    if (self)
        dlclose(self);
    return handle;
}

/* /etc/ld.so.cache in glibc's current format: a header, then entries whose key and value are
 * offsets from the header to texts. Everything is checked against the file's size. */
struct cache_header {
    char magic[20];
    uint32_t count, text_bytes;
    uint8_t flags, pad[3];
    uint32_t extension, unused[3];
};
struct cache_entry {
    int32_t flags;
    uint32_t key, value, osversion;
    uint64_t hwcap;
};

static void *try_cache_file(struct search *s, const char *base, size_t bytes)
{
    static const char magic[] = "glibc-ld.so.cache1.1";
    struct cache_header head;
    const char *start = memmem(base, bytes, magic, sizeof magic - 1);
    if (!start || (size_t)(base + bytes - start) < sizeof head)
        return NULL;
    size_t left = (size_t)(base + bytes - start);
    memcpy(&head, start, sizeof head);
    if (head.count > (left - sizeof head) / sizeof(struct cache_entry))
        return NULL;
    for (uint32_t i = 0; i < head.count; i++) {
        struct cache_entry e;
        memcpy(&e, start + sizeof head + i * sizeof e, sizeof e);
        if (e.key >= left || e.value >= left || left - e.key < sizeof SONAME ||
            memcmp(start + e.key, SONAME, sizeof SONAME) != 0 ||
            !memchr(start + e.value, 0, left - e.value))
            continue;
        void *handle = try_path(s, start + e.value); /* of another architecture: dlopen refuses */
        if (handle)
            return handle;
    }
    return NULL;
}

static void *try_cache(struct search *s)
{
    struct stat st;
    void *handle = NULL;
    int fd = open("/etc/ld.so.cache", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) == 0 && st.st_size > 0) {
        void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map != MAP_FAILED) {
            handle = try_cache_file(s, map, (size_t)st.st_size);
            munmap(map, (size_t)st.st_size);
        }
    }
    close(fd);
    return handle;
}

void *vm_find_driver(const char *wanted, char *path, size_t n)
{
    struct search s = {.path = path, .n = n, .why = ""};
    void *handle = NULL;
    know_ourselves(&s);
    if (wanted && *wanted) {
        if (*wanted == '/')
            handle = try_path(&s, wanted);
        else
            s.why = "not an absolute path";
        if (handle)
            return handle;
        vm_log(DRIVER_PATH, wanted, s.why);
    }
    if (!handle)
        handle = try_library_path(&s);
    if (!handle)
        handle = try_run_path(&s);
    if (!handle)
        handle = try_cache(&s);
    for (size_t i = 0; !handle && i < sizeof usual_folders / sizeof usual_folders[0]; i++)
        handle = try_folder(&s, usual_folders[i], strlen(usual_folders[i]));
    return handle;
}
