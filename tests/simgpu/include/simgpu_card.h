/* simgpu_card.h: what the simulated libnvidia-ml knows of the cards, without a context and before cuInit.
 *
 * As between NVIDIA's own two nothing of it is public: a table of functions behind cuGetExportTable,
 * known by its id. Thread-safe.
 */
#ifndef SIMGPU_CARD_H
#define SIMGPU_CARD_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#define SIMGPU_CARD_ID                                                                             \
    {                                                                                              \
        {                                                                                          \
            's', 'i', 'm', 'g', 'p', 'u', ' ', 'c', 'a', 'r', 'd', ' ', ' ', ' ', ' ', 1           \
        }                                                                                          \
    }

struct simgpu_card {
    char name[64];
    unsigned char uuid[16];
    size_t memory;       /* bytes of the card */
    size_t used_by_us;   /* of these, held by this process, its context included; 0: no context */
    size_t used_by_all;  /* by the processes of the machine */
    int major, minor, pci_bus, clock_khz, memory_clock_khz;
    uint64_t busy_ns, now_ns; /* of the compute engine, on the virtual clock */
};

struct simgpu_card_table {
    size_t bytes;         /* of this table */
    int (*count)(void);   /* cards; -1: the simulator's settings are not usable */
    int (*version)(void); /* as cuDriverGetVersion */
    /* 0 and *out, or -1: there is no such card */
    int (*card)(int ordinal, struct simgpu_card *out);
};

#endif
