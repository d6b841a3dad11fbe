/* SIMGPU_FAULTS: a list of rules, separated by commas or semicolons. See ../README.md. */
#include "sg.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum rule_kind { RULE_NTH, RULE_FROM, RULE_CHANCE };
struct rule {
    char name[64]; /* of the call; a trailing * matches any ending */
    enum rule_kind kind;
    uint64_t n, seen;
    double chance;
    CUresult error;
};
static struct rule rules[64];
static unsigned nrules;
static size_t host_limit = SIZE_MAX;
static double slow_factor = 1, slow_chance = 1;
static uint64_t slow_from = 1, copies_timed; /* copies are slow from that one on */
static uint64_t lost_at;
static int lost_device = -1;
/* 1: some rule names this call, 2: none does, 0: not yet looked at */
static unsigned char concerned[SG_ID_COUNT];

static const struct {
    const char *name;
    CUresult code;
} error_names[] = {
    {"OUT_OF_MEMORY", CUDA_ERROR_OUT_OF_MEMORY},
    {"INVALID_VALUE", CUDA_ERROR_INVALID_VALUE},
    {"NOT_SUPPORTED", CUDA_ERROR_NOT_SUPPORTED},
    {"NOT_PERMITTED", CUDA_ERROR_NOT_PERMITTED},
    {"UNKNOWN", CUDA_ERROR_UNKNOWN},
    {"LAUNCH_FAILED", CUDA_ERROR_LAUNCH_FAILED},
    {"ILLEGAL_ADDRESS", CUDA_ERROR_ILLEGAL_ADDRESS},
    {"INVALID_DEVICE", CUDA_ERROR_INVALID_DEVICE},
    {"SYSTEM_NOT_READY", CUDA_ERROR_SYSTEM_NOT_READY},
    {"OPERATING_SYSTEM", CUDA_ERROR_OPERATING_SYSTEM},
    {"DEVICE_UNAVAILABLE", CUDA_ERROR_DEVICE_UNAVAILABLE},
    {"NO_DEVICE", CUDA_ERROR_NO_DEVICE},
    {"SKIPPED", SG_SKIPPED},
};

static bool find_error(const char *name, CUresult *out)
{
    if (strncmp(name, "CUDA_ERROR_", 11) == 0)
        name += 11;
    for (size_t i = 0; i < sizeof error_names / sizeof *error_names; i++)
        if (strcmp(name, error_names[i].name) == 0) {
            *out = error_names[i].code;
            return true;
        }
    char *end;
    long n = strtol(name, &end, 10);
    if (end == name || *end || n <= 0)
        return false;
    *out = (CUresult)n;
    return true;
}

static bool size_value(const char *text, size_t *out)
{
    char *end;
    double v = strtod(text, &end);
    double scale = strcmp(end, "GiB") == 0   ? 1073741824.0
                   : strcmp(end, "MiB") == 0 ? 1048576.0
                   : strcmp(end, "KiB") == 0 ? 1024.0
                   : *end == 0               ? 1
                                             : 0;
    if (end == text || v < 0 || scale <= 0)
        return false;
    *out = (size_t)(v * scale);
    return true;
}

/* name=value rules that are not about one call; false: it is not one of them. */
static bool setting(const char *name, const char *value, bool *ok)
{
    char *end;
    *ok = true;
    if (strcmp(name, "host-memory") == 0) {
        *ok = size_value(value, &host_limit);
    } else if (strcmp(name, "device-memory") == 0) {
        size_t n = 0;
        *ok = size_value(value, &n);
        if (*ok && n < sg.cfg.preset.memory)
            sg.cfg.preset.memory = n;
    } else if (strcmp(name, "slow-copy") == 0) {
        slow_factor = strtod(value, &end);
        if (*end == '@')
            slow_chance = strtod(end + 1, &end);
        if (*end == '+')
            slow_from = strtoull(end + 1, &end, 10);
        *ok = *end == 0 && slow_factor >= 1 && slow_chance >= 0 && slow_chance <= 1;
    } else if (strcmp(name, "lost-device") == 0) {
        lost_device = (int)strtol(value, &end, 10);
        lost_at = *end == '@' ? strtoull(end + 1, &end, 10) : 1;
        *ok = *end == 0 && lost_device >= 0 && lost_device < SG_MAX_DEVICES && lost_at > 0;
    } else {
        return false;
    }
    return true;
}

