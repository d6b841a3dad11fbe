#include "sim_queue.h"

#include <stdlib.h>
#include <string.h>

#include "model.h"

/* Room for one more behind *tail: by moving what waits to the front, or by growing. */
static int make_room(void **items, size_t size, size_t *head, size_t *tail, size_t *cap)
{
    char *p = *items;

    if (*tail < *cap)
        return VM_OK;
    if (*head > *cap / 2) {
        memmove(p, p + *head * size, (*tail - *head) * size);
        *tail -= *head;
        *head = 0;
        return VM_OK;
    }
    size_t n = *cap ? 2 * *cap : 64;
    void *q = realloc(p, n * size);
    if (!q)
        return VM_ENOMEM;
    *items = q;
    *cap = n;
    return VM_OK;
}

int vm_sim_requests_push(struct vm_sim_requests *q, struct vm_sim_request r)
{
    void *p = q->r;
    int rc = make_room(&p, sizeof r, &q->head, &q->tail, &q->cap);

    q->r = p;
    if (!rc)
        q->r[q->tail++] = r;
    return rc;
}

int vm_sim_dones_push(struct vm_sim_dones *q, struct vm_sim_done d)
{
    void *p = q->d;
    int rc = make_room(&p, sizeof d, &q->head, &q->tail, &q->cap);

    q->d = p;
    if (!rc)
        q->d[q->tail++] = d;
    return rc;
}
