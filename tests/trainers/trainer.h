/* trainer.h: a small trainer of layered networks on public CUDA runtime, cuDNN and cuBLAS calls.
 *
 * A network is a list of nodes in program order; a node reads tensors and writes tensors; a tensor
 * lives in a block, which is one device allocation. In-place layers and gradients that are handed on
 * unchanged share a block. Step i < n is the forward pass of node i, step 2n-1-i its backward pass,
 * step 2n the end of the (micro-)batch; every block knows the last step that uses it.
 *
 * All functions return 0, or -1 after having written one line that says what failed. Single thread.
 */
#ifndef TRAINER_H
#define TRAINER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <cublas_v2.h>

#define TR_MAX_IN 8
#define TR_MAX_SAVED 3
#define TR_MAX_PARAM 4
#define TR_NAME 32

enum tr_kind {
    TR_INPUT,
    TR_CONV,
    TR_FC,
    TR_ACT,
    TR_POOL,
    TR_LRN,
    TR_BN,
    TR_DROPOUT,
    TR_ADD,
    TR_CONCAT,
    TR_CELL,
    TR_SOFTMAX,
    TR_KINDS
};

struct tr_block {
    size_t bytes;
    int first, last; /* steps; last = -1: never used      */
    bool lasting;    /* allocated once, for the whole run */
    void *p;         /* NULL while not allocated          */
};

struct tr_tensor {
    int n, c, h, w;
    int block;
    size_t offset;   /* bytes into the block, for slices of a sequence */
    int producer;    /* node, -1 for states and slices                 */
    int consumers;
    bool needs_grad; /* something trainable is above it                */
    int grad;        /* block of its gradient, -1 until assigned       */
};

struct tr_param {
    char name[TR_NAME];
    size_t count;
    float *w, *v;    /* value and momentum; v is NULL for statistics, which are not trained */
    int grad;        /* block, -1 for statistics                                           */
    bool has_grad;   /* since the last update                                              */
    bool uniform;    /* initial values in [-init, init), else all equal to init            */
    float init;
};

/* cuDNN descriptors of a node; which of them exist depends on its kind. */
struct tr_desc {
    cudnnTensorDescriptor_t x, y, b, z;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t conv;
    cudnnPoolingDescriptor_t pool;
    cudnnActivationDescriptor_t act, act2;
    cudnnLRNDescriptor_t lrn;
    cudnnDropoutDescriptor_t dropout;
    cudnnOpTensorDescriptor_t add, mul;
};

struct tr_node {
    enum tr_kind kind;
    char name[TR_NAME];
    int in[TR_MAX_IN], nin;
    int out[2], nout;
    int param[TR_MAX_PARAM], nparam;
    int saved[TR_MAX_SAVED], nsaved; /* blocks written forward, read backward         */
    int scratch;                     /* block used by the backward pass only, or -1   */
    bool inplace;                    /* out[0] shares the block of in[0]              */
    bool add_grad[TR_MAX_IN];        /* this input's gradient has a part already      */
    bool move_grad[TR_MAX_IN];       /* this input's gradient is the output's block   */
    int k, stride, pad, outputs;     /* window and number of outputs                  */
    bool bias, average;
    cudnnActivationMode_t mode;
    double a, b, c;                  /* lrn: alpha, beta, k; dropout: ratio           */
    struct tr_desc d;
    cudnnConvolutionFwdAlgo_t fwd;
    cudnnConvolutionBwdDataAlgo_t bwd_data;
    cudnnConvolutionBwdFilterAlgo_t bwd_filter;
    size_t ws_fwd, ws_data, ws_filter;
};

struct tr_net {
    char name[TR_NAME];
    struct tr_node *nodes;
    int nnodes;
    struct tr_tensor *tensors;
    int ntensors;
    struct tr_block *blocks;
    int nblocks;
    struct tr_param *params;
    int nparams;
    int c, h, w, steps, classes, batch;
    int input, labels, logits; /* tensors; logits is the input of the softmax */
    int *ends, *ends_at;       /* blocks sorted by last step; where each step's begin */
};

struct tr_options {
    const char *net, *data;
    int batch, iters, accumulate, steps, device;
    uint64_t seed, workspace;
    double lr, momentum;
    bool upfront, quiet, forward_only, input_gradient, any_order, default_stream, sizes;
    const char *sets[16]; /* NAME=VALUE for the description */
    int nsets;
};

struct trainer;

/* What a trainer that gives hints does beside the training; the plain trainer has none. */
struct tr_hints {
    int (*start)(struct trainer *t);
    void (*forward_done)(struct trainer *t, int node);
    void (*last_use)(struct trainer *t, int block);
    void (*step)(struct trainer *t);
    void (*report)(struct trainer *t);
};
extern const struct tr_hints *const tr_hints; /* NULL in the plain trainer */

struct tr_data {
    int count, dim; /* 0 samples: synthetic */
    float *x;
    int *label;
    int *order; /* permutation of the current epoch */
    int next;
    uint64_t rng;
};

struct trainer {
    struct tr_options opt;
    struct tr_net net;
    struct tr_data data;
    cudaStream_t stream;
    cudnnHandle_t dnn;
    cublasHandle_t blas;
    int step;               /* now executing, for messages and liveness */
    void *workspace;        /* shared one of --alloc upfront            */
    size_t workspace_bytes;
    void *dropout_states;
    size_t dropout_bytes;
    float *ones;            /* [batch], for bias gradients of LSTM cells */
    float *host_x, *host_labels, *host_probs;
    int *host_label;
    int micro;              /* micro-batch of the current update */
};

