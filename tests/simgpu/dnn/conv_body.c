/* The arithmetic of convolutions: im2col and blocked products, image by image, fixed order of sums.
 */
#include "conv.h"
#include "gemm.h"

#include <stdlib.h>
#include <string.h>

/* One group of one image, as counts. */
struct geometry {
    int64_t kg, cg;  /* output and input channels of a group */
    int64_t taps;    /* filter positions */
    int64_t out, in; /* output and input positions of one channel */
    int64_t inner;   /* cg * taps */
};

static struct geometry geometry_of(const struct sg_conv_shape *s)
{
    struct geometry g;
    g.kg = s->w.dim[0] / s->groups;
    g.cg = s->w.dim[1];
    g.taps = (int64_t)s->w.dim[2] * s->w.dim[3] * s->w.dim[4];
    g.out = (int64_t)s->y.dim[2] * s->y.dim[3] * s->y.dim[4];
    g.in = (int64_t)s->x.dim[2] * s->x.dim[3] * s->x.dim[4];
    g.inner = g.cg * g.taps;
    return g;
}

/* Input coordinate that output position o and filter tap t meet in spatial dimension d, or -1. */
static inline int64_t meet(const struct sg_conv_shape *s, int d, int64_t o, int64_t t)
{
    int64_t tap = s->flip ? s->w.dim[2 + d] - 1 - t : t;
    int64_t at = o * s->stride[d] - s->pad[d] + tap * s->dilation[d];
    return at >= 0 && at < s->x.dim[2 + d] ? at : -1;
}

/* Every filter position in row-major order. */
#define FOR_TAPS(s, t0, t1, t2)                                                                    \
    for (int64_t t0 = 0; t0 < (s)->w.dim[2]; t0++)                                                 \
        for (int64_t t1 = 0; t1 < (s)->w.dim[3]; t1++)                                             \
            for (int64_t t2 = 0; t2 < (s)->w.dim[4]; t2++)

/* The output columns lo..hi-1 of a row whose inputs lie inside the image for tap t of the last
 * dimension; *first is the input column that lo meets. */
static void inside(const struct sg_conv_shape *s, int64_t t, int64_t *lo, int64_t *hi,
                   int64_t *first)
{
    int64_t tap = s->flip ? s->w.dim[4] - 1 - t : t, step = s->stride[2];
    int64_t shift = tap * s->dilation[2] - s->pad[2], n = s->y.dim[4],
            last = s->x.dim[4] - 1 - shift;
    *lo = shift >= 0 ? 0 : (-shift + step - 1) / step;
    *hi = last < 0 ? 0 : last / step + 1;
    *hi = *hi > n ? n : *hi;
    *lo = *lo > *hi ? *hi : *lo;
    *first = *lo * step + shift;
}

/* Columns: col[(c, taps)][output positions] gathered from x, one group of one image. */
static void im2col(const struct sg_conv_shape *s, const struct geometry *g, const float *x,
                   float *col)
{
    int64_t n = s->y.dim[4], step = (int64_t)s->stride[2] * s->x.str[4], lo, hi, first;
    for (int64_t c = 0; c < g->cg; c++) {
        const float *plane = x + c * s->x.str[1];
        FOR_TAPS(s, t0, t1, t2)
        {
            inside(s, t2, &lo, &hi, &first);
            for (int64_t o = 0; o < (int64_t)s->y.dim[2] * s->y.dim[3]; o++, col += n) {
                int64_t i0 = meet(s, 0, o / s->y.dim[3], t0), i1 = meet(s, 1, o % s->y.dim[3], t1);
                if (i0 < 0 || i1 < 0 || lo == hi) {
                    memset(col, 0, (size_t)n * sizeof *col);
                    continue;
                }
                const float *row =
                    plane + i0 * s->x.str[2] + i1 * s->x.str[3] + first * s->x.str[4];
                memset(col, 0, (size_t)lo * sizeof *col);
                if (step == 1) {
                    memcpy(col + lo, row, (size_t)(hi - lo) * sizeof *col);
                } else {
                    for (int64_t k = 0; k < hi - lo; k++) {
                        col[lo + k] = row[k * step];
                    }
                }
                memset(col + hi, 0, (size_t)(n - hi) * sizeof *col);
            }
        }
    }
}

