"""Triton without PyTorch: its launcher asks the driver for each pointer it is given.
`triton_probe.py train` is the loop of work.py."""
import ctypes
import sys

import triton
import triton.language as tl
from triton.runtime import driver

import work


@triton.jit
def add(x, y, z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(z + i, tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)


@triton.jit
def multiply_add(x, y, z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    product = tl.load(x + i, mask=inside) * tl.load(y + i, mask=inside)
    tl.store(z + i, tl.load(z + i, mask=inside) + product, mask=inside)


@triton.jit
def step(x, y, z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(z + i, tl.load(y + i, mask=inside) - tl.load(x + i, mask=inside) / 8, mask=inside)


class Driver:
    """The few calls that a program without PyTorch makes itself."""

    def __init__(self):
        self.library = ctypes.CDLL("libcuda.so.1")

    def call(self, name, *args):
        status = getattr(self.library, name)(*args)
        if status:
            raise RuntimeError(f"{name} failed with {status}")

    def upload(self, data):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(len(data)))
        self.call("cuMemcpyHtoD_v2", address, data, ctypes.c_size_t(len(data)))
        return Pointer(address.value, len(data))

    def download(self, pointer):
        data = ctypes.create_string_buffer(pointer.size)
        self.call("cuMemcpyDtoH_v2", data, ctypes.c_uint64(pointer.address), ctypes.c_size_t(pointer.size))
        return data.raw


class Pointer:
    """What Triton takes for a tensor."""
    dtype = "fp32"

    def __init__(self, address, size):
        self.address, self.size = address, size

    def data_ptr(self):
        return self.address


def over(kernel):
    def launch(x, y, z):
        n = z.size // 4
        return kernel[(triton.cdiv(n, 1024),)](x, y, z, n, BLOCK=1024)
    return launch


def main():
    try:
        active = driver.active
    except RuntimeError as e:
        print(type(e).__name__, e)
        return
    print(active.get_current_target())
    active.set_current_device(0)
    cuda = Driver()
    blocks = [cuda.upload(work.contents(i)) for i in range(3)]
    kernel = over(add)(*blocks)
    cuda.call("cuCtxSynchronize")
    print("warps", kernel.metadata.num_warps, "shared", kernel.metadata.shared)
    try:
        over(add)(blocks[0], Pointer(4096, work.BLOCK), blocks[2])
        print("a host pointer was taken")
    except ValueError as e:
        print(type(e).__name__, e)
    if sys.argv[1:] == ["train"]:
        work.train(cuda.upload, over(add), over(multiply_add), over(step), cuda.download)


main()
