#include "import_dtr.h"

#include <stdlib.h>
#include <string.h>

#include "json_in.h"
#include "trace.h"

#define MAX_BYTES ((uint64_t)1 << 43)
#define MAX_TIME  ((uint64_t)1 << 53)
#define MOST_ARGS 4096

/* A storage: bytes that one or more handles name. */
struct storage {
    uint64_t size;
    uint32_t block; /* in the trace; VM_NONE until it has bytes */
    uint32_t handles;
};

struct handle {
    char *name; /* NULL = the slot is unused */
    uint32_t storage; /* VM_NONE = released */
};

/* A call whose results are still being described. */
struct call {
    int open;
    struct vm_event op;
    struct vm_access acc[MOST_ARGS];
    uint32_t nacc;
    uint32_t args[MOST_ARGS]; /* their storages, by position */
    uint32_t nargs;
    uint32_t results[MOST_ARGS]; /* handles */
    uint32_t nresults;
};

struct importer {
    struct vm_json_in in;
    struct vm_trace *t;
    struct handle *handles; /* open addressing; capacity a power of two */
    uint32_t nhandles, cap_handles;
    struct storage *storages;
    uint32_t nstorages, cap_storages;
    struct call call;
    uint64_t next_id;
    int backward, any_op;
};

static int no_memory(struct importer *im)
{
    vm_json_fail(&im->in, VM_ENOMEM, "out of memory");
    return 0;
}

static uint64_t hash_text(const char *text)
{
    uint64_t h = 0;
    for (; *text; text++)
        h = vm_hash64(h + (unsigned char)*text + 1);
    return h;
}

static uint32_t slot_of(const struct importer *im, const char *name)
{
    uint32_t mask = im->cap_handles - 1, k = (uint32_t)hash_text(name) & mask;
    while (im->handles[k].name && strcmp(im->handles[k].name, name) != 0)
        k = (k + 1) & mask;
    return k;
}

static int grow_handles(struct importer *im)
{
    struct handle *old = im->handles;
    uint32_t n = im->cap_handles;
    uint32_t cap = n ? n * 2 : 1024;
    struct handle *fresh = calloc(cap, sizeof *fresh);
    if (!fresh)
        return no_memory(im);
    im->handles = fresh;
    im->cap_handles = cap;
    for (uint32_t k = 0; k < n; k++)
        if (old[k].name)
            im->handles[slot_of(im, old[k].name)] = old[k];
    free(old);
    return 1;
}

/* The handle's slot; makes a released one if `add`. VM_NONE with the reason noted otherwise. */
static uint32_t find_handle(struct importer *im, const char *name, int add)
{
    /* The table grows only when a handle is added: slots found before stay good until then. */
    if ((add || !im->cap_handles) && 2 * (im->nhandles + 1) > im->cap_handles && !grow_handles(im))
        return VM_NONE;
    uint32_t k = slot_of(im, name);
    if (im->handles[k].name)
        return k;
    if (!add) {
        vm_json_bad(&im->in, "'%.60s' was never defined", name);
        return VM_NONE;
    }
    im->handles[k] = (struct handle){strdup(name), VM_NONE};
    if (!im->handles[k].name) {
        no_memory(im);
        return VM_NONE;
    }
    im->nhandles++;
    return k;
}

/* The storage behind a live handle, VM_NONE with the reason noted. */
static uint32_t storage_of(struct importer *im, const char *name)
{
    uint32_t k = find_handle(im, name, 0);
    if (k == VM_NONE)
        return VM_NONE;
    if (im->handles[k].storage == VM_NONE)
        vm_json_bad(&im->in, "'%.60s' was released before", name);
    return im->handles[k].storage;
}

static uint32_t new_storage(struct importer *im)
{
    if (im->nstorages == im->cap_storages) {
        uint32_t cap = im->cap_storages ? im->cap_storages * 2 : 1024;
        struct storage *grown = realloc(im->storages, cap * sizeof *grown);
        if (!grown) {
            no_memory(im);
            return VM_NONE;
        }
        im->storages = grown;
        im->cap_storages = cap;
    }
    im->storages[im->nstorages] = (struct storage){0, VM_NONE, 0};
    return im->nstorages++;
}

