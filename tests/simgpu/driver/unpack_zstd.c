/* unpack_zstd.c: a Zstandard decoder after RFC 8878.
 *
 * A frame is a list of blocks; a compressed block holds literals (plain, one byte repeated, or
 * Huffman coded in one or four streams) and sequences (literal length, match length, offset), each
 * coded with finite state entropy tables. Bit streams are read from their end backwards. Huffman and
 * FSE tables may be kept from block to block.
 */
#include "unpack.h"

#include <stdint.h>
#include <string.h>

#define BLOCK_MAX    (128 * 1024)
#define HUF_BITS_MAX 11
#define FSE_LOG_MAX  9 /* the largest of the three sequence tables */

struct fse_cell {
    uint16_t base; /* next state = base + bits */
    uint8_t bits, symbol;
};

struct fse_table {
    struct fse_cell cells[1 << FSE_LOG_MAX];
    int log; /* accuracy: 1 << log cells; -1: no table yet */
};

struct huf_cell {
    uint8_t symbol, bits;
};

struct zstd {
    unsigned char *dst, *out, *limit;
    struct huf_cell huf[1 << HUF_BITS_MAX];
    int huf_bits; /* 0: no table yet */
    struct fse_table lengths, offsets, matches;
    uint64_t repeat[3];
    unsigned char literals[BLOCK_MAX];
    size_t nliterals;
};

/* ---- bits, from the end of a range to its begin ---------------------------------------------------*/

struct bits {
    const unsigned char *begin;
    size_t left; /* bits not read yet; reading below 0 gives zeros and sets `over` */
    int over;    /* bits asked for beyond the begin */
};

/* The last byte ends with a 1 bit that marks where the stream starts. -1 if there is none. */
static int bits_open(struct bits *b, const unsigned char *p, size_t n)
{
    if (!n || !p[n - 1])
        return -1;
    unsigned last = p[n - 1];
    int high = 7;
    while (!(last >> high))
        high--;
    b->begin = p;
    b->left = (n - 1) * 8 + (size_t)high;
    b->over = 0;
    return 0;
}

static uint64_t bits_read(struct bits *b, int n)
{
    uint64_t v = 0;
    for (int i = 0; i < n; i++) {
        unsigned bit = 0;
        if (b->left) {
            b->left--;
            bit = (unsigned)b->begin[b->left >> 3] >> (b->left & 7) & 1u;
        } else {
            b->over++;
        }
        v = v << 1 | bit;
    }
    return v;
}

static int high_bit(uint32_t v)
{
    int n = -1;
    for (; v; v >>= 1)
        n++;
    return n;
}

/* ---- finite state entropy -------------------------------------------------------------------------*/

/* Spreads the symbols over the table (RFC 8878, 4.1.1). A count of -1 is a probability below one. */
static int fse_build(struct fse_table *t, const int16_t *counts, int nsymbols, int log)
{
    size_t size = (size_t)1 << log, high = size;
    uint16_t next[256];
    for (int s = 0; s < nsymbols; s++) {
        next[s] = (uint16_t)(counts[s] < 0 ? 1 : counts[s]);
        if (counts[s] < 0)
            t->cells[--high].symbol = (uint8_t)s;
    }
    size_t step = (size >> 1) + (size >> 3) + 3, at = 0;
    for (int s = 0; s < nsymbols; s++) {
        for (int i = 0; i < counts[s]; i++) {
            t->cells[at].symbol = (uint8_t)s;
            do
                at = (at + step) & (size - 1);
            while (at >= high);
        }
    }
    if (at != 0)
        return -1;
    for (size_t i = 0; i < size; i++) {
        uint16_t state = next[t->cells[i].symbol]++;
        int bits = log - high_bit(state);
        t->cells[i].bits = (uint8_t)bits;
        t->cells[i].base = (uint16_t)(((unsigned)state << bits) - size);
    }
    t->log = log;
    return 0;
}

