#include "number.h"

#include <string.h>

static float from_bits(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static uint32_t bits_of(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

float sg_from_f16(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, exponent = bits >> 10 & 0x1fu,
             fraction = bits & 0x3ffu;
    if (exponent == 0) { /* zero, or subnormal: a multiple of 2^-24 */
        float v = (float)fraction * 0x1p-24f;
        return sign ? -v : v;
    }
    if (exponent == 31) { /* infinity or NaN */
        return from_bits(sign | 0x7f800000u | fraction << 13);
    }
    return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

/* The upper bits of `v` without its lowest `drop` (1 to 31) ones, rounded to nearest, ties to even. */
static uint32_t round_off(uint32_t v, unsigned drop)
{
    uint32_t kept = v >> drop, rest = v & ((UINT32_C(1) << drop) - 1), half = UINT32_C(1) << (drop - 1);
    return kept + (rest > half || (rest == half && (kept & 1)));
}

uint16_t sg_to_f16(float v)
{
    uint32_t bits = bits_of(v), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u); /* NaN */
    }
    if (magnitude >= 0x47800000u) {
        return (uint16_t)(sign | 0x7c00u); /* 65536 and more: infinity */
    }
    if (magnitude >= 0x38800000u) { /* normal; a carry goes into the exponent, up to infinity */
        return (uint16_t)(sign | round_off(magnitude - (UINT32_C(112) << 23), 13));
    }
    unsigned shift = 126u - (magnitude >> 23); /* so that the unit is 2^-24 */
    if (shift > 25) {
        return (uint16_t)sign; /* less than half of the smallest */
    }
    return (uint16_t)(sign | round_off((magnitude & 0x7fffffu) | 0x800000u, shift));
}

float sg_from_bf16(uint16_t bits)
{
    return from_bits((uint32_t)bits << 16);
}

uint16_t sg_to_bf16(float v)
{
    uint32_t bits = bits_of(v);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)(bits >> 16 | 0x40u); /* NaN, quiet */
    }
    return (uint16_t)round_off(bits, 16);
}

double sg_number_load(enum sg_number type, const void *base, int64_t index)
{
    switch (type) {
    case SG_F64:
        return ((const double *)base)[index];
    case SG_F16:
        return (double)sg_from_f16(((const uint16_t *)base)[index]);
    case SG_BF16:
        return (double)sg_from_bf16(((const uint16_t *)base)[index]);
    default:
        return (double)((const float *)base)[index];
    }
}

void sg_number_store(enum sg_number type, void *base, int64_t index, double v)
{
    switch (type) {
    case SG_F64:
        ((double *)base)[index] = v;
        break;
    case SG_F16:
        ((uint16_t *)base)[index] = sg_to_f16((float)v);
        break;
    case SG_BF16:
        ((uint16_t *)base)[index] = sg_to_bf16((float)v);
        break;
    default:
        ((float *)base)[index] = (float)v;
    }
}