/* The reverse: adds columns into packed planes [cg][in]. */
static void col2im(const struct sg_conv_shape *s, const struct geometry *g, const float *col,
                   float *dx)
{
    int64_t n = s->y.dim[4], step = s->stride[2], lo, hi, first;
    for (int64_t c = 0; c < g->cg; c++, dx += g->in) {
        FOR_TAPS(s, t0, t1, t2)
        {
            inside(s, t2, &lo, &hi, &first);
            for (int64_t o = 0; o < (int64_t)s->y.dim[2] * s->y.dim[3]; o++, col += n) {
                int64_t i0 = meet(s, 0, o / s->y.dim[3], t0), i1 = meet(s, 1, o % s->y.dim[3], t1);
                if (i0 < 0 || i1 < 0) {
                    continue;
                }
                float *row = dx + (i0 * s->x.dim[3] + i1) * s->x.dim[4] + first;
                for (int64_t k = 0; k < hi - lo; k++) {
                    row[k * step] += col[lo + k];
                }
            }
        }
    }
}

/* A packed copy of `channels` planes of one image of t. */
static void gather(const struct sg_tensor *t, const float *src, int64_t channels, float *out)
{
    for (int64_t c = 0; c < channels; c++) {
        for (int64_t d = 0; d < t->dim[2]; d++) {
            for (int64_t h = 0; h < t->dim[3]; h++) {
                const float *row = src + c * t->str[1] + d * t->str[2] + h * t->str[3];
                for (int64_t w = 0; w < t->dim[4]; w++) {
                    *out++ = row[w * t->str[4]];
                }
            }
        }
    }
}

/* Blends packed planes into `channels` planes of t. */
static void scatter(const struct sg_tensor *t, const float *src, int64_t channels, float alpha,
                    float beta, float *out)
{
    for (int64_t c = 0; c < channels; c++) {
        for (int64_t d = 0; d < t->dim[2]; d++) {
            for (int64_t h = 0; h < t->dim[3]; h++) {
                float *row = out + c * t->str[1] + d * t->str[2] + h * t->str[3];
                for (int64_t w = 0; w < t->dim[4]; w++, src++) {
                    float *at = row + w * t->str[4];
                    *at = sg_blend(alpha, *src, beta, *at);
                }
            }
        }
    }
}

/* Scratch of one launch: columns (in the workspace where it is big enough), planes, packed filters.
 */
struct scratch {
    float *heap, *col, *planes, *filter;
};

static void scratch_get(struct scratch *b, const struct sg_conv_args *a, const struct geometry *g,
                        int64_t planes)
{
    const struct sg_conv_shape *s = &a->s;
    int64_t col = g->inner * g->out, filter = s->w.dim[0] * g->inner;
    int in_ws = a->workspace && s->workspace_bytes >= (uint64_t)col * sizeof(float);
    b->heap = sg_scratch((size_t)((in_ws ? 0 : col) + planes + filter) * sizeof(float));
    b->planes = b->heap;
    b->filter = b->planes + planes;
    b->col = in_ws ? sg_ptr(a->workspace) : b->filter + filter;
}

/* Frees the scratch and leaves the whole declared workspace overwritten, as an algorithm would. */
static void scratch_put(struct scratch *b, const struct sg_conv_args *a)
{
    if (a->workspace && a->s.workspace_bytes) {
        memset(sg_ptr(a->workspace), 0x5a, a->s.workspace_bytes);
    }
    free(b->heap);
}

/* Filters packed as [output channel][channel, taps]. */
static void pack_filter(const struct sg_conv_shape *s, const struct geometry *g, const float *w,
                        float *out)
{
    for (int64_t k = 0; k < s->w.dim[0]; k++) {
        gather(&s->w, w + k * s->w.str[0], g->cg, out + k * g->inner);
    }
}

