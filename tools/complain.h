/* One line on stderr that names the command, then its exit status. */
#ifndef VM_TOOLS_COMPLAIN_H
#define VM_TOOLS_COMPLAIN_H

/* Prints "vmem COMMAND: text" and returns `status` (1 it failed, 2 wrong use). */
__attribute__((format(printf, 3, 4))) int complain(int status, const char *command,
                                                   const char *format, ...);

#endif
