/* One line for every way in which training can end early. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "trainer.h"

int tr_fail(const char *fmt, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    fprintf(stderr, "trainer: %s\n", line);
    return -1;
}

/* "conv3 backward", or what else the trainer was doing. */
static const char *where(const struct trainer *t, char *buf, size_t size)
{
    int n = t->net.nnodes;
    if (t->step < 0 || t->step >= 2 * n)
        snprintf(buf, size, "%s", t->step < 0 ? "set-up" : "update");
    else if (t->step < n)
        snprintf(buf, size, "%s forward", t->net.nodes[t->step].name);
    else
        snprintf(buf, size, "%s backward", t->net.nodes[2 * n - 1 - t->step].name);
    return buf;
}

/* The call without its arguments. */
static int fail(const struct trainer *t, const char *call, const char *what)
{
    char buf[64];
    return tr_fail("%s: %.*s: %s", where(t, buf, sizeof buf), (int)strcspn(call, "("), call, what);
}

int tr_fail_cuda(const struct trainer *t, const char *call, cudaError_t e)
{
    return fail(t, call, cudaGetErrorString(e));
}

int tr_fail_dnn(const struct trainer *t, const char *call, cudnnStatus_t s)
{
    return fail(t, call, cudnnGetErrorString(s));
}

int tr_fail_blas(const struct trainer *t, const char *call, cublasStatus_t s)
{
    return fail(t, call, cublasGetStatusString(s));
}
