#include "chunk_pool.h"

#include <stdlib.h>

#include "driver.h"
#include "pager.h"

/* Maps chunk i at its alias, for good. */
static CUresult map_alias(struct vm_device *d, uint32_t i)
{
    struct vm_chunk *c = &d->chunks[i];
    CUdeviceptr at = d->alias_base + (uint64_t)i * d->page_bytes;
    CUresult r = vm_drv.p_cuMemMap(at, d->page_bytes, 0, c->handle, 0);
    if (r != CUDA_SUCCESS)
        return r;
    CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d->ordinal},
                            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    r = vm_drv.p_cuMemSetAccess(at, d->page_bytes, &desc, 1);
    if (r != CUDA_SUCCESS)
        vm_drv.p_cuMemUnmap(at, d->page_bytes);
    else
        c->alias = at;
    return r;
}

static int room_for_one(struct vm_device *d)
{
    if (d->nholes > 0 || d->nchunks < d->cap_chunks)
        return 0;
    uint32_t cap = d->cap_chunks ? d->cap_chunks * 2 : 256;
    struct vm_chunk *c = realloc(d->chunks, cap * sizeof *c);
    if (!c)
        return VM_NOTFOUND;
    d->chunks = c;
    uint32_t *f = realloc(d->free_chunks, cap * sizeof *f);
    if (!f)
        return VM_NOTFOUND;
    d->free_chunks = f;
    f = realloc(d->holes, cap * sizeof *f);
    if (!f)
        return VM_NOTFOUND;
    d->holes = f;
    d->cap_chunks = cap;
    return 0;
}

/* Is memory to be had that the program has given up? */
static bool rather_wait(const struct vm_device *d)
{
    return d->thrifty && !d->may_grow && (d->dead_pages > 0 || vm_pager_leaving(d) > 0);
}

static int grow(struct vm_device *d)
{
    if (d->live_chunks >= d->max_chunks || rather_wait(d) || room_for_one(d) != 0)
        return VM_NOTFOUND;
    CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d->ordinal}};
    uint32_t i = d->nholes > 0 ? d->holes[d->nholes - 1] : d->nchunks;
    struct vm_chunk *c = &d->chunks[i];
    *c = (struct vm_chunk){.page = UINT64_MAX};
    CUresult r = vm_drv.p_cuMemCreate(&c->handle, d->page_bytes, &prop, 0);
    if (r == CUDA_SUCCESS) {
        r = map_alias(d, i);
        if (r != CUDA_SUCCESS)
            vm_drv.p_cuMemRelease(c->handle);
    }
    if (r != CUDA_SUCCESS) {
        /* Somebody else has the memory: what we hold is what there is. */
        if (r == CUDA_ERROR_OUT_OF_MEMORY)
            d->max_chunks = d->live_chunks;
        else
            d->failed_moves++;
        return VM_NOTFOUND;
    }
    if (d->nholes > 0)
        d->nholes--;
    else
        d->nchunks++;
    d->live_chunks++;
    d->free_chunks[d->nfree_chunks++] = i;
    return 0;
}

int vm_chunk_take(struct vm_device *d, uint32_t *chunk)
{
    if (d->nfree_chunks == 0 && grow(d) != 0)
        return VM_NOTFOUND;
    *chunk = d->free_chunks[--d->nfree_chunks];
    d->mapped_chunks++;
    if (d->mapped_chunks > d->peak_chunks)
        d->peak_chunks = d->mapped_chunks;
    return 0;
}

void vm_chunk_give(struct vm_device *d, uint32_t chunk)
{
    d->chunks[chunk].page = UINT64_MAX;
    d->free_chunks[d->nfree_chunks++] = chunk;
    d->mapped_chunks--;
}

uint64_t vm_chunks_available(const struct vm_device *d)
{
    uint64_t more = d->max_chunks > d->live_chunks ? d->max_chunks - d->live_chunks : 0;
    return d->nfree_chunks + (rather_wait(d) ? 0 : more);
}

uint32_t vm_chunks_release(struct vm_device *d, uint32_t n)
{
    uint32_t done = 0;
    while (done < n && d->nfree_chunks > 0) {
        uint32_t i = d->free_chunks[d->nfree_chunks - 1];
        if (vm_drv.p_cuMemUnmap(d->chunks[i].alias, d->page_bytes) != CUDA_SUCCESS)
            break;
        vm_drv.p_cuMemRelease(d->chunks[i].handle);
        d->nfree_chunks--;
        d->live_chunks--;
        d->holes[d->nholes++] = i;
        done++;
    }
    return done;
}