static int ok(struct importer *im, int rc)
{
    if (rc == VM_ENOMEM)
        return no_memory(im);
    if (rc < 0)
        return vm_json_bad(&im->in, "the log contradicts itself");
    return 1;
}

static int drop_handle(struct importer *im, uint32_t k)
{
    struct storage *st = &im->storages[im->handles[k].storage];
    im->handles[k].storage = VM_NONE;
    if (--st->handles > 0 || st->block == VM_NONE)
        return 1;
    return ok(im, vm_trace_add_free(im->t, st->block, 0, 0));
}

static int bind_handle(struct importer *im, uint32_t k, uint32_t storage)
{
    im->storages[storage].handles++;
    if (im->handles[k].storage != VM_NONE && !drop_handle(im, k))
        return 0;
    im->handles[k].storage = storage;
    return 1;
}

/* Gives a storage its bytes: as a block from before the trace, or allocated now. */
static int give_bytes(struct importer *im, uint32_t storage, int before)
{
    struct storage *st = &im->storages[storage];
    if (st->block != VM_NONE || st->size == 0)
        return 1;
    uint64_t id = ++im->next_id;
    return ok(im, before ? vm_trace_add_block(im->t, id, st->size, 0, &st->block)
                         : vm_trace_add_alloc(im->t, id, st->size, 0, 0, 0, &st->block));
}

/* ---- calls ----*/

static int add_access(struct importer *im, uint32_t storage, unsigned mode)
{
    struct call *c = &im->call;
    uint32_t block = im->storages[storage].block;
    if (block == VM_NONE)
        return 1; /* no bytes, no access */
    for (uint32_t k = 0; k < c->nacc; k++)
        if (c->acc[k].block == block) {
            c->acc[k].mode |= (uint8_t)mode;
            return 1;
        }
    if (c->nacc == MOST_ARGS)
        return vm_json_bad(&im->in, "more than %d arguments and results", MOST_ARGS);
    c->acc[c->nacc++] = (struct vm_access){.block = block, .mode = (uint8_t)mode};
    return 1;
}

/* All results are known: allocate the fresh ones, then write the op. */
static int finish_call(struct importer *im)
{
    struct call *c = &im->call;
    if (!c->open)
        return 1;
    c->open = 0;
    for (uint32_t k = 0; k < c->nresults; k++) {
        uint32_t storage = im->handles[c->results[k]].storage;
        int fresh = im->storages[storage].block == VM_NONE;
        if (!fresh)
            continue;
        if (!give_bytes(im, storage, 0) || !add_access(im, storage, VM_WRITE | VM_TOTAL))
            return 0;
    }
    for (uint32_t k = 0; k < c->nacc; k++)
        c->op.sig = vm_hash64(c->op.sig ^ (im->t->blocks[c->acc[k].block].size * 16 + c->acc[k].mode));
    im->any_op = 1;
    return ok(im, vm_trace_add_op(im->t, &c->op, c->acc, c->nacc, NULL));
}

static int read_name_of_op(struct importer *im, const cJSON *o)
{
    char name[128] = "";
    uint64_t ns = 0;
    uint32_t index = 0;
    if (!vm_json_get_text(&im->in, o, "NAME", name, sizeof name))
        return 0;
    const cJSON *time = cJSON_GetObjectItemCaseSensitive(o, "TIME");
    if (!time)
        return vm_json_bad(&im->in, "TIME is missing");
    if (cJSON_IsString(time)) { /* as the published logs have it */
        char *end = NULL;
        ns = strtoull(time->valuestring, &end, 10);
        if (*time->valuestring < '0' || *time->valuestring > '9' || *end || ns > MAX_TIME)
            return vm_json_bad(&im->in, "TIME '%.40s' is not a number of nanoseconds", time->valuestring);
    } else if (!vm_json_as_u64(&im->in, time, "TIME", MAX_TIME, &ns)) {
        return 0;
    }
    if (!ok(im, vm_trace_add_name(im->t, name, strlen(name), &index)))
        return 0;
    im->call.op = (struct vm_event){
        .op_kind = VM_OP_LAUNCH, .name = index, .dur_ns = ns, .sig = hash_text(name),
        .flags = (uint8_t)((im->backward ? VM_OPF_BACKWARD : VM_OPF_FORWARD) | VM_OPF_CALL_BEGIN)};
    return 1;
}

