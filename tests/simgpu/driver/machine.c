/* Several processes on one machine: SIMGPU_MACHINE names a file that they share. It holds what each
 * of them has of each device's memory, so that together they cannot have more than there is. Memory
 * itself is shared by handles: a handle tells the owner's process and where in its memory file the
 * bytes are, and the other process opens that file through /proc. The owner must be alive then. */
#include "sg.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLOTS 64

struct slot {
    int pid; /* 0: free */
    uint64_t used[SG_MAX_DEVICES];
};
struct machine {
    uint64_t magic;
    struct slot slot[SLOTS];
};
#define MACHINE_MAGIC UINT64_C(0x3148434d55504753) /* "SGPUMCH1" */

static struct machine *machine;
static struct slot *mine;
static int machine_fd = -1;

static bool alive(int pid)
{
    return kill(pid, 0) == 0 || errno == EPERM;
}

/* Joins the machine at cuInit. 0: there is none, or joined; else *why says what is wrong. */
CUresult sg_machine_join(const char **why)
{
    const char *name = getenv("SIMGPU_MACHINE");
    if (!name || !*name || machine)
        return CUDA_SUCCESS;
    *why = "cannot be opened or created";
    machine_fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (machine_fd < 0 || flock(machine_fd, LOCK_EX) != 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    struct stat st;
    bool fresh = fstat(machine_fd, &st) == 0 && st.st_size == 0;
    if (fresh && ftruncate(machine_fd, sizeof *machine) != 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *why = "is not a file of ours: name one that does not exist yet";
    if (!fresh && st.st_size != (off_t)sizeof *machine)
        return CUDA_ERROR_INVALID_VALUE;
    struct machine *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED, machine_fd, 0);
    if (m == MAP_FAILED)
        return CUDA_ERROR_OPERATING_SYSTEM;
    if (fresh)
        m->magic = MACHINE_MAGIC;
    if (m->magic != MACHINE_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < SLOTS && !mine; i++)
        if (!m->slot[i].pid || !alive(m->slot[i].pid)) {
            mine = &m->slot[i];
            memset(mine, 0, sizeof *mine);
            mine->pid = (int)getpid();
        }
    flock(machine_fd, LOCK_UN);
    *why = "has no room for another process";
    if (!mine)
        return CUDA_ERROR_OUT_OF_MEMORY;
    machine = m;
    return CUDA_SUCCESS;
}

/* What the other processes hold of a device. */
size_t sg_machine_others(int device)
{
    size_t sum = 0;
    for (int i = 0; machine && i < SLOTS; i++) {
        struct slot *s = &machine->slot[i];
        if (s->pid && s != mine && alive(s->pid))
            sum += s->used[device];
    }
    return sum;
}

/* Around a change of what this process holds, so that two cannot take the last bytes at once. */
void sg_machine_lock(void)
{
    if (machine)
        flock(machine_fd, LOCK_EX);
}
void sg_machine_unlock(void)
{
    if (!machine)
        return;
    for (int d = 0; d < SG_MAX_DEVICES; d++)
        mine->used[d] = sg.dev[d].used + sg.dev[d].reserved_ctx;
    flock(machine_fd, LOCK_UN);
}

void sg_machine_leave(void)
{
    if (mine)
        mine->pid = 0;
}

/* ---- handles that another process can open ---- */
struct shared_handle {
    uint64_t magic;
    int32_t pid, fd, device;
    uint32_t of_vmm;
    int64_t file_at;
    uint64_t bytes, size; /* physical, and as the program asked */
    uint64_t id;
};
#define HANDLE_MAGIC UINT64_C(0x31444e4855504753) /* "SGPUHND1" */
_Static_assert(sizeof(struct shared_handle) <= CU_IPC_HANDLE_SIZE, "an IPC handle holds 64 bytes");

static struct shared_handle describe(const struct sg_phys *p, uint64_t size, bool vmm)
{
    struct shared_handle h = {.magic = HANDLE_MAGIC,
                              .pid = (int32_t)getpid(),
                              .fd = sg.memfile,
                              .device = p->device,
                              .of_vmm = vmm,
                              .file_at = p->file_at,
                              .bytes = p->bytes,
                              .size = size,
                              .id = p->id};
    return h;
}

/* The memory of a handle, in this process: nobody's budget here, the owner has it. */
static CUresult import(const struct shared_handle *h, struct sg_phys **out)
{
    SG_CHECK(h->magic == HANDLE_MAGIC, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(h->device == SG_HOST || (h->device >= 0 && h->device < sg.cfg.ndevices),
             CUDA_ERROR_INVALID_DEVICE);
    SG_CHECK((h->file_at >= 0) == (sg.cfg.mode == SG_FUNCTIONAL), CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(alive(h->pid), CUDA_ERROR_INVALID_HANDLE);
    struct sg_phys *p = calloc(1, sizeof *p);
    SG_CHECK(p, CUDA_ERROR_OUT_OF_MEMORY);
    *p = (struct sg_phys){.device = h->device,
                          .bytes = h->bytes,
                          .refs = 1,
                          .id = ++sg.next_id,
                          .file_at = h->file_at,
                          .file = -1,
                          .foreign = true,
                          .host_writes = true};
    p->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p->prop.location.type =
        h->device == SG_HOST ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE;
    p->prop.location.id = h->device == SG_HOST ? 0 : h->device;
    if (h->file_at >= 0) {
        char name[64];
        snprintf(name, sizeof name, "/proc/%d/fd/%d", (int)h->pid, (int)h->fd);
        p->file = open(name, O_RDWR | O_CLOEXEC);
        if (p->file < 0) {
            free(p);
            return CUDA_ERROR_INVALID_HANDLE;
        }
    }
    *out = p;
    return CUDA_SUCCESS;
}

/* ---- legacy IPC ---- */
SG_CALL(cuIpcGetMemHandle, (CUipcMemHandle * out, CUdeviceptr ptr), (out, ptr))
{
    struct sg_ctx *c;
    SG_CHECK(out, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_current(&c));
    const struct sg_range *r = sg_range_find(ptr);
    SG_CHECK(r && r->kind == SG_DEVICE && !r->map.phys->foreign, CUDA_ERROR_INVALID_VALUE);
    const struct shared_handle h = describe(r->map.phys, r->bytes, false);
    memset(out, 0, sizeof *out);
    memcpy(out, &h, sizeof h);
    return CUDA_SUCCESS;
}

static CUresult ipc_open(CUdeviceptr *out, const CUipcMemHandle *handle, unsigned flags)
{
    struct sg_ctx *c;
    struct sg_range *r;
    struct sg_phys *p;
    struct shared_handle h;
    SG_CHECK(out && !(flags & ~(unsigned)CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
             CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_current(&c));
    memcpy(&h, handle, sizeof h);
    SG_CHECK(h.magic == HANDLE_MAGIC && !h.of_vmm, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(h.pid != (int32_t)getpid(),
             CUDA_ERROR_INVALID_CONTEXT); /* not in the owner's process */
    SG_TRY(import(&h, &p));
    CUresult res = sg_range_new(SG_DEVICE, h.size, sg.cfg.granularity, 0, h.device, &r);
    if (res == CUDA_SUCCESS && (res = sg_map_attach(&r->map, p, true)) != CUDA_SUCCESS)
        sg_range_free(r);
    if (res != CUDA_SUCCESS) {
        sg_phys_unref(p);
        return res;
    }
    r->ctx = c;
    r->of_ipc = true;
    *out = r->va;
    return CUDA_SUCCESS;
}
SG_CALL(cuIpcOpenMemHandle, (CUdeviceptr * out, CUipcMemHandle handle, unsigned flags),
        (out, handle, flags))
{
    return ipc_open(out, &handle, flags);
}
SG_CALL(cuIpcOpenMemHandle_v2, (CUdeviceptr * out, CUipcMemHandle handle, unsigned flags),
        (out, handle, flags))
{
    return ipc_open(out, &handle, flags);
}

SG_CALL(cuIpcCloseMemHandle, (CUdeviceptr ptr), (ptr))
{
    struct sg_ctx *c;
    SG_TRY(sg_current(&c));
    struct sg_range *r = sg_range_find(ptr);
    SG_CHECK(r && r->va == ptr && r->of_ipc, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_wait_ctx(r->ctx));
    r = sg_range_find(ptr);
    SG_CHECK(r && r->va == ptr && r->of_ipc, CUDA_ERROR_INVALID_VALUE);
    sg_dealloc(r);
    return CUDA_SUCCESS;
}

/* ---- virtual memory through file descriptors ---- */
SG_CALL(cuMemExportToShareableHandle,
        (void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
         unsigned long long flags),
        (out, handle, type, flags))
{
    const struct sg_phys *p = (struct sg_phys *)(uintptr_t)handle;
    SG_CHECK(out && flags == 0 && sg_handle_is(SG_H_PHYS, p), CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_NOT_SUPPORTED);
    SG_CHECK(p->prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && !p->foreign,
             CUDA_ERROR_INVALID_VALUE); /* must have been asked for when it was created */
    const struct shared_handle h = describe(p, p->bytes, true);
    int fd = memfd_create("simgpu-handle", MFD_CLOEXEC);
    SG_CHECK(fd >= 0, CUDA_ERROR_OPERATING_SYSTEM);
    if (pwrite(fd, &h, sizeof h, 0) != (ssize_t)sizeof h) {
        close(fd);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *(int *)out = fd;
    return CUDA_SUCCESS;
}

SG_CALL(cuMemImportFromShareableHandle,
        (CUmemGenericAllocationHandle * out, void *os_handle, CUmemAllocationHandleType type),
        (out, os_handle, type))
{
    struct shared_handle h;
    struct sg_phys *p;
    SG_CHECK(out, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CUDA_ERROR_NOT_SUPPORTED);
    SG_CHECK(pread((int)(intptr_t)os_handle, &h, sizeof h, 0) == (ssize_t)sizeof h && h.of_vmm,
             CUDA_ERROR_INVALID_VALUE);
    SG_TRY(import(&h, &p));
    p->prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    sg_handle_add(SG_H_PHYS, p);
    *out = (CUmemGenericAllocationHandle)(uintptr_t)p;
    return CUDA_SUCCESS;
}
