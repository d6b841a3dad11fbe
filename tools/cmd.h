/* The sub-commands of `vmem`. Each gets its own arguments (argv[0] is its name) and returns the
 * exit status: 0 done, 1 it failed, 2 wrong use. Messages go to stderr, one line, starting "vmem
 * NAME:". */
#ifndef VM_TOOLS_CMD_H
#define VM_TOOLS_CMD_H

int cmd_run(int argc, char **argv);
int cmd_trace(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_pack(int argc, char **argv); /* vmem plan --pack */
int cmd_doctor(int argc, char **argv);

#endif
