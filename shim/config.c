#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "units.h"

extern char **environ;

static const struct vm_knob knobs[] = {
#define VM_KNOB(field, name, type, deflt, allowed, unit, doc, since)                               \
    {name, deflt, allowed, unit, doc, since, VM_KNOB_##type, offsetof(struct vm_config, field)},
#include "knobs.def"
#undef VM_KNOB
};
#define KNOBS (sizeof knobs / sizeof knobs[0])

const struct vm_knob *vm_knobs(size_t *n)
{
    *n = KNOBS;
    return knobs;
}

/* ---- values ----------------------------------------------------------------------------------*/

static bool same_word(const char *a, const char *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char x = a[i], y = b[i];
        if (x >= 'A' && x <= 'Z')
            x = (char)(x - 'A' + 'a');
        if (x != y)
            return false;
    }
    return b[n] == 0 || b[n] == '|';
}

/* Position of `text` in "a|b|c", -1 if it is not there. */
static int choice_of(const char *text, const char *list)
{
    size_t n = strlen(text);
    int at = 0;
    for (const char *p = list; n && p; at++) {
        if (same_word(text, p, n))
            return at;
        p = strchr(p, '|');
        p = p ? p + 1 : NULL;
    }
    return -1;
}

/* Digits with an optional decimal fraction, times `unit` afterwards. *end is set behind them. The
 * fraction is kept in millionths; NULL when there is no digit or the number is too large. */
static const char *number_of(const char *text, uint64_t *whole, uint32_t *millionths)
{
    const char *p = text;
    uint64_t v = 0;
    uint32_t frac = 0, scale = 1000000;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (v > (UINT64_MAX - 9) / 10)
            return NULL;
        v = v * 10 + (uint64_t)(*p - '0');
    }
    if (p == text)
        return NULL;
    if (*p == '.' && p[1] >= '0' && p[1] <= '9')
        for (p++; *p >= '0' && *p <= '9'; p++)
            if (scale > 1) {
                scale /= 10;
                frac += (uint32_t)(*p - '0') * scale;
            }
    *whole = v;
    *millionths = frac;
    return p;
}

static int amount_of(const char *text, struct vm_amount *out, bool may_share, const char **why)
{
    uint64_t v;
    uint32_t frac;
    const char *p = number_of(text, &v, &frac);
    struct vm_amount a = {0, 0, true};
    if (!p) {
        *why = may_share ? "not a size such as 12GiB or 60%" : "not a size such as 64KiB";
        return -1;
    }
    while (*p == ' ')
        p++;
    if (may_share && p[0] == '%' && !p[1]) {
        if (v > 100 || (v == 100 && frac)) {
            *why = "more than 100%";
            return -1;
        }
        a.share_ppm = (uint32_t)v * 10000 + frac / 100;
        if (!a.share_ppm) {
            *why = "0% leaves nothing";
            return -1;
        }
    } else {
        uint64_t unit = vm_unit_parse(&p);
        if (!unit || *p) {
            *why = "the unit is not one of K, M, G, T, KiB, MiB, GiB, TiB";
            return -1;
        }
        if (v > (UINT64_MAX >> 1) / unit) {
            *why = "too large";
            return -1;
        }
        a.bytes = v * unit + unit * frac / 1000000;
    }
    *out = a;
    return 0;
}

static int flag_of(const char *text, bool *out, const char **why)
{
    int at = choice_of(text, "0|1|no|yes|off|on|false|true");
    if (at < 0) {
        *why = "not 0 or 1";
        return -1;
    }
    *out = at & 1;
    return 0;
}

static int in_range(uint64_t v, const char *allowed, const char **why)
{
    uint64_t low = 0, high = 0;
    uint32_t frac;
    const char *p = number_of(allowed, &low, &frac);
    if (p && p[0] == '.' && p[1] == '.' && number_of(p + 2, &high, &frac) &&
        (v < low || v > high)) {
        *why = v < low ? "too small" : "too large";
        return -1;
    }
    return 0;
}

int vm_knob_parse(const struct vm_knob *knob, const char *text, void *field, const char **why)
{
    struct vm_amount a;
    switch (knob->type) {
    case VM_KNOB_FLAG:
        return flag_of(text, field, why);
    case VM_KNOB_COUNT: {
        uint64_t v;
        uint32_t frac;
        const char *end = number_of(text, &v, &frac);
        if (!end || *end || frac) {
            *why = "not a whole number";
            return -1;
        }
        if (in_range(v, knob->allowed, why) < 0)
            return -1;
        *(unsigned *)field = (unsigned)v;
        return 0;
    }
    case VM_KNOB_BYTES:
        if (amount_of(text, &a, false, why) < 0 || in_range(a.bytes, knob->allowed, why) < 0)
            return -1;
        *(uint64_t *)field = a.bytes;
        return 0;
    case VM_KNOB_AMOUNT:
        if (choice_of(text, "auto") == 0) {
            *(struct vm_amount *)field = (struct vm_amount){0, 0, false};
            return 0;
        }
        if (amount_of(text, &a, true, why) < 0)
            return -1;
        *(struct vm_amount *)field = a;
        return 0;
    case VM_KNOB_CHOICE: {
        int at = choice_of(text, knob->allowed);
        if (at < 0) {
            *why = knob->allowed;
            return -2;
        }
        *(int *)field = at;
        return 0;
    }
    case VM_KNOB_TEXT: {
        char *copy = strdup(text);
        if (!copy) {
            *why = "out of memory";
            return -1;
        }
        *(const char **)field = copy;
        return 0;
    }
    }
    *why = "unknown type";
    return -1;
}

