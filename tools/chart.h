/* Live and cold bytes over the iteration as a small text chart. */
#ifndef VM_TOOLS_CHART_H
#define VM_TOOLS_CHART_H

#include "loaded.h"

/* '#' named by the running op, '+' cold, '.' allocated without contents that matter; a line of '-'
 * at the budget (0 = none). */
void chart_print(const struct loaded *l, uint64_t budget);

#endif
