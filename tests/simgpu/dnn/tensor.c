#include "tensor.h"

#include <stdio.h>
#include <stdlib.h>

int64_t sg_count(const struct sg_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < SG_DIMS; i++) {
        n *= t->dim[i];
    }
    return n;
}

int64_t sg_extent(const struct sg_tensor *t)
{
    int64_t last = 0;
    for (int i = 0; i < SG_DIMS; i++) {
        last += (t->dim[i] - 1) * t->str[i];
    }
    return last + 1;
}

void sg_pack_strides(struct sg_tensor *t)
{
    int64_t s = 1;
    for (int i = SG_DIMS - 1; i >= 0; i--) {
        t->str[i] = s;
        s *= t->dim[i];
    }
}

/* The dims of a tensor that matter for its bytes, smallest stride first. */
static int sorted_dims(const struct sg_tensor *t, int64_t dim[], int64_t str[])
{
    int n = 0;
    for (int i = 0; i < SG_DIMS; i++) {
        if (t->dim[i] <= 1 || t->str[i] == 0) {
            continue;
        }
        int at = n++;
        while (at > 0 && str[at - 1] > t->str[i]) {
            dim[at] = dim[at - 1];
            str[at] = str[at - 1];
            at--;
        }
        dim[at] = t->dim[i];
        str[at] = t->str[i];
    }
    return n;
}

void sg_touch(simgpu_touch_fn touch, void *ctx, uint64_t addr, const struct sg_tensor *t,
              size_t elem_bytes, int mode)
{
    if (addr == 0) {
        return;
    }
    int64_t dim[SG_DIMS], str[SG_DIMS];
    int n = sorted_dims(t, dim, str), outer = 0;
    int64_t run = 1;
    while (outer < n && str[outer] <= run) { /* dense, or overlapping itself */
        run = (dim[outer] - 1) * str[outer] + run;
        outer++;
    }
    int64_t runs = 1;
    for (int i = outer; i < n; i++) {
        runs *= dim[i];
    }
    if (runs > 65536) {
        touch(ctx, addr, (size_t)sg_extent(t) * elem_bytes, mode);
        return;
    }
    for (int64_t r = 0; r < runs; r++) {
        int64_t rest = r, off = 0;
        for (int i = outer; i < n; i++) {
            off += rest % dim[i] * str[i];
            rest /= dim[i];
        }
        touch(ctx, addr + (uint64_t)off * elem_bytes, (size_t)run * elem_bytes, mode);
    }
}

/* 1 where dimension d can be merged into the walk's last one for every tensor. */
static int can_merge(const struct sg_walk *w, const int64_t stride[], int64_t dim)
{
    for (int i = 0; i < w->ntensors; i++) {
        if (w->str[i][w->ndims - 1] != stride[i] * dim) {
            return 0;
        }
    }
    return 1;
}

void sg_walk_init(struct sg_walk *w, const struct sg_tensor *shape, int ntensors,
                  const struct sg_tensor *const t[])
{
    w->ndims = 0;
    w->ntensors = ntensors;
    for (int d = 0; d < SG_DIMS; d++) {
        if (shape->dim[d] == 1) {
            continue;
        }
        int64_t stride[SG_WALK_MAX];
        for (int i = 0; i < ntensors; i++) {
            stride[i] = t[i]->dim[d] == 1 ? 0 : t[i]->str[d];
        }
        if (w->ndims > 0 && can_merge(w, stride, shape->dim[d])) {
            w->dim[w->ndims - 1] *= shape->dim[d];
        } else {
            w->dim[w->ndims++] = shape->dim[d];
        }
        for (int i = 0; i < ntensors; i++) {
            w->str[i][w->ndims - 1] = stride[i];
        }
    }
    if (w->ndims == 0) {
        w->dim[0] = 1;
        w->ndims = 1;
        for (int i = 0; i < ntensors; i++) {
            w->str[i][0] = 1;
        }
    }
}

void sg_walk_run(const struct sg_walk *w, const uint64_t addr[], sg_run_fn run, void *ctx)
{
    int last = w->ndims - 1;
    int64_t outer = 1, n = w->dim[last], s[SG_WALK_MAX];
    for (int d = 0; d < last; d++) {
        outer *= w->dim[d];
    }
    for (int i = 0; i < w->ntensors; i++) {
        s[i] = w->str[i][last];
    }
    for (int64_t o = 0; o < outer; o++) {
        float *p[SG_WALK_MAX];
        int64_t off[SG_WALK_MAX] = {0}, rest = o;
        for (int d = last - 1; d >= 0; d--) {
            int64_t at = rest % w->dim[d];
            rest /= w->dim[d];
            for (int i = 0; i < w->ntensors; i++) {
                off[i] += at * w->str[i][d];
            }
        }
        for (int i = 0; i < w->ntensors; i++) {
            p[i] = sg_ptr(addr[i]) + off[i];
        }
        run(ctx, n, p, s, o * n);
    }
}

void *sg_scratch(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p) {
        fprintf(stderr, "simgpu: out of host memory for %zu bytes of kernel scratch\n", bytes);
        abort();
    }
    return p;
}

static void copy_run(void *ctx, int64_t n, float *const p[], const int64_t s[], int64_t start)
{
    (void)ctx;
    for (int64_t i = 0; i < n; i++) {
        p[1][i * s[1]] = p[0][i * s[0]];
    }
}

float *sg_packed_copy(const struct sg_tensor *t, uint64_t addr)
{
    struct sg_tensor packed = *t;
    sg_pack_strides(&packed);
    float *out = sg_scratch((size_t)sg_count(t) * sizeof *out);
    const struct sg_tensor *both[2] = {t, &packed};
    uint64_t addrs[2] = {addr, (uint64_t)(uintptr_t)out};
    struct sg_walk w;
    sg_walk_init(&w, t, 2, both);
    sg_walk_run(&w, addrs, copy_run, NULL);
    return out;
}
