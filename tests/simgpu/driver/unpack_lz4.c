/* unpack_lz4.c: the LZ4 block format: runs of literals, each followed by a copy from what was
 * already written. */
#include "unpack.h"

#include <stdint.h>
#include <string.h>

/* A length whose nibble is full goes on in bytes until one is below 255. */
static int lz4_length(const unsigned char **src, const unsigned char *end, size_t *length)
{
    if (*length < 15)
        return 0;
    for (;;) {
        if (*src == end)
            return -1;
        unsigned char b = *(*src)++;
        *length += b;
        if (b != 255)
            return 0;
    }
}

long sg_unpack_lz4(unsigned char *dst, size_t dst_bytes, const unsigned char *src, size_t src_bytes)
{
    const unsigned char *end = src + src_bytes;
    unsigned char *out = dst, *limit = dst + dst_bytes;
    while (src < end) {
        unsigned token = *src++;
        size_t literals = token >> 4, match = token & 15;
        if (lz4_length(&src, end, &literals) != 0 || literals > (size_t)(end - src) ||
            literals > (size_t)(limit - out))
            return -1;
        memcpy(out, src, literals);
        out += literals;
        src += literals;
        if (src == end)
            break; /* the last sequence has literals only */
        if (end - src < 2)
            return -1;
        size_t offset = (size_t)src[0] | (size_t)src[1] << 8;
        src += 2;
        if (lz4_length(&src, end, &match) != 0)
            return -1;
        match += 4;
        if (!offset || offset > (size_t)(out - dst) || match > (size_t)(limit - out))
            return -1;
        for (; match; match--, out++)
            *out = out[-(ptrdiff_t)offset]; /* may overlap: byte by byte */
    }
    return (long)(out - dst);
}
