/* The address space: every range that a device address can lie in, sorted, with what is mapped in
 * it. Address space is reserved from the host for good reasons in both modes: no device address can
 * then collide with a host pointer, and in functional mode it is the host address of the bytes. */
#include "sg.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE   ((size_t)4096)
#define RECENT 128

/* Where device addresses lie: away from what the host uses, and under ThreadSanitizer, which bears
 * mappings in few places, in the lower half of one of these. On request low, where NVIDIA's drivers
 * put what is reserved (0x302000000 is the first such address in many a log). */
extern void __tsan_init(void) __attribute__((weak));
#define SPACE_END (__tsan_init ? UINT64_C(0x7f0000000000) : UINT64_C(0x540000000000))

static uint64_t space_at(void)
{
    if (__tsan_init)
        return UINT64_C(0x7e8000000000);
    return sg.cfg.low_space ? UINT64_C(0x302000000) : UINT64_C(0x200000000000);
}

bool sg_va_plausible(uint64_t va)
{
    return va >= space_at() && va < SPACE_END;
}

static struct sg_range **ranges;
static size_t nranges, cranges;
static uint64_t cursor; /* 0: not yet set */
/* Address space given back lately: allocators tend to hand out the same addresses again. */
static struct {
    uint64_t va;
    size_t span;
} recent[RECENT];
static unsigned nrecent;

