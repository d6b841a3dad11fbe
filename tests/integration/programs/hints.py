"""A Python program that tells libvmem what it knows, over the driver's interface: no framework needed.

Prints what each call of the module answered and what became of the contents.
"""
import ctypes
import sys

import vmem

BYTES = 256 << 10
cuda = ctypes.CDLL("libcuda.so.1")


class Tensor:
    """A block on the device that looks like a framework's tensor."""

    def __init__(self, size=BYTES):
        self.pointer = ctypes.c_uint64()
        ok(cuda.cuMemAlloc_v2(ctypes.byref(self.pointer), ctypes.c_size_t(size)))
        self.size = size

    def data_ptr(self):
        return self.pointer.value

    def fill(self, value):
        ok(cuda.cuMemsetD8_v2(self.pointer, ctypes.c_ubyte(value), ctypes.c_size_t(self.size)))

    def contents(self):
        out = (ctypes.c_ubyte * self.size)()
        ok(cuda.cuMemcpyDtoH_v2(out, self.pointer, ctypes.c_size_t(self.size)))
        return set(bytes(out))


class Array:
    """The same block in CuPy's manner."""

    def __init__(self, tensor):
        self.__cuda_array_interface__ = {"data": (tensor.data_ptr(), False), "shape": (tensor.size,), "version": 3}


def ok(status):
    if status != 0:
        sys.exit(f"the driver answers {status}")


def start():
    device, context = ctypes.c_int(), ctypes.c_void_p()
    ok(cuda.cuInit(0))
    ok(cuda.cuDeviceGet(ctypes.byref(device), 0))
    ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    ok(cuda.cuCtxSetCurrent(context))


def error_of(function, *arguments):
    try:
        return function(*arguments).name
    except (TypeError, ValueError, vmem.RegenerationError) as error:
        return type(error).__name__


def dropped(function, others):
    """A block whose contents `function` makes anew, after so many others needed its place."""
    block = Tensor()
    block.fill(7)
    print("promise", error_of(vmem.regenerable, block, function, 1000))
    for other in others:
        other.fill(1)
    return block


def refill(address, size, stream):
    ok(cuda.cuMemsetD8Async(ctypes.c_uint64(address), ctypes.c_ubyte(7), ctypes.c_size_t(size), ctypes.c_void_p(stream)))


def fails(address, size, stream):
    refill(address, size, stream)
    raise OSError("planted")


before = error_of(vmem.step)
start()
print("before and after cuInit", before, error_of(vmem.step))
first = Tensor()
print("keep", error_of(vmem.keep, first), error_of(vmem.keep, Array(first)), error_of(vmem.keep, first.data_ptr() + 5))
print("elsewhere", error_of(vmem.keep, 4096), error_of(vmem.keep, 0), error_of(vmem.keep, "text"))
print("dead", error_of(vmem.dead, Tensor()))
crowd = [Tensor() for _ in range(6)]
block = dropped(refill, crowd)
stats = vmem.stats()
print("contents", block.contents())
again = vmem.stats()
print("made anew", again and again.regenerated - stats.regenerated, "dropped", again and again.dropped_bytes > 0,
      "budget", again and again.budget_bytes)
print("taken back", error_of(vmem.regenerable, block, None), "negative cost", error_of(vmem.regenerable, block, refill, -1))
for other in crowd:
    other.fill(1)
print("contents", block.contents())
print("not made anew", again and vmem.stats().regenerated - again.regenerated)
block = dropped(fails, crowd)
print("contents", block.contents())
print("failure", error_of(vmem.step), "then", error_of(vmem.step))
