#include "loaded.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "complain.h"
#include "import_dtr.h"
#include "trace_file.h"

void loaded_free(struct loaded *l)
{
    free(l->start_ns);
    free(l->runs);
    vm_liveness_fini(&l->live);
    vm_iteration_fini(&l->it);
    vm_trace_fini(&l->trace);
}

/* The logs of the DTR simulator name an instruction in their first object. */
static bool is_operator_log(FILE *f)
{
    char head[256];
    size_t n = fread(head, 1, sizeof head - 1, f);
    head[n] = 0;
    rewind(f);
    return strstr(head, "\"INSTRUCTION\"") != NULL;
}

static int read_file(struct loaded *l, const char *command)
{
    struct vm_error why;
    FILE *f = fopen(l->path, "re");
    if (!f)
        return complain(1, command, "cannot open '%s': %s", l->path, strerror(errno));
    l->imported = is_operator_log(f);
    int rc = l->imported ? vm_import_dtr(f, l->path, &l->trace, &why)
                         : vm_trace_read(f, l->path, &l->trace, &why);
    fclose(f);
    return rc < 0 ? complain(1, command, "%s", why.text) : 0;
}

static bool set_times(struct loaded *l)
{
    l->start_ns = calloc(l->it.nops + 1, sizeof *l->start_ns);
    if (!l->start_ns)
        return false;
    for (size_t i = 0; i < l->it.nops; i++) {
        l->start_ns[i + 1] = l->start_ns[i] + l->it.ops[i].dur_ns;
        l->timed = l->timed || l->it.ops[i].dur_ns;
    }
    for (size_t i = 0; !l->timed && i <= l->it.nops; i++)
        l->start_ns[i] = i;
    return true;
}

int loaded_read(struct loaded *l, const char *command, const char *path)
{
    struct vm_error why = {""};
    *l = (struct loaded){.path = path};
    int rc = read_file(l, command);
    if (rc)
        return rc;
    for (size_t i = 0; i < l->trace.nevents; i++)
        l->nops += l->trace.events[i].kind == VM_EV_OP;
    if (l->nops == 0)
        return complain(1, command, "'%s' holds no operation", path);
    if (!l->imported)
        rc = vm_period_runs(&l->trace, &l->runs, &l->nruns);
    for (size_t i = 0; rc == VM_OK && i < l->nruns; i++)
        if (!l->chosen || l->runs[i].ops * l->runs[i].repeats > l->chosen->ops * l->chosen->repeats)
            l->chosen = &l->runs[i];
    if (rc == VM_OK)
        rc = l->chosen ? vm_iteration_build(&l->trace, l->chosen, &l->it, &why)
                       : vm_iteration_whole(&l->trace, &l->it, &why);
    if (rc == VM_OK)
        rc = vm_liveness_build(&l->it, &l->live);
    if (rc == VM_OK && !set_times(l))
        rc = VM_ENOMEM;
    if (rc == VM_OK)
        return 0;
    return complain(1, command, "%s: %s", path, why.text[0] ? why.text : "out of memory");
}

const char *loaded_op_name(const struct loaded *l, uint32_t op)
{
    const struct vm_iter_op *o = &l->it.ops[op % l->it.nops];
    if (o->name != VM_NONE)
        return l->trace.names[o->name];
    switch (o->kind) {
    case VM_OP_COPY_HTOD:
        return "copy to the device";
    case VM_OP_COPY_DTOH:
        return "copy to the host";
    case VM_OP_COPY_DTOD:
        return "copy on the device";
    case VM_OP_MEMSET:
        return "memset";
    case VM_OP_GRAPH:
        return "graph";
    default:
        return "op";
    }
}
