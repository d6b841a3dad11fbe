#include "spatial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- grids ---- */

static void load_grid(const struct simgpu_launch *l, struct sg_grid_args *a)
{
    memcpy(a, l->params, sizeof *a);
}

static size_t grid_bytes(const struct sg_grid_args *a)
{
    return 8 * (size_t)a->batch * (size_t)a->height * (size_t)a->width;
}

void sg_grid_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct sg_grid_args a;
    load_grid(l, &a);
    touch(ctx, a.theta, 24 * (size_t)a.batch, a.backward ? SIMGPU_WRITE : SIMGPU_READ);
    touch(ctx, a.grid, grid_bytes(&a), a.backward ? SIMGPU_READ : SIMGPU_WRITE);
}

/* Coordinate i of n from -1 to 1. */
static float place(int32_t i, int32_t n)
{
    return n > 1 ? -1.0f + 2.0f * (float)i / (float)(n - 1) : 0.0f;
}

void sg_grid_body(const struct simgpu_launch *l)
{
    struct sg_grid_args a;
    load_grid(l, &a);
    for (int64_t b = 0; b < a.batch; b++) {
        float *theta = sg_ptr(a.theta) + 6 * b, *grid = sg_ptr(a.grid) + 2 * b * a.height * a.width;
        double sum[6] = {0};
        for (int32_t i = 0; i < a.height * a.width; i++) {
            float at[3] = {place(i % a.width, a.width), place(i / a.width, a.height), 1.0f};
            for (int r = 0; r < 2; r++) {
                float *g = grid + 2 * i + r;
                if (!a.backward) {
                    *g = theta[3 * r] * at[0] + theta[3 * r + 1] * at[1] + theta[3 * r + 2];
                }
                for (int k = 0; a.backward && k < 3; k++) {
                    sum[3 * r + k] += (double)*g * (double)at[k];
                }
            }
        }
        for (int k = 0; a.backward && k < 6; k++) {
            theta[k] = (float)sum[k];
        }
    }
}

void sg_grid_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    struct sg_grid_args a;
    load_grid(l, &a);
    *work = (struct simgpu_work){.flops = 2.0 * (double)grid_bytes(&a),
                                 .bytes = (double)grid_bytes(&a),
                                 .kclass = SIMGPU_CLASS_ELEMENTWISE};
}

/* ---- sampling ---- */

static void load_sample(const struct simgpu_launch *l, struct sg_sample_args *a)
{
    memcpy(a, l->params, sizeof *a);
}

static size_t sample_grid_bytes(const struct sg_sample_args *a)
{
    return 8 * (size_t)a->ty.dim[0] * (size_t)a->ty.dim[3] * (size_t)a->ty.dim[4];
}

void sg_sample_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct sg_sample_args a;
    load_sample(l, &a);
    sg_touch(touch, ctx, a.x, &a.tx, 4, SIMGPU_READ);
    touch(ctx, a.grid, sample_grid_bytes(&a), SIMGPU_READ);
    sg_touch(touch, ctx, a.y, &a.ty, 4, a.backward ? SIMGPU_READ : sg_out_mode(a.beta));
    if (a.backward) {
        sg_touch(touch, ctx, a.dx, &a.tdx, 4, sg_out_mode(a.beta));
        touch(ctx, a.dgrid, sample_grid_bytes(&a), sg_out_mode(a.grid_beta));
    }
}

/* The four pixels around a point: offset within a plane (or -1 outside), weight, and the weight's
 * derivatives by the point's coordinates in the grid. */
struct corner {
    int64_t h, w;
    float weight, by_x, by_y;
};

static void corners(const float *g, int32_t height, int32_t width, struct corner c[4])
{
    float sx = 0.5f * (float)(width - 1), sy = 0.5f * (float)(height - 1);
    float x = (g[0] + 1.0f) * sx, y = (g[1] + 1.0f) * sy, left = floorf(x), top = floorf(y);
    for (int k = 0; k < 4; k++) {
        float wx = k % 2 ? x - left : 1.0f - (x - left), wy = k / 2 ? y - top : 1.0f - (y - top);
        float px = left + (float)(k % 2), py = top + (float)(k / 2);
        int inside = px >= 0.0f && py >= 0.0f && px < (float)width && py < (float)height;
        c[k] = (struct corner){inside ? (int64_t)py : -1, inside ? (int64_t)px : -1, wx * wy,
                               (k % 2 ? sx : -sx) * wy, (k / 2 ? sy : -sy) * wx};
    }
}

