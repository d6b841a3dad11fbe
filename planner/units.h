/* Sizes as people write them. */
#ifndef VM_PLANNER_UNITS_H
#define VM_PLANNER_UNITS_H

#include <stddef.h>
#include <stdint.h>

/* Reads "12GiB", "12G", "1.5 GiB", "500M", "4096", "60%" (of `whole`). K, M, G, T are powers of
 * 1024, with "B", "iB" or nothing behind them (memory makers' gigabytes are gibibytes); "B" alone
 * is bytes. Case does not matter, white space around and before the unit is allowed. A percentage
 * needs whole > 0. Fractions of a byte are dropped. Independent of the locale. 0, or VM_EINVAL: no
 * number, unknown unit, negative, more than 2^64-1, rest behind it. */
int vm_size_parse(const char *text, uint64_t whole, uint64_t *bytes);

/* The bytes of the unit at *text (1 where there is none), stepping over it; 0: "Ki" and the like.
 */
uint64_t vm_unit_parse(const char **text);

/* Writes bytes as "12.0 GiB" or nanoseconds as "1.25 ms"; returns buf. `n` of 24 is always enough.
 */
char *vm_size_text(uint64_t bytes, char *buf, size_t n);
char *vm_time_text(uint64_t ns, char *buf, size_t n);

#endif
