/* The set of live handles. A driver must not follow a handle that was destroyed, so every handle a
 * program passes is looked up here first. Addresses of destroyed objects may be reused. */
#include "sg.h"

#include <stdlib.h>
#include <uthash.h>

struct handle {
    struct {
        const void *p;
        uint64_t type;
    } key;
    UT_hash_handle hh;
};
static struct handle *handles;

static struct handle *find(enum sg_handle_type t, const void *p)
{
    struct handle probe = {.key = {p, (uint64_t)t}}, *h;
    HASH_FIND(hh, handles, &probe.key, sizeof probe.key, h);
    return h;
}

void sg_handle_add(enum sg_handle_type t, const void *p)
{
    struct handle *h = calloc(1, sizeof *h);
    if (!h)
        return;
    h->key.p = p;
    h->key.type = (uint64_t)t;
    HASH_ADD(hh, handles, key, sizeof h->key, h);
}

bool sg_handle_is(enum sg_handle_type t, const void *p)
{
    return p && find(t, p) != NULL;
}

void sg_handle_drop(enum sg_handle_type t, const void *p)
{
    struct handle *h = find(t, p);
    if (!h)
        return;
    HASH_DEL(handles, h);
    free(h);
}
