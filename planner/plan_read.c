#include <stdlib.h>
#include <string.h>

#include "json_in.h"
#include "plan_file.h"

#define MAX_BYTES ((uint64_t)1 << 60)

/* The array under `key`, its length in *n, and zeroed room for it; NULL when something is wrong. */
static const cJSON *list_of(struct vm_json_in *in, const cJSON *o, const char *key, size_t element,
                            size_t *n, void **room)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(o, key), *e;
    size_t count = 0;
    if (!cJSON_IsArray(list)) {
        vm_json_bad(in, "\"%s\" is no list", key);
        return NULL;
    }
    cJSON_ArrayForEach(e, list)
    {
        count++;
    }
    if (count >= VM_NONE / 4) {
        vm_json_bad(in, "\"%s\" is too long", key);
        return NULL;
    }
    *room = calloc(count + 1, element);
    if (!*room) {
        vm_json_fail(in, VM_ENOMEM, "out of memory");
        return NULL;
    }
    *n = count;
    return list;
}

static bool read_sigs(struct vm_json_in *in, const cJSON *o, struct vm_plan *p)
{
    void *room;
    const cJSON *list = list_of(in, o, "sigs", sizeof *p->sigs, &p->nops, &room), *e;
    size_t i = 0;
    if (!list)
        return false;
    p->sigs = room;
    cJSON_ArrayForEach(e, list)
    {
        if (!vm_json_as_u64(in, e, "sigs", UINT64_MAX, &p->sigs[i++]))
            return false;
    }
    return true;
}

static bool read_block(struct vm_json_in *in, const cJSON *e, const struct vm_plan *p,
                       struct vm_plan_block *b)
{
    uint32_t nops = (uint32_t)p->nops;
    unsigned flags = 0, reason = VM_WHY_NONE;
    b->alloc_ordinal = b->trace_block = VM_NONE;
    if (!vm_json_get_u64(in, e, "size", true, MAX_BYTES, &b->size) ||
        !vm_json_get_u64(in, e, "offset", true, MAX_BYTES, &b->offset) ||
        !vm_json_get_u32(in, e, "alloc", true, nops, &b->alloc_op) ||
        !vm_json_get_u32(in, e, "free", true, 2 * nops, &b->free_op) ||
        !vm_json_get_u32(in, e, "ordinal", false, VM_NONE - 1, &b->alloc_ordinal) ||
        !vm_json_get_u32(in, e, "trace_block", false, VM_NONE, &b->trace_block) ||
        !vm_json_get_flags(in, e, "flags", VM_WORDS_BLOCK_FLAG, &flags) ||
        !vm_json_get_word(in, e, "why", VM_WORDS_REASON, VM_WHY_NONE, &reason))
        return false;
    b->flags = flags;
    b->reason = (uint8_t)reason;
    if (b->free_op < b->alloc_op)
        return vm_json_bad(in, "a block is freed before op %u and allocated before op %u",
                           b->free_op, b->alloc_op);
    if (b->alloc_ordinal != VM_NONE &&
        (b->offset < p->pool_offset || b->offset + b->size > p->pool_offset + p->pool_bytes))
        return vm_json_bad(in, "the block at offset %llu lies outside the pool",
                           (unsigned long long)b->offset);
    return true;
}

static bool read_blocks(struct vm_json_in *in, const cJSON *o, struct vm_plan *p)
{
    void *room;
    const cJSON *list = list_of(in, o, "blocks", sizeof *p->blocks, &p->nblocks, &room), *e;
    size_t i = 0;
    if (!list)
        return false;
    p->blocks = room;
    cJSON_ArrayForEach(e, list)
    {
        if (!read_block(in, e, p, &p->blocks[i++]))
            return false;
    }
    return true;
}

static bool read_action(struct vm_json_in *in, const cJSON *e, const struct vm_plan *p,
                        struct vm_plan_action *a)
{
    unsigned kind = 0, reason = VM_WHY_NONE;
    if (!vm_json_get_word(in, e, "do", VM_WORDS_ACTION, 0, &kind) ||
        !vm_json_get_word(in, e, "why", VM_WORDS_REASON, VM_WHY_NONE, &reason) ||
        !vm_json_get_u64(in, e, "page", true, MAX_BYTES, &a->page) ||
        !vm_json_get_u32(in, e, "pages", true, VM_NONE - 1, &a->npages))
        return false;
    if (kind == 0)
        return vm_json_bad(in, "an action is none of out, in, drop, copy");
    if (p->nops == 0)
        return vm_json_bad(in, "there are actions but no ops");
    if (!vm_json_get_u32(in, e, "op", true, (uint32_t)p->nops - 1, &a->op) ||
        !vm_json_get_u32(in, e, "need", kind == VM_ACT_IN, 2 * (uint32_t)p->nops, &a->need_op))
        return false;
    a->kind = (uint8_t)kind;
    a->reason = (uint8_t)reason;
    return true;
}

