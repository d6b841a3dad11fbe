"""Numba's kernels, streams, events and kinds of memory; `numba_probe.py train` is the loop of work.py."""
import sys

import numpy as np
from numba import cuda

import work


@cuda.jit
def add(x, y, z):
    i = cuda.grid(1)
    if i < z.size:
        z[i] = x[i] + y[i]


@cuda.jit
def multiply_add(x, y, z):
    i = cuda.grid(1)
    if i < z.size:
        z[i] += x[i] * y[i]


@cuda.jit
def step(x, y, z):
    i = cuda.grid(1)
    if i < z.size:
        z[i] = y[i] - x[i] / 8


def over(kernel):
    return lambda x, y, z: kernel[(z.size + 255) // 256, 256](x, y, z)


def train():
    work.train(lambda data: cuda.to_device(np.frombuffer(data, np.float32)), over(add), over(multiply_add),
               over(step), lambda block: block.copy_to_host().tobytes())


def kinds_of_memory():
    data = np.arange(1 << 16, dtype=np.float32)
    x, y, z = (cuda.to_device(data) for _ in range(3))
    stream, event = cuda.stream(), cuda.event()
    add[256, 256, stream](x, y, z)
    event.record(stream)
    event.synchronize()
    print("copied", bool((z.copy_to_host() == data).all()))
    pinned = cuda.pinned_array(data.size, np.float32)
    pinned[:] = 3
    z.copy_to_device(pinned, stream=stream)
    stream.synchronize()
    print("pinned", z.copy_to_host().sum())
    mapped = cuda.mapped_array(1000)
    mapped[:] = 2
    managed = cuda.managed_array(1000)
    managed[:] = 1
    over(add)(mapped, managed, mapped)
    cuda.synchronize()
    print("mapped", mapped.sum(), "managed", managed.sum())
    part = z[100:200]
    part.copy_to_device(np.zeros(100, np.float32))
    print("part", z.copy_to_host().sum(), part.copy_to_host().sum())


def main():
    print("available", cuda.is_available())
    if not cuda.is_available():
        try:
            cuda.to_device([1])
        except Exception as e:  # which one depends on whether there is a driver's library at all
            print(type(e).__name__)
        return
    print(cuda.get_current_device().name, cuda.current_context().get_memory_info().total)
    kinds_of_memory()
    if sys.argv[1:] == ["train"]:
        train()


main()
