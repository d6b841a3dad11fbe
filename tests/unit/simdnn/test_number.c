/* Half precision and bfloat16: every value there and back, and rounding between neighbours. */
#include <criterion/criterion.h>
#include <math.h>
#include "number.h"

struct format {
    const char *name;
    float (*from)(uint16_t);
    uint16_t (*to)(float);
    uint16_t infinity;
};
static const struct format formats[] = {{"half", sg_from_f16, sg_to_f16, 0x7c00},
                                        {"bfloat16", sg_from_bf16, sg_to_bf16, 0x7f80}};

Test(number, every_value_comes_back)
{
    for (size_t f = 0; f < 2; f++) {
        for (unsigned bits = 0; bits < 0x10000; bits++) {
            float v = formats[f].from((uint16_t)bits);
            uint16_t back = formats[f].to(v);
            if (isnan(v)) {
                cr_assert(isnan(formats[f].from(back)), "%s %#x", formats[f].name, bits);
            } else {
                cr_assert_eq(back, bits, "%s %#x gives %#x", formats[f].name, bits, back);
            }
        }
    }
}

/* Between two neighbours the nearer one is taken, and in the middle the one whose last bit is 0. */
Test(number, rounds_to_nearest_even)
{
    for (size_t f = 0; f < 2; f++) {
        const struct format *t = &formats[f];
        for (unsigned bits = 0; bits + 1 < t->infinity; bits++) {
            double low = (double)t->from((uint16_t)bits), high = (double)t->from((uint16_t)(bits + 1));
            float middle = (float)((low + high) / 2);
            if ((double)middle != (low + high) / 2) {
                continue; /* the middle of two subnormal bfloat16 has no float */
            }
            uint16_t even = (uint16_t)(bits & 1 ? bits + 1 : bits);
            cr_assert_eq(t->to(middle), even, "%s above %#x", t->name, bits);
            cr_assert_eq(t->to(nextafterf(middle, 0)), bits, "%s below %#x", t->name, bits);
            cr_assert_eq(t->to(nextafterf(middle, INFINITY)), bits + 1, "%s %#x", t->name, bits);
            cr_assert_eq(t->to(-middle), even | 0x8000, "%s %#x negative", t->name, bits);
        }
    }
}

Test(number, known_values)
{
    cr_assert_eq(sg_to_f16(1.0f), 0x3c00);
    cr_assert_eq(sg_to_f16(65504.0f), 0x7bff);
    cr_assert_eq(sg_to_f16(65520.0f), 0x7c00, "half of the step above the largest: infinity");
    cr_assert_eq(sg_to_f16(65519.0f), 0x7bff);
    cr_assert_eq(sg_to_f16(0x1p-24f), 1);
    cr_assert_eq(sg_to_f16(0x1p-25f), 0, "in the middle between 0 and the smallest: even");
    cr_assert_eq(sg_to_bf16(1.0f), 0x3f80);
    cr_assert_eq(sg_to_bf16(INFINITY), 0x7f80);
    cr_assert_eq(sg_to_bf16(3.4e38f), 0x7f80, "rounds up to infinity");
}

Test(number, arrays_of_all_types)
{
    static const enum sg_number types[] = {SG_F32, SG_F64, SG_F16, SG_BF16};
    unsigned char store[4 * 8];
    for (size_t i = 0; i < 4; i++) {
        for (int k = 0; k < 4; k++) {
            sg_number_store(types[i], store, k, 0.5 * (k + 1));
        }
        for (int k = 0; k < 4; k++) {
            cr_assert_eq(sg_number_load(types[i], store, k), 0.5 * (k + 1));
        }
    }
    cr_assert(sg_number_bytes(SG_F64) == 8 && sg_number_bytes(SG_BF16) == 2);
}
