/* A driver of another age, as far as the loader can tell: it lacks most of what programs call and
 * has a function that no header of ours knows. */
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int cuInit(unsigned flags);
EXPORT int cuDriverGetVersion(int *version);
EXPORT int cuMemAlloc_v2(unsigned long long *p, size_t bytes);
EXPORT int cuBrandNewThing(int a, double b, int c);

EXPORT int cuInit(unsigned flags)
{
    return (int)flags;
}

EXPORT int cuDriverGetVersion(int *version)
{
    *version = 11000;
    return 0;
}

EXPORT int cuMemAlloc_v2(unsigned long long *p, size_t bytes)
{
    *p = bytes;
    return 0;
}

EXPORT int cuBrandNewThing(int a, double b, int c)
{
    return a + (int)b + c;
}
