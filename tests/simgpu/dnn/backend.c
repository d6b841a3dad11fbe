/* The calls of the backend API: descriptors by attribute, execution. */
#include "backend.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

cudnnStatus_t sg_backend_refuse(cudnnStatus_t status, const char *fmt, ...)
{
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fprintf(stderr, "libcudnn (simulated): %s\n", text);
    return sg_dnn_refuse(status, "%s", text);
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t descriptorType,
                                           cudnnBackendDescriptor_t *descriptor)
{
    if (!descriptor) {
        return sg_dnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "%s: the result pointer is null",
                             __func__);
    }
    if (!sg_attr_rows((int)descriptorType)) {
        return sg_backend_refuse(CUDNN_STATUS_NOT_SUPPORTED,
                                 "%s: descriptor type %d is not supported", __func__,
                                 (int)descriptorType);
    }
    struct sg_descriptor *d = malloc(sizeof *d);
    struct sg_object *o = sg_object_new((int)descriptorType);
    if (!d || !o) {
        free(d);
        free(o);
        return sg_dnn_refuse(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED,
                             "%s: out of host memory", __func__);
    }
    d->o = o;
    *descriptor = d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    struct sg_descriptor *d = descriptor;
    if (!d) {
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    }
    sg_object_drop(d->o);
    free(d);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendInitialize(cudnnBackendDescriptor_t descriptor)
{
    struct sg_descriptor *d = descriptor;
    if (!d) {
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    }
    struct sg_object *o = sg_object_new(d->o->kind);
    if (!o) {
        return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    }
    sg_object_drop(d->o);
    d->o = o;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- attributes ---- */

/* Whether an attribute may be given as this type. */
static int type_fits(const struct sg_attr_row *row, int type)
{
    if (type == row->type) {
        return 1;
    }
    if (row->type == CUDNN_TYPE_FRACTION || (row->role >= 0 && row->flags & SG_ATTR_NUMBER)) {
        return type == CUDNN_TYPE_INT64;
    }
    return row->flags & SG_ATTR_NUMBER && (type == CUDNN_TYPE_FLOAT || type == CUDNN_TYPE_DOUBLE);
}

/* The row, or the status that says why there is none. */
static cudnnStatus_t find_row(const char *what, const struct sg_object *o, int name, int type,
                              const struct sg_attr_row **out)
{
    const struct sg_attr_row *row = sg_attr_row(o->kind, name);
    SG_NEED(row, "%s: %s has no attribute %d", what, sg_kind_text(o->kind), name);
    if (!type_fits(row, type)) {
        return sg_dnn_refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "%s: %s is not of type %d",
                             what, row->text, type);
    }
    *out = row;
    return CUDNN_STATUS_SUCCESS;
}

/* The objects behind `count` descriptors, each held; NULL: a null or an unfinished one among them.
 */
static struct sg_object **hold_all(int64_t count, const void *descriptors)
{
    struct sg_descriptor *const *d = descriptors;
    for (int64_t i = 0; i < count; i++) {
        if (!d[i] || !d[i]->o->finalized) {
            return NULL;
        }
    }
    struct sg_object **held = malloc((size_t)(count ? count : 1) * sizeof(struct sg_object *));
    for (int64_t i = 0; held && i < count; i++) {
        held[i] = sg_object_hold(d[i]->o);
    }
    return held;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t attributeName,
                                       cudnnBackendAttributeType_t attributeType,
                                       int64_t elementCount, const void *arrayOfElements)
{
    struct sg_descriptor *d = descriptor;
    const struct sg_attr_row *row;
    if (!d) {
        return sg_dnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "%s: the descriptor is null",
                             __func__);
    }
    SG_NEED(!d->o->finalized, "%s: the descriptor is finalized", __func__);
    SG_TRY(find_row(__func__, d->o, (int)attributeName, (int)attributeType, &row));
    SG_NEED(!(row->flags & SG_ATTR_MADE), "%s: %s is read only", __func__, row->text);
    SG_NEED(arrayOfElements || elementCount == 0, "%s: %s: the array is null", __func__, row->text);
    SG_NEED(elementCount >= (row->max ? 1 : 0) && (!row->max || elementCount <= row->max),
            "%s: %s: %lld elements", __func__, row->text, (long long)elementCount);
    if (attributeType == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        struct sg_object **held = hold_all(elementCount, arrayOfElements);
        if (!held) {
            return sg_dnn_refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                                 "%s: %s: a descriptor is null or not finalized", __func__,
                                 row->text);
        }
        int r = sg_attr_put(d->o, row->name, (int)attributeType, elementCount, held);
        for (int64_t i = 0; r < 0 && i < elementCount; i++) {
            sg_object_drop(held[i]);
        }
        free(held);
        return r < 0 ? CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED : CUDNN_STATUS_SUCCESS;
    }
    return sg_attr_put(d->o, row->name, (int)attributeType, elementCount, arrayOfElements) < 0
               ? CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED
               : CUDNN_STATUS_SUCCESS;
}

