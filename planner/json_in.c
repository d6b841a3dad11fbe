#include "json_in.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LINE  ((size_t)16 << 20)
#define MAX_WHOLE ((size_t)1 << 30)

static void start_message(struct vm_json_in *in, char *at, size_t n)
{
    const char *base = strrchr(in->name, '/');
    /* the end of a long path says more than its beginning */
    const char *name = strlen(in->name) > 100 && base ? base + 1 : in->name;
    if (in->line)
        snprintf(at, n, "%.100s:%zu: ", name, in->line);
    else
        snprintf(at, n, "%.100s: ", name);
}

bool vm_json_bad(struct vm_json_in *in, const char *format, ...)
{
    char reason[160];
    va_list ap;
    va_start(ap, format);
    vsnprintf(reason, sizeof reason, format, ap);
    va_end(ap);
    for (char *c = reason; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?'; /* what the file holds must not get at the terminal */
    return vm_json_fail(in, VM_EINVAL, reason);
}

bool vm_json_fail(struct vm_json_in *in, int rc, const char *reason)
{
    if (in->rc)
        return false;
    in->rc = rc;
    start_message(in, in->why->text, sizeof in->why->text);
    size_t used = strlen(in->why->text);
    snprintf(in->why->text + used, sizeof in->why->text - used, "%s", reason);
    return false;
}

void vm_json_in_fini(struct vm_json_in *in)
{
    free(in->text);
    in->text = NULL;
    in->cap = 0;
}

/* Reads up to and including `end` (or to the end of the file) into in->text. Bytes read, 0 at the
 * end. */
static size_t read_until(struct vm_json_in *in, int end, size_t most)
{
    size_t n = 0;
    int c;
    while ((c = getc_unlocked(in->file)) != EOF) {
        if (n + 2 > in->cap) {
            size_t cap = in->cap ? in->cap * 2 : 4096;
            char *p = realloc(in->text, cap);
            if (!p) {
                vm_json_fail(in, VM_ENOMEM, "out of memory");
                return 0;
            }
            in->text = p;
            in->cap = cap;
        }
        in->text[n++] = (char)c;
        if (n > most) {
            vm_json_bad(in, "longer than %zu MiB", most >> 20);
            return 0;
        }
        if (c == end)
            break;
    }
    if (c == EOF && ferror(in->file)) {
        vm_json_fail(in, VM_EIO, "cannot be read");
        return 0;
    }
    if (n)
        in->text[n] = 0;
    return n;
}

static bool blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r' && s[i] != '\n')
            return false;
    return true;
}

static cJSON *parse(struct vm_json_in *in, size_t n)
{
    const char *rest = NULL;
    if (memchr(in->text, 0, n)) {
        vm_json_bad(in, "holds a zero byte");
        return NULL;
    }
    cJSON *o = cJSON_ParseWithLengthOpts(in->text, n + 1, &rest, false);
    if (!o) {
        size_t at =
            rest && rest >= in->text && rest <= in->text + n ? (size_t)(rest - in->text) : n;
        while (n && blank(in->text + n - 1, 1))
            n--;
        if (*in->text == '{' && in->text[n - 1] != '}')
            vm_json_bad(in, "ends in the middle of its JSON object");
        else
            vm_json_bad(in, "no JSON object (column %zu)", at + 1);
        return NULL;
    }
    if (!blank(rest, (size_t)(in->text + n - rest)) || !cJSON_IsObject(o)) {
        vm_json_bad(in, cJSON_IsObject(o) ? "more than one JSON object" : "no JSON object");
        cJSON_Delete(o);
        return NULL;
    }
    return o;
}

cJSON *vm_json_next_line(struct vm_json_in *in)
{
    size_t n;
    do {
        in->line++;
        n = read_until(in, '\n', MAX_LINE);
    } while (n && blank(in->text, n));
    return n ? parse(in, n) : NULL;
}

cJSON *vm_json_whole(struct vm_json_in *in)
{
    size_t n = read_until(in, EOF, MAX_WHOLE);
    if (n)
        return parse(in, n);
    vm_json_bad(in, "is empty");
    return NULL;
}

bool vm_json_as_u64(struct vm_json_in *in, const cJSON *value, const char *what, uint64_t most,
                    uint64_t *out)
{
    uint64_t v;
    if (cJSON_IsNumber(value)) {
        double d = value->valuedouble;
        if (!(d >= 0))
            return vm_json_bad(in, "\"%.40s\" is negative", what);
        if (d > 9007199254740992.0)
            return vm_json_bad(
                in, "\"%.40s\" is too large for a number; from 2^53 on write \"0x...\"", what);
        v = (uint64_t)d;
        if ((double)v != d)
            return vm_json_bad(in, "\"%.40s\" is not a whole number", what);
    } else if (cJSON_IsString(value)) {
        const char *s = value->valuestring;
        char *end;
        if (strncmp(s, "0x", 2) != 0 || strlen(s) > 18 || strlen(s) < 3 || s[2] == '-' ||
            s[2] == '+')
            return vm_json_bad(in, "\"%.40s\" is no number", what);
        v = strtoull(s + 2, &end, 16);
        if (*end || s[2] == ' ' || s[2] == 'x')
            return vm_json_bad(in, "\"%.40s\" is no number", what);
    } else {
        return vm_json_bad(in, "\"%.40s\" is no number", what);
    }
    if (v > most)
        return vm_json_bad(in, "\"%.40s\" is %llu, at most %llu is possible", what,
                           (unsigned long long)v, (unsigned long long)most);
    *out = v;
    return true;
}

