/* Sizes of recurrent layers, ranges and costs of their kernels. */
#include "rnn.h"
#include "reduce.h"

#include <cudnn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- lengths of sequences ---- */

struct kept {
    struct kept *next; /* of the same bucket */
    uint64_t number;
    int32_t batch;
    int32_t lengths[];
};

enum { BUCKETS = 1024 };

static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static struct kept *buckets[BUCKETS], **by_number;
static uint64_t nkept, kept_room;

static unsigned bucket_of(int32_t batch, const int32_t *lengths)
{
    uint64_t h = (uint64_t)batch;
    for (int32_t i = 0; i < batch; i++) {
        h = (h ^ (uint64_t)(uint32_t)lengths[i]) * UINT64_C(0x100000001b3);
    }
    return (unsigned)(h >> 32 ^ h) % BUCKETS;
}

static uint64_t keep_locked(int32_t batch, const int32_t *lengths)
{
    size_t bytes = (size_t)batch * sizeof *lengths;
    struct kept **at = &buckets[bucket_of(batch, lengths)];
    for (struct kept *k = *at; k; k = k->next) {
        if (k->batch == batch && memcmp(k->lengths, lengths, bytes) == 0) {
            return k->number;
        }
    }
    if (nkept == kept_room) {
        struct kept **more = sg_scratch((2 * kept_room + 64) * sizeof *more);
        if (nkept) {
            memcpy(more, by_number, nkept * sizeof *more);
        }
        free(by_number);
        by_number = more;
        kept_room = 2 * kept_room + 64;
    }
    struct kept *k = sg_scratch(sizeof *k + bytes);
    *k = (struct kept){*at, nkept, batch};
    memcpy(k->lengths, lengths, bytes);
    *at = k;
    by_number[nkept] = k;
    return nkept++;
}

uint64_t sg_rnn_keep_lengths(int32_t steps, int32_t batch, const int32_t *lengths)
{
    int uniform = 1;
    for (int32_t i = 0; i < batch; i++) {
        uniform &= lengths[i] == steps;
    }
    if (uniform) {
        return SG_RNN_UNIFORM;
    }
    pthread_mutex_lock(&kept_lock);
    uint64_t number = keep_locked(batch, lengths);
    pthread_mutex_unlock(&kept_lock);
    return number;
}

static const int32_t *kept_lengths(uint64_t number)
{
    if (number == SG_RNN_UNIFORM) {
        return NULL;
    }
    pthread_mutex_lock(&kept_lock);
    const int32_t *lengths = by_number[number]->lengths;
    pthread_mutex_unlock(&kept_lock);
    return lengths;
}

struct sg_rnn_rows sg_rnn_rows_of(const struct sg_rnn_shape *s, int layout)
{
    struct sg_rnn_rows r = {kept_lengths(s->lengths),    NULL, s->steps, s->batch, layout,
                            (int64_t)s->steps * s->batch};
    if (layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED && r.length) {
        r.packed = sg_scratch((size_t)s->steps * sizeof *r.packed);
        r.count = 0;
        for (int64_t t = 0; t < s->steps; t++) {
            r.packed[t] = r.count;
            for (int64_t b = 0; b < s->batch; b++) {
                r.count += r.length[b] > t;
            }
        }
    }
    return r;
}

void sg_rnn_rows_free(struct sg_rnn_rows *r)
{
    free(r->packed);
}

int64_t sg_rnn_length(const struct sg_rnn_rows *r, int64_t b)
{
    return r->length ? r->length[b] : r->steps;
}

int64_t sg_rnn_row(const struct sg_rnn_rows *r, int64_t t, int64_t b)
{
    if (r->packed) { /* entries come longest first */
        return t < r->length[b] ? r->packed[t] + b : -1;
    }
    return r->layout == CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED ? b * r->steps + t
                                                                   : t * r->batch + b;
}

/* ---- weights and spaces ---- */

int sg_rnn_gates(int mode)
{
    return mode == CUDNN_LSTM ? 4 : mode == CUDNN_GRU ? 3 : 1;
}

