/* Arrays, as copies and textures see them (array.c). */
#ifndef SG_ARRAY_H
#define SG_ARRAY_H
#include "sg.h"

/* Where a part of an array begins, and how far its rows and slices lie apart, in bytes. */
struct sg_box {
    uint64_t at;
    size_t pitch, slice;
};

bool sg_is_array(CUarray h);
unsigned sg_array_flags(CUarray h); /* those it was made with; 0: no array */
/* Bytes of an element; 0: no array. */
size_t sg_array_element(CUarray h);
/* The part of `extent` bytes, rows and slices from `at` on. CUDA_ERROR_INVALID_HANDLE: no array;
 * CUDA_ERROR_INVALID_VALUE: it reaches past the end. */
CUresult sg_array_box(CUarray h, const size_t at[3], const size_t extent[3], struct sg_box *out);
/* The same of an array of one dimension. */
CUresult sg_array_line(CUarray h, size_t offset, size_t bytes, struct sg_box *out);

#endif
