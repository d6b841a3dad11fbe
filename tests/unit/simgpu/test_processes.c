/* Several processes: one machine's memory, and memory that one shares with another. */
#include "gpu.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define F "SIMGPU_MODE", "functional", "SIMGPU_GRANULARITY", "64KiB"
#define G ((size_t)65536)

struct pipes {
    int to[2], from[2];
};

static void tell(int fd, const void *p, size_t n)
{
    cr_assert_eq(write(fd, p, n), (ssize_t)n);
}
static void hear(int fd, void *p, size_t n)
{
    cr_assert_eq(read(fd, p, n), (ssize_t)n);
}

/* Runs `other` in a process of its own, forked before anything is initialised. */
static pid_t start(struct pipes *p, void (*other)(struct pipes *))
{
    cr_assert(pipe(p->to) == 0 && pipe(p->from) == 0);
    pid_t child = fork();
    if (child == 0) {
        other(p);
        exit(0);
    }
    return child;
}
static void finish(pid_t child)
{
    int status;
    waitpid(child, &status, 0);
    cr_assert_eq(status, 0);
}

static char machine[256];
static void greedy(struct pipes *p)
{
    CUdeviceptr a;
    size_t free_bytes, total;
    char go;
    hear(p->to[0], &go, 1);
    START("SIMGPU_MACHINE", machine, "SIMGPU_MEMORY", "1GiB", "SIMGPU_CONTEXT", "0");
    OK(cuMemGetInfo(&free_bytes, &total));
    cr_assert_eq(free_bytes, (size_t)424 << 20, "free %zu", free_bytes);
    FAILS(cuMemAlloc(&a, (size_t)500 << 20), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc(&a, (size_t)400 << 20));
    tell(p->from[1], &go, 1);
    hear(p->to[0], &go, 1);
}
Test(machine, one_memory_for_all)
{
    struct pipes p;
    CUdeviceptr a, b;
    char go = 1;
    snprintf(machine, sizeof machine, "%s/simgpu-machine-%d", P_tmpdir, (int)getpid());
    unlink(machine);
    pid_t child = start(&p, greedy);
    START("SIMGPU_MACHINE", machine, "SIMGPU_MEMORY", "1GiB", "SIMGPU_CONTEXT", "0");
    OK(cuMemAlloc(&a, (size_t)600 << 20));
    tell(p.to[1], &go, 1);
    hear(p.from[0], &go, 1);
    FAILS(cuMemAlloc(&b, (size_t)100 << 20), CUDA_ERROR_OUT_OF_MEMORY);
    tell(p.to[1], &go, 1);
    finish(child);
    OK(cuMemAlloc(&b, (size_t)100 << 20)); /* a process that ended holds nothing */
    unlink(machine);
}

