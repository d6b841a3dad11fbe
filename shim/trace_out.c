#include "trace_out.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "out_file.h"
#include "trace_file.h"

struct vm_trace_out {
    struct vm_out_file file;
    int error;
    size_t n;
    char buf[1 << 16];
};

struct vm_trace_out *vm_trace_out_open(const char *path, int device)
{
    char suffix[16] = "";
    if (!path || !*path)
        return NULL;
    struct vm_trace_out *o = calloc(1, sizeof *o);
    if (!o)
        return NULL;
    if (device > 0)
        vm_format(suffix, sizeof suffix, ".dev%d", device);
    int error = vm_out_file_open(&o->file, path, suffix);
    if (error) {
        vm_log(TRACE_PATH, o->file.path, error);
        free(o);
        return NULL;
    }
    return o;
}

static void flush(struct vm_trace_out *o)
{
    if (!o->error)
        o->error = vm_out_file_write(&o->file, o->buf, o->n);
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
    if (r != 0 && !o->error)
        o->error = EIO;
    o->error = vm_out_file_close(&o->file, o->error);
    if (o->error)
        vm_log(TRACE_FAILED, o->file.path, o->error);
    else
        vm_log(TRACE_WRITTEN, o->file.path, (unsigned long long)t->nevents);
    free(o);
}
