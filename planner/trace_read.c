#include <stdlib.h>
#include <string.h>

#include "grow.h"
#include "json_in.h"
#include "trace.h"
#include "trace_file.h"

/* No device has more; sums of 2^20 such sizes still fit 64 bits. */
#define MAX_BLOCK_BYTES ((uint64_t)1 << 43)
#define MAX_LIVE_BYTES  ((uint64_t)1 << 60)
#define MAX_STREAM      65535

struct reader {
    struct vm_json_in in;
    struct vm_trace *t;
    uint32_t *slots; /* id -> block: hash table of indices into t->blocks */
    size_t nslots;
    uint64_t live_bytes;
    struct vm_access *acc;
    size_t cap_acc;
};

static size_t id_slot(const struct reader *r, uint64_t id)
{
    size_t mask = r->nslots - 1, s = vm_hash64(id) & mask;
    while (r->slots[s] != VM_NONE && r->t->blocks[r->slots[s]].id != id)
        s = (s + 1) & mask;
    return s;
}

static uint32_t find_block(const struct reader *r, uint64_t id)
{
    return r->nslots ? r->slots[id_slot(r, id)] : VM_NONE;
}

static bool enter_block(struct reader *r, uint32_t block)
{
    if (r->nslots < 2 * r->t->nblocks) {
        size_t n = r->nslots ? r->nslots * 2 : 1024;
        uint32_t *slots = malloc(n * sizeof *slots);
        if (!slots)
            return vm_json_fail(&r->in, VM_ENOMEM, "out of memory");
        memset(slots, 0xff, n * sizeof *slots);
        free(r->slots);
        r->slots = slots;
        r->nslots = n;
        for (uint32_t b = 0; b < r->t->nblocks; b++)
            r->slots[id_slot(r, r->t->blocks[b].id)] = b;
    }
    r->slots[id_slot(r, r->t->blocks[block].id)] = block;
    return true;
}

/* What a trace function answered; the arguments were checked, so only memory can be short. */
static bool done(struct reader *r, int rc)
{
    if (rc == VM_ENOMEM)
        return vm_json_fail(&r->in, VM_ENOMEM,
                            "out of memory: the trace is too large for this machine");
    if (rc < 0)
        return vm_json_bad(&r->in, "does not fit what came before it");
    return true;
}

struct place {
    uint32_t stream;
    uint64_t host_ns;
};

static bool read_place(struct reader *r, const cJSON *o, struct place *p)
{
    *p = (struct place){0};
    return vm_json_get_u32(&r->in, o, "stream", false, MAX_STREAM, &p->stream) &&
           vm_json_get_u64(&r->in, o, "t", false, UINT64_MAX, &p->host_ns);
}

static bool read_block(struct reader *r, const cJSON *o, bool event)
{
    uint64_t id = 0, size = 0, addr = 0;
    unsigned flags = 0;
    uint32_t block;
    struct place p;
    if (!vm_json_get_u64(&r->in, o, "id", true, UINT64_MAX, &id) ||
        !vm_json_get_u64(&r->in, o, "size", true, MAX_BLOCK_BYTES, &size) ||
        !vm_json_get_u64(&r->in, o, "addr", false, UINT64_MAX, &addr) ||
        !vm_json_get_flags(&r->in, o, "flags", VM_WORDS_BLOCK_FLAG, &flags) ||
        !read_place(r, o, &p))
        return false;
    if (find_block(r, id) != VM_NONE)
        return vm_json_bad(&r->in, "block %llu is there already", (unsigned long long)id);
    if (r->live_bytes + size > MAX_LIVE_BYTES)
        return vm_json_bad(&r->in, "more than 2^60 bytes are alive");
    int rc = event ? vm_trace_add_alloc(r->t, id, size, addr, p.stream, p.host_ns, &block)
                   : vm_trace_add_block(r->t, id, size, addr, &block);
    if (!done(r, rc))
        return false;
    r->live_bytes += size;
    r->t->blocks[block].flags = flags;
    return enter_block(r, block);
}

/* The block an object or an access names; it must exist and be alive. */
static bool known_block(struct reader *r, uint64_t id, const char *what, uint32_t *block)
{
    *block = find_block(r, id);
    if (*block == VM_NONE)
        return vm_json_bad(&r->in, "block %llu is %s before it is allocated",
                           (unsigned long long)id, what);
    if (r->t->blocks[*block].free_event != VM_NONE)
        return vm_json_bad(&r->in, "block %llu is %s after it was freed", (unsigned long long)id,
                           what);
    return true;
}

static bool read_free(struct reader *r, const cJSON *o)
{
    uint64_t id = 0;
    uint32_t block;
    struct place p;
    if (!vm_json_get_u64(&r->in, o, "id", true, UINT64_MAX, &id) ||
        !known_block(r, id, "freed", &block) || !read_place(r, o, &p) ||
        !done(r, vm_trace_add_free(r->t, block, p.stream, p.host_ns)))
        return false;
    r->live_bytes -= r->t->blocks[block].size;
    return true;
}

