/* common.h: what the tests of the libraries' arithmetic share. */
#ifndef SIMDNN_COMMON_H
#define SIMDNN_COMMON_H

#include <criterion/criterion.h>
#include <cudnn.h>
#include <math.h>
#include "host_card.h"

#define OK(call) cr_assert_eq((int)(call), 0, "%s answered %d", #call, (int)(call))

/* After the last launch of a test: the ranges were honest and something ran. */
#define CARD_OK()                                                                                  \
    do {                                                                                           \
        cr_assert_gt(card_launches(), 0u, "nothing was launched");                                 \
        cr_assert_eq(card_faults(), 0u, "%u faults, first: %s", card_faults(), card_fault());      \
    } while (0)

/* Descriptors and handles made by NEW and kept by card_keep go with the next reset. */
#define DROP(kind)                                                                                 \
    static inline void drop_##kind(void *p)                                                        \
    {                                                                                              \
        (void)cudnnDestroy##kind(p);                                                               \
    }
DROP(TensorDescriptor)
DROP(FilterDescriptor)
DROP(ConvolutionDescriptor)
DROP(PoolingDescriptor)
DROP(ActivationDescriptor)
DROP(OpTensorDescriptor)
DROP(ReduceTensorDescriptor)
DROP(LRNDescriptor)
DROP(DropoutDescriptor)

static inline void drop_handle(void *p)
{
    (void)cudnnDestroy(p);
}

#define NEW(kind, var)                                                                             \
    do {                                                                                           \
        OK(cudnnCreate##kind(&(var)));                                                             \
        card_keep(var, drop_##kind);                                                               \
    } while (0)

/* A tensor of a test: descriptor and memory. */
struct t4 {
    cudnnTensorDescriptor_t desc;
    int dim[4], str[4];
    float *p;
};

static inline size_t t4_at(const struct t4 *t, int n, int c, int h, int w)
{
    return (size_t)(n * t->str[0] + c * t->str[1] + h * t->str[2] + w * t->str[3]);
}

static inline size_t t4_count(const struct t4 *t)
{
    return (size_t)t->dim[0] * (size_t)t->dim[1] * (size_t)t->dim[2] * (size_t)t->dim[3];
}

/* How a test lays a tensor out. */
enum layout { PACKED, CHANNELS_LAST, GAPS, LAYOUTS };

static inline struct t4 t4_new(enum layout layout, int n, int c, int h, int w)
{
    struct t4 t = {.dim = {n, c, h, w}};
    int row = layout == GAPS ? w + 3 : w, plane = layout == GAPS ? row * h + 5 : row * h;
    if (layout == CHANNELS_LAST) {
        int s[4] = {h * w * c, 1, w * c, c};
        memcpy(t.str, s, sizeof s);
    } else {
        int s[4] = {plane * c + (layout == GAPS ? 7 : 0), plane, row, 1};
        memcpy(t.str, s, sizeof s);
    }
    NEW(TensorDescriptor, t.desc);
    OK(cudnnSetTensor4dDescriptorEx(t.desc, CUDNN_DATA_FLOAT, n, c, h, w, t.str[0], t.str[1],
                                    t.str[2], t.str[3]));
    t.p = card_random(t4_at(&t, n - 1, c - 1, h - 1, w - 1) + 1);
    return t;
}

#define FOR4(t, n, c, h, w)                                                                        \
    for (int n = 0; n < (t)->dim[0]; n++)                                                          \
        for (int c = 0; c < (t)->dim[1]; c++)                                                      \
            for (int h = 0; h < (t)->dim[2]; h++)                                                  \
                for (int w = 0; w < (t)->dim[3]; w++)

/* sum of a * b over all elements, in double. */
static inline double t4_dot(const struct t4 *a, const struct t4 *b)
{
    double s = 0;
    FOR4(a, n, c, h, w)
    {
        s += (double)a->p[t4_at(a, n, c, h, w)] * (double)b->p[t4_at(b, n, c, h, w)];
    }
    return s;
}

/* A copy of the values, row-major. */
static inline float *t4_values(const struct t4 *t)
{
    float *out = malloc(t4_count(t) * sizeof *out), *o = out;
    cr_assert_not_null(out);
    FOR4(t, n, c, h, w)
    {
        *o++ = t->p[t4_at(t, n, c, h, w)];
    }
    return out;
}

static inline void near(double got, double want, double tolerance, const char *what)
{
    cr_assert(fabs(got - want) <= tolerance * (1 + fabs(want)), "%s: got %.9g, want %.9g", what,
              got, want);
}

#endif
