/* graph.h: graphs of operations as one kernel executes them.
 *
 * A graph is made once (backend_graph.c from the program's descriptors; batchnorm_half.c and others
 * for a legacy call), never changes and is kept for the life of the process, as the code of a
 * compiled kernel is. A launch names it by its number and gives one word for each slot: the device
 * address of a tensor, or the bits of a scalar passed by value.
 *
 * In a body every tensor is single precision, packed in row-major order; what a node makes is
 * rounded to the type of its tensor, virtual or not.
 */
#ifndef SG_GRAPH_H
#define SG_GRAPH_H

#include "simgpu.h"
#include "tensor.h"

#define SG_GRAPH_DIMS  8
#define SG_GRAPH_SLOTS 32
#define SG_NODE_ROLES  16

/* Operations, and the roles of their tensors (index in sg_gnode.t). */
enum sg_gop {
    SG_G_CONV_FWD,    /* x w -> y; old y too where beta is not 0, as for the other two */
    SG_G_CONV_DATA,   /* y w -> x */
    SG_G_CONV_FILTER, /* x y -> w */
    SG_G_POINTWISE,   /* x b t -> y, or backwards x or y, dy -> dx */
    SG_G_MATMUL,      /* a b m n k -> c */
    SG_G_REDUCE,      /* x -> y */
    SG_G_SOFTMAX,     /* x sink seqq seqkv -> y stats max sumexp */
    SG_G_BAND_MASK,   /* x b seqq seqkv left right -> y */
    SG_G_RNG,         /* seed offset -> y */
    SG_G_VIEW,        /* x -> y: the same elements, read by other dims and strides */
    SG_G_TRANSPOSE,   /* x -> y */
    SG_G_SLICE,       /* x -> y */
    SG_G_NORM_FWD,
    SG_G_NORM_BWD,
    SG_G_RESAMPLE_FWD, /* x -> y index */
    SG_G_RESAMPLE_BWD, /* dy index x y -> dx */
    SG_G_GENSTATS,     /* x -> sum sqsum */
    SG_G_OPS
};
enum { SG_CONV_X, SG_CONV_W, SG_CONV_Y };
enum { SG_PW_X, SG_PW_B, SG_PW_Y, SG_PW_DX, SG_PW_DY, SG_PW_T };
enum { SG_MM_A, SG_MM_B, SG_MM_C, SG_MM_M, SG_MM_N, SG_MM_K };
enum { SG_ONE_X, SG_ONE_Y }; /* reductions, views, transpositions, slices */
enum { SG_SM_X, SG_SM_Y, SG_SM_STATS, SG_SM_MAX, SG_SM_SUM, SG_SM_SINK, SG_SM_SEQ_Q, SG_SM_SEQ_KV };
enum { SG_BM_X, SG_BM_B, SG_BM_Y, SG_BM_SEQ_Q, SG_BM_SEQ_KV, SG_BM_LEFT, SG_BM_RIGHT };
enum { SG_RNG_Y, SG_RNG_SEED, SG_RNG_OFFSET };
enum {
    SG_NF_X,
    SG_NF_MEAN,
    SG_NF_INVVAR,
    SG_NF_SCALE,
    SG_NF_BIAS,
    SG_NF_EPSILON,
    SG_NF_FACTOR,
    SG_NF_IN_MEAN,
    SG_NF_IN_VAR,
    SG_NF_OUT_MEAN,
    SG_NF_OUT_VAR,
    SG_NF_Y
};
enum {
    SG_NB_X,
    SG_NB_MEAN,
    SG_NB_INVVAR,
    SG_NB_DY,
    SG_NB_SCALE,
    SG_NB_EPSILON,
    SG_NB_DSCALE,
    SG_NB_DBIAS,
    SG_NB_DX
};
enum { SG_RF_X, SG_RF_Y, SG_RF_INDEX };
enum { SG_RB_DX, SG_RB_DY, SG_RB_INDEX, SG_RB_X, SG_RB_Y };
enum { SG_GS_X, SG_GS_SUM, SG_GS_SQSUM };

struct sg_gtensor {
    int64_t uid;
    int64_t dim[SG_GRAPH_DIMS], str[SG_GRAPH_DIMS]; /* strides in elements */
    int32_t ndims, type;                            /* cudnnDataType_t */
    int32_t slot; /* of its word in the launch; -1: virtual, or a constant */
    int32_t by_value;
    int32_t constant; /* 1: its one element is `value` */
    float value;
};

struct sg_gnode {
    int32_t op;    /* enum sg_gop */
    int32_t mode;  /* cudnnPointwiseMode_t, cudnnReduceTensorOp_t, ... as the operation has one */
    int32_t phase; /* of a normalisation: 1 in training; of a resampling: padding mode */
    int32_t axis;
    int32_t t[SG_NODE_ROLES]; /* tensors by role; -1: none */
    float alpha, beta;        /* of pointwise operations: alpha1, alpha2 */
    double p[6];              /* parameters of the mode */
    int64_t seed;
    int32_t pre[SG_GRAPH_DIMS], post[SG_GRAPH_DIMS], stride[SG_GRAPH_DIMS];
    int32_t dilation[SG_GRAPH_DIMS],
        window[SG_GRAPH_DIMS]; /* dilation: permutation of a transposition */
};
/* p of a pointwise operation */
enum { SG_P_LOW, SG_P_HIGH, SG_P_SLOPE, SG_P_ELU, SG_P_SOFTPLUS, SG_P_SWISH };

