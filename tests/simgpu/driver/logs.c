/* The driver's error log. It stays empty: what the simulator has to say goes to stderr and to the report.
 * Callbacks are registered and never called. */
#include "sg.h"

#include <stdlib.h>

struct entry {
    struct entry *next;
};
static struct entry *entries;

SG_CALL(cuLogsRegisterCallback, (CUlogsCallback fn, void *data, CUlogsCallbackHandle *out),
        (fn, data, out))
{
    (void)data;
    SG_CHECK(fn, CUDA_ERROR_INVALID_VALUE);
    struct entry *e = malloc(sizeof *e);
    SG_CHECK(e, CUDA_ERROR_OUT_OF_MEMORY);
    e->next = entries;
    entries = e;
    if (out)
        *out = (CUlogsCallbackHandle)e;
    return CUDA_SUCCESS;
}

SG_CALL(cuLogsUnregisterCallback, (CUlogsCallbackHandle handle), (handle))
{
    for (struct entry **at = &entries; *at; at = &(*at)->next)
        if ((CUlogsCallbackHandle)*at == handle) {
            struct entry *gone = *at;
            *at = gone->next;
            free(gone);
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

SG_CALL(cuLogsCurrent, (CUlogIterator * out, unsigned flags), (out, flags))
{
    SG_CHECK(out && !flags, CUDA_ERROR_INVALID_VALUE);
    *out = 0;
    return CUDA_SUCCESS;
}

SG_CALL(cuLogsDumpToFile, (CUlogIterator * iterator, const char *path, unsigned flags),
        (iterator, path, flags))
{
    (void)iterator;
    SG_CHECK(path && !flags, CUDA_ERROR_INVALID_VALUE);
    FILE *f = fopen(path, "we");
    SG_CHECK(f, CUDA_ERROR_INVALID_VALUE);
    fclose(f);
    return CUDA_SUCCESS;
}

SG_CALL(cuLogsDumpToMemory, (CUlogIterator * iterator, char *buffer, size_t *size, unsigned flags),
        (iterator, buffer, size, flags))
{
    (void)iterator;
    SG_CHECK(buffer && size && *size && !flags, CUDA_ERROR_INVALID_VALUE);
    buffer[0] = 0;
    *size = 0;
    return CUDA_SUCCESS;
}