/* An answer: elements of ours, or objects. */
struct answer {
    int64_t count;
    const void *data;
    int64_t word; /* room for one */
    int32_t notes[8];
};

/* What Finalize made; nothing for what our engines do not have (knobs, layouts, intermediates). */
static void made(const struct sg_object *o, int name, struct answer *a)
{
    int64_t one = -1;
    switch (name) {
    case CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT:
        one = o->graph ? sg_engine_count(o->graph) : 0;
        break;
    case CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE:
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        one = (int64_t)o->graph->workspace_bytes;
        break;
    case CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED:
        one = 0;
        break;
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        a->count = sg_engine_numerical_notes(o->graph, a->notes);
        a->data = a->notes;
        return;
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
        a->count = sg_engine_behavior_notes(o->graph, a->notes);
        a->data = a->notes;
        return;
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        a->count = o->nresults;
        a->data = o->results;
        return;
    default:
        return;
    }
    a->count = 1;
    a->word = one; /* little endian: its lower half too, where 32 bits are asked for */
    a->data = &a->word;
}

/* What an attribute reads when it was not set. 1: it has a default. */
static int default_of(int name, struct answer *a)
{
    int64_t one;
    switch (name) {
    case CUDNN_ATTR_TENSOR_VECTOR_COUNT:
        one = 1;
        break;
    case CUDNN_ATTR_TENSOR_VECTORIZED_DIMENSION:
        one = -1;
        break;
    case CUDNN_ATTR_TENSOR_IS_VIRTUAL:
    case CUDNN_ATTR_TENSOR_IS_BY_VALUE:
    case CUDNN_ATTR_TENSOR_REORDERING_MODE:
        one = 0;
        break;
    default:
        return 0;
    }
    a->count = 1;
    a->word = one;
    a->data = &a->word;
    return 1;
}

/* Gives the objects to descriptors that the program made. */
static cudnnStatus_t give_objects(int64_t count, struct sg_object *const *objects, void *array)
{
    struct sg_descriptor **into = array;
    for (int64_t i = 0; i < count; i++) {
        SG_NEED(
            into[i] && into[i]->o->kind == objects[i]->kind,
            "cudnnBackendGetAttribute: descriptor %lld of the array is none to be filled with %s",
            (long long)i, sg_kind_text(objects[i]->kind));
        struct sg_object *old = into[i]->o;
        into[i]->o = sg_object_hold(objects[i]);
        sg_object_drop(old);
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t attributeName,
                                       cudnnBackendAttributeType_t attributeType,
                                       int64_t requestedElementCount, int64_t *elementCount,
                                       void *arrayOfElements)
{
    const struct sg_descriptor *d = descriptor;
    const struct sg_attr_row *row;
    if (!d) {
        return sg_dnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "%s: the descriptor is null",
                             __func__);
    }
    if (!d->o->finalized) {
        return sg_dnn_refuse(CUDNN_STATUS_NOT_INITIALIZED, "%s: the descriptor is not finalized",
                             __func__);
    }
    SG_TRY(find_row(__func__, d->o, (int)attributeName, (int)attributeType, &row));
    if (row->flags & SG_ATTR_HIDDEN) {
        return sg_dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "%s: %s cannot be read", __func__,
                             row->text);
    }
    struct answer a = {0};
    const struct sg_attr *set = sg_attr_find(d->o, row->name);
    if (row->flags & SG_ATTR_MADE) {
        made(d->o, row->name, &a);
    } else if (set) {
        SG_NEED(set->type == (int)attributeType, "%s: %s was set with type %d", __func__, row->text,
                set->type);
        a.count = set->count;
        a.data = set->data;
    } else if (!default_of(row->name, &a) && row->max == 1) {
        return sg_dnn_refuse(CUDNN_STATUS_BAD_PARAM, "%s: %s was not set", __func__, row->text);
    }
    int64_t n =
        arrayOfElements && requestedElementCount < a.count ? requestedElementCount : a.count;
    if (arrayOfElements && n > 0) {
        if (attributeType == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
            SG_TRY(give_objects(n, a.data, arrayOfElements));
        } else {
            memcpy(arrayOfElements, a.data, (size_t)n * sg_attr_type_bytes((int)attributeType));
        }
    }
    if (elementCount) {
        *elementCount = n;
    }
    return CUDNN_STATUS_SUCCESS;
}

