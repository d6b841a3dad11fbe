/* Events that several processes share (CU_EVENT_INTERPROCESS). Two counters in memory that both map stand
 * for one: how often the event was recorded, and the last record that has been reached. A record takes the
 * next number when it is called; a wait is for the number that is current when it is called, as with any
 * event. The waiting operation is parked like one that waits for a memory word (memop.c). The processes'
 * clocks are their own: an event orders, it carries no time; the race checker takes no edge from it.
 */
#include "sg.h"
#include "sg_sched.h"
#include "sg_threads.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct cell {
    _Atomic uint64_t recorded, reached;
};
struct sg_shared_event {
    struct cell *cell;
    int fd; /* of the memory, for those that will open it */
    unsigned refs;
};
struct event_handle {
    uint64_t magic;
    int32_t pid, fd;
};
#define EVENT_MAGIC UINT64_C(0x3154564555504753) /* "SGPUEVT1" */
_Static_assert(sizeof(struct event_handle) <= CU_IPC_HANDLE_SIZE, "an IPC handle holds 64 bytes");

/* Takes over the descriptor, whatever the result. */
static CUresult map_cell(int fd, struct sg_shared_event **out)
{
    struct sg_shared_event *s = calloc(1, sizeof *s);
    void *p = s ? mmap(NULL, sizeof *s->cell, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (p == MAP_FAILED) {
        free(s);
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *s = (struct sg_shared_event){.cell = p, .fd = fd, .refs = 1};
    *out = s;
    return CUDA_SUCCESS;
}

CUresult sg_shared_event_new(struct sg_shared_event **out)
{
    int fd = memfd_create("simgpu-event", MFD_CLOEXEC);
    SG_CHECK(fd >= 0, CUDA_ERROR_OPERATING_SYSTEM);
    if (ftruncate(fd, sizeof(struct cell)) != 0) {
        close(fd);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    return map_cell(fd, out);
}

void sg_shared_event_unref(struct sg_shared_event *s)
{
    if (!s || --s->refs)
        return;
    munmap(s->cell, sizeof *s->cell);
    close(s->fd);
    free(s);
}

struct sg_op *sg_shared_event_op(struct sg_shared_event *s, bool wait)
{
    struct sg_op *op = sg_op_new(SG_OP_MEMOP, SG_ENG_NONE);
    if (!op)
        return NULL;
    uint64_t n = wait ? atomic_load(&s->cell->recorded) : atomic_fetch_add(&s->cell->recorded, 1) + 1;
    op->u.memop = (struct sg_memop){.event = s, .value = n, .wait = wait};
    s->refs++;
    if (!wait)
        sg.shared_records++;
    sg_thread_keep_going(); /* the other process waits, whatever this one's host does */
    return op;
}

bool sg_shared_event_reached(const struct sg_shared_event *s, uint64_t n)
{
    return atomic_load(&s->cell->reached) >= n;
}

void sg_shared_event_play(const struct sg_memop *m)
{
    uint64_t old = atomic_load(&m->event->cell->reached);
    while (!m->wait && old < m->value &&
           !atomic_compare_exchange_weak(&m->event->cell->reached, &old, m->value))
        ;
}

void sg_shared_event_drop(struct sg_memop *m)
{
    if (!m->event)
        return;
    if (!m->wait)
        sg.shared_records--;
    sg_shared_event_play(m); /* if it never executed: its number was given out */
    sg_shared_event_unref(m->event);
    m->event = NULL;
}

bool sg_shared_event_done(const struct sg_shared_event *s)
{
    return sg_shared_event_reached(s, atomic_load(&s->cell->recorded));
}

void sg_shared_event_wait(const struct sg_shared_event *s)
{
    uint64_t n = atomic_load(&s->cell->recorded);
    sg_thread_waits(true);
    while (!sg_shared_event_reached(s, n))
        if (!sg_play_one())
            sg_thread_nap();
    sg_thread_waits(false);
}

/* ---- calls ---- */
SG_CALL(cuIpcGetEventHandle, (CUipcEventHandle * out, CUevent he), (out, he))
{
    const struct sg_event *e = sg_handle_is(SG_H_EVENT, he) ? (struct sg_event *)he : NULL;
    SG_CHECK(e, CUDA_ERROR_INVALID_HANDLE);
    SG_CHECK(out && e->shared, CUDA_ERROR_INVALID_VALUE);
    const struct event_handle h = {EVENT_MAGIC, (int32_t)getpid(), e->shared->fd};
    memset(out, 0, sizeof *out);
    memcpy(out, &h, sizeof h);
    return CUDA_SUCCESS;
}

SG_CALL(cuIpcOpenEventHandle, (CUevent * out, CUipcEventHandle handle), (out, handle))
{
    struct sg_ctx *c;
    struct event_handle h;
    struct sg_shared_event *s;
    char name[64];
    SG_CHECK(out, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_current(&c));
    memcpy(&h, &handle, sizeof h);
    SG_CHECK(h.magic == EVENT_MAGIC, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(h.pid != (int32_t)getpid(), CUDA_ERROR_INVALID_CONTEXT); /* not in the owner's process */
    snprintf(name, sizeof name, "/proc/%d/fd/%d", (int)h.pid, (int)h.fd);
    int fd = open(name, O_RDWR | O_CLOEXEC);
    SG_CHECK(fd >= 0, CUDA_ERROR_INVALID_HANDLE);
    SG_TRY(map_cell(fd, &s));
    struct sg_event *e = calloc(1, sizeof *e);
    if (!e) {
        sg_shared_event_unref(s);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    e->ctx = c;
    e->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
    e->shared = s;
    sg_handle_add(SG_H_EVENT, e);
    *out = (CUevent)e;
    return CUDA_SUCCESS;
}