static const cJSON *member(struct vm_json_in *in, const cJSON *o, const char *key, bool need)
{
    const cJSON *m = cJSON_GetObjectItemCaseSensitive(o, key);
    if (!m && need)
        vm_json_bad(in, "\"%s\" is missing", key);
    return m;
}

bool vm_json_get_u64(struct vm_json_in *in, const cJSON *o, const char *key, bool need,
                     uint64_t most, uint64_t *out)
{
    const cJSON *m = member(in, o, key, need);
    if (!m)
        return !need;
    return vm_json_as_u64(in, m, key, most, out);
}

bool vm_json_get_u32(struct vm_json_in *in, const cJSON *o, const char *key, bool need,
                     uint32_t most, uint32_t *out)
{
    uint64_t v = *out;
    if (!vm_json_get_u64(in, o, key, need, most, &v))
        return false;
    *out = (uint32_t)v;
    return true;
}

bool vm_json_get_real(struct vm_json_in *in, const cJSON *o, const char *key, double *out)
{
    const cJSON *m = member(in, o, key, false);
    if (!m)
        return true;
    if (!cJSON_IsNumber(m) || !(m->valuedouble >= 0 && m->valuedouble <= 1e18))
        return vm_json_bad(in, "\"%s\" is no number from 0 to 1e18", key);
    *out = m->valuedouble;
    return true;
}

void vm_json_unescape(char *text)
{
    unsigned char *to = (unsigned char *)text;
    for (const unsigned char *s = to; *s; s++)
        if ((*s & 0xfc) == 0xc0 && (s[1] & 0xc0) == 0x80) {
            *to++ = (unsigned char)((*s & 3) << 6 | (s[1] & 0x3f));
            s++;
        } else {
            *to++ = *s;
        }
    *to = 0;
}

bool vm_json_get_text(struct vm_json_in *in, const cJSON *o, const char *key, char *out, size_t n)
{
    const cJSON *m = member(in, o, key, false);
    if (!m)
        return true;
    if (!cJSON_IsString(m))
        return vm_json_bad(in, "\"%s\" is no text", key);
    vm_json_unescape(m->valuestring);
    snprintf(out, n, "%s", m->valuestring);
    return true;
}

bool vm_json_get_word(struct vm_json_in *in, const cJSON *o, const char *key, enum vm_words list,
                      unsigned otherwise, unsigned *out)
{
    const cJSON *m = member(in, o, key, false);
    if (!m)
        return true;
    if (!cJSON_IsString(m))
        return vm_json_bad(in, "\"%s\" is no word", key);
    int v = vm_word_value(list, m->valuestring);
    *out = v < 0 ? otherwise : (unsigned)v;
    return true;
}

bool vm_json_get_flags(struct vm_json_in *in, const cJSON *o, const char *key, enum vm_words list,
                       unsigned *out)
{
    const cJSON *m = member(in, o, key, false), *word;
    if (!m)
        return true;
    if (!cJSON_IsArray(m))
        return vm_json_bad(in, "\"%s\" is no list of words", key);
    cJSON_ArrayForEach(word, m)
    {
        if (!cJSON_IsString(word))
            return vm_json_bad(in, "\"%s\" is no list of words", key);
        int v = vm_word_value(list, word->valuestring);
        if (v > 0)
            *out |= (unsigned)v;
    }
    return true;
}

bool vm_json_check_format(struct vm_json_in *in, const cJSON *o, const char *format,
                          unsigned newest)
{
    const cJSON *f = cJSON_GetObjectItemCaseSensitive(o, "format");
    uint64_t version = 0;
    if (!cJSON_IsString(f) || strcmp(f->valuestring, format) != 0)
        return vm_json_bad(in, "not a %s file (its first object lacks \"format\":\"%s\")", format,
                           format);
    if (!vm_json_get_u64(in, o, "version", true, UINT64_MAX, &version))
        return false;
    if (version == 0)
        return vm_json_bad(in, "version 0 does not exist");
    if (version > newest) {
        char reason[160];
        snprintf(
            reason, sizeof reason,
            "is of format version %llu; this program reads up to version %u: take a newer vmem",
            (unsigned long long)version, newest);
        return vm_json_fail(in, VM_EVERSION, reason);
    }
    return true;
}
