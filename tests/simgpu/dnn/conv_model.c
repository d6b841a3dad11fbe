/* conv_model.c: what each convolution algorithm does on a shape: arithmetic, traffic, workspace.
 *
 * Arithmetic is counted as the algorithm executes it, padding to its tiles included; how near to
 * the peak it runs is the preset's constant of the class. Sources: implicit and explicit products:
 * Chetlur et al., "cuDNN: efficient primitives for deep learning" (arXiv 1410.0759); fast Fourier
 * transforms: Vasilache et al., "Fast convolutional nets with fbfft" (arXiv 1412.7580); minimal
 * filtering F(2x2,3x3): Lavin and Gray, "Fast algorithms for convolutional neural
 * networks" (arXiv 1509.09308).
 */
#include "conv.h"

#include <cudnn.h>
#include <math.h>

/* The method behind an algorithm of any direction. */
enum method {
    METHOD_NONE,
    METHOD_IMPLICIT, /* product with indices made on the fly */
    METHOD_PRECOMP,  /* product with a table of indices      */
    METHOD_EXPLICIT, /* columns in the workspace             */
    METHOD_FFT,
    METHOD_FFT_TILING,
    METHOD_WINOGRAD,          /* F(2x2, 3x3) in one kernel            */
    METHOD_WINOGRAD_NONFUSED, /* its transforms apart, tiles in the workspace */
};

static const unsigned char fwd_methods[CUDNN_CONVOLUTION_FWD_ALGO_COUNT] = {
    METHOD_IMPLICIT, METHOD_PRECOMP,    METHOD_EXPLICIT, METHOD_NONE,
    METHOD_FFT,      METHOD_FFT_TILING, METHOD_WINOGRAD, METHOD_WINOGRAD_NONFUSED,
};
static const unsigned char data_methods[CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT] = {
    METHOD_IMPLICIT,   METHOD_PRECOMP,  METHOD_FFT,
    METHOD_FFT_TILING, METHOD_WINOGRAD, METHOD_WINOGRAD_NONFUSED,
};
static const unsigned char filter_methods[CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT] = {
    METHOD_IMPLICIT, METHOD_PRECOMP,           METHOD_FFT,        METHOD_EXPLICIT,
    METHOD_NONE,     METHOD_WINOGRAD_NONFUSED, METHOD_FFT_TILING,
};

/* The numbers that every formula uses. */
struct counts {
    double n, k, c, groups; /* batch; channels of one group */
    double out, in, taps;   /* positions, filter positions  */
    double macs;            /* of the plain algorithm, all groups */
    double x, y, w;         /* bytes */
};

static struct counts counts_of(const struct sg_conv_shape *s)
{
    struct counts q;
    q.groups = s->groups;
    q.n = (double)s->x.dim[0];
    q.k = (double)s->w.dim[0] / q.groups;
    q.c = (double)s->w.dim[1];
    q.out = (double)(s->y.dim[2] * s->y.dim[3] * s->y.dim[4]);
    q.in = (double)(s->x.dim[2] * s->x.dim[3] * s->x.dim[4]);
    q.taps = (double)(s->w.dim[2] * s->w.dim[3] * s->w.dim[4]);
    q.macs = q.groups * q.n * q.k * q.c * q.taps * q.out;
    q.x = 4.0 * q.n * q.c * q.groups * q.in;
    q.y = 4.0 * q.n * q.k * q.groups * q.out;
    q.w = 4.0 * q.k * q.c * q.groups * q.taps;
    return q;
}

static double round_up(double v, double to)
{
    return ceil(v / to) * to;
}

/* Multiply-adds of an m x n x k product with its tiles' borders (64 x 64) and a start-up of 16
 * steps along k. */
static double product(double m, double n, double k)
{
    return round_up(m, 64) * round_up(n, 64) * (k + 64);
}

#define SPLIT 4.0

static double direct_macs(const struct counts *q, enum sg_conv_dir dir)
{
    switch (dir) {
    case SG_CONV_FWD:
        return q->groups * product(q->k, q->n * q->out, q->c * q->taps);
    case SG_CONV_BWD_DATA: /* with strides, only some taps meet each input position */
        return q->groups *
               product(q->c, q->n * q->in, q->k * fmin(q->taps, q->taps * q->out / q->in));
    default: {
        /* few tiles of output, a long inner sum: it is split among the multiprocessors, and adding
         * the parts up costs the more the fewer tiles there are */
        double tiles = ceil(q->k / 64) * ceil(q->c * q->taps / 64);
        return q->groups * product(q->k, q->c * q->taps, q->n * q->out) * (1 + SPLIT / tiles);
    }
    }
}

