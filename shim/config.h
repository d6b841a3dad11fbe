/* The configuration of one process: shim/knobs.def read once from the environment. */
#ifndef VM_SHIM_CONFIG_H
#define VM_SHIM_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "log.h"

/* A size that may be given as a share of something known only later. All zero = auto. */
struct vm_amount {
    uint64_t bytes;     /* used when share_ppm is 0 */
    uint32_t share_ppm; /* parts per million of the whole; 60% = 600000 */
    bool set;           /* false: auto              */
};

/* Positions in the CHOICE knobs' lists. */
enum { VM_PLAN_WAIT_AUTO, VM_PLAN_WAIT_NO, VM_PLAN_WAIT_YES };
enum { VM_TIMING_AUTO, VM_TIMING_CUPTI, VM_TIMING_EVENTS };
enum { VM_BACKEND_AUTO, VM_BACKEND_REGISTERED, VM_BACKEND_NUMA };

#define VM_KNOB_FIELD_FLAG   bool
#define VM_KNOB_FIELD_COUNT  unsigned
#define VM_KNOB_FIELD_BYTES  uint64_t
#define VM_KNOB_FIELD_AMOUNT struct vm_amount
#define VM_KNOB_FIELD_CHOICE int
#define VM_KNOB_FIELD_TEXT   const char *

struct vm_config {
#define VM_KNOB(field, name, type, deflt, allowed, unit, doc, since) VM_KNOB_FIELD_##type field;
#include "knobs.def"
#undef VM_KNOB
    unsigned errors; /* bad or unknown knobs that were reported */
    bool disabled;   /* off, denied, or strict with errors: stay out of this process */
};

enum vm_knob_type {
    VM_KNOB_FLAG,
    VM_KNOB_COUNT,
    VM_KNOB_BYTES,
    VM_KNOB_AMOUNT,
    VM_KNOB_CHOICE,
    VM_KNOB_TEXT,
};

struct vm_knob {
    const char *name, *deflt, *allowed, *unit, *doc, *since;
    enum vm_knob_type type;
    size_t offset; /* of the field in struct vm_config */
};

/* The table, for the doctor, the generated page and tests; *n is set to the number of rows. */
const struct vm_knob *vm_knobs(size_t *n);

/* The configuration of this process: read from the environment at the first call, constant from
 * then on. Never NULL. Thread-safe. Bad values were logged and replaced by their defaults. */
const struct vm_config *vm_config(void);

/* The same from any environment, for tests and the doctor: `env` is NULL-terminated "NAME=value",
 * `program` the file name that VMEM_DENY is compared with. Logs what it finds wrong. Texts are
 * copied and stay allocated for the life of *out. */
void vm_config_read(struct vm_config *out, char *const *env, const char *program);

/* One value as it would be read; 0, or negative with the reason in `why` (static text). `field` is
 * the field of the knob. A copy is made of TEXT values, owned by the caller. */
int vm_knob_parse(const struct vm_knob *knob, const char *text, void *field, const char **why);

/* `amount` resolved against `whole`; `otherwise` when it is auto. Saturates at `whole` for shares.
 */
uint64_t vm_amount_of(const struct vm_amount *amount, uint64_t whole, uint64_t otherwise);

/* A path knob with %p replaced by the process id. Returns false when it does not fit. */
bool vm_config_path(char *out, size_t n, const char *path);

#endif
