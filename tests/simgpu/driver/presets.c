/* The cards that the simulator knows. Every figure has its source beside it: "sheet" is the vendor's
 * data sheet of the card, "vDNN" the measurements in the vDNN paper (MICRO-49, 2016), "nvbandwidth"
 * and "vAttention" published measurements on such cards. */
#include "presets.h"

#include <string.h>

#define GIB ((size_t)1 << 30)
#define MIB ((size_t)1 << 20)

/* Shares of the peak for each class of kernels: the one place to calibrate. Maxwell's are the fit of
 * tests/bench/calibrate.py (--fit) to published times. Kepler's and the modern cards' are assumed: no
 * times are fitted; Kepler keeps Maxwell's proportions at a lower level. */
static const struct sg_class_rate rates_maxwell[SIMGPU_CLASS_COUNT] = {
    [SIMGPU_CLASS_ELEMENTWISE] = {0.500, 0.641}, [SIMGPU_CLASS_CONV_FWD] = {0.719, 0.687},
    [SIMGPU_CLASS_CONV_BWD_DATA] = {0.458, 0.687}, [SIMGPU_CLASS_CONV_BWD_FILTER] = {0.536, 0.687},
    [SIMGPU_CLASS_CONV_FAST] = {0.696, 0.687}, [SIMGPU_CLASS_GEMM] = {0.888, 0.687},
    [SIMGPU_CLASS_POOL] = {0.500, 0.244}, [SIMGPU_CLASS_NORM] = {0.40, 0.60},
    [SIMGPU_CLASS_REDUCE] = {0.500, 0.550}, [SIMGPU_CLASS_GENERIC] = {0.50, 0.70},
};
static const struct sg_class_rate rates_kepler[SIMGPU_CLASS_COUNT] = {
    [SIMGPU_CLASS_ELEMENTWISE] = {0.40, 0.60}, [SIMGPU_CLASS_CONV_FWD] = {0.52, 0.62},
    [SIMGPU_CLASS_CONV_BWD_DATA] = {0.32, 0.62}, [SIMGPU_CLASS_CONV_BWD_FILTER] = {0.38, 0.62},
    [SIMGPU_CLASS_CONV_FAST] = {0.48, 0.62}, [SIMGPU_CLASS_GEMM] = {0.70, 0.62},
    [SIMGPU_CLASS_POOL] = {0.40, 0.22}, [SIMGPU_CLASS_NORM] = {0.30, 0.55},
    [SIMGPU_CLASS_REDUCE] = {0.40, 0.50}, [SIMGPU_CLASS_GENERIC] = {0.40, 0.60},
};
static const struct sg_class_rate rates_modern[SIMGPU_CLASS_COUNT] = {
    [SIMGPU_CLASS_ELEMENTWISE] = {0.50, 0.85}, [SIMGPU_CLASS_CONV_FWD] = {0.70, 0.85},
    [SIMGPU_CLASS_CONV_BWD_DATA] = {0.60, 0.85}, [SIMGPU_CLASS_CONV_BWD_FILTER] = {0.58, 0.85},
    [SIMGPU_CLASS_CONV_FAST] = {0.70, 0.85}, [SIMGPU_CLASS_GEMM] = {0.88, 0.85},
    [SIMGPU_CLASS_POOL] = {0.50, 0.60}, [SIMGPU_CLASS_NORM] = {0.40, 0.70},
    [SIMGPU_CLASS_REDUCE] = {0.50, 0.80}, [SIMGPU_CLASS_GENERIC] = {0.50, 0.75},
};

/* Two names may share a row but for the memory: the bigger one is the oracle of the smaller. */
#define TITANX(n, mem)                                                                             \
    {.name = n, .card = "NVIDIA GeForce GTX TITAN X", .major = 5, .minor = 2, .sms = 24,           \
     .clock_khz = 1076000, .mem_clock_khz = 3505000, .bus_bits = 384, .copy_engines = 2,           \
     .cores_per_sm = 128, .memory = (mem), .context_bytes = 110 * MIB /* typical of Maxwell */,    \
     .l2_bytes = 3 * MIB, .flops = 7.0e12 /* vDNN */, .bandwidth = 336e9 /* vDNN, sheet */,        \
     .pcie = 12.8e9 /* vDNN: achieved of 16 */, .pageable = 6.0e9 /* gen 3, through a stage */,    \
     .duplex_h2d = 0.85, .duplex_d2h = 0.90 /* gen 3 two-way, no published figure: assumed */,     \
     .rates = rates_maxwell}
