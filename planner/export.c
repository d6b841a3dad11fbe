#include "export.h"

#include <stdio.h>

#include "json_out.h"
#include "words.h"

static int put_row(vm_put_fn put, void *ctx, size_t id, uint32_t lower, uint32_t upper,
                   uint64_t size)
{
    char row[96];
    if (lower >= upper || size == 0)
        return VM_OK; /* solvers take no empty buffers */
    int n =
        snprintf(row, sizeof row, "%zu,%u,%u,%llu\n", id, lower, upper, (unsigned long long)size);
    return put(ctx, row, (size_t)n);
}

int vm_export_buffers(const struct vm_iteration *it, vm_put_fn put, void *ctx)
{
    uint32_t nops = (uint32_t)it->nops;
    int rc = put(ctx, "id,lower,upper,size\n", 20);
    for (size_t i = 0; i < it->nblocks && rc == 0; i++) {
        const struct vm_iter_block *b = &it->blocks[i];
        if (!(b->flags & VM_BLK_WRAPS)) {
            rc = put_row(put, ctx, i, b->alloc_op, b->free_op, b->size);
            continue;
        }
        rc = put_row(put, ctx, i, b->alloc_op, nops, b->size);
        if (rc == 0)
            rc = put_row(put, ctx, i + it->nblocks, 0, b->free_op - nops, b->size);
    }
    return rc;
}

/* Opens an event with what all of them have; the caller closes it. */
static void open_event(struct vm_json_out *j, const char *phase, const char *name, uint64_t ns,
                       uint32_t track)
{
    vm_json_open(j, NULL, '{');
    vm_json_text(j, "ph", phase);
    vm_json_text(j, "name", name);
    vm_json_real(j, "ts", (double)ns / 1000);
    vm_json_u64(j, "pid", 0);
    vm_json_u64(j, "tid", track);
}

static void put_slice(struct vm_json_out *j, const struct vm_iteration *it, size_t i,
                      char *const *names, uint64_t ns)
{
    const struct vm_iter_op *op = &it->ops[i];
    const char *kind = vm_word(VM_WORDS_OP_KIND, op->kind),
               *layer = vm_word(VM_WORDS_LAYER, op->layer);
    open_event(j, "X", op->name != VM_NONE ? names[op->name] : kind ? kind : "op", ns, op->stream);
    vm_json_real(j, "dur", (double)op->dur_ns / 1000);
    vm_json_open(j, "args", '{');
    vm_json_u64(j, "op", i);
    vm_json_u64(j, "blocks", op->nacc);
    if (layer)
        vm_json_text(j, "layer", layer);
    vm_json_close(j, '}');
    vm_json_close(j, '}');
}

static void put_counter(struct vm_json_out *j, const struct vm_liveness *l, size_t i, uint64_t ns)
{
    open_event(j, "C", "bytes", ns, 0);
    vm_json_open(j, "args", '{');
    vm_json_u64(j, "used", l->work_bytes[i]);
    vm_json_u64(j, "cold", l->live_bytes[i] - l->work_bytes[i]);
    vm_json_u64(j, "dead",
                l->alloc_bytes[i] > l->live_bytes[i] ? l->alloc_bytes[i] - l->live_bytes[i] : 0);
    vm_json_close(j, '}');
    vm_json_close(j, '}');
}

int vm_export_chrome(const struct vm_iteration *it, const struct vm_liveness *l, char *const *names,
                     vm_put_fn put, void *ctx)
{
    struct vm_json_out j;
    uint64_t ns = 0;
    vm_json_begin(&j, put, ctx);
    vm_json_open(&j, NULL, '{');
    vm_json_text(&j, "displayTimeUnit", "ms");
    vm_json_open(&j, "traceEvents", '[');
    for (size_t i = 0; i < it->nops && j.rc == 0; i++) {
        put_slice(&j, it, i, names, ns);
        put_counter(&j, l, i, ns);
        ns += it->ops[i].dur_ns;
    }
    vm_json_close(&j, ']');
    vm_json_close(&j, '}');
    vm_json_newline(&j);
    return vm_json_end(&j);
}
