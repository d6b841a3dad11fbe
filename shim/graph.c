/* Blocks that graphs name: a graph bakes addresses in and its launches are not seen block by block,
 * so these stay on the device until the graph and every executable made from it are gone
 * (runtime.h). */
#include "graph.h"

#include <stdlib.h>

#include "block.h"
#include "driver.h"
#include "memory.h"
#include "runtime.h"

struct named {
    uint32_t block;
    uint64_t id; /* of the allocation: the index may serve another by the time of the unpin */
};

/* What one graph named; shared by the graph and its executables. */
struct vm_graph_pins {
    unsigned refs;
    struct named *items;
    size_t n, cap;
};

struct vm_graph_ref {
    void *handle; /* CUgraph or CUgraphExec */
    struct vm_graph_pins *pins;
};

static bool add(struct vm_graph_pins *p, uint32_t block, uint64_t id)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->items[i].block == block && p->items[i].id == id)
            return false;
    if (p->n == p->cap) {
        size_t cap = p->cap ? p->cap * 2 : 16;
        struct named *n = realloc(p->items, cap * sizeof *n);
        if (!n)
            return true; /* pinned all the same, and for good */
        p->items = n;
        p->cap = cap;
    }
    p->items[p->n++] = (struct named){block, id};
    return true;
}

static struct vm_graph_ref *find(struct vm_device *d, void *handle)
{
    for (unsigned i = 0; i < d->ngraphs; i++)
        if (d->graphs[i].handle == handle)
            return &d->graphs[i];
    return NULL;
}

static void name(struct vm_device *d, struct vm_block *b)
{
    b->graphs++;
    vm_block_pin(d, b, true);
}

static void unname(struct vm_device *d, uint32_t block)
{
    struct vm_block *b = &d->blocks[block];
    /* Its launches were not seen block by block: the last may still run, and may have written it. */
    vm_block_touch(d, b, d->g, true);
    vm_block_unpin(d, b, true);
    if (--b->graphs == 0 && b->abandoned)
        vm_memory_release(d, block);
}

static void drop_pins(struct vm_device *d, struct vm_graph_pins *p)
{
    if (--p->refs > 0)
        return;
    for (size_t i = 0; i < p->n; i++) {
        const struct vm_block *b = &d->blocks[p->items[i].block];
        if (b->live && b->id == p->items[i].id)
            unname(d, p->items[i].block);
    }
    free(p->items);
    free(p);
}

/* Takes over one reference to the pins. */
static void hold(struct vm_device *d, void *handle, struct vm_graph_pins *p)
{
    struct vm_graph_ref *r = find(d, handle);
    if (r) { /* the handle was reused, or an executable was updated from another graph */
        drop_pins(d, r->pins);
        r->pins = p;
        return;
    }
    if (d->ngraphs == d->cap_graphs) {
        unsigned cap = d->cap_graphs ? d->cap_graphs * 2 : 16;
        struct vm_graph_ref *g = realloc(d->graphs, cap * sizeof *g);
        if (!g)
            return; /* the pins stay for good */
        d->graphs = g;
        d->cap_graphs = cap;
    }
    d->graphs[d->ngraphs++] = (struct vm_graph_ref){handle, p};
}

static struct vm_graph_pins *pins_of(struct vm_device *d, void *handle)
{
    struct vm_graph_ref *r = find(d, handle);
    if (r)
        return r->pins;
    struct vm_graph_pins *p = calloc(1, sizeof *p);
    if (p) {
        p->refs = 1;
        hold(d, handle, p);
    }
    return p;
}

void vm_graph_captured(struct vm_device *d, struct vm_block *b)
{
    if (!d->capture_pins) {
        d->capture_pins = calloc(1, sizeof *d->capture_pins);
        if (d->capture_pins)
            d->capture_pins->refs = 1;
    }
    if (!d->capture_pins || add(d->capture_pins, (uint32_t)(b - d->blocks), b->id))
        name(d, b);
}

bool vm_graph_keeps(struct vm_device *d, struct vm_block *b)
{
    if (b->graphs == 0 || !(b->captured || (d->captures > 0 && vm_captures_served())))
        return false;
    b->abandoned = true;
    return true;
}

struct vm_capture_mode vm_capture_relaxed(const struct vm_device *d)
{
    struct vm_capture_mode m = {.mode = CU_STREAM_CAPTURE_MODE_RELAXED};
    m.changed = d->captures > 0 && vm_drv.p_cuThreadExchangeStreamCaptureMode &&
                vm_drv.p_cuThreadExchangeStreamCaptureMode(&m.mode) == CUDA_SUCCESS;
    return m;
}

void vm_capture_strict(struct vm_capture_mode before)
{
    if (before.changed)
        vm_drv.p_cuThreadExchangeStreamCaptureMode(&before.mode);
}

void vm_graph_capture_over(struct vm_device *d, CUgraph graph)
{
    if (d->captures >
        0) { /* captures overlapped: nobody knows whose these are, so they stay for good */
        d->captures_mixed = true;
        return;
    }
    struct vm_graph_pins *p = d->capture_pins;
    d->capture_pins = NULL;
    if (p && !d->captures_mixed) {
        if (graph)
            hold(d, graph, p);
        else
            drop_pins(d, p); /* the capture was invalidated: no graph came of it */
    } else if (p) {
        free(p->items);
        free(p);
    }
    d->captures_mixed = false;
}

void vm_rt_graph_names(CUgraph graph, CUdeviceptr p)
{
    struct vm_device *d = vm_device_of(p);
    if (!d || d->broken != CUDA_SUCCESS)
        return;
    vm_rt_fetch(p);
    pthread_mutex_lock(&d->lock);
    uint32_t i = vm_block_find(d, p);
    struct vm_graph_pins *pins = i != VM_NO ? pins_of(d, graph) : NULL;
    if (i != VM_NO && (!pins || add(pins, i, d->blocks[i].id)))
        name(d, &d->blocks[i]);
    pthread_mutex_unlock(&d->lock);
}

void vm_rt_graph_instantiated(CUgraphExec exec, CUgraph graph)
{
    struct vm_device *d = vm_device_default();
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    struct vm_graph_ref *r = find(d, graph);
    if (r && find(d, exec) != r) {
        r->pins->refs++;
        hold(d, exec, r->pins);
    }
    pthread_mutex_unlock(&d->lock);
}

static void gone(void *handle)
{
    struct vm_device *d = vm_device_default();
    if (!d)
        return;
    pthread_mutex_lock(&d->lock);
    struct vm_graph_ref *r = find(d, handle);
    if (r) {
        struct vm_graph_pins *p = r->pins;
        *r = d->graphs[--d->ngraphs];
        drop_pins(d, p);
    }
    pthread_mutex_unlock(&d->lock);
}

void vm_rt_graph_gone(CUgraph graph)
{
    gone(graph);
}

void vm_rt_graph_exec_gone(CUgraphExec exec)
{
    gone(exec);
}
