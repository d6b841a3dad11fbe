#include "out_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"
#include "log.h"

/* 0: nothing there, or a file, which a new one may replace. Positive: a device, to be written as it
 * is. Negative: what is to be left alone, a negative errno. */
static int what_is(const char *path)
{
    struct stat s;
    if (lstat(path, &s) != 0 || S_ISREG(s.st_mode))
        return 0;
    if (S_ISCHR(s.st_mode))
        return 1;
    return S_ISLNK(s.st_mode) ? -ELOOP : S_ISDIR(s.st_mode) ? -EISDIR : -EINVAL;
}

int vm_out_file_open(struct vm_out_file *o, const char *value, const char *suffix)
{
    if (!vm_config_path(o->path, sizeof o->path - 16, value)) {
        vm_format(o->path, sizeof o->path, "%.4000s", value);
        return ENAMETOOLONG;
    }
    int is = what_is(o->path);
    if (is < 0)
        return -is;
    o->beside = is == 0;
    if (o->beside) {
        size_t n = strlen(o->path);
        vm_format(o->path + n, sizeof o->path - n, "%s", suffix);
    }
    vm_format(o->tmp, sizeof o->tmp, "%s.part", o->path);
    o->fd = o->beside ? open(o->tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600)
                      : open(o->path, O_WRONLY | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);
    return o->fd < 0 ? errno : 0;
}

int vm_out_file_write(struct vm_out_file *o, const char *text, size_t n)
{
    while (n > 0) {
        ssize_t w = write(o->fd, text, n);
        if (w < 0 && errno != EINTR)
            return errno;
        if (w > 0) {
            text += w;
            n -= (size_t)w;
        }
    }
    return 0;
}

int vm_out_file_close(struct vm_out_file *o, int error)
{
    if (close(o->fd) != 0 && !error)
        error = errno;
    if (o->beside && !error && rename(o->tmp, o->path) != 0)
        error = errno;
    if (o->beside && error)
        unlink(o->tmp);
    return error;
}
