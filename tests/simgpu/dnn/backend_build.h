/* backend_build.h: from descriptors of operations to the nodes of a graph. */
#ifndef SG_BACKEND_BUILD_H
#define SG_BACKEND_BUILD_H

#include "backend.h"

struct sg_build {
    struct sg_graph *g;
    char why[160]; /* what is not computed; empty while all is */
    int no_memory;
    int64_t next_uid; /* of tensors of our own: negative, descending */
};

/* Keeps the first reason; returns -1. */
__attribute__((format(printf, 2, 3))) int sg_build_refuse(struct sg_build *b, const char *fmt, ...);
/* The tensor of a tensor descriptor; -1: refused, or none where o is NULL. */
int sg_build_tensor(struct sg_build *b, const struct sg_object *o);
/* A virtual single-precision tensor; -1: out of memory. */
int sg_build_virtual(struct sg_build *b, int ndims, const int64_t *dim);
int sg_build_add(struct sg_build *b, const struct sg_gnode *n);
/* Adds the nodes of an operation. 0, or -1 (refused). */
int sg_build_operation(struct sg_build *b, const struct sg_object *o);
/* Attention as its primitive operations. */
int sg_build_attention(struct sg_build *b, const struct sg_object *o);

#endif