static int class_of(enum sg_conv_dir dir)
{
    static const int classes[] = {SIMGPU_CLASS_CONV_FWD, SIMGPU_CLASS_CONV_BWD_DATA,
                                  SIMGPU_CLASS_CONV_BWD_FILTER};
    return classes[dir];
}

static struct sg_conv_model direct(const struct counts *q, enum sg_conv_dir dir, enum method m)
{
    struct sg_conv_model r = {.supported = 1, .kclass = class_of(dir)};
    r.flops = 2 * direct_macs(q, dir);
    r.bytes = q->x + q->y + q->w;
    if (m == METHOD_IMPLICIT && dir == SG_CONV_BWD_DATA) {
        /* products by output position, added atomically where they meet: good for few channels */
        r.flops = 2 * q->groups * product(q->c * q->taps, q->n * q->out, q->k);
        r.bytes += 4 * q->groups * q->c * q->taps * q->n * q->out;
    } else if (m == METHOD_IMPLICIT) {
        r.flops *= 1.25; /* index arithmetic beside the multiply-adds */
    } else if (m == METHOD_PRECOMP) {
        r.workspace_bytes = (uint64_t)(8 * (q->c * q->taps + 128));
        r.bytes += (double)r.workspace_bytes;
    } else {
        double columns = 4 * q->c * q->taps * q->out;
        r.workspace_bytes = (uint64_t)columns;
        r.bytes += 2 * columns * q->n * q->groups;
    }
    return r;
}

static int unit_steps(const struct sg_conv_shape *s)
{
    for (int d = 0; d < 3; d++) {
        if (s->stride[d] != 1 || s->dilation[d] != 1) {
            return 0;
        }
    }
    return s->x.dim[2] == 1 && s->w.dim[2] == 1; /* two spatial dimensions */
}

/* The transforms come in powers of two from 8 points on. */
static double fft_length(int64_t n)
{
    double length = 8;
    while (length < (double)n) {
        length *= 2;
    }
    return length;
}

/* Products at every frequency (8 flops each) and real transforms, planes of h x w points. `images`
 * counts tiles too; data and filters are transformed data_times and filter_times. */
static struct sg_conv_model fft_planes(const struct counts *q, enum sg_conv_dir dir, double h,
                                       double w, double images, double data_times,
                                       double filter_times)
{
    struct sg_conv_model r = {.supported = 1, .kclass = SIMGPU_CLASS_CONV_FAST};
    double points = h * (w / 2 + 1), data = images * (q->c + q->k), filters = q->k * q->c;
    double m = dir == SG_CONV_BWD_DATA ? q->c : q->k, n = dir == SG_CONV_BWD_FILTER ? q->c : images;
    double k = q->k * q->c * images / (m * n);
    double planes = data * data_times + filters * filter_times;
    r.flops = 8 * points * product(m, n, k) + 2.5 * h * w * log2(h * w) * planes;
    r.bytes = q->x + q->y + q->w + 2 * 8 * points * planes;
    r.workspace_bytes = (uint64_t)(8 * points * (data + filters));
    return r;
}

/* What of the data, and of the filters, the tiled transforms keep at a time, in bytes. */
#define FFT_PART (96.0 * 1024 * 1024)

/* Tiles of `side` points, worked on in parts: for each part of the images all filters are
 * transformed again; for the filter's gradient, the images for each part of the filters. */
static struct sg_conv_model fft_tiles(const struct sg_conv_shape *s, const struct counts *q,
                                      enum sg_conv_dir dir, double side)
{
    double rows = ceil((double)s->y.dim[3] / (side - (double)s->w.dim[3] + 1));
    double columns = ceil((double)s->y.dim[4] / (side - (double)s->w.dim[4] + 1));
    double images = q->n * rows * columns;
    double plane = 8 * side * (side / 2 + 1);
    double data = plane * images * (q->c + q->k), filters = plane * q->k * q->c;
    double data_parts = ceil(data / FFT_PART), filter_parts = ceil(filters / FFT_PART);
    int gradient = dir == SG_CONV_BWD_FILTER;
    struct sg_conv_model r = fft_planes(q, dir, side, side, images, gradient ? filter_parts : 1,
                                        gradient ? 1 : data_parts);
    r.workspace_bytes = (uint64_t)(ceil(data / data_parts) + ceil(filters / filter_parts));
    return r;
}