static int begin_op(struct importer *im, const cJSON *o)
{
    struct call *c = &im->call;
    c->nacc = c->nargs = c->nresults = 0;
    if (!read_name_of_op(im, o))
        return 0;
    const cJSON *args = cJSON_GetObjectItemCaseSensitive(o, "ARGS"), *a;
    if (!cJSON_IsArray(args))
        return vm_json_bad(&im->in, "ARGS is not an array");
    cJSON_ArrayForEach(a, args) {
        if (!cJSON_IsString(a))
            return vm_json_bad(&im->in, "an argument is not a name");
        uint32_t storage = storage_of(im, a->valuestring);
        if (im->in.rc)
            return 0;
        if (c->nargs == MOST_ARGS)
            return vm_json_bad(&im->in, "more than %d arguments", MOST_ARGS);
        c->args[c->nargs++] = storage;
        if (!add_access(im, storage, VM_READ))
            return 0;
    }
    return 1;
}

static int do_call(struct importer *im, const cJSON *o)
{
    struct call *c = &im->call;
    if (!begin_op(im, o))
        return 0;
    const cJSON *results = cJSON_GetObjectItemCaseSensitive(o, "RESULT"), *r;
    if (!cJSON_IsArray(results))
        return vm_json_bad(&im->in, "RESULT is not an array");
    cJSON_ArrayForEach(r, results) {
        if (!cJSON_IsString(r) || c->nresults == MOST_ARGS)
            return vm_json_bad(&im->in, "a result is not a name, or there are more than %d", MOST_ARGS);
        uint32_t k = find_handle(im, r->valuestring, 1);
        uint32_t storage = k == VM_NONE ? VM_NONE : new_storage(im);
        if (storage == VM_NONE || !bind_handle(im, k, storage))
            return 0;
        /* a slot number moves when the table grows: take it again once all handles exist */
        c->results[c->nresults++] = k;
    }
    uint32_t n = 0;
    cJSON_ArrayForEach(r, results)
        c->results[n++] = slot_of(im, r->valuestring);
    c->open = 1;
    return 1;
}

static int do_mutate(struct importer *im, const cJSON *o)
{
    struct call *c = &im->call;
    if (!begin_op(im, o))
        return 0;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(o, "MUTATE"), *m;
    if (!cJSON_IsArray(list))
        return vm_json_bad(&im->in, "MUTATE is not an array");
    cJSON_ArrayForEach(m, list) {
        uint64_t index = 0;
        if (!vm_json_as_u64(&im->in, m, "MUTATE", UINT32_MAX, &index))
            return 0;
        if (index >= c->nargs)
            return vm_json_bad(&im->in, "MUTATE names argument %llu of %u", (unsigned long long)index,
                               c->nargs);
        if (!add_access(im, c->args[index], VM_WRITE))
            return 0;
    }
    c->open = 1;
    return finish_call(im);
}

/* ---- the other lines ----*/

/* NAME as text that lives as long as the line. */
static const char *text_of(struct importer *im, const cJSON *o, const char *key)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    if (cJSON_IsString(v))
        return v->valuestring;
    vm_json_bad(&im->in, "%s is missing or not a text", key);
    return NULL;
}

static int is_result(const struct importer *im, const char *name)
{
    for (uint32_t k = 0; im->call.open && k < im->call.nresults; k++)
        if (strcmp(im->handles[im->call.results[k]].name, name) == 0)
            return 1;
    return 0;
}

static int do_constant(struct importer *im, const cJSON *o)
{
    const char *name = text_of(im, o, "NAME");
    uint32_t k = name ? find_handle(im, name, 1) : VM_NONE;
    uint32_t storage = k == VM_NONE ? VM_NONE : new_storage(im);
    return storage != VM_NONE && bind_handle(im, k, storage);
}

static int do_memory(struct importer *im, const cJSON *o)
{
    const char *name = text_of(im, o, "NAME"), *text = name ? text_of(im, o, "MEMORY") : NULL;
    if (!text)
        return 0;
    char *end = NULL;
    uint64_t bytes = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || bytes > MAX_BYTES)
        return vm_json_bad(&im->in, "MEMORY '%.40s' is not a number of bytes up to 2^43", text);
    uint32_t storage = storage_of(im, name);
    if (im->in.rc)
        return 0;
    if (im->storages[storage].block != VM_NONE)
        return 1; /* the size of a view: its storage has bytes already */
    im->storages[storage].size = bytes;
    return is_result(im, name) || give_bytes(im, storage, !im->any_op);
}

