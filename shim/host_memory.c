#include "host_memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"

/* Reads a small file without stdio; the length, 0 if it is not there. */
static size_t slurp(const char *path, char *buf, size_t n)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, buf, n - 1);
    close(fd);
    buf[got > 0 ? got : 0] = '\0';
    return got > 0 ? (size_t)got : 0;
}

static uint64_t kib_after(const char *text, const char *key)
{
    const char *p = strstr(text, key);
    return p ? strtoull(p + strlen(key), NULL, 10) << 10 : 0;
}

static uint64_t whole_file(const char *path)
{
    char buf[64];
    /* "max" and an absent file both read as no limit. */
    return slurp(path, buf, sizeof buf) ? strtoull(buf, NULL, 10) : 0;
}

uint64_t vm_host_budget(void)
{
    char info[4096];
    uint64_t total = 0, available = 0;
    if (slurp("/proc/meminfo", info, sizeof info)) {
        total = kib_after(info, "MemTotal:");
        available = kib_after(info, "MemAvailable:");
    }
    uint64_t limit = whole_file("/sys/fs/cgroup/memory.max");
    uint64_t used = whole_file("/sys/fs/cgroup/memory.current");
    if (limit && limit > used && limit - used < available)
        available = limit - used;
    return vm_amount_of(&vm_config()->host_budget, total, available / 10 * 6);
}
