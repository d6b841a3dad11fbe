/* User objects: host resources whose life graphs may share. */
#include "graph.h"

#include <stdlib.h>

struct sg_user_object {
    CUhostFn destroy;
    void *data;
    unsigned refs;
};

static CUresult object_release(struct sg_user_object *o, unsigned count)
{
    SG_CHECK(count && count <= o->refs, CUDA_ERROR_INVALID_VALUE);
    o->refs -= count;
    if (o->refs)
        return CUDA_SUCCESS;
    sg_handle_drop(SG_H_USER, o);
    bool was = sg_in_callback;
    sg_in_callback = true; /* the destructor must not call the driver */
    o->destroy(o->data);
    sg_in_callback = was;
    free(o);
    return CUDA_SUCCESS;
}

static struct sg_user_object *object_of(CUuserObject h)
{
    return sg_handle_is(SG_H_USER, h) ? (struct sg_user_object *)h : NULL;
}

void sg_users_release(struct sg_graph *g)
{
    while (g->users) {
        struct sg_user *u = g->users;
        g->users = u->next;
        object_release(u->object, u->count);
        free(u);
    }
}

SG_CALL(cuUserObjectCreate,
        (CUuserObject * out, void *data, CUhostFn destroy, unsigned refs, unsigned flags),
        (out, data, destroy, refs, flags))
{
    SG_CHECK(out && destroy && refs && flags == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC,
             CUDA_ERROR_INVALID_VALUE);
    struct sg_user_object *o = calloc(1, sizeof *o);
    SG_CHECK(o, CUDA_ERROR_OUT_OF_MEMORY);
    *o = (struct sg_user_object){destroy, data, refs};
    sg_handle_add(SG_H_USER, o);
    *out = (CUuserObject)o;
    return CUDA_SUCCESS;
}

SG_CALL(cuUserObjectRetain, (CUuserObject h, unsigned count), (h, count))
{
    struct sg_user_object *o = object_of(h);
    SG_CHECK(o && count, CUDA_ERROR_INVALID_VALUE);
    o->refs += count;
    return CUDA_SUCCESS;
}

SG_CALL(cuUserObjectRelease, (CUuserObject h, unsigned count), (h, count))
{
    struct sg_user_object *o = object_of(h);
    SG_CHECK(o, CUDA_ERROR_INVALID_VALUE);
    return object_release(o, count);
}

SG_CALL(cuGraphRetainUserObject, (CUgraph hg, CUuserObject h, unsigned count, unsigned flags),
        (hg, h, count, flags))
{
    struct sg_graph *g = sg_graph_of(hg);
    struct sg_user_object *o = object_of(h);
    SG_CHECK(g && o && count && !(flags & ~1u), CUDA_ERROR_INVALID_VALUE);
    struct sg_user *u = calloc(1, sizeof *u);
    SG_CHECK(u, CUDA_ERROR_OUT_OF_MEMORY);
    *u = (struct sg_user){o, count, g->users};
    g->users = u;
    if (!(flags & CU_GRAPH_USER_OBJECT_MOVE))
        o->refs += count;
    return CUDA_SUCCESS;
}

SG_CALL(cuGraphReleaseUserObject, (CUgraph hg, CUuserObject h, unsigned count), (hg, h, count))
{
    struct sg_graph *g = sg_graph_of(hg);
    struct sg_user_object *o = object_of(h);
    SG_CHECK(g && o && count, CUDA_ERROR_INVALID_VALUE);
    for (struct sg_user **at = &g->users; *at; at = &(*at)->next) {
        struct sg_user *u = *at;
        if (u->object != o || u->count < count)
            continue;
        u->count -= count;
        if (!u->count) {
            *at = u->next;
            free(u);
        }
        return object_release(o, count);
    }
    return CUDA_ERROR_INVALID_VALUE;
}