/* Reads the counts of a table (4.1.1) from bits that run forwards. Returns the bytes used or -1. */
static long fse_read(struct fse_table *t, const unsigned char *src, size_t n, int max_symbol,
                     int max_log)
{
    size_t pos = 0, total = n * 8;
    int16_t counts[256];
    int symbol = 0;
#define TAKE(count, into)                                                                          \
    do {                                                                                           \
        uint32_t v_ = 0;                                                                           \
        for (int i_ = 0; i_ < (count); i_++, pos++) {                                              \
            if (pos >= total)                                                                      \
                return -1;                                                                         \
            v_ |= (uint32_t)(src[pos >> 3] >> (pos & 7) & 1) << i_;                                \
        }                                                                                          \
        (into) = v_;                                                                               \
    } while (0)
    uint32_t v;
    TAKE(4, v);
    int log = (int)v + 5;
    if (log > max_log)
        return -1;
    int remaining = (1 << log) + 1;
    while (remaining > 1 && symbol <= max_symbol) {
        int nbits = high_bit((uint32_t)remaining) + 1;
        uint32_t low = (1u << (nbits - 1)) - 1, spare = (1u << nbits) - 1 - (uint32_t)remaining;
        TAKE(nbits - 1, v);
        if ((v & low) >= spare) { /* the larger values take one bit more */
            uint32_t top;
            TAKE(1, top);
            v |= top << (nbits - 1);
            if (top)
                v -= spare;
        }
        int count = (int)v - 1;
        remaining -= count < 0 ? -count : count;
        counts[symbol++] = (int16_t)count;
        while (count == 0) { /* runs of further zeros, in steps of three */
            uint32_t zeros;
            TAKE(2, zeros);
            for (uint32_t i = 0; i < zeros; i++) {
                if (symbol > max_symbol)
                    return -1;
                counts[symbol++] = 0;
            }
            if (zeros != 3)
                break;
        }
    }
#undef TAKE
    if (remaining != 1 || fse_build(t, counts, symbol, log) != 0)
        return -1;
    return (long)((pos + 7) / 8);
}

/* ---- Huffman literals -------------------------------------------------------------------------------*/

/* Weights coded by FSE: two states take turns until the bits run out. Returns the number or -1. */
static int huf_weights_fse(unsigned char *weights, const unsigned char *src, size_t n)
{
    struct fse_table t;
    long used = fse_read(&t, src, n, 12, 6);
    struct bits b;
    if (used < 0 || bits_open(&b, src + used, n - (size_t)used) != 0)
        return -1;
    size_t a = bits_read(&b, t.log), c = bits_read(&b, t.log);
    int count = 0;
    for (;;) {
        if (count > 253)
            return -1;
        weights[count++] = t.cells[a].symbol;
        if ((size_t)t.cells[a].bits > b.left) {
            weights[count++] = t.cells[c].symbol;
            return count;
        }
        a = t.cells[a].base + bits_read(&b, t.cells[a].bits);
        size_t swap = a;
        a = c;
        c = swap;
    }
}

/* Fills the look-up table from the weights; the last weight completes the power of two. */
static int huf_build(struct zstd *z, unsigned char *weights, int n)
{
    uint32_t sum = 0;
    for (int i = 0; i < n; i++) {
        if (weights[i] > HUF_BITS_MAX + 1)
            return -1;
        sum += weights[i] ? 1u << (weights[i] - 1) : 0;
    }
    if (!sum)
        return -1;
    int bits = high_bit(sum) + 1;
    uint32_t rest = (1u << bits) - sum;
    if (bits > HUF_BITS_MAX || rest & (rest - 1) || n > 255)
        return -1;
    weights[n] = (unsigned char)(high_bit(rest) + 1);
    size_t at = 0;
    for (int w = 1; w <= bits; w++) {
        for (int s = 0; s <= n; s++) {
            if (weights[s] != w)
                continue;
            size_t span = (size_t)1 << (w - 1);
            if (at + span > (size_t)1 << bits)
                return -1;
            for (size_t i = 0; i < span; i++)
                z->huf[at++] = (struct huf_cell){(uint8_t)s, (uint8_t)(bits + 1 - w)};
        }
    }
    if (at != (size_t)1 << bits)
        return -1;
    z->huf_bits = bits;
    return 0;
}

/* The tree description at `src`. Returns its bytes or -1. */
static long huf_read(struct zstd *z, const unsigned char *src, size_t n)
{
    unsigned char weights[257];
    if (!n)
        return -1;
    unsigned head = src[0];
    int count;
    size_t used;
    if (head < 128) {
        used = 1 + (size_t)head;
        if (used > n)
            return -1;
        count = huf_weights_fse(weights, src + 1, head);
    } else {
        count = (int)head - 127;
        used = 1 + (size_t)(count + 1) / 2;
        if (used > n)
            return -1;
        for (int i = 0; i < count; i++)
            weights[i] = i & 1 ? src[1 + i / 2] & 15 : src[1 + i / 2] >> 4;
    }
    return count < 1 || huf_build(z, weights, count) != 0 ? -1 : (long)used;
}

