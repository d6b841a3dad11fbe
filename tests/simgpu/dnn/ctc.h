/* ctc.h: connectionist temporal classification (Graves et al., ICML 2006): the cost of labels under
 * a network's outputs, class 0 being the blank, and its gradient. Sums in double, in logarithms. */
#ifndef SG_CTC_H
#define SG_CTC_H

#include "tensor.h"

struct sg_ctc_args {
    uint64_t probs, labels, label_lengths, input_lengths, costs, gradients, workspace;
    int32_t steps, batch, classes;
    int32_t probs_stride[3], gradients_stride[3]; /* time, batch, class */
    int32_t softmax;                              /* 1: probs are inputs of a softmax */
    int32_t label_room; /* labels of the whole batch, at most; what lies behind `labels` */
    uint64_t workspace_bytes;
};

void sg_ctc_touches(const struct simgpu_launch *l, simgpu_touch_fn touch, void *ctx);
void sg_ctc_body(const struct simgpu_launch *l);
void sg_ctc_cost(const struct simgpu_launch *l, struct simgpu_work *work);

#endif
