/* What the measurements share: the driver by dlopen, a clock, results, a few kernels.
 *
 * A step is one function below, run in a process of its own (`measure STEP`): a fault costs one
 * step. What it finds goes to standard output, one JSON object a line, as it is found, so that a
 * step that is stopped at its time limit still leaves what it had. One thread.
 */
#ifndef GPU_MEASURE_H
#define GPU_MEASURE_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* ---- driver.c */

#define CALL(name) __typeof__(&cu##name) name;
extern struct driver {
#include "calls.def"
} cu; /* a function that the driver lacks is NULL */
#undef CALL

extern CUdevice device;
extern bool simulated; /* the driver is the one of tests/simgpu */

/* Opens the driver, makes device 0's primary context current. Ends the process on any failure. */
void driver_open(void);

/* Ends the process with a line that names the call, unless it succeeded. */
void must_(CUresult r, const char *call, const char *file, int line);
#define must(call) must_((call), #call, __FILE__, __LINE__)
/* "right" or "wrong"; a simulated card in timing mode keeps no contents, and that is what is said
 * then. */
const char *contents_are(bool right);
/* A result's name, "CUDA_SUCCESS" and so on. */
const char *result_name(CUresult r);

/* ---- report.c */

double now_us(void);

/* At most so many samples of one figure; more are left out. */
struct samples {
    size_t n;
    double v[1024];
};
void sample(struct samples *s, double value);

/* One line each: {"name": NAME, "unit": UNIT, ...}. `format` makes the name. */
void report_samples(const struct samples *s, const char *unit, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void report_number(double value, const char *unit, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void report_text(const char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- kernels.c */

/* A kernel of this program: PTX on a real driver, an image with host bodies on the simulated one.
 * Loaded once. The parameters in comments. */
CUfunction kernel(const char *name);
/* The image that holds them, for cuLibraryLoadData. */
const void *kernels_image(void);

#define KERNEL_SPIN  "spin"   /* u64 ns: one thread, for so long */
#define KERNEL_FILL  "fill"   /* u64 dst, u64 words, u64 value: dst[i] = value + i */
#define KERNEL_SUM   "sum"    /* u64 src, u64 words, u64 out: *out += sum of src[i] */
#define KERNEL_EIGHT "eight"  /* eight u64, three u32: does nothing */
#define KERNEL_4K    "wide4k" /* 4,000 bytes: does nothing */
#define KERNEL_32K                                                                                 \
    "wide32k" /* 32,760 bytes: does nothing; NULL where the driver does not take it */
#define BYTES_4K  4000
#define BYTES_32K 32760

void launch_spin(double us, CUstream stream);
void launch_fill(CUdeviceptr dst, size_t words, uint64_t value, CUstream stream);
void launch_sum(CUdeviceptr src, size_t words, CUdeviceptr out, CUstream stream);

/* ---- memory.c: virtual memory in one piece */

extern CUmemAllocationProp on_device;
size_t granularity(const CUmemAllocationProp *prop);
CUdeviceptr reserve(size_t bytes);
CUmemGenericAllocationHandle create(size_t bytes, const CUmemAllocationProp *prop);
/* Maps `handle` at `at`, readable and writable by the device. */
void map(CUdeviceptr at, size_t bytes, CUmemGenericAllocationHandle handle);
CUresult give_access(CUdeviceptr at, size_t bytes);

/* ---- the steps */

void step_device(void);
void step_vmm(void);
void step_vmm_busy(void);
void step_mappings(void);
void step_pointers(void);
void step_tensormap(void);
void step_params(void);
void step_launch(void);
void step_malloc(void);
void step_copies(void);
void step_host(void);
void step_host_numa(void);
void step_graphs(void);
void step_cupti(void);

#endif
