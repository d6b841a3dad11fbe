#include "units.h"

#include <stdbool.h>

#include "model.h"

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

uint64_t vm_unit_parse(const char **text)
{
    static const char letters[] = "kmgt";
    const char *s = *text;
    char c = (char)(*s | 0x20);
    uint64_t unit = 1;
    for (int i = 0; letters[i] && *s; i++)
        if (c == letters[i]) {
            unit = UINT64_C(1) << (10 * (i + 1));
            s++;
            break;
        }
    if (unit > 1 && (*s | 0x20) == 'i') {
        if ((s[1] | 0x20) != 'b')
            return 0; /* "Ki" */
        s++;
    }
    s += (*s | 0x20) == 'b';
    *text = s;
    return unit;
}

int vm_size_parse(const char *text, uint64_t whole, uint64_t *bytes)
{
    const char *s = text;
    uint64_t number = 0, unit;
    /* the fraction as parts / scale, at most nine digits of it */
    uint64_t parts = 0, scale = 1;
    while (is_space(*s))
        s++;
    const char *first = s;
    for (; is_digit(*s); s++)
        if (__builtin_mul_overflow(number, UINT64_C(10), &number) ||
            __builtin_add_overflow(number, (uint64_t)(*s - '0'), &number))
            return VM_EINVAL;
    if (s == first)
        return VM_EINVAL;
    if (*s == '.') {
        if (!is_digit(*++s))
            return VM_EINVAL;
        for (; is_digit(*s); s++)
            if (scale < 1000000000) {
                parts = parts * 10 + (uint64_t)(*s - '0');
                scale *= 10;
            }
    }
    while (is_space(*s))
        s++;
    __extension__ typedef unsigned __int128 wide;
    wide value;
    if (*s == '%') {
        s++;
        if (whole == 0)
            return VM_EINVAL;
        value = ((wide)whole * number + (wide)whole * parts / scale) / 100;
        if (number > 1000000)
            return VM_EINVAL;
    } else {
        unit = vm_unit_parse(&s);
        if (unit == 0)
            return VM_EINVAL;
        value = (wide)number * unit + (wide)unit * parts / scale;
    }
    while (is_space(*s))
        s++;
    if (*s || value > UINT64_MAX)
        return VM_EINVAL;
    *bytes = (uint64_t)value;
    return VM_OK;
}

/* Writes `hundredths` / 100 with three digits that count, then the unit. No printf: the decimal
 * point must not depend on the locale, and the shim's log uses this. */
static char *scaled_text(uint64_t hundredths, bool whole, const char *unit, char *buf, size_t n)
{
    char digits[40];
    size_t at = 0, len = 0;
    unsigned places = whole || hundredths >= 9995 ? 0 : hundredths >= 1000 ? 1 : 2;
    uint64_t v = places == 2   ? hundredths
                 : places == 1 ? (hundredths + 5) / 10
                               : (hundredths + (whole ? 0 : 50)) / 100;
    for (unsigned i = 0; v || i <= places; i++) {
        if (i == places && places)
            digits[len++] = '.';
        digits[len++] = (char)('0' + v % 10);
        v /= 10;
    }
    while (len && at + 1 < n)
        buf[at++] = digits[--len];
    if (at + 1 < n)
        buf[at++] = ' ';
    while (*unit && at + 1 < n)
        buf[at++] = *unit++;
    if (n)
        buf[at] = 0;
    return buf;
}

static char *unit_text(uint64_t value, uint64_t step, const char *const *units, int last, char *buf,
                       size_t n)
{
    __extension__ typedef unsigned __int128 wide;
    wide hundredths = (wide)value * 100;
    int u = 0;
    while (hundredths >= (wide)step * 100 && u < last) {
        hundredths = (hundredths + step / 2) / step;
        u++;
    }
    return scaled_text((uint64_t)hundredths, u == 0, units[u], buf, n);
}

char *vm_size_text(uint64_t bytes, char *buf, size_t n)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    return unit_text(bytes, 1024, units, 4, buf, n);
}

char *vm_time_text(uint64_t ns, char *buf, size_t n)
{
    static const char *const units[] = {"ns", "us", "ms", "s"};
    return unit_text(ns, 1000, units, 3, buf, n);
}
