/* Texture objects over linear memory and arrays, and surface objects: what a program says of them
 * is kept and given back. Nothing fetches through them here: a kernel's body knows the memory
 * behind its objects by itself. */
#include "array.h"

#include <stdlib.h>

#define ALIGNMENT       512u /* as device attributes say */
#define PITCH_ALIGNMENT 32u

/* What is behind a texture or a surface object. */
struct object {
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture; /* textures only, as is the view */
    CUDA_RESOURCE_VIEW_DESC view;
    bool viewed;
};

static struct object *object_of(enum sg_handle_type t, unsigned long long handle)
{
    void *p = (void *)(uintptr_t)handle;
    return sg_handle_is(t, p) ? p : NULL;
}

static struct object *object_new(enum sg_handle_type t, const CUDA_RESOURCE_DESC *resource,
                                 unsigned long long *handle)
{
    struct object *o = calloc(1, sizeof *o);
    if (!o)
        return NULL;
    o->resource = *resource;
    sg_handle_add(t, o);
    *handle = (unsigned long long)(uintptr_t)o;
    return o;
}

static CUresult object_destroy(enum sg_handle_type t, unsigned long long handle)
{
    struct object *o = object_of(t, handle);
    SG_CHECK(o, CUDA_ERROR_INVALID_VALUE);
    sg_handle_drop(t, o);
    free(o);
    return CUDA_SUCCESS;
}

static CUresult object_resource(CUDA_RESOURCE_DESC *out, enum sg_handle_type t,
                                unsigned long long handle)
{
    const struct object *o = object_of(t, handle);
    SG_CHECK(out && o, CUDA_ERROR_INVALID_VALUE);
    *out = o->resource;
    return CUDA_SUCCESS;
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
    struct object *o = object_new(SG_H_TEXTURE, resource, out);
    SG_CHECK(o, CUDA_ERROR_OUT_OF_MEMORY);
    o->texture = *texture;
    o->viewed = view != NULL;
    if (view)
        o->view = *view;
    return CUDA_SUCCESS;
}

SG_CALL(cuTexObjectDestroy, (CUtexObject o), (o))
{
    return object_destroy(SG_H_TEXTURE, o);
}

SG_CALL(cuTexObjectGetResourceDesc, (CUDA_RESOURCE_DESC * out, CUtexObject o), (out, o))
{
    return object_resource(out, SG_H_TEXTURE, o);
}

SG_CALL(cuTexObjectGetTextureDesc, (CUDA_TEXTURE_DESC * out, CUtexObject h), (out, h))
{
    const struct object *o = object_of(SG_H_TEXTURE, h);
    SG_CHECK(out && o, CUDA_ERROR_INVALID_VALUE);
    *out = o->texture;
    return CUDA_SUCCESS;
}

SG_CALL(cuTexObjectGetResourceViewDesc, (CUDA_RESOURCE_VIEW_DESC * out, CUtexObject h), (out, h))
{
    const struct object *o = object_of(SG_H_TEXTURE, h);
    SG_CHECK(out && o && o->viewed, CUDA_ERROR_INVALID_VALUE);
    *out = o->view;
    return CUDA_SUCCESS;
}

/* ---- surfaces: arrays that were made for them ---- */
SG_CALL(cuSurfObjectCreate, (CUsurfObject * out, const CUDA_RESOURCE_DESC *resource),
        (out, resource))
{
    struct sg_ctx *c;
    SG_CHECK(out && resource && resource->resType == CU_RESOURCE_TYPE_ARRAY,
             CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_current(&c));
    SG_CHECK(sg_array_flags(resource->res.array.hArray) & CUDA_ARRAY3D_SURFACE_LDST,
             CUDA_ERROR_INVALID_VALUE);
    return object_new(SG_H_SURFACE, resource, out) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SG_CALL(cuSurfObjectDestroy, (CUsurfObject o), (o))
{
    return object_destroy(SG_H_SURFACE, o);
}

SG_CALL(cuSurfObjectGetResourceDesc, (CUDA_RESOURCE_DESC * out, CUsurfObject o), (out, o))
{
    return object_resource(out, SG_H_SURFACE, o);
}
