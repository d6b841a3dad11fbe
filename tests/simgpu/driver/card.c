/* The table that the simulated libnvidia-ml gets from cuGetExportTable (simgpu_card.h). */
#include "sg.h"

#include <string.h>

#include "simgpu_card.h"

static int table_count(void)
{
    pthread_mutex_lock(&sg.lock);
    int n = sg_configure() == CUDA_SUCCESS ? sg.cfg.ndevices : -1;
    pthread_mutex_unlock(&sg.lock);
    return n;
}

static int table_version(void)
{
    return CUDA_VERSION;
}

static int table_card(int i, struct simgpu_card *out)
{
    int n = table_count();
    if (i < 0 || i >= n)
        return -1;
    pthread_mutex_lock(&sg.lock);
    const struct sg_preset *p = &sg.cfg.preset;
    const struct sg_device *d = &sg.dev[i];
    size_t ours = d->used + d->reserved_ctx, all = ours + (sg.inited ? sg_machine_others(i) : 0);
    *out = (struct simgpu_card){.memory = p->memory,
                                .used_by_us = ours,
                                .used_by_all = all < p->memory ? all : p->memory,
                                .major = p->major,
                                .minor = p->minor,
                                .pci_bus = 1 + i,
                                .clock_khz = p->clock_khz,
                                .memory_clock_khz = p->mem_clock_khz,
                                .busy_ns = d->engine[SG_ENG_COMPUTE].busy_ns,
                                .now_ns = sg.host_ns};
    pthread_mutex_unlock(&sg.lock);
    snprintf(out->name, sizeof out->name, "%s (simulated)", p->card);
    sg_device_uuid(i, out->uuid);
    return 0;
}

const void *sg_card_table(const CUuuid *id)
{
    static const CUuuid ours = SIMGPU_CARD_ID;
    static const struct simgpu_card_table table = {
        .bytes = sizeof table, .count = table_count, .version = table_version, .card = table_card};
    return memcmp(id, &ours, sizeof ours) == 0 ? &table : NULL;
}