static int64_t input_of(const struct sg_rnn_shape *s, int layer)
{
    return layer < s->directions ? s->input : (int64_t)s->directions * s->hidden;
}

int64_t sg_rnn_matrix_at(const struct sg_rnn_shape *s, int layer, int id, int64_t *columns)
{
    int64_t at = 0, gates = sg_rnn_gates(s->mode), h = s->hidden;
    for (int l = 0; l < layer; l++) {
        at += gates * h * (input_of(s, l) + h);
    }
    int64_t in = input_of(s, layer);
    *columns = id < gates ? in : h;
    return id < gates ? at + id * h * in : at + gates * h * in + (id - gates) * h * h;
}

int64_t sg_rnn_bias_at(const struct sg_rnn_shape *s, int layer, int id)
{
    int64_t columns, gates = sg_rnn_gates(s->mode), h = s->hidden;
    int64_t base = sg_rnn_matrix_at(s, s->layers * s->directions, 0, &columns);
    int64_t side = id < gates ? 0 : 1; /* of the input, of the state */
    if (s->biases == 0 || (s->biases == 1 && side != s->recurrent_bias)) {
        return -1;
    }
    int64_t within = s->biases == 2 ? id : id % gates;
    return base + (layer * s->biases * gates + within) * h;
}

int64_t sg_rnn_weight_count(const struct sg_rnn_shape *s)
{
    int64_t columns, all = s->layers * s->directions;
    return sg_rnn_matrix_at(s, (int)all, 0, &columns) +
           all * s->biases * sg_rnn_gates(s->mode) * s->hidden;
}

/* Gates, cells (or a GRU's products) and outputs of every layer; the masks of dropout. */
uint64_t sg_rnn_reserve_bytes(const struct sg_rnn_shape *s)
{
    uint64_t rows = (uint64_t)s->steps * (uint64_t)s->batch, h = (uint64_t)s->hidden;
    uint64_t layer = rows * h * (uint64_t)(sg_rnn_gates(s->mode) + 2) * sizeof(float);
    uint64_t mask = s->rate > 0.0f ? (rows * h * (uint64_t)s->directions + 7) / 8 : 0;
    return layer * (uint64_t)(s->layers * s->directions) + mask * (uint64_t)(s->layers - 1);
}

uint64_t sg_rnn_workspace_bytes(const struct sg_rnn_shape *s)
{
    return (uint64_t)s->batch * (uint64_t)s->hidden *
           (uint64_t)(s->directions * (2 + sg_rnn_gates(s->mode))) * sizeof(float);
}

/* ---- ranges ---- */

static size_t element(const struct sg_rnn_shape *s)
{
    return s->type == CUDNN_DATA_FLOAT ? 4 : 2;
}

static void load(const struct simgpu_launch *l, struct sg_rnn_args *a)
{
    memcpy(a, l->params, sizeof *a);
}

static size_t state_bytes(const struct sg_rnn_shape *s)
{
    return (size_t)s->layers * (size_t)s->directions * (size_t)s->batch * (size_t)s->hidden *
           element(s);
}

static size_t weight_bytes(const struct sg_rnn_shape *s)
{
    return (size_t)sg_rnn_weight_count(s) * element(s);
}

static size_t data_bytes(const struct sg_rnn_shape *s, int layout, int64_t width)
{
    struct sg_rnn_rows r = sg_rnn_rows_of(s, layout);
    sg_rnn_rows_free(&r);
    return (size_t)r.count * (size_t)width * element(s);
}

static void range(simgpu_touch_fn touch, void *ctx, uint64_t addr, size_t bytes, int mode)
{
    if (addr) {
        touch(ctx, addr, bytes, mode);
    }
}

