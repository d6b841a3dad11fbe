/* Writing JSON into a callback through a buffer on the stack: no stdio, no locale, no malloc. */
#ifndef VM_PLANNER_JSON_OUT_H
#define VM_PLANNER_JSON_OUT_H

#include <stddef.h>
#include <stdint.h>

#include "trace_file.h"

struct vm_json_out {
    vm_put_fn put;
    void *ctx;
    size_t used;
    int rc;     /* the first failure of `put`; nothing is written after it */
    char comma; /* a value was written at this level */
    char buf[4096];
};

void vm_json_begin(struct vm_json_out *j, vm_put_fn put, void *ctx);
/* Hands over what is in the buffer; returns the first failure, or 0. */
int vm_json_end(struct vm_json_out *j);

void vm_json_open(struct vm_json_out *j, const char *key, char bracket); /* '{' or '[' */
void vm_json_close(struct vm_json_out *j, char bracket);                 /* '}' or ']' */
void vm_json_newline(struct vm_json_out *j);

/* key == NULL: an element of an array. */
void vm_json_text(struct vm_json_out *j, const char *key, const char *value);
/* A number; from 2^53 on a string "0x...", because readers hold numbers as doubles. */
void vm_json_u64(struct vm_json_out *j, const char *key, uint64_t value);
/* Always a string "0x...": for hashes and addresses. */
void vm_json_hex(struct vm_json_out *j, const char *key, uint64_t value);
/* Exact for 0 <= value < 2^63 down to steps of 2^-60; anything else is written as 0. */
void vm_json_real(struct vm_json_out *j, const char *key, double value);

#endif
