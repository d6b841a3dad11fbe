/* host_card.h: a card made of host memory, under the libraries' real calls.
 *
 * It stands in for client.c, so that cudnn* and cublas* calls run whole (checks, parameter blocks,
 * kernels) without any driver. Device memory is one arena. Each launch is executed at once and its
 * declared ranges are checked against what its body does:
 *   - a byte changed outside the ranges declared for writing is a fault;
 *   - the body runs twice, every byte not declared for reading being poisoned differently: results
 * that differ were computed from undeclared bytes, or declared as written and left alone. One
 * thread only.
 */
#ifndef HOST_CARD_H
#define HOST_CARD_H

#include <stddef.h>
#include <stdint.h>
#include "simgpu.h"

/* Empties the arena, clears the faults and reseeds; prints nothing. */
void card_reset(uint64_t seed);

/* Device memory of n floats at a 256-byte boundary: uniform in [-1, 1). */
float *card_random(size_t n);

/* Device memory of n bytes, poisoned. */
void *card_alloc(size_t bytes);

/* Has drop(p) called at the next reset, or at exit. */
void card_keep(void *p, void (*drop)(void *p));

/* Uniform in [0, n). */
unsigned card_below(unsigned n);

/* The seed of card_reset, or VMEM_TEST_SEED where set: for messages. */
uint64_t card_seed(uint64_t fallback);

/* Compute capability of the card that new handles find. */
extern int card_major;

/* Launches since the reset, and the faults found, with the first one's text. */
unsigned card_launches(void);
unsigned card_faults(void);
const char *card_fault(void);

/* Runs one kernel with the checks above, as the libraries' launches do. */
void card_run(const struct simgpu_kernel *k, const void *args);

/* What the last launch's cost function said. */
struct simgpu_work card_last_work(void);

#endif
