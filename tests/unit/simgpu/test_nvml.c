/* The simulated NVML, looked up by name as programs do: cards, memory and processes agree with the
 * driver. */
#include "gpu.h"
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

static void *nvml;

static void *fn(const char *name)
{
    void *p = dlsym(nvml, name);
    cr_assert_not_null(p, "%s is not exported", name);
    return p;
}

/* NVML's status of a call with up to three arguments, each an integer or an address. */
static int call(const char *name, uintptr_t a, uintptr_t b, uintptr_t c)
{
    int (*f)(uintptr_t, uintptr_t, uintptr_t);
    void *p = fn(name);
    memcpy(&f, &p, sizeof f);
    return f(a, b, c);
}
#define ARG(x)               ((uintptr_t)(x))
#define CALL0(name)          call(#name, 0, 0, 0)
#define CALL1(name, a)       call(#name, ARG(a), 0, 0)
#define CALL2(name, a, b)    call(#name, ARG(a), ARG(b), 0)
#define CALL3(name, a, b, c) call(#name, ARG(a), ARG(b), ARG(c))

static void open_nvml(void)
{
    nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(nvml, "%s", dlerror());
}

struct process {
    unsigned pid;
    unsigned long long bytes;
};
struct memory {
    unsigned long long total, free, used;
};

Test(nvml, what_frameworks_ask)
{
    setenv("SIMGPU_DEVICES", "2", 1);
    open_nvml();
    unsigned n = 7;
    void *h = NULL, *same = NULL;
    char name[96], uuid[96], bus[32], small[4];
    cr_assert_eq(CALL1(nvmlDeviceGetCount_v2, &n), 1, "before nvmlInit");
    cr_assert_eq(CALL0(nvmlInit_v2), 0);
    cr_assert_eq(CALL1(nvmlDeviceGetCount_v2, &n), 0);
    cr_assert_eq(n, 2u);
    cr_assert_eq(CALL2(nvmlDeviceGetHandleByIndex_v2, 2u, &h), 2);
    cr_assert_eq(CALL2(nvmlDeviceGetHandleByIndex_v2, 1u, &h), 0);
    cr_assert_eq(CALL3(nvmlDeviceGetName, h, name, 96u), 0);
    cr_assert_str_eq(name, "NVIDIA A100-SXM4-40GB (simulated)");
    cr_assert_eq(CALL3(nvmlDeviceGetName, h, small, 4u), 7);
    cr_assert_eq(CALL3(nvmlDeviceGetUUID, h, uuid, 96u), 0);
    cr_assert_eq(CALL2(nvmlDeviceGetHandleByUUID, uuid, &same), 0);
    cr_assert_eq(same, h);
    n = 0;
    cr_assert_eq(CALL3(nvmlDeviceGetComputeRunningProcesses, h, &n, NULL), 0, "nobody uses it yet");
    START("SIMGPU_PRESET", "a100-40g", "SIMGPU_DEVICES", "2");
    CUdeviceptr p;
    CUuuid id;
    size_t free_bytes, total;
    OK(cuMemAlloc(&p, 100 << 20));
    OK(cuDeviceGetPCIBusId(bus, sizeof bus, 0));
    cr_assert_eq(CALL2(nvmlDeviceGetHandleByPciBusId_v2, bus, &h), 0);
    OK(cuDeviceGetUuid(&id, 0));
    cr_assert_eq(CALL3(nvmlDeviceGetUUID, h, uuid, 96u), 0);
    char hex[9];
    snprintf(hex, sizeof hex, "%02x%02x%02x%02x", (unsigned char)id.bytes[0],
             (unsigned char)id.bytes[1], (unsigned char)id.bytes[2], (unsigned char)id.bytes[3]);
    cr_assert_eq(strncmp(uuid + 4, hex, 8), 0, "%s is not the driver's", uuid);
    struct process who = {0};
    n = 0;
    cr_assert_eq(CALL3(nvmlDeviceGetComputeRunningProcesses, h, &n, NULL), 7);
    cr_assert_eq(n, 1u);
    cr_assert_eq(CALL3(nvmlDeviceGetComputeRunningProcesses, h, &n, &who), 0);
    struct memory m;
    cr_assert_eq(CALL2(nvmlDeviceGetMemoryInfo, h, &m), 0);
    OK(cuMemGetInfo(&free_bytes, &total));
    cr_assert_eq(who.pid, (unsigned)getpid());
    cr_assert(who.bytes == total - free_bytes && who.bytes > 100u << 20, "%llu of %zu, %zu free",
              who.bytes, total, free_bytes);
    cr_assert(m.total == total && m.free == free_bytes && m.used == total - free_bytes);
    cr_assert_eq(CALL0(nvmlShutdown), 0);
    cr_assert_eq(CALL0(nvmlShutdown), 1);
}
