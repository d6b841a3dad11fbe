/* A double of the runtime (shim/runtime.h) for tests of the doors: it takes no part in memory
 * management, serves allocations straight from the driver, and writes down what the doors tell it.
 *
 * A test program finds double_take() in the preloaded library and reads the lines since the last
 * call. Blocks are named by the order in which they were allocated: b0, b1, ... */
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "door.h"

_Thread_local int vm_scope_depth __attribute__((tls_model("initial-exec")));

#define MAX_BLOCKS 256

static struct {
    CUdeviceptr base;
    size_t bytes;
    bool live;
} blocks[MAX_BLOCKS];
static unsigned nblocks;

static char lines[1 << 16];
static size_t used;
static unsigned relieved, refused;
static _Thread_local struct vm_libcall *libcall;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void note(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    pthread_mutex_lock(&lock);
    size_t n = vm_vformat(lines + used, sizeof lines - used, format, ap);
    if (used + n + 2 < sizeof lines) {
        used += n;
        lines[used++] = '\n';
    }
    pthread_mutex_unlock(&lock);
    va_end(ap);
}

VM_EXPORT size_t vmem_double_take(char *out, size_t n);
VM_EXPORT size_t vmem_double_take(char *out, size_t n)
{
    pthread_mutex_lock(&lock);
    size_t len = used < n ? used : n - 1;
    memcpy(out, lines, len);
    out[len] = 0;
    used = 0;
    pthread_mutex_unlock(&lock);
    return len;
}

/* How often vm_rt_relieve() will say that memory was found. */
VM_EXPORT void vmem_double_relief(unsigned times);
VM_EXPORT void vmem_double_relief(unsigned times)
{
    relieved = times;
}

/* The next `times` operations are refused for lack of memory. */
VM_EXPORT void vmem_double_refuse(unsigned times);
VM_EXPORT void vmem_double_refuse(unsigned times)
{
    refused = times;
}

static int block_at(CUdeviceptr p)
{
    for (unsigned i = 0; i < nblocks; i++)
        if (blocks[i].live && p >= blocks[i].base && p - blocks[i].base < blocks[i].bytes)
            return (int)i;
    return -1;
}

void vm_rt_after_init(void)
{
    note("init");
}

bool vm_rt_active(void)
{
    return true;
}

void vm_rt_context_gone(CUcontext ctx)
{
    note("context_gone");
}

CUresult vm_rt_alloc(CUdeviceptr *out, size_t bytes, enum vm_alloc_kind kind, CUstream stream,
                     bool *handled)
{
    *handled = nblocks < MAX_BLOCKS;
    if (!*handled)
        return CUDA_SUCCESS;
    CUresult r = cuMemAlloc_v2(out, bytes);
    if (r == CUDA_SUCCESS) {
        blocks[nblocks].base = *out;
        blocks[nblocks].bytes = bytes;
        blocks[nblocks].live = true;
        note("alloc b%u %zu %s", nblocks, bytes, kind == VM_ALLOC_ASYNC ? "async" : "sync");
        nblocks++;
    }
    return r;
}

CUresult vm_rt_free(CUdeviceptr p, enum vm_alloc_kind kind, CUstream stream, bool *handled)
{
    int b = block_at(p);
    *handled = b >= 0 && blocks[b].base == p;
    if (!*handled)
        return CUDA_SUCCESS;
    note("free b%d %s", b, kind == VM_ALLOC_ASYNC ? "async" : "sync");
    blocks[b].live = false;
    return cuMemFree_v2(p);
}

bool vm_rt_range(CUdeviceptr p, CUdeviceptr *base, size_t *bytes)
{
    int b = block_at(p);
    if (b < 0)
        return false;
    *base = blocks[b].base;
    *bytes = blocks[b].bytes;
    return true;
}

bool vm_rt_reserved(CUdeviceptr p)
{
    return block_at(p) >= 0;
}

bool vm_rt_owner(CUdeviceptr p, CUcontext *ctx, CUdevice *dev, uint64_t *id)
{
    int b = block_at(p);
    if (b < 0)
        return false;
    *id = (uint64_t)b + 1;
    return cuCtxGetCurrent(ctx) == CUDA_SUCCESS && cuCtxGetDevice(dev) == CUDA_SUCCESS;
}

