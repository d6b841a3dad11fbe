"""What CuPy finds and can do here: the same lines are printed whether or not libvmem.so is in the process."""
import cupy


def attempt(what, function):
    try:
        print(what, function())
    except Exception as e:  # whatever it is: the point is that it is the same
        print(what, type(e).__name__, e)


def add_on_device():
    x = cupy.arange(1000)
    return int((x + x).sum())


print("cupy", cupy.__version__, cupy.cuda.is_available())
attempt("runtime", cupy.cuda.runtime.runtimeGetVersion)
attempt("driver", cupy.cuda.runtime.driverGetVersion)
attempt("devices", cupy.cuda.runtime.getDeviceCount)
attempt("pool", lambda: cupy.get_default_memory_pool().total_bytes())
attempt("pinned", lambda: cupy.cuda.alloc_pinned_memory(4096).size())
attempt("add", add_on_device)
