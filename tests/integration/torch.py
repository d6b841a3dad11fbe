#!/usr/bin/env python3
"""PyTorch under a bare preload: its caching is switched off unless VMEM_TORCH=0, and the log says what its
settings mean then."""
import json
import pathlib
import re
import sys
import tempfile

from vmtest import PROGRAMS, check, finish, run

LIBRARY = sys.argv[1]
PROGRAM = PROGRAMS / "torch"


CACHE_OFF = 501   # numbers of docs/messages.md
ARENA, EXPANDABLE, POOL, SETTINGS = 502, 503, 504, 505
SPELLINGS = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"]


def caching(*args, library=LIBRARY, **extra):
    """Was caching switched off, and the numbers of the lines about PyTorch."""
    r = run([PROGRAM, library, *args], VMEM_LOG="info", **extra)
    check(r.returncode == 0, f"{args} {extra}: {r.stdout} {r.stderr}")
    numbers = re.findall(r"^libvmem\[\d+\] \w+ (5\d\d):", r.stderr, re.M)
    return "caching 1" in r.stdout, [int(n) for n in numbers]


check(caching() == (True, [CACHE_OFF]), "PyTorch was not noticed")
check(caching(library="libm.so.6") == (False, []), "something else was taken for PyTorch")
check(caching("thread") == (True, [CACHE_OFF]), "nothing was done with a second thread running")
for name in SPELLINGS:
    for value, kept in [("expandable_segments:True", EXPANDABLE), ("max_split_size_mb:64, expandable_segments : True", EXPANDABLE),
                        ("expandable_segments:False,backend:native", ARENA)]:
        check(caching(**{name: value}) == (True, [CACHE_OFF, SETTINGS]), f"{name}={value}: not overruled or not said")
        check(caching(VMEM_TORCH=0, **{name: value}) == (False, [kept]), f"{name}={value}: overruled or its cost not said")
    for torch in (0, 1):
        check(caching(VMEM_TORCH=torch, **{name: "max_split_size_mb:64,backend:cudaMallocAsync"}) == (False, [POOL]),
              f"{name}: another allocator was overruled or not said")
check(caching(PYTORCH_NO_CUDA_MEMORY_CACHING="1") == (True, []), "what was set was set again")
check(caching(VMEM_TORCH=0) == (False, [ARENA]), "VMEM_TORCH=0 does not keep the cache, or its cost is not said")
check(caching(VMEM_OFF=1) == (False, []), "VMEM_OFF=1 does not keep it off")

r = run([PROGRAM, LIBRARY, "allocate"])
check(r.stdout.splitlines()[2:] == ["current context kept 1", "block of 1000 bytes, contents kept 1", "freed 1",
                                    "nothing for nothing 1, for too much 1"], f"the pair: {r.stdout} {r.stderr}")

# The other functions. Of a budget of 16 MiB a half holds one block of 6 MiB, so the other one moves.
with tempfile.TemporaryDirectory() as folder:
    stats = pathlib.Path(folder, "stats.json")
    r = run([PROGRAM, LIBRARY, "ask"], VMEM_BUDGET="16MiB", VMEM_LOG="info", VMEM_STATS_FILE=stats)
    check(r.returncode == 0 and r.stdout.splitlines()[2:] == ["written 1", "base 1", "none 1", "contents 1", "contents 1"],
          f"what else PyTorch may ask: {r.stdout} {r.stderr}")
    check(json.loads(stats.read_text())["out_bytes"] >= 4 << 20, "half of the budget holds both blocks")
check(re.findall(r" 312: .* at most (\d+) MiB", r.stderr) == ["8", "16"], f"shares of the card: {r.stderr}")

# Without PyTorch's cache an allocation in a capture is a call of the driver's, which refuses it bare.
for setting in ({}, {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}):
    for budget in ("24MiB", "100%"):
        r = run([PROGRAM, LIBRARY, "capture"], VMEM_LOG="info", VMEM_BUDGET=budget, **setting)
        check(r.returncode == 0, f"memory in captures, {setting} {budget}: {r.stdout} {r.stderr}")
        check(re.findall(r" (506):", r.stderr) == ["506"], f"not said, or more than once: {r.stderr}")
r = run([PROGRAM, LIBRARY, "capture"], VMEM_TORCH=0)
check(r.returncode != 0 and "allocated and freed in a capture 0" in r.stdout,
      f"with its cache PyTorch asks for nothing in a capture, but it was served: {r.stdout}")
finish()
