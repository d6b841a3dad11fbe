/* Device code as nvcc embeds it: cubins put together here byte by byte, PTX, and the containers. */
#include <criterion/criterion.h>

#include <elf.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fatbin.h"

/* ---- a cubin of one kernel and two variables --------------------------------------------------------*/

enum { S_NULL, S_NAMES, S_STRINGS, S_SYMBOLS, S_TEXT, S_INFO, S_GLOBAL, S_CONSTANT, SECTIONS };

struct image {
    unsigned char bytes[4096];
    size_t n;
};

static size_t put(struct image *m, const void *p, size_t n)
{
    size_t at = (m->n + 7) & ~(size_t)7;
    memcpy(m->bytes + at, p, n);
    m->n = at + n;
    return at;
}

/* Parameters of kernel(float a, const float *x, float *y, struct of 20 bytes), last first as ptxas
 * writes them, one of them in the wide form. */
static const unsigned char info[] = {
    4, 0x17, 12, 0, 0, 0, 0, 0, 3, 0, 24, 0, 0, 0xf0, 0x51, 0,   /* ordinal 3 at 24, 20 bytes */
    4, 0x45, 12, 0, 0, 0, 0, 0, 2, 0, 16, 0, 8, 0, 0, 0,         /* ordinal 2 at 16,  8 bytes */
    3, 0x1b, 0xff, 0,                                            /* something else            */
    4, 0x17, 12, 0, 0, 0, 0, 0, 1, 0, 8, 0, 0, 0xf0, 0x21, 0,    /* ordinal 1 at 8,   8 bytes */
    4, 0x17, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xf0, 0x11, 0,    /* ordinal 0 at 0,   4 bytes */
};