static struct sg_conv_model fft(const struct sg_conv_shape *s, const struct counts *q,
                                enum sg_conv_dir dir, int tiled)
{
    struct sg_conv_model none = {0};
    int64_t fh = s->w.dim[3], fw = s->w.dim[4];
    if (!unit_steps(s) || s->groups != 1 || fh <= s->pad[1] || fw <= s->pad[2]) {
        return none;
    }
    if (tiled) {
        if (fh > 16 || fw > 16) {
            return none;
        }
        struct sg_conv_model big = fft_tiles(s, q, dir, 32), small = fft_tiles(s, q, dir, 16);
        return fh <= 8 && fw <= 8 && small.flops < big.flops ? small : big;
    }
    int64_t rows = s->x.dim[3] + 2 * s->pad[1], cols = s->x.dim[4] + 2 * s->pad[2];
    if (rows > 256 || cols > 256) {
        return none;
    }
    return fft_planes(q, dir, fft_length(rows), fft_length(cols), q->n, 1, 1);
}

/* Part of the tiles that the algorithm with separate transforms works on at a time, in bytes. */
#define WINOGRAD_PART (64.0 * 1024 * 1024)

/* 16 products for 2 x 2 outputs of a 3 x 3 filter, where the plain sum takes 36. The filter's
 * gradient is the same with tiles of the output's gradient in the filter's place, F(3x3, 2x2). */
static struct sg_conv_model winograd(const struct sg_conv_shape *s, const struct counts *q,
                                     enum sg_conv_dir dir, int fused)
{
    struct sg_conv_model r = {.kclass = SIMGPU_CLASS_CONV_FAST};
    if (!unit_steps(s) || s->groups != 1 || s->w.dim[3] != 3 || s->w.dim[4] != 3 || s->pad[1] > 2 ||
        s->pad[2] > 2) {
        return r;
    }
    const double points = 16, in_adds = 32, out_adds = 24, filter_ops = 28; /* section 4.1 there */
    double tiles = q->n * (double)((s->y.dim[3] + 1) / 2 * ((s->y.dim[4] + 1) / 2));
    double m = q->k, n = tiles, k = q->c;
    if (dir == SG_CONV_BWD_DATA) {
        m = q->c;
        k = q->k;
    } else if (dir == SG_CONV_BWD_FILTER) {
        n = q->c;
        k = tiles;
    }
    r.supported = 1;
    r.flops = 2 * points * product(m, n, k) + tiles * (in_adds * q->c + out_adds * q->k) +
              filter_ops * q->k * q->c;
    double filters = 4 * points * q->k * q->c, data = 4 * points * tiles * (q->k + q->c);
    r.bytes = q->x + q->y + q->w + 2 * filters;
    if (fused) { /* the tiles never leave the chip */
        r.workspace_bytes = (uint64_t)filters;
        return r;
    }
    double parts = ceil(data / WINOGRAD_PART);
    r.workspace_bytes = (uint64_t)(filters + ceil(data / parts));
    r.bytes += 2 * data + (dir == SG_CONV_BWD_FILTER ? 2 * filters * (parts - 1) : 0);
    return r;
}

int sg_conv_algo_count(enum sg_conv_dir dir)
{
    static const int counts[] = {CUDNN_CONVOLUTION_FWD_ALGO_COUNT,
                                 CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT,
                                 CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT};
    return counts[dir];
}

static const unsigned char *const methods[] = {fwd_methods, data_methods, filter_methods};

int sg_conv_deterministic(enum sg_conv_dir dir, int algo)
{
    return dir == SG_CONV_FWD || (algo != 0 && !(dir == SG_CONV_BWD_FILTER && algo == 3));
}

int sg_conv_is_winograd(enum sg_conv_dir dir, int algo)
{
    return methods[dir][algo] >= METHOD_WINOGRAD;
}

struct sg_conv_model sg_conv_model(const struct sg_conv_shape *s, enum sg_conv_dir dir, int algo)
{
    struct sg_conv_model r = {0};
    struct counts q = counts_of(s);
    if (algo < 0 || algo >= sg_conv_algo_count(dir)) {
        return r;
    }
    switch (methods[dir][algo]) {
    case METHOD_NONE:
        break;
    case METHOD_FFT:
    case METHOD_FFT_TILING:
        r = fft(s, &q, dir, methods[dir][algo] == METHOD_FFT_TILING);
        break;
    case METHOD_WINOGRAD:
    case METHOD_WINOGRAD_NONFUSED:
        r = winograd(s, &q, dir, methods[dir][algo] == METHOD_WINOGRAD);
        break;
    default:
        r = direct(&q, dir, (enum method)methods[dir][algo]);
    }
    if (r.supported && s->beta != 0.0f) {
        r.bytes += dir == SG_CONV_FWD ? q.y : dir == SG_CONV_BWD_DATA ? q.x : q.w;
    }
    return r;
}
