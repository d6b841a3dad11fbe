/* A trace as PyTorch's memory snapshot, for pytorch.org/memory_viz and torch.cuda._memory_viz: a pickle
 * (protocol 2, of which dictionaries, lists, texts and integers are needed). Each block is a segment of
 * its own, as with PyTorch's cache switched off. */
#include "export.h"

#include <stdlib.h>
#include <string.h>

#include "words.h"

struct pickle {
    vm_put_fn put;
    void *ctx;
    int rc; /* of the first put that failed */
};

static void bytes(struct pickle *p, const void *b, size_t n)
{
    if (p->rc == 0)
        p->rc = p->put(p->ctx, b, n);
}

static void code(struct pickle *p, char c)
{
    bytes(p, &c, 1);
}

static void text(struct pickle *p, const char *s)
{
    size_t n = strlen(s);
    unsigned char head[5] = {'X'};
    for (int i = 0; i < 4; i++)
        head[1 + i] = (unsigned char)(n >> (8 * i));
    bytes(p, head, sizeof head);
    bytes(p, s, n);
}

/* LONG1 of nine bytes: the ninth keeps the sign away. */
static void number(struct pickle *p, uint64_t v)
{
    unsigned char out[11] = {0x8a, 9};
    for (int i = 0; i < 8; i++)
        out[2 + i] = (unsigned char)(v >> (8 * i));
    bytes(p, out, sizeof out);
}

static void key_number(struct pickle *p, const char *key, uint64_t v)
{
    text(p, key);
    number(p, v);
}

static void key_text(struct pickle *p, const char *key, const char *v)
{
    text(p, key);
    text(p, v);
}

/* Text in a pickle is UTF-8; names are bytes in no known encoding. */
static void key_name(struct pickle *p, const char *key, const char *name)
{
    char safe[256];
    size_t n = 0;
    for (; name[n] && n + 1 < sizeof safe; n++)
        safe[n] = (unsigned char)name[n] < 0x80 ? name[n] : '?';
    safe[n] = '\0';
    key_text(p, key, safe);
}

static void open_dict(struct pickle *p)
{
    bytes(p, "}(", 2);
}

static void close_dict(struct pickle *p)
{
    code(p, 'u');
}

static void open_list(struct pickle *p)
{
    bytes(p, "](", 2);
}

static void close_list(struct pickle *p)
{
    code(p, 'e');
}

/* ---- what is said of a block ------------------------------------------------------------------*/

struct seen {
    uint64_t addr;      /* as recorded, or one that nobody has */
    uint32_t first_use; /* event, VM_NONE: unused */
    uint32_t stream;    /* it was first used on */
};

/* NULL: out of memory. */
static struct seen *look(const struct vm_trace *t)
{
    struct seen *s = malloc((t->nblocks + 1) * sizeof *s);
    uint64_t next = UINT64_C(0x100000000000);
    if (!s)
        return NULL;
    for (size_t i = 0; i < t->nblocks; i++) {
        s[i] = (struct seen){t->blocks[i].addr, VM_NONE, 0};
        if (!s[i].addr) {
            s[i].addr = next;
            next += (t->blocks[i].size + 511) & ~UINT64_C(511);
        }
    }
    for (size_t e = 0; e < t->nevents; e++)
        for (uint32_t k = 0; k < t->events[e].nacc; k++) {
            struct seen *b = &s[t->accesses[t->events[e].acc + k].block];
            if (b->first_use == VM_NONE) {
                b->first_use = (uint32_t)e;
                b->stream = t->events[e].stream;
            }
        }
    return s;
}

/* Who made it: the first operation that uses it stands for a stack of calls. */
static void frames(struct pickle *p, const struct vm_trace *t, const struct seen *b)
{
    text(p, "frames");
    open_list(p);
    if (b->first_use != VM_NONE) {
        const struct vm_event *e = &t->events[b->first_use];
        const char *kind = vm_word(VM_WORDS_OP_KIND, e->op_kind);
        open_dict(p);
        key_name(p, "name", e->name != VM_NONE ? t->names[e->name] : kind ? kind : "op");
        key_text(p, "filename", "first used by event");
        key_number(p, "line", b->first_use);
        close_dict(p);
    }
    close_list(p);
}

static void entry(struct pickle *p, const struct vm_trace *t, const struct seen *s, uint32_t block,
                  const char *action, uint64_t us)
{
    open_dict(p);
    key_text(p, "action", action);
    key_number(p, "addr", s[block].addr);
    key_number(p, "size", t->blocks[block].size);
    key_number(p, "stream", s[block].stream);
    key_number(p, "time_us", us);
    frames(p, t, &s[block]);
    close_dict(p);
}

static void device_trace(struct pickle *p, const struct vm_trace *t, const struct seen *s)
{
    open_list(p);
    for (size_t i = 0; i < t->nevents; i++) {
        const struct vm_event *e = &t->events[i];
        uint64_t us = e->host_ns ? e->host_ns / 1000 : i;
        if (e->kind == VM_EV_ALLOC) {
            entry(p, t, s, e->block, "segment_alloc", us);
            entry(p, t, s, e->block, "alloc", us);
        } else if (e->kind == VM_EV_FREE) {
            entry(p, t, s, e->block, "free_requested", us);
            entry(p, t, s, e->block, "free_completed", us);
            entry(p, t, s, e->block, "segment_free", us);
        }
    }
    close_list(p);
}

static void segment(struct pickle *p, const struct vm_trace *t, const struct seen *s, uint32_t i)
{
    uint64_t size = t->blocks[i].size;
    open_dict(p);
    key_number(p, "device", 0);
    key_number(p, "address", s[i].addr);
    key_number(p, "total_size", size);
    key_number(p, "allocated_size", size);
    key_number(p, "active_size", size);
    key_number(p, "requested_size", size);
    key_number(p, "stream", s[i].stream);
    key_text(p, "segment_type", "large");
    text(p, "segment_pool_id");
    bytes(p, "(K\0K\0t", 6); /* the pair (0, 0) */
    text(p, "is_expandable");
    code(p, '\x89'); /* False */
    frames(p, t, &s[i]);
    text(p, "blocks");
    open_list(p);
    open_dict(p);
    key_number(p, "address", s[i].addr);
    key_number(p, "size", size);
    key_number(p, "requested_size", size);
    key_text(p, "state", "active_allocated");
    frames(p, t, &s[i]);
    close_dict(p);
    close_list(p);
    close_dict(p);
}

int vm_export_memory_viz(const struct vm_trace *t, vm_put_fn put, void *ctx)
{
    struct pickle p = {put, ctx, 0};
    struct seen *s = look(t);
    if (!s)
        return VM_ENOMEM;
    bytes(&p, "\x80\x02", 2);
    open_dict(&p);
    text(&p, "segments");
    open_list(&p);
    for (uint32_t i = 0; i < t->nblocks; i++)
        if (t->blocks[i].free_event == VM_NONE && t->blocks[i].size)
            segment(&p, t, s, i);
    close_list(&p);
    text(&p, "device_traces");
    open_list(&p);
    device_trace(&p, t, s);
    close_list(&p);
    text(&p, "allocator_settings");
    open_dict(&p);
    close_dict(&p);
    close_dict(&p);
    code(&p, '.');
    free(s);
    return p.rc;
}
