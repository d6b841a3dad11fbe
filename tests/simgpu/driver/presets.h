/* presets.h: what a simulated card is made of. Times in ns, rates in bytes or flops a second. */
#ifndef SG_PRESETS_H
#define SG_PRESETS_H

#include <stddef.h>
#include <stdint.h>

#include "../include/simgpu.h"

/* Share of the card's peak that a class of kernels reaches: the same for every network. */
struct sg_class_rate {
    double flops; /* of peak flops, for the arithmetic that a kernel executes */
    double bytes; /* of peak memory bandwidth */
};

struct sg_preset {
    const char *name, *card;
    int major, minor, sms, clock_khz, mem_clock_khz, bus_bits, copy_engines, cores_per_sm;
    size_t memory, context_bytes, l2_bytes;
    double flops, bandwidth;
    double pcie, pageable;         /* one direction, page-locked and pageable host memory */
    double duplex_h2d, duplex_d2h; /* share of pcie left while the other direction is busy too */
    const struct sg_class_rate *rates; /* SIMGPU_CLASS_COUNT entries */
};

/* Prices of host-side work. */
struct sg_prices {
    uint32_t call, launch, copy_async, memset_async, event, sync, stream_create;
    uint32_t alloc, alloc_page, free_, free_page;
    uint32_t reserve, create, map, map_chunk, access, access_chunk, unmap, unmap_chunk, release;
    uint32_t kernel_start, copy_start, generic_kernel;
    double host_pin_per_byte, host_alloc_per_byte, host_copy_per_byte;
};

const struct sg_preset *sg_preset_find(const char *name);
const struct sg_preset *sg_preset_at(size_t i); /* NULL past the end */
extern const struct sg_prices sg_prices;

#endif
