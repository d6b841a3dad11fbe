/* Arrays: memory of a card in an order that is the driver's own affair. Programs have a handle of
 * it, no address: only copies and textures reach it. Here the order is rows, each at a multiple of
 * 512 bytes, slice after slice; layers and cube faces are slices. Mipmapped and sparse arrays are
 * refused. */
#include "array.h"

#include <stdlib.h>

#define ROW_BYTES 512u
#define FLAGS                                                                                      \
    (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_SURFACE_LDST |                     \
     CUDA_ARRAY3D_TEXTURE_GATHER)

struct sg_array {
    struct sg_range *memory; /* of kind SG_ARRAY; goes with it */
    CUDA_ARRAY3D_DESCRIPTOR described;
    size_t row, rows, slices; /* in bytes, and counts of at least one */
    size_t pitch;
};

static size_t format_bytes(CUarray_format f)
{
    switch (f) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
        return 4;
    default:
        return 0; /* packed and compressed formats are not modelled */
    }
}

/* What the header says of the shapes that each kind of array may have. */
static CUresult shape(const CUDA_ARRAY3D_DESCRIPTOR *d, struct sg_array *a)
{
    bool layered = d->Flags & CUDA_ARRAY3D_LAYERED, cube = d->Flags & CUDA_ARRAY3D_CUBEMAP;
    unsigned n = d->NumChannels;
    size_t element = format_bytes(d->Format) * n;
    SG_CHECK(n == 1 || n == 2 || n == 4, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(element, CUDA_ERROR_NOT_SUPPORTED);
    SG_CHECK(!(d->Flags & ~(unsigned)FLAGS), CUDA_ERROR_NOT_SUPPORTED);
    SG_CHECK(d->Width && d->Width < (size_t)1 << 32 && d->Height < (size_t)1 << 32 &&
                 d->Depth < (size_t)1 << 16,
             CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(!layered || d->Depth, CUDA_ERROR_INVALID_VALUE); /* Depth: the layers */
    SG_CHECK(layered || d->Height || !d->Depth,
             CUDA_ERROR_INVALID_VALUE); /* one dimension of two */
    SG_CHECK(!cube || (d->Width == d->Height && d->Depth % 6 == 0 && (layered || d->Depth == 6)),
             CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(!(d->Flags & CUDA_ARRAY3D_TEXTURE_GATHER) || (d->Height && !d->Depth),
             CUDA_ERROR_INVALID_VALUE);
    a->described = *d;
    a->row = d->Width * element;
    a->rows = d->Height ? d->Height : 1;
    a->slices = d->Depth ? d->Depth : 1;
    a->pitch = (a->row + ROW_BYTES - 1) / ROW_BYTES * ROW_BYTES;
    SG_CHECK(a->pitch * a->rows / a->rows == a->pitch &&
                 a->pitch * a->rows < ((size_t)1 << 46) / a->slices,
             CUDA_ERROR_OUT_OF_MEMORY);
    return CUDA_SUCCESS;
}

static CUresult create(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
    struct sg_ctx *c;
    struct sg_array local, *a;
    SG_CHECK(out, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_current(&c));
    SG_CHECK(!sg_capture_blocks(c), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    SG_TRY(shape(d, &local));
    a = malloc(sizeof *a);
    SG_CHECK(a, CUDA_ERROR_OUT_OF_MEMORY);
    *a = local;
    CUresult r = sg_alloc(SG_ARRAY, c, a->pitch * a->rows * a->slices, &a->memory);
    if (r != CUDA_SUCCESS) {
        free(a);
        return r;
    }
    a->memory->array = a;
    sg_handle_add(SG_H_ARRAY, a);
    *out = (CUarray)a;
    return CUDA_SUCCESS;
}

SG_CALL(cuArrayCreate_v2, (CUarray * out, const CUDA_ARRAY_DESCRIPTOR *d), (out, d))
{
    SG_CHECK(d, CUDA_ERROR_INVALID_VALUE);
    const CUDA_ARRAY3D_DESCRIPTOR full = {
        .Width = d->Width, .Height = d->Height, .Format = d->Format, .NumChannels = d->NumChannels};
    return create(out, &full);
}

SG_CALL(cuArray3DCreate_v2, (CUarray * out, const CUDA_ARRAY3D_DESCRIPTOR *d), (out, d))
{
    SG_CHECK(d, CUDA_ERROR_INVALID_VALUE);
    return create(out, d);
}

static struct sg_array *array_of(CUarray h)
{
    return sg_handle_is(SG_H_ARRAY, h) ? (struct sg_array *)h : NULL;
}

bool sg_is_array(CUarray h)
{
    return array_of(h) != NULL;
}

unsigned sg_array_flags(CUarray h)
{
    const struct sg_array *a = array_of(h);
    return a ? a->described.Flags : 0;
}

void sg_array_forget(struct sg_array *a)
{
    sg_handle_drop(SG_H_ARRAY, a);
    free(a);
}

/* Waits for the context, as the free of a block does. */
SG_CALL(cuArrayDestroy, (CUarray h), (h))
{
    struct sg_ctx *c;
    SG_TRY(sg_current(&c));
    const struct sg_array *a = array_of(h);
    SG_CHECK(a, CUDA_ERROR_INVALID_HANDLE);
    SG_CHECK(!sg_capture_blocks(c), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    SG_TRY(sg_wait_ctx(a->memory->ctx));
    a = array_of(h); /* the lock was given back while waiting */
    SG_CHECK(a, CUDA_ERROR_INVALID_HANDLE);
    sg_dealloc(a->memory);
    return CUDA_SUCCESS;
}

SG_CALL(cuArrayGetDescriptor_v2, (CUDA_ARRAY_DESCRIPTOR * out, CUarray h), (out, h))
{
    const struct sg_array *a = array_of(h);
    SG_CHECK(out, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(a, CUDA_ERROR_INVALID_HANDLE);
    /* of two dimensions at most: the three-dimensional call is for the others */
    SG_CHECK(!a->described.Depth, CUDA_ERROR_INVALID_VALUE);
    *out = (CUDA_ARRAY_DESCRIPTOR){.Width = a->described.Width,
                                   .Height = a->described.Height,
                                   .Format = a->described.Format,
                                   .NumChannels = a->described.NumChannels};
    return CUDA_SUCCESS;
}

SG_CALL(cuArray3DGetDescriptor_v2, (CUDA_ARRAY3D_DESCRIPTOR * out, CUarray h), (out, h))
{
    const struct sg_array *a = array_of(h);
    SG_CHECK(out, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(a, CUDA_ERROR_INVALID_HANDLE);
    *out = a->described;
    return CUDA_SUCCESS;
}

CUresult sg_array_box(CUarray h, const size_t at[3], const size_t extent[3], struct sg_box *out)
{
    const struct sg_array *a = array_of(h);
    SG_CHECK(a, CUDA_ERROR_INVALID_HANDLE);
    const size_t have[3] = {a->row, a->rows, a->slices};
    for (int i = 0; i < 3; i++)
        SG_CHECK(extent[i] <= have[i] && at[i] <= have[i] - extent[i], CUDA_ERROR_INVALID_VALUE);
    out->at = a->memory->va + (at[2] * a->rows + at[1]) * a->pitch + at[0];
    out->pitch = a->pitch;
    out->slice = a->pitch * a->rows;
    return CUDA_SUCCESS;
}

/* A call without rows of its own: arrays of one dimension, where bytes follow each other. */
CUresult sg_array_line(CUarray h, size_t offset, size_t bytes, struct sg_box *out)
{
    const struct sg_array *a = array_of(h);
    SG_CHECK(a, CUDA_ERROR_INVALID_HANDLE);
    SG_CHECK(a->rows == 1 && a->slices == 1, CUDA_ERROR_INVALID_VALUE);
    return sg_array_box(h, (const size_t[]){offset, 0, 0}, (const size_t[]){bytes, 1, 1}, out);
}

size_t sg_array_element(CUarray h)
{
    const struct sg_array *a = array_of(h);
    return a ? format_bytes(a->described.Format) * a->described.NumChannels : 0;
}
