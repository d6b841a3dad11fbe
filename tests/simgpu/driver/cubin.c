/* cubin.c: kernels, their parameters and the variables of a cubin (an ELF file for the GPU).
 *
 * A kernel K has code in .text.K and attributes in .nv.info.K: records of a format byte, an attribute
 * byte and a 16-bit size or value. Two attributes tell a parameter's place; the second form has room
 * for parameters above 16 KiB.
 */
#include "fatbin.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#ifndef EM_CUDA
#define EM_CUDA 190
#endif
#define CUDA_ABI_V2      0x41 /* e_ident[EI_OSABI]: the architecture is in other bits of e_flags */
#define STO_CUDA_MANAGED 0x04
#define STO_CUDA_ENTRY   0x10

enum info_format { INFO_SIZED = 4 };
enum info_attribute { INFO_PARAM = 0x17, INFO_PARAM_V2 = 0x45 };

struct cubin {
    const unsigned char *data;
    size_t bytes;
    Elf64_Ehdr head;
    const char *names; /* section names */
    size_t names_bytes;
};

static uint16_t read16(const unsigned char *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t read32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static int inside(const struct cubin *c, uint64_t offset, uint64_t bytes)
{
    return offset <= c->bytes && bytes <= c->bytes - offset;
}

static int is_cubin(const unsigned char *data)
{
    Elf64_Ehdr h;
    if (memcmp(data, ELFMAG, SELFMAG) != 0 || data[EI_CLASS] != ELFCLASS64)
        return 0;
    memcpy(&h, data, sizeof h);
    return h.e_machine == EM_CUDA && h.e_shentsize == sizeof(Elf64_Shdr);
}

size_t sg_cubin_bytes(const unsigned char *data)
{
    if (!is_cubin(data))
        return 0;
    Elf64_Ehdr h;
    memcpy(&h, data, sizeof h);
    size_t end = h.e_shoff + (size_t)h.e_shnum * sizeof(Elf64_Shdr);
    size_t segments = h.e_phoff + (size_t)h.e_phnum * h.e_phentsize;
    if (segments > end)
        end = segments;
    for (unsigned i = 0; i < h.e_shnum; i++) {
        Elf64_Shdr s;
        memcpy(&s, data + h.e_shoff + i * sizeof s, sizeof s);
        if (s.sh_type != SHT_NOBITS && s.sh_offset + s.sh_size > end)
            end = s.sh_offset + s.sh_size;
    }
    return end;
}

int sg_cubin_arch(const unsigned char *data)
{
    if (!is_cubin(data))
        return 0;
    Elf64_Ehdr h;
    memcpy(&h, data, sizeof h);
    return (int)(data[EI_OSABI] == CUDA_ABI_V2 ? h.e_flags >> 8 & 0xff : h.e_flags & 0xff);
}

static int section(const struct cubin *c, unsigned i, Elf64_Shdr *s, const char **name)
{
    if (i >= c->head.e_shnum)
        return 0;
    memcpy(s, c->data + c->head.e_shoff + i * sizeof *s, sizeof *s);
    if (s->sh_type != SHT_NOBITS && !inside(c, s->sh_offset, s->sh_size))
        return 0;
    *name = s->sh_name < c->names_bytes ? c->names + s->sh_name : "";
    return 1;
}

static CUresult open_cubin(struct cubin *c, const unsigned char *data, size_t bytes)
{
    c->data = data;
    c->bytes = bytes;
    if (bytes < sizeof c->head || !is_cubin(data))
        return CUDA_ERROR_INVALID_IMAGE;
    memcpy(&c->head, data, sizeof c->head);
    c->names = "";
    c->names_bytes = 0;
    Elf64_Shdr s;
    const char *name;
    if (!inside(c, c->head.e_shoff, (uint64_t)c->head.e_shnum * sizeof s) ||
        !section(c, c->head.e_shstrndx, &s, &name) || !s.sh_size ||
        data[s.sh_offset + s.sh_size - 1] != 0)
        return CUDA_ERROR_INVALID_IMAGE;
    c->names = (const char *)data + s.sh_offset;
    c->names_bytes = s.sh_size;
    return CUDA_SUCCESS;
}

/* The parameters that an attribute section tells; *params is malloc'd. */
static CUresult read_params(const unsigned char *p, size_t n, struct simgpu_param **params,
                            unsigned *nparams)
{
    struct simgpu_param *list = NULL;
    unsigned count = 0;
    for (size_t at = 0; at + 4 <= n;) {
        unsigned format = p[at], attribute = p[at + 1], size = read16(p + at + 2);
        const unsigned char *value = p + at + 4;
        at += 4;
        if (format != INFO_SIZED)
            continue;
        if (size > n - at) {
            free(list);
            return CUDA_ERROR_INVALID_IMAGE;
        }
        at += size;
        if ((attribute != INFO_PARAM && attribute != INFO_PARAM_V2) || size < 12)
            continue;
        struct simgpu_param *grown = realloc(list, (count + 1) * sizeof *list);
        if (!grown) {
            free(list);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        list = grown;
        uint32_t word = read32(value + 8);
        list[count].offset = read16(value + 6);
        list[count].size = (uint16_t)(attribute == INFO_PARAM ? word >> 18 : word & 0xffff);
        count++;
    }
    *params = list;
    *nparams = count;
    return CUDA_SUCCESS;
}

/* Parameters of kernel `name`; none if it has no attribute section. */
static CUresult kernel_params(const struct cubin *c, const char *name, struct simgpu_param **params,
                              unsigned *nparams)
{
    static const char prefix[] = ".nv.info.";
    for (unsigned i = 0; i < c->head.e_shnum; i++) {
        Elf64_Shdr s;
        const char *section_name;
        if (!section(c, i, &s, &section_name))
            return CUDA_ERROR_INVALID_IMAGE;
        if (s.sh_type != SHT_NOBITS && strncmp(section_name, prefix, sizeof prefix - 1) == 0 &&
            strcmp(section_name + sizeof prefix - 1, name) == 0)
            return read_params(c->data + s.sh_offset, s.sh_size, params, nparams);
    }
    *params = NULL;
    *nparams = 0;
    return CUDA_SUCCESS;
}

static CUresult add_kernel(const struct cubin *c, const char *name, struct sg_code *code)
{
    struct simgpu_param *params = NULL;
    unsigned n = 0;
    CUresult r = kernel_params(c, name, &params, &n);
    if (r == CUDA_SUCCESS && sg_code_add_kernel(code, name, params, n) != 0)
        r = CUDA_ERROR_OUT_OF_MEMORY;
    free(params);
    return r;
}

static CUresult add_variable(const struct cubin *c, const char *name, const Elf64_Sym *sym,
                             struct sg_code *code)
{
    Elf64_Shdr s;
    const char *where;
    if (!section(c, sym->st_shndx, &s, &where))
        return CUDA_ERROR_INVALID_IMAGE;
    int constant = strncmp(where, ".nv.constant", 12) == 0;
    if (!constant && strncmp(where, ".nv.global", 10) != 0)
        return CUDA_SUCCESS; /* shared memory and the like */
    const unsigned char *init = NULL;
    if (s.sh_type != SHT_NOBITS) {
        if (sym->st_value > s.sh_size || sym->st_size > s.sh_size - sym->st_value)
            return CUDA_ERROR_INVALID_IMAGE;
        init = c->data + s.sh_offset + sym->st_value;
    }
    int managed = (sym->st_other & STO_CUDA_MANAGED) != 0;
    return sg_code_add_global(code, name, sym->st_size, init, constant, managed) != 0
               ? CUDA_ERROR_OUT_OF_MEMORY
               : CUDA_SUCCESS;
}

static CUresult read_symbols(const struct cubin *c, const Elf64_Shdr *table, struct sg_code *code)
{
    Elf64_Shdr strings;
    const char *name;
    if (!section(c, table->sh_link, &strings, &name) || !strings.sh_size ||
        c->data[strings.sh_offset + strings.sh_size - 1] != 0)
        return CUDA_ERROR_INVALID_IMAGE;
    const char *text = (const char *)c->data + strings.sh_offset;
    for (size_t at = 0; at + sizeof(Elf64_Sym) <= table->sh_size; at += sizeof(Elf64_Sym)) {
        Elf64_Sym sym;
        memcpy(&sym, c->data + table->sh_offset + at, sizeof sym);
        if (sym.st_name >= strings.sh_size || sym.st_shndx == SHN_UNDEF ||
            sym.st_shndx >= c->head.e_shnum)
            continue;
        CUresult r = CUDA_SUCCESS;
        int type = ELF64_ST_TYPE(sym.st_info);
        if (type == STT_FUNC && (sym.st_other & STO_CUDA_ENTRY))
            r = add_kernel(c, text + sym.st_name, code);
        else if (type == STT_OBJECT)
            r = add_variable(c, text + sym.st_name, &sym, code);
        if (r != CUDA_SUCCESS)
            return r;
    }
    return CUDA_SUCCESS;
}

CUresult sg_cubin_parse(const unsigned char *data, size_t bytes, struct sg_code *code)
{
    struct cubin c;
    CUresult r = open_cubin(&c, data, bytes);
    for (unsigned i = 0; r == CUDA_SUCCESS && i < c.head.e_shnum; i++) {
        Elf64_Shdr s;
        const char *name;
        if (!section(&c, i, &s, &name))
            r = CUDA_ERROR_INVALID_IMAGE;
        else if (s.sh_type == SHT_SYMTAB)
            r = read_symbols(&c, &s, code);
    }
    if (r == CUDA_SUCCESS)
        code->arch = sg_cubin_arch(data);
    return r;
}
