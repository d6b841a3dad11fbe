/* The structures are written down here as PyTorch's headers declare them, so that the compiler says where
 * their members lie. */
#include <criterion/criterion.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "torch_offsets.h"

#define ELEMENTWISE "_ZN2at6native18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocastIZZZNS0_15add"
#define REDUCE      "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_14func_wrapper"
#define ADDRESS     UINT64_C(0x205234320000)

struct divider { /* IntDivider<unsigned> */
    unsigned divisor, multiplier, shift;
};

#define CALCULATOR(args)                                                                           \
    struct { /* OffsetCalculator<args> */                                                          \
        int dims;                                                                                  \
        struct divider sizes[25];                                                                  \
        unsigned strides[25][args];                                                                \
    }

/* The body of an iterator's loop with so many operands and words of captures. */
#define BODY(args, captures)                                                                       \
    struct {                                                                                       \
        CALCULATOR(args) offsets;                                                                  \
        uint64_t data[args], own[captures];                                                        \
    }

/* ReduceOp whose operator and configuration take so many words of 4 bytes. */
#define REDUCTION(before)                                                                          \
    struct {                                                                                       \
        int config[before];                                                                        \
        CALCULATOR(1) in;                                                                          \
        CALCULATOR(2) out;                                                                         \
        uint64_t src, dst[2], buffers[3];                                                          \
        int64_t base;                                                                              \
        _Bool accumulate, final;                                                                   \
        int outputs;                                                                               \
    }

static struct divider divider_of(unsigned divisor)
{
    unsigned shift = 0;
    while (shift < 32 && 1u << shift < divisor)
        shift++;
    return (struct divider){
        divisor, (unsigned)(((uint64_t)1 << 32) * (((uint64_t)1 << shift) - divisor) / divisor + 1), shift};
}

/* Addresses everywhere. */
static void fill(void *at, size_t bytes)
{
    for (size_t i = 0; i + 8 <= bytes; i += 8)
        memcpy((char *)at + i, &(uint64_t){ADDRESS + i}, 8);
}

#define USE(calculator, n, first)                                                                  \
    do {                                                                                           \
        (calculator).dims = n;                                                                     \
        for (int i_ = 0; i_ < n && i_ < 25; i_++)                                                  \
            (calculator).sizes[i_] = divider_of((first) + 7u * (unsigned)i_);                      \
    } while (0)

static unsigned gaps_of(const char *name, const void *value, size_t bytes, struct vm_torch_gap *gaps)
{
    struct vm_torch_offsets o = vm_torch_offsets_of(name, bytes);
    return vm_torch_offsets_gaps(&o, value, gaps);
}

#define CHECK_BODY(args, captures)                                                                 \
    do {                                                                                           \
        BODY(args, captures) body;                                                                 \
        fill(&body, sizeof body);                                                                  \
        USE(body.offsets, 3, 5u);                                                                  \
        cr_assert_eq(gaps_of(ELEMENTWISE, &body, sizeof body, gaps), 1);                           \
        cr_assert_eq(gaps[0].from, 0);                                                             \
        cr_assert_eq(gaps[0].to, offsetof(__typeof__(body), data));                                \
    } while (0)

Test(torch_offsets, elements)
{
    struct vm_torch_gap gaps[VM_TORCH_GAPS];
    cr_assert_eq(vm_torch_offsets_param(ELEMENTWISE), 1);
    CHECK_BODY(1, 1);
    CHECK_BODY(1, 8);
    CHECK_BODY(2, 2);
    CHECK_BODY(3, 3);
    CHECK_BODY(8, 3);
    CHECK_BODY(9, 1);
}

