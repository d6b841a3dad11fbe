#include "library.h"

#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool take(const char *path, char *out, size_t n)
{
    char real[PATH_MAX];
    if (access(path, R_OK) != 0 || !realpath(path, real) || strlen(real) >= n)
        return false;
    strcpy(out, real);
    return true;
}

bool library_find(const char *wanted, char *out, size_t n)
{
    /* relative to the folder of this program: side by side, build tree, installed */
    static const char *const places[] = {"libvmem.so", "../cuda_hooks/libvmem.so",
                                         "../" VM_LIBDIR "/vmem/libvmem.so",
                                         "../lib/vmem/libvmem.so"};
    char self[PATH_MAX], path[PATH_MAX + 64];
    if (wanted) {
        if (take(wanted, out, n))
            return true;
        snprintf(out, n, "%s", wanted);
        return false;
    }
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    if (len > 0) {
        self[len] = 0;
        const char *folder = dirname(self);
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            snprintf(path, sizeof path, "%s/%s", folder, places[i]);
            if (take(path, out, n))
                return true;
        }
    }
    if (take(VM_PREFIX "/" VM_LIBDIR "/vmem/libvmem.so", out, n))
        return true;
    snprintf(out, n, "beside this program and in " VM_PREFIX "/" VM_LIBDIR "/vmem");
    return false;
}

/* Is the path one of the entries (separated by spaces or colons) of the list? */
static bool listed(const char *list, const char *path)
{
    size_t n = strlen(path);
    while (*list) {
        size_t len = strcspn(list, ": ");
        if (len == n && memcmp(list, path, n) == 0)
            return true;
        list += len + (list[len] != 0);
    }
    return false;
}

bool library_preload(const char *path)
{
    const char *old = getenv("LD_PRELOAD");
    char *list;
    if (old && *old && listed(old, path))
        return true;
    if (asprintf(&list, "%s%s%s", path, old && *old ? ":" : "", old && *old ? old : "") < 0)
        return false;
    int rc = setenv("LD_PRELOAD", list, 1);
    free(list);
    return rc == 0;
}
