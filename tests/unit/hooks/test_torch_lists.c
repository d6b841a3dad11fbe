/* The structures are written down here as PyTorch's headers declare them, so that the compiler says where
 * their members lie. */
#include <criterion/criterion.h>
#include <stddef.h>
#include <string.h>

#include "torch_lists.h"

#define NAME "_ZN2at6native57_GLOBAL__N__7e105b8f_24_ForeachBinaryOp_cu_86b9896c25multi_tensor_apply_kernelINS1_"

struct list2_small { /* TensorListMetadata<2>, parameters of up to 4 KiB */
    const void *addresses[2][64];
    int64_t numel[64];
    unsigned char block_to_tensor[320];
    int32_t block_to_chunk[320];
    int32_t start;
};

struct list4_large { /* TensorListMetadata<4>, up to 32 KiB */
    const void *addresses[4][252];
    int64_t numel[252];
    uint16_t block_to_tensor[2240];
    int32_t block_to_chunk[2240];
    int32_t start;
};

struct fused5_large { /* FusedOptimizerTensorListMetadata<5> */
    const void *addresses[5][210];
    int64_t numel[210];
    const void *steps[210];
    uint16_t block_to_tensor[2240];
    int32_t block_to_chunk[2240];
    int32_t start;
};

struct scalars3_small { /* TensorListScalarListMetadata<float, 3> */
    const void *addresses[3][48];
    int64_t numel[48];
    float values[48];
    unsigned char block_to_tensor[320];
    int32_t block_to_chunk[320];
};

struct scalars1_small { /* TensorListScalarListMetadata<double, 1> */
    const void *addresses[1][96];
    int64_t numel[96];
    double values[96];
    unsigned char block_to_tensor[320];
    int32_t block_to_chunk[320];
};

struct complex1_small { /* TensorListScalarListMetadata<c10::complex<double>, 1> */
    const void *addresses[1][72];
    int64_t numel[72];
    struct {
        _Alignas(16) double re;
        double im;
    } values[72];
    unsigned char block_to_tensor[320];
    int32_t block_to_chunk[320];
};

struct inputs128 { /* CatArrInputTensorMetadata<float, unsigned, 128, 1> */
    const void *input[128];
    unsigned offset[128], size[128], numel[128];
    _Bool contiguous[128];
    struct {
        unsigned sizes[4], strides[4];
    } strides[1];
};

#define CHECK(text, type, rows_, index_, extra_)                                                   \
    do {                                                                                           \
        struct vm_torch_list l = vm_torch_list_of(NAME text, sizeof(struct type));                 \
        cr_assert_eq(l.rows, rows_);                                                               \
        cr_assert_eq(l.places, sizeof((struct type *)0)->addresses[0] / 8);                        \
        cr_assert_eq(l.index_at, offsetof(struct type, block_to_tensor));                          \
        cr_assert_eq(l.index_bytes, index_);                                                       \
        cr_assert_eq(l.extra_at, extra_);                                                          \
        for (size_t off = 4; off <= 64; off += 4) { /* another structure is not taken for it */    \
            cr_assert_eq(vm_torch_list_of(NAME text, sizeof(struct type) + off).rows, 0);          \
            cr_assert_eq(vm_torch_list_of(NAME text, sizeof(struct type) - off).rows, 0);          \
        }                                                                                          \
    } while (0)

Test(torch_lists, layouts)
{
    CHECK("18TensorListMetadataILi2EEENS1_21BinaryOpScalarFunctorIfLi2ELi1ELi1EEE", list2_small, 2, 1, 0);
    CHECK("18TensorListMetadataILi4EEENS1_21", list4_large, 4, 2, 0);
    CHECK("32FusedOptimizerTensorListMetadataILi5EEENS1_21", fused5_large, 5, 2,
          offsetof(struct fused5_large, steps));
    CHECK("28TensorListScalarListMetadataIfLi3EEENS1_28", scalars3_small, 3, 1, 0);
    CHECK("28TensorListScalarListMetadataIdLi1EEENS1_28", scalars1_small, 1, 1, 0);
    CHECK("28TensorListScalarListMetadataIN3c107complexIdEELi1EEENS1_28", complex1_small, 1, 1, 0);
    cr_assert_eq(vm_torch_list_param(NAME), 0);
    cr_assert_eq(vm_torch_list_param("ampere_sgemm_128x64_nn"), -1);
}

Test(torch_lists, cat)
{
    const char *name = "_ZN2at6native40_GLOBAL__N__f1f992fe_8_Shape_cu_49f7391c26CatArrayBatchedCopy_contigINS1_"
                       "10OpaqueTypeILj16EEEjLi4ELi128ELi1EEEvPT_NS1_25CatArrInputTensorMetadata";
    struct vm_torch_list l = vm_torch_list_of(name, sizeof(struct inputs128));
    cr_assert_eq(vm_torch_list_param(name), 1);
    cr_assert_eq(l.rows, 1);
    cr_assert_eq(l.param, 1);
    cr_assert_eq(l.places, 128);
    cr_assert_eq(vm_torch_list_used(&l, NULL, (unsigned[3]){9, 2, 1}), 2);
    cr_assert_eq(vm_torch_list_used(&l, NULL, (unsigned[3]){9, 128, 1}), 128);
    cr_assert_eq(vm_torch_list_used(&l, NULL, (unsigned[3]){9, 129, 1}), -1);
    cr_assert_eq(vm_torch_list_of(name, sizeof(struct inputs128) + 8).rows, 0);
}

Test(torch_lists, used)
{
    struct list4_large large;
    struct list2_small small;
    struct vm_torch_list l = vm_torch_list_of(NAME "18TensorListMetadataILi4EEE", sizeof large);
    struct vm_torch_list s = vm_torch_list_of(NAME "18TensorListMetadataILi2EEE", sizeof small);
    memset(&large, 0xee, sizeof large);
    memset(&small, 0xee, sizeof small);
    for (unsigned i = 0; i < 2240; i++)
        large.block_to_tensor[i] = (uint16_t)(i / 10);
    for (unsigned i = 0; i < 7; i++)
        small.block_to_tensor[i] = (unsigned char)(i / 2);
    cr_assert_eq(vm_torch_list_used(&l, &large, (unsigned[3]){2240, 1, 1}), 224);
    cr_assert_eq(vm_torch_list_used(&l, &large, (unsigned[3]){1, 1, 1}), 1);
    cr_assert_eq(vm_torch_list_used(&s, &small, (unsigned[3]){7, 1, 1}), 4);
    cr_assert_eq(vm_torch_list_used(&s, &small, (unsigned[3]){8, 1, 1}), -1); /* no next tensor */
    cr_assert_eq(vm_torch_list_used(&s, &small, (unsigned[3]){321, 1, 1}), -1);
    cr_assert_eq(vm_torch_list_used(&s, &small, (unsigned[3]){7, 2, 1}), -1);
    small.block_to_tensor[0] = 1; /* does not begin with the first */
    cr_assert_eq(vm_torch_list_used(&s, &small, (unsigned[3]){7, 1, 1}), -1);
    small.block_to_tensor[0] = 0;
    small.block_to_tensor[3] = 0; /* falls */
    cr_assert_eq(vm_torch_list_used(&s, &small, (unsigned[3]){7, 1, 1}), -1);
    small.block_to_tensor[3] = 5; /* leaps */
    cr_assert_eq(vm_torch_list_used(&s, &small, (unsigned[3]){7, 1, 1}), -1);
}
