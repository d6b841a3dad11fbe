#include "host_card.h"
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_BYTES = 8 << 20 };

static unsigned char *arena;
static size_t used;
static uint64_t random_state;
static unsigned launches, faults;
static char fault_text[256];
static struct simgpu_work last_work;
static unsigned char *access_of; /* of every arena byte: SIMGPU_READ | SIMGPU_WRITE */
static const char *running;

int card_major = 9;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

uint64_t card_seed(uint64_t fallback)
{
    const char *s = getenv("VMEM_TEST_SEED");
    return s ? strtoull(s, NULL, 0) : fallback;
}

enum { KEPT_MAX = 1024 };
static struct {
    void *p;
    void (*drop)(void *);
} kept[KEPT_MAX];
static int nkept;

static void drop_kept(void)
{
    while (nkept > 0) {
        nkept--;
        kept[nkept].drop(kept[nkept].p);
    }
}

static void leave(void)
{
    drop_kept();
    free(arena);
    free(access_of);
}

void card_keep(void *p, void (*drop)(void *))
{
    if (nkept == KEPT_MAX) {
        abort();
    }
    kept[nkept].p = p;
    kept[nkept++].drop = drop;
}

void card_reset(uint64_t seed)
{
    drop_kept();
    if (!arena) {
        arena = aligned_alloc(4096, ARENA_BYTES);
        access_of = malloc(ARENA_BYTES);
        if (!arena || !access_of || atexit(leave) != 0) {
            abort();
        }
    }
    memset(arena, 0xcd, ARENA_BYTES);
    used = 0;
    launches = faults = 0;
    fault_text[0] = '\0';
    random_state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
}

void *card_alloc(size_t bytes)
{
    size_t at = (used + 255) / 256 * 256;
    if (at + bytes > ARENA_BYTES) {
        fprintf(stderr, "host card: arena of %d bytes exhausted\n", ARENA_BYTES);
        abort();
    }
    used = at + bytes;
    return arena + at;
}

float *card_random(size_t n)
{
    float *p = card_alloc(n * sizeof *p);
    for (size_t i = 0; i < n; i++) {
        p[i] = (float)(next_random() >> 40) * 0x1p-23f - 1.0f;
    }
    return p;
}

unsigned card_below(unsigned n)
{
    return (unsigned)(next_random() >> 33) % n;
}

unsigned card_launches(void)
{
    return launches;
}

unsigned card_faults(void)
{
    return faults;
}

const char *card_fault(void)
{
    return fault_text;
}

struct simgpu_work card_last_work(void)
{
    return last_work;
}

static void fault(const char *what, size_t at)
{
    if (faults++ == 0) {
        snprintf(fault_text, sizeof fault_text, "%s: %s at arena offset %zu", running, what, at);
    }
}

static void note_touch(void *ctx, uint64_t addr, size_t bytes, int mode)
{
    uint64_t base = (uint64_t)(uintptr_t)arena;
    if (addr < base || addr + bytes > base + used) {
        fault("declares memory that was never allocated", (size_t)(addr - base));
        return;
    }
    for (size_t i = 0; i < bytes; i++) {
        access_of[addr - base + i] |= (unsigned char)mode;
    }
}

/* Runs the body with poison where it may not read; the arena afterwards is left in `out`. */
static void run_poisoned(const struct simgpu_kernel *k, const struct simgpu_launch *l,
                         const unsigned char *before, unsigned char poison, unsigned char *out)
{
    for (size_t i = 0; i < used; i++) {
        arena[i] = access_of[i] & SIMGPU_READ ? before[i] : poison;
    }
    k->body(l);
    memcpy(out, arena, used);
    for (size_t i = 0; i < used; i++) {
        unsigned char was = access_of[i] & SIMGPU_READ ? before[i] : poison;
        if (!(access_of[i] & SIMGPU_WRITE) && arena[i] != was) {
            fault("writes a byte that it does not declare", i);
            return;
        }
    }
}