/* The nodes are in an order in which each one's inputs are made before it. */
struct sg_graph {
    uint32_t ntensors, nnodes, nslots;
    int32_t engine;  /* of a convolution: the algorithm */
    int32_t lane;    /* bytes of the elements that the main operation reads */
    int32_t special; /* 1: the tensor cores' work on cards that have them */
    uint64_t workspace_bytes;
    struct sg_gtensor *tensors;
    struct sg_gnode *nodes;
};

struct sg_graph_args {
    uint64_t word[SG_GRAPH_SLOTS];
    uint64_t workspace;
    uint64_t number;
    double tensor_speed; /* of the card's tensor cores, in units of its plain arithmetic */
};

/* A graph to be filled, or NULL. Adding a tensor or a node moves the arrays. */
struct sg_graph *sg_graph_new(void);
struct sg_graph *sg_graph_copy(const struct sg_graph *g);
void sg_graph_free(struct sg_graph *g);
/* The number of the new tensor or node, a copy of *t or *n; negative: out of memory. */
int sg_graph_tensor(struct sg_graph *g, const struct sg_gtensor *t);
int sg_graph_node(struct sg_graph *g, const struct sg_gnode *n);

/* Keeps the graph (the caller's is left alone) and gives its number; equal graphs have one number.
 * Negative: out of memory. Thread-safe. */
int64_t sg_graph_keep(const struct sg_graph *g);
const struct sg_graph *sg_graph_kept(uint64_t number);

/* A node with no tensor and neutral parameters. */
struct sg_gnode sg_gnode_of(enum sg_gop op);
/* 1 where the node writes, or reads, the tensor in this role. */
int sg_gnode_writes(const struct sg_gnode *n, int role);
int sg_gnode_reads(const struct sg_gnode *n, int role);

int64_t sg_gtensor_count(const struct sg_gtensor *t);
/* A tensor of packed row-major order. */
struct sg_gtensor sg_gtensor_packed(int type, int ndims, const int64_t *dim);

/* The shape of a convolution node over packed tensors, or over the tensors as they lie. 0, or -1
 * where it has more dimensions than we compute. */
struct sg_conv_shape;
int sg_graph_conv_shape(const struct sg_graph *g, const struct sg_gnode *n,
                        struct sg_conv_shape *s);

/* Kernel entry points. */
void sg_graph_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_graph_body(const struct simgpu_launch *l);
void sg_graph_cost(const struct simgpu_launch *l, struct simgpu_work *work);

/* ---- the arithmetic of one node: graph_*.c ---- */

struct sg_graph_run {
    const struct sg_graph *g;
    const struct sg_graph_args *a;
    float **data; /* by tensor; NULL: neither loaded nor made yet */
};

static inline const struct sg_gtensor *sg_run_tensor(const struct sg_graph_run *r,
                                                     const struct sg_gnode *n, int role)
{
    return n->t[role] < 0 ? NULL : &r->g->tensors[n->t[role]];
}
/* Contents; NULL where the node has no such tensor. */
static inline float *sg_run_data(const struct sg_graph_run *r, const struct sg_gnode *n, int role)
{
    return n->t[role] < 0 ? NULL : r->data[n->t[role]];
}
/* An integer scalar, unrounded (tensors of one element that are not virtual). */
int64_t sg_run_integer(const struct sg_graph_run *r, const struct sg_gnode *n, int role,
                       int64_t otherwise);

/* For index `at` of a packed tensor with o's dims: the element of t that stands there. A dimension
 * of t that is shorter stands still, or serves several neighbours each (grouped heads). */
int64_t sg_gtensor_under(const struct sg_gtensor *o, const struct sg_gtensor *t, int64_t at);

void sg_node_conv(const struct sg_graph_run *r, const struct sg_gnode *n);
void sg_node_pointwise(const struct sg_graph_run *r, const struct sg_gnode *n);
void sg_node_matmul(const struct sg_graph_run *r, const struct sg_gnode *n);
void sg_node_reduce(const struct sg_graph_run *r, const struct sg_gnode *n);
void sg_node_softmax(const struct sg_graph_run *r, const struct sg_gnode *n);
void sg_node_band_mask(const struct sg_graph_run *r, const struct sg_gnode *n);
void sg_node_rng(const struct sg_graph_run *r, const struct sg_gnode *n);
void sg_node_view(const struct sg_graph_run *r, const struct sg_gnode *n);
void sg_node_transpose(const struct sg_graph_run *r, const struct sg_gnode *n);
void sg_node_slice(const struct sg_graph_run *r, const struct sg_gnode *n);
void sg_node_norm_forward(const struct sg_graph_run *r, const struct sg_gnode *n);
void sg_node_norm_backward(const struct sg_graph_run *r, const struct sg_gnode *n);
void sg_node_resample_forward(const struct sg_graph_run *r, const struct sg_gnode *n);
void sg_node_resample_backward(const struct sg_graph_run *r, const struct sg_gnode *n);
void sg_node_genstats(const struct sg_graph_run *r, const struct sg_gnode *n);

#endif
