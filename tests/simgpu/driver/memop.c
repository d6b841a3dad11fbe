/* Operations on memory words: a stream writes a word, or waits until a word has a value. A wait
 * that is not yet satisfied is parked and looked at again whenever something moved. In timing mode
 * the words of device memory that such operations wrote are remembered; page-locked memory is read
 * as it is. The race checker takes no edge from them: order by words is the program's own affair.
 */
#include "sg.h"
#include "sg_sched.h"
#include "sg_threads.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

struct word {
    uint64_t addr, value;
    UT_hash_handle hh;
};
static struct word *words; /* timing mode */
static struct sg_op *parked;

static bool readable(uint64_t addr)
{
    bool pinned;
    return sg.cfg.mode == SG_FUNCTIONAL || (sg_is_host(addr, &pinned) && pinned);
}

static uint64_t load(const struct sg_memop *m)
{
    uint64_t v = 0;
    if (readable(m->addr)) {
        if (m->bytes == 4)
            v = __atomic_load_n((uint32_t *)m->addr, __ATOMIC_ACQUIRE);
        else
            v = __atomic_load_n((uint64_t *)m->addr, __ATOMIC_ACQUIRE);
        return v;
    }
    struct word *w;
    HASH_FIND(hh, words, &m->addr, sizeof m->addr, w);
    return w ? w->value : 0;
}

/* The effect of a write, when it executes and its touch is allowed. */
void sg_memop_store(const struct sg_memop *m)
{
    if (readable(m->addr)) {
        if (m->bytes == 4)
            __atomic_store_n((uint32_t *)m->addr, (uint32_t)m->value, __ATOMIC_RELEASE);
        else
            __atomic_store_n((uint64_t *)m->addr, m->value, __ATOMIC_RELEASE);
        return;
    }
    struct word *w;
    HASH_FIND(hh, words, &m->addr, sizeof m->addr, w);
    if (!w) {
        w = calloc(1, sizeof *w);
        if (!w)
            return;
        w->addr = m->addr;
        HASH_ADD(hh, words, addr, sizeof w->addr, w);
    }
    w->value = m->value;
}

/* May the operation go on? Everything but an unsatisfied wait may. */
bool sg_memop_ready(const struct sg_op *op)
{
    if (op->kind != SG_OP_MEMOP || !op->u.memop.wait || op->ctx->sticky != CUDA_SUCCESS)
        return true;
    const struct sg_memop *m = &op->u.memop;
    if (m->event)
        return sg_shared_event_reached(m->event, m->value);
    uint64_t bad;
    size_t host_bytes = 0;
    if (sg_touch(NULL, op->device, m->addr, m->bytes, SIMGPU_READ, &bad, &host_bytes))
        return true; /* it will fail when it executes */
    uint64_t v = load(m);
    switch (m->condition) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return m->bytes == 4 ? (int32_t)((uint32_t)v - (uint32_t)m->value) >= 0
                             : (int64_t)(v - m->value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return v == m->value;
    case CU_STREAM_WAIT_VALUE_AND:
        return (v & m->value) != 0;
    default:
        return m->bytes == 4 ? (uint32_t) ~(v | m->value) != 0 : ~(v | m->value) != 0;
    }
}

void sg_memop_park(struct sg_op *op)
{
    op->next = parked;
    parked = op;
    sg.parked++;
}

/* Puts those that may go on now back among the ready ones. */
void sg_memop_recheck(void)
{
    for (struct sg_op **at = &parked; *at;) {
        struct sg_op *op = *at;
        if (!sg_memop_ready(op)) {
            at = &op->next;
            continue;
        }
        *at = op->next;
        op->next = NULL;
        sg.parked--;
        sg_sched_ready(op, sg.host_ns);
    }
}

