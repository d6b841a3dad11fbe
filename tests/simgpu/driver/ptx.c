/* ptx.c: kernels, their parameters and the variables that a PTX text declares. */
#include "fatbin.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Words of the text: identifiers and directives, numbers, single signs. Comments and strings are
 * skipped. */
struct ptx {
    const char *at, *end;
    char word[512];
};

static void skip_blank(struct ptx *p)
{
    while (p->at < p->end) {
        size_t left = (size_t)(p->end - p->at);
        if (isspace((unsigned char)*p->at)) {
            p->at++;
        } else if (left > 1 && p->at[0] == '/' && p->at[1] == '/') {
            while (p->at < p->end && *p->at != '\n')
                p->at++;
        } else if (left > 1 && p->at[0] == '/' && p->at[1] == '*') {
            p->at += 2;
            while (p->at + 1 < p->end && !(p->at[0] == '*' && p->at[1] == '/'))
                p->at++;
            p->at = p->end - p->at > 2 ? p->at + 2 : p->end;
        } else {
            return;
        }
    }
}

static int word_char(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '.' || c == '%';
}

/* The next word, "" at the end. A word that is longer than any name can be is cut. */
static const char *next(struct ptx *p)
{
    size_t n = 0;
    skip_blank(p);
    if (p->at < p->end && *p->at == '"') {
        for (p->at++; p->at < p->end && *p->at != '"'; p->at++)
            ;
        p->at += p->at < p->end;
        p->word[0] = '"', p->word[1] = 0;
        return p->word;
    }
    while (p->at < p->end && (word_char(*p->at) || n == 0)) {
        char c = *p->at++;
        if (n + 1 < sizeof p->word)
            p->word[n++] = c;
        if (!word_char(c))
            break;
    }
    p->word[n] = 0;
    return p->word;
}

/* Bytes of a basic type (.u64, .b8, .f32x2 ...), 0 if the word is none. */
static size_t type_bytes(const char *w)
{
    if (w[0] != '.' || !w[1] || !strchr("busf", w[1]) || !isdigit((unsigned char)w[2]))
        return 0;
    char *rest;
    unsigned long bits = strtoul(w + 2, &rest, 10);
    unsigned long lanes = *rest == 'x' ? strtoul(rest + 1, NULL, 10) : 1;
    return bits >= 8 && bits <= 128 && lanes && lanes <= 4 ? bits / 8 * lanes : 0;
}

/* One declaration after its state space: `.align 4 .b8 name[12]` and the like; the word after it is
 * in p->word. 0 if it is no declaration. */
static int declaration(struct ptx *p, char *name, size_t room, size_t *bytes, size_t *align)
{
    size_t element = 0, count = 1;
    int pointer = 0; /* what follows .ptr describes the memory pointed to */
    *align = 0;
    name[0] = 0;
    for (;;) {
        const char *w = next(p);
        if (strcmp(w, ".ptr") == 0) {
            pointer = 1;
        } else if (strcmp(w, ".align") == 0) {
            size_t n = strtoul(next(p), NULL, 10);
            *align = pointer ? *align : n;
        } else if (strcmp(w, ".v2") == 0 || strcmp(w, ".v4") == 0) {
            count *= (size_t)(w[2] - '0');
        } else if (type_bytes(w)) {
            element = type_bytes(w);
        } else if (w[0] == '.') {
            continue; /* .global .attribute ... */
        } else if (strcmp(w, "(") == 0) {
            while (*w && strcmp(w, ")") != 0)
                w = next(p); /* arguments of .attribute */
        } else if (word_char(w[0])) {
            size_t n = strlen(w);
            if (!element || n >= room)
                return 0;
            memcpy(name, w, n + 1);
            break;
        } else {
            return 0;
        }
    }
    while (strcmp(next(p), "[") == 0) {
        unsigned long n = strtoul(next(p), NULL, 10);
        if (!n || n > SIZE_MAX / 256 / count)
            return 0;
        count *= n;
        if (strcmp(next(p), "]") != 0)
            return 0;
    }
    *bytes = element * count;
    if (!*align)
        *align = element;
    return 1;
}