static int huf_stream(const struct zstd *z, unsigned char *out, size_t count,
                      const unsigned char *src, size_t n)
{
    struct bits b;
    if (bits_open(&b, src, n) != 0)
        return -1;
    size_t mask = ((size_t)1 << z->huf_bits) - 1;
    size_t state = bits_read(&b, z->huf_bits);
    for (size_t i = 0; i < count; i++) {
        struct huf_cell c = z->huf[state];
        out[i] = c.symbol;
        state = (state << c.bits | bits_read(&b, c.bits)) & mask;
    }
    /* at the end the state holds only bits from beyond the begin */
    return b.left == 0 && b.over == z->huf_bits ? 0 : -1;
}

static int huf_streams4(const struct zstd *z, unsigned char *out, size_t count,
                        const unsigned char *src, size_t n)
{
    if (n < 6)
        return -1;
    size_t sizes[4] = {(size_t)src[0] | (size_t)src[1] << 8, (size_t)src[2] | (size_t)src[3] << 8,
                       (size_t)src[4] | (size_t)src[5] << 8, 0};
    if (sizes[0] + sizes[1] + sizes[2] > n - 6)
        return -1;
    sizes[3] = n - 6 - sizes[0] - sizes[1] - sizes[2];
    size_t each = (count + 3) / 4, done = 0;
    src += 6;
    for (int i = 0; i < 4; i++) {
        size_t part = i < 3 ? each : count - done;
        if (part > count - done || huf_stream(z, out + done, part, src, sizes[i]) != 0)
            return -1;
        done += part;
        src += sizes[i];
    }
    return 0;
}

/* The literals section (3.1.1.3.1). Returns its bytes or -1. */
static long zstd_literals(struct zstd *z, const unsigned char *src, size_t n)
{
    if (!n)
        return -1;
    int type = src[0] & 3, format = src[0] >> 2 & 3;
    if (type < 2) { /* plain, or one byte repeated */
        size_t head = format == 1 ? 2 : format == 3 ? 3 : 1;
        if (head > n)
            return -1;
        size_t size = head == 1   ? (size_t)src[0] >> 3
                      : head == 2 ? ((size_t)src[0] | (size_t)src[1] << 8) >> 4
                                  : ((size_t)src[0] | (size_t)src[1] << 8 | (size_t)src[2] << 16) >> 4;
        size_t body = type == 0 ? size : 1;
        if (size > BLOCK_MAX || body > n - head)
            return -1;
        if (type == 0)
            memcpy(z->literals, src + head, size);
        else
            memset(z->literals, src[head], size);
        z->nliterals = size;
        return (long)(head + body);
    }
    size_t head = format < 2 ? 3 : format == 2 ? 4 : 5;
    int field = format < 2 ? 10 : format == 2 ? 14 : 18;
    if (head > n)
        return -1;
    uint64_t word = 0;
    for (size_t i = 0; i < head; i++)
        word |= (uint64_t)src[i] << (8 * i);
    size_t size = (size_t)(word >> 4) & (((size_t)1 << field) - 1);
    size_t packed = (size_t)(word >> (4 + field)) & (((size_t)1 << field) - 1);
    if (size > BLOCK_MAX || packed > n - head)
        return -1;
    const unsigned char *body = src + head;
    size_t left = packed;
    if (type == 2) {
        long tree = huf_read(z, body, left);
        if (tree < 0)
            return -1;
        body += tree;
        left -= (size_t)tree;
    } else if (!z->huf_bits) {
        return -1;
    }
    int bad = format == 0 ? huf_stream(z, z->literals, size, body, left)
                          : huf_streams4(z, z->literals, size, body, left);
    z->nliterals = size;
    return bad ? -1 : (long)(head + packed);
}

/* ---- sequences ----------------------------------------------------------------------------------------*/

/* Default distributions (3.1.1.3.2.2). */
static const int16_t default_lengths[36] = {4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2,  1,  1,  1,  2, 2,
                                            2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1};
static const int16_t default_matches[53] = {1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1,  1,  1,  1,  1,
                                            1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,  1,  1,  1,  1,
                                            1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1};