static bool read_hint(struct reader *r, const cJSON *o)
{
    uint64_t id = 0;
    uint32_t block;
    unsigned hint = 0;
    struct place p;
    if (!vm_json_get_u64(&r->in, o, "id", true, UINT64_MAX, &id) ||
        !known_block(r, id, "named in a hint", &block) ||
        !vm_json_get_word(&r->in, o, "hint", VM_WORDS_HINT, 0, &hint) || !read_place(r, o, &p))
        return false;
    return hint == 0 || done(r, vm_trace_add_hint(r->t, block, hint, p.host_ns));
}

/* [id, "rw", "role"]; the role may be absent. */
static bool read_access(struct reader *r, const cJSON *a, struct vm_access *out)
{
    const cJSON *id = a && cJSON_IsArray(a) ? a->child : NULL;
    const cJSON *mode = id ? id->next : NULL, *role = mode ? mode->next : NULL;
    uint64_t number = 0;
    if (!cJSON_IsString(mode) || (role && !cJSON_IsString(role)))
        return vm_json_bad(&r->in, "\"acc\" is no list of [id, mode, role]");
    if (!vm_json_as_u64(&r->in, id, "acc", UINT64_MAX, &number))
        return false;
    *out = (struct vm_access){0};
    for (const char *m = mode->valuestring; *m; m++) {
        int bit = vm_word_value(VM_WORDS_MODE, (const char[]){*m, 0});
        if (bit < 0)
            return vm_json_bad(&r->in, "'%c' is no access mode (r, w, t, u)", *m);
        out->mode |= (uint8_t)bit;
    }
    if (out->mode == 0 || ((out->mode & VM_TOTAL) && !(out->mode & VM_WRITE)))
        return vm_json_bad(&r->in, "\"%.10s\" is no access mode", mode->valuestring);
    if (role) {
        int v = vm_word_value(VM_WORDS_ROLE, role->valuestring);
        out->role = (uint8_t)(v < 0 ? VM_ROLE_NONE : v);
    }
    return known_block(r, number, "used", &out->block);
}

static bool read_accesses(struct reader *r, const cJSON *o, uint32_t *n)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(o, "acc"), *a;
    *n = 0;
    if (list && !cJSON_IsArray(list))
        return vm_json_bad(&r->in, "\"acc\" is no list of [id, mode, role]");
    for (a = list ? list->child : NULL; a; a = a->next) {
        if (VM_GROW(r->acc, r->cap_acc, (size_t)*n + 1) < 0)
            return vm_json_fail(&r->in, VM_ENOMEM, "out of memory");
        if (!read_access(r, a, &r->acc[*n]))
            return false;
        ++*n;
    }
    return true;
}

static bool read_op(struct reader *r, const cJSON *o)
{
    struct vm_event e = {.name = VM_NONE};
    unsigned kind = VM_OP_OTHER, layer = VM_LAYER_NONE, flags = 0;
    uint32_t nacc;
    struct place p;
    if (!vm_json_get_word(&r->in, o, "op", VM_WORDS_OP_KIND, VM_OP_OTHER, &kind) ||
        !vm_json_get_word(&r->in, o, "layer", VM_WORDS_LAYER, VM_LAYER_NONE, &layer) ||
        !vm_json_get_flags(&r->in, o, "flags", VM_WORDS_OP_FLAG, &flags) ||
        !vm_json_get_u64(&r->in, o, "sig", true, UINT64_MAX, &e.sig) ||
        !vm_json_get_u64(&r->in, o, "dur", false, (uint64_t)1 << 53, &e.dur_ns) ||
        !read_place(r, o, &p) || !read_accesses(r, o, &nacc))
        return false;
    if (cJSON_HasObjectItem(o, "name")) {
        if (r->t->nnames == 0)
            return vm_json_bad(&r->in, "names name 0 before there is one");
        if (!vm_json_get_u32(&r->in, o, "name", true, (uint32_t)r->t->nnames - 1, &e.name))
            return false;
    }
    e.op_kind = (uint8_t)kind;
    e.layer = (uint8_t)layer;
    e.flags = (uint8_t)flags;
    e.stream = p.stream;
    e.host_ns = p.host_ns;
    return done(r, vm_trace_add_op(r->t, &e, r->acc, nacc, NULL));
}

