#include "log.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct vm_msg_info infos[VM_MSG_COUNT] = {
#define VM_MSG(name, number, level, cap, format, help)                                             \
    [VM_MSG_##name] = {#name, format, help, number, cap, VM_LOG_##level},
#include "messages.def"
#undef VM_MSG
};

static const char *const level_words[] = {"error", "warn", "info", "debug"};

static atomic_int log_threshold = VM_LOG_WARN;
static atomic_int log_fd = 2;
static atomic_uint counts[VM_MSG_COUNT];
/* The file behind log_fd when it was set: the program may close it and get the number for another.
 */
static _Atomic(uint64_t) log_dev, log_ino;

const struct vm_msg_info *vm_msg_info(enum vm_msg m)
{
    return (unsigned)m < VM_MSG_COUNT ? &infos[m] : NULL;
}

bool vm_log_wants(enum vm_log_level level)
{
    return (int)level <= atomic_load_explicit(&log_threshold, memory_order_relaxed);
}

void vm_log_configure(enum vm_log_level threshold, int fd)
{
    struct stat st;
    if (fd > 2 && fstat(fd, &st) == 0) {
        atomic_store_explicit(&log_dev, st.st_dev, memory_order_relaxed);
        atomic_store_explicit(&log_ino, st.st_ino, memory_order_relaxed);
    }
    atomic_store_explicit(&log_fd, fd, memory_order_relaxed);
    atomic_store_explicit(&log_threshold, (int)threshold, memory_order_relaxed);
}

/* ---- formatter -------------------------------------------------------------------------------*/

struct out {
    char *buf;
    size_t n, len;
};

static void put(struct out *o, char c)
{
    if (o->len + 1 < o->n)
        o->buf[o->len] = c;
    o->len++;
}

static void put_text(struct out *o, const char *s, size_t width)
{
    size_t n = 0;
    if (!s)
        s = "(null)";
    while (s[n])
        n++;
    for (; width > n; width--)
        put(o, ' ');
    while (*s)
        put(o, *s++);
}

static void put_number(struct out *o, uint64_t v, unsigned base, bool negative, size_t width,
                       char pad)
{
    char digits[24];
    size_t n = 0;
    do {
        digits[n++] = "0123456789abcdef"[v % base];
        v /= base;
    } while (v);
    size_t total = n + (negative ? 1 : 0);
    if (negative && pad == '0')
        put(o, '-');
    for (; width > total; width--)
        put(o, pad);
    if (negative && pad != '0')
        put(o, '-');
    while (n)
        put(o, digits[--n]);
}

/* One conversion: flags and lengths were read; `longs` counts l (z counts as one). */
static void put_conversion(struct out *o, char conv, int longs, size_t width, char pad, va_list *ap)
{
    switch (conv) {
    case 'd': {
        long long v = longs > 1 ? va_arg(*ap, long long)
                      : longs   ? va_arg(*ap, long)
                                : va_arg(*ap, int);
        put_number(o, v < 0 ? 0 - (uint64_t)v : (uint64_t)v, 10, v < 0, width, pad);
        break;
    }
    case 'u':
    case 'x': {
        unsigned long long v = longs > 1 ? va_arg(*ap, unsigned long long)
                               : longs   ? va_arg(*ap, unsigned long)
                                         : va_arg(*ap, unsigned);
        put_number(o, v, conv == 'x' ? 16 : 10, false, width, pad);
        break;
    }
    case 'p':
        put(o, '0');
        put(o, 'x');
        put_number(o, (uintptr_t)va_arg(*ap, void *), 16, false, width, '0');
        break;
    case 's':
        put_text(o, va_arg(*ap, const char *), width);
        break;
    case 'c':
        put(o, (char)va_arg(*ap, int));
        break;
    default:
        put(o, conv);
        break;
    }
}

size_t vm_vformat(char *buf, size_t n, const char *format, va_list ap)
{
    struct out o = {buf, n, 0};
    va_list args;
    va_copy(args, ap);
    for (const char *f = format; *f; f++) {
        if (*f != '%') {
            put(&o, *f);
            continue;
        }
        char pad = ' ';
        size_t width = 0;
        int longs = 0;
        if (*++f == '0')
            pad = '0', f++;
        for (; *f >= '0' && *f <= '9'; f++)
            width = width * 10 + (size_t)(*f - '0');
        for (; *f == 'l' || *f == 'z'; f++)
            longs++;
        if (!*f)
            break;
        put_conversion(&o, *f, longs, width, pad, &args);
    }
    va_end(args);
    if (n)
        buf[o.len < n ? o.len : n - 1] = 0;
    return o.len;
}

size_t vm_format(char *buf, size_t n, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    size_t len = vm_vformat(buf, n, format, ap);
    va_end(ap);
    return len;
}

/* Where the line goes: the log file if it is still there, else standard error. */
static int line_fd(void)
{
    struct stat st;
    int fd = atomic_load_explicit(&log_fd, memory_order_relaxed);
    if (fd <= 2 ||
        (fstat(fd, &st) == 0 && st.st_dev == atomic_load_explicit(&log_dev, memory_order_relaxed) &&
         st.st_ino == atomic_load_explicit(&log_ino, memory_order_relaxed)))
        return fd;
    return 2;
}

/* ---- lines -----------------------------------------------------------------------------------*/

void vm_log_emit(enum vm_msg m, const char *format, ...)
{
    const struct vm_msg_info *info = &infos[m];
    if (!vm_log_wants(info->level))
        return;
    unsigned nth = atomic_fetch_add_explicit(&counts[m], 1, memory_order_relaxed) + 1;
    if (info->cap && nth > (unsigned)info->cap)
        return;

    int keep = errno;
    char line[1024];
    size_t len = vm_format(line, sizeof line, "libvmem[%d] %s %03d: ", (int)getpid(),
                           level_words[info->level], info->number);
    va_list ap;
    va_start(ap, format);
    len += vm_vformat(line + len, sizeof line - len, format, ap);
    va_end(ap);
    if (info->cap > 1 && nth == (unsigned)info->cap && len < sizeof line)
        len += vm_format(line + len, sizeof line - len, " (last line of its kind)");
    if (len > sizeof line - 2)
        len = sizeof line - 2;
    for (size_t i = 0; i < len; i++) /* one message, one line, whatever a name contains */
        if ((unsigned char)line[i] < ' ')
            line[i] = '?';
    line[len++] = '\n';
    ssize_t written;
    do
        written = write(line_fd(), line, len);
    while (written < 0 && errno == EINTR);
    errno = keep;
}
