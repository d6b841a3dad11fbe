/* half.h: the element types of tensors as single precision, and back, rounded to nearest even.
 *
 * IEEE 754 binary16, bfloat16 (the upper half of binary32), 32- and 64-bit and 8-bit integers.
 * Plain arithmetic, thread-safe.
 */
#ifndef SG_HALF_H
#define SG_HALF_H

#include <stddef.h>
#include <stdint.h>

float sg_from_half(uint16_t h);
uint16_t sg_to_half(float v);
float sg_from_bfloat(uint16_t h);
uint16_t sg_to_bfloat(float v);

/* Whether elements of a cudnnDataType_t can be read and written here. */
int sg_type_known(int type);

/* Element `at` of an array of a known type. */
float sg_element_get(int type, const void *p, int64_t at);
void sg_element_set(int type, void *p, int64_t at, float v);

/* v as it reads back once it was kept as this type; types without storage (booleans) give 0 or 1.
 */
float sg_element_round(int type, float v);

#endif
