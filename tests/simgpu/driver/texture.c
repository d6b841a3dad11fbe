/* Texture objects over linear memory: what a program says of it is kept and given back. Nothing fetches
 * through them here: a kernel's body knows the memory behind its objects by itself. Arrays are refused. */
#include "sg.h"

#include <stdlib.h>

#define ALIGNMENT       512u /* as device attributes say */
#define PITCH_ALIGNMENT 32u

struct texture {
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
};

static struct texture *texture_of(CUtexObject o)
{
    void *p = (void *)(uintptr_t)o;
    return sg_handle_is(SG_H_TEXTURE, p) ? p : NULL;
}

static bool readable(int device, uint64_t at, size_t bytes)
{
    uint64_t bad;
    size_t host_bytes = 0;
    return !sg_touch(NULL, device, at, bytes, SIMGPU_READ, &bad, &host_bytes);
}

static CUresult check_resource(int device, const CUDA_RESOURCE_DESC *d)
{
    switch (d->resType) {
    case CU_RESOURCE_TYPE_LINEAR:
        SG_CHECK(d->res.linear.devPtr % ALIGNMENT == 0 && d->res.linear.sizeInBytes,
                 CUDA_ERROR_INVALID_VALUE);
        SG_CHECK(readable(device, d->res.linear.devPtr, d->res.linear.sizeInBytes),
                 CUDA_ERROR_INVALID_VALUE);
        return CUDA_SUCCESS;
    case CU_RESOURCE_TYPE_PITCH2D:
        SG_CHECK(d->res.pitch2D.devPtr % ALIGNMENT == 0 && d->res.pitch2D.width &&
                     d->res.pitch2D.height && d->res.pitch2D.pitchInBytes &&
                     d->res.pitch2D.pitchInBytes % PITCH_ALIGNMENT == 0,
                 CUDA_ERROR_INVALID_VALUE);
        SG_CHECK(readable(device, d->res.pitch2D.devPtr,
                          d->res.pitch2D.pitchInBytes * d->res.pitch2D.height),
                 CUDA_ERROR_INVALID_VALUE);
        return CUDA_SUCCESS;
    case CU_RESOURCE_TYPE_ARRAY:
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        return sg_not_modelled(SG_ID_cuTexObjectCreate, "a texture over an array");
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

SG_CALL(cuTexObjectCreate,
        (CUtexObject * out, const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *texture,
         const CUDA_RESOURCE_VIEW_DESC *view),
        (out, resource, texture, view))
{
    struct sg_ctx *c;
    SG_CHECK(out && resource && texture && !view, CUDA_ERROR_INVALID_VALUE); /* views are of arrays */
    SG_TRY(sg_current(&c));
    SG_TRY(check_resource(c->device, resource));
    struct texture *t = calloc(1, sizeof *t);
    SG_CHECK(t, CUDA_ERROR_OUT_OF_MEMORY);
    t->resource = *resource;
    t->texture = *texture;
    sg_handle_add(SG_H_TEXTURE, t);
    *out = (CUtexObject)(uintptr_t)t;
    return CUDA_SUCCESS;
}

SG_CALL(cuTexObjectDestroy, (CUtexObject o), (o))
{
    struct texture *t = texture_of(o);
    SG_CHECK(t, CUDA_ERROR_INVALID_VALUE);
    sg_handle_drop(SG_H_TEXTURE, t);
    free(t);
    return CUDA_SUCCESS;
}

SG_CALL(cuTexObjectGetResourceDesc, (CUDA_RESOURCE_DESC * out, CUtexObject o), (out, o))
{
    const struct texture *t = texture_of(o);
    SG_CHECK(out && t, CUDA_ERROR_INVALID_VALUE);
    *out = t->resource;
    return CUDA_SUCCESS;
}

SG_CALL(cuTexObjectGetTextureDesc, (CUDA_TEXTURE_DESC * out, CUtexObject o), (out, o))
{
    const struct texture *t = texture_of(o);
    SG_CHECK(out && t, CUDA_ERROR_INVALID_VALUE);
    *out = t->texture;
    return CUDA_SUCCESS;
}

SG_CALL(cuTexObjectGetResourceViewDesc, (CUDA_RESOURCE_VIEW_DESC * out, CUtexObject o), (out, o))
{
    (void)out;
    (void)o;
    return CUDA_ERROR_INVALID_VALUE; /* no object has a view */
}
