/* Fills. The value is part of neither the op's signature nor its accesses. */
#include "copy.h"

static void describe(struct vm_op *op, CUdeviceptr dst, size_t pitch, size_t width, size_t height,
                     CUstream stream, bool per_thread)
{
    vm_op_init(op, VM_OP_MEMSET, stream, per_thread);
    vm_op_sign(op, width);
    vm_op_sign(op, height);
    if (height == 1)
        vm_op_touch(op, dst, width, VM_WRITE | VM_TOTAL, VM_ROLE_NONE);
    else
        vm_op_touch_2d(op, dst, width, height, pitch, VM_WRITE | VM_TOTAL);
}

/* The twelve functions differ in the element and in whether they take a stream. */
#define FILL(symbol, element, type)                                                                \
    CUresult door_##symbol(vm_fn_##symbol real, bool per_thread, CUdeviceptr dst, type value,      \
                           size_t n)                                                               \
    {                                                                                              \
        struct vm_op op;                                                                           \
        CUresult r;                                                                                \
        describe(&op, dst, 0, n *(element), 1, NULL, per_thread);                                  \
        VM_ISSUE(r, &op, real(dst, value, n));                                                     \
        return r;                                                                                  \
    }

#define FILL_ASYNC(symbol, element, type)                                                          \
    CUresult door_##symbol(vm_fn_##symbol real, bool per_thread, CUdeviceptr dst, type value,      \
                           size_t n, CUstream stream)                                              \
    {                                                                                              \
        struct vm_op op;                                                                           \
        CUresult r;                                                                                \
        describe(&op, dst, 0, n *(element), 1, stream, per_thread);                                \
        VM_ISSUE(r, &op, real(dst, value, n, stream));                                             \
        return r;                                                                                  \
    }

#define FILL_2D(symbol, element, type)                                                             \
    CUresult door_##symbol(vm_fn_##symbol real, bool per_thread, CUdeviceptr dst, size_t pitch,    \
                           type value, size_t width, size_t height)                                \
    {                                                                                              \
        struct vm_op op;                                                                           \
        CUresult r;                                                                                \
        describe(&op, dst, pitch, width *(element), height, NULL, per_thread);                     \
        VM_ISSUE(r, &op, real(dst, pitch, value, width, height));                                  \
        return r;                                                                                  \
    }

#define FILL_2D_ASYNC(symbol, element, type)                                                       \
    CUresult door_##symbol(vm_fn_##symbol real, bool per_thread, CUdeviceptr dst, size_t pitch,    \
                           type value, size_t width, size_t height, CUstream stream)               \
    {                                                                                              \
        struct vm_op op;                                                                           \
        CUresult r;                                                                                \
        describe(&op, dst, pitch, width *(element), height, stream, per_thread);                   \
        VM_ISSUE(r, &op, real(dst, pitch, value, width, height, stream));                          \
        return r;                                                                                  \
    }

FILL(cuMemsetD8_v2, 1, unsigned char)
FILL(cuMemsetD16_v2, 2, unsigned short)
FILL(cuMemsetD32_v2, 4, unsigned)
FILL_ASYNC(cuMemsetD8Async, 1, unsigned char)
FILL_ASYNC(cuMemsetD16Async, 2, unsigned short)
FILL_ASYNC(cuMemsetD32Async, 4, unsigned)
FILL_2D(cuMemsetD2D8_v2, 1, unsigned char)
FILL_2D(cuMemsetD2D16_v2, 2, unsigned short)
FILL_2D(cuMemsetD2D32_v2, 4, unsigned)
FILL_2D_ASYNC(cuMemsetD2D8Async, 1, unsigned char)
FILL_2D_ASYNC(cuMemsetD2D16Async, 2, unsigned short)
FILL_2D_ASYNC(cuMemsetD2D32Async, 4, unsigned)
