/* Looking functions up, errors, faults, fork, hidden touches, the report. */
#include "gpu.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

Test(calls, nothing_before_init)
{
    int n;
    FAILS(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
    OK(cuDriverGetVersion(&n));
    cr_assert_eq(n, CUDA_VERSION);
}

Test(calls, a_function_by_version)
{
    void *old, *new, *pt;
    CUdriverProcAddressQueryResult st;
    OK(cuInit(0));
    OK(cuGetProcAddress("cuMemAlloc", &new, 13000, 0, &st));
    cr_assert_eq(st, CU_GET_PROC_ADDRESS_SUCCESS);
    OK(cuGetProcAddress("cuMemAlloc", &old, 2000, 0, &st));
    cr_assert_neq(old, new);
    OK(cuGetProcAddress("cuStreamSynchronize", &new, 12000, 0, &st));
    OK(cuGetProcAddress("cuStreamSynchronize", &pt, 12000,
                        CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &st));
    cr_assert_neq(new, pt);
    OK(cuGetProcAddress("cuMemcpyBatchAsync", &new, 12000, 0, &st));
    cr_assert_eq(st, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    OK(cuGetProcAddress("", &new, 12000, 0, &st));
    cr_assert_eq(st, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    FAILS(cuGetProcAddress("cuNoSuchThing", &new, 12000, 0, NULL), CUDA_ERROR_NOT_FOUND);
    OK(cuGetProcAddress("cuGetProcAddress", &old, 11030, 0, &st));
    OK(cuGetProcAddress("cuGetProcAddress", &new, 12000, 0, &st));
    cr_assert_neq(old, new);
}

/* Looked-up addresses may differ from exported ones, and still be the same functions. */
Test(calls, a_second_entry_point)
{
    void *p;
    START("SIMGPU_PROC_ALIAS", "1");
    OK(cuGetProcAddress("cuDeviceGetCount", &p, 12000, 0, NULL));
    cr_assert_neq(p, (void *)cuDeviceGetCount);
    int n = 0;
    OK(((CUresult(*)(int *))p)(&n));
    cr_assert_eq(n, 1);
}

Test(calls, every_error_has_a_name)
{
    const char *s;
    OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &s));
    cr_assert_str_eq(s, "CUDA_ERROR_OUT_OF_MEMORY");
    OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &s));
    cr_assert_str_eq(s, "out of memory");
    FAILS(cuGetErrorName((CUresult)123456, &s), CUDA_ERROR_INVALID_VALUE);
}

static void refused(void)
{
    OK(cuInit(0));
    CUmipmappedArray a;
    CUDA_ARRAY3D_DESCRIPTOR d = {0};
    cr_assert_eq(cuMipmappedArrayCreate(&a, &d, 1), CUDA_ERROR_NOT_SUPPORTED);
}
Test(calls, what_is_not_modelled_says_so)
{
    int status;
    const char *text = gpu_stderr_of(refused, &status);
    cr_assert_eq(status, 0);
    cr_assert(strstr(text, "cuMipmappedArrayCreate is not modelled"), "%s", text);
}

static void bad_preset(void)
{
    setenv("SIMGPU_PRESET", "gtx9999", 1);
    _exit(cuInit(0) == CUDA_ERROR_INVALID_VALUE ? 0 : 1);
}
static void bad_faults(void)
{
    setenv("SIMGPU_FAULTS", "cuMemAlloc:x", 1);
    _exit(cuInit(0) == CUDA_ERROR_INVALID_VALUE ? 0 : 1);
}
Test(config, bad_values_are_named)
{
    int status;
    const char *text = gpu_stderr_of(bad_preset, &status);
    cr_assert_eq(status, 0);
    cr_assert(strstr(text, "SIMGPU_PRESET=gtx9999") && strstr(text, "titanx-12g"), "%s", text);
    text = gpu_stderr_of(bad_faults, &status);
    cr_assert_eq(status, 0);
    cr_assert(strstr(text, "SIMGPU_FAULTS") && strstr(text, "'cuMemAlloc:x'"), "%s", text);
}

Test(faults, nth_use_fails)
{
    START("SIMGPU_FAULTS", "cuMemAlloc:2=OUT_OF_MEMORY;cuStreamCreate:3+=UNKNOWN");
    CUdeviceptr p;
    CUstream s;
    OK(cuMemAlloc(&p, 64));
    FAILS(cuMemAlloc(&p, 64), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc(&p, 64));
    OK(cuStreamCreate(&s, 0));
    OK(cuStreamCreate(&s, 0));
    FAILS(cuStreamCreate(&s, 0), CUDA_ERROR_UNKNOWN);
    FAILS(cuStreamCreate(&s, 0), CUDA_ERROR_UNKNOWN);
}