static struct image make_cubin(int arch)
{
    static const char names[] = "\0.shstrtab\0.strtab\0.symtab\0.text.k\0.nv.info.k\0.nv.global\0"
                                ".nv.constant3";
    static const char strings[] = "\0k\0counter\0table\0helper";
    static const unsigned char table[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct image m = {.n = sizeof(Elf64_Ehdr)};
    Elf64_Sym syms[5];
    memset(syms, 0, sizeof syms);
    syms[1] = (Elf64_Sym){.st_name = 1, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                          .st_other = 0x10, .st_shndx = S_TEXT, .st_size = 16};
    syms[2] = (Elf64_Sym){.st_name = 3, .st_info = ELF64_ST_INFO(STB_LOCAL, STT_OBJECT),
                          .st_other = 0x04, .st_shndx = S_GLOBAL, .st_size = 16};
    syms[3] = (Elf64_Sym){.st_name = 11, .st_info = ELF64_ST_INFO(STB_LOCAL, STT_OBJECT),
                          .st_shndx = S_CONSTANT, .st_value = 2, .st_size = 4};
    /* a device function is no kernel */
    syms[4] = (Elf64_Sym){.st_name = 17, .st_info = ELF64_ST_INFO(STB_LOCAL, STT_FUNC),
                          .st_shndx = S_TEXT, .st_size = 16};
    Elf64_Shdr s[SECTIONS];
    memset(s, 0, sizeof s);
    static const unsigned name_at[SECTIONS] = {0, 1, 11, 19, 27, 35, 46, 57};
    const void *data[SECTIONS] = {NULL, names, strings, syms, table, info, NULL, table};
    const size_t bytes[SECTIONS] = {0, sizeof names, sizeof strings, sizeof syms, 8, sizeof info,
                                    16, sizeof table};
    for (unsigned i = 1; i < SECTIONS; i++) {
        s[i].sh_name = name_at[i];
        s[i].sh_type = i == S_SYMBOLS ? SHT_SYMTAB : i == S_GLOBAL ? SHT_NOBITS : SHT_PROGBITS;
        s[i].sh_link = i == S_SYMBOLS ? S_STRINGS : 0;
        s[i].sh_size = bytes[i];
        if (data[i])
            s[i].sh_offset = put(&m, data[i], bytes[i]);
    }
    Elf64_Ehdr h;
    memset(&h, 0, sizeof h);
    memcpy(h.e_ident, ELFMAG, SELFMAG);
    h.e_ident[EI_CLASS] = ELFCLASS64;
    h.e_ident[EI_OSABI] = 0x41;
    h.e_machine = 190;
    h.e_flags = (unsigned)arch << 8 | 4;
    h.e_shoff = put(&m, s, sizeof s);
    h.e_shentsize = sizeof(Elf64_Shdr);
    h.e_shnum = SECTIONS;
    h.e_shstrndx = S_NAMES;
    memcpy(m.bytes, &h, sizeof h);
    return m;
}

static void is_the_kernel(const struct sg_code *c)
{
    cr_assert_eq(c->image.nkernels, 1);
    const struct simgpu_kernel *k = &c->image.kernels[0];
    cr_assert_str_eq(k->name, "k");
    cr_assert_eq(k->nparams, 4);
    static const struct simgpu_param want[] = {{0, 4}, {8, 8}, {16, 8}, {24, 20}};
    for (unsigned i = 0; i < 4; i++) {
        cr_assert_eq(k->params[i].offset, want[i].offset);
        cr_assert_eq(k->params[i].size, want[i].size);
    }
}

Test(code, cubin_tells_parameters_and_variables)
{
    struct image m = make_cubin(80);
    struct sg_code *c = NULL;
    cr_assert_eq(sg_code_load(m.bytes, 86, &c), CUDA_SUCCESS);
    cr_assert_eq(c->arch, 80);
    is_the_kernel(c);
    cr_assert_eq(c->nglobals, 2);
    cr_assert_str_eq(c->globals[0].name, "counter");
    cr_assert(c->globals[0].managed && !c->globals[0].init && c->globals[0].bytes == 16);
    cr_assert_str_eq(c->globals[1].name, "table");
    cr_assert(c->globals[1].constant && c->globals[1].bytes == 4 && c->globals[1].init[0] == 3);
    sg_code_free(c);
}

Test(code, cubin_of_another_architecture_is_refused)
{
    struct image m = make_cubin(80);
    struct sg_code *c = NULL;
    cr_assert_eq(sg_code_load(m.bytes, 90, &c), CUDA_ERROR_NO_BINARY_FOR_GPU);
    cr_assert_eq(sg_code_load(m.bytes, 75, &c), CUDA_ERROR_NO_BINARY_FOR_GPU);
    cr_assert_null(c);
}

Test(code, damaged_cubins_are_refused_or_read)
{
    struct image good = make_cubin(80);
    for (size_t bit = 0; bit < good.n * 8; bit++) {
        struct image m = good;
        m.bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        struct sg_code *c = calloc(1, sizeof *c);
        cr_assert_not_null(c);
        unsigned char *exact = malloc(m.n);
        cr_assert_not_null(exact);
        memcpy(exact, m.bytes, m.n);
        CUresult r = sg_cubin_parse(exact, m.n, c);
        cr_assert(r == CUDA_SUCCESS || r == CUDA_ERROR_INVALID_IMAGE);
        free(exact);
        sg_code_free(c);
    }
}

/* ---- PTX ------------------------------------------------------------------------------------------------*/

static const char ptx[] =
    "// a comment\n.version 9.0\n.target sm_75\n.address_size 64\n"
    ".global .align 4 .b8 counter[16];\n.const .align 8 .f64 pi = 0d400921FB54442D18;\n"
    ".visible .entry k(\n .param .f32 k_param_0,\n .param .u64 .ptr .align 16 k_param_1,\n"
    " .param .u64 k_param_2, /* the last one */\n .param .align 4 .b8 k_param_3[20]\n)\n"
    "{\n .reg .b32 %r<3>;\n ret;\n}\n.visible .entry none()\n.maxntid 64, 1, 1\n{\n ret;\n}\n";

Test(code, ptx_tells_parameters_and_variables)
{
    struct sg_code *c = NULL;
    cr_assert_eq(sg_code_load(ptx, 90, &c), CUDA_SUCCESS);
    cr_assert_eq(c->image.nkernels, 2);
    cr_assert_str_eq(c->image.kernels[1].name, "none");
    cr_assert_eq(c->image.kernels[1].nparams, 0);
    cr_assert_eq(c->image.kernels[0].nparams, 4);
    cr_assert_eq(c->image.kernels[0].params[1].offset, 8);
    cr_assert_eq(c->image.kernels[0].params[3].offset, 24);
    cr_assert_eq(c->image.kernels[0].params[3].size, 20);
    cr_assert_eq(c->nglobals, 2);
    cr_assert(c->globals[0].bytes == 16 && !c->globals[0].constant);
    cr_assert(c->globals[1].bytes == 8 && c->globals[1].constant);
    sg_code_free(c);
    cr_assert_eq(sg_code_load(ptx, 70, &c), CUDA_ERROR_NO_BINARY_FOR_GPU);
}

Test(code, broken_ptx_is_refused)
{
    struct sg_code *c = NULL;
    cr_assert_eq(sg_code_load(".version 9.0\n.target sm_75\n.entry k( .param .u64", 75, &c),
                 CUDA_ERROR_INVALID_PTX);
    cr_assert_eq(sg_code_load("hello", 75, &c), CUDA_ERROR_INVALID_IMAGE);
    cr_assert_eq(sg_code_load(NULL, 75, &c), CUDA_ERROR_INVALID_IMAGE);
}

/* ---- containers -------------------------------------------------------------------------------------------*/

enum packing { PLAIN, LZ4, ZSTD };

static void add_entry(struct image *m, int kind, unsigned arch, const void *payload, size_t bytes,
                      enum packing how)
{
    unsigned char h[64] = {0}, packed[4096];
    size_t n = bytes;
    uint64_t flags = 0x11;
    memcpy(packed, payload, bytes);
    if (how == LZ4) { /* one run of literals */
        size_t at = 0, left = bytes - 15;
        packed[at++] = 0xf0;
        for (; left >= 255; left -= 255)
            packed[at++] = 255;
        packed[at++] = (unsigned char)left;
        memcpy(packed + at, payload, bytes);
        n = at + bytes;
        flags |= 0x2000;
    } else if (how == ZSTD) { /* one plain block */
        static const unsigned char frame[5] = {0x28, 0xB5, 0x2F, 0xFD, 0x60};
        memcpy(packed, frame, 5);
        uint16_t size = (uint16_t)(bytes - 256);
        memcpy(packed + 5, &size, 2);
        uint32_t block = (uint32_t)bytes << 3 | 1;
        memcpy(packed + 7, &block, 3);
        memcpy(packed + 10, payload, bytes);
        n = bytes + 10;
        flags |= 0x8000;
    }
    uint16_t kind16 = (uint16_t)kind, version = 0x101;
    uint32_t head = sizeof h, packed_bytes = how == PLAIN ? 0 : (uint32_t)n;
    uint64_t padded = (n + 7) & ~(size_t)7, unpacked = how == PLAIN ? 0 : bytes;
    memcpy(h, &kind16, 2);
    memcpy(h + 2, &version, 2);
    memcpy(h + 4, &head, 4);
    memcpy(h + 8, &padded, 8);
    memcpy(h + 16, &packed_bytes, 4);
    memcpy(h + 28, &arch, 4);
    memcpy(h + 40, &flags, 8);
    memcpy(h + 56, &unpacked, 8);
    memcpy(m->bytes + m->n, h, sizeof h);
    memcpy(m->bytes + m->n + sizeof h, packed, n);
    m->n += sizeof h + padded;
}

/* Entries for 75 (PTX) and 80 (cubin), each packed as asked. */
static struct image make_fatbin(enum packing how)
{
    static const unsigned char magic[8] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0};
    struct image m = {.n = 16}, cubin = make_cubin(80);
    add_entry(&m, 2, 80, cubin.bytes, cubin.n, how);
    add_entry(&m, 1, 75, ptx, sizeof ptx - 1, how);
    uint64_t total = m.n - 16;
    memcpy(m.bytes, magic, 8);
    memcpy(m.bytes + 8, &total, 8);
    return m;
}