void vm_rt_mem_info(size_t *free_bytes, size_t *total_bytes)
{
    if (total_bytes)
        *total_bytes = 12345678;
}

void vm_rt_total_mem(CUdevice dev, size_t *total_bytes)
{
    *total_bytes = 12345678;
}

void vm_rt_trim(void)
{
}

void vm_rt_limit(double share)
{
    (void)share;
}

bool vm_rt_relieve(void)
{
    note("relieve");
    return relieved && relieved--;
}

void vm_rt_pin(CUdeviceptr p)
{
    int b = block_at(p);
    if (b >= 0)
        note("pin b%d", b);
}

/* ---- operations: accesses are kept as block number + 1 in `block`
 * ------------------------------*/

void vm_op_init(struct vm_op *op, enum vm_op_kind kind, CUstream stream, bool per_thread_default)
{
    memset(op, 0, offsetof(struct vm_op, inline_acc));
    op->kind = (uint8_t)kind;
    op->stream = per_thread_default && !stream ? CU_STREAM_PER_THREAD : stream;
    op->acc = op->inline_acc;
    op->cap = VM_OP_INLINE_ACCESSES;
    op->nacc = 0;
    op->name = NULL;
    op->sig = kind;
}

static void touch(struct vm_op *op, int b, unsigned mode, unsigned role, bool doubtful)
{
    if (op->nacc < op->cap) {
        op->acc[op->nacc].block = (uint32_t)(b + 1);
        op->acc[op->nacc].mode = (uint8_t)mode;
        op->acc[op->nacc].role = (uint8_t)role;
        op->acc[op->nacc].doubtful = doubtful;
        op->nacc++;
    }
}

void vm_op_touch(struct vm_op *op, CUdeviceptr addr, size_t bytes, unsigned mode, unsigned role)
{
    int b = block_at(addr);
    if (b < 0)
        return;
    if (addr != blocks[b].base || bytes < blocks[b].bytes)
        mode &= ~(unsigned)VM_TOTAL;
    touch(op, b, mode, role, false);
}

void vm_op_touch_2d(struct vm_op *op, CUdeviceptr addr, size_t width, size_t height, size_t pitch,
                    unsigned mode)
{
    vm_op_touch(op, addr, width == pitch ? width * height : 1, mode, VM_ROLE_NONE);
}

void vm_op_scan(struct vm_op *op, const void *bytes, size_t n, bool doubtful)
{
    for (size_t at = 0; at + 8 <= n; at += 8) {
        CUdeviceptr word;
        memcpy(&word, (const char *)bytes + at, sizeof word);
        int b = block_at(word);
        if (b < 0)
            continue;
        unsigned mode = VM_UNKNOWN, role = VM_ROLE_NONE;
        for (unsigned i = 0; libcall && i < libcall->nacc; i++)
            if (block_at(libcall->acc[i].addr) == b)
                mode = libcall->acc[i].mode, role = libcall->acc[i].role;
        touch(op, b, mode, role, doubtful);
    }
}

void vm_op_sign(struct vm_op *op, uint64_t value)
{
    op->sig = (op->sig ^ value) * UINT64_C(0x9e3779b97f4a7c15);
}

