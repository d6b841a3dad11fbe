#include "json_out.h"
#include "plan_file.h"
#include "words.h"

static void put_flags(struct vm_json_out *j, unsigned flags)
{
    if (!flags)
        return;
    vm_json_open(j, "flags", '[');
    for (unsigned bit = 1; bit <= flags; bit <<= 1)
        if ((flags & bit) && vm_word(VM_WORDS_BLOCK_FLAG, bit))
            vm_json_text(j, NULL, vm_word(VM_WORDS_BLOCK_FLAG, bit));
    vm_json_close(j, ']');
}

static void put_block(struct vm_json_out *j, const struct vm_plan_block *b)
{
    vm_json_open(j, NULL, '{');
    vm_json_u64(j, "size", b->size);
    vm_json_u64(j, "offset", b->offset);
    vm_json_u64(j, "alloc", b->alloc_op);
    vm_json_u64(j, "free", b->free_op);
    if (b->alloc_ordinal != VM_NONE)
        vm_json_u64(j, "ordinal", b->alloc_ordinal);
    put_flags(j, b->flags);
    vm_json_u64(j, "trace_block", b->trace_block);
    if (vm_word(VM_WORDS_REASON, b->reason))
        vm_json_text(j, "why", vm_word(VM_WORDS_REASON, b->reason));
    vm_json_close(j, '}');
}

static void put_action(struct vm_json_out *j, const struct vm_plan_action *a)
{
    vm_json_open(j, NULL, '{');
    vm_json_text(j, "do", vm_word(VM_WORDS_ACTION, a->kind));
    vm_json_u64(j, "op", a->op);
    vm_json_u64(j, "page", a->page);
    vm_json_u64(j, "pages", a->npages);
    if (a->kind == VM_ACT_IN)
        vm_json_u64(j, "need", a->need_op);
    if (vm_word(VM_WORDS_REASON, a->reason))
        vm_json_text(j, "why", vm_word(VM_WORDS_REASON, a->reason));
    vm_json_close(j, '}');
}

static void put_lists(struct vm_json_out *j, const struct vm_plan *p)
{
    vm_json_open(j, "sigs", '[');
    for (size_t i = 0; i < p->nops; i++)
        vm_json_hex(j, NULL, p->sigs[i]);
    vm_json_close(j, ']');
    vm_json_open(j, "blocks", '[');
    for (size_t i = 0; i < p->nblocks; i++)
        put_block(j, &p->blocks[i]);
    vm_json_close(j, ']');
    vm_json_open(j, "actions", '[');
    for (size_t i = 0; i < p->nactions; i++)
        put_action(j, &p->actions[i]);
    vm_json_close(j, ']');
    vm_json_open(j, "mem", '[');
    for (size_t i = 0; i < p->nmem; i++) {
        vm_json_open(j, NULL, '[');
        vm_json_u64(j, NULL, p->mem[i].op);
        vm_json_u64(j, NULL, p->mem[i].block);
        vm_json_u64(j, NULL, p->mem[i].is_free);
        vm_json_close(j, ']');
    }
    vm_json_close(j, ']');
}

int vm_plan_write(const struct vm_plan *p, vm_put_fn put, void *ctx)
{
    struct vm_json_out j;
    vm_json_begin(&j, put, ctx);
    vm_json_open(&j, NULL, '{');
    vm_json_text(&j, "format", "vmem-plan");
    vm_json_u64(&j, "version", VM_PLAN_VERSION);
    vm_json_text(&j, "policy", p->policy);
    vm_json_u64(&j, "page_bytes", p->page_bytes);
    vm_json_u64(&j, "budget_pages", p->budget_pages);
    vm_json_u64(&j, "pool_offset", p->pool_offset);
    vm_json_u64(&j, "pool_bytes", p->pool_bytes);
    vm_json_u64(&j, "max_live_bytes", p->max_live_bytes);
    vm_json_u64(&j, "predicted_ns", p->predicted_ns);
    vm_json_u64(&j, "bound_ns", p->bound_ns);
    vm_json_u64(&j, "compute_ns", p->compute_ns);
    vm_json_u64(&j, "out_bytes", p->out_bytes);
    vm_json_u64(&j, "in_bytes", p->in_bytes);
    if (p->window_ns)
        vm_json_u64(&j, "window_ns", p->window_ns);
    put_lists(&j, p);
    vm_json_close(&j, '}');
    vm_json_newline(&j);
    return vm_json_end(&j);
}
