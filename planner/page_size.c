#include "page_size.h"

#define FEWEST  512u /* pages of the budget: fine enough to lose little, few enough to map quickly */
#define LARGEST (UINT64_C(32) << 20)
/* A smaller page would take as long to map and unmap as to copy: for this one there may be fewer. */
#define CHEAP        (UINT64_C(4) << 20)
#define FEWEST_CHEAP 256u
#define MOST    65536u /* pages that are mapped once: small ones waste least, so many are mapped quickly enough */

uint64_t vm_page_size(uint64_t budget_bytes, uint64_t least, bool moves)
{
    uint64_t page = least;

    if (moves)
        while ((budget_bytes / (page * 2) >= FEWEST && page < LARGEST) ||
               (page < CHEAP && budget_bytes / CHEAP >= FEWEST_CHEAP))
            page *= 2;
    else
        while (budget_bytes / page > MOST)
            page *= 2;
    return page;
}
