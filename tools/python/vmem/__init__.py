"""What a Python program may tell libvmem, if it likes: the calls of vmem.h. Nothing here is needed.

The preloaded libvmem.so is found in the process; nothing is loaded and nothing is installed by it. Without
libvmem every call answers `Outcome.ABSENT` and does nothing, so a program may keep its calls in place.

A device address is given as a tensor (anything with `data_ptr()`, or with `__cuda_array_interface__`), or
as a whole number. Any address inside a block means the block; with PyTorch each tensor's storage is one.
All functions may be called from any thread.
"""
from __future__ import annotations

import ctypes
import dataclasses
import enum
import importlib
import sys
import threading
from typing import Any, Callable, Protocol, Union

__all__ = ["ArrayInterface", "DataPointer", "Device", "Outcome", "Regenerate", "RegenerationError", "State", "Stats", "dead",
           "keep", "loaded", "regenerable", "stats", "step", "torch_allocator"]


class Outcome(enum.IntEnum):
    """What became of a call."""
    DONE = 0     #: libvmem took it
    ABSENT = 1   #: libvmem is not in the process, is switched off, or CUDA was not initialised yet
    UNKNOWN = 2  #: the address is not in a block that libvmem serves


class State(enum.IntEnum):
    """How far libvmem is with the program's iteration."""
    PASS_THROUGH = 0
    RECORDING = 1
    PLANNED = 2
    DEVIATING = 3


class DataPointer(Protocol):
    """A tensor of PyTorch's kind."""

    def data_ptr(self) -> int: ...


class ArrayInterface(Protocol):
    """An array of CuPy's or Numba's kind."""

    @property
    def __cuda_array_interface__(self) -> dict[str, object]: ...


Device = Union[int, DataPointer, ArrayInterface]

#: Makes the block's contents anew: called with its address, its bytes and the stream (a CUstream as a
#: number) on which the work has to be issued, on the thread that needs the block. It may launch work
#: but must not allocate or free device memory, nor wait for the device.
Regenerate = Callable[[int, int, int], None]


class RegenerationError(RuntimeError):
    """A function given to regenerable() failed: its block's contents are wrong since then."""


@dataclasses.dataclass(frozen=True)
class Stats:
    """The counters of `struct vmem_stats`; bytes, or numbers of times, since the start."""
    state: State
    budget_bytes: int
    device_bytes: int
    peak_device_bytes: int
    block_bytes: int
    peak_block_bytes: int
    host_bytes: int
    out_bytes: int
    in_bytes: int
    iterations: int
    planned_iterations: int
    deviations: int
    demand_moves: int
    regenerated: int
    dropped_bytes: int


class _Stats(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint32), ("state", ctypes.c_uint32)] + [
        (field.name, ctypes.c_uint64) for field in dataclasses.fields(Stats)[1:]]


_REGENERATE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p)
_process = ctypes.CDLL(None)

_lock = threading.Lock()
_functions: dict[int, Regenerate] = {}  # by the number that libvmem hands back
_numbers: dict[int, int] = {}           # by address
_next_number = 1
_failure: BaseException | None = None


def _function(name: str, *arguments: object) -> Callable[..., int] | None:
    try:
        found = getattr(_process, name)
    except AttributeError:
        return None
    found.restype = ctypes.c_int
    found.argtypes = arguments
    return found  # type: ignore[no-any-return]


_step = _function("vmem_step")
_keep = _function("vmem_keep", ctypes.c_void_p)
_dead = _function("vmem_dead", ctypes.c_void_p)
_regenerable = _function("vmem_regenerable", ctypes.c_void_p, _REGENERATE, ctypes.c_void_p, ctypes.c_uint64)
_get_stats = _function("vmem_get_stats", ctypes.POINTER(_Stats))


def _outcome(status: int) -> Outcome:
    if status < 0:
        raise ValueError("libvmem refuses the argument (VMEM_EINVAL)")
    return Outcome(status)


def _address(block: Device) -> int:
    if isinstance(block, int):
        return block
    pointer = getattr(block, "data_ptr", None)
    if pointer is not None:
        return int(pointer())
    interface = getattr(block, "__cuda_array_interface__", None)
    if interface is not None:
        return int(interface["data"][0])
    raise TypeError(f"{type(block).__name__} has no device address (data_ptr or __cuda_array_interface__)")


