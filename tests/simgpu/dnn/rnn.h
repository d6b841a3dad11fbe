/* rnn.h: recurrent layers: plain (tanh, relu), LSTM (Hochreiter and Schmidhuber 1997, with forget
 * gate and no peepholes) and GRU (Cho et al., arXiv 1406.1078, reset applied after the product), in
 * one or two directions.
 *
 * Gates in cuDNN's order: LSTM input, forget, new, output; GRU reset, update, new. Weights: for
 * each layer and direction the matrices for the input, then those for the state, gate by gate;
 * after all matrices, in the same order, the biases. Sequences are addressed as (time, batch
 * entry); beyond an entry's length there is padding.
 */
#ifndef SG_RNN_H
#define SG_RNN_H

#include <stddef.h>
#include "simgpu.h"
#include "tensor.h"

#define SG_RNN_UNIFORM UINT64_MAX

struct sg_rnn_shape {
    int32_t mode; /* cudnnRNNMode_t */
    int32_t layers, directions, input, hidden;
    int32_t steps, batch;
    int32_t type;               /* cudnnDataType_t of everything but the reserve space */
    int32_t x_layout, y_layout; /* cudnnRNNDataLayout_t */
    int32_t biases;             /* vectors for each gate: 0, 1 or 2 */
    int32_t recurrent_bias;     /* 1: the only one belongs to the state */
    int32_t training;
    float rate, fill; /* of dropout between layers; what padding of y holds */
    uint64_t lengths; /* number of kept lengths, or SG_RNN_UNIFORM: all of them are `steps` */
    uint64_t workspace_bytes;
    double speed; /* of products, in units of plain arithmetic */
};

struct sg_rnn_args {
    uint64_t x, y, hx, hy, cx, cy, dy, dx, dhy, dhx, dcy, dcx;
    uint64_t weights, workspace, reserve, states; /* backward weights: weights is their gradient */
    struct sg_rnn_shape s;
};

/* Keeps the lengths of a batch for the life of the process (equal ones once); the number, or
 * SG_RNN_UNIFORM. Negative lengths are the caller's to refuse. Thread-safe; out of memory ends in
 * abort() as other scratch does. */
uint64_t sg_rnn_keep_lengths(int32_t steps, int32_t batch, const int32_t *lengths);

int sg_rnn_gates(int mode);
/* Elements of all weights; of a gate's matrix and bias: where they start, and the rows' length.
 * Matrix id as in cudnnGetRNNWeightParams. bias -1: there is none. */
int64_t sg_rnn_weight_count(const struct sg_rnn_shape *s);
int64_t sg_rnn_matrix_at(const struct sg_rnn_shape *s, int layer, int id, int64_t *columns);
int64_t sg_rnn_bias_at(const struct sg_rnn_shape *s, int layer, int id);
uint64_t sg_rnn_reserve_bytes(const struct sg_rnn_shape *s);
uint64_t sg_rnn_workspace_bytes(const struct sg_rnn_shape *s);

/* The element of entry b at time t in a layout: number of its vector; -1 in the padding of a packed
 * layout. */
struct sg_rnn_rows {
    const int32_t *length; /* NULL: all the same */
    int64_t *packed;       /* first row of each time; NULL: not packed */
    int32_t steps, batch, layout;
    int64_t count; /* vectors in memory */
};
struct sg_rnn_rows sg_rnn_rows_of(const struct sg_rnn_shape *s, int layout);
void sg_rnn_rows_free(struct sg_rnn_rows *r);
int64_t sg_rnn_row(const struct sg_rnn_rows *r, int64_t t, int64_t b);
int64_t sg_rnn_length(const struct sg_rnn_rows *r, int64_t b);

/* Kernel entry points; the arithmetic is in rnn_body.c. */
void sg_rnn_fwd_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_rnn_fwd_body(const struct simgpu_launch *l);
void sg_rnn_fwd_cost(const struct simgpu_launch *l, struct simgpu_work *work);
void sg_rnn_bwd_data_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_rnn_bwd_data_body(const struct simgpu_launch *l);
void sg_rnn_bwd_data_cost(const struct simgpu_launch *l, struct simgpu_work *work);
void sg_rnn_bwd_weights_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_rnn_bwd_weights_body(const struct simgpu_launch *l);
void sg_rnn_bwd_weights_cost(const struct simgpu_launch *l, struct simgpu_work *work);

#endif
