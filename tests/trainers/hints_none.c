/* The plain trainer gives no hints: it knows nothing but CUDA. */
#include "trainer.h"

const struct tr_hints *const tr_hints = NULL;
