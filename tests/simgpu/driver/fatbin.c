/* fatbin.c: the container that nvcc embeds, and the choice of the entry to run.
 *
 * A fat binary is a header of 16 bytes and a list of entries, each with its own header: kind, header
 * size, payload size, and where it is compressed the packed and the unpacked sizes.
 */
#include "fatbin.h"

#include "unpack.h"

#include <stdlib.h>
#include <string.h>

#define WRAPPER_MAGIC 0x466243b1u
#define FATBIN_MAGIC  0xba55ed50u

enum entry_kind { ENTRY_PTX = 1, ENTRY_ELF = 2 };
enum entry_flags { ENTRY_LZ4 = 0x2000, ENTRY_ZSTD = 0x8000 };

struct entry_header {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t payload_bytes;
    uint32_t packed_bytes, reserved;
    uint16_t minor, major;
    uint32_t arch;
    uint32_t name_offset, name_bytes;
    uint64_t flags, zero;
    uint64_t unpacked_bytes;
};

struct wrapper {
    uint32_t magic, version;
    const void *data;
    void *filename_or_fatbins;
};

static uint32_t first_word(const void *code)
{
    uint32_t w;
    memcpy(&w, code, sizeof w);
    return w;
}

static int is_elf(const void *code)
{
    return memcmp(code, "\177ELF", 4) == 0;
}

/* PTX is text whose first directive is .version; comments may precede it. */
static int is_ptx(const char *text)
{
    for (;;) {
        text += strspn(text, " \t\r\n");
        if (strncmp(text, "//", 2) == 0)
            text += strcspn(text, "\n");
        else
            return strncmp(text, ".version", 8) == 0;
    }
}

int sg_code_recognise(const void *code)
{
    if (!code)
        return 0;
    unsigned char first = *(const unsigned char *)code;
    if (first == '/' || first == '.' || first == ' ' || first == '\n' || first == '\t' ||
        first == '\r')
        return is_ptx(code);
    uint32_t magic = first_word(code);
    return magic == WRAPPER_MAGIC || magic == FATBIN_MAGIC || is_elf(code);
}

/* ---- what the parsers add --------------------------------------------------------------------------*/

