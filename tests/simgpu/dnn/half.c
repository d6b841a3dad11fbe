#include "half.h"

#include <cudnn.h>
#include <math.h>
#include <string.h>

static uint32_t bits_of(float v)
{
    uint32_t b;
    memcpy(&b, &v, sizeof b);
    return b;
}

static float of_bits(uint32_t b)
{
    float v;
    memcpy(&v, &b, sizeof v);
    return v;
}

float sg_from_half(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 31u, fraction = h & 0x3ffu;
    if (exponent == 31) {
        return of_bits(sign | 0x7f800000u | fraction << 13);
    }
    if (exponent == 0) { /* zero or subnormal: fraction * 2^-24, exact in single precision */
        float v = (float)fraction * 0x1p-24f;
        return sign ? -v : v;
    }
    return of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

/* Adds what rounds `b` to nearest even when its low `drop` bits are cut off. */
static uint32_t round_even(uint32_t b, unsigned drop)
{
    return b + (1u << (drop - 1)) - 1 + (b >> drop & 1u);
}

uint16_t sg_to_half(float v)
{
    uint32_t b = bits_of(v), magnitude = b & 0x7fffffffu;
    uint16_t sign = (uint16_t)(b >> 16 & 0x8000u);
    if (magnitude > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u);
    }
    if (magnitude < 0x38800000u) { /* below 2^-14: subnormal, in units of 2^-24 */
        return (uint16_t)(sign | (uint16_t)nearbyintf(of_bits(magnitude) * 0x1p24f));
    }
    uint32_t rounded = round_even(magnitude, 13);
    if (rounded >= 0x47800000u) { /* 2^16 and more, infinity too */
        return (uint16_t)(sign | 0x7c00u);
    }
    return (uint16_t)(sign | (rounded - (112u << 23)) >> 13);
}

float sg_from_bfloat(uint16_t h)
{
    return of_bits((uint32_t)h << 16);
}

uint16_t sg_to_bfloat(float v)
{
    uint32_t b = bits_of(v);
    if ((b & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)(b >> 16 | 0x40u);
    }
    return (uint16_t)(round_even(b, 16) >> 16);
}

int sg_type_known(int type)
{
    switch (type) {
    case CUDNN_DATA_FLOAT:
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16:
    case CUDNN_DATA_INT32:
    case CUDNN_DATA_INT64:
    case CUDNN_DATA_INT8:
    case CUDNN_DATA_UINT8:
        return 1;
    default:
        return 0;
    }
}

float sg_element_get(int type, const void *p, int64_t at)
{
    switch (type) {
    case CUDNN_DATA_HALF:
        return sg_from_half(((const uint16_t *)p)[at]);
    case CUDNN_DATA_BFLOAT16:
        return sg_from_bfloat(((const uint16_t *)p)[at]);
    case CUDNN_DATA_INT32:
        return (float)((const int32_t *)p)[at];
    case CUDNN_DATA_INT64:
        return (float)((const int64_t *)p)[at];
    case CUDNN_DATA_INT8:
        return (float)((const int8_t *)p)[at];
    case CUDNN_DATA_UINT8:
        return (float)((const uint8_t *)p)[at];
    default:
        return ((const float *)p)[at];
    }
}

/* v as an integer between the bounds; not a number is 0. */
static int64_t integer(float v, double low, double high)
{
    double d = isnan(v) ? 0 : v < low ? low : v > high ? high : v;
    return (int64_t)d;
}

void sg_element_set(int type, void *p, int64_t at, float v)
{
    switch (type) {
    case CUDNN_DATA_HALF:
        ((uint16_t *)p)[at] = sg_to_half(v);
        break;
    case CUDNN_DATA_BFLOAT16:
        ((uint16_t *)p)[at] = sg_to_bfloat(v);
        break;
    case CUDNN_DATA_INT32:
        ((int32_t *)p)[at] = (int32_t)integer(v, INT32_MIN, INT32_MAX);
        break;
    case CUDNN_DATA_INT64:
        ((int64_t *)p)[at] = integer(v, -0x1p62, 0x1p62);
        break;
    case CUDNN_DATA_INT8:
        ((int8_t *)p)[at] = (int8_t)integer(v, INT8_MIN, INT8_MAX);
        break;
    case CUDNN_DATA_UINT8:
        ((uint8_t *)p)[at] = (uint8_t)integer(v, 0, UINT8_MAX);
        break;
    default:
        ((float *)p)[at] = v;
    }
}

float sg_element_round(int type, float v)
{
    int64_t kept; /* room for any element */
    if (type == CUDNN_DATA_BOOLEAN) {
        return v != 0.0f;
    }
    sg_element_set(type, &kept, 0, v);
    return sg_element_get(type, &kept, 0);
}