Test(faults, chance_follows_the_seed)
{
    START("SIMGPU_FAULTS", "cuMemAlloc:p=0.25", "SIMGPU_SEED", "7");
    CUdeviceptr p;
    int failed = 0;
    for (int i = 0; i < 400; i++)
        failed += cuMemAlloc(&p, 64) == CUDA_ERROR_OUT_OF_MEMORY;
    cr_assert(failed > 60 && failed < 140, "%d of 400", failed);
}

Test(faults, a_skipped_call_says_that_it_worked)
{
    START("SIMGPU_FAULTS", "cuMemsetD32:2=SKIPPED", "SIMGPU_MODE", "functional");
    CUdeviceptr p;
    uint32_t word;
    OK(cuMemAlloc(&p, 4));
    OK(cuMemsetD32(p, 1, 1));
    OK(cuMemsetD32(p, 2, 1));
    OK(cuMemcpyDtoH(&word, p, 4));
    cr_assert_eq(word, 1);
    OK(cuMemsetD32(p, 3, 1));
    OK(cuMemcpyDtoH(&word, p, 4));
    cr_assert_eq(word, 3);
}

Test(faults, memory_shortages)
{
    START("SIMGPU_FAULTS", "host-memory=1MiB,device-memory=2GiB");
    void *h;
    CUdeviceptr p;
    size_t f, total;
    OK(cuMemHostAlloc(&h, 1 << 19, 0));
    FAILS(cuMemHostAlloc(&h, 1 << 20, 0), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemGetInfo(&f, &total));
    cr_assert_eq(total, (size_t)2 << 30);
    FAILS(cuMemAlloc(&p, (size_t)2 << 30), CUDA_ERROR_OUT_OF_MEMORY);
}

Test(faults, slow_copies_are_slow)
{
    START("SIMGPU_FAULTS", "slow-copy=4", "SIMGPU_PRESET", "titanx-12g");
    CUevent a, b;
    CUdeviceptr d;
    void *h;
    float ms;
    OK(cuEventCreate(&a, 0));
    OK(cuEventCreate(&b, 0));
    OK(cuMemAlloc(&d, (size_t)128 << 20));
    OK(cuMemAllocHost(&h, (size_t)128 << 20));
    OK(cuEventRecord(a, NULL));
    OK(cuMemcpyHtoDAsync(d, h, (size_t)128 << 20, NULL));
    OK(cuEventRecord(b, NULL));
    OK(cuEventSynchronize(b));
    OK(cuEventElapsedTime(&ms, a, b));
    cr_assert_float_eq(ms, 4 * 10.49, 0.2);
}

/* A link that gets slow in the middle of a run: from the second copy on. */
Test(faults, copies_become_slow)
{
    START("SIMGPU_FAULTS", "slow-copy=4+2", "SIMGPU_PRESET", "titanx-12g");
    CUevent e[3];
    CUdeviceptr d;
    void *h;
    float first, second;
    OK(cuMemAlloc(&d, (size_t)128 << 20));
    OK(cuMemAllocHost(&h, (size_t)128 << 20));
    for (int i = 0; i < 3; i++) {
        OK(cuEventCreate(&e[i], 0));
        OK(cuEventRecord(e[i], NULL));
        if (i < 2)
            OK(cuMemcpyHtoDAsync(d, h, (size_t)128 << 20, NULL));
    }
    OK(cuEventSynchronize(e[2]));
    OK(cuEventElapsedTime(&first, e[0], e[1]));
    OK(cuEventElapsedTime(&second, e[1], e[2]));
    cr_assert_float_eq(first, 10.49, 0.1);
    cr_assert_float_eq(second, 4 * 10.49, 0.2);
}

Test(faults, a_lost_device_stays_lost)
{
    struct gpu g = START("SIMGPU_FAULTS", "lost-device=0@3");
    CUdeviceptr p;
    OK(cuMemAlloc(&p, 64));
    gpu_work(&g, 100, p, 1, NULL);
    gpu_work(&g, 100, p, 1, NULL);
    void *args[] = {&p, &p, &p, &p, &p};
    FAILS(cuLaunchKernel(g.fn[K_WORK], 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL),
          CUDA_ERROR_DEVICE_UNAVAILABLE);
    FAILS(cuMemAlloc(&p, 64), CUDA_ERROR_DEVICE_UNAVAILABLE);
}

