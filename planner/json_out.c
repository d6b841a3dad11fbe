#include "json_out.h"

#include <string.h>

void vm_json_begin(struct vm_json_out *j, vm_put_fn put, void *ctx)
{
    j->put = put;
    j->ctx = ctx;
    j->used = 0;
    j->rc = 0;
    j->comma = 0;
}

static void flush(struct vm_json_out *j)
{
    if (j->used && j->rc == 0)
        j->rc = j->put(j->ctx, j->buf, j->used);
    j->used = 0;
}

int vm_json_end(struct vm_json_out *j)
{
    flush(j);
    return j->rc;
}

static void byte(struct vm_json_out *j, char c)
{
    if (j->used == sizeof j->buf)
        flush(j);
    j->buf[j->used++] = c;
}

static void raw(struct vm_json_out *j, const char *s)
{
    while (*s)
        byte(j, *s++);
}

static void quoted(struct vm_json_out *j, const char *s)
{
    static const char hex[] = "0123456789abcdef";
    byte(j, '"');
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') {
            byte(j, '\\');
            byte(j, (char)c);
        } else if (c < 0x20 || c >= 0x7f) {
            /* bytes that are no ASCII travel as Latin-1 code points and come back as they were */
            raw(j, "\\u00");
            byte(j, hex[c >> 4]);
            byte(j, hex[c & 15]);
        } else {
            byte(j, (char)c);
        }
    }
    byte(j, '"');
}

static void start_value(struct vm_json_out *j, const char *key)
{
    if (j->comma)
        byte(j, ',');
    j->comma = 1;
    if (key) {
        quoted(j, key);
        byte(j, ':');
    }
}

void vm_json_open(struct vm_json_out *j, const char *key, char bracket)
{
    start_value(j, key);
    byte(j, bracket);
    j->comma = 0;
}

void vm_json_close(struct vm_json_out *j, char bracket)
{
    byte(j, bracket);
    j->comma = 1;
}

void vm_json_newline(struct vm_json_out *j)
{
    byte(j, '\n');
    j->comma = 0;
}

void vm_json_text(struct vm_json_out *j, const char *key, const char *value)
{
    start_value(j, key);
    quoted(j, value);
}

static void decimal(struct vm_json_out *j, uint64_t v)
{
    char digits[21];
    int n = 0;
    do
        digits[n++] = (char)('0' + v % 10);
    while (v /= 10);
    while (n)
        byte(j, digits[--n]);
}

void vm_json_hex(struct vm_json_out *j, const char *key, uint64_t value)
{
    start_value(j, key);
    raw(j, "\"0x");
    int shift = 60;
    while (shift && !(value >> shift))
        shift -= 4;
    for (; shift >= 0; shift -= 4)
        byte(j, "0123456789abcdef"[value >> shift & 15]);
    byte(j, '"');
}

void vm_json_u64(struct vm_json_out *j, const char *key, uint64_t value)
{
    if (value >> 53) {
        vm_json_hex(j, key, value);
        return;
    }
    start_value(j, key);
    decimal(j, value);
}

void vm_json_real(struct vm_json_out *j, const char *key, double value)
{
    if (!(value >= 0 && value < 9223372036854775808.0))
        value = 0;
    uint64_t whole = (uint64_t)value;
    /* the fraction in units of 2^-60: multiplying by ten shifts one digit out at the top */
    uint64_t part = (uint64_t)((value - (double)whole) * 1152921504606846976.0);
    start_value(j, key);
    decimal(j, whole);
    if (part == 0)
        return;
    byte(j, '.');
    while (part) {
        part *= 10;
        byte(j, (char)('0' + (part >> 60)));
        part &= (UINT64_C(1) << 60) - 1;
    }
}