static void reader(struct pipes *p)
{
    CUipcMemHandle h;
    CUdeviceptr a;
    unsigned v = 0;
    struct gpu g = START(F);
    hear(p->to[0], &h, sizeof h);
    OK(cuIpcOpenMemHandle(&a, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    OK(cuMemcpyDtoH(&v, a, 4));
    cr_assert_eq(v, 41);
    gpu_add(&g, a, 1, 1, NULL);
    OK(cuCtxSynchronize());
    FAILS(cuMemFree(a), CUDA_ERROR_INVALID_VALUE);
    OK(cuIpcCloseMemHandle(a));
    tell(p->from[1], &v, 1);
}
Test(processes, legacy_ipc_shares_bytes)
{
    struct pipes p;
    CUipcMemHandle h;
    CUdeviceptr a, va;
    unsigned v = 41;
    char done;
    pid_t child = start(&p, reader);
    START(F);
    OK(cuMemAlloc(&a, 100));
    OK(cuMemcpyHtoD(a, &v, 4));
    OK(cuMemAddressReserve(&va, G, 0, 0, 0));
    FAILS(cuIpcGetMemHandle(&h, va), CUDA_ERROR_INVALID_VALUE); /* not for virtual memory */
    OK(cuIpcGetMemHandle(&h, a));
    FAILS(cuIpcOpenMemHandle(&va, h, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
          CUDA_ERROR_INVALID_CONTEXT);
    tell(p.to[1], &h, sizeof h);
    hear(p.from[0], &done, 1);
    OK(cuMemcpyDtoH(&v, a, 4));
    cr_assert_eq(v, 42);
    finish(child);
}

/* Descriptors travel over fork: the child inherits none here, so both ends are one process. */
Test(processes, exported_handles_name_the_same_bytes)
{
    struct gpu g = START(F);
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemAccessDesc rw = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                          .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle h, k, plain;
    CUdeviceptr va;
    size_t before, after, total;
    unsigned v = 0;
    int fd;
    OK(cuMemCreate(&h, G, &prop, 0));
    OK(cuMemGetInfo(&before, &total));
    OK(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemImportFromShareableHandle(&k, (void *)(intptr_t)fd,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    OK(cuMemGetInfo(&after, &total));
    cr_assert_eq(before, after, "an import takes no memory");
    OK(cuMemAddressReserve(&va, 2 * G, 0, 0, 0));
    OK(cuMemMap(va, G, 0, h, 0));
    OK(cuMemMap(va + G, G, 0, k, 0));
    OK(cuMemSetAccess(va, 2 * G, &rw, 1));
    OK(cuMemsetD32(va, 5, 1));
    gpu_add(&g, va + G, 1, 1, NULL);
    OK(cuMemcpyDtoH(&v, va, 4));
    cr_assert_eq(v, 6);
    OK(cuMemUnmap(va, 2 * G));
    OK(cuMemRelease(k));
    OK(cuMemRelease(h));
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    OK(cuMemCreate(&plain, G, &prop, 0));
    FAILS(cuMemExportToShareableHandle(&fd, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
          CUDA_ERROR_INVALID_VALUE);
}

/* ---- events of two processes ---- */
struct shared {
    CUipcMemHandle memory;
    CUipcEventHandle ready, taken;
};
#define ROUNDS 20

/* In each round: adds one behind the other process's work, and tells it when that is done. */
static void partner(struct pipes *p)
{
    struct shared h;
    CUdeviceptr a;
    CUevent ready, taken;
    CUstream s;
    char go;
    hear(p->to[0], &h, sizeof h);
    struct gpu g = START(F, "SIMGPU_SEED", "3");
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuIpcOpenMemHandle(&a, h.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    OK(cuIpcOpenEventHandle(&ready, h.ready));
    OK(cuIpcOpenEventHandle(&taken, h.taken));
    for (int k = 0; k < ROUNDS; k++) {
        hear(p->to[0], &go, 1);
        OK(cuStreamWaitEvent(s, ready, 0));
        gpu_add(&g, a, 1, 1, s);
        OK(cuEventRecord(taken, s));
        tell(p->from[1], &go, 1); /* no call follows: the device works on by itself */
    }
    hear(p->to[0], &go, 1);
    OK(cuEventDestroy(ready));
    OK(cuEventDestroy(taken));
    OK(cuIpcCloseMemHandle(a));
}
Test(processes, events_order_two_processes, .timeout = 60)
{
    struct pipes p;
    struct shared h;
    CUdeviceptr a;
    CUevent ready, taken;
    CUstream s;
    unsigned v = 0;
    char go = 1;
    pid_t child = start(&p, partner);
    struct gpu g = START(F, "SIMGPU_SEED", "5");
    OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&a, 4));
    OK(cuMemsetD32(a, 0, 1));
    OK(cuCtxSynchronize()); /* the stream does not wait for the default one */
    OK(cuEventCreate(&ready, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    OK(cuEventCreate(&taken, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    OK(cuIpcGetMemHandle(&h.memory, a));
    OK(cuIpcGetEventHandle(&h.ready, ready));
    OK(cuIpcGetEventHandle(&h.taken, taken));
    OK(cuEventQuery(ready)); /* never recorded */
    tell(p.to[1], &h, sizeof h);
    for (unsigned k = 0; k < ROUNDS; k++) {
        for (int n = 0; n < 5; n++)
            gpu_add(&g, a, 1, 1, s);
        OK(cuEventRecord(ready, s));
        tell(p.to[1], &go, 1); /* that it was recorded is for the programs to know */
        hear(p.from[0], &go, 1);
        if (k % 2) {
            OK(cuEventSynchronize(taken));
            OK(cuEventQuery(taken));
        } else {
            OK(cuStreamWaitEvent(s, taken, 0));
        }
        OK(cuMemcpyDtoHAsync(&v, a, 4, s));
        OK(cuStreamSynchronize(s));
        cr_assert_eq(v, 6 * (k + 1), "round %u: %u", k, v);
    }
    tell(p.to[1], &go, 1);
    finish(child);
}

Test(processes, event_handles_are_checked)
{
    START(F);
    CUevent e, plain;
    CUipcEventHandle h;
    FAILS(cuEventCreate(&e, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
    OK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    FAILS(cuIpcGetEventHandle(&h, plain), CUDA_ERROR_INVALID_VALUE);
    OK(cuEventCreate(&e, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    OK(cuIpcGetEventHandle(&h, e));
    FAILS(cuIpcOpenEventHandle(&plain, h), CUDA_ERROR_INVALID_CONTEXT);
    memset(&h, 0x5a, sizeof h);
    FAILS(cuIpcOpenEventHandle(&plain, h), CUDA_ERROR_INVALID_VALUE);
    OK(cuEventDestroy(e));
    FAILS(cuIpcGetEventHandle(&h, e), CUDA_ERROR_INVALID_HANDLE);
}