static bool call_rule(char *name, char *when, const char *error)
{
    struct rule *r = &rules[nrules];
    char *end;
    if (nrules == sizeof rules / sizeof *rules || strlen(name) >= sizeof r->name)
        return false;
    *r = (struct rule){.error = CUDA_ERROR_OUT_OF_MEMORY};
    strcpy(r->name, name);
    if (strncmp(when, "p=", 2) == 0) {
        r->kind = RULE_CHANCE;
        r->chance = strtod(when + 2, &end);
        if (r->chance < 0 || r->chance > 1)
            return false;
    } else {
        r->n = strtoull(when, &end, 10);
        r->kind = RULE_NTH;
        if (*end == '+') {
            r->kind = RULE_FROM;
            end++;
        }
        if (!isdigit((unsigned char)*when) || r->n == 0)
            return false;
    }
    if (end == when || *end || (error && !find_error(error, &r->error)))
        return false;
    nrules++;
    return true;
}

static bool parse_rule(char *text)
{
    char *colon = strchr(text, ':');
    char *eq = strrchr(text, '=');
    bool ok;
    if (!colon) {
        if (!eq)
            return false;
        *eq = 0;
        return setting(text, eq + 1, &ok) && ok;
    }
    *colon = 0;
    char *when = colon + 1;
    if (strncmp(when, "p=", 2) == 0)
        eq = strchr(when + 2, '=');
    if (eq)
        *eq = 0;
    return call_rule(text, when, eq ? eq + 1 : NULL);
}

CUresult sg_faults_parse(const char *text, char *why, size_t n)
{
    char *copy = strdup(text), *save = NULL;
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (char *t = strtok_r(copy, ",; ", &save); t; t = strtok_r(NULL, ",; ", &save)) {
        char shown[128];
        snprintf(shown, sizeof shown, "%s", t);
        if (!parse_rule(t)) {
            snprintf(why, n,
                     "'%s' is no rule; rules are CALL:N=ERROR, CALL:N+=ERROR, CALL:p=P=ERROR, "
                     "host-memory=SIZE, device-memory=SIZE, slow-copy=FACTOR[@P][+N], "
                     "lost-device=ORDINAL[@LAUNCH]",
                     shown);
            free(copy);
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    free(copy);
    return CUDA_SUCCESS;
}

/* A rule for cuMemAlloc is also one for cuMemAlloc_v2 and its like. */
static bool matches(const char *pattern, const char *name)
{
    size_t n = strlen(pattern);
    if (n && pattern[n - 1] == '*')
        return strncmp(pattern, name, n - 1) == 0;
    if (strncmp(pattern, name, n))
        return false;
    name += n;
    if (strncmp(name, "_v", 2) == 0 && isdigit((unsigned char)name[2]))
        for (name += 2; isdigit((unsigned char)*name); name++)
            ;
    return *name == 0 || strcmp(name, "_ptsz") == 0 || strcmp(name, "_ptds") == 0;
}

CUresult sg_fault_for(enum sg_id id)
{
    if (lost_device >= 0 && strncmp(sg_names[id], "cuLaunchKernel", 14) == 0 && --lost_at == 0) {
        sg.dev[lost_device].lost = true;
        sg_note("simgpu: fault: device %d is lost", lost_device);
        lost_device = -1;
    }
    if (!nrules || concerned[id] == 2)
        return CUDA_SUCCESS;
    concerned[id] = 2;
    CUresult hit = CUDA_SUCCESS;
    for (unsigned i = 0; i < nrules; i++) {
        struct rule *r = &rules[i];
        if (!matches(r->name, sg_names[id]))
            continue;
        concerned[id] = 1;
        r->seen++;
        if ((r->kind == RULE_NTH && r->seen == r->n) || (r->kind == RULE_FROM && r->seen >= r->n) ||
            (r->kind == RULE_CHANCE && sg_random_unit() < r->chance))
            hit = r->error;
    }
    return hit;
}

double sg_fault_copy_factor(void)
{
    if (slow_factor <= 1 || ++copies_timed < slow_from)
        return 1;
    return sg_random_unit() < slow_chance ? slow_factor : 1;
}

size_t sg_fault_host_limit(void)
{
    return host_limit;
}