uint64_t vm_amount_of(const struct vm_amount *amount, uint64_t whole, uint64_t otherwise)
{
    if (!amount->set)
        return otherwise;
    if (amount->share_ppm)
        return whole / 1000000 * amount->share_ppm + whole % 1000000 * amount->share_ppm / 1000000;
    return amount->bytes;
}

bool vm_config_path(char *out, size_t n, const char *path)
{
    size_t len = 0;
    for (const char *p = path; *p; p++) {
        if (p[0] == '%' && p[1] == 'p') {
            if (len < n)
                len += vm_format(out + len, n - len, "%d", (int)getpid());
            p++;
        } else {
            if (len < n)
                out[len] = *p;
            len++;
        }
    }
    if (len >= n)
        return false;
    out[len] = 0;
    return true;
}

/* ---- the environment -------------------------------------------------------------------------*/

/* Levenshtein distance, both at most 31 characters long; larger otherwise. */
static unsigned distance(const char *a, size_t na, const char *b)
{
    size_t nb = strlen(b);
    unsigned row[33];
    if (na > 31 || nb > 31)
        return 99;
    for (size_t j = 0; j <= nb; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= na; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= nb; j++) {
            unsigned best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[nb];
}

static void report_unknown(const char *entry, size_t n)
{
    char name[64];
    unsigned best = 99;
    size_t at = 0;
    for (size_t k = 0; k < KNOBS; k++) {
        unsigned d = distance(entry, n, knobs[k].name);
        if (d < best)
            best = d, at = k;
    }
    vm_format(name, sizeof name, "%s", entry);
    if (n < sizeof name)
        name[n] = 0;
    if (n >= 5 && best <= (n - 3) / 3) /* a third of the letters after VMEM_ */
        vm_log(KNOB_UNKNOWN, name, knobs[at].name);
    else
        vm_log(KNOB_UNKNOWN_FAR, name);
}

static const char *value_of(char *const *env, const char *name)
{
    size_t n = strlen(name);
    for (; env && *env; env++)
        if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
            return *env + n + 1;
    return NULL;
}

static const struct vm_knob *knob_named(const char *entry, size_t n)
{
    for (size_t k = 0; k < KNOBS; k++)
        if (strncmp(entry, knobs[k].name, n) == 0 && knobs[k].name[n] == 0)
            return &knobs[k];
    return NULL;
}

/* Reads one knob; an unset or empty one takes its default. */
static void read_knob(struct vm_config *out, const struct vm_knob *k, char *const *env)
{
    void *field = (char *)out + k->offset;
    const char *text = value_of(env, k->name), *why = NULL;
    if (text && *text) {
        int r = vm_knob_parse(k, text, field, &why);
        if (r == 0)
            return;
        char reason[128];
        vm_format(reason, sizeof reason, "%s%s", r == -2 ? "not one of " : "", why);
        vm_log(KNOB_BAD, k->name, text, reason, *k->deflt ? k->deflt : "nothing");
        out->errors++;
    }
    if (vm_knob_parse(k, k->deflt, field, &why) < 0 && k->type == VM_KNOB_TEXT)
        *(const char **)field = ""; /* no memory for the copy: unset */
}

static bool denied(const char *list, const char *program)
{
    size_t n = strlen(program);
    while (*list) {
        size_t len = strcspn(list, ":");
        bool prefix = len && list[len - 1] == '*';
        if (prefix ? strncmp(list, program, len - 1) == 0
                   : len == n && strncmp(list, program, n) == 0)
            return true;
        list += len + (list[len] == ':');
    }
    return false;
}

void vm_config_read(struct vm_config *out, char *const *env, const char *program)
{
    memset(out, 0, sizeof *out);
    for (size_t k = 0; k < KNOBS; k++)
        read_knob(out, &knobs[k], env);
    for (char *const *e = env; e && *e; e++) {
        size_t n = strcspn(*e, "=");
        if (strncmp(*e, "VMEM_", 5) == 0 && !knob_named(*e, n)) {
            report_unknown(*e, n);
            out->errors++;
        }
    }
    out->disabled = out->off;
    if (!out->disabled && out->strict && out->errors) {
        vm_log(KNOB_STRICT);
        out->disabled = true;
    }
    if (!out->disabled && out->deny && denied(out->deny, program)) {
        vm_log(DENIED, program);
        out->disabled = true;
    }
}

/* ---- this process ----------------------------------------------------------------------------*/

static struct vm_config config;
static pthread_once_t config_once = PTHREAD_ONCE_INIT;

/* Log settings come first, so that complaints about the other knobs go where they belong. */
static void configure_log(void)
{
    int level = VM_LOG_WARN, fd = 2;
    const char *why, *text = value_of(environ, "VMEM_LOG"),
                     *path = value_of(environ, "VMEM_LOG_FILE");
    if (text && *text)
        (void)vm_knob_parse(knob_named("VMEM_LOG", 8), text, &level, &why);
    if (path && *path) {
        char full[4096];
        fd = vm_config_path(full, sizeof full, path)
                 ? open(full, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600)
                 : -1;
        if (fd < 0) {
            int error = errno;
            vm_log_configure((enum vm_log_level)level, 2);
            vm_log(LOG_FILE, path, error);
            return;
        }
    }
    vm_log_configure((enum vm_log_level)level, fd);
}

static void read_config(void)
{
    configure_log();
    vm_config_read(&config, environ, program_invocation_short_name);
    if (!vm_log_wants(VM_LOG_DEBUG))
        return;
    for (size_t k = 0; k < KNOBS; k++) {
        const char *text = value_of(environ, knobs[k].name);
        vm_log(KNOB_VALUE, knobs[k].name, text && *text ? text : knobs[k].deflt);
    }
}

const struct vm_config *vm_config(void)
{
    pthread_once(&config_once, read_config);
    return &config;
}
