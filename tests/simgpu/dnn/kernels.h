/* kernels.h: the kernels of the simulated cuDNN, one row each. */
#ifndef SG_KERNELS_H
#define SG_KERNELS_H

#include "simgpu.h"

/* X(identifier, name, parameter struct, leading pointers, touches, body, cost) */
#define SG_CONV_ROW(id, name)                                                                      \
    X(id, name, sg_conv_args, 4, sg_conv_touches, sg_conv_body, sg_conv_cost)
/* The first word of a graph's launch is a pointer as often as not; the rest is one structure. */
#define SG_GRAPH_ROW(id, name)                                                                     \
    X(id, name, sg_graph_args, 1, sg_graph_touches, sg_graph_body, sg_graph_cost)
#define SG_KERNELS                                                                                 \
    SG_CONV_ROW(CONV_FWD_0, "cudnn::cnn::implicit_convolve_sgemm")                                 \
    SG_CONV_ROW(CONV_FWD_1, "cudnn::cnn::precomputed_convolve_sgemm")                              \
    SG_CONV_ROW(CONV_FWD_2, "cudnn::cnn::explicit_convolve_sgemm")                                 \
    SG_CONV_ROW(CONV_FWD_3, "cudnn::cnn::direct_convolve")                                         \
    SG_CONV_ROW(CONV_FWD_4, "cudnn::cnn::fft2d_convolve_fwd")                                      \
    SG_CONV_ROW(CONV_FWD_5, "cudnn::cnn::fft2d_tiled_convolve_fwd")                                \
    SG_CONV_ROW(CONV_FWD_6, "cudnn::winograd::fused_2x2_3x3_fwd")                                  \
    SG_CONV_ROW(CONV_FWD_7, "cudnn::winograd_nonfused::winograd_fwd_4x4")                          \
    SG_CONV_ROW(CONV_BWD_DATA_0, "cudnn::cnn::dgrad_engine_atomic")                                \
    SG_CONV_ROW(CONV_BWD_DATA_1, "cudnn::cnn::dgrad2d_implicit_sgemm")                             \
    SG_CONV_ROW(CONV_BWD_DATA_2, "cudnn::cnn::fft2d_convolve_dgrad")                               \
    SG_CONV_ROW(CONV_BWD_DATA_3, "cudnn::cnn::fft2d_tiled_convolve_dgrad")                         \
    SG_CONV_ROW(CONV_BWD_DATA_4, "cudnn::winograd::fused_2x2_3x3_dgrad")                           \
    SG_CONV_ROW(CONV_BWD_DATA_5, "cudnn::winograd_nonfused::winograd_dgrad_4x4")                   \
    SG_CONV_ROW(CONV_BWD_FILTER_0, "cudnn::cnn::wgrad_engine_atomic")                              \
    SG_CONV_ROW(CONV_BWD_FILTER_1, "cudnn::cnn::wgrad2d_implicit_sgemm")                           \
    SG_CONV_ROW(CONV_BWD_FILTER_2, "cudnn::cnn::fft2d_convolve_wgrad")                             \
    SG_CONV_ROW(CONV_BWD_FILTER_3, "cudnn::cnn::wgrad2d_explicit_sgemm")                           \
    SG_CONV_ROW(CONV_BWD_FILTER_4, "cudnn::winograd::fused_2x2_3x3_wgrad")                         \
    SG_CONV_ROW(CONV_BWD_FILTER_5, "cudnn::winograd_nonfused::winograd_wgrad_4x4")                 \
    SG_CONV_ROW(CONV_BWD_FILTER_6, "cudnn::cnn::fft2d_tiled_convolve_wgrad")                       \
    X(CONV_FUSED, "cudnn::cnn::convolve_bias_activation", sg_conv_fused_args, 6,                   \
      sg_conv_fused_touches, sg_conv_fused_body, sg_conv_fused_cost)                               \
    X(ACT_FWD, "cudnn::ops::activation_fw_4d", sg_act_fwd_args, 2, sg_act_fwd_touches,             \
      sg_act_fwd_body, sg_act_fwd_cost)                                                            \
    X(ACT_BWD, "cudnn::ops::activation_bw_4d", sg_act_bwd_args, 4, sg_act_bwd_touches,             \
      sg_act_bwd_body, sg_act_bwd_cost)                                                            \
    X(ADD, "cudnn::ops::add_tensor", sg_add_args, 2, sg_add_touches, sg_add_body, sg_add_cost)     \
    X(TRANSFORM, "cudnn::ops::transform_tensor", sg_add_args, 2, sg_add_touches, sg_add_body,      \
      sg_add_cost)                                                                                 \
    X(OP, "cudnn::ops::op_tensor", sg_op_args, 3, sg_op_touches, sg_op_body, sg_op_cost)           \
    X(SET, "cudnn::ops::set_tensor", sg_fill_args, 1, sg_fill_touches, sg_fill_body, sg_fill_cost) \
    X(SCALE, "cudnn::ops::scale_tensor", sg_fill_args, 1, sg_fill_touches, sg_fill_body,           \
      sg_fill_cost)                                                                                \
    X(POOL_FWD, "cudnn::ops::pooling_fw_4d", sg_pool_fwd_args, 2, sg_pool_fwd_touches,             \
      sg_pool_fwd_body, sg_pool_fwd_cost)                                                          \
    X(POOL_BWD, "cudnn::ops::pooling_bw_4d", sg_pool_bwd_args, 4, sg_pool_bwd_touches,             \
      sg_pool_bwd_body, sg_pool_bwd_cost)                                                          \
    X(BN_TRAIN, "cudnn::bn_fw_tr_1C11", sg_bn_train_args, 10, sg_bn_train_touches,                 \
      sg_bn_train_body, sg_bn_train_cost)                                                          \
    X(BN_INFER, "cudnn::bn_fw_inf_1C11", sg_bn_infer_args, 6, sg_bn_infer_touches,                 \
      sg_bn_infer_body, sg_bn_infer_cost)                                                          \
    X(BN_BWD, "cudnn::bn_bw_1C11", sg_bn_bwd_args, 10, sg_bn_bwd_touches, sg_bn_bwd_body,          \
      sg_bn_bwd_cost)                                                                              \
    X(LRN_FWD, "cudnn::ops::lrn_cross_channel_fw", sg_lrn_args, 4, sg_lrn_fwd_touches,             \
      sg_lrn_fwd_body, sg_lrn_fwd_cost)                                                            \
    X(LRN_BWD, "cudnn::ops::lrn_cross_channel_bw", sg_lrn_args, 4, sg_lrn_bwd_touches,             \
      sg_lrn_bwd_body, sg_lrn_bwd_cost)                                                            \
    X(SOFTMAX_FWD, "cudnn::ops::softmax_fw", sg_softmax_args, 4, sg_softmax_fwd_touches,           \
      sg_softmax_fwd_body, sg_softmax_fwd_cost)                                                    \
    X(SOFTMAX_BWD, "cudnn::ops::softmax_bw", sg_softmax_args, 4, sg_softmax_bwd_touches,           \
      sg_softmax_bwd_body, sg_softmax_bwd_cost)                                                    \
    X(REDUCE, "cudnn::ops::reduce_tensor", sg_reduce_args, 3, sg_reduce_touches, sg_reduce_body,   \
      sg_reduce_cost)                                                                              \
    X(BIAS_BWD, "cudnn::ops::convolution_bias_bw", sg_reduce_args, 3, sg_reduce_touches,           \
      sg_reduce_body, sg_reduce_cost)                                                              \
    X(DROPOUT_INIT, "cudnn::ops::dropout_init_states", sg_dropout_init_args, 1,                    \
      sg_dropout_init_touches, sg_dropout_init_body, sg_dropout_init_cost)                         \
    X(DROPOUT_FWD, "cudnn::ops::dropout_fp", sg_dropout_args, 4, sg_dropout_fwd_touches,           \
      sg_dropout_fwd_body, sg_dropout_cost)                                                        \
    X(DROPOUT_BWD, "cudnn::ops::dropout_bp", sg_dropout_args, 4, sg_dropout_bwd_touches,           \
      sg_dropout_bwd_body, sg_dropout_cost)                                                        \
    SG_GRAPH_ROW(GRAPH_CONV_FWD, "cudnn::graph::conv_fprop")                                       \
    SG_GRAPH_ROW(GRAPH_CONV_DATA, "cudnn::graph::conv_dgrad")                                      \
    SG_GRAPH_ROW(GRAPH_CONV_FILTER, "cudnn::graph::conv_wgrad")                                    \
    SG_GRAPH_ROW(GRAPH_MATMUL, "cudnn::graph::matmul")                                             \
    SG_GRAPH_ROW(GRAPH_ATTENTION, "cudnn::graph::sdpa_flash_fprop")                                \
    SG_GRAPH_ROW(GRAPH_ATTENTION_BWD, "cudnn::graph::sdpa_flash_bprop")                            \
    SG_GRAPH_ROW(GRAPH_NORM_FWD, "cudnn::graph::norm_fw")                                          \
    SG_GRAPH_ROW(GRAPH_NORM_BWD, "cudnn::graph::norm_bw")                                          \
    SG_GRAPH_ROW(GRAPH_RESAMPLE, "cudnn::graph::resample")                                         \
    SG_GRAPH_ROW(GRAPH_REDUCE, "cudnn::graph::reduce")                                             \
    SG_GRAPH_ROW(GRAPH_POINTWISE, "cudnn::graph::pointwise")                                       \
    X(RNN_FWD, "cudnn::rnn::forward", sg_rnn_args, 16, sg_rnn_fwd_touches, sg_rnn_fwd_body,        \
      sg_rnn_fwd_cost)                                                                             \
    X(RNN_BWD_DATA, "cudnn::rnn::backward_data", sg_rnn_args, 16, sg_rnn_bwd_data_touches,         \
      sg_rnn_bwd_data_body, sg_rnn_bwd_data_cost)                                                  \
    X(RNN_BWD_WEIGHTS, "cudnn::rnn::backward_weights", sg_rnn_args, 16, sg_rnn_bwd_weights_touches,\
      sg_rnn_bwd_weights_body, sg_rnn_bwd_weights_cost)                                            \
    X(CTC, "cudnn::ctc::compute_loss", sg_ctc_args, 7, sg_ctc_touches, sg_ctc_body, sg_ctc_cost)   \
    X(GRID, "cudnn::spatial::affine_grid", sg_grid_args, 2, sg_grid_touches, sg_grid_body,         \
      sg_grid_cost)                                                                                \
    X(SAMPLE_FWD, "cudnn::spatial::sampler_fw", sg_sample_args, 5, sg_sample_touches,              \
      sg_sample_body, sg_sample_cost)                                                              \
    X(SAMPLE_BWD, "cudnn::spatial::sampler_bw", sg_sample_args, 5, sg_sample_touches,              \
      sg_sample_body, sg_sample_cost)

enum sg_kernel_id {
#define X(id, ...) SG_K_##id,
    SG_KERNELS
#undef X
        SG_K_COUNT
};

extern const struct simgpu_image sg_dnn_image;

#endif
