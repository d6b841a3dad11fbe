/* The log: its formatter against the C library's, its lines, its caps, its threads. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "log.h"

#define SAME(...)                                                                                  \
    do {                                                                                           \
        char ours[256], theirs[256];                                                               \
        size_t n = vm_format(ours, sizeof ours, __VA_ARGS__);                                      \
        int m = snprintf(theirs, sizeof theirs, __VA_ARGS__);                                      \
        cr_assert_str_eq(ours, theirs);                                                            \
        cr_assert_eq(n, (size_t)m);                                                                \
    } while (0)

Test(log, formats_like_printf)
{
    SAME("plain");
    SAME("%d %d %d", 0, -1, INT32_MIN);
    SAME("%u %x %08x %5u|", 42u, 0xbeefu, 0x1fu, 7u);
    SAME("%ld %lu %lx", (long)INT64_MIN, UINT64_MAX, (unsigned long)1 << 63);
    SAME("%lld %llu", (long long)-5, 5ull);
    SAME("%zu %zx", (size_t)123, (size_t)255);
    SAME("%s|%8s|%s", "text", "right", "");
    SAME("%c%c %%", 'a', 'b');
    SAME("%p", (void *)(uintptr_t)0xabcdef);
    SAME("%05d|%5d|%d", -42, -42, 1);
}

Test(log, never_writes_past_the_end)
{
    char buf[8] = "xxxxxxx";
    cr_assert_eq(vm_format(buf, 4, "%s", "abcdef"), 6);
    cr_assert_str_eq(buf, "abc");
    cr_assert_eq(buf[4], 'x');
    cr_assert_eq(vm_format(NULL, 0, "%d", 12345), 5);
    cr_assert_eq(vm_format(buf, 1, "%s", "abc"), 3);
    cr_assert_str_eq(buf, "");
}

static int pipe_fds[2];

static void to_pipe(enum vm_log_level level)
{
    cr_assert_eq(pipe(pipe_fds), 0);
    vm_log_configure(level, pipe_fds[1]);
}

static const char *from_pipe(void)
{
    static char text[1 << 16];
    size_t n = 0;
    ssize_t got;
    vm_log_configure(VM_LOG_WARN, 2);
    close(pipe_fds[1]);
    while ((got = read(pipe_fds[0], text + n, sizeof text - 1 - n)) > 0)
        n += (size_t)got;
    text[n] = 0;
    close(pipe_fds[0]);
    return text;
}

Test(log, line_has_level_number_and_text)
{
    to_pipe(VM_LOG_INFO);
    errno = 1234;
    vm_log(KNOB_UNKNOWN_FAR, "VMEM_X\nVMEM_Y");
    cr_assert_eq(errno, 1234);
    char want[128];
    snprintf(want, sizeof want,
             "libvmem[%d] warn 002: VMEM_X?VMEM_Y is not a knob of libvmem (`vmem doctor` lists them)\n",
             (int)getpid());
    cr_assert_str_eq(from_pipe(), want);
}

Test(log, below_the_threshold_nothing_is_written)
{
    to_pipe(VM_LOG_WARN);
    cr_assert(!vm_log_wants(VM_LOG_INFO) && vm_log_wants(VM_LOG_WARN) && vm_log_wants(VM_LOG_ERROR));
    vm_log(DRIVER_FOUND, "/x");
    cr_assert_str_eq(from_pipe(), "");
}

Test(log, caps_end_a_flood)
{
    int cap = vm_msg_info(VM_MSG_KNOB_UNKNOWN_FAR)->cap;
    to_pipe(VM_LOG_DEBUG);
    for (int i = 0; i < 100; i++)
        vm_log(KNOB_UNKNOWN_FAR, "X");
    const char *text = from_pipe();
    int lines = 0;
    for (const char *p = text; *p; p++)
        lines += *p == '\n';
    cr_assert_eq(lines, cap);
    cr_assert(strstr(text, "(last line of its kind)\n"));
}

Test(log, long_lines_are_cut_and_end_with_a_newline)
{
    static char name[5000];
    memset(name, 'y', sizeof name - 1);
    to_pipe(VM_LOG_DEBUG);
    vm_log(DRIVER_FOUND, name);
    const char *text = from_pipe();
    size_t n = strlen(text);
    cr_assert(n > 500 && n <= 1024 && text[n - 1] == '\n' && !memchr(text, '\n', n - 1));
}

/* The program closes all descriptors it does not know and opens a file of its own. */
Test(log, never_writes_into_a_file_that_took_its_number)
{
    char text[64];
    FILE *log_file = tmpfile(), *own_file = tmpfile();
    cr_assert(log_file && own_file);
    int fd = fileno(log_file), own = fileno(own_file), err[2];
    vm_log_configure(VM_LOG_DEBUG, fd);
    vm_log(DRIVER_FOUND, "one");
    cr_assert_eq(dup2(own, fd), fd);
    cr_assert_eq(pipe(err), 0);
    int saved = dup(2);
    dup2(err[1], 2);
    vm_log(KNOB_VALUE, "two", "");
    dup2(saved, 2);
    close(err[1]);
    cr_assert_eq(lseek(own, 0, SEEK_END), 0, "the program's file was written to");
    cr_assert_gt(read(err[0], text, sizeof text), 0, "the line is lost");
    fclose(own_file);
    fclose(log_file);
}

static void *writer(void *arg)
{
    for (int i = 0; i < 200; i++)
        vm_log(KNOB_VALUE, "NAME", (const char *)arg);
    return NULL;
}

Test(log, threads_do_not_mix_lines)
{
    pthread_t t[4];
    static const char *values[] = {"aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb", "cccccccccccccccc",
                                   "dddddddddddddddd"};
    to_pipe(VM_LOG_DEBUG);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&t[i], NULL, writer, (void *)values[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    char want[96];
    unsigned n = 0;
    for (const char *p = from_pipe(); *p; n++) {
        int len = snprintf(want, sizeof want, "libvmem[%d] debug 005: NAME=", (int)getpid());
        cr_assert_eq(strncmp(p, want, (size_t)len), 0);
        p += len;
        for (int i = 1; i < 16; i++)
            cr_assert_eq(p[i], p[0]);
        cr_assert_eq(p[16], '\n');
        p += 17;
    }
    cr_assert_eq(n, 800);
}

Test(log, numbers_are_unique_and_texts_complete)
{
    for (int i = 0; i < VM_MSG_COUNT; i++) {
        const struct vm_msg_info *a = vm_msg_info((enum vm_msg)i);
        cr_assert(a->number > 0 && a->number < 1000 && *a->format && *a->help, "%s", a->name);
        for (int j = 0; j < i; j++)
            cr_assert_neq(a->number, vm_msg_info((enum vm_msg)j)->number, "%s and %s", a->name,
                          vm_msg_info((enum vm_msg)j)->name);
    }
    cr_assert_null(vm_msg_info(VM_MSG_COUNT));
}
