/* fatbin.h: device code as nvcc embeds it, turned into an image that the simulated GPU can launch.
 *
 * Accepts what cuModuleLoadData and cuLibraryLoadData accept: a fat binary (with or without the
 * wrapper that the start-up code registers, entries plain or compressed by zstd or LZ4), a cubin, or
 * PTX text. The code itself is not run: a kernel gets its name and its parameter layout, no body and
 * no cost function, so that a launch is a no-op of the preset's fixed duration.
 *
 * Nothing here has state; all functions may be called from any thread.
 */
#ifndef SG_FATBIN_H
#define SG_FATBIN_H

#include "simgpu.h"

#include <cuda.h>

/* A variable of the module (__device__, __constant__, __managed__). */
struct sg_code_global {
    char *name;
    size_t bytes;
    unsigned char *init; /* `bytes` of initial contents, NULL = zeros */
    int constant, managed;
};

struct sg_code {
    struct simgpu_image image; /* its kernels are owned by this structure */
    struct sg_code_global *globals;
    unsigned nglobals;
    int arch; /* of the entry that was chosen: 10 * major + minor */
};

/* 1 if `code` looks like something sg_code_load understands (by its first bytes), else 0. */
int sg_code_recognise(const void *code);

/* Chooses the entry that a device of `arch` (10 * major + minor; 0 takes any) would run: a cubin of
 * the same major version and no later minor one, else the newest PTX that is not newer than the
 * device. *out is owned by the caller. CUDA_ERROR_NO_BINARY_FOR_GPU if no entry suits,
 * CUDA_ERROR_INVALID_IMAGE if the bytes are not what they claim, CUDA_ERROR_OUT_OF_MEMORY. */
CUresult sg_code_load(const void *code, int arch, struct sg_code **out);
void sg_code_free(struct sg_code *c);

/* ---- for the parsers of the entry formats (cubin.c, ptx.c) --------------------------------------*/

/* Adds a kernel or a variable to `c`, copying what is given. 0, or -1 on lack of memory. `params` may
 * be in any order; they are sorted by offset. */
int sg_code_add_kernel(struct sg_code *c, const char *name, const struct simgpu_param *params,
                       unsigned nparams);
int sg_code_add_global(struct sg_code *c, const char *name, size_t bytes, const unsigned char *init,
                       int constant, int managed);

/* Fill `c` from `bytes` bytes at `data`. CUDA_ERROR_INVALID_IMAGE or CUDA_ERROR_OUT_OF_MEMORY. */
CUresult sg_cubin_parse(const unsigned char *data, size_t bytes, struct sg_code *c);
CUresult sg_ptx_parse(const char *text, size_t bytes, struct sg_code *c);
/* Bytes of a cubin that starts at `data`, from its own headers; 0 if it is no such file. */
size_t sg_cubin_bytes(const unsigned char *data);
/* Architecture that a cubin or a PTX text is for, 0 if it does not say. */
int sg_cubin_arch(const unsigned char *data);
int sg_ptx_arch(const char *text, size_t bytes);

#endif