void sg_conv_forward(const struct sg_conv_args *a)
{
    const struct sg_conv_shape *s = &a->s;
    struct geometry g = geometry_of(s);
    struct scratch b;
    scratch_get(&b, a, &g, g.kg * g.out);
    struct sg_mat fm = {g.inner, 1}, cm = {g.out, 1};
    pack_filter(s, &g, sg_ptr(a->w), b.filter);
    for (int64_t n = 0; n < s->x.dim[0]; n++) {
        for (int64_t i = 0; i < s->groups; i++) {
            im2col(s, &g, sg_ptr(a->x) + n * s->x.str[0] + i * g.cg * s->x.str[1], b.col);
            sg_gemm_f32(g.kg, g.out, g.inner, 1.0f, b.filter + i * g.kg * g.inner, fm, b.col, cm,
                        0.0f, b.planes, cm);
            scatter(&s->y, b.planes, g.kg, s->alpha, s->beta,
                    sg_ptr(a->y) + n * s->y.str[0] + i * g.kg * s->y.str[1]);
        }
    }
    scratch_put(&b, a);
}

void sg_conv_backward_data(const struct sg_conv_args *a)
{
    const struct sg_conv_shape *s = &a->s;
    struct geometry g = geometry_of(s);
    int64_t in = g.cg * g.in, out = g.kg * g.out;
    struct scratch b;
    scratch_get(&b, a, &g, in + out);
    float *dy = b.planes + in;
    struct sg_mat ft = {1, g.inner}, cm = {g.out, 1};
    pack_filter(s, &g, sg_ptr(a->w), b.filter);
    for (int64_t n = 0; n < s->x.dim[0]; n++) {
        for (int64_t i = 0; i < s->groups; i++) {
            gather(&s->y, sg_ptr(a->y) + n * s->y.str[0] + i * g.kg * s->y.str[1], g.kg, dy);
            sg_gemm_f32(g.inner, g.out, g.kg, 1.0f, b.filter + i * g.kg * g.inner, ft, dy, cm, 0.0f,
                        b.col, cm);
            memset(b.planes, 0, (size_t)in * sizeof(float));
            col2im(s, &g, b.col, b.planes);
            scatter(&s->x, b.planes, g.cg, s->alpha, s->beta,
                    sg_ptr(a->x) + n * s->x.str[0] + i * g.cg * s->x.str[1]);
        }
    }
    scratch_put(&b, a);
}

void sg_conv_backward_filter(const struct sg_conv_args *a)
{
    const struct sg_conv_shape *s = &a->s;
    struct geometry g = geometry_of(s);
    struct scratch b;
    scratch_get(&b, a, &g, g.kg * g.out);
    struct sg_mat ym = {g.out, 1}, ct = {1, g.out}, fm = {g.inner, 1};
    memset(b.filter, 0, (size_t)(s->w.dim[0] * g.inner) * sizeof(float));
    for (int64_t n = 0; n < s->x.dim[0]; n++) {
        for (int64_t i = 0; i < s->groups; i++) {
            im2col(s, &g, sg_ptr(a->x) + n * s->x.str[0] + i * g.cg * s->x.str[1], b.col);
            gather(&s->y, sg_ptr(a->y) + n * s->y.str[0] + i * g.kg * s->y.str[1], g.kg, b.planes);
            sg_gemm_f32(g.kg, g.inner, g.out, 1.0f, b.planes, ym, b.col, ct, 1.0f,
                        b.filter + i * g.kg * g.inner, fm);
        }
    }
    for (int64_t k = 0; k < s->w.dim[0]; k++) {
        scatter(&s->w, b.filter + k * g.inner, g.cg, s->alpha, s->beta,
                sg_ptr(a->w) + k * s->w.str[0]);
    }
    scratch_put(&b, a);
}