static int by_offset(const void *a, const void *b)
{
    const struct simgpu_param *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

int sg_code_add_kernel(struct sg_code *c, const char *name, const struct simgpu_param *params,
                       unsigned nparams)
{
    unsigned n = c->image.nkernels;
    struct simgpu_kernel *grown =
        realloc((void *)(uintptr_t)c->image.kernels, (n + 1) * sizeof *grown);
    if (!grown)
        return -1;
    c->image.kernels = grown;
    struct simgpu_param *list = NULL;
    char *copy = strdup(name);
    if (nparams) {
        list = malloc(nparams * sizeof *list);
        if (list) {
            memcpy(list, params, nparams * sizeof *list);
            qsort(list, nparams, sizeof *list, by_offset);
        }
    }
    if (!copy || (nparams && !list)) {
        free(copy);
        free(list);
        return -1;
    }
    grown[n] = (struct simgpu_kernel){.name = copy, .params = list, .nparams = nparams};
    c->image.nkernels = n + 1;
    return 0;
}

int sg_code_add_global(struct sg_code *c, const char *name, size_t bytes, const unsigned char *init,
                       int constant, int managed)
{
    struct sg_code_global *grown = realloc(c->globals, (c->nglobals + 1) * sizeof *grown);
    if (!grown)
        return -1;
    c->globals = grown;
    unsigned char *contents = NULL;
    char *copy = strdup(name);
    if (init && bytes) {
        contents = malloc(bytes);
        if (contents)
            memcpy(contents, init, bytes);
    }
    if (!copy || (init && bytes && !contents)) {
        free(copy);
        free(contents);
        return -1;
    }
    grown[c->nglobals++] = (struct sg_code_global){copy, bytes, contents, constant, managed};
    return 0;
}

void sg_code_free(struct sg_code *c)
{
    if (!c)
        return;
    for (unsigned i = 0; i < c->image.nkernels; i++) {
        free((void *)(uintptr_t)c->image.kernels[i].name);
        free((void *)(uintptr_t)c->image.kernels[i].params);
    }
    free((void *)(uintptr_t)c->image.kernels);
    for (unsigned i = 0; i < c->nglobals; i++) {
        free(c->globals[i].name);
        free(c->globals[i].init);
    }
    free(c->globals);
    free(c);
}

/* ---- entries ------------------------------------------------------------------------------------------*/

/* How well an entry suits the device: 0 not at all; a cubin beats PTX, a newer one beats an older. */
static int suits(const struct entry_header *e, int device)
{
    int arch = (int)e->arch;
    if (e->kind == ENTRY_ELF) {
        int fits = !device || (arch / 10 == device / 10 && arch % 10 <= device % 10);
        return fits ? 10000 + arch : 0;
    }
    if (e->kind == ENTRY_PTX)
        return !device || arch <= device ? 1 + arch : 0;
    return 0;
}

static CUresult parse_entry(unsigned kind, const unsigned char *data, size_t bytes,
                            struct sg_code *c)
{
    return kind == ENTRY_ELF ? sg_cubin_parse(data, bytes, c)
                             : sg_ptx_parse((const char *)data, bytes, c);
}

static CUresult load_entry(const struct entry_header *e, const unsigned char *payload,
                           struct sg_code *c)
{
    if (!(e->flags & (ENTRY_LZ4 | ENTRY_ZSTD)))
        return parse_entry(e->kind, payload, e->payload_bytes, c);
    size_t packed = e->packed_bytes ? e->packed_bytes : e->payload_bytes;
    if (packed > e->payload_bytes || !e->unpacked_bytes || e->unpacked_bytes > (size_t)1 << 32)
        return CUDA_ERROR_INVALID_IMAGE;
    unsigned char *unpacked = malloc(e->unpacked_bytes);
    if (!unpacked)
        return CUDA_ERROR_OUT_OF_MEMORY;
    long got = e->flags & ENTRY_ZSTD
                   ? sg_unpack_zstd(unpacked, e->unpacked_bytes, payload, packed)
                   : sg_unpack_lz4(unpacked, e->unpacked_bytes, payload, packed);
    CUresult r = got < 0 || (uint64_t)got != e->unpacked_bytes
                     ? CUDA_ERROR_INVALID_IMAGE
                     : parse_entry(e->kind, unpacked, e->unpacked_bytes, c);
    free(unpacked);
    return r;
}

static CUresult load_fatbin(const unsigned char *data, int device, struct sg_code *c)
{
    uint16_t header_bytes;
    uint64_t total;
    memcpy(&header_bytes, data + 6, sizeof header_bytes);
    memcpy(&total, data + 8, sizeof total);
    const unsigned char *at = data + header_bytes, *payload = NULL;
    struct entry_header best = {0};
    int best_score = 0;
    const size_t fixed = sizeof best;
    while (total) {
        struct entry_header e;
        if (total < fixed)
            return CUDA_ERROR_INVALID_IMAGE;
        memcpy(&e, at, fixed);
        if (e.header_bytes < fixed || e.header_bytes > total ||
            e.payload_bytes > total - e.header_bytes)
            return CUDA_ERROR_INVALID_IMAGE;
        int score = suits(&e, device);
        if (score > best_score) {
            best = e;
            best_score = score;
            payload = at + e.header_bytes;
        }
        at += e.header_bytes + e.payload_bytes;
        total -= e.header_bytes + e.payload_bytes;
    }
    return best_score ? load_entry(&best, payload, c) : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

static CUresult load_any(const void *code, int device, struct sg_code *c)
{
    if (first_word(code) == WRAPPER_MAGIC) {
        struct wrapper w;
        memcpy(&w, code, sizeof w);
        code = w.data;
        if (!code || !sg_code_recognise(code) || first_word(code) == WRAPPER_MAGIC)
            return CUDA_ERROR_INVALID_IMAGE;
    }
    if (first_word(code) == FATBIN_MAGIC)
        return load_fatbin(code, device, c);
    struct entry_header bare = {.kind = ENTRY_PTX};
    if (is_elf(code)) {
        bare.kind = ENTRY_ELF;
        bare.arch = (uint32_t)sg_cubin_arch(code);
        size_t bytes = sg_cubin_bytes(code);
        if (!bytes)
            return CUDA_ERROR_INVALID_IMAGE;
        return suits(&bare, device) ? sg_cubin_parse(code, bytes, c)
                                    : CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    size_t bytes = strlen(code);
    bare.arch = (uint32_t)sg_ptx_arch(code, bytes);
    return suits(&bare, device) ? sg_ptx_parse(code, bytes, c) : CUDA_ERROR_NO_BINARY_FOR_GPU;
}

CUresult sg_code_load(const void *code, int arch, struct sg_code **out)
{
    if (!sg_code_recognise(code))
        return CUDA_ERROR_INVALID_IMAGE;
    struct sg_code *c = calloc(1, sizeof *c);
    if (!c)
        return CUDA_ERROR_OUT_OF_MEMORY;
    c->image.magic = SIMGPU_IMAGE_MAGIC;
    c->image.version = SIMGPU_IMAGE_VERSION;
    CUresult r = load_any(code, arch, c);
    if (r != CUDA_SUCCESS) {
        sg_code_free(c);
        return r;
    }
    *out = c;
    return CUDA_SUCCESS;
}