static bool read_name(struct reader *r, const cJSON *o)
{
    uint64_t number = 0;
    uint32_t index;
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(o, "text");
    if (!vm_json_get_u64(&r->in, o, "name", true, UINT32_MAX - 1, &number))
        return false;
    if (!cJSON_IsString(text))
        return vm_json_bad(&r->in, "\"text\" is missing");
    if (number != r->t->nnames)
        return vm_json_bad(&r->in, "name %llu comes out of order, %zu is next",
                           (unsigned long long)number, r->t->nnames);
    vm_json_unescape(text->valuestring);
    if (!done(r, vm_trace_add_name(r->t, text->valuestring, strlen(text->valuestring), &index)))
        return false;
    if (index != number)
        return vm_json_bad(&r->in, "name %llu is the same as name %u", (unsigned long long)number,
                           index);
    return true;
}

static bool read_step_or_sync(struct reader *r, const cJSON *o, bool step)
{
    struct place p;
    if (!read_place(r, o, &p))
        return false;
    return done(r, step ? vm_trace_add_step(r->t, p.host_ns)
                        : vm_trace_add_sync(r->t, p.stream, p.host_ns));
}

static bool read_line(struct reader *r, const cJSON *o)
{
    const cJSON *ev = cJSON_GetObjectItemCaseSensitive(o, "ev");
    if (!cJSON_IsString(ev))
        return vm_json_bad(&r->in, "\"ev\" is missing");
    const char *kind = ev->valuestring;
    if (strcmp(kind, "op") == 0)
        return read_op(r, o);
    if (strcmp(kind, "alloc") == 0 || strcmp(kind, "block") == 0)
        return read_block(r, o, *kind == 'a');
    if (strcmp(kind, "free") == 0)
        return read_free(r, o);
    if (strcmp(kind, "name") == 0)
        return read_name(r, o);
    if (strcmp(kind, "hint") == 0)
        return read_hint(r, o);
    if (strcmp(kind, "step") == 0 || strcmp(kind, "sync") == 0)
        return read_step_or_sync(r, o, kind[1] == 't');
    return true; /* a kind of line that came later */
}

static bool read_machine(struct vm_json_in *in, const cJSON *o, struct vm_machine *m)
{
    const struct {
        const char *key;
        double *to;
    } reals[] = {
        {"out_bps", &m->out_bps},
        {"in_bps", &m->in_bps},
        {"out_duplex_bps", &m->out_duplex_bps},
        {"in_duplex_bps", &m->in_duplex_bps},
        {"copy_latency_ns", &m->copy_latency_ns},
        {"map_ns", &m->map_ns},
        {"unmap_ns", &m->unmap_ns},
        {"access_ns", &m->access_ns},
        {"unmap_call_ns", &m->unmap_call_ns},
        {"access_call_ns", &m->access_call_ns},
        {"call_ns", &m->call_ns},
    };
    if (!cJSON_IsObject(o))
        return vm_json_bad(in, "\"machine\" is no object");
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (!vm_json_get_real(in, o, reals[i].key, reals[i].to))
            return false;
    uint64_t waits = 0;
    bool ok = vm_json_get_u64(in, o, "device_bytes", false, MAX_LIVE_BYTES, &m->device_bytes) &&
              vm_json_get_u64(in, o, "host_bytes", false, MAX_LIVE_BYTES, &m->host_bytes) &&
              vm_json_get_u64(in, o, "page_bytes", false, MAX_BLOCK_BYTES, &m->page_bytes) &&
              vm_json_get_u64(in, o, "page_least", false, MAX_BLOCK_BYTES, &m->page_least) &&
              vm_json_get_u64(in, o, "unmap_waits", false, 1, &waits);
    if (ok && m->page_least && (m->page_least < 512 || (m->page_least & (m->page_least - 1))))
        ok = vm_json_bad(in, "\"page_least\" is not a power of two from 512");
    m->unmap_waits = waits != 0;
    return ok;
}

static bool read_header(struct reader *r)
{
    cJSON *o = vm_json_next_line(&r->in);
    if (!o)
        return vm_json_bad(&r->in, "is empty");
    const cJSON *machine = cJSON_GetObjectItemCaseSensitive(o, "machine");
    bool ok = vm_json_check_format(&r->in, o, "vmem-trace", VM_TRACE_VERSION) &&
              vm_json_get_text(&r->in, o, "device", r->t->device, sizeof r->t->device) &&
              vm_json_get_text(&r->in, o, "clock", r->t->clock, sizeof r->t->clock) &&
              (!machine || read_machine(&r->in, machine, &r->t->machine));
    cJSON_Delete(o);
    return ok;
}

int vm_trace_read(FILE *in, const char *name, struct vm_trace *t, struct vm_error *why)
{
    struct reader r = {.in = {.file = in, .name = name, .why = why}, .t = t};
    bool ok = read_header(&r);
    while (ok) {
        cJSON *o = vm_json_next_line(&r.in);
        if (!o)
            break;
        ok = read_line(&r, o);
        cJSON_Delete(o);
    }
    free(r.slots);
    free(r.acc);
    vm_json_in_fini(&r.in);
    if (r.in.rc)
        vm_trace_fini(t);
    return r.in.rc;
}
