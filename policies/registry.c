/* The list of policies: a new one is a file of its own and a line in each of the two lists here. */
#include <stddef.h>
#include <string.h>

#include "policy.h"

extern const struct vm_policy vm_policy_none, vm_policy_pool, vm_policy_lru, vm_policy_auto;
extern const struct vm_policy vm_policy_vdnn_all, vm_policy_vdnn_conv, vm_policy_vdnn_dyn;

static const struct vm_policy *const all[] = {
    &vm_policy_auto,
    &vm_policy_pool,
    &vm_policy_vdnn_all,
    &vm_policy_vdnn_conv,
    &vm_policy_vdnn_dyn,
    &vm_policy_lru,
    &vm_policy_none,
    NULL,
};

const struct vm_policy *const *vm_policy_all(void)
{
    return all;
}

const struct vm_policy *vm_policy_find(const char *name)
{
    for (size_t i = 0; all[i]; i++)
        if (!strcmp(all[i]->name, name))
            return all[i];
    return NULL;
}
