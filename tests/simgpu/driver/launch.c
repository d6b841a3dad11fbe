/* Launches and occupancy. */
#include "sg.h"

#include <stdlib.h>
#include <string.h>

/* The packed parameter block, from kernelParams or from the buffer of `extra`. */
static CUresult pack(const struct sg_func *f, void **params, void **extra, unsigned char **out,
                     size_t *bytes)
{
    const void *buffer = NULL;
    size_t n = f->param_bytes;
    SG_CHECK(!(params && extra), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; extra && extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[i + 1];
        else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            n = *(const size_t *)extra[i + 1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    SG_CHECK(!extra || (buffer && n >= f->param_bytes) || !f->param_bytes,
             CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(params || buffer || !f->param_bytes, CUDA_ERROR_INVALID_VALUE);
    unsigned char *p = calloc(1, n ? n : 1);
    SG_CHECK(p, CUDA_ERROR_OUT_OF_MEMORY);
    if (buffer)
        memcpy(p, buffer, n);
    for (unsigned i = 0; params && i < f->kernel->nparams; i++)
        memcpy(p + f->kernel->params[i].offset, params[i], f->kernel->params[i].size);
    *out = p;
    *bytes = n;
    return CUDA_SUCCESS;
}

/* What a kernel that a compiler made is taken to do, as nothing says what it does: each thread moves 16
 * bytes (a vector of four floats, as elementwise kernels are written) for each device address among its
 * parameters, up to ADDRESSES_MAX of them: kernels that work on lists of tensors name hundreds, and each
 * thread touches few. It is no more than a guess at the order of magnitude. */
#define BYTES_PER_ADDRESS 16
#define ADDRESSES_MAX     32
static struct simgpu_work geometric(const struct sg_kernel_op *k)
{
    unsigned addresses = 0;
    for (size_t at = 0; at + sizeof(uint64_t) <= k->param_bytes && addresses < ADDRESSES_MAX;
         at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, k->params + at, sizeof word);
        addresses += sg_va_plausible(word);
    }
    double threads = (double)k->grid[0] * k->grid[1] * k->grid[2] * k->block[0] * k->block[1] *
                     k->block[2];
    return (struct simgpu_work){.kclass = SIMGPU_CLASS_GENERIC,
                                .bytes = threads * BYTES_PER_ADDRESS * (addresses ? addresses : 1)};
}

CUresult sg_kernel_op(struct sg_func *f, const unsigned grid[3], const unsigned block[3],
                      unsigned shared, void **params, void **extra, struct sg_op **out)
{
    SG_CHECK(grid[0] && grid[1] && grid[2] && block[0] && block[1] && block[2],
             CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(grid[0] <= 2147483647u && grid[1] <= 65535 && grid[2] <= 65535,
             CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(block[0] <= 1024 && block[1] <= 1024 && block[2] <= 64 &&
                 block[0] * block[1] * block[2] <= 1024,
             CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(shared <= (unsigned)f->max_dynamic_shared, CUDA_ERROR_INVALID_VALUE);
    struct sg_op *op = sg_op_new(SG_OP_KERNEL, SG_ENG_COMPUTE);
    SG_CHECK(op, CUDA_ERROR_OUT_OF_MEMORY);
    struct sg_kernel_op *k = &op->u.kernel;
    CUresult r = pack(f, params, extra, &k->params, &k->param_bytes);
    if (r != CUDA_SUCCESS) {
        sg_op_unref(op);
        return r;
    }
    k->fn = f;
    f->mod->users++;
    k->name = f->kernel->name;
    memcpy(k->grid, grid, sizeof k->grid);
    memcpy(k->block, block, sizeof k->block);
    k->shared = shared;
    k->work = (struct simgpu_work){.kclass = SIMGPU_CLASS_GENERIC, .ns = sg_prices.generic_kernel};
    if (f->mod->code) {
        k->work = geometric(k);
    } else if (f->kernel->cost) {
        struct simgpu_launch l = {.params = k->params,
                                  .param_bytes = k->param_bytes,
                                  .shared_bytes = shared,
                                  .functional = sg.cfg.mode == SG_FUNCTIONAL};
        memcpy(l.grid, grid, sizeof l.grid);
        memcpy(l.block, block, sizeof l.block);
        k->work = (struct simgpu_work){.kclass = SIMGPU_CLASS_GENERIC};
        f->kernel->cost(&l, &k->work);
        if (k->work.kclass < 0 || k->work.kclass >= SIMGPU_CLASS_COUNT)
            k->work.kclass = SIMGPU_CLASS_GENERIC;
    }
    *out = op;
    return CUDA_SUCCESS;
}

static CUresult launch(CUfunction hf, const unsigned grid[3], const unsigned block[3],
                       unsigned shared, CUstream hs, void **params, void **extra)
{
    struct sg_stream *s;
    struct sg_op *op;
    SG_TRY(sg_stream_of(hs, &s));
    struct sg_func *f = sg_func_of(hf);
    SG_CHECK(f, CUDA_ERROR_INVALID_HANDLE);
    SG_TRY(sg_kernel_op(f, grid, block, shared, params, extra, &op));
    return sg_submit(s, op);
}

SG_CALL_S(cuLaunchKernel, cuLaunchKernel_ptsz,
          (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
           unsigned bz, unsigned shared, CUstream s, void **params, void **extra),
          (f, gx, gy, gz, bx, by, bz, shared, s, params, extra))
{
    const unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
    return launch(f, grid, block, shared, s, params, extra);
}

SG_CALL_S(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel_ptsz,
          (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
           unsigned bz, unsigned shared, CUstream s, void **params),
          (f, gx, gy, gz, bx, by, bz, shared, s, params))
{
    const unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
    SG_CHECK((unsigned long long)gx * gy * gz <= (unsigned)sg.cfg.preset.sms * 32u,
             CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    return launch(f, grid, block, shared, s, params, NULL);
}

SG_CALL_S(cuLaunchKernelEx, cuLaunchKernelEx_ptsz,
          (const CUlaunchConfig *c, CUfunction f, void **params, void **extra),
          (c, f, params, extra))
{
    SG_CHECK(c && (!c->numAttrs || c->attrs), CUDA_ERROR_INVALID_VALUE);
    const unsigned grid[3] = {c->gridDimX, c->gridDimY, c->gridDimZ};
    const unsigned block[3] = {c->blockDimX, c->blockDimY, c->blockDimZ};
    for (unsigned i = 0; i < c->numAttrs; i++) {
        CUlaunchAttributeID id = c->attrs[i].id;
        if (id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT ||
            id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT)
            return sg_not_modelled(SG_ID_cuLaunchKernelEx, "an event attribute of a launch");
    }
    return launch(f, grid, block, c->sharedMemBytes, c->hStream, params, extra);
}

/* ---- occupancy: threads are the only limit that the model has ---- */
static int blocks_per_sm(int block)
{
    int n = 2048 / (block < 32 ? 32 : block);
    return n > 32 ? 32 : n;
}

static CUresult occupancy(int *blocks, CUfunction f, int block)
{
    SG_CHECK(blocks && block > 0 && block <= 1024, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(sg_func_of(f), CUDA_ERROR_INVALID_HANDLE);
    *blocks = blocks_per_sm(block);
    return CUDA_SUCCESS;
}
SG_CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor,
        (int *n, CUfunction f, int block, size_t shared), (n, f, block, shared))
{
    (void)shared;
    return occupancy(n, f, block);
}
SG_CALL(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
        (int *n, CUfunction f, int block, size_t shared, unsigned flags),
        (n, f, block, shared, flags))
{
    (void)shared;
    (void)flags;
    return occupancy(n, f, block);
}

static CUresult best_block(int *grid, int *block, CUfunction f, int limit)
{
    SG_CHECK(grid && block, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(sg_func_of(f), CUDA_ERROR_INVALID_HANDLE);
    *block = limit > 0 && limit < 1024 ? limit : 1024;
    *grid = sg.cfg.preset.sms * blocks_per_sm(*block);
    return CUDA_SUCCESS;
}
SG_CALL(cuOccupancyMaxPotentialBlockSize,
        (int *grid, int *block, CUfunction f, CUoccupancyB2DSize size, size_t shared, int limit),
        (grid, block, f, size, shared, limit))
{
    (void)size;
    (void)shared;
    return best_block(grid, block, f, limit);
}
SG_CALL(cuOccupancyMaxPotentialBlockSizeWithFlags,
        (int *grid, int *block, CUfunction f, CUoccupancyB2DSize size, size_t shared, int limit,
         unsigned flags),
        (grid, block, f, size, shared, limit, flags))
{
    (void)size;
    (void)shared;
    (void)flags;
    return best_block(grid, block, f, limit);
}
SG_CALL(cuOccupancyAvailableDynamicSMemPerBlock,
        (size_t * bytes, CUfunction f, int blocks, int block), (bytes, f, blocks, block))
{
    SG_CHECK(bytes && blocks > 0 && block > 0, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(sg_func_of(f), CUDA_ERROR_INVALID_HANDLE);
    *bytes = (size_t)49152 / (size_t)blocks;
    return CUDA_SUCCESS;
}
