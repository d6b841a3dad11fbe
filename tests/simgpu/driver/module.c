/* Modules and libraries: images of our own kind (simgpu.h) and, through fatbin.c, what nvcc embeds.
 * A module's kernels become functions; a library's become kernels, and functions on demand. */
#include "sg.h"

#include <stdlib.h>
#include <string.h>

#include "fatbin.h"

static size_t param_bytes(const struct simgpu_kernel *k)
{
    size_t end = 0;
    for (unsigned i = 0; i < k->nparams; i++)
        if ((size_t)k->params[i].offset + k->params[i].size > end)
            end = (size_t)k->params[i].offset + k->params[i].size;
    return end;
}

static struct sg_func *make_funcs(struct sg_module *m, enum sg_handle_type t)
{
    struct sg_func *f = calloc(m->nfuncs ? m->nfuncs : 1, sizeof *f);
    for (unsigned i = 0; f && i < m->nfuncs; i++) {
        f[i].mod = m;
        f[i].kernel = &m->image->kernels[i];
        f[i].param_bytes = param_bytes(f[i].kernel);
        f[i].max_dynamic_shared = 49152;
        sg_handle_add(t, &f[i]);
    }
    return f;
}

static void destroy(struct sg_module *m)
{
    for (unsigned v = 0; v < m->nvars; v++)
        for (int d = 0; d < SG_MAX_DEVICES; d++)
            if (m->vars[v].at[d])
                sg_dealloc(m->vars[v].at[d]);
    if (m->code)
        sg_code_free(m->code);
    free(m->vars);
    free(m->funcs);
    free(m->kernels);
    free(m->file);
    free(m);
}

void sg_module_unuse(struct sg_module *m)
{
    if (--m->users == 0 && m->unloaded)
        destroy(m);
}

static CUresult image_of(const void *data, struct sg_module *m)
{
    const struct simgpu_image *image = data;
    if (image->magic == SIMGPU_IMAGE_MAGIC) {
        SG_CHECK(image->version == SIMGPU_IMAGE_VERSION, CUDA_ERROR_NO_BINARY_FOR_GPU);
        m->image = image;
        return CUDA_SUCCESS;
    }
    SG_CHECK(sg_code_recognise(data), CUDA_ERROR_INVALID_IMAGE);
    SG_TRY(sg_code_load(data, sg.cfg.preset.major * 10 + sg.cfg.preset.minor, &m->code));
    m->image = &m->code->image;
    m->nvars = m->code->nglobals;
    m->vars = calloc(m->nvars ? m->nvars : 1, sizeof *m->vars);
    SG_CHECK(m->vars, CUDA_ERROR_OUT_OF_MEMORY);
    for (unsigned i = 0; i < m->nvars; i++) {
        m->vars[i].name = m->code->globals[i].name;
        m->vars[i].bytes = m->code->globals[i].bytes;
        m->vars[i].init = m->code->globals[i].init;
    }
    return CUDA_SUCCESS;
}

