/* proc.h: the rows that cuGetProcAddress searches. Generated into sg_proc.c. */
#ifndef SG_PROC_H
#define SG_PROC_H

struct sg_proc_row {
    const char *name; /* without version and stream suffix */
    int version;      /* the CUDA version that brought this ABI, e.g. 3020 */
    int per_thread;
    int (*fn)(void);
};
extern const struct sg_proc_row sg_proc_rows[]; /* sorted by name, then version */
extern const unsigned sg_proc_count;

#endif
