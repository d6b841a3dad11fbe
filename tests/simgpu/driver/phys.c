/* Physical memory: the budget of each card and, in functional mode, the pages themselves. They are
 * extents of one memory file, so that several mappings of one handle really share their bytes. File
 * space is never reused: a freed extent is punched out, and a stale mapping reads zeroes at most.
 */
#include "sg.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
/* Fresh memory holds this pattern: a NaN as float, far from any count or address as an integer. */
#define POISON UINT32_C(0x7FEDBAD1)

static int64_t file_end;

int sg_file(void)
{
    if (sg.memfile < 0)
        sg.memfile = memfd_create("simgpu", MFD_CLOEXEC);
    return sg.memfile;
}

/* Small allocations share a granule on the card, large ones take whole granules. */
size_t sg_phys_round(size_t bytes)
{
    size_t unit = bytes < sg.cfg.granularity / 2 ? 512 : sg.cfg.granularity;
    return (bytes + unit - 1) / unit * unit;
}

static CUresult back(struct sg_phys *p)
{
    size_t n = (p->bytes + PAGE - 1) & ~(PAGE - 1);
    if (sg_file() < 0 || ftruncate(sg.memfile, file_end + (int64_t)n) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint32_t *w = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, sg.memfile, file_end);
    if (w == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < n / sizeof *w; i++)
        w[i] = POISON;
    munmap(w, n);
    p->file_at = file_end;
    file_end += (int64_t)n;
    return CUDA_SUCCESS;
}

static CUresult take(int device, size_t bytes, bool bare, struct sg_phys **out)
{
    struct sg_device *d = device >= 0 ? &sg.dev[device] : NULL;
    if (d) {
        size_t taken = d->reserved_ctx + d->used + sg_machine_others(device);
        if (taken > sg.cfg.preset.memory || bytes > sg.cfg.preset.memory - taken)
            return CUDA_ERROR_OUT_OF_MEMORY;
    } else if (bytes > sg_fault_host_limit() || sg.host_used > sg_fault_host_limit() - bytes) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct sg_phys *p = calloc(1, sizeof *p);
    if (!p)
        return CUDA_ERROR_OUT_OF_MEMORY;
    p->device = device;
    p->bytes = bytes;
    p->refs = 1;
    p->id = ++sg.next_id;
    p->file_at = p->file = -1;
    if (sg.cfg.mode == SG_FUNCTIONAL && !bare && back(p) != CUDA_SUCCESS) {
        free(p);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (d) {
        d->used += bytes;
        if (d->used + d->reserved_ctx > d->peak)
            d->peak = d->used + d->reserved_ctx;
    } else {
        sg.host_used += bytes;
    }
    *out = p;
    return CUDA_SUCCESS;
}

/* Takes `bytes` (already rounded) of a device's memory, or of the host's with SG_HOST. One
 * reference is the caller's. Bare: the bytes are somebody else's (registered host memory). */
CUresult sg_phys_new(int device, size_t bytes, bool bare, struct sg_phys **out)
{
    sg_machine_lock();
    CUresult r = take(device, bytes, bare, out);
    sg_machine_unlock();
    return r;
}

static void destroy_if_unused(struct sg_phys *p)
{
    if (p->refs || p->maps)
        return;
    if (p->foreign) {
        if (p->file >= 0)
            close(p->file);
        sg_race_forget(p);
        free(p);
        return;
    }
    sg_machine_lock();
    if (p->device >= 0)
        sg.dev[p->device].used -= p->bytes;
    else
        sg.host_used -= p->bytes;
    sg_machine_unlock();
    if (p->file_at >= 0)
        fallocate(sg.memfile, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, p->file_at,
                  (off_t)((p->bytes + PAGE - 1) & ~(PAGE - 1)));
    sg_race_forget(p);
    free(p);
}

void sg_phys_unref(struct sg_phys *p)
{
    p->refs--;
    destroy_if_unused(p);
}

void sg_phys_gone_map(struct sg_phys *p)
{
    p->maps--;
    destroy_if_unused(p);
}