static bool read_actions(struct vm_json_in *in, const cJSON *o, struct vm_plan *p)
{
    void *room;
    const cJSON *list = list_of(in, o, "actions", sizeof *p->actions, &p->nactions, &room), *e;
    size_t i = 0;
    if (!list)
        return false;
    p->actions = room;
    cJSON_ArrayForEach(e, list)
    {
        struct vm_plan_action *a = &p->actions[i];
        if (!read_action(in, e, p, a))
            return false;
        if (i && (a->op < a[-1].op ||
                  (a->op == a[-1].op && a->kind != VM_ACT_IN && a[-1].kind == VM_ACT_IN)))
            return vm_json_bad(in, "action %zu is out of order", i);
        i++;
    }
    return true;
}

static bool read_mem(struct vm_json_in *in, const cJSON *o, struct vm_plan *p)
{
    void *room;
    const cJSON *list = list_of(in, o, "mem", sizeof *p->mem, &p->nmem, &room), *e;
    size_t i = 0;
    uint32_t last = 0;
    if (!list)
        return false;
    p->mem = room;
    cJSON_ArrayForEach(e, list)
    {
        struct vm_iter_mem *m = &p->mem[i++];
        uint64_t op = 0, block = 0, is_free = 0;
        if (!cJSON_IsArray(e) || cJSON_GetArraySize(e) != 3 || p->nblocks == 0)
            return vm_json_bad(in, "\"mem\" is no list of [op, block, is_free]");
        if (!vm_json_as_u64(in, e->child, "mem", p->nops, &op) ||
            !vm_json_as_u64(in, e->child->next, "mem", p->nblocks - 1, &block) ||
            !vm_json_as_u64(in, e->child->next->next, "mem", 1, &is_free))
            return false;
        *m = (struct vm_iter_mem){(uint32_t)op, (uint32_t)block, (uint8_t)is_free};
        if (m->op < last)
            return vm_json_bad(in, "\"mem\" is out of order");
        last = m->op;
    }
    return true;
}

static bool read_plan(struct vm_json_in *in, const cJSON *o, struct vm_plan *p)
{
    const struct {
        const char *key;
        uint64_t *to;
    } numbers[] = {
        {"page_bytes", &p->page_bytes},
        {"budget_pages", &p->budget_pages},
        {"pool_offset", &p->pool_offset},
        {"pool_bytes", &p->pool_bytes},
        {"max_live_bytes", &p->max_live_bytes},
        {"predicted_ns", &p->predicted_ns},
        {"bound_ns", &p->bound_ns},
        {"compute_ns", &p->compute_ns},
        {"out_bytes", &p->out_bytes},
        {"in_bytes", &p->in_bytes},
    };
    if (!vm_json_check_format(in, o, "vmem-plan", VM_PLAN_VERSION) ||
        !vm_json_get_text(in, o, "policy", p->policy, sizeof p->policy))
        return false;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!vm_json_get_u64(in, o, numbers[i].key, true, MAX_BYTES, numbers[i].to))
            return false;
    if (!vm_json_get_u64(in, o, "window_ns", false, MAX_BYTES, &p->window_ns))
        return false;
    return read_sigs(in, o, p) && read_blocks(in, o, p) && read_actions(in, o, p) &&
           read_mem(in, o, p);
}

int vm_plan_read(FILE *file, const char *name, struct vm_plan *p, struct vm_error *why)
{
    struct vm_json_in in = {.file = file, .name = name, .why = why};
    cJSON *o = vm_json_whole(&in);
    memset(p, 0, sizeof *p);
    if (o)
        read_plan(&in, o, p);
    cJSON_Delete(o);
    vm_json_in_fini(&in);
    if (in.rc)
        vm_plan_fini(p);
    return in.rc;
}