/* The index of the first range that ends behind va. */
static size_t lower(uint64_t va)
{
    size_t lo = 0, hi = nranges;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (ranges[mid]->va + ranges[mid]->bytes <= va)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

struct sg_range *sg_range_find(uint64_t va)
{
    size_t i = lower(va);
    return i < nranges && ranges[i]->va <= va ? ranges[i] : NULL;
}

struct sg_range *sg_range_at(size_t i)
{
    return i < nranges ? ranges[i] : NULL;
}

static CUresult insert(struct sg_range *r)
{
    if (nranges == cranges) {
        size_t c = cranges ? cranges * 2 : 64;
        struct sg_range **p = realloc(ranges, c * sizeof *p);
        if (!p)
            return CUDA_ERROR_OUT_OF_MEMORY;
        ranges = p;
        cranges = c;
    }
    size_t i = lower(r->va);
    memmove(&ranges[i + 1], &ranges[i], (nranges - i) * sizeof *ranges);
    ranges[i] = r;
    nranges++;
    return CUDA_SUCCESS;
}

static void *reserve_at(uint64_t va, size_t span)
{
    void *p = mmap((void *)va, span, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (p != MAP_FAILED && (uint64_t)p != va) {
        munmap(p, span);
        p = MAP_FAILED;
    }
    return p;
}

/* Functional mode hands an old address out again only now and then, so that programs neither rely
 * on it nor are spared it. */
static uint64_t reuse(size_t span, size_t align)
{
    if (sg.cfg.mode == SG_FUNCTIONAL && sg_random() % 2)
        return 0;
    for (unsigned i = nrecent; i-- > 0;)
        if (recent[i].span == span && recent[i].va % align == 0) {
            uint64_t va = recent[i].va;
            memmove(&recent[i], &recent[i + 1], (--nrecent - i) * sizeof *recent);
            if (reserve_at(va, span) != MAP_FAILED)
                return va;
        }
    return 0;
}

static uint64_t take_space(size_t span, size_t align, uint64_t hint)
{
    if (hint && hint % PAGE == 0 && hint % align == 0 && reserve_at(hint, span) != MAP_FAILED)
        return hint;
    uint64_t va = reuse(span, align);
    if (va)
        return va;
    if (!cursor)
        cursor = space_at();
    for (int tries = 0; tries < 64; tries++) {
        va = (cursor + align - 1) / align * align;
        if (va + span + PAGE > SPACE_END)
            break;
        cursor = va + span + PAGE; /* a page between neighbours catches overruns */
        if (reserve_at(va, span) != MAP_FAILED)
            return va;
    }
    /* The usual place is taken (a sanitizer's shadow, say): anywhere, aligned by hand. */
    char *p =
        mmap(NULL, span + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return 0;
    va = ((uint64_t)p + align - 1) / align * align;
    if (va > (uint64_t)p)
        munmap(p, (size_t)(va - (uint64_t)p));
    if (va + span < (uint64_t)p + span + align)
        munmap((void *)(va + span), (size_t)((uint64_t)p + align - va));
    return va;
}

CUresult sg_range_new(enum sg_kind kind, size_t bytes, size_t align, uint64_t hint, int device,
                      struct sg_range **out)
{
    struct sg_range *r = calloc(1, sizeof *r);
    if (!r)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r->kind = kind;
    r->bytes = bytes;
    r->span = (bytes + PAGE - 1) & ~(PAGE - 1);
    r->device = device;
    r->id = ++sg.next_id;
    if (kind == SG_VMM) {
        r->page_bytes = sg.cfg.granularity;
        r->npages = (bytes + r->page_bytes - 1) / r->page_bytes;
        r->page = calloc(r->npages, sizeof(struct sg_map *));
    }
    if (kind != SG_VMM || r->page)
        r->va = take_space(r->span, align < PAGE ? PAGE : align, hint);
    if (!r->va || insert(r) != CUDA_SUCCESS) {
        if (r->va)
            munmap((void *)r->va, r->span);
        free(r->page);
        free(r);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    r->map.va = r->va;
    r->map.bytes = bytes;
    *out = r;
    return CUDA_SUCCESS;
}

CUresult sg_range_adopt(uint64_t va, size_t bytes, struct sg_range **out)
{
    struct sg_range *r = calloc(1, sizeof *r);
    if (!r)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r->kind = SG_REGISTERED;
    r->va = r->map.va = va;
    r->bytes = r->map.bytes = bytes;
    r->device = SG_HOST;
    r->id = ++sg.next_id;
    size_t i = lower(va);
    if (i < nranges && ranges[i]->va < va + bytes) {
        free(r);
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    if (insert(r) != CUDA_SUCCESS) {
        free(r);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = r;
    return CUDA_SUCCESS;
}

void sg_range_free(struct sg_range *r)
{
    size_t i = lower(r->va);
    memmove(&ranges[i], &ranges[i + 1], (nranges - i - 1) * sizeof *ranges);
    nranges--;
    if (r->span) {
        munmap((void *)r->va, r->span);
        if (nrecent == RECENT)
            memmove(&recent[0], &recent[1], --nrecent * sizeof *recent);
        recent[nrecent].va = r->va;
        recent[nrecent++].span = r->span;
    }
    free(r->page);
    free(r);
}

struct sg_map *sg_map_at(const struct sg_range *r, uint64_t va)
{
    if (r->kind == SG_VMM)
        return r->page[(va - r->va) / r->page_bytes];
    return (struct sg_map *)&r->map;
}

/* Functional mode: the host protection is the union of what the devices may do. */
CUresult sg_map_protect(struct sg_map *m)
{
    if (sg.cfg.mode != SG_FUNCTIONAL || !m->phys || m->phys->file_at < 0)
        return CUDA_SUCCESS;
    int prot = PROT_NONE;
    for (int d = 0; d < SG_MAX_DEVICES; d++) {
        if (m->access[d] & 1)
            prot |= PROT_READ;
        if (m->access[d] == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            prot |= PROT_WRITE;
    }
    size_t n = (m->bytes + PAGE - 1) & ~(PAGE - 1);
    return mprotect((void *)m->va, n, prot) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Maps p at m's address. Accessible: by every device (the classic allocators); else by none. */
CUresult sg_map_attach(struct sg_map *m, struct sg_phys *p, bool accessible)
{
    m->phys = p;
    memset(m->access, accessible ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : 0, sizeof m->access);
    if (sg.cfg.mode == SG_FUNCTIONAL && p->file_at >= 0) {
        size_t n = (m->bytes + PAGE - 1) & ~(PAGE - 1);
        int prot = accessible ? PROT_READ | PROT_WRITE : PROT_NONE;
        if (mmap((void *)m->va, n, prot, MAP_SHARED | MAP_FIXED,
                 p->file >= 0 ? p->file : sg.memfile, p->file_at) == MAP_FAILED) {
            m->phys = NULL;
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    p->maps++;
    return CUDA_SUCCESS;
}

void sg_map_detach(struct sg_map *m)
{
    struct sg_phys *p = m->phys;
    if (!p)
        return;
    size_t n = (m->bytes + PAGE - 1) & ~(PAGE - 1);
    if (p->file_at >= 0 &&
        mmap((void *)m->va, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
             -1, 0) == MAP_FAILED)
        sg_note("simgpu: cannot unmap %#llx", (unsigned long long)m->va);
    m->phys = NULL;
    sg_phys_gone_map(p);
}

bool sg_is_host(uint64_t va, bool *pinned)
{
    const struct sg_range *r = sg_range_find(va);
    *pinned = r && (r->kind == SG_PINNED || r->kind == SG_REGISTERED);
    if (!r || *pinned)
        return true;
    if (r->kind == SG_VMM) {
        const struct sg_map *m = sg_map_at(r, va);
        *pinned = m && m->phys && m->phys->device == SG_HOST;
        return *pinned;
    }
    return false;
}

static bool peer_ok(const struct sg_op *op, int device, const struct sg_range *r)
{
    return r->device == device || r->device == SG_HOST || r->kind == SG_MANAGED || !op ||
           !op->ctx || (op->ctx->peers >> r->device & 1);
}

/* One mapping's share [va, va+bytes) of a touch. */
static const char *touch_map(struct sg_op *op, int device, struct sg_range *r, struct sg_map *m,
                             uint64_t va, size_t bytes, int mode, size_t *host_bytes)
{
    if (r->kind == SG_PINNED || r->kind == SG_REGISTERED) {
        *host_bytes += bytes;
        if (m->phys && op && sg.cfg.racecheck)
            sg_race_access(op, m->phys, va - m->va, bytes, mode, va);
        return NULL;
    }
    if (!m || !m->phys)
        return "unmapped memory";
    if (r->kind == SG_ARRAY && !(op && op->kind == SG_OP_COPY))
        return "an array, which has no address";
    int have = m->access[device];
    /* a copy engine reaches each side on the device that holds it */
    if (op && op->kind == SG_OP_COPY && m->phys->device >= 0 && m->phys->device < SG_MAX_DEVICES)
        have |= m->access[m->phys->device];
    if (r->kind != SG_VMM && !(op && op->kind == SG_OP_COPY) && !peer_ok(op, device, r))
        return "memory of a device that is no enabled peer";
    if (!(have & 1) || ((mode & SIMGPU_WRITE) && have != CU_MEM_ACCESS_FLAGS_PROT_READWRITE))
        return have ? "memory mapped read-only" : "memory mapped without access";
    if (m->phys->device == SG_HOST)
        *host_bytes += bytes;
    if (op && sg.cfg.racecheck) {
        sg_race_through(op, m, va);
        sg_race_access(op, m->phys, va - m->va, bytes, mode, va);
    }
    return NULL;
}

const char *sg_touch(struct sg_op *op, int device, uint64_t va, size_t bytes, int mode,
                     uint64_t *bad, size_t *host_bytes)
{
    uint64_t end = va + bytes;
    *bad = va;
    if (end < va)
        return "a range that wraps around";
    while (va < end) {
        struct sg_range *r = sg_range_find(va);
        *bad = va;
        if (!r)
            return "no allocation";
        if (r->freed && op && r->freed->state == SG_DONE)
            return "memory that was freed";
        uint64_t stop = r->va + r->bytes;
        struct sg_map *m = sg_map_at(r, va);
        if (r->kind == SG_VMM) {
            uint64_t page_end = r->va + ((va - r->va) / r->page_bytes + 1) * r->page_bytes;
            stop = m ? m->va + m->bytes : page_end;
        }
        if (stop > end)
            stop = end;
        const char *why = touch_map(op, device, r, m, va, (size_t)(stop - va), mode, host_bytes);
        if (why)
            return why;
        va = stop;
    }
    return NULL;
}