#define K40(n, mem)                                                                                \
    {.name = n, .card = "Tesla K40c", .major = 3, .minor = 5, .sms = 15, .clock_khz = 875000,      \
     .mem_clock_khz = 3004000, .bus_bits = 384, .copy_engines = 2, .cores_per_sm = 192,            \
     .memory = (mem), .context_bytes = 80 * MIB, .l2_bytes = 1536 * 1024,                          \
     .flops = 5.04e12 /* sheet, at 875 MHz boost */, .bandwidth = 288e9 /* sheet */,               \
     .pcie = 10.5e9 /* gen 3 x16 of its day */, .pageable = 5.0e9, .duplex_h2d = 0.85,             \
     .duplex_d2h = 0.90, .rates = rates_kepler}

static const struct sg_preset presets[] = {
    TITANX("titanx-12g", 12 * GIB),
    TITANX("titanx-64g", 64 * GIB), /* no such card: the oracle */
    K40("k40-12g", 12 * GIB),
    K40("k40-64g", 64 * GIB),
    {.name = "v100-16g", .card = "Tesla V100-SXM2-16GB", .major = 7, .minor = 0, .sms = 80,
     .clock_khz = 1530000, .mem_clock_khz = 877000, .bus_bits = 4096, .copy_engines = 3,
     .cores_per_sm = 64, .memory = 16 * GIB, .context_bytes = 300 * MIB, .l2_bytes = 6 * MIB,
     .flops = 15.7e12, .bandwidth = 900e9 /* sheet */, .pcie = 12.4e9 /* gen 3 x16 */,
     .pageable = 6.0e9, .duplex_h2d = 0.85, .duplex_d2h = 0.90, .rates = rates_modern},
    {.name = "a100-40g", .card = "NVIDIA A100-SXM4-40GB", .major = 8, .minor = 0, .sms = 108,
     .clock_khz = 1410000, .mem_clock_khz = 1215000, .bus_bits = 5120, .copy_engines = 3,
     .cores_per_sm = 64, .memory = 40 * GIB, .context_bytes = 420 * MIB, .l2_bytes = 40 * MIB,
     .flops = 19.5e12, .bandwidth = 1555e9 /* sheet */, .pcie = 25.5e9 /* nvbandwidth, gen 4 */,
     .pageable = 9.0e9, .duplex_h2d = 0.48, .duplex_d2h = 0.94 /* nvbandwidth: 24 with 11-13 */,
     .rates = rates_modern},
    {.name = "h100-80g", .card = "NVIDIA H100 80GB HBM3", .major = 9, .minor = 0, .sms = 132,
     .clock_khz = 1980000, .mem_clock_khz = 2619000, .bus_bits = 5120, .copy_engines = 3,
     .cores_per_sm = 128, .memory = 80 * GIB, .context_bytes = 520 * MIB, .l2_bytes = 50 * MIB,
     .flops = 66.9e12, .bandwidth = 3350e9 /* sheet */, .pcie = 55e9 /* nvbandwidth, gen 5 */,
     .pageable = 14e9, .duplex_h2d = 0.75, .duplex_d2h = 0.90, .rates = rates_modern},
    {.name = "h200-141g", .card = "NVIDIA H200", .major = 9, .minor = 0, .sms = 132,
     .clock_khz = 1980000, .mem_clock_khz = 3201000, .bus_bits = 6144, .copy_engines = 3,
     .cores_per_sm = 128, .memory = 140 * GIB, .context_bytes = 520 * MIB, .l2_bytes = 50 * MIB,
     .flops = 66.9e12, .bandwidth = 4800e9 /* sheet */, .pcie = 55e9, .pageable = 14e9,
     .duplex_h2d = 0.75, .duplex_d2h = 0.90, .rates = rates_modern},
};

/* Map costs: vAttention's A100 figures for 2 MiB chunks (create 29, map 2, set access 38, unmap 34,
 * release 23 us), split into a part for the call and a part for each chunk. kvcached measured 33 us
 * for map and access of one 2 MiB page, the same order. cudaMalloc and cudaFree: tens of us plus the
 * page-table work. Pinning: 0.1 s a GiB for touched memory, 0.49 for cudaHostAlloc (cudf #23457). */
const struct sg_prices sg_prices = {
    .call = 150, .launch = 4500, .copy_async = 5500, .memset_async = 4000, .event = 900,
    .sync = 2000, .stream_create = 15000,
    .alloc = 12000, .alloc_page = 450, .free_ = 15000, .free_page = 350,
    .reserve = 4000, .create = 29000, .map = 1000, .map_chunk = 1000,
    .access = 8000, .access_chunk = 30000, .unmap = 6000, .unmap_chunk = 28000, .release = 23000,
    .kernel_start = 1500, .copy_start = 1500, .generic_kernel = 5000,
    .host_pin_per_byte = 0.1, .host_alloc_per_byte = 0.45, .host_copy_per_byte = 0.1,
};

const struct sg_preset *sg_preset_at(size_t i)
{
    return i < sizeof presets / sizeof *presets ? &presets[i] : NULL;
}

const struct sg_preset *sg_preset_find(const char *name)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (strcmp(presets[i].name, name) == 0)
            return &presets[i];
    return NULL;
}
