/* vmem: the one command a person uses. */
#include <stdio.h>
#include <string.h>

#include "cmd.h"

static const struct {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"run", "run a program with more GPU memory than the card has", cmd_run},
    {"trace", "summarise a trace: iterations, peak, what is cold, what would have to move",
     cmd_trace},
    {"plan", "plan a trace under a budget, explain it, sweep budgets, pack buffers", cmd_plan},
    {"doctor", "say what libvmem finds on this machine and which knobs are in force", cmd_doctor},
};

static void help(FILE *out)
{
    fprintf(out, "usage: vmem COMMAND [options]\n\n");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].summary);
    fprintf(out, "\n`vmem COMMAND --help` tells more; `vmem --version` prints the version.\n");
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        help(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        help(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("vmem %s\n", VM_VERSION);
        return 0;
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    fprintf(stderr, "vmem: there is no command '%s'; `vmem --help` lists them\n", argv[1]);
    return 2;
}
