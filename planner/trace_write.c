#include "json_out.h"
#include "trace_file.h"
#include "words.h"

static void put_flags(struct vm_json_out *j, enum vm_words list, unsigned flags)
{
    if (!flags)
        return;
    vm_json_open(j, "flags", '[');
    for (unsigned bit = 1; bit <= flags; bit <<= 1)
        if ((flags & bit) && vm_word(list, bit))
            vm_json_text(j, NULL, vm_word(list, bit));
    vm_json_close(j, ']');
}

static void put_word(struct vm_json_out *j, const char *key, enum vm_words list, unsigned value)
{
    const char *word = vm_word(list, value);
    if (word)
        vm_json_text(j, key, word);
}

static void put_header(struct vm_json_out *j, const struct vm_trace *t)
{
    const struct vm_machine *m = &t->machine;
    const struct {
        const char *key;
        double value;
    } reals[] = {
        {"out_bps", m->out_bps},
        {"in_bps", m->in_bps},
        {"out_duplex_bps", m->out_duplex_bps},
        {"in_duplex_bps", m->in_duplex_bps},
        {"copy_latency_ns", m->copy_latency_ns},
        {"map_ns", m->map_ns},
        {"unmap_ns", m->unmap_ns},
        {"access_ns", m->access_ns},
        {"unmap_call_ns", m->unmap_call_ns},
        {"access_call_ns", m->access_call_ns},
        {"call_ns", m->call_ns},
    };
    vm_json_open(j, NULL, '{');
    vm_json_text(j, "format", "vmem-trace");
    vm_json_u64(j, "version", VM_TRACE_VERSION);
    vm_json_text(j, "device", t->device);
    vm_json_text(j, "clock", t->clock);
    vm_json_open(j, "machine", '{');
    vm_json_u64(j, "device_bytes", m->device_bytes);
    vm_json_u64(j, "host_bytes", m->host_bytes);
    vm_json_u64(j, "page_bytes", m->page_bytes);
    if (m->page_least)
        vm_json_u64(j, "page_least", m->page_least);
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        vm_json_real(j, reals[i].key, reals[i].value);
    if (m->unmap_waits)
        vm_json_u64(j, "unmap_waits", 1);
    vm_json_close(j, '}');
    vm_json_close(j, '}');
    vm_json_newline(j);
}

static void put_names(struct vm_json_out *j, const struct vm_trace *t, size_t *done, size_t upto)
{
    for (; *done < upto; ++*done) {
        vm_json_open(j, NULL, '{');
        vm_json_text(j, "ev", "name");
        vm_json_u64(j, "name", *done);
        vm_json_text(j, "text", t->names[*done]);
        vm_json_close(j, '}');
        vm_json_newline(j);
    }
}

static void put_block(struct vm_json_out *j, const struct vm_trace_block *b)
{
    vm_json_u64(j, "id", b->id);
    vm_json_u64(j, "size", b->size);
    if (b->addr)
        vm_json_hex(j, "addr", b->addr);
    put_flags(j, VM_WORDS_BLOCK_FLAG, b->flags);
}

/* Blocks that were there before the trace began, as far as `upto` in the table. */
static void put_old_blocks(struct vm_json_out *j, const struct vm_trace *t, size_t *done,
                           size_t upto)
{
    for (; *done < upto; ++*done) {
        if (t->blocks[*done].alloc_event != VM_NONE)
            continue;
        vm_json_open(j, NULL, '{');
        vm_json_text(j, "ev", "block");
        put_block(j, &t->blocks[*done]);
        vm_json_close(j, '}');
        vm_json_newline(j);
    }
}

