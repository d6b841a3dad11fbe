/* Texture objects over linear memory and arrays, and surface objects: what a program says of them is kept
 * and given back. Nothing fetches through them here: a kernel's body knows the memory behind its objects
 * by itself. */
#include "array.h"

#include <stdlib.h>

#define ALIGNMENT       512u /* as device attributes say */
#define PITCH_ALIGNMENT 32u

struct texture {
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    CUDA_RESOURCE_VIEW_DESC view;
    bool viewed;
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
        return sg_is_array(d->res.array.hArray) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: /* none can be made: no such handle is valid */
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
    SG_CHECK(out && resource && texture, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(!view || resource->resType == CU_RESOURCE_TYPE_ARRAY, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_current(&c));
    SG_TRY(check_resource(c->device, resource));
    struct texture *t = calloc(1, sizeof *t);
    SG_CHECK(t, CUDA_ERROR_OUT_OF_MEMORY);
    t->resource = *resource;
    t->texture = *texture;
    t->viewed = view != NULL;
    if (view)
        t->view = *view;
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
    const struct texture *t = texture_of(o);
    SG_CHECK(out && t && t->viewed, CUDA_ERROR_INVALID_VALUE);
    *out = t->view;
    return CUDA_SUCCESS;
}

/* ---- surfaces: arrays that were made for them ---- */
struct surface {
    CUDA_RESOURCE_DESC resource;
};

static struct surface *surface_of(CUsurfObject o)
{
    void *p = (void *)(uintptr_t)o;
    return sg_handle_is(SG_H_SURFACE, p) ? p : NULL;
}

SG_CALL(cuSurfObjectCreate, (CUsurfObject * out, const CUDA_RESOURCE_DESC *resource),
        (out, resource))
{
    struct sg_ctx *c;
    SG_CHECK(out && resource && resource->resType == CU_RESOURCE_TYPE_ARRAY,
             CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_current(&c));
    SG_CHECK(sg_array_flags(resource->res.array.hArray) & CUDA_ARRAY3D_SURFACE_LDST,
             CUDA_ERROR_INVALID_VALUE);
    struct surface *s = malloc(sizeof *s);
    SG_CHECK(s, CUDA_ERROR_OUT_OF_MEMORY);
    s->resource = *resource;
    sg_handle_add(SG_H_SURFACE, s);
    *out = (CUsurfObject)(uintptr_t)s;
    return CUDA_SUCCESS;
}

SG_CALL(cuSurfObjectDestroy, (CUsurfObject o), (o))
{
    struct surface *s = surface_of(o);
    SG_CHECK(s, CUDA_ERROR_INVALID_VALUE);
    sg_handle_drop(SG_H_SURFACE, s);
    free(s);
    return CUDA_SUCCESS;
}

SG_CALL(cuSurfObjectGetResourceDesc, (CUDA_RESOURCE_DESC * out, CUsurfObject o), (out, o))
{
    const struct surface *s = surface_of(o);
    SG_CHECK(out && s, CUDA_ERROR_INVALID_VALUE);
    *out = s->resource;
    return CUDA_SUCCESS;
}
