/* simgpu.h: how a program or library gives kernels to the simulated GPU.
 *
 * A real library carries cubins and hands them to cuLibraryLoadData or cuModuleLoadData. Ours carry
 * a struct simgpu_image instead and hand it to the same calls; everything else (cuLibraryGetKernel,
 * cuModuleGetFunction, cuFuncGetParamInfo, cuLaunchKernel with kernelParams or extra) is the public
 * driver API, so that a shim in between sees what it would see on hardware. No private entry point
 * exists. Images and everything they point to must outlive the module.
 */
#ifndef SIMGPU_H
#define SIMGPU_H

#include <stddef.h>
#include <stdint.h>

#define SIMGPU_IMAGE_MAGIC   UINT64_C(0x31474d4955504753) /* "SGPUIMG1", little endian */
#define SIMGPU_IMAGE_VERSION 1u

/* Classes of kernels: the roofline constants of a preset are given for each class. */
enum simgpu_class {
    SIMGPU_CLASS_ELEMENTWISE = 0, /* activations, bias, axpy, scale, op tensor, copies of tensors */
    SIMGPU_CLASS_CONV_FWD,
    SIMGPU_CLASS_CONV_BWD_DATA,
    SIMGPU_CLASS_CONV_BWD_FILTER,
    SIMGPU_CLASS_CONV_FAST,       /* 3x3 stride-1 by an algorithm that saves arithmetic (Winograd) */
    SIMGPU_CLASS_GEMM,
    SIMGPU_CLASS_POOL,
    SIMGPU_CLASS_NORM,            /* batch norm, LRN, softmax: several passes */
    SIMGPU_CLASS_REDUCE,
    SIMGPU_CLASS_GENERIC,         /* programs' own kernels, no modelled work: fixed duration */
    SIMGPU_CLASS_COUNT
};

enum simgpu_mode { SIMGPU_READ = 1, SIMGPU_WRITE = 2, SIMGPU_RW = 3 };

/* One launch as its body sees it, when it executes (not when it was issued). */
struct simgpu_launch {
    const unsigned char *params; /* the packed parameter block */
    size_t param_bytes;
    unsigned grid[3], block[3], shared_bytes;
    int functional; /* 1: device memory holds contents and device addresses are host addresses.
                       0: timing mode, memory has no contents and must not be touched.          */
};

/* Work of one launch. ns > 0 overrides the roofline. */
struct simgpu_work {
    double flops;
    double bytes;
    int kclass; /* enum simgpu_class */
    double ns;
};

/* A body tells the ranges it touches by calling this once for each, before anything executes. */
typedef void (*simgpu_touch_fn)(void *ctx, uint64_t addr, size_t bytes, int mode);

struct simgpu_param {
    uint16_t offset, size; /* in the parameter block, naturally aligned */
};

struct simgpu_kernel {
    const char *name;
    const struct simgpu_param *params;
    unsigned nparams;
    /* Every range the launch reads or writes. Called when the launch starts executing; in
     * functional mode it may read device memory (pointer tables), ranges it already declared first. */
    void (*touches)(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
    /* The arithmetic, on the CPU; called in functional mode after the touches were checked. */
    void (*body)(const struct simgpu_launch *l);
    /* Called at issue; NULL = SIMGPU_CLASS_GENERIC with the preset's fixed duration. */
    void (*cost)(const struct simgpu_launch *l, struct simgpu_work *work);
};

struct simgpu_image {
    uint64_t magic;   /* SIMGPU_IMAGE_MAGIC   */
    uint32_t version; /* SIMGPU_IMAGE_VERSION */
    uint32_t nkernels;
    const struct simgpu_kernel *kernels;
};

#endif