static void put_accesses(struct vm_json_out *j, const struct vm_trace *t, const struct vm_event *e)
{
    vm_json_open(j, "acc", '[');
    for (uint32_t i = 0; i < e->nacc; i++) {
        const struct vm_access *a = &t->accesses[e->acc + i];
        char mode[8];
        size_t n = 0;
        for (unsigned bit = VM_READ; bit <= VM_UNKNOWN; bit <<= 1)
            if (a->mode & bit)
                mode[n++] = *vm_word(VM_WORDS_MODE, bit);
        mode[n] = 0;
        vm_json_open(j, NULL, '[');
        vm_json_u64(j, NULL, t->blocks[a->block].id);
        vm_json_text(j, NULL, mode);
        put_word(j, NULL, VM_WORDS_ROLE, a->role);
        vm_json_close(j, ']');
    }
    vm_json_close(j, ']');
}

static void put_op(struct vm_json_out *j, const struct vm_trace *t, const struct vm_event *e)
{
    put_word(j, "op", VM_WORDS_OP_KIND, e->op_kind);
    vm_json_hex(j, "sig", e->sig);
    if (e->name != VM_NONE)
        vm_json_u64(j, "name", e->name);
    put_word(j, "layer", VM_WORDS_LAYER, e->layer);
    put_flags(j, VM_WORDS_OP_FLAG, e->flags);
    if (e->nacc)
        put_accesses(j, t, e);
    if (e->dur_ns)
        vm_json_u64(j, "dur", e->dur_ns);
}

static void put_event(struct vm_json_out *j, const struct vm_trace *t, const struct vm_event *e)
{
    static const char *const kinds[] = {
        [VM_EV_ALLOC] = "alloc", [VM_EV_FREE] = "free", [VM_EV_OP] = "op",
        [VM_EV_STEP] = "step",   [VM_EV_HINT] = "hint", [VM_EV_SYNC] = "sync"};
    vm_json_open(j, NULL, '{');
    vm_json_text(j, "ev", kinds[e->kind]);
    switch (e->kind) {
    case VM_EV_ALLOC:
        put_block(j, &t->blocks[e->block]);
        break;
    case VM_EV_FREE:
        vm_json_u64(j, "id", t->blocks[e->block].id);
        break;
    case VM_EV_OP:
        put_op(j, t, e);
        break;
    case VM_EV_HINT:
        vm_json_u64(j, "id", t->blocks[e->block].id);
        put_word(j, "hint", VM_WORDS_HINT, e->op_kind);
        break;
    default:
        break;
    }
    if (e->stream)
        vm_json_u64(j, "stream", e->stream);
    if (e->host_ns)
        vm_json_u64(j, "t", e->host_ns);
    vm_json_close(j, '}');
    vm_json_newline(j);
}

/* Everything the event names must stand in the file before it. */
static void put_what_it_names(struct vm_json_out *j, const struct vm_trace *t,
                              const struct vm_event *e, struct vm_trace_cursor *at)
{
    if (e->kind == VM_EV_OP && e->name != VM_NONE)
        put_names(j, t, &at->names, (size_t)e->name + 1);
    size_t upto = 0;
    if (e->block != VM_NONE)
        upto = (size_t)e->block + 1;
    for (uint32_t i = 0; e->kind == VM_EV_OP && i < e->nacc; i++)
        if (t->accesses[e->acc + i].block >= upto)
            upto = (size_t)t->accesses[e->acc + i].block + 1;
    if (upto > at->blocks)
        put_old_blocks(j, t, &at->blocks, upto);
}

int vm_trace_write(const struct vm_trace *t, struct vm_trace_cursor *at, size_t upto, vm_put_fn put,
                   void *ctx)
{
    struct vm_json_out j;
    vm_json_begin(&j, put, ctx);
    if (!at->started)
        put_header(&j, t);
    at->started = true;
    for (; at->events < t->nevents && at->events < upto && j.rc == 0; at->events++) {
        put_what_it_names(&j, t, &t->events[at->events], at);
        put_event(&j, t, &t->events[at->events]);
    }
    if (at->events == t->nevents) {
        put_names(&j, t, &at->names, t->nnames);
        put_old_blocks(&j, t, &at->blocks, t->nblocks);
    }
    return vm_json_end(&j);
}
