/* What happens around every call: the lock, initialisation and fork checks, counting, the call log,
 * injected faults, and the host time that the call costs. */
#include "sg.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sg_threads.h"

struct sg_state sg = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER, .memfile = -1};
_Thread_local bool sg_in_callback;

static bool forked;
static uint32_t costs[SG_ID_COUNT];

void sg_note(const char *fmt, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line - 1, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    size_t len = strlen(line);
    line[len++] = '\n';
    if (write(STDERR_FILENO, line, len) < 0)
        return; /* nobody listens */
}

/* Prices by the start of a name; the first row that matches counts. */
static const struct {
    const char *prefix;
    size_t offset;
} price_rows[] = {
#define PRICE(prefix, field)                                                                       \
    {                                                                                              \
        prefix, offsetof(struct sg_prices, field)                                                  \
    }
    PRICE("cuLaunch", launch),
    PRICE("cuGraphLaunch", launch),
    PRICE("cuMemcpy", copy_async),
    PRICE("cuMemset", memset_async),
    PRICE("cuEventRecord", event),
    PRICE("cuEventQuery", event),
    PRICE("cuStreamQuery", event),
    PRICE("cuStreamWaitEvent", event),
    PRICE("cuStreamSynchronize", sync),
    PRICE("cuEventSynchronize", sync),
    PRICE("cuCtxSynchronize", sync),
    PRICE("cuStreamCreate", stream_create),
    PRICE("cuMemAllocAsync", event),
    PRICE("cuMemAllocFromPoolAsync", event),
    PRICE("cuMemFreeAsync", event),
    PRICE("cuMemAddress", reserve),
    PRICE("cuMemCreate", create),
    PRICE("cuMemRelease", release),
    PRICE("cuMemMap", map),
    PRICE("cuMemSetAccess", access),
    PRICE("cuMemUnmap", unmap),
    PRICE("cuMemAlloc", alloc),
    PRICE("cuMemFree", free_),
    PRICE("cuMemHost", alloc),
    PRICE("cu", call),
#undef PRICE
};

static uint32_t call_cost(enum sg_id id)
{
    if (!costs[id])
        for (size_t i = 0; i < sizeof price_rows / sizeof *price_rows; i++)
            if (strncmp(sg_names[id], price_rows[i].prefix, strlen(price_rows[i].prefix)) == 0) {
                memcpy(&costs[id], (const char *)&sg_prices + price_rows[i].offset,
                       sizeof costs[id]);
                break;
            }
    return costs[id];
}

static bool before_init_ok(enum sg_id id)
{
    switch ((int)id) {
    case SG_ID_cuInit:
    case SG_ID_cuDriverGetVersion:
    case SG_ID_cuGetErrorName:
    case SG_ID_cuGetErrorString:
    case SG_ID_cuGetProcAddress:
    case SG_ID_cuGetProcAddress_v2:
    case SG_ID_cuGetExportTable:
        return true;
    }
    return false;
}

/* Calls that a loop of polls consists of; a runtime asks for the context each time. */
static bool of_a_poll_loop(enum sg_id id)
{
    switch ((int)id) {
    case SG_ID_cuEventQuery:
    case SG_ID_cuStreamQuery:
    case SG_ID_cuStreamQuery_ptsz:
    case SG_ID_cuCtxGetCurrent:
    case SG_ID_cuCtxSetCurrent:
    case SG_ID_cuCtxGetDevice:
    case SG_ID_cuCtxPushCurrent_v2:
    case SG_ID_cuCtxPopCurrent_v2:
        return true;
    }
    return false;
}

/* The child of a process that had initialised: its device state is not usable (as the real driver
 * says), and the lock may have been held by a thread that no longer exists. */
static void after_fork(void)
{
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    memcpy(&sg.lock, &fresh, sizeof fresh);
    forked = sg.inited;
}

static void log_call(enum sg_id id)
{
    static FILE *f;
    static bool failed;
    if (!f && !failed) {
        f = fopen(sg.cfg.call_log, "ae");
        failed = !f;
        if (failed)
            sg_note("simgpu: SIMGPU_CALL_LOG=%s cannot be opened", sg.cfg.call_log);
        else
            setvbuf(f, NULL, _IOLBF, 1 << 16);
    }
    if (f)
        fprintf(f, "%llu %s\n", (unsigned long long)sg.host_ns, sg_names[id]);
}

CUresult sg_enter(enum sg_id id, bool ptds)
{
    static bool registered;
    if (sg_in_callback) { /* host functions must not call the driver; the lock is not held here */
        pthread_mutex_lock(&sg.lock);
        sg.calls[id]++;
        sg_activity_call_begins();
        return CUDA_ERROR_NOT_PERMITTED;
    }
    sg_thread_enters();
    pthread_mutex_lock(&sg.lock);
    if (!registered) {
        registered = true;
        pthread_atfork(NULL, NULL, after_fork);
    }
    SG_TRY(sg_configure());
    sg.calls[id]++;
    sg.entered++;
    sg_activity_call_begins();
    if (sg.cfg.call_log)
        log_call(id);
    if (forked || (!sg.inited && !before_init_ok(id)))
        return before_init_ok(id) && id != SG_ID_cuInit ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
    if (!sg.inited)
        return sg_fault_for(id);
    sg_thread_called();
    sg.ptds = ptds;
    if (!of_a_poll_loop(id))
        sg.poll_epoch++;
    sg.host_ns += call_cost(id);
    sg_advance();
    return sg_fault_for(id);
}

CUresult sg_leave(enum sg_id id, CUresult r)
{
    struct sg_told after;
    if (r == SG_SKIPPED)
        r = CUDA_SUCCESS;
    sg.ptds = false;
    sg_activity_call_ends(id, r, &after);
    pthread_mutex_unlock(&sg.lock);
    sg_activity_tell(&after);
    return r;
}

CUresult sg_refuse(enum sg_id id)
{
    CUresult r = sg_enter(id, false);
    if (r == CUDA_SUCCESS) {
        if (sg.calls[id] == 1)
            sg_note("simgpu: %s is not modelled: CUDA_ERROR_NOT_SUPPORTED", sg_names[id]);
        r = CUDA_ERROR_NOT_SUPPORTED;
    }
    return sg_leave(id, r);
}

CUresult sg_not_modelled(enum sg_id id, const char *what)
{
    sg_note("simgpu: %s: %s is not modelled: CUDA_ERROR_NOT_SUPPORTED", sg_names[id], what);
    return CUDA_ERROR_NOT_SUPPORTED;
}
