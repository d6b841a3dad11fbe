/* The driver, opened as programs open it. */
#include "measure.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct driver cu;
CUdevice device;
bool simulated;

/* The exported name that cuda.h means: cuMemAlloc is cuMemAlloc_v2. */
#define TEXT(x)    #x
#define NAME_OF(x) TEXT(x)

void must_(CUresult r, const char *call, const char *file, int line)
{
    if (r == CUDA_SUCCESS)
        return;
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, call, result_name(r));
    exit(1);
}

const char *result_name(CUresult r)
{
    const char *name = NULL;
    if (!cu.GetErrorName || cu.GetErrorName(r, &name) != CUDA_SUCCESS || !name)
        return "an unknown error";
    return name;
}

const char *contents_are(bool right)
{
    const char *mode = getenv("SIMGPU_MODE");
    if (simulated && (!mode || strcmp(mode, "functional") != 0))
        return "not kept by a simulated card in timing mode";
    return right ? "right" : "wrong";
}

void driver_open(void)
{
    char name[256] = "";
    CUcontext context;
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "measure: %s\n", dlerror());
        exit(1);
    }
#define CALL(n) *(void **)&cu.n = dlsym(library, NAME_OF(cu##n));
#include "calls.def"
#undef CALL
    if (!cu.Init) {
        fprintf(stderr, "measure: libcuda.so.1 has no cuInit\n");
        exit(1);
    }
    must(cu.Init(0));
    must(cu.DeviceGet(&device, 0));
    must(cu.DevicePrimaryCtxRetain(&context, device));
    must(cu.CtxSetCurrent(context));
    must(cu.DeviceGetName(name, sizeof name, device));
    simulated = strstr(name, "(simulated)") != NULL;
}
