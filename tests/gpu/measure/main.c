/* measure STEP: one of the measurements that need the real driver, over the driver's public
 * interface alone. Prints one JSON object a line. `measure --list` names the steps. Run by
 * tests/gpu/kit.py. */
#include "measure.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *what;
    void (*run)(void);
} steps[] = {
    {"device", "the card and its driver", step_device},
    {"vmm", "create, map, access, unmap, release of 2..256 MiB, idle", step_vmm},
    {"vmm-busy", "the same beside a kernel and copies; which of them wait", step_vmm_busy},
    {"mappings", "one more mapping with 1,000 to 100,000 alive", step_mappings},
    {"pointers", "what is said of addresses that are reserved, mapped, unmapped", step_pointers},
    {"tensormap", "where a tensor map holds its address", step_tensormap},
    {"params", "layouts of parameters, by function and by kernel", step_params},
    {"launch", "host time of a launch, with up to 32 KB of parameters", step_launch},
    {"malloc", "host time of allocations and frees", step_malloc},
    {"copies", "the link each way, alone and together", step_copies},
    {"host", "page-locked memory: allocating, registering", step_host},
    {"host-numa", "kernels that read the host's memory at a device address", step_host_numa},
    {"graphs", "replay over memory that was replaced; memory during a capture", step_graphs},
    {"cupti", "what a CUPTI subscriber adds to a launch", step_cupti},
};
enum { STEPS = sizeof steps / sizeof steps[0] };

int main(int argc, char **argv)
{
    for (int i = 0; argc == 2 && i < STEPS; i++) {
        if (strcmp(argv[1], "--list") == 0)
            printf("%-10s %s\n", steps[i].name, steps[i].what);
        if (strcmp(argv[1], steps[i].name) != 0)
            continue;
        driver_open();
        steps[i].run();
        must(cu.CtxSynchronize());
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--list") == 0)
        return 0;
    fprintf(stderr, "usage: measure STEP | measure --list\n");
    return 2;
}
