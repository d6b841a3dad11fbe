/* Stream capture and graphs. */
#include "sg.h"

CUresult sg_capture_add(struct sg_stream *s, struct sg_op *op)
{
    (void)s;
    (void)op;
    return CUDA_ERROR_NOT_SUPPORTED;
}
bool sg_capture_blocks(struct sg_ctx *c)
{
    (void)c;
    return false;
}
CUresult sg_capture_check_sync(struct sg_stream *s)
{
    return s->capture ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}
CUresult sg_capture_event_record(struct sg_stream *s, struct sg_event *e)
{
    (void)s;
    (void)e;
    return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult sg_capture_event_wait(struct sg_stream *s, struct sg_event *e)
{
    (void)s;
    (void)e;
    return CUDA_ERROR_NOT_SUPPORTED;
}
