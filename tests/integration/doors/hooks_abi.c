/* The rows of hooks.def against NVIDIA's own list of function types: compiling this file is the
 * test. A row whose version, suffix or parameters do not belong together does not compile. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaTypedefs.h>

#define VM_ROW(kind, symbol, suffix, base, version, per_thread, door, params, args)                \
    _Static_assert(                                                                                \
        __builtin_types_compatible_p(PFN_##base##_v##version##suffix, CUresult(*) params),         \
        #symbol " is not " #base " of version " #version);
#include "hooks.def"
#undef VM_ROW

#ifdef PLANT_WRONG_ROW
/* Proof that the check can fail: the version before the size_t one. */
_Static_assert(__builtin_types_compatible_p(PFN_cuMemAlloc_v2000,
                                            CUresult (*)(CUdeviceptr *, size_t)),
               "planted");
#endif

int main(void)
{
    return 0;
}
