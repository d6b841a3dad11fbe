/* Who lies where on a page that several blocks share. Small ones come in thousands and large ones end in
 * the middle of a page, so that neither putting one down nor finding one may cost by its size: only where
 * each begins is noted, in a bitmap with a bit of summary for each word.
 *
 * Units are granules from the page's beginning. No locks, no CUDA. */
#ifndef VM_SHIM_SHARE_H
#define VM_SHIM_SHARE_H

#include <stddef.h>
#include <stdint.h>

struct vm_share {
    uint64_t *begins; /* a bit a granule, then one for each of those words */
    uint32_t *block;  /* means something where the bit is set              */
};

/* An empty one for pages of so many granules. VM_ENOMEM: nothing was made. */
int vm_share_new(struct vm_share *s, size_t granules);

/* `granules`: as it was made for. */
void vm_share_put(struct vm_share *s, size_t granules, size_t at, uint32_t block);
void vm_share_remove(struct vm_share *s, size_t granules, size_t at);

/* The block that begins at `at` or is the last to begin before it, VM_NONE: none does. Whether it
 * reaches as far as `at` only its size tells. */
uint32_t vm_share_find(const struct vm_share *s, size_t granules, size_t at);

#endif
