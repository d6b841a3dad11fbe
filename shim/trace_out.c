#include "trace_out.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "log.h"
#include "trace_file.h"

struct vm_trace_out {
    char path[PATH_MAX], tmp[PATH_MAX + 8];
    int fd, error;
    size_t n;
    char buf[1 << 16];
};

struct vm_trace_out *vm_trace_out_open(const char *path, int device)
{
    if (!path || !*path)
        return NULL;
    struct vm_trace_out *o = calloc(1, sizeof *o);
    if (!o)
        return NULL;
    if (!vm_config_path(o->path, sizeof o->path - 16, path)) {
        vm_log(TRACE_PATH, path, ENAMETOOLONG);
        free(o);
        return NULL;
    }
    size_t n = strlen(o->path);
    if (device > 0)
        vm_format(o->path + n, sizeof o->path - n, ".dev%d", device);
    vm_format(o->tmp, sizeof o->tmp, "%s.part", o->path);
    o->fd = open(o->tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (o->fd < 0) {
        vm_log(TRACE_PATH, o->path, errno);
        free(o);
        return NULL;
    }
    return o;
}

static void flush(struct vm_trace_out *o)
{
    size_t done = 0;
    while (done < o->n && !o->error) {
        ssize_t w = write(o->fd, o->buf + done, o->n - done);
        if (w < 0 && errno != EINTR)
            o->error = errno;
        else if (w > 0)
            done += (size_t)w;
    }
    o->n = 0;
}

static int put(void *ctx, const char *text, size_t n)
{
    struct vm_trace_out *o = ctx;
    while (n > 0 && !o->error) {
        size_t room = sizeof o->buf - o->n, k = n < room ? n : room;
        memcpy(o->buf + o->n, text, k);
        o->n += k;
        text += k;
        n -= k;
        if (o->n == sizeof o->buf)
            flush(o);
    }
    return o->error ? VM_EIO : 0;
}

void vm_trace_out_close(struct vm_trace_out *o, const struct vm_trace *t)
{
    struct vm_trace_cursor at = {0};
    int r = vm_trace_write(t, &at, SIZE_MAX, put, o);
    flush(o);
    if (close(o->fd) != 0 && !o->error)
        o->error = errno;
    if (r == 0 && !o->error && rename(o->tmp, o->path) != 0)
        o->error = errno;
    if (r != 0 || o->error) {
        vm_log(TRACE_FAILED, o->path, o->error);
        unlink(o->tmp);
    } else {
        vm_log(TRACE_WRITTEN, o->path, (unsigned long long)t->nevents);
    }
    free(o);
}