static int do_alias(struct importer *im, const cJSON *o)
{
    const char *name = text_of(im, o, "NAME"), *text = name ? text_of(im, o, "ALIAS") : NULL;
    if (!text)
        return 0;
    char *end = NULL;
    long index = strtol(text, &end, 10);
    if (*end || !*text || index < -1)
        return vm_json_bad(&im->in, "ALIAS '%.40s' is not an argument's index", text);
    if (!is_result(im, name))
        return vm_json_bad(&im->in, "'%.60s' is not a result of the last call", name);
    if (index < 0)
        return 1;
    if ((unsigned long)index >= im->call.nargs)
        return vm_json_bad(&im->in, "ALIAS names argument %ld of %u", index, im->call.nargs);
    return bind_handle(im, find_handle(im, name, 0), im->call.args[index]);
}

static int do_copy(struct importer *im, const cJSON *o)
{
    const char *dst = text_of(im, o, "DST"), *src = dst ? text_of(im, o, "SRC") : NULL;
    uint32_t storage = src ? storage_of(im, src) : VM_NONE;
    uint32_t k = storage != VM_NONE ? find_handle(im, dst, 1) : VM_NONE;
    return k != VM_NONE && bind_handle(im, k, storage);
}

static int do_release(struct importer *im, const cJSON *o)
{
    const char *name = text_of(im, o, "NAME");
    uint32_t storage = name ? storage_of(im, name) : VM_NONE;
    return storage != VM_NONE && drop_handle(im, find_handle(im, name, 0));
}

static int do_annotate(struct importer *im, const cJSON *o)
{
    const char *text = text_of(im, o, "ANNOTATION");
    if (text && strcmp(text, "BACKWARD") == 0)
        im->backward = 1;
    return text != NULL;
}

static int do_line(struct importer *im, const cJSON *o)
{
    static const struct {
        const char *word;
        int (*act)(struct importer *, const cJSON *);
        int describes_result;
    } instructions[] = {
        {"CALL", do_call, 0},         {"MUTATE", do_mutate, 0},   {"CONSTANT", do_constant, 0},
        {"MEMORY", do_memory, 1},     {"ALIAS", do_alias, 1},     {"COPY", do_copy, 0},
        {"COPY_FROM", do_copy, 0},    {"RELEASE", do_release, 0}, {"ANNOTATE", do_annotate, 0},
    };
    const char *word = text_of(im, o, "INSTRUCTION");
    if (!word)
        return 0;
    for (size_t k = 0; k < sizeof instructions / sizeof *instructions; k++)
        if (strcmp(word, instructions[k].word) == 0) {
            if (!instructions[k].describes_result && !finish_call(im))
                return 0;
            return instructions[k].act(im, o);
        }
    return 1;
}

static void importer_fini(struct importer *im)
{
    for (uint32_t k = 0; k < im->cap_handles; k++)
        free(im->handles[k].name);
    free(im->handles);
    free(im->storages);
    vm_json_in_fini(&im->in);
    free(im);
}

int vm_import_dtr(FILE *in, const char *name, struct vm_trace *t, struct vm_error *why)
{
    struct importer *im = calloc(1, sizeof *im);
    if (!im) {
        snprintf(why->text, sizeof why->text, "%.100s: out of memory", name);
        return VM_ENOMEM;
    }
    im->in = (struct vm_json_in){.file = in, .name = name, .why = why};
    im->t = t;
    for (cJSON *o; !im->in.rc && (o = vm_json_next_line(&im->in));) {
        do_line(im, o);
        cJSON_Delete(o);
    }
    if (!im->in.rc)
        finish_call(im);
    int status = im->in.rc;
    importer_fini(im);
    if (status) {
        vm_trace_fini(t);
        return status;
    }
    snprintf(t->device, sizeof t->device, "op log");
    snprintf(t->clock, sizeof t->clock, "device");
    return VM_OK;
}
