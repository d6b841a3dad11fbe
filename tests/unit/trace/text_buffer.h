/* A growing text, to write files into and read them from. */
#ifndef TEST_TEXT_BUFFER_H
#define TEST_TEXT_BUFFER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct text_buffer {
    char *text;
    size_t n, cap;
    size_t fail_at; /* the put function fails once n passes this; 0 = never */
};

static inline int text_put(void *ctx, const char *text, size_t n)
{
    struct text_buffer *b = ctx;
    if (b->fail_at && b->n + n > b->fail_at)
        return -3;
    if (b->n + n + 1 > b->cap) {
        b->cap = 2 * (b->n + n + 1);
        b->text = realloc(b->text, b->cap);
    }
    memcpy(b->text + b->n, text, n);
    b->n += n;
    b->text[b->n] = 0;
    return 0;
}

static inline FILE *text_open(const char *text, size_t n)
{
    FILE *f = tmpfile();
    if (f) {
        fwrite(text, 1, n, f);
        rewind(f);
    }
    return f;
}

#endif
