/* simgpu_activity.h: how the simulated CUPTI hears what the simulated driver does.
 *
 * As between NVIDIA's own two: a table of functions behind cuGetExportTable, known by its id. Nothing
 * but the stand-in for libcupti uses it, so programs and shims see the public interfaces alone. Times
 * are virtual nanoseconds.
 */
#ifndef SIMGPU_ACTIVITY_H
#define SIMGPU_ACTIVITY_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#define SIMGPU_ACTIVITY_ID                                                                         \
    {                                                                                              \
        {                                                                                          \
            's', 'i', 'm', 'g', 'p', 'u', ' ', 'a', 'c', 't', 'i', 'v', 'i', 't', 'y', 1           \
        }                                                                                          \
    }

enum simgpu_activity_kind {
    SIMGPU_ACT_KERNEL = 1,
    SIMGPU_ACT_COPY,
    SIMGPU_ACT_MEMSET,
    SIMGPU_ACT_CALL,    /* a driver call returns; told on the thread that made it */
    SIMGPU_ACT_CONTEXT, /* a context was made; likewise */
    SIMGPU_ACT_CONTEXT_END, /* a context was destroyed; likewise */
    SIMGPU_ACT_RUNTIME, /* a call of the CUDA runtime returns; likewise */
    SIMGPU_ACT_BEGIN,   /* a call of the runtime, or of the driver outside of any, begins at start_ns */
    SIMGPU_ACT_RETURN,  /* after SIMGPU_ACT_CALL, outside of the driver's lock */
};

/* Where one side of a copy lives. */
enum simgpu_place { SIMGPU_AT_DEVICE, SIMGPU_AT_PINNED, SIMGPU_AT_PAGEABLE };

/* What has ended. Names live as long as the call of the sink. */
struct simgpu_activity {
    enum simgpu_activity_kind kind;
    uint64_t start_ns, end_ns, issue_ns;
    uint32_t correlation; /* number of the call that issued it, from 1 on: the driver's, or the runtime's
                             around it while those are told */
    uint32_t within;      /* driver calls: number of the runtime's call around it, or 0 */
    uint32_t device, context, stream;
    const char *name; /* kernel or driver function */
    union {
        struct {
            unsigned grid[3], block[3], shared;
        } kernel;
        struct {
            uint64_t bytes;
            enum simgpu_place from, to;
            uint32_t to_device; /* of device-to-device copies; `device` is the source's */
        } copy;
        struct {
            uint64_t bytes;
            unsigned value;
        } memset;
        struct {
            int result; /* CUresult, cudaError_t */
        } call;
        struct {
            CUcontext handle;
        } context;
    } u;
};

struct simgpu_activity_table {
    size_t bytes; /* of this table */
    /* Tells `sink` of everything from now on, of the runtime's calls where `runtime` is not 0; NULL ends
     * it. Operations and calls are told under the driver's lock: the sink must not call the driver.
     * Contexts and returns are told outside of it. One listener. */
    void (*listen)(void (*sink)(const struct simgpu_activity *), int runtime);
    uint64_t (*now_ns)(void); /* the host's virtual clock */
    uint32_t (*stream_id)(CUcontext ctx, CUstream stream); /* as in activities; 0: no such stream */
    uint32_t (*context_id)(CUcontext ctx);                 /* 0: no such context */
    /* For the runtime, around each of its calls while *runtime_told is not 0. */
    const int *runtime_told;
    void (*runtime_begins)(void);
    void (*runtime_ends)(const char *name, int result);
};

#endif
