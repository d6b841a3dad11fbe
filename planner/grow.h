/* Growing arrays by doubling. */
#ifndef VM_PLANNER_GROW_H
#define VM_PLANNER_GROW_H

#include <stddef.h>
#include <stdlib.h>

#include "model.h"

/* Makes room for `need` elements in the array *items; *cap is its capacity. 0 or VM_ENOMEM, with
 * the array as it was. */
static inline int vm_grow(void **items, size_t *cap, size_t need, size_t size)
{
    if (need <= *cap)
        return VM_OK;
    size_t c = *cap < 16 ? 16 : *cap;
    while (c < need) {
        if (c > SIZE_MAX / 2)
            return VM_ENOMEM;
        c *= 2;
    }
    if (c > SIZE_MAX / size)
        return VM_ENOMEM;
    void *p = realloc(*items, c * size);
    if (!p)
        return VM_ENOMEM;
    *items = p;
    *cap = c;
    return VM_OK;
}

/* VM_GROW(array, cap, need): as above with the element size of `array`. The pointer travels through
 * a void * so that no two pointer types alias one object. */
#define VM_GROW(array, cap, need)                                                                  \
    __extension__({                                                                                \
        void *vm_grow_p_ = (array);                                                                \
        int vm_grow_rc_ = vm_grow(&vm_grow_p_, &(cap), (need), sizeof *(array));                   \
        (array) = vm_grow_p_;                                                                      \
        vm_grow_rc_;                                                                               \
    })

#endif