static const int16_t default_offsets[29] = {1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1,  1,  1,  1, 1,
                                            1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1};

/* Codes to values: a base and a number of further bits. */
static const uint32_t length_base[36] = {0,  1,  2,  3,  4,  5,  6,   7,   8,   9,    10,   11,
                                         12, 13, 14, 15, 16, 18, 20,  22,  24,  28,   32,   40,
                                         48, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536};
static const uint8_t length_bits[36] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  0,  0,  0,  0,  0,  0, 1, 1,
                                        1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
static const uint32_t match_base[53] = {
    3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24,  25,  26,  27,   28,   29,
    30, 31, 32, 33, 34, 35, 37, 39, 41, 43, 47, 51, 59, 67, 83, 99, 131, 259, 515, 1027, 2051, 4099, 8195, 16387, 32771, 65539};
static const uint8_t match_bits[53] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                       0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1,
                                       2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

struct table_kind {
    const int16_t *counts;
    int nsymbols, log, max_log;
};

/* One of the three tables by its mode: predefined, one symbol, described here, or as before. */
static long zstd_table(struct fse_table *t, int mode, const struct table_kind *k,
                       const unsigned char *src, size_t n)
{
    switch (mode) {
    case 0:
        return fse_build(t, k->counts, k->nsymbols, k->log) == 0 ? 0 : -1;
    case 1:
        if (!n || src[0] >= 64)
            return -1;
        t->log = 0;
        t->cells[0] = (struct fse_cell){0, 0, src[0]};
        return 1;
    case 2:
        return fse_read(t, src, n, k->nsymbols - 1, k->max_log);
    default:
        return t->log < 0 ? -1 : 0;
    }
}

static int zstd_copy(struct zstd *z, uint64_t offset, size_t length)
{
    if (!offset || offset > (uint64_t)(z->out - z->dst) || length > (size_t)(z->limit - z->out))
        return -1;
    for (; length; length--, z->out++)
        *z->out = z->out[-(ptrdiff_t)offset];
    return 0;
}

/* Offset codes 1 to 3 name one of the last three offsets, shifted by one where no literals precede. */
static uint64_t zstd_offset(struct zstd *z, uint64_t code, size_t literals)
{
    if (code > 3) {
        z->repeat[2] = z->repeat[1];
        z->repeat[1] = z->repeat[0];
        z->repeat[0] = code - 3;
        return z->repeat[0];
    }
    unsigned which = (unsigned)code - 1 + (literals == 0);
    if (which == 0)
        return z->repeat[0];
    uint64_t offset = which < 3 ? z->repeat[which] : z->repeat[0] - 1;
    if (which > 1)
        z->repeat[2] = z->repeat[1];
    z->repeat[1] = z->repeat[0];
    z->repeat[0] = offset;
    return offset;
}

static int zstd_literal_run(struct zstd *z, size_t *taken, size_t n)
{
    if (n > z->nliterals - *taken || n > (size_t)(z->limit - z->out))
        return -1;
    memcpy(z->out, z->literals + *taken, n);
    z->out += n;
    *taken += n;
    return 0;
}

static int zstd_run(struct zstd *z, struct bits *b, size_t count)
{
    size_t l = bits_read(b, z->lengths.log), o = bits_read(b, z->offsets.log);
    size_t m = bits_read(b, z->matches.log), taken = 0;
    for (size_t i = 0; i < count; i++) {
        struct fse_cell lc = z->lengths.cells[l], oc = z->offsets.cells[o], mc = z->matches.cells[m];
        if (lc.symbol > 35 || mc.symbol > 52 || oc.symbol > 31)
            return -1;
        uint64_t code = ((uint64_t)1 << oc.symbol) + bits_read(b, oc.symbol);
        size_t match = match_base[mc.symbol] + bits_read(b, match_bits[mc.symbol]);
        size_t literals = length_base[lc.symbol] + bits_read(b, length_bits[lc.symbol]);
        uint64_t offset = zstd_offset(z, code, literals);
        if (zstd_literal_run(z, &taken, literals) != 0 || zstd_copy(z, offset, match) != 0)
            return -1;
        if (i + 1 < count) {
            l = lc.base + bits_read(b, lc.bits);
            m = mc.base + bits_read(b, mc.bits);
            o = oc.base + bits_read(b, oc.bits);
        }
        if (b->over)
            return -1;
    }
    if (b->left)
        return -1;
    return zstd_literal_run(z, &taken, z->nliterals - taken);
}