void card_run(const struct simgpu_kernel *k, const void *args)
{
    size_t bytes = 0;
    for (unsigned i = 0; i < k->nparams; i++) {
        size_t end = (size_t)k->params[i].offset + k->params[i].size;
        bytes = end > bytes ? end : bytes;
    }
    struct simgpu_launch l = {.params = args,
                              .param_bytes = bytes,
                              .grid = {1, 1, 1},
                              .block = {256, 1, 1},
                              .functional = 1};
    launches++;
    running = k->name;
    memset(access_of, 0, used);
    k->touches(&l, note_touch, NULL);
    if (faults) {
        return;
    }
    unsigned char *save = malloc(3 * used), *first = save + used, *second = first + used;
    if (!save) {
        abort();
    }
    memcpy(save, arena, used);
    run_poisoned(k, &l, save, 0xa5, first);
    run_poisoned(k, &l, save, 0x5b, second);
    for (size_t i = 0; i < used; i++) {
        if ((access_of[i] & SIMGPU_WRITE) && first[i] != second[i]) {
            fault("a result that hangs on undeclared bytes, or a declared write that is not made",
                  i);
            break;
        }
    }
    for (size_t i = 0; i < used; i++) {
        arena[i] = access_of[i] & SIMGPU_WRITE ? first[i] : save[i];
    }
    k->cost(&l, &last_work);
    free(save);
}

/* ---- in place of client.c ---- */

static CUresult host_alloc(CUdeviceptr *p, size_t bytes)
{
    *p = (CUdeviceptr)(uintptr_t)card_alloc(bytes);
    return CUDA_SUCCESS;
}

static CUresult host_free(CUdeviceptr p)
{
    return p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult host_dtoh(void *dst, CUdeviceptr src, size_t n, CUstream stream)
{
    memcpy(dst, (const void *)(uintptr_t)src, n);
    return CUDA_SUCCESS;
}

static CUresult host_htod(CUdeviceptr dst, const void *src, size_t n, CUstream stream)
{
    memcpy((void *)(uintptr_t)dst, src, n);
    return CUDA_SUCCESS;
}

static CUresult host_copy_2d(const CUDA_MEMCPY2D *c, CUstream stream)
{
    const char *src =
        c->srcMemoryType == CU_MEMORYTYPE_HOST ? c->srcHost : (const void *)(uintptr_t)c->srcDevice;
    char *dst =
        c->dstMemoryType == CU_MEMORYTYPE_HOST ? c->dstHost : (void *)(uintptr_t)c->dstDevice;
    for (size_t i = 0; i < c->Height; i++) {
        memcpy(dst + i * c->dstPitch, src + i * c->srcPitch, c->WidthInBytes);
    }
    return CUDA_SUCCESS;
}

static CUresult host_sync(CUstream stream)
{
    return CUDA_SUCCESS;
}

/* Events keep the modelled microseconds of the launches so far. */
static float event_clock;

static CUresult host_event_create(CUevent *e, unsigned flags)
{
    float *at = calloc(1, sizeof *at);
    *e = (CUevent)(void *)at;
    return at ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult host_event_record(CUevent e, CUstream stream)
{
    *(float *)(void *)e = event_clock;
    return CUDA_SUCCESS;
}

static CUresult host_event_sync(CUevent e)
{
    return CUDA_SUCCESS;
}

static CUresult host_event_elapsed(float *ms, CUevent a, CUevent b)
{
    *ms = *(float *)(void *)b - *(float *)(void *)a;
    return CUDA_SUCCESS;
}

static CUresult host_event_destroy(CUevent e)
{
    free(e);
    return CUDA_SUCCESS;
}

static const struct sg_driver host_driver = {
    .cuMemAlloc = host_alloc,
    .cuMemFree = host_free,
    .cuMemcpyDtoHAsync = host_dtoh,
    .cuMemcpyHtoDAsync = host_htod,
    .cuMemcpy2DAsync = host_copy_2d,
    .cuStreamSynchronize = host_sync,
    .cuEventCreate = host_event_create,
    .cuEventRecord = host_event_record,
    .cuEventSynchronize = host_event_sync,
    .cuEventElapsedTime = host_event_elapsed,
    .cuEventDestroy = host_event_destroy,
};

CUresult sg_client_driver(const struct sg_driver **out)
{
    *out = &host_driver;
    return CUDA_SUCCESS;
}

CUresult sg_client_context(const struct sg_driver *drv, CUdevice *device)
{
    *device = 0;
    return CUDA_SUCCESS;
}

CUresult sg_client_launch(const struct sg_driver *drv, struct sg_client_image *img, unsigned kernel,
                          CUstream stream, const void *args, double threads)
{
    card_run(&img->image->kernels[kernel], args);
    event_clock += (float)(last_work.flops / 1e9 + last_work.bytes / 1e8);
    return CUDA_SUCCESS;
}

CUresult sg_client_card(const struct sg_driver *drv, CUdevice device, struct sg_card *out)
{
    *out = (struct sg_card){
        .major = card_major, .sms = 24, .flops = 7e12, .bytes = 336e9, .half = 16, .tf32 = 8, .fp64 = 0.5};
    return CUDA_SUCCESS;
}
