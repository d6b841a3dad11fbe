/* Where op times come from, beside pairs of events: a profiling interface that tells, some time after an
 * operation ran, how long it took. cuda_hooks/timing_cupti.c is one; a table so that the recorder knows
 * nothing of it. All functions are thread-safe; open, close and flush may call the driver and are called
 * without a device's lock. */
#ifndef VM_SHIM_TIMING_H
#define VM_SHIM_TIMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The operation with this id took so long on its device. Ids carry the device in their top byte. */
struct vm_op_time {
    uint64_t id, ns;
};

#define VM_TIMING_ID(device, serial) ((uint64_t)(device) << 56 | (serial))

struct vm_timing {
    /* Begins; calls nest (one for each device that records). False: it cannot be had, now and later. */
    bool (*open)(void);
    void (*close)(void);
    /* Around one driver call on this thread. False: nothing is timed (any more), do not call after(). */
    bool (*before)(uint64_t id);
    void (*after)(void);
    /* Asks for what is known by now. */
    void (*flush)(void);
    /* Gives up to n times of a device, each once or, when more became known of it, again. */
    size_t (*take)(unsigned device, struct vm_op_time *out, size_t n);
};

/* Whoever has one says so before the first device is made ready; NULL: none. */
void vm_timing_offer(const struct vm_timing *t);
const struct vm_timing *vm_timing_offered(void);

#endif
