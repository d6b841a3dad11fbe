#include <criterion/criterion.h>

#include "model.h"
#include "units.h"

Test(units, sizes_are_read_as_people_write_them)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } rows[] = {
        {"0", 0},
        {"4096", 4096},
        {" 12GiB ", UINT64_C(12) << 30},
        {"12G", UINT64_C(12) << 30},
        {"12 g", UINT64_C(12) << 30},
        {"12GB", UINT64_C(12) << 30},
        {"1.5 GiB", UINT64_C(3) << 29},
        {"500M", UINT64_C(500) << 20},
        {"64kib", 65536},
        {"64KB", 65536},
        {"2T", UINT64_C(2) << 40},
        {"100b", 100},
        {"0.5K", 512},
        {"60%", 600},
        {"12.5 %", 125},
        {"100%", 1000},
        {"18446744073709551615", UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t bytes = 42;
        cr_expect_eq(vm_size_parse(rows[i].text, 1000, &bytes), VM_OK, "%s", rows[i].text);
        cr_expect_eq(bytes, rows[i].bytes, "'%s' gives %lu", rows[i].text, (unsigned long)bytes);
    }
}

Test(units, what_is_no_size_is_refused)
{
    static const char *const rows[] = {"",
                                       " ",
                                       "G",
                                       "-1",
                                       "+1",
                                       "1.",
                                       ".5G",
                                       "1,5G",
                                       "12Gi",
                                       "12X",
                                       "12GG",
                                       "1 2",
                                       "0x10",
                                       "1e9",
                                       "nan",
                                       "18446744073709551616",
                                       "99999999999T",
                                       "12GiB!",
                                       "60%%",
                                       "% 60",
                                       "12P"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t bytes = 42;
        cr_expect_eq(vm_size_parse(rows[i], 1000, &bytes), VM_EINVAL, "'%s'", rows[i]);
        cr_expect_eq(bytes, 42);
    }
    uint64_t bytes;
    cr_expect_eq(vm_size_parse("60%", 0, &bytes), VM_EINVAL, "of nothing");
}

Test(units, texts_have_three_digits_that_count)
{
    char buf[24];
    cr_expect_str_eq(vm_size_text(0, buf, sizeof buf), "0 B");
    cr_expect_str_eq(vm_size_text(1023, buf, sizeof buf), "1023 B");
    cr_expect_str_eq(vm_size_text(1024, buf, sizeof buf), "1.00 KiB");
    cr_expect_str_eq(vm_size_text(12345678, buf, sizeof buf), "11.8 MiB");
    cr_expect_str_eq(vm_size_text(UINT64_C(12) << 30, buf, sizeof buf), "12.0 GiB");
    cr_expect_str_eq(vm_size_text(UINT64_MAX, buf, sizeof buf), "16777216 TiB");
    cr_expect_str_eq(vm_time_text(999, buf, sizeof buf), "999 ns");
    cr_expect_str_eq(vm_time_text(1250000, buf, sizeof buf), "1.25 ms");
    cr_expect_str_eq(vm_time_text(9999999, buf, sizeof buf), "10.0 ms");
    cr_expect_str_eq(vm_time_text(UINT64_C(3600) * 1000000000, buf, sizeof buf), "3600 s");
    char tiny[4];
    cr_expect_str_eq(vm_size_text(UINT64_C(12) << 30, tiny, sizeof tiny), "12.");
}
