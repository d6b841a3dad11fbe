/* The log: numbered messages from shim/messages.def, written without stdio, malloc or locks.
 *
 * vm_log(NAME, args...) formats one line into a stack buffer and hands it to the file in one
 * write(2), so lines of several threads and processes do not mix. Usable from any thread at any
 * time, also before vm_log_configure(); errno is kept. Formats know %s %d %u %x %c %p %% with the
 * lengths l, ll and z, width and zero padding; the compiler checks the arguments.
 */
#ifndef VM_SHIM_LOG_H
#define VM_SHIM_LOG_H

#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>

enum vm_log_level { VM_LOG_ERROR, VM_LOG_WARN, VM_LOG_INFO, VM_LOG_DEBUG };

enum vm_msg {
#define VM_MSG(name, number, level, cap, format, help) VM_MSG_##name,
#include "messages.def"
#undef VM_MSG
    VM_MSG_COUNT
};

#define VM_MSG(name, number, level, cap, format, help)                                             \
    static const char vm_fmt_##name[] __attribute__((unused)) = format;
#include "messages.def"
#undef VM_MSG

struct vm_msg_info {
    const char *name, *format, *help;
    int number, cap;
    enum vm_log_level level;
};

/* The row of a message; for the doctor and for tests. */
const struct vm_msg_info *vm_msg_info(enum vm_msg m);

#define vm_log(name, ...) vm_log_emit(VM_MSG_##name, vm_fmt_##name, ##__VA_ARGS__)
void vm_log_emit(enum vm_msg m, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* True when a message of this level would be written: guard for arguments that cost something. */
bool vm_log_wants(enum vm_log_level level);

/* Sets the threshold and the file (fd stays the caller's; 2 is standard error). */
void vm_log_configure(enum vm_log_level threshold, int fd);

/* The formatter alone: writes at most n bytes including the final 0, returns the length that the
 * whole text has. */
size_t vm_format(char *buf, size_t n, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
size_t vm_vformat(char *buf, size_t n, const char *format, va_list ap);

#endif