CUresult vm_rt_op_before(struct vm_op *op)
{
    char text[1024];
    size_t n = 0;
    if (refused && refused--) {
        note("refused");
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    static const char *const kinds[] = {"?",      "launch", "htod",     "dtoh", "dtod",
                                        "memset", "graph",  "hostfunc", "other"};
    text[0] = 0;
    for (unsigned i = 0; i < op->nacc && n < sizeof text; i++)
        n += vm_format(text + n, sizeof text - n, " b%u:%s%s%s%s%s/%u",
                       (unsigned)op->acc[i].block - 1, op->acc[i].mode & VM_READ ? "r" : "",
                       op->acc[i].mode & VM_WRITE ? "w" : "", op->acc[i].mode & VM_TOTAL ? "t" : "",
                       op->acc[i].mode & VM_UNKNOWN ? "u" : "",
                       op->acc[i].doubtful ? "?" : "", op->acc[i].role);
    note("%s %s%s%s%s sig=%lx%s", kinds[op->kind], op->name ? op->name : "-",
         op->blocking ? " blocking" : "", op->host_visible ? " visible" : "",
         op->stream == CU_STREAM_PER_THREAD ? " pt" : "", (unsigned long)op->sig, text);
    return CUDA_SUCCESS;
}

void vm_rt_op_after(struct vm_op *op, CUresult result)
{
    note("after %d", (int)result);
}

void vm_rt_libcall_begin(struct vm_libcall *call)
{
    call->outer = libcall;
    libcall = call;
}

void vm_rt_libcall_touch(struct vm_libcall *call, const void *devptr, size_t bytes, unsigned mode,
                         unsigned role)
{
    CUdeviceptr p = (CUdeviceptr)(uintptr_t)devptr;
    int b = block_at(p);
    if (b < 0 || call->nacc >= sizeof call->acc / sizeof call->acc[0])
        return;
    if (p != blocks[b].base || bytes < blocks[b].bytes)
        mode &= ~(unsigned)VM_TOTAL;
    call->acc[call->nacc].addr = p;
    call->acc[call->nacc].bytes = bytes;
    call->acc[call->nacc].mode = (uint8_t)mode;
    call->acc[call->nacc].role = (uint8_t)role;
    call->nacc++;
}

void vm_rt_libcall_end(struct vm_libcall *call)
{
    char text[1024];
    size_t n = 0;
    text[0] = 0;
    for (unsigned i = 0; i < call->nacc && n < sizeof text; i++)
        n += vm_format(text + n, sizeof text - n, " b%d:%s%s%s/%u", block_at(call->acc[i].addr),
                       call->acc[i].mode & VM_READ ? "r" : "",
                       call->acc[i].mode & VM_WRITE ? "w" : "",
                       call->acc[i].mode & VM_TOTAL ? "t" : "", call->acc[i].role);
    note("libcall %s layer=%u flags=%u%s", call->name, call->layer, call->flags, text);
    libcall = call->outer;
}

void vm_rt_escape_scan(const void *host, size_t bytes)
{
    for (size_t at = 0; at + 8 <= bytes; at += 8) {
        CUdeviceptr word;
        memcpy(&word, (const char *)host + at, sizeof word);
        if (block_at(word) >= 0)
            note("escape b%d", block_at(word));
    }
}

void vm_rt_stream_created(CUstream s)
{
    note("stream_created");
}
void vm_rt_stream_destroyed(CUstream s)
{
    note("stream_destroyed");
}
void vm_rt_wait_stream(CUstream s, bool per_thread_default)
{
    note("wait_stream%s", per_thread_default ? " pt" : "");
}
void vm_rt_wait_event(CUevent e)
{
    note("wait_event");
}
void vm_rt_wait_context(void)
{
    note("wait_context");
}
void vm_rt_synced(void)
{
    note("synced");
}
void vm_rt_poke(void)
{
    note("poke");
}
bool vm_rt_capture_soon(CUstream s)
{
    (void)s;
    note("capture_soon");
    return true;
}
void vm_rt_capture_end(CUstream s, CUgraph graph)
{
    note("capture_end %s", graph ? "graph" : "nothing");
}
bool vm_rt_capturing(CUstream s)
{
    return false;
}
void vm_rt_serve_captures(void)
{
    note("serve_captures");
}
void vm_rt_graph_names(CUgraph graph, CUdeviceptr p)
{
    note("graph_names b%d", block_at(p));
}
void vm_rt_graph_instantiated(CUgraphExec exec, CUgraph graph)
{
    note("graph_instantiated");
}
void vm_rt_graph_gone(CUgraph graph)
{
    note("graph_gone");
}
void vm_rt_graph_exec_gone(CUgraphExec exec)
{
    note("graph_exec_gone");
}
void vm_rt_step(void)
{
    note("step");
}