void sg_rnn_fwd_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct sg_rnn_args a;
    load(l, &a);
    size_t state = state_bytes(&a.s), width = (size_t)a.s.directions * (size_t)a.s.hidden;
    range(touch, ctx, a.x, data_bytes(&a.s, a.s.x_layout, a.s.input), SIMGPU_READ);
    range(touch, ctx, a.y, data_bytes(&a.s, a.s.y_layout, (int64_t)width), SIMGPU_WRITE);
    range(touch, ctx, a.hx, state, SIMGPU_READ);
    range(touch, ctx, a.hy, state, SIMGPU_WRITE);
    range(touch, ctx, a.cx, state, SIMGPU_READ);
    range(touch, ctx, a.cy, state, SIMGPU_WRITE);
    range(touch, ctx, a.weights, weight_bytes(&a.s), SIMGPU_READ);
    range(touch, ctx, a.workspace, a.s.workspace_bytes, SIMGPU_WRITE);
    range(touch, ctx, a.reserve, sg_rnn_reserve_bytes(&a.s), SIMGPU_WRITE);
    range(touch, ctx, a.states, SG_DROPOUT_STATE_BYTES, SIMGPU_RW);
}

void sg_rnn_bwd_data_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct sg_rnn_args a;
    load(l, &a);
    size_t state = state_bytes(&a.s), width = (size_t)a.s.directions * (size_t)a.s.hidden;
    range(touch, ctx, a.dy, data_bytes(&a.s, a.s.y_layout, (int64_t)width), SIMGPU_READ);
    range(touch, ctx, a.dx, data_bytes(&a.s, a.s.x_layout, a.s.input), SIMGPU_WRITE);
    range(touch, ctx, a.hx, state, SIMGPU_READ);
    range(touch, ctx, a.cx, state, SIMGPU_READ);
    range(touch, ctx, a.dhy, state, SIMGPU_READ);
    range(touch, ctx, a.dhx, state, SIMGPU_WRITE);
    range(touch, ctx, a.dcy, state, SIMGPU_READ);
    range(touch, ctx, a.dcx, state, SIMGPU_WRITE);
    range(touch, ctx, a.weights, weight_bytes(&a.s), SIMGPU_READ);
    range(touch, ctx, a.workspace, a.s.workspace_bytes, SIMGPU_WRITE);
    range(touch, ctx, a.reserve, sg_rnn_reserve_bytes(&a.s), SIMGPU_RW);
}

void sg_rnn_bwd_weights_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx)
{
    struct sg_rnn_args a;
    load(l, &a);
    range(touch, ctx, a.x, data_bytes(&a.s, a.s.x_layout, a.s.input), SIMGPU_READ);
    range(touch, ctx, a.hx, state_bytes(&a.s), SIMGPU_READ);
    range(touch, ctx, a.weights, weight_bytes(&a.s), SIMGPU_RW);
    range(touch, ctx, a.workspace, a.s.workspace_bytes, SIMGPU_WRITE);
    range(touch, ctx, a.reserve, sg_rnn_reserve_bytes(&a.s), SIMGPU_READ);
}

/* ---- costs: the products of all steps; the state's matrices are read again at each step ---- */

static void cost_of(const struct simgpu_launch *l, int every_step, struct simgpu_work *work)
{
    struct sg_rnn_args a;
    load(l, &a);
    const struct sg_rnn_shape *s = &a.s;
    double rows = (double)s->steps * s->batch, h = s->hidden, gates = sg_rnn_gates(s->mode);
    double bytes = rows * (double)(s->input + s->directions * s->hidden) * (double)element(s);
    *work = (struct simgpu_work){.kclass = SIMGPU_CLASS_GEMM};
    for (int p = 0; p < s->layers * s->directions; p++) {
        work->flops += 2 * rows * gates * h * ((double)input_of(s, p) + h) / s->speed;
        bytes += every_step ? s->steps * gates * h * h * (double)element(s) : 0;
        bytes += rows * h * (gates + 2) * 4;
    }
    work->bytes = bytes + (double)weight_bytes(s);
}

void sg_rnn_fwd_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    cost_of(l, 1, work);
}

void sg_rnn_bwd_data_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    cost_of(l, 1, work);
}

void sg_rnn_bwd_weights_cost(const struct simgpu_launch *l, struct simgpu_work *work)
{
    cost_of(l, 0, work);
}
