/* Looking functions up by name, version and flags, and the names of errors. */
#include "proc.h"
#include "sg.h"

#include <stdlib.h>
#include <string.h>

static int by_name(const void *key, const void *row)
{
    return strcmp(key, ((const struct sg_proc_row *)row)->name);
}

/* The newest ABI that `version` knows; with CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM the
 * per-thread twin where there is one. */
static CUresult look_up(const char *symbol, void **pfn, int version, cuuint64_t flags,
                        CUdriverProcAddressQueryResult *status)
{
    SG_CHECK(symbol && pfn, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(!(flags & ~(cuuint64_t)3) && flags != 3, CUDA_ERROR_INVALID_VALUE);
    CUdriverProcAddressQueryResult st = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    const struct sg_proc_row *best = NULL, *end = sg_proc_rows + sg_proc_count;
    const struct sg_proc_row *r = bsearch(symbol, sg_proc_rows, sg_proc_count, sizeof *r, by_name);
    while (r && r > sg_proc_rows && strcmp(r[-1].name, symbol) == 0)
        r--;
    for (; r && r < end && strcmp(r->name, symbol) == 0; r++) {
        if (st == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)
            st = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        if (r->version > version || (r->per_thread && !(flags & 2)))
            continue;
        bool better = !best || r->per_thread > best->per_thread ||
                      (r->per_thread == best->per_thread && r->version >= best->version);
        if (better)
            best = r;
    }
    if (best) {
        st = CU_GET_PROC_ADDRESS_SUCCESS;
        *pfn = (void *)(sg.cfg.alias_entry ? best->second : best->fn);
    } else {
        *pfn = NULL;
    }
    if (status)
        *status = st;
    return best ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

SG_CALL(cuGetProcAddress, (const char *symbol, void **pfn, int version, cuuint64_t flags),
        (symbol, pfn, version, flags))
{
    return look_up(symbol, pfn, version, flags, NULL);
}
/* With a status pointer a name that is not found is no error of the call. */
SG_CALL(cuGetProcAddress_v2,
        (const char *symbol, void **pfn, int version, cuuint64_t flags,
         CUdriverProcAddressQueryResult *status),
        (symbol, pfn, version, flags, status))
{
    CUresult r = look_up(symbol, pfn, version, flags, status);
    return r == CUDA_ERROR_NOT_FOUND && status ? CUDA_SUCCESS : r;
}

/* The vendor's tables are its private contract; ours has those that our CUPTI and NVML ask for. */
SG_CALL(cuGetExportTable, (const void **table, const CUuuid *id), (table, id))
{
    SG_CHECK(table && id, CUDA_ERROR_INVALID_VALUE);
    const void *ours = sg_activity_table(id);
    if (!ours)
        ours = sg_card_table(id);
    SG_CHECK(ours, CUDA_ERROR_NOT_FOUND);
    *table = ours;
    return CUDA_SUCCESS;
}

static const struct {
    CUresult code;
    const char *name, *text;
} errors[] = {
#define E(name, text)                                                                              \
    {                                                                                              \
        name, #name, text                                                                          \
    }
    E(CUDA_SUCCESS, "no error"),
    E(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    E(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    E(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    E(CUDA_ERROR_DEINITIALIZED, "driver shutting down"),
    E(CUDA_ERROR_DEVICE_UNAVAILABLE, "device is busy or unavailable"),
    E(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    E(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    E(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    E(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    E(CUDA_ERROR_MAP_FAILED, "mapping of buffer object failed"),
    E(CUDA_ERROR_UNMAP_FAILED, "unmapping of buffer object failed"),
    E(CUDA_ERROR_ALREADY_MAPPED, "resource already mapped"),
    E(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    E(CUDA_ERROR_NOT_MAPPED, "resource not mapped"),
    E(CUDA_ERROR_UNSUPPORTED_LIMIT, "limit is not supported on this architecture"),
    E(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices"),
    E(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, "requested exec affinity type is not supported"),
    E(CUDA_ERROR_INVALID_SOURCE, "device kernel image is invalid"),
    E(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
    E(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS"),
    E(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    E(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    E(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    E(CUDA_ERROR_NOT_READY, "device not ready"),
    E(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    E(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    E(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
    E(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"),
    E(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled"),
    E(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "the primary context is active"),
    E(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    E(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
      "part or all of the memory is already page-locked"),
    E(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "pointer does not name page-locked memory"),
    E(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    E(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    E(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    E(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized"),
    E(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system has unsupported display driver"),
    E(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    E(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error in capture"),
    E(CUDA_ERROR_STREAM_CAPTURE_MERGE, "operation would merge separate capture sequences"),
    E(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream it began"),
    E(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    E(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency on uncaptured work in another stream"),
    E(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "operation would depend on the capturing legacy stream"),
    E(CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capture"),
    E(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "capture ended on another thread than it began on"),
    E(CUDA_ERROR_TIMEOUT, "wait operation timed out"),
    E(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, "the graph update was not performed"),
    E(CUDA_ERROR_UNKNOWN, "unknown error"),
#undef E
};

SG_CALL(cuGetErrorName, (CUresult error, const char **out), (error, out))
{
    SG_CHECK(out, CUDA_ERROR_INVALID_VALUE);
    *out = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == error)
            *out = errors[i].name;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SG_CALL(cuGetErrorString, (CUresult error, const char **out), (error, out))
{
    SG_CHECK(out, CUDA_ERROR_INVALID_VALUE);
    *out = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == error)
            *out = errors[i].text;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