/* The list after `.entry name`; the closing parenthesis or what stands instead of a list is read. */
static CUresult entry_params(struct ptx *p, struct simgpu_param **params, unsigned *nparams)
{
    struct simgpu_param *list = NULL;
    unsigned n = 0;
    size_t offset = 0;
    char name[512];
    CUresult r = CUDA_SUCCESS;
    if (strcmp(next(p), "(") == 0 && strcmp(next(p), ")") != 0) {
        for (;;) {
            size_t bytes, align;
            if (strcmp(p->word, ".param") != 0 ||
                !declaration(p, name, sizeof name, &bytes, &align) || bytes > 32764) {
                r = CUDA_ERROR_INVALID_PTX;
                break;
            }
            struct simgpu_param *grown = realloc(list, (n + 1) * sizeof *list);
            if (!grown) {
                r = CUDA_ERROR_OUT_OF_MEMORY;
                break;
            }
            list = grown;
            offset = (offset + align - 1) / align * align;
            list[n].offset = (uint16_t)offset;
            list[n++].size = (uint16_t)bytes;
            offset += bytes;
            if (strcmp(p->word, ",") != 0)
                break;
            next(p);
        }
        if (r == CUDA_SUCCESS && (strcmp(p->word, ")") != 0 || offset > 32764))
            r = CUDA_ERROR_INVALID_PTX;
    }
    if (r != CUDA_SUCCESS) {
        free(list);
        return r;
    }
    *params = list;
    *nparams = n;
    return CUDA_SUCCESS;
}

static CUresult entry(struct ptx *p, struct sg_code *code)
{
    char name[512];
    struct simgpu_param *params = NULL;
    unsigned n = 0;
    memcpy(name, next(p), sizeof name);
    CUresult r = entry_params(p, &params, &n);
    if (r == CUDA_SUCCESS && sg_code_add_kernel(code, name, params, n) != 0)
        r = CUDA_ERROR_OUT_OF_MEMORY;
    free(params);
    return r;
}

/* A module variable; its initial value is not read (nothing here runs PTX). */
static CUresult variable(struct ptx *p, int constant, struct sg_code *code)
{
    char name[512];
    size_t bytes, align;
    const char *from = p->at;
    if (!declaration(p, name, sizeof name, &bytes, &align))
        return CUDA_SUCCESS; /* an unsized or exotic declaration */
    int managed = 0;
    for (const char *q = from; q + 7 < p->at; q++)
        managed |= memcmp(q, "managed", 7) == 0;
    return sg_code_add_global(code, name, bytes, NULL, constant, managed) != 0
               ? CUDA_ERROR_OUT_OF_MEMORY
               : CUDA_SUCCESS;
}

int sg_ptx_arch(const char *text, size_t bytes)
{
    struct ptx p = {text, text + bytes, ""};
    while (*next(&p)) {
        if (strcmp(p.word, ".target") == 0) {
            const char *w = next(&p);
            return strncmp(w, "sm_", 3) == 0 ? (int)strtol(w + 3, NULL, 10) : 0;
        }
    }
    return 0;
}

CUresult sg_ptx_parse(const char *text, size_t bytes, struct sg_code *code)
{
    struct ptx p = {text, text + bytes, ""};
    int depth = 0;
    if (!sg_ptx_arch(text, bytes))
        return CUDA_ERROR_INVALID_PTX;
    while (*next(&p)) {
        CUresult r = CUDA_SUCCESS;
        if (strcmp(p.word, "{") == 0)
            depth++;
        else if (strcmp(p.word, "}") == 0)
            depth--;
        else if (!depth && strcmp(p.word, ".entry") == 0)
            r = entry(&p, code);
        else if (!depth && (strcmp(p.word, ".global") == 0 || strcmp(p.word, ".const") == 0))
            r = variable(&p, p.word[1] == 'c', code);
        if (r != CUDA_SUCCESS)
            return r;
    }
    code->arch = sg_ptx_arch(text, bytes);
    return CUDA_SUCCESS;
}
