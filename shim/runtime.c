/* The runtime's life in one process, and the figures it leaves behind. */
#define VMEM_BUILDING
#include "runtime.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "device.h"
#include "driver.h"
#include "executor.h"
#include "learn.h"
#include "log.h"
#include "out_file.h"
#include "recorder.h"
#include "replan.h"
#include "scope.h"

_Thread_local int vm_scope_depth __attribute__((tls_model("initial-exec")));

static atomic_bool active;
static pid_t owner;

bool vm_device_simulated(const struct vm_device *d)
{
    static const char mark[] = "simulated gpu";
    CUuuid id;
    return vm_drv.p_cuDeviceGetUuid_v2 &&
           vm_drv.p_cuDeviceGetUuid_v2(&id, d->ordinal) == CUDA_SUCCESS &&
           memcmp(id.bytes, mark, sizeof mark - 1) == 0;
}

bool vm_rt_active(void)
{
    return atomic_load_explicit(&active, memory_order_relaxed);
}

/* ---- figures at the end -----------------------------------------------------------------------
 */

static const char *const state_names[] = {"pass-through", "recording", "planned", "deviating"};

static size_t stats_text(char *buf, size_t n)
{
    struct vmem_stats s = {0};
    uint64_t period = 0, page = 0, failed = 0, hosted = 0;
    struct vm_learn_figures l = {0};
    for (unsigned i = 0; i < VM_MAX_DEVICES; i++) {
        struct vm_device *d = vm_devices[i];
        if (!d || d->unserved)
            continue;
        vm_device_stats(d, &s);
        if (vm_recorder_period(d) > period)
            period = vm_recorder_period(d);
        page = d->page_bytes;
        failed += d->failed_moves;
        hosted += d->hosted_ops;
        struct vm_learn_figures f = vm_learn_figures(d);
        if (f.compared >= l.compared) /* of the device that compared most */
            l = f;
    }
#define U(x) (unsigned long long)(x)
    return vm_format(
        buf, n,
        "{\"state\": \"%s\", \"policy\": \"%s\", \"budget_bytes\": %llu, \"page_bytes\": %llu,\n"
        " \"peak_device_bytes\": %llu, \"peak_block_bytes\": %llu, \"host_bytes\": %llu,\n"
        " \"out_bytes\": %llu, \"in_bytes\": %llu, \"dropped_bytes\": %llu, \"demand_moves\": "
        "%llu,\n"
        " \"period_ops\": %llu, \"iterations\": %llu, \"planned_iterations\": %llu,\n"
        " \"deviations\": %llu, \"regenerated\": %llu, \"failed_moves\": %llu,\n"
        " \"hosted_ops\": %llu,\n"
        " \"compared_iterations\": %llu, \"planned_us\": %llu, \"expected_us\": %llu, \"measured_us\": %llu,\n"
        " \"prediction_error_ppm\": %llu, \"plans_revised\": %llu, \"plans_kept\": %llu}\n",
        state_names[s.state < 4 ? s.state : 0], vm_policy_name(), U(s.budget_bytes), U(page),
        U(s.peak_device_bytes), U(s.peak_block_bytes), U(s.host_bytes), U(s.out_bytes),
        U(s.in_bytes), U(s.dropped_bytes), U(s.demand_moves), U(period), U(s.iterations),
        U(s.planned_iterations), U(s.deviations), U(s.regenerated), U(failed), U(hosted),
        U(l.compared), U(l.plan_us), U(l.expected_us), U(l.measured_us), U(l.error_ppm),
        U(l.revised), U(l.kept));
#undef U
}

static void write_stats(const char *knob)
{
    char text[2048];
    struct vm_out_file o;
    int error = vm_out_file_open(&o, knob, "");
    if (!error)
        error = vm_out_file_close(&o, vm_out_file_write(&o, text, stats_text(text, sizeof text)));
    if (error)
        vm_log(STATS_PATH, o.path, error);
}

/* No driver call is needed here: at exit the driver may be gone already. */
static void at_exit(void)
{
    if (getpid() != owner)
        return;
    bool was = atomic_exchange(&active, false);
    if (!was)
        return;
    vm_scope_depth++;
    for (unsigned i = 0; i < VM_MAX_DEVICES; i++)
        if (vm_devices[i] && !vm_devices[i]->unserved &&
            pthread_mutex_trylock(&vm_devices[i]->lock) == 0) {
            vm_recorder_finish(vm_devices[i]);
            pthread_mutex_unlock(&vm_devices[i]->lock);
        }
    if (*vm_config()->stats_file)
        write_stats(vm_config()->stats_file);
    vm_scope_depth--;
}

static void in_child(void)
{
    atomic_store(&active, false);
}

void vm_rt_after_init(void)
{
    if (atomic_load(&active))
        return;
    owner = getpid();
    if (pthread_atfork(NULL, NULL, in_child) != 0 || atexit(at_exit) != 0)
        return;
    atomic_store(&active, true);
}

void vm_rt_context_gone(CUcontext ctx)
{
    vm_device_forget(ctx);
    if (getpid() == owner && *vm_config()->stats_file) /* the process may end by _exit */
        write_stats(vm_config()->stats_file);
}
