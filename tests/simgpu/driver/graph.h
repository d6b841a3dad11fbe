/* graph.h: graphs as the driver keeps them. A node holds the operation that a launch clones. */
#ifndef SG_GRAPH_H
#define SG_GRAPH_H

#include "sg.h"

struct sg_graph_memory { /* of an allocation node; shared by the graph and what was made from it */
    struct sg_range *range;
    unsigned refs;
};

struct sg_gnode {
    struct sg_graph *graph;
    CUgraphNodeType type;
    struct sg_op *op;       /* kernel, copy, memset, host: the template; owned */
    struct sg_event *event; /* event nodes */
    struct sg_graph *child; /* child graph nodes; owned */
    struct sg_graph_memory *memory;
    CUdeviceptr freed; /* memory free nodes */
    struct sg_gnode **deps;
    unsigned ndeps;
    const struct sg_gnode *origin; /* what it was cloned from */
    unsigned index;                /* in its graph, or in launch order in an executable one */
    unsigned lane, mark;           /* lane: race check, executable graphs */
    bool lane_owner;
    bool disabled;
    void **params; /* kernel nodes: pointers into op's parameter block */
};

struct sg_user { /* a user object that a graph holds */
    struct sg_user_object *object;
    unsigned count;
    struct sg_user *next;
};

struct sg_graph {
    struct sg_gnode **node;
    unsigned n, cap;
    uint64_t id;
    bool owned; /* a child: goes with its node */
    struct sg_user *users;
};

struct sg_exec {
    struct sg_graph *graph; /* flat, in launch order */
    struct sg_op *last;     /* the end of its last launch */
    cuuint64_t flags;
};

struct sg_graph *sg_graph_new(void);
void sg_users_release(struct sg_graph *g);
void sg_graph_free(struct sg_graph *g);
struct sg_graph *sg_graph_of(CUgraph g); /* NULL: no such graph */
struct sg_gnode *sg_node_of(CUgraphNode n);
/* Adds a node; op is taken, also on failure. deps must be nodes of g. */
CUresult sg_node_add(struct sg_graph *g, CUgraphNodeType type, struct sg_op *op,
                     struct sg_gnode *const *deps, unsigned ndeps, struct sg_gnode **out);
CUresult sg_node_depends(struct sg_gnode *n, struct sg_gnode *dep);
CUresult sg_graph_clone(const struct sg_graph *g, struct sg_graph **out);
struct sg_gnode *sg_graph_image(const struct sg_graph *clone, const struct sg_gnode *origin);
bool sg_node_reaches(struct sg_gnode *from, const struct sg_gnode *to); /* along deps */
struct sg_op *sg_op_clone(const struct sg_op *op);
CUresult sg_graph_alloc_node(struct sg_graph *g, size_t bytes, struct sg_gnode *const *deps,
                             unsigned ndeps, struct sg_gnode **out);
/* Puts new parameters into a node of the same type; op is taken. */
CUresult sg_node_set_op(struct sg_gnode *n, struct sg_op *op);

#endif