/* ---- calls ---- */
static CUresult word_op(CUstream hs, uint64_t addr, uint64_t value, unsigned bytes, unsigned flags,
                        bool wait)
{
    struct sg_stream *s;
    SG_TRY(sg_stream_of(hs, &s));
    SG_CHECK(addr && addr % bytes == 0 && sg_range_find(addr), CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(!(flags & CU_STREAM_WAIT_VALUE_FLUSH) || !wait, CUDA_ERROR_NOT_SUPPORTED);
    SG_CHECK(!(flags & ~(wait ? 3u : 1u)), CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(!s->capture, CUDA_ERROR_NOT_SUPPORTED);
    struct sg_op *op = sg_op_new(SG_OP_MEMOP, SG_ENG_NONE);
    SG_CHECK(op, CUDA_ERROR_OUT_OF_MEMORY);
    op->u.memop = (struct sg_memop){
        .addr = addr, .value = value, .bytes = bytes, .condition = flags & 3, .wait = wait};
    if (wait)
        sg_thread_keep_going(); /* the host may write the word and call nothing more */
    return sg_submit(s, op);
}

static bool batch_waits(CUstreamBatchMemOpType t)
{
    return t == CU_STREAM_MEM_OP_WAIT_VALUE_32 || t == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

static unsigned batch_bytes(CUstreamBatchMemOpType t)
{
    return t == CU_STREAM_MEM_OP_WAIT_VALUE_32 || t == CU_STREAM_MEM_OP_WRITE_VALUE_32 ? 4 : 8;
}

/* Waits and writes lie in the union alike. */
_Static_assert(offsetof(CUstreamBatchMemOpParams, waitValue.address) ==
                       offsetof(CUstreamBatchMemOpParams, writeValue.address) &&
                   offsetof(CUstreamBatchMemOpParams, waitValue.value64) ==
                       offsetof(CUstreamBatchMemOpParams, writeValue.value64) &&
                   offsetof(CUstreamBatchMemOpParams, waitValue.flags) ==
                       offsetof(CUstreamBatchMemOpParams, writeValue.flags),
               "waits and writes differ");

static CUresult batch(CUstream s, unsigned n, const CUstreamBatchMemOpParams *p, unsigned flags)
{
    SG_CHECK(p && n && n <= 256 && flags == 0, CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < n; i++)
        switch ((int)p[i].operation) {
        case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        case CU_STREAM_MEM_OP_WRITE_VALUE_64: {
            unsigned bytes = batch_bytes(p[i].operation);
            SG_TRY(word_op(s, p[i].waitValue.address,
                           bytes == 4 ? p[i].waitValue.value : p[i].waitValue.value64, bytes,
                           p[i].waitValue.flags, batch_waits(p[i].operation)));
            break;
        }
        case CU_STREAM_MEM_OP_BARRIER:
            break; /* operations of a stream are in order anyway */
        case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
            return CUDA_ERROR_NOT_SUPPORTED;
        default:
            return CUDA_ERROR_INVALID_VALUE;
        }
    return CUDA_SUCCESS;
}

/* The first and the second version differ only in which devices they work on. */
#define SG_CALL_WORD(name, twin, type, wait)                                                       \
    SG_CALL_S(name, twin, (CUstream s, CUdeviceptr p, type v, unsigned flags), (s, p, v, flags))   \
    {                                                                                              \
        return word_op(s, p, v, sizeof v, flags, wait);                                            \
    }
SG_CALL_WORD(cuStreamWriteValue32, cuStreamWriteValue32_ptsz, cuuint32_t, false)
SG_CALL_WORD(cuStreamWriteValue32_v2, cuStreamWriteValue32_v2_ptsz, cuuint32_t, false)
SG_CALL_WORD(cuStreamWriteValue64, cuStreamWriteValue64_ptsz, cuuint64_t, false)
SG_CALL_WORD(cuStreamWriteValue64_v2, cuStreamWriteValue64_v2_ptsz, cuuint64_t, false)
SG_CALL_WORD(cuStreamWaitValue32, cuStreamWaitValue32_ptsz, cuuint32_t, true)
SG_CALL_WORD(cuStreamWaitValue32_v2, cuStreamWaitValue32_v2_ptsz, cuuint32_t, true)
SG_CALL_WORD(cuStreamWaitValue64, cuStreamWaitValue64_ptsz, cuuint64_t, true)
SG_CALL_WORD(cuStreamWaitValue64_v2, cuStreamWaitValue64_v2_ptsz, cuuint64_t, true)

#define SG_CALL_BATCH(name, twin)                                                                  \
    SG_CALL_S(name, twin, (CUstream s, unsigned n, CUstreamBatchMemOpParams *p, unsigned flags),   \
              (s, n, p, flags))                                                                    \
    {                                                                                              \
        return batch(s, n, p, flags);                                                              \
    }
SG_CALL_BATCH(cuStreamBatchMemOp, cuStreamBatchMemOp_ptsz)
SG_CALL_BATCH(cuStreamBatchMemOp_v2, cuStreamBatchMemOp_v2_ptsz)
