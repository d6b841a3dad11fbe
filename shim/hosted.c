#include "hosted.h"

#include "block.h"
#include "driver.h"
#include "host_pool.h"

static bool map_slot(struct vm_device *d, uint64_t page)
{
    struct vm_page *pg = &d->pages[page];
    CUdeviceptr at = vm_page_addr(d, page);
    CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d->ordinal},
                            .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (vm_drv.p_cuMemMap(at, d->page_bytes, 0, vm_host_slot_handle(d, pg->host), 0) !=
        CUDA_SUCCESS)
        return false;
    if (vm_drv.p_cuMemSetAccess(at, d->page_bytes, &desc, 1) != CUDA_SUCCESS) {
        vm_drv.p_cuMemUnmap(at, d->page_bytes);
        return false;
    }
    pg->flags |= VM_PGF_HOSTED;
    return true;
}

void vm_host_page(struct vm_device *d, uint64_t page)
{
    if (d->host.numa && d->pages[page].host != VM_NO && !map_slot(d, page))
        d->failed_moves++;
}

void vm_unhost_page(struct vm_device *d, uint64_t page)
{
    struct vm_page *pg = &d->pages[page];
    if (!(pg->flags & VM_PGF_HOSTED))
        return;
    if (vm_drv.p_cuMemUnmap(vm_page_addr(d, page), d->page_bytes) != CUDA_SUCCESS)
        d->failed_moves++;
    pg->flags &= (uint8_t)~VM_PGF_HOSTED;
}

/* A page without contents gets a slot to be written in. */
static bool host_empty(struct vm_device *d, uint64_t page)
{
    struct vm_page *pg = &d->pages[page];
    if (pg->flags & VM_PGF_LOST)
        return false;
    if (pg->host == VM_NO && vm_host_slot_take(d, &pg->host) != 0) {
        pg->host = VM_NO;
        return false;
    }
    if (!map_slot(d, page))
        return false;
    vm_page_set_state(d, page, VM_PG_AWAY);
    return true;
}

bool vm_host_rest(struct vm_device *d, const struct vm_op *op)
{
    if (!d->host.numa)
        return false;
    for (unsigned i = 0; i < op->nacc; i++) {
        const struct vm_block *b = &d->blocks[op->acc[i].block];
        for (uint64_t page = b->first; page <= b->last; page++) {
            struct vm_page *pg = &d->pages[page];
            bool ok = pg->state == VM_PG_RESIDENT || (pg->flags & VM_PGF_HOSTED) ||
                      (pg->state == VM_PG_EMPTY && host_empty(d, page)) ||
                      (pg->state == VM_PG_AWAY && map_slot(d, page));
            if (!ok)
                return false;
        }
    }
    return true;
}