/* fail.c */
int tr_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int tr_fail_cuda(const struct trainer *t, const char *call, cudaError_t e);
int tr_fail_dnn(const struct trainer *t, const char *call, cudnnStatus_t s);
int tr_fail_blas(const struct trainer *t, const char *call, cublasStatus_t s);
#define TR_CUDA(t, call)                                                                           \
    do {                                                                                           \
        cudaError_t e_ = (call);                                                                   \
        if (e_ != cudaSuccess)                                                                     \
            return tr_fail_cuda(t, #call, e_);                                                     \
    } while (0)
#define TR_DNN(t, call)                                                                            \
    do {                                                                                           \
        cudnnStatus_t s_ = (call);                                                                 \
        if (s_ != CUDNN_STATUS_SUCCESS)                                                            \
            return tr_fail_dnn(t, #call, s_);                                                      \
    } while (0)
#define TR_BLAS(t, call)                                                                           \
    do {                                                                                           \
        cublasStatus_t s_ = (call);                                                                \
        if (s_ != CUBLAS_STATUS_SUCCESS)                                                           \
            return tr_fail_blas(t, #call, s_);                                                     \
    } while (0)
#define TR_TRY(call)                                                                               \
    do {                                                                                           \
        if ((call) != 0)                                                                           \
            return -1;                                                                             \
    } while (0)

/* describe.c: reads a description file and builds the net's nodes and tensors. */
int tr_describe(struct tr_net *net, const struct tr_options *opt);

/* net.c: building blocks for the description; each returns an id, or -1 after a line. */
int tr_tensor_new(struct tr_net *net, int n, int c, int h, int w);
int tr_block_new(struct tr_net *net, size_t bytes);
int tr_param_new(struct tr_net *net, const char *name, size_t count, double init, bool uniform,
                 bool trained);
struct tr_node *tr_node_new(struct tr_net *net, enum tr_kind kind, const int *in, int nin);
int tr_node_output(struct tr_net *net, struct tr_node *node, int n, int c, int h, int w);
/* Assigns blocks, gradients and lifetimes once all nodes exist. */
int tr_net_finish(struct trainer *t);
void tr_net_fini(struct tr_net *net);
/* Something above or in the node is trained. */
bool tr_has_backward(const struct tr_net *net, const struct tr_node *node);
static inline size_t tr_count(const struct tr_tensor *x)
{
    return (size_t)x->n * (size_t)x->c * (size_t)x->h * (size_t)x->w;
}

/* layers.c, conv.c, lstm.c: what a kind of node does. */
struct tr_layer {
    const char *name;
    int (*setup)(struct trainer *t, struct tr_node *node); /* descriptors, saved blocks */
    int (*forward)(struct trainer *t, struct tr_node *node);
    int (*backward)(struct trainer *t, struct tr_node *node);
    bool back_x, back_y;  /* the backward pass reads the input / the output */
    bool can_inplace;     /* the output may take the input's place          */
    bool grad_inplace;    /* dX may take dY's place                         */
};
extern const struct tr_layer tr_layers[TR_KINDS];
int tr_conv_setup(struct trainer *t, struct tr_node *node);
int tr_conv_forward(struct trainer *t, struct tr_node *node);
int tr_conv_backward(struct trainer *t, struct tr_node *node);
int tr_cell_setup(struct trainer *t, struct tr_node *node);
int tr_cell_forward(struct trainer *t, struct tr_node *node);
int tr_cell_backward(struct trainer *t, struct tr_node *node);
int tr_desc4(const struct trainer *t, cudnnTensorDescriptor_t *d, int n, int c, int h, int w);
/* Adds a row of bias gradients: db[c] += sum over n, h, w of dy. */
int tr_bias_backward(struct trainer *t, struct tr_node *node, const float *dy, int param);

/* memory.c: device addresses, allocated on the first need (eager) or all before the run (upfront). */
int tr_need(struct trainer *t, int block, float **p);
int tr_need_tensor(struct trainer *t, int tensor, float **p);
int tr_need_grad(struct trainer *t, int tensor, float **p);
/* Gradient of a parameter and the factor with which the old contents count (0 or 1). */
int tr_need_param_grad(struct trainer *t, int param, float **p, float *beta);
int tr_workspace_get(struct trainer *t, size_t bytes, void **p);
int tr_workspace_put(struct trainer *t, void *p);
/* Frees (or, upfront, declares dead) what step `step` used last. */
int tr_memory_step_done(struct trainer *t, int step);
int tr_memory_start(struct trainer *t);
int tr_memory_end(struct trainer *t);

/* data.c */
int tr_data_open(struct trainer *t);
void tr_data_batch(struct trainer *t); /* fills host_x, host_labels, host_label */
void tr_data_close(struct tr_data *d);
uint64_t tr_random(uint64_t *state);
float tr_random_unit(uint64_t *state); /* [0, 1) */

/* solver.c */
int tr_params_start(struct trainer *t);
int tr_update(struct trainer *t);
int tr_checksum(struct trainer *t, uint64_t *sum);
int tr_params_end(struct trainer *t);

/* sizes.c: prints what the network needs, one `key bytes` a line. */
void tr_sizes_print(const struct trainer *t);

#endif
