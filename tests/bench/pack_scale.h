/* Large iterations for the benchmark planner-scale, made from a rule. */
#ifndef VM_BENCH_PACK_SCALE_H
#define VM_BENCH_PACK_SCALE_H

#include "model.h"

/* kind "training": a transformer trained with gradient accumulation, sequence lengths that differ from
 * micro-batch to micro-batch; kind "tile:FILE": the blocks of a CSV file repeated in time, the sizes
 * of each repeat scaled. About n blocks (tile: exactly). 0, or 1 after a line on stderr. */
int make_scale_iteration(const char *kind, size_t n, struct vm_iteration *it);

#endif
