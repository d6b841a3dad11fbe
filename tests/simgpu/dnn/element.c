#include "element.h"

#include <cudnn.h>
#include <math.h>

#include "number.h"

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
        return sg_from_f16(((const uint16_t *)p)[at]);
    case CUDNN_DATA_BFLOAT16:
        return sg_from_bf16(((const uint16_t *)p)[at]);
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
        ((uint16_t *)p)[at] = sg_to_f16(v);
        break;
    case CUDNN_DATA_BFLOAT16:
        ((uint16_t *)p)[at] = sg_to_bf16(v);
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
