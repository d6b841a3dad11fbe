/* proc.h: the rows that cuGetProcAddress searches. Generated into sg_proc.c. */
#ifndef SG_PROC_H
#define SG_PROC_H

struct sg_proc_row {
    const char *name; /* without version and stream suffix */
    int version;      /* the CUDA version that brought this ABI, e.g. 3020 */
    int per_thread;
    int (*fn)(void);
    int (*second)(void); /* the same function at another address (SIMGPU_PROC_ALIAS=1) */
};

/* A second entry point that jumps to the first: what a look-up returns need not equal the export.
 */
#if defined(__x86_64__)
#define SG_JUMP "jmp "
#define SG_PLT  "@PLT"
#elif defined(__aarch64__)
#define SG_JUMP "b "
#define SG_PLT  ""
#else
#error "a jump instruction for this architecture is needed here"
#endif
#define SG_SECOND_ENTRY(symbol)                                                                    \
    __asm__(".text\n.hidden sg_second_" #symbol "\n.globl sg_second_" #symbol                      \
            "\n.type sg_second_" #symbol ",%function\nsg_second_" #symbol                          \
            ": " SG_JUMP #symbol SG_PLT "\n.size sg_second_" #symbol ", .-sg_second_" #symbol      \
            "\n");                                                                                 \
    extern int sg_second_##symbol(void) __attribute__((visibility("hidden")));

extern const struct sg_proc_row sg_proc_rows[]; /* sorted by name, then version */
extern const unsigned sg_proc_count;

#endif
