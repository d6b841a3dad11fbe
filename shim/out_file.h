/* Files that libvmem leaves behind: written beside their final name, 0600, and renamed into place when they
 * are whole. A device of that name is written as it is; links, pipes and folders are refused. Nothing but a file
 * is ever replaced. */
#ifndef VM_SHIM_OUT_FILE_H
#define VM_SHIM_OUT_FILE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

struct vm_out_file {
    char path[PATH_MAX], tmp[PATH_MAX + 8];
    int fd;
    bool beside; /* a file of its own, to be renamed */
};

/* Opens what the knob's value names (%p becomes the process id), with `suffix` behind it if it is to be a file.
 * 0, or an errno: then *o only has the path, for the message. */
int vm_out_file_open(struct vm_out_file *o, const char *value, const char *suffix);
/* Writes all of it: 0 or an errno. */
int vm_out_file_write(struct vm_out_file *o, const char *text, size_t n);
/* Puts the file in its place, or removes it where `error` says that it is not whole. 0, or an errno. */
int vm_out_file_close(struct vm_out_file *o, int error);

#endif
