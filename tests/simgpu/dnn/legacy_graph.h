/* legacy_graph.h: legacy calls on half precision, as graphs of one node. */
#ifndef SG_LEGACY_GRAPH_H
#define SG_LEGACY_GRAPH_H

#include "dnn.h"

/* 1 where the call goes this way: the elements are binary16 or bfloat16. */
int sg_half_call(cudnnTensorDescriptor_t d);

/* Batch normalisation without activation. alpha 1 and beta 0 only. */
struct sg_half_bn {
    cudnnTensorDescriptor_t x, y, param;
    const void *x_data, *scale, *bias, *mean, *var; /* mean, var: estimated; or saved, backwards */
    const void *dy_data;
    void *y_data, *running_mean, *running_var, *save_mean, *save_invvar; /* y_data: or dx */
    void *dscale, *dbias;
    double epsilon, factor;
};
cudnnStatus_t sg_half_bn_train(const char *what, cudnnHandle_t h, const struct sg_half_bn *a);
cudnnStatus_t sg_half_bn_infer(const char *what, cudnnHandle_t h, const struct sg_half_bn *a);
cudnnStatus_t sg_half_bn_backward(const char *what, cudnnHandle_t h, const struct sg_half_bn *a);

#endif
