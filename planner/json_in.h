/* Reading JSON objects with checks: every getter notes the first thing that is wrong. */
#ifndef VM_PLANNER_JSON_IN_H
#define VM_PLANNER_JSON_IN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <cjson/cJSON.h>

#include "model.h"
#include "words.h"

struct vm_json_in {
    FILE *file;
    const char *name; /* of the file, for messages */
    size_t line;      /* line read last, 0 = the file as a whole */
    char *text;       /* that line; owned */
    size_t cap;
    struct vm_error *why;
    int rc; /* 0 or the first failure, with why set */
};

/* Notes "NAME:LINE: reason" and VM_EINVAL, unless something was wrong before. Returns false. */
__attribute__((format(printf, 2, 3))) bool vm_json_bad(struct vm_json_in *in, const char *format,
                                                       ...);
bool vm_json_fail(struct vm_json_in *in, int rc, const char *reason);

/* The next line as an object, to be deleted with cJSON_Delete; NULL at the end or when something is
 * wrong (then in->rc). Empty lines are passed over. */
cJSON *vm_json_next_line(struct vm_json_in *in);
/* The whole rest of the file as one object. */
cJSON *vm_json_whole(struct vm_json_in *in);
void vm_json_in_fini(struct vm_json_in *in);

/* Getters return false and note what is wrong. An absent key leaves *out alone: wrong if `need`. */
bool vm_json_get_u64(struct vm_json_in *in, const cJSON *o, const char *key, bool need,
                     uint64_t most, uint64_t *out);
bool vm_json_get_u32(struct vm_json_in *in, const cJSON *o, const char *key, bool need,
                     uint32_t most, uint32_t *out);
bool vm_json_get_real(struct vm_json_in *in, const cJSON *o, const char *key, double *out);
/* Text of at most n - 1 bytes; longer text is cut. */
bool vm_json_get_text(struct vm_json_in *in, const cJSON *o, const char *key, char *out, size_t n);
/* A word of a list; unknown words give `otherwise` and are fine. */
bool vm_json_get_word(struct vm_json_in *in, const cJSON *o, const char *key, enum vm_words list,
                      unsigned otherwise, unsigned *out);
/* An array of words whose values are bits; unknown words are passed over. */
bool vm_json_get_flags(struct vm_json_in *in, const cJSON *o, const char *key, enum vm_words list,
                       unsigned *out);
/* A value (not a member) as a number. */
bool vm_json_as_u64(struct vm_json_in *in, const cJSON *value, const char *what, uint64_t most,
                    uint64_t *out);
/* Checks "format" and "version" of a header. */
bool vm_json_check_format(struct vm_json_in *in, const cJSON *o, const char *format,
                          unsigned newest);

/* Undoes the escapes of vm_json_text in place: code points up to 255 become the bytes they were. */
void vm_json_unescape(char *text);

#endif
