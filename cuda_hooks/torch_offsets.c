#include "torch_offsets.h"

#include <string.h>

#define ELEMENTWISE "_ZN2at6native18elementwise_kernelI"
#define REDUCE      "_ZN2at6native13reduce_kernelI"
#define DIMENSIONS  25u

enum kind { NONE, OF_ELEMENTS, OF_REDUCTION };

struct divider {
    uint32_t divisor, multiplier, shift;
};

/* What follows a reduction's two calculators. */
struct results {
    uint64_t from, to[2]; /* addresses; the second is left unwritten where there is one result */
    uint64_t buffers[3];
    int64_t base;
    uint8_t accumulate, final;
    int32_t count;
};

static size_t calculator_bytes(unsigned args)
{
    return 4 + DIMENSIONS * (sizeof(struct divider) + 4u * args);
}

static uint16_t word_from(size_t at)
{
    return (uint16_t)((at + 7) & ~(size_t)7);
}

int vm_torch_offsets_param(const char *name)
{
    if (strncmp(name, ELEMENTWISE, sizeof ELEMENTWISE - 1) == 0)
        return 1;
    return strncmp(name, REDUCE, sizeof REDUCE - 1) == 0 ? 0 : -1;
}

/* An iterator's loop body: the calculator, an address for each operand, the function's own
 * captures. */
static struct vm_torch_offsets of_elements(size_t bytes)
{
    size_t each = 8 + DIMENSIONS * 4, none = calculator_bytes(0);
    size_t args = bytes > none ? (bytes - none) / each : 0;
    /* With captures as long as an operand's part the number of operands would not be known. */
    if (args == 0 || args > 32 || word_from(calculator_bytes((unsigned)args)) + args * 8 > bytes)
        return (struct vm_torch_offsets){0};
    return (struct vm_torch_offsets){OF_ELEMENTS, (uint8_t)args, 1, (uint16_t)bytes};
}

struct vm_torch_offsets vm_torch_offsets_of(const char *name, size_t bytes)
{
    int param = vm_torch_offsets_param(name);
    if (bytes > UINT16_MAX || bytes % 8 != 0)
        return (struct vm_torch_offsets){0};
    if (param == 1)
        return of_elements(bytes);
    if (param == 0 &&
        bytes >= calculator_bytes(1) + calculator_bytes(2) + sizeof(struct results) + 8)
        return (struct vm_torch_offsets){OF_REDUCTION, 1, 0, (uint16_t)bytes};
    return (struct vm_torch_offsets){0};
}

/* shift is the least with 2^shift >= divisor, multiplier 2^32 (2^shift - divisor) / divisor + 1,
 * rounded down. */
static bool divides(const struct divider *v)
{
    if (v->divisor == 0 || v->divisor > 1u << 31 || v->shift > 31 || v->multiplier == 0)
        return false;
    uint64_t power = UINT64_C(1) << v->shift, most = (uint64_t)(v->multiplier - 1) * v->divisor;
    if (power < v->divisor || (v->shift > 0 && power / 2 >= v->divisor))
        return false;
    uint64_t want = (power - v->divisor) << 32;
    return most <= want && want - most < v->divisor;
}

static bool is_calculator(const char *at)
{
    uint32_t dims;
    memcpy(&dims, at, sizeof dims);
    if (dims == 0 || dims > DIMENSIONS)
        return false;
    at += sizeof dims;
    for (uint32_t i = 0; i < dims; i++, at += sizeof(struct divider)) {
        struct divider v;
        memcpy(&v, at, sizeof v);
        if (!divides(&v))
            return false;
    }
    return true;
}

static unsigned gaps_of_elements(const struct vm_torch_offsets *o, const char *value,
                                 struct vm_torch_gap *gaps)
{
    uint16_t end = word_from(calculator_bytes(o->args));
    if (!is_calculator(value))
        return 0;
    for (unsigned i = 0; i < o->args; i++) {
        uint64_t word;
        memcpy(&word, value + end + i * sizeof word, sizeof word);
        if (vm_cannot_be_address(word))
            return 0;
    }
    gaps[0] = (struct vm_torch_gap){0, end};
    return 1;
}

/* A description, then the calculators of one operand and of two, then the results. */
static unsigned gaps_of_reduction(const struct vm_torch_offsets *o, const char *value,
                                  struct vm_torch_gap *gaps)
{
    size_t behind = o->bytes - sizeof(struct results);
    size_t first = behind - calculator_bytes(1) - calculator_bytes(2);
    struct results r;
    memcpy(&r, value + behind, sizeof r);
    first &= ~(size_t)3;
    if (!is_calculator(value + first)) /* padded or not */
        first -= 4;
    if (!is_calculator(value + first) || !is_calculator(value + first + calculator_bytes(1)))
        return 0;
    if (vm_cannot_be_address(r.from) || vm_cannot_be_address(r.to[0]) || r.accumulate > 1 ||
        r.final > 1 || r.count < 1 || r.count > 2)
        return 0;
    size_t second = behind + offsetof(struct results, to[1]);
    gaps[0] = (struct vm_torch_gap){word_from(first), (uint16_t)behind};
    gaps[1] = (struct vm_torch_gap){(uint16_t)second, (uint16_t)(second + 8)};
    return r.count == 1 ? 2 : 1;
}

unsigned vm_torch_offsets_gaps(const struct vm_torch_offsets *o, const void *value,
                               struct vm_torch_gap gaps[VM_TORCH_GAPS])
{
    if (o->kind == OF_ELEMENTS)
        return gaps_of_elements(o, value, gaps);
    return o->kind == OF_REDUCTION ? gaps_of_reduction(o, value, gaps) : 0;
}
