/* backend.h: cuDNN's backend API: descriptors with attributes, and what Finalize makes of them.
 *
 * A cudnnBackendDescriptor_t is a struct sg_descriptor, which holds one reference to an object. A
 * finalized object never changes, so that descriptors that a program made for an answer
 * (cudnnBackendGetAttribute) share the answering object. Statuses are those that cuDNN 9.26 gave
 * for the same calls; what it documents otherwise is the header's.
 *
 * Thread-safety: as cuDNN's; finalized objects may be used by several threads.
 */
#ifndef SG_BACKEND_H
#define SG_BACKEND_H

#include "backend_new.h"
#include "dnn.h"
#include "graph.h"

/* What a row of backend.def says of an attribute. */
enum {
    SG_ATTR_NEEDED = 1,  /* Finalize fails without it */
    SG_ATTR_MADE = 2,    /* answered by us, never set */
    SG_ATTR_HIDDEN = 4,  /* never read back: CUDNN_STATUS_NOT_SUPPORTED */
    SG_ATTR_NUMBER = 8,  /* float or double, whatever the row says */
    SG_ATTR_REFUSED = 16 /* a graph with it is not computed */
};

struct sg_attr_row {
    int16_t kind, name, type, role; /* role: of a tensor of an operation, else -1 */
    int16_t max;                    /* elements; 0: any number */
    int16_t flags;
    const char *text;
};

struct sg_object;

struct sg_attr {
    int32_t name, type;
    int64_t count;
    void *data; /* elements; descriptors: struct sg_object *, each one reference */
};

struct sg_object {
    int refs;
    int32_t kind; /* cudnnBackendDescriptorType_t */
    int finalized;
    int nattrs;
    struct sg_attr *attrs;
    /* made by Finalize */
    struct sg_graph *graph; /* operation graphs; engines and all that follows: with its engine */
    char *why;              /* operation graphs: why no engine computes it; NULL if one does */
    struct sg_object **results; /* heuristics */
    int nresults;
    int64_t number; /* plans: of the kept graph */
};

struct sg_descriptor {
    struct sg_object *o;
};

struct sg_object *sg_object_new(int kind);
struct sg_object *sg_object_hold(struct sg_object *o);
void sg_object_drop(struct sg_object *o);

/* The row of an attribute, NULL where the kind has no such attribute. */
const struct sg_attr_row *sg_attr_row(int kind, int name);
/* The first row of a kind (rows of one kind are neighbours, the last one has kind -1); NULL where
 * the kind is not supported. */
const struct sg_attr_row *sg_attr_rows(int kind);
/* "CUDNN_BACKEND_..." */
const char *sg_kind_text(int kind);
size_t sg_attr_type_bytes(int type);

const struct sg_attr *sg_attr_find(const struct sg_object *o, int name);
int64_t sg_attr_int(const struct sg_object *o, int name, int64_t otherwise);
double sg_attr_number(const struct sg_object *o, int name, double otherwise);
/* The child, or NULL. */
struct sg_object *sg_attr_object(const struct sg_object *o, int name, int64_t at);
/* Sets an attribute of an object of our own; takes no reference. 0 or -1 (out of memory). */
int sg_attr_put(struct sg_object *o, int name, int type, int64_t count, const void *data);

/* Shapes of an operation, when it is finalized. */
cudnnStatus_t sg_operation_check(const struct sg_object *o);
/* Builds o->graph, or says in o->why what is not computed. */
cudnnStatus_t sg_operation_graph_finish(struct sg_object *o);

/* Engines of a graph: their number; g with that engine and its workspace, NULL where the engine
 * does not support it. */
int sg_engine_count(const struct sg_graph *g);
struct sg_graph *sg_engine_graph(const struct sg_graph *g, int index);
/* Notes (cudnnBackendNumericalNote_t, cudnnBackendBehaviorNote_t) into out, at most 8; their
 * number. */
int sg_engine_numerical_notes(const struct sg_graph *g, int32_t out[8]);
int sg_engine_behavior_notes(const struct sg_graph *g, int32_t out[8]);
cudnnStatus_t sg_engine_finish(struct sg_object *o);
cudnnStatus_t sg_heuristics_finish(struct sg_object *o);
cudnnStatus_t sg_plan_finish(struct sg_object *o);

/* What is computed nowhere: its name on stderr, the reason kept, NOT_SUPPORTED's kind returned. */
__attribute__((format(printf, 2, 3))) cudnnStatus_t sg_backend_refuse(cudnnStatus_t status,
                                                                      const char *fmt, ...);

/* Launches a kept graph. `words` are its slots'. */
cudnnStatus_t sg_graph_launch(cudnnHandle_t h, int64_t number, const uint64_t words[SG_GRAPH_SLOTS],
                              uint64_t workspace);

#endif