static int64_t at(const struct sg_tensor *t, int64_t n, int64_t c, int64_t h, int64_t w)
{
    return n * t->str[0] + c * t->str[1] + h * t->str[3] + w * t->str[4];
}

static void forward_point(const struct sg_sample_args *a, int64_t n, int64_t i,
                          const struct corner c[4])
{
    for (int64_t ch = 0; ch < a->tx.dim[1]; ch++) {
        float sum = 0.0f;
        for (int k = 0; k < 4; k++) {
            if (c[k].h >= 0) {
                sum += c[k].weight * sg_ptr(a->x)[at(&a->tx, n, ch, c[k].h, c[k].w)];
            }
        }
        float *out = sg_ptr(a->y) + at(&a->ty, n, ch, i / a->ty.dim[4], i % a->ty.dim[4]);
        *out = sg_blend(a->alpha, sum, a->beta, *out);
    }
}

/* dx: packed sums of one image. */
static void backward_point(const struct sg_sample_args *a, int64_t n, int64_t i,
                           const struct corner c[4], float *dx, float *dgrid)
{
    int64_t plane = (int64_t)a->tx.dim[3] * a->tx.dim[4];
    float by[2] = {0.0f, 0.0f};
    for (int64_t ch = 0; ch < a->tx.dim[1]; ch++) {
        float dy = sg_ptr(a->y)[at(&a->ty, n, ch, i / a->ty.dim[4], i % a->ty.dim[4])];
        for (int k = 0; k < 4; k++) {
            if (c[k].h >= 0) {
                float x = sg_ptr(a->x)[at(&a->tx, n, ch, c[k].h, c[k].w)];
                dx[ch * plane + c[k].h * a->tx.dim[4] + c[k].w] += c[k].weight * dy;
                by[0] += c[k].by_x * x * dy;
                by[1] += c[k].by_y * x * dy;
            }
        }
    }
    for (int r = 0; r < 2; r++) {
        dgrid[r] = sg_blend(a->grid_alpha, by[r], a->grid_beta, dgrid[r]);
    }
}

void sg_sample_body(const struct simgpu_launch *l)
{
    struct sg_sample_args a;
    load_sample(l, &a);
    int64_t points = (int64_t)a.ty.dim[3] * a.ty.dim[4], plane = (int64_t)a.tx.dim[3] * a.tx.dim[4];
    size_t image = (size_t)(a.tx.dim[1] * plane) * sizeof(float);
    float *dx = a.backward ? sg_scratch(image) : NULL;
    for (int64_t n = 0; n < a.tx.dim[0]; n++) {
        if (dx) {
            memset(dx, 0, image);
        }
        for (int64_t i = 0; i < points; i++) {
            struct corner c[4];
            corners(sg_ptr(a.grid) + 2 * (n * points + i), (int32_t)a.tx.dim[3],
                    (int32_t)a.tx.dim[4], c);
            if (dx) {
                backward_point(&a, n, i, c, dx, sg_ptr(a.dgrid) + 2 * (n * points + i));
            } else {
                forward_point(&a, n, i, c);
            }
        }
        for (int64_t i = 0; dx && i < a.tx.dim[1] * plane; i++) {
            int64_t p = i % plane;
            float *out = sg_ptr(a.dx) + at(&a.tdx, n, i / plane, p / a.tx.dim[4], p % a.tx.dim[4]);
            *out = sg_blend(a.alpha, dx[i], a.beta, *out);
        }
    }
    free(dx);
}

void sg_sample_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    struct sg_sample_args a;
    load_sample(l, &a);
    double n = (double)sg_count(&a.ty), passes = a.backward ? 2 : 1;
    *work = (struct simgpu_work){.flops = 16 * n * passes,
                                 .bytes = passes * (20 * n + (double)sample_grid_bytes(&a)),
                                 .kclass = SIMGPU_CLASS_POOL};
}
