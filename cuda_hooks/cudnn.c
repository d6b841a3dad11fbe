/* cuDNN's legacy calls (cudnn.def). Extents are read from the call's descriptors, through the same
 * cuDNN that will execute it. */
#include <cudnn.h>

#include "cudnn_types.h"
#include "library.h"

static const char *const sonames[] = {
    "libcudnn.so.9", "libcudnn_ops.so.9",       "libcudnn_cnn.so.9", "libcudnn_adv.so.9",
    "libcudnn.so.8", "libcudnn_ops_infer.so.8", "libcudnn.so.7",     NULL};
static const struct vm_library cudnn = {sonames};

/* ---- descriptors ------------------------------------------------------------------------------*/

typedef cudnnStatus_t (*size_fn)(const cudnnTensorDescriptor_t, size_t *);
typedef cudnnStatus_t (*filter_size_fn)(const cudnnFilterDescriptor_t, size_t *);
typedef cudnnStatus_t (*shape_fn)(const cudnnTensorDescriptor_t, int, cudnnDataType_t *, int *,
                                  int *, int *);
typedef cudnnStatus_t (*filter_shape_fn)(const cudnnFilterDescriptor_t, int, cudnnDataType_t *,
                                         cudnnTensorFormat_t *, int *, int *);

struct extent {
    size_t bytes; /* 0: not known */
    bool packed;  /* every byte between first and last belongs to the tensor */
    bool doubles; /* alpha and beta are double, not float */
};

static struct extent tensor_extent(const void *caller, cudnnTensorDescriptor_t desc)
{
    struct extent e = {0, false, false};
    VM_LIBRARY_SLOT(size_slot);
    VM_LIBRARY_SLOT(shape_slot);
    size_fn size =
        (size_fn)vm_library_real(&cudnn, &size_slot, "cudnnGetTensorSizeInBytes", caller);
    shape_fn shape =
        (shape_fn)vm_library_real(&cudnn, &shape_slot, "cudnnGetTensorNdDescriptor", caller);
    cudnnDataType_t type;
    int n = 0, dims[CUDNN_DIM_MAX], strides[CUDNN_DIM_MAX];
    if (!desc || !size || size(desc, &e.bytes) != CUDNN_STATUS_SUCCESS) {
        e.bytes = 0;
        return e;
    }
    if (!shape || shape(desc, CUDNN_DIM_MAX, &type, &n, dims, strides) != CUDNN_STATUS_SUCCESS)
        return e;
    size_t elements = vm_cudnn_element_bytes((int)type);
    for (int i = 0; i < n && i < CUDNN_DIM_MAX; i++)
        elements *= (size_t)dims[i];
    e.packed = elements == e.bytes;
    e.doubles = type == CUDNN_DATA_DOUBLE;
    return e;
}

static struct extent filter_extent(const void *caller, cudnnFilterDescriptor_t desc)
{
    struct extent e = {0, true, false}; /* filters have no strides */
    VM_LIBRARY_SLOT(size_slot);
    VM_LIBRARY_SLOT(shape_slot);
    filter_size_fn size =
        (filter_size_fn)vm_library_real(&cudnn, &size_slot, "cudnnGetFilterSizeInBytes", caller);
    filter_shape_fn shape =
        (filter_shape_fn)vm_library_real(&cudnn, &shape_slot, "cudnnGetFilterNdDescriptor", caller);
    cudnnDataType_t type;
    cudnnTensorFormat_t format;
    int n = 0, dims[CUDNN_DIM_MAX];
    if (!desc || !size || size(desc, &e.bytes) != CUDNN_STATUS_SUCCESS)
        e.bytes = 0;
    else if (shape && shape(desc, CUDNN_DIM_MAX, &type, &format, &n, dims) == CUDNN_STATUS_SUCCESS)
        e.doubles = type == CUDNN_DATA_DOUBLE;
    return e;
}

/* cuDNN's scalars are on the host: float, or double for double tensors. */
static bool beta_is_zero(const void *beta, struct extent e)
{
    return vm_library_zero(beta, e.doubles ? sizeof(double) : sizeof(float));
}

