/* ipc.c: two processes that share memory: legacy handles of ordinary blocks, and the program's own mapped
 * memory by file descriptor. The second process is forked before CUDA is up. */
#include "api.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS 1024u

struct message {
    int legacy; /* 1: there is a handle of a block */
    CUipcMemHandle handle;
    size_t bytes; /* of the memory whose descriptor comes along */
};

static void open_device(void)
{
    CUcontext context;
    DRV(cuInit(0));
    DRV(cuDevicePrimaryCtxRetain(&context, 0));
    DRV(cuCtxSetCurrent(context));
}

static void map(CUdeviceptr *va, size_t bytes, CUmemGenericAllocationHandle h)
{
    CUmemAccessDesc a;
    memset(&a, 0, sizeof a);
    a.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    a.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    DRV(cuMemAddressReserve(va, bytes, 0, 0, 0));
    DRV(cuMemMap(*va, bytes, 0, h, 0));
    DRV(cuMemSetAccess(*va, bytes, &a, 1));
}

/* ---- a message with a descriptor, over a socket ------------------------------------------------------ */

union ancillary {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
};

static void send_message(int to, const struct message *m, int fd)
{
    union ancillary anc;
    struct iovec part = {(void *)(uintptr_t)m, sizeof *m};
    struct msghdr h = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &anc,
                       .msg_controllen = sizeof anc};
    memset(&anc, 0, sizeof anc);
    struct cmsghdr *c = CMSG_FIRSTHDR(&h);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    TRUE_(sendmsg(to, &h, 0) == (ssize_t)sizeof *m);
}

static int receive_message(int from, struct message *m)
{
    union ancillary anc;
    struct iovec part = {m, sizeof *m};
    struct msghdr h = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &anc,
                       .msg_controllen = sizeof anc};
    int fd = -1;
    TRUE_(recvmsg(from, &h, 0) == (ssize_t)sizeof *m);
    TRUE_(CMSG_FIRSTHDR(&h) != NULL);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&h)), sizeof fd);
    return fd;
}

/* ---- the other process ----------------------------------------------------------------------------------- */

/* Reads what it is given, writes over it, and says whether it read what it should: one bit each. */
static int other(int from)
{
    struct message m;
    CUdeviceptr va;
    CUmemGenericAllocationHandle h;
    uint32_t word = 0;
    int right = 0;
    int fd = receive_message(from, &m);
    open_device();
    if (m.legacy) {
        DRV(cuIpcOpenMemHandle(&va, m.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
        DRV(cuMemcpyDtoH(&word, va + (WORDS - 1) * 4, 4));
        right |= word == 7;
        DRV(cuMemsetD32(va, 8, WORDS));
        DRV(cuCtxSynchronize());
        DRV(cuIpcCloseMemHandle(va));
    }
    DRV(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd,
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    map(&va, m.bytes, h);
    DRV(cuMemcpyDtoH(&word, va + m.bytes - 4, 4));
    right |= (word == 17) << 1;
    DRV(cuMemsetD32(va, 18, m.bytes / 4));
    DRV(cuCtxSynchronize());
    DRV(cuMemUnmap(va, m.bytes));
    DRV(cuMemRelease(h));
    return right;
}

/* ---- this process ------------------------------------------------------------------------------------------ */

static CUmemGenericAllocationHandle create_exportable(size_t *bytes)
{
    CUmemAllocationProp p;
    CUmemGenericAllocationHandle h;
    memset(&p, 0, sizeof p);
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    DRV(cuMemGetAllocationGranularity(bytes, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    DRV(cuMemCreate(&h, *bytes, &p, 0));
    return h;
}

int main(void)
{
    int ends[2], fd = -1, status = 0, capable = -1;
    struct message m;
    CUdeviceptr block, mine;
    uint32_t word = 0;
    TRUE_(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        exit(other(ends[1]));
    open_device();
    memset(&m, 0, sizeof m);
    DRV(cuMemAlloc(&block, WORDS * 4));
    DRV(cuMemsetD32(block, 7, WORDS));
    DRV(cuCtxSynchronize());
    DRV(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, block));
    CUresult r = cuIpcGetMemHandle(&m.handle, block);
    m.legacy = r == CUDA_SUCCESS;
    printf("a block can be exported: %d, exported: CUresult %d\n", capable, (int)r);
    CUmemGenericAllocationHandle h = create_exportable(&m.bytes);
    map(&mine, m.bytes, h);
    DRV(cuMemsetD32(mine, 17, m.bytes / 4));
    DRV(cuCtxSynchronize());
    DRV(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    send_message(ends[0], &m, fd);
    TRUE_(waitpid(child, &status, 0) == child && WIFEXITED(status));
    printf("the other process read the block %d, the mapped memory %d\n", WEXITSTATUS(status) & 1,
           WEXITSTATUS(status) >> 1);
    DRV(cuMemcpyDtoH(&word, block, 4));
    printf("the block holds what was written last: %d\n", word == (m.legacy ? 8 : 7));
    DRV(cuMemcpyDtoH(&word, mine, 4));
    printf("the mapped memory too: %d\n", word == 18);
    memset(&m.handle, 0x5a, sizeof m.handle);
    printf("no handle at all: CUresult %d\n",
           (int)cuIpcOpenMemHandle(&block, m.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    return 0;
}
