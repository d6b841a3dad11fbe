/* vmem run: sets LD_PRELOAD and the knobs, then becomes the program. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cmd.h"
#include "complain.h"
#include "config.h"
#include "library.h"
#include "policy.h"

#define PREFIX "VMEM_"

/* "VMEM_HOST_BUDGET" as an option: "host-budget". */
static void option_name(const struct vm_knob *k, char *out, size_t n)
{
    const char *s = k->name + strlen(PREFIX);
    size_t i = 0;
    for (; s[i] && i + 1 < n; i++)
        out[i] = s[i] == '_' ? '-' : (char)(s[i] | 0x20);
    out[i] = 0;
}

static void wrap(FILE *out, const char *text, int indent, int width)
{
    int at = indent;
    fprintf(out, "%*s", indent, "");
    while (*text) {
        int len = (int)strcspn(text, " ");
        if (at + len > width && at > indent) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
        }
        fprintf(out, "%.*s%s", len, text, text[len] ? " " : "");
        at += len + 1;
        text += len + (text[len] != 0);
    }
    fputc('\n', out);
}

static void help(void)
{
    size_t n;
    const struct vm_knob *knobs = vm_knobs(&n);
    printf("usage: vmem run [options] [--] PROGRAM [ARGUMENTS]\n\n"
           "Runs PROGRAM with libvmem.so preloaded (in front of what LD_PRELOAD holds). Each "
           "option sets\n"
           "the environment variable of the same name; what is set already stays unless an option\n"
           "says otherwise. PyTorch's caching allocator is switched off, unless --torch 0.\n\n"
           "  --lib PATH\n        The libvmem.so to preload.\n"
           "  --dry-run\n        Print the command and what is set for it, and stop.\n");
    for (size_t i = 0; i < n; i++) {
        char name[64];
        option_name(&knobs[i], name, sizeof name);
        printf("  --%s %s%s%s%s\n", name, knobs[i].unit && *knobs[i].unit ? knobs[i].unit : "VALUE",
               *knobs[i].deflt ? "   (default " : "", knobs[i].deflt, *knobs[i].deflt ? ")" : "");
        wrap(stdout, knobs[i].doc, 8, 96);
    }
}

static const struct vm_knob *find_knob(const char *option, size_t len)
{
    size_t n;
    const struct vm_knob *knobs = vm_knobs(&n);
    for (size_t i = 0; i < n; i++) {
        char name[64];
        option_name(&knobs[i], name, sizeof name);
        if (strlen(name) == len && memcmp(name, option, len) == 0)
            return &knobs[i];
    }
    return NULL;
}

/* Checks a value as the library would, so that a slip is found before the program starts. */
static int set_knob(const struct vm_knob *k, const char *option, const char *value)
{
    union {
        bool flag;
        unsigned count;
        uint64_t bytes;
        struct vm_amount amount;
        int choice;
        char *text;
    } field;
    const char *why = NULL;
    char reason[256];
    int rc = vm_knob_parse(k, value, &field, &why);
    if (rc < 0) {
        snprintf(reason, sizeof reason, "%s%s", rc == -2 ? "it is one of " : "", why);
        return complain(2, "run", "--%s cannot be \"%s\": %s", option, value, reason);
    }
    if (k->type == VM_KNOB_TEXT)
        free(field.text);
    if (strcmp(k->name, "VMEM_POLICY") == 0 && !vm_policy_find(value)) {
        fprintf(stderr, "vmem run: there is no policy \"%s\"; there are", value);
        for (const struct vm_policy *const *p = vm_policy_all(); *p; p++)
            fprintf(stderr, " %s", (*p)->name);
        fputc('\n', stderr);
        return 2;
    }
    if (setenv(k->name, value, 1) != 0)
        return complain(1, "run", "out of memory");
    return 0;
}

struct run {
    const char *lib;
    bool dry;
};

/* Takes the options; *at is set to the index of PROGRAM. 0, or the exit status + 1. */
static int take_options(int argc, char **argv, struct run *r, int *at)
{
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        const char *option = argv[i] + 2, *value = NULL;
        if (strcmp(argv[i], "--") == 0) {
            i++;
            break;
        }
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            help();
            return 1;
        }
        if (strncmp(argv[i], "--", 2) != 0)
            return 1 +
                   complain(2, "run", "unknown option '%s'; `vmem run --help` lists them", argv[i]);
        if (strcmp(option, "dry-run") == 0) {
            r->dry = true;
            continue;
        }
        size_t len = strcspn(option, "=");
        const struct vm_knob *k = find_knob(option, len);
        bool lib = len == 3 && memcmp(option, "lib", 3) == 0;
        if (!k && !lib)
            return 1 +
                   complain(2, "run", "unknown option '%s'; `vmem run --help` lists them", argv[i]);
        if (option[len] == '=')
            value = option + len + 1;
        else if (i + 1 < argc)
            value = argv[++i];
        else
            return 1 + complain(2, "run", "option '%s' needs a value", argv[i]);
        if (lib) {
            r->lib = value;
            continue;
        }
        char name[64];
        option_name(k, name, sizeof name);
        int rc = set_knob(k, name, value);
        if (rc)
            return 1 + rc;
    }
    *at = i;
    return 0;
}

/* Each tensor a block, unless the user chose an allocator or asked us not to (DESIGN: PyTorch). */
static void set_torch(void)
{
    const char *torch = getenv("VMEM_TORCH");
    bool off = torch && (strcmp(torch, "0") == 0 || strcasecmp(torch, "no") == 0 ||
                         strcasecmp(torch, "off") == 0 || strcasecmp(torch, "false") == 0);
    if (!off)
        setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", 0);
}

static void print_command(char **argv)
{
    static const char *const others[] = {"LD_PRELOAD", "PYTORCH_NO_CUDA_MEMORY_CACHING"};
    size_t n;
    const struct vm_knob *knobs = vm_knobs(&n);
    for (size_t i = 0; i < 2; i++)
        if (getenv(others[i]))
            printf("%s=%s\n", others[i], getenv(others[i]));
    for (size_t i = 0; i < n; i++)
        if (getenv(knobs[i].name))
            printf("%s=%s\n", knobs[i].name, getenv(knobs[i].name));
    for (; *argv; argv++)
        printf("%s%s", *argv, argv[1] ? " " : "\n");
}

int cmd_run(int argc, char **argv)
{
    struct run r = {0};
    char lib[PATH_MAX];
    int at = argc, rc = take_options(argc, argv, &r, &at);
    if (rc)
        return rc - 1;
    if (at >= argc)
        return complain(2, "run",
                        "which program? usage: vmem run [options] [--] PROGRAM [ARGUMENTS]");
    if (!library_find(r.lib, lib, sizeof lib))
        return complain(1, "run", "libvmem.so is not there: %s; name it with --lib PATH", lib);
    if (!library_preload(lib))
        return complain(1, "run", "out of memory");
    set_torch();
    if (r.dry) {
        print_command(argv + at);
        return 0;
    }
    execvp(argv[at], argv + at);
    int e = errno;
    return complain(e == ENOENT ? 127 : 126, "run", "cannot run '%s': %s", argv[at], strerror(e));
}
