#include "complain.h"

#include <stdarg.h>
#include <stdio.h>

int complain(int status, const char *command, const char *format, ...)
{
    va_list ap;
    fprintf(stderr, "vmem %s: ", command);
    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fputc('\n', stderr);
    return status;
}
