/* element.h: the element types of tensors as single precision, and back, rounded to nearest even.
 *
 * Those of number.h, and integers of 8, 32 and 64 bits.
 * Plain arithmetic, thread-safe.
 */
#ifndef SG_ELEMENT_H
#define SG_ELEMENT_H

#include <stdint.h>

/* Whether elements of a cudnnDataType_t can be read and written here. */
int sg_type_known(int type);

/* Element `at` of an array of a known type. */
float sg_element_get(int type, const void *p, int64_t at);
void sg_element_set(int type, void *p, int64_t at, float v);

/* v as it reads back once it was kept as this type; types without storage (booleans) give 0 or 1.
 */
float sg_element_round(int type, float v);

#endif