Test(code, fat_binary_gives_the_entry_that_suits)
{
    for (int how = PLAIN; how <= ZSTD; how++) {
        struct image m = make_fatbin((enum packing)how);
        struct sg_code *c = NULL;
        cr_assert_eq(sg_code_load(m.bytes, 86, &c), CUDA_SUCCESS);
        cr_assert_eq(c->arch, 80, "the cubin of the same major version, packing %d", how);
        is_the_kernel(c);
        sg_code_free(c);
        cr_assert_eq(sg_code_load(m.bytes, 90, &c), CUDA_SUCCESS);
        cr_assert_eq(c->arch, 75, "PTX for a newer device, packing %d", how);
        cr_assert_eq(c->image.nkernels, 2);
        sg_code_free(c);
        c = NULL;
        cr_assert_eq(sg_code_load(m.bytes, 70, &c), CUDA_ERROR_NO_BINARY_FOR_GPU);
    }
}

Test(code, wrapper_is_followed)
{
    struct image m = make_fatbin(PLAIN);
    struct {
        uint32_t magic, version;
        const void *data;
        void *rest;
    } wrapper = {0x466243b1, 1, m.bytes, NULL};
    struct sg_code *c = NULL;
    cr_assert_eq(sg_code_load(&wrapper, 80, &c), CUDA_SUCCESS);
    is_the_kernel(c);
    sg_code_free(c);
    wrapper.data = NULL;
    cr_assert_eq(sg_code_load(&wrapper, 80, &c), CUDA_ERROR_INVALID_IMAGE);
}

Test(code, container_with_a_bad_size_is_refused)
{
    struct image m = make_fatbin(ZSTD);
    struct sg_code *c = NULL;
    uint32_t head = 7;
    memcpy(m.bytes + 16 + 4, &head, 4);
    cr_assert_eq(sg_code_load(m.bytes, 80, &c), CUDA_ERROR_INVALID_IMAGE);
    m = make_fatbin(ZSTD);
    m.bytes[16 + 64 + 40] ^= 0xff; /* in the ELF header: what unpacks is no cubin any more */
    CUresult r = sg_code_load(m.bytes, 80, &c);
    cr_assert(r == CUDA_ERROR_INVALID_IMAGE || r == CUDA_SUCCESS);
    if (r == CUDA_SUCCESS)
        sg_code_free(c);
}