/* The sequences section (3.1.1.3.2), which ends the block. */
static int zstd_sequences(struct zstd *z, const unsigned char *src, size_t n)
{
    static const struct table_kind kinds[3] = {
        {default_lengths, 36, 6, 9}, {default_offsets, 29, 5, 8}, {default_matches, 53, 6, 9}};
    static const struct table_kind offsets_any = {default_offsets, 32, 5, 8};
    if (!n)
        return -1;
    size_t count = src[0], used = 1;
    if (count >= 128) {
        used = count < 255 ? 2 : 3;
        if (used > n)
            return -1;
        count = used == 2 ? ((count - 128) << 8) + src[1]
                          : (size_t)src[1] + ((size_t)src[2] << 8) + 0x7F00;
    }
    size_t taken = 0;
    if (!count)
        return used == n ? zstd_literal_run(z, &taken, z->nliterals) : -1;
    if (used >= n)
        return -1;
    unsigned modes = src[used++];
    struct fse_table *tables[3] = {&z->lengths, &z->offsets, &z->matches};
    for (int i = 0; i < 3; i++) {
        int mode = (int)(modes >> (6 - 2 * i)) & 3;
        const struct table_kind *k = i == 1 && mode == 2 ? &offsets_any : &kinds[i];
        long got = zstd_table(tables[i], mode, k, src + used, n - used);
        if (got < 0)
            return -1;
        used += (size_t)got;
    }
    struct bits b;
    return bits_open(&b, src + used, n - used) != 0 ? -1 : zstd_run(z, &b, count);
}

/* ---- frames ---------------------------------------------------------------------------------------------*/

static int zstd_block(struct zstd *z, int type, const unsigned char *src, size_t size)
{
    switch (type) {
    case 0:
        if (size > (size_t)(z->limit - z->out))
            return -1;
        memcpy(z->out, src, size);
        z->out += size;
        return 0;
    case 1:
        if (size > (size_t)(z->limit - z->out))
            return -1;
        memset(z->out, src[0], size);
        z->out += size;
        return 0;
    case 2: {
        long literals = zstd_literals(z, src, size);
        return literals < 0 ? -1
                            : zstd_sequences(z, src + literals, size - (size_t)literals);
    }
    default:
        return -1;
    }
}

/* Bytes of the frame header, or 0 if it is not one that can be read here. */
static size_t zstd_header(const unsigned char *src, size_t n)
{
    static const unsigned char magic[4] = {0x28, 0xB5, 0x2F, 0xFD};
    static const size_t id_bytes[4] = {0, 1, 2, 4}, size_bytes[4] = {0, 2, 4, 8};
    if (n < 6 || memcmp(src, magic, 4) != 0)
        return 0;
    unsigned d = src[4];
    size_t single = d >> 5 & 1;
    size_t bytes = (single ? 5u : 6u) + id_bytes[d & 3] + size_bytes[d >> 6];
    if (!(d >> 6) && single)
        bytes++;
    return bytes <= n ? bytes : 0;
}

long sg_unpack_zstd(unsigned char *dst, size_t dst_bytes, const unsigned char *src,
                    size_t src_bytes)
{
    struct zstd z; /* about 140 KiB of stack: loading code is rare and its threads are ordinary */
    z.dst = z.out = dst;
    z.limit = dst + dst_bytes;
    z.huf_bits = 0;
    z.nliterals = 0;
    z.lengths.log = z.offsets.log = z.matches.log = -1;
    z.repeat[0] = 1, z.repeat[1] = 4, z.repeat[2] = 8;
    size_t at = zstd_header(src, src_bytes);
    if (!at)
        return -1;
    for (int last = 0; !last;) {
        if (src_bytes - at < 3)
            return -1;
        uint32_t head = (uint32_t)src[at] | (uint32_t)src[at + 1] << 8 | (uint32_t)src[at + 2] << 16;
        at += 3;
        last = (int)(head & 1);
        int type = (int)(head >> 1) & 3;
        size_t size = head >> 3, stored = type == 1 ? 1 : size;
        if ((type == 2 && size > BLOCK_MAX) || stored > src_bytes - at ||
            zstd_block(&z, type, src + at, size) != 0)
            return -1;
        at += stored;
    }
    return (long)(z.out - z.dst);
}