static void writes(struct vm_libcall *call, void *p, struct extent e, const void *beta,
                   unsigned role)
{
    unsigned mode = !beta_is_zero(beta, e) ? VM_RW : e.packed ? VM_WRITE | VM_TOTAL : VM_WRITE;
    if (p)
        vm_library_touch(call, p, e.bytes, mode, role);
}

static void touches(struct vm_libcall *call, const void *p, struct extent e, unsigned mode,
                    unsigned role)
{
    if (p)
        vm_library_touch(call, p, e.bytes, mode, role);
}

/* `n` bytes, none when n is 0. */
static void touches_bytes(struct vm_libcall *call, const void *p, size_t n, unsigned mode,
                          unsigned role)
{
    if (n)
        vm_library_touch(call, p, n, mode, role);
}

static void pure_if(struct vm_libcall *call, bool pure)
{
    if (pure)
        call->flags |= VM_OPF_PURE;
}

static const double no_beta; /* OUT_ALL: as with beta = 0 */

/* ---- the accesses of cudnn.def ----------------------------------------------------------------*/

#define TENSOR(desc)              tensor_extent(caller, desc)
#define FILTER(desc)              filter_extent(caller, desc)
#define ROLE(role)                VM_ROLE_##role
#define IN(p, desc, role)         touches(&call, p, TENSOR(desc), VM_READ, ROLE(role));
#define INOUT(p, desc, role)      touches(&call, p, TENSOR(desc), VM_RW, ROLE(role));
#define OUT(p, desc, beta, role)  writes(&call, p, TENSOR(desc), beta, ROLE(role));
#define OUT_ALL(p, desc, role)    writes(&call, p, TENSOR(desc), &no_beta, ROLE(role));
#define FILTER_IN(p, desc)        touches(&call, p, FILTER(desc), VM_READ, ROLE(W));
#define FILTER_OUT(p, desc, beta) writes(&call, p, FILTER(desc), beta, ROLE(DW));
#define STATE(p, desc)            touches(&call, p, TENSOR(desc), VM_RW, VM_ROLE_STATE);
#define SCRATCH(p, n)             touches_bytes(&call, p, n, VM_WRITE | VM_TOTAL, ROLE(WORKSPACE));
#define KEPT(p, n)                touches_bytes(&call, p, n, VM_RW, VM_ROLE_STATE);
#define KEPT_IN(p, n)             touches_bytes(&call, p, n, VM_READ, VM_ROLE_STATE);
#define RAW_IN(p, n, role)        touches_bytes(&call, p, n, VM_READ, ROLE(role));
#define RAW_OUT(p, n)             touches_bytes(&call, p, n, VM_WRITE, ROLE(NONE));
#define WHOLE_IN(p, role)         touches(&call, p, (struct extent){0}, VM_READ, ROLE(role));
#define WHOLE_OUT(p, role)        touches(&call, p, (struct extent){0}, VM_WRITE, ROLE(role));
#define WHOLE_INOUT(p, role)      touches(&call, p, (struct extent){0}, VM_RW, ROLE(role));
#define PURE()                    pure_if(&call, true);
#define PURE_IF(beta, desc)       pure_if(&call, beta_is_zero(beta, TENSOR(desc)));

#define VM_OPF_0 0

#define VM_CUDNN(function, layer, direction, params, args, accesses)                               \
    VM_EXPORT cudnnStatus_t function params                                                        \
    {                                                                                              \
        VM_LIBRARY_SLOT(slot);                                                                     \
        const void *caller = __builtin_return_address(0);                                          \
        cudnnStatus_t(*real) params =                                                              \
            (cudnnStatus_t(*) params)vm_library_real(&cudnn, &slot, #function, caller);            \
        struct vm_libcall call;                                                                    \
        if (!real)                                                                                 \
            return CUDNN_STATUS_NOT_INITIALIZED;                                                   \
        if (!vm_library_begin(&call, #function, VM_LAYER_##layer, VM_OPF_##direction))             \
            return real args;                                                                      \
        accesses vm_library_issue();                                                               \
        cudnnStatus_t status = real args;                                                          \
        vm_library_end(&call);                                                                     \
        return status;                                                                             \
    }

#include "cudnn.def"
