/* The table of attributes, and objects with their attributes. */
#include "backend.h"

#include <stdlib.h>
#include <string.h>

static const struct sg_attr_row rows[] = {
#define KIND(kind, text)
#define ATTR(kind, name, type, max, flags) {kind, name, type, -1, max, flags, #name},
#define TENSOR(kind, name, role, flags)                                                            \
    {kind, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, role, 1, flags, #name},
#include "backend.def"
#undef KIND
#undef ATTR
#undef TENSOR
    {.kind = -1},
};

const char *sg_kind_text(int kind)
{
    switch (kind) {
#define KIND(k, text)                                                                              \
    case k:                                                                                        \
        return text;
#define ATTR(kind, name, type, max, flags)
#define TENSOR(kind, name, role, flags)
#include "backend.def"
#undef KIND
#undef ATTR
#undef TENSOR
    default:
        return "an unknown descriptor";
    }
}

const struct sg_attr_row *sg_attr_rows(int kind)
{
    for (const struct sg_attr_row *r = rows; r->kind >= 0; r++) {
        if (r->kind == kind) {
            return r;
        }
    }
    return NULL;
}

const struct sg_attr_row *sg_attr_row(int kind, int name)
{
    const struct sg_attr_row *r = sg_attr_rows(kind);
    for (; r && r->kind == kind; r++) {
        if (r->name == name) {
            return r;
        }
    }
    return NULL;
}

size_t sg_attr_type_bytes(int type)
{
    switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
        return 1;
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    case CUDNN_TYPE_FRACTION:
        return sizeof(cudnnFraction_t);
    default: /* enumerations, 32-bit integers, single precision */
        return 4;
    }
}

/* ---- objects ---- */

struct sg_object *sg_object_new(int kind)
{
    struct sg_object *o = calloc(1, sizeof *o);
    if (o) {
        o->refs = 1;
        o->kind = kind;
        o->number = -1;
    }
    return o;
}

struct sg_object *sg_object_hold(struct sg_object *o)
{
    __atomic_add_fetch(&o->refs, 1, __ATOMIC_RELAXED);
    return o;
}

static void clear(struct sg_attr *a)
{
    if (a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        struct sg_object **child = a->data;
        for (int64_t i = 0; i < a->count; i++) {
            sg_object_drop(child[i]);
        }
    }
    free(a->data);
}

void sg_object_drop(struct sg_object *o)
{
    if (!o || __atomic_sub_fetch(&o->refs, 1, __ATOMIC_ACQ_REL) > 0) {
        return;
    }
    for (int i = 0; i < o->nattrs; i++) {
        clear(&o->attrs[i]);
    }
    for (int i = 0; i < o->nresults; i++) {
        sg_object_drop(o->results[i]);
    }
    free(o->results);
    free(o->attrs);
    free(o->why);
    sg_graph_free(o->graph);
    free(o);
}

const struct sg_attr *sg_attr_find(const struct sg_object *o, int name)
{
    for (int i = 0; i < o->nattrs; i++) {
        if (o->attrs[i].name == name) {
            return &o->attrs[i];
        }
    }
    return NULL;
}

int64_t sg_attr_int(const struct sg_object *o, int name, int64_t otherwise)
{
    const struct sg_attr *a = sg_attr_find(o, name);
    if (!a || a->count < 1) {
        return otherwise;
    }
    switch (sg_attr_type_bytes(a->type)) {
    case 1:
        return *(const int8_t *)a->data;
    case 4:
        return *(const int32_t *)a->data;
    default:
        return *(const int64_t *)a->data;
    }
}

double sg_attr_number(const struct sg_object *o, int name, double otherwise)
{
    const struct sg_attr *a = sg_attr_find(o, name);
    if (!a || a->count < 1) {
        return otherwise;
    }
    return a->type == CUDNN_TYPE_DOUBLE ? *(const double *)a->data
                                        : (double)*(const float *)a->data;
}

struct sg_object *sg_attr_object(const struct sg_object *o, int name, int64_t at)
{
    const struct sg_attr *a = sg_attr_find(o, name);
    if (!a || a->type != CUDNN_TYPE_BACKEND_DESCRIPTOR || at >= a->count) {
        return NULL;
    }
    return ((struct sg_object **)a->data)[at];
}

int sg_attr_put(struct sg_object *o, int name, int type, int64_t count, const void *data)
{
    size_t bytes = (size_t)count * sg_attr_type_bytes(type);
    struct sg_attr new = {name, type, count, malloc(bytes ? bytes : 1)};
    struct sg_attr *at = (struct sg_attr *)sg_attr_find(o, name);
    if (new.data && !at) {
        struct sg_attr *more = realloc(o->attrs, (size_t)(o->nattrs + 1) * sizeof *more);
        if (more) {
            o->attrs = more;
            at = &more[o->nattrs++];
            *at = (struct sg_attr){0};
        }
    }
    if (!new.data || !at) {
        free(new.data);
        return -1;
    }
    if (bytes) {
        memcpy(new.data, data, bytes);
    }
    clear(at);
    *at = new;
    return 0;
}