/* What is not a calculator with addresses behind it leaves no gap. */
Test(torch_offsets, others)
{
    struct vm_torch_gap gaps[VM_TORCH_GAPS];
    BODY(2, 2) good, body;
    fill(&good, sizeof good);
    USE(good.offsets, 3, 5u);
    body = good, body.offsets.dims = 0;
    cr_assert_eq(gaps_of(ELEMENTWISE, &body, sizeof body, gaps), 0);
    body = good, body.offsets.dims = 4; /* the fourth was never written */
    cr_assert_eq(gaps_of(ELEMENTWISE, &body, sizeof body, gaps), 0);
    body = good, body.offsets.dims = 26;
    cr_assert_eq(gaps_of(ELEMENTWISE, &body, sizeof body, gaps), 0);
    body = good, body.offsets.sizes[2].multiplier++;
    cr_assert_eq(gaps_of(ELEMENTWISE, &body, sizeof body, gaps), 0);
    body = good, body.offsets.sizes[0].multiplier--;
    cr_assert_eq(gaps_of(ELEMENTWISE, &body, sizeof body, gaps), 0);
    body = good, body.offsets.sizes[1].shift++;
    cr_assert_eq(gaps_of(ELEMENTWISE, &body, sizeof body, gaps), 0);
    body = good, body.data[1] = 77;
    cr_assert_eq(gaps_of(ELEMENTWISE, &body, sizeof body, gaps), 0);
    cr_assert_eq(gaps_of("_ZN2at6native29vectorized_elementwise_kernelILi4E", &good, sizeof good, gaps), 0);
    cr_assert_eq(vm_torch_offsets_of(ELEMENTWISE, 400).kind, 0);
    cr_assert_eq(vm_torch_offsets_of(ELEMENTWISE, 404).kind, 0);
    cr_assert_eq(vm_torch_offsets_of(ELEMENTWISE, sizeof good + 4).kind, 0);
    cr_assert_eq(vm_torch_offsets_of(ELEMENTWISE, 1 << 20).kind, 0);
    cr_assert_eq(vm_torch_offsets_of(REDUCE, 960).kind, 0);
    cr_assert_eq(vm_torch_offsets_param("ampere_sgemm_128x64_nn"), -1);
}

/* Every divider that there is, and none beside it. */
Test(torch_offsets, dividers)
{
    struct vm_torch_gap gaps[VM_TORCH_GAPS];
    BODY(1, 1) body;
    fill(&body, sizeof body);
    body.offsets.dims = 1;
    srand(3);
    for (unsigned i = 0; i < 20000; i++) {
        unsigned n = i < 5000 ? i + 1 : ((unsigned)rand() & 0x7fffffff) >> (i % 24);
        n = n ? n : 1u << 31;
        struct divider d = divider_of(n);
        body.offsets.sizes[0] = d;
        cr_assert_eq(gaps_of(ELEMENTWISE, &body, sizeof body, gaps), 1, "%u", n);
        body.offsets.sizes[0] = (struct divider){d.divisor, d.multiplier ^ 1u << (i % 32), d.shift};
        cr_assert_eq(gaps_of(ELEMENTWISE, &body, sizeof body, gaps), 0, "%u", n);
        body.offsets.sizes[0] = (struct divider){d.divisor, d.multiplier, d.shift ^ 1u << (i % 32)};
        cr_assert_eq(gaps_of(ELEMENTWISE, &body, sizeof body, gaps), 0, "%u", n);
    }
}

#define CHECK_REDUCTION(before)                                                                    \
    do {                                                                                           \
        REDUCTION(before) op;                                                                      \
        fill(&op, sizeof op);                                                                      \
        USE(op.in, 2, 9u);                                                                         \
        USE(op.out, 1, 4u);                                                                        \
        op.accumulate = 0, op.final = 1, op.outputs = 1;                                           \
        cr_assert_eq(gaps_of(REDUCE, &op, sizeof op, gaps), 2);                                    \
        cr_assert_eq(gaps[0].from, (offsetof(__typeof__(op), in) + 7) / 8 * 8);                    \
        cr_assert_eq(gaps[0].to, offsetof(__typeof__(op), src));                                   \
        cr_assert_eq(gaps[1].from, offsetof(__typeof__(op), dst[1]));                              \
        cr_assert_eq(gaps[1].to, offsetof(__typeof__(op), buffers));                               \
        op.outputs = 2; /* both results are wanted */                                              \
        cr_assert_eq(gaps_of(REDUCE, &op, sizeof op, gaps), 1);                                    \
        op.outputs = 3;                                                                            \
        cr_assert_eq(gaps_of(REDUCE, &op, sizeof op, gaps), 0);                                    \
        op.outputs = 1, op.out.sizes[0].shift++;                                                   \
        cr_assert_eq(gaps_of(REDUCE, &op, sizeof op, gaps), 0);                                    \
        op.out.sizes[0].shift--, op.in.dims = 0;                                                   \
        cr_assert_eq(gaps_of(REDUCE, &op, sizeof op, gaps), 0);                                    \
        op.in.dims = 2, op.dst[0] = 0;                                                             \
        cr_assert_eq(gaps_of(REDUCE, &op, sizeof op, gaps), 0);                                    \
    } while (0)

Test(torch_offsets, reductions)
{
    struct vm_torch_gap gaps[VM_TORCH_GAPS];
    cr_assert_eq(vm_torch_offsets_param(REDUCE), 0);
    CHECK_REDUCTION(18); /* 72 bytes, as measured in PyTorch 2.9 and 2.15 */
    CHECK_REDUCTION(19);
    CHECK_REDUCTION(20);
    CHECK_REDUCTION(23);
}
