/* The simulated NVML: what programs ask of libnvidia-ml.so.1 about cards and who uses them.
 *
 * Written from NVIDIA's published reference of the library; its header is not needed. What the reference
 * has and is not here is not exported, so that programs which look a function up find out. The numbers are
 * the simulated driver's; without one nvmlInit answers as on a machine without a driver.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "simgpu_card.h"
#include "simgpu_table.h"

#define NVML_API __attribute__((visibility("default")))

typedef enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_UNKNOWN = 999
} nvmlReturn_t;

/* A handle is the ordinal plus one. */
typedef struct nvmlDevice_st *nvmlDevice_t;

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
    unsigned gpu, memory; /* per cent */
} nvmlUtilization_t;

typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
} nvmlProcessInfo_v1_t;

typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_v2_t; /* _v3 of the calls use it too */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct simgpu_card_table *table;
static unsigned users; /* nvmlInit calls that nvmlShutdown has not undone */

static void find_driver(void)
{
    table = simgpu_table(dlopen("libcuda.so.1", RTLD_NOW), (CUuuid)SIMGPU_CARD_ID);
}

NVML_API nvmlReturn_t nvmlInit_v2(void);
NVML_API nvmlReturn_t nvmlInit_v2(void)
{
    nvmlReturn_t r = NVML_SUCCESS;
    pthread_mutex_lock(&lock);
    if (!table)
        find_driver();
    if (!table || table->count() < 0)
        r = NVML_ERROR_DRIVER_NOT_LOADED;
    else
        users++;
    pthread_mutex_unlock(&lock);
    return r;
}

NVML_API nvmlReturn_t nvmlInit(void);
NVML_API nvmlReturn_t nvmlInit(void)
{
    return nvmlInit_v2();
}

NVML_API nvmlReturn_t nvmlInitWithFlags(unsigned flags);
NVML_API nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    (void)flags; /* whether no card at all is an error: it is none here */
    return nvmlInit_v2();
}

NVML_API nvmlReturn_t nvmlShutdown(void);
NVML_API nvmlReturn_t nvmlShutdown(void)
{
    pthread_mutex_lock(&lock);
    nvmlReturn_t r = users > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    users -= users > 0;
    pthread_mutex_unlock(&lock);
    return r;
}

NVML_API const char *nvmlErrorString(nvmlReturn_t result);
NVML_API const char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
    case NVML_SUCCESS:
        return "success";
    case NVML_ERROR_UNINITIALIZED:
        return "not initialized";
    case NVML_ERROR_INVALID_ARGUMENT:
        return "invalid argument";
    case NVML_ERROR_NOT_SUPPORTED:
        return "not supported";
    case NVML_ERROR_NOT_FOUND:
        return "not found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
        return "insufficient size";
    case NVML_ERROR_DRIVER_NOT_LOADED:
        return "driver not loaded";
    default:
        return "unknown error";
    }
}

/* ---- the machine ---- */

static int ready(void)
{
    pthread_mutex_lock(&lock);
    int r = users > 0;
    pthread_mutex_unlock(&lock);
    return r;
}

#define NEED(condition, error)                                                                     \
    do {                                                                                           \
        if (!ready())                                                                              \
            return NVML_ERROR_UNINITIALIZED;                                                       \
        if (!(condition))                                                                          \
            return error;                                                                          \
    } while (0)

static nvmlReturn_t text(char *out, unsigned n, const char *value)
{
    NEED(out && n, NVML_ERROR_INVALID_ARGUMENT);
    if (strlen(value) >= n)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, value);
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version);
NVML_API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    NEED(version, NVML_ERROR_INVALID_ARGUMENT);
    *version = table->version();
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version);
NVML_API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

/* Of no driver that exists, so that nobody takes a log for one of hardware. */
NVML_API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length);
NVML_API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    return text(version, length, "000.00 (simulated)");
}

NVML_API nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length);
NVML_API nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
    return text(version, length, "13.000.00");
}

/* ---- cards ---- */

static int card_of(nvmlDevice_t device, struct simgpu_card *out)
{
    return table->card((int)(intptr_t)device - 1, out) == 0;
}

static nvmlDevice_t handle(int ordinal)
{
    return (nvmlDevice_t)(intptr_t)(ordinal + 1);
}

#define CARD(device, pointer)                                                                      \
    struct simgpu_card card;                                                                       \
    NEED((pointer) && card_of(device, &card), NVML_ERROR_INVALID_ARGUMENT)

NVML_API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count);
NVML_API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    NEED(count, NVML_ERROR_INVALID_ARGUMENT);
    *count = (unsigned)table->count();
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device);
NVML_API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    NEED(device && index < (unsigned)table->count(), NVML_ERROR_INVALID_ARGUMENT);
    *device = handle((int)index);
    return NVML_SUCCESS;
}

static void uuid_text(const struct simgpu_card *c, char out[48])
{
    int n = snprintf(out, 48, "GPU-");
    for (int i = 0; i < 16; i++)
        n += snprintf(out + n, (size_t)(48 - n), i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                      c->uuid[i]);
}

