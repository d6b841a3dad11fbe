#include "trace.h"

#include <stdbool.h>
#include <string.h>

#include "grow.h"

static uint64_t hash_text(const char *text, size_t len)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    return vm_hash64(h);
}

/* Slot that holds the name or the empty one where it belongs. */
static size_t name_slot(const struct vm_trace *t, const char *text, size_t len)
{
    size_t mask = t->nslots - 1;
    for (size_t s = hash_text(text, len) & mask;; s = (s + 1) & mask) {
        uint32_t i = t->name_slots[s];
        if (i == VM_NONE || (strncmp(t->names[i], text, len) == 0 && t->names[i][len] == 0))
            return s;
    }
}

static int grow_slots(struct vm_trace *t)
{
    size_t n = t->nslots ? t->nslots * 2 : 64;
    uint32_t *slots = malloc(n * sizeof *slots);
    if (!slots)
        return VM_ENOMEM;
    memset(slots, 0xff, n * sizeof *slots);
    free(t->name_slots);
    t->name_slots = slots;
    t->nslots = n;
    for (size_t i = 0; i < t->nnames; i++)
        slots[name_slot(t, t->names[i], strlen(t->names[i]))] = (uint32_t)i;
    return VM_OK;
}

int vm_trace_add_name(struct vm_trace *t, const char *text, size_t len, uint32_t *index)
{
    const char *nul = memchr(text, 0, len);
    if (nul)
        len = (size_t)(nul - text);
    if (t->nslots < 2 * (t->nnames + 1) && grow_slots(t) < 0)
        return VM_ENOMEM;
    size_t slot = name_slot(t, text, len);
    if (t->name_slots[slot] == VM_NONE) {
        if (t->nnames >= VM_NONE || VM_GROW(t->names, t->cap_names, t->nnames + 1) < 0)
            return VM_ENOMEM;
        char *copy = malloc(len + 1);
        if (!copy)
            return VM_ENOMEM;
        memcpy(copy, text, len);
        copy[len] = 0;
        t->name_slots[slot] = (uint32_t)t->nnames;
        t->names[t->nnames++] = copy;
    }
    *index = t->name_slots[slot];
    return VM_OK;
}

int vm_trace_add_block(struct vm_trace *t, uint64_t id, uint64_t size, uint64_t addr,
                       uint32_t *block)
{
    if (t->nblocks >= VM_NONE || VM_GROW(t->blocks, t->cap_blocks, t->nblocks + 1) < 0)
        return VM_ENOMEM;
    t->blocks[t->nblocks] = (struct vm_trace_block){
        .id = id, .size = size, .addr = addr, .alloc_event = VM_NONE, .free_event = VM_NONE};
    *block = (uint32_t)t->nblocks++;
    return VM_OK;
}

/* Room for one more event; NULL when memory ends. */
static struct vm_event *next_event(struct vm_trace *t)
{
    if (t->nevents >= VM_NONE || VM_GROW(t->events, t->cap_events, t->nevents + 1) < 0)
        return NULL;
    struct vm_event *e = &t->events[t->nevents];
    *e = (struct vm_event){.block = VM_NONE, .name = VM_NONE};
    return e;
}

int vm_trace_add_alloc(struct vm_trace *t, uint64_t id, uint64_t size, uint64_t addr,
                       uint32_t stream, uint64_t host_ns, uint32_t *block)
{
    struct vm_event *e = next_event(t);
    uint32_t b;
    if (!e || vm_trace_add_block(t, id, size, addr, &b) < 0)
        return VM_ENOMEM;
    e->kind = VM_EV_ALLOC;
    e->stream = stream;
    e->sig = vm_hash64(size);
    e->block = b;
    e->host_ns = host_ns;
    t->blocks[b].alloc_event = (uint32_t)t->nevents++;
    *block = b;
    return VM_OK;
}

static bool alive(const struct vm_trace *t, uint32_t block)
{
    return block < t->nblocks && t->blocks[block].free_event == VM_NONE;
}

int vm_trace_add_free(struct vm_trace *t, uint32_t block, uint32_t stream, uint64_t host_ns)
{
    if (!alive(t, block))
        return VM_EINVAL;
    struct vm_event *e = next_event(t);
    if (!e)
        return VM_ENOMEM;
    e->kind = VM_EV_FREE;
    e->stream = stream;
    e->block = block;
    e->host_ns = host_ns;
    t->blocks[block].free_event = (uint32_t)t->nevents++;
    return VM_OK;
}

int vm_trace_add_op(struct vm_trace *t, const struct vm_event *op, const struct vm_access *acc,
                    uint32_t nacc, uint32_t *event)
{
    if (op->name != VM_NONE && op->name >= t->nnames)
        return VM_EINVAL;
    for (uint32_t i = 0; i < nacc; i++)
        if (!alive(t, acc[i].block))
            return VM_EINVAL;
    size_t total = t->naccesses + nacc;
    if (total > VM_NONE || VM_GROW(t->accesses, t->cap_accesses, total) < 0)
        return VM_ENOMEM;
    struct vm_event *e = next_event(t);
    if (!e)
        return VM_ENOMEM;
    *e = *op;
    e->kind = VM_EV_OP;
    e->block = VM_NONE;
    e->acc = (uint32_t)t->naccesses;
    e->nacc = nacc;
    if (nacc)
        memcpy(t->accesses + t->naccesses, acc, nacc * sizeof *acc);
    t->naccesses = total;
    if (event)
        *event = (uint32_t)t->nevents;
    t->nevents++;
    return VM_OK;
}

int vm_trace_add_step(struct vm_trace *t, uint64_t host_ns)
{
    struct vm_event *e = next_event(t);
    if (!e)
        return VM_ENOMEM;
    e->kind = VM_EV_STEP;
    e->host_ns = host_ns;
    t->nevents++;
    return VM_OK;
}

int vm_trace_add_sync(struct vm_trace *t, uint32_t stream, uint64_t host_ns)
{
    struct vm_event *e = next_event(t);
    if (!e)
        return VM_ENOMEM;
    e->kind = VM_EV_SYNC;
    e->stream = stream;
    e->host_ns = host_ns;
    t->nevents++;
    return VM_OK;
}

int vm_trace_add_hint(struct vm_trace *t, uint32_t block, unsigned hint, uint64_t host_ns)
{
    if (!alive(t, block) || hint < VM_HINT_KEEP || hint > VM_HINT_PINNED)
        return VM_EINVAL;
    struct vm_event *e = next_event(t);
    if (!e)
        return VM_ENOMEM;
    e->kind = VM_EV_HINT;
    e->op_kind = (uint8_t)hint;
    e->block = block;
    e->host_ns = host_ns;
    if (hint == VM_HINT_KEEP)
        t->blocks[block].flags |= VM_BLK_KEEP;
    else if (hint == VM_HINT_REGENERABLE)
        t->blocks[block].flags |= VM_BLK_REGENERABLE;
    else if (hint == VM_HINT_PINNED)
        t->blocks[block].flags |= VM_BLK_PINNED;
    t->nevents++;
    return VM_OK;
}

void vm_trace_forget(struct vm_trace *t, uint32_t *remap)
{
    size_t kept = 0;
    for (size_t i = 0; i < t->nblocks; i++) {
        remap[i] = VM_NONE;
        if (t->blocks[i].free_event != VM_NONE)
            continue;
        t->blocks[kept] = t->blocks[i];
        t->blocks[kept].alloc_event = VM_NONE;
        remap[i] = (uint32_t)kept++;
    }
    t->nblocks = kept;
    t->nevents = 0;
    t->naccesses = 0;
}
