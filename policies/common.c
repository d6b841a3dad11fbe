#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bound.h"
#include "pack.h"

int vm_machine_check(const struct vm_machine *m, struct vm_error *why)
{
    const char *missing = NULL;

    if (!m->page_bytes || (m->page_bytes & (m->page_bytes - 1)))
        missing = "the page size must be a power of two";
    else if (!m->device_bytes)
        missing = "the device budget is 0 bytes: give one with --budget or VMEM_BUDGET";
    else if (!(m->out_bps > 0) || !(m->in_bps > 0))
        missing = "the link speeds are not known: measure them or give a machine that has them";
    if (!missing)
        return VM_OK;
    if (why)
        snprintf(why->text, sizeof why->text, "%s", missing);
    return VM_EINVAL;
}

int vm_paged_init(const struct vm_policy_input *in, struct vm_paged *p, struct vm_error *why)
{
    memset(p, 0, sizeof *p);
    p->it = in->iteration;
    p->machine = in->machine;
    int rc = vm_machine_check(in->machine, why);
    if (rc)
        return rc;
    p->capacity = in->machine->device_bytes / in->machine->page_bytes;
    p->offsets = malloc((p->it->nblocks + 1) * sizeof *p->offsets);
    if (!p->offsets)
        return VM_ENOMEM;
    rc = vm_place(p->it, p->machine, in->pool_offset, p->offsets, &p->pool_bytes, why);
    if (!rc)
        rc = vm_page_units_build(p->it, p->offsets, p->machine->page_bytes, &p->units, why);
    if (rc)
        vm_paged_fini(p);
    return rc;
}

void vm_paged_fini(struct vm_paged *p)
{
    free(p->offsets);
    p->offsets = NULL;
    vm_page_units_fini(&p->units);
}

int vm_paged_plan(const char *policy, const struct vm_policy_input *in, const struct vm_paged *p,
                  const struct vm_schedule *s, struct vm_plan *plan)
{
    struct vm_plan made;
    int rc = vm_plan_begin(policy, p->it, p->machine, p->offsets, in->pool_offset, p->pool_bytes,
                           &made);

    if (rc)
        return rc;
    rc = vm_plan_add_schedule(p->it, &p->units, s, &made);
    struct vm_bound b;
    if (!rc && !vm_bound_build(&p->units, p->machine, p->capacity, vm_bound_points(&p->units), &b))
        made.bound_ns = (uint64_t)b.ns;
    if (rc)
        vm_plan_fini(&made);
    else
        *plan = made;
    return rc;
}