Test(calls, the_child_of_an_initialised_process_is_cut_off)
{
    START("SIMGPU_MODE", "functional");
    int status;
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr p;
        _exit(cuMemAlloc(&p, 4) == CUDA_ERROR_NOT_INITIALIZED &&
                      cuInit(0) == CUDA_ERROR_NOT_INITIALIZED
                  ? 0
                  : 1);
    }
    waitpid(child, &status, 0);
    cr_assert_eq(status, 0);
}

static void hidden(void)
{
    struct gpu g = START("SIMGPU_MODE", "functional");
    CUdeviceptr va;
    unsigned v = 1, n = 1;
    double ns = 0;
    void *args[] = {&va, &va, &v, &n, &ns};
    OK(cuMemAddressReserve(&va, (size_t)2 << 20, 0, 0, 0));
    OK(cuLaunchKernel(g.fn[K_HIDDEN], 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
    cuStreamSynchronize(NULL);
}
Test(calls, an_undeclared_touch_of_unmapped_memory_is_a_real_fault)
{
    int status;
    gpu_stderr_of(hidden, &status);
    cr_assert_neq(status, 0); /* by a signal, or by a sanitizer's report of it */
}

Test(calls, pointer_tables_are_followed)
{
    struct gpu g = START("SIMGPU_MODE", "functional");
    CUdeviceptr table, a;
    unsigned v = 9, n = 1, out = 0;
    double ns = 0;
    OK(cuMemAlloc(&table, 8));
    OK(cuMemAlloc(&a, 4));
    OK(cuMemcpyHtoD(table, &a, 8));
    void *args[] = {&a, &table, &v, &n, &ns};
    OK(cuLaunchKernel(g.fn[K_CHASE], 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
    OK(cuMemcpyDtoH(&out, a, 4));
    cr_assert_eq(out, 9);
    OK(cuMemFree(a));
    OK(cuLaunchKernel(g.fn[K_CHASE], 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
    FAILS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

Test(calls, extra_buffers_and_kernels_as_functions)
{
    struct gpu g = START("SIMGPU_MODE", "functional");
    CUlibrary lib;
    CUkernel k;
    CUdeviceptr a;
    unsigned out;
    size_t offset, size;
    struct {
        CUdeviceptr dst, src;
        unsigned value, n;
        double ns;
    } block = {.value = 5, .n = 1};
    size_t bytes = sizeof block;
    (void)g;
    OK(cuMemAlloc(&a, 4));
    OK(cuMemsetD32(a, 1, 1));
    block.dst = a;
    OK(cuLibraryLoadData(&lib, &test_image, NULL, NULL, 0, NULL, NULL, 0));
    OK(cuLibraryGetKernel(&k, lib, "add"));
    OK(cuKernelGetParamInfo(k, 3, &offset, &size));
    cr_assert(offset == 20 && size == 4);
    FAILS(cuKernelGetParamInfo(k, 5, &offset, &size), CUDA_ERROR_INVALID_VALUE);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    OK(cuLaunchKernel((CUfunction)k, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    OK(cuMemcpyDtoH(&out, a, 4));
    cr_assert_eq(out, 6);
    FAILS(cuLaunchKernel((CUfunction)k, 1, 1, 1, 2048, 1, 1, 0, NULL, NULL, extra),
          CUDA_ERROR_INVALID_VALUE);
    OK(cuLibraryUnload(lib));
    FAILS(cuLibraryGetKernel(&k, lib, "add"), CUDA_ERROR_INVALID_HANDLE);
}

Test(calls, report_counts_calls)
{
    char name[] = P_tmpdir "/simgpu-report-XXXXXX", text[16384] = "";
    int fd = mkstemp(name), status;
    pid_t child = fork();
    if (child == 0) {
        START("SIMGPU_REPORT", name, "SIMGPU_PRESET", "titanx-12g", "SIMGPU_CONTEXT", "0");
        CUdeviceptr p;
        for (int i = 0; i < 3; i++)
            OK(cuMemAlloc(&p, (size_t)1 << 30));
        exit(0);
    }
    waitpid(child, &status, 0);
    cr_assert_eq(status, 0);
    cr_assert_gt(read(fd, text, sizeof text - 1), 0);
    unlink(name);
    cr_assert(strstr(text, "\"cuMemAlloc_v2\": 3"), "%s", text);
    cr_assert(strstr(text, "\"peak_physical_bytes\": 3221225472"), "%s", text);
    cr_assert(strstr(text, "\"simulated\": true"), "%s", text);
}

/* A test can count what is called between two points of virtual time. */
Test(calls, the_log_of_calls)
{
    char name[] = P_tmpdir "/simgpu-calls-XXXXXX", line[128], call[64];
    int fd = mkstemp(name), status, launches = 0;
    unsigned long long at, last = 0;
    pid_t child = fork();
    if (child == 0) {
        struct gpu g = START("SIMGPU_CALL_LOG", name);
        for (int i = 0; i < 3; i++)
            gpu_work(&g, 1000, 0, 0, NULL);
        OK(cuCtxSynchronize());
        exit(0);
    }
    waitpid(child, &status, 0);
    cr_assert_eq(status, 0);
    FILE *f = fdopen(fd, "r");
    while (fgets(line, sizeof line, f)) {
        cr_assert_eq(sscanf(line, "%llu %63s", &at, call), 2, "%s", line);
        cr_assert(at >= last);
        last = at;
        launches += strcmp(call, "cuLaunchKernel") == 0;
    }
    fclose(f);
    unlink(name);
    cr_assert_eq(launches, 3);
}

Test(calls, the_log_is_empty)
{
    char text[64] = "x";
    size_t n = sizeof text;
    CUlogsCallbackHandle h;
    CUlogIterator at = 9;
    START("SIMGPU_PRESET", "titanx-12g");
    FAILS(cuLogsRegisterCallback(NULL, NULL, &h), CUDA_ERROR_INVALID_VALUE);
    OK(cuLogsRegisterCallback((CUlogsCallback)(uintptr_t)free, NULL, &h)); /* never called */
    OK(cuLogsCurrent(&at, 0));
    OK(cuLogsDumpToMemory(&at, text, &n, 0));
    cr_assert(n == 0 && text[0] == 0 && at == 0);
    OK(cuLogsUnregisterCallback(h));
    FAILS(cuLogsUnregisterCallback(h), CUDA_ERROR_INVALID_VALUE);
}

/* Figures of the programming guide's table for compute capabilities 5.2 and 8.0. */
static int shared_of(const char *preset, CUdevice_attribute a)
{
    int v = -1;
    START("SIMGPU_PRESET", preset);
    OK(cuDeviceGetAttribute(&v, a, 0));
    return v;
}
Test(calls, shared_memory_of_maxwell)
{
    cr_assert_eq(shared_of("titanx-12g", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
                 49152);
}
Test(calls, shared_memory_of_ampere)
{
    cr_assert_eq(shared_of("a100-40g", CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
                 163 * 1024);
}

/* A kernel that a compiler made: its time grows with threads and with the addresses it is given. */
static float compiled_ms(CUfunction f, unsigned grid, CUdeviceptr a, CUdeviceptr b)
{
    CUevent from, to;
    float ms = 0;
    void *params[] = {&a, &b};
    OK(cuEventCreate(&from, 0));
    OK(cuEventCreate(&to, 0));
    OK(cuCtxSynchronize());
    OK(cuEventRecord(from, NULL));
    OK(cuLaunchKernel(f, grid, 1, 1, 256, 1, 1, 0, NULL, params, NULL));
    OK(cuEventRecord(to, NULL));
    OK(cuEventSynchronize(to));
    OK(cuEventElapsedTime(&ms, from, to));
    return ms;
}
Test(calls, time_of_compiled_kernels)
{
    static const char ptx[] = ".version 7.0\n.target sm_52\n.address_size 64\n"
                              ".visible .entry work(.param .u64 a, .param .u64 b)\n{\nret;\n}\n";
    START("SIMGPU_PRESET", "titanx-12g");
    CUmodule m;
    CUfunction f;
    CUdeviceptr d;
    const unsigned grid = 65536;
    OK(cuModuleLoadData(&m, ptx));
    OK(cuModuleGetFunction(&f, m, "work"));
    OK(cuMemAlloc(&d, 1 << 20));
    float small = compiled_ms(f, 1, d, d), one = compiled_ms(f, grid, d, 5),
          two = compiled_ms(f, grid, d, d);
    double bytes = grid * 256.0 * 16, rate = 336e9 * 0.7; /* the preset's, generic kernels' share */
    cr_assert_lt(small, 0.01f);
    cr_assert_float_eq((double)two, 2 * bytes / rate * 1e3, 0.02, "%g ms", (double)two);
    cr_assert_float_eq((double)(two - one), bytes / rate * 1e3, 0.02, "%g ms more", (double)(two - one));
}
