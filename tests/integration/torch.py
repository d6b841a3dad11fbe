#!/usr/bin/env python3
"""PyTorch under a bare preload: its caching is switched off when nothing speaks against it."""
import sys

from vmtest import PROGRAMS, check, finish, lines_of_libvmem, run

LIBRARY = sys.argv[1]
PROGRAM = PROGRAMS / "torch"


def caching(*args, library=LIBRARY, **extra):
    r = run([PROGRAM, library, *args], VMEM_LOG="info", **extra)
    check(r.returncode == 0, f"{args} {extra}: {r.stdout} {r.stderr}")
    lines = lines_of_libvmem(r.stderr)
    return ("caching 1" in r.stdout, any("PYTORCH_NO_CUDA_MEMORY_CACHING" in line for line in lines),
            any("segments, not tensors" in line for line in lines))


check(caching() == (True, True, False), "PyTorch was not noticed")
check(caching(library="libm.so.6") == (False, False, False), "something else was taken for PyTorch")
check(caching("thread") == (False, False, False), "the environment was changed with a second thread running")
for name in ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"]:
    check(caching(**{name: "expandable_segments:True"}) == (False, False, True), f"{name} was overruled or not said")
check(caching(PYTORCH_NO_CUDA_MEMORY_CACHING="1") == (True, False, False), "what was set was set again")
check(caching(VMEM_TORCH=0) == (False, False, False), "VMEM_TORCH=0 does not keep it off")
check(caching(VMEM_OFF=1) == (False, False, False), "VMEM_OFF=1 does not keep it off")

r = run([PROGRAM, LIBRARY, "allocate"])
check(r.stdout.splitlines()[2:] == ["current context kept 1", "block of 1000 bytes, contents kept 1", "freed 1",
                                    "nothing for nothing 1, for too much 1"], f"the pair: {r.stdout} {r.stderr}")
finish()