NVML_API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device);
NVML_API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    struct simgpu_card c;
    char own[48];
    NEED(uuid && device, NVML_ERROR_INVALID_ARGUMENT);
    for (int i = 0; table->card(i, &c) == 0; i++) {
        uuid_text(&c, own);
        if (strcmp(own, uuid) == 0) {
            *device = handle(i);
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

/* The domain may have four digits or eight, and the function may be left out. */
NVML_API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *device);
NVML_API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *device)
{
    struct simgpu_card c;
    unsigned domain, bus, slot;
    NEED(id && device, NVML_ERROR_INVALID_ARGUMENT);
    if (sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; table->card(i, &c) == 0; i++)
        if (domain == 0 && slot == 0 && bus == (unsigned)c.pci_bus) {
            *device = handle(i);
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

NVML_API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index);
NVML_API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
    CARD(device, index);
    *index = (unsigned)((intptr_t)device - 1);
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length);
NVML_API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length)
{
    CARD(device, name);
    return text(name, length, card.name);
}

NVML_API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length);
NVML_API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length)
{
    char own[48];
    CARD(device, uuid);
    uuid_text(&card, own);
    return text(uuid, length, own);
}

NVML_API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci);
NVML_API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    CARD(device, pci);
    memset(pci, 0, sizeof *pci);
    pci->bus = (unsigned)card.pci_bus;
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", pci->bus);
    snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus);
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor);
NVML_API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    CARD(device, major && minor);
    *major = card.major;
    *minor = card.minor;
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory);
NVML_API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    CARD(device, memory);
    *memory = (nvmlMemory_t){card.memory, card.memory - card.used_by_all, card.used_by_all};
    return NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory);
NVML_API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    CARD(device, memory);
    memory->total = card.memory;
    memory->reserved = 0;
    memory->free = card.memory - card.used_by_all;
    memory->used = card.used_by_all;
    return NVML_SUCCESS;
}

/* The share of virtual time that the compute engine was busy, since the start: NVML's is that of the last
 * second or so. */
NVML_API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates);
NVML_API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
    CARD(device, rates);
    unsigned busy = card.now_ns ? (unsigned)(100 * card.busy_ns / card.now_ns) : 0;
    rates->gpu = busy > 100 ? 100 : busy;
    rates->memory = (unsigned)(100 * card.used_by_all / card.memory);
    return NVML_SUCCESS;
}

/* Kinds: graphics 0, multiprocessors 1, memory 2. */
NVML_API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int kind, unsigned *mhz);
NVML_API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int kind, unsigned *mhz)
{
    CARD(device, mhz && kind >= 0 && kind <= 2);
    *mhz = (unsigned)(kind == 2 ? card.memory_clock_khz : card.clock_khz) / 1000;
    return NVML_SUCCESS;
}

/* ---- processes: this one, where it has a context ---- */

static nvmlReturn_t processes(nvmlDevice_t device, unsigned *count, const void *out,
                              struct simgpu_card *card)
{
    NEED(count && card_of(device, card), NVML_ERROR_INVALID_ARGUMENT);
    unsigned room = *count, n = card->used_by_us > 0;
    *count = n;
    if (n > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    return n && !out ? NVML_ERROR_INVALID_ARGUMENT : NVML_SUCCESS;
}

NVML_API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count,
                                                           nvmlProcessInfo_v1_t *infos);
NVML_API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count,
                                                           nvmlProcessInfo_v1_t *infos)
{
    struct simgpu_card card;
    nvmlReturn_t r = processes(device, count, infos, &card);
    if (r == NVML_SUCCESS && *count)
        *infos = (nvmlProcessInfo_v1_t){(unsigned)getpid(), card.used_by_us};
    return r;
}

NVML_API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                              nvmlProcessInfo_v2_t *infos);
NVML_API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                              nvmlProcessInfo_v2_t *infos)
{
    struct simgpu_card card;
    nvmlReturn_t r = processes(device, count, infos, &card);
    if (r == NVML_SUCCESS && *count)
        *infos = (nvmlProcessInfo_v2_t){(unsigned)getpid(), card.used_by_us, 0xffffffffu, 0xffffffffu};
    return r;
}

NVML_API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                              nvmlProcessInfo_v2_t *infos);
NVML_API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                              nvmlProcessInfo_v2_t *infos)
{
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, infos);
}

/* ---- links between cards: there are none ---- */

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, unsigned *active);
NVML_API nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, unsigned *active)
{
    (void)link;
    CARD(device, active);
    return NVML_ERROR_NOT_SUPPORTED;
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned link, int *type);
NVML_API nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned link, int *type)
{
    (void)link;
    CARD(device, type);
    return NVML_ERROR_NOT_SUPPORTED;
}

NVML_API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link,
                                                          nvmlPciInfo_t *pci);
NVML_API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link,
                                                          nvmlPciInfo_t *pci)
{
    (void)link;
    CARD(device, pci);
    return NVML_ERROR_NOT_SUPPORTED;
}

NVML_API nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, void *info);
NVML_API nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, void *info)
{
    CARD(device, info);
    return NVML_ERROR_NOT_SUPPORTED;
}

/* Kinds of capability and their answers are enumerations; 3: the chipset does not support it. */
NVML_API nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other, int kind, int *status);
NVML_API nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other, int kind, int *status)
{
    struct simgpu_card second;
    CARD(one, status);
    (void)kind;
    if (!card_of(other, &second))
        return NVML_ERROR_INVALID_ARGUMENT;
    *status = 3;
    return NVML_SUCCESS;
}