def loaded() -> bool:
    """Is libvmem.so in this process?"""
    return _step is not None


def step() -> Outcome:
    """An iteration ends here.

    Raises RegenerationError, once, if a function given to regenerable() has failed.
    """
    global _failure
    with _lock:
        failure, _failure = _failure, None
    if failure is not None:
        raise RegenerationError("a block's contents could not be made anew") from failure
    return Outcome.ABSENT if _step is None else _outcome(_step())


def _tell(function: Callable[..., int] | None, block: Device) -> Outcome:
    address = _address(block)
    if function is None:
        return Outcome.ABSENT
    return _outcome(function(address)) if address else Outcome.UNKNOWN  # an empty tensor has no block


def keep(block: Device) -> Outcome:
    """The block stays on the device until it is freed."""
    return _tell(_keep, block)


def dead(block: Device) -> Outcome:
    """The contents are of no more use: the block may lose them without a copy."""
    return _tell(_dead, block)


def _call_back(address: int | None, size: int, stream: int | None, number: int | None) -> None:
    global _failure
    try:
        with _lock:
            function = _functions[number or 0]
        function(address or 0, size, stream or 0)
    except BaseException as failure:  # nothing may pass through libvmem's frames; step() reports it
        with _lock:
            _failure = failure
        print(f"vmem: a function given to regenerable() failed: {failure!r}", file=sys.stderr)


_call_back_c = _REGENERATE(_call_back)  # one for all promises: libvmem may hold it for the process's life


def regenerable(block: Device, function: Regenerate | None, cost_ns: int = 0) -> Outcome:
    """The contents may be dropped, and made anew by `function` at a cost of about `cost_ns`.

    None takes it back. What the function reads must itself be unchanged until then. The function is held
    until it is taken back or another is given for the same address, even when the block is freed: if it
    holds the tensor itself, that stays allocated.
    """
    global _next_number
    address = _address(block)
    if cost_ns < 0:
        raise ValueError("cost_ns must not be negative")
    if _regenerable is None:
        return Outcome.ABSENT
    if not address:
        return Outcome.UNKNOWN
    if function is None:
        outcome = _outcome(_regenerable(address, _REGENERATE(), None, 0))
        with _lock:
            _functions.pop(_numbers.pop(address, 0), None)
        return outcome
    with _lock:
        number = _next_number
        _next_number += 1
        _functions[number] = function
    try:
        outcome = _outcome(_regenerable(address, _call_back_c, number, cost_ns))
    except ValueError:
        with _lock:
            del _functions[number]
        raise
    with _lock:
        stale = number if outcome is not Outcome.DONE else _numbers.get(address, 0)
        if outcome is Outcome.DONE:
            _numbers[address] = number
        _functions.pop(stale, None)
    return outcome


def stats() -> Stats | None:
    """The counters so far; None where libvmem is absent."""
    if _get_stats is None:
        return None
    counters = _Stats(size=ctypes.sizeof(_Stats))
    if _outcome(_get_stats(ctypes.byref(counters))) is not Outcome.DONE:
        return None
    names = [field.name for field in dataclasses.fields(Stats)[1:]]
    return Stats(State(counters.state), **{name: int(getattr(counters, name)) for name in names})


def torch_allocator() -> Any:
    """libvmem's functions as an allocator for torch.cuda.memory.change_current_allocator(), which has to be called
    before PyTorch's first use of the card; None where libvmem is absent.

    With it torch.cuda.set_per_process_memory_fraction() bounds what tensors take of the card (the rest moves) and
    torch.cuda.empty_cache() gives memory that no tensor uses back to the driver.
    """
    if not loaded():
        return None
    memory = importlib.import_module("torch.cuda.memory")
    chosen = memory.CUDAPluggableAllocator(None, "vmem_torch_malloc", "vmem_torch_free")
    inner = chosen.allocator()
    for setter, name in {"set_reset_fn": "vmem_torch_reset", "set_memory_fraction_fn": "vmem_torch_memory_fraction",
                         "set_base_alloc_fn": "vmem_torch_base_alloc", "set_record_stream_fn": "vmem_torch_record_stream"}.items():
        getattr(inner, setter)(ctypes.cast(getattr(_process, name), ctypes.c_void_p).value)
    return chosen