/* ---- finalizing ---- */

static cudnnStatus_t variant_pack_check(const struct sg_object *o)
{
    const struct sg_attr *uids = sg_attr_find(o, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS),
                         *pointers = sg_attr_find(o, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    SG_NEED((uids ? uids->count : 0) == (pointers ? pointers->count : 0),
            "cudnnBackendFinalize: the pack has %lld identifiers and %lld pointers",
            (long long)(uids ? uids->count : 0), (long long)(pointers ? pointers->count : 0));
    return CUDNN_STATUS_SUCCESS;
}

/* What a configuration takes over from its engine. */
static cudnnStatus_t config_finish(struct sg_object *o)
{
    struct sg_object *engine = sg_attr_object(o, CUDNN_ATTR_ENGINECFG_ENGINE, 0);
    SG_NEED(engine->kind == CUDNN_BACKEND_ENGINE_DESCRIPTOR,
            "cudnnBackendFinalize: CUDNN_ATTR_ENGINECFG_ENGINE is no engine");
    o->graph = sg_graph_copy(engine->graph);
    return o->graph ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
}

static cudnnStatus_t finish(struct sg_object *o)
{
    for (const struct sg_attr_row *r = sg_attr_rows(o->kind); r && r->kind == o->kind; r++) {
        SG_NEED(!(r->flags & SG_ATTR_NEEDED) || sg_attr_find(o, r->name),
                "cudnnBackendFinalize: %s needs %s", sg_kind_text(o->kind), r->text);
    }
    switch (o->kind) {
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        return sg_operation_graph_finish(o);
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
        return sg_engine_finish(o);
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
        return config_finish(o);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        return sg_heuristics_finish(o);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        return sg_plan_finish(o);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
        return variant_pack_check(o);
    default:
        return sg_operation_check(o);
    }
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    struct sg_descriptor *d = descriptor;
    if (!d) {
        return sg_dnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "%s: the descriptor is null",
                             __func__);
    }
    SG_NEED(!d->o->finalized, "%s: the descriptor is finalized already", __func__);
    SG_TRY(finish(d->o));
    d->o->finalized = 1;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- execution ---- */

/* The pointer that the pack gives for a tensor. */
static cudnnStatus_t pointer_of(const struct sg_object *pack, int64_t uid, void **out)
{
    const struct sg_attr *uids = sg_attr_find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS),
                         *pointers = sg_attr_find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    for (int64_t i = 0; uids && i < uids->count; i++) {
        if (((const int64_t *)uids->data)[i] == uid) {
            *out = ((void *const *)pointers->data)[i];
            SG_NEED(*out, "cudnnBackendExecute: the pointer of tensor %lld is null",
                    (long long)uid);
            return CUDNN_STATUS_SUCCESS;
        }
    }
    return sg_dnn_refuse(CUDNN_STATUS_BAD_PARAM,
                         "cudnnBackendExecute: the variant pack has no tensor %lld",
                         (long long)uid);
}

static cudnnStatus_t words_of(const struct sg_graph *g, const struct sg_object *pack,
                              uint64_t words[SG_GRAPH_SLOTS])
{
    memset(words, 0, SG_GRAPH_SLOTS * sizeof *words);
    for (uint32_t i = 0; i < g->ntensors; i++) {
        const struct sg_gtensor *t = &g->tensors[i];
        void *p;
        if (t->slot < 0) {
            continue;
        }
        SG_TRY(pointer_of(pack, t->uid, &p));
        if (t->by_value) {
            memcpy(&words[t->slot], p, sg_dnn_type_bytes((cudnnDataType_t)t->type));
        } else {
            words[t->slot] = sg_dnn_addr(p);
        }
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t executionPlan,
                                  cudnnBackendDescriptor_t variantPack)
{
    const struct sg_descriptor *plan = executionPlan, *pack = variantPack;
    uint64_t words[SG_GRAPH_SLOTS];
    SG_NEED(handle && plan && pack, "%s: an argument is null", __func__);
    SG_NEED(plan->o->kind == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && plan->o->finalized &&
                pack->o->kind == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR && pack->o->finalized,
            "%s: the plan or the pack is none, or not finalized", __func__);
    const struct sg_graph *g = plan->o->graph;
    SG_TRY(words_of(g, pack->o, words));
    uint64_t workspace = (uint64_t)sg_attr_int(pack->o, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 0);
    SG_NEED(workspace || !g->workspace_bytes, "%s: the plan needs a workspace of %llu bytes",
            __func__, (unsigned long long)g->workspace_bytes);
    return sg_graph_launch(handle, plan->o->number, words, g->workspace_bytes ? workspace : 0);
}