static CUresult load(const void *data, struct sg_ctx *c, struct sg_module **out)
{
    SG_CHECK(data, CUDA_ERROR_INVALID_VALUE);
    struct sg_module *m = calloc(1, sizeof *m);
    SG_CHECK(m, CUDA_ERROR_OUT_OF_MEMORY);
    m->ctx = c;
    CUresult r = image_of(data, m);
    if (r == CUDA_SUCCESS) {
        m->nfuncs = m->image->nkernels;
        m->funcs = make_funcs(m, SG_H_FUNC);
        if (!c)
            m->kernels = make_funcs(m, SG_H_KERNEL);
        if (!m->funcs || (!c && !m->kernels))
            r = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (r != CUDA_SUCCESS) {
        destroy(m);
        return r;
    }
    sg_host_spend(100000);
    sg_handle_add(c ? SG_H_MODULE : SG_H_LIBRARY, m);
    *out = m;
    return CUDA_SUCCESS;
}

static CUresult unload(struct sg_module *m)
{
    sg_handle_drop(m->ctx ? SG_H_MODULE : SG_H_LIBRARY, m);
    for (unsigned i = 0; i < m->nfuncs; i++) {
        sg_handle_drop(SG_H_FUNC, &m->funcs[i]);
        if (m->kernels)
            sg_handle_drop(SG_H_KERNEL, &m->kernels[i]);
    }
    m->unloaded = true;
    m->users++;
    sg_module_unuse(m);
    return CUDA_SUCCESS;
}

/* ---- modules ---- */
static CUresult module_load(CUmodule *out, const void *data)
{
    struct sg_ctx *c;
    struct sg_module *m;
    SG_CHECK(out, CUDA_ERROR_INVALID_VALUE);
    SG_TRY(sg_current(&c));
    SG_CHECK(!sg_capture_blocks(c), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    SG_TRY(load(data, c, &m));
    *out = (CUmodule)m;
    return CUDA_SUCCESS;
}
SG_CALL(cuModuleLoadData, (CUmodule * out, const void *data), (out, data))
{
    return module_load(out, data);
}
SG_CALL(cuModuleLoadDataEx,
        (CUmodule * out, const void *data, unsigned n, CUjit_option *options, void **values),
        (out, data, n, options, values))
{
    SG_CHECK(n == 0 || (options && values), CUDA_ERROR_INVALID_VALUE);
    return module_load(out, data);
}
SG_CALL(cuModuleLoadFatBinary, (CUmodule * out, const void *data), (out, data))
{
    return module_load(out, data);
}

/* A whole file in memory, ended by a zero byte (PTX is text). */
static CUresult read_file(const char *name, void **out)
{
    SG_CHECK(name, CUDA_ERROR_INVALID_VALUE);
    FILE *f = fopen(name, "rbe");
    SG_CHECK(f, CUDA_ERROR_FILE_NOT_FOUND);
    char *p = NULL;
    size_t n = 0, got = 0;
    do {
        n += got;
        char *q = realloc(p, n + 65536 + 1);
        if (!q)
            break;
        p = q;
        got = fread(p + n, 1, 65536, f);
        p[n + got] = 0;
    } while (got);
    bool bad = ferror(f) != 0 || !p;
    fclose(f);
    if (bad || n < 8) {
        free(p);
        return CUDA_ERROR_INVALID_IMAGE;
    }
    *out = p;
    return CUDA_SUCCESS;
}

SG_CALL(cuModuleLoad, (CUmodule * out, const char *name), (out, name))
{
    void *data;
    SG_TRY(read_file(name, &data));
    CUresult r = CUDA_ERROR_INVALID_IMAGE;
    if (sg_code_recognise(data)) /* an image of our own kind cannot come from a file */
        r = module_load(out, data);
    if (r != CUDA_SUCCESS)
        free(data);
    else
        ((struct sg_module *)*out)->file = data;
    return r;
}

SG_CALL(cuModuleUnload, (CUmodule hm), (hm))
{
    struct sg_ctx *c;
    SG_CHECK(sg_handle_is(SG_H_MODULE, hm), CUDA_ERROR_INVALID_HANDLE);
    SG_TRY(sg_current(&c));
    SG_TRY(sg_wait_ctx(c));
    SG_CHECK(sg_handle_is(SG_H_MODULE, hm), CUDA_ERROR_INVALID_HANDLE);
    return unload((struct sg_module *)hm);
}

SG_CALL(cuModuleGetLoadingMode, (CUmoduleLoadingMode * mode), (mode))
{
    SG_CHECK(mode, CUDA_ERROR_INVALID_VALUE);
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

static struct sg_func *by_name(struct sg_func *f, const struct sg_module *m, const char *name)
{
    for (unsigned i = 0; i < m->nfuncs; i++)
        if (strcmp(f[i].kernel->name, name) == 0)
            return &f[i];
    return NULL;
}

SG_CALL(cuModuleGetFunction, (CUfunction * out, CUmodule hm, const char *name), (out, hm, name))
{
    SG_CHECK(out && name, CUDA_ERROR_INVALID_VALUE);
    struct sg_module *m = (struct sg_module *)hm;
    /* A library's module (cuLibraryGetModule) is the library itself. */
    SG_CHECK(sg_handle_is(SG_H_MODULE, m) || sg_handle_is(SG_H_LIBRARY, m),
             CUDA_ERROR_INVALID_HANDLE);
    struct sg_func *f = by_name(m->funcs, m, name);
    SG_CHECK(f, CUDA_ERROR_NOT_FOUND);
    *out = (CUfunction)f;
    return CUDA_SUCCESS;
}

SG_CALL(cuModuleGetFunctionCount, (unsigned *count, CUmodule hm), (count, hm))
{
    SG_CHECK(count, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(sg_handle_is(SG_H_MODULE, hm), CUDA_ERROR_INVALID_HANDLE);
    *count = ((struct sg_module *)hm)->nfuncs;
    return CUDA_SUCCESS;
}

SG_CALL(cuModuleEnumerateFunctions, (CUfunction * out, unsigned n, CUmodule hm), (out, n, hm))
{
    SG_CHECK(out, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(sg_handle_is(SG_H_MODULE, hm), CUDA_ERROR_INVALID_HANDLE);
    struct sg_module *m = (struct sg_module *)hm;
    for (unsigned i = 0; i < n && i < m->nfuncs; i++)
        out[i] = (CUfunction)&m->funcs[i];
    return CUDA_SUCCESS;
}

/* The variable's memory on the current device; made and filled at the first use. */
static CUresult variable(struct sg_module *m, const char *name, CUdeviceptr *out, size_t *bytes)
{
    struct sg_ctx *c = m->ctx;
    SG_CHECK(name, CUDA_ERROR_INVALID_VALUE);
    if (!c)
        SG_TRY(sg_current(&c));
    for (unsigned i = 0; i < m->nvars; i++) {
        struct sg_variable *v = &m->vars[i];
        if (strcmp(v->name, name))
            continue;
        struct sg_range **at = &v->at[c->device];
        if (!*at) {
            SG_TRY(sg_alloc(SG_DEVICE, c, v->bytes, at));
            (*at)->ctx = NULL; /* dies with the module, not by cuMemFree */
            if (sg.cfg.mode == SG_FUNCTIONAL && v->init)
                memcpy((void *)(*at)->va, v->init, v->bytes);
            else if (sg.cfg.mode == SG_FUNCTIONAL)
                memset((void *)(*at)->va, 0, v->bytes);
            sg_race_host_write((*at)->map.phys, 0, v->bytes);
        }
        if (out)
            *out = (*at)->va;
        if (bytes)
            *bytes = v->bytes;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

SG_CALL(cuModuleGetGlobal_v2, (CUdeviceptr * out, size_t *bytes, CUmodule hm, const char *name),
        (out, bytes, hm, name))
{
    SG_CHECK(sg_handle_is(SG_H_MODULE, hm) || sg_handle_is(SG_H_LIBRARY, hm),
             CUDA_ERROR_INVALID_HANDLE);
    return variable((struct sg_module *)hm, name, out, bytes);
}

/* ---- libraries ---- */
SG_CALL(cuLibraryLoadData,
        (CUlibrary * out, const void *code, CUjit_option *jit, void **jit_values, unsigned njit,
         CUlibraryOption *options, void **values, unsigned n),
        (out, code, jit, jit_values, njit, options, values, n))
{
    struct sg_module *m;
    SG_CHECK(out && (!njit || (jit && jit_values)) && (!n || options), CUDA_ERROR_INVALID_VALUE);
    (void)values;
    SG_TRY(load(code, NULL, &m));
    *out = (CUlibrary)m;
    return CUDA_SUCCESS;
}

SG_CALL(cuLibraryLoadFromFile,
        (CUlibrary * out, const char *name, CUjit_option *jit, void **jit_values, unsigned njit,
         CUlibraryOption *options, void **values, unsigned n),
        (out, name, jit, jit_values, njit, options, values, n))
{
    void *data;
    struct sg_module *m;
    SG_CHECK(out && (!njit || (jit && jit_values)) && (!n || (options && values)),
             CUDA_ERROR_INVALID_VALUE);
    SG_TRY(read_file(name, &data));
    CUresult r = sg_code_recognise(data) ? load(data, NULL, &m) : CUDA_ERROR_INVALID_IMAGE;
    if (r != CUDA_SUCCESS) {
        free(data);
        return r;
    }
    m->file = data;
    *out = (CUlibrary)m;
    return CUDA_SUCCESS;
}

static struct sg_module *library_of(CUlibrary l)
{
    return sg_handle_is(SG_H_LIBRARY, l) ? (struct sg_module *)l : NULL;
}

SG_CALL(cuLibraryUnload, (CUlibrary l), (l))
{
    struct sg_module *m = library_of(l);
    SG_CHECK(m, CUDA_ERROR_INVALID_HANDLE);
    for (int d = 0; d < sg.cfg.ndevices; d++)
        if (sg.dev[d].primary)
            sg_wait_ctx(sg.dev[d].primary);
    m = library_of(l);
    SG_CHECK(m, CUDA_ERROR_INVALID_HANDLE);
    return unload(m);
}

SG_CALL(cuLibraryGetKernel, (CUkernel * out, CUlibrary l, const char *name), (out, l, name))
{
    struct sg_module *m = library_of(l);
    SG_CHECK(out && name, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(m, CUDA_ERROR_INVALID_HANDLE);
    struct sg_func *f = by_name(m->kernels, m, name);
    SG_CHECK(f, CUDA_ERROR_NOT_FOUND);
    *out = (CUkernel)f;
    return CUDA_SUCCESS;
}

SG_CALL(cuLibraryGetKernelCount, (unsigned *count, CUlibrary l), (count, l))
{
    const struct sg_module *m = library_of(l);
    SG_CHECK(count, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(m, CUDA_ERROR_INVALID_HANDLE);
    *count = m->nfuncs;
    return CUDA_SUCCESS;
}

SG_CALL(cuLibraryEnumerateKernels, (CUkernel * out, unsigned n, CUlibrary l), (out, n, l))
{
    const struct sg_module *m = library_of(l);
    SG_CHECK(out, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(m, CUDA_ERROR_INVALID_HANDLE);
    for (unsigned i = 0; i < n && i < m->nfuncs; i++)
        out[i] = (CUkernel)&m->kernels[i];
    return CUDA_SUCCESS;
}

SG_CALL(cuLibraryGetModule, (CUmodule * out, CUlibrary l), (out, l))
{
    struct sg_ctx *c;
    SG_CHECK(out, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(library_of(l), CUDA_ERROR_INVALID_HANDLE);
    SG_TRY(sg_current(&c));
    *out = (CUmodule)l;
    return CUDA_SUCCESS;
}

SG_CALL(cuLibraryGetGlobal, (CUdeviceptr * out, size_t *bytes, CUlibrary l, const char *name),
        (out, bytes, l, name))
{
    struct sg_module *m = library_of(l);
    SG_CHECK(m, CUDA_ERROR_INVALID_HANDLE);
    return variable(m, name, out, bytes);
}

SG_CALL(cuLibraryGetManaged, (CUdeviceptr * out, size_t *bytes, CUlibrary l, const char *name),
        (out, bytes, l, name))
{
    struct sg_module *m = library_of(l);
    SG_CHECK(m, CUDA_ERROR_INVALID_HANDLE);
    return variable(m, name, out, bytes);
}

SG_CALL(cuKernelGetFunction, (CUfunction * out, CUkernel k), (out, k))
{
    struct sg_ctx *c;
    SG_CHECK(out, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(sg_handle_is(SG_H_KERNEL, k), CUDA_ERROR_INVALID_HANDLE);
    SG_TRY(sg_current(&c));
    struct sg_func *f = (struct sg_func *)k;
    *out = (CUfunction)&f->mod->funcs[f - f->mod->kernels];
    return CUDA_SUCCESS;
}

SG_CALL(cuKernelGetLibrary, (CUlibrary * out, CUkernel k), (out, k))
{
    SG_CHECK(out, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(sg_handle_is(SG_H_KERNEL, k), CUDA_ERROR_INVALID_HANDLE);
    *out = (CUlibrary)((struct sg_func *)k)->mod;
    return CUDA_SUCCESS;
}

/* ---- functions and kernels ---- */
struct sg_func *sg_func_of(CUfunction f)
{
    return sg_handle_is(SG_H_FUNC, f) || sg_handle_is(SG_H_KERNEL, f) ? (struct sg_func *)f : NULL;
}

static CUresult param_info(const struct sg_func *f, size_t i, size_t *offset, size_t *size)
{
    SG_CHECK(offset, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(i < f->kernel->nparams, CUDA_ERROR_INVALID_VALUE);
    *offset = f->kernel->params[i].offset;
    if (size)
        *size = f->kernel->params[i].size;
    return CUDA_SUCCESS;
}
SG_CALL(cuFuncGetParamInfo, (CUfunction f, size_t i, size_t *offset, size_t *size),
        (f, i, offset, size))
{
    SG_CHECK(sg_handle_is(SG_H_FUNC, f), CUDA_ERROR_INVALID_HANDLE);
    return param_info((struct sg_func *)f, i, offset, size);
}
SG_CALL(cuKernelGetParamInfo, (CUkernel k, size_t i, size_t *offset, size_t *size),
        (k, i, offset, size))
{
    SG_CHECK(sg_handle_is(SG_H_KERNEL, k), CUDA_ERROR_INVALID_HANDLE);
    return param_info((struct sg_func *)k, i, offset, size);
}
SG_CALL(cuFuncGetName, (const char **name, CUfunction f), (name, f))
{
    SG_CHECK(name, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(sg_handle_is(SG_H_FUNC, f), CUDA_ERROR_INVALID_HANDLE);
    *name = ((struct sg_func *)f)->kernel->name;
    return CUDA_SUCCESS;
}
SG_CALL(cuKernelGetName, (const char **name, CUkernel k), (name, k))
{
    SG_CHECK(name, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(sg_handle_is(SG_H_KERNEL, k), CUDA_ERROR_INVALID_HANDLE);
    *name = ((struct sg_func *)k)->kernel->name;
    return CUDA_SUCCESS;
}
SG_CALL(cuFuncGetModule, (CUmodule * out, CUfunction f), (out, f))
{
    SG_CHECK(out, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(sg_handle_is(SG_H_FUNC, f), CUDA_ERROR_INVALID_HANDLE);
    *out = (CUmodule)((struct sg_func *)f)->mod;
    return CUDA_SUCCESS;
}
SG_CALL(cuFuncIsLoaded, (CUfunctionLoadingState * state, CUfunction f), (state, f))
{
    SG_CHECK(state, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(sg_func_of(f), CUDA_ERROR_INVALID_HANDLE);
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
}
SG_CALL(cuFuncLoad, (CUfunction f), (f))
{
    return sg_func_of(f) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult attribute(int *v, CUfunction_attribute a, const struct sg_func *f)
{
    SG_CHECK(v, CUDA_ERROR_INVALID_VALUE);
    SG_CHECK(f, CUDA_ERROR_INVALID_HANDLE);
    switch ((int)a) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *v = 1024;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *v = 32;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *v = sg.cfg.preset.major * 10 + sg.cfg.preset.minor;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *v = f->max_dynamic_shared;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *v = -1;
        return CUDA_SUCCESS;
    }
    SG_CHECK((int)a >= 0 && a < CU_FUNC_ATTRIBUTE_MAX, CUDA_ERROR_INVALID_VALUE);
    *v = 0; /* no static shared, constant or local memory, no clusters */
    return CUDA_SUCCESS;
}
SG_CALL(cuFuncGetAttribute, (int *v, CUfunction_attribute a, CUfunction f), (v, a, f))
{
    return attribute(v, a, sg_func_of(f));
}
SG_CALL(cuKernelGetAttribute, (int *v, CUfunction_attribute a, CUkernel k, CUdevice dev),
        (v, a, k, dev))
{
    SG_CHECK(dev >= 0 && dev < sg.cfg.ndevices, CUDA_ERROR_INVALID_DEVICE);
    return attribute(v, a, sg_handle_is(SG_H_KERNEL, k) ? (struct sg_func *)k : NULL);
}

static CUresult set_attribute(struct sg_func *f, CUfunction_attribute a, int v)
{
    SG_CHECK(f, CUDA_ERROR_INVALID_HANDLE);
    SG_CHECK((int)a >= 0 && a < CU_FUNC_ATTRIBUTE_MAX, CUDA_ERROR_INVALID_VALUE);
    if (a == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
        SG_CHECK(v >= 0 && v <= sg_shared_limit(), CUDA_ERROR_INVALID_VALUE);
        f->max_dynamic_shared = v;
    }
    return CUDA_SUCCESS;
}
SG_CALL(cuFuncSetAttribute, (CUfunction f, CUfunction_attribute a, int v), (f, a, v))
{
    return set_attribute(sg_func_of(f), a, v);
}
SG_CALL(cuKernelSetAttribute, (CUfunction_attribute a, int v, CUkernel k, CUdevice dev),
        (a, v, k, dev))
{
    SG_CHECK(dev >= 0 && dev < sg.cfg.ndevices, CUDA_ERROR_INVALID_DEVICE);
    return set_attribute(sg_handle_is(SG_H_KERNEL, k) ? (struct sg_func *)k : NULL, a, v);
}
SG_CALL(cuFuncSetCacheConfig, (CUfunction f, CUfunc_cache config), (f, config))
{
    (void)config;
    return sg_func_of(f) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
SG_CALL(cuKernelSetCacheConfig, (CUkernel k, CUfunc_cache config, CUdevice dev), (k, config, dev))
{
    (void)config;
    (void)dev;
    return sg_handle_is(SG_H_KERNEL, k) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
SG_CALL(cuFuncSetSharedMemConfig, (CUfunction f, CUsharedconfig config), (f, config))
{
    (void)config;
    return sg_func_of(f) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
