/* number.h: the number formats of matrices and tensors in device memory, and the way into and out of
 * single precision, in which the simulated libraries compute what is narrower.
 *
 * Half precision is IEEE 754 binary16; bfloat16 is the upper half of binary32. Both are rounded to
 * nearest, ties to even; a NaN stays one. Plain arithmetic, thread-safe.
 */
#ifndef SG_NUMBER_H
#define SG_NUMBER_H

#include <stddef.h>
#include <stdint.h>

enum sg_number { SG_F32, SG_F64, SG_F16, SG_BF16 };

/* Bytes of one number. */
static inline size_t sg_number_bytes(enum sg_number type)
{
    return type == SG_F64 ? 8 : type == SG_F32 ? 4 : 2;
}

float sg_from_f16(uint16_t bits);
uint16_t sg_to_f16(float v);
float sg_from_bf16(uint16_t bits);
uint16_t sg_to_bf16(float v);

/* Number `index` of the array at `base`, as the nearest double. */
double sg_number_load(enum sg_number type, const void *base, int64_t index);

/* Stores v, rounded to the type, as number `index` of the array at `base`. */
void sg_number_store(enum sg_number type, void *base, int64_t index, double v);

#endif
