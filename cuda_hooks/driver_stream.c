/* Streams, waiting, memory operations on streams, and captures. */
#include "copy.h"

CUresult door_cuStreamCreate(vm_fn_cuStreamCreate real, bool per_thread, CUstream *phStream,
                             unsigned Flags)
{
    CUresult r;
    VM_RETRY(r, real(phStream, Flags));
    if (r == CUDA_SUCCESS && phStream)
        vm_rt_stream_created(*phStream);
    return r;
}

CUresult door_cuStreamCreateWithPriority(vm_fn_cuStreamCreateWithPriority real, bool per_thread,
                                         CUstream *phStream, unsigned flags, int priority)
{
    CUresult r;
    VM_RETRY(r, real(phStream, flags, priority));
    if (r == CUDA_SUCCESS && phStream)
        vm_rt_stream_created(*phStream);
    return r;
}

CUresult door_cuStreamDestroy(vm_fn_cuStreamDestroy real, bool per_thread, CUstream hStream)
{
    vm_rt_stream_destroyed(hStream);
    return real(hStream);
}

CUresult door_cuStreamDestroy_v2(vm_fn_cuStreamDestroy_v2 real, bool per_thread, CUstream hStream)
{
    vm_rt_stream_destroyed(hStream);
    return real(hStream);
}

/* A stream that is being captured cannot be waited for: the driver says so, nothing is worked off.
 */
CUresult door_cuStreamSynchronize(vm_fn_cuStreamSynchronize real, bool per_thread, CUstream hStream)
{
    bool capturing = vm_rt_capturing(vm_stream_of(hStream, per_thread));
    if (!capturing)
        vm_rt_wait_stream(hStream, per_thread);
    CUresult r = real(hStream);
    if (!capturing && r == CUDA_SUCCESS)
        vm_rt_synced();
    return r;
}

CUresult door_cuEventSynchronize(vm_fn_cuEventSynchronize real, bool per_thread, CUevent hEvent)
{
    vm_rt_wait_event(hEvent);
    CUresult r = real(hEvent);
    if (r == CUDA_SUCCESS)
        vm_rt_synced();
    return r;
}

/* ---- values in memory: another party watches or writes them, so their block stays -------------*/

#define VALUE_DOOR(symbol, type)                                                                   \
    CUresult door_##symbol(vm_fn_##symbol real, bool per_thread, CUstream stream,                  \
                           CUdeviceptr addr, type value, unsigned flags)                           \
    {                                                                                              \
        vm_rt_pin(addr);                                                                           \
        return real(stream, addr, value, flags);                                                   \
    }

VALUE_DOOR(cuStreamWaitValue32, cuuint32_t)
VALUE_DOOR(cuStreamWaitValue64, cuuint64_t)
VALUE_DOOR(cuStreamWriteValue32, cuuint32_t)
VALUE_DOOR(cuStreamWriteValue64, cuuint64_t)
VALUE_DOOR(cuStreamWaitValue32_v2, cuuint32_t)
VALUE_DOOR(cuStreamWaitValue64_v2, cuuint64_t)
VALUE_DOOR(cuStreamWriteValue32_v2, cuuint32_t)
VALUE_DOOR(cuStreamWriteValue64_v2, cuuint64_t)

static void pin_values(const CUstreamBatchMemOpParams *ops, unsigned count)
{
    for (unsigned i = 0; ops && i < count; i++)
        switch (ops[i].operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
            vm_rt_pin(ops[i].waitValue.address);
            break;
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        case CU_STREAM_MEM_OP_WRITE_VALUE_64:
            vm_rt_pin(ops[i].writeValue.address);
            break;
        default:
            break;
        }
}

CUresult door_cuStreamBatchMemOp(vm_fn_cuStreamBatchMemOp real, bool per_thread, CUstream stream,
                                 unsigned count, CUstreamBatchMemOpParams *paramArray,
                                 unsigned flags)
{
    pin_values(paramArray, count);
    return real(stream, count, paramArray, flags);
}

CUresult door_cuStreamBatchMemOp_v2(vm_fn_cuStreamBatchMemOp_v2 real, bool per_thread,
                                    CUstream stream, unsigned count,
                                    CUstreamBatchMemOpParams *paramArray, unsigned flags)
{
    pin_values(paramArray, count);
    return real(stream, count, paramArray, flags);
}

/* ---- captures ---------------------------------------------------------------------------------*/

/* The stream counts as capturing before it is: in between, a thread that moves pages would make it wait. */
static bool soon(CUstream stream, bool per_thread)
{
    return vm_rt_capture_soon(vm_stream_of(stream, per_thread));
}

static CUresult begun(CUresult r, bool begins, CUstream stream, bool per_thread)
{
    if (r != CUDA_SUCCESS && begins)
        vm_rt_capture_end(vm_stream_of(stream, per_thread), NULL);
    return r;
}

CUresult door_cuStreamBeginCapture(vm_fn_cuStreamBeginCapture real, bool per_thread,
                                   CUstream hStream)
{
    bool begins = soon(hStream, per_thread);
    return begun(real(hStream), begins, hStream, per_thread);
}

CUresult door_cuStreamBeginCapture_v2(vm_fn_cuStreamBeginCapture_v2 real, bool per_thread,
                                      CUstream hStream, CUstreamCaptureMode mode)
{
    bool begins = soon(hStream, per_thread);
    return begun(real(hStream, mode), begins, hStream, per_thread);
}

CUresult door_cuStreamBeginCaptureToGraph(vm_fn_cuStreamBeginCaptureToGraph real, bool per_thread,
                                          CUstream hStream, CUgraph hGraph,
                                          const CUgraphNode *dependencies,
                                          const CUgraphEdgeData *dependencyData,
                                          size_t numDependencies, CUstreamCaptureMode mode)
{
    bool begins = soon(hStream, per_thread);
    return begun(real(hStream, hGraph, dependencies, dependencyData, numDependencies, mode), begins,
                 hStream, per_thread);
}

/* Over also when it failed: an invalidated capture ends without a graph. */
CUresult door_cuStreamEndCapture(vm_fn_cuStreamEndCapture real, bool per_thread, CUstream hStream,
                                 CUgraph *phGraph)
{
    CUresult r = real(hStream, phGraph);
    vm_rt_capture_end(vm_stream_of(hStream, per_thread),
                      r == CUDA_SUCCESS && phGraph ? *phGraph : NULL);
    return r;
}
