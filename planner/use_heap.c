#include "use_heap.h"

#include <stdlib.h>

#include "model.h"

static bool before(const struct vm_use_entry *a, const struct vm_use_entry *b)
{
    return a->key != b->key ? a->key > b->key : a->unit < b->unit;
}

int vm_use_heap_push(struct vm_use_heap *h, uint64_t key, uint32_t unit, uint32_t stamp)
{
    if (h->n == h->cap) {
        size_t n = h->cap ? 2 * h->cap : 256;
        struct vm_use_entry *p = realloc(h->e, n * sizeof *p);
        if (!p)
            return VM_ENOMEM;
        h->e = p;
        h->cap = n;
    }
    struct vm_use_entry e = {key, unit, stamp};
    size_t i = h->n++;
    while (i && before(&e, &h->e[(i - 1) / 2])) {
        h->e[i] = h->e[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    h->e[i] = e;
    return VM_OK;
}

/* Puts e at i or below, where it belongs. */
static void sink(struct vm_use_heap *h, size_t i, struct vm_use_entry e)
{
    for (;;) {
        size_t c = 2 * i + 1;
        if (c >= h->n)
            break;
        if (c + 1 < h->n && before(&h->e[c + 1], &h->e[c]))
            c++;
        if (!before(&h->e[c], &e))
            break;
        h->e[i] = h->e[c];
        i = c;
    }
    h->e[i] = e;
}

bool vm_use_heap_pop(struct vm_use_heap *h, struct vm_use_entry *out)
{
    if (!h->n)
        return false;
    *out = h->e[0];
    struct vm_use_entry e = h->e[--h->n];
    if (h->n)
        sink(h, 0, e);
    return true;
}

void vm_use_heap_filter(struct vm_use_heap *h, bool (*keep)(void *arg, const struct vm_use_entry *e),
                        void *arg)
{
    size_t n = 0;

    for (size_t i = 0; i < h->n; i++)
        if (keep(arg, &h->e[i]))
            h->e[n++] = h->e[i];
    h->n = n;
    for (size_t i = n / 2; i-- > 0;)
        sink(h, i, h->e[i]);
}

void vm_use_heap_fini(struct vm_use_heap *h)
{
    free(h->e);
    h->e = NULL;
    h->n = h->cap = 0;
}
