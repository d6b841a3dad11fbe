/* Reads SIMGPU_* once, at the first call. A bad value gives one line on stderr that names it and
 * the way out, and every later call answers CUDA_ERROR_INVALID_VALUE: a typing error must not pass
 * for a measurement. */
#include "sg.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static CUresult bad(const char *name, const char *value, const char *way_out)
{
    fprintf(stderr, "simgpu: %s=%s: %s\n", name, value, way_out);
    sg.config_bad = true;
    return CUDA_ERROR_INVALID_VALUE;
}

static bool parse_size(const char *text, size_t *out)
{
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    if (end == text || errno || v < 0)
        return false;
    static const struct {
        const char *unit;
        double scale;
    } units[] = {
        {"", 1},     {"B", 1},    {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0},
        {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9},
    };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcasecmp(end, units[i].unit) == 0 && v * units[i].scale < 1e18) {
            *out = (size_t)(v * units[i].scale);
            return true;
        }
    return false;
}

static CUresult read_bool(const char *name, bool *out)
{
    const char *v = getenv(name);
    if (!v || !*v)
        return CUDA_SUCCESS;
    if (strcmp(v, "0") && strcmp(v, "1"))
        return bad(name, v, "must be 0 or 1");
    *out = v[0] == '1';
    return CUDA_SUCCESS;
}

static CUresult read_number(const char *name, uint64_t lo, uint64_t hi, uint64_t *out)
{
    const char *v = getenv(name);
    if (!v || !*v)
        return CUDA_SUCCESS;
    char *end;
    errno = 0;
    unsigned long long n = strtoull(v, &end, 0);
    if (errno || *end || !isdigit((unsigned char)v[0]) || n < lo || n > hi) {
        char why[96];
        snprintf(why, sizeof why, "must be a whole number from %llu to %llu",
                 (unsigned long long)lo, (unsigned long long)hi);
        return bad(name, v, why);
    }
    *out = n;
    return CUDA_SUCCESS;
}

static CUresult read_preset(void)
{
    const char *v = getenv("SIMGPU_PRESET");
    const struct sg_preset *p = sg_preset_find(v && *v ? v : "titanx-12g");
    if (!p) {
        char why[256] = "not a preset; one of:";
        for (size_t i = 0; (p = sg_preset_at(i)); i++) {
            strncat(why, " ", sizeof why - strlen(why) - 1);
            strncat(why, p->name, sizeof why - strlen(why) - 1);
        }
        return bad("SIMGPU_PRESET", v, why);
    }
    sg.cfg.preset = *p;
    v = getenv("SIMGPU_MEMORY");
    if (v && *v && (!parse_size(v, &sg.cfg.preset.memory) || sg.cfg.preset.memory < 4096))
        return bad("SIMGPU_MEMORY", v, "must be a size such as 12GiB or 800MiB");
    size_t overhead = sg.cfg.preset.context_bytes; /* never more than a sixteenth of a small card */
    if (overhead > sg.cfg.preset.memory / 16)
        sg.cfg.preset.context_bytes = sg.cfg.preset.memory / 16 & ~(size_t)4095;
    v = getenv("SIMGPU_CONTEXT");
    if (v && *v && !parse_size(v, &sg.cfg.preset.context_bytes))
        return bad("SIMGPU_CONTEXT", v, "must be a size such as 0 or 100MiB");
    return CUDA_SUCCESS;
}

static CUresult read_mode(void)
{
    const char *v = getenv("SIMGPU_MODE");
    if (!v || !*v || strcmp(v, "timing") == 0)
        sg.cfg.mode = SG_TIMING;
    else if (strcmp(v, "functional") == 0)
        sg.cfg.mode = SG_FUNCTIONAL;
    else
        return bad("SIMGPU_MODE", v, "must be timing or functional");
    sg.cfg.unmap_sync = sg.cfg.mode == SG_TIMING;
    return CUDA_SUCCESS;
}

static CUresult read_granularity(void)
{
    sg.cfg.granularity = (size_t)2 << 20;
    const char *v = getenv("SIMGPU_GRANULARITY");
    if (!v || !*v)
        return CUDA_SUCCESS;
    size_t g;
    if (!parse_size(v, &g) || g < 4096 || g > ((size_t)1 << 30) || (g & (g - 1)))
        return bad("SIMGPU_GRANULARITY", v, "must be a power of two from 4KiB to 1GiB");
    sg.cfg.granularity = g;
    return CUDA_SUCCESS;
}

CUresult sg_configure(void)
{
    if (sg.configured)
        return sg.config_bad ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    sg.configured = true;
    struct sg_config *c = &sg.cfg;
    uint64_t n = 1;
    c->seed = 1;
    c->host_numa = true;
    SG_TRY(read_preset());
    SG_TRY(read_mode());
    SG_TRY(read_granularity());
    SG_TRY(read_number("SIMGPU_SEED", 0, UINT64_MAX, &c->seed));
    SG_TRY(read_number("SIMGPU_DEVICES", 0, SG_MAX_DEVICES, &n));
    c->ndevices = (int)n;
    SG_TRY(read_bool("SIMGPU_HOST_NUMA", &c->host_numa));
    SG_TRY(read_bool("SIMGPU_UNMAP_SYNC", &c->unmap_sync));
    SG_TRY(read_bool("SIMGPU_RACECHECK", &c->racecheck));
    SG_TRY(read_bool("SIMGPU_RACE_ABORT", &c->race_abort));
    SG_TRY(read_bool("SIMGPU_PROC_ALIAS", &c->alias_entry));
    SG_TRY(read_bool("SIMGPU_LOW_SPACE", &c->low_space));
    c->report = getenv("SIMGPU_REPORT");
    c->call_log = getenv("SIMGPU_CALL_LOG");
    c->kernel_log = getenv("SIMGPU_KERNEL_LOG");
    const char *faults = getenv("SIMGPU_FAULTS");
    char why[256];
    if (faults && *faults && sg_faults_parse(faults, why, sizeof why) != CUDA_SUCCESS)
        return bad("SIMGPU_FAULTS", faults, why);
    sg.rng = c->seed * UINT64_C(0x9E3779B97F4A7C15) + 0x1234567;
    for (int i = 0; i < SG_MAX_DEVICES; i++)
        sg.dev[i].ordinal = i;
    return CUDA_SUCCESS;
}

/* xorshift64*, Vigna 2016. */
uint64_t sg_random(void)
{
    sg.rng ^= sg.rng >> 12;
    sg.rng ^= sg.rng << 25;
    sg.rng ^= sg.rng >> 27;
    return sg.rng * UINT64_C(2685821657736338717);
}

double sg_random_unit(void)
{
    return (double)(sg_random() >> 11) / 9007199254740992.0;
}
